//! The checker of a file system that nobody serves: rows of all targets against each other, and layouts against objects.
//!
//! It reads what servers have written with the decoders of the servers, over the store traits: so it runs over disks and over the
//! models of the simulation alike. What is undone and legal is no damage: orphans, operations over several MDTs that are
//! prepared or decided, destroys that are queued, tombstones, sizes that are not known, and whatever mounts may still say again.
//!
//! Nothing is concluded from rows that cannot be read: a target that is not whole is left out of what needs it.

#![forbid(unsafe_code)]

mod data;
mod few;
mod finding;
mod image;
mod index;
mod inodes;
mod load;
mod names;
mod objects;
mod outdated;
mod repair;
mod sessions;
mod stripes;
mod watch;

pub use finding::{Finding, Fix, Kind, Repair};
pub use load::expected;
pub use repair::{LOST_AND_FOUND, RepairError, repair_all};
pub use watch::{Doing, Watch};

use base::TargetId;
use finding::Findings;
use image::Image;
use index::Index;
use std::collections::BTreeSet;
use store::{MetaStore, ObjectStore};
use watch::Ticker;

/// A target as its stores are open.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub id: TargetId,
    /// As its directory says, to be compared with what the MGS knows.
    pub uuid: Option<u128>,
    /// `None` when they could not be opened: then nothing is concluded that would need them.
    pub meta: Option<&'a dyn MetaStore>,
    /// Of an OST.
    pub objects: Option<&'a dyn ObjectStore>,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the file system, to find its configuration at the MGS.
    pub fsname: String,
    /// Read all objects against the checksums of their blocks.
    pub reads_data: bool,
    /// A repair also removes what may be all that is left of a file whose inode is gone: its bytes, and names that lead to them.
    pub removes_remains: bool,
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// Findings beyond those that are kept.
    pub left_out: u64,
    pub inode_count: u64,
    pub name_count: u64,
    pub object_count: u64,
    /// Of objects, with `reads_data`.
    pub read_bytes: u64,
    /// Operations over several MDTs that are not executed everywhere yet.
    pub pending_count: u64,
    /// Targets that mounts may come back to.
    pub awaiting: Vec<TargetId>,
    /// Targets that rows speak of, and that were not given: what is theirs looks like nobody's.
    pub missing: BTreeSet<TargetId>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Checks a file system, of which all targets are given. Each has the stores of its kind, or none.
pub fn check(targets: &[Target<'_>], options: &Options, watch: Watch<'_>) -> Report {
    let mut out = Findings::default();
    let mut image = Image::load(targets, &options.fsname, &mut out, watch);
    image.removes_remains = options.removes_remains;
    let index = Index::new(&image);
    outdated::check(&image, &mut out);
    let is_outdated = out.has(Kind::TargetOutdated);
    let name_count: usize = image.mdts.values().map(|mdt| mdt.dentries.len()).sum();
    let inode_count: usize = image.mdts.values().map(|mdt| mdt.inodes.len()).sum();
    let object_count: usize = image.osts.values().map(|ost| ost.objects.len()).sum();
    let doing = |step, unit, count| Doing::of(step, unit, Some(count));
    names::check(
        &image,
        &index,
        &mut out,
        Ticker::begin(watch, doing("checking names", "names", name_count)),
    );
    let ticker = Ticker::begin(watch, doing("checking inodes", "inodes", inode_count));
    inodes::check(&image, &index, &mut out, ticker);
    stripes::check(&image, &index, &mut out);
    let ticker = Ticker::begin(watch, doing("checking objects", "objects", object_count));
    objects::check(&image, &index, &mut out, ticker);
    sessions::check(&image, targets, &mut out);
    let read_bytes = match options.reads_data {
        true => data::check(targets, &image, &index, &mut out, watch),
        false => 0,
    };
    let (mut findings, left_out) = out.into_parts();
    if is_outdated {
        findings.iter_mut().for_each(|finding| finding.repair.wait(outdated::WAITS));
    }
    let awaits = |sessions: &image::Sessions| sessions.awaits_mounts();
    let mdts = image.mdts.iter().filter(|(_, mdt)| awaits(&mdt.sessions)).map(|(at, _)| TargetId::mdt(*at));
    let osts = image.osts.iter().filter(|(_, ost)| awaits(&ost.sessions)).map(|(at, _)| TargetId::ost(*at));
    Report {
        findings,
        left_out,
        inode_count: inode_count as u64,
        name_count: name_count as u64,
        object_count: object_count as u64,
        read_bytes,
        pending_count: image.pending_count,
        awaiting: mdts.chain(osts).collect(),
        missing: outdated::unknown_mdts(&image),
    }
}
