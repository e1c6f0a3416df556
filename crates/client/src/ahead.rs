//! Windows of file data that were fetched for more than one read of the kernel.
//!
//! A window is a part of an object that was asked for in one request, under an extent lock that covers it; everybody who reads
//! a part of it waits for that request. It is believed as long as the very lock is held, its OST was heard lately, and this
//! client has changed no data of the file; whoever does not believe it asks the OST for what he needs. Not while data
//! are kept back here, or while stores into mapped pages may be: those windows would be out of date soon.
//!
//! What a read fetches beyond its own need, and what is fetched before anybody asks, is said by `pattern`. Bytes that were
//! handed on once are in the kernel's page cache, so a window goes when all of it was.

mod bounds;
mod pattern;

use crate::cache::is_strict;
use crate::ctx::{Ctx, OstAnswer, Outcome};
use crate::executor::{Receiver, Sender, oneshot};
use crate::locks::{Early, Pin};
use crate::ops::io::File;
use crate::pages::PageSet;
use crate::push::Candidate;
use crate::state::State;
use base::fault::{Fault, planted};
use base::layout::{Component, Piece};
use base::{Duration, Extent, Fid, Layout, LockId, ObjectId, Status, TargetId, Time, WallTime, limits};
pub use bounds::{ReadAheadBound, ReadAheadBounds, ReadAheadStats};
use bytes::{Bytes, BytesMut};
pub(crate) use pattern::sign_behind;
use pattern::{Pattern, Scope, Verdict};
use rpc::Kind;
use std::collections::{BTreeMap, BTreeSet};
use wire::{LockMode, LockPolicy, OstRequest, Resource};

/// One request fetches this much at most, and begins and ends at multiples of it for a stream.
const WINDOW_BYTES: u64 = 1 << 20;
/// Fetched ahead of a stream at least, if the bounds allow it.
const AHEAD_BYTES_MIN: u64 = 8 << 20;
/// The rate of a file's readers is taken anew after as many bytes.
const PACE_BYTES: u64 = 8 << 20;
const PAGE_BYTES: u64 = 4096;

enum Body {
    /// On its way; dropping them wakes who waits.
    Coming(Vec<Sender<()>>),
    Here(Bytes),
}

struct Window {
    number: u64,
    extent: Extent,
    lock: LockId,
    /// `FileData::changed_at` when it was asked for.
    data_changed_at: u64,
    body: Body,
    served_byte_count: u64,
    /// The kernel is to have it unasked.
    is_for_push: bool,
    is_being_pushed: bool,
}

impl Window {
    /// Whether it may make room for others.
    fn is_resting(&self) -> bool {
        matches!(self.body, Body::Here(_)) && !self.is_being_pushed
    }

    fn unserved_byte_count(&self) -> u64 {
        match &self.body {
            Body::Coming(_) => 0,
            Body::Here(bytes) => (bytes.len() as u64).saturating_sub(self.served_byte_count),
        }
    }
}

/// How fast a file is read, and how long a window takes.
struct Pace {
    since: Time,
    byte_count: u64,
    bytes_per_second: u64,
    delay_min: Duration,
}

#[derive(Default)]
struct FileWindows {
    pattern: Pattern,
    /// By first byte.
    windows: BTreeMap<WindowKey, Window>,
    byte_count: u64,
    pace: Option<Pace>,
    /// What the kernel was given unasked, or is being given. Nothing of it is fetched ahead.
    pushed: PageSet,
}

#[derive(Default)]
pub(crate) struct Ahead {
    pub(crate) bounds: ReadAheadBounds,
    pub(crate) stats: ReadAheadStats,
    pub(crate) stats_since: WallTime,
    files: BTreeMap<Fid, FileWindows>,
    /// Files that have windows, by how many bytes those have.
    holders: BTreeSet<(u64, Fid)>,
    /// Windows that are here and not being pushed, of all files, by number.
    resting: BTreeMap<u64, WindowKey>,
    byte_count: u64,
    last_number: u64,
    /// Files and windows that were looked at to make room.
    #[cfg(test)]
    looked_at_count: std::cell::Cell<u64>,
}

/// An object and the first byte of the window.
type WindowKey = (ObjectId, u64);

/// A window that is to be asked for. Its lock is pinned.
struct Fetch {
    object: ObjectId,
    extent: Extent,
    pin: Pin,
    number: u64,
    asked: Time,
}

/// What windows have of a part of an object.
enum Found {
    Bytes(Bytes),
    Wait(Receiver<()>),
    Nothing,
}

/// What a read is to do.
pub(crate) enum Plan {
    Plain,
    /// The kernel gets an error, and asks for what it needs.
    Refuse,
    /// Takes what windows have; these are fetched for it, and for later reads.
    Windowed {
        now: Extent,
        ahead: Vec<Extent>,
        /// The kernel gets it as it comes.
        is_for_push: bool,
    },
}

impl Plan {
    /// What of an object may come with the lock that a piece of it needs: what the plan fetches for it, if that is all that it fetches.
    pub(crate) fn read_with_lock(&self, file: &File, piece: &Piece) -> Option<Extent> {
        let own = piece.object_extent;
        let (now, ahead) = match self {
            Plan::Refuse => return None,
            Plan::Windowed { now, ahead, .. } if !now.is_empty() => (*now, ahead),
            Plan::Plain | Plan::Windowed { .. } => return (own.byte_count() <= WINDOW_BYTES).then_some(own),
        };
        let is_all = ahead.iter().all(|part| now.contains(*part));
        match by_object(file, now)[..] {
            [(stripe, extent)] if is_all && stripe == piece.stripe && extent.contains(own) => {
                (extent.byte_count() <= WINDOW_BYTES).then_some(extent)
            }
            _ => None,
        }
    }
}

impl Ahead {
    pub(crate) fn new(now: WallTime) -> Ahead {
        Ahead { stats_since: now, ..Ahead::default() }
    }

    /// Starts to count anew.
    pub(crate) fn clear_stats(&mut self, now: WallTime) {
        (self.stats, self.stats_since) = (ReadAheadStats::default(), now);
    }

    /// No window had it.
    pub(crate) fn note_missed(&mut self, extent: Extent) {
        self.stats.miss_page_count += extent.byte_count().div_ceil(PAGE_BYTES);
    }

    /// Nobody has the file open any more.
    pub(crate) fn forget(&mut self, fid: Fid) {
        let Some(file) = self.files.remove(&fid) else { return };
        self.byte_count -= file.byte_count;
        self.holders.remove(&(file.byte_count, fid));
        file.windows.values().for_each(|window| {
            self.resting.remove(&window.number);
        });
        self.stats.discarded_page_count +=
            file.windows.values().map(Window::unserved_byte_count).sum::<u64>() / PAGE_BYTES;
    }

    /// A lock on the object goes back.
    pub(crate) fn forget_object(&mut self, object: ObjectId) {
        let Some(file) = self.files.get_mut(&object.fid).filter(|_| !planted(Fault::WindowBelievedTooLong))
        else {
            return;
        };
        file.pushed.clear();
        let keys: Vec<_> =
            file.windows.range((object, 0)..=(object, u64::MAX)).map(|(key, _)| *key).collect();
        for (object, start) in keys {
            self.drop_window(object, start);
        }
    }

    fn insert_window(&mut self, object: ObjectId, window: Window) {
        let (start, byte_count) = (window.extent.start, window.extent.byte_count());
        self.last_number = self.last_number.max(window.number);
        if window.is_resting() {
            self.resting.insert(window.number, (object, start));
        }
        let file = self.files.entry(object.fid).or_default();
        self.holders.remove(&(file.byte_count, object.fid));
        file.byte_count += byte_count;
        self.holders.insert((file.byte_count, object.fid));
        self.byte_count += byte_count;
        let former = file.windows.insert((object, start), window);
        assert!(former.is_none(), "windows do not overlap");
    }

    fn drop_window(&mut self, object: ObjectId, start: u64) {
        let Some(file) = self.files.get_mut(&object.fid) else { return };
        let Some(window) = file.windows.remove(&(object, start)) else { return };
        self.holders.remove(&(file.byte_count, object.fid));
        file.byte_count -= window.extent.byte_count();
        if file.byte_count > 0 {
            self.holders.insert((file.byte_count, object.fid));
        }
        self.byte_count -= window.extent.byte_count();
        self.resting.remove(&window.number);
        self.stats.discarded_page_count += window.unserved_byte_count() / PAGE_BYTES;
    }

    /// Bytes that one file may have: all that have windows share alike, and less than two windows is of no use.
    fn file_byte_count_max(&self, fid: Fid) -> u64 {
        let is_new = self.files.get(&fid).is_none_or(|file| file.byte_count == 0);
        let share = self.bounds.byte_count / (self.holders.len() as u64 + u64::from(is_new)).max(1);
        self.bounds.file_byte_count.min(share.max(2 * WINDOW_BYTES)).min(self.bounds.byte_count)
    }

    /// Drops windows until there is room for one of a file. Beyond its share it gives up its own oldest that are no part of `kept`;
    /// otherwise who has more than that gives up his, and if nobody has, the oldest of all goes.
    fn make_room(&mut self, fid: Fid, byte_count: u64, kept: &dyn Fn(ObjectId, Extent) -> bool) -> bool {
        let byte_count_max = self.file_byte_count_max(fid);
        loop {
            let Some(file) = self.files.get(&fid) else { return false };
            let is_within_share = file.byte_count + byte_count <= byte_count_max;
            if is_within_share && self.byte_count + byte_count <= self.bounds.byte_count {
                return true;
            }
            let oldest = if is_within_share {
                self.oldest_beyond_share(byte_count_max).or_else(|| self.oldest_of_all(fid, kept))
            } else {
                file.oldest(kept)
            };
            let Some((object, start)) = oldest else { return false };
            self.drop_window(object, start);
        }
    }

    /// The oldest window of the file that has the most, if that is more than its share.
    fn oldest_beyond_share(&self, byte_count_max: u64) -> Option<WindowKey> {
        let by_most = self.holders.iter().rev();
        let mut beyond = by_most.take_while(|(byte_count, _)| *byte_count > byte_count_max);
        beyond.find_map(|(_, fid)| {
            self.note_look();
            self.files.get(fid)?.oldest(&|_, _| false)
        })
    }

    /// The oldest window of all files, but for those of one file that are part of `kept`.
    fn oldest_of_all(&self, fid: Fid, kept: &dyn Fn(ObjectId, Extent) -> bool) -> Option<WindowKey> {
        let is_kept = |key: &WindowKey| {
            let extent = self.files.get(&fid).and_then(|file| file.windows.get(key)).map(|it| it.extent);
            extent.is_some_and(|extent| kept(key.0, extent))
        };
        let mut by_age = self.resting.values();
        by_age
            .find(|key| {
                self.note_look();
                !is_kept(key)
            })
            .copied()
    }

    fn note_look(&self) {
        #[cfg(test)]
        self.looked_at_count.set(self.looked_at_count.get() + 1);
    }
}

impl Ahead {
    /// The kernel is given a window, of which `extent` is the part of the file.
    pub(crate) fn note_push(&mut self, object: ObjectId, start: u64, extent: Extent) {
        let Some(file) = self.files.get_mut(&object.fid) else { return };
        file.pushed.insert(extent);
        if let Some(window) = file.windows.get_mut(&(object, start)) {
            window.is_being_pushed = true;
            self.resting.remove(&window.number);
        }
    }

    /// The kernel has these pages of a window; `None`: it has not taken them.
    pub(crate) fn end_push(
        &mut self,
        now: Time,
        (object, start, number): (ObjectId, u64, u64),
        extent: Extent,
        pages: Option<Extent>,
    ) {
        let byte_count = pages.map_or(0, Extent::byte_count);
        self.stats.pushed_page_count += byte_count / PAGE_BYTES;
        let Some(file) = self.files.get_mut(&object.fid) else { return };
        if pages.is_none() {
            file.pushed.remove(extent);
        }
        file.note_served(now, byte_count);
        let Some(window) = file.windows.get_mut(&(object, start)).filter(|window| window.number == number)
        else {
            return;
        };
        window.is_being_pushed = false;
        window.served_byte_count += byte_count;
        if window.unserved_byte_count() == 0 {
            self.drop_window(object, start);
        } else if window.is_resting() {
            self.resting.insert(number, (object, start));
        }
    }

    /// Asserts that the sums are those of the windows.
    pub(crate) fn check(&self) {
        let sum =
            |file: &FileWindows| file.windows.values().map(|window| window.extent.byte_count()).sum::<u64>();
        let byte_count: u64 = self.files.values().map(sum).sum();
        assert_eq!(self.byte_count, byte_count, "windows are counted as they come and go");
        assert!(self.files.values().all(|file| file.byte_count == sum(file)), "also those of each file");
        let holders = self.files.iter().filter(|(_, file)| file.byte_count > 0);
        let holders: BTreeSet<_> = holders.map(|(fid, file)| (file.byte_count, *fid)).collect();
        assert_eq!(self.holders, holders, "and who has any");
        let windows = self.files.values().flat_map(|file| &file.windows);
        let resting = windows.filter(|(_, window)| window.is_resting());
        let resting: BTreeMap<_, _> = resting.map(|(key, window)| (window.number, *key)).collect();
        assert_eq!(self.resting, resting, "and which may make room");
    }
}

impl FileWindows {
    /// The window that is here and was asked for first, of those that are no part of `kept`.
    fn oldest(&self, kept: &dyn Fn(ObjectId, Extent) -> bool) -> Option<WindowKey> {
        let resting = self.windows.iter().filter(|(_, window)| window.is_resting());
        let can_go = resting.filter(|((object, _), window)| !kept(*object, window.extent));
        can_go.min_by_key(|(_, window)| window.number).map(|(key, _)| *key)
    }

    /// How far ahead of its reader a stream is: twice what is read while a window is on its way.
    fn ahead_bytes(&self, byte_count_max: u64) -> u64 {
        let on_its_way = self.pace.as_ref().map_or(0, |pace| {
            let nanoseconds = u128::from(pace.delay_min.as_nanos() as u64);
            (u128::from(pace.bytes_per_second) * nanoseconds / 1_000_000_000) as u64
        });
        (2 * on_its_way).max(AHEAD_BYTES_MIN).min(byte_count_max)
    }

    fn note_served(&mut self, now: Time, byte_count: u64) {
        let Some(pace) = &mut self.pace else { return };
        pace.byte_count += byte_count;
        let elapsed = now.since(pace.since);
        if pace.byte_count >= PACE_BYTES && !elapsed.is_zero() {
            let rate = u128::from(pace.byte_count) * 1_000_000_000 / elapsed.as_nanos().max(1);
            pace.bytes_per_second = rate.min(u128::from(u64::MAX)) as u64;
            (pace.since, pace.byte_count) = (now, 0);
        }
    }

    fn note_delay(&mut self, now: Time, delay: Duration) {
        let pace = self.pace.get_or_insert(Pace {
            since: now,
            byte_count: 0,
            bytes_per_second: 0,
            delay_min: delay,
        });
        // The shortest one lately: what is waited for in queues does not count, and a way may have become longer.
        pace.delay_min = delay.min(pace.delay_min + pace.delay_min / 64);
    }
}

impl FileWindows {
    /// The part that the kernel was given, and that a read is in or next to.
    fn pushed_around(&self, extent: Extent) -> Extent {
        let near = Extent::new(extent.start.saturating_sub(1), extent.end);
        self.pushed.touching(near).unwrap_or_default()
    }

    /// The kernel has dropped what it was given there. What the next stream in front has been given is newer, and is believed on: it is
    /// known to go on by that, and would otherwise fetch it again.
    ///
    /// Whoever reads what is believed in vain waits for each window, since none is fetched ahead; what is not believed in vain is fetched
    /// twice. So a first hole counts for the rest of its window, and one that goes on for all up to that stream.
    fn forget_pushed(&mut self, lacking: Extent, window_bytes: u64) {
        let before = Extent::new(lacking.start.saturating_sub(1), lacking.start);
        let is_first = self.pushed.within(before).next().is_some();
        let window_end = lacking.end.div_ceil(window_bytes).saturating_mul(window_bytes);
        let stream = self.pattern.stream_beyond(lacking.end).unwrap_or(Extent::EOF);
        let end = if is_first { window_end.min(stream) } else { stream };
        self.pushed.remove(Extent::new(lacking.start, end));
    }
}

impl State {
    /// What is believed of a window now, and by whom.
    pub(crate) fn is_believable(
        &self,
        fid: Fid,
        target: TargetId,
        lock: LockId,
        data_changed_at: u64,
    ) -> bool {
        self.nodes.by_fid(fid).is_some_and(|node| node.data.changed_at == data_changed_at)
            && self.connections.get(&target).is_some_and(|known| known.locks.get(lock).is_some())
            && !self.lease_left(target).is_zero()
    }

    /// Whether windows of a file can be believed at all now, and are worth it.
    pub(crate) fn may_read_ahead(&self, fid: Fid) -> bool {
        self.ahead.bounds.byte_count >= WINDOW_BYTES
            && self.ahead.bounds.file_byte_count > 0
            && self.nodes.by_fid(fid).is_some_and(|node| node.open_count > 0)
            && !self.is_cached_writer(fid)
            && !self.dirty.has_some_of(fid)
    }

    /// The kernel asks for what it was given and no window has any more: it has dropped that.
    fn note_lack(&mut self, file: &File, extent: Extent) {
        let Some(known) = self.ahead.files.get(&file.fid) else { return };
        let is_here = |part: &Extent| {
            let mut objects = by_object(file, *part).into_iter();
            objects.all(|(stripe, own)| self.is_windowed(file.layout.object(stripe), own))
        };
        let lacking = known.pushed.within(extent).find(|part| !is_here(part));
        if let Some(lacking) = lacking
            && let Some(known) = self.ahead.files.get_mut(&file.fid)
        {
            known.forget_pushed(lacking, window_bytes(&file.layout));
        }
    }

    /// A read of the kernel that goes into its page cache.
    pub(crate) fn plan_read(&mut self, file: &File, extent: Extent, reader: u32) -> Plan {
        if !self.may_read_ahead(file.fid) {
            return Plan::Plain;
        }
        let attr = self.nodes.by_fid(file.fid).and_then(|node| node.attr());
        // Where others write it is longer by now, and nothing is fetched ahead of what is known.
        let size_bytes = attr.map_or(0, |attr| attr.size_bytes).max(extent.end);
        let is_size_known = attr.is_some_and(is_strict);
        self.ahead.files.entry(file.fid).or_default();
        let byte_count_max = self.ahead.file_byte_count_max(file.fid);
        let bounds = self.ahead.bounds;
        let may_push = self.may_push(file.fid);
        self.note_lack(file, extent);
        let Some(known) = self.ahead.files.get_mut(&file.fid) else { return Plan::Plain };
        let scope = Scope {
            kernel_window_bytes: bounds.kernel_window_bytes,
            window_bytes: window_bytes(&file.layout),
            ahead_bytes: known.ahead_bytes(byte_count_max),
            size_bytes,
            pushed: known.pushed_around(extent),
            whole_bytes_max: if is_size_known { bounds.whole_byte_count.min(byte_count_max) } else { 0 },
        };
        match known.pattern.on_read(extent, scope) {
            Verdict::Plain => {
                Plan::Windowed { now: Extent::default(), ahead: Vec::new(), is_for_push: false }
            }
            Verdict::Refuse => {
                self.ahead.stats.refused_count += 1;
                Plan::Refuse
            }
            Verdict::Fetch { now, ahead } => {
                let now = Extent::new(now.start.min(extent.start), now.end.max(extent.end));
                let is_for_push = known.pattern.is_in_shared_stream(reader) && may_push;
                let ahead = ahead.into_iter().flat_map(|part| known.pushed.gaps(part)).collect();
                Plan::Windowed { now, ahead, is_for_push }
            }
        }
    }

    /// Asks for what is missing of an extent of an object, as far as the lock reaches. `end` is where it is thought to end.
    fn fetch_missing(
        &mut self,
        (object, end): (ObjectId, u64),
        extent: Extent,
        pin: Pin,
        kept: &dyn Fn(ObjectId, Extent) -> bool,
        is_for_push: bool,
    ) -> Vec<Fetch> {
        let (fid, mut fetches) = (object.fid, Vec::new());
        if !self.may_read_ahead(fid) {
            return fetches;
        }
        let Some(covered) = self.lock_extent_of(pin) else { return fetches };
        let mut extent = extent.intersection(covered);
        if covered.end != Extent::EOF {
            // What ends before it was expected to would not be believed.
            extent.end = extent.end.min(end);
        }
        let data_changed_at = self.data_changed_at(fid).unwrap_or(0);
        let mut start = extent.start;
        while start < extent.end {
            let is_rest = extent.end - start <= WINDOW_BYTES;
            let end = if is_rest { extent.end } else { (start / WINDOW_BYTES + 1) * WINDOW_BYTES };
            let part = Extent::new(start, end);
            start = end;
            for gap in self.gaps(object, part, pin.lock) {
                if !self.ahead.make_room(fid, gap.byte_count(), kept) {
                    self.ahead.stats.no_room_count += 1;
                    return fetches;
                }
                fetches.extend(self.begin_fetch(object, gap, pin, data_changed_at, is_for_push));
            }
        }
        fetches
    }

    fn begin_fetch(
        &mut self,
        object: ObjectId,
        extent: Extent,
        pin: Pin,
        data_changed_at: u64,
        is_for_push: bool,
    ) -> Option<Fetch> {
        let asked = self.now.time;
        if !self.connections.get_mut(&pin.target)?.locks.pin(pin.lock) {
            return None;
        }
        let ahead = &mut self.ahead;
        let number = ahead.last_number + 1;
        let window = Window {
            number,
            extent,
            lock: pin.lock,
            data_changed_at,
            body: Body::Coming(Vec::new()),
            served_byte_count: 0,
            is_for_push,
            is_being_pushed: false,
        };
        ahead.stats.window_pages.add(extent.byte_count().div_ceil(PAGE_BYTES));
        ahead.insert_window(object, window);
        Some(Fetch { object, extent, pin, number, asked })
    }

    /// What came with a lock beyond what is handed on of it (`served`) is a window.
    pub(crate) fn keep_early(&mut self, object: ObjectId, pin: Pin, early: Early, served: Extent) {
        let fid = object.fid;
        let Some(covered) = self.lock_extent_of(pin) else { return };
        let end = match covered.end {
            Extent::EOF => early.extent.end,
            // Somebody may make it longer.
            _ => early.extent.start + early.bytes.len() as u64,
        };
        let extent = Extent::new(early.extent.start, end);
        let is_old = self.data_changed_at(fid) != Some(early.data_changed_at);
        let has_rest = !served.contains(extent);
        if !has_rest || !covered.contains(extent) || is_old || !self.may_read_ahead(fid) {
            return;
        }
        if self.gaps(object, extent, pin.lock) != [extent]
            || !self.ahead.make_room(fid, extent.byte_count(), &|_, _| false)
        {
            return;
        }
        let number = self.ahead.last_number + 1;
        self.ahead.stats.window_pages.add(extent.byte_count().div_ceil(PAGE_BYTES));
        let served_byte_count = early.part(served).len() as u64;
        let window = Window {
            number,
            extent,
            lock: pin.lock,
            data_changed_at: early.data_changed_at,
            body: Body::Here(early.bytes),
            served_byte_count,
            is_for_push: false,
            is_being_pushed: false,
        };
        let is_spent = window.unserved_byte_count() == 0;
        self.ahead.insert_window(object, window);
        if is_spent {
            self.ahead.drop_window(object, extent.start);
        }
    }

    fn lock_extent_of(&self, pin: Pin) -> Option<Extent> {
        match self.connections.get(&pin.target)?.locks.get(pin.lock)?.policy {
            LockPolicy::Extent(extent) => Some(extent),
            _ => None,
        }
    }

    /// Parts of an extent that no window has that is believed under this lock. Others that overlap it go.
    fn gaps(&mut self, object: ObjectId, extent: Extent, lock: LockId) -> Vec<Extent> {
        let data_changed_at = self.data_changed_at(object.fid).unwrap_or(0);
        let known = self.windows_over(object, extent);
        let mut gaps = Vec::new();
        let mut start = extent.start;
        for (own, own_lock, changed_at) in known {
            let is_good = own_lock == lock && changed_at == data_changed_at;
            if !is_good && !planted(Fault::WindowBelievedTooLong) {
                self.ahead.drop_window(object, own.start);
                continue;
            }
            if own.start > start {
                gaps.push(Extent::new(start, own.start));
            }
            start = start.max(own.end);
        }
        if start < extent.end {
            gaps.push(Extent::new(start, extent.end));
        }
        gaps
    }

    fn windows_over(&self, object: ObjectId, extent: Extent) -> Vec<(Extent, LockId, u64)> {
        let Some(file) = self.ahead.files.get(&object.fid) else { return Vec::new() };
        // None is longer than a window.
        let from = extent.start.saturating_sub(WINDOW_BYTES);
        let near = file.windows.range((object, from)..(object, extent.end)).map(|(_, window)| window);
        near.filter(|window| window.extent.overlaps(extent))
            .map(|window| (window.extent, window.lock, window.data_changed_at))
            .collect()
    }

    /// Whether windows have all of an extent, or will.
    fn is_windowed(&self, object: ObjectId, extent: Extent) -> bool {
        let mut start = extent.start;
        for (own, ..) in self.windows_over(object, extent) {
            if own.start > start {
                return false;
            }
            start = start.max(own.end);
        }
        start >= extent.end
    }

    /// Where an object ends as far as is known here; it may have become longer or shorter.
    fn expected_end(&self, file: &File, stripe: u32) -> u64 {
        let attr = self.nodes.by_fid(file.fid).and_then(|node| node.attr());
        attr.map_or(Extent::EOF, |attr| file.layout.object_size(stripe, attr.size_bytes))
    }

    /// Whether an object ends there, as the MDT says while nobody writes the file.
    fn is_end_of(&self, file: &File, stripe: u32, offset: u64) -> bool {
        let attr = self.cached_attr(file.fid);
        attr.is_some_and(|attr| file.layout.object_size(stripe, attr.size_bytes) == offset)
    }

    /// What windows have of a piece of a file, under a lock that the caller has pinned.
    fn find_windowed(&mut self, file: &File, piece: &Piece, pin: Pin) -> Found {
        let (object, extent) = (file.layout.object(piece.stripe), piece.object_extent);
        let mut parts: Vec<Bytes> = Vec::new();
        let mut used = Vec::new();
        let mut start = extent.start;
        while start < extent.end {
            let Some(window) = self.window_at(object, start, pin) else {
                if start > extent.start && self.is_end_of(file, piece.stripe, start) {
                    break;
                }
                return Found::Nothing;
            };
            match &mut window.body {
                Body::Coming(waiters) => {
                    let (sender, receiver) = oneshot();
                    waiters.push(sender);
                    return Found::Wait(receiver);
                }
                Body::Here(bytes) => {
                    let from = start - window.extent.start;
                    let to =
                        (extent.end.min(window.extent.end) - window.extent.start).min(bytes.len() as u64);
                    let is_end =
                        window.extent.start + (bytes.len() as u64) < extent.end.min(window.extent.end);
                    if from < to {
                        parts.push(bytes.slice(from as usize..to as usize));
                    }
                    used.push((window.extent.start, to.saturating_sub(from)));
                    start = if is_end { extent.end } else { window.extent.end };
                }
            }
        }
        self.note_served(object, &used);
        Found::Bytes(joined(parts))
    }

    fn window_at(&mut self, object: ObjectId, offset: u64, pin: Pin) -> Option<&mut Window> {
        let fid = object.fid;
        let window = self.ahead.files.get(&fid)?.windows.range((object, 0)..=(object, offset)).next_back()?.1;
        let (start, extent) = (window.extent.start, window.extent);
        let is_believable = window.lock == pin.lock
            && self.is_believable(fid, pin.target, pin.lock, window.data_changed_at)
            || planted(Fault::WindowBelievedTooLong);
        let is_good = extent.end > offset && is_believable;
        if !is_good {
            return None;
        }
        self.ahead.files.get_mut(&fid)?.windows.get_mut(&(object, start))
    }

    /// Windows of which all was handed on are in the kernel's cache.
    fn note_served(&mut self, object: ObjectId, used: &[(u64, u64)]) {
        let now = self.now.time;
        let mut spent = Vec::new();
        let Some(file) = self.ahead.files.get_mut(&object.fid) else { return };
        for (start, byte_count) in used {
            file.note_served(now, *byte_count);
            let Some(window) = file.windows.get_mut(&(object, *start)) else { continue };
            window.served_byte_count += byte_count;
            if window.unserved_byte_count() == 0 {
                spent.push(*start);
            }
        }
        let byte_count: u64 = used.iter().map(|(_, byte_count)| byte_count).sum();
        self.ahead.stats.hit_page_count += byte_count.div_ceil(PAGE_BYTES);
        for start in spent {
            self.ahead.drop_window(object, start);
        }
    }

    /// A window has come, or has not.
    fn end_fetch(&mut self, fetch: &Fetch, result: Outcome<OstAnswer>) {
        let reaches_end = self.lock_extent_of(fetch.pin).is_some_and(|extent| extent.end == Extent::EOF);
        let (now, delay) = (self.now.time, self.now.time.since(fetch.asked));
        let byte_count = fetch.extent.byte_count();
        // Where the object ends is known only under a lock on all that is behind it.
        let data = result.ok().map(|(_, data, _)| data).filter(|data| {
            data.len() as u64 == byte_count || (data.len() as u64) < byte_count && reaches_end
        });
        let candidate = self.take_window(fetch, data, (now, delay));
        if !candidate.is_some_and(|candidate| self.try_push(candidate)) {
            self.unpin(fetch.pin);
        }
    }

    /// Whoever waits for a window has it, or has to ask; returns what may be pushed of it.
    fn take_window(
        &mut self,
        fetch: &Fetch,
        data: Option<Bytes>,
        (now, delay): (Time, Duration),
    ) -> Option<Candidate> {
        let file = self.ahead.files.get_mut(&fetch.object.fid)?;
        let key = (fetch.object, fetch.extent.start);
        let window = file.windows.get_mut(&key).filter(|window| window.number == fetch.number)?;
        let Some(data) = data else {
            self.ahead.drop_window(fetch.object, fetch.extent.start);
            return None;
        };
        window.body = Body::Here(data.clone());
        if window.is_resting() {
            self.ahead.resting.insert(window.number, key);
        }
        let candidate = window.is_for_push.then_some(Candidate {
            object: fetch.object,
            extent: fetch.extent,
            number: fetch.number,
            pin: fetch.pin,
            data_changed_at: window.data_changed_at,
            bytes: data,
        });
        file.note_delay(now, delay);
        candidate
    }
}

/// File bytes that fill a window of each object that they touch.
fn window_bytes(layout: &Layout) -> u64 {
    let of_component = |component: &Component| match u64::from(component.stripe_size_bytes) {
        WINDOW_BYTES.. => WINDOW_BYTES,
        _ => WINDOW_BYTES * component.osts.len() as u64,
    };
    layout.components.iter().map(of_component).max().unwrap_or(WINDOW_BYTES)
}

fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut bytes = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.freeze()
}

/// The extents of a file in each of its objects.
pub(crate) fn by_object(file: &File, extent: Extent) -> Vec<(u32, Extent)> {
    let mut extents: Vec<(u32, Extent)> = Vec::new();
    for Piece { stripe, object_extent, .. } in file.layout.pieces(extent) {
        match extents.iter_mut().find(|(known, own)| *known == stripe && own.end == object_extent.start) {
            Some((_, own)) => own.end = object_extent.end,
            None => extents.push((stripe, object_extent)),
        }
    }
    extents
}

fn send_all(ctx: &Ctx, fetches: Vec<Fetch>, is_awaited: bool) {
    for fetch in fetches {
        let is_small = fetch.extent.byte_count() < limits::BULK_BYTES_MIN;
        let kind = if is_awaited || is_small { Kind::Plain } else { Kind::Ahead };
        let request =
            OstRequest::Read { object: fetch.object, extent: fetch.extent, lock: Some(fetch.pin.lock) };
        // Handed in now, in this order.
        let ctx2 = ctx.clone();
        ctx.spawn(async move {
            let result = ctx2.ost(fetch.pin.target, request, Bytes::new(), kind).await;
            ctx2.with(|state| state.end_fetch(&fetch, result));
        });
    }
}

/// Asks for the windows that a read needs, under its locks.
pub(crate) fn begin_now(ctx: &Ctx, file: &File, now: Extent, pins: &BTreeMap<u32, Pin>) {
    for (stripe, extent) in by_object(file, now) {
        let Some(pin) = pins.get(&stripe) else { continue };
        let object = file.layout.object(stripe);
        let kept = |other: ObjectId, own: Extent| other == object && own.overlaps(extent);
        let fetches = ctx.with(|state| {
            let end = state.expected_end(file, stripe);
            state.fetch_missing((object, end), extent, *pin, &kept, false)
        });
        send_all(ctx, fetches, true);
    }
}

/// The same for what will be read, where locks are held already.
pub(crate) fn begin_ahead(ctx: &Ctx, file: &File, now: Extent, ahead: &[Extent], is_for_push: bool) {
    let wanted: Vec<(ObjectId, Extent)> = std::iter::once(&now)
        .chain(ahead)
        .flat_map(|extent| by_object(file, *extent))
        .map(|(stripe, extent)| (file.layout.object(stripe), extent))
        .collect();
    let kept = |object: ObjectId, own: Extent| {
        wanted.iter().any(|(other, extent)| *other == object && own.overlaps(*extent))
    };
    for (stripe, extent) in ahead.iter().flat_map(|extent| by_object(file, *extent)) {
        let Ok(target) = file.target(stripe) else { continue };
        let object = file.layout.object(stripe);
        let fetches = ctx.with(|state| {
            let Some(pin) = state.pin_held(target, object, extent) else {
                state.ahead.stats.no_lock_count += 1;
                return Vec::new();
            };
            let end = state.expected_end(file, stripe);
            let fetches = state.fetch_missing((object, end), extent, pin, &kept, is_for_push);
            state.unpin(pin);
            fetches
        });
        send_all(ctx, fetches, false);
    }
}

impl State {
    /// Pins a lock that covers the beginning of an extent at least.
    fn pin_held(&mut self, target: TargetId, object: ObjectId, extent: Extent) -> Option<Pin> {
        let policy = LockPolicy::Extent(Extent::at(extent.start, 1));
        let locks = &mut self.connections.get_mut(&target)?.locks;
        let lock = locks.find_and_pin(Resource::Object(object), LockMode::Pr, policy)?;
        Some(Pin { target, lock })
    }
}

/// Bytes of a piece of a file from its windows; fewer at the end of the object. Nothing when they do not have it.
pub(crate) async fn read_windowed(ctx: &Ctx, file: &File, piece: &Piece, pin: Pin) -> Option<Bytes> {
    loop {
        match ctx.with(|state| state.find_windowed(file, piece, pin)) {
            Found::Bytes(bytes) => return Some(bytes),
            Found::Wait(receiver) => {
                receiver.await;
            }
            Found::Nothing => {
                ctx.with(|state| state.ahead.note_missed(piece.object_extent));
                return None;
            }
        }
    }
}

/// What a refused read is answered.
pub(crate) const REFUSAL: Status = Status::WouldBlock;

#[cfg(test)]
mod tests;
