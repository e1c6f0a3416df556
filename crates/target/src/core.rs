//! Sessions of one target with its clients.

use base::{ClientId, Duration, Epoch, Now, Status, TargetId, Time, Transno, Xid};
use bytes::Bytes;
use std::sync::Arc;
use store::{Batch, MetaStore, StoreError};
use wire::{Callback, Frame, Reply, Request};

#[derive(Clone, Debug)]
pub struct CoreOptions {
    pub id: TargetId,
    pub uuid: u128,
    pub fsname: String,
    pub now: Now,
    /// `limits::RECOVERY_WINDOW` unless a test or an operator wants another.
    pub recovery_window: Duration,
    /// The target keeps data outside of its `MetaStore` (an OST): a transaction is committed when the owner says so
    /// too (`set_external_durable`), and replays are executed even if their rows survived.
    pub has_external_data: bool,
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
}

/// A request to execute.
#[derive(Clone, Debug)]
pub struct Work {
    pub token: Token,
    pub request: Request,
    pub data: Bytes,
}

#[derive(Clone, Debug)]
pub enum CoreOutput {
    Send(Frame),
    Execute(Box<Work>),
    /// The owner drops the locks, opens and waiting work of this client.
    Evicted(ClientId),
    /// All clients that came back have replayed; held requests follow.
    RecoveryEnded,
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
    /// A frame that makes no sense was dropped.
    ProtocolError {
        client: ClientId,
        what: &'static str,
    },
    /// A transaction got its number.
    Executed {
        client: ClientId,
        xid: Xid,
        transno: Transno,
        replay: Option<Transno>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictReason {
    /// By `Core::evict`: it did not give a lock back, or an operator wanted it.
    Asked,
    /// It did not come back in the recovery window.
    Recovery,
    /// A newer incarnation of it connected.
    Restarted,
    /// Nothing was heard of it for `SILENT_CLIENT_MAX`.
    Silent,
}

/// Sessions of one target.
pub struct Core<M: MetaStore> {
    store: Arc<M>,
    options: CoreOptions,
    transno: Transno,
}

impl<M: MetaStore> Core<M> {
    /// Tables that belong to this module; owners use the ones below.
    pub const FIRST_TABLE: u8 = 200;

    /// Reads what the target knows of its clients and raises its epoch. Frames are held until that is durable.
    ///
    /// # Errors
    /// Those of the store; damaged rows are `CorruptRow`.
    pub fn open(store: Arc<M>, options: CoreOptions) -> Result<Core<M>, StoreError> {
        let transno = store.applied();
        Ok(Core { store, options, transno })
    }

    pub fn on_frame(&mut self, _now: Now, _frame: Frame, _out: &mut Vec<CoreOutput>) {}

    /// Ends modifying work: numbers it, adds the reply slot, applies all rows at once and answers. On an error the
    /// client has got that as its answer, nothing was applied, and the owner installs nothing.
    ///
    /// # Errors
    /// That of the store; `Evicted` when the client is gone.
    pub fn commit(
        &mut self,
        _now: Now,
        _token: Token,
        _batch: Batch,
        _reply: Reply,
        _data: Bytes,
        _out: &mut Vec<CoreOutput>,
    ) -> Result<Transno, Status> {
        Err(Status::Evicted)
    }

    /// As `commit`, but the answer leaves when the transaction is committed.
    ///
    /// # Errors
    /// As `commit`.
    pub fn commit_then_reply_when_durable(
        &mut self,
        _now: Now,
        _token: Token,
        _batch: Batch,
        _reply: Reply,
        _out: &mut Vec<CoreOutput>,
    ) -> Result<Transno, Status> {
        Err(Status::Evicted)
    }

    /// A transaction of the target's own, no client's.
    ///
    /// # Errors
    /// Those of the store.
    pub fn apply_internal(&mut self, _batch: Batch) -> Result<Transno, StoreError> {
        Ok(self.transno)
    }

    /// Ends work that changed nothing.
    pub fn reply(
        &mut self,
        _now: Now,
        _token: Token,
        _result: Result<(Reply, Bytes), Status>,
        _out: &mut Vec<CoreOutput>,
    ) {
    }

    /// Ends work that changed nothing, when everything up to `up_to` is committed; kicks the store.
    pub fn reply_when_durable(
        &mut self,
        _now: Now,
        _token: Token,
        _up_to: Transno,
        _reply: Reply,
        _out: &mut Vec<CoreOutput>,
    ) {
    }

    /// A callback to a client, if it is connected.
    pub fn callback(&self, _client: ClientId, _callback: Callback, _out: &mut Vec<CoreOutput>) {}

    /// The number that the next transaction gets: for versions inside its rows and its reply.
    pub fn next_transno(&self) -> Transno {
        self.transno.next()
    }

    /// The store has made more durable (`Input::Durable` of the owner).
    pub fn on_durable(&mut self, _now: Now, _out: &mut Vec<CoreOutput>) {}

    /// With `has_external_data`: what transactions up to here put elsewhere is durable. Call `on_durable` after it.
    pub fn set_external_durable(&mut self, _transno: Transno) {}

    pub fn on_tick(&mut self, _now: Now, _out: &mut Vec<CoreOutput>) {}

    pub fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Ends a client's session against its will.
    pub fn evict(&mut self, _now: Now, _client: ClientId, _out: &mut Vec<CoreOutput>) {}

    pub fn is_recovering(&self) -> bool {
        false
    }

    /// Everything up to here survives any crash; what clients are told. Stays below the replays during recovery.
    pub fn last_committed(&self) -> Transno {
        Transno::ZERO
    }

    /// The last transaction that was applied.
    pub fn last_transno(&self) -> Transno {
        self.transno
    }

    pub fn epoch(&self) -> Epoch {
        Epoch::ZERO
    }

    pub fn id(&self) -> TargetId {
        self.options.id
    }

    pub fn store(&self) -> &Arc<M> {
        &self.store
    }

    /// Clients with a session, and what operators call them.
    pub fn clients(&self) -> impl Iterator<Item = (ClientId, &str)> {
        std::iter::empty()
    }

    pub fn is_connected(&self, _client: ClientId) -> bool {
        false
    }

    pub fn last_contact(&self, _client: ClientId) -> Option<Time> {
        None
    }

    /// Asserts the invariants.
    pub fn check(&self) {}
}
