//! What was stored into mapped pages, and an eviction.
//!
//! Pages that are stored into live under a write lock, and the kernel sends them before that goes back. An eviction takes the lock without
//! asking: others may write there from then on. So what the kernel sends afterwards of what was stored before is not written, under no
//! lock that is taken anew, as what was kept back is not (`State::lose_dirty`). Whoever has the file open is told.
//!
//! Such a WRITE comes before the kernel has said that it has dropped these pages, which it is told at the eviction at the latest; or it had come
//! already, and waited for its MDT, for its lock, or for its answer.

use crate::ctx::Outcome;
use crate::state::State;
use base::{Extent, Status, TargetId};

/// A WRITE of pages that were stored into, as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    node: u64,
    evictions: u64,
}

impl State {
    /// A target has evicted this client.
    pub(crate) fn lose_stored(&mut self, target: TargetId) {
        self.doubt_pushes_of(target);
        for node in self.nodes_on(target) {
            self.lose_pages(node);
        }
    }

    /// The kernel writes back what was stored into pages. -> What `check_stored` needs.
    ///
    /// # Errors
    /// As that.
    pub(crate) fn begin_stored(&mut self, node: u64, extent: Extent) -> Outcome<Stored> {
        let stored = Stored { node, evictions: self.evictions_from_data(node) };
        if self.has_lost_pages(node, extent) { Err(self.tell_of_lost(node)) } else { Ok(stored) }
    }

    /// Whether it may be written still, whatever lock is held now.
    ///
    /// # Errors
    /// `Io` after an eviction.
    pub(crate) fn check_stored(&mut self, stored: Stored) -> Outcome<()> {
        let is_lost = self.evictions_from_data(stored.node) != stored.evictions;
        if is_lost { Err(self.tell_of_lost(stored.node)) } else { Ok(()) }
    }

    /// How often those that have the data of a file have evicted this client.
    fn evictions_from_data(&self, node: u64) -> u64 {
        let layout = self.nodes.get(node).and_then(|known| known.layout());
        let targets = layout.into_iter().flat_map(|layout| layout.targets());
        targets.filter_map(|target| self.connections.get(&target)).map(|it| it.eviction_count).sum()
    }

    fn tell_of_lost(&mut self, node: u64) -> Status {
        if let Some(fid) = self.nodes.get(node).map(|known| known.fid()) {
            self.fail_handles(fid, Status::Io);
        }
        Status::Io
    }
}
