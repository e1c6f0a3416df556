//! What open directories keep of their listings until the kernel asks for it, within a budget for all of them: a process may open many
//! directories, and read the beginning of each. Who is beyond it keeps nothing, and is told anew what follows when he goes on.

use crate::handles::Listing;
use crate::state::State;
use std::collections::BTreeMap;

/// Bytes of entries that all open directories keep together. A process that lists a large directory has 2,048 at a time, a MiB or less.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Open directories that keep something. The one that was read last is at the end.
#[derive(Debug, Default)]
pub(crate) struct ListingBudget {
    by_age: BTreeMap<u64, u64>,
    /// Age and bytes of each.
    kept: BTreeMap<u64, (u64, usize)>,
    byte_count: usize,
    last_age: u64,
}

impl ListingBudget {
    pub(crate) fn forget(&mut self, fh: u64) {
        if let Some((age, byte_count)) = self.kept.remove(&fh) {
            self.by_age.remove(&age);
            self.byte_count -= byte_count;
        }
    }

    fn note(&mut self, fh: u64, byte_count: usize) {
        self.forget(fh);
        if byte_count > 0 {
            self.last_age += 1;
            self.by_age.insert(self.last_age, fh);
            self.kept.insert(fh, (self.last_age, byte_count));
            self.byte_count += byte_count;
        }
    }

    /// The one that was read longest ago, when all have too much and it is not the only one.
    fn oldest(&self) -> Option<u64> {
        let is_too_much = self.byte_count > KEPT_BYTES_MAX && self.by_age.len() > 1;
        self.by_age.first_key_value().filter(|_| is_too_much).map(|(_, fh)| *fh)
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        assert_eq!(self.by_age.len(), self.kept.len());
        assert!(self.byte_count <= KEPT_BYTES_MAX || self.kept.len() <= 1, "{} bytes", self.byte_count);
    }
}

impl State {
    /// A directory has been read on.
    pub(crate) fn note_listing(&mut self, fh: u64) {
        let kept = self.handles.get(&fh).map_or(0, |handle| handle.listing.kept_bytes());
        self.listing_budget.note(fh, kept);
        while let Some(oldest) = self.listing_budget.oldest() {
            self.listing_budget.forget(oldest);
            if let Some(handle) = self.handles.get_mut(&oldest) {
                handle.listing = Listing::default();
            }
        }
    }
}
