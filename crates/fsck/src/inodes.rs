//! Inodes: their names and counts, their xattrs, orphans, and what the MDT has of their data.

use crate::finding::{Finding, Findings, Kind, RESTORE, Repair};
use crate::image::{Image, Mdt, Xattrs};
use crate::index::{Index, has_link};
use crate::repair::{self, Edit, Step};
use crate::watch::Ticker;
use base::limits::XATTR_LIST_BYTES_MAX;
use base::{Fid, FileType, ObjectId, TargetId};
use mds::data::{self, CHUNK_BYTES, Head};
use mds::rows::{self, Inode};

pub(crate) fn check(image: &Image, index: &Index, out: &mut Findings, mut ticker: Ticker<'_>) {
    for (at, mdt) in &image.mdts {
        let checker = Checker { image, index, at: *at, target: TargetId::mdt(*at), mdt };
        for inode in mdt.inodes.values() {
            ticker.item();
            checker.inode(inode, out);
        }
        if mdt.is_whole {
            checker.rows_without_inodes(out);
            checker.data(out);
        }
    }
}

struct Checker<'a> {
    image: &'a Image,
    index: &'a Index<'a>,
    at: u16,
    target: TargetId,
    mdt: &'a Mdt,
}

impl Checker<'_> {
    fn found(&self, kind: Kind, fid: Fid, what: impl Into<String>, repair: Repair) -> Finding {
        Finding::new(kind, self.target, self.index.called(fid), what, repair)
    }

    fn edit(&self, fid: Fid, edit: Edit) -> Vec<Step> {
        vec![Step::Inode { target: self.target, fid, edit }]
    }

    fn inode(&self, inode: &Inode, out: &mut Findings) {
        let fid = inode.attr.fid;
        if fid.mdt_index() != Some(self.at) {
            let what = "the FID belongs to another MDT";
            return out.add(self.found(Kind::InodeOnWrongTarget, fid, what, Repair::Not(RESTORE)));
        }
        if let Some(what) = malformed(inode) {
            return out.add(self.found(Kind::InodeMalformed, fid, what, Repair::Not(RESTORE)));
        }
        if self.image.is_moving(fid) {
            return;
        }
        self.names(inode, out);
        if inode.attr.file_type == FileType::Directory {
            self.subdirectories(inode, out);
        }
        if self.mdt.is_whole {
            self.xattrs(inode, out);
        }
    }

    fn names(&self, inode: &Inode, out: &mut Findings) {
        let fid = inode.attr.fid;
        if fid == Fid::ROOT || !self.image.are_names_whole() {
            return;
        }
        let (known, lost) = (self.index.name_count(fid), self.index.lost_count(fid));
        if self.mdt.orphans.contains(&fid) {
            if known > 0 || inode.attr.link_count > 0 {
                let key = fid.key().to_vec();
                let delete = Step::Delete { target: self.target, table: rows::ORPHANS, key };
                let what = "it has names, and waits to be removed with its last close";
                let repair = Repair::fix("let it stay", vec![delete]);
                out.add(self.found(Kind::OrphanWithName, fid, what, repair));
            }
            return;
        }
        let has_master = self.mdt.links.get(&fid).into_iter().flatten().any(|(_, name)| name.is_empty());
        if known + lost == 0 {
            // A stripe has its master instead.
            if !has_master && !self.index.masters.contains_key(&fid) {
                let what = "no name leads to it, and nobody has it open";
                out.add(self.found(Kind::InodeWithoutName, fid, what, self.to_lost_and_found(inode)));
            }
            return;
        }
        if inode.attr.file_type != FileType::Directory {
            let names = (known + lost) as u32;
            if inode.attr.link_count != names {
                let what = format!("it counts {} names and has {names}", inode.attr.link_count);
                let fix = self.edit(fid, Edit::LinkCount(names));
                out.add(self.found(Kind::LinkCountWrong, fid, what, Repair::fix("count them", fix)));
            }
        } else if known > 1 {
            self.several_names(fid, out);
        }
    }

    fn to_lost_and_found(&self, inode: &Inode) -> Repair {
        match repair::into_lost_and_found(self.image, inode) {
            Some(steps) => Repair::fix(format!("name it /{}/{}", "lost+found", inode.attr.fid), steps),
            None => Repair::Not("/lost+found is no directory of MDT0000; rename it"),
        }
    }

    fn several_names(&self, fid: Fid, out: &mut Findings) {
        let (own, extra): (Vec<_>, Vec<_>) =
            self.index.names_of(fid).partition(|name| has_link(self.image, fid, *name));
        let what = format!("{} names lead to this directory", own.len() + extra.len());
        let delete = |(parent, name): &(Fid, &[u8])| {
            let target = TargetId::mdt(parent.mdt_index()?);
            Some(Step::Delete { target, table: rows::DENTRIES, key: rows::dentry_key(*parent, name) })
        };
        let repair = match own[..] {
            [own] => {
                let what = format!("leave {}", self.index.called_name(own));
                Repair::fix(what, extra.iter().filter_map(delete).collect())
            }
            _ => Repair::Not("nobody knows which of them is right"),
        };
        out.add(self.found(Kind::DirectoryLinkedTwice, fid, what, repair));
    }

    fn subdirectories(&self, inode: &Inode, out: &mut Findings) {
        let fid = inode.attr.fid;
        let is_removed = self.mdt.orphans.contains(&fid);
        if is_removed || !self.mdt.is_whole || self.index.unsure.contains(&fid) {
            return;
        }
        let links = 2 + self.index.subdirectory_count(fid);
        if inode.attr.link_count != links {
            let what = format!("it counts {} links and has {links}", inode.attr.link_count);
            let fix = self.edit(fid, Edit::LinkCount(links));
            out.add(self.found(Kind::LinkCountWrong, fid, what, Repair::fix("count them", fix)));
        }
    }

    fn xattrs(&self, inode: &Inode, out: &mut Findings) {
        let fid = inode.attr.fid;
        let said = Xattrs { count: inode.xattr_count, name_bytes: inode.xattr_name_bytes };
        let found = self.mdt.xattrs.get(&fid).copied().unwrap_or_default();
        if said == found && inode.attr.has_xattrs == (found.count > 0) {
            return;
        }
        let what = format!(
            "it counts {} xattrs with {} bytes of names and has {} with {}",
            said.count, said.name_bytes, found.count, found.name_bytes
        );
        let repair = match found.name_bytes as usize <= XATTR_LIST_BYTES_MAX {
            true => Repair::fix("count them", self.edit(fid, Edit::Xattrs(found))),
            false => Repair::Not("they are more than can be listed; remove some"),
        };
        out.add(self.found(Kind::XattrCountWrong, fid, what, repair));
    }

    fn rows_without_inodes(&self, out: &mut Findings) {
        let is_nowhere = |fid: &&Fid| !self.mdt.has(**fid) && !self.image.is_moving(**fid);
        let is_left = |fid: &&Fid| self.index.is_left_of(self.image, **fid);
        for fid in self.mdt.xattrs.keys().filter(|fid| is_nowhere(fid) && !is_left(fid)) {
            let prefix = fid.key().to_vec();
            let delete = Step::DeletePrefix { target: self.target, table: rows::XATTRS, prefix };
            let repair = self.image.removal(self.image.may_have_bytes(*fid), "remove them", vec![delete]);
            let what = "there are xattrs of an inode that is not there";
            out.add(self.found(Kind::XattrWithoutInode, *fid, what, repair));
        }
        for fid in self.mdt.orphans.iter().filter(is_nowhere) {
            let key = fid.key().to_vec();
            let delete = Step::Delete { target: self.target, table: rows::ORPHANS, key };
            let repair = Repair::fix("forget it", vec![delete]);
            let what = "an inode that is not there waits to be removed";
            out.add(self.found(Kind::OrphanWithoutInode, *fid, what, repair));
        }
    }

    fn data(&self, out: &mut Findings) {
        let without_head = self.mdt.chunks.keys().filter(|object| !self.mdt.heads.contains_key(object));
        let heads = self.mdt.heads.iter().map(|(object, head)| (object, head.as_ref()));
        for (object, head) in heads.chain(without_head.map(|object| (object, None))) {
            let fid = object.fid;
            if self.image.is_moving(fid) || self.mdt.unknown.contains(&fid) {
                continue;
            }
            let layout = self.mdt.inodes.get(&fid).and_then(|inode| inode.layout.as_ref());
            let is_of_file = layout.is_some_and(|layout| layout.is_on_mdt() && layout.object(0) == *object);
            let has_head = self.mdt.heads.contains_key(object);
            if !is_of_file || !has_head {
                let what = match is_of_file {
                    true => "there are data of it without a head",
                    false => "there are data on the MDT that no file says to have there",
                };
                let repair = match is_of_file {
                    true => Repair::Not("how long they are is not known; read the file, and write it anew"),
                    false => {
                        let is_remains = self.mdt.has_bytes(object);
                        self.image.removal(is_remains, "remove them", self.delete_data(object))
                    }
                };
                out.add(self.found(Kind::MdtDataWithoutInode, fid, what, repair));
            } else if let Some(head) = head {
                self.chunks(object, head, out);
            }
        }
    }

    fn delete_data(&self, object: &ObjectId) -> Vec<Step> {
        let key = data::head_key(object);
        let of = |table| Step::DeletePrefix { target: self.target, table, prefix: key.clone() };
        vec![of(rows::DATA_HEADS), of(rows::DATA)]
    }

    fn chunks(&self, object: &ObjectId, head: &Head, out: &mut Findings) {
        let chunks = self.mdt.chunks.get(object).into_iter().flatten();
        let (mut stored_bytes, mut is_beyond) = (0, false);
        for (chunk, byte_count) in chunks {
            stored_bytes += byte_count;
            let end = (chunk * CHUNK_BYTES).saturating_add(*byte_count);
            is_beyond |= *byte_count > CHUNK_BYTES || end > head.size_bytes;
        }
        if is_beyond {
            let what = format!("it has data on the MDT behind its end at {}", head.size_bytes);
            let repair = Repair::Not("nobody reads them; whether the size or they are right is not known");
            out.add(self.found(Kind::MdtDataWrong, object.fid, what, repair));
        } else if stored_bytes != head.stored_bytes {
            let what = format!("it says to have {} bytes in rows and has {stored_bytes}", head.stored_bytes);
            let (table, key) = (rows::DATA_HEADS, data::head_key(object));
            let value = rows::encode(&Head { stored_bytes, ..*head });
            let put = Step::Put { target: self.target, table, key, value };
            out.add(self.found(Kind::MdtDataWrong, object.fid, what, Repair::fix("count them", vec![put])));
        }
    }
}

/// What no operation makes.
fn malformed(inode: &Inode) -> Option<&'static str> {
    let is = |file_type| inode.attr.file_type == file_type;
    let (is_directory, is_symlink) = (is(FileType::Directory), is(FileType::Symlink));
    if inode.attr.permissions & !0o7777 != 0 {
        return Some("its permissions have more than twelve bits");
    }
    if is_symlink != inode.symlink_target.is_some() {
        return Some("only symbolic links lead elsewhere, and all of them");
    }
    if !is(FileType::Regular) && inode.layout.is_some() {
        return Some("only regular files have layouts");
    }
    let has_directory_parts =
        !inode.stripes.is_empty() || inode.default_layout.is_some() || inode.default_striping.is_some();
    if !is_directory && has_directory_parts {
        return Some("only directories have stripes and defaults");
    }
    if !inode.stripes.is_empty()
        && (inode.stripes.len() < 2 || inode.stripes.first() != Some(&inode.attr.fid))
    {
        return Some("its stripes do not begin with itself");
    }
    None
}
