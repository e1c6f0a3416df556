//! Which server owns a target that several could serve. Who owns it is a row, with an epoch that rises each time that it is taken; that
//! the owner lives is a lease in memory.
//!
//! The lease of an owner says whom to fence, and nothing else: that it has ended does not mean that the owner has stopped writing. As
//! with clients, unknown is not dead: the time in which the management server did not run, or was not reached by any server, counts
//! against nobody.

use crate::leases::PAUSE_MAX;
use crate::row;
use base::limits::LEASE;
use base::{Duration, Epoch, TargetId, Time};
use borsh::{BorshDeserialize, BorshSerialize};
use std::collections::BTreeMap;
use store::{Batch, MetaStore, StoreError, Table};
use wire::{Ownership, TargetOwner};

/// File system name, a zero byte, target name -> version byte and `Row`.
pub const OWNERS: Table = 2;
/// More targets than a file system may have, of some file systems. Those that a configuration names have room beside them: whoever takes
/// targets that nobody has keeps out at most those that have never been served.
pub(crate) const OWNER_COUNT_MAX: usize = if cfg!(test) { 64 } else { 1 << 15 };

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
struct Row {
    epoch: Epoch,
    owner: Option<TargetOwner>,
}

#[derive(Debug)]
struct Owned {
    row: Row,
    /// When the lease ends, unless it is renewed.
    until: Time,
    /// Nor is it counted as ended before: nobody could renew it.
    spared_until: Time,
}

impl Owned {
    fn new(row: Row, until: Time) -> Owned {
        Owned { row, until, spared_until: until }
    }
}

/// Why a target is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Somebody has taken it since, or its owner renews its lease.
    Owned,
    /// No more can be kept.
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct Owners {
    owned: BTreeMap<(String, TargetId), Owned>,
    /// When a server that owns targets, or stands by for them, was heard: each is twice a second. What clients say counts for nothing,
    /// as they may reach this management server when servers do not.
    heard: Time,
}

impl Owners {
    /// Every owner is given so long from here on: whether it lives is not known.
    ///
    /// # Errors
    /// If the store fails or a row is damaged.
    pub fn read(store: &dyn MetaStore, now: Time, grace: Duration) -> Result<Owners, StoreError> {
        let rows = row::read_named(store, OWNERS, decode)?.into_iter();
        let owned = rows.map(|(name, row)| (name, Owned::new(row, now.after(grace)))).collect();
        Ok(Owners { owned, heard: now })
    }

    /// While somebody owns something, turns show that this process runs.
    pub fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    /// One of those servers is heard. If none was for a while, this one may only be the first to find the way back: whose lease held until
    /// then is given so long from here on, once, or whoever falls silent now and then would keep a dead owner for ever.
    pub fn on_heard(&mut self, now: Time, grace: Duration) {
        let before = std::mem::replace(&mut self.heard, now);
        if now.since(before) <= PAUSE_MAX {
            return;
        }
        for owned in self.owned.values_mut().filter(|owned| owned.until > before) {
            owned.spared_until = now.after(grace);
        }
    }

    /// Renews what is owned by this server. That its lease had ended is no matter as long as nobody has taken the target.
    pub fn renew(&mut self, now: Time, fsname: &str, server: u128, targets: &[TargetId]) {
        for target in targets {
            let Some(owned) = self.owned.get_mut(&(fsname.to_owned(), *target)) else { continue };
            if owned.row.owner.as_ref().is_some_and(|owner| owner.server == server) {
                owned.until = now.after(LEASE);
            }
        }
    }

    /// `since`: from when on this process has run, and could hear who renews.
    pub fn describe(&self, now: Time, since: Time, fsname: &str, target: TargetId) -> Ownership {
        let Some(owned) = self.owned.get(&(fsname.to_owned(), target)) else {
            return Ownership { target, epoch: Epoch::default(), owner: None, has_lapsed: false };
        };
        let has_ended = owned.until <= now && owned.spared_until <= now;
        let has_lapsed = owned.row.owner.is_some() && has_ended && now.since(since) >= LEASE;
        Ownership { target, epoch: owned.row.epoch, owner: owned.row.owner.clone(), has_lapsed }
    }

    /// Gives a target to a server; the batch makes it last. `is_known`: a configuration names it.
    pub fn take(
        &mut self,
        now: Time,
        since: Time,
        (fsname, target): (&str, TargetId),
        is_known: bool,
        over: Epoch,
        by: TargetOwner,
    ) -> Result<Batch, Denied> {
        let before = self.describe(now, since, fsname, target);
        let is_free =
            before.has_lapsed || before.owner.as_ref().is_none_or(|owner| owner.server == by.server);
        if before.epoch != over || !is_free {
            return Err(Denied::Owned);
        }
        let name = (fsname.to_owned(), target);
        if self.owned.len() >= OWNER_COUNT_MAX && !is_known && !self.owned.contains_key(&name) {
            return Err(Denied::Full);
        }
        let row = Row { epoch: Epoch(over.0 + 1), owner: Some(by) };
        assert!(row.epoch > before.epoch, "an ownership has a higher epoch than the one before it");
        let mut batch = Batch::new();
        put(&mut batch, &name, &row);
        self.owned.insert(name, Owned::new(row, now.after(LEASE)));
        Ok(batch)
    }

    /// Who has left has stopped writing: whoever comes next need fence nobody. Empty when the server owns none of them.
    pub fn leave(&mut self, fsname: &str, server: u128, targets: &[TargetId]) -> Batch {
        let mut batch = Batch::new();
        for target in targets {
            let name = (fsname.to_owned(), *target);
            let Some(owned) = self.owned.get_mut(&name) else { continue };
            if owned.row.owner.as_ref().is_some_and(|owner| owner.server == server) {
                owned.row.owner = None;
                put(&mut batch, &name, &owned.row);
            }
        }
        batch
    }

    pub fn check(&self) {
        for owned in self.owned.values() {
            assert!(owned.row.epoch > Epoch::default());
        }
    }
}

fn put(batch: &mut Batch, name: &(String, TargetId), row: &Row) {
    batch.put(OWNERS, &row::name_key(name), &row::encode(row));
}

fn decode(value: &[u8]) -> Option<Row> {
    row::decode(value).filter(|row: &Row| row.epoch > Epoch::default())
}

#[cfg(test)]
mod tests;
