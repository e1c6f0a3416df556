//! SETLAYOUT: the default layout of a directory, or the layout of a file without data.

use super::{Cx, Stop, entry_reply};
use crate::access;
use crate::placement::{check_hint, merge_hints};
use base::{Fid, FileType, Status};
use wire::MdtReply;
use wire::mdt::{Credentials, LayoutHint};

/// # Errors
/// `NotPermitted` unless the caller is the owner; `Exists` for a file that may have data already.
pub fn run(cx: &mut Cx, fid: Fid, hint: &LayoutHint, creds: &Credentials) -> Result<MdtReply, Stop> {
    let mut inode = cx.inode(fid)?;
    access::check_owner(&inode.attr, creds)?;
    match inode.attr.file_type {
        FileType::Directory => {
            check_hint(hint)?;
            inode.default_layout = (*hint != LayoutHint::default()).then(|| hint.clone());
        }
        FileType::Regular => {
            // Made when no OST was known: it has no objects, whoever has it open.
            let has_objects = inode.layout.is_some()
                && (inode.attr.size_bytes > 0 || !inode.attr.is_size_known || inode.attr.write_epoch > 0);
            if has_objects {
                return Err(Status::Exists.into());
            }
            let component = inode.layout.as_ref().map_or(0, |layout| layout.component).saturating_add(1);
            inode.layout = cx.placement.layout(fid, component, &merge_hints(Some(hint), None))?;
        }
        _ => return Err(Status::Invalid.into()),
    }
    cx.touch(&mut inode);
    cx.tx.put_inode(&inode);
    Ok(entry_reply(cx.entry(&inode)))
}
