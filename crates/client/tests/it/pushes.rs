//! Windows that the kernel is given unasked: what comes first, and who waits for whom.

use crate::kernel::{Kernel, Work};
use crate::read_ahead::{EAGAIN, MIB, Shared, WINDOW};
use crate::world::{O_RDONLY, O_RDWR, TOP, World, write_call};
use base::{Duration, Extent, Rng};
use client::{
    Answer, Call, Input, Notify, NotifyId, NotifyResult, ReadAheadBound, ReadAheadBounds, SetattrCall,
    Setting,
};
use wire::mdt::{FileLock, FlockKind};

const PAGE: u64 = 4096;
const O_DIRECT: u32 = 0o40000;
/// READs after which a stream is known, and what is ahead has come.
const LEAD_COUNT: u64 = 18;

/// Pushes of mount 0 that the kernel has not done.
fn pushes(shared: &Shared) -> Vec<(NotifyId, u64, bytes::Bytes)> {
    let stuck = shared.world.mounts[0].stuck.iter();
    stuck
        .filter_map(|(id, notify)| match notify {
            Notify::Store { offset_bytes, data, .. } => Some((*id, *offset_bytes, data.clone())),
            _ => None,
        })
        .collect()
}

fn is_push(notify: &Notify) -> bool {
    matches!(notify, Notify::Store { .. })
}

fn extent_of(notify: &Notify) -> Option<Extent> {
    match notify {
        Notify::Store { offset_bytes, data, .. } => Some(Extent::at(*offset_bytes, data.len() as u64)),
        Notify::InvalInode { offset_bytes: start @ 0.., byte_count, .. } => {
            let byte_count = if *byte_count <= 0 { u64::MAX } else { *byte_count as u64 };
            Some(Extent::at(*start as u64, byte_count))
        }
        _ => None,
    }
}

impl Shared {
    fn with_pushes(byte_count: u64) -> Shared {
        let mut shared = Shared::new(byte_count);
        let bounds =
            ReadAheadBounds { kernel_window_bytes: WINDOW, is_pushing: true, ..ReadAheadBounds::default() };
        shared.world.input(0, Input::Set(Setting::ReadAhead(bounds)));
        shared.reader_count = 2;
        shared.let_size_settle();
        shared
    }

    /// Nothing is pushed where the kernel may not know yet how long the file is.
    fn let_size_settle(&mut self) {
        self.world.pass(Duration::from_secs(1));
    }

    /// Its kernel has begun with pushes, and has come to the end of none.
    fn while_pushing(byte_count: u64) -> Shared {
        let mut shared = Shared::with_pushes(byte_count);
        shared.world.mounts[0].is_kernel_stuck = true;
        (0..LEAD_COUNT).for_each(|number| shared.check(number * WINDOW, WINDOW));
        assert!(!pushes(&shared).is_empty(), "a stream is pushed");
        shared
    }

    fn read_call(&self, offset_bytes: u64, byte_count: u64) -> Call {
        let (node, fh) = self.files[0];
        Call::Read { node, fh, offset_bytes, byte_count: byte_count as u32, is_direct: false }
    }

    /// The kernel comes to the end of what `which` says, in the order in which it was told.
    fn tell(&mut self, result: NotifyResult, which: impl Fn(&Notify) -> bool) {
        let (told, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.world.mounts[0].stuck)
            .into_iter()
            .partition(|(_, notify)| which(notify));
        self.world.mounts[0].stuck = rest;
        for (id, _) in told {
            self.world.input(0, Input::Notified(id, result));
        }
        self.world.run();
    }

    /// Nothing waits for the kernel any more, in several rounds.
    fn tell_all(&mut self) {
        while !self.world.mounts[0].stuck.is_empty() {
            self.tell(NotifyResult::Ok, |_| true);
        }
    }

    /// Begins a call, lets everybody do what they can, and says whether it was answered.
    fn is_answered_now(&mut self, mount: usize, call: Call) -> (u64, bool) {
        let id = self.world.prepare(mount, call);
        self.world.run();
        (id, self.world.is_answered(mount, id))
    }

    /// Waits in vain for a call, for longer than anything takes that is not stuck.
    fn assert_waits(&mut self, mount: usize, id: u64) {
        (0..3).for_each(|_| self.world.pass_a_little());
        assert!(!self.world.is_answered(mount, id), "it waits for the kernel");
    }
}

/// Pages of a file that a kernel has: what it was given, and what it has asked for.
struct PageCache {
    has: Vec<bool>,
    heard_count: usize,
    asked_count: u64,
}

impl PageCache {
    fn new(byte_count: u64) -> PageCache {
        PageCache { has: vec![false; (byte_count / PAGE) as usize], heard_count: 0, asked_count: 0 }
    }

    fn drop(&mut self, extent: Extent) {
        self.has[(extent.start / PAGE) as usize..(extent.end / PAGE) as usize].fill(false);
    }

    /// Goes over an extent, and asks as the kernel does: for as much as it does not have, and for one page where that is refused.
    fn walk(&mut self, shared: &mut Shared, extent: Extent) {
        for page in (extent.start / PAGE) as usize..(extent.end / PAGE) as usize {
            for notify in &shared.world.mounts[0].notified[self.heard_count..] {
                let Notify::Store { offset_bytes, data, .. } = notify else { continue };
                self.has[(offset_bytes / PAGE) as usize..][..data.len() / PAGE as usize].fill(true);
            }
            self.heard_count = shared.world.mounts[0].notified.len();
            if self.has[page] {
                continue;
            }
            let window = self.has[page..].iter().take((WINDOW / PAGE) as usize);
            let mut count = window.take_while(|has| !**has).count();
            let (offset, byte_count) = (page as u64 * PAGE, count as u64 * PAGE);
            if !shared.try_check(offset, byte_count) {
                self.asked_count += 1;
                count = 1;
                shared.check(offset, PAGE);
            }
            self.has[page..page + count].fill(true);
            self.asked_count += 1;
        }
    }

    /// The same; returns how often it asked.
    fn count_walk(&mut self, shared: &mut Shared, extent: Extent) -> u64 {
        let before = self.asked_count;
        self.walk(shared, extent);
        self.asked_count - before
    }
}

#[test]
fn what_a_stream_reads_is_in_the_kernel_before_it_asks() {
    let mut shared = Shared::with_pushes(16 * MIB);
    let mut cache = PageCache::new(16 * MIB);
    cache.walk(&mut shared, Extent::new(0, 16 * MIB));
    assert_eq!(shared.reads(), 16, "all of it was fetched once");
    // What was fetched before the stream was known to be one, and the end of each second window, of 256 READs.
    assert!(cache.asked_count <= 4 * 16 + 8, "{}", cache.asked_count);
    assert_eq!(shared.stats().discarded_page_count, 0);
    assert!(shared.stats().pushed_page_count > 16 * MIB / PAGE * 3 / 4);
}

#[test]
fn a_stream_goes_on_when_somebody_behind_it_lacks_a_page() {
    let mut shared = Shared::with_pushes(32 * MIB);
    let mut cache = PageCache::new(32 * MIB);
    cache.walk(&mut shared, Extent::new(0, 16 * MIB));
    let lacking = Extent::at(9 * MIB + 5 * PAGE, PAGE);
    cache.drop(lacking);
    let (reads, pushed) = (shared.reads(), shared.stats().pushed_page_count);
    assert_eq!(cache.count_walk(&mut shared, lacking), 1);
    assert_eq!(shared.reads(), reads + 1, "for one page");
    let asked_count = cache.count_walk(&mut shared, Extent::new(16 * MIB, 32 * MIB));
    // The end of each second window tells how far the stream is.
    assert_eq!(asked_count, 8);
    assert_eq!(shared.reads(), 32 + 1, "nothing was fetched twice, or in other pieces");
    assert!(shared.stats().pushed_page_count >= pushed + 7 * MIB / PAGE, "what was ahead already is there");
}

#[test]
fn a_stream_goes_on_when_somebody_behind_it_lacks_very_much() {
    let mut shared = Shared::with_pushes(48 * MIB);
    let mut cache = PageCache::new(48 * MIB);
    cache.walk(&mut shared, Extent::new(0, 24 * MIB));
    let lacking = Extent::new(4 * MIB, 12 * MIB);
    cache.drop(lacking);
    let asked_count = cache.count_walk(&mut shared, lacking);
    // Of 128, while nothing is pushed: those until it is known to be a stream, and signs.
    assert!(asked_count <= 3 * 16 + 4, "{asked_count}");
    let asked_count = cache.count_walk(&mut shared, Extent::new(24 * MIB, 48 * MIB));
    assert_eq!(asked_count, 12);
}

/// What the kernel has dropped is fetched before it is asked for, as if nobody had been there.
#[test]
fn a_stream_over_what_the_kernel_has_dropped_is_pushed_again() {
    for start in [0, 5 * MIB + 7 * PAGE] {
        let mut shared = Shared::with_pushes(32 * MIB);
        let mut cache = PageCache::new(32 * MIB);
        cache.walk(&mut shared, Extent::new(0, 32 * MIB));
        cache.drop(Extent::new(0, 32 * MIB));
        let pushed = shared.stats().pushed_page_count;
        let asked_count = cache.count_walk(&mut shared, Extent::new(start, 32 * MIB));
        // Of some 500, while nothing is pushed.
        assert!(asked_count <= 4 * 16 + 16, "{start}: {asked_count}");
        let pushed = shared.stats().pushed_page_count - pushed;
        assert!(pushed > (32 * MIB - start) / PAGE * 3 / 4, "{start}: {pushed}");
    }
}

#[test]
fn what_is_pushed_is_what_was_written_and_ends_before_the_file_does() {
    let mut shared = Shared::while_pushing(5 * MIB + 5 * PAGE + 7);
    let mut ends = vec![];
    for step in 0..200 {
        for (_, offset, data) in pushes(&shared) {
            assert!(offset.is_multiple_of(PAGE) && (data.len() as u64).is_multiple_of(PAGE));
            shared.assert_bytes(offset, &data);
            ends.push(offset + data.len() as u64);
        }
        shared.tell(NotifyResult::Ok, |_| true);
        let offset = (LEAD_COUNT + step) * WINDOW % (5 * MIB);
        shared.check(offset, WINDOW);
    }
    assert!(ends.iter().all(|end| *end <= 5 * MIB + 5 * PAGE), "{ends:?}");
    assert!(ends.contains(&(5 * MIB)) || ends.contains(&(5 * MIB + 5 * PAGE)), "{ends:?}");
}

#[test]
fn nothing_is_pushed_where_that_is_switched_off() {
    let mut shared = Shared::with_pushes(16 * MIB);
    let bounds =
        ReadAheadBounds { kernel_window_bytes: WINDOW, is_pushing: false, ..ReadAheadBounds::default() };
    shared.world.input(0, Input::Set(Setting::ReadAhead(bounds)));
    (0..64).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(!shared.world.mounts[0].notified.iter().any(is_push));
}

#[test]
fn nothing_is_pushed_while_the_kernel_may_not_know_how_long_the_file_is() {
    let mut shared = Shared::with_pushes(16 * MIB);
    shared.write(1, 16 * MIB, MIB, 0x55);
    // Its size is told when the data are durable.
    shared.world.pass(Duration::from_secs(7));
    assert_eq!(shared.world.attr(0, shared.files[0].0).size_bytes, 17 * MIB);
    (0..64).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(!shared.world.mounts[0].notified.iter().any(is_push), "just now it was shorter");
    shared.let_size_settle();
    (64..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(shared.world.mounts[0].notified.iter().any(is_push), "a second later");
}

#[test]
fn nothing_is_pushed_behind_the_end_that_the_kernel_was_told() {
    for is_told in [false, true] {
        let mut shared = Shared::with_pushes(16 * MIB);
        let node = shared.files[0].0;
        shared.write(1, 16 * MIB, 4 * MIB, 0x55);
        shared.world.pass(Duration::from_secs(7));
        // It learns of that here, and tells nobody.
        let (fh, _) = shared.world.open(0, node, O_RDONLY);
        shared.world.release(0, (node, fh));
        if is_told {
            assert_eq!(shared.world.attr(0, node).size_bytes, 20 * MIB);
        }
        shared.world.pass(Duration::from_secs(2));
        (0..320).for_each(|number| shared.check(number * WINDOW, WINDOW));
        let pushed = shared.world.mounts[0].notified.iter().filter(|notify| is_push(notify));
        let end = pushed.filter_map(extent_of).map(|pages| pages.end).max().expect("a stream is pushed");
        assert_eq!(end > 16 * MIB, is_told, "{end}");
    }
}

#[test]
fn a_size_that_a_notification_overtakes_is_not_pushed_by() {
    let mut shared = Shared::with_pushes(16 * MIB);
    let node = shared.files[0].0;
    shared.world.mounts[0].is_kernel_stuck = true;
    let (fh, _) = shared.world.open(1, node, O_RDWR | O_DIRECT);
    let (writing, _) = shared.is_answered_now(1, write_call((node, fh), 16 * MIB, &[0x33; MIB as usize]));
    for _ in 0..10 {
        shared
            .tell(NotifyResult::Ok, |notify| matches!(notify, Notify::InvalInode { offset_bytes: 0.., .. }));
    }
    assert!(shared.world.finish(1, writing).is_ok());
    let (releasing, _) = shared.is_answered_now(1, Call::Release { node, fh, flock_owner: None });
    assert!(shared.world.finish(1, releasing).is_ok());
    shared.world.pass(Duration::from_secs(7));
    assert!(
        shared.world.mounts[0].stuck.iter().any(|(_, notify)| matches!(notify, Notify::InvalInode { .. })),
        "one about attributes is on its way"
    );
    assert_eq!(shared.world.attr(0, node).size_bytes, 17 * MIB);
    shared.world.pass(Duration::from_secs(2));
    shared.tell_all();
    shared.world.mounts[0].is_kernel_stuck = false;
    (0..256).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(!shared.world.mounts[0].notified.iter().any(is_push), "it may have taken the former for its end");
}

#[test]
fn nothing_is_pushed_of_a_file_that_takes_too_much_of_the_memory() {
    for (pushed_file_byte_count, is_pushed) in [(16 * MIB - 1, false), (16 * MIB, true)] {
        let mut shared = Shared::with_pushes(16 * MIB);
        let bound = ReadAheadBound::PushedFileBytes(pushed_file_byte_count);
        shared.world.input(0, Input::Set(Setting::ReadAheadBound(bound)));
        (0..256).for_each(|number| shared.check(number * WINDOW, WINDOW));
        assert_eq!(shared.world.mounts[0].notified.iter().any(is_push), is_pushed);
    }
}

/// The kernel makes a new version of the inode then, by which it believes no size that was asked for before.
#[test]
fn a_size_is_not_pushed_by_when_another_name_of_the_file_went_while_it_was_told() {
    for is_gone in [false, true] {
        let mut shared = Shared::with_pushes(16 * MIB);
        let node = shared.files[0].0;
        let link = Call::Link { node, parent: TOP, name: b"other".to_vec() };
        assert!(shared.world.call(0, link).is_ok());
        shared.write(1, 16 * MIB, MIB, 0x55);
        shared.world.pass(Duration::from_secs(7));
        assert_eq!(shared.world.attr(0, node).size_bytes, 17 * MIB);
        if is_gone {
            let gone = Call::Unlink { parent: TOP, name: b"other".to_vec() };
            assert_eq!(shared.world.call(0, gone), Ok(Answer::Done));
        }
        shared.world.pass(Duration::from_secs(2));
        (0..256).for_each(|number| shared.check(number * WINDOW, WINDOW));
        assert_eq!(shared.world.mounts[0].notified.iter().any(is_push), !is_gone, "gone: {is_gone}");
    }
}

/// It may keep READs back then, of which nobody hears, and for whose pages a push would wait.
#[test]
fn nothing_is_pushed_while_the_kernel_waits_for_very_many_answers() {
    let mut shared = Shared::with_pushes(16 * MIB);
    let other = shared.world.create(1, TOP, "other");
    let node = shared.world.lookup(0, TOP, "other").expect("it was made").node;
    let (fh, _) = shared.world.open(0, node, O_RDONLY);
    let locking = |(node, fh), owner, kind| {
        let lock = FileLock { owner, pid: owner as u32, is_flock: true, kind, extent: Extent::WHOLE };
        Call::Setlk { node, fh, lock, can_wait: true }
    };
    assert_eq!(shared.world.call(1, locking(other, 1, FlockKind::Write)), Ok(Answer::Done));
    let waiting: Vec<u64> =
        (0..128).map(|owner| shared.world.prepare(0, locking((node, fh), owner, FlockKind::Read))).collect();
    (0..64).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(!shared.world.mounts[0].notified.iter().any(is_push), "with 128 on their way");
    assert_eq!(shared.world.call(1, locking(other, 1, FlockKind::Unlock)), Ok(Answer::Done));
    for id in waiting {
        assert_eq!(shared.world.finish(0, id), Ok(Answer::Done));
    }
    (64..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(shared.world.mounts[0].notified.iter().any(is_push), "with few");
}

#[test]
fn what_one_thread_reads_alone_is_not_pushed() {
    let mut shared = Shared::with_pushes(16 * MIB);
    shared.reader_count = 1;
    (0..64).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(!shared.world.mounts[0].notified.iter().any(is_push), "by one");
    shared.reader_count = 2;
    (64..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(shared.world.mounts[0].notified.iter().any(is_push), "by two");
}

#[test]
fn an_open_for_writing_waits_for_pushes_and_none_begins_while_it_is_open() {
    let mut shared = Shared::while_pushing(16 * MIB);
    let node = shared.files[0].0;
    let (reading, is_open) = shared.is_answered_now(0, Call::Open { node, flags: O_RDONLY });
    assert!(is_open, "readers do not wait");
    let Ok(Answer::Opened { fh: reader, .. }) = shared.world.finish(0, reading) else { panic!("opened") };
    shared.world.release(0, (node, reader));
    let mut next = LEAD_COUNT;
    for flags in [O_RDWR, O_RDWR | O_DIRECT] {
        let (opening, is_open) = shared.is_answered_now(0, Call::Open { node, flags });
        assert!(!is_open);
        shared.assert_waits(0, opening);
        shared.tell(NotifyResult::Ok, is_push);
        shared.tell_all();
        let Ok(Answer::Opened { fh, .. }) = shared.world.finish(0, opening) else { panic!("opened") };
        for _ in 0..16 {
            shared.check(next * WINDOW, WINDOW);
            next += 1;
        }
        assert!(pushes(&shared).is_empty(), "somebody may write");
        shared.world.mounts[0].is_kernel_stuck = false;
        shared.world.release(0, (node, fh));
        shared.world.pass(Duration::from_secs(7));
        shared.world.attr(0, node);
        shared.let_size_settle();
        shared.world.mounts[0].is_kernel_stuck = true;
        for _ in 0..32 {
            shared.check(next * WINDOW, WINDOW);
            next += 1;
        }
        assert!(!pushes(&shared).is_empty(), "nobody may any more");
    }
}

#[test]
fn a_truncate_waits_for_pushes() {
    let mut shared = Shared::while_pushing(16 * MIB);
    let node = shared.files[0].0;
    let set = SetattrCall { size_bytes: Some(MIB + PAGE), ..SetattrCall::default() };
    let (cutting, is_cut) = shared.is_answered_now(0, Call::Setattr { node, set });
    assert!(!is_cut);
    // Where others read on nothing new is pushed.
    let before = pushes(&shared).len();
    (LEAD_COUNT..2 * LEAD_COUNT).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert_eq!(pushes(&shared).len(), before);
    shared.assert_waits(0, cutting);
    shared.tell(NotifyResult::Ok, is_push);
    shared.tell_all();
    assert!(matches!(shared.world.finish(0, cutting), Ok(Answer::Attr(_))));
    let told = shared.world.mounts[0].notified.len();
    let (reading, _) = shared.is_answered_now(0, shared.read_call(MIB, PAGE));
    shared.tell_all();
    assert!(shared.world.finish(0, reading).is_ok());
    let late = shared.world.mounts[0].notified[told..].iter().filter(|notify| is_push(notify));
    assert!(late.filter_map(extent_of).all(|pages| pages.end <= MIB + PAGE), "nothing behind the end");
}

#[test]
fn a_lock_goes_back_after_the_push_and_the_pages_go_in_between() {
    let mut shared = Shared::while_pushing(16 * MIB);
    let (_, at, data) = pushes(&shared).remove(0);
    let node = shared.files[1].0;
    let (fh, _) = shared.world.open(1, node, O_RDWR | O_DIRECT);
    let (writing, is_written) =
        shared.is_answered_now(1, write_call((node, fh), at + PAGE, &[0x33; 3 * PAGE as usize]));
    assert!(!is_written);
    shared.assert_waits(1, writing);
    let pushed = Extent::at(at, data.len() as u64);
    let drops_pushed = |notify: &Notify| {
        !is_push(notify) && extent_of(notify).is_some_and(|dropped| dropped.overlaps(pushed))
    };
    let is_dropping =
        |shared: &Shared| shared.world.mounts[0].stuck.iter().any(|(_, notify)| drops_pushed(notify));
    assert!(!is_dropping(&shared), "what is being pushed is not dropped before that");

    // The kernel has locked pages for READs, and the push comes to them.
    let (reading, is_read) = shared.is_answered_now(0, shared.read_call(at + PAGE, PAGE));
    assert!(is_read, "it may be what the push waits for");
    assert_eq!(
        shared.world.finish(0, reading),
        Ok(Answer::Bytes(data.slice(PAGE as usize..2 * PAGE as usize)))
    );
    let last = pushes(&shared).iter().map(|(_, at, data)| at + data.len() as u64).max().expect("some");
    let beyond = shared.read_call(last - PAGE, 8 * PAGE);
    let (reading, is_read) = shared.is_answered_now(0, beyond);
    assert!(is_read);
    assert_eq!(shared.world.finish(0, reading), Err(EAGAIN));

    let pushed_count = shared.world.mounts[0].notified.iter().filter(|notify| is_push(notify)).count();
    shared.tell(NotifyResult::Ok, is_push);
    assert!(is_dropping(&shared), "now it is");
    shared.assert_waits(1, writing);
    shared.tell_all();
    assert_eq!(shared.world.finish(1, writing), Ok(Answer::Written(3 * PAGE)));
    let now = shared.world.mounts[0].notified.iter().filter(|notify| is_push(notify)).count();
    assert_eq!(now, pushed_count, "none began under a lock on its way back");
}

#[test]
fn a_read_over_two_windows_that_are_being_pushed_is_answered_with_both() {
    let mut shared = Shared::while_pushing(16 * MIB);
    (LEAD_COUNT..24).for_each(|number| shared.check(number * WINDOW, WINDOW));
    let both = pushes(&shared).len();
    assert!(both >= 2, "{both}");
    // The end of one, which is left out, and the beginning of the next.
    let sign = pushes(&shared)
        .iter()
        .find(|(_, at, data)| !(at + data.len() as u64).is_multiple_of(MIB))
        .map(|push| push.1);
    let offset = sign.expect("one ends early") + MIB - 2 * PAGE;
    let reading = shared.world.prepare(0, shared.read_call(offset, 4 * PAGE));
    assert!(shared.world.is_answered(0, reading), "before anybody is asked");
    let Ok(Answer::Bytes(bytes)) = shared.world.finish(0, reading) else { panic!("read") };
    assert_eq!(bytes.len() as u64, 4 * PAGE);
    shared.assert_bytes(offset, &bytes);
}

#[test]
fn pages_that_are_dropped_during_a_push_are_dropped_after_it_again() {
    let mut shared = Shared::while_pushing(16 * MIB);
    let (_, at, data) = pushes(&shared).remove(0);
    let pushed = Extent::at(at, data.len() as u64);
    shared.world.evict_from_ost(0, 0);
    (0..100).for_each(|_| shared.world.pass_a_little());
    let drops = |shared: &Shared| {
        let stuck = shared.world.mounts[0].stuck.iter().filter(|(_, notify)| !is_push(notify));
        stuck.filter(|(_, notify)| extent_of(notify).is_some_and(|it| it.overlaps(pushed))).count()
    };
    let before = drops(&shared);
    assert!(before > 0, "the eviction has them dropped");
    shared.tell(NotifyResult::Ok, is_push);
    assert!(drops(&shared) > before, "the push may have put some there since");
    shared.world.mounts[0].is_kernel_stuck = false;
    shared.tell_all();
    shared.write(1, MIB + 5 * WINDOW, 3 * MIB, 0x55);
    (0..128).for_each(|number| shared.check(number * WINDOW, WINDOW));
}

#[test]
fn an_open_waits_for_pushes_that_an_eviction_overtook() {
    let mut shared = Shared::while_pushing(16 * MIB);
    let node = shared.files[0].0;
    shared.world.evict_from_ost(0, 0);
    (0..100).for_each(|_| shared.world.pass_a_little());
    // What the kernel had is gone.
    shared.tell(NotifyResult::Ok, |notify| !is_push(notify));
    let (opening, is_open) = shared.is_answered_now(0, Call::Open { node, flags: O_RDONLY });
    assert!(!is_open, "a push may put there what was true before");
    shared.tell(NotifyResult::Ok, is_push);
    let Ok(Answer::Opened { fh, mode, .. }) = shared.world.finish(0, opening) else { panic!("opened") };
    assert!(!mode.keeps_cache, "the kernel drops it before it goes on");
    shared.world.release(0, (node, fh));
    shared.world.mounts[0].is_kernel_stuck = false;
    shared.tell_all();
}

/// Its pages are on no record: the inode that it went to has been forgotten, and is known anew.
#[test]
fn pages_of_a_push_to_an_inode_that_was_forgotten_meanwhile_go_with_their_lock() {
    let mut shared = Shared::while_pushing(16 * MIB);
    let (node, fh) = shared.files[0];
    let pushed = Extent::at(pushes(&shared)[0].1, pushes(&shared)[0].2.len() as u64);
    shared.world.release(0, (node, fh));
    shared.world.pass(Duration::from_secs(2));
    shared.world.input(0, Input::Forget(vec![(node, 1)]));
    assert_eq!(shared.world.lookup(0, TOP, "file").expect("it is there").node, node);
    let told = shared.world.mounts[0].notified.len();

    let (writer, _) = shared.world.open(1, node, O_RDWR | O_DIRECT);
    let (writing, is_written) =
        shared.is_answered_now(1, write_call((node, writer), pushed.start, &[0x33; PAGE as usize]));
    assert!(!is_written);
    shared.tell(NotifyResult::Ok, is_push);
    let after = |shared: &Shared| shared.world.mounts[0].notified[told..].to_vec();
    let drops = |notify: &Notify| !is_push(notify) && extent_of(notify).is_some_and(|it| it.contains(pushed));
    shared.assert_waits(1, writing);
    assert!(after(&shared).iter().any(drops), "{:?}", after(&shared));
    shared.tell_all();
    assert_eq!(shared.world.finish(1, writing), Ok(Answer::Written(PAGE)));
}

/// No thread has begun with them when their lock is lost, or somebody waits for them: then none does.
#[test]
fn pushes_that_nobody_has_begun_are_called_off() {
    let wait = |shared: &mut Shared| shared.world.mounts[0].are_stores_waiting = true;
    let mut shared = Shared::while_pushing(16 * MIB);
    wait(&mut shared);
    shared.world.evict_from_ost(0, 0);
    (0..100).for_each(|_| shared.world.pass_a_little());
    assert_eq!(pushes(&shared), [], "what others may have changed by now");

    let mut shared = Shared::while_pushing(16 * MIB);
    wait(&mut shared);
    let node = shared.files[0].0;
    let (opening, is_open) = shared.is_answered_now(0, Call::Open { node, flags: O_RDWR | O_DIRECT });
    assert!(is_open, "it has nobody to wait for");
    assert!(shared.world.finish(0, opening).is_ok());
    assert_eq!(pushes(&shared), []);
}

#[test]
fn nothing_is_pushed_when_the_lease_may_end_before_it_is_there() {
    let shared = Shared::while_pushing(16 * MIB);
    for (_, notify) in shared.world.mounts[0].stuck.iter().filter(|(_, notify)| is_push(notify)) {
        let Notify::Store { until, .. } = notify else { continue };
        let life = until.since(shared.world.now.time);
        assert!(life > Duration::ZERO && life < Duration::from_secs(24), "{life:?}");
    }
}

#[test]
fn pushes_that_stand_hold_up_no_others_and_nobody_waits_for_those_that_have_not_begun() {
    let mut shared = Shared::with_pushes(64 * MIB);
    shared.world.mounts[0].is_kernel_stuck = true;
    let count = |shared: &Shared| pushes(shared).len();
    (0..160).for_each(|number| shared.check(number * WINDOW, WINDOW));
    let few = count(&shared);
    assert!((1..8).contains(&few), "not all at a time: {few}");
    shared.world.pass(Duration::from_millis(100));
    (160..192).for_each(|number| shared.check(number * WINDOW, WINDOW));
    assert!(count(&shared) > few, "those stand");
    let before = shared.world.mounts[0].notified.iter().filter(|notify| is_push(notify)).count();

    let node = shared.files[0].0;
    let (opening, is_open) = shared.is_answered_now(0, Call::Open { node, flags: O_RDWR | O_DIRECT });
    assert!(!is_open);
    shared.tell(NotifyResult::Ok, is_push);
    let (_, is_open) = (opening, shared.world.is_answered(0, opening));
    assert!(is_open, "with the end of those that the kernel was told of");
    let now = shared.world.mounts[0].notified.iter().filter(|notify| is_push(notify)).count();
    assert_eq!(now, before, "and it was told of no others");
}

#[test]
fn a_kernel_that_does_not_take_pages_asks_for_them() {
    for result in [NotifyResult::NoEntry, NotifyResult::Failed] {
        let mut shared = Shared::while_pushing(16 * MIB);
        shared.tell(result, |_| true);
        for number in LEAD_COUNT..16 * MIB / WINDOW {
            shared.check(number * WINDOW, WINDOW);
            shared.tell(result, |_| true);
        }
        assert_eq!((shared.reads(), shared.stats().pushed_page_count), (16, 0));
    }
}

#[test]
fn a_file_that_is_closed_during_a_push_is_forgotten_all_the_same() {
    let mut shared = Shared::while_pushing(16 * MIB);
    let file = shared.files[0];
    let (_, is_released) =
        shared.is_answered_now(0, Call::Release { node: file.0, fh: file.1, flock_owner: None });
    assert!(is_released, "a close does not wait");
    shared.world.input(0, Input::Forget(vec![(file.0, 1)]));
    shared.tell_all();
    shared.world.pass(Duration::from_secs(1));
}

/// What is done to a file while streams read it, one thing at a time.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    /// By the other mount, or past the cache of this one, through this handle.
    Write {
        mount: usize,
        fh: u64,
        id: u64,
        start: u64,
        end: u64,
    },
    Open(u64),
    Release(u64),
}

/// A kernel with streams in its page cache, and somebody who changes what they read.
struct Streams {
    world: World,
    kernel: Kernel,
    rng: Rng,
    files: [(u64, u64); 2],
    change: Change,
    /// What each byte is at least.
    acknowledged: Vec<u8>,
    stamp: u8,
    floors: Vec<Vec<u8>>,
    changes_left: u32,
    reads_left: u32,
    seed: u64,
}

const FILE: u64 = 8 * MIB;

impl Streams {
    fn new(seed: u64) -> Streams {
        let mut shared = Shared::with_pushes(FILE);
        let node = shared.files[1].0;
        shared.files[1].1 = shared.world.open(1, node, O_RDWR | O_DIRECT).0;
        for start in (0..FILE).step_by(MIB as usize) {
            assert_eq!(shared.world.write(1, shared.files[1], start, &[0; MIB as usize]), Ok(MIB));
        }
        let mut kernel = Kernel::new(0, shared.files[0].0, shared.files[0].1, 0, false);
        kernel.threads = vec![Work::Idle, Work::Idle, Work::Idle];
        let mut world = shared.world;
        world.mounts[0].is_kernel_stuck = true;
        world.mounts[0].are_stores_waiting = true;
        world.is_checking = false;
        Streams {
            world,
            kernel,
            rng: Rng::new(seed),
            files: shared.files,
            change: Change::Nothing,
            acknowledged: vec![0; FILE as usize],
            stamp: 0,
            floors: vec![vec![]; 3],
            changes_left: 60,
            reads_left: 30,
            seed,
        }
    }

    /// Looks at what a thread has read, and lets it read on elsewhere; true when there was something to do.
    fn next(&mut self, thread: usize) -> bool {
        if let Work::Read { start, end, found } = &self.kernel.threads[thread] {
            if start + (found.len() as u64) < *end {
                return false;
            }
            for (index, (byte, floor)) in found.iter().zip(&self.floors[thread]).enumerate() {
                let at = start + index as u64;
                assert!(byte >= floor, "seed {}: {byte} at {at}, where {floor} was acknowledged", self.seed);
            }
        }
        self.kernel.threads[thread] = Work::Idle;
        if self.reads_left == 0 {
            return false;
        }
        self.reads_left -= 1;
        let start = if self.rng.one_in(2) { 0 } else { self.rng.below(FILE / MIB) * MIB };
        let end = FILE.min(start + (1 + self.rng.below(5)) * MIB);
        self.floors[thread] = self.acknowledged[start as usize..end as usize].to_vec();
        self.kernel.threads[thread] = Work::Read { start, end, found: vec![] };
        true
    }

    /// The kernel asks for its size, and has a while before and after that.
    fn settle_size(&mut self) {
        self.world.pass(Duration::from_secs(1));
        self.world.attr(0, self.files[0].0);
        self.world.pass(Duration::from_secs(1));
    }

    fn write(&mut self, mount: usize, fh: u64) {
        let start = self.rng.below(FILE / PAGE) * PAGE;
        let end = FILE.min(start + (1 + self.rng.below(100)) * PAGE);
        self.stamp += 1;
        let data = vec![self.stamp; (end - start) as usize];
        let id = self.world.prepare(mount, write_call((self.files[mount].0, fh), start, &data));
        self.change = Change::Write { mount, fh, id, start, end };
    }

    /// Goes on with the change; true when it could.
    fn go_on(&mut self) -> bool {
        let (mount, id) = match self.change {
            Change::Nothing if self.changes_left == 0 => return false,
            Change::Nothing => {
                self.changes_left -= 1;
                if self.rng.one_in(3) {
                    self.settle_size();
                }
                if self.rng.one_in(2) {
                    self.write(1, self.files[1].1);
                } else {
                    let call = Call::Open { node: self.files[0].0, flags: O_RDWR | O_DIRECT };
                    self.change = Change::Open(self.world.prepare(0, call));
                }
                return true;
            }
            Change::Write { mount, id, .. } => (mount, id),
            Change::Open(id) | Change::Release(id) => (0, id),
        };
        let Some(result) = self.world.mounts[mount].replies.remove(&id) else { return false };
        match (self.change, result) {
            (Change::Open(_), Ok(Answer::Opened { fh, .. })) => {
                assert!(self.kernel.stores.is_empty(), "it has waited for what was being pushed");
                self.write(0, fh);
            }
            (Change::Write { mount, fh, start, end, .. }, Ok(Answer::Written(count))) => {
                assert_eq!(count, end - start);
                self.acknowledged[start as usize..end as usize].fill(self.stamp);
                let call = Call::Release { node: self.files[0].0, fh, flock_owner: None };
                self.change = match mount {
                    0 => Change::Release(self.world.prepare(0, call)),
                    _ => Change::Nothing,
                };
            }
            (Change::Release(_), Ok(Answer::Done)) => self.change = Change::Nothing,
            (_, other) => panic!("seed {}: {other:?}", self.seed),
        }
        true
    }

    fn step(&mut self) -> bool {
        let first = self.rng.below(14);
        (0..14).any(|turn| match (first + turn) % 14 {
            0 => self.kernel.hear(&mut self.world, &mut self.rng),
            1 | 2 => self.kernel.drop_some(&mut self.world, &mut self.rng),
            3 | 4 => self.kernel.store_some(&mut self.world, &mut self.rng),
            5 => self.go_on(),
            thread @ 6..=8 => {
                let thread = thread as usize - 6;
                self.kernel.work(&mut self.world, &mut self.rng, thread) || self.next(thread)
            }
            _ => self.world.carry_one(&mut self.rng),
        })
    }

    fn run(mut self) -> u64 {
        let mut stall_count = 0;
        loop {
            if self.rng.one_in(500) {
                self.kernel.reclaim(&mut self.rng);
            }
            if self.step() {
                stall_count = 0;
            } else if stall_count > 200 {
                panic!("seed {}: everybody waits: {:?}", self.seed, self.kernel.threads);
            } else if self.reads_left == 0
                && self.kernel.threads.iter().all(|work| matches!(work, Work::Idle))
            {
                return self.kernel.stored_count;
            } else {
                stall_count += 1;
                self.world.pass_a_little();
            }
            let may_write = matches!(self.change, Change::Write { mount: 0, .. });
            assert!(!may_write || self.kernel.stores.is_empty(), "seed {}: over what is written", self.seed);
        }
    }
}

#[test]
fn streams_read_nothing_old_and_nobody_waits_for_ever() {
    let stored_count: u64 = (0..6).map(|seed| Streams::new(seed).run()).sum();
    assert!(stored_count > FILE / PAGE, "much of it was pushed: {stored_count}");
}

#[test]
fn a_stride_is_not_taken_for_a_stream_because_the_kernel_has_what_is_between() {
    let mut shared = Shared::with_pushes(64 * MIB);
    for chunk in 0..64 {
        for number in 0..4 {
            let (node, fh) = shared.files[0];
            let offset_bytes = chunk * MIB + number * WINDOW;
            let call = Call::Read { node, fh, offset_bytes, byte_count: WINDOW as u32, is_direct: false };
            if shared.world.call(0, call) == Err(EAGAIN) {
                (0..16).for_each(|page| shared.check(offset_bytes + page * PAGE, PAGE));
            }
        }
    }
    assert_eq!(shared.stats().pushed_page_count, 0);
    assert!(!shared.world.mounts[0].notified.iter().any(is_push));
}
