//! Which clients live. A lease is renewed each second and kept in memory.
//!
//! Unknown is not dead: a management server that has just started, or that did not run for a while, or has heard nobody at all for a
//! while, counts everybody as living until all who live have had the time to say so.
//!
//! Whose lease has *ended* is in a row besides, so that the next management server need not wait for him again. Such a client has no
//! lease until it renews, and then the row says so durably before it is answered: nobody relies on a lease that the next management server
//! takes for an ended one. A row counts for the very next epoch only, for one in between, of a version that does not know of
//! it, may have renewed leases. Traffic is bounded: the row changes when leases end or come back, and not oftener than once a second
//! for the former.

use crate::row;
use base::fault::{Fault, planted};
use base::limits::{LEASE, LEASE_RENEWAL};
use base::{ClientId, Duration, Epoch, Time, Transno};
use borsh::{BorshDeserialize, BorshSerialize};
use std::collections::BTreeMap;
use store::{Batch, MetaStore, StoreError, Table};
use wire::Life;

/// One row: version byte and `Ended`.
pub const ENDED: Table = 3;
const KEY: &[u8] = b"ended";
/// In the row: those that ended last. Others are waited for as without it.
const ENDED_COUNT_MAX: usize = 2000;

/// Without a turn for so long this process did not run: leases that would have been renewed may have ended. With what a renewal is late
/// at most, it is less than a lease.
///
/// So it is when nothing came from anybody for so long: perhaps nothing could.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(1500);
/// Whoever waits for longer than this for a session is one who may live and cannot say so.
pub(crate) const DEAF_MAX: Duration = Duration::from_millis(500);
/// A lease that ended so long ago is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Leases in memory; above it nobody is known to be gone.
const LEASE_COUNT_MAX: usize = 1 << 18;

const _: () = assert!(ENDED_COUNT_MAX * (16 + 8) + 64 < store::VALUE_BYTES_MAX);
const _: () = assert!(LEASE_RENEWAL.as_millis() + PAUSE_MAX.as_millis() < LEASE.as_millis());

#[derive(Debug)]
struct Lease {
    incarnation: u64,
    until: Time,
    /// It has ended, at a moment when that could be known.
    has_ended: bool,
}

/// What the row says.
#[derive(Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
struct Ended {
    /// Of the management server that has written it.
    epoch: Epoch,
    lives: Vec<(ClientId, u64)>,
}

#[derive(Debug)]
pub(crate) struct Leases {
    held: BTreeMap<ClientId, Lease>,
    /// Nothing is known from before.
    since: Time,
    /// The same where nobody was heard only because nobody spoke, perhaps: this process has run from here on.
    ran_since: Time,
    last_turn: Time,
    /// When something came from anybody.
    heard: Time,
    /// When ended leases were last looked for.
    looked_at: Time,
    /// When old ones were last forgotten.
    forgot_at: Time,
    /// The row says something else than is known.
    is_row_old: bool,
    /// Leases that had ended and were renewed, which the row may not say yet: durable from this transaction on, or with the next row.
    back: BTreeMap<ClientId, Option<Transno>>,
}

impl Leases {
    pub fn new(now: Time) -> Leases {
        Leases {
            held: BTreeMap::new(),
            since: now,
            ran_since: now,
            last_turn: now,
            heard: now,
            looked_at: now,
            forgot_at: now,
            is_row_old: false,
            back: BTreeMap::new(),
        }
    }

    /// With what the one before has left, of which this is the next epoch.
    ///
    /// # Errors
    /// If the store fails.
    pub fn read(store: &dyn MetaStore, now: Time, epoch: Epoch) -> Result<Leases, StoreError> {
        let mut leases = Leases::new(now);
        let Some(value) = store.get(ENDED, KEY)? else { return Ok(leases) };
        leases.is_row_old = true;
        // Of another version it says nothing, and everybody is waited for.
        let ended: Option<Ended> = row::decode(&value);
        if let Some(row) = ended.filter(|row| row.epoch.0.checked_add(1) == Some(epoch.0)) {
            leases.held.extend(
                row.lives.into_iter().map(|(client, incarnation)| {
                    (client, Lease { incarnation, until: now, has_ended: true })
                }),
            );
        }
        Ok(leases)
    }

    /// With every input, and at `next_deadline`. `is_deaf`: callers have sessions only after a recovery or a slow disk, and can renew
    /// nothing before that. -> Whether nobody could be heard until now.
    pub fn on_turn(&mut self, now: Time, is_deaf: bool) -> bool {
        let was_deaf = is_deaf || now.since(self.last_turn) > PAUSE_MAX;
        if was_deaf {
            self.since = now;
            self.ran_since = now;
        }
        self.last_turn = now;
        was_deaf
    }

    /// Something has come. If nothing had for a while, nobody has lost his lease by that.
    pub fn on_heard(&mut self, now: Time) {
        if self.is_silent(now) {
            self.since = now;
        }
        self.heard = now;
    }

    fn is_silent(&self, now: Time) -> bool {
        now.since(self.heard) > PAUSE_MAX
    }

    /// With each turn, of which there are as many as there are clients.
    pub fn forget_old(&mut self, now: Time) {
        if now.since(self.forgot_at) < LEASE_RENEWAL {
            return;
        }
        self.forgot_at = now;
        self.held.retain(|_, lease| lease.has_ended || now < lease.until.after(FORGOTTEN_AFTER));
    }

    /// The row, if it should be written: some leases have ended.
    pub fn note_ended(&mut self, now: Time, epoch: Epoch) -> Option<Batch> {
        let is_sure = now.since(self.since) >= LEASE && !self.is_silent(now);
        if now.since(self.looked_at) < LEASE_RENEWAL || !is_sure {
            return None;
        }
        self.looked_at = now;
        for lease in self.held.values_mut().filter(|lease| lease.until <= now && !lease.has_ended) {
            lease.has_ended = true;
            self.is_row_old = true;
        }
        self.is_row_old.then(|| self.row(epoch))
    }

    /// What is known now, and no more than there is room for.
    fn row(&mut self, epoch: Epoch) -> Batch {
        let ended = self.held.iter().filter(|(_, lease)| lease.has_ended);
        let mut ended: Vec<(Time, ClientId, u64)> =
            ended.map(|(client, lease)| (lease.until, *client, lease.incarnation)).collect();
        ended.sort_unstable_by(|a, b| b.cmp(a));
        for (_, client, _) in ended.split_off(ended.len().min(ENDED_COUNT_MAX)) {
            self.held.remove(&client);
        }
        let lives = ended.into_iter().map(|(_, client, incarnation)| (client, incarnation)).collect();
        let mut batch = Batch::new();
        batch.put(ENDED, KEY, &row::encode(&Ended { epoch, lives }));
        batch
    }

    /// The last row is part of this transaction.
    pub fn on_row_written(&mut self, transno: Transno) {
        self.is_row_old = false;
        self.back.values_mut().filter(|at| at.is_none()).for_each(|at| *at = Some(transno));
    }

    /// What must be durable before these are told that their leases are renewed: zero for most.
    pub fn said_by(&mut self, durable: Transno, clients: &[Life]) -> Transno {
        self.back.retain(|_, at| at.is_none_or(|at| at > durable));
        let waits = clients.iter().filter_map(|life| self.back.get(&life.client).copied().flatten());
        waits.max().unwrap_or(Transno::ZERO)
    }

    /// From when on this process has run, and could hear who renews something.
    pub fn ran_since(&self) -> Time {
        self.ran_since
    }

    /// While somebody has a lease, here or of an owner: turns show that this process runs.
    pub fn next_deadline(&self, has_owners: bool) -> Option<Time> {
        let has_some = self.is_row_old || self.held.values().any(|lease| !lease.has_ended);
        (has_owners || has_some).then(|| self.last_turn.after(LEASE_RENEWAL))
    }

    /// The row, if it says of one of these that his lease has ended, which is renewed: it must be durable before he hears of it.
    pub fn renew(&mut self, now: Time, epoch: Epoch, clients: &[Life]) -> Option<Batch> {
        let until = now.after(LEASE);
        for life in clients {
            let is_room = self.held.len() < LEASE_COUNT_MAX;
            let renewed = Lease { incarnation: life.incarnation, until, has_ended: false };
            match self.held.get_mut(&life.client) {
                Some(lease) if lease.incarnation > life.incarnation => {}
                Some(lease) => {
                    if std::mem::replace(lease, renewed).has_ended {
                        self.back.insert(life.client, None);
                    }
                }
                None if is_room => drop(self.held.insert(life.client, renewed)),
                None => self.since = now,
            }
        }
        // Nobody else is kept waiting by a store that does not take it.
        let is_unwritten = |life: &Life| matches!(self.back.get(&life.client), Some(None));
        clients.iter().any(is_unwritten).then(|| self.row(epoch))
    }

    /// Those of `clients` that are gone.
    pub fn lapsed(&self, now: Time, clients: Vec<Life>) -> Vec<Life> {
        if planted(Fault::GoneTakenForLiving) {
            return Vec::new();
        }
        let is_sure = now.since(self.since) >= LEASE;
        let is_gone = |life: &Life| match self.held.get(&life.client) {
            Some(lease) if lease.incarnation == life.incarnation => {
                lease.has_ended || is_sure && lease.until <= now
            }
            // A later incarnation has a lease, or had one: it ends the sessions of this one wherever it comes.
            Some(lease) if lease.incarnation > life.incarnation => true,
            Some(_) | None => is_sure,
        };
        clients.into_iter().filter(is_gone).collect()
    }

    pub fn count(&self, now: Time) -> usize {
        self.held.values().filter(|lease| lease.until > now).count()
    }

    /// Those that the next management server will know to have ended.
    pub fn ended_count(&self) -> usize {
        self.held.values().filter(|lease| lease.has_ended).count()
    }
}

#[cfg(test)]
mod tests;
