//! What is done about damage: changes that lose nothing, each a transaction of the target that it is on.
//!
//! One can bring more to light: a name that goes leaves a directory with a wrong count. So a repair is followed by a check,
//! until nothing is left that can be repaired. Between two targets a crash leaves what the next check finds.

use crate::finding::{Finding, Repair};
use crate::image::{Image, Mdt, Xattrs};
use crate::{Options, Report, Target, Watch, check};
use base::names::name_hash;
use base::{Attr, Epoch, Fid, FileType, ObjectId, Status, TargetId, Transno, Version, WallTime};
use mds::op::DIRECTORY_SIZE_BYTES;
use mds::rows::{self, Dentry, Inode};
use mds::tx::Tx;
use oss::rows as ost_rows;
use std::collections::BTreeSet;
use store::{Batch, StoreError, Table};
use target::core::inspect;

/// The directory for what has lost its names, and its name in the root. Epoch 0 serves nothing, so its FIDs are free: this one is that of
/// the first such directory, and where somebody has renamed that, the next one gets the next.
pub const LOST_AND_FOUND: Fid = Fid { seq: Fid::SEQ_NORMAL, oid: 1, ver: 0 };
const LOST_AND_FOUND_NAME: &[u8] = b"lost+found";

/// One change of one target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Put {
        target: TargetId,
        table: Table,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// The rest of the fix is left out when there is a row already.
    PutNew {
        target: TargetId,
        table: Table,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Delete {
        target: TargetId,
        table: Table,
        key: Vec<u8>,
    },
    DeletePrefix {
        target: TargetId,
        table: Table,
        prefix: Vec<u8>,
    },
    Inode {
        target: TargetId,
        fid: Fid,
        edit: Edit,
    },
    Epoch {
        target: TargetId,
        epoch: Epoch,
    },
    /// The object, and what its OST has noted of it. No tombstone is made: nobody can come back and write to it, and its file may get
    /// an object of this name again.
    Destroy {
        target: TargetId,
        object: ObjectId,
    },
    /// The object gets another name, as its OST does it when its file has moved to another MDT.
    Adopt {
        target: TargetId,
        object: ObjectId,
        to: ObjectId,
    },
    /// A directory of which only names are left, with its owner.
    MakeDirectory {
        target: TargetId,
        fid: Fid,
        owner: (u32, u32),
    },
    /// The directory for what has lost its names, with this FID, unless it is there.
    MakeLostAndFound {
        fid: Fid,
    },
}

/// A change of an inode's row, as that is by then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Edit {
    LinkCount(u32),
    OneMoreLink,
    Xattrs(Xattrs),
    SizeUnknown,
    /// A stripe takes over what its master has.
    Follow(Box<Inode>),
}

/// Why a repair ended early. What was done until then is whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    #[error("{target} cannot be repaired")]
    Store { target: TargetId, source: StoreError },
    #[error("{target} cannot be repaired: a row that a repair needs is not readable ({})", .status.text())]
    Row { target: TargetId, status: Status },
    #[error("{target} is not open for a repair")]
    NotOpen { target: TargetId },
}

impl Step {
    fn target(&self) -> TargetId {
        match self {
            Step::Put { target, .. }
            | Step::PutNew { target, .. }
            | Step::Delete { target, .. }
            | Step::DeletePrefix { target, .. }
            | Step::Inode { target, .. }
            | Step::Epoch { target, .. }
            | Step::Destroy { target, .. }
            | Step::Adopt { target, .. }
            | Step::MakeDirectory { target, .. } => *target,
            Step::MakeLostAndFound { .. } => TargetId::mdt(0),
        }
    }
}

/// Steps that name an inode in the directory for such; `None` when there cannot be one.
pub(crate) fn into_lost_and_found(image: &Image, inode: &Inode) -> Option<Vec<Step>> {
    let (fid, mdt0) = (inode.attr.fid, TargetId::mdt(0));
    let root = image.mdts.get(&0).filter(|mdt| mdt.is_whole && mdt.inodes.contains_key(&Fid::ROOT))?;
    let name = (Fid::ROOT, name_hash(LOST_AND_FOUND_NAME), LOST_AND_FOUND_NAME.to_vec());
    let (place, mut steps) = match root.dentries.get(&name) {
        None => {
            let mut fids = (LOST_AND_FOUND.oid..).map(|oid| Fid { oid, ..LOST_AND_FOUND });
            let fid = fids.find(|fid| is_free(root, *fid))?;
            (fid, vec![Step::MakeLostAndFound { fid }])
        }
        Some(Some(dentry)) if is_plain_directory(root.inodes.get(&dentry.fid)?) => (dentry.fid, Vec::new()),
        _ => return None,
    };
    let (own, called) = (TargetId::mdt(fid.mdt_index()?), fid.to_string());
    let file_type = inode.attr.file_type;
    let key = rows::dentry_key(place, called.as_bytes());
    let value = rows::encode(&Dentry { fid, file_type });
    steps.push(Step::PutNew { target: mdt0, table: rows::DENTRIES, key, value });
    if file_type == FileType::Directory {
        steps.push(Step::Inode { target: mdt0, fid: place, edit: Edit::OneMoreLink });
    }
    steps.push(Step::DeletePrefix { target: own, table: rows::LINKS, prefix: fid.key().to_vec() });
    let key = rows::link_key(fid, place, called.as_bytes());
    steps.push(Step::Put { target: own, table: rows::LINKS, key, value: Vec::new() });
    if file_type != FileType::Directory {
        steps.push(Step::Inode { target: own, fid, edit: Edit::LinkCount(1) });
    }
    Some(steps)
}

/// Whether an MDT has nothing of an inode, nor had it before another one got it.
fn is_free(mdt: &Mdt, fid: Fid) -> bool {
    let is_known = mdt.has(fid) || mdt.orphans.contains(&fid) || mdt.moved.contains_key(&fid);
    !is_known && !mdt.links.contains_key(&fid) && !mdt.xattrs.contains_key(&fid)
}

fn is_plain_directory(inode: &Inode) -> bool {
    inode.attr.file_type == FileType::Directory && inode.stripes.is_empty()
}

/// Repairs what a check has found and what can be repaired, and what that brings to light. Returns how many findings that were;
/// another check tells what is left.
///
/// # Errors
/// A store fails, or is not open for changes; what was repaired before that stays.
pub fn repair_all(
    targets: &[Target<'_>],
    options: &Options,
    found: &Report,
    now: WallTime,
    watch: Watch<'_>,
) -> Result<u64, RepairError> {
    let mut repaired_count = 0;
    // Whatever a repair does not end is left: nothing is done twice.
    let mut done: BTreeSet<String> = BTreeSet::new();
    let mut later;
    let mut report = found;
    loop {
        let before = repaired_count;
        for finding in report.findings.iter().filter(|finding| finding.repair.is_safe()) {
            if done.insert(finding.to_string()) && execute(targets, finding, now)? {
                repaired_count += 1;
            }
        }
        if repaired_count == before {
            return Ok(repaired_count);
        }
        later = check(targets, options, &mut *watch);
        report = &later;
    }
}

/// Whether all of a fix was done.
fn execute(targets: &[Target<'_>], finding: &Finding, now: WallTime) -> Result<bool, RepairError> {
    let Repair::Safe(fix) = &finding.repair else { return Ok(false) };
    for steps in fix.steps.chunk_by(|a, b| a.target() == b.target()) {
        if !apply(targets, steps, now)? {
            return Ok(false);
        }
    }
    Ok(!fix.steps.is_empty())
}

/// One transaction of one target. False if something was there that was not to be.
fn apply(targets: &[Target<'_>], steps: &[Step], now: WallTime) -> Result<bool, RepairError> {
    let Some(id) = steps.first().map(Step::target) else { return Ok(true) };
    let not_open = RepairError::NotOpen { target: id };
    let target = targets.iter().find(|target| target.id == id).ok_or(not_open.clone())?;
    let meta = target.meta.ok_or(not_open.clone())?;
    let transno = meta.applied().next();
    let row_error = |status| RepairError::Row { target: id, status };
    let store_error = |source| RepairError::Store { target: id, source };
    let mut tx = Tx::new(meta);
    for step in steps {
        if let Step::Destroy { object, .. } = step {
            // Its rows follow, as with an OST: they are what makes it certain.
            target.objects.ok_or(not_open.clone())?.destroy(object).map_err(store_error)?;
        }
        if !put_step(&mut tx, step, transno, now).map_err(row_error)? {
            return Ok(false);
        }
    }
    let batch: Batch = tx.into_batch();
    meta.apply(transno, &batch).map_err(store_error)?;
    for step in steps {
        if let Step::Adopt { object, to, .. } = step {
            // Its rows come first, as with an OST: without the rest the next check finds it again.
            let objects = target.objects.ok_or(not_open.clone())?;
            if !objects.adopt(object, to).map_err(store_error)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn put_step(tx: &mut Tx<'_>, step: &Step, transno: Transno, now: WallTime) -> Result<bool, Status> {
    match step {
        Step::Put { table, key, value, .. } => tx.put(*table, key.clone(), value.clone()),
        Step::PutNew { table, key, value, .. } => {
            if tx.get(*table, key)?.is_some() {
                return Ok(false);
            }
            tx.put(*table, key.clone(), value.clone());
        }
        Step::Delete { table, key, .. } => tx.delete(*table, key.clone()),
        Step::DeletePrefix { table, prefix, .. } => {
            for (key, _) in tx.scan_prefix(*table, prefix, usize::MAX)? {
                tx.delete(*table, key);
            }
        }
        Step::Inode { fid, edit, .. } => {
            if let Some(inode) = tx.inode(*fid)? {
                tx.put_inode(&edited(inode, edit, transno));
            }
        }
        Step::Epoch { epoch, .. } => {
            let (table, key) = inspect::state_key();
            let value = tx.get(table, &key)?.ok_or(Status::Corrupt)?;
            let raised = inspect::with_epoch(&value, *epoch).map_err(|error| error.status())?;
            tx.put(table, key, raised);
        }
        Step::Destroy { object, .. } => {
            let key = object.key().to_vec();
            tx.delete(ost_rows::OBJECTS, key.clone());
            tx.delete(ost_rows::BORN, key);
        }
        Step::Adopt { object, to, .. } => {
            for table in [ost_rows::OBJECTS, ost_rows::BORN] {
                if let Some(value) = tx.get(table, &object.key())? {
                    tx.delete(table, object.key().to_vec());
                    tx.put(table, to.key().to_vec(), value);
                }
            }
            let mut batch = Batch::new();
            ost_rows::put_adopted(&mut batch, object, now);
            for change in batch.changes() {
                tx.put(change.table, change.key.to_vec(), change.value.unwrap_or_default().to_vec());
            }
        }
        Step::MakeDirectory { fid, owner, .. } => {
            if tx.inode(*fid)?.is_some() {
                return Ok(false);
            }
            tx.put_inode(&Inode::new(directory(*fid, *owner, transno, now)));
        }
        Step::MakeLostAndFound { fid } => make_lost_and_found(tx, *fid, transno, now)?,
    }
    Ok(true)
}

fn edited(mut inode: Inode, edit: &Edit, transno: Transno) -> Inode {
    match edit {
        Edit::LinkCount(count) => inode.attr.link_count = *count,
        Edit::OneMoreLink => inode.attr.link_count = inode.attr.link_count.saturating_add(1),
        Edit::Xattrs(xattrs) => {
            inode.xattr_count = xattrs.count;
            inode.xattr_name_bytes = xattrs.name_bytes;
            inode.attr.has_xattrs = xattrs.count > 0;
        }
        Edit::SizeUnknown => {
            inode.attr.is_size_known = false;
            // What was measured before says nothing.
            inode.attr.write_epoch = inode.attr.write_epoch.saturating_add(1);
        }
        Edit::Follow(master) => {
            let of = &master.attr;
            (inode.attr.permissions, inode.attr.uid, inode.attr.gid) = (of.permissions, of.uid, of.gid);
            inode.default_layout.clone_from(&master.default_layout);
            inode.default_striping.clone_from(&master.default_striping);
        }
    }
    inode.attr.version = Version(transno.0);
    inode
}

/// For root alone: names below it may lead to what others were not to see.
fn directory(fid: Fid, (uid, gid): (u32, u32), transno: Transno, now: WallTime) -> Attr {
    Attr {
        fid,
        file_type: FileType::Directory,
        permissions: 0o700,
        uid,
        gid,
        link_count: 2,
        rdev: 0,
        size_bytes: DIRECTORY_SIZE_BYTES,
        block_count: DIRECTORY_SIZE_BYTES / 512,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        mtime_stamp: now,
        version: Version(transno.0),
        is_size_known: true,
        write_epoch: 0,
        has_xattrs: false,
    }
}

fn make_lost_and_found(tx: &mut Tx<'_>, fid: Fid, transno: Transno, now: WallTime) -> Result<(), Status> {
    if tx.inode(fid)?.is_some() {
        return Ok(());
    }
    let root = tx.inode(Fid::ROOT)?.ok_or(Status::Corrupt)?;
    let attr = directory(fid, (root.attr.uid, root.attr.gid), transno, now);
    tx.put_inode(&Inode::new(attr));
    let dentry = Dentry { fid, file_type: FileType::Directory };
    tx.put_dentry(Fid::ROOT, LOST_AND_FOUND_NAME, dentry);
    tx.put(rows::LINKS, rows::link_key(fid, Fid::ROOT, LOST_AND_FOUND_NAME), Vec::new());
    tx.put_inode(&edited(root, &Edit::OneMoreLink, transno));
    Ok(())
}
