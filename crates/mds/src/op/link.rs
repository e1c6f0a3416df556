//! LINK: one more name for an inode.

use super::{Cx, Stop, entry_reply, part, remote_entry};
use crate::access::{self, EXECUTE, WRITE};
use crate::rows::Dentry;
use base::names::check_name;
use base::{Fid, FileType, Status};
use wire::MdtReply;
use wire::lock::LockWant;
use wire::mdt::Credentials;
use wire::peer::Part;

/// # Errors
/// As link(2).
pub fn run(
    cx: &mut Cx,
    fid: Fid,
    parent: Fid,
    name: &[u8],
    creds: &Credentials,
    want: LockWant,
) -> Result<MdtReply, Stop> {
    check_name(name)?;
    let mut directory = cx.directory_of(parent, name)?;
    access::check_access(&cx.tx, &directory, creds, EXECUTE)?;
    if cx.tx.dentry(parent, name)?.is_some() {
        return Err(Status::Exists.into());
    }
    access::check_access(&cx.tx, &directory, creds, WRITE | EXECUTE)?;
    let mut entry = if cx.is_local(fid) {
        let inode = part::add_link(cx, fid, parent, name)?;
        cx.want_inode(want, &inode);
        cx.entry(&inode)
    } else {
        cx.remote_part(fid, Part::AddLink { fid, parent, name: name.to_vec() })?;
        // Until the inode's MDT has answered, nothing is applied, so any type will do.
        let file_type = cx.remote.types.get(&fid).copied().unwrap_or(FileType::Regular);
        remote_entry(Dentry { fid, file_type })
    };
    cx.add_name(&mut directory, name, Dentry { fid, file_type: entry.file_type })?;
    cx.tx.put_inode(&directory);
    cx.want_name(want, parent, name);
    entry.parent_attr = Some(directory.attr);
    Ok(entry_reply(entry))
}
