//! Dentries and links: each name leads to an inode, and each inode knows its names.

use crate::few::Few;
use crate::finding::{Finding, Findings, Kind, RESTORE, Repair};
use crate::image::{Image, Mdt, Place};
use crate::index::{Index, Name, has_link};
use crate::repair::Step;
use crate::watch::Ticker;
use base::names::{check_name, name_hash, stripe_of};
use base::{Fid, FileType, TargetId};
use mds::rows::{self, Dentry};
use std::collections::BTreeSet;

pub(crate) fn check(image: &Image, index: &Index, out: &mut Findings, mut ticker: Ticker<'_>) {
    for (at, mdt) in &image.mdts {
        let checker = Checker { image, index, target: TargetId::mdt(*at), mdt };
        for (place, dentry) in &mdt.dentries {
            ticker.item();
            checker.dentry(place, dentry.as_ref(), out);
        }
        for (fid, links) in &mdt.links {
            checker.links(*fid, links, out);
        }
    }
    check_reachable(image, index, out);
}

struct Checker<'a> {
    image: &'a Image,
    index: &'a Index<'a>,
    target: TargetId,
    mdt: &'a Mdt,
}

impl Checker<'_> {
    fn delete(&self, (parent, position, name): &Place) -> Step {
        let key = [&rows::position_key(*parent, *position)[..], name].concat();
        Step::Delete { target: self.target, table: rows::DENTRIES, key }
    }

    fn found(&self, kind: Kind, name: Name<'_>, what: impl Into<String>, repair: Repair) -> Finding {
        Finding::new(kind, self.target, self.index.called_name(name), what, repair)
    }

    fn dentry(&self, place: &Place, dentry: Option<&Dentry>, out: &mut Findings) {
        let (parent, position, name) = place;
        let called = (*parent, &name[..]);
        if !self.has_directory(*parent) {
            return self.without_directory(place, out);
        }
        let is_name = check_name(name).is_ok();
        if !is_name || *position != name_hash(name) {
            let repair = self.to_its_place(place, dentry);
            let is_moved = repair.is_safe();
            out.add(self.found(Kind::DentryMisplaced, called, "nobody finds it where it is", repair));
            // What else is wrong with it is mended where it belongs: here that would put it back.
            if is_moved {
                return;
            }
        }
        self.in_stripe(called, out);
        if let Some(dentry) = dentry {
            self.child(place, dentry, out);
        }
    }

    fn without_directory(&self, place: &Place, out: &mut Findings) {
        let (parent, _, name) = place;
        let is_own = parent.mdt_index().map(TargetId::mdt) == Some(self.target);
        if is_own && self.image.lacks_directory(*parent) {
            return self.lost_directory(place, out);
        }
        let repair = match is_own && *parent == Fid::ROOT {
            true => Repair::Not(RESTORE),
            false => Repair::fix("remove the name", vec![self.delete(place)]),
        };
        let what = "its directory is not on this MDT";
        out.add(self.found(Kind::DentryWithoutDirectory, (*parent, &name[..]), what, repair));
    }

    /// What is left of a directory is its names, which say what the files are. That is said once, of the first of them.
    fn lost_directory(&self, place: &Place, out: &mut Findings) {
        let fid = place.0;
        let names = self.mdt.dentries.range((fid, 0, Vec::new())..).map(|(place, _)| place);
        let mut names = names.take_while(|(parent, ..)| *parent == fid).peekable();
        if names.peek() != Some(&place) {
            return;
        }
        let what = format!("it is not there, and names are left in it ({})", names.count());
        let owner = self.image.inode(Fid::ROOT).map(|root| (root.attr.uid, root.attr.gid));
        let (target, owner) = (self.target, owner.unwrap_or_default());
        let repair = match fid == Fid::ROOT {
            true => Repair::Not(RESTORE),
            false => {
                Repair::fix("make it again, for root alone", vec![Step::MakeDirectory { target, fid, owner }])
            }
        };
        out.add(Finding::new(Kind::DentryWithoutDirectory, target, self.index.called(fid), what, repair));
    }

    /// Whether there is a directory, or it is not certain that there is none.
    fn has_directory(&self, fid: Fid) -> bool {
        match self.mdt.inodes.get(&fid) {
            Some(inode) => inode.attr.file_type == FileType::Directory,
            None => !self.mdt.is_whole || self.mdt.unknown.contains(&fid) || self.image.is_moving(fid),
        }
    }

    fn to_its_place(&self, place: &Place, dentry: Option<&Dentry>) -> Repair {
        let (parent, _, name) = place;
        let proper = (*parent, name_hash(name), name.clone());
        match dentry {
            Some(dentry) if check_name(name).is_ok() && !self.mdt.dentries.contains_key(&proper) => {
                let (target, table) = (self.target, rows::DENTRIES);
                let put = Step::PutNew {
                    target,
                    table,
                    key: rows::dentry_key(*parent, name),
                    value: rows::encode(dentry),
                };
                Repair::fix("put it where its name belongs", vec![put, self.delete(place)])
            }
            _ => Repair::Not("there is no place for such a name, or another one is there"),
        }
    }

    fn in_stripe(&self, (parent, name): Name<'_>, out: &mut Findings) {
        let master = self.index.masters.get(&parent).copied().unwrap_or(parent);
        if self.image.is_moving(parent) || self.image.is_moving(master) {
            return;
        }
        let home = self.image.inode(master).and_then(|master| stripe_of(&master.stripes, name));
        if home.is_some_and(|home| home != parent) {
            let what = format!("it is in {parent}, and clients look for it in another stripe");
            let repair =
                Repair::Not("two targets would have to agree; it can be read by nobody, and nothing is lost");
            out.add(self.found(Kind::DentryInWrongStripe, (parent, name), what, repair));
        }
    }

    fn child(&self, place: &Place, dentry: &Dentry, out: &mut Findings) {
        let (parent, _, name) = place;
        let (called, fid) = ((*parent, &name[..]), dentry.fid);
        if !self.image.is_certain(fid) {
            return;
        }
        if !self.image.has(fid) {
            let what = format!("it leads to {fid}, which is not there");
            let is_remains = dentry.file_type == FileType::Regular && self.image.may_have_bytes(fid);
            let repair = match self.image.lacks_directory(fid) {
                true => Repair::Not("names are left in it: it is made again for them"),
                false if self.index.striped.contains(&fid) => {
                    Repair::Not("stripes of it are left: restore it from a mirror or backup")
                }
                false => self.image.removal(is_remains, "remove the name", vec![self.delete(place)]),
            };
            return out.add(self.found(Kind::DentryWithoutInode, called, what, repair));
        }
        let inode = self.image.inode(fid);
        if let Some(file_type) = inode.map(|inode| inode.attr.file_type).filter(|is| *is != dentry.file_type)
        {
            let what = format!("it says {:?}, and its inode is a {file_type:?}", dentry.file_type);
            let key = [&rows::position_key(*parent, place.1)[..], name].concat();
            let value = rows::encode(&Dentry { fid, file_type });
            let put = Step::Put { target: self.target, table: rows::DENTRIES, key, value };
            out.add(self.found(
                Kind::DentryTypeWrong,
                called,
                what,
                Repair::fix("say what the inode says", vec![put]),
            ));
        }
        // Of a directory with several names one is wrong; that is said of the directory.
        let is_extra = inode.is_some_and(|inode| inode.attr.file_type == FileType::Directory)
            && self.index.name_count(fid) > 1;
        if !has_link(self.image, fid, called) && !is_extra {
            let what = format!("{fid} does not know this name of itself");
            let repair = Repair::fix("note it", self.put_link(fid, called).into_iter().collect());
            out.add(self.found(Kind::LinkMissing, called, what, repair));
        }
    }

    fn put_link(&self, fid: Fid, (parent, name): Name<'_>) -> Option<Step> {
        let target = TargetId::mdt(fid.mdt_index()?);
        let key = rows::link_key(fid, parent, name);
        Some(Step::Put { target, table: rows::LINKS, key, value: Vec::new() })
    }

    fn links(&self, fid: Fid, links: &Few<(Fid, Vec<u8>)>, out: &mut Findings) {
        // What is left of it is for whoever makes or brings it back.
        if !self.mdt.has(fid) && self.index.is_left_of(self.image, fid) {
            return;
        }
        let is_there = self.mdt.has(fid) || !self.mdt.is_whole || self.image.is_moving(fid);
        for (parent, name) in links {
            let called = (*parent, &name[..]);
            let key = rows::link_key(fid, *parent, name);
            let delete = Step::Delete { target: self.target, table: rows::LINKS, key };
            let forget = |what| Repair::fix(what, vec![delete]);
            if !is_there {
                let what = format!("it is noted as a name of {fid}, which is not there");
                out.add(self.found(Kind::LinkWithoutInode, called, what, forget("forget it")));
            } else if !name.is_empty() && self.is_gone(fid, called) {
                let what = format!("it is noted as a name of {fid}, and does not lead there");
                let repair = match self.index.is_lost(fid, called) {
                    true => self.bring_back(fid, called),
                    false if self.index.name_count(fid) + self.index.lost_count(fid) > 0 => {
                        forget("forget it: the inode has all the names that it counts")
                    }
                    // Said of the inode, which has no other.
                    false => continue,
                };
                out.add(self.found(Kind::LinkWithoutDentry, called, what, repair));
            }
        }
    }

    /// Whether a name is certain not to lead to an inode.
    fn is_gone(&self, fid: Fid, name: Name<'_>) -> bool {
        self.image.is_certain(name.0) && self.image.is_certain(fid) && !self.index.has_name(fid, name)
    }

    fn bring_back(&self, fid: Fid, (parent, name): Name<'_>) -> Repair {
        let (Some(inode), Some(mdt)) = (self.image.inode(fid), parent.mdt_index()) else {
            return Repair::Not(RESTORE);
        };
        let put = Step::PutNew {
            target: TargetId::mdt(mdt),
            table: rows::DENTRIES,
            key: rows::dentry_key(parent, name),
            value: rows::encode(&Dentry { fid, file_type: inode.attr.file_type }),
        };
        Repair::fix("let it lead there again", vec![put])
    }
}

/// Directories that lead to each other, and that nobody reaches from the root.
fn check_reachable(image: &Image, index: &Index, out: &mut Findings) {
    let mut ended: BTreeSet<Fid> = BTreeSet::from([Fid::ROOT]);
    for (at, mdt) in &image.mdts {
        for directory in mdt.inodes.values().filter(|inode| inode.attr.file_type == FileType::Directory) {
            let (mut way, mut above) = (Vec::new(), Some(directory.attr.fid));
            while let Some(fid) = above.filter(|fid| !ended.contains(fid)) {
                if let Some(from) = way.iter().position(|passed| *passed == fid) {
                    let ring: BTreeSet<Fid> = way.iter().skip(from).copied().collect();
                    if !ring.iter().any(|fid| image.is_moving(*fid)) {
                        out.add(ring_finding(TargetId::mdt(*at), &ring));
                    }
                    break;
                }
                way.push(fid);
                above = index.parent_of(fid);
            }
            ended.extend(way);
        }
    }
}

fn ring_finding(target: TargetId, ring: &BTreeSet<Fid>) -> Finding {
    let subject = ring.first().copied().unwrap_or_default().to_string();
    let what = format!("directories that are below themselves: {}", crate::finding::listed(ring));
    let repair = Repair::Not("nobody knows which of their names is wrong");
    Finding::new(Kind::DirectoryUnreachable, target, subject, what, repair)
}
