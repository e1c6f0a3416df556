//! The stores of all targets, open for reading or for a repair.

use crate::target_dir::TargetDir;
use anyhow::{Context, Result, bail};
use base::{TargetId, TargetKind};
use fsck::{Finding, Kind, Repair};
use std::error::Error as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use store::{MemoryMeta, MemoryObjects, MetaStore, ObjectStore};
use store_disk::{MetaDisk, MetaReader, ObjectDisk, ObjectOptions, OpenError, Options};

/// Memory for each target's rows while they are read in order.
const CACHE_BYTES: usize = 32 << 20;
const RESTORE: &str = "restore this target from its mirror or backup";

enum Meta {
    /// Nothing was ever kept here.
    Empty(MemoryMeta),
    Reader(MetaReader),
    Disk(MetaDisk),
    Damaged(Finding),
}

struct Opened<'a> {
    dir: &'a TargetDir,
    meta: Meta,
    objects: Option<Box<dyn ObjectStore>>,
}

pub struct Stores<'a> {
    opened: Vec<Opened<'a>>,
}

impl<'a> Stores<'a> {
    /// # Errors
    /// A device refuses; damage is no error here.
    pub fn open_to_read(dirs: &'a [TargetDir]) -> Result<Stores<'a>> {
        let open = |dir: &'a TargetDir| -> Result<Opened<'a>> {
            let meta = read_meta(dir)?;
            let objects: Option<Box<dyn ObjectStore>> = match dir.id.kind {
                TargetKind::Ost if ObjectDisk::is_there(&dir.objects_path()) => {
                    Some(Box::new(ObjectDisk::open_to_read(&dir.objects_path())?))
                }
                TargetKind::Ost if dir.lost_store().is_none() => Some(Box::new(MemoryObjects::new())),
                // The findings say so.
                _ => None,
            };
            Ok(Opened { dir, meta, objects })
        };
        Ok(Stores { opened: dirs.iter().map(open).collect::<Result<_>>()? })
    }

    /// As a server opens them: logs are put into the bases.
    ///
    /// # Errors
    /// A store cannot be opened.
    pub fn open_to_repair(dirs: &'a [TargetDir]) -> Result<Stores<'a>> {
        let open = |dir: &'a TargetDir| -> Result<Opened<'a>> {
            let cannot = || format!("cannot open {} for a repair", dir.path.display());
            let meta = if is_empty(&dir.meta_path())? {
                Meta::Empty(MemoryMeta::new())
            } else {
                let options = Options { cache_bytes: CACHE_BYTES, ..Options::default() };
                let disk = MetaDisk::open(&dir.meta_path(), &options, Arc::new(|| ()));
                Meta::Disk(disk.with_context(cannot)?)
            };
            let objects: Option<Box<dyn ObjectStore>> = match dir.id.kind {
                TargetKind::Ost if dir.objects_path().exists() => {
                    // What it is told of the device, targets that are served there are not told of any more.
                    let heard_directory = Some(crate::targets::heard_dir());
                    let options = ObjectOptions { heard_directory, ..ObjectOptions::default() };
                    let disk = ObjectDisk::open(&dir.objects_path(), &options, Arc::new(|| ()));
                    Some(Box::new(disk.with_context(cannot)?))
                }
                TargetKind::Ost => Some(Box::new(MemoryObjects::new())),
                _ => None,
            };
            Ok(Opened { dir, meta, objects })
        };
        Ok(Stores { opened: dirs.iter().map(open).collect::<Result<_>>()? })
    }

    pub fn targets(&self) -> Vec<fsck::Target<'_>> {
        self.opened.iter().map(Opened::target).collect()
    }

    /// What the stores themselves say, after they were read.
    ///
    /// # Errors
    /// A device refuses.
    pub fn findings(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for opened in &self.opened {
            if opened.dir.id.kind == TargetKind::Ost && opened.objects.is_none() {
                findings.push(objects_lost(opened.dir));
            }
            match &opened.meta {
                Meta::Damaged(finding) => findings.push(finding.clone()),
                Meta::Reader(reader) => reader_findings(opened.dir, reader, &mut findings)?,
                Meta::Empty(_) | Meta::Disk(_) => {}
            }
        }
        Ok(findings)
    }

    /// # Errors
    /// The store is not open, or fails.
    pub fn recount(&self, id: TargetId) -> Result<()> {
        for opened in self.opened.iter().filter(|opened| opened.dir.id == id) {
            if let Meta::Disk(disk) = &opened.meta {
                disk.recount().with_context(|| format!("cannot repair {}", opened.dir.path.display()))?;
            }
        }
        Ok(())
    }

    /// Everything is durable afterwards.
    ///
    /// # Errors
    /// A device has failed to keep what was changed. What is read back from the memory of the kernel says nothing of that.
    pub fn close(self) -> Result<()> {
        let mut unkept = None;
        for opened in &self.opened {
            let mut is_kept = true;
            if let Some(objects) = &opened.objects {
                objects.close();
                is_kept &= !objects.is_poisoned() && objects.durable() >= objects.written();
            }
            if let Some(meta) = opened.meta.store() {
                meta.close();
                is_kept &= meta.durable() >= meta.applied();
            }
            if !is_kept {
                unkept = unkept.or(Some(opened.dir));
            }
        }
        match unkept {
            Some(dir) => bail!(
                "{} in {} is not repaired for sure: its device failed to keep it",
                dir.id,
                dir.path.display()
            ),
            None => Ok(()),
        }
    }
}

impl Opened<'_> {
    fn target(&self) -> fsck::Target<'_> {
        let Opened { dir, meta, objects } = self;
        fsck::Target { id: dir.id, uuid: Some(dir.uuid), meta: meta.store(), objects: objects.as_deref() }
    }
}

impl Meta {
    fn store(&self) -> Option<&dyn MetaStore> {
        match self {
            Meta::Empty(store) => Some(store),
            Meta::Reader(store) => Some(store),
            Meta::Disk(store) => Some(store),
            Meta::Damaged(_) => None,
        }
    }
}

/// Whether a target was never served: it has neither a base nor a log.
fn is_empty(meta: &Path) -> Result<bool> {
    if meta.join("index").exists() {
        return Ok(false);
    }
    match fs::read_dir(meta.join("log")) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", meta.display())),
    }
}

fn objects_lost(dir: &TargetDir) -> Finding {
    let subject = dir.objects_path().display().to_string();
    let what = "it is missing, and this target was served".to_owned();
    Finding::new(Kind::ObjectsLost, dir.id, subject, what, Repair::Not(RESTORE))
}

fn read_meta(dir: &TargetDir) -> Result<Meta> {
    let path = dir.meta_path();
    if is_empty(&path)? {
        let Some(lost) = dir.lost_store() else { return Ok(Meta::Empty(MemoryMeta::new())) };
        let subject = lost.display().to_string();
        let what = "it is missing, and this target was served".to_owned();
        let finding = Finding::new(Kind::IndexDamaged, dir.id, subject, what, Repair::Not(RESTORE));
        return Ok(Meta::Damaged(finding));
    }
    let kind = match MetaReader::open(&path, CACHE_BYTES) {
        Ok(reader) => return Ok(Meta::Reader(reader)),
        Err(error) if is_of_process(&error) => return Err(error.into()),
        Err(error @ OpenError::Base(_)) => (Kind::IndexDamaged, error),
        Err(error @ OpenError::Log(_)) => (Kind::LogDamaged, error),
        Err(error) => return Err(error.into()),
    };
    let (kind, error) = kind;
    let subject = match kind {
        Kind::IndexDamaged => path.join("index"),
        _ => path.join("log"),
    };
    let what = crate::one_line(&format!("{:#}", anyhow::Error::from(error)));
    Ok(Meta::Damaged(Finding::new(kind, dir.id, subject.display().to_string(), what, Repair::Not(RESTORE))))
}

/// Whether it is this process that may not read, or cannot just now: that says nothing of what is on the disk.
fn is_of_process(error: &OpenError) -> bool {
    const KINDS: [i32; 5] = [libc::EACCES, libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    let mut source = error.source();
    while let Some(error) = source {
        if error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
            .is_some_and(|errno| KINDS.contains(&errno))
        {
            return true;
        }
        source = error.source();
    }
    false
}

fn reader_findings(dir: &TargetDir, reader: &MetaReader, findings: &mut Vec<Finding>) -> Result<()> {
    let index = dir.meta_path().join("index");
    let cannot = || format!("cannot read {}", index.display());
    let damaged = reader.damaged_parts().with_context(cannot)?;
    for part in &damaged {
        let what = format!("bytes {part} fail their checksum");
        let finding =
            Finding::new(Kind::IndexDamaged, dir.id, index.display().to_string(), what, Repair::Not(RESTORE));
        findings.push(finding);
    }
    // Of a base that cannot be read no count is right.
    if let (true, Ok((noted, counted))) = (damaged.is_empty(), reader.counted_bytes())
        && noted != counted
    {
        let what = format!("it counts {noted} bytes of rows and has {counted}");
        let repair = Repair::of_store("count them");
        let subject = index.display().to_string();
        findings.push(Finding::new(Kind::SpaceCounterWrong, dir.id, subject, what, repair));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_may_not_read_has_found_no_damage() {
        let of = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            is_of_process(&OpenError::Io { path: "log".into(), source })
        };
        assert!(of(libc::EACCES) && of(libc::EMFILE));
        assert!(!of(libc::EIO), "the device says so");
    }

    #[test]
    fn a_repair_that_its_device_has_not_kept_is_none() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("mdt");
        crate::target_dir::make(&path, TargetId::mdt(0), "fs", &["127.0.0.1:1".to_owned()]).unwrap();
        let dir = crate::target_dir::open(&path).unwrap();
        let object = base::ObjectId { fid: base::Fid::ROOT, component: 1, stripe: 0 };
        for (is_meta_failing, is_failing) in [(false, false), (true, true), (false, true)] {
            let (store, objects) = (MemoryMeta::new(), MemoryObjects::new());
            let mut batch = store::Batch::new();
            batch.put(1, b"key", b"value");
            store.apply(store.applied().next(), &batch).unwrap();
            objects.write(&object, 0, b"bytes").unwrap();
            store.set_failing(is_meta_failing);
            objects.set_failing(is_failing && !is_meta_failing);
            let objects: Option<Box<dyn ObjectStore>> = Some(Box::new(objects));
            let opened = vec![Opened { dir: &dir, meta: Meta::Empty(store), objects }];
            let said = Stores { opened }.close().err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(
                said.contains("MDT0000 in") && said.contains("failed to keep it"),
                is_failing,
                "{said}"
            );
        }
    }
}
