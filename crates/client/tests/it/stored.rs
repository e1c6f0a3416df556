//! Stores into mapped pages, and an eviction between them and their write-back.

use crate::world::{O_RDONLY, O_RDWR, TOP, World, write_call};
use base::{Duration, TargetId};
use client::{Answer, Call, Notify};

const PAGE: u64 = 4096;
const EIO: i32 = 5;
const O_DIRECT: u32 = 0o40000;

/// A page, as the kernel writes back what was stored into it.
fn stored(file: (u64, u64), fill: u8) -> Call {
    let mut call = write_call(file, 0, &[fill; PAGE as usize]);
    if let Call::Write { is_writeback, .. } = &mut call {
        *is_writeback = true;
    }
    call
}

/// A file of a page, which the first mount has in its page cache under a write lock.
fn mapped(world: &mut World) -> (u64, u64) {
    let file = world.create_with(0, TOP, "f", O_RDWR);
    assert_eq!(world.write(0, file, 0, &[1; PAGE as usize]), Ok(PAGE));
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done));
    assert_eq!(world.read(0, file, 0, PAGE as u32), [1; PAGE as usize]);
    file
}

fn read_call((node, fh): (u64, u64)) -> Call {
    Call::Read { node, fh, offset_bytes: 0, byte_count: PAGE as u32, is_direct: false }
}

fn fsync(file: (u64, u64)) -> Call {
    Call::Fsync { node: file.0, fh: file.1, data_only: false }
}

/// Another mount writes some bytes of the page and makes them durable. -> Its handle.
fn written_elsewhere(world: &mut World) -> (u64, u64) {
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let other = (node, world.open(1, node, O_RDWR).0);
    assert_eq!(world.write(1, other, 100, &[2; 10]), Ok(10));
    assert_eq!(world.call(1, fsync(other)), Ok(Answer::Done));
    other
}

fn is_kept_elsewhere(world: &mut World, other: (u64, u64)) {
    let page = world.read(1, other, 0, PAGE as u32);
    assert_eq!((page[99], &page[100..110], page[110]), (1, &[2; 10][..], 1));
}

#[test]
fn what_is_written_back_while_an_eviction_drops_it_is_lost_and_told() {
    let mut world = World::new(1, 1, 2);
    let file = mapped(&mut world);
    // Its kernel has not begun to drop pages before another mount has written there.
    world.mounts[0].is_kernel_stuck = true;
    world.evict_from_ost(0, 0);
    world.pass(Duration::from_secs(7));
    let other = written_elsewhere(&mut world);
    assert_eq!(world.call(0, stored(file, 3)), Err(EIO));
    world.mounts[0].is_kernel_stuck = false;
    world.unlock_page(0);
    assert_eq!(world.call(0, fsync(file)), Err(EIO), "its writer is told");
    assert_eq!(world.call(0, fsync(file)), Ok(Answer::Done), "once");
    is_kept_elsewhere(&mut world, other);
    assert_eq!(
        world.call(0, stored(file, 4)),
        Ok(Answer::Written(PAGE)),
        "what is stored from now on is written"
    );
}

#[test]
fn what_waits_to_be_written_back_at_an_eviction_is_lost_and_told() {
    let mut world = World::new(1, 1, 2);
    let file = mapped(&mut world);
    world.mounts[0].unreachable = Some(TargetId::ost(0));
    let writing_back = world.begin(0, stored(file, 3));
    world.evict_from_ost(0, 0);
    let other = written_elsewhere(&mut world);
    assert!(!world.is_answered(0, writing_back));
    world.mounts[0].unreachable = None;
    assert_eq!(world.finish(0, writing_back), Err(EIO));
    assert_eq!(world.call(0, fsync(file)), Err(EIO), "its writer is told");
    is_kept_elsewhere(&mut world, other);
}

/// Nothing was evicted: the lock goes back in order.
#[test]
fn what_is_written_back_as_its_lock_is_called_back_arrives() {
    let mut world = World::new(1, 1, 2);
    let file = mapped(&mut world);
    world.mounts[0].is_kernel_stuck = true;
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let other = (node, world.open(1, node, O_RDWR).0);
    let reading = world.begin(1, read_call(other));
    assert!(!world.is_answered(1, reading));
    assert_eq!(world.call(0, stored(file, 3)), Ok(Answer::Written(PAGE)));
    world.mounts[0].is_kernel_stuck = false;
    world.unlock_page(0);
    world.finish(1, reading).expect("the lock has gone back");
    assert_eq!(world.read(1, other, 0, PAGE as u32), [3; PAGE as usize]);
}

/// A kernel sends what was stored into pages when it is told to drop them, and lets a read pass by that.
#[test]
fn who_passes_by_the_pages_comes_after_what_was_stored_into_them() {
    for is_read in [true, false] {
        let mut world = World::new(1, 1, 2);
        let file = mapped(&mut world);
        let (fh, mode) = world.open(0, file.0, O_RDWR | O_DIRECT);
        assert!(mode.is_direct);
        let passing_by = || match is_read {
            true => {
                Call::Read { node: file.0, fh, offset_bytes: 0, byte_count: PAGE as u32, is_direct: true }
            }
            false => write_call((file.0, fh), 100, &[2; 10]),
        };
        world.mounts[0].is_kernel_stuck = true;
        let passing = world.begin(0, passing_by());
        assert!(!world.is_answered(0, passing));
        let drop = Notify::InvalInode { node: file.0, offset_bytes: 0, byte_count: PAGE.cast_signed() };
        let told = |world: &World| world.mounts[0].notified.iter().filter(|notify| **notify == drop).count();
        assert!(world.mounts[0].stuck.iter().any(|(_, notify)| *notify == drop));
        assert_eq!(world.call(0, stored(file, 3)), Ok(Answer::Written(PAGE)));
        world.mounts[0].is_kernel_stuck = false;
        world.unlock_page(0);
        let before = told(&world);
        if is_read {
            let found = Ok(Answer::Bytes(vec![3; PAGE as usize].into()));
            assert_eq!(world.finish(0, passing), found);
            assert_eq!(world.call(0, passing_by()), found);
        } else {
            assert_eq!(world.finish(0, passing), Ok(Answer::Written(10)));
            assert_eq!(world.call(0, passing_by()), Ok(Answer::Written(10)));
            let node = world.lookup(1, TOP, "f").expect("it was made").node;
            let other = (node, world.open(1, node, O_RDWR).0);
            let page = world.read(1, other, 0, PAGE as u32);
            assert_eq!((page[99], &page[100..110], page[110]), (3, &[2; 10][..], 3));
        }
        assert_eq!(told(&world), before, "nothing is there any more that could be stored into");
    }
}

/// Without a writer there is nothing that could have been stored.
#[test]
fn who_passes_by_pages_that_nobody_stores_into_drops_none() {
    let mut world = World::new(1, 1, 1);
    let file = mapped(&mut world);
    world.release(0, file);
    let reader = (file.0, world.open(0, file.0, O_RDONLY).0);
    assert_eq!(world.read(0, reader, 0, PAGE as u32), [1; PAGE as usize]);
    let direct = (file.0, world.open(0, file.0, O_RDONLY | O_DIRECT).0);
    let before = world.mounts[0].notified.len();
    assert_eq!(world.read(0, direct, 0, PAGE as u32), [1; PAGE as usize]);
    assert_eq!(world.mounts[0].notified.len(), before);
}
