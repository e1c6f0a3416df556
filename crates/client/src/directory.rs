//! What is known of an inode because it is a directory. Most inodes are none.

use crate::seldom::Bare;
use base::{Fid, LockId, Time};
use std::collections::BTreeSet;

/// Of a directory with more names than these nobody says what is not there.
const WHOLE_MAX: usize = 1 << 16;

/// All that is in a directory, and perhaps more, as long as the children's lock is held: nobody else changes names there, and
/// what this client adds is added here first.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) lock: LockId,
    /// Hashes of the names. What this client removes stays.
    pub(crate) hashes: BTreeSet<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Changes of its names by this client, their beginnings and their ends; `Nodes::change_count` is what is compared.
    pub(crate) change_count: u64,
    /// Those that have begun and not ended.
    pub(crate) changes_under_way: u32,
    pub(crate) whole: Option<Whole>,
    /// It is not asked for as a whole before.
    pub(crate) is_listed_whole_from: Time,
    /// Lookups that have found something of which nothing was known here, in a large directory that was not listed.
    pub(crate) miss_count: u32,
    /// It is not listed in parts for such lookups before.
    pub(crate) is_listed_in_parts_from: Time,
    /// Of a striped directory: the directories that hold its names, itself the first. They never change.
    pub(crate) stripes: Vec<Fid>,
    /// Of another stripe: the directory that the kernel knows. It lives as long as that one.
    pub(crate) master: Option<Fid>,
    /// When the kernel, which had a name of it, was last told that it may answer from that.
    pub(crate) named_at: Time,
    /// When the kernel was last told, or would have been, that it may not any more.
    pub(crate) expired_at: Time,
}

impl Bare for Directory {
    const BARE: &'static Directory = &Directory {
        change_count: 0,
        changes_under_way: 0,
        whole: None,
        is_listed_whole_from: Time::ZERO,
        miss_count: 0,
        is_listed_in_parts_from: Time::ZERO,
        stripes: Vec::new(),
        master: None,
        named_at: Time::ZERO,
        expired_at: Time::ZERO,
    };
}

impl Directory {
    /// This client is about to add a name.
    pub(crate) fn expect_name(&mut self, hash: u64) {
        if let Some(whole) = &mut self.whole {
            whole.hashes.insert(hash);
            if whole.hashes.len() > WHOLE_MAX {
                self.whole = None;
            }
        }
    }
}
