#![allow(clippy::unwrap_used)]

use super::*;
use crate::device::faults;
use crate::small_device::SmallDevice;
use crate::waiting::wait_for;
use std::sync::Weak;
use std::sync::atomic::AtomicUsize;

const SOON: Duration = Duration::from_millis(5);

fn put(store: &MetaDisk, t: u64) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    batch.put(1, &t.to_be_bytes(), b"value");
    store.apply(Transno(t), &batch)
}

fn put_bytes(store: &MetaDisk, t: u64, byte_count: usize) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    batch.put(1, &t.to_be_bytes(), &vec![7; byte_count]);
    store.apply(Transno(t), &batch)
}

#[test]
fn a_failed_sync_fences_for_good_and_loses_nothing_durable() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    MetaDisk::create(dir.path(), &options).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let on_durable: OnDurable = Arc::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let store = MetaDisk::open(dir.path(), &options, on_durable).unwrap();
    put(&store, 1).unwrap();
    store.kick();
    wait_for("a sync", || store.durable() == Transno(1));
    faults::fail_syncs_below(dir.path());
    put(&store, 2).unwrap();
    let calls_before = calls.load(Ordering::SeqCst);
    store.kick();
    wait_for("the fence", || store.pressure().poisoned);
    wait_for("the notice", || calls.load(Ordering::SeqCst) > calls_before);
    // The device works again; what it lost in between nobody knows.
    faults::mend(dir.path());
    assert_eq!(put(&store, 3), Err(StoreError::Poisoned { operation: "sync its log", errno: libc::EIO }));
    store.kick();
    store.close();
    assert_eq!(store.durable(), Transno(1));
    assert_eq!(store.applied(), Transno(2));
    drop(store);
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    assert!(store.applied() >= Transno(1));
    assert!(!store.pressure().poisoned);
}

/// A write-back that fails leaves pages that look as if they were on the device, and no later sync has it write them.
#[test]
fn what_is_not_known_to_be_durable_of_a_log_is_written_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    let open = || MetaDisk::open_or_create(dir.path(), &options, Arc::new(|| ()));
    let store = open().unwrap();
    put(&store, 1).unwrap();
    store.kick();
    wait_for("a sync", || store.durable() == Transno(1));
    faults::fail_syncs_below(dir.path());
    put(&store, 2).unwrap();
    store.kick();
    wait_for("the fence", || store.pressure().poisoned);
    faults::mend(dir.path());
    drop(store);
    let log = dir.path().join("log");
    faults::fail_writes_below(&log);
    let refused = open().map(|store| store.durable());
    faults::mend(&log);
    assert!(matches!(refused, Err(OpenError::Log(ReplayError::WriteBack { .. }))), "{refused:?}");
    let store = open().unwrap();
    assert_eq!(store.durable(), Transno(2));
}

/// Of what it failed to keep the kernel of this machine may write something some time.
#[test]
fn who_opens_a_store_is_told_whether_its_device_failed_to_keep_something() {
    let dir = tempfile::tempdir().unwrap();
    let (index, log) = (dir.path().join("index"), dir.path().join("log"));
    let open = || MetaDisk::open_or_create(dir.path(), &Options::default(), Arc::new(|| ()));
    let leave = || {
        let store = open().unwrap();
        let next = store.applied().next();
        put(&store, next.0).unwrap();
        // As by kill -9.
        drop(store);
    };
    let fail = |fail: fn(&Path), path: &Path| {
        leave();
        fail(path);
        let refused = open().map(|store| store.recovered());
        faults::mend(path);
        refused.unwrap_err()
    };
    for path in [&index, &log] {
        let unread = fail(faults::fail_reads_below, path);
        assert!(!unread.is_unkept(), "{unread:?}");
        for unkept in [fail(faults::fail_syncs_below, path), fail(faults::fail_writes_below, path)] {
            assert!(unkept.is_unkept(), "{unkept:?}");
        }
    }
    std::fs::remove_dir_all(&log).unwrap();
    std::os::unix::fs::symlink("log", &log).unwrap();
    let refused = open().map(|store| store.recovered()).unwrap_err();
    assert!(!refused.is_unkept(), "{refused:?}");
    // A new one, whose device has no descriptors, or loses what it gets.
    for (fail, is_unkept) in
        [(faults::fail_opens_below as fn(&Path), false), (faults::fail_syncs_below, true)]
    {
        let dir = tempfile::tempdir().unwrap();
        fail(dir.path());
        let made = MetaDisk::open_or_create(dir.path(), &Options::default(), Arc::new(|| ()));
        faults::mend(dir.path());
        let refused = made.map(|store| store.recovered()).unwrap_err();
        assert_eq!(refused.is_unkept(), is_unkept, "{refused:?}");
    }
}

#[test]
fn no_error_of_want_says_that_a_device_failed_to_keep_something() {
    for errno in
        [libc::ENOSPC, libc::EDQUOT, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR, libc::EAGAIN]
    {
        let of_change = OpenError::of_change(Path::new("log"), std::io::Error::from_raw_os_error(errno));
        assert!(!of_change.is_unkept(), "{of_change:?}");
    }
    for errno in [libc::EIO, libc::EROFS, libc::ENODEV] {
        let of_change = OpenError::of_change(Path::new("log"), std::io::Error::from_raw_os_error(errno));
        assert!(of_change.is_unkept(), "{of_change:?}");
    }
}

#[test]
fn a_checkpoint_that_cannot_sync_is_tried_again_and_fences_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    MetaDisk::create(dir.path(), &options).unwrap();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    put(&store, 1).unwrap();
    store.kick();
    wait_for("a sync", || store.durable() == Transno(1));
    faults::fail_syncs_below(&dir.path().join("index"));
    assert!(matches!(store.checkpoint(), Err(StoreError::Device { errno: libc::EIO, .. })));
    assert_eq!(store.get(1, &1_u64.to_be_bytes()).unwrap().unwrap(), b"value");
    put(&store, 2).unwrap();
    faults::mend(&dir.path().join("index"));
    store.checkpoint().unwrap();
    assert_eq!(store.pressure().overlay_bytes, 0);
    for t in 1..=2_u64 {
        assert_eq!(store.get(1, &t.to_be_bytes()).unwrap().unwrap(), b"value");
    }
    store.close();
}

#[test]
fn what_gathers_behind_a_checkpoint_that_failed_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { checkpoint_bytes: Some(100), upkeep_interval: SOON, ..Options::default() };
    MetaDisk::create(dir.path(), &options).unwrap();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let index = dir.path().join("index");
    faults::fail_syncs_below(&index);
    (1..=100).for_each(|t| put(&store, t).unwrap());
    // The first generation is frozen and cannot go; more than enough for another checkpoint is behind it.
    wait_for("a frozen generation", || store.shared.overlay.read().unwrap().frozen().is_some());
    (101..=200).for_each(|t| put(&store, t).unwrap());
    faults::mend(&index);
    // Nothing is applied any more that could remind the checkpointer. Less than one checkpoint may stay.
    wait_for("the base", || store.shared.base.covered().applied >= Transno(199));
    store.close();
}

/// Some of it clients have answered for: what they may goes by the room of the device, of which there is enough.
#[test]
fn all_is_accepted_while_checkpoints_fail_for_another_reason_than_room() {
    const SEGMENT_BYTES: u64 = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (checkpoint_bytes, segment_bytes) = (Some(SEGMENT_BYTES), Some(SEGMENT_BYTES));
    let options = Options { checkpoint_bytes, segment_bytes, ..Options::default() };
    let open = || MetaDisk::open_or_create(dir.path(), &options, Arc::new(|| ())).unwrap();
    let put_many = |store: &MetaDisk, t: u64| {
        let mut batch = Batch::new();
        (0..15_u8).for_each(|n| batch.put(1, &[t as u8, n], &vec![7; 60_000]));
        store.apply(Transno(t), &batch)
    };
    let store = open();
    let index = dir.path().join("index");
    faults::fail_syncs_below(&index);
    let mut last = 0;
    while lock(&store.shared.log).uncovered_bytes() < 14 * SEGMENT_BYTES {
        last += 1;
        assert_eq!(put_many(&store, last), Ok(()));
        assert_eq!(store.pressure().reserve, Reserve::Ample);
        if last == 1 {
            assert!(matches!(store.checkpoint(), Err(StoreError::Device { errno: libc::EIO, .. })));
        }
    }
    faults::mend(&index);
    store.close();
    drop(store);
    let store = open();
    for t in 1..=last {
        assert_eq!(store.get(1, &[t as u8, 14]).unwrap().map(|value| value.len()), Some(60_000), "{t}");
    }
    store.close();
}

/// Nothing that was durable is lost: a start on a sound device has all of it.
#[test]
fn a_base_that_fails_for_long_stops_its_target_before_too_much_has_gathered() {
    const SEGMENT_BYTES: u64 = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (checkpoint_bytes, segment_bytes) = (Some(SEGMENT_BYTES), Some(SEGMENT_BYTES));
    let options = Options { checkpoint_bytes, segment_bytes, upkeep_interval: SOON, ..Options::default() };
    let open = || MetaDisk::open_or_create(dir.path(), &options, Arc::new(|| ())).unwrap();
    let store = open();
    let index = dir.path().join("index");
    faults::fail_syncs_below(&index);
    let put_many = |t: u64| {
        let mut batch = Batch::new();
        (0..15_u8).for_each(|n| batch.put(1, &[t as u8, n], &vec![7; 60_000]));
        store.apply(Transno(t), &batch)
    };
    let refused = (1..u64::from(u8::MAX)).find_map(|t| put_many(t).err().map(|error| (t, error)));
    let (refused_at, error) = refused.expect("it stops");
    assert!(matches!(error, StoreError::Poisoned { errno: libc::EIO, .. }), "{error:?}");
    let gathered_bytes = lock(&store.shared.log).uncovered_bytes();
    assert!(gathered_bytes >= 16 * SEGMENT_BYTES, "{gathered_bytes}");
    let durable = store.durable();
    assert!(durable > Transno(0) && durable < Transno(refused_at));
    faults::mend(&index);
    drop(store);
    let store = open();
    for t in 1..=durable.0 {
        assert_eq!(store.get(1, &[t as u8, 14]).unwrap().map(|value| value.len()), Some(60_000), "{t}");
    }
    store.checkpoint().unwrap();
    assert_eq!(store.pressure().overlay_bytes, 0);
    store.close();
}

/// A checkpoint begins with a new segment of the log. None is there and none can be made: whoever is told of that looks at the store.
#[test]
fn a_log_that_cannot_go_on_is_told_of_when_nothing_is_held_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    MetaDisk::create(dir.path(), &options).unwrap();
    let looking: Arc<OnceLock<Weak<MetaDisk>>> = Arc::default();
    let looked_count = Arc::new(AtomicUsize::new(0));
    let (look, count) = (Arc::clone(&looking), Arc::clone(&looked_count));
    let on_durable: OnDurable = Arc::new(move || {
        let Some(store) = look.get().and_then(Weak::upgrade) else { return };
        if store.pressure().poisoned {
            // Whatever it says by now, it says something.
            let _ = store.get(1, &1_u64.to_be_bytes());
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let store = Arc::new(MetaDisk::open(dir.path(), &options, on_durable).unwrap());
    looking.set(Arc::downgrade(&store)).unwrap();
    put(&store, 1).unwrap();
    faults::fail_allocations_below(dir.path());
    let mut log = lock(&store.shared.log);
    let rotated_count = (0..100).take_while(|_| log.rotate().is_ok()).count();
    drop(log);
    assert!(rotated_count < 100, "no more than the spares that there were");
    let failing = Arc::clone(&store);
    let checkpoint = std::thread::spawn(move || {
        (2..200).find_map(|t| {
            // A spare that was being made may still come, and the checkpoint that uses it gives segments back.
            while lock(&failing.shared.log).rotate().is_ok() {}
            put(&failing, t).and_then(|()| failing.checkpoint()).err()
        })
    });
    wait_for("somebody who was told and has looked", || looked_count.load(Ordering::SeqCst) > 0);
    let told = checkpoint.join().unwrap();
    assert_eq!(told, Some(StoreError::Poisoned { operation: "write its log", errno: libc::EIO }));
    faults::mend(dir.path());
    store.close();
}

#[test]
fn rows_that_the_base_must_still_take_count_before_the_device_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let gauge = Gauge::new(dir.path().to_path_buf());
    let avail_bytes = device::space(dir.path()).unwrap().avail_bytes;
    assert_eq!(gauge.reserve(Demand::default()), Reserve::Ample);
    let owing = |owed_bytes| gauge.reserve(Demand { owed_bytes, appended_bytes: 0 });
    assert_eq!(owing(avail_bytes / 2), Reserve::Ample);
    assert_eq!(owing(avail_bytes + (1 << 30)), Reserve::Exhausted);
    gauge.set_unused(2 * avail_bytes);
    assert_eq!(owing(avail_bytes), Reserve::Ample);
}

#[test]
fn a_checkpoint_into_a_base_that_an_error_closed_keeps_the_seed_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default();
    MetaDisk::create(dir.path(), &options).unwrap();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    put(&store, 1).unwrap();
    // Given up, as after an error: it is closed until the next call opens it.
    let mut one = std::iter::once((&b"x"[..], None));
    assert_eq!(store.shared.base.checkpoint(&mut one, Covered::default(), &|| false), Ok(false));
    store.checkpoint().unwrap();
    put(&store, 2).unwrap();
    store.close();
    drop(store);
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    assert_eq!(store.applied(), Transno(2));
    assert_eq!(store.get(1, &2_u64.to_be_bytes()).unwrap().unwrap(), b"value");
    store.close();
}

/// A store whose log gets no further segment from `fail` on. -> It, its directory, what it says then, and how much it had taken; it can go on, and
/// has taken one more.
fn with_log_that_cannot_go_on(fail: fn(&Path)) -> (MetaDisk, tempfile::TempDir, StoreError, u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: Some(1 << 20), ..Options::default() };
    MetaDisk::create(dir.path(), &options).unwrap();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    // No checkpoint gives a segment back.
    let checkpoint = lock(&store.shared.checkpointer.pending);
    let log = dir.path().join("log");
    fail(&log);
    let applied_count = (1..1000).take_while(|t| put_bytes(&store, *t, 60_000).is_ok()).count() as u64;
    assert!((2..999).contains(&applied_count), "{applied_count}");
    let told = put_bytes(&store, applied_count + 1, 60_000).unwrap_err();
    faults::mend(&log);
    drop(checkpoint);
    assert!(!store.pressure().poisoned);
    put_bytes(&store, applied_count + 1, 60_000).unwrap();
    (store, dir, told, applied_count)
}

/// It goes on when somebody has removed something, or has been given more.
#[test]
fn a_quota_that_is_used_up_is_a_full_device_and_not_a_lost_one() {
    let (store, _dir, told, _) = with_log_that_cannot_go_on(faults::refuse_allocations_below);
    assert_eq!(told, StoreError::NoSpace);
    store.close();
}

/// Who has too many connections for a while has no damaged device.
#[test]
fn a_log_that_finds_no_descriptor_for_a_segment_goes_on_when_there_is_one() {
    let (store, dir, told, applied_count) = with_log_that_cannot_go_on(faults::fail_opens_below);
    assert_eq!(told, StoreError::Device { operation: "make a log segment", errno: libc::EMFILE });
    store.checkpoint().unwrap();
    store.close();
    drop(store);
    let store = MetaDisk::open(dir.path(), &Options::default(), Arc::new(|| ())).unwrap();
    let row = store.get(1, &(applied_count + 1).to_be_bytes()).unwrap();
    assert_eq!(row.map(|row| row.len()), Some(60_000));
    store.close();
}

/// A checkpoint needs no descriptor: it begins with the segment that is kept for it, and gives back what the log has filled.
#[test]
fn a_log_that_finds_no_descriptor_goes_on_with_what_a_checkpoint_gives_back() {
    let dir = tempfile::tempdir().unwrap();
    // No checkpoint begins by itself.
    let options = Options {
        segment_bytes: Some(1 << 20),
        checkpoint_bytes: Some(1 << 40),
        upkeep_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    MetaDisk::create(dir.path(), &options).unwrap();
    let store = MetaDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    wait_for("the spares", || !lock(&store.shared.log).is_spare_wanted());
    let log = dir.path().join("log");
    faults::fail_opens_below(&log);
    // Several times round.
    for t in 1..=400 {
        wait_for("a segment", || put_bytes(&store, t, 60_000).is_ok());
    }
    faults::mend(&log);
    assert!(!store.pressure().poisoned);
    store.close();
}

/// The base has much to give after deletions, and the log on the device nothing to go on in: what takes and keeps is refused while what frees
/// finds room in the log.
#[test]
fn a_log_that_is_about_to_end_is_kept_for_what_frees() {
    let Some(device) = SmallDevice::mount(128) else { return };
    let path = device.path().join("meta");
    let options = Options {
        checkpoint_bytes: Some(1 << 20),
        upkeep_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    MetaDisk::create(&path, &options).unwrap();
    let store = MetaDisk::open(&path, &options, Arc::new(|| ())).unwrap();
    let delete = |t: u64, n: u64| {
        let mut batch = Batch::new();
        batch.delete(1, &n.to_be_bytes());
        store.apply(Transno(t), &batch)
    };
    let row_count = 4000;
    for n in 1..=row_count {
        put_bytes(&store, n, 8000).unwrap();
    }
    store.checkpoint().unwrap();
    let mut t = row_count;
    for n in 1..=row_count {
        t += 1;
        delete(t, n).unwrap();
    }
    store.checkpoint().unwrap();
    wait_for("the spares", || !lock(&store.shared.log).is_spare_wanted());
    // Late, as on a slow device; and nothing is given back while the device is filled.
    let checkpoint = lock(&store.shared.checkpointer.pending);
    device.fill(1 << 10);
    wait_for("the look at the device", || store.pressure().is_log_short);
    while !store.pressure().is_consuming_refused() {
        t += 1;
        put_bytes(&store, t, 8000).unwrap();
    }
    t += 1;
    delete(t, t - 1).unwrap();
    drop(checkpoint);
    store.checkpoint().unwrap();
    assert!(!store.pressure().is_log_ending, "a checkpoint gives segments back");
    store.close();
}
