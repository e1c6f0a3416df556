//! Open files and directories.

use crate::ctx::Outcome;
use crate::executor::Receiver;
use base::names::POSITION_FIRST;
use base::{Fid, LockId, OpenHandle, Status, Version};
use wire::mdt::{DirEntry, OpenArgs};

/// An open file or directory; its number is the kernel's `fh` and the handle on the MDT.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) fid: Fid,
    pub(crate) args: OpenArgs,
    pub(crate) is_directory: bool,
    /// What is read and written through it passes by the kernel's pages. Only a private mapping fills some through it.
    pub(crate) is_direct: bool,
    /// Reading through it counts as an access.
    pub(crate) is_access: bool,
    /// The MDT has forgotten it with an eviction: open it again before it is used for writing.
    pub(crate) is_lost: bool,
    /// Told once, by fsync(2).
    pub(crate) error: Option<Status>,
    /// The same, told to who may write by close(2). Nobody may hear of that, as when a process ends or a child closes its copy, so it takes
    /// nothing of what fsync(2) has to tell.
    pub(crate) error_at_close: Option<Status>,
    /// Set-id bits have been cleared for a write through this handle.
    pub(crate) has_killed_privileges: bool,
    /// The version of the inode after they were last cleared for it.
    pub(crate) cleared_at: Option<Version>,
    pub(crate) listing: Listing,
}

/// A handle that the kernel has released: the MDT was asked to close it, and may have done so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosingHandle {
    pub(crate) fid: Fid,
    pub(crate) args: OpenArgs,
    /// As `Handle::is_lost`: what was written through it, and has not arrived, waits until it is open again.
    pub(crate) is_lost: bool,
}

/// Where a directory handle reads.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// One for each stripe of the directory, once it has begun. Entries of all go to the kernel in one order of positions.
    pub(crate) parts: Vec<Part>,
    /// Offset of the entry before those that are ahead; the listing goes on only from there.
    pub(crate) offset: u64,
    /// Somebody went to this offset, and may go elsewhere soon.
    pub(crate) is_afresh: bool,
    /// Entries that were asked for last; 0 when none were.
    pub(crate) asked_count: u32,
}

/// What an MDT has told of its stripe.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) stripe: Fid,
    /// Entries that were not given to the kernel, the next one last.
    pub(crate) ahead: Vec<DirEntry>,
    /// Of what `ahead` was when it came.
    byte_count: usize,
    pub(crate) is_end: bool,
    /// What the entries may be believed under.
    pub(crate) trust: Option<Trust>,
    /// Position of the last entry that was told.
    pub(crate) last: u64,
    /// What follows, asked for before it is needed.
    pub(crate) coming: Option<Coming>,
}

/// A part of a listing that is on its way.
pub(crate) struct Coming {
    /// The position behind which it begins.
    pub(crate) after: u64,
    pub(crate) entries: Receiver<Outcome<Entries>>,
}

impl std::fmt::Debug for Coming {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "entries behind {}", self.after)
    }
}

/// A part of a listing, and what it may be believed under.
#[derive(Debug)]
pub(crate) struct Entries {
    /// In order of position.
    pub(crate) entries: Vec<DirEntry>,
    pub(crate) is_end: bool,
    pub(crate) trust: Option<Trust>,
}

impl Part {
    /// Of which nothing is known but which stripe it is.
    fn unknown(stripe: Fid) -> Part {
        Part { stripe, ahead: Vec::new(), byte_count: 0, is_end: false, trust: None, last: 0, coming: None }
    }

    pub(crate) fn new(stripe: Fid, told: Entries) -> Part {
        let Entries { entries: mut ahead, is_end, trust } = told;
        let last = ahead.last().map_or(0, |entry| entry.position);
        let byte_count = ahead.iter().map(entry_bytes).sum();
        ahead.reverse();
        Part { stripe, ahead, byte_count, is_end, trust, last, coming: None }
    }

    /// What it keeps; of what is coming as much again.
    fn kept_bytes(&self) -> usize {
        match (self.ahead.is_empty(), &self.coming) {
            (true, None) => 0,
            (_, None) => self.byte_count,
            (_, Some(_)) => self.byte_count * 2,
        }
    }
}

/// What an entry takes in memory.
fn entry_bytes(entry: &DirEntry) -> usize {
    let xattrs = entry
        .xattrs
        .iter()
        .flatten()
        .map(|(name, value)| name.len() + value.len() + size_of::<[Vec<u8>; 2]>());
    let target = entry.symlink_target.as_ref().map_or(0, Vec::len);
    size_of::<DirEntry>() + entry.name.len() + target + xattrs.sum::<usize>()
}

impl Listing {
    /// Begins with nothing known behind an offset.
    pub(crate) fn begin(&mut self, stripes: Vec<Fid>) {
        self.parts = stripes.into_iter().map(Part::unknown).collect();
    }

    /// Goes on behind an offset, if all stripes have told what is there; what lies before it is let go.
    pub(crate) fn go_to(&mut self, offset: u64) -> bool {
        if offset == self.offset {
            return true;
        }
        let reaches = |part: &Part| part.is_end || part.last > offset;
        if offset < self.offset || self.parts.is_empty() || !self.parts.iter().all(reaches) {
            return false;
        }
        for part in &mut self.parts {
            while part.ahead.pop_if(|entry| entry.position <= offset).is_some() {}
        }
        self.offset = offset;
        true
    }

    /// What is kept until the kernel asks for it.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.parts.iter().map(Part::kept_bytes).sum()
    }

    /// Stripes that have to say more before anybody knows what comes next.
    pub(crate) fn unknown(&self) -> Vec<Fid> {
        let is_unknown = |part: &&Part| part.ahead.is_empty() && !part.is_end;
        self.parts.iter().filter(is_unknown).map(|part| part.stripe).collect()
    }

    /// Stripes of which more will be needed, and behind which positions.
    pub(crate) fn to_ask(&self) -> Vec<(Fid, u64)> {
        let is_one = |part: &&Part| !part.ahead.is_empty() && !part.is_end && part.coming.is_none();
        self.parts.iter().filter(is_one).map(|part| (part.stripe, part.last)).collect()
    }

    /// What is on its way of a stripe, if it begins where it is needed.
    pub(crate) fn take_coming(&mut self, stripe: Fid, after: u64) -> Option<Receiver<Outcome<Entries>>> {
        let part = self.parts.iter_mut().find(|part| part.stripe == stripe)?;
        part.coming.take().filter(|coming| coming.after == after).map(|coming| coming.entries)
    }

    /// Takes in what stripes have told of what is behind an offset.
    pub(crate) fn take(&mut self, offset: u64, told: Vec<Part>) {
        if offset >= POSITION_FIRST && self.offset != offset {
            // Another call has gone elsewhere with the same handle meanwhile.
            self.begin(self.parts.iter().map(|part| part.stripe).collect());
        }
        for part in told {
            if let Some(known) = self.parts.iter_mut().find(|known| known.stripe == part.stripe) {
                *known = part;
            }
        }
        (self.offset, self.is_afresh) = (offset, false);
    }

    /// The next entry of all, if nothing is unknown.
    pub(crate) fn next(&mut self) -> Option<(Fid, DirEntry, Option<Trust>)> {
        let position = |part: &&mut Part| part.ahead.last().map_or(u64::MAX, |entry| entry.position);
        let part = self.parts.iter_mut().min_by_key(position)?;
        let entry = part.ahead.pop()?;
        self.offset = entry.position;
        Some((part.stripe, entry, part.trust))
    }

    /// The kernel had no room for what `next` has given; it stands at the offset before.
    pub(crate) fn put_back(&mut self, stripe: Fid, entry: DirEntry, offset: u64) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.stripe == stripe) {
            part.ahead.push(entry);
            self.offset = offset;
        }
    }
}

/// Why entries of a listing may be believed later: a children's lock that came with them, and no change of this
/// client's own since they were asked for: of names in the directory, or of an inode that it did not know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trust {
    pub(crate) lock: LockId,
    pub(crate) change_count: u64,
    pub(crate) unseen_count: u64,
}

impl Handle {
    pub(crate) fn new(fid: Fid, args: OpenArgs) -> Handle {
        Handle {
            fid,
            args,
            is_directory: false,
            is_direct: false,
            is_access: false,
            is_lost: false,
            error: None,
            error_at_close: None,
            has_killed_privileges: false,
            cleared_at: None,
            listing: Listing::default(),
        }
    }

    pub(crate) fn number(&self) -> OpenHandle {
        self.args.handle
    }

    pub(crate) fn is_cached_writer(&self) -> bool {
        self.args.write && !self.is_direct
    }
}
