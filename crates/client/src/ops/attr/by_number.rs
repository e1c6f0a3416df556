//! Inodes that the kernel asks for by number, as it has forgotten them: for a file handle (open_by_handle_at(2), an NFS server) it looks up
//! `.` of an inode of any kind, and `..` of a directory, to find its way to the root. That is the directory which is mounted, and nothing
//! above it is there for the kernel.

use super::current_attr;
use crate::call::Answer;
use crate::ctx::{Ctx, Outcome};
use base::{Fid, Status};
use rpc::Kind;
use wire::lock::LockWant;
use wire::{MdtReply, MdtRequest};

/// A parent that is on another MDT is asked there, and once more if it is a stripe of a third one's.
const STEP_COUNT_MAX: usize = 3;

/// # Errors
/// `Stale` or `NotFound` for what is not there any more.
pub(super) async fn lookup(ctx: &Ctx, number: u64, name: &[u8]) -> Outcome<Answer> {
    let fid = Fid::from_inode_number(number).ok_or(Status::Stale)?;
    let root = ctx.with(|state| state.root.fid);
    let found = if name == b".." { parent_of(ctx, fid, root).await? } else { fid };
    // The number of the file system's root means the mounted directory to the kernel.
    if found == Fid::ROOT && root != Fid::ROOT {
        return Err(Status::Stale);
    }
    let was_in_use = ctx.with(|state| {
        // The reply's facts need a place before the answer is made.
        let was_in_use = !state.nodes.get_or_new(found).is_unused();
        state.keep_listed(found);
        was_in_use
    });
    let attr = current_attr(ctx, found).await.and_then(|attr| match attr.link_count {
        // Other mounts have it open: who comes by a handle finds it gone.
        0 if !was_in_use => Err(Status::Stale),
        _ => Ok(attr),
    });
    let attr = attr.map_err(|status| {
        ctx.with(|state| state.drop_unused_node(found.inode_number()));
        nowhere(status)
    })?;
    Ok(Answer::Entry(ctx.with(|state| state.entry_answer(None, attr, false, false))))
}

/// A number that somebody has made up may be of an MDT that there is not.
fn nowhere(status: Status) -> Status {
    if status == Status::NoDevice { Status::Stale } else { status }
}

/// The directory that another one is in now, as the kernel may know it: no stripe. A root is its own.
async fn parent_of(ctx: &Ctx, directory: Fid, root: Fid) -> Outcome<Fid> {
    if directory == root || directory == Fid::ROOT {
        return Ok(directory);
    }
    let (mut at, mut name) = (directory, &b".."[..]);
    for _ in 0..STEP_COUNT_MAX {
        let request = MdtRequest::Lookup { parent: at, name: name.to_vec(), want: LockWant::default() };
        match ctx.mdt(at, request, Kind::Plain).await {
            Ok(MdtReply::Entry(entry)) if entry.attr.is_some() => return Ok(entry.fid),
            Ok(MdtReply::Entry(entry)) => (at, name) = (entry.fid, b"."),
            Ok(_) => return Err(Status::ProtocolError),
            // An MDT of before it knew these names.
            Err(Status::Invalid) => return Err(Status::Stale),
            Err(status) => return Err(nowhere(status)),
        }
    }
    Err(Status::ProtocolError)
}
