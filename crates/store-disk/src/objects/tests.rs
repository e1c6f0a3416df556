#![allow(clippy::unwrap_used)]

use super::*;
use crate::device::faults;
use crate::waiting::wait_for;
use base::Fid;

fn object(n: u32) -> ObjectId {
    ObjectId { fid: Fid { oid: n, ..Fid::ROOT }, component: 3, stripe: 4 }
}

#[test]
fn names_map_there_and_back() {
    let id = object(77);
    assert_eq!(id_of_name(&file_name(&id)), Some(id));
    let by_bytes: String = id.key().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(file_name(&id), by_bytes);
    for wrong in ["", "00", "lost+found", &"zz".repeat(24), &"é".repeat(24), &"0".repeat(49)] {
        assert_eq!(id_of_name(wrong), None);
    }
}

/// What was told last of an object says only where to look first.
#[test]
fn an_object_that_has_come_since_it_was_asked_for_is_not_made_again() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |path: &Path| ObjectDisk::open(path, &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    let (store, other) = (open(dir.path()), open(elsewhere.path()));
    other.write(&object(1), 0, b"was here").unwrap();
    other.close();
    assert_eq!(store.stat(&object(1)), Ok(None));
    std::fs::copy(other.shared.path(&object(1)), store.shared.path(&object(1))).unwrap();
    store.write(&object(1), 0, b"is").unwrap();
    assert_eq!(store.read(&object(1), 0, 8).unwrap(), b"iss here"[..]);
    // And the other way round: it has been made since, and removed.
    for _ in 0..2 {
        assert_eq!(store.stat(&object(2)), Ok(None));
        store.write(&object(2), 0, b"new").unwrap();
        store.write(&object(2), 3, b"er").unwrap();
        assert_eq!(store.read(&object(2), 0, 8).unwrap(), b"newer"[..]);
        assert_eq!(store.destroy(&object(2)), Ok(true));
        store.write(&object(2), 0, b"again").unwrap();
        assert_eq!(store.destroy(&object(2)), Ok(true));
    }
}

/// Whoever knows by his rows that an object is new says so, and nobody looks for its file before it is made.
#[test]
fn an_object_that_is_expected_to_be_absent_is_made_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions { handle_count_max: 1, ..ObjectOptions::default() };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let opened_count = || store.shared.opened_count.swap(0, Ordering::Relaxed);
    store.expect_absent(&object(1));
    store.write(&object(1), 0, b"new").unwrap();
    assert_eq!(opened_count(), 1, "it is made");
    assert_eq!(
        store.stat(&object(1)).unwrap().map(|stat| (stat.size_bytes, stat.has_begun)),
        Some((3, true))
    );
    store.write(&object(2), 0, b"x").unwrap();
    assert_eq!(opened_count(), 2, "it is looked for, and made");
    // The rows are lost, and not the file, of which nothing is open any more.
    store.expect_absent(&object(1));
    store.write(&object(1), 3, b"er").unwrap();
    assert_eq!(opened_count(), 2, "it is found");
    assert_eq!(store.read(&object(1), 0, 8).unwrap(), b"newer"[..]);
}

#[test]
fn a_failed_sync_fences_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectDisk::open(dir.path(), &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    store.write(&object(1), 0, b"durable").unwrap();
    store.kick();
    wait_for("a sync", || store.durable() == store.written());
    let durable = store.durable();
    faults::fail_syncs_below(dir.path());
    store.write(&object(1), 0, b"lost").unwrap();
    store.kick();
    wait_for("the fence", || store.is_poisoned());
    faults::mend(dir.path());
    assert!(matches!(store.write(&object(2), 0, b"x"), Err(StoreError::Poisoned { errno: libc::EIO, .. })));
    assert!(matches!(store.destroy(&object(1)), Err(StoreError::Poisoned { .. })));
    store.close();
    assert_eq!(store.durable(), durable);
}

#[test]
fn a_failed_write_fences_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectDisk::open(dir.path(), &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    store.write(&object(1), 0, b"kept").unwrap();
    faults::fail_writes_below(dir.path());
    assert!(matches!(
        store.write(&object(1), 0, b"lost"),
        Err(StoreError::Poisoned { errno: libc::EIO, .. })
    ));
    assert!(store.is_poisoned());
    faults::mend(dir.path());
    assert!(matches!(store.truncate(&object(1), 1), Err(StoreError::Poisoned { .. })));
    assert_eq!(store.read(&object(1), 0, 4).unwrap(), b"kept"[..]);
}

#[test]
fn what_cannot_be_opened_to_be_synced_is_never_called_durable() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions { sync_interval: Duration::from_secs(3600), ..ObjectOptions::default() };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    store.write(&object(1), 0, b"written").unwrap();
    store.shared.handles.forget(&object(1));
    let path = store.shared.path(&object(1));
    std::fs::rename(&path, path.with_extension("aside")).unwrap();
    std::os::unix::fs::symlink("/", &path).unwrap();
    store.kick();
    wait_for("the fence", || store.is_poisoned());
    store.close();
    assert_eq!(store.durable(), 0);
}

/// It passes, and everything can be synced without another descriptor.
#[test]
fn want_of_descriptors_does_not_fence() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions { sync_interval: Duration::from_secs(3600), ..ObjectOptions::default() };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let sync = || {
        store.kick();
        wait_for("a sync", || store.durable() == store.written() || store.is_poisoned());
    };
    store.write(&object(1), 0, b"closed").unwrap();
    store.shared.handles.forget(&object(1));
    faults::fail_opens_below(dir.path());
    sync();
    faults::mend(dir.path());
    store.write(&object(2), 0, b"open").unwrap();
    faults::fail_opens_below(dir.path());
    sync();
    faults::mend(dir.path());
    assert!(!store.is_poisoned());
    assert_eq!(store.read(&object(1), 0, 6).unwrap(), b"closed"[..]);
}

#[test]
fn a_clean_object_is_not_changed_before_that_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions { no_sync: false, ..ObjectOptions::default() };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    store.write(&object(1), 0, &[1; 5000]).unwrap();
    store.close();
    drop(store);
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    faults::fail_syncs_below(dir.path());
    assert!(matches!(store.write(&object(1), 0, b"new"), Err(StoreError::Poisoned { errno: libc::EIO, .. })));
    faults::mend(dir.path());
    // A sync that fails once may succeed the next time, with the bytes gone.
    assert!(matches!(store.write(&object(1), 0, b"new"), Err(StoreError::Poisoned { .. })));
    assert_eq!(store.read(&object(1), 0, 3).unwrap(), [1; 3][..]);
}

#[test]
fn an_end_in_order_is_no_failure_of_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectDisk::open(dir.path(), &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    store.write(&object(1), 0, b"kept").unwrap();
    store.close();
    assert!(!store.is_poisoned());
    assert!(matches!(store.write(&object(1), 0, b"late"), Err(StoreError::Ended)));
}

#[test]
fn many_bytes_become_durable_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions { sync_interval: Duration::from_secs(3600), ..ObjectOptions::default() };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let part = vec![7; 8 << 20];
    for number in 0..4 {
        assert_eq!(store.durable(), 0, "a round has begun too early");
        store.write(&object(1), number * part.len() as u64, &part).unwrap();
    }
    wait_for("a sync", || store.durable() == store.written());
    store.close();
}

#[test]
fn checksums_that_wait_are_there_when_an_object_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions {
        handle_count_max: 2,
        sync_interval: Duration::from_secs(3600),
        ..ObjectOptions::default()
    };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let block = [5; 4096];
    for n in 0..6 {
        store.write(&object(n), 0, &[1; 20_000]).unwrap();
        store.write(&object(n), 4096, &block).unwrap();
        store.write(&object(n), 8192, &block).unwrap();
    }
    // One that is in use is not closed, and what is written through it is seen by who comes later.
    let used = store.shared.handle(&object(3)).unwrap().unwrap();
    used.write(0, &block, false).unwrap();
    for n in 0..6 {
        assert_eq!(store.read(&object(n), 4096, 8192).unwrap(), [5; 8192][..], "{n}");
    }
    used.write(12_288, &block, false).unwrap();
    drop(used);
    for n in [0, 1, 2, 4, 5, 3] {
        store.read(&object(n), 0, 20_000).unwrap();
    }
    store.close();
    drop(store);
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    assert_eq!(store.read(&object(3), 0, 16_384).unwrap(), [5; 16_384][..]);
}

#[test]
fn checksums_that_cannot_be_written_any_more_fence() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions { handle_count_max: 1, ..ObjectOptions::default() };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    for n in [2, 1] {
        store.write(&object(n), 0, &[1; 20_000]).unwrap();
        store.write(&object(n), 0, &[2; 4096]).unwrap();
    }
    store.write(&object(1), 4096, &[2; 4096]).unwrap();
    faults::fail_writes_below(dir.path());
    let closed = store.read(&object(2), 0, 1);
    faults::mend(dir.path());
    assert!(matches!(closed, Err(StoreError::Poisoned { errno: libc::EIO, .. })), "{closed:?}");
    assert!(store.is_poisoned());
}

/// Where blocks that are written again take further ones (copy on write). The bytes had theirs.
#[test]
fn checksums_that_have_no_room_wait_and_what_they_are_of_is_durable() {
    for handle_count_max in [1, 128] {
        let dir = tempfile::tempdir().unwrap();
        let options = ObjectOptions {
            handle_count_max,
            sync_interval: Duration::from_secs(3600),
            settle_after: Duration::from_millis(1),
            ..ObjectOptions::default()
        };
        let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
        for n in [3, 2, 1] {
            store.write(&object(n), 0, &[1; 20_000]).unwrap();
            store.write(&object(n), 0, &[2; 4096]).unwrap();
        }
        store.write(&object(1), 4096, &[2; 4096]).unwrap();
        faults::refuse_writes_below(dir.path());
        assert_eq!(store.read(&object(2), 0, 1).unwrap(), [2][..], "another one is opened");
        store.kick();
        wait_for("a sync", || store.durable() == store.written() || store.is_poisoned());
        assert!(!store.is_poisoned());
        assert_eq!(store.read(&object(1), 4096, 8192).unwrap(), [[2; 4096], [1; 4096]].concat());
        let path = store.shared.path(&object(1));
        let state = || {
            let mut header = [0; layout::HEADER_BYTES];
            device::read_full(&File::open(&path).unwrap(), &mut header, 0).unwrap();
            layout::State::decode(&header)
        };
        assert!(matches!(state(), Some(layout::State::Dirty { .. })), "a crash finds it so");
        faults::mend(dir.path());
        wait_for("the checksums", || {
            store.kick();
            matches!(state(), Some(layout::State::Settled { .. }))
        });
        store.shared.handles.forget(&object(1));
        assert_eq!(store.read(&object(1), 4096, 8192).unwrap(), [[2; 4096], [1; 4096]].concat());
        store.close();
    }
}

/// What a process has left is all there as long as the file system is mounted: the kernel knows whether it is.
#[test]
fn what_a_dead_process_has_left_is_known_and_synced() {
    let dir = tempfile::tempdir().unwrap();
    let open = || ObjectDisk::open(dir.path(), &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    let first = open();
    assert_eq!(first.sync_left(), Ok(false), "nobody has been here since it was mounted, as far as is known");
    first.write(&object(1), 0, b"left").unwrap();
    // As if it had been killed.
    drop(first);
    let second = open();
    assert_eq!(second.sync_left(), Ok(true));
    assert_eq!(second.read(&object(1), 0, 10).unwrap(), b"left"[..]);
    second.close();
    drop(second);
    let third = open();
    assert_eq!(third.shared.found, Mark::Left);
    assert_eq!(third.sync_left(), Ok(true), "it has ended in order");
    assert_eq!(Mark::of(&third.shared.root), Mark::Left, "nothing is changed yet");
    third.kick();
    drop(third);
    let reader = ObjectDisk::open_to_read(dir.path()).unwrap();
    drop(reader);
    let fourth = open();
    assert_eq!(fourth.shared.found, Mark::InUse, "a reader leaves the mark as it is");
    faults::fail_syncs_below(dir.path());
    assert!(matches!(fourth.sync_left(), Err(StoreError::Poisoned { errno: libc::EIO, .. })));
    faults::mend(dir.path());
    assert!(fourth.is_poisoned());
    fourth.close();
    assert_eq!(Mark::of(&fourth.shared.root), Mark::Failed, "it has not left it in order");
    drop(fourth);
    // The device works again. The kernel has said so to who has ended, and says it to nobody else.
    assert_eq!(open().sync_left(), Ok(false));
}

/// Killed right after it was told that something is lost, before anybody has heard of it.
#[test]
fn who_dies_of_a_failed_sync_leaves_word_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = || ObjectDisk::open(dir.path(), &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    let first = open();
    first.write(&object(1), 0, b"durable?").unwrap();
    faults::fail_syncs_below(dir.path());
    first.kick();
    wait_for("the fence", || first.is_poisoned());
    faults::mend(dir.path());
    drop(first);
    assert_eq!(open().sync_left(), Ok(false));
}

/// A descriptor that is opened anew may be told of nothing.
#[test]
fn what_was_closed_before_its_round_is_synced_by_who_was_open_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions {
        handle_count_max: 1,
        sync_interval: Duration::from_secs(3600),
        ..ObjectOptions::default()
    };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    let sync = |store: &ObjectDisk| {
        store.kick();
        wait_for("a sync", || store.durable() == store.written() || store.is_poisoned());
    };
    for n in 1..=2 {
        store.write(&object(n), 0, b"written").unwrap();
        sync(&store);
    }
    faults::fail_file_system_syncs_below(dir.path());
    store.write(&object(1), 0, b"open all the time").unwrap();
    sync(&store);
    assert!(!store.is_poisoned(), "nobody had to ask");
    store.write(&object(1), 0, b"closed meanwhile.").unwrap();
    assert_eq!(store.read(&object(2), 0, 7).unwrap(), b"written"[..]);
    store.shared.handles.forget(&object(1));
    sync(&store);
    faults::mend(dir.path());
    assert!(store.is_poisoned());
}

/// The kernel forgets an inode that nobody has open, and with it that its write-back has failed.
#[test]
fn what_was_closed_and_opened_again_before_its_round_is_synced_by_who_was_open_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions {
        handle_count_max: 1,
        sync_interval: Duration::from_secs(3600),
        ..ObjectOptions::default()
    };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    store.write(&object(2), 0, b"written").unwrap();
    store.kick();
    wait_for("a sync", || store.durable() == store.written());
    store.write(&object(1), 0, b"closed meanwhile").unwrap();
    store.read(&object(2), 0, 7).unwrap();
    assert!(store.shared.handles.get(&object(1)).is_none(), "another one was opened");
    store.write(&object(1), 0, b"opened again").unwrap();
    faults::fail_file_system_syncs_below(dir.path());
    store.kick();
    wait_for("a sync", || store.durable() == store.written() || store.is_poisoned());
    faults::mend(dir.path());
    assert!(store.is_poisoned());
}

#[test]
fn who_has_something_to_be_synced_is_closed_last() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions {
        handle_count_max: 2,
        sync_interval: Duration::from_secs(3600),
        ..ObjectOptions::default()
    };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    for n in 1..=9 {
        store.write(&object(n), 0, b"written").unwrap();
    }
    store.kick();
    wait_for("a sync", || store.durable() == store.written());
    store.write(&object(1), 0, b"changed").unwrap();
    for n in 2..=9 {
        store.read(&object(n), 0, 1).unwrap();
    }
    assert!(store.shared.handles.get(&object(1)).is_some());
}

/// A large object is not read through when it is opened. It was believed from then on for ever: no flipped bit was found any more.
#[test]
fn what_a_crash_has_left_of_a_large_object_is_checked_again_when_it_has_been_read() {
    let dir = tempfile::tempdir().unwrap();
    let open = |settle_after: Duration| {
        let options = ObjectOptions { settle_after, ..ObjectOptions::default() };
        ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap()
    };
    let id = object(1);
    let store = open(Duration::from_secs(3600));
    let path = store.shared.path(&id);
    let state = || {
        let mut header = [0; layout::HEADER_BYTES];
        device::read_full(&File::open(&path).unwrap(), &mut header, 0).unwrap();
        layout::State::decode(&header)
    };
    for number in 0..9 {
        store.write(&id, number * (8 << 20), &vec![number as u8; 8 << 20]).unwrap();
    }
    // A hole, and an end that is no block's.
    store.write(&id, 200 << 20, &[9; 5000]).unwrap();
    store.shared.handles.get(&id).unwrap().flush().unwrap();
    // As if it had been killed, and some checksums had not become durable.
    drop(store);
    device::write_all(&device::open(&path, false).unwrap(), &[7; 400], 32).unwrap();
    let store = open(Duration::from_millis(1));
    assert_eq!(store.read(&id, 0, 10).unwrap(), [0; 10][..]);
    wait_for("the end", || matches!(state(), Some(layout::State::Settled { lenient_from: u64::MAX, .. })));
    assert_eq!(store.read(&id, 200 << 20, 10_000).unwrap(), [9; 5000][..]);
    assert_eq!(store.read(&id, 100 << 20, 10_000).unwrap(), [0; 10_000][..]);
    store.close();
    drop(store);
    let flipped = layout::stored_offset(70 << 20);
    device::write_all(&device::open(&path, false).unwrap(), &[1], flipped).unwrap();
    let read = open(Duration::from_secs(3600)).read(&id, 70 << 20, 10);
    assert_eq!(read, Err(StoreError::CorruptObject { id, offset_bytes: 70 << 20 }));
}

const MIB: u64 = 1 << 20;
/// With a group's border within, and an end within a block.
const STREAM_BYTES: u64 = 9 * MIB + 100_000;

/// One large object that nobody has read and that is on the device only; `None` where files have no other place than the page cache.
fn cold_stream(dir: &Path) -> Option<(ObjectDisk, Vec<u8>)> {
    let store = ObjectDisk::open(dir, &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    let data: Vec<u8> = (0..STREAM_BYTES).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    store.write(&object(1), 0, &data).unwrap();
    store.kick();
    wait_for("a sync", || store.durable() == store.written());
    make_cold(&store);
    let is_in_memory = device::magic(&store.shared.root).unwrap() == libc::TMPFS_MAGIC as u64;
    (!is_in_memory).then_some((store, data))
}

fn make_cold(store: &ObjectDisk) {
    store.advise(&object(1), Extent::new(0, STREAM_BYTES), Advice::DontNeed).unwrap();
}

/// Whether the page cache lacks something of a part of the object; a kernel before 6.5 does not say.
fn is_cold(file: &File, part: Extent) -> Option<bool> {
    let (start, end) = (layout::stored_offset(part.start), layout::stored_offset(part.end));
    Some(!device::cached(file, Extent::new(start, end)).ok()?.is_whole)
}

fn read_all(store: &ObjectDisk, start: u64) -> Vec<u8> {
    let starts = (start..STREAM_BYTES).step_by(MIB as usize);
    starts.flat_map(|at| store.read_ahead(&object(1), at, MIB as usize).unwrap()).collect()
}

#[test]
fn a_cold_stream_is_read_past_the_cache_once_and_then_through_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some((store, data)) = cold_stream(dir.path()) else { return };
    assert!(read_all(&store, 0) == data);
    let first = store.read_use();
    // The last read, of the end, is too small.
    assert_eq!(first.past_cache_bytes + first.through_cache_bytes, STREAM_BYTES);
    assert_eq!(first.past_cache_bytes, 9 * MIB, "what is over the border of a group, too");

    make_cold(&store);
    for _ in 0..2 {
        assert!(read_all(&store, 0) == data);
    }
    assert_eq!(
        store.read_use().past_cache_bytes,
        first.past_cache_bytes,
        "the next reader finds it in the cache"
    );
    store.close();
}

#[test]
fn who_waits_reads_past_the_cache_what_is_as_large_as_requests_are() {
    let dir = tempfile::tempdir().unwrap();
    let Some((store, data)) = cold_stream(dir.path()) else { return };
    let read = |start: u64, byte_count: u64| {
        let read = store.read(&object(1), start, byte_count as usize).unwrap();
        assert!(read == data[start as usize..(start + byte_count) as usize]);
        store.read_use().past_cache_bytes
    };
    assert_eq!(read(0, MIB), MIB);
    assert_eq!(read(8 * MIB, MIB / 2), MIB, "the kernel reads ahead of this");
    store.close();
}

#[test]
fn what_the_kernel_alone_has_read_ahead_leads_no_stream_into_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let Some((store, data)) = cold_stream(dir.path()) else { return };
    let file = device::open_to_read(&store.shared.path(&object(1))).unwrap();
    let ahead = Extent::new(0, 2 * MIB);
    let Some(is_ahead_cold) = is_cold(&file, ahead) else { return };
    assert!(is_ahead_cold, "nobody has read it");
    wait_for("its first part in the cache", || {
        store.advise(&object(1), ahead, Advice::WillRead).unwrap();
        is_cold(&file, ahead) == Some(false)
    });
    assert!(read_all(&store, 0) == data);
    assert_eq!(store.read_use().past_cache_bytes, 9 * MIB);
    store.close();
}

/// `lfs ladvise -a willread` comes to this.
#[test]
fn what_is_said_to_be_read_soon_is_fetched_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let Some((store, _)) = cold_stream(dir.path()) else { return };
    let file = device::open_to_read(&store.shared.path(&object(1))).unwrap();
    let (wanted, other) = (Extent::new(MIB, 5 * MIB), Extent::new(7 * MIB, 9 * MIB));
    let Some(is_wanted_cold) = is_cold(&file, wanted) else { return };
    assert!(is_wanted_cold, "nobody has read it");
    store.advise(&object(1), wanted, Advice::WillRead).unwrap();
    wait_for("all of it in the cache", || {
        // The kernel takes pages of others away when it likes.
        store.advise(&object(1), wanted, Advice::WillRead).unwrap();
        is_cold(&file, wanted) == Some(false)
    });
    let mut pages = (other.start..other.end).step_by(4096).map(|start| Extent::at(start, 1));
    assert!(pages.all(|page| is_cold(&file, page) == Some(true)), "nobody has spoken of any of it");
    assert_eq!(store.read_use().through_cache_bytes, 0, "nobody has read any of it");
    store.close();
}

#[test]
fn requests_of_a_stream_that_begin_within_a_block_are_no_second_reading() {
    let dir = tempfile::tempdir().unwrap();
    let Some((store, data)) = cold_stream(dir.path()) else { return };
    assert!(read_all(&store, 1234) == data[1234..]);
    let found = store.read_use();
    assert!(found.past_cache_bytes >= 9 * MIB, "{found:?}");
    store.close();
}

#[test]
fn what_is_cached_or_dirty_is_read_from_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let Some((store, mut data)) = cold_stream(dir.path()) else { return };
    store.set_cache_always(true);
    assert!(read_all(&store, 0) == data);
    assert_eq!(store.read_use().past_cache_bytes, 0, "as somebody wants it");
    store.set_cache_always(false);
    // The kernel takes pages of others away when it likes.
    let is_read_from_cache = (0..20).any(|_| {
        store.set_cache_always(true);
        assert!(read_all(&store, 0) == data);
        store.set_cache_always(false);
        let before = store.read_use().past_cache_bytes;
        assert!(read_all(&store, 0) == data);
        store.read_use().past_cache_bytes == before
    });
    assert!(is_read_from_cache, "it is there");

    let before = store.read_use().past_cache_bytes;
    make_cold(&store);
    store.write(&object(1), 5 * MIB + 10, b"dirty").unwrap();
    data[5 * MIB as usize + 10..][..5].copy_from_slice(b"dirty");
    let part = store.read_ahead(&object(1), 5 * MIB, MIB as usize).unwrap();
    assert!(part == data[5 * MIB as usize..6 * MIB as usize]);
    assert_eq!(store.read_use().past_cache_bytes, before, "and is not written for the sake of a read");
    store.close();
}

#[test]
fn damage_is_found_in_what_is_read_past_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let Some((store, _)) = cold_stream(dir.path()) else { return };
    let file = File::options().write(true).open(store.shared.path(&object(1))).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"!", layout::stored_offset(2 * MIB + 77)).unwrap();
    file.sync_all().unwrap();
    make_cold(&store);
    assert!(store.read_ahead(&object(1), MIB, MIB as usize).is_ok());
    let past_cache_bytes = store.read_use().past_cache_bytes;
    let damaged = StoreError::CorruptObject { id: object(1), offset_bytes: 2 * MIB };
    assert_eq!(store.read_ahead(&object(1), 2 * MIB, MIB as usize), Err(damaged.clone()));
    assert_eq!(store.read_use().past_cache_bytes, past_cache_bytes + MIB);
    assert_eq!(store.read_ahead(&object(1), 2 * MIB, MIB as usize), Err(damaged), "also through the cache");
    store.close();
}

/// A directory holds a 256th of all objects, whose number nothing bounds.
#[test]
fn a_list_reads_each_directory_once_however_many_pages_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let options = ObjectOptions { no_sync: true, ..ObjectOptions::default() };
    let store = ObjectDisk::open(dir.path(), &options, Arc::new(|| ())).unwrap();
    for n in 0..2000 {
        store.write(&object(n), 0, b"x").unwrap();
    }
    faults::take_listing_count();
    // Two at a time, as when two MDTs have lost the same client.
    let mut lists = [(10, Vec::new()), (7, Vec::new())];
    let mut going_on = vec![0, 1];
    while !going_on.is_empty() {
        going_on.retain(|index| {
            let (limit, found) = &mut lists[*index];
            let page = store.list(found.last(), *limit).unwrap();
            found.extend(&page);
            !page.is_empty()
        });
    }
    let read_count = faults::take_listing_count();
    // The last page, which is empty, has nothing to go on from.
    assert!((512..=520).contains(&read_count), "{read_count}");
    for (_, mut found) in lists {
        found.sort_unstable();
        assert!(found == (0..2000).map(object).collect::<Vec<_>>());
    }
    // What has come since the last page is there for who begins anew, and what has gone is not.
    store.write(&object(2000), 0, b"x").unwrap();
    store.destroy(&object(0)).unwrap();
    let mut found = store.list(None, 5000).unwrap();
    found.sort_unstable();
    assert!(found == (1..=2000).map(object).collect::<Vec<_>>());
}

#[test]
fn nobody_waits_until_the_blocks_of_a_removed_object_are_free() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectDisk::open(dir.path(), &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    for n in 1..=2 {
        store.write(&object(n), 0, b"kept").unwrap();
        store.allocate(&object(n), Extent::new(0, 65 << 20), true, Room::BesideReserve).unwrap();
    }
    store.write(&object(3), 0, b"small").unwrap();
    faults::hold_frees_below(dir.path());
    assert_eq!(store.destroy(&object(1)), Ok(true));
    assert_eq!(store.freeing.waiting_count(), 1);
    assert_eq!(store.stat(&object(1)), Ok(None));
    assert_eq!(store.list(None, 9).unwrap().len(), 2);
    assert_eq!(store.destroy(&object(1)), Ok(false));
    assert_eq!(store.destroy(&object(3)), Ok(true));
    assert_eq!(store.freeing.waiting_count(), 1, "of a small one nobody would notice it");
    assert_eq!(store.read(&object(2), 0, 9).unwrap(), b"kept"[..]);
    store.write(&object(1), 0, b"new").unwrap();
    store.kick();
    wait_for("a sync", || store.durable() == store.written());
    faults::mend(dir.path());
    wait_for("its blocks to be free", || store.freeing.waiting_count() == 0);
    assert_eq!(store.read(&object(1), 0, 9).unwrap(), b"new"[..]);
    assert_eq!(store.destroy(&object(2)), Ok(true));
    store.close();
    assert_eq!(store.freeing.waiting_count(), 0, "an end in order leaves nothing");
}

/// NFS gives an open file another name until it is closed. A server that is fenced before closes nothing.
#[test]
fn who_removes_waits_where_a_file_keeps_a_name_as_long_as_it_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectDisk::open(dir.path(), &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    store.allocate(&object(1), Extent::new(0, 65 << 20), true, Room::BesideReserve).unwrap();
    faults::claim_nfs_below(dir.path());
    faults::hold_frees_below(dir.path());
    let is_destroyed = store.destroy(&object(1));
    let waiting_count = store.freeing.waiting_count();
    faults::mend(dir.path());
    assert_eq!((is_destroyed, waiting_count), (Ok(true), 0));
    assert_eq!(store.stat(&object(1)), Ok(None));
    store.close();
}
