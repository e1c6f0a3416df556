//! Requests to the management server.

use base::{ClusterConfig, PoolName, TargetConfig};
use borsh::{BorshDeserialize, BorshSerialize};

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum MgsRequest {
    /// Answered at once when the configuration is newer than `known_version`, else when it changes or after a few
    /// seconds. -> Config
    GetConfig { fsname: String, known_version: u64 } = 1,
    /// A target says where it is, each time it starts. -> Config
    Register { fsname: String, target: TargetConfig } = 2,
    /// `lctl set_param -P`; an empty value takes the parameter out. -> Config
    SetParam { fsname: String, path: String, value: Option<String> } = 3,
    /// -> Filesystems
    ListFilesystems = 4,
    /// `lctl pool_*`. -> Config
    ChangePool { fsname: String, name: PoolName, change: PoolChange } = 5,
}

/// OSTs by index.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum PoolChange {
    New = 1,
    /// Only of a pool without members.
    Destroy = 2,
    Add(Vec<u16>) = 3,
    Remove(Vec<u16>) = 4,
}

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum MgsReply {
    Config(ClusterConfig) = 1,
    Filesystems(Vec<String>) = 2,
}
