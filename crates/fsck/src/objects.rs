//! Layouts and objects: each file has its objects, each object its file, and sizes are those of the objects.

use crate::finding::{Finding, Findings, Kind, RESTORE, Repair};
use crate::image::{Image, Mdt, Ost, Owner};
use crate::index::Index;
use crate::repair::{Edit, Step};
use crate::watch::Ticker;
use base::{Fid, FileType, Layout, ObjectId, TargetId};
use mds::rows::{self, Destroy, Inode};
use oss::rows as ost_rows;

pub(crate) fn check(image: &Image, index: &Index, out: &mut Findings, mut ticker: Ticker<'_>) {
    for (at, mdt) in &image.mdts {
        let checker = OfMdt { image, index, target: TargetId::mdt(*at), mdt };
        for inode in mdt.inodes.values().filter(|inode| !image.is_moving(inode.attr.fid)) {
            checker.layout(inode, out);
        }
        checker.destroys(out);
    }
    for (at, ost) in &image.osts {
        let checker = OfOst { image, index, at: *at, target: TargetId::ost(*at), ost };
        for object in ost.objects.keys() {
            ticker.item();
            checker.object(object, out);
        }
    }
}

struct OfMdt<'a> {
    image: &'a Image,
    index: &'a Index<'a>,
    target: TargetId,
    mdt: &'a Mdt,
}

/// What is known of one stripe.
enum Found {
    Size(u64),
    /// Something else is to be said of it.
    Unknown,
}

impl OfMdt<'_> {
    fn found(&self, kind: Kind, inode: &Inode, what: impl Into<String>, repair: Repair) -> Finding {
        Finding::new(kind, self.target, self.index.called(inode.attr.fid), what, repair)
    }

    fn layout(&self, inode: &Inode, out: &mut Findings) {
        if inode.attr.file_type != FileType::Regular {
            return;
        }
        let Some(layout) = &inode.layout else {
            return self.size(inode, Some(0), out);
        };
        if !layout.is_valid() || layout.fid != inode.attr.fid {
            let what = "its layout cannot be: nobody knows where its data are";
            return out.add(self.found(Kind::LayoutInvalid, inode, what, Repair::Not(RESTORE)));
        }
        if let Some(ost) = layout.osts().find(|ost| !self.image.osts.contains_key(ost)) {
            let what = format!("it has data on {}, which there is not", TargetId::ost(ost));
            let repair = Repair::Not("bring the OST back");
            return out.add(self.found(Kind::LayoutOstUnknown, inode, what, repair));
        }
        if self.mdt.is_settling(inode.attr.fid) {
            return;
        }
        let mut size = Some(0);
        for stripe in layout.stripes() {
            match self.stripe(inode, layout, stripe, out) {
                Found::Size(bytes) => size = size.map(|size: u64| size.max(layout.file_size(stripe, bytes))),
                Found::Unknown => size = None,
            }
        }
        self.size(inode, size, out);
    }

    fn stripe(&self, inode: &Inode, layout: &Layout, stripe: u32, out: &mut Findings) -> Found {
        let Some(of) = layout.stripe(stripe) else { return Found::Unknown };
        let object = of.object;
        if of.ost == Layout::ON_MDT {
            return match self.mdt.heads.get(&object) {
                Some(Some(head)) => Found::Size(head.size_bytes),
                Some(None) => Found::Unknown,
                None if self.mdt.is_whole && !self.mdt.chunks.contains_key(&object) => Found::Size(0),
                None => Found::Unknown,
            };
        }
        let Some(ost) = self.image.osts.get(&of.ost).filter(|ost| ost.is_whole) else {
            return Found::Unknown;
        };
        let target = TargetId::ost(of.ost);
        let stat = ost.objects.get(&object);
        if ost.cut.contains_key(&object) {
            return Found::Unknown;
        }
        if is_lost(ost, &object) {
            let what = format!("object {object} was durable, and is not there: reads are answered EIO");
            let finding =
                Finding { target, ..self.found(Kind::ObjectMissing, inode, what, Repair::Not(RESTORE)) };
            out.add(finding);
            return Found::Unknown;
        }
        if ost.tombstones.contains(&object) {
            out.add(Finding { target, ..self.tombstone(inode, object, target, !is_gone(ost, &object)) });
            return Found::Unknown;
        }
        Found::Size(stat.map_or(0, |stat| stat.size_bytes))
    }

    /// An object that is noted as destroyed is refused to everybody.
    fn tombstone(&self, inode: &Inode, object: ObjectId, target: TargetId, is_there: bool) -> Finding {
        let what = format!("object {object} is noted as destroyed, and a file has it");
        let repair = match is_there {
            true => {
                let key = object.key().to_vec();
                let delete = Step::Delete { target, table: ost_rows::TOMBSTONES, key };
                Repair::fix("forget that it was destroyed", vec![delete])
            }
            false => Repair::Not("its data are gone; they would read as zeros"),
        };
        self.found(Kind::TombstoneOfLiveObject, inode, what, repair)
    }

    /// The size that the objects have is the one that the MDT believes.
    fn size(&self, inode: &Inode, size: Option<u64>, out: &mut Findings) {
        let attr = &inode.attr;
        let Some(size) = size.filter(|size| attr.is_size_known && *size != attr.size_bytes) else { return };
        let what = format!("its MDT says {} bytes, and its objects end at {size}", attr.size_bytes);
        let step = Step::Inode { target: self.target, fid: attr.fid, edit: Edit::SizeUnknown };
        let repair = Repair::fix("believe no size until the objects were asked", vec![step]);
        out.add(self.found(Kind::SizeWrong, inode, what, repair));
    }

    fn destroys(&self, out: &mut Findings) {
        for ((ost, fid, component), stripes) in &self.mdt.destroys {
            let Some(inode) = self.mdt.inodes.get(fid).filter(|_| !self.image.is_moving(*fid)) else {
                continue;
            };
            let is_live = |stripe: &u32| {
                let object = ObjectId { fid: *fid, component: *component, stripe: *stripe };
                matches!(self.live_on(inode, &object), Some(at) if at == *ost)
            };
            let (live, gone): (Vec<u32>, Vec<u32>) = stripes.iter().partition(|stripe| is_live(stripe));
            if live.is_empty() {
                continue;
            }
            let (target, table) = (self.target, rows::DESTROYS);
            let key = rows::destroy_key(*ost, *fid, *component);
            let step = match gone.is_empty() {
                true => Step::Delete { target, table, key },
                false => Step::Put { target, table, key, value: rows::encode(&Destroy { stripes: gone }) },
            };
            let what =
                format!("{} of its objects on {} are to be destroyed", live.len(), TargetId::ost(*ost));
            out.add(self.found(Kind::DestroyOfLiveObject, inode, what, Repair::fix("keep them", vec![step])));
        }
    }

    /// The OST that a file has an object on.
    fn live_on(&self, inode: &Inode, object: &ObjectId) -> Option<u16> {
        let layout = inode.layout.as_ref().filter(|layout| layout.is_valid())?;
        layout.stripe_of(*object).and_then(|stripe| layout.stripe(stripe)).map(|stripe| stripe.ost)
    }
}

/// What an OST answers EIO for: an object of which it knows that it was durable, without its file or its header.
fn is_lost(ost: &Ost, object: &ObjectId) -> bool {
    let Some(born) = ost.born.get(object) else { return false };
    is_gone(ost, object) && !ost.tombstones.contains(object) && ost.sessions.was_durable(born.transno)
}

/// Nothing is left of it, although its file may be.
fn is_gone(ost: &Ost, object: &ObjectId) -> bool {
    let has_header = || ost.born.get(object).is_some_and(|born| born.has_header);
    ost.objects.get(object).is_none_or(|stat| !stat.has_begun && has_header())
}

struct OfOst<'a> {
    image: &'a Image,
    index: &'a Index<'a>,
    at: u16,
    target: TargetId,
    ost: &'a Ost,
}

impl OfOst<'_> {
    fn found(&self, kind: Kind, object: &ObjectId, what: impl Into<String>, repair: Repair) -> Finding {
        Finding::new(kind, self.target, self.index.called_object(object), what, repair)
    }

    fn object(&self, object: &ObjectId, out: &mut Findings) {
        let owner = self.image.owner(self.at, object);
        let is_needed = matches!(owner, Owner::Unknown | Owner::Moved(_) | Owner::File(_));
        if let Some(offset_bytes) = self.ost.cut.get(object).filter(|_| is_needed) {
            let what =
                format!("from byte {offset_bytes} of the object on nothing is left: reads there are EIO");
            let repair = Repair::Not("restore the file, or cut it there");
            out.add(self.found(Kind::ObjectCut, object, what, repair));
        }
        if let Owner::Moved(now) = owner {
            return out.add(self.moved(object, now));
        }
        if is_needed || self.image.is_destroy_queued(self.at, object) {
            return;
        }
        let destroy = || vec![Step::Destroy { target: self.target, object: *object }];
        if self.ost.tombstones.contains(object) {
            let what = "it was destroyed, and takes space";
            let repair = Repair::fix("remove it", destroy());
            out.add(self.found(Kind::ObjectWithTombstone, object, what, repair));
        } else if let Owner::Nobody | Owner::Replaced(_) = owner {
            let what = match owner {
                Owner::Replaced(now) => {
                    let (file, other) = (self.index.called(now), ObjectId { fid: now, ..*object });
                    format!("it was of {file} before that moved, and {other} is there instead")
                }
                _ => "no file has it, and none can get it".to_owned(),
            };
            let repair = self.image.removal(self.ost.has_bytes(object), "remove it", destroy());
            out.add(self.found(Kind::ObjectWithoutInode, object, what, repair));
        } else {
            let what = "its file has no such object";
            let repair = match self.ost.has_bytes(object) && !self.image.removes_remains {
                true => Repair::Not(
                    "the layout may be what is wrong: compare it with a backup; --remove-remains removes the object",
                ),
                false => Repair::fix("remove it", destroy()),
            };
            out.add(self.found(Kind::ObjectNotInLayout, object, what, repair));
        }
    }

    fn moved(&self, object: &ObjectId, now: Fid) -> Finding {
        let kind = match self.ost.tombstones.contains(object) {
            true => Kind::ObjectWithTombstone,
            false => Kind::ObjectWithoutInode,
        };
        let what = format!("it is of {} and has the name of before that moved", self.index.called(now));
        let step = Step::Adopt { target: self.target, object: *object, to: ObjectId { fid: now, ..*object } };
        self.found(kind, object, what, Repair::fix("give it the name of now", vec![step]))
    }
}
