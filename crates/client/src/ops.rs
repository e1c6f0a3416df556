//! Operations: one `async fn` for each call of a mount.

pub(crate) mod advise;
pub(crate) mod append;
pub(crate) mod attr;
pub(crate) mod change;
pub(crate) mod copy;
pub(crate) mod cut;
pub(crate) mod dir;
pub(crate) mod flock;
pub(crate) mod io;
pub(crate) mod migrate;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod probe;
pub(crate) mod room;
pub(crate) mod root;
pub(crate) mod seek;
pub(crate) mod space;
pub(crate) mod sync;
pub(crate) mod xattr;

use crate::call::{Answer, Call};
use crate::ctx::{Ctx, Outcome, Who};
use crate::executor::oneshot;
use base::{Fid, Status, TargetId};
use names::Creation;
use wire::mdt::NewNode;

/// The inode behind a node id of the kernel.
pub(crate) fn inode_of(ctx: &Ctx, node: u64) -> Outcome<Fid> {
    ctx.with(|state| state.nodes.get(node).map(|node| node.fid())).ok_or(Status::Stale)
}

/// The same, for a directory; the MDT checks that it is one.
pub(crate) fn fid_of(ctx: &Ctx, node: u64) -> Outcome<Fid> {
    inode_of(ctx, node)
}

/// The directory that holds a name of one that the kernel knows: itself, or one of its stripes. What is known and asked of names
/// is known and asked of that one.
pub(crate) fn home_of(ctx: &Ctx, node: u64, name: &[u8]) -> Outcome<Fid> {
    let directory = fid_of(ctx, node)?;
    Ok(ctx.with(|state| state.nodes.home_of(directory, name)))
}

/// Executes a call to its end.
pub(crate) async fn execute(ctx: &Ctx, who: &Who, call: Call) -> Outcome<Answer> {
    wait_for_config(ctx).await;
    match call {
        Call::Lookup { parent, name } => attr::lookup(ctx, parent, name).await,
        Call::Getattr { node, fh: _ } | Call::Statx { node, fh: _ } => attr::getattr(ctx, node).await,
        Call::Setattr { node, set } => attr::setattr(ctx, who, node, set).await,
        Call::Readlink { node } => attr::readlink(ctx, node).await,
        Call::Symlink { parent, name, target } => {
            let creation = Creation::of(NewNode::Symlink { target }, 0o777, 0);
            names::make(ctx, who, parent, name, creation).await
        }
        Call::Mknod { parent, name, mode, umask, rdev } => {
            let node = names::node_of_mode(mode, rdev)?;
            names::make(ctx, who, parent, name, Creation::of(node, mode, umask)).await
        }
        Call::Mkdir { parent, name, mode, umask } => {
            names::make(ctx, who, parent, name, Creation::of(NewNode::Directory, mode, umask)).await
        }
        Call::Unlink { parent, name } => names::remove(ctx, who, parent, name, false).await,
        Call::Rmdir { parent, name } => names::remove(ctx, who, parent, name, true).await,
        Call::Rename { parent, name, new_parent, new_name, flags } => {
            names::rename(ctx, who, (parent, name), (new_parent, new_name), flags).await
        }
        Call::Link { node, parent, name } => names::link(ctx, who, node, parent, name).await,
        Call::Open { node, flags } => open::open(ctx, who, node, flags).await,
        Call::Create { parent, name, mode, umask, flags } => {
            open::create_open(ctx, who, parent, Some(name), mode, umask, flags).await
        }
        Call::Tmpfile { parent, mode, umask, flags } => {
            open::create_open(ctx, who, parent, None, mode, umask, flags).await
        }
        Call::Read { node, fh, offset_bytes, byte_count, is_direct } => {
            attr::check_range(offset_bytes, u64::from(byte_count))?;
            flock::reading(ctx, fh, io::read(ctx, who, node, offset_bytes, byte_count, is_direct)).await
        }
        Call::Write { node, fh, offset_bytes, data, flags, is_writeback, kill_privileges } => {
            attr::check_range(offset_bytes, data.len() as u64)?;
            let call = io::WriteCall { node, fh, offset_bytes, data, flags, is_writeback, kill_privileges };
            io::write(ctx, who, call).await
        }
        Call::Flush { node, fh, lock_owner } => open::flush(ctx, node, fh, lock_owner).await,
        Call::Release { node: _, fh, flock_owner } => open::release(ctx, fh, flock_owner).await,
        Call::Fsync { node, fh, data_only: _ } => sync::fsync(ctx, who, node, fh).await,
        Call::Opendir { node, flags } => dir::opendir(ctx, node, flags).await,
        Call::Readdir { node, fh, offset, byte_count, is_plus } => {
            dir::readdir(ctx, node, fh, offset, byte_count, is_plus).await
        }
        Call::Releasedir { node: _, fh } => dir::releasedir(ctx, fh),
        Call::Fsyncdir { node, fh, data_only: _ } => sync::fsync_directory(ctx, who, node, fh).await,
        Call::Statfs { node: _ } => space::statfs(ctx).await,
        Call::Setxattr { node, name, value, flags } => xattr::set(ctx, who, node, name, value, flags).await,
        Call::Getxattr { node, name } => xattr::get(ctx, node, name).await,
        Call::Listxattr { node } => xattr::list(ctx, who, node).await,
        Call::Removexattr { node, name } => xattr::remove(ctx, who, node, name).await,
        Call::Getlk { node, fh: _, lock } => flock::get(ctx, node, lock).await,
        Call::Setlk { node, fh, lock, can_wait } => flock::set(ctx, who, node, fh, lock, can_wait).await,
        Call::Fallocate { node, fh, offset_bytes, byte_count, mode } => {
            change::fallocate(ctx, who, (node, fh), offset_bytes, byte_count, mode).await
        }
        Call::Lseek { node, fh: _, offset_bytes, whence } => {
            seek::seek(ctx, node, offset_bytes, whence).await
        }
        Call::CopyFileRange { node, fh, offset_bytes, to_node, to_fh, to_offset_bytes, byte_count } => {
            attr::check_range(to_offset_bytes, byte_count.min(copy::COPY_BYTES_MAX))?;
            let from = copy::CopyEnd { node, fh, offset_bytes };
            let to = copy::CopyEnd { node: to_node, fh: to_fh, offset_bytes: to_offset_bytes };
            copy::copy_range(ctx, who, from, to, byte_count).await
        }
        Call::Access { node, mask: _ } => inode_of(ctx, node).map(|_| Answer::Done),
        Call::SyncAll => sync::sync(ctx, who).await,
        Call::Advise { node, extent, advice } => advise::advise(ctx, who, node, extent, advice).await,
        Call::Getstripe { node } => space::getstripe(ctx, node).await,
        Call::GetstripeOf { parent, name } => space::getstripe_of(ctx, who, parent, name).await,
        Call::Setstripe { node, layout } => space::setstripe(ctx, who, node, layout).await,
        Call::CreateStriped { parent, name, mode, umask, layout } => {
            let creation = Creation { layout: Some(layout), ..Creation::of(NewNode::Regular, mode, umask) };
            names::make_unreferenced(ctx, who, parent, name, creation).await
        }
        Call::MkdirOn { parent, name, mode, umask, mdt_index } => {
            let creation =
                Creation { mdt_index: Some(mdt_index), ..Creation::of(NewNode::Directory, mode, umask) };
            names::make_unreferenced(ctx, who, parent, name, creation).await
        }
        Call::MkdirStriped { parent, name, mode, umask, striping } => {
            let creation =
                Creation { striping: Some(striping), ..Creation::of(NewNode::Directory, mode, umask) };
            names::make_unreferenced(ctx, who, parent, name, creation).await
        }
        Call::Migrate { parent, name, mdt_index } => {
            migrate::migrate(ctx, who, parent, name, mdt_index).await
        }
        Call::Setdirstripe { node, striping } => dir::setdirstripe(ctx, who, node, striping).await,
        Call::Getdirstripe { node } => dir::getdirstripe(ctx, node).await,
        Call::FidToPath { fid } => space::fid_to_path(ctx, who, fid).await,
        Call::NodeFid { node } => inode_of(ctx, node).map(Answer::Fid),
        Call::FidOf { parent, name } => {
            attr::entry_at(ctx, parent, name).await.map(|entry| Answer::Fid(entry.fid))
        }
        Call::DfTargets => space::df_targets(ctx).await,
        Call::ListPools => space::pools(ctx),
        Call::ProbeTargets => probe::probe_targets(ctx).await,
    }
}

async fn wait_for_config(ctx: &Ctx) {
    loop {
        let receiver = ctx.with(|state| {
            if state.connections.contains_key(&TargetId::mdt(0)) {
                return None;
            }
            let (sender, receiver) = oneshot();
            state.config_waiters.push(sender);
            Some(receiver)
        });
        match receiver {
            Some(receiver) => receiver.await,
            None => return,
        };
    }
}

/// Whether the kernel has looked if the caller may do that. Of what `lfs` asks for it knows nothing, and it leaves to us whether an ACL ends
/// set-group-id.
pub(crate) fn is_judged(call: &Call) -> bool {
    match call {
        Call::Setxattr { name, .. } => !name.starts_with(b"system.posix_acl_"),
        Call::Setstripe { .. }
        | Call::CreateStriped { .. }
        | Call::MkdirOn { .. }
        | Call::MkdirStriped { .. }
        | Call::Migrate { .. }
        | Call::Setdirstripe { .. } => false,
        _ => true,
    }
}

/// The group that chown(2) gives an inode to: but for the superuser, one of the caller's.
pub(crate) fn named_gid(call: &Call) -> Option<u32> {
    if let Call::Setattr { set, .. } = call { set.gid } else { None }
}

/// What is known of a call before it runs: its name in statistics, the nodes whose locks the kernel may hold for it,
/// and whether a caller who is killed may be let go while a target does not answer: what changes something goes on to its end.
pub(crate) fn describe(call: &Call) -> (&'static str, Vec<u64>, bool) {
    match call {
        Call::Lookup { parent, .. } => ("lookup", vec![*parent], true),
        Call::Getattr { node, .. } => ("getattr", vec![*node], true),
        Call::Statx { node, .. } => ("statx", vec![*node], true),
        Call::Setattr { node, .. } => ("setattr", vec![*node], false),
        Call::Readlink { .. } => ("readlink", vec![], true),
        Call::Symlink { parent, .. } => ("symlink", vec![*parent], false),
        Call::Mknod { parent, .. } => ("mknod", vec![*parent], false),
        Call::Mkdir { parent, .. } => ("mkdir", vec![*parent], false),
        Call::Unlink { parent, .. } => ("unlink", vec![*parent], false),
        Call::Rmdir { parent, .. } => ("rmdir", vec![*parent], false),
        Call::Rename { parent, new_parent, .. } => ("rename", vec![*parent, *new_parent], false),
        Call::Link { parent, node, .. } => ("link", vec![*parent, *node], false),
        Call::Open { node, .. } => ("open", vec![*node], false),
        Call::Create { parent, .. } => ("create", vec![*parent], false),
        Call::Tmpfile { parent, .. } => ("tmpfile", vec![*parent], false),
        Call::Read { .. } => ("read", vec![], true),
        Call::Write { .. } => ("write", vec![], false),
        Call::Flush { .. } => ("flush", vec![], false),
        Call::Release { .. } => ("close", vec![], false),
        Call::Fsync { .. } => ("fsync", vec![], true),
        Call::Opendir { .. } => ("opendir", vec![], true),
        Call::Readdir { node, .. } => ("readdir", vec![*node], true),
        Call::Releasedir { .. } => ("closedir", vec![], false),
        Call::Fsyncdir { node, .. } => ("fsyncdir", vec![*node], true),
        Call::Statfs { .. } => ("statfs", vec![], true),
        Call::Setxattr { node, .. } => ("setxattr", vec![*node], false),
        Call::Getxattr { .. } => ("getxattr", vec![], true),
        Call::Listxattr { .. } => ("listxattr", vec![], true),
        Call::Removexattr { node, .. } => ("removexattr", vec![*node], false),
        Call::Getlk { .. } => ("getlk", vec![], true),
        Call::Setlk { .. } => ("setlk", vec![], false),
        Call::Fallocate { .. } => ("fallocate", vec![], false),
        Call::Lseek { .. } => ("seek", vec![], true),
        Call::CopyFileRange { .. } => ("copy_file_range", vec![], false),
        Call::Access { .. } => ("access", vec![], true),
        Call::SyncAll => ("sync", vec![], true),
        Call::Advise { .. } => ("ladvise", vec![], true),
        Call::Getstripe { .. } | Call::GetstripeOf { .. } => ("getstripe", vec![], true),
        Call::Setstripe { .. } => ("setstripe", vec![], false),
        Call::CreateStriped { parent, .. } => ("create", vec![*parent], false),
        Call::MkdirOn { parent, .. } | Call::MkdirStriped { parent, .. } => ("mkdir", vec![*parent], false),
        Call::Migrate { .. } => ("migrate", vec![], false),
        Call::Setdirstripe { .. } => ("setdirstripe", vec![], false),
        Call::Getdirstripe { .. } => ("getdirstripe", vec![], true),
        Call::FidToPath { .. } => ("fid2path", vec![], true),
        Call::NodeFid { .. } | Call::FidOf { .. } => ("path2fid", vec![], true),
        Call::DfTargets => ("df", vec![], true),
        Call::ListPools => ("pool_list", vec![], true),
        Call::ProbeTargets => ("health", vec![], true),
    }
}
