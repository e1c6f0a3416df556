//! Which locks clients hold, noted beside the process (`store::Holdings`).
//!
//! After the death of the process alone the files have all that was written to them, and the rows all that was answered. What the next
//! incarnation lacks are the locks. With those of the note it recovers without loss: the store syncs what was left to the kernel, so
//! no client has anything to replay; who is back is served, and waits where it meets a lock of somebody who is not back, as for one
//! whose connection is down for a while.
//!
//! What else was in memory is found again without a note. Who waited for a lock, for a sync, or for another client (a destroy) asks
//! again. A lock that was given up and had to wait for its data ends at once, since those are durable. (One whose client is
//! gone is not noted for the same reason.) Grants begin anew with the next
//! write of each client, as after any restart.

use crate::machine::{Effects, Oss};
use base::fault::{Fault, planted};
use base::{ClientId, Epoch, Now};
use ldlm::LockSpace;
use store::{Holding, HoldingKey, Holdings, Left, MetaStore, ObjectStore, StoreError};
use target::noted::{self, Unnamed};
use wire::LockGrant;

/// The note, and what follows from it in a recovery.
pub(crate) struct Noted {
    holdings: Box<dyn Holdings>,
    unnamed: Unnamed,
    /// Nobody is to believe the note of this incarnation any more.
    is_void: bool,
}

/// What the incarnation before has left, as it was.
pub(crate) struct Restored {
    pub left: Left,
    locks: LockSpace,
}

/// `None`: it makes no sense, and cannot be what it should be.
fn restore(left: Left) -> Option<Restored> {
    let mut locks = LockSpace::new();
    for (key, words) in &left.held {
        if key.kind != noted::LOCK {
            return None;
        }
        noted::restore_lock(&mut locks, *key, words)?;
    }
    Some(Restored { left, locks })
}

impl Noted {
    pub fn new(holdings: Box<dyn Holdings>) -> Noted {
        Noted { holdings, unnamed: Unnamed::default(), is_void: false }
    }

    /// What the incarnation before has left, if all of it is there. What it has written is durable then, and in any case.
    ///
    /// # Errors
    /// That of the store. The note is void then: who tries again has seen an error, and gets no second one.
    pub fn take_left(&mut self, objects: &impl ObjectStore) -> Result<Option<Restored>, StoreError> {
        let left = self.holdings.take_left();
        if planted(Fault::LeftUnsynced) {
            return Ok(left.and_then(restore));
        }
        match objects.sync_left() {
            Ok(is_all_there) => Ok(left.filter(|_| is_all_there).and_then(restore)),
            Err(error) => {
                self.void();
                Err(error)
            }
        }
    }

    fn void(&mut self) {
        self.is_void = true;
        self.holdings.begin(Epoch::ZERO, &[], false);
    }
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    /// Right after the start, in a lossless recovery.
    pub(crate) fn install_left(&mut self, now: Now, restored: Restored) {
        if planted(Fault::ObjectHoldingsIgnored) {
            return;
        }
        self.locks = restored.locks;
        for client in self.locks.holders() {
            if self.core.is_connected(client) {
                self.noted.unnamed.add(client, self.locks.locks_of(client));
            } else {
                // Its session was ended just before. Nobody waits yet.
                self.locks.drop_holder(now.time, client, &mut Vec::new());
            }
        }
    }

    /// The note of this incarnation begins.
    pub(crate) fn begin_note(&mut self) {
        self.locks.note_changes();
        let (epoch, is_whole) = (self.core.epoch(), self.core.is_lossless());
        let held = self.held();
        self.noted.holdings.begin(epoch, &held, is_whole);
    }

    /// What clients hold now, as it is noted.
    pub fn held(&self) -> Vec<(HoldingKey, Holding)> {
        noted::held_locks(&self.locks)
    }

    /// The end of each input, before its answers leave: what was granted is in the note before its client hears of it.
    pub(crate) fn note_held(&mut self) {
        noted::note_locks(&mut self.locks, &mut *self.noted.holdings);
        self.noted.holdings.set_applied(self.core.last_transno());
    }

    /// Stores have become more durable, or say that they never will: then what this process has written may be in the kernel's memory
    /// only, and look as if it were on the device.
    pub(crate) fn check_note(&mut self) {
        if !self.noted.is_void && (self.objects.is_poisoned() || self.meta.pressure().poisoned) {
            self.noted.void();
        }
    }

    /// A client says that it has these.
    pub(crate) fn note_named(&mut self, client: ClientId, locks: &[LockGrant]) {
        self.noted.unnamed.on_named(client, locks);
    }

    /// A client has named all that it has.
    pub(crate) fn on_returned(&mut self, now: Now, client: ClientId, effects: &mut Effects) {
        let unnamed = self.noted.unnamed.take(client);
        self.locks.cancel(now.time, client, &unnamed, &mut effects.locks);
    }

    pub(crate) fn forget_noted(&mut self, client: ClientId) {
        self.noted.unnamed.take(client);
    }

    /// The recovery is over.
    pub(crate) fn on_recovered(&mut self) {
        self.noted.unnamed.clear();
        if !self.noted.is_void {
            self.noted.holdings.set_whole();
        }
    }
}
