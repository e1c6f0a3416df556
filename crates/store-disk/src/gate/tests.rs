#![allow(clippy::unwrap_used)]

use super::*;
use crate::device::{self, Syncing};
use crate::holdings::HoldingsFile;
use crate::log::{create_segment, reached};
use crate::space::Ballast;
use crate::waiting::wait_for;
use crate::{MetaDisk, ObjectDisk, ObjectOptions, Options, Superblock, TargetDirectory};
use base::{Epoch, Fid, ObjectId, TargetId, Transno};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::ThreadId;
use store::{Holdings, ObjectStore, Space};

/// Threads that the gate has held back.
static WAITED: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());

pub(super) fn note_wait() {
    let mut waited = WAITED.lock().unwrap();
    let thread = std::thread::current().id();
    if !waited.contains(&thread) {
        waited.push(thread);
    }
}

/// Closes the gate. Opens it when the test ends, however it does.
struct Closed;

impl Closed {
    fn new() -> Closed {
        may_write_until(0);
        Closed
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        may_write_until(u64::MAX);
    }
}

/// What is below a directory: lengths and checksums of files, `None` for a directory.
fn tree(directory: &Path) -> BTreeMap<PathBuf, Option<(usize, u32)>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut tree(&path));
            found.insert(path, None);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path, Some((bytes.len(), crc32c::crc32c(&bytes))));
        }
    }
    found
}

/// A change of what is in a directory of its own, which begins when it is told to.
struct Change {
    name: &'static str,
    directory: tempfile::TempDir,
    run: Box<dyn FnOnce() + Send>,
}

/// `prepare` makes what has to be there before, and returns the change.
fn change<Run: FnOnce() + Send + 'static>(
    name: &'static str,
    prepare: impl FnOnce(PathBuf) -> Run,
) -> Change {
    let directory = tempfile::tempdir().unwrap();
    let run = Box::new(prepare(directory.path().to_path_buf()));
    Change { name, directory, run }
}

fn object() -> ObjectId {
    ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 }
}

/// With an object, if that is to be there; and with nothing to do of its own.
fn objects(directory: &Path, has_object: bool) -> ObjectDisk {
    let open = || ObjectDisk::open(directory, &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    if has_object {
        let disk = open();
        disk.write(&object(), 0, &[1; 10_000]).unwrap();
        disk.close();
    }
    open()
}

fn target(directory: &Path) -> TargetDirectory {
    let superblock = Superblock::new("sheen", TargetId::ost(3)).unwrap();
    TargetDirectory::create(&directory.join("target"), superblock, &[]).unwrap()
}

/// The calls of `device`, which are all that changes a disk (`clippy.toml`).
fn calls() -> Vec<Change> {
    let with_file = |directory: &Path| {
        std::fs::write(directory.join("file"), [1; 100]).unwrap();
        (directory.join("file"), device::open(&directory.join("file"), false).unwrap())
    };
    vec![
        change("open", |at| move || drop(device::open(&at.join("new"), true).unwrap())),
        change("create", |at| move || drop(device::create(&at.join("new")).unwrap())),
        change("make_directory", |at| move || device::make_directory(&at.join("new")).unwrap()),
        change("make_directories", |at| move || device::make_directories(&at.join("new/er")).unwrap()),
        change("write_all", |at| {
            let (_, file) = with_file(&at);
            move || device::write_all(&file, b"other", 0).unwrap()
        }),
        change("allocate", |at| {
            let (_, file) = with_file(&at);
            move || device::allocate(&file, 0, 0, 8192).unwrap()
        }),
        change("set_length", |at| {
            let (_, file) = with_file(&at);
            move || device::set_length(&file, 0).unwrap()
        }),
        change("remove", |at| {
            let (path, _) = with_file(&at);
            move || device::remove(&path).unwrap()
        }),
        change("rename", |at| {
            let (path, _) = with_file(&at);
            move || device::rename(&path, &at.join("other")).unwrap()
        }),
    ]
}

/// What a target does to its directory, each with its first change.
fn changes_of_targets() -> Vec<Change> {
    let space = Space { total_bytes: 64 << 20, avail_bytes: 64 << 20, ..Space::default() };
    vec![
        change("an object is made", |at| {
            let disk = objects(&at, false);
            move || disk.write(&object(), 0, b"new").unwrap()
        }),
        change("an object is written", |at| {
            let disk = objects(&at, true);
            move || disk.write(&object(), 0, b"other").unwrap()
        }),
        change("an object is cut", |at| {
            let disk = objects(&at, true);
            move || disk.truncate(&object(), 5).unwrap()
        }),
        change("rows are made", |at| move || MetaDisk::create(&at, &Options::default()).unwrap()),
        change("a segment is made", |at| {
            move || {
                drop(create_segment(&at, 1 << 20, Syncing::Skipped, &Ballast::none(), false).unwrap());
            }
        }),
        change("how far a log reaches is noted", |at| {
            move || reached::write(&at, Transno(7), Syncing::Real).unwrap()
        }),
        change("the ballast is taken", move |at| {
            move || {
                drop(Ballast::take(at.join("ballast"), &space));
            }
        }),
        change("the ballast is given up", |at| {
            let ballast = Ballast::take(at.join("ballast"), &space);
            move || assert!(ballast.release())
        }),
        change("a target is made", |at| move || drop(target(&at))),
        change("a target is locked", |at| {
            drop(target(&at));
            std::fs::write(at.join("target/lock"), "of before").unwrap();
            move || drop(crate::directory::lock(&at.join("target")).unwrap())
        }),
        change("what clients hold is noted", |at| {
            move || HoldingsFile::new(at.join("held"), 1).begin(Epoch(1), &[], true)
        }),
    ]
}

/// A server that was replaced while it stood still: whatever its threads were about to do, the disk is another's.
#[test]
fn nothing_changes_a_disk_while_the_gate_is_closed() {
    let (mut names, mut directories, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    for Change { name, directory, run } in calls().into_iter().chain(changes_of_targets()) {
        names.push(name);
        directories.push(directory);
        runs.push(run);
    }
    let start = Arc::new(Barrier::new(runs.len() + 1));
    let threads: Vec<_> = runs
        .into_iter()
        .map(|run| {
            let start = start.clone();
            std::thread::spawn(move || {
                start.wait();
                run();
            })
        })
        .collect();
    let trees = || directories.iter().map(|directory| tree(directory.path())).collect::<Vec<_>>();
    let before = trees();
    let closed = Closed::new();
    start.wait();
    let has_waited = |id| WAITED.lock().unwrap().contains(&id);
    wait_for("the end of each or its wait", || {
        threads.iter().all(|thread| thread.is_finished() || has_waited(thread.thread().id()))
    });
    let has_ended: Vec<bool> = threads.iter().map(std::thread::JoinHandle::is_finished).collect();
    let meanwhile = trees();
    drop(closed);
    let is_sound: Vec<bool> = threads.into_iter().map(|thread| thread.join().is_ok()).collect();
    let after = trees();
    let mut wrong = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let all = [
            (!is_sound[at], "it has failed"),
            (has_ended[at], "it was not held back"),
            (before[at] != meanwhile[at], "something was changed while the gate was closed"),
            (before[at] == after[at], "this case shows nothing"),
        ];
        wrong.extend(all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
