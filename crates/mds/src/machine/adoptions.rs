//! Files that have come from another MDT, and whose objects still bear the FIDs that they had there.
//!
//! The transaction that makes a file this MDT's own writes a row for each OST and component. When it is durable the OSTs are
//! told to adopt the objects, again and again until they have. Until then nobody gets past the inode, which is frozen as if
//! another MDT's operation held it. A restarted MDT finds the rows, and goes on.

use super::{Mds, MdsEvent, Output};
use crate::rows::{self, Adopt};
use base::fault::{Fault, planted};
use base::{Duration, Fid, Now, ObjectId, Status, TargetId, Time, Transno};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Batch, MetaStore};
use wire::ost::AdoptStep;
use wire::session::features;
use wire::{OstRequest, Request};

/// To one OST at a time.
const RPCS_MAX: usize = 4;
/// After an OST could not.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Rows for one OST.
#[derive(Debug, Default)]
struct Queue {
    ready: VecDeque<Vec<u8>>,
    in_flight: usize,
    /// The OST could not: not before this.
    send_at: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Adoptions {
    /// Rows that are not durable yet, in the order of their transactions.
    young: VecDeque<(Transno, Vec<u8>)>,
    queues: BTreeMap<u16, Queue>,
    /// Rows of each file; never none.
    left: BTreeMap<Fid, BTreeSet<Vec<u8>>>,
    /// Those of them of which an OST has done the first step.
    half_done: BTreeSet<Vec<u8>>,
}

impl Adoptions {
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.queues.values().filter_map(|queue| queue.send_at).min()
    }

    /// The OSTs that have not adopted their objects of a file.
    pub fn awaited_for(&self, fid: Fid) -> impl Iterator<Item = TargetId> {
        let rows = self.left.get(&fid).into_iter().flatten();
        rows.filter_map(|key| rows::split_destroy_key(key)).map(|(ost, ..)| TargetId::ost(ost))
    }

    /// One line for each file that nobody may see yet.
    pub fn under_way(&self) -> impl Iterator<Item = String> {
        self.left.iter().map(|(fid, keys)| format!("{fid}: {} adoptions are not done", keys.len()))
    }

    fn next(&mut self, ost: u16, now: Time) -> Option<Vec<u8>> {
        let queue = self.queues.get_mut(&ost)?;
        if queue.send_at.is_some_and(|at| at > now) {
            return None;
        }
        queue.send_at = None;
        if queue.in_flight >= RPCS_MAX {
            return None;
        }
        let key = queue.ready.pop_front()?;
        queue.in_flight += 1;
        Some(key)
    }
}

impl<M: MetaStore> Mds<M> {
    /// All rows that an earlier incarnation has left.
    pub(super) fn load_adopts(&mut self) -> Result<(), Status> {
        let end = vec![0xff; store::KEY_BYTES_MAX];
        let rows = crate::tx::Tx::new(&**self.core.store()).scan(rows::ADOPTS, &[], &end, usize::MAX)?;
        // They are durable at the latest when this incarnation is.
        self.note_adopts(self.core.last_transno(), rows.into_iter().map(|(key, _)| key).collect());
        Ok(())
    }

    /// Whether all OSTs that are to adopt something know how to; false when one has not been heard.
    ///
    /// # Errors
    /// `NotSupportedCall` when one does not.
    pub(super) fn can_be_adopted(&self, adopts: &[Vec<u8>]) -> Result<bool, Status> {
        let osts: BTreeSet<u16> =
            adopts.iter().filter_map(|key| rows::split_destroy_key(key)).map(|(ost, ..)| ost).collect();
        let known: Vec<u64> = osts.iter().map(|ost| self.peers.features_of(TargetId::ost(*ost))).collect();
        match known.iter().any(|known| *known != 0 && known & features::FILE_MIGRATION == 0) {
            true => Err(Status::NotSupportedCall),
            false => Ok(known.iter().all(|known| *known != 0)),
        }
    }

    /// Rows were written: their files are nobody's to see.
    pub(super) fn note_adopts(&mut self, transno: Transno, keys: Vec<Vec<u8>>) {
        if keys.is_empty() {
            return;
        }
        let id = self.new_operation();
        for key in keys {
            let Some((_, fid, _)) = rows::split_destroy_key(&key) else { continue };
            self.adoptions.left.entry(fid).or_default().insert(key.clone());
            self.adoptions.young.push_back((transno, key));
            if !planted(Fault::AdoptionNotAwaited) {
                self.cross.freeze_inode(fid, id);
            }
        }
    }

    /// What is durable may be asked for.
    pub(super) fn send_adopts(&mut self, now: Now, out: &mut Vec<Output>) {
        let durable = self.core.durable();
        while let Some((_, key)) = self.adoptions.young.pop_front_if(|(transno, _)| *transno <= durable) {
            if let Some((ost, ..)) = rows::split_destroy_key(&key) {
                let queue = self.adoptions.queues.entry(ost).or_default();
                queue.ready.push_back(key);
                if planted(Fault::AdoptionNotAwaited) {
                    // As when the OST is away for a while: who looks meanwhile is to be found.
                    queue.send_at = Some(now.time.after(AGAIN_AFTER));
                }
            }
        }
        let osts: Vec<u16> = self.adoptions.queues.keys().copied().collect();
        for ost in osts {
            while let Some(key) = self.adoptions.next(ost, now.time) {
                self.send_adopt(now, ost, key, out);
            }
        }
        self.adoptions.queues.retain(|_, queue| !queue.ready.is_empty() || queue.in_flight > 0);
    }

    fn send_adopt(&mut self, now: Now, ost: u16, key: Vec<u8>, out: &mut Vec<Output>) {
        let request = match self.adoption_of(&key) {
            Ok(request) => Request::Ost(request),
            Err(status) => return self.on_adopted(now, ost, key, Err(status), out),
        };
        let call = super::peers::Call::Adopt { ost, key: key.clone() };
        if !self.call(now, TargetId::ost(ost), request, call, out) {
            // The configuration has not come yet.
            self.adopt_later(now, ost, key);
        }
    }

    fn adoption_of(&self, key: &[u8]) -> Result<OstRequest, Status> {
        let (_, to, component) = rows::split_destroy_key(key).ok_or(Status::Corrupt)?;
        let value = self.core.store().get(rows::ADOPTS, key).map_err(|error| error.status())?;
        let Adopt { from, stripes } = rows::decode(&value.ok_or(Status::Corrupt)?)?;
        let object = |stripe| ObjectId { fid: from, component, stripe };
        let step = if self.adoptions.half_done.contains(key) { AdoptStep::Bytes } else { AdoptStep::Rows };
        Ok(OstRequest::Adopt { objects: stripes.into_iter().map(object).collect(), to, step })
    }

    fn adopt_later(&mut self, now: Now, ost: u16, key: Vec<u8>) {
        let queue = self.adoptions.queues.entry(ost).or_default();
        queue.in_flight = queue.in_flight.saturating_sub(1);
        queue.ready.push_back(key);
        queue.send_at = Some(now.time.after(AGAIN_AFTER));
    }

    pub(super) fn on_adopted(
        &mut self,
        now: Now,
        ost: u16,
        key: Vec<u8>,
        result: Result<(), Status>,
        out: &mut Vec<Output>,
    ) {
        let Some((_, fid, _)) = rows::split_destroy_key(&key) else { return };
        if result.is_ok() && self.adoptions.half_done.insert(key.clone()) {
            if let Some(queue) = self.adoptions.queues.get_mut(&ost) {
                queue.in_flight = queue.in_flight.saturating_sub(1);
                queue.ready.push_front(key);
            }
            return;
        }
        let done = result.and_then(|()| {
            let mut batch = Batch::new();
            batch.delete(rows::ADOPTS, &key);
            self.core.apply_internal(batch).map(drop).map_err(|error| error.status())
        });
        if let Err(status) = done {
            // It does no harm to have it done twice.
            self.adoptions.half_done.remove(&key);
            let what = "the objects of a file that has moved here were not adopted";
            out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
            return self.adopt_later(now, ost, key);
        }
        if let Some(queue) = self.adoptions.queues.get_mut(&ost) {
            queue.in_flight = queue.in_flight.saturating_sub(1);
        }
        self.adoptions.half_done.remove(&key);
        if let Some(left) = self.adoptions.left.get_mut(&fid) {
            left.remove(&key);
            if left.is_empty() {
                self.adoptions.left.remove(&fid);
                self.cross.thaw_inode(fid);
                self.wake_parked();
            }
        }
    }
}
