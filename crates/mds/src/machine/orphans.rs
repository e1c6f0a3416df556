//! Inodes without a name that somebody had open: they go when nobody has them open any more.

use super::{Mds, MdsEvent, Output};
use crate::op::{Remote, open};
use crate::rows;
use crate::tx::Tx;
use base::{Fid, Now, Status};
use std::sync::Arc;
use store::MetaStore;

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
            if self.cross.is_inode_frozen(*fid) {
                // After the decision.
                continue;
            }
            if let Err(status) = self.sweep_orphan(now, *fid) {
                let what = "an orphan was not swept";
                out.push(Output::Event(MdsEvent::Failed { what, fid: *fid, status }));
            }
        }
    }

    fn sweep_orphan(&mut self, now: Now, fid: Fid) -> Result<(), Status> {
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
