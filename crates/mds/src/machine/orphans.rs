//! Inodes without a name that somebody had open: they go when nobody has them open any more.

use super::{Mds, MdsEvent, Output};
use crate::op::{Remote, open};
use crate::rows;
use crate::tx::Tx;
use base::{Duration, Fid, Now, Status, Time};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use store::MetaStore;

/// After which what the store has refused is tried again: a checkpoint may have made room in the log.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(1000);

/// Inodes that may be without a name, and that nobody has open, and whose removal the store has refused. No more than were open at a time
/// since the store takes nothing.
#[derive(Debug, Default)]
pub(super) struct Unswept {
    fids: BTreeSet<Fid>,
    try_at: Option<Time>,
    /// The last that was refused: the others come before it.
    refused: Option<Fid>,
}

impl Unswept {
    /// Whether it is new.
    pub fn insert(&mut self, now: Time, fid: Fid) -> bool {
        self.try_at.get_or_insert(now.after(TRY_AGAIN_AFTER));
        self.fids.insert(fid)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.try_at
    }

    fn take(&mut self) -> Option<Fid> {
        let behind = self.refused.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.fids.range((behind, Bound::Unbounded)).next();
        let fid = next.or_else(|| self.fids.first()).copied()?;
        self.fids.remove(&fid);
        Some(fid)
    }
}

impl<M: MetaStore> Mds<M> {
    /// After recovery: whoever has an orphan open has said so.
    pub(super) fn sweep_all_orphans(&mut self, now: Now, out: &mut Vec<Output>) {
        const CHUNK: usize = 64;
        let mut from = Vec::new();
        loop {
            let tx = Tx::new(&**self.core.store());
            let end = vec![0xff; store::KEY_BYTES_MAX];
            let rows = match tx.scan(rows::ORPHANS, &from, &end, CHUNK) {
                Ok(rows) => rows,
                Err(status) => {
                    let what = "orphans were not swept";
                    return out.push(Output::Event(MdsEvent::Failed { what, fid: Fid::default(), status }));
                }
            };
            let fids: Vec<Fid> = rows.iter().filter_map(|(key, _)| Fid::from_key(key)).collect();
            let Some((last, _)) = rows.last() else { return };
            from = [last, &[0][..]].concat();
            self.sweep_orphans(now, &fids, out);
        }
    }

    pub(super) fn sweep_orphans(&mut self, now: Now, fids: &[Fid], out: &mut Vec<Output>) {
        for fid in fids {
            if let Err(status) = self.sweep_orphan(now, *fid) {
                self.note_unswept(now, *fid, status, out);
            }
        }
    }

    /// Nobody else has it in mind: who has closed it asks for it no more.
    fn note_unswept(&mut self, now: Now, fid: Fid, status: Status, out: &mut Vec<Output>) {
        // Damage stays as it is, for a check of this target. What passes is told once.
        if status == Status::Corrupt || self.unswept.insert(now.time, fid) {
            let what = "an orphan was not swept";
            out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
        }
    }

    /// What could not be swept before, until the first that cannot be now either.
    pub(super) fn sweep_unswept(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.unswept.try_at.is_none_or(|at| at > now.time) {
            return;
        }
        self.unswept.try_at = None;
        while let Some(fid) = self.unswept.take() {
            match self.sweep_orphan(now, fid) {
                Ok(()) => {}
                Err(Status::Corrupt) => self.note_unswept(now, fid, Status::Corrupt, out),
                Err(_) => {
                    self.unswept.insert(now.time, fid);
                    self.unswept.refused = Some(fid);
                    return;
                }
            }
        }
    }

    fn sweep_orphan(&mut self, now: Now, fid: Fid) -> Result<(), Status> {
        if self.cross.is_inode_frozen(fid) {
            // After the decision.
            return Ok(());
        }
        let remote = Remote::default();
        let store = Arc::clone(self.core.store());
        let mut cx = self.cx(&*store, now.wall, &remote);
        open::sweep_orphans(&mut cx, &[fid])?;
        if cx.tx.is_empty() {
            return Ok(());
        }
        let destroys = cx.tx.keys_put(rows::DESTROYS);
        let batch = cx.tx.into_batch();
        let transno = self.core.apply_internal(batch).map_err(|error| error.status())?;
        self.peers.note_destroys(transno, destroys);
        Ok(())
    }
}
