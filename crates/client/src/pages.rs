//! What the kernel may have of a file in its page cache, which of it calls have locked, and how it is dropped.
//!
//! The kernel drops a page that a call has locked only when that call is answered, and a call may wait for a lock that
//! another mount gives back only when it gets the one that is being given back here. So a revocation never waits for
//! pages of calls that wait for locks themselves. It need not:
//!
//! - A READ has pages locked that hold nothing. It fetches what it puts there when it has all of its locks, and a lock on
//!   its way back is given to no READ. The revocation goes around these pages.
//! - A WRITE through the cache (without write-back in the kernel, FUSE fills pages first and then sends) has copied its
//!   bytes into pages. Those copied whole, and those that held something before, are not locked and are dropped like any
//!   other. Only the last page can be locked: copied in part, and holding nothing beside. The WRITE does not show which it
//!   is. Hence the record (`Pages::filled`): the page holds something only if it is in there.
//!
//! The record says too much, never too little: pages enter it when a READ begins to fetch, which is before they are
//! filled, and when a WRITE arrives. (What a WRITE has put into pages and the client has not seen yet is what the file
//! will hold.) They leave it when the kernel is told to drop them; until it has, they are in `PageTraffic::drops`. What it is
//! given unasked is in `Pushes` until it has it. What the kernel drops by itself, short of memory, stays in the record.

mod drops;

use crate::ctx::{Ctx, First, Race};
use crate::executor::{Receiver, oneshot};
use crate::machine::{Notify, NotifyId};
use crate::nodes::Node;
use crate::push::pushes_end;
use crate::seldom::Bare;
use crate::state::State;
use base::{Duration, Extent};
use drops::{PageDrop, PageDrops};
use std::collections::BTreeMap;

/// The kernel's.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Where the kernel's file offsets end.
pub(crate) const KERNEL_EOF: u64 = i64::MAX as u64;
/// File bytes that the kernel is told to forget at a time, at first.
const CHUNK_BYTES: u64 = 4 << 20;
/// How much bigger the next chunk is when the kernel was quick with the last one.
const CHUNK_GROWTH: u64 = 4;
/// A kernel that takes longer for a chunk has many pages in it: other files' locks wait behind them.
const CHUNK_PATIENCE: Duration = Duration::from_millis(50);
/// A notification over pages of a READ that waits, sent before it came, is not waited for any longer: it may wait for the
/// READ, when the kernel had dropped one of these pages itself. What is given up in vain is dropped twice, and makes the
/// record say too much.
const READ_PATIENCE: Duration = Duration::from_millis(10);
/// A notification about the doubtful page of a WRITE that waits is not done after so long: it waits for the WRITE, so the
/// page is locked, and empty. That happens when the kernel has dropped the page itself before. Long against what a
/// thread of ours may have to wait for a processor, short against the patience of servers.
const DOUBT_PATIENCE: Duration = Duration::from_millis(3000);
/// A set of more ranges than these becomes one range that contains them all.
const RANGE_COUNT_MAX: usize = 512;

/// Pages of a file, in disjoint ranges that do not touch, from start to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageSet(BTreeMap<u64, u64>);

impl PageSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn insert(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        // Reads in sequence and over what was read before change nothing else.
        if let Some((_, end)) = self.0.range_mut(..=extent.start).next_back()
            && *end >= extent.end
        {
            return;
        }
        let (mut start, mut end) = (extent.start, extent.end);
        while let Some((known_start, known_end)) = self.last_until(end) {
            if known_end < start {
                break;
            }
            start = start.min(known_start);
            end = end.max(known_end);
            self.0.remove(&known_start);
        }
        self.0.insert(start, end);
        if self.0.len() > RANGE_COUNT_MAX
            && let (Some((first, _)), Some((_, last))) = (self.0.first_key_value(), self.0.last_key_value())
        {
            self.0 = BTreeMap::from([(*first, *last)]);
        }
    }

    /// The last range that starts at or below `end`.
    fn last_until(&self, end: u64) -> Option<(u64, u64)> {
        self.0.range(..=end).next_back().map(|(start, end)| (*start, *end))
    }

    pub(crate) fn remove(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        while let Some((start, end)) = self.last_until(extent.end - 1) {
            if end <= extent.start {
                break;
            }
            self.0.remove(&start);
            if end > extent.end {
                self.0.insert(extent.end, end);
            }
            if start < extent.start {
                self.0.insert(start, extent.start);
                break;
            }
        }
    }

    /// The parts of it that lie in `extent`, ascending.
    pub(crate) fn within(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let first = self.last_until(extent.start).map_or(extent.start, |(start, _)| start);
        self.0
            .range(first..extent.end.max(first))
            .map(move |(start, end)| Extent::new((*start).max(extent.start), (*end).min(extent.end)))
            .filter(|part| !part.is_empty())
    }

    /// The parts of `extent` that are not in it, ascending.
    pub(crate) fn gaps(&self, extent: Extent) -> Vec<Extent> {
        let mut gaps = Vec::new();
        let mut start = extent.start;
        for part in self.within(extent) {
            gaps.push(Extent::new(start, part.start));
            start = part.end;
        }
        gaps.push(Extent::new(start, extent.end));
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// The first range that overlaps `extent`, whole.
    pub(crate) fn touching(&self, extent: Extent) -> Option<Extent> {
        let (start, end) = self.last_until(extent.end.saturating_sub(1))?;
        (end > extent.start).then_some(Extent::new(start, end))
    }

    fn intersection(&self, extent: Extent) -> PageSet {
        PageSet(self.within(extent).map(|part| (part.start, part.end)).collect())
    }
}

/// The pages that contain `extent`.
pub(crate) fn pages_of(extent: Extent) -> Extent {
    let end = extent.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(Extent::EOF);
    Extent::new(extent.start / PAGE_BYTES * PAGE_BYTES, end)
}

/// What is known of the pages of one inode.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Nothing is in pages outside of this, but what is being dropped.
    pub(crate) filled: PageSet,
    /// What was dropped since the last answer to a WRITE through the cache. Such WRITEs come one at a time: whatever one
    /// of them has put into pages was put there after that.
    dropped: PageSet,
}

impl Bare for Pages {
    const BARE: &'static Pages =
        &Pages { filled: PageSet(BTreeMap::new()), dropped: PageSet(BTreeMap::new()) };
}

/// A call that has pages, by its number among the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageCallId(pub(crate) u64);

/// An unanswered call for which the kernel has put pages aside.
#[derive(Debug)]
struct PageCall {
    node: u64,
    /// All pages of a READ, locked and empty; for a WRITE those that it writes.
    pages: Extent,
    kind: PageCallKind,
    /// It has not all of its locks, or waits for what comes before them.
    is_waiting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageCallKind {
    Read,
    /// With the last page, if it is written in part: locked and empty, or unlocked and with contents.
    Write(Option<Extent>),
}

impl PageCall {
    /// Pages that are locked and empty.
    fn empty_pages(&self) -> Option<Extent> {
        (self.kind == PageCallKind::Read && self.is_waiting).then_some(self.pages)
    }

    /// A page that may be locked, and is empty then.
    fn doubtful_page(&self) -> Option<Extent> {
        match self.kind {
            PageCallKind::Write(page) if self.is_waiting => page,
            _ => None,
        }
    }
}

/// Unanswered calls with pages, and notifications about pages that are not done.
#[derive(Default)]
pub(crate) struct PageTraffic {
    calls: BTreeMap<PageCallId, PageCall>,
    drops: PageDrops,
}

/// What to wait for before more pages can be dropped.
struct DropStep {
    id: NotifyId,
    extent: Extent,
    receiver: Receiver<()>,
    /// It may wait for a call that waits itself.
    is_doubtful: bool,
}

impl State {
    /// A READ that fills pages has come.
    pub(crate) fn begin_page_read(&mut self, id: PageCallId, node: u64, extent: Extent) {
        self.begin_page_call(id, node, pages_of(extent), PageCallKind::Read);
    }

    /// A WRITE that has filled pages has come.
    pub(crate) fn begin_page_write(&mut self, id: PageCallId, node: u64, extent: Extent) {
        let pages = pages_of(extent);
        let last = Extent::new(pages.end.saturating_sub(PAGE_BYTES), pages.end);
        let is_last_whole = extent.end == last.end && extent.start <= last.start;
        if let Some(known) = self.nodes.get_mut(node) {
            let first_whole =
                if extent.start == pages.start { pages.start } else { pages.start + PAGE_BYTES };
            let last_whole = if is_last_whole { last.end } else { last.start };
            known.data.pages.filled.insert(Extent::new(first_whole, last_whole));
        }
        self.begin_page_call(id, node, pages, PageCallKind::Write((!is_last_whole).then_some(last)));
    }

    fn begin_page_call(&mut self, id: PageCallId, node: u64, pages: Extent, kind: PageCallKind) {
        self.traffic.calls.insert(id, PageCall { node, pages, kind, is_waiting: false });
        // Without a layout it asks for that first.
        let has_layout = |node: &Node| node.layout().is_some_and(base::Layout::has_objects);
        if !self.nodes.get(node).is_some_and(has_layout) {
            self.page_call_waits(id);
        }
    }

    /// The call waits for locks, or for what comes before them. A notification that is over its pages now may wait for one
    /// that it has locked; if so, that shows with time.
    pub(crate) fn page_call_waits(&mut self, id: PageCallId) {
        let Some(call) = self.traffic.calls.get_mut(&id) else { return };
        call.is_waiting = true;
        let (node, in_way) = (call.node, call.empty_pages().or(call.doubtful_page()));
        if in_way.is_some_and(|pages| !self.traffic.drops_over(node, pages).is_empty()) {
            self.to_doubt.push(id);
        }
    }

    /// The call has all of its locks, and waits for so long for something else that nobody is to wait for it.
    pub(crate) fn page_call_stalls(&mut self, id: PageCallId) {
        if self.traffic.calls.get(&id).is_some_and(|call| !call.is_waiting) {
            self.page_call_waits(id);
        }
    }

    /// What it has waited for is there.
    pub(crate) fn page_call_goes_on(&mut self, id: PageCallId) {
        if self.traffic.calls.get(&id).is_some_and(|call| call.is_waiting) {
            self.page_call_moves(id);
        }
    }

    /// The call has all of its locks and begins to move data; it ends by itself.
    pub(crate) fn page_call_moves(&mut self, id: PageCallId) {
        let Some(call) = self.traffic.calls.get_mut(&id) else { return };
        call.is_waiting = false;
        let (node, pages, kind) = (call.node, call.pages, call.kind);
        let Some(known) = self.nodes.get_mut(node) else { return };
        if kind != PageCallKind::Read {
            return;
        }
        known.data.pages.filled.insert(pages);
        // What a WRITE has filled is not read in, unless the kernel has dropped it meanwhile.
        for write in self.traffic.calls.values().filter(|call| call.node == node && call.kind != kind) {
            known.data.pages.dropped.insert(write.pages.intersection(pages));
        }
    }

    /// The call is answered.
    pub(crate) fn end_page_call(&mut self, id: PageCallId) {
        let Some(call) = self.traffic.calls.remove(&id) else { return };
        if call.kind != PageCallKind::Read
            && let Some(node) = self.nodes.get_mut(call.node)
        {
            node.data.pages.dropped.clear();
        }
    }

    /// A WRITE was executed, and no lock covers what it has put into pages: they go before it is answered.
    pub(crate) fn doubt_pages(&mut self, id: PageCallId) {
        if let Some(call) = self.traffic.calls.get(&id) {
            let (node, pages) = (call.node, call.pages);
            self.note_dropped(node, pages);
        }
    }

    /// What of these pages may have to be dropped.
    pub(crate) fn pages_within(&self, node: u64, extent: Extent) -> PageSet {
        let filled = self.nodes.get(node).map(|known| known.data.pages.filled.intersection(extent));
        let mut found = filled.unwrap_or_default();
        for id in self.traffic.drops_over(node, extent) {
            if let Some(drop) = self.traffic.drops.get(id) {
                found.insert(drop.extent.intersection(extent));
            }
        }
        self.pushes.over(node, extent).for_each(|pages| found.insert(pages));
        found
    }

    /// Pages of a WRITE that were dropped after it had put bytes into them, and may have been read in again since, without
    /// those bytes.
    fn overtaken_pages(&self, id: PageCallId) -> Option<(u64, PageSet)> {
        let call = self.traffic.calls.get(&id)?;
        let known = &self.nodes.get(call.node)?.data.pages;
        let mut dropped = known.dropped.intersection(call.pages);
        for (_, drop) in self.traffic.drops.of(call.node) {
            dropped.insert(drop.extent.intersection(call.pages));
        }
        let parts = dropped.within(call.pages).flat_map(|part| known.filled.within(part));
        let mut overtaken = PageSet::default();
        parts.for_each(|part| overtaken.insert(part));
        (!overtaken.is_empty()).then_some((call.node, overtaken))
    }

    /// Tells the kernel to drop pages.
    fn begin_drop(&mut self, node: u64, extent: Extent) -> NotifyId {
        if let Some(known) = self.nodes.get_mut(node) {
            known.data.pages.filled.remove(extent);
        }
        self.send_drop(node, extent, false)
    }

    /// The same; nobody waits for it, and nobody relies on it.
    pub(crate) fn drop_unasked(&mut self, node: u64, extent: Extent) {
        self.send_drop(node, pages_of(extent), true);
    }

    /// The locks are gone under which pages of this inode were stored into: as they go the kernel sends what nobody may write any more.
    pub(crate) fn lose_pages(&mut self, node: u64) {
        let is_filled = self.nodes.get(node).is_some_and(|known| !known.data.pages.filled.is_empty());
        if is_filled {
            self.drop_unasked(node, Extent::WHOLE);
        }
        let ids: Vec<NotifyId> = self.traffic.drops.of(node).map(|(id, _)| id).collect();
        for id in ids {
            if let Some(drop) = self.traffic.drops.get_mut(id) {
                drop.is_lost = true;
                drop.is_redone = false;
            }
        }
    }

    /// The locks of this inode's pages are gone: what was dropped anew may still be there, too.
    pub(crate) fn doubt_redone_drops(&mut self, node: u64) {
        let ids: Vec<NotifyId> = self.traffic.drops.of(node).map(|(id, _)| id).collect();
        for id in ids {
            if let Some(drop) = self.traffic.drops.get_mut(id) {
                drop.is_redone = false;
            }
        }
    }

    /// Whether what the kernel writes back there may be from before an eviction.
    pub(crate) fn has_lost_pages(&self, node: u64, extent: Extent) -> bool {
        self.traffic.drops.of(node).any(|(_, drop)| drop.is_lost && drop.extent.overlaps(extent))
    }

    /// Whether the kernel may still have pages of this inode that nobody waits for to go.
    pub(crate) fn has_unasked_drop(&self, node: u64) -> bool {
        self.traffic.drops.of(node).any(|(_, drop)| drop.is_given_up && !drop.is_redone)
    }

    fn send_drop(&mut self, node: u64, extent: Extent, is_given_up: bool) -> NotifyId {
        self.doubt_pushes(node, extent);
        let end = extent.end.min(KERNEL_EOF);
        let notify = Notify::InvalInode {
            node,
            offset_bytes: i64::try_from(extent.start).unwrap_or(i64::MAX),
            byte_count: i64::try_from(end.saturating_sub(extent.start)).unwrap_or(i64::MAX),
        };
        let id = self.send_notify(notify);
        self.traffic.drops.insert(
            id,
            PageDrop { node, extent, is_given_up, is_redone: false, is_lost: false, waiters: Vec::new() },
        );
        self.note_dropped(node, extent);
        id
    }

    /// It is done; false when it was not about pages.
    pub(crate) fn end_drop(&mut self, id: NotifyId) -> bool {
        let Some(drop) = self.traffic.drops.remove(id) else { return false };
        self.note_dropped(drop.node, drop.extent);
        for waiter in drop.waiters {
            waiter.send(());
        }
        true
    }

    fn note_dropped(&mut self, node: u64, extent: Extent) {
        if let Some(known) = self.nodes.get_mut(node)
            && known.data.cached_writer_count > 0
        {
            known.data.pages.dropped.insert(extent);
        }
    }

    /// Its pages are to be dropped anew, but for `empty`, which it waits for in the kernel.
    fn give_up_drop(&mut self, id: NotifyId, empty: Option<Extent>) {
        let Some(drop) = self.traffic.drops.get_mut(id) else { return };
        drop.is_given_up = true;
        drop.is_redone = empty.is_none();
        drop.waiters.clear();
        let Some(known) = self.nodes.get_mut(drop.node) else { return };
        known.data.pages.filled.insert(drop.extent);
        if let Some(empty) = empty {
            known.data.pages.filled.remove(empty);
        }
    }

    /// A WRITE has waited for so long that a notification over its doubtful page waits for it: the page is empty.
    fn give_up_doubtful(&mut self, id: NotifyId) {
        let Some(drop) = self.traffic.drops.get(id).filter(|drop| !drop.is_given_up) else { return };
        if let Some(page) = self.traffic.doubtful_page(drop.node, drop.extent) {
            self.give_up_drop(id, Some(page));
        }
    }

    /// What is next in dropping `todo`: something that is to be waited for, or nothing.
    fn drop_step(&mut self, node: u64, todo: &mut PageSet, byte_count_max: u64) -> Option<DropStep> {
        for call in self.traffic.calls.values().filter(|call| call.node == node) {
            if let Some(empty) = call.empty_pages() {
                todo.remove(empty);
            }
        }
        let (id, extent) = match self.next_filled(node, todo, byte_count_max) {
            Some(extent) => (self.begin_drop(node, extent), extent),
            // What others are dropping.
            None => todo.within(Extent::WHOLE).find_map(|part| {
                let id = self.traffic.drops_over(node, part).into_iter().next()?;
                Some((id, self.traffic.drops.get(id)?.extent))
            })?,
        };
        let is_doubtful = self.traffic.doubtful_page(node, extent).is_some();
        let (sender, receiver) = oneshot();
        self.traffic.drops.get_mut(id)?.waiters.push(sender);
        Some(DropStep { id, extent, receiver, is_doubtful })
    }

    /// The first pages of `todo` that hold something; doubtful ones come last and alone, so that nothing waits behind them.
    fn next_filled(&self, node: u64, todo: &PageSet, byte_count_max: u64) -> Option<Extent> {
        let filled = &self.nodes.get(node)?.data.pages.filled;
        let mut doubtful = None;
        for part in todo.within(Extent::WHOLE).flat_map(|part| filled.within(part)) {
            let Some(page) = self.traffic.doubtful_page(node, part) else {
                return Some(Extent::new(
                    part.start,
                    part.start.saturating_add(byte_count_max).min(part.end),
                ));
            };
            if part.start < page.start {
                let end = page.start.min(part.start.saturating_add(byte_count_max));
                return Some(Extent::new(part.start, end));
            }
            if page.end < part.end {
                let end = page.end.saturating_add(byte_count_max).min(part.end);
                return Some(Extent::new(page.end, end));
            }
            doubtful = Some(part);
        }
        doubtful
    }

    /// Asserts what always holds.
    pub(crate) fn check_pages(&self) {
        self.traffic.drops.check();
    }
}

impl PageTraffic {
    pub(crate) fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// Whether an unanswered READ begins below `start`.
    pub(crate) fn has_read_below(&self, node: u64, start: u64) -> bool {
        let is_below = |call: &PageCall| {
            call.node == node && call.kind == PageCallKind::Read && call.pages.start < start
        };
        self.calls.values().any(is_below)
    }

    /// Whether somebody has these pages, or they are being dropped.
    pub(crate) fn is_in_way_of_push(&self, node: u64, pages: Extent) -> bool {
        let mut calls = self.calls.values().filter(|call| call.node == node);
        let mut drops = self.drops.of(node);
        calls.any(|call| call.pages.overlaps(pages)) || drops.any(|(_, drop)| drop.extent.overlaps(pages))
    }

    /// Notifications over these pages that are not given up.
    fn drops_over(&self, node: u64, extent: Extent) -> Vec<NotifyId> {
        let is_over = |drop: &PageDrop| !drop.is_given_up && drop.extent.overlaps(extent);
        self.drops.of(node).filter(|(_, drop)| is_over(drop)).map(|(id, _)| id).collect()
    }

    /// The first doubtful page in an extent.
    fn doubtful_page(&self, node: u64, extent: Extent) -> Option<Extent> {
        let calls = self.calls.values().filter(|call| call.node == node);
        calls.filter_map(PageCall::doubtful_page).filter(|page| page.overlaps(extent)).min()
    }
}

/// Has the kernel drop `todo`, in ascending pieces. When this returns nothing is there any more of what was there when it
/// was called, but for pages that calls have locked that wait, which are empty.
pub(crate) async fn drop_pages(ctx: &Ctx, node: u64, mut todo: PageSet) {
    pushes_end(ctx, node, &todo).await;
    let mut byte_count_max = CHUNK_BYTES;
    loop {
        let asked = ctx.now().time;
        let Some(step) = ctx.with(|state| state.drop_step(node, &mut todo, byte_count_max)) else { return };
        let done = if step.is_doubtful {
            let id = step.id;
            match Race(step.receiver, ctx.sleep(DOUBT_PATIENCE)).await {
                First::Left(done) => done,
                First::Right(_) => {
                    ctx.with(|state| state.give_up_doubtful(id));
                    None
                }
            }
        } else {
            step.receiver.await
        };
        if done.is_some() {
            todo.remove(step.extent);
            byte_count_max = next_chunk_bytes(byte_count_max, ctx.now().time.since(asked));
        }
    }
}

/// What is stored into mapped pages the kernel sends when it drops them, and of itself only before a write past the page cache, and there not
/// each kernel. A call that passes by the pages has it done first: a read finds what was stored, and over a write nothing comes that was
/// stored before.
pub(crate) async fn take_in_stores(ctx: &Ctx, node: u64, extent: Extent) {
    let stored = ctx.with(|state| {
        let may_be_stored = state.nodes.get(node).is_some_and(|known| known.data.cached_writer_count > 0);
        may_be_stored.then(|| state.pages_within(node, pages_of(extent)))
    });
    if let Some(pages) = stored.filter(|pages| !pages.is_empty()) {
        drop_pages(ctx, node, pages).await;
    }
}

/// A call has begun to wait while pages of it were being dropped. Notifications that still are not done wait for it.
pub(crate) async fn doubt(ctx: Ctx, id: PageCallId) {
    let is_read =
        ctx.with(|state| state.traffic.calls.get(&id).is_some_and(|call| call.empty_pages().is_some()));
    ctx.sleep(if is_read { READ_PATIENCE } else { DOUBT_PATIENCE }).await;
    ctx.with(|state| {
        let Some(call) = state.traffic.calls.get(&id) else { return };
        let (node, empty, doubtful) = (call.node, call.empty_pages(), call.doubtful_page());
        for drop in empty.map(|pages| state.traffic.drops_over(node, pages)).unwrap_or_default() {
            state.give_up_drop(drop, None);
        }
        for drop in doubtful.map(|page| state.traffic.drops_over(node, page)).unwrap_or_default() {
            state.give_up_doubtful(drop);
        }
    });
}

/// Before the answer to a WRITE that has been executed, and with no lock pinned: no page is without its bytes.
pub(crate) async fn drop_overtaken(ctx: &Ctx, id: PageCallId) {
    if let Some((node, overtaken)) = ctx.with(|state| state.overtaken_pages(id)) {
        ctx.with(|state| state.page_call_waits(id));
        drop_pages(ctx, node, overtaken).await;
    }
}

/// The size of the chunk after one of `byte_count` bytes. Chunks grow over what the kernel has no pages of.
fn next_chunk_bytes(byte_count: u64, took: Duration) -> u64 {
    if took > CHUNK_PATIENCE {
        (byte_count / 2).max(CHUNK_BYTES)
    } else {
        byte_count.saturating_mul(CHUNK_GROWTH)
    }
}

#[cfg(test)]
mod tests;
