//! Locks of clients in the note that outlives a target's process (`store::Holdings`): their words, and what a restarted target does
//! with them.

use base::{ClientId, Extent, Fid, LockId, ObjectId};
use ldlm::{LockSpace, Need};
use std::collections::{BTreeMap, BTreeSet};
use store::{Holding, HoldingKey, Holdings};
use wire::{LockGrant, LockMode, LockPolicy, Resource};

/// The kind of a lock's key. Owners name theirs behind it.
pub const LOCK: u64 = 1;

pub fn lock_key(client: ClientId, lock: LockId) -> HoldingKey {
    HoldingKey { client, kind: LOCK, number: lock.0 }
}

/// All locks that clients have, as they are noted, in no order.
pub fn held_locks(locks: &LockSpace) -> Vec<(HoldingKey, Holding)> {
    let noted = locks.grants().map(|(client, grant)| (lock_key(client, grant.lock), words_of_lock(&grant)));
    noted.collect()
}

/// Notes what has become of locks since the last time.
pub fn note_locks(locks: &mut LockSpace, holdings: &mut dyn Holdings) {
    for (client, lock) in locks.take_changed() {
        match locks.grant_of(client, lock) {
            Some(grant) => holdings.put(lock_key(client, lock), words_of_lock(&grant)),
            None => holdings.remove(lock_key(client, lock)),
        }
    }
}

/// Puts a noted lock back. `None`: it makes no sense, or conflicts with another one.
pub fn restore_lock(locks: &mut LockSpace, key: HoldingKey, words: &Holding) -> Option<()> {
    let LockGrant { lock, resource, mode, policy } = lock_of(key.number, words)?;
    locks.try_grant(key.client, lock, Need { resource, mode, policy }, None).map(drop)
}

/// Locks from the note of the incarnation before that their clients have not named.
#[derive(Debug, Default)]
pub struct Unnamed(BTreeMap<ClientId, BTreeSet<LockId>>);

impl Unnamed {
    pub fn add(&mut self, client: ClientId, locks: Vec<LockId>) {
        self.0.insert(client, locks.into_iter().collect());
    }

    /// A client says that it has these.
    pub fn on_named(&mut self, client: ClientId, locks: &[LockGrant]) {
        if let Some(unnamed) = self.0.get_mut(&client) {
            locks.iter().for_each(|grant| {
                unnamed.remove(&grant.lock);
            });
        }
    }

    /// A client has named all that it has: these it has not.
    pub fn take(&mut self, client: ClientId) -> Vec<LockId> {
        self.0.remove(&client).into_iter().flatten().collect()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Two numbers in one word.
pub fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A FID from its sequence and a `pair` of the rest.
pub fn fid_of(seq: u64, rest: u64) -> Fid {
    let (oid, ver) = halves(rest);
    Fid { seq, oid, ver }
}

const MODES: [LockMode; 7] =
    [LockMode::Ex, LockMode::Pw, LockMode::Pr, LockMode::Cw, LockMode::Cr, LockMode::Nl, LockMode::Group];

/// Kind of the resource, mode and kind of the policy; three words of the resource; two of the policy.
pub fn words_of_lock(grant: &LockGrant) -> Holding {
    let fid_words = |fid: Fid| (fid.seq, pair(fid.oid, fid.ver));
    let (kind, seq, rest, more) = match grant.resource {
        Resource::Inode(fid) => (1, fid_words(fid).0, fid_words(fid).1, 0),
        Resource::Name { parent, hash } => (2, fid_words(parent).0, fid_words(parent).1, hash),
        Resource::Object(ObjectId { fid, component, stripe }) => {
            (3, fid_words(fid).0, fid_words(fid).1, pair(component, stripe))
        }
        Resource::Rename => (4, 0, 0, 0),
    };
    let (policy, a, b) = match grant.policy {
        LockPolicy::Plain => (1, 0, 0),
        LockPolicy::Bits(mask) => (2, u64::from(mask), 0),
        LockPolicy::Extent(extent) => (3, extent.start, extent.end),
    };
    [kind | (grant.mode as u64) << 8 | policy << 16, seq, rest, more, a, b]
}

/// `None` for words that no lock has.
pub fn lock_of(number: u64, words: &Holding) -> Option<LockGrant> {
    let [kinds, seq, rest, more, a, b] = *words;
    let fid = fid_of(seq, rest);
    let resource = match kinds & 0xff {
        1 => Resource::Inode(fid),
        2 => Resource::Name { parent: fid, hash: more },
        3 => {
            let (component, stripe) = halves(more);
            Resource::Object(ObjectId { fid, component, stripe })
        }
        4 => Resource::Rename,
        _ => return None,
    };
    let mode = MODES.into_iter().find(|mode| *mode as u64 == kinds >> 8 & 0xff)?;
    let policy = match kinds >> 16 {
        1 => LockPolicy::Plain,
        2 => LockPolicy::Bits(u32::try_from(a).ok()?),
        3 if a <= b => LockPolicy::Extent(Extent::new(a, b)),
        _ => return None,
    };
    Some(LockGrant { lock: LockId(number), resource, mode, policy })
}

#[cfg(test)]
mod tests;
