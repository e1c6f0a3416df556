//! Directories that several clients change at a time, as the jobs of a cluster do that each make files of their own in one.
//!
//! Each of them looks the directory up before each change, and would be given its attributes with a lock that the next change of another one
//! takes back from all. So who changes it and asks while others do so too is told how it is now, without a lock on what changes with its
//! names (`bits::UPDATE`), unless he asks more often than it changes. Who only looks is given the lock.

use base::{ClientId, Duration, Fid, Time};
use ldlm::Need;
use std::collections::BTreeMap;
use wire::lock::bits;
use wire::{LockPolicy, Resource};

/// No further change of others is expected after so long without one.
const QUIET: Duration = Duration::from_secs(1);
/// Who has changed it less long ago is one of those who do.
const TAKES_PART: Duration = Duration::from_secs(10);
/// Who asks so often between two changes is given the lock. Calling it back costs as much as a few questions, and several processes of one
/// client that make a file each ask once each.
const QUESTIONS: u32 = 8;
/// More directories are swept of those that are quiet.
const SWEPT_FROM: usize = 4096;

#[derive(Debug)]
struct Changes {
    at: Time,
    by: ClientId,
    /// The latest one of another client than the latest one.
    of_others_at: Option<Time>,
    /// The latest one of each client.
    of_each_at: BTreeMap<ClientId, Time>,
    /// Who has asked since `at`, and how often.
    asked: BTreeMap<ClientId, u32>,
}

/// Directories whose names were changed lately, and by whom.
#[derive(Debug, Default)]
pub struct Contended {
    directories: BTreeMap<Fid, Changes>,
    swept_count: usize,
}

impl Changes {
    fn by(client: ClientId, now: Time) -> Changes {
        Changes {
            at: now,
            by: client,
            of_others_at: None,
            of_each_at: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }
}

impl Contended {
    /// A client's operation was executed that had to claim this.
    pub fn note(&mut self, now: Time, client: ClientId, needs: &[Need]) {
        for directory in needs.iter().filter_map(renamed_in) {
            let changes = self.directories.entry(directory).or_insert_with(|| Changes::by(client, now));
            if changes.by != client {
                changes.of_others_at = Some(changes.at);
                changes.by = client;
            }
            changes.at = now;
            changes.of_each_at.insert(client, now);
            changes.asked.clear();
        }
        if self.directories.len() >= SWEPT_FROM.max(2 * self.swept_count) {
            self.directories.retain(|_, changes| changes.at.after(TAKES_PART) > now);
            self.swept_count = self.directories.len();
        }
    }

    /// What of a lock that a client would like is of use to it. Counts as a question.
    pub fn useful(&mut self, now: Time, client: ClientId, need: Need) -> Need {
        let (Resource::Inode(fid), LockPolicy::Bits(mask)) = (need.resource, need.policy) else {
            return need;
        };
        if mask & bits::UPDATE == 0 || self.may_rely(now, client, fid) {
            return need;
        }
        Need { policy: LockPolicy::Bits(mask & !bits::UPDATE), ..need }
    }

    fn may_rely(&mut self, now: Time, client: ClientId, fid: Fid) -> bool {
        let Some(changes) = self.directories.get_mut(&fid) else { return true };
        let of_others_at = if changes.by == client { changes.of_others_at } else { Some(changes.at) };
        let is_recent = |at: Option<&Time>, life: Duration| at.is_some_and(|at| at.after(life) > now);
        if !is_recent(of_others_at.as_ref(), QUIET) || !is_recent(changes.of_each_at.get(&client), TAKES_PART)
        {
            return true;
        }
        let count = changes.asked.entry(client).or_default();
        *count += 1;
        *count >= QUESTIONS
    }
}

/// The directory in which an operation changes a name, if this is its claim for that.
fn renamed_in(need: &Need) -> Option<Fid> {
    const CHANGED: u32 = bits::UPDATE | bits::CHILDREN;
    match (need.resource, need.policy) {
        (Resource::Inode(fid), LockPolicy::Bits(mask)) if mask & CHANGED == CHANGED => Some(fid),
        _ => None,
    }
}
