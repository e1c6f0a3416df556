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
//! - The kernel's file certainly reaches to its end (`kernel_size`).
//!
//! A few are under way at a time; the others wait here, where nobody has to wait for them: whoever would calls them off. What is under
//! way is called off as well, for no thread may have begun with it, and is not begun when the lease may have ended (`Notify::Store`).
//! So nothing that was true long ago is stored.
//!
//! The kernel waits in a push for a page that a READ has locked, and whoever waits for the push may be who that READ waits for. So no
//! push begins over pages of a READ that is unanswered, and a READ that comes while its pages are being pushed is answered at once,
//! with what is pushed, also under a lock that has been called back meanwhile; or, when it reaches further, refused: the kernel then asks
//! for the single page that it needs. One that stands all the same holds up no other.

use crate::ahead::sign_behind;
use crate::ctx::Ctx;
use crate::executor::{Receiver, Sender, oneshot};
use crate::locks::Pin;
use crate::machine::{Notify, NotifyId, NotifyResult, Output};
use crate::nodes::Node;
use crate::pages::{PAGE_BYTES, PageSet};
use crate::state::State;
use base::layout::Piece;
use base::{Duration, Extent, Fid, ObjectId, TargetId, Time};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// Under way at a time, of those that do not stand: one for each processor of a small machine, and as many on their way to a thread.
const MOVING_COUNT_MAX: usize = 4;
/// A push that takes longer waits for a READ; a window is copied in less than a millisecond.
const STANDS_AFTER: Duration = Duration::from_millis(50);
/// Under way in all. Each takes a thread.
pub const PUSH_COUNT_MAX: usize = 32;
/// With so many calls unanswered none is begun: half of what the kernel has on its way at a time. Of a READ beyond that, which it keeps, nobody
/// hears, and so nobody answers it while it has pages locked for which a push waits.
const UNANSWERED_COUNT_MAX: usize = 128;
/// Windows that wait for that, of all files: as much as is read ahead of one.
const QUEUED_COUNT_MAX: usize = 64;

/// A window of a file that is to be pushed, or is being pushed.
struct Push {
    node: u64,
    object: ObjectId,
    window_number: u64,
    data_changed_at: u64,
    /// In the object.
    own: Extent,
    /// In the file, with its bytes.
    extent: Extent,
    bytes: Bytes,
    /// What of it the kernel is given.
    pages: Extent,
    pin: Pin,
}

/// One that the kernel has been told of.
struct Begun {
    push: Push,
    at: Time,
    is_called_off: bool,
    /// Others were told to drop these pages, and may have passed by.
    is_doubted: bool,
    /// Dropped, and so woken, at its end.
    waiters: Vec<Sender<()>>,
}

#[derive(Default)]
pub(crate) struct Pushes {
    /// Of these nothing is in the kernel. They have their locks pinned.
    queued: VecDeque<Push>,
    begun: BTreeMap<NotifyId, Begun>,
}

impl Pushes {
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.begun.is_empty()
    }

    pub(crate) fn is_one(&self, id: NotifyId) -> bool {
        self.begun.contains_key(&id)
    }

    /// Pages that are, or will be, in the kernel by a push, whatever is on record of them.
    pub(crate) fn over(&self, node: u64, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let pushes = self.queued.iter().chain(self.begun.values().map(|begun| &begun.push));
        let own = pushes.filter(move |push| push.node == node);
        own.map(move |push| push.pages.intersection(extent)).filter(|pages| !pages.is_empty())
    }
}

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
        let is_small_enough =
            |node: &Node| node.attr().is_some_and(|attr| attr.size_bytes <= bounds.pushed_file_byte_count);
        bounds.is_pushing
            && bounds.kernel_window_bytes > 0
            && self.may_read_ahead(fid)
            && self.nodes.by_fid(fid).is_some_and(|node| node.data.writer_count == 0 && is_small_enough(node))
    }

    /// Pushes a window, as soon as that is possible. True when it will be, or is: then its lock stays pinned.
    pub(crate) fn try_push(&mut self, window: Candidate) -> bool {
        // Since some of them stand others may have room.
        self.begin_pushes();
        if self.pushes.queued.len() == QUEUED_COUNT_MAX {
            return false;
        }
        let Some(push) = self.push_of(window).filter(|push| self.can_begin(push)) else { return false };
        self.ahead.note_push(push.object, push.own.start, push.extent);
        self.pushes.queued.push_back(push);
        self.begin_pushes();
        true
    }

    fn push_of(&self, window: Candidate) -> Option<Push> {
        let Candidate { object, extent: own, number, pin, data_changed_at, bytes } = window;
        if bytes.len() as u64 != own.byte_count() {
            return None;
        }
        let extent = self.pushed_extent(object, own)?;
        let sign = sign_behind(extent.start, self.ahead.bounds.kernel_window_bytes);
        let start = extent.start.next_multiple_of(PAGE_BYTES);
        let pages = Extent::new(start, (extent.end.min(sign) / PAGE_BYTES * PAGE_BYTES).max(start));
        let node = object.fid.inode_number();
        (!pages.is_empty()).then_some(Push {
            node,
            object,
            window_number: number,
            data_changed_at,
            own,
            extent,
            bytes,
            pages,
            pin,
        })
    }

    /// Where a window is in its file, if it is in one piece there.
    fn pushed_extent(&self, object: ObjectId, own: Extent) -> Option<Extent> {
        let layout = self.nodes.by_fid(object.fid)?.layout()?;
        let file = layout.stripe(layout.stripe_of(object)?)?.file_range(own);
        let [Piece { object_extent, file_offset_bytes, .. }] = layout.pieces(file)[..] else { return None };
        (object_extent == own && file_offset_bytes == file.start).then_some(file)
    }

    fn can_begin(&self, push: &Push) -> bool {
        let Push { object, pin, pages, .. } = *push;
        let is_dying = self.connections.get(&pin.target).is_none_or(|known| known.locks.is_dying(pin.lock));
        // A push that makes the kernel's file longer makes a new version of its attributes, by which the kernel believes no answer about
        // them that is on its way; it would then take the end of the push for the file's.
        let is_long_enough =
            self.nodes.get(push.node).is_some_and(|node| node.kernel_size.reaches(pages.end, self.now.time));
        self.may_push(object.fid)
            && self.calls.len() < UNANSWERED_COUNT_MAX
            && !is_dying
            && self.is_believable(object.fid, pin.target, pin.lock, push.data_changed_at)
            && self.store_until(pin.target) > self.now.time
            && is_long_enough
            && self.pushed_extent(object, push.own) == Some(push.extent)
            && !self.traffic.is_in_way_of_push(push.node, pages)
    }

    /// Tells the kernel of those that have waited, as many as may be under way.
    fn begin_pushes(&mut self) {
        let now = self.now.time;
        let moving = self.pushes.begun.values().filter(|begun| begun.at.after(STANDS_AFTER) > now).count();
        let room = MOVING_COUNT_MAX.saturating_sub(moving);
        let mut room = room.min(PUSH_COUNT_MAX - self.pushes.begun.len());
        while room > 0
            && let Some(push) = self.pushes.queued.pop_front()
        {
            if self.can_begin(&push) {
                self.begin_push(push);
                room -= 1;
            } else {
                self.end_unpushed(push);
            }
        }
    }

    fn begin_push(&mut self, push: Push) {
        let (node, pages) = (push.node, push.pages);
        let from = (pages.start - push.extent.start) as usize;
        let data = push.bytes.slice(from..from + pages.byte_count() as usize);
        let until = self.store_until(push.pin.target);
        let id = self.send_notify(Notify::Store { node, offset_bytes: pages.start, data, until });
        let at = self.now.time;
        let begun = Begun { push, at, is_called_off: false, is_doubted: false, waiters: Vec::new() };
        self.pushes.begun.insert(id, begun);
    }

    /// Nothing of it is in the kernel.
    fn end_unpushed(&mut self, push: Push) {
        let window = (push.object, push.own.start, push.window_number);
        self.ahead.end_push(self.now.time, window, push.extent, None);
        self.unpin(push.pin);
    }

    /// The kernel has been told; false when it was about something else.
    pub(crate) fn end_push(&mut self, id: NotifyId, result: NotifyResult) -> bool {
        let Some(Begun { push, is_doubted, waiters, .. }) = self.pushes.begun.remove(&id) else {
            return false;
        };
        // They are on record from here on: not before, for the inode may have been forgotten meanwhile, and be known anew. A kernel that
        // has refused them may have taken some.
        if result != NotifyResult::NoEntry
            && let Some(known) = self.nodes.get_mut(push.node)
        {
            known.data.pages.filled.insert(push.pages);
        }
        let is_there = result == NotifyResult::Ok && !is_doubted;
        let window = (push.object, push.own.start, push.window_number);
        self.ahead.end_push(self.now.time, window, push.extent, is_there.then_some(push.pages));
        if is_doubted && result != NotifyResult::NoEntry {
            self.drop_unasked(push.node, push.pages);
        }
        self.unpin(push.pin);
        drop(waiters);
        self.begin_pushes();
        true
    }

    /// Ends those of which nothing is in the kernel.
    fn call_off(&mut self, is_meant: impl Fn(&Push) -> bool) {
        let (off, rest): (VecDeque<Push>, VecDeque<Push>) =
            std::mem::take(&mut self.pushes.queued).into_iter().partition(|push| is_meant(push));
        self.pushes.queued = rest;
        off.into_iter().for_each(|push| self.end_unpushed(push));
        let begun = self.pushes.begun.iter_mut().filter(|(_, begun)| is_meant(&begun.push));
        for (id, begun) in begun.filter(|(_, begun)| !begun.is_called_off) {
            begun.is_called_off = true;
            self.out.push(Output::CallOff(*id));
        }
    }

    fn doubt(&mut self, is_meant: impl Fn(&Push) -> bool) {
        self.call_off(&is_meant);
        let begun = self.pushes.begun.values_mut().filter(|begun| is_meant(&begun.push));
        begun.for_each(|begun| begun.is_doubted = true);
    }

    /// Pages are dropped, and nobody has waited for pushes.
    pub(crate) fn doubt_pushes(&mut self, node: u64, extent: Extent) {
        if !self.pushes.is_empty() {
            self.doubt(|push| push.node == node && push.pages.overlaps(extent));
        }
    }

    /// Whether the kernel may still get pages of this inode that others were told to drop.
    pub(crate) fn has_doubted_push(&self, node: u64) -> bool {
        self.pushes.begun.values().any(|begun| begun.push.node == node && begun.is_doubted)
    }

    /// What this target has granted is void.
    pub(crate) fn doubt_pushes_of(&mut self, target: TargetId) {
        self.doubt(|push| push.pin.target == target);
    }

    /// What a READ can be answered with at once.
    pub(crate) fn pushed(&mut self, node: u64, extent: Extent) -> Pushed {
        let own: Vec<&Begun> = self.pushes.begun.values().filter(|begun| begun.push.node == node).collect();
        if !own.iter().any(|begun| begun.push.pages.overlaps(extent)) {
            return Pushed::Nothing;
        }
        let mut parts = Vec::new();
        let mut start = extent.start;
        while start < extent.end {
            let at = Extent::new(start, start + 1);
            let is_it = |begun: &&&Begun| begun.push.extent.contains(at) && self.is_true(begun);
            let Some(Begun { push, .. }) = own.iter().find(is_it) else { return Pushed::Part };
            let end = extent.end.min(push.extent.end);
            let from = (start - push.extent.start) as usize;
            parts.push(push.bytes.slice(from..from + (end - start) as usize));
            start = end;
        }
        if let Some(known) = self.nodes.get_mut(node) {
            known.data.pages.filled.insert(extent);
        }
        if let [only] = &mut parts[..] {
            return Pushed::Bytes(std::mem::take(only));
        }
        let mut bytes = BytesMut::with_capacity(extent.byte_count() as usize);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Pushed::Bytes(bytes.freeze())
    }

    /// Whether what is being pushed is what the file holds: nobody here changes it before the push has ended, and nobody else before the
    /// lock has gone back, which is after that.
    fn is_true(&self, begun: &Begun) -> bool {
        let pin = begun.push.pin;
        !begun.is_doubted
            && self.connections.get(&pin.target).is_some_and(|known| known.locks.get(pin.lock).is_some())
            && !self.lease_left(pin.target).is_zero()
    }

    fn wait_for_push(&mut self, node: u64, extent: Extent) -> Option<Receiver<()>> {
        let is_over = |begun: &&mut Begun| begun.push.node == node && begun.push.pages.overlaps(extent);
        let begun = self.pushes.begun.values_mut().find(is_over)?;
        let (sender, receiver) = oneshot();
        begun.waiters.push(sender);
        Some(receiver)
    }

    /// Asserts what always holds.
    pub(crate) fn check_pushes(&self) {
        assert!(self.pushes.begun.len() <= PUSH_COUNT_MAX, "each takes a thread");
        assert!(self.pushes.queued.len() <= QUEUED_COUNT_MAX, "and bytes");
        for push in self.pushes.queued.iter().chain(self.pushes.begun.values().map(|begun| &begun.push)) {
            let is_page =
                push.pages.start.is_multiple_of(PAGE_BYTES) && push.pages.end.is_multiple_of(PAGE_BYTES);
            assert!(is_page, "whole pages are pushed");
            assert!(push.extent.contains(push.pages), "of what is here");
        }
    }
}

/// Waits until none of these pages is being pushed. Its caller has seen to it that no other push begins.
pub(crate) async fn pushes_end(ctx: &Ctx, node: u64, pages: &PageSet) {
    let parts: Vec<Extent> = match ctx.with(|state| state.pushes.is_empty()) {
        true => return,
        false => pages.within(Extent::WHOLE).collect(),
    };
    ctx.with(|state| {
        state.call_off(|push| push.node == node && parts.iter().any(|part| push.pages.overlaps(*part)));
    });
    for part in parts {
        while let Some(end) = ctx.with(|state| state.wait_for_push(node, part)) {
            end.await;
        }
    }
}

/// The same of a whole file.
pub(crate) async fn file_pushes_end(ctx: &Ctx, fid: Fid) {
    let node = fid.inode_number();
    ctx.with(|state| state.call_off(|push| push.node == node));
    while let Some(end) = ctx.with(|state| state.wait_for_push(node, Extent::WHOLE)) {
        end.await;
    }
}
