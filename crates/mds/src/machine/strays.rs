//! What a recovery that lost a client leaves on the OSTs (hazards 4.2 and 5.2): objects of files whose creation is
//! lost, and objects that were written or cut under an open, or before a change of size, that is lost.
//!
//! The MDT compares the objects with its inodes, in the background, OST by OST: objects of earlier incarnations' files
//! that are not there are destroyed; a size that does not fit its objects is unknown from then on, and whoever asks for
//! it asks the objects. A row says that this is still to be done.

use super::{Mds, MdsEvent, Output};
use crate::fids::Fids;
use crate::op::Remote;
use crate::rows::{self, Destroy, Inode};
use base::{Duration, Endpoint, Epoch, Extent, Fid, Now, ObjectId, Status, TargetId, Time, limits};
use ldlm::{Claimed, Need, OpId};
use rpc::Answer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Batch, MetaStore, StoreError, Table};
use target::Gone;
use wire::ost::ListedObject;
use wire::{OstReply, OstRequest, Reply, Request};

/// A client that was evicted may not know it yet: by then it does, or has no locks any more.
const BEGIN_AFTER: Duration = limits::CALLBACK_DEADLINE;
/// After an OST could not, or when an inode was held by an operation of another MDT.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Files with damaged rows that are told of. Where there are more, somebody checks the target anyway.
const DAMAGED_MAX: usize = 1000;

/// What the rows of a file come to for one of its objects.
enum Found {
    Fit,
    /// The size is not that of the object.
    Unfit,
    /// There is no such file.
    Gone,
}

/// How far the comparison has come.
#[derive(Debug, Default)]
pub(super) struct Strays {
    /// Files of incarnations before this one are looked at; `None`: nothing is to be done.
    before: Option<Epoch>,
    /// OSTs that are to be asked: since when, and for what is behind which object.
    to_ask: BTreeMap<u16, (Time, Option<ObjectId>)>,
    /// OSTs whose answer is awaited, and what they were asked for.
    asked: BTreeMap<u16, Option<ObjectId>>,
    /// Files of which a row is damaged, so that nothing is known of their objects. They stay as they are.
    damaged: BTreeSet<Fid>,
    /// Inodes whose attributes are being taken back from clients.
    claims: BTreeMap<OpId, (Fid, Vec<Need>)>,
}

impl Strays {
    /// Recovery is over.
    pub fn begin(&mut self, now: Time, osts: &[u16]) {
        if self.before.is_some() {
            self.to_ask = osts.iter().map(|ost| (*ost, (now.after(BEGIN_AFTER), None))).collect();
        }
    }

    /// Whether objects are still to be compared with inodes.
    pub fn is_pending(&self) -> bool {
        self.before.is_some()
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.to_ask.values().map(|(at, _)| *at).min()
    }

    pub fn is_claim(&self, op: OpId) -> bool {
        self.claims.contains_key(&op)
    }
}

impl<M: MetaStore> Mds<M> {
    pub(super) fn load_strays(&mut self) -> Result<(), Status> {
        let value = self.core.store().get(rows::STATE, rows::STRAYS_KEY).map_err(|error| error.status())?;
        self.strays.before = value.map(|bytes| rows::decode(&bytes)).transpose()?;
        Ok(())
    }

    /// A client did not come back, and what it had done may be lost. The row of `put_row` says so.
    pub(super) fn note_lost_work(&mut self, gone: &Gone) {
        if matches!(gone.life.client.endpoint(), Endpoint::Client(_)) {
            self.strays.before = Some(gone.epoch);
        }
    }

    pub(super) fn look_for_strays(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.fences.has_lost() {
            // What somebody who is lost had sent may come to an object that was looked at.
            return;
        }
        let is_due = |(_, (at, _)): &(&u16, &(Time, Option<ObjectId>))| *at <= now.time;
        let due: Vec<u16> = self.strays.to_ask.iter().filter(is_due).map(|(ost, _)| *ost).collect();
        for ost in due {
            if let Some((_, after)) = self.strays.to_ask.remove(&ost) {
                self.ask_for_objects(now, ost, after, out);
            }
        }
    }

    fn ask_for_objects(&mut self, now: Now, ost: u16, after: Option<ObjectId>, out: &mut Vec<Output>) {
        let request = Request::Ost(OstRequest::ListObjects { after });
        if self.call(now, TargetId::ost(ost), request, super::peers::Call::List { ost }, out) {
            self.strays.asked.insert(ost, after);
        } else {
            // The configuration has not come yet.
            self.strays.to_ask.insert(ost, (now.time.after(AGAIN_AFTER), after));
        }
    }

    pub(super) fn on_listed(
        &mut self,
        now: Now,
        ost: u16,
        result: Result<Answer, Status>,
        out: &mut Vec<Output>,
    ) {
        let Some(after) = self.strays.asked.get(&ost).copied() else { return };
        let compared = match result.map(|answer| answer.reply) {
            Ok(Reply::Ost(OstReply::Objects { listed, next })) => {
                self.compare(now, ost, &listed, out).map(|()| next)
            }
            Ok(_) => Err(Status::ProtocolError),
            Err(status) => Err(status),
        };
        self.strays.asked.remove(&ost);
        match compared {
            Ok(Some(next)) => self.ask_for_objects(now, ost, Some(next), out),
            Ok(None) => self.end_if_done(out),
            Err(_) => drop(self.strays.to_ask.insert(ost, (now.time.after(AGAIN_AFTER), after))),
        }
    }

    fn end_if_done(&mut self, out: &mut Vec<Output>) {
        let strays = &self.strays;
        if !strays.to_ask.is_empty() || !strays.asked.is_empty() || !strays.claims.is_empty() {
            return;
        }
        let mut batch = Batch::new();
        batch.delete(rows::STATE, rows::STRAYS_KEY);
        match self.core.apply_internal(batch) {
            Ok(_) => {
                self.strays.before = None;
                self.strays.damaged.clear();
            }
            Err(error) => failed("a comparison was not ended", Fid::default(), error.status(), out),
        }
    }

    /// # Errors
    /// `Busy` when an inode is frozen: the same objects are to be asked for again.
    fn compare(
        &mut self,
        now: Now,
        ost: u16,
        listed: &[ListedObject],
        out: &mut Vec<Output>,
    ) -> Result<(), Status> {
        let mut gone: BTreeMap<(Fid, u32), Vec<u32>> = BTreeMap::new();
        let mut unfit = BTreeSet::new();
        for listed in listed {
            let ObjectId { fid, component, stripe } = listed.object;
            let is_older = Fids::epoch_of(fid) < self.strays.before;
            if fid.mdt_index() != Some(self.options.index) || !is_older {
                continue;
            }
            if self.cross.is_inode_frozen(fid) {
                return Err(Status::Busy);
            }
            match self.found(listed) {
                Ok(Found::Fit) => {}
                Ok(Found::Unfit) => drop(unfit.insert(fid)),
                Ok(Found::Gone) => gone.entry((fid, component)).or_default().push(stripe),
                Err(Status::Corrupt) => self.pass_over(fid, out),
                Err(status) => return Err(status),
            }
        }
        self.destroy_strays(ost, gone, out)?;
        for fid in unfit {
            self.doubt_size(now, fid, out);
        }
        Ok(())
    }

    /// # Errors
    /// `Corrupt` for a damaged row; else that of the store.
    fn found(&self, listed: &ListedObject) -> Result<Found, Status> {
        let key = listed.object.fid.key();
        let Some(inode) = self.sound_row(rows::INODES, &key)? else {
            // Another MDT has the file now, and has its objects adopted.
            let is_moved = self.sound_row(rows::MOVED, &key)?.is_some();
            return Ok(if is_moved { Found::Fit } else { Found::Gone });
        };
        Ok(if is_fit(&rows::decode(&inode)?, listed) { Found::Fit } else { Found::Unfit })
    }

    pub(super) fn sound_row(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        // What the device cannot read now it may read later: the same is asked for again then.
        self.core.store().get(table, key).map_err(|error| match error {
            StoreError::CorruptRow { .. }
            | StoreError::UnknownRow { .. }
            | StoreError::CorruptIndex { .. } => Status::Corrupt,
            error => error.status(),
        })
    }

    /// Those behind its objects are not to wait until somebody has repaired it. Told once: objects are asked for again.
    fn pass_over(&mut self, fid: Fid, out: &mut Vec<Output>) {
        if self.strays.damaged.len() < DAMAGED_MAX && self.strays.damaged.insert(fid) {
            self.stats.damaged_files += 1;
            failed(
                "objects of a file with a damaged row were not compared with it",
                fid,
                Status::Corrupt,
                out,
            );
        }
    }

    fn destroy_strays(
        &mut self,
        ost: u16,
        gone: BTreeMap<(Fid, u32), Vec<u32>>,
        out: &mut Vec<Output>,
    ) -> Result<(), Status> {
        let mut batch = Batch::new();
        let mut keys = Vec::new();
        for ((fid, component), stripes) in gone {
            let key = rows::destroy_key(ost, fid, component);
            // With a row they are on their way.
            match self.sound_row(rows::DESTROYS, &key) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    batch.put(rows::DESTROYS, &key, &rows::encode(&Destroy { stripes }));
                    keys.push(key);
                }
                Err(Status::Corrupt) => self.pass_over(fid, out),
                Err(status) => return Err(status),
            }
        }
        if !keys.is_empty() {
            let transno = self.core.apply_internal(batch).map_err(|error| error.status())?;
            self.peers.note_destroys(transno, keys);
        }
        Ok(())
    }

    /// Clients give back what they know of the size, by locks of the inode or of directories that they have listed; then it is
    /// unknown.
    fn doubt_size(&mut self, now: Now, fid: Fid, out: &mut Vec<Output>) {
        if self.strays.claims.values().any(|(claimed, _)| *claimed == fid) {
            return;
        }
        let needs = match self.forgetting(now, fid) {
            Ok(Some((needs, _))) => needs,
            Ok(None) => return,
            Err(status) => return not_forgotten(fid, status, out),
        };
        let op = self.new_op();
        self.strays.claims.insert(op, (fid, needs.clone()));
        if self.locks.claim(now.time, op, None, needs, &mut self.lock_out) == Claimed::Ready {
            self.on_stray_claim_ready(now, op, out);
        }
    }

    pub(super) fn on_stray_claim_ready(&mut self, now: Now, op: OpId, out: &mut Vec<Output>) {
        let Some((fid, claimed)) = self.strays.claims.remove(&op) else { return };
        let forgetting = self.forgetting(now, fid);
        // It may have got a name in another directory while this waited.
        let is_enough = |needs: &[Need]| needs.iter().all(|need| claimed.contains(need));
        let is_again = matches!(&forgetting, Ok(Some((needs, _))) if !is_enough(needs));
        let done = match forgetting {
            Ok(Some((_, batch))) if !is_again => {
                self.core.apply_internal(batch).map(drop).map_err(|error| error.status())
            }
            Ok(_) => Ok(()),
            Err(status) => Err(status),
        };
        if let Err(status) = done {
            not_forgotten(fid, status, out);
        }
        self.locks.release(now.time, op, &mut self.lock_out);
        if is_again {
            self.doubt_size(now, fid, out);
        }
        self.end_if_done(out);
    }

    /// The change of the row, and what it claims; `None` when the size is not believed already.
    fn forgetting(&mut self, now: Now, fid: Fid) -> Result<Option<(Vec<Need>, Batch)>, Status> {
        let remote = Remote::default();
        let store = Arc::clone(self.core.store());
        let mut cx = self.cx(&*store, now.wall, &remote);
        let Some(mut inode) = cx.tx.inode(fid)?.filter(|inode| inode.attr.is_size_known) else {
            return Ok(None);
        };
        inode.attr.is_size_known = false;
        // What was measured before says nothing.
        inode.attr.write_epoch = inode.attr.write_epoch.saturating_add(1);
        inode.attr.version = cx.version;
        cx.tx.put_inode(&inode);
        let needs = cx.tx.needs()?;
        Ok(Some((needs, cx.tx.into_batch())))
    }
}

/// What files of incarnations before this one have on OSTs is to be compared with them. Written with the end of the session of a client
/// that a recovery loses (`fences::owed`).
pub(super) fn put_row(before: Epoch, batch: &mut Batch) {
    batch.put(rows::STATE, rows::STRAYS_KEY, &rows::encode(&before));
}

fn not_forgotten(fid: Fid, status: Status, out: &mut Vec<Output>) {
    failed("a size is not known and was not forgotten", fid, status, out);
}

/// Whether the size that the inode is said to have may be that of this object and others. The stamp tells what was
/// written or cut since the size was taken; the object's end tells it when a crash of the OST took the stamp back.
fn is_fit(inode: &Inode, listed: &ListedObject) -> bool {
    let Some(layout) = inode.layout.as_ref().filter(|_| inode.attr.is_size_known) else { return true };
    // Of a layout that the file had before it had data.
    let Some(stripe) = layout.stripe_of(listed.object) else { return true };
    let (end, size_bytes) = (layout.file_size(stripe, listed.size_bytes), inode.attr.size_bytes);
    // What has the last byte ends with it. All others may end before, in holes.
    let last = layout.parts(Extent::new(size_bytes.saturating_sub(1), size_bytes));
    let has_last = last.iter().any(|(of_last, _)| *of_last == stripe);
    let is_end_fit = if has_last { end == size_bytes } else { end <= size_bytes };
    is_end_fit && listed.stamp.is_some_and(|stamp| stamp <= inode.attr.mtime_stamp)
}

fn failed(what: &'static str, fid: Fid, status: Status, out: &mut Vec<Output>) {
    out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
}
