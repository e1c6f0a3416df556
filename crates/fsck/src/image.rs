//! The rows of all targets, in memory.

use crate::few::Few;
use crate::finding::Repair;
use crate::repair::Step;
use base::{ClientId, ClusterConfig, Endpoint, Epoch, Fid, Layout, ObjectId, Start, TargetId, Transno};
use mds::data::Head;
use mds::rows::{Dentry, Inode, KnownTargets};
use oss::rows::Born;
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectStat;
use wire::peer::OperationId;

/// Where a dentry is: its directory, its position there, its name.
pub(crate) type Place = (Fid, u64, Vec<u8>);

#[derive(Default)]
pub(crate) struct Image {
    pub mdts: BTreeMap<u16, Mdt>,
    pub osts: BTreeMap<u16, Ost>,
    pub config: Option<ClusterConfig>,
    /// What operations over several MDTs, which are not executed everywhere, are about.
    pub moving: BTreeSet<Fid>,
    pub pending_count: u64,
    /// As `Options` have it.
    pub removes_remains: bool,
}

/// Why bytes and names of an inode that is gone stay.
const REMAINS: &str = "it may be all that is left of a file; --remove-remains removes it";

#[derive(Default)]
pub(crate) struct Mdt {
    /// All of its rows could be read.
    pub is_whole: bool,
    pub inodes: BTreeMap<Fid, Inode>,
    /// Inodes whose rows are damaged: they are there, and nothing is known of them.
    pub unknown: BTreeSet<Fid>,
    /// `None` where the row is damaged.
    pub dentries: BTreeMap<Place, Option<Dentry>>,
    /// Directory and name of each link of an inode.
    pub links: BTreeMap<Fid, Few<(Fid, Vec<u8>)>>,
    pub xattrs: BTreeMap<Fid, Xattrs>,
    pub orphans: BTreeSet<Fid>,
    /// Stripes by OST, FID and component.
    pub destroys: BTreeMap<(u16, Fid, u32), Vec<u32>>,
    /// FIDs of inodes that other MDTs have now, and those that they have there; `None` where the row is damaged.
    pub moved: BTreeMap<Fid, Option<Fid>>,
    /// `None` where the row is damaged.
    pub heads: BTreeMap<ObjectId, Option<Head>>,
    /// Bytes of each chunk.
    pub chunks: BTreeMap<ObjectId, BTreeMap<u64, u64>>,
    pub known: KnownTargets,
    /// How far the streams of other MDTs were executed here.
    pub executed: BTreeMap<u16, OperationId>,
    /// By participant: the operation before the first of its stream that this MDT keeps, which the participant has told to be durable.
    pub streamed_after: BTreeMap<u16, OperationId>,
    /// Files of incarnations before this one are still to be compared with their objects.
    pub strays_before: Option<Epoch>,
    pub sessions: Sessions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Xattrs {
    pub count: u32,
    pub name_bytes: u32,
}

#[derive(Default)]
pub(crate) struct Ost {
    /// All of its rows could be read, and its objects listed.
    pub is_whole: bool,
    pub objects: BTreeMap<ObjectId, ObjectStat>,
    /// Objects that are there and cannot be used, and from which byte on.
    pub cut: BTreeMap<ObjectId, u64>,
    pub born: BTreeMap<ObjectId, Born>,
    pub tombstones: BTreeSet<ObjectId>,
    /// Those of the tombstones that say that an object has another name now.
    pub adopted: BTreeSet<ObjectId>,
    pub sessions: Sessions,
}

#[derive(Default)]
pub(crate) struct Sessions {
    /// All of their rows could be read.
    pub is_whole: bool,
    /// `None` for a target that was never served.
    pub epoch: Option<Epoch>,
    /// The last transaction.
    pub applied: Transno,
    pub mark: Transno,
    pub last_marks: BTreeMap<Epoch, Transno>,
    /// Who has a session, and with which incarnation.
    pub clients: BTreeMap<ClientId, u64>,
    /// Keys of slots, by client.
    pub slots: BTreeMap<ClientId, Vec<Vec<u8>>>,
    /// The last starts of this target.
    pub starts: Vec<Start>,
    /// The last start of each target that has called.
    pub callers: BTreeMap<ClientId, Start>,
}

impl Image {
    /// Of all targets.
    pub fn all_sessions(&self) -> impl Iterator<Item = (TargetId, &Sessions)> {
        let osts = self.osts.iter().map(|(index, ost)| (TargetId::ost(*index), &ost.sessions));
        let mdts = self.mdts.iter().map(|(index, mdt)| (TargetId::mdt(*index), &mdt.sessions));
        osts.chain(mdts)
    }
}

impl Sessions {
    /// Whether a mount may come back and say again what was not durable.
    pub fn awaits_mounts(&self) -> bool {
        self.clients.keys().any(|client| matches!(client.endpoint(), Endpoint::Client(_)))
    }

    /// Of an OST: whether it is known of a transaction that it was durable, as the next incarnation would know it.
    pub fn was_durable(&self, transno: Transno) -> bool {
        let noted = self.last_marks.range(transno.epoch().next()..).next().map(|(_, mark)| *mark);
        transno <= noted.unwrap_or(self.mark)
    }
}

impl Ost {
    /// What cannot be read now is no less there.
    pub fn has_bytes(&self, object: &ObjectId) -> bool {
        self.cut.contains_key(object) || self.objects.get(object).is_some_and(|stat| stat.size_bytes > 0)
    }
}

impl Mdt {
    /// Of the data that an MDT has itself.
    pub fn has_bytes(&self, object: &ObjectId) -> bool {
        let head = self.heads.get(object);
        head.is_some_and(|head| head.is_none_or(|head| head.size_bytes > 0))
            || self.chunks.contains_key(object)
    }

    pub fn has(&self, fid: Fid) -> bool {
        self.inodes.contains_key(&fid) || self.unknown.contains(&fid)
    }

    /// Whether its files may be out of step with their objects, rightly: a mount may still say what is missing, or the MDT has
    /// noted that it has to compare them.
    pub fn is_settling(&self, fid: Fid) -> bool {
        self.sessions.awaits_mounts() || self.strays_before.is_some() && epoch_of(fid) < self.strays_before
    }
}

pub(crate) fn epoch_of(fid: Fid) -> Option<Epoch> {
    mds::fids::Fids::epoch_of(fid)
}

/// What is known of the file that an object belongs to.
pub(crate) enum Owner<'a> {
    /// Nothing, or nothing that may be relied on.
    Unknown,
    Nobody,
    /// Nobody, under this name: a file that has moved has got this FID, and has another object in its place.
    Replaced(Fid),
    /// A file that has moved to another MDT and got this FID there, and misses the object under that.
    Moved(Fid),
    /// The object has no place in its layout.
    Elsewhere,
    /// The object is one of this layout.
    File(&'a Layout),
}

impl Image {
    pub fn is_moving(&self, fid: Fid) -> bool {
        self.moving.contains(&fid)
    }

    /// The MDT that a FID belongs to; `None` if there is no such one.
    pub fn mdt_of(&self, fid: Fid) -> Option<&Mdt> {
        self.mdts.get(&fid.mdt_index()?)
    }

    /// Whether it is certain what an MDT has under a FID; so it is for FIDs that no MDT can have.
    pub fn is_certain(&self, fid: Fid) -> bool {
        !self.is_moving(fid) && self.mdt_of(fid).is_none_or(|mdt| mdt.is_whole)
    }

    pub fn inode(&self, fid: Fid) -> Option<&Inode> {
        self.mdt_of(fid)?.inodes.get(&fid)
    }

    pub fn has(&self, fid: Fid) -> bool {
        self.mdt_of(fid).is_some_and(|mdt| mdt.has(fid))
    }

    /// Removes something, but for what an operator has to want to lose.
    pub fn removal(&self, is_remains: bool, what: &str, steps: Vec<Step>) -> Repair {
        match is_remains && !self.removes_remains {
            true => Repair::Not(REMAINS),
            false => Repair::fix(what, steps),
        }
    }

    /// Whether there may be bytes of a file, wherever they are.
    pub fn may_have_bytes(&self, fid: Fid) -> bool {
        let all = ObjectId { fid, component: 0, stripe: 0 }..=ObjectId {
            fid,
            component: u32::MAX,
            stripe: u32::MAX,
        };
        let on_ost = |ost: &Ost| {
            let mut objects = ost.objects.range(all.clone()).map(|(object, _)| object);
            !ost.is_whole
                || objects.any(|object| ost.has_bytes(object))
                || ost.cut.range(all.clone()).next().is_some()
        };
        let on_mdt = |mdt: &Mdt| {
            let mut objects = mdt.heads.range(all.clone()).map(|(object, _)| object);
            objects.any(|object| mdt.has_bytes(object)) || mdt.chunks.range(all.clone()).next().is_some()
        };
        self.osts.values().any(on_ost) || self.mdt_of(fid).is_some_and(on_mdt)
    }

    /// Whether nothing is left of a directory but names in it. (Of one that has moved there may be some that its other MDT has too.)
    pub fn lacks_directory(&self, fid: Fid) -> bool {
        let lacks = |mdt: &Mdt| {
            let mut names = mdt.dentries.range((fid, 0, Vec::new())..);
            let is_named = names.next().is_some_and(|((parent, ..), _)| *parent == fid);
            is_named && !mdt.has(fid) && !mdt.moved.contains_key(&fid)
        };
        self.mdt_of(fid).is_some_and(lacks)
    }

    /// Whether names anywhere are all known.
    pub fn are_names_whole(&self) -> bool {
        self.mdts.values().all(|mdt| mdt.is_whole)
    }

    pub fn owner(&self, ost: u16, object: &ObjectId) -> Owner<'_> {
        let fid = object.fid;
        let Some(mdt) = self.mdt_of(fid) else {
            return if self.are_names_whole() { Owner::Nobody } else { Owner::Unknown };
        };
        if !mdt.is_whole || mdt.is_settling(fid) || self.is_moving(fid) || mdt.unknown.contains(&fid) {
            return Owner::Unknown;
        }
        let Some(inode) = mdt.inodes.get(&fid) else {
            // What is still to be adopted is known to the MDT that has the file now.
            return match self.now_of(fid) {
                None => Owner::Unknown,
                Some(now) if now == fid => Owner::Nobody,
                Some(now) => self.owner_now(now, ost, object),
            };
        };
        let layout = inode.layout.as_ref().filter(|layout| layout.is_valid());
        // Of a layout that cannot be nothing is known; that is said elsewhere.
        let Some(layout) = layout else {
            return if inode.layout.is_some() { Owner::Unknown } else { Owner::Elsewhere };
        };
        match layout.stripe_of(*object).and_then(|stripe| layout.stripe(stripe)) {
            Some(stripe) if stripe.ost == ost => Owner::File(layout),
            _ => Owner::Elsewhere,
        }
    }

    /// The same of a file that has moved and has this FID now.
    fn owner_now(&self, now: Fid, ost: u16, object: &ObjectId) -> Owner<'_> {
        let of_now = ObjectId { fid: now, ..*object };
        match self.osts.get(&ost) {
            // It may be all that is left.
            Some(of) if of.cut.contains_key(&of_now) => Owner::Unknown,
            _ if self.misses(now, ost, object) => Owner::Moved(now),
            Some(of) if of.objects.contains_key(&of_now) => Owner::Replaced(now),
            _ => Owner::Nobody,
        }
    }

    /// The FID that a file has after it has moved from MDT to MDT; `None` where that is not certain.
    fn now_of(&self, fid: Fid) -> Option<Fid> {
        let (mut now, mut passed) = (fid, BTreeSet::from([fid]));
        loop {
            let mdt = self.mdt_of(now).filter(|mdt| mdt.is_whole && !mdt.unknown.contains(&now))?;
            let Some(to) = mdt.moved.get(&now) else {
                return Some(now).filter(|_| !self.is_moving(now) && !mdt.is_settling(now));
            };
            now = (*to)?;
            if !passed.insert(now) {
                return None;
            }
        }
    }

    /// Whether a file has a place for an object that it had before it moved, and nothing there. So it is where an OST is an older copy of itself,
    /// or has lost the last step of the move.
    fn misses(&self, now: Fid, ost: u16, object: &ObjectId) -> bool {
        let missed = ObjectId { fid: now, ..*object };
        let layout = self.inode(now).and_then(|inode| inode.layout.as_ref());
        let layout = layout.filter(|layout| layout.is_valid() && layout.fid == now && now != object.fid);
        let stripe =
            layout.and_then(|layout| layout.stripe_of(missed).and_then(|stripe| layout.stripe(stripe)));
        let (Some(stripe), Some(of)) = (stripe, self.osts.get(&ost)) else { return false };
        let was_destroyed = of.tombstones.contains(object) && !of.adopted.contains(object);
        stripe.ost == ost
            && !was_destroyed
            && !of.objects.contains_key(&missed)
            && !of.tombstones.contains(&missed)
    }

    /// Whether the MDT of an object's file has noted that the object is to be destroyed.
    pub fn is_destroy_queued(&self, ost: u16, object: &ObjectId) -> bool {
        let queued = |mdt: &Mdt| {
            let stripes = mdt.destroys.get(&(ost, object.fid, object.component));
            stripes.is_some_and(|stripes| stripes.contains(&object.stripe))
        };
        self.mdt_of(object.fid).is_some_and(queued)
    }
}
