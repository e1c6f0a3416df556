//! How long a client may rely on what its targets have granted.
//!
//! A target evicts nobody that it has heard within `SESSION_LEASE`, except when it waits for him, in a recovery or because others want a
//! lock that he has: then it does not wait for a client whose lease at the management server has ended and whom it has not heard for as
//! long. So a client relies on a target that it has heard within
//! `KERNEL_CACHE_LIFE`, if its lease was renewed without a gap since, or that very target heard, within `LEASE_TRUST`. While the lease is
//! late, and after a gap, targets are asked for a sign of life as often as it would be renewed.
//!
//! An OST also ends the sessions of whom an MDT gives up for his lease, and may have heard him: he learns of it from the OST, or relies on
//! it for `LEASE_TRUST` more.

use crate::dirty::LEASE_LEFT_MIN;
use crate::state::{Connection, State};
use base::limits::{KERNEL_CACHE_LIFE, LEASE_RENEWAL, LEASE_TRUST, PING_INTERVAL};
use base::{Duration, TargetId, TargetKind, Time};
use std::collections::BTreeSet;

/// A renewal that has not come by then is late.
const LATE_AFTER: Duration = Duration::from_millis(1500);

/// What a thread may have to wait for a processor while it puts pages into the kernel's cache, and more.
const STORE_TIME: Duration = Duration::from_secs(1);

// A lease that is renewed in time leaves some.
const _: () = assert!(STORE_TIME.as_millis() + LEASE_RENEWAL.as_millis() < LEASE_TRUST.as_millis());
const _: () = assert!(LEASE_RENEWAL.as_millis() < LATE_AFTER.as_millis());
// A ping has the rest of the time for its way, there and back; and so have data that were kept back.
const _: () = assert!(LATE_AFTER.as_millis() < LEASE_TRUST.as_millis());

/// The lease at the management server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lease {
    /// When it was last renewed; `None` for a client without one, which relies on its sessions alone.
    renewed: Option<Time>,
    /// It has not ended since then: what was granted before may have been given to others, until its target is heard again.
    since: Time,
    is_late: bool,
}

impl Lease {
    /// Until when a target that was last heard at `contact` may be relied on.
    fn trusted_until(self, contact: Time) -> Time {
        self.ends(contact, KERNEL_CACHE_LIFE, LEASE_TRUST)
    }

    /// Until when data may be kept back that nobody may write any more when their MDT, last heard at `contact`, is not relied on.
    fn keeps_back_until(self, contact: Time) -> Time {
        self.ends(contact, KERNEL_CACHE_LIFE - LEASE_LEFT_MIN, LATE_AFTER)
    }

    /// So long after `contact`; with a lease so long after the last word of it or of that target, if that is sooner.
    fn ends(self, contact: Time, by_session: Duration, by_lease: Duration) -> Time {
        let by_session = contact.after(by_session);
        let is_vouched_for = contact >= self.since;
        let by_lease = self.renewed.map(|renewed| {
            let last = if is_vouched_for { renewed.max(contact) } else { contact };
            last.after(by_lease)
        });
        by_lease.map_or(by_session, |by_lease| by_lease.min(by_session))
    }
}

impl State {
    /// The lease was renewed with a request that was sent at `at`.
    pub(crate) fn on_lease(&mut self, at: Time) {
        // First what has ended, perhaps while this process did not run.
        self.check_leases();
        // Also where the request was sent before the end: it may have come to the management server after it.
        let now = self.now.time;
        if self.lease.renewed.is_none_or(|renewed| now >= renewed.after(LEASE_TRUST)) {
            self.lease.since = now;
        }
        self.lease.renewed = self.lease.renewed.max(Some(at));
        self.note_silent_mdts();
        self.check_leases();
    }

    /// How much longer the kernel may rely on locks of this target; zero when this client may not either.
    pub(crate) fn lease_left(&self, target: TargetId) -> Duration {
        let contact = self.connections.get(&target).and_then(|connection| connection.import.last_contact());
        let Some(contact) = contact else { return Duration::ZERO };
        if self.lease.trusted_until(contact) <= self.now.time {
            return Duration::ZERO;
        }
        contact.after(KERNEL_CACHE_LIFE).since(self.now.time)
    }

    /// Whether so much is left of the time for which an MDT is known to count this client as a writer that data may be kept back.
    pub(crate) fn has_lease_to_keep(&self, mdt: TargetId) -> bool {
        let contact = self.connections.get(&mdt).and_then(|connection| connection.import.last_contact());
        contact.is_some_and(|contact| self.now.time < self.lease.keeps_back_until(contact))
    }

    /// Until when the kernel may begin to put pages of this target into its cache: it comes to their end within the rest.
    pub(crate) fn store_until(&self, target: TargetId) -> Time {
        let contact = self.connections.get(&target).and_then(|connection| connection.import.last_contact());
        let until = contact.map_or(Time::ZERO, |contact| self.lease.trusted_until(contact));
        Time(until.0.saturating_sub(STORE_TIME.as_nanos() as u64))
    }

    /// An MDT that may have given this client up counts it as a writer no more: it believes sizes again, and after a restart takes
    /// objects away whose files are lost with the client. So nothing is written to the files of such an MDT, not even again what was
    /// sent before. (A frame that was sent before is expected to arrive, or to be lost, within the difference; after a recovery
    /// OSTs refuse it.)
    pub(crate) fn note_silent_mdts(&mut self) {
        let now = self.now;
        let lease = self.lease;
        let is_silent = |(_, connection): &(&TargetId, &Connection)| {
            let contact = connection.import.last_contact();
            contact.is_some_and(|contact| now.time >= lease.trusted_until(contact))
        };
        let mdts = self.connections.range(TargetId::mdt(0)..=TargetId::mdt(u16::MAX));
        let silent = mdts.filter(is_silent).map(|(target, _)| target.index);
        // Both are in order. Every input comes here, and seldom has anything changed.
        if silent.clone().eq(self.silent_mdts.iter().copied()) {
            return;
        }
        let silent: BTreeSet<u16> = silent.collect();
        for (target, connection) in &mut self.connections {
            let mut outputs = Vec::new();
            connection.import.hold_writes(now, silent.clone(), &mut outputs);
            self.import_outputs.extend(outputs.into_iter().map(|output| (*target, output)));
        }
        self.silent_mdts = silent;
        // Dropping them wakes who waits.
        self.silence_waiters.clear();
    }

    /// What the kernel has of a target goes when that may have given the locks on it to others (hazard 2.9). What is kept back for the files
    /// of an MDT goes before that.
    pub(crate) fn check_leases(&mut self) {
        let now = self.now.time;
        let lease = self.lease;
        self.lease.is_late = lease.renewed.is_some_and(|renewed| now >= renewed.after(LATE_AFTER));
        let is_late = self.lease.is_late;
        let (mut lost, mut late) = (Vec::new(), Vec::new());
        for (target, connection) in &mut self.connections {
            let contact = connection.import.last_contact();
            let is_late_to_keep = contact.is_some_and(|contact| now >= lease.keeps_back_until(contact));
            if target.kind == TargetKind::Mdt && is_late_to_keep && !connection.is_late_to_keep {
                late.push(*target);
            }
            connection.is_late_to_keep = is_late_to_keep;
            let is_wanted = is_late || contact.is_some_and(|contact| contact < lease.since);
            connection.import.set_ping_interval(if is_wanted { LEASE_RENEWAL } else { PING_INTERVAL });
            let is_over = connection.locks.lock_count() > 0
                && contact.is_some_and(|contact| now >= lease.trusted_until(contact));
            if is_over && !connection.is_lease_lost {
                lost.push(*target);
            }
            connection.is_lease_lost = is_over;
        }
        for target in lost {
            self.forget_facts(target);
            self.forget_pages(target);
        }
        for mdt in late {
            self.dirty.end_keeping(mdt);
        }
    }

    pub(crate) fn lease_deadline(&self) -> Option<Time> {
        let waiting =
            |connection: &&Connection| !connection.is_lease_lost && connection.locks.lock_count() > 0;
        let ends = self.connections.values().filter(waiting);
        let ends = ends
            .filter_map(|connection| Some(self.lease.trusted_until(connection.import.last_contact()?)))
            .min();
        let keeps = |(_, connection): &(&TargetId, &Connection)| {
            !connection.is_late_to_keep && !self.dirty.is_empty()
        };
        let mdts = self.connections.range(TargetId::mdt(0)..=TargetId::mdt(u16::MAX)).filter(keeps);
        let kept = mdts
            .filter_map(|(_, connection)| {
                Some(self.lease.keeps_back_until(connection.import.last_contact()?))
            })
            .min();
        let late = self.lease.renewed.filter(|_| !self.lease.is_late).map(|at| at.after(LATE_AFTER));
        ends.into_iter().chain(kept).chain(late).min()
    }
}
