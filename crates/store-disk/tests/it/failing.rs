//! A device that fails for a while, and what the kernel tells of it to whom.
//!
//! It is a file system in a file of another one, in memory, which has no room for new blocks of that file while it is full. Only root can
//! make one. Without the right the tests say so.

use crate::waiting::wait_for;
use base::{Fid, ObjectId, Transno};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use store::{Batch, MetaStore, ObjectStore};
use store_disk::{MetaDisk, ObjectDisk, ObjectOptions, Options};

struct Device {
    dir: tempfile::TempDir,
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Device {
    fn make() -> Option<Device> {
        let device = Device { dir: tempfile::tempdir().unwrap() };
        let (outer, image) = (device.path("outer"), device.image());
        std::fs::create_dir(&outer).unwrap();
        std::fs::create_dir(device.mounted()).unwrap();
        let is_made = run("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs", text(&outer)])
            && std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).is_ok()
            // Without a journal, whose failure would end the file system.
            && run("mkfs.ext4", &["-q", "-b", "4096", "-O", "^has_journal", text(&image)])
            && device.mount();
        if !is_made {
            eprintln!("not run: no file system in a file can be mounted here");
        }
        is_made.then_some(device)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("outer/image")
    }

    fn mounted(&self) -> PathBuf {
        self.path("mounted")
    }

    fn mount(&self) -> bool {
        run("mount", &["-o", "loop", text(&self.image()), text(&self.mounted())])
    }

    fn unmount(&self) -> bool {
        run("umount", &[text(&self.mounted())])
    }

    /// From now on nothing is written to a block that was not written before.
    fn fail(&self) {
        let file = std::fs::File::create(self.path("outer/filler")).unwrap();
        let mut bytes = vec![1; 1 << 20];
        while !bytes.is_empty() {
            if std::io::Write::write(&mut &file, &bytes).is_err() {
                bytes.truncate(bytes.len() / 2);
            }
        }
    }

    fn mend(&self) {
        std::fs::remove_file(self.path("outer/filler")).unwrap();
    }

    /// As if the blocks of a file had never been written; what the kernel has of them stays.
    fn forget_blocks(&self, file: &Path) {
        let listed = Command::new("filefrag").args(["-v", "-b4096", text(file)]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let mut count = 0;
        for line in listed.lines() {
            let fields: Vec<&str> = line.split(':').map(str::trim).collect();
            let [_, _, physical, length, ..] = fields[..] else { continue };
            let (Some((start, _)), Ok(length)) = (physical.split_once(".."), length.parse::<u64>()) else {
                continue;
            };
            let start: u64 = start.trim().parse().unwrap();
            let (start, length) = ((start * 4096).to_string(), (length * 4096).to_string());
            assert!(run("fallocate", &["-p", "-o", &start, "-l", &length, text(&self.image())]));
            count += 1;
        }
        assert!(count > 0, "{listed}");
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for name in ["mounted", "outer"] {
            let _ = Command::new("umount").arg("-l").arg(self.path(name)).output();
        }
    }
}

fn object(n: u32) -> ObjectId {
    ObjectId { fid: Fid { oid: n, ..Fid::ROOT }, component: 0, stripe: 0 }
}

/// Whoever has been killed is not told of what became of it, if a neighbour was told.
#[test]
fn what_a_neighbour_was_told_of_a_device_is_not_believed_to_be_there() {
    let Some(device) = Device::make() else { return };
    let options = ObjectOptions {
        heard_directory: Some(device.path("heard")),
        sync_interval: Duration::from_secs(3600),
        ..ObjectOptions::default()
    };
    let open = |name: &str| {
        let path = device.mounted().join(name);
        ObjectDisk::open(&path, &options, Arc::new(|| ())).unwrap()
    };
    // Each was served before.
    for name in ["killed", "neighbour"] {
        open(name).kick();
    }
    let (killed, neighbour) = (open("killed"), open("neighbour"));
    killed.kick();
    assert_eq!(neighbour.sync_left(), Ok(true));
    neighbour.kick();
    drop(killed);
    let killed = open("killed");
    assert_eq!(killed.sync_left(), Ok(true), "nothing was lost before");
    killed.write(&object(1), 0, &[1; 1 << 20]).unwrap();
    drop(killed);
    device.fail();
    // Many, so that they are synced with all that there is.
    for n in 0..100 {
        neighbour.write(&object(n), 0, &[2; 4096]).unwrap();
    }
    neighbour.kick();
    wait_for("the fence", || neighbour.is_poisoned());
    device.mend();
    let killed = open("killed");
    assert_eq!(killed.sync_left(), Ok(false));
}

/// A log that a failed sync has left looks as if it were on the device, and a later sync finds nothing to write.
#[test]
fn a_log_whose_sync_has_failed_is_on_the_device_when_it_counts_as_durable() {
    let Some(device) = Device::make() else { return };
    let path = device.mounted().join("meta");
    let open = || MetaDisk::open_or_create(&path, &Options::default(), Arc::new(|| ())).unwrap();
    let put = |store: &MetaDisk, t: u64, value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(1, &t.to_be_bytes(), value);
        store.apply(Transno(t), &batch).unwrap();
        store.kick();
    };
    let store = open();
    put(&store, 1, b"as it was");
    wait_for("a sync", || store.durable() == Transno(1));
    let segments: Vec<PathBuf> =
        std::fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let value = [0xa7; 500];
    let in_logs = || {
        let has = |path: &PathBuf| std::fs::read(path).unwrap().windows(500).any(|found| found == value);
        segments.iter().filter(|path| has(path)).count()
    };
    segments.iter().for_each(|segment| device.forget_blocks(segment));
    device.fail();
    put(&store, 2, &value);
    wait_for("the fence", || store.pressure().poisoned);
    device.mend();
    drop(store);
    let store = open();
    assert_eq!(store.durable(), Transno(2));
    drop(store);
    assert_eq!(in_logs(), 1, "in the kernel's memory");
    assert!(device.unmount() && device.mount(), "nobody else uses it");
    assert_eq!(in_logs(), 1, "on the device");
}
