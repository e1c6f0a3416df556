//! Short READs, and whether the kernel would take them for the end of the file.

use crate::read_ahead::{EAGAIN, Shared};
use crate::world::O_RDWR;
use base::Duration;
use client::{Answer, Call, Input, Notify, NotifyResult};

const PAGE: u64 = 4096;
/// Two pages, and a little.
const SIZE: u64 = 2 * PAGE + 10;
/// Longer than a READ is underway.
const QUIET: Duration = Duration::from_millis(100);

fn file() -> Shared {
    let mut shared = Shared::new(SIZE).with_kernel_window();
    shared.world.pass(QUIET);
    shared
}

fn read_call(shared: &Shared, offset_bytes: u64, page_count: u64) -> Call {
    let (node, fh) = shared.files[0];
    Call::Read { node, fh, offset_bytes, byte_count: (page_count * PAGE) as u32, is_direct: false }
}

/// How many bytes come.
fn read(shared: &mut Shared, offset_bytes: u64, page_count: u64) -> Result<u64, i32> {
    let call = read_call(shared, offset_bytes, page_count);
    let answer = shared.world.call(0, call)?;
    let Answer::Bytes(bytes) = answer else { panic!("{answer:?} to a read") };
    Ok(bytes.len() as u64)
}

#[test]
fn pages_behind_the_end_are_refused_unless_it_is_a_single_one() {
    let mut shared = file();
    assert_eq!(read(&mut shared, 0, 3), Ok(SIZE));
    assert_eq!(read(&mut shared, 16 * PAGE, 2), Err(EAGAIN));
    assert_eq!(read(&mut shared, 16 * PAGE, 1), Ok(0));
}

#[test]
fn nothing_is_refused_where_no_kernel_reads_ahead() {
    let mut shared = Shared::new(SIZE);
    assert_eq!(read(&mut shared, 16 * PAGE, 2), Ok(0));
}

#[test]
fn a_short_read_that_a_notification_overtakes_is_refused() {
    let mut shared = file();
    assert_eq!(read(&mut shared, 0, 3), Ok(SIZE));
    shared.world.pass(QUIET);
    shared.world.mounts[0].is_kernel_stuck = true;
    let (node, _) = shared.files[1];
    let (fh, _) = shared.world.open(1, node, O_RDWR);
    let write = crate::world::write_call((node, fh), 5, b"other");
    let writing = shared.world.begin(1, write);
    shared.world.run();
    assert!(!shared.world.is_answered(1, writing), "the other waits for this mount's pages");
    let call = read_call(&shared, 0, 3);
    let reading = shared.world.begin(0, call);
    shared.world.mounts[0].is_kernel_stuck = false;
    for (id, _) in std::mem::take(&mut shared.world.mounts[0].stuck) {
        shared.world.input(0, Input::Notified(id, NotifyResult::Ok));
    }
    assert!(shared.world.finish(1, writing).is_ok());
    assert_eq!(shared.world.finish(0, reading), Err(EAGAIN));
    // The pages come one by one, and then the end is believed.
    assert_eq!(read(&mut shared, 0, 1), Ok(PAGE));
    assert_eq!(read(&mut shared, 2 * PAGE, 1), Ok(10));
    shared.world.pass(QUIET);
    assert_eq!(read(&mut shared, 0, 3), Ok(SIZE));
}

#[test]
fn a_page_behind_the_end_waits_for_what_was_refused_below_it() {
    let mut shared = file();
    assert_eq!(read(&mut shared, 16 * PAGE, 2), Err(EAGAIN));
    let above = read_call(&shared, 32 * PAGE, 1);
    let above = shared.world.begin(0, above);
    shared.world.run();
    assert_eq!(read(&mut shared, 16 * PAGE, 1), Ok(0), "what is below does not wait");
    assert!(!shared.world.is_answered(0, above));
    shared.world.pass(QUIET);
    assert_eq!(shared.world.finish(0, above), Ok(Answer::Bytes(bytes::Bytes::new())));
}

/// The kernel may show zeros behind an end that it does not believe, as long as it has the page.
#[test]
fn a_page_with_the_end_that_a_notification_overtakes_is_dropped_afterwards() {
    let mut shared = file();
    assert_eq!(read(&mut shared, 0, 3), Ok(SIZE));
    shared.world.pass(QUIET);
    shared.world.mounts[0].is_kernel_stuck = true;
    let (node, _) = shared.files[1];
    let (fh, _) = shared.world.open(1, node, O_RDWR);
    let write = crate::world::write_call((node, fh), 5, b"other");
    let writing = shared.world.begin(1, write);
    shared.world.run();
    shared.world.mounts[0].notified.clear();
    let call = read_call(&shared, 2 * PAGE, 1);
    let reading = shared.world.begin(0, call);
    shared.world.mounts[0].is_kernel_stuck = false;
    for (id, _) in std::mem::take(&mut shared.world.mounts[0].stuck) {
        shared.world.input(0, Input::Notified(id, NotifyResult::Ok));
    }
    assert!(shared.world.finish(1, writing).is_ok());
    let Ok(Answer::Bytes(bytes)) = shared.world.finish(0, reading) else {
        panic!("a single page is answered")
    };
    assert_eq!(bytes.len(), 10);
    let file = shared.files[0].0;
    let page = Notify::InvalInode { node: file, offset_bytes: 2 * PAGE as i64, byte_count: PAGE as i64 };
    shared.world.pass(QUIET);
    assert!(shared.world.mounts[0].notified.contains(&page), "{:?}", shared.world.mounts[0].notified);
    // What nothing overtakes stays.
    shared.world.mounts[0].notified.clear();
    assert_eq!(read(&mut shared, 2 * PAGE, 1), Ok(10));
    shared.world.pass(QUIET);
    assert!(!shared.world.mounts[0].notified.contains(&page));
}
