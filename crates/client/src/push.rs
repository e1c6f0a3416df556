//! Windows that are put into the kernel's page cache before it asks for them.
//!
//! What a stream will read is here before the kernel knows that it needs it. Asked for, it goes in pieces of the kernel's choice,
//! each of which wakes everybody who waits for it; pushed, it is found. A push overwrites pages and can make the kernel's file longer,
//! so what is pushed is true and stays so until the push has ended:
//!
//! - It came whole under a lock that is held and not called back, which the push pins; a page that it fills only in part is left out.
//! - Nobody of this mount changes the file: no handle can write, nothing is kept back. Whoever opens one for that, cuts the file, or has
//!   pages dropped comes first in the way of new pushes (`Node::writer_count`, the dying lock, `PageTraffic`), and then waits
//!   until those under way have ended. A notification that is sent without waiting has the pages dropped once more afterwards.
//!
//! The kernel waits in a push for a page that a READ has locked, and whoever waits for the push may be who that READ waits for. So no
//! push begins over pages of a READ that is unanswered, and a READ that comes while its pages are being pushed is answered at once,
//! with what is pushed, also under a lock that has been called back meanwhile; or, when it reaches further, refused: the kernel then asks
//! for the single page that it needs.

use crate::ahead::sign_behind;
use crate::ctx::Ctx;
use crate::executor::{Receiver, Sender, oneshot};
use crate::locks::Pin;
use crate::machine::{Notify, NotifyId, NotifyResult};
use crate::nodes::Node;
use crate::pages::{PAGE_BYTES, PageSet};
use crate::state::State;
use base::layout::Piece;
use base::{Duration, Extent, Fid, ObjectId, Time};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// A size that has changed so long ago has come to the kernel in some answer that nothing overtook.
const SIZE_SETTLES: Duration = Duration::from_secs(1);

/// A window of a file that is being pushed.
struct Push {
    node: u64,
    object: ObjectId,
    /// In the object.
    window_start: u64,
    window_number: u64,
    data_changed_at: u64,
    /// In the file, with its bytes.
    extent: Extent,
    bytes: Bytes,
    /// What of it the kernel is given.
    pages: Extent,
    pin: Pin,
    /// Others were told to drop these pages, and may have passed by.
    is_doubted: bool,
    /// Dropped, and so woken, at its end.
    waiters: Vec<Sender<()>>,
}

#[derive(Default)]
pub(crate) struct Pushes(BTreeMap<NotifyId, Push>);

/// What pushes have of a READ.
pub(crate) enum Pushed {
    Nothing,
    Bytes(Bytes),
    /// Not all of it.
    Part,
}

/// A window that has come, as pushes need it.
pub(crate) struct Candidate {
    pub(crate) object: ObjectId,
    pub(crate) extent: Extent,
    pub(crate) number: u64,
    pub(crate) pin: Pin,
    pub(crate) data_changed_at: u64,
    pub(crate) bytes: Bytes,
}

impl State {
    /// Whether pages of a file may be pushed at all.
    pub(crate) fn may_push(&self, fid: Fid) -> bool {
        let bounds = self.ahead.bounds;
        bounds.is_pushing
            && bounds.kernel_window_bytes > 0
            && self.may_read_ahead(fid)
            && self.nodes.by_fid(fid).is_some_and(|node| node.writer_count == 0)
    }

    /// Pushes a window, if that is possible now. True when it is under way: then its lock stays pinned.
    pub(crate) fn try_push(&mut self, window: Candidate) -> bool {
        let Some(push) = self.push_of(window) else { return false };
        let (node, pages) = (push.node, push.pages);
        let from = (pages.start - push.extent.start) as usize;
        let data = push.bytes.slice(from..from + pages.byte_count() as usize);
        if let Some(known) = self.nodes.get_mut(node) {
            known.pages.filled.insert(pages);
        }
        self.ahead.note_push(push.object, push.window_start, push.extent);
        let id = self.send_notify(Notify::Store { node, offset_bytes: pages.start, data });
        self.pushes.0.insert(id, push);
        true
    }

    fn push_of(&self, window: Candidate) -> Option<Push> {
        let Candidate { object, extent: own, number, pin, data_changed_at, bytes } = window;
        let (fid, node) = (object.fid, object.fid.inode_number());
        let is_whole = bytes.len() as u64 == own.byte_count();
        let is_dying = self.connections.get(&pin.target)?.locks.is_dying(pin.lock);
        if !is_whole || is_dying || !self.may_push(fid) {
            return None;
        }
        if !self.is_believable(fid, pin.target, pin.lock, data_changed_at) {
            return None;
        }
        let known = self.nodes.get(node)?;
        let layout = known.layout.as_ref()?;
        let file = layout.stripe(layout.stripe_of(object)?)?.file_range(own);
        let [Piece { object_extent, file_offset_bytes, .. }] = layout.pieces(file)[..] else { return None };
        if object_extent != own || file_offset_bytes != file.start {
            return None;
        }
        let sign = sign_behind(file.start, self.ahead.bounds.kernel_window_bytes);
        let start = file.start.next_multiple_of(PAGE_BYTES);
        let pages = Extent::new(start, (file.end.min(sign) / PAGE_BYTES * PAGE_BYTES).max(start));
        if pages.is_empty()
            || !self.is_within_settled_size(known, pages)
            || self.traffic.is_in_way_of_push(node, pages)
        {
            return None;
        }
        Some(Push {
            node,
            object,
            window_start: own.start,
            window_number: number,
            data_changed_at,
            extent: file,
            bytes,
            pages,
            pin,
            is_doubted: false,
            waiters: Vec::new(),
        })
    }

    /// Whether the kernel knows the file to be so long. A push that makes it longer makes a new version of its attributes, by which the kernel
    /// believes no answer about them that is on its way; it would then take the end of the push for the file's.
    fn is_within_settled_size(&self, node: &Node, pages: Extent) -> bool {
        node.sized.is_some_and(|(size_bytes, since)| {
            let is_settled = since == Time::ZERO || since.after(SIZE_SETTLES) <= self.now.time;
            pages.end <= size_bytes && is_settled
        })
    }

    /// The kernel has been told; false when it was about something else.
    pub(crate) fn end_push(&mut self, id: NotifyId, result: NotifyResult) -> bool {
        let Some(push) = self.pushes.0.remove(&id) else { return false };
        let is_there = result == NotifyResult::Ok && !push.is_doubted;
        let window = (push.object, push.window_start, push.window_number);
        let pushed = is_there.then_some(push.pages);
        self.ahead.end_push(self.now.time, window, push.extent, pushed);
        if push.is_doubted {
            self.drop_unasked(push.node, push.pages);
        }
        self.unpin(push.pin);
        true
    }

    /// Pages are dropped, and nobody has waited for pushes.
    pub(crate) fn doubt_pushes(&mut self, node: u64, extent: Extent) {
        let pushes = self.pushes.0.values_mut().filter(|push| push.node == node);
        pushes.filter(|push| push.pages.overlaps(extent)).for_each(|push| push.is_doubted = true);
    }

    /// What a READ can be answered with at once.
    pub(crate) fn pushed(&mut self, node: u64, extent: Extent) -> Pushed {
        let own: Vec<&Push> = self.pushes.0.values().filter(|push| push.node == node).collect();
        if !own.iter().any(|push| push.pages.overlaps(extent)) {
            return Pushed::Nothing;
        }
        let is_good = |push: &Push| {
            self.is_believable(push.object.fid, push.pin.target, push.pin.lock, push.data_changed_at)
        };
        if !own.iter().filter(|push| push.extent.overlaps(extent)).all(|push| is_good(push)) {
            // The lock is gone: nobody waits for it to be given back.
            return Pushed::Nothing;
        }
        let mut parts = Vec::new();
        let mut start = extent.start;
        while start < extent.end {
            let at = Extent::new(start, start + 1);
            let Some(push) = own.iter().find(|push| push.extent.contains(at)) else { return Pushed::Part };
            let end = extent.end.min(push.extent.end);
            let from = (start - push.extent.start) as usize;
            parts.push(push.bytes.slice(from..from + (end - start) as usize));
            start = end;
        }
        if let Some(known) = self.nodes.get_mut(node) {
            known.pages.filled.insert(extent);
        }
        if let [only] = &mut parts[..] {
            return Pushed::Bytes(std::mem::take(only));
        }
        let mut bytes = BytesMut::with_capacity(extent.byte_count() as usize);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Pushed::Bytes(bytes.freeze())
    }

    fn wait_for_push(&mut self, node: u64, extent: Extent) -> Option<Receiver<()>> {
        let is_over = |push: &&mut Push| push.node == node && push.pages.overlaps(extent);
        let push = self.pushes.0.values_mut().find(is_over)?;
        let (sender, receiver) = oneshot();
        push.waiters.push(sender);
        Some(receiver)
    }

    /// Asserts what always holds.
    pub(crate) fn check_pushes(&self) {
        for push in self.pushes.0.values() {
            let is_page =
                push.pages.start.is_multiple_of(PAGE_BYTES) && push.pages.end.is_multiple_of(PAGE_BYTES);
            assert!(is_page, "whole pages are pushed");
            assert!(push.extent.contains(push.pages), "of what is here");
        }
    }
}

/// Waits until none of these pages is being pushed. Its caller has seen to it that no other push begins.
pub(crate) async fn pushes_end(ctx: &Ctx, node: u64, pages: &PageSet) {
    let parts: Vec<Extent> = match ctx.with(|state| state.pushes.0.is_empty()) {
        true => return,
        false => pages.within(Extent::WHOLE).collect(),
    };
    for part in parts {
        while let Some(end) = ctx.with(|state| state.wait_for_push(node, part)) {
            end.await;
        }
    }
}

/// The same of a whole file.
pub(crate) async fn file_pushes_end(ctx: &Ctx, fid: Fid) {
    while let Some(end) = ctx.with(|state| state.wait_for_push(fid.inode_number(), Extent::WHOLE)) {
        end.await;
    }
}
