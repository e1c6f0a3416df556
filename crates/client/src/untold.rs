//! Losses of files that nobody had open, or that whoever had never heard of: as in Linux, the next fsync(2) of the file tells it, once.

use base::{Fid, Status};
use std::collections::BTreeMap;

/// Files; beyond that losses are in the log only.
const FILES_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Untold(BTreeMap<Fid, Status>);

impl Untold {
    pub(crate) fn note(&mut self, fid: Fid, status: Status) {
        if self.0.len() < FILES_MAX {
            self.0.insert(fid, status);
        }
    }

    pub(crate) fn take(&mut self, fid: Fid) -> Option<Status> {
        self.0.remove(&fid)
    }
}
