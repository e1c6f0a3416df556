//! Streams: parts of operations over several MDTs that can neither fail nor wait.
//!
//! A directory that is made on another MDT has a FID which that MDT has given beforehand, with room for its rows. So there is
//! nothing to prepare: the coordinator's transaction, with a row for each participant, is the commit point, and its client is
//! answered at once. The parts leave soon after, many in one message, *held*: the participant keeps them in memory, and whoever
//! looks at what they make waits. When the coordinator's row is durable they are released, executed in order, and when that is durable as
//! well the row goes. So no server acts on what another may lose, and nobody waits for a disk who does not use the directory.

mod incoming;
mod taken_back;

use super::flow::{Flow, Stage, Step};
use super::peers::Call;
use super::{Mds, MdsEvent, Output};
use crate::op::part;
use crate::rows::{self, Streamed};
use base::fault::{Fault, planted};
use base::limits::FRAME_BODY_BYTES_MAX;
use base::{Duration, Fid, Now, Status, TargetId, Time, Transno};
use incoming::Incoming;
pub(super) use incoming::mdt_of;
use ldlm::OpId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Batch, MetaStore};
use taken_back::TakenBack;
use target::Token;
use wire::peer::{Item, OperationId, Part, Witness};
use wire::session::features;
use wire::{PeerReply, PeerRequest, Reply, Request};

/// Items of one message, and their bytes, of which an item may have a few hundred or a thousand times as many: a directory inherits ACLs.
const ITEMS_MAX: usize = 128;
const HOLD_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX / 2;
/// An operation whose client has sent so much (the groups of its caller) has no witness.
const WITNESS_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX / 4;
/// Items are gathered for so long, or until so many are there, if nobody waits for them. For so long after the answer an operation is
/// lost when its client and its coordinator are lost together, as if its message had been on its way. A message costs both MDTs more
/// than the items in it, and an answer waits for the thread that does what follows from it.
const HOLD_AFTER: Duration = Duration::from_millis(2);
const HOLD_ITEMS: usize = 32;
/// Messages to one participant whose items are durable there only later.
const RELEASES_MAX: usize = 4;
/// The same for those that somebody waits for: each has had the coordinator sync, so there are as many of them in the time between two
/// syncs of the participant as the coordinator's device can do.
const WANTED_RELEASES_MAX: usize = 1024;
const _: () = assert!(HOLD_ITEMS <= ITEMS_MAX);
// One item always goes: its parts are the value of a row.
const _: () = assert!(store::VALUE_BYTES_MAX + WITNESS_BYTES_MAX < HOLD_BYTES_MAX);
/// Rows that are taken away in one transaction.
const FORGOTTEN_MAX: usize = 4096;
const _: () = assert!(RELEASES_MAX <= WANTED_RELEASES_MAX);
/// What a participant could not take is sent again after this.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// What it does not understand: each time it says so in its log.
const SEND_REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// FIDs that are asked for at a time, and how few of them are left when more are.
const FIDS_WANTED: u32 = 256;
const FIDS_LOW: usize = 64;

/// An item that its participant has perhaps not executed durably.
#[derive(Debug)]
struct Outstanding {
    transno: Transno,
    previous: OperationId,
    parts: Vec<Part>,
    witness: Option<Box<Witness>>,
    /// Of both.
    byte_count: usize,
}

/// The stream to one participant.
#[derive(Debug)]
struct Outgoing {
    items: BTreeMap<OperationId, Outstanding>,
    /// Directories that they make.
    made: BTreeMap<Fid, OperationId>,
    /// The latest item, outstanding or not.
    last: OperationId,
    /// How far the participant has got them, or will have when it answers.
    sent_to: Option<OperationId>,
    is_sending: bool,
    /// When what is not sent is sent at the latest; `None` while there is nothing, or an answer comes first.
    hold_at: Option<Time>,
    /// Somebody waits for the items up to this one.
    wanted_to: Option<OperationId>,
    released_to: Option<OperationId>,
    releases: usize,
    /// Not before this.
    send_at: Option<Time>,
    /// The participant does not understand them, which was said.
    is_refused: bool,
}

impl Outgoing {
    fn new(coordinator: u16) -> Outgoing {
        Outgoing {
            items: BTreeMap::new(),
            made: BTreeMap::new(),
            last: OperationId::before_all(coordinator),
            sent_to: None,
            is_sending: false,
            hold_at: None,
            wanted_to: None,
            released_to: None,
            releases: 0,
            send_at: None,
            is_refused: false,
        }
    }

    fn push(&mut self, id: OperationId, item: Outstanding) {
        self.made.extend(made_by(&item.parts).map(|fid| (fid, id)));
        self.last = id;
        self.items.insert(id, item);
    }

    /// The participant may have lost what it held.
    fn start_over(&mut self) {
        self.sent_to = None;
        self.released_to = None;
    }

    fn unsent(&self) -> impl Iterator<Item = (&OperationId, &Outstanding)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = self.sent_to.map_or(Unbounded, Excluded);
        self.items.range((from, Unbounded))
    }

    /// What goes into the next message.
    fn next_items(&self, durable: Transno) -> Vec<Item> {
        let mut byte_count = 0;
        let mut items = Vec::new();
        for (id, item) in self.unsent().take(ITEMS_MAX) {
            byte_count += item.byte_count;
            if byte_count > HOLD_BYTES_MAX && !items.is_empty() {
                break;
            }
            items.push(item_of(*id, item, durable));
        }
        items
    }

    /// Whether what is not sent is to be sent now. If not, a time is set for it.
    fn is_hold_due(&mut self, now: Time, durable: Transno, is_prompt: bool) -> bool {
        if self.is_sending {
            return false;
        }
        match self.cannot_wait(durable) {
            None => {
                self.hold_at = None;
                false
            }
            Some(cannot_wait) => {
                cannot_wait || is_prompt || *self.hold_at.get_or_insert(now.after(HOLD_AFTER)) <= now
            }
        }
    }

    /// Of what is not sent, if there is anything: enough has gathered, somebody waits for it, or it is durable and has to be there
    /// before it can be released.
    fn cannot_wait(&self, durable: Transno) -> Option<bool> {
        let mut unsent = self.unsent();
        let (first, item) = unsent.next()?;
        let is_wanted = self.wanted_to.is_some_and(|to| to >= *first);
        Some(is_wanted || item.transno <= durable || unsent.nth(HOLD_ITEMS - 2).is_some())
    }

    /// How far the items may be released now, unless so many releases are under way that it waits for their answers.
    fn next_release(&self, durable: Transno) -> Option<OperationId> {
        let mark = self.releasable(durable)?;
        let is_unreleased = |to| self.released_to.is_none_or(|released| released < to);
        let is_wanted = self.wanted_to.is_some_and(|to| to <= mark && is_unreleased(to));
        let releases_max = if is_wanted { WANTED_RELEASES_MAX } else { RELEASES_MAX };
        (self.releases < releases_max).then_some(mark)
    }

    /// The last item whose record is durable and that has been sent.
    fn releasable(&self, durable: Transno) -> Option<OperationId> {
        use std::ops::Bound::{Excluded, Unbounded};
        // Items are in the order of their records: while the first is not durable, none has to be looked at.
        let from = self.released_to.map_or(Unbounded, Excluded);
        self.items.range((from, Unbounded)).next().filter(|(_, item)| item.transno <= durable)?;
        let sent = self.items.range(..=self.sent_to?);
        let mark = sent.rev().find(|(_, item)| item.transno <= durable).map(|(id, _)| *id)?;
        (self.released_to.is_none_or(|to| to < mark)).then_some(mark)
    }
}

/// FIDs that another MDT has given.
#[derive(Debug, Default)]
struct Pool {
    fids: VecDeque<Fid>,
    is_asked: bool,
    /// Operations that cannot go on without one.
    waiting: BTreeSet<OpId>,
}

/// Parts of a transaction that is about to be applied.
pub(super) struct Streaming {
    id: OperationId,
    /// By MDT, with the bytes that they have.
    parts: BTreeMap<u16, (Vec<Part>, usize)>,
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    outgoing: BTreeMap<u16, Outgoing>,
    incoming: BTreeMap<u16, Incoming>,
    /// Directories that are held, and by which item of whose stream.
    held: BTreeMap<Fid, OperationId>,
    pools: BTreeMap<u16, Pool>,
    /// The last transaction that has written down who uses a sequence of FIDs.
    given_at: Transno,
    taken_back: TakenBack,
    /// MDTs that know that this one has recovered.
    told_recovered: BTreeSet<u16>,
}

impl Streams {
    /// Whether everything is executed everywhere.
    pub fn is_empty(&self) -> bool {
        self.outgoing.values().all(|outgoing| outgoing.items.is_empty()) && self.held.is_empty()
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let used = self.outgoing.values().filter(|outgoing| !outgoing.items.is_empty());
        let sends = used.flat_map(|outgoing| [outgoing.send_at, outgoing.hold_at]).flatten();
        sends.chain(self.taken_back.deadline()).min()
    }

    /// One line for each stream with something in it.
    pub fn under_way(&self) -> impl Iterator<Item = String> {
        let is_used = |(_, outgoing): &(&u16, &Outgoing)| !outgoing.items.is_empty();
        let out = self.outgoing.iter().filter(is_used);
        let out = out.map(|(mdt, outgoing)| format!("stream to MDT{mdt:04x}: {outgoing:?}"));
        out.chain(self.held.iter().map(|(fid, id)| format!("held {fid}: {id:?}")))
    }
}

fn made_by(parts: &[Part]) -> impl Iterator<Item = Fid> {
    parts.iter().filter_map(|part| match part {
        Part::MakeDirectory { attr, .. } | Part::MakeStripe { attr, .. } => Some(attr.fid),
        _ => None,
    })
}

impl<M: MetaStore> Mds<M> {
    /// Whether an operation with these parts needs no prepare.
    pub(super) fn is_streamable(&self, flow: &Flow, parts: &[(u16, Part)]) -> bool {
        let is_sure = |(mdt, part): &(u16, Part)| {
            matches!(part, Part::MakeDirectory { .. } | Part::MakeStripe { .. })
                && self.peers.features_of(TargetId::mdt(*mdt)) & features::STREAMS != 0
        };
        !self.is_remote_sync && flow.settling.is_none() && parts.iter().all(is_sure)
    }

    /// Adds the rows that keep the parts until they are executed.
    pub(super) fn put_streamed(&mut self, parts: Vec<(u16, Part)>, batch: &mut Batch) -> Streaming {
        let id = self.new_operation();
        let mut of_mdt: BTreeMap<u16, Vec<Part>> = BTreeMap::new();
        for (mdt, part) in parts {
            of_mdt.entry(mdt).or_default().push(part);
        }
        let mut parts = BTreeMap::new();
        for (mdt, of_mdt) in of_mdt {
            let row = Streamed { previous: self.last_streamed(mdt), parts: of_mdt };
            let value = rows::encode(&row);
            batch.put(rows::STREAMED, &rows::streamed_key(mdt, id), &value);
            parts.insert(mdt, (row.parts, value.len()));
        }
        Streaming { id, parts }
    }

    fn last_streamed(&self, mdt: u16) -> OperationId {
        let start = OperationId::before_all(self.options.index);
        self.streams.outgoing.get(&mdt).map_or(start, |outgoing| outgoing.last)
    }

    /// The transaction was applied.
    pub(super) fn stream(
        &mut self,
        transno: Transno,
        streaming: Streaming,
        (token, request, reply): (&Token, &Request, &Reply),
        out: &mut Vec<Output>,
    ) {
        let mut request = request.clone();
        rpc::import::fill_for_replay(&mut request, reply);
        let Request::Mdt(request) = request else { return };
        // Of a replay the number counts that it had before, which says where it belongs.
        let original = token.replay.filter(|transno| *transno != Transno::ZERO);
        let witness = Witness {
            client: token.client,
            slot: token.slot,
            xid: token.xid,
            transno: original.unwrap_or(transno),
            request,
        };
        let Streaming { id, parts } = streaming;
        let witness_bytes = bytes_of(&witness);
        for (mdt, (parts, part_bytes)) in parts {
            let is_short = witness_bytes <= WITNESS_BYTES_MAX;
            let witness = is_short.then(|| Box::new(witness.clone()));
            let byte_count = part_bytes + if is_short { witness_bytes } else { 0 };
            let index = self.options.index;
            let outgoing = self.streams.outgoing.entry(mdt).or_insert_with(|| Outgoing::new(index));
            let previous = outgoing.last;
            outgoing.push(id, Outstanding { transno, previous, parts, witness, byte_count });
        }
        self.stats.cross_mdt += 1;
        out.push(Output::Event(MdsEvent::Decided { id, is_commit: true }));
    }

    /// Sends what is new, and says what has become durable.
    pub(super) fn send_streams(&mut self, now: Now, out: &mut Vec<Output>) {
        self.take_back(now, out);
        let durable = match planted(Fault::PartBeforeDurable) {
            true => self.core.last_transno(),
            false => self.core.durable(),
        };
        let mdts: Vec<u16> = self.streams.outgoing.keys().copied().collect();
        for mdt in mdts {
            self.send_stream(now, mdt, durable, out);
        }
        self.tell_recovered(now, out);
    }

    /// What is held for former incarnations, and was not sent again by the end of the recovery, is void.
    fn tell_recovered(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.core.is_recovering() || self.streams.told_recovered.len() == self.peers.mdts().count() {
            return;
        }
        let epoch = self.core.epoch().0;
        let mdts: Vec<u16> = self.peers.mdts().collect();
        for mdt in mdts {
            // A message to it may be on its way, and what it has not taken yet still held for a former incarnation only.
            let has_unsent =
                self.streams.outgoing.get(&mdt).is_some_and(|outgoing| outgoing.unsent().next().is_some());
            if !has_unsent && self.streams.told_recovered.insert(mdt) {
                let request = Request::Peer(PeerRequest::Forget { epoch });
                self.call(now, TargetId::mdt(mdt), request, Call::Tell, out);
            }
        }
    }

    fn send_stream(&mut self, now: Now, mdt: u16, durable: Transno, out: &mut Vec<Output>) {
        let epoch = self.core.epoch().0;
        // What is sent again after a restart is there before what was not sent again is void.
        let is_prompt = self.core.is_recovering() || !self.streams.told_recovered.contains(&mdt);
        let is_known = self.peers.is_known(TargetId::mdt(mdt));
        let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) else { return };
        if outgoing.items.is_empty() || outgoing.send_at.is_some_and(|at| at > now.time) {
            return;
        }
        outgoing.send_at = None;
        if !is_known {
            // The configuration has not come yet.
            return self.stream_again(now, mdt);
        }
        let mut requests = Vec::new();
        if outgoing.is_hold_due(now.time, durable, is_prompt) {
            let items = outgoing.next_items(durable);
            if let Some(last) = items.last() {
                outgoing.sent_to = Some(last.id);
                outgoing.is_sending = true;
                outgoing.hold_at = None;
                requests.push((PeerRequest::Hold { epoch, items }, Call::Hold { mdt }));
            }
        }
        if let Some(up_to) = outgoing.next_release(durable) {
            outgoing.released_to = Some(up_to);
            outgoing.releases += 1;
            requests.push((PeerRequest::Release { epoch, up_to }, Call::Release { mdt, up_to }));
        }
        for (request, call) in requests {
            self.call(now, TargetId::mdt(mdt), Request::Peer(request), call, out);
        }
    }

    /// Everything is sent again, after a while.
    fn stream_again(&mut self, now: Now, mdt: u16) {
        if let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) {
            outgoing.start_over();
            outgoing.is_sending = false;
            outgoing.hold_at = None;
            let wait = if outgoing.is_refused { SEND_REFUSED_AGAIN_AFTER } else { SEND_AGAIN_AFTER };
            outgoing.send_at = Some(now.time.after(wait));
        }
    }

    /// The participant was restarted, or has forgotten this MDT.
    pub(super) fn on_participant_restarted(&mut self, mdt: u16) {
        if let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) {
            outgoing.start_over();
            // It may be another version now.
            if std::mem::take(&mut outgoing.is_refused) {
                outgoing.send_at = None;
            }
        }
    }

    pub(super) fn on_held(
        &mut self,
        now: Now,
        mdt: u16,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        match result {
            Ok(Reply::Done) => {
                if let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) {
                    outgoing.is_sending = false;
                    outgoing.is_refused = false;
                }
            }
            Err(status @ (Status::NotSupported | Status::ProtocolError)) => {
                self.on_not_understood(now, mdt, status, out);
            }
            Ok(_) | Err(_) => self.stream_again(now, mdt),
        }
    }

    /// A participant that cannot read the parts, as one that was put back to an older version, gets them when it can. Until then they are
    /// sent in vain now and then, of which an operator hears once.
    fn on_not_understood(&mut self, now: Now, mdt: u16, status: Status, out: &mut Vec<Output>) {
        let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) else { return };
        let was_said = std::mem::replace(&mut outgoing.is_refused, true);
        let fid = outgoing.made.keys().next().copied().unwrap_or_default();
        self.stream_again(now, mdt);
        if was_said {
            return;
        }
        let what = "an MDT does not understand parts of an operation, which are kept and sent again: run a newer version there";
        out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
    }

    pub(super) fn on_released(
        &mut self,
        now: Now,
        mdt: u16,
        up_to: OperationId,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) else { return };
        outgoing.releases -= 1;
        match result {
            Ok(Reply::Done) => self.forget_streamed(mdt, up_to, out),
            // It has lost what it held, and lacks items.
            Ok(_) | Err(_) => self.stream_again(now, mdt),
        }
    }

    /// The participant has executed these, durably.
    fn forget_streamed(&mut self, mdt: u16, up_to: OperationId, out: &mut Vec<Output>) {
        let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) else { return };
        let ids: Vec<OperationId> = outgoing.items.range(..=up_to).map(|(id, _)| *id).collect();
        for id in &ids {
            for fid in outgoing.items.remove(id).iter().flat_map(|item| made_by(&item.parts)) {
                outgoing.made.remove(&fid);
            }
        }
        // After a participant was away for long there are more of them than one transaction takes.
        for ids in ids.chunks(FORGOTTEN_MAX) {
            let mut batch = Batch::new();
            for id in ids {
                batch.delete(rows::STREAMED, &rows::streamed_key(mdt, *id));
            }
            // If they stay, the next incarnation sends them again, which changes nothing.
            if let Err(error) = self.core.apply_internal(batch) {
                let (what, status) = ("parts were not forgotten", error.status());
                out.push(Output::Event(MdsEvent::Failed { what, fid: Fid::default(), status }));
            }
        }
    }

    /// A participant wants to know whether a directory is on its way to it: somebody waits for it.
    pub(super) fn answer_is_coming(&mut self, now: Now, token: Token, mdt: u16, fid: Fid, is_replay: bool) {
        let found = self.streams.outgoing.get(&mdt).and_then(|outgoing| {
            let id = outgoing.made.get(&fid)?;
            outgoing.items.get(id).map(|item| (*id, item.transno))
        });
        if found.is_none() && self.core.is_recovering() && !is_replay {
            // A client may still replay it. (No replay of others can be built on what is not durable here.)
            return self.reply(now, token, Err(part::GIVE_WAY));
        }
        if found.is_some_and(|(_, transno)| transno > self.core.durable()) {
            self.core.store().kick();
        }
        let item = found.map(|(id, _)| id);
        if let Some(outgoing) = self.streams.outgoing.get_mut(&mdt) {
            outgoing.wanted_to = outgoing.wanted_to.max(item);
        }
        self.reply(now, token, Ok(Reply::Peer(PeerReply::Coming { item })));
    }

    /// The next FID of each MDT that has given some.
    pub(super) fn given_fids(&self) -> BTreeMap<u16, Fid> {
        let takes_streams = |mdt: u16| self.peers.features_of(TargetId::mdt(mdt)) & features::STREAMS != 0;
        let pools = self.streams.pools.iter().filter(|(mdt, _)| takes_streams(**mdt));
        pools.filter_map(|(mdt, pool)| Some((*mdt, *pool.fids.front()?))).collect()
    }

    /// The operation has these, whatever becomes of it.
    pub(super) fn take_given(
        &mut self,
        now: Now,
        flow: &mut Flow,
        taken: &BTreeMap<u16, Fid>,
        out: &mut Vec<Output>,
    ) {
        for (mdt, fid) in taken {
            let first = self.streams.pools.get_mut(mdt).and_then(|pool| pool.fids.pop_front());
            assert_eq!(first, Some(*fid), "nobody else takes FIDs while an operation runs");
            flow.remote.fids.insert(*mdt, *fid);
            self.ask_for_fids(now, *mdt, out);
        }
    }

    /// A FID of another MDT for a directory that an operation makes, which was given or is asked for.
    pub(super) fn need_given_fid(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        mdt: u16,
        out: &mut Vec<Output>,
    ) -> Step {
        let pool = self.streams.pools.entry(mdt).or_default();
        let fid = pool.fids.pop_front();
        if fid.is_none() {
            pool.waiting.insert(op);
        }
        let is_known = self.ask_for_fids(now, mdt, out);
        if let Some(fid) = fid {
            flow.remote.fids.insert(mdt, fid);
            return self.run_again(op, flow);
        }
        if !is_known {
            return self.fail(now, op, flow, Status::NoDevice, out);
        }
        flow.wait_for([TargetId::mdt(mdt)]);
        self.ask(now, op, flow)
    }

    /// Asks for more FIDs when few are left. False: the MDT is not known.
    fn ask_for_fids(&mut self, now: Now, mdt: u16, out: &mut Vec<Output>) -> bool {
        let pool = self.streams.pools.entry(mdt).or_default();
        if pool.is_asked || pool.fids.len() >= FIDS_LOW {
            return true;
        }
        pool.is_asked = true;
        let request = Request::Peer(PeerRequest::NewFids { count: FIDS_WANTED });
        let is_known = self.call(now, TargetId::mdt(mdt), request, Call::NewFids { mdt }, out);
        if !is_known && let Some(pool) = self.streams.pools.get_mut(&mdt) {
            pool.is_asked = false;
        }
        is_known
    }

    pub(super) fn on_fids_given(
        &mut self,
        now: Now,
        mdt: u16,
        result: Result<Reply, Status>,
        out: &mut Vec<Output>,
    ) {
        let Some(pool) = self.streams.pools.get_mut(&mdt) else { return };
        pool.is_asked = false;
        let waiting = std::mem::take(&mut pool.waiting);
        let refusal = match result {
            Ok(Reply::Peer(PeerReply::NewFids { first, count }))
                if first.mdt_index() == Some(mdt) && count <= FIDS_WANTED =>
            {
                let oids = first.oid..first.oid.saturating_add(count).min(Fid::OIDS_PER_SEQ);
                pool.fids.extend(oids.map(|oid| Fid { oid, ..first }));
                None
            }
            Ok(_) => Some(Status::ProtocolError),
            Err(status) => Some(status),
        };
        for op in waiting {
            let Some(mut flow) = self.flows.remove(&op) else { continue };
            let step = match refusal {
                Some(part::GIVE_WAY) => self.back_off(now, op, &mut flow, out),
                Some(status) => self.fail(now, op, &mut flow, status, out),
                None => self.run_again(op, &mut flow),
            };
            self.keep_flow(op, flow, step);
        }
    }

    /// The operation is over: it needs no FID.
    pub(super) fn stop_waiting_for_fids(&mut self, op: OpId) {
        for pool in self.streams.pools.values_mut() {
            pool.waiting.remove(&op);
        }
    }

    /// Reads back what earlier incarnations have streamed, executed and given.
    pub(super) fn load_streams(&mut self) -> Result<(), Status> {
        let index = self.options.index;
        let transno = self.core.last_transno();
        let end = vec![0xff; store::KEY_BYTES_MAX];
        let tx = crate::tx::Tx::new(&**self.core.store());
        let streamed = tx.scan(rows::STREAMED, &[], &end, usize::MAX)?;
        let executed = tx.scan_prefix(rows::STATE, rows::EXECUTED_PREFIX, usize::MAX)?;
        let given = tx.scan_prefix(rows::STATE, rows::GIVEN_PREFIX, usize::MAX)?;
        for (key, value) in streamed {
            let (mdt, id) = rows::split_streamed_key(&key).ok_or(Status::Corrupt)?;
            let Streamed { previous, parts } = rows::decode(&value)?;
            let outgoing = self.streams.outgoing.entry(mdt).or_insert_with(|| Outgoing::new(index));
            let byte_count = value.len();
            outgoing.push(id, Outstanding { transno, previous, parts, witness: None, byte_count });
        }
        for (key, value) in executed {
            let mdt = key.get(rows::EXECUTED_PREFIX.len()..).and_then(|key| key.try_into().ok());
            let mdt = mdt.map(u16::from_be_bytes).ok_or(Status::Corrupt)?;
            self.streams.incoming.insert(mdt, Incoming::new(rows::decode(&value)?));
        }
        for (key, value) in given {
            let seq = key.get(rows::GIVEN_PREFIX.len()..).and_then(|key| key.try_into().ok());
            let seq = seq.map(u64::from_be_bytes).ok_or(Status::Corrupt)?;
            self.fids.note_given(seq, rows::decode(&value)?);
        }
        Ok(())
    }
}

/// As many as it has in a message or a row.
fn bytes_of<T: borsh::BorshSerialize>(body: &T) -> usize {
    // Nothing that is counted cannot be written.
    borsh::object_length(body).unwrap_or(usize::MAX)
}

fn item_of(id: OperationId, item: &Outstanding, durable: Transno) -> Item {
    let witness = item.witness.clone().filter(|_| item.transno > durable);
    Item { id, previous: item.previous, parts: item.parts.clone(), witness }
}
