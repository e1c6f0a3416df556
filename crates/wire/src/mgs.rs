//! Requests to the management server.

use crate::claim::Claim;
use base::{ClientId, ClusterConfig, Epoch, PoolName, Start, TargetConfig, TargetId};
use borsh::{BorshDeserialize, BorshSerialize};

#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum MgsRequest {
    /// Answered at once when the configuration is newer than `known_version`, else when it changes or after a few
    /// seconds. -> Config
    GetConfig { fsname: String, known_version: u64 } = 1,
    /// A target says where it is, each time it starts. Where it was before somebody may serve it still: he is asked, unless it
    /// is taken by a server that owns it. -> Config, Outdated, or `Busy`
    Register {
        fsname: String,
        target: TargetConfig,
        #[borsh(serialize_with = "crate::claim::serialize", deserialize_with = "crate::claim::deserialize")]
        claim: Claim,
    } = 2,
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
    /// From a server with failover, several times within a lease: it serves `keeps`, which renews its leases of those that it owns, and
    /// could serve `asks`. -> Ownerships of both
    KeepOwned { fsname: String, server: u128, keeps: Vec<TargetId>, asks: Vec<TargetId> } = 9,
    /// A server with failover takes a target whose ownership had the epoch `over`; given only when nobody owns it, the lease of its owner
    /// has ended, or the server owns it already. -> Ownerships, of this one; durable
    TakeOwned { fsname: String, target: TargetId, over: Epoch, by: TargetOwner } = 10,
    /// A server has closed targets that it owned, and writes to them no more. -> Ownerships, of these; durable
    LeaveOwned { fsname: String, server: u128, targets: Vec<TargetId> } = 11,
}

/// A server that owns a target: who it is, and what a fence command needs to find it.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct TargetOwner {
    /// Random, of this run of the process.
    pub server: u128,
    /// Address `HOST:PORT` on which it listens.
    pub nid: String,
    pub host: String,
    pub pid: u32,
}

/// Who owns a target.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Ownership {
    pub target: TargetId,
    /// Raised each time that it is taken; zero when it never was.
    pub epoch: Epoch,
    pub owner: Option<TargetOwner>,
    /// The owner has not renewed its lease. It may write all the same: only a fence ends that.
    pub has_lapsed: bool,
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
    Ownerships(Vec<Ownership>) = 4,
    /// As `Config`, to a target that has told of its starts, and descends from the last one that is known.
    Confirmed(ClusterConfig) = 6,
    /// A later start of the target is known than this copy of it knows.
    Outdated {
        known: Start,
    } = 5,
}
