//! The blocks of large objects that are removed.
//!
//! unlink(2) of a file that nobody has open frees its blocks before it returns: for 100 GiB these are thousands of extents and bitmaps,
//! seconds on a cold disk in which nothing of the target is answered. So a large one is opened before, and a thread closes it. The name
//! is gone as durably as without that. A file without a name that a crash finds open is on the list of orphans of its file
//! system, which frees it when it is mounted; and the kernel does it for a process that ends.
//!
//! Where unlink(2) of an open file only renames it until it is closed (NFS, as `.nfs` and a number), a server that is
//! fenced in between would leave all of it to nobody: there who removes waits.

use super::Shared;
use crate::device;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use store::Space;

/// What takes less than this is freed at once: a few extents.
const LARGE_BYTES: u64 = 64 << 20;
/// Files that wait for it; each is a descriptor. What comes beyond them is freed by who removes it, no faster than the device can.
const WAITING_MAX: usize = 256;
/// Where less than this part of the device is available, who removes is waited for: who is refused for want of room may have removed
/// something to get it.
const ROOM_SHARE: u64 = 32;

#[derive(Default)]
pub(super) struct Freeing {
    sender: Mutex<Option<Sender<File>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    waiting_count: Arc<AtomicUsize>,
}

impl Freeing {
    pub fn start(shared: &Arc<Shared>) -> io::Result<Freeing> {
        let (sender, receiver) = channel();
        let waiting_count = Arc::new(AtomicUsize::new(0));
        let of_thread = (Arc::clone(shared), Arc::clone(&waiting_count));
        let thread = std::thread::Builder::new()
            .name("object-free".to_string())
            .spawn(move || run(&of_thread.0, &of_thread.1, &receiver))?;
        Ok(Freeing { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), waiting_count })
    }

    /// A file that is about to lose its name, if its blocks are to be freed by the thread.
    pub fn open(&self, path: &Path, space: impl FnOnce() -> Space) -> Option<File> {
        let is_large = std::fs::symlink_metadata(path).is_ok_and(|found| found.blocks() * 512 >= LARGE_BYTES);
        if !is_large || self.waiting_count() >= WAITING_MAX || !has_room(&space()) {
            return None;
        }
        // Without a descriptor it is done as ever.
        let file = device::open_to_read(path).ok()?;
        device::is_name_removed_at_once(&file).is_ok_and(|is_removed| is_removed).then_some(file)
    }

    /// It has lost its name.
    pub fn free(&self, file: File) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            self.waiting_count.fetch_add(1, Ordering::Relaxed);
            // Where nobody takes it, it is closed here.
            if sender.send(file).is_err() {
                self.waiting_count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    pub fn waiting_count(&self) -> usize {
        self.waiting_count.load(Ordering::Relaxed)
    }

    /// Waits for what is to be freed: nothing of the target is to be in use when it has ended.
    pub fn stop(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that frees removed objects panicked");
        }
    }
}

fn has_room(space: &Space) -> bool {
    space.avail_bytes > space.total_bytes / ROOM_SHARE
}

fn run(shared: &Shared, waiting_count: &AtomicUsize, files: &Receiver<File>) {
    for file in files {
        device::close_removed(file);
        shared.space.forget();
        waiting_count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_for_want_of_room_is_waited_for() {
        let space = |avail_bytes| Space { total_bytes: 32 << 30, avail_bytes, ..Space::default() };
        assert!(has_room(&space(2 << 30)));
        assert!(!has_room(&space(1 << 30)));
        assert!(!has_room(&Space::default()), "nothing is known of it");
    }
}
