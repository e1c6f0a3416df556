//! Requests to the management server.

use base::{ClientId, ClusterConfig, Epoch, PoolName, TargetConfig, TargetId};
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
    /// From a process with mounts, each second: these live. -> Done
    Renew { clients: Vec<Life> } = 6,
    /// From the process of a target that waits for these clients, and has not heard them: which of them have no lease. -> Lapsed
    AskLapsed { clients: Vec<Life> } = 7,
    /// A target has started, as this incarnation: the MGS tells everybody of the file system at once (imperative recovery). -> Done
    Started { fsname: String, target: TargetId, epoch: Epoch } = 8,
}

/// One incarnation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct Life {
    pub client: ClientId,
    pub incarnation: u64,
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
    Lapsed(Vec<Life>) = 3,
}
