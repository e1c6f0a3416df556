//! The participant's side: what is held for other MDTs, and its execution.

use super::*;
use crate::fids::Given;
use crate::op::Remote;
use crate::tx::Resources;
use base::{ClientId, Endpoint, StatusClass, TargetKind};
use std::sync::Arc;
use wire::Resource;
use wire::mdt::Credentials;

/// Items that are executed in one transaction, and their bytes: rows have a little more than parts.
const BATCH_ITEMS_MAX: usize = 64;
const BATCH_PART_BYTES_MAX: usize = store::BATCH_BYTES_MAX / 2;
/// Witnesses in one answer.
const HELD_BACK_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX / 2;
/// Items of one stream that are held; more are refused, and come again.
const HELD_MAX: usize = 65_536;
/// A coordinator that recovers is asked again after this whether a directory is on its way.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct HeldItem {
    previous: OperationId,
    parts: Vec<Part>,
    /// Of the parts.
    byte_count: usize,
    witness: Option<Box<Witness>>,
    /// The incarnation of the coordinator that has sent it.
    sender: u64,
    /// The coordinator knows that somebody waits for it.
    is_wanted: bool,
}

impl HeldItem {
    /// Whether this incarnation of its coordinator does not have it, unless it still sends it.
    fn is_void(&self, epoch: u64) -> bool {
        self.sender < epoch
    }
}

/// The stream of one coordinator.
#[derive(Debug)]
pub(super) struct Incoming {
    /// The last item that was executed.
    executed: OperationId,
    held: BTreeMap<OperationId, HeldItem>,
    released_to: OperationId,
}

impl Incoming {
    pub fn new(executed: OperationId) -> Incoming {
        Incoming { executed, held: BTreeMap::new(), released_to: executed }
    }

    /// Items to be executed now, in order and without a gap. What a former incarnation of the coordinator has sent, and this one
    /// has not before it released what comes behind, is void: its replay has made the same directory in another item, or in a prepared part.
    fn ready(&self, epoch: u64) -> Vec<(OperationId, Vec<Part>)> {
        let mut executed = self.executed;
        let mut byte_count = 0;
        let mut ready = Vec::new();
        let sent = self.held.range(..=self.released_to);
        let sent = sent.filter(|(_, item)| !item.is_void(epoch));
        for (id, item) in sent.take(BATCH_ITEMS_MAX) {
            byte_count += item.byte_count;
            let is_full = byte_count > BATCH_PART_BYTES_MAX && !ready.is_empty();
            if item.previous > executed || is_full {
                break;
            }
            ready.push((*id, item.parts.clone()));
            executed = *id;
        }
        ready
    }
}

/// The MDT that has sent a request.
pub(in crate::machine) fn mdt_of(client: ClientId) -> Option<u16> {
    match client.endpoint() {
        Endpoint::Target(TargetId { kind: TargetKind::Mdt, index }) => Some(index),
        _ => None,
    }
}

impl Streams {
    /// Directories among `touched` that are held. `asker`: a coordinator that was restarted, and as which incarnation; what is
    /// held for its former ones, and it has not sent again, it does not have.
    pub fn held_among(&self, touched: &Resources, asker: Option<(u16, u64)>) -> Vec<Fid> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let is_void = |id: &OperationId| {
            asker.is_some_and(|(mdt, epoch)| {
                let item = self.incoming.get(&mdt).and_then(|incoming| incoming.held.get(id));
                id.mdt_index == mdt && item.is_some_and(|item| item.is_void(epoch))
            })
        };
        let inodes = touched.iter().filter_map(|resource| match resource {
            Resource::Inode(fid) => Some(*fid),
            _ => None,
        });
        inodes.filter(|fid| self.held.get(fid).is_some_and(|id| !is_void(id))).collect()
    }

    /// Who has sent what is held.
    pub fn coordinator_of(&self, fid: Fid) -> Option<TargetId> {
        self.held.get(&fid).map(|id| TargetId::mdt(id.mdt_index))
    }

    /// A replay has made what was held for a former incarnation of its coordinator, and not in the stream.
    pub fn are_made(&mut self, changed: &Resources) {
        if self.held.is_empty() {
            return;
        }
        for resource in changed {
            if let Resource::Inode(fid) = resource {
                self.held.remove(fid);
            }
        }
    }

    fn is_executed(&self, id: OperationId) -> bool {
        // What is void is behind it too, and was not.
        let is_behind = |incoming: &Incoming| id <= incoming.executed && !incoming.held.contains_key(&id);
        self.incoming.get(&id.mdt_index).is_some_and(is_behind)
    }

    fn unhold(&mut self, id: OperationId, parts: &[Part]) {
        for fid in made_by(parts) {
            if self.held.get(&fid) == Some(&id) {
                self.held.remove(&fid);
            }
        }
    }
}

impl<M: MetaStore> Mds<M> {
    /// Somebody looks at directories that are held: their coordinators make them durable soon.
    pub(in crate::machine) fn want_held(&mut self, now: Now, fids: &[Fid], out: &mut Vec<Output>) {
        for fid in fids {
            let Some(id) = self.streams.held.get(fid) else { continue };
            let incoming = self.streams.incoming.get_mut(&id.mdt_index);
            let Some(item) = incoming.and_then(|incoming| incoming.held.get_mut(id)) else { continue };
            if std::mem::replace(&mut item.is_wanted, true) {
                continue;
            }
            let mdt = id.mdt_index;
            let request = Request::Peer(PeerRequest::IsComing { fid: *fid, is_replay: true });
            self.call(now, TargetId::mdt(mdt), request, Call::Tell, out);
        }
    }

    /// `say`: the answer, of the first FID and how many there are.
    pub(in crate::machine) fn give_fids(
        &mut self,
        now: Now,
        token: Token,
        user: u16,
        count: u32,
        say: impl FnOnce(Fid, u32) -> PeerReply,
    ) {
        if self.core.store().pressure().is_consuming_refused() {
            return self.reply(now, token, Err(Status::NoSpace));
        }
        let Given { first, count, is_new_sequence } = match self.fids.give(user, count.min(FIDS_WANTED)) {
            Ok(given) => given,
            Err(status) => return self.reply(now, token, Err(status)),
        };
        if is_new_sequence {
            let mut batch = Batch::new();
            batch.put(rows::STATE, &rows::given_key(first.seq), &rows::encode(&user));
            match self.core.apply_internal(batch) {
                Ok(transno) => self.streams.given_at = transno,
                Err(error) => return self.reply(now, token, Err(error.status())),
            }
        }
        // Nobody makes a directory with a FID of which a restart would not know whom to ask.
        let (up_to, reply) = (self.streams.given_at, Reply::Peer(say(first, count)));
        self.core.reply_when_durable(now, token, up_to, reply, &mut self.core_out);
    }

    pub(in crate::machine) fn hold(
        &mut self,
        now: Now,
        token: Token,
        coordinator: u16,
        epoch: u64,
        items: Vec<Item>,
    ) {
        let is_its = |item: &Item| item.id.mdt_index == coordinator && item.previous < item.id;
        let is_mine = |fid: Fid| fid.mdt_index() == Some(self.options.index);
        if !items.iter().all(|item| is_its(item) && made_by(&item.parts).all(is_mine)) {
            return self.reply(now, token, Err(Status::ProtocolError));
        }
        let start = OperationId::before_all(coordinator);
        let incoming = self.streams.incoming.entry(coordinator).or_insert_with(|| Incoming::new(start));
        let is_new = |item: &&Item| !incoming.held.contains_key(&item.id);
        if incoming.held.len() + items.len() > HELD_MAX
            && incoming.held.values().filter(|item| !item.is_void(epoch)).count()
                + items.iter().filter(is_new).count()
                > HELD_MAX
        {
            return self.reply(now, token, Err(Status::Busy));
        }
        for Item { id, previous, parts, witness } in items {
            if id <= incoming.executed {
                continue;
            }
            self.streams.held.extend(made_by(&parts).map(|fid| (fid, id)));
            let byte_count = bytes_of(&parts);
            let item = HeldItem { previous, parts, byte_count, witness, sender: epoch, is_wanted: false };
            incoming.held.insert(id, item);
        }
        self.reply(now, token, Ok(Reply::Done));
        // Those who wait here for what is on its way have its coordinator know.
        self.wake_parked();
    }

    pub(in crate::machine) fn release(
        &mut self,
        now: Now,
        token: Token,
        coordinator: u16,
        (epoch, up_to): (u64, OperationId),
        out: &mut Vec<Output>,
    ) {
        if up_to.mdt_index != coordinator {
            return self.reply(now, token, Err(Status::ProtocolError));
        }
        let start = OperationId::before_all(coordinator);
        let incoming = self.streams.incoming.entry(coordinator).or_insert_with(|| Incoming::new(start));
        incoming.released_to = incoming.released_to.max(up_to);
        if let Err(status) = self.execute_released(now, coordinator, epoch, out) {
            return self.reply(now, token, Err(status));
        }
        let executed = self.streams.incoming.get(&coordinator).map_or(start, |incoming| incoming.executed);
        if executed < up_to {
            return self.reply(now, token, Ok(Reply::Peer(PeerReply::Behind { executed })));
        }
        let last = self.core.last_transno();
        self.core.reply_when_synced(now, token, last, Reply::Done, &mut self.core_out);
    }

    fn execute_released(
        &mut self,
        now: Now,
        mdt: u16,
        epoch: u64,
        out: &mut Vec<Output>,
    ) -> Result<(), Status> {
        // What any incarnation has sent.
        let epoch = if planted(Fault::VoidPartExecuted) { 0 } else { epoch };
        loop {
            let ready =
                self.streams.incoming.get(&mdt).map_or_else(Vec::new, |incoming| incoming.ready(epoch));
            let Some((last, _)) = ready.last() else { return Ok(()) };
            let last = *last;
            // A former incarnation may have prepared, and lost, what its replay has put into the stream.
            let made = ready.iter().flat_map(|(_, parts)| made_by(parts)).map(Resource::Inode).collect();
            self.supersede(now, last, &made, out);
            let remote = Remote::default();
            let store = Arc::clone(self.core.store());
            let mut cx = self.cx(&*store, now.wall, &remote);
            for part in ready.iter().flat_map(|(_, parts)| parts) {
                let (mut part, nobody) = (part.clone(), Credentials::default());
                if let Err(status) = part::run(&mut cx, &mut part, &nobody) {
                    if status.class() == StatusClass::Retry {
                        return Err(status);
                    }
                    // What was given cannot be in use, so this is damage; what follows does not depend on it.
                    let fid = part::owner_of(&part).unwrap_or_default();
                    let what = "a directory of another MDT's operation was not made";
                    out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
                }
            }
            cx.tx.put(rows::STATE, rows::executed_key(mdt), rows::encode(&last));
            let batch = cx.tx.into_batch();
            self.core.apply_internal(batch).map_err(|error| error.status())?;
            if let Some(incoming) = self.streams.incoming.get_mut(&mdt) {
                incoming.executed = last;
                // What is void stays until the coordinator has recovered: until then it may ask for it.
                incoming.held.retain(|id, item| *id > last || item.is_void(epoch));
            }
            for (id, parts) in &ready {
                self.streams.unhold(*id, parts);
            }
            self.wake_parked();
        }
    }

    /// The coordinator has recovered: what it has not sent again has not happened.
    pub(in crate::machine) fn forget_held(&mut self, now: Now, token: Token, coordinator: u16, epoch: u64) {
        let void = self.take_void(coordinator, epoch);
        for (id, item) in void {
            self.streams.unhold(id, &item.parts);
        }
        self.reply(now, token, Ok(Reply::Done));
        self.wake_parked();
    }

    fn take_void(&mut self, coordinator: u16, epoch: u64) -> Vec<(OperationId, HeldItem)> {
        let Some(incoming) = self.streams.incoming.get_mut(&coordinator) else { return Vec::new() };
        let held = std::mem::take(&mut incoming.held);
        let (void, kept) = held.into_iter().partition(|(_, item)| item.is_void(epoch));
        let void: BTreeMap<_, _> = void;
        incoming.held = kept;
        void.into_iter().collect()
    }

    /// A restarted coordinator asks what is held for it, behind an item: as many as fit in an answer, and where to go on. It stays held until it
    /// is sent again, or is known to be void.
    pub(in crate::machine) fn held_back(
        &self,
        coordinator: u16,
        epoch: u64,
        after: Option<OperationId>,
    ) -> (Vec<Witness>, Option<OperationId>) {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let incoming = self.streams.incoming.get(&coordinator);
        let held = incoming.into_iter().flat_map(|incoming| incoming.held.range((from, Unbounded)));
        let held = held.filter(|(_, item)| item.is_void(epoch));
        let held = held.filter_map(|(id, item)| Some((*id, item.witness.as_deref()?)));
        let (mut witnesses, mut last, mut byte_count) = (Vec::new(), None, 0_usize);
        for (id, witness) in held {
            byte_count = byte_count.saturating_add(bytes_of(witness));
            if byte_count > HELD_BACK_BYTES_MAX && last.is_some() {
                return (witnesses, last);
            }
            witnesses.push(witness.clone());
            last = Some(id);
        }
        (witnesses, None)
    }

    /// A directory that the operation looked for and that is not here, although another MDT makes directories with FIDs like
    /// this: it may be on its way.
    pub(in crate::machine) fn perhaps_coming(
        &self,
        flow: &Flow,
        touched: &Resources,
        changed: &Resources,
    ) -> Result<Option<(Fid, u16)>, Status> {
        let tx = crate::tx::Tx::new(&**self.core.store());
        for resource in touched {
            let Resource::Inode(fid) = *resource else { continue };
            let Some(user) = self.fids.user_of(fid) else { continue };
            let is_settled = changed.contains(resource) || flow.remote.absent.contains(&fid);
            if !is_settled && tx.inode(fid)?.is_none() {
                return Ok(Some((fid, user)));
            }
        }
        Ok(None)
    }

    pub(in crate::machine) fn ask_whether_coming(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        (fid, user): (Fid, u16),
        out: &mut Vec<Output>,
    ) -> Step {
        self.hold_nothing(now, op, flow, out);
        let is_new = matches!(flow.request, Request::Mdt(_)) && flow.token.replay.is_none();
        let is_replay = flow.token.replay.is_some() || self.core.is_recovering() && !is_new;
        let request = Request::Peer(PeerRequest::IsComing { fid, is_replay });
        flow.wait_for([TargetId::mdt(user)]);
        if super::super::flow::gives_way(&flow.request) && self.peers.is_silent(now.time, TargetId::mdt(user))
        {
            return self.fail(now, op, flow, part::GIVE_WAY, out);
        }
        if self.call(now, TargetId::mdt(user), request, Call::IsComing { op, fid }, out) {
            return self.ask(now, op, flow);
        }
        // The configuration has not come yet.
        flow.stage = Stage::Backoff;
        self.set_timer(op, flow, now.time.after(ASK_AGAIN_AFTER));
        Step::Waits
    }

    pub(in crate::machine) fn on_coming(
        &mut self,
        now: Now,
        op: OpId,
        fid: Fid,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        let Some(mut flow) = self.take_flow(op, Stage::Asking) else { return };
        let tx = crate::tx::Tx::new(&**self.core.store());
        let is_here = !matches!(tx.inode(fid), Ok(None));
        let step = match result {
            // One that was executed here may have been removed since, before its coordinator knows of either.
            Ok(Reply::Peer(PeerReply::Coming { item: Some(id) }))
                if !is_here && !self.streams.is_executed(id) =>
            {
                if super::super::flow::gives_way(&flow.request) {
                    // Whoever waits here may be waited for there.
                    self.fail(now, op, &mut flow, part::GIVE_WAY, out)
                } else {
                    self.await_decision(op, &mut flow)
                }
            }
            Ok(Reply::Peer(PeerReply::Coming { .. })) => {
                if !is_here {
                    flow.remote.absent.insert(fid);
                }
                self.run_again(op, &mut flow)
            }
            Ok(_) => self.fail(now, op, &mut flow, Status::ProtocolError, out),
            // It recovers, or does not speak of streams any more.
            Err(Status::NotSupported) => {
                flow.remote.absent.insert(fid);
                self.run_again(op, &mut flow)
            }
            Err(_) => {
                flow.stage = Stage::Backoff;
                self.set_timer(op, &mut flow, now.time.after(ASK_AGAIN_AFTER));
                Step::Waits
            }
        };
        self.keep_flow(op, flow, step);
    }
}
