//! Reads that wait for the device, each beside all other requests.
//!
//! Whoever waits in the machine for a device keeps everybody else from it. So what is not in memory is fetched by another thread, under no lock and
//! without being looked at, and then its request is executed once more: all that is decided, the bytes too, is of that moment. A request
//! may be overtaken so, as it may be on a network.

use crate::machine::{Effects, Oss, Output};
use base::{ClientId, Duration, Extent, Now, ObjectId, Status, Time};
use ldlm::Need;
use std::collections::BTreeMap;
use store::{MetaStore, ObjectStore};
use target::{Token, Work};
use wire::{LockGrant, LockMode};

/// Number of a fetch of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// A device that takes so long stands still: nobody is given up then for what he has not given back, since the answer that he needs may be
/// among those that wait.
const STANDS_STILL_AFTER: Duration = Duration::from_secs(2);
/// When it goes on, answers go first.
const GRACE: Duration = Duration::from_secs(1);

/// Who waits for a fetch.
#[derive(Debug)]
pub(crate) enum Waiter {
    Read(Box<Work>),
    /// Has the lock already, and gets it with the bytes.
    Locked {
        token: Token,
        grant: LockGrant,
        read: (ObjectId, Extent),
    },
}

impl Waiter {
    fn client(&self) -> ClientId {
        match self {
            Waiter::Read(work) => work.token.client,
            Waiter::Locked { token, .. } => token.client,
        }
    }
}

#[derive(Default)]
pub(crate) struct Fetches {
    waiting: BTreeMap<FetchId, (Waiter, Time)>,
    last: u64,
    begun: Vec<Output>,
    /// What is read now was fetched.
    is_fetched: bool,
    stands_still_until: Time,
}

impl Fetches {
    pub(crate) fn begin(&mut self, now: Now, (object, extent): (ObjectId, Extent), waiter: Waiter) {
        self.last += 1;
        let id = FetchId(self.last);
        self.waiting.insert(id, (waiter, now.time));
        self.begun.push(Output::Fetch { id, object, extent });
    }

    pub(crate) fn take_begun(&mut self) -> impl Iterator<Item = Output> {
        std::mem::take(&mut self.begun).into_iter()
    }

    /// Whether a read has to take what there is: it was fetched, and waits for whatever has gone since.
    pub(crate) fn is_fetched(&self) -> bool {
        self.is_fetched
    }

    pub(crate) fn drop_client(&mut self, client: ClientId) {
        self.waiting.retain(|_, (waiter, _)| waiter.client() != client);
    }

    pub(crate) fn is_standing_still(&mut self, now: Time) -> bool {
        // They began in the order of their numbers.
        let oldest = self.waiting.first_key_value().map(|(_, (_, began))| *began);
        if oldest.is_some_and(|began| now.since(began) >= STANDS_STILL_AFTER) {
            self.stands_still_until = now.after(GRACE);
        }
        now < self.stands_still_until
    }

    pub(crate) fn not_while_standing_still(&self, at: Time) -> Time {
        at.max(self.stands_still_until)
    }
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(crate) fn on_fetched(&mut self, now: Now, id: FetchId, effects: &mut Effects) {
        let Some((waiter, _)) = self.fetches.waiting.remove(&id) else { return };
        self.fetches.is_fetched = true;
        match waiter {
            Waiter::Read(work) => self.on_work(now, *work, effects),
            Waiter::Locked { token, grant, read } if self.core.has_session(&token) => {
                let need = Need::of_data(read.0, LockMode::Pr, read.1);
                if self.locks.holds(token.client, grant.lock, need) {
                    self.answer_with_lock(now, token, grant, read, effects);
                } else {
                    // As who waits for a lock that its client gives up.
                    self.refuse(now, token, Status::Interrupted, effects);
                }
            }
            Waiter::Locked { .. } => {}
        }
        self.fetches.is_fetched = false;
    }
}
