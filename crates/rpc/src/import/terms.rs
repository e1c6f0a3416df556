//! The words in which a caller and its import talk.

use base::{ClientId, Start, Status, TargetId, Transno, limits};
use bytes::Bytes;
use wire::{Callback, Frame, Reply, Request, flags};

/// Who calls whom.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// `Endpoint::client_id()` of the caller; replies come to `client.endpoint()`.
    pub client: ClientId,
    /// Rises when a caller with a fixed id (a target) starts anew; anything for a random id.
    pub incarnation: u64,
    pub fsname: String,
    /// What operators see of the caller.
    pub nid: String,
    /// Of a caller that is a target: its last starts, this one the last.
    pub starts: Vec<Start>,
    pub target: TargetId,
    /// From the configuration; 0 when not known.
    pub target_uuid: u128,
}

/// How a request is treated on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Changes something: executed once, retained until committed, replayed after a restart.
    Modifying,
    /// May be executed again.
    Plain,
    /// As Plain, and never queued behind others: what gives back (cancels, unlocks), and what waits for as long as somebody
    /// else likes, whose number the caller bounds.
    Reserved,
    /// As Plain, of much work, and nobody waits for it yet: what is read ahead.
    Ahead,
    /// As Modifying, of much work, and the caller goes on meanwhile: what is written behind.
    Behind,
}

impl Kind {
    pub fn is_modifying(self) -> bool {
        matches!(self, Kind::Modifying | Kind::Behind)
    }

    pub(super) fn is_plain(self) -> bool {
        matches!(self, Kind::Plain | Kind::Ahead)
    }

    pub(super) fn flags(self) -> u32 {
        if matches!(self, Kind::Ahead | Kind::Behind) { flags::UNAWAITED } else { 0 }
    }
}

/// How many requests of the caller may be in flight; operators lower it (`max_rpcs_in_flight`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightBounds {
    /// 1 to `limits::PLAIN_IN_FLIGHT_MAX`.
    pub plain: usize,
    /// 1 to `limits::SLOT_COUNT`.
    pub modifying: usize,
}

impl Default for InFlightBounds {
    fn default() -> InFlightBounds {
        InFlightBounds { plain: limits::PLAIN_IN_FLIGHT_MAX, modifying: usize::from(limits::SLOT_COUNT) }
    }
}

/// Names a submitted request until it is completed or forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A successful reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub reply: Reply,
    pub data: Bytes,
    /// Zero when nothing was changed.
    pub transno: Transno,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// No session, and nobody has asked for one.
    Idle,
    Connecting,
    /// The target was restarted and gets again what it may have lost.
    Replaying,
    Active,
    Disconnecting,
    Disconnected,
    /// The target does not want this caller; it is asked again now and then.
    Refused(Status),
}

#[derive(Clone, Debug, PartialEq)]
pub enum ImportOutput {
    Send(Frame),
    Completed {
        ticket: Ticket,
        result: Result<Answer, Status>,
    },
    /// Everything up to here survives any crash of the target.
    Committed(Transno),
    /// The target was restarted and has executed all replays of this caller: answer with `replay_now`.
    ReplayWanted,
    /// A replay was refused: what it had done is lost, although it was acknowledged.
    ReplayFailed {
        request: Box<Request>,
        status: Status,
    },
    /// The target has recovered; waiting requests go on by themselves.
    Recovered,
    /// The target knows nothing of this caller any more: locks and opens are gone, and so may be uncommitted work (`Lost`).
    Evicted,
    /// The target had answered these, and has lost them: after an eviction nobody replays them.
    Lost {
        requests: Vec<Request>,
    },
    Callback(Callback),
    State(ImportState),
    /// The session stands, and the target answers nothing (`limits::OVERDUE_AFTER`). Once, until it answers or another state comes.
    Overdue,
    /// It does again.
    AnswersAgain,
    /// The target refuses this caller, which is an older copy of a target: it knows of this start.
    Outdated(Start),
}
