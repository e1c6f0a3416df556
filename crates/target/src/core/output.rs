//! What the core tells its owner: work, whose session has ended, and what happened.

use base::{ClientId, Endpoint, Epoch, Start, Status, TargetId, Time, Transno, Xid};
use bytes::Bytes;
use store::Batch;
use wire::mdt::Access;
use wire::{Frame, Life, Opcode, Request};

/// Of an owner that owes nothing.
pub fn nothing_owed(_: &Gone, _: &mut Batch) {}

/// Whose session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    pub life: Life,
    /// Against its will.
    pub why: Option<EvictReason>,
    pub during: During,
    /// The incarnation of the target.
    pub epoch: Epoch,
    /// When a frame of it came last, or the target was started.
    pub heard_at: Time,
}

/// Names a piece of work; needed to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub client: ClientId,
    pub session: u64,
    pub xid: Xid,
    /// `Frame::NO_SLOT` for a request that modifies nothing.
    pub slot: u16,
    pub trace: u64,
    /// Sent again after a restart, in the order of these numbers: the transno that it had. Execute it without
    /// claims and without granting locks.
    pub replay: Option<Transno>,
    /// Nobody waits for the answer yet (`flags::UNAWAITED`).
    pub is_unawaited: bool,
}

/// A request to execute.
#[derive(Clone, Debug)]
pub struct Work {
    pub token: Token,
    pub request: Request,
    pub data: Bytes,
}

/// What a target was doing when a client went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// It served everybody.
    Service,
    /// It recovered, and had lost nothing but locks and handles, which it knew (`Core::is_lossless`).
    LosslessRecovery,
    Recovery,
}

impl During {
    pub fn is_recovery(self) -> bool {
        self != During::Service
    }
}

#[derive(Clone, Debug)]
pub enum CoreOutput {
    Send(Frame),
    Execute(Box<Work>),
    /// The owner drops the locks, opens and waiting work of this client. With the last one who is given up in a recovery that may have
    /// ended when the owner hears of it: what must not be forgotten is `CoreOptions::owed`.
    Evicted(Gone),
    /// In a lossless recovery: this client has named what it has open and locked, and what it has not named is not there. Its new
    /// requests follow.
    Returned(ClientId),
    /// All clients that came back have replayed; held requests follow.
    RecoveryEnded,
    /// What a client has read lately came with a ping or its goodbye.
    Accessed {
        client: ClientId,
        accesses: Vec<Access>,
    },
    Event(CoreEvent),
}

/// For logs, metrics and checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreEvent {
    Connected {
        client: ClientId,
        nid: String,
    },
    Disconnected {
        client: ClientId,
    },
    Evicted {
        client: ClientId,
        why: EvictReason,
    },
    RecoveryStarted {
        awaited: usize,
    },
    RecoveryEnded {
        returned: usize,
        evicted: usize,
    },
    /// Replays wait for this target, which is not heard, and nobody is given up for that.
    RecoveryAwaits {
        target: TargetId,
    },
    /// What a client had been told is not executed again: it depends on something that is lost. The client is told, and keeps its
    /// session.
    ReplayRefused {
        client: ClientId,
        transno: Transno,
        status: Status,
    },
    /// There is no room for what this client says that it replays: nothing is executed beside it (`limits::LISTED_OBJECTS_MAX`).
    ManifestForgotten {
        client: ClientId,
    },
    /// A frame that makes no sense was dropped.
    ProtocolError {
        client: ClientId,
        what: &'static str,
    },
    /// A request of a newer version was answered with `NotSupported`.
    UnknownRequest {
        client: ClientId,
        opcode: Opcode,
    },
    /// `by` knows of a later start of this target, which is an older copy then: nothing is served any more.
    Outdated {
        by: Endpoint,
        known: Start,
    },
    /// This client had been told that everything up to `committed` is durable, and after a restart all after `kept` is gone.
    WentBack {
        client: ClientId,
        committed: Transno,
        kept: Transno,
    },
    /// A transaction got its number.
    Executed {
        client: ClientId,
        xid: Xid,
        transno: Transno,
        replay: Option<Transno>,
    },
}

impl CoreEvent {
    /// A client lost its session against its will.
    pub fn is_eviction(&self) -> bool {
        matches!(self, CoreEvent::Evicted { why, .. } if *why != EvictReason::Restarted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictReason {
    /// An operator wanted it.
    Operator,
    /// It did not give a lock back.
    LockTimeout,
    /// Locks that it said it had after a restart are others' by now.
    LocksRefused,
    /// Another target has given it up.
    Fenced,
    /// It did not come back in the recovery window.
    Recovery,
    /// A newer incarnation of it connected.
    Restarted,
    /// Nothing was heard of it for `SILENT_CLIENT_MAX`.
    Silent,
    /// Its process is known to have ended.
    Departed,
    /// Somebody waits for it, a recovery or others for its locks; its lease has ended, and the target has not heard it either.
    Lapsed,
}

impl EvictReason {
    /// Decided about one that may well be there, by somebody, or for what it did or left undone.
    pub fn is_decided(self) -> bool {
        match self {
            EvictReason::Operator
            | EvictReason::LockTimeout
            | EvictReason::LocksRefused
            | EvictReason::Fenced => true,
            EvictReason::Recovery
            | EvictReason::Restarted
            | EvictReason::Silent
            | EvictReason::Departed
            | EvictReason::Lapsed => false,
        }
    }
}
