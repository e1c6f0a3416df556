//! Requests of one client that were begun and are not answered yet, and what they keep. Most are answered at once; one that waits for a
//! lock of another client waits for as long as that one likes, with its body and data.

use base::{Xid, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the requests of one client keep: twice what its slots have, each with the longest data.
const BYTES_PER_CLIENT_MAX: usize = 128 << 20;
/// And those of all clients of a target. Beyond it …
const BYTES_MAX: usize = 1 << 30;
/// … each client has so much, and who waits with more asks again.
const SHARE_BYTES: usize = 64 << 10;

const _: () = assert!(
    (limits::SLOT_COUNT + limits::DATA_SLOT_COUNT) as usize
        * (limits::BULK_BYTES_MAX + limits::FRAME_BODY_BYTES_MAX)
        <= BYTES_PER_CLIENT_MAX
);

/// Of all clients of a target.
pub(super) type Total = Arc<AtomicUsize>;

#[derive(Debug, Default)]
pub(super) struct Begun {
    /// Without a slot.
    pub plain: Requests,
    /// Who gives up waiting uses its slot again: they may be more than there are slots.
    pub in_slots: Requests,
}

/// With the bytes that each keeps.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_xid: BTreeMap<Xid, usize>,
    byte_count: usize,
    total: Total,
}

impl Begun {
    pub fn counted_in(total: &Total) -> Begun {
        Begun { plain: Requests::counted_in(total), in_slots: Requests::counted_in(total) }
    }

    /// Whether one more may keep so many bytes.
    pub fn has_room(&self, byte_count: usize) -> bool {
        let own_bytes = self.plain.byte_count + self.in_slots.byte_count + byte_count;
        let all_bytes = self.plain.total.load(Ordering::Relaxed).saturating_add(byte_count);
        own_bytes <= SHARE_BYTES || own_bytes <= BYTES_PER_CLIENT_MAX && all_bytes <= BYTES_MAX
    }
}

impl Requests {
    fn counted_in(total: &Total) -> Requests {
        Requests { by_xid: BTreeMap::new(), byte_count: 0, total: Arc::clone(total) }
    }

    pub fn insert(&mut self, xid: Xid, byte_count: usize) {
        self.remove(xid);
        self.by_xid.insert(xid, byte_count);
        self.byte_count += byte_count;
        self.total.fetch_add(byte_count, Ordering::Relaxed);
    }

    pub fn remove(&mut self, xid: Xid) {
        let byte_count = self.by_xid.remove(&xid).unwrap_or(0);
        self.byte_count -= byte_count;
        self.total.fetch_sub(byte_count, Ordering::Relaxed);
    }

    pub fn contains(&self, xid: Xid) -> bool {
        self.by_xid.contains_key(&xid)
    }

    pub fn len(&self) -> usize {
        self.by_xid.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_xid.is_empty()
    }
}

/// The session has ended, and with it what it had begun.
impl Drop for Requests {
    fn drop(&mut self) {
        self.total.fetch_sub(self.byte_count, Ordering::Relaxed);
    }
}
