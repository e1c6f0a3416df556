//! One session with one target, seen from the caller.

use base::{ClientId, Now, Status, TargetId, Time, Transno};
use bytes::Bytes;
use wire::{Callback, Frame, Reply, Request};

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
    /// As Plain, and never queued behind others: cancels, closes that change nothing, pings.
    Reserved,
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
    /// The target knows nothing of this caller any more: locks, opens and uncommitted work are gone.
    Evicted,
    Callback(Callback),
    State(ImportState),
}

/// One session with one target.
pub struct Import {
    options: ImportOptions,
    state: ImportState,
}

impl Import {
    pub fn new(options: ImportOptions) -> Import {
        Import { options, state: ImportState::Idle }
    }

    /// Hands in a request; it is sent when the session and the kind allow it.
    #[allow(clippy::too_many_arguments)]
    pub fn submit(
        &mut self,
        _now: Now,
        _request: Request,
        _data: Bytes,
        _kind: Kind,
        _trace: u64,
        _out: &mut Vec<ImportOutput>,
    ) -> Ticket {
        Ticket(0)
    }

    /// Opens the session without a request.
    pub fn connect(&mut self, _now: Now, _out: &mut Vec<ImportOutput>) {}

    /// A frame from the target; others are ignored.
    pub fn on_frame(&mut self, _now: Now, _frame: Frame, _out: &mut Vec<ImportOutput>) {}

    /// The transport lost its connection to the target: look at once whether it was restarted.
    pub fn on_connection_lost(&mut self, _now: Now, _out: &mut Vec<ImportOutput>) {}

    pub fn on_tick(&mut self, _now: Now, _out: &mut Vec<ImportOutput>) {}

    pub fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// The caller gave up: no `Completed` comes any more. What the request did is retained all the same.
    pub fn forget(&mut self, _ticket: Ticket) {}

    /// Ends the session; requests still outstanding are completed with `NotConnected`.
    pub fn disconnect(&mut self, _now: Now, _out: &mut Vec<ImportOutput>) {}

    /// The answer to `ReplayWanted`: `Reopen`, `ReplayFlocks`, `Lock::Replay`. Their results are not reported.
    pub fn replay_now(&mut self, _now: Now, _requests: Vec<(Request, Bytes)>, _out: &mut Vec<ImportOutput>) {}

    pub fn options(&self) -> &ImportOptions {
        &self.options
    }

    pub fn state(&self) -> ImportState {
        self.state
    }

    pub fn last_committed(&self) -> Transno {
        Transno::ZERO
    }

    /// When the target was last heard; `None` before the first time in this session.
    pub fn last_contact(&self) -> Option<Time> {
        None
    }

    /// Request data kept for replay.
    pub fn retained_bytes(&self) -> usize {
        0
    }

    /// Retained requests with a transno above this.
    pub fn uncommitted_after(&self, _transno: Transno) -> usize {
        0
    }

    /// Requests submitted and not completed.
    pub fn outstanding(&self) -> usize {
        0
    }

    /// Time of the target minus time here, nanoseconds, as learnt at connect.
    pub fn wall_offset_ns(&self) -> i64 {
        0
    }

    /// Asserts the invariants.
    pub fn check(&self) {}
}
