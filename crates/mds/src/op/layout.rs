//! SETLAYOUT: the default layout of a directory, or the layout of a file without data. GETDEFAULTLAYOUT.

use super::{Cx, Stop, entry_reply, stripes};
use crate::access;
use crate::placement::check_hint;
use base::{Fid, FileType, Layout, Status};
use wire::MdtReply;
use wire::mdt::{Credentials, LayoutHint};

/// # Errors
/// `NotPermitted` unless the caller is the owner; `Exists` for a file that may have data already; `NoSpace` for a file while all OSTs are
/// drained; `Invalid` for what makes no
/// layout, and for OSTs that get no new files and pools that there are not.
pub fn run(cx: &mut Cx, fid: Fid, hint: &LayoutHint, creds: &Credentials) -> Result<MdtReply, Stop> {
    let mut inode = cx.inode(fid)?;
    access::check_owner(&inode.attr, creds)?;
    match inode.attr.file_type {
        FileType::Directory => {
            check_hint(hint)?;
            cx.check_asked(Some(hint))?;
            inode.default_layout = (*hint != LayoutHint::default()).then(|| hint.clone());
        }
        FileType::Regular => {
            // Made when no OST was known: it has no objects, whoever has it open.
            let has_objects = inode.layout.is_some()
                && (inode.attr.size_bytes > 0 || !inode.attr.is_size_known || inode.attr.write_epoch > 0);
            if has_objects {
                return Err(Status::Exists.into());
            }
            let first_id = inode.layout.as_ref().map_or(1, Layout::next_component_id);
            inode.layout = cx.new_layout(fid, first_id, Some(hint), hint.clone())?;
            if inode.layout.is_none() && !cx.is_replay {
                cx.placement.check_not_drained()?;
            }
        }
        _ => return Err(Status::Invalid.into()),
    }
    cx.touch(&mut inode);
    cx.tx.put_inode(&inode);
    stripes::lead(cx, &inode, None)?;
    Ok(entry_reply(cx.entry(&inode)))
}

/// What new files get, whether it was said of this directory or for the whole file system.
///
/// # Errors
/// `NotDirectory`
pub fn default_of(cx: &mut Cx, fid: Fid) -> Result<MdtReply, Stop> {
    let said = cx.directory(fid)?.default_layout.unwrap_or_default();
    Ok(MdtReply::DefaultLayout(cx.placement.spelled_out(said)))
}
