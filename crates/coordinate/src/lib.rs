//! Who owns the targets that several servers could serve: one seam, `Keeper`, with two implementations. The management server keeps it
//! in its own store, or etcd does. Both pass the suite in `conformance`.
//!
//! What the management server itself keeps goes through another seam, `store::MetaStore`: its own disk, or etcd (`etcd::rows`).
//!
//! A keeper says who owns a target and whether he renews his lease. It never says that somebody has stopped writing: that is the fence's
//! part, and the caller's.

#![forbid(unsafe_code)]

pub mod conformance;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod members;
pub mod of_mgs;

use base::{Epoch, Status, TargetId};
pub use members::Members;
pub use of_mgs::OfMgs;
use wire::Ownership;

/// Keeps for each target an owner, an epoch that rises each time that it is taken, and a lease. Of one server and one file system.
pub trait Keeper: Send + Sync {
    /// This server serves `keeps`, which renews its leases, and could serve `asks`. -> What is known of both, in this order.
    ///
    /// That a lease has ended is no matter as long as nobody has taken the target: its owner goes on. Time in which the keeper did not run
    /// counts against nobody.
    ///
    /// # Errors
    /// It does not answer, which says nothing about anybody.
    fn keep(&self, keeps: &[TargetId], asks: &[TargetId]) -> Result<Vec<Ownership>, KeeperError>;

    /// Takes a target, unless somebody else whose lease holds owns it or its epoch is not `over` any more. Durable. -> The new epoch.
    ///
    /// # Errors
    /// It is not given, or nothing is known: then it may be given later, and this server owns it without serving it.
    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch, KeeperError>;

    /// This server has closed these targets, and writes to them no more: whoever comes next need fence nobody. What it does not own stays.
    ///
    /// # Errors
    /// It does not answer: then whoever comes next has to fence this server.
    fn leave(&self, targets: &[TargetId]) -> Result<(), KeeperError>;

    /// The same of one target that this server has taken and could not open, while it goes on with others.
    ///
    /// # Errors
    /// As `leave`.
    fn give_back(&self, target: TargetId) -> Result<(), KeeperError>;

    /// The process ends. Where the keeper is asked over a session that it has with others, which ends before all is closed, it is asked over
    /// one of its own from now on: leases are renewed until `leave`.
    fn outlive_session(&self) {}

    /// Which keeper this is, the same from wherever it is asked: servers that ask different ones would each be given the same target.
    ///
    /// # Errors
    /// It does not answer.
    fn identity(&self) -> Result<String, KeeperError>;

    /// What an owner does that does not hear the keeper.
    fn silence(&self) -> Silence;

    /// For the operator: `the management server`.
    fn name(&self) -> &str;
}

/// Under this name the management server is one of several targets, where another management server stands by for it. No file system is
/// called so.
pub const MGS_NAME: &str = ".mgs";

/// The management server's `identity`: there is one for each file system.
pub const MGS_IDENTITY: &str = "mgs";

/// What an owner does while its keeper is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It serves on. The keeper is one process: while that is down nobody can take anything over, and its death must not end every server.
    ServesOn,
    /// It writes until its lease ends, and then not before it has heard that it is still the owner. The keeper is several machines: who
    /// does not hear it is more likely cut off than right.
    HoldsBack,
}

/// Why a keeper gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A sentence, from whoever carries the questions.
    #[error("{0}")]
    Silent(String),
    #[error(
        "etcd at {members} does not answer; see that a majority of its members runs and can be reached ({last})"
    )]
    EtcdSilent { members: String, last: String },
    #[error(
        "etcd at {members} answers that it does not do this: {last}{others}; put that right there, it is asked again"
    )]
    EtcdRefuses {
        members: String,
        last: String,
        /// What is known of members that say nothing.
        others: String,
    },
    #[error("{target} is not given: somebody has taken it since epoch {}, or its owner renews its lease", over.0)]
    Denied { target: TargetId, over: Epoch },
    #[error("the management server is of a version without failover; bring it up to date first")]
    MgsTooOld,
    #[error("the management server refuses: {0}")]
    MgsRefuses(Status),
    #[error("the management server answers something else than it was asked")]
    MgsStrange,
    #[error(
        "etcd holds something in {key} that is no ownership of this version; see who has written it, and put it right before any server \
         takes that target"
    )]
    EtcdDamaged { key: String },
    #[error("the threads of the etcd client cannot be started: {0}")]
    NoRuntime(#[source] std::io::Error),
}
