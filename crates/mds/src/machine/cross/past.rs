//! Operations of other MDTs that are over here, the last of them. A request of such an operation that comes late is a copy, and begins
//! nothing: what it asked for was done, and would be done twice.
//!
//! They are not durable. A restart ends the sessions in which copies could still come.

use std::collections::{BTreeSet, VecDeque};
use wire::peer::OperationId;

/// Copies of what is answered are dropped when their sender has said that it knows the answer, so this has to last only while an earlier
/// request of that sender is open.
const PAST_MAX: usize = 1 << 14;

#[derive(Debug, Default)]
pub(super) struct Past {
    known: BTreeSet<OperationId>,
    /// The oldest first.
    order: VecDeque<OperationId>,
}

impl Past {
    pub fn has(&self, id: OperationId) -> bool {
        self.known.contains(&id)
    }

    pub fn note(&mut self, id: OperationId) {
        if self.known.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > PAST_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}
