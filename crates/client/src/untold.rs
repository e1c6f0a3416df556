//! Losses that nobody was told: nobody had the file open, or asked before closing it. As in Linux, the next fsync(2) of the file tells it, once;
//! and the next sync of the whole mount tells that there were some.

use base::{Fid, Status};
use std::collections::BTreeMap;

/// Files and directories; beyond that those that were made first are forgotten, and in the log only.
const FILES_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Untold {
    files: BTreeMap<Fid, Status>,
    /// The last one, of which no sync of the mount has told.
    of_mount: Option<Status>,
}

impl Untold {
    pub(crate) fn note(&mut self, fid: Fid, status: Status) {
        self.of_mount = Some(status);
        self.files.insert(fid, status);
        if self.files.len() > FILES_MAX {
            self.files.pop_first();
        }
    }

    pub(crate) fn take(&mut self, fid: Fid) -> Option<Status> {
        self.files.remove(&fid)
    }

    pub(crate) fn take_of_mount(&mut self) -> Option<Status> {
        self.of_mount.take()
    }
}
