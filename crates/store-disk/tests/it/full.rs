//! A device that fills up: consuming operations are refused in time, nothing is poisoned, and what frees goes on.

use crate::small_device::SmallDevice;
use crate::waiting::wait_for;
use base::{Extent, Fid, ObjectId, Transno};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use store::{Batch, MetaStore, ObjectStore, Reserve, Room, StoreError};
use store_disk::{MetaDisk, ObjectDisk, ObjectOptions, Options, Superblock, TargetDirectory};

fn open(path: &Path) -> MetaDisk {
    MetaDisk::open_or_create(path, &Options::default(), Arc::new(|| ())).unwrap()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

#[test]
fn a_full_device_refuses_in_time_and_deletions_make_room() {
    let Some(device) = SmallDevice::mount(128) else { return };
    let path = device.path().join("meta");
    let options = Options { upkeep_interval: Duration::from_millis(10), ..Options::default() };
    let store = MetaDisk::open_or_create(&path, &options, Arc::new(|| ())).unwrap();
    let put_count = fill_until_refused(&store);
    let mut t = put_count;
    // Others take a part of the reserve as well. Deletions go on, to the last row.
    device.fill(14 << 10);
    wait_for("the refusal", || store.pressure().reserve > Reserve::Ample);
    for n in 1..=put_count {
        t += 1;
        let mut batch = Batch::new();
        batch.delete(1, &key(n));
        store
            .apply(Transno(t), &batch)
            .unwrap_or_else(|error| panic!("deletion {n} of {put_count}: {error}"));
    }
    store.kick();
    wait_for("a sync", || store.durable() == store.applied());
    assert!(!store.pressure().poisoned);
    assert_eq!(store.get(1, &key(1)), Ok(None));
    std::fs::remove_file(device.path().join("filler")).unwrap();
    wait_for("room again", || !store.pressure().is_consuming_refused());
    store.checkpoint().unwrap();
    store.close();
    drop(store);
    let store = open(&path);
    assert_eq!(store.applied(), Transno(t));
    store.close();
}

/// A server that heeds the pressure. Returns how many rows it put.
fn fill_until_refused(store: &MetaDisk) -> u64 {
    for t in 0..100_000 {
        if store.pressure().is_consuming_refused() {
            return t;
        }
        let mut batch = Batch::new();
        batch.put(1, &key(t + 1), &vec![t as u8; 8000]);
        store.apply(Transno(t + 1), &batch).unwrap();
    }
    panic!("128 MiB cannot hold 800");
}

/// What is in the log has to find room in the base as well: a writer faster than the checkpointer, who was refused only when
/// the log had filled the device, left a store that no deletion could free again.
#[test]
fn who_outruns_the_checkpointer_is_refused_while_the_base_has_room_for_what_is_logged() {
    let Some(device) = SmallDevice::mount(128) else { return };
    let path = device.path().join("meta");
    // No checkpoint begins by itself.
    let options = Options {
        checkpoint_bytes: Some(1 << 40),
        upkeep_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let store = MetaDisk::open_or_create(&path, &options, Arc::new(|| ())).unwrap();
    let put_count = fill_until_refused(&store);
    assert!(store.pressure().overlay_bytes > 16 << 20, "the log held little: {:?}", store.pressure());
    store.checkpoint().unwrap();
    assert_eq!(store.pressure().overlay_bytes, 0);
    assert_eq!(store.get(1, &key(put_count)).unwrap().unwrap().len(), 8000);
    // Nothing is owed any more.
    assert!(!store.pressure().is_consuming_refused());
    store.close();
}

#[test]
fn a_server_that_does_not_heed_the_pressure_is_refused_and_nothing_is_lost() {
    let Some(device) = SmallDevice::mount(48) else { return };
    let path = device.path().join("meta");
    let store = open(&path);
    let mut t = 0;
    let refused = loop {
        let mut batch = Batch::new();
        batch.put(1, &key(t + 1), &vec![7; 30_000]);
        match store.apply(Transno(t + 1), &batch) {
            Ok(()) => t += 1,
            Err(error) => break error,
        }
        assert!(t < 10_000, "48 MiB cannot hold 300");
    };
    assert_eq!(refused, StoreError::NoSpace);
    assert!(!store.pressure().poisoned);
    assert_eq!(store.applied(), Transno(t));
    drop(store);
    let store = open(&path);
    assert_eq!(store.applied(), Transno(t));
    for n in 1..=t {
        assert_eq!(store.get(1, &key(n)).unwrap().unwrap(), vec![7; 30_000], "row {n} of {t}");
    }
    assert_eq!(store.get(1, &key(t + 1)), Ok(None));
}

/// The base has much to give after deletions, and the log nothing to go on in: room for the next segments has to be on the device itself.
#[test]
fn free_pages_of_the_base_are_no_room_for_the_log() {
    let Some(device) = SmallDevice::mount(128) else { return };
    let path = device.path().join("meta");
    let options = Options { upkeep_interval: Duration::from_millis(10), ..Options::default() };
    let store = MetaDisk::open_or_create(&path, &options, Arc::new(|| ())).unwrap();
    let row_count = 2000;
    let mut t = 0;
    for is_put in [true, false] {
        for n in 1..=row_count {
            t += 1;
            let mut batch = Batch::new();
            match is_put {
                true => batch.put(1, &key(n), &[7; 8000]),
                false => batch.delete(1, &key(n)),
            }
            store.apply(Transno(t), &batch).unwrap();
        }
        store.checkpoint().unwrap();
    }
    assert!(!store.pressure().is_log_short);
    let filler = device.fill(3 << 10);
    wait_for("the look at the device", || store.pressure().is_log_short);
    assert_ne!(store.pressure().reserve, Reserve::Exhausted, "the base has room");
    std::fs::remove_file(filler).unwrap();
    wait_for("room again", || !store.pressure().is_log_short);
    store.close();
}

/// A target from before it was noted that its stores are there, on a device that is full by now.
#[test]
fn a_target_is_marked_as_served_on_a_full_device_too() {
    let Some(device) = SmallDevice::mount(64) else { return };
    let path = device.path().join("target");
    let superblock = Superblock::new("scratch", "MDT0000".parse().unwrap()).unwrap();
    drop(TargetDirectory::create(&path, superblock, &[]).unwrap());
    let target = TargetDirectory::open(&path).unwrap();
    let store = open(&target.meta_path());
    // Its threads have ended: nobody else gives up the ballast.
    store.close();
    device.fill(0);
    assert!(target.set_served().is_err());
    assert!(target.set_served_beside(&store).unwrap());
    drop(target);
    assert!(TargetDirectory::open(&path).unwrap().was_served());
    // Where there is no ballast either, it is told from a device that fails.
    let (superblock, other) =
        (Superblock::new("scratch", "MDT0001".parse().unwrap()).unwrap(), device.path().join("other"));
    std::fs::remove_file(device.path().join("filler")).unwrap();
    drop(TargetDirectory::create(&other, superblock, &[]).unwrap());
    let target = TargetDirectory::open(&other).unwrap();
    device.fill(0);
    assert!(!target.set_served_beside(&store).unwrap());
    drop(target);
    assert!(!TargetDirectory::open(&other).unwrap().was_served());
}

fn object(n: u32) -> ObjectId {
    ObjectId { fid: Fid { oid: n, ..Fid::ROOT }, component: 0, stripe: 0 }
}

#[test]
fn a_write_without_room_changes_nothing() {
    // Smaller than what counts as nearly full, so that no write trusts an older look at the free space.
    let Some(device) = SmallDevice::mount(48) else { return };
    let options = ObjectOptions::default();
    let store = ObjectDisk::open(&device.path().join("objects"), &options, Arc::new(|| ())).unwrap();
    let id = object(1);
    store.write(&id, 0, &[1; 1 << 20]).unwrap();
    device.fill(300);
    assert_eq!(store.write(&id, 1000, &vec![2; 2 << 20]), Err(StoreError::NoSpace));
    assert_eq!(store.read(&id, 0, 4 << 20).unwrap(), vec![1; 1 << 20]);
    assert_eq!(store.write(&object(2), 0, &vec![2; 2 << 20]), Err(StoreError::NoSpace));
    assert_eq!(store.stat(&object(2)), Ok(None));
    assert_eq!(store.allocate(&id, Extent::new(0, 9 << 20), false, Room::All), Err(StoreError::NoSpace));
    assert_eq!(store.zero(&object(3), Extent::new(0, 9 << 20), false, Room::All), Err(StoreError::NoSpace));
    assert_eq!(store.stat(&object(3)), Ok(None));
    assert_eq!(store.stat(&id).unwrap().unwrap().size_bytes, 1 << 20);
    assert_eq!(store.space().avail_bytes, 0);
    // What is allocated can be written, and what frees goes on.
    store.write(&id, 0, &[3; 1 << 20]).unwrap();
    store.punch(&id, Extent::new(0, 512 << 10)).unwrap();
    store.write(&id, 2 << 20, &[4; 100 << 10]).unwrap();
    assert_eq!(store.read(&id, 2 << 20, 100 << 10).unwrap(), [4; 100 << 10][..]);
    store.truncate(&id, 0).unwrap();
    assert!(store.destroy(&id).unwrap());
    assert!(!store.is_poisoned());
    store.close();
}

/// What clients were told to have written has its room there.
#[test]
fn what_is_allocated_beforehand_leaves_the_reserve_alone() {
    let Some(device) = SmallDevice::mount(128) else { return };
    let options = ObjectOptions::default();
    let store = ObjectDisk::open(&device.path().join("objects"), &options, Arc::new(|| ())).unwrap();
    store.write(&object(1), 0, &[1; 1 << 20]).unwrap();
    device.fill(26 << 10);
    let reserve_bytes = store.space().reserve_bytes;
    assert_eq!(reserve_bytes, 16 << 20);
    let free_bytes = || store_space(device.path());
    let (before, extent) = (free_bytes(), Extent::new(0, 14 << 20));
    for id in [object(1), object(2)] {
        assert_eq!(store.allocate(&id, extent, false, Room::BesideReserve), Err(StoreError::NoSpace));
        assert_eq!(store.zero(&id, extent, true, Room::BesideReserve), Err(StoreError::NoSpace));
        assert_eq!(free_bytes(), before, "nothing was taken");
    }
    assert_eq!(store.read(&object(1), 0, 2 << 20).unwrap(), vec![1; 1 << 20]);
    assert_eq!(store.stat(&object(2)), Ok(None));
    store.allocate(&object(1), Extent::new(0, 8 << 20), false, Room::BesideReserve).unwrap();
    assert!(free_bytes() >= reserve_bytes);
    // All of the reserve is there for what was acknowledged.
    assert_eq!(
        store.allocate(&object(1), Extent::new(0, 16 << 20), false, Room::BesideReserve),
        Err(StoreError::NoSpace)
    );
    store.write(&object(3), 0, &vec![2; 14 << 20]).unwrap();
    assert_eq!(store.allocate(&object(4), Extent::new(0, 1 << 20), true, Room::All), Ok(()));
    store.close();
}

/// What anybody may take of the device.
fn store_space(path: &Path) -> u64 {
    let output = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (blocks, block_bytes) = text.trim().split_once(' ').unwrap();
    blocks.parse::<u64>().unwrap() * block_bytes.parse::<u64>().unwrap()
}

/// Nothing is damaged: who makes room can go on.
#[test]
fn a_store_that_has_no_room_to_begin_with_says_so_and_begins_later() {
    let Some(device) = SmallDevice::mount(64) else { return };
    let path = device.path().join("meta");
    let filler = device.fill(16);
    let begin = || MetaDisk::open_or_create(&path, &Options::default(), Arc::new(|| ()));
    let error = begin().err().expect("there is no room");
    let mut chain = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        chain = format!("{chain}: {cause}");
        next = cause.source();
    }
    assert!(chain.to_lowercase().contains("no space") && !chain.contains("damaged"), "{chain}");
    std::fs::remove_file(filler).unwrap();
    begin().unwrap();
}
