//! FIDTOPATH: all paths of an inode, as far as this MDT knows them.

use super::{Cx, Stop};
use crate::rows;
use base::{Fid, Status};
use wire::MdtReply;

/// Paths of one inode that are returned; a file can have 65,000 names.
const PATH_COUNT_MAX: usize = 1024;
/// Directories are not nested deeper than PATH_MAX allows to be named.
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
    for (key, _) in cx.tx.scan_prefix(rows::LINKS, &fid.key(), PATH_COUNT_MAX)? {
        let (parent, name) = rows::split_link_key(&key).ok_or(Status::Corrupt)?;
        paths.push(path_of(cx, parent, name)?);
    }
    Ok(MdtReply::Paths(paths))
}

fn path_of(cx: &Cx, mut parent: Fid, name: &[u8]) -> Result<Vec<u8>, Status> {
    let mut components = vec![name.to_vec()];
    while parent != Fid::ROOT && components.len() < DEPTH_MAX {
        let Some((grandparent, name)) = parent_of(cx, parent)? else {
            components.push(parent.to_string().into_bytes());
            break;
        };
        components.push(name);
        parent = grandparent;
    }
    components.reverse();
    Ok(components.join(&b'/'))
}

/// Parent and name of a directory; `None` when it is on another MDT or has no name any more.
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
