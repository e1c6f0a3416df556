//! What a target is asked for.

use base::WallTime;
use std::collections::BTreeMap;
use wire::Request;

/// Requests that were begun, by kind (`Request::name`), replays among them. What only keeps, makes or ends a session is not counted,
/// nor what is answered as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCounts {
    /// Counted since then.
    pub since: WallTime,
    pub by_kind: BTreeMap<&'static str, u64>,
}

impl RequestCounts {
    pub(super) fn since(since: WallTime) -> RequestCounts {
        RequestCounts { since, by_kind: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, request: &Request) {
        *self.by_kind.entry(request.name()).or_default() += 1;
    }
}
