//! Calls of this MDT to other targets: destroys to OSTs, parts to MDTs.

mod leaving;
mod status;

use super::{Mds, MdsEvent, MdsOptions, Output, placing};
use crate::rows::{self, Destroy, KnownTargets};
use base::fault::{Fault, planted};
use base::{
    ClusterConfig, Duration, Endpoint, Fid, Now, ObjectId, Pool, Start, Status, TargetId, TargetKind, Time,
    Transno,
};
use bytes::Bytes;
use ldlm::OpId;
use rpc::{Answer, Import, ImportOptions, ImportOutput, ImportState, Kind, Ticket};
use status::Past;
pub use status::PeerStatus;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Batch, MetaStore};
use target::Word;
use wire::peer::{FlockWaitId, OperationId};
use wire::{Frame, Life, OstRequest, Request};

/// Rows of one destroy RPC, and RPCs to one OST at a time.
const DESTROY_ROWS_MAX: usize = 128;
const DESTROY_RPCS_MAX: usize = 4;

/// After an OST could not.
const DESTROY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a call is for.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// Rows of `rows::DESTROYS`.
    Destroy {
        ost: u16,
        keys: Vec<Vec<u8>>,
    },
    /// A row of `rows::ADOPTS`.
    Adopt {
        ost: u16,
        key: Vec<u8>,
    },
    /// Objects of an OST, to be compared with the inodes.
    List {
        ost: u16,
    },
    Peek {
        op: OpId,
    },
    PeekParent {
        op: OpId,
    },
    LockRename {
        op: OpId,
        id: OperationId,
    },
    NewFid {
        op: OpId,
        mdt: u16,
    },
    PeekDirectory {
        op: OpId,
        fid: Fid,
    },
    PeekWhole {
        op: OpId,
        fid: Fid,
    },
    PeekFile {
        op: OpId,
        fid: Fid,
    },
    Prepare {
        op: OpId,
        id: OperationId,
        mdt: u16,
    },
    Decide {
        id: OperationId,
        mdt: u16,
    },
    Ask {
        id: OperationId,
    },
    /// Items of a stream.
    Hold {
        mdt: u16,
    },
    /// They may be executed.
    Release {
        mdt: u16,
        up_to: OperationId,
    },
    NewFids {
        mdt: u16,
    },
    /// What is held for this MDT, or a part of it.
    TakeBack {
        mdt: u16,
        is_whole: bool,
    },
    /// A directory that somebody looks for.
    IsComing {
        op: OpId,
        fid: Fid,
    },
    /// Who waits for whom, to find deadlocks.
    FlockWaits {
        wait: FlockWaitId,
    },
    /// How much room a target has.
    Space,
    /// A client that is given up.
    Fence {
        life: Life,
        ost: u16,
        round: u64,
    },
    /// Nobody waits for the answer.
    Tell,
}

impl Call {
    /// Whether it asks something for this operation. (A lock that comes late has to go back, and who prepares is known by what it prepares.)
    pub fn is_question_of(&self, of: OpId) -> bool {
        match self {
            Call::Peek { op }
            | Call::PeekParent { op }
            | Call::NewFid { op, .. }
            | Call::PeekDirectory { op, .. }
            | Call::PeekWhole { op, .. }
            | Call::PeekFile { op, .. }
            | Call::IsComing { op, .. } => *op == of,
            _ => false,
        }
    }
}

/// Rows to be sent to one OST.
#[derive(Debug, Default)]
struct Destroys {
    ready: VecDeque<Vec<u8>>,
    in_flight: usize,
    /// Those that are ready, and could not be read: they have been told of.
    unread: BTreeSet<Vec<u8>>,
    /// The OST could not, or the device some of it: not before this.
    send_at: Option<Time>,
}

pub(super) struct Peers {
    template: ImportOptions,
    imports: BTreeMap<TargetId, Import>,
    /// For operators.
    pasts: BTreeMap<TargetId, Past>,
    calls: BTreeMap<(TargetId, Ticket), Call>,
    /// Calls that came to an end before they left: the target does not want this one, or they are too long.
    refused: VecDeque<(TargetId, Ticket, Status)>,
    destroys: BTreeMap<u16, Destroys>,
    /// Rows that are not durable yet, in the order of their transactions.
    young: VecDeque<(Transno, Vec<u8>)>,
    /// This MDT ends, and has said goodbye.
    is_leaving: bool,
}

impl Peers {
    pub fn new(id: TargetId, starts: &[Start], options: &MdsOptions) -> Peers {
        let template = ImportOptions {
            client: Endpoint::Target(id).client_id(),
            incarnation: starts.last().map_or(0, |this| this.epoch.0),
            fsname: options.fsname.clone(),
            nid: options.nid.clone(),
            starts: starts.to_vec(),
            target: id,
            target_uuid: 0,
        };
        Peers {
            template,
            imports: BTreeMap::new(),
            pasts: BTreeMap::new(),
            calls: BTreeMap::new(),
            refused: VecDeque::new(),
            destroys: BTreeMap::new(),
            young: VecDeque::new(),
            is_leaving: false,
        }
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let sends = self.destroys.values().filter_map(|queue| queue.send_at);
        self.imports.values().filter_map(Import::next_deadline).chain(sends).min()
    }

    /// Targets that answer now.
    pub fn with_session(&self) -> impl Iterator<Item = TargetId> {
        let is_active = |import: &Import| import.state() == ImportState::Active;
        self.imports.iter().filter(move |(_, import)| is_active(import)).map(|(target, _)| *target)
    }

    /// Those of them that answer, as far as is known.
    pub fn heard(&self, now: Time) -> impl Iterator<Item = TargetId> {
        self.imports.iter().filter(move |(_, import)| import.is_heard(now)).map(|(target, _)| *target)
    }

    /// Whether one that there is does not answer.
    pub fn is_silent(&self, now: Time, target: TargetId) -> bool {
        self.imports.get(&target).is_some_and(|import| import.is_away(now))
    }

    /// When something left that a target has answered since, the latest of that; `None`: nothing yet.
    pub fn last_contact(&self, target: TargetId) -> Option<Time> {
        self.imports.get(&target).and_then(Import::last_contact)
    }

    /// What a target can do, as far as is known.
    pub fn features_of(&self, target: TargetId) -> u64 {
        self.imports.get(&target).map_or(0, Import::features)
    }

    /// Whose answer is awaited about its room.
    pub fn asked_for_space(&self) -> BTreeSet<TargetId> {
        let asked = self.calls.iter().filter(|(_, call)| matches!(call, Call::Space));
        asked.map(|((target, _), _)| *target).collect()
    }

    /// Whether a configuration has told where this target is.
    pub(super) fn is_known(&self, target: TargetId) -> bool {
        self.imports.contains_key(&target)
    }

    /// The other MDTs.
    pub fn mdts(&self) -> impl Iterator<Item = u16> {
        let is_mdt = |target: &&TargetId| target.kind == TargetKind::Mdt;
        self.imports.keys().filter(is_mdt).map(|target| target.index)
    }

    /// Rows with objects to destroy were written.
    pub fn note_destroys(&mut self, transno: Transno, keys: Vec<Vec<u8>>) {
        self.young.extend(keys.into_iter().map(|key| (transno, key)));
    }

    /// Whether no call has ended before it left, or all have been told of it.
    pub fn has_told_all(&self) -> bool {
        self.refused.is_empty()
    }

    pub fn has_destroyed_all(&self) -> bool {
        self.young.is_empty()
            && self.destroys.values().all(|queue| queue.ready.is_empty() && queue.in_flight == 0)
    }

    fn make_ready(&mut self, key: Vec<u8>) {
        if let Some((ost, _, _)) = rows::split_destroy_key(&key) {
            self.destroys.entry(ost).or_default().ready.push_back(key);
        }
    }
}

impl<M: MetaStore> Mds<M> {
    /// Takes note of the file system's targets, and opens sessions with those that are new.
    pub(super) fn on_config(&mut self, now: Now, config: ClusterConfig, out: &mut Vec<Output>) {
        if !self.core.has_begun() {
            // Another incarnation may begin as the same epoch yet.
            self.early_config = Some(config);
            return;
        }
        if config.version < self.config.version {
            return;
        }
        self.note_targets(&config, out);
        self.note_pools(&config, out);
        for target in &config.targets {
            if target.id == self.core.id() || target.id.kind == TargetKind::Mgt {
                continue;
            }
            // One that would wait for this MDT is not to know it any more when it ends.
            if self.peers.imports.contains_key(&target.id) || self.peers.is_leaving {
                continue;
            }
            let mut options = self.peers.template.clone();
            (options.target, options.target_uuid) = (target.id, target.uuid);
            self.peers.imports.insert(target.id, Import::new(options));
            // A peer that was restarted waits for everybody who had a session.
            self.with_import(now, target.id, out, |import, now, outputs| import.connect(now, outputs));
        }
        self.config = config;
        self.fences.look_at_asked(now.time);
    }

    /// Keeps what operations depend on, for the time after a restart in which no configuration has come.
    fn note_targets(&mut self, config: &ClusterConfig, out: &mut Vec<Output>) {
        let osts = config.of_kind(TargetKind::Ost).filter(|ost| ost.is_active).map(|ost| ost.id.index);
        let known = KnownTargets { osts: osts.collect(), mdt_count: placing::mdt_count(config) };
        if known == self.known_targets {
            return;
        }
        self.note(rows::KNOWN_TARGETS_KEY, &rows::encode(&known), "the targets were not noted", out);
        self.use_targets(known);
    }

    /// The same for pools, of which the members that are active count.
    fn note_pools(&mut self, config: &ClusterConfig, out: &mut Vec<Output>) {
        let is_active = |ost: &u16| self.known_targets.osts.contains(ost);
        let active = |pool: &Pool| Pool {
            name: pool.name.clone(),
            osts: pool.osts.iter().copied().filter(is_active).collect(),
        };
        let pools: Vec<Pool> = config.pools.iter().map(active).collect();
        if pools != self.known_pools {
            self.note(rows::POOLS_KEY, &rows::encode(&pools), "the pools were not noted", out);
            self.use_pools(pools);
        }
    }

    fn note(&mut self, key: &[u8], row: &[u8], what: &'static str, out: &mut Vec<Output>) {
        let mut batch = Batch::new();
        batch.put(rows::STATE, key, row);
        if let Err(error) = self.core.apply_internal(batch) {
            let (fid, status) = (Fid::default(), error.status());
            out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
        }
    }

    pub(super) fn on_no_create(&mut self, osts: BTreeSet<u16>, mdts: BTreeSet<u16>, out: &mut Vec<Output>) {
        if mdts != *self.by_space.drained() {
            let row = rows::encode(&mdts);
            self.note(rows::NO_CREATE_MDTS_KEY, &row, "what gets no new directories was not noted", out);
            self.by_space.drain(mdts);
        }
        if osts != self.no_create {
            self.note(rows::NO_CREATE_KEY, &rows::encode(&osts), "what gets no new files was not noted", out);
            self.no_create = osts;
            self.place();
        }
    }

    fn use_pools(&mut self, known: Vec<Pool>) {
        self.known_pools = known;
        self.place();
    }

    fn use_targets(&mut self, known: KnownTargets) {
        self.known_targets = known;
        self.place();
    }

    /// New files go to all that is known, but for what an operator drains.
    fn place(&mut self) {
        let open = |osts: &[u16]| {
            osts.iter().copied().filter(|ost| !self.no_create.contains(ost)).collect::<Vec<u16>>()
        };
        let pools =
            self.known_pools.iter().map(|pool| Pool { name: pool.name.clone(), osts: open(&pool.osts) });
        let open_osts = open(&self.known_targets.osts);
        self.placement.set_drained(open_osts.is_empty() && !self.known_targets.osts.is_empty());
        self.placement.configure(open_osts);
        self.placement.configure_pools(pools);
    }

    pub(super) fn load_targets(&mut self) -> Result<(), Status> {
        let value = self.core.store().get(rows::STATE, rows::KNOWN_TARGETS_KEY);
        if let Some(value) = value.map_err(|error| error.status())? {
            self.use_targets(rows::decode(&value)?);
        }
        let value = self.core.store().get(rows::STATE, rows::POOLS_KEY);
        if let Some(value) = value.map_err(|error| error.status())? {
            self.use_pools(rows::decode(&value)?);
        }
        let value = self.core.store().get(rows::STATE, rows::NO_CREATE_KEY);
        if let Some(value) = value.map_err(|error| error.status())? {
            self.no_create = rows::decode(&value)?;
            self.place();
        }
        let value = self.core.store().get(rows::STATE, rows::NO_CREATE_MDTS_KEY);
        if let Some(value) = value.map_err(|error| error.status())? {
            self.by_space.drain(rows::decode(&value)?);
        }
        Ok(())
    }

    pub(super) fn with_import(
        &mut self,
        now: Now,
        target: TargetId,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Import, Now, &mut Vec<ImportOutput>),
    ) {
        let mut outputs = Vec::new();
        if let Some(import) = self.peers.imports.get_mut(&target) {
            act(import, now, &mut outputs);
        }
        for output in outputs {
            self.on_import_output(now, target, output, out);
        }
    }

    /// Sends a request that may be executed again. False: the target is not known.
    pub(super) fn call(
        &mut self,
        now: Now,
        target: TargetId,
        request: Request,
        call: Call,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(import) = self.peers.imports.get_mut(&target) else { return false };
        let mut outputs = Vec::new();
        let ticket = import.submit(now, request, Bytes::new(), Kind::Reserved, 0, &mut outputs);
        self.peers.calls.insert((target, ticket), call);
        for output in outputs {
            match output {
                // Who calls does not expect it before he has said that he waits.
                ImportOutput::Completed { ticket, result: Err(status) } => {
                    self.peers.refused.push_back((target, ticket, status));
                }
                output => self.on_import_output(now, target, output, out),
            }
        }
        true
    }

    /// Ends a call that did not leave. False: there is none.
    pub(super) fn end_refused(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        let Some((target, ticket, status)) = self.peers.refused.pop_front() else { return false };
        if let Some(call) = self.peers.calls.remove(&(target, ticket)) {
            self.on_called(now, target, call, Err(status), out);
        }
        true
    }

    /// What was asked by these is not wanted any more. It is sent no more, and no answer is listened to. Only for what changes nothing but
    /// what is durable when it is answered (`Import::abandon`).
    pub(super) fn abandon_calls(
        &mut self,
        now: Now,
        is_meant: impl Fn(&Call) -> bool,
        out: &mut Vec<Output>,
    ) {
        let meant = self.peers.calls.iter().filter(|(_, call)| is_meant(call));
        let meant: Vec<(TargetId, Ticket)> = meant.map(|(key, _)| *key).collect();
        for (target, ticket) in meant {
            self.peers.calls.remove(&(target, ticket));
            self.with_import(now, target, out, |import, now, outputs| import.abandon(now, ticket, outputs));
        }
    }

    pub(super) fn on_peer_frame(&mut self, now: Now, frame: Frame, out: &mut Vec<Output>) {
        let Endpoint::Target(target) = frame.src else { return };
        self.with_import(now, target, out, |import, now, outputs| import.on_frame(now, frame, outputs));
    }

    pub(super) fn tick_peers(&mut self, now: Now, out: &mut Vec<Output>) {
        let is_due = |import: &Import| import.next_deadline().is_some_and(|due| due <= now.time);
        let due: Vec<TargetId> =
            self.peers.imports.iter().filter(|(_, import)| is_due(import)).map(|(id, _)| *id).collect();
        for target in due {
            self.with_import(now, target, out, |import, now, outputs| import.on_tick(now, outputs));
        }
    }

    fn on_import_output(&mut self, now: Now, target: TargetId, output: ImportOutput, out: &mut Vec<Output>) {
        self.peers.pasts.entry(target).or_default().note(now.wall, &output);
        match output {
            ImportOutput::Send(frame) => out.push(Output::Send(frame)),
            ImportOutput::Completed { ticket, result } => {
                if let Some(call) = self.peers.calls.remove(&(target, ticket)) {
                    self.on_called(now, target, call, result, out);
                }
            }
            // Nothing that is asked of other targets is retained: what must happen is in rows of our own.
            ImportOutput::ReplayWanted => {
                if target == TargetId::mdt(0) {
                    self.on_rename_locks_lost();
                }
                self.on_target_restarted(target);
                self.with_import(now, target, out, |import, now, outputs| {
                    import.replay_now(now, Vec::new(), outputs);
                });
            }
            ImportOutput::Evicted => {
                if target == TargetId::mdt(0) {
                    self.on_rename_locks_lost();
                }
                self.on_target_restarted(target);
            }
            ImportOutput::State(ImportState::Refused(status)) => {
                out.push(Output::Event(MdsEvent::PeerRefused { target, status }));
            }
            // The first objects that are dealt out are to miss one that is full.
            ImportOutput::State(ImportState::Active) if target.kind == TargetKind::Ost => {
                self.ask_space(now, [target], out);
            }
            ImportOutput::Committed(_)
            | ImportOutput::ReplayFailed { .. }
            | ImportOutput::Lost { .. }
            | ImportOutput::Recovered
            | ImportOutput::Callback(_)
            | ImportOutput::State(_)
            | ImportOutput::Overdue
            | ImportOutput::AnswersAgain => {}
            ImportOutput::Outdated(known) => {
                let word = Word::Outdated { by: Endpoint::Target(target), known };
                self.core.on_word(now, word, &mut self.core_out);
            }
        }
    }

    fn on_called(
        &mut self,
        now: Now,
        target: TargetId,
        call: Call,
        result: Result<Answer, Status>,
        out: &mut Vec<Output>,
    ) {
        // No failure: the next incarnation asks again, for its rows or for whoever waits here and asks that one again.
        if result.is_err() && self.peers.has_parted_from(target) {
            return;
        }
        match call {
            Call::Destroy { ost, keys } => self.on_destroyed(now, ost, keys, result, out),
            Call::Adopt { ost, key } => self.on_adopted(now, ost, key, result.map(drop), out),
            Call::List { ost } => self.on_listed(now, ost, result, out),
            Call::Fence { life, ost, round } => {
                self.on_fenced(now, (life, round), ost, result.map(drop), out);
            }
            Call::Space => self.on_space(target, result),
            call => self.on_mdt_answer(now, target, call, result.map(|answer| answer.reply), out),
        }
    }

    /// All rows that an earlier incarnation has left.
    pub(super) fn load_destroys(&mut self) -> Result<(), Status> {
        let end = vec![0xff; store::KEY_BYTES_MAX];
        let mut keys = Vec::new();
        self.core
            .store()
            .scan(rows::DESTROYS, &[], &end, usize::MAX, &mut |key, _| {
                keys.push(key.to_vec());
                true
            })
            .map_err(|error| error.status())?;
        // They are durable at the latest when this incarnation is.
        let transno = self.core.last_transno();
        self.peers.note_destroys(transno, keys);
        Ok(())
    }

    /// Tells OSTs and MDTs what may be told now: only durable things are spoken of between servers.
    pub(super) fn send_what_is_durable(&mut self, now: Now, out: &mut Vec<Output>) {
        let durable =
            if planted(Fault::DestroyBeforeDurable) { self.core.last_transno() } else { self.core.durable() };
        while let Some((transno, _)) = self.peers.young.front() {
            if *transno > durable {
                break;
            }
            if let Some((_, key)) = self.peers.young.pop_front() {
                self.peers.make_ready(key);
            }
        }
        self.send_destroys(now, out);
        self.send_adopts(now, out);
        self.send_decisions(now, out);
        self.send_streams(now, out);
    }

    fn on_target_restarted(&mut self, target: TargetId) {
        if target.kind == TargetKind::Mdt {
            self.on_participant_restarted(target.index);
        }
    }

    fn send_destroys(&mut self, now: Now, out: &mut Vec<Output>) {
        let osts: Vec<u16> = self.peers.destroys.keys().copied().collect();
        for ost in osts {
            while let Some(keys) = self.next_destroys(now, ost) {
                self.send_destroy(now, ost, keys, out);
            }
        }
    }

    fn next_destroys(&mut self, now: Now, ost: u16) -> Option<Vec<Vec<u8>>> {
        let is_known = self.peers.imports.contains_key(&TargetId::ost(ost));
        let queue = self.peers.destroys.get_mut(&ost)?;
        if queue.send_at.is_some_and(|at| at > now.time) {
            return None;
        }
        queue.send_at = None;
        if queue.ready.is_empty() && queue.in_flight == 0 {
            self.peers.destroys.remove(&ost);
            return None;
        }
        if !is_known || queue.ready.is_empty() || queue.in_flight >= DESTROY_RPCS_MAX {
            return None;
        }
        queue.in_flight += 1;
        let count = queue.ready.len().min(DESTROY_ROWS_MAX);
        Some(queue.ready.drain(..count).collect())
    }

    /// A row that is damaged is given up. One that the device cannot read now is read again.
    fn send_destroy(&mut self, now: Now, ost: u16, wanted: Vec<Vec<u8>>, out: &mut Vec<Output>) {
        let (mut objects, mut keys) = (Vec::new(), Vec::new());
        let (mut unread, mut unread_status) = (Vec::new(), None);
        for key in wanted {
            match self.objects_of(&key) {
                Ok(of_row) => objects.extend(of_row),
                Err(status @ Status::Corrupt) => {
                    let fid = rows::split_destroy_key(&key).map_or(Fid::default(), |(_, fid, _)| fid);
                    let what = "objects were not destroyed";
                    out.push(Output::Event(MdsEvent::Failed { what, fid, status }));
                }
                Err(status) => {
                    unread_status = Some(status);
                    unread.push(key);
                    continue;
                }
            }
            keys.push(key);
        }
        if let Some(queue) = self.peers.destroys.get_mut(&ost) {
            for key in &keys {
                queue.unread.remove(key);
            }
            if let Some(status) = unread_status {
                let count = unread.iter().filter(|key| queue.unread.insert(key.to_vec())).count();
                if count > 0 {
                    out.push(Output::Event(MdsEvent::DestroysUnread { ost, count, status }));
                }
                queue.ready.extend(unread);
                queue.send_at = Some(now.time.after(DESTROY_AGAIN_AFTER));
            }
            queue.in_flight -= usize::from(keys.is_empty());
        }
        if keys.is_empty() {
            return;
        }
        let request = Request::Ost(OstRequest::Destroy { objects });
        self.call(now, TargetId::ost(ost), request, Call::Destroy { ost, keys }, out);
    }

    fn objects_of(&self, key: &[u8]) -> Result<Vec<ObjectId>, Status> {
        let (_, fid, component) = rows::split_destroy_key(key).ok_or(Status::Corrupt)?;
        let Some(value) = self.sound_row(rows::DESTROYS, key)? else { return Ok(Vec::new()) };
        let destroy: Destroy = rows::decode(&value)?;
        Ok(destroy.stripes.into_iter().map(|stripe| ObjectId { fid, component, stripe }).collect())
    }

    fn on_destroyed(
        &mut self,
        now: Now,
        ost: u16,
        keys: Vec<Vec<u8>>,
        result: Result<Answer, Status>,
        out: &mut Vec<Output>,
    ) {
        let Some(queue) = self.peers.destroys.get_mut(&ost) else { return };
        queue.in_flight -= 1;
        if let Err(status) = result {
            queue.ready.extend(keys);
            queue.send_at = Some(now.time.after(DESTROY_AGAIN_AFTER));
            let what = "an OST did not destroy objects";
            return out.push(Output::Event(MdsEvent::Failed { what, fid: Fid::default(), status }));
        }
        let mut batch = Batch::new();
        for key in &keys {
            batch.delete(rows::DESTROYS, key);
        }
        match self.core.apply_internal(batch) {
            Ok(_) => {
                self.stats.objects_destroyed += keys.len() as u64;
                out.push(Output::Event(MdsEvent::Destroyed { ost, count: keys.len() }));
            }
            // The rows stay; the next incarnation destroys again, which changes nothing.
            Err(error) => {
                let (what, status) = ("destroyed objects were not forgotten", error.status());
                out.push(Output::Event(MdsEvent::Failed { what, fid: Fid::default(), status }));
            }
        }
    }
}
