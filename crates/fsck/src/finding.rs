//! What is found: kinds of damage, and what is done about one.

use crate::repair::Step;
use base::TargetId;
use std::collections::BTreeSet;
use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of damage. The names are stable: programs may rely on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// `target.json` is not what was written.
    SuperblockDamaged = "superblock-damaged",
    /// The file of the base, or a part of it.
    IndexDamaged = "index-damaged",
    /// The redo log inside of what had been durable.
    LogDamaged = "log-damaged",
    /// An OST has no directory of objects, and had one.
    ObjectsLost = "objects-lost",
    /// The base's count of its bytes.
    SpaceCounterWrong = "space-counter-wrong",
    /// The checksum fits, and nothing that a server understands is there; or the checksum of a row does not fit.
    RowDamaged = "row-damaged",
    /// Others know more of a target than it does itself: it was restored from an older copy.
    TargetOutdated = "target-outdated",
    EpochBehind = "epoch-behind",
    SlotWithoutClient = "slot-without-client",
    ConfigUuidWrong = "config-uuid-wrong",
    PoolOstUnknown = "pool-ost-unknown",
    DentryWithoutDirectory = "dentry-without-directory",
    DentryWithoutInode = "dentry-without-inode",
    DentryTypeWrong = "dentry-type-wrong",
    DentryMisplaced = "dentry-misplaced",
    DentryInWrongStripe = "dentry-in-wrong-stripe",
    DirectoryLinkedTwice = "directory-linked-twice",
    DirectoryUnreachable = "directory-unreachable",
    LinkMissing = "link-missing",
    LinkWithoutInode = "link-without-inode",
    LinkWithoutDentry = "link-without-dentry",
    LinkCountWrong = "link-count-wrong",
    InodeWithoutName = "inode-without-name",
    InodeOnWrongTarget = "inode-on-wrong-target",
    InodeMalformed = "inode-malformed",
    OrphanWithoutInode = "orphan-without-inode",
    OrphanWithName = "orphan-with-name",
    XattrCountWrong = "xattr-count-wrong",
    XattrWithoutInode = "xattr-without-inode",
    StripeMissing = "stripe-missing",
    StripeWithoutMaster = "stripe-without-master",
    StripeDiffers = "stripe-differs",
    LayoutInvalid = "layout-invalid",
    LayoutOstUnknown = "layout-ost-unknown",
    SizeWrong = "size-wrong",
    MdtDataWithoutInode = "mdt-data-without-inode",
    MdtDataWrong = "mdt-data-wrong",
    DestroyOfLiveObject = "destroy-of-live-object",
    ObjectWithoutInode = "object-without-inode",
    ObjectNotInLayout = "object-not-in-layout",
    ObjectMissing = "object-missing",
    ObjectCut = "object-cut",
    ObjectUnreadable = "object-unreadable",
    ObjectWithTombstone = "object-with-tombstone",
    TombstoneOfLiveObject = "tombstone-of-live-object",
    DataDamaged = "data-damaged",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One piece of damage.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: Kind,
    pub target: TargetId,
    /// A path where there is one, and else a FID, an object or a row. One line.
    pub subject: String,
    pub what: String,
    pub repair: Repair,
}

/// What `--repair` does about it.
#[derive(Clone, Debug, PartialEq)]
pub enum Repair {
    Safe(Fix),
    /// Nothing, and why.
    Not(&'static str),
}

/// A change that loses nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    pub what: String,
    /// Those of one target that follow each other are one transaction. Without any it is up to who has opened the store.
    pub(crate) steps: Vec<Step>,
}

impl Repair {
    pub(crate) fn fix(what: impl Into<String>, steps: Vec<Step>) -> Repair {
        Repair::Safe(Fix { what: what.into(), steps })
    }

    /// One that whoever has opened the store makes.
    pub fn of_store(what: &str) -> Repair {
        Repair::fix(what, Vec::new())
    }

    pub fn is_safe(&self) -> bool {
        matches!(self, Repair::Safe(_))
    }

    /// Not now, although it would lose nothing by itself.
    pub(crate) fn wait(&mut self, why: &'static str) {
        if self.is_safe() {
            *self = Repair::Not(why);
        }
    }
}

impl Finding {
    pub fn new(
        kind: Kind,
        target: TargetId,
        subject: impl Into<String>,
        what: impl Into<String>,
        repair: Repair,
    ) -> Finding {
        Finding { kind, target, subject: subject.into(), what: what.into(), repair }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { kind, target, subject, what, repair } = self;
        write!(f, "{kind} {target} {subject}: {what}; ")?;
        match repair {
            Repair::Safe(fix) => write!(f, "repair: {}", fix.what),
            Repair::Not(why) => write!(f, "no repair: {why}"),
        }
    }
}

/// Of a broken file system there may be as many as it has files; those beyond are counted, and found by the next check.
const FINDING_COUNT_MAX: usize = 10_000;
/// Of those that a repair ends, which has to be kept from none of them by others. Each time that it has done so many, everything is checked again.
const SAFE_COUNT_MAX: usize = 100_000;

#[derive(Default)]
pub(crate) struct Findings {
    kept: Vec<Finding>,
    safe_count: usize,
    left_out: u64,
    /// Also of those that are left out.
    kinds: BTreeSet<Kind>,
}

impl Findings {
    pub fn add(&mut self, finding: Finding) {
        self.kinds.insert(finding.kind);
        let is_safe = finding.repair.is_safe();
        let is_kept = match is_safe {
            true => self.safe_count < SAFE_COUNT_MAX,
            false => self.kept.len() - self.safe_count < FINDING_COUNT_MAX,
        };
        if is_kept {
            self.safe_count += usize::from(is_safe);
            self.kept.push(finding);
        } else {
            self.left_out += 1;
        }
    }

    pub fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    pub fn into_parts(self) -> (Vec<Finding>, u64) {
        (self.kept, self.left_out)
    }
}

/// Why nothing is done, where several checks say the same.
pub(crate) const RESTORE: &str = "restore it from a mirror or backup";

/// Bytes of a name in one line.
pub(crate) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

/// Numbers in a line: `0, 2, 5`.
pub(crate) fn listed<T: fmt::Display>(items: &BTreeSet<T>) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_repaired_is_kept_behind_any_number_of_what_cannot() {
        let mut findings = Findings::default();
        let add = |findings: &mut Findings, kind, repair| {
            findings.add(Finding::new(kind, TargetId::mdt(0), "it", "is wrong", repair));
        };
        for _ in 0..FINDING_COUNT_MAX + 7 {
            add(&mut findings, Kind::ObjectMissing, Repair::Not(RESTORE));
        }
        add(&mut findings, Kind::TargetOutdated, Repair::Not(RESTORE));
        add(&mut findings, Kind::LinkCountWrong, Repair::of_store("count them"));
        assert!(findings.has(Kind::TargetOutdated), "nothing may be repaired then");
        let (kept, left_out) = findings.into_parts();
        assert_eq!((kept.len(), left_out), (FINDING_COUNT_MAX + 1, 8));
        assert_eq!(kept.last().map(|found| found.kind), Some(Kind::LinkCountWrong));
    }
}
