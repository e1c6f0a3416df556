//! Where data are, while some of them are in pages of a mapping and nowhere else.

use crate::world::{TOP, World, write_call};
use client::{Answer, Call, Input, Notify, NotifyResult, SetattrCall};

const ENXIO: i32 = 6;
const PAGE: u64 = 4096;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// A file that is one hole of 16 pages. Its first four are in the kernel's cache, through a handle that may write: perhaps mapped.
fn hole(world: &mut World) -> (u64, u64) {
    let file = world.create(0, TOP, "f");
    let set = SetattrCall { fh: Some(file.1), size_bytes: Some(16 * PAGE), ..SetattrCall::default() };
    assert!(world.call(0, Call::Setattr { node: file.0, set }).is_ok());
    assert_eq!(world.read(0, file, 0, 4 * PAGE as u32), [0; 4 * PAGE as usize]);
    file
}

fn seek((node, fh): (u64, u64), offset_bytes: u64, whence: u32) -> Call {
    Call::Lseek { node, fh, offset_bytes, whence }
}

/// The kernel writes a page back that was stored into, when it is told to drop it, and says then that it has.
#[test]
fn a_seek_finds_what_was_stored_into_a_mapping() {
    for (whence, expected) in [(SEEK_DATA, 2 * PAGE), (SEEK_HOLE, 0)] {
        let mut world = World::new(1, 1, 1);
        let file = hole(&mut world);
        world.mounts[0].is_kernel_stuck = true;
        let seeking = world.begin(0, seek(file, 0, whence));
        let told = std::mem::take(&mut world.mounts[0].stuck);
        let is_drop = |notify: &Notify| matches!(notify, Notify::InvalInode { offset_bytes: 0, .. });
        assert!(told.iter().any(|(_, notify)| is_drop(notify)), "the kernel is to write back what it has");
        assert!(!world.is_answered(0, seeking));
        let mut store = write_call(file, 2 * PAGE, &[1; PAGE as usize]);
        if let Call::Write { is_writeback, .. } = &mut store {
            *is_writeback = true;
        }
        assert_eq!(world.call(0, store), Ok(Answer::Written(PAGE)));
        world.mounts[0].is_kernel_stuck = false;
        for (id, _) in told {
            world.input(0, Input::Notified(id, NotifyResult::Ok));
        }
        assert_eq!(world.finish(0, seeking), Ok(Answer::Offset(expected)), "{whence}");
        let notified = world.mounts[0].notified.len();
        assert_eq!(world.call(0, seek(file, 0, SEEK_DATA)), Ok(Answer::Offset(2 * PAGE)));
        assert_eq!(world.mounts[0].notified.len(), notified, "it has nothing any more");
    }
}

/// Without one nothing can have been stored.
#[test]
fn a_seek_leaves_the_cache_alone_when_no_handle_writes_through_it() {
    let mut world = World::new(1, 1, 1);
    let file = hole(&mut world);
    world.release(0, file);
    let file = (file.0, world.open(0, file.0, 0).0);
    assert_eq!(world.read(0, file, 0, 4 * PAGE as u32), [0; 4 * PAGE as usize]);
    let notified = world.mounts[0].notified.len();
    assert_eq!(world.call(0, seek(file, 0, SEEK_DATA)), Err(ENXIO));
    assert_eq!(world.mounts[0].notified.len(), notified);
}
