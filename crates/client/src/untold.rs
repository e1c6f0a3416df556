//! Losses that nobody was told: nobody had the file open, or asked before closing it. As in Linux, the next fsync(2) of the file tells it, once.

use base::{Fid, Status};
use std::collections::BTreeMap;

/// Files; beyond that those that were made first are forgotten, and in the log only.
const FILES_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Untold(BTreeMap<Fid, Status>);

impl Untold {
    pub(crate) fn note(&mut self, fid: Fid, status: Status) {
        self.0.insert(fid, status);
        if self.0.len() > FILES_MAX {
            self.0.pop_first();
        }
    }

    pub(crate) fn take(&mut self, fid: Fid) -> Option<Status> {
        self.0.remove(&fid)
    }
}
