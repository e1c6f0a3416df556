//! The management server: what targets each file system has, where they are, and its permanent parameters.
//!
//! Where a second management server stands by (the rows are in etcd then), only the one whose lease holds answers.
//!
//! One MGS serves several file systems. Targets register at each start; clients and targets ask for the configuration
//! and are answered when it changes. Everything is one row per file system.

#![forbid(unsafe_code)]

mod leases;
mod owners;
mod polls;
mod pools;
mod probes;
mod row;
mod starts;

use base::limits::LEASE;
use base::{
    ClientId, ClusterConfig, Duration, Epoch, Machine, Now, PoolName, Start, Status, TargetConfig, TargetId,
    Time, Transno,
};
use bytes::Bytes;
use leases::Leases;
use owners::{Denied, Owners};
use polls::{Poll, Polls};
use probes::{Probes, Registration};
use starts::Starts;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Batch, MetaStore, StoreError, Table};
use target::{Core, CoreEvent, CoreOptions, CoreOutput, EvictReason, Gone, Token};
use wire::{Callback, Frame, Life, MgsReply, MgsRequest, PoolChange, Reply, Request, TargetOwner};

pub use leases::LEASES;
pub use owners::OWNERS;
pub use probes::{ANSWER_WAIT, Found, PROBE_COUNT_MAX, PROBE_WAIT, Probe};
pub use starts::STARTS;

/// File system name -> version byte and `ClusterConfig`.
pub const CONFIGS: Table = 1;
/// `GetConfig` is answered after this, changed or not.
pub const POLL_WAIT: Duration = Duration::from_secs(5);
/// Each process has such a question under way for as long as it lives: of one that says nothing for so long nothing will come, or it
/// connects anew and has lost nothing by that.
const SILENT_PROCESS_MAX: Duration = Duration::from_secs(60);
/// Owners of targets have found a management server that has taken over by then, or was cut off itself, if they live: they notice after 8 s
/// without a word that the one before is gone, or that their connection is (`client::mgc`), and have to find this one.
const FOUND_WITHIN: Duration = Duration::from_secs(12);
const FSNAME_BYTES_MAX: usize = 64;
const PARAM_COUNT_MAX: usize = 4096;
const PARAM_PATH_BYTES_MAX: usize = 256;
const PARAM_VALUE_BYTES_MAX: usize = 4096;
const NID_COUNT_MAX: usize = 32;
const NID_BYTES_MAX: usize = 300;
const TARGET_COUNT_MAX: usize = 8192;
/// Each has one configuration, for ever, and takes room here as soon as a target of it has registered.
const FILESYSTEM_COUNT_MAX: usize = if cfg!(test) { 16 } else { 1024 };
/// More than a server serves; an answer fits in a frame.
const OWNERSHIPS_PER_REQUEST_MAX: usize = 1024;
/// Targets without room of which it is known that this was said.
const WITHOUT_ROOM_MAX: usize = 1024;
/// All of a configuration fits in a row and in a frame; the bounds above would allow more.
const CONFIG_BYTES_MAX: usize = store::VALUE_BYTES_MAX - 64;

const _: () = assert!(SILENT_PROCESS_MAX.as_millis() >= POLL_WAIT.as_millis() * 8);

/// How the MGS is started.
#[derive(Clone, Debug)]
pub struct MgsOptions {
    pub uuid: u128,
    pub now: Now,
    pub recovery_window: Duration,
    /// Where another management server stands by: until then it waits. `None`: there is no other one.
    pub active_until: Option<Time>,
}

#[derive(Clone, Debug)]
pub enum Input {
    Frame(Frame),
    /// The store has made more durable.
    Durable,
    /// The lease of this management server holds until then: nobody else answers before. Without one, whoever asks is not answered.
    ActiveUntil(Time),
    /// Who has answered to a probe, of those that it names.
    Probed {
        id: u64,
        found: Vec<Found>,
    },
    Tick,
    /// An operator wants this client gone.
    Evict(ClientId),
}

#[derive(Clone, Debug)]
pub enum Output {
    Send(Frame),
    /// To be answered by `Input::Probed`, or not.
    Probe(Probe),
    Event(MgsEvent),
}

/// For logs, metrics and checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MgsEvent {
    Core(CoreEvent),
    Registered {
        fsname: String,
        target: TargetId,
        version: u64,
    },
    /// The index belongs to another target.
    RegistrationRefused {
        fsname: String,
        target: TargetId,
    },
    /// There is no room for it. It asks again and again; this is said once, until the configuration has changed.
    RegistrationWithoutRoom {
        fsname: String,
        target: TargetId,
    },
    /// A later start of the target is known than what registers knows, which is an older copy.
    OutdatedRefused {
        fsname: String,
        target: TargetId,
        known: Start,
    },
    /// Another process serves the target, at this address: what wanted to register is a copy.
    CopyRefused {
        fsname: String,
        target: TargetId,
        at: String,
        copy_at: Vec<String>,
    },
    ParamSet {
        fsname: String,
        path: String,
        version: u64,
    },
    PoolChanged {
        fsname: String,
        name: PoolName,
        version: u64,
    },
    /// A server may serve the target from now on.
    Taken {
        fsname: String,
        target: TargetId,
        epoch: Epoch,
        nid: String,
    },
}

/// The management server.
pub struct Mgs<M: MetaStore> {
    core: Core<M>,
    active_until: Option<Time>,
    configs: BTreeMap<String, ClusterConfig>,
    /// The last change of a configuration: what others are told is durable first.
    changed_at: Transno,
    polls: Polls,
    probes: Probes,
    leases: Leases,
    owners: Owners,
    starts: Starts,
    /// Targets that were refused for want of room, by file system.
    without_room: BTreeSet<(String, TargetId)>,
    core_out: Vec<CoreOutput>,
}

/// Whether this version understands the rows of an MGT, as a start looks at them.
///
/// # Errors
/// `UnknownRow`.
pub fn check_known(store: &dyn MetaStore) -> Result<(), StoreError> {
    target::known::check(store, &row::KINDS)
}

impl<M: MetaStore> Mgs<M> {
    /// # Errors
    /// If the store fails or a row is damaged (`CorruptRow`).
    pub fn open(store: Arc<M>, options: MgsOptions) -> Result<Mgs<M>, StoreError> {
        check_known(&*store)?;
        let configs = read_configs(&*store)?;
        let grace = if options.active_until.is_some() { FOUND_WITHIN } else { LEASE };
        let starts = Starts::read(&*store)?;
        let owners = Owners::read(&*store, options.now.time, grace)?;
        let core_options = CoreOptions {
            id: TargetId::MGT,
            uuid: options.uuid,
            // Callers belong to any of the file systems.
            fsname: String::new(),
            now: options.now,
            recovery_window: options.recovery_window,
            has_external_data: false,
            owed: target::nothing_owed,
        };
        let mut core = Core::open(store, core_options)?;
        core.set_silent_max(SILENT_PROCESS_MAX);
        let leases = Leases::read(&**core.store(), options.now.time, core.epoch())?;
        let active_until = options.active_until;
        let (polls, core_out, changed_at) = (Polls::default(), Vec::new(), Transno::ZERO);
        let probes = Probes::default();
        let without_room = BTreeSet::new();
        let mut mgs = Mgs {
            core,
            active_until,
            configs,
            changed_at,
            polls,
            probes,
            leases,
            owners,
            starts,
            without_room,
            core_out,
        };
        // At once: one that dies before it has said that it keeps the rows of leases leaves the next one without them.
        if let Some(rows) = mgs.leases.begin() {
            let _ = mgs.write_leases(&rows);
            mgs.core.store().kick();
        }
        Ok(mgs)
    }

    /// Whether nobody else can be the management server now.
    fn is_active(&self, now: Now) -> bool {
        self.active_until.is_none_or(|until| now.time < until)
    }

    pub fn core(&self) -> &Core<M> {
        &self.core
    }

    /// The configuration of a file system, for the process that serves it.
    pub fn config(&self, fsname: &str) -> Option<&ClusterConfig> {
        self.configs.get(fsname)
    }

    /// All configurations, by file system.
    pub fn configs(&self) -> &BTreeMap<String, ClusterConfig> {
        &self.configs
    }

    /// Clients that have said lately that they live.
    pub fn lease_count(&self, now: Time) -> usize {
        self.leases.count(now)
    }

    /// Clients that are known to be gone, here and at the next management server.
    pub fn ended_lease_count(&self) -> usize {
        self.leases.ended_count()
    }

    fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        while !self.core_out.is_empty() {
            for output in std::mem::take(&mut self.core_out) {
                match output {
                    CoreOutput::Send(frame) => out.push(Output::Send(frame)),
                    CoreOutput::Execute(work) => self.execute(now, work.token, work.request, out),
                    CoreOutput::Evicted(Gone { life, .. }) => {
                        self.polls.forget(life.client);
                        self.probes.forget(life.client);
                    }
                    CoreOutput::Returned(_) | CoreOutput::RecoveryEnded | CoreOutput::Accessed { .. } => {}
                    CoreOutput::Event(event) => out.push(Output::Event(MgsEvent::Core(event))),
                }
            }
        }
    }

    fn execute(&mut self, now: Now, token: Token, request: Request, out: &mut Vec<Output>) {
        let Request::Mgs(request) = request else { return self.refuse(now, token, Status::ProtocolError) };
        match request {
            MgsRequest::GetConfig { fsname, known_version } => {
                self.get_config(now, token, fsname, known_version);
            }
            MgsRequest::Register { fsname, target, claim } => {
                self.register(now, Registration { token, fsname, target, claim }, out);
            }
            MgsRequest::SetParam { fsname, path, value } => {
                self.set_param(now, token, fsname, path, value, out);
            }
            MgsRequest::ChangePool { fsname, name, change } => {
                self.change_pool(now, token, fsname, name, &change, out);
            }
            MgsRequest::ListFilesystems => {
                let names = self.configs.keys().cloned().collect();
                self.answer(now, token, MgsReply::Filesystems(names));
            }
            MgsRequest::Renew { clients } => {
                self.renew(now, token, &clients);
            }
            MgsRequest::Started { fsname, target, epoch } => {
                let config = self.configs.get(&fsname);
                if config.is_none_or(|config| config.targets.iter().all(|known| known.id != target)) {
                    return self.refuse(now, token, Status::NotFound);
                }
                self.tell_started(token.client, &fsname, target, epoch);
                self.core.reply(now, token, Ok((Reply::Done, Bytes::new())), &mut self.core_out);
            }
            MgsRequest::AskLapsed { clients } => {
                let lapsed = self.leases.lapsed(now.time, clients);
                self.answer(now, token, MgsReply::Lapsed(lapsed));
            }
            MgsRequest::KeepOwned { fsname, server, keeps, asks } => {
                if !is_fsname(&fsname) || keeps.len() + asks.len() > OWNERSHIPS_PER_REQUEST_MAX {
                    return self.refuse(now, token, Status::Invalid);
                }
                self.owners.on_heard(now.time, FOUND_WITHIN);
                self.owners.renew(now.time, &fsname, server, &keeps);
                let reply = self.ownerships(now, &fsname, keeps.into_iter().chain(asks));
                self.answer(now, token, reply);
            }
            MgsRequest::TakeOwned { fsname, target, over, by } => {
                self.take_owned(now, token, fsname, target, over, by, out);
            }
            MgsRequest::LeaveOwned { fsname, server, targets } => {
                if targets.len() > OWNERSHIPS_PER_REQUEST_MAX {
                    return self.refuse(now, token, Status::Invalid);
                }
                let batch = self.owners.leave(&fsname, server, &targets);
                let reply = self.ownerships(now, &fsname, targets);
                if batch.is_empty() {
                    return self.answer(now, token, reply);
                }
                self.commit(now, token, batch, reply);
            }
        }
    }

    /// Who was known to be gone is answered when that is forgotten for good; nobody else waits for a store.
    fn renew(&mut self, now: Now, token: Token, clients: &[Life]) {
        self.leases.renew(now.time, clients);
        while let Some(rows) = self.leases.rows_of_back(self.core.epoch(), clients) {
            // Refused, nobody relies on it; the next renewal tries again.
            if let Err(error) = self.write_leases(&rows) {
                return self.refuse(now, token, error.status());
            }
        }
        let durable = self.core.durable();
        match self.leases.said_by(durable, clients) {
            Transno::ZERO => self.core.reply(now, token, Ok((Reply::Done, Bytes::new())), &mut self.core_out),
            up_to => self.core.reply_when_durable(now, token, up_to, Reply::Done, &mut self.core_out),
        }
    }

    fn write_leases(&mut self, rows: &leases::Rows) -> Result<(), StoreError> {
        let transno = self.core.apply_internal(rows.batch.clone())?;
        self.leases.on_rows_written(rows, transno);
        Ok(())
    }

    /// For the next management server: nobody waits for it.
    fn note_leases(&mut self, now: Now) {
        if self.core.is_recovering() || !self.is_active(now) {
            return;
        }
        if let Some(rows) = self.leases.note(now.time, self.core.epoch()) {
            // A store that fails says so where somebody waits; without the rows, the next one waits as long as for those of whom it knows
            // nothing.
            let _ = self.write_leases(&rows);
        }
    }

    fn ownerships(&self, now: Now, fsname: &str, targets: impl IntoIterator<Item = TargetId>) -> MgsReply {
        let since = self.leases.ran_since();
        let describe = |target| self.owners.describe(now.time, since, fsname, target);
        MgsReply::Ownerships(targets.into_iter().map(describe).collect())
    }

    /// A server wants to serve a target: it has made sure that nobody else does, and nobody must be faster.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of the request")]
    fn take_owned(
        &mut self,
        now: Now,
        token: Token,
        fsname: String,
        target: TargetId,
        over: Epoch,
        by: TargetOwner,
        out: &mut Vec<Output>,
    ) {
        let is_sound = is_fsname(&fsname)
            && by.server != 0
            && by.nid.len() <= NID_BYTES_MAX
            && by.host.len() <= NID_BYTES_MAX;
        if !is_sound {
            return self.refuse(now, token, Status::Invalid);
        }
        self.owners.on_heard(now.time, FOUND_WITHIN);
        let (nid, since) = (by.nid.clone(), self.leases.ran_since());
        // Nobody has to be registered before he takes his target the first time.
        let config = self.configs.get(&fsname);
        let find = |config: &ClusterConfig| config.targets.binary_search_by_key(&target, |known| known.id);
        let is_known = config.is_some_and(|config| find(config).is_ok());
        match self.owners.take(now.time, since, (&fsname, target), is_known, over, by) {
            Ok(batch) => {
                let reply = self.ownerships(now, &fsname, [target]);
                self.commit(now, token, batch, reply);
                let epoch = Epoch(over.0 + 1);
                out.push(Output::Event(MgsEvent::Taken { fsname, target, epoch, nid }));
            }
            Err(Denied::Owned) => self.refuse(now, token, Status::Busy),
            Err(Denied::Full) => self.refuse(now, token, Status::NoSpace),
        }
    }

    /// Answers when it is durable. What the store refuses is answered by the core, and the store is lost then.
    fn commit(&mut self, now: Now, token: Token, batch: Batch, reply: MgsReply) {
        // A refusal has gone to the client already.
        let _ = self.core.commit_then_reply_when_durable(
            now,
            token,
            batch,
            Reply::Mgs(reply),
            &mut self.core_out,
        );
    }

    fn answer(&mut self, now: Now, token: Token, reply: MgsReply) {
        self.core.reply(now, token, Ok((Reply::Mgs(reply), Bytes::new())), &mut self.core_out);
    }

    /// Answers with a configuration when the last change of one is durable: nobody works with one that could be lost, or that another
    /// management server does not know.
    fn answer_config(&mut self, now: Now, token: Token, config: ClusterConfig) {
        let reply = Reply::Mgs(MgsReply::Config(config));
        self.core.reply_when_durable(now, token, self.changed_at, reply, &mut self.core_out);
    }

    fn refuse(&mut self, now: Now, token: Token, status: Status) {
        self.core.reply(now, token, Err(status), &mut self.core_out);
    }

    fn get_config(&mut self, now: Now, token: Token, fsname: String, known_version: u64) {
        let Some(config) = self.configs.get(&fsname) else {
            return self.refuse(now, token, Status::NotFound);
        };
        // A known version above ours is of an MGS that has lost its disk: tell what there is.
        if config.version != known_version {
            let config = config.clone();
            return self.answer_config(now, token, config);
        }
        self.polls.push(Poll { token, fsname, known_version, until: now.time.after(POLL_WAIT) });
    }

    /// A target that starts says where it is. Its index is its own for ever.
    fn register(&mut self, now: Now, registration: Registration, out: &mut Vec<Output>) {
        let Registration { token, ref fsname, ref target, ref claim } = registration;
        let is_sound = is_fsname(fsname)
            && target.uuid != 0
            // Of an OST it is data on the MDT, of either any target.
            && target.id.index != u16::MAX
            && claim.starts.iter().all(|start| start.epoch <= Epoch::MAX)
            && target.nids.len() <= NID_COUNT_MAX
            && target.nids.iter().all(|nid| nid.len() <= NID_BYTES_MAX);
        if !is_sound {
            return self.refuse(now, token, Status::Invalid);
        }
        if self.configs.len() >= FILESYSTEM_COUNT_MAX && !self.configs.contains_key(fsname) {
            return self.refuse_without_room(now, token, fsname.clone(), target.id, out);
        }
        let Some(nids) = self.nids_to_ask(fsname, target).filter(|_| !claim.is_taken) else {
            return self.accept(now, registration, out);
        };
        match self.probes.park(now.time, registration, nids) {
            Some(probe) => out.push(Output::Probe(probe)),
            None => self.refuse(now, token, Status::Again),
        }
    }

    /// Where a target that is known, and was somewhere else until now, may be served still.
    fn nids_to_ask(&self, fsname: &str, target: &TargetConfig) -> Option<Vec<String>> {
        let targets = &self.configs.get(fsname)?.targets;
        let index = targets.binary_search_by_key(&target.id, |known| known.id).ok()?;
        let known = targets.get(index).filter(|known| known.uuid == target.uuid)?;
        let mut nids = target.nids.clone();
        keep_other_nodes(&mut nids, &known.nids);
        // The first ones are those where it is.
        let is_there = nids == known.nids;
        probes::nids_to_ask(&target.nids, &known.nids).filter(|_| !is_there)
    }

    /// What was found where the target of a registration was before.
    fn on_probed(&mut self, now: Now, registration: Registration, found: Vec<Found>, out: &mut Vec<Output>) {
        let Some(at) = registration.elsewhere(found) else { return self.accept(now, registration, out) };
        let Registration { token, fsname, target, .. } = registration;
        let (target, copy_at) = (target.id, target.nids);
        out.push(Output::Event(MgsEvent::CopyRefused { fsname, target, at, copy_at }));
        self.refuse(now, token, Status::Busy);
    }

    fn accept(&mut self, now: Now, registration: Registration, out: &mut Vec<Output>) {
        let Registration { token, fsname, mut target, claim } = registration;
        if let Some(known) = self.starts.newer(&fsname, &target, &claim.starts) {
            let target = target.id;
            out.push(Output::Event(MgsEvent::OutdatedRefused { fsname, target, known }));
            return self.answer(now, token, MgsReply::Outdated { known });
        }
        let is_confirmed = self.starts.has_earlier(&fsname, &target, &claim.starts);
        let reply: fn(ClusterConfig) -> MgsReply =
            if is_confirmed { MgsReply::Confirmed } else { MgsReply::Config };
        let mut config = self.configs.get(&fsname).cloned().unwrap_or_default();
        config.fsname.clone_from(&fsname);
        let id = target.id;
        match config.targets.binary_search_by_key(&id, |known| known.id) {
            Ok(index) => {
                let Some(known) = config.targets.get_mut(index) else { return };
                if known.uuid != target.uuid {
                    out.push(Output::Event(MgsEvent::RegistrationRefused { fsname, target: id }));
                    return self.refuse(now, token, Status::Exists);
                }
                let here_count = target.nids.len();
                keep_other_nodes(&mut target.nids, &known.nids);
                if *known == target {
                    let batch = self.starts.note(&fsname, &target, &claim.starts);
                    return match batch.is_empty() {
                        true => self.answer_config(now, token, config),
                        false => self.commit(now, token, batch, reply(config)),
                    };
                }
                *known = target.clone();
                forget_other_nodes(&mut config, index, here_count);
            }
            Err(_) if config.targets.len() >= TARGET_COUNT_MAX => {
                return self.refuse_without_room(now, token, fsname, id, out);
            }
            Err(index) => config.targets.insert(index, target.clone()),
        }
        if !has_room(&config) {
            return self.refuse_without_room(now, token, fsname, id, out);
        }
        let starts = self.starts.note(&fsname, &target, &claim.starts);
        if let Some(version) = self.change_with(now, token, config, starts, reply) {
            out.push(Output::Event(MgsEvent::Registered { fsname, target: id, version }));
        }
    }

    fn refuse_without_room(
        &mut self,
        now: Now,
        token: Token,
        fsname: String,
        target: TargetId,
        out: &mut Vec<Output>,
    ) {
        let is_said =
            self.without_room.len() < WITHOUT_ROOM_MAX && self.without_room.insert((fsname.clone(), target));
        if is_said {
            out.push(Output::Event(MgsEvent::RegistrationWithoutRoom { fsname, target }));
        }
        self.refuse(now, token, Status::NoSpace);
    }

    /// Who waits for the target need not go on looking for it. (Those of another file system take no notice.)
    fn tell_started(&mut self, by: ClientId, fsname: &str, target: TargetId, epoch: Epoch) {
        let others: Vec<ClientId> =
            self.core.clients().map(|(client, _)| client).filter(|client| *client != by).collect();
        for client in others {
            let callback = Callback::TargetStarted { fsname: fsname.to_owned(), target, epoch };
            self.core.callback(client, callback, &mut self.core_out);
        }
    }

    fn set_param(
        &mut self,
        now: Now,
        token: Token,
        fsname: String,
        path: String,
        value: Option<String>,
        out: &mut Vec<Output>,
    ) {
        let value = value.filter(|value| !value.is_empty());
        let is_sound = !path.is_empty()
            && path.len() <= PARAM_PATH_BYTES_MAX
            && value.as_ref().is_none_or(|value| value.len() <= PARAM_VALUE_BYTES_MAX);
        if !is_sound {
            return self.refuse(now, token, Status::Invalid);
        }
        let Some(mut config) = self.configs.get(&fsname).cloned() else {
            return self.refuse(now, token, Status::NotFound);
        };
        let known = config.params.iter().find(|(known, _)| *known == path).map(|(_, value)| value.clone());
        if known == value {
            // Each process of the file system asks; the first one's change may still be on its way to the disk.
            return self.answer_config(now, token, config);
        }
        config.params.retain(|(known, _)| *known != path);
        if let Some(value) = value {
            if config.params.len() >= PARAM_COUNT_MAX {
                return self.refuse(now, token, Status::NoSpace);
            }
            config.params.push((path.clone(), value));
            config.params.sort();
        }
        if let Some(version) = self.change(now, token, config) {
            out.push(Output::Event(MgsEvent::ParamSet { fsname, path, version }));
        }
    }

    fn change_pool(
        &mut self,
        now: Now,
        token: Token,
        fsname: String,
        name: PoolName,
        change: &PoolChange,
        out: &mut Vec<Output>,
    ) {
        let Some(mut config) = self.configs.get(&fsname).cloned() else {
            return self.refuse(now, token, Status::NotFound);
        };
        if let Err(status) = pools::change(&mut config, &name, change) {
            return self.refuse(now, token, status);
        }
        if let Some(version) = self.change(now, token, config) {
            out.push(Output::Event(MgsEvent::PoolChanged { fsname, name, version }));
        }
    }

    /// Stores a new version, answers with it when it is durable, and tells those who wait. `None`: refused.
    fn change(&mut self, now: Now, token: Token, config: ClusterConfig) -> Option<u64> {
        self.change_with(now, token, config, Batch::new(), MgsReply::Config)
    }

    /// The same together with other rows.
    fn change_with(
        &mut self,
        now: Now,
        token: Token,
        mut config: ClusterConfig,
        mut batch: Batch,
        reply: fn(ClusterConfig) -> MgsReply,
    ) -> Option<u64> {
        config.version += 1;
        if !has_room(&config) {
            self.refuse(now, token, Status::NoSpace);
            return None;
        }
        let row = encode(&config);
        batch.put(CONFIGS, config.fsname.as_bytes(), &row);
        let reply = Reply::Mgs(reply(config.clone()));
        let core_out = &mut self.core_out;
        self.core.commit_then_reply_when_durable(now, token, batch, reply, core_out).ok()?;
        self.changed_at = self.core.last_transno();
        let version = config.version;
        let fsname = config.fsname.clone();
        self.without_room.retain(|(refused, _)| *refused != fsname);
        self.configs.insert(fsname.clone(), config);
        let due = self.polls.take_those(|poll| poll.fsname == fsname && poll.known_version != version);
        self.answer_polls(now, due);
        Some(version)
    }

    fn answer_polls(&mut self, now: Now, due: Vec<Poll>) {
        for poll in due {
            match self.configs.get(&poll.fsname).cloned() {
                Some(config) => self.answer_config(now, poll.token, config),
                None => self.refuse(now, poll.token, Status::NotFound),
            }
        }
    }
}

/// A target that comes up on one node may come up on another one again: the addresses of other hosts stay, behind those where it is
/// now. Those of its present hosts are replaced, whatever their port.
fn keep_other_nodes(nids: &mut Vec<String>, before: &[String]) {
    let host = |nid: &String| nid.rsplit_once(':').map_or(nid.as_str(), |(host, _)| host).to_owned();
    let hosts: BTreeSet<String> = nids.iter().map(host).collect();
    nids.extend(before.iter().filter(|nid| !hosts.contains(&host(nid))).cloned());
    nids.truncate(NID_COUNT_MAX);
}

/// Where a target was before is worth less than where it is: what leaves no room for that goes, from the end. `here_count`: addresses where
/// it is.
fn forget_other_nodes(config: &mut ClusterConfig, index: usize, here_count: usize) {
    while !has_room(config) {
        let Some(target) = config.targets.get_mut(index).filter(|target| target.nids.len() > here_count)
        else {
            return;
        };
        target.nids.pop();
    }
}

fn has_room(config: &ClusterConfig) -> bool {
    encode(config).len() <= CONFIG_BYTES_MAX
}

/// Letters, digits, `-` and `_`.
fn is_fsname(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.len() <= FSNAME_BYTES_MAX && name.bytes().all(is_allowed)
}

fn read_configs(store: &dyn MetaStore) -> Result<BTreeMap<String, ClusterConfig>, StoreError> {
    let mut configs = BTreeMap::new();
    let mut damaged = None;
    let end = vec![0xff; store::KEY_BYTES_MAX];
    store.scan(CONFIGS, &[], &end, usize::MAX, &mut |key, value| {
        match decode(value) {
            Some(config) if config.fsname.as_bytes() == key => {
                configs.insert(config.fsname.clone(), config);
            }
            _ => damaged = Some(key.to_vec()),
        }
        damaged.is_none()
    })?;
    match damaged {
        Some(key) => Err(StoreError::CorruptRow { table: CONFIGS, key }),
        None => Ok(configs),
    }
}

/// The row of a configuration.
pub fn encode(config: &ClusterConfig) -> Vec<u8> {
    row::encode(config)
}

/// The configuration in a row.
pub fn decode(value: &[u8]) -> Option<ClusterConfig> {
    row::decode(value)
}

impl<M: MetaStore> Machine for Mgs<M> {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        if self.core.is_outdated() {
            return;
        }
        // Who is not answered can renew nothing.
        let is_deaf = !self.is_active(now) || self.core.is_slow_to_listen(now.time, leases::DEAF_MAX);
        if self.leases.on_turn(now.time, is_deaf) {
            self.core.put_off_silence(now);
        }
        if !self.is_active(now) {
            self.probes.clear();
        }
        match input {
            // Another one may be the management server by now: who has asked is to ask that one.
            Input::Frame(_) if !self.is_active(now) => {}
            Input::Frame(frame) => {
                self.leases.on_heard(now.time);
                self.core.on_frame(now, frame, &mut self.core_out);
            }
            Input::Durable => self.core.on_durable(now, &mut self.core_out),
            Input::ActiveUntil(until) => {
                let until = self.active_until.map_or(until, |before| before.max(until));
                self.active_until = Some(until);
            }
            Input::Probed { id, found } => {
                if let Some(registration) = self.probes.take(id) {
                    self.on_probed(now, registration, found, out);
                }
            }
            Input::Evict(client) => self.core.evict(now, client, EvictReason::Operator, &mut self.core_out),
            Input::Tick => {
                self.core.on_tick(now, &mut self.core_out);
                let due = self.polls.take_due(now.time);
                self.answer_polls(now, due);
                for registration in self.probes.take_due(now.time) {
                    self.accept(now, registration, out);
                }
                self.leases.forget_old(now.time);
            }
        }
        if self.core.has_met_another_copy() {
            self.leases.on_another_copy(now.time, self.core.epoch());
        }
        self.note_leases(now);
        self.settle(now, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        let poll = self.polls.next_deadline();
        let turn = self.leases.next_deadline(!self.owners.is_empty());
        [self.core.next_deadline(), poll, turn, self.probes.next_deadline()].into_iter().flatten().min()
    }

    fn check(&self) {
        self.core.check();
        self.owners.check();
        self.probes.check();
        for (fsname, config) in &self.configs {
            assert_eq!(*fsname, config.fsname);
            assert!(config.targets.is_sorted_by_key(|target| target.id));
            assert!(config.version > 0);
            assert!(config.pools.is_sorted_by(|a, b| a.name < b.name));
            assert!(config.pools.iter().all(|pool| pool.osts.is_sorted_by(|a, b| a < b)));
        }
        self.polls.check();
        for poll in self.polls.iter() {
            assert!(
                self.configs.get(&poll.fsname).is_some_and(|config| config.version == poll.known_version)
            );
        }
    }
}

#[cfg(test)]
mod tests;
