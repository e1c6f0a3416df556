//! What one client has open and locked, as it names it in a recovery, until the replays of all are executed. It names each open file in a
//! request of its own, and all of them at once. What has no room is dropped, and its client names it again.

use base::{Xid, limits};
use std::collections::BTreeMap;
use wire::{Frame, Request};

/// In the order in which it names them.
#[derive(Debug, Default)]
pub(super) struct Named {
    by_xid: BTreeMap<Xid, (Frame, Request)>,
    byte_count: usize,
}

/// What a request keeps: what it says, and what it takes however little that is.
fn byte_count(frame: &Frame) -> usize {
    frame.body.len() + size_of::<(Frame, Request)>()
}

impl Named {
    pub fn push(&mut self, mut frame: Frame, request: Request) {
        let added = byte_count(&frame);
        let is_new = !self.by_xid.contains_key(&frame.xid);
        if is_new && self.byte_count + added <= limits::QUEUED_REPLAY_BYTES_MAX {
            self.byte_count += added;
            frame.data.clear();
            self.by_xid.insert(frame.xid, (frame.detached(), request));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_xid.is_empty()
    }

    pub fn into_requests(self) -> impl Iterator<Item = (Frame, Request)> {
        self.by_xid.into_values()
    }
}
