//! FIDTOPATH: all paths of an inode, as far as this MDT knows them.

use super::{Cx, Stop};
use crate::rows;
use base::{Fid, Status};
use wire::MdtReply;

/// Paths of one inode that are returned; a file can have 65,000 names.
const PATH_COUNT_MAX: usize = 1024;
/// All paths of a reply stay well below a frame.
const REPLY_BYTES_MAX: usize = base::limits::FRAME_BODY_BYTES_MAX / 2;
/// One path; what is deeper is given from a directory on, as if that lay on another MDT.
const PATH_BYTES_MAX: usize = 64 << 10;
/// Directories are not nested deeper than PATH_MAX allows to be named. (They can be; who does that has no use for their paths.)
const DEPTH_MAX: usize = 2048;

/// A path whose upper part lies on another MDT is given from there on, as `[FID]/rest`.
///
/// # Errors
/// `Stale` when the inode does not exist.
pub fn run(cx: &mut Cx, fid: Fid) -> Result<MdtReply, Stop> {
    cx.inode(fid)?;
    if fid == Fid::ROOT {
        return Ok(MdtReply::Paths(vec![Vec::new()]));
    }
    let mut paths = Vec::new();
    let mut byte_count = 0;
    for (key, _) in cx.tx.scan_prefix(rows::LINKS, &fid.key(), PATH_COUNT_MAX)? {
        let (parent, name) = rows::split_link_key(&key).ok_or(Status::Corrupt)?;
        let path = path_of(cx, parent, name)?;
        byte_count += path.len() + 4;
        if byte_count > REPLY_BYTES_MAX {
            break;
        }
        paths.push(path);
    }
    Ok(MdtReply::Paths(paths))
}

/// A way up over parents. In a ring of directories below themselves, which only damage can make, it comes back to one that it has marked: the marks
/// are ever farther apart, so each ring is found however long it is and however far below it begins, and directories may be nested as deep as they like.
#[derive(Clone, Copy, Debug)]
pub struct WayUp {
    at: Fid,
    marked: Fid,
    step_count: u64,
    /// Marks there.
    next_mark: u64,
}

impl WayUp {
    pub fn from(directory: Fid) -> WayUp {
        WayUp { at: directory, marked: directory, step_count: 0, next_mark: 1 }
    }

    pub fn at(&self) -> Fid {
        self.at
    }

    /// # Errors
    /// `Corrupt` when it leads back.
    pub fn step(&mut self, parent: Fid) -> Result<(), Status> {
        if parent == self.marked {
            return Err(Status::Corrupt);
        }
        self.at = parent;
        self.step_count += 1;
        if self.step_count == self.next_mark {
            self.marked = parent;
            self.next_mark = self.next_mark.saturating_mul(2);
        }
        Ok(())
    }
}

fn path_of(cx: &Cx, mut parent: Fid, name: &[u8]) -> Result<Vec<u8>, Status> {
    // A stripe has no name of its own: its directory follows.
    let mut components = if name.is_empty() { Vec::new() } else { vec![name.to_vec()] };
    let mut byte_count = name.len();
    while parent != Fid::ROOT {
        let above = parent_of(cx, parent)?;
        let Some((grandparent, name)) =
            above.filter(|_| components.len() < DEPTH_MAX && byte_count < PATH_BYTES_MAX)
        else {
            components.push(parent.to_string().into_bytes());
            break;
        };
        byte_count += name.len() + 1;
        if !name.is_empty() {
            components.push(name);
        }
        parent = grandparent;
    }
    components.reverse();
    Ok(components.join(&b'/'))
}

/// Parent and name of a directory, an empty one of a stripe; `None` when it is on another MDT or has no name any more.
///
/// # Errors
/// Those of the store.
pub fn parent_of(cx: &Cx, directory: Fid) -> Result<Option<(Fid, Vec<u8>)>, Status> {
    if !cx.is_local(directory) {
        return Ok(None);
    }
    let links = cx.tx.scan_prefix(rows::LINKS, &directory.key(), 1)?;
    let Some((key, _)) = links.first() else { return Ok(None) };
    let (parent, name) = rows::split_link_key(key).ok_or(Status::Corrupt)?;
    Ok(Some((parent, name.to_vec())))
}
