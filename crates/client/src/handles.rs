//! Open files and directories.

use base::{Fid, LockId, OpenHandle, Status};
use std::collections::BTreeSet;
use wire::mdt::{DirEntry, OpenArgs};

/// An open file or directory; its number is the kernel's `fh` and the handle on the MDT.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) fid: Fid,
    pub(crate) args: OpenArgs,
    pub(crate) is_directory: bool,
    /// The kernel keeps no pages for it.
    pub(crate) is_direct: bool,
    /// The MDT has forgotten it with an eviction: open it again before it is used for writing.
    pub(crate) is_lost: bool,
    /// Told once: at fsync, and to who may write also at close.
    pub(crate) error: Option<Status>,
    /// Set-id bits have been cleared for a write through this handle.
    pub(crate) has_killed_privileges: bool,
    /// Owners of advisory locks taken through it: an open-file-description lock is dropped with it (C13).
    pub(crate) lock_owners: BTreeSet<(u64, bool)>,
    pub(crate) listing: Listing,
}

/// A handle that the kernel has released: the MDT was asked to close it, and may have done so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosingHandle {
    pub(crate) fid: Fid,
    pub(crate) args: OpenArgs,
}

/// Where a directory handle reads.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Entries from the MDT that were not given to the kernel, the next one last.
    pub(crate) ahead: Vec<DirEntry>,
    /// Offset of the entry before those; the listing goes on only from there.
    pub(crate) offset: u64,
    pub(crate) is_end: bool,
    /// Somebody went to this offset, and may go elsewhere soon.
    pub(crate) is_afresh: bool,
    /// What the entries may be believed under.
    pub(crate) trust: Option<Trust>,
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
            is_lost: false,
            error: None,
            has_killed_privileges: false,
            lock_owners: BTreeSet::new(),
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
