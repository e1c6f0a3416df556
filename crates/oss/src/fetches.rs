//! Reads that wait for the device, each beside all other requests.
//!
//! Whoever waits in the machine for a device keeps everybody else from it. So what is not in memory is fetched by another thread, under no lock and
//! without being looked at, and then its request is executed once more: all that is decided, the bytes too, is of that moment. A request
//! may be overtaken so, as it may be on a network.

use crate::machine::{Effects, Oss, Output};
use base::{ClientId, Duration, Extent, Now, ObjectId, Status, Time};
use ldlm::Need;
use std::collections::BTreeMap;
use store::{MetaStore, ObjectStore, StoreError};
use target::{Token, Work};
use wire::{LockGrant, LockMode};

/// Number of a fetch of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// Who waits for so long is given up for nothing that he has not given back, since he may need this answer for that; and nobody is while
/// nothing has come for so long, as the device stands still.
const LONG: Duration = Duration::from_secs(2);
/// When it goes on, answers go first.
const GRACE: Duration = Duration::from_secs(5);

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
    /// When something came, or the first one began to wait.
    moved_at: Time,
    all_spared_until: Time,
    spared_until: BTreeMap<ClientId, Time>,
}

impl Fetches {
    pub(crate) fn begin(&mut self, now: Now, (object, extent): (ObjectId, Extent), waiter: Waiter) {
        if self.waiting.is_empty() {
            self.moved_at = now.time;
        }
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

    fn end(&mut self, now: Time, id: FetchId) -> Option<Waiter> {
        let (waiter, began) = self.waiting.remove(&id)?;
        self.spared_until.retain(|_, until| now < *until);
        if now.since(began) >= LONG {
            self.spared_until.insert(waiter.client(), now.after(GRACE));
        }
        if now.since(self.moved_at) >= LONG {
            self.all_spared_until = now.after(GRACE);
        }
        self.moved_at = now;
        Some(waiter)
    }

    /// Whether a client may not be able to give something back.
    pub(crate) fn is_spared(&self, now: Time, client: ClientId) -> bool {
        let stands_still = !self.waiting.is_empty() && now.since(self.moved_at) >= LONG;
        let has_waited = self.spared_until.get(&client).is_some_and(|until| now < *until);
        let is_one =
            |(waiter, began): &(Waiter, Time)| waiter.client() == client && now.since(*began) >= LONG;
        stands_still || now < self.all_spared_until || has_waited || self.waiting.values().any(is_one)
    }
}

impl<M: MetaStore, O: ObjectStore> Oss<M, O> {
    pub(crate) fn on_fetched(
        &mut self,
        now: Now,
        id: FetchId,
        result: Result<(), StoreError>,
        effects: &mut Effects,
    ) {
        let Some(waiter) = self.fetches.end(now.time, id) else { return };
        if let Err(error) = result {
            // To read it once more would only wait as long again, and here.
            let token = match waiter {
                Waiter::Read(work) => work.token,
                Waiter::Locked { token, .. } => token,
            };
            if self.core.has_session(&token) {
                self.refuse(now, token, error.status(), effects);
            }
            return;
        }
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
