//! Data that came with an open: the MDT has the first bytes of some files, and sends them along if they are few. They are handed on
//! once, into the kernel's page cache.

use crate::locks::Pin;
use crate::ops::io::File;
use crate::state::State;
use base::layout::Piece;
use base::{Extent, Fid, LockId, TargetId};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// With more handles than these open nothing is kept: 64 MiB at most.
const HANDLE_COUNT_MAX: usize = 1024;

/// All bytes of a file that its MDT has.
#[derive(Debug)]
pub(crate) struct OpenedData {
    lock: LockId,
    /// `FileData::changed_at` when they came.
    data_changed_at: u64,
    bytes: Bytes,
    served_bytes: u64,
}

impl State {
    /// They came under this lock, if it came too. `asked_at` is `data_changed_at` when they were asked for; `None`: something was on
    /// its way then.
    pub(crate) fn keep_opened(
        &mut self,
        mdt: TargetId,
        fid: Fid,
        (lock, asked_at): (LockId, Option<u64>),
        bytes: Bytes,
    ) {
        let is_locked = self
            .connections
            .get(&mdt)
            .is_some_and(|known| known.locks.get(lock).is_some() && !known.locks.is_dying(lock));
        let is_old = asked_at.is_none() || self.data_changed_at(fid).is_some_and(|now| Some(now) != asked_at);
        if !is_locked || is_old || self.handles.len() > HANDLE_COUNT_MAX {
            return;
        }
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            let data_changed_at = node.data.changed_at;
            let served_bytes = 0;
            let opened = OpenedData { lock, data_changed_at, bytes, served_bytes };
            node.data.opened = Some(Box::new(opened));
        }
    }

    /// What they have of an extent, under the locks that its reader has pinned.
    pub(crate) fn opened_bytes(
        &mut self,
        file: &File,
        extent: Extent,
        pieces: &[Piece],
        pins: &BTreeMap<u32, Pin>,
    ) -> Option<Bytes> {
        let [Piece { stripe: 0, .. }] = pieces else { return None };
        let opened = self.nodes.by_fid(file.fid)?.data.opened.as_ref()?;
        // There may be several locks: both have held since.
        let pin = pins.get(&0)?;
        let is_good = self.is_believable(file.fid, pin.target, opened.lock, opened.data_changed_at);
        if !is_good || self.dirty.has_some_of(file.fid) {
            return None;
        }
        let there = opened.bytes.len() as u64;
        let end = match extent.end <= there {
            true => extent.end,
            // Zeros follow, up to the end of the file.
            false => self.cached_attr(file.fid)?.size_bytes.min(extent.end),
        };
        let from = extent.start.min(there) as usize;
        let bytes = opened.bytes.slice(from..end.clamp(from as u64, there) as usize);
        let byte_count = end.saturating_sub(extent.start) as usize;
        let opened = self.nodes.by_fid_mut(file.fid)?.data.opened.as_mut()?;
        opened.served_bytes += bytes.len() as u64;
        if opened.served_bytes >= there {
            self.forget_opened(file.fid);
        }
        if bytes.len() == byte_count {
            return Some(bytes);
        }
        let mut whole = BytesMut::zeroed(byte_count);
        whole.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(whole.freeze())
    }

    /// When an open is sent: what `keep_opened` wants to know.
    pub(crate) fn begin_opening(&self, fid: Fid) -> Option<u64> {
        (!self.dirty.has_some_of(fid)).then(|| self.data_changed_at(fid).unwrap_or(0))
    }

    pub(crate) fn forget_opened(&mut self, fid: Fid) {
        if let Some(data) = self.nodes.by_fid_mut(fid).and_then(|node| node.data.known_mut()) {
            data.opened = None;
        }
    }
}
