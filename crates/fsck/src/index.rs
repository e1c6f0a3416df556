//! What leads to what: names of inodes, masters of stripes, paths.

use crate::few::Few;
use crate::finding::shown;
use crate::image::Image;
use base::names::name_hash;
use base::{Fid, FileType, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// Parts of a path that is looked for; a longer one is shown as a FID.
const PATH_PART_COUNT_MAX: usize = 4096;

/// A name of an inode: the directory, and the name in it.
pub(crate) type Name<'a> = (Fid, &'a [u8]);

pub(crate) struct Index<'a> {
    /// All names that lead to an inode, wherever they are.
    names: BTreeMap<Fid, Few<Name<'a>>>,
    /// Names that an inode has a link for, that are gone, and that can come back.
    pub lost: BTreeMap<Fid, BTreeSet<Name<'a>>>,
    /// Directories in a directory, as far as their names are known.
    subdirectories: BTreeMap<Fid, u32>,
    /// Directories with names of which it is not known where they lead.
    pub unsure: BTreeSet<Fid>,
    /// The striped directory of each stripe but the first.
    pub masters: BTreeMap<Fid, Fid>,
    /// Directories that stripes of theirs speak of.
    pub striped: BTreeSet<Fid>,
}

impl<'a> Index<'a> {
    pub fn new(image: &'a Image) -> Index<'a> {
        let mut index = Index {
            names: BTreeMap::new(),
            lost: BTreeMap::new(),
            subdirectories: BTreeMap::new(),
            unsure: BTreeSet::new(),
            masters: BTreeMap::new(),
            striped: BTreeSet::new(),
        };
        for mdt in image.mdts.values() {
            for ((parent, _, name), dentry) in &mdt.dentries {
                match dentry {
                    Some(dentry) => index.names.entry(dentry.fid).or_default().insert((*parent, name)),
                    None => drop(index.unsure.insert(*parent)),
                }
            }
            for master in mdt.inodes.values() {
                let others = master.stripes.iter().skip(1);
                index.masters.extend(others.map(|stripe| (*stripe, master.attr.fid)));
            }
        }
        index.add_links(image);
        index.count_subdirectories(image);
        index
    }

    /// Links without names: of a damaged one it says where it leads; one that is gone may come back.
    fn add_links(&mut self, image: &'a Image) {
        for mdt in image.mdts.values() {
            for (fid, links) in &mdt.links {
                if mdt.has(*fid) {
                    let masters = links.iter().filter(|(_, name)| name.is_empty());
                    self.striped.extend(masters.map(|(master, _)| *master));
                }
                for (parent, name) in links.iter().filter(|(_, name)| !name.is_empty()) {
                    let name = (*parent, &name[..]);
                    if self.has_name(*fid, name) {
                        continue;
                    }
                    match dentry_at(image, name) {
                        Some(None) => self.names.entry(*fid).or_default().insert(name),
                        None if can_come_back(image, *fid, name) => {
                            self.lost.entry(*fid).or_default().insert(name);
                        }
                        _ => {}
                    }
                }
            }
        }
        // An inode that has all the names that it counts has lost none: the link is too much.
        let names = &self.names;
        self.lost.retain(|fid, _| {
            let known = names.get(fid).map_or(0, Few::len);
            image.inode(*fid).is_some_and(|inode| match inode.attr.file_type {
                FileType::Directory => known == 0 && inode.attr.link_count > 0,
                _ => known < inode.attr.link_count as usize,
            })
        });
    }

    fn count_subdirectories(&mut self, image: &Image) {
        let mut counts: BTreeMap<Fid, u32> = BTreeMap::new();
        for mdt in image.mdts.values() {
            for ((parent, _, name), dentry) in &mdt.dentries {
                let Some(dentry) = dentry else { continue };
                // What the inode is counts, where it is known.
                let file_type =
                    image.inode(dentry.fid).map_or(dentry.file_type, |inode| inode.attr.file_type);
                let is_extra =
                    self.name_count(dentry.fid) > 1 && !has_link(image, dentry.fid, (*parent, name));
                if file_type == FileType::Directory && !is_extra {
                    *counts.entry(*parent).or_default() += 1;
                }
            }
        }
        for (fid, names) in &self.lost {
            let is_directory =
                image.inode(*fid).is_some_and(|inode| inode.attr.file_type == FileType::Directory);
            for (parent, _) in names.iter().filter(|_| is_directory) {
                *counts.entry(*parent).or_default() += 1;
            }
        }
        self.subdirectories = counts;
    }

    pub fn names_of(&self, fid: Fid) -> impl Iterator<Item = Name<'a>> + '_ {
        self.names.get(&fid).into_iter().flatten().copied()
    }

    pub fn name_count(&self, fid: Fid) -> usize {
        self.names.get(&fid).map_or(0, Few::len)
    }

    pub fn lost_count(&self, fid: Fid) -> usize {
        self.lost.get(&fid).map_or(0, BTreeSet::len)
    }

    pub fn has_name(&self, fid: Fid, name: Name<'_>) -> bool {
        self.names.get(&fid).is_some_and(|names| names.contains(&name))
    }

    pub fn is_lost(&self, fid: Fid, name: Name<'_>) -> bool {
        self.lost.get(&fid).is_some_and(|names| names.contains(&name))
    }

    pub fn subdirectory_count(&self, fid: Fid) -> u32 {
        self.subdirectories.get(&fid).copied().unwrap_or(0)
    }

    /// The directory above one; that of a stripe is that of its master.
    pub fn parent_of(&self, fid: Fid) -> Option<Fid> {
        let fid = self.masters.get(&fid).copied().unwrap_or(fid);
        self.names_of(fid).next().map(|(parent, _)| parent)
    }

    /// Whether more than its own rows is left of a directory without an inode: names in it, or another stripe of it.
    pub fn is_left_of(&self, image: &Image, fid: Fid) -> bool {
        image.lacks_directory(fid) || self.striped.contains(&fid)
    }

    /// Path from the root.
    pub fn path(&self, fid: Fid) -> Option<String> {
        let (mut at, mut parts) = (fid, Vec::new());
        for _ in 0..PATH_PART_COUNT_MAX {
            at = self.masters.get(&at).copied().unwrap_or(at);
            if at == Fid::ROOT {
                parts.reverse();
                return Some(format!("/{}", parts.join("/")));
            }
            let (parent, name) = self.names_of(at).next()?;
            parts.push(shown(name));
            at = parent;
        }
        None
    }

    /// What an inode is called in a finding.
    pub fn called(&self, fid: Fid) -> String {
        let path = self.path(fid);
        match path {
            Some(path) if self.masters.contains_key(&fid) => format!("{path} (stripe {fid})"),
            Some(path) => path,
            None => fid.to_string(),
        }
    }

    /// The same of a name.
    pub fn called_name(&self, (parent, name): Name<'_>) -> String {
        let parent = self.path(parent).unwrap_or_else(|| parent.to_string());
        format!("{}/{}", parent.trim_end_matches('/'), shown(name))
    }

    /// The same of an object.
    pub fn called_object(&self, object: &ObjectId) -> String {
        match self.path(object.fid) {
            Some(path) => format!("{path} (object {object})"),
            None => format!("object {object}"),
        }
    }
}

/// The row of a name where it belongs: `Some(None)` for a damaged one.
fn dentry_at(image: &Image, (parent, name): Name<'_>) -> Option<Option<mds::rows::Dentry>> {
    image.mdt_of(parent)?.dentries.get(&(parent, name_hash(name), name.to_vec())).copied()
}

pub(crate) fn has_link(image: &Image, fid: Fid, (parent, name): Name<'_>) -> bool {
    let links = image.mdt_of(fid).and_then(|mdt| mdt.links.get(&fid));
    links.is_some_and(|links| links.contains(&(parent, name.to_vec())))
}

/// Whether a name may lead to an inode again: there is nothing in its place, and it may be there.
fn can_come_back(image: &Image, fid: Fid, (parent, name): Name<'_>) -> bool {
    let is_directory =
        |inode: &mds::rows::Inode| inode.attr.file_type == FileType::Directory && inode.attr.link_count > 0;
    image.is_certain(parent)
        && image.is_certain(fid)
        && image.inode(parent).is_some_and(is_directory)
        && base::names::check_name(name).is_ok()
}
