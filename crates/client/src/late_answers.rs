//! Attributes that the kernel takes in late.
//!
//! Before it seeks to the end of a file, or reads there, it asks for the size, and believes the answer only if the attributes have not become
//! another version meanwhile. Each answer about the inode that it believes makes one: also one to another process of the mount, which was asked
//! for and given long before, and is taken in only when that process gets a processor again. Then the older size stays.
//!
//! Whoever has an advisory lock relies on the size that others have left under theirs: he would write over their last record. So
//! before he is told that he has the lock the kernel is told that there is another version. It takes no lock for that. What it has begun to ask
//! for before that it does not believe any more, and what it asks for afterwards is answered with what was written before the lock was granted.
//!
//! That is needed when others may have changed the size since the last time. While this mount holds one and the same lock that says
//! that nobody else writes the file, it is always its own kernel that has, which makes a version of each write.
//!
//! Without a version the kernel takes in what comes with the answer to a create that finds the file there, or to a link.

use crate::ctx::Ctx;
use crate::machine::Notify;
use crate::state::State;
use base::{Fid, LockId};
use wire::lock::bits;
use wire::{LockMode, LockPolicy, Resource};

impl State {
    /// Nobody else opens the file for writing while this is held, nor had it open so when it was granted.
    fn lock_on_size(&self, fid: Fid) -> Option<LockId> {
        let (resource, policy) = (Resource::Inode(fid), LockPolicy::Bits(bits::UPDATE));
        self.connections.get(&State::mdt(fid))?.locks.find(resource, LockMode::Pr, policy)
    }

    /// The lock under which it is known that none is on its way.
    fn is_void_under(&self, fid: Fid) -> Option<LockId> {
        self.nodes.by_fid(fid).and_then(|node| node.data.late_answers_void_under)
    }
}

/// An advisory lock of a file has been granted, and the kernel does not know of it yet.
pub(crate) async fn void_late_answers(ctx: &Ctx, fid: Fid) {
    let (lock, void_under) = ctx.with(|state| (state.lock_on_size(fid), state.is_void_under(fid)));
    if lock.is_some() && lock == void_under {
        return;
    }
    let notify = Notify::InvalInode { node: fid.inode_number(), offset_bytes: -1, byte_count: 0 };
    // A kernel that does not know the inode has no answers about it.
    ctx.notify(notify).await;
    // Not before: the next one who is granted a lock relies on it.
    ctx.with(|state| {
        if let Some(node) = state.nodes.by_fid_mut(fid) {
            node.data.late_answers_void_under = lock;
        }
    });
}
