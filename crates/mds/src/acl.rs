//! POSIX access control lists: the xattr form that Linux uses, and what they mean.

use base::Status;

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const XATTR_VERSION: u32 = 2;
/// Entries of one list; more than fits in an xattr of any local file system.
const ENTRY_COUNT_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    UserObj,
    User(u32),
    GroupObj,
    Group(u32),
    Mask,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    pub tag: Tag,
    /// rwx, 3 bits.
    pub permissions: u32,
}

/// A valid list, in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Reads the value of an ACL xattr.
    ///
    /// # Errors
    /// `NotSupported` for another version, `Invalid` for anything that is no complete, ordered list.
    pub fn from_xattr(value: &[u8]) -> Result<Acl, Status> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or(Status::Invalid)?;
        if u32::from_le_bytes(*version) != XATTR_VERSION {
            return Err(Status::NotSupported);
        }
        let (chunks, tail) = rest.as_chunks::<8>();
        if !tail.is_empty() || chunks.len() > ENTRY_COUNT_MAX {
            return Err(Status::Invalid);
        }
        let entries = chunks.iter().map(read_entry).collect::<Result<Vec<_>, _>>()?;
        let acl = Acl { entries };
        if acl.is_valid() { Ok(acl) } else { Err(Status::Invalid) }
    }

    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = XATTR_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, id) = tag_to_wire(entry.tag);
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&(entry.permissions as u16).to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// One entry for owner, group and others each; a mask when users or groups are named; classes in order.
    fn is_valid(&self) -> bool {
        let class = |tag: Tag| match tag {
            Tag::UserObj => 0,
            Tag::User(_) => 1,
            Tag::GroupObj => 2,
            Tag::Group(_) => 3,
            Tag::Mask => 4,
            Tag::Other => 5,
        };
        let count = |wanted: u8| self.entries.iter().filter(|entry| class(entry.tag) == wanted).count();
        let is_ordered = self.entries.windows(2).all(|pair| match pair {
            [a, b] => class(a.tag) <= class(b.tag),
            _ => true,
        });
        is_ordered
            && count(0) == 1
            && count(2) == 1
            && count(5) == 1
            && count(4) <= 1
            && (count(4) == 1 || (count(1) == 0 && count(3) == 0))
    }

    fn mask(&self) -> u32 {
        self.entries.iter().find(|entry| entry.tag == Tag::Mask).map_or(7, |entry| entry.permissions)
    }

    /// The nine mode bits that stand for this list: the mask, where there is one, is the group's.
    pub fn mode(&self) -> u32 {
        let mut mode = 0;
        let has_mask = self.entries.iter().any(|entry| entry.tag == Tag::Mask);
        for entry in &self.entries {
            match entry.tag {
                Tag::UserObj => mode |= entry.permissions << 6,
                Tag::Mask => mode |= entry.permissions << 3,
                Tag::GroupObj if !has_mask => mode |= entry.permissions << 3,
                Tag::Other => mode |= entry.permissions,
                Tag::GroupObj | Tag::User(_) | Tag::Group(_) => {}
            }
        }
        mode
    }

    /// The list says no more than nine mode bits can.
    pub fn is_mode_only(&self) -> bool {
        self.entries.len() == 3
    }

    /// After chmod.
    pub fn set_mode(&mut self, mode: u32) {
        let has_mask = self.entries.iter().any(|entry| entry.tag == Tag::Mask);
        for entry in &mut self.entries {
            match entry.tag {
                Tag::UserObj => entry.permissions = mode >> 6 & 7,
                Tag::Mask => entry.permissions = mode >> 3 & 7,
                Tag::GroupObj if !has_mask => entry.permissions = mode >> 3 & 7,
                Tag::Other => entry.permissions = mode & 7,
                Tag::GroupObj | Tag::User(_) | Tag::Group(_) => {}
            }
        }
    }

    /// The access list of a new inode in a directory with this default list, and its nine mode bits, when `mode` is
    /// asked for. The umask has no say.
    pub fn inherit(&self, mode: u32) -> (Acl, u32) {
        let mut acl = self.clone();
        let allowed = acl.mode() & mode;
        acl.set_mode(allowed);
        (acl, allowed)
    }

    /// Whether somebody who is not the superuser gets all of `wanted` (rwx). `is_in` tells group membership, `None` where that is not
    /// known: then only if he gets it whether he is in those groups or not.
    pub fn allows(
        &self,
        is_owner: bool,
        uid: u32,
        owning_gid: u32,
        is_in: impl Fn(u32) -> Option<bool>,
        wanted: u32,
    ) -> bool {
        let has = |permissions: u32| permissions & wanted == wanted;
        let mut is_refused_by_group = false;
        for entry in &self.entries {
            match entry.tag {
                Tag::UserObj if is_owner => return has(entry.permissions),
                Tag::User(named) if named == uid => return has(entry.permissions & self.mask()),
                Tag::GroupObj | Tag::Group(_) => {
                    let gid = if let Tag::Group(gid) = entry.tag { gid } else { owning_gid };
                    let has_it = has(entry.permissions & self.mask());
                    match is_in(gid) {
                        Some(true) if has_it => return true,
                        Some(true) => is_refused_by_group = true,
                        None => is_refused_by_group |= !has_it,
                        Some(false) => {}
                    }
                }
                Tag::Other => return !is_refused_by_group && has(entry.permissions),
                Tag::UserObj | Tag::User(_) | Tag::Mask => {}
            }
        }
        false
    }
}

fn read_entry(bytes: &[u8; 8]) -> Result<AclEntry, Status> {
    let [t0, t1, p0, p1, i0, i1, i2, i3] = *bytes;
    let id = u32::from_le_bytes([i0, i1, i2, i3]);
    let permissions = u32::from(u16::from_le_bytes([p0, p1]));
    let tag = match u16::from_le_bytes([t0, t1]) {
        0x01 => Tag::UserObj,
        0x02 => Tag::User(id),
        0x04 => Tag::GroupObj,
        0x08 => Tag::Group(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        _ => return Err(Status::Invalid),
    };
    if permissions > 7 {
        return Err(Status::Invalid);
    }
    Ok(AclEntry { tag, permissions })
}

fn tag_to_wire(tag: Tag) -> (u16, u32) {
    const NO_ID: u32 = u32::MAX;
    match tag {
        Tag::UserObj => (0x01, NO_ID),
        Tag::User(id) => (0x02, id),
        Tag::GroupObj => (0x04, NO_ID),
        Tag::Group(id) => (0x08, id),
        Tag::Mask => (0x10, NO_ID),
        Tag::Other => (0x20, NO_ID),
    }
}

#[cfg(test)]
mod tests;
