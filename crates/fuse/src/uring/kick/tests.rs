#![allow(clippy::unwrap_used)]

use super::*;
use std::fs;
use std::path::PathBuf;

/// The thread of [`start`] as /proc shows it.
fn kicker() -> Option<PathBuf> {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    threads
        .into_iter()
        .find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "fuse-kick\n"))
}

fn descriptor_count(thread: &Path) -> usize {
    fs::read_dir(thread.join("fd")).unwrap().count()
}

#[test]
fn a_thread_that_kicks_holds_no_descriptor() {
    let (kickers, taken_count) = (Arc::new(Kickers::default()), Arc::default());
    // It gets no further than to here.
    let held = kickers.ids();
    start(&kickers, &taken_count, Path::new("/"), sys::allowed_cpus().unwrap()[0]);
    let begun = std::time::Instant::now();
    while kicker().is_none_or(|thread| descriptor_count(&thread) > 0) {
        assert!(begun.elapsed().as_secs() < 30, "it keeps its descriptors");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(descriptor_count(Path::new("/proc/thread-self")) > 0, "ours are as before");
    drop(held);
    while Arc::strong_count(&kickers) > 1 {
        assert!(begun.elapsed().as_secs() < 30, "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}
