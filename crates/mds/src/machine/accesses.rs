//! Access times: what clients say that they have read lately comes with requests that they send anyway (`wire::mdt::Access`), waits
//! for nothing that its request waits for, and may be left out.
//!
//! Only what tells something new is a change, and only then do other clients give back what they know of the inode: with `relatime`
//! the first of all who read a file after a change, or once a day. A change of the inode that is later than an access has the last
//! word, so that what utimensat(2) has set is not overtaken.

use super::{Mds, MdsEvent, Output};
use crate::op::Remote;
use base::{ClientId, Duration, Fid, Now, Status};
use ldlm::{Claimed, Need, OpId};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Batch, MetaStore};
use wire::MdtRequest;
use wire::mdt::Access;

/// So many wait for locks of other clients; more are left out.
const WAITING_MAX: usize = 4096;
/// Clocks of clients are ahead by no more, or they are not believed (as for the times of writes).
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// An access whose inode is being taken back from other clients.
#[derive(Debug)]
struct Waiting {
    access: Access,
    /// Who has read, and keeps its locks: it knows.
    reader: ClientId,
    claimed: Vec<Need>,
}

#[derive(Debug, Default)]
pub(super) struct Accesses {
    waiting: BTreeMap<OpId, Waiting>,
    /// Once each.
    by_fid: BTreeMap<Fid, OpId>,
}

impl Accesses {
    pub fn is_claim(&self, op: OpId) -> bool {
        self.waiting.contains_key(&op)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Takes out what a request tells besides.
pub(super) fn take(request: &mut MdtRequest) -> Vec<Access> {
    match request {
        MdtRequest::Open { accesses, .. }
        | MdtRequest::Close { accesses, .. }
        | MdtRequest::Closes { accesses, .. }
        | MdtRequest::Readdir { accesses, .. } => std::mem::take(accesses),
        _ => Vec::new(),
    }
}

impl<M: MetaStore> Mds<M> {
    /// While the target recovers they are left out: clients do not hold their locks yet.
    pub(super) fn note_accesses(
        &mut self,
        now: Now,
        reader: ClientId,
        accesses: Vec<Access>,
        out: &mut Vec<Output>,
    ) {
        if self.core.is_recovering() {
            return;
        }
        for access in accesses.into_iter().take(WAITING_MAX) {
            if access.fid.mdt_index() == Some(self.options.index) {
                self.note_access(now, reader, access, out);
            }
        }
    }

    fn note_access(&mut self, now: Now, reader: ClientId, access: Access, out: &mut Vec<Output>) {
        if let Some(op) = self.accesses.by_fid.get(&access.fid) {
            if let Some(waiting) = self.accesses.waiting.get_mut(op) {
                waiting.access.at = waiting.access.at.max(access.at);
                waiting.access.is_relative &= access.is_relative;
            }
            return;
        }
        if self.accesses.waiting.len() >= WAITING_MAX {
            return;
        }
        let claimed = match self.accessing(now, access) {
            Ok(Some((needs, _))) => needs,
            Ok(None) => return,
            Err(status) => return failed(access.fid, status, out),
        };
        let op = self.new_op();
        let needs = claimed.clone();
        self.accesses.waiting.insert(op, Waiting { access, reader, claimed });
        self.accesses.by_fid.insert(access.fid, op);
        if self.locks.claim(now.time, op, Some(reader), needs, &mut self.lock_out) == Claimed::Ready {
            self.on_access_claim_ready(now, op, out);
        }
    }

    pub(super) fn on_access_claim_ready(&mut self, now: Now, op: OpId, out: &mut Vec<Output>) {
        let Some(Waiting { access, reader, claimed }) = self.accesses.waiting.remove(&op) else { return };
        self.accesses.by_fid.remove(&access.fid);
        let accessing = self.accessing(now, access);
        // It may have got a name in another directory while this waited.
        let is_enough = |needs: &[Need]| needs.iter().all(|need| claimed.contains(need));
        let is_again = matches!(&accessing, Ok(Some((needs, _))) if !is_enough(needs));
        let done = match accessing {
            Ok(Some((_, batch))) if !is_again => {
                self.core.apply_internal(batch).map(drop).map_err(|error| error.status())
            }
            Ok(_) => Ok(()),
            Err(status) => Err(status),
        };
        if let Err(status) = done {
            failed(access.fid, status, out);
        }
        self.locks.release(now.time, op, &mut self.lock_out);
        if is_again {
            self.note_access(now, reader, access, out);
        }
    }

    /// The change of the row, and what it claims; `None` where it tells nothing new, or where an operation of another MDT holds the
    /// inode.
    fn accessing(&mut self, now: Now, access: Access) -> Result<Option<(Vec<Need>, Batch)>, Status> {
        if self.core.is_recovering() || self.cross.is_inode_frozen(access.fid) {
            return Ok(None);
        }
        let remote = Remote::default();
        let store = Arc::clone(self.core.store());
        let mut cx = self.cx(&*store, now.wall, &remote);
        let Some(mut inode) = cx.tx.inode(access.fid)? else { return Ok(None) };
        let at = match access.at.0 > now.wall.0.saturating_add(AHEAD_MAX.as_nanos() as i64) {
            true => now.wall,
            false => access.at,
        };
        if !inode.attr.is_outdone_by(at, access.is_relative) {
            return Ok(None);
        }
        inode.attr.atime = at;
        inode.attr.version = cx.version;
        cx.tx.put_inode(&inode);
        let (needs, touched, batch) = (cx.tx.needs()?, cx.tx.touched(), cx.tx.into_batch());
        // A directory that has not come to life.
        let is_held = !self.streams.held_among(&touched, None).is_empty();
        Ok((!is_held).then_some((needs, batch)))
    }
}

fn failed(fid: Fid, status: Status, out: &mut Vec<Output>) {
    let what = "an access time was not kept";
    out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
}
