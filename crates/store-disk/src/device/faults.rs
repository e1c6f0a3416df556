//! Devices that fail, for the tests of this crate.

use base::Extent;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Open,
    Read,
    Write,
    LaterWrite,
    RefusedWrite,
    WriteToHole,
    Sync,
    SyncFileSystem,
    Allocate,
    AllocateWithin,
    Clear,
    SetLength,
    Free,
    Statfs,
}

static FAILING: Mutex<Vec<(Call, PathBuf)>> = Mutex::new(Vec::new());

fn fail(call: Call, path: &Path) {
    FAILING.lock().expect("no test panics inside").push((call, path.to_path_buf()));
}

/// From now on there is no descriptor for anything below this directory.
pub fn fail_opens_below(path: &Path) {
    fail(Call::Open, path);
}

/// From now on no file below this directory can be read.
pub fn fail_reads_below(path: &Path) {
    fail(Call::Read, path);
}

/// From now on every write to a file below this directory fails.
pub fn fail_writes_below(path: &Path) {
    fail(Call::Write, path);
}

/// One more write to a file below this directory is done, and no other.
pub fn fail_writes_but_one_below(path: &Path) {
    fail(Call::LaterWrite, path);
}

/// From now on no file below this directory gets a block, and each that is written again needs one.
pub fn refuse_writes_below(path: &Path) {
    fail(Call::RefusedWrite, path);
}

/// From now on no file below this directory gets a block, and none is needed for what it has.
pub fn refuse_writes_to_holes_below(path: &Path) {
    fail(Call::WriteToHole, path);
}

/// From now on every sync of a file below this directory fails.
pub fn fail_syncs_below(path: &Path) {
    fail(Call::Sync, path);
}

/// From now on every sync of the file system of a directory below this one fails, and no sync of a file does.
pub fn fail_file_system_syncs_below(path: &Path) {
    fail(Call::SyncFileSystem, path);
}

/// From now on no file below this directory gets room.
pub fn fail_allocations_below(path: &Path) {
    fail(Call::Allocate, path);
}

/// From now on no file below this directory gets room, since its user may not use more.
pub fn refuse_allocations_below(path: &Path) {
    fail(Call::AllocateWithin, path);
}

/// From now on no fallocate(2) that clears a part of a file below this directory comes further than to the block in its
/// middle.
pub fn halve_clears_below(path: &Path) {
    fail(Call::Clear, path);
}

/// From now on no file below this directory gets another length.
pub fn fail_lengths_below(path: &Path) {
    fail(Call::SetLength, path);
}

/// From now on no file that was below this directory is freed.
pub fn hold_frees_below(path: &Path) {
    fail(Call::Free, path);
}

/// From now on statfs(2) says of everything below this directory that it is on NFS.
pub fn claim_nfs_below(path: &Path) {
    fail(Call::Statfs, path);
}

pub fn mend(path: &Path) {
    FAILING.lock().expect("no test panics inside").retain(|(_, failing)| failing != path);
}

fn check(call: Call, file: &File) -> io::Result<()> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    check_path(call, &path, libc::EIO)
}

fn check_path(call: Call, path: &Path, errno: i32) -> io::Result<()> {
    let failing = FAILING.lock().expect("no test panics inside");
    let is_failing =
        failing.iter().any(|(failing, directory)| *failing == call && path.starts_with(directory));
    if is_failing { Err(io::Error::from_raw_os_error(errno)) } else { Ok(()) }
}

pub(crate) fn check_open(path: &Path) -> io::Result<()> {
    check_path(Call::Open, path, libc::EMFILE)
}

pub(super) fn check_read(file: &File) -> io::Result<()> {
    // Far more often than any of the others.
    let is_any = FAILING.lock().expect("no test panics inside").iter().any(|(call, _)| *call == Call::Read);
    if is_any { check(Call::Read, file) } else { Ok(()) }
}

pub(super) fn check_write(file: &File, part: Extent) -> io::Result<()> {
    check(Call::RefusedWrite, file).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))?;
    check_hole(file, part)?;
    check(Call::Write, file)?;
    if check(Call::LaterWrite, file).is_err() {
        let mut failing = FAILING.lock().expect("no test panics inside");
        let later = failing.iter_mut().filter(|(call, _)| *call == Call::LaterWrite);
        later.for_each(|(call, _)| *call = Call::Write);
    }
    Ok(())
}

fn check_hole(file: &File, part: Extent) -> io::Result<()> {
    if check(Call::WriteToHole, file).is_err()
        && super::seek(file, part.start, libc::SEEK_HOLE)?.is_none_or(|hole| hole < part.end)
    {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    Ok(())
}

pub(super) fn check_sync(file: &File) -> io::Result<()> {
    check(Call::Sync, file)
}

pub(super) fn check_sync_file_system(file: &File) -> io::Result<()> {
    check(Call::Sync, file)?;
    check(Call::SyncFileSystem, file)
}

pub(super) fn is_on_nfs(file: &File) -> bool {
    check(Call::Statfs, file).is_err()
}

pub(super) fn wait_to_free(file: &File) {
    while check(Call::Free, file).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

thread_local! {
    static CLEAR_COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    static LISTING_COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(crate) fn note_listing() {
    LISTING_COUNT.set(LISTING_COUNT.get() + 1);
}

/// How often this thread has read a directory of objects since it asked last.
pub fn take_listing_count() -> usize {
    LISTING_COUNT.take()
}

/// How often this thread has cleared a part of a file since it asked last.
pub fn take_clear_count() -> usize {
    CLEAR_COUNT.take()
}

/// No device is lost for want of room.
pub(super) fn check_clear(file: &File) -> io::Result<()> {
    CLEAR_COUNT.set(CLEAR_COUNT.get() + 1);
    check(Call::Clear, file).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))
}

pub(super) fn check_set_length(file: &File) -> io::Result<()> {
    check(Call::SetLength, file).map_err(|_| io::Error::from_raw_os_error(libc::ENOSPC))
}

pub(super) fn check_allocate(file: &File, part: Extent) -> io::Result<()> {
    check_hole(file, part)?;
    check(Call::AllocateWithin, file).map_err(|_| io::Error::from_raw_os_error(libc::EDQUOT))?;
    check(Call::Allocate, file)
}
