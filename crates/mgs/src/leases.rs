//! Which clients live. A lease is renewed each second and kept in memory only.
//!
//! Unknown is not dead: a management server that has just started, or that did not run for a while, counts everybody as living until
//! all who live have had the time to say so.

use base::limits::{LEASE, LEASE_RENEWAL};
use base::{ClientId, Duration, Time};
use std::collections::BTreeMap;
use wire::Life;

/// Without a turn for so long this process did not run: leases that would have been renewed may have ended. With what a renewal is late
/// at most, it is less than a lease.
const PAUSE_MAX: Duration = Duration::from_millis(1500);
/// Whoever waits for longer than this for a session is one who may live and cannot say so.
pub(crate) const DEAF_MAX: Duration = Duration::from_millis(500);
/// A lease that ended so long ago is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Leases in memory; above it nobody is known to be gone.
const LEASE_COUNT_MAX: usize = 1 << 18;

const _: () = assert!(LEASE_RENEWAL.as_millis() + PAUSE_MAX.as_millis() < LEASE.as_millis());

#[derive(Debug)]
struct Lease {
    incarnation: u64,
    until: Time,
}

#[derive(Debug)]
pub(crate) struct Leases {
    held: BTreeMap<ClientId, Lease>,
    /// Nothing is known from before.
    since: Time,
    last_turn: Time,
}

impl Leases {
    pub fn new(now: Time) -> Leases {
        Leases { held: BTreeMap::new(), since: now, last_turn: now }
    }

    /// With every input, and at `next_deadline`. `is_deaf`: callers have sessions only after a recovery or a slow disk, and can renew
    /// nothing before that.
    pub fn on_turn(&mut self, now: Time, is_deaf: bool) {
        if is_deaf || now.since(self.last_turn) > PAUSE_MAX {
            self.since = now;
        }
        self.last_turn = now;
    }

    pub fn forget_old(&mut self, now: Time) {
        self.held.retain(|_, lease| now < lease.until.after(FORGOTTEN_AFTER));
    }

    /// From when on it is known who renews.
    pub fn since(&self) -> Time {
        self.since
    }

    /// While somebody has a lease, here or of an owner: turns show that this process runs.
    pub fn next_deadline(&self, has_owners: bool) -> Option<Time> {
        (has_owners || !self.held.is_empty()).then(|| self.last_turn.after(LEASE_RENEWAL))
    }

    pub fn renew(&mut self, now: Time, clients: &[Life]) {
        let until = now.after(LEASE);
        for life in clients {
            let is_room = self.held.len() < LEASE_COUNT_MAX;
            match self.held.get_mut(&life.client) {
                Some(lease) if lease.incarnation > life.incarnation => {}
                Some(lease) => *lease = Lease { incarnation: life.incarnation, until },
                None if is_room => {
                    self.held.insert(life.client, Lease { incarnation: life.incarnation, until });
                }
                None => self.since = now,
            }
        }
    }

    /// Those of `clients` that are gone.
    pub fn lapsed(&self, now: Time, clients: Vec<Life>) -> Vec<Life> {
        if now.since(self.since) < LEASE {
            return Vec::new();
        }
        let is_gone = |life: &Life| {
            let lease = self.held.get(&life.client);
            lease.is_none_or(|lease| lease.incarnation != life.incarnation || lease.until <= now)
        };
        clients.into_iter().filter(is_gone).collect()
    }

    pub fn count(&self, now: Time) -> usize {
        self.held.values().filter(|lease| lease.until > now).count()
    }
}

#[cfg(test)]
mod tests;
