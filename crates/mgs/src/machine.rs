//! The machine and its one table.

use base::{ClusterConfig, Duration, Machine, Now, Status, TargetConfig, TargetId, TargetKind, Time};
use borsh::BorshDeserialize;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Batch, MetaStore, StoreError, Table};
use target::{Core, CoreEvent, CoreOptions, CoreOutput, Token, Work};
use wire::{Frame, MgsReply, MgsRequest, Reply, Request};

/// File system name -> version byte, borsh of `ClusterConfig`.
const CONFIGS: Table = 1;
const ROW_VERSION: u8 = 1;

/// Who follows a configuration is answered after this time even when nothing has changed: it shows that both live.
const POLL: Duration = Duration::from_secs(5);
/// Bounds on what peers can make this server keep.
const FILESYSTEMS_MAX: usize = 64;
const TARGETS_MAX: usize = 4096;
const PARAMS_MAX: usize = 4096;
const TEXT_BYTES_MAX: usize = 4096;
const NIDS_MAX: usize = 16;
const WAITING_MAX: usize = 16_384;
const FSNAME_BYTES_MAX: usize = 8;

#[derive(Clone, Debug)]
pub struct MgsOptions {
    pub uuid: u128,
    pub now: Now,
    pub recovery_window: Duration,
}

#[derive(Clone, Debug)]
pub enum Input {
    Frame(Frame),
    /// The store has made more durable.
    Durable,
    Tick,
}

#[derive(Clone, Debug)]
pub enum Output {
    Send(Frame),
    Event(CoreEvent),
}

/// Somebody who follows a configuration.
struct Waiting {
    token: Token,
    fsname: String,
    until: Time,
}

/// The management server.
pub struct Mgs<M: MetaStore> {
    core: Core<M>,
    configs: BTreeMap<String, ClusterConfig>,
    waiting: Vec<Waiting>,
}

impl<M: MetaStore> Mgs<M> {
    /// # Errors
    /// Those of the store; a damaged row is `CorruptRow`.
    pub fn open(store: Arc<M>, options: MgsOptions) -> Result<Mgs<M>, StoreError> {
        let configs = load(&*store)?;
        let core_options = CoreOptions {
            id: TargetId::MGT,
            uuid: options.uuid,
            // It serves all file systems.
            fsname: String::new(),
            now: options.now,
            recovery_window: options.recovery_window,
            has_external_data: false,
        };
        let core = Core::open(store, core_options)?;
        Ok(Mgs { core, configs, waiting: Vec::new() })
    }

    pub fn core(&self) -> &Core<M> {
        &self.core
    }

    pub fn configs(&self) -> &BTreeMap<String, ClusterConfig> {
        &self.configs
    }

    fn settle(&mut self, now: Now, mut from_core: Vec<CoreOutput>, out: &mut Vec<Output>) {
        while !from_core.is_empty() {
            for output in std::mem::take(&mut from_core) {
                match output {
                    CoreOutput::Send(frame) => out.push(Output::Send(frame)),
                    CoreOutput::Execute(work) => self.execute(now, *work, &mut from_core),
                    CoreOutput::Evicted(client) => {
                        self.waiting.retain(|waiting| waiting.token.client != client);
                    }
                    CoreOutput::RecoveryEnded => {}
                    CoreOutput::Event(event) => out.push(Output::Event(event)),
                }
            }
        }
    }

    fn execute(&mut self, now: Now, work: Work, out: &mut Vec<CoreOutput>) {
        let token = work.token;
        let Request::Mgs(request) = work.request else {
            return self.core.reply(now, token, Err(Status::NotSupportedCall), out);
        };
        let changed = match request {
            MgsRequest::GetConfig { fsname, known_version } => {
                return self.on_get_config(now, token, fsname, known_version, out);
            }
            MgsRequest::ListFilesystems => {
                let names = self.configs.keys().cloned().collect();
                let reply = Reply::Mgs(MgsReply::Filesystems(names));
                return self.core.reply(now, token, Ok((reply, Bytes::new())), out);
            }
            MgsRequest::Register { fsname, target } => self.with_target(fsname, target),
            MgsRequest::SetParam { fsname, path, value } => self.with_param(&fsname, path, value),
        };
        match changed {
            Ok(config) => self.install(now, token, config, out),
            Err(status) => self.core.reply(now, token, Err(status), out),
        }
    }

    fn on_get_config(
        &mut self,
        now: Now,
        token: Token,
        fsname: String,
        known: u64,
        out: &mut Vec<CoreOutput>,
    ) {
        match self.configs.get(&fsname) {
            None => self.core.reply(now, token, Err(Status::NotFound), out),
            Some(config) if config.version > known || self.waiting.len() >= WAITING_MAX => {
                self.core.reply(now, token, Ok((config_reply(config), Bytes::new())), out);
            }
            Some(_) => self.waiting.push(Waiting { token, fsname, until: now.time.after(POLL) }),
        }
    }

    /// The configuration with this target; the same one when nothing is new.
    fn with_target(&self, fsname: String, target: TargetConfig) -> Result<ClusterConfig, Status> {
        check_fsname(&fsname)?;
        if target.id.kind == TargetKind::Mgt
            || target.uuid == 0
            || target.nids.is_empty()
            || target.nids.len() > NIDS_MAX
            || target.nids.iter().any(|nid| nid.is_empty() || nid.len() > TEXT_BYTES_MAX)
        {
            return Err(Status::Invalid);
        }
        let mut config = match self.configs.get(&fsname) {
            Some(config) => config.clone(),
            None if self.configs.len() >= FILESYSTEMS_MAX => return Err(Status::NoSpace),
            None => ClusterConfig { fsname, ..ClusterConfig::default() },
        };
        match config.targets.binary_search_by_key(&target.id, |known| known.id) {
            Ok(at) => {
                let known = config.targets.get_mut(at).ok_or(Status::Invalid)?;
                if known.uuid != target.uuid {
                    return Err(Status::Exists);
                }
                if *known == target {
                    return Ok(config);
                }
                *known = target;
            }
            Err(_) if config.targets.len() >= TARGETS_MAX => return Err(Status::NoSpace),
            Err(at) => config.targets.insert(at, target),
        }
        config.version += 1;
        Ok(config)
    }

    /// The configuration with a permanent parameter set, or taken out.
    fn with_param(&self, fsname: &str, path: String, value: Option<String>) -> Result<ClusterConfig, Status> {
        let mut config = self.configs.get(fsname).cloned().ok_or(Status::NotFound)?;
        let value = value.filter(|value| !value.is_empty());
        if path.is_empty() || path.len() + value.as_ref().map_or(0, String::len) > TEXT_BYTES_MAX {
            return Err(Status::Invalid);
        }
        let at = config.params.iter().position(|(known, _)| *known == path);
        match (at, value) {
            (Some(at), Some(value)) => config.params[at].1 = value,
            (Some(at), None) => drop(config.params.remove(at)),
            (None, Some(_)) if config.params.len() >= PARAMS_MAX => return Err(Status::NoSpace),
            (None, Some(value)) => config.params.push((path, value)),
            (None, None) => return Ok(config),
        }
        config.version += 1;
        Ok(config)
    }

    /// Ends a change: the row, then the memory, then those who wait for it.
    fn install(&mut self, now: Now, token: Token, config: ClusterConfig, out: &mut Vec<CoreOutput>) {
        let reply = config_reply(&config);
        if self.configs.get(&config.fsname).is_some_and(|known| known.version == config.version) {
            return self.core.reply(now, token, Ok((reply, Bytes::new())), out);
        }
        let mut batch = Batch::new();
        batch.put(CONFIGS, config.fsname.as_bytes(), &encode(&config));
        if self.core.commit(now, token, batch, reply.clone(), Bytes::new(), out).is_err() {
            // Its client has the error already.
            return;
        }
        let fsname = config.fsname.clone();
        self.configs.insert(fsname.clone(), config);
        let (ready, rest) = self.waiting.drain(..).partition(|waiting| waiting.fsname == fsname);
        self.waiting = rest;
        let ready: Vec<Waiting> = ready;
        for waiting in ready {
            self.core.reply(now, waiting.token, Ok((reply.clone(), Bytes::new())), out);
        }
    }

    fn end_polls(&mut self, now: Now, out: &mut Vec<CoreOutput>) {
        let (due, rest) = self.waiting.drain(..).partition(|waiting| waiting.until <= now.time);
        self.waiting = rest;
        let due: Vec<Waiting> = due;
        for waiting in due {
            let result = match self.configs.get(&waiting.fsname) {
                Some(config) => Ok((config_reply(config), Bytes::new())),
                None => Err(Status::NotFound),
            };
            self.core.reply(now, waiting.token, result, out);
        }
    }
}

impl<M: MetaStore> Machine for Mgs<M> {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let mut from_core = Vec::new();
        match input {
            Input::Frame(frame) => self.core.on_frame(now, frame, &mut from_core),
            Input::Durable => self.core.on_durable(now, &mut from_core),
            Input::Tick => {
                self.core.on_tick(now, &mut from_core);
                self.end_polls(now, &mut from_core);
            }
        }
        self.settle(now, from_core, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        let polls = self.waiting.iter().map(|waiting| waiting.until).min();
        [polls, self.core.next_deadline()].into_iter().flatten().min()
    }

    fn check(&self) {
        self.core.check();
        for (fsname, config) in &self.configs {
            assert_eq!(*fsname, config.fsname);
            assert!(config.targets.is_sorted_by_key(|target| target.id));
        }
    }
}

fn config_reply(config: &ClusterConfig) -> Reply {
    Reply::Mgs(MgsReply::Config(config.clone()))
}

fn check_fsname(fsname: &str) -> Result<(), Status> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if fsname.is_empty() || fsname.len() > FSNAME_BYTES_MAX || !fsname.bytes().all(is_allowed) {
        return Err(Status::Invalid);
    }
    Ok(())
}

fn encode(config: &ClusterConfig) -> Vec<u8> {
    let mut row = vec![ROW_VERSION];
    // Writing to memory cannot fail.
    let written = borsh::to_writer(&mut row, config);
    assert!(written.is_ok(), "a row is written to memory");
    row
}

fn decode(row: &[u8]) -> Option<ClusterConfig> {
    let (version, mut body) = row.split_first()?;
    let config = ClusterConfig::deserialize(&mut body).ok()?;
    let is_sorted = config.targets.is_sorted_by(|a, b| a.id < b.id);
    (*version == ROW_VERSION && is_sorted).then_some(config)
}

fn load<M: MetaStore>(store: &M) -> Result<BTreeMap<String, ClusterConfig>, StoreError> {
    let mut configs = BTreeMap::new();
    let mut damaged = None;
    store.scan(CONFIGS, &[], &[0xff; 16], FILESYSTEMS_MAX + 1, &mut |key, row| {
        match decode(row) {
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

#[cfg(test)]
mod tests;
