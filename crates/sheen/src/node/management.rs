//! What a process hears of the management server, and what it asks of it.

use super::{Node, lock};
use crate::control::{self, MgsStatus};
use crate::listen::{self, HOW_TO_SERVE};
use crate::nid;
use crate::params;
use crate::sys;
use crate::targets::{Target, Targets};
use anyhow::{Result, bail};
use base::{ClusterConfig, Endpoint, Start, Status, TargetId, TargetKind};
use client::mgc::{self, Mgc, Registration};
use net::{Owner, OwnerOptions, Router, Timer, Unreached};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use target::Word;
use wire::{MgsReply, MgsRequest};

/// How long a mount or a target waits for the management server at its start.
pub(super) const CONFIG_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two looks whether somebody ends the process that waits.
const END_INTERVAL: Duration = Duration::from_millis(50);
/// A server that goes on waiting says so this often, and at once when it is for another reason.
const AWAITED_INTERVAL: Duration = Duration::from_secs(60);
/// Before nothing has failed, it may just be slow.
const AWAITED_AFTER: Duration = Duration::from_secs(5);
/// How long a permanent parameter waits for it.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A process was told to end while it waited at its start.
#[derive(Debug, thiserror::Error)]
#[error("it was ended before it was ready")]
pub struct Ended;

/// What a server has last said of the management server that it waits for.
pub(super) struct Reminder {
    start: Instant,
    said: Option<(String, Instant)>,
}

impl Reminder {
    pub(super) fn new() -> Reminder {
        Reminder { start: Instant::now(), said: None }
    }

    /// Whether this is to be said now.
    fn is_due(&mut self, reasons: &[String], now: Instant) -> bool {
        let is_early = reasons.is_empty() && now.saturating_duration_since(self.start) < AWAITED_AFTER;
        let reasons = reasons.join("; ");
        let is_said = self.said.as_ref().is_some_and(|(said, at)| {
            *said == reasons && now.saturating_duration_since(*at) < AWAITED_INTERVAL
        });
        if is_early || is_said {
            return false;
        }
        self.said = Some((reasons, now));
        true
    }
}

/// What the management server has said.
#[derive(Default)]
pub(super) struct Known {
    pub(super) config: Option<ClusterConfig>,
    /// The newest one: targets and mounts are being told of it, or have been, as of `config`.
    newest: Option<ClusterConfig>,
    /// How many have come, up to `newest` and up to `config`. Their versions do not tell which one is newer: a management server may have
    /// lost its last changes.
    received: u64,
    told: u64,
    in_force: Option<InForce>,
    /// How often somebody has wanted the parameters applied, and how many of these times they have been.
    params_wanted: u64,
    params_applied: u64,
    registered: BTreeSet<TargetId>,
    /// Targets of this process that another one serves.
    elsewhere: BTreeMap<TargetId, Elsewhere>,
    /// For which the management server has no room.
    without_room: BTreeSet<TargetId>,
    pub(super) refused: Option<String>,
    /// How often it has said that it does not know the file system.
    unknown_count: usize,
    /// Who waits for a change of the configuration.
    changes: BTreeMap<u64, Sender<Result<u64, Status>>>,
    last_change: u64,
    /// Who waits for an answer of another kind.
    questions: BTreeMap<u64, Sender<Result<MgsReply, Status>>>,
}

/// A target that is served by another process.
struct Elsewhere {
    /// What an operator is told, in one line.
    text: String,
    /// The management server is not asked any more.
    is_for_good: bool,
}

/// The latest configuration whose parameters this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InForce {
    version: u64,
    /// Which of those that have come.
    received: u64,
}

impl InForce {
    /// Whether a change is in force that the management server has in a configuration of this version. `before`: how many had come when it was
    /// asked for the change. With a higher version than that one of those is of before the management server lost its last changes.
    fn has(self, version: u64, before: u64) -> bool {
        self.version == version || (self.version > version && self.received > before)
    }
}

impl Node {
    /// Opens the session with the management server.
    pub(super) fn follow_config(self: &Arc<Node>, fsname: &str, registrations: Vec<Registration>) {
        self.follow_config_with(fsname, registrations, Arc::clone(&self.timer));
    }

    /// With a timer of its own, the session goes on while targets stand still in their writes.
    pub(super) fn follow_config_with(
        self: &Arc<Node>,
        fsname: &str,
        registrations: Vec<Registration>,
        timer: Arc<Timer>,
    ) {
        let id = self.router.process();
        let machine = Mgc::new(id, fsname, &self.own_nid(), registrations);
        let node = Arc::clone(self);
        let owner = Owner::new(
            machine,
            OwnerOptions {
                tick: || mgc::Input::Tick,
                frame: mgc::Input::Frame,
                perform: Box::new(move |output| node.on_config_output(output)),
                timer,
                lateness: None,
            },
        );
        self.router.add_local(Endpoint::Client(id), owner.clone());
        assert!(self.mgc.set(Arc::clone(&owner)).is_ok(), "one session with the management server");
        owner.submit(mgc::Input::Start);
    }

    /// Brings what this process has in line with the parameters of each new configuration. On a thread of its own: it waits for the machines of
    /// targets, which may stand still with their device, and the session with the management server goes on meanwhile.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start_applying(self: &Arc<Node>) -> Result<()> {
        let node = Arc::clone(self);
        std::thread::Builder::new().name("params".into()).spawn(move || node.apply_params())?;
        Ok(())
    }

    fn apply_params(&self) {
        loop {
            let known = lock(&self.known);
            let is_done =
                |known: &mut Known| known.config.is_none() || known.params_applied == known.params_wanted;
            let known = self.changed.wait_while(known, is_done).unwrap_or_else(PoisonError::into_inner);
            let Some(config) = &known.config else { continue };
            let in_force = InForce { version: config.version, received: known.told };
            let (wanted, params) = (known.params_wanted, config.params.clone());
            drop(known);
            // Also for targets that a mount knows only now.
            params::apply(self, &params);
            let mut known = lock(&self.known);
            (known.in_force, known.params_applied) = (Some(in_force), wanted);
            drop(known);
            self.changed.notify_all();
        }
    }

    /// Has the parameters applied anew, to what has come to this process since.
    pub(super) fn want_params(&self) -> u64 {
        let mut known = lock(&self.known);
        known.params_wanted += 1;
        let wanted = known.params_wanted;
        drop(known);
        self.changed.notify_all();
        wanted
    }

    /// Until they are applied, by the thread that applies those of each new configuration: so never older ones after newer ones.
    ///
    /// # Errors
    /// Somebody ends this process.
    pub(super) fn wait_for_params(&self) -> Result<()> {
        let wanted = self.want_params();
        self.wait_at_start(CONFIG_TIMEOUT, |known| known.params_applied >= wanted).map(drop)
    }

    /// The configuration of which everybody here has been told, and which of those that have come that is.
    pub(super) fn told(&self) -> Option<(ClusterConfig, u64)> {
        let known = lock(&self.known);
        Some((known.config.clone()?, known.told))
    }

    /// Tells somebody who has just come, and is told of the next ones, of those that have come since this one.
    pub(super) fn tell_since(&self, mut told: u64, tell: impl Fn(ClusterConfig)) {
        loop {
            let known = lock(&self.known);
            if known.received == told {
                return;
            }
            let newest = known.newest.clone();
            told = known.received;
            drop(known);
            newest.into_iter().for_each(&tell);
        }
    }

    fn on_config_output(&self, output: mgc::Output) {
        use mgc::Output;
        match output {
            Output::Send(frame) => self.router.send(frame),
            Output::Config(config) => self.on_config(config),
            Output::Registered { target, is_confirmed } => {
                tracing::info!(%target, "registered");
                self.on_registered(target, is_confirmed);
            }
            Output::NoRoom(target) => {
                if lock(&self.known).without_room.insert(target) {
                    tracing::error!("{}", without_room(target));
                }
            }
            Output::Elsewhere { target, is_for_good } => self.on_elsewhere(target, is_for_good),
            Output::Outdated { target, known } => self.on_outdated(target, known),
            Output::Refused { target, status } => {
                let text = format!(
                    "the management server does not take {target}: {status}; is another target registered under this index?"
                );
                tracing::error!("{text}");
                lock(&self.known).refused = Some(text);
            }
            Output::UnknownFilesystem => {
                lock(&self.known).unknown_count += 1;
                // At one of several addresses may be somebody else by now.
                if self.mgs_addresses.len() > 1 {
                    self.router.drop_connection(TargetId::MGT);
                }
            }
            Output::Changed { id, result } => {
                if let Some(waiting) = lock(&self.known).changes.remove(&id) {
                    // Who gave up waiting does not mind.
                    let _ = waiting.send(result);
                }
            }
            Output::Answered { id, result } => {
                if let Some(waiting) = lock(&self.known).questions.remove(&id) {
                    // Who gave up waiting does not mind.
                    let _ = waiting.send(result);
                }
                return;
            }
            Output::Renewed(at) => return self.on_renewed(at),
            Output::Unheard => return self.router.drop_connection(TargetId::MGT),
            Output::Lapsed { at, lives } => return self.on_lapsed(at, &lives),
            Output::Started(target, epoch) => return self.on_target_started(target, epoch),
        }
        self.changed.notify_all();
    }

    pub(super) fn on_config(&self, config: ClusterConfig) {
        tracing::debug!(version = config.version, targets = config.targets.len(), "a new configuration");
        self.router.set_config(&config);
        {
            let mut known = lock(&self.known);
            known.newest = Some(config.clone());
            known.received += 1;
        }
        // With a lease to be renewed the thread of this session must not stand still with a target.
        let is_aside = self.failover.get().is_some();
        // Another process may serve what the management server has not taken yet: that one's sessions with others are not to be broken.
        for target in self.targets.iter().filter(|target| is_aside || !self.is_hidden(target.id)) {
            target.set_config(&config, is_aside);
        }
        let mounts = lock(&self.mounts).clone();
        for mount in mounts {
            mount.set_config(config.clone());
        }
        let mut known = lock(&self.known);
        known.unknown_count = 0;
        (known.config, known.told) = (Some(config), known.received);
        known.params_wanted += 1;
    }

    /// The management server has taken a target of this process, which serves it from now on, if it did not before.
    fn on_registered(&self, registered: TargetId, is_confirmed: bool) {
        let (is_new, was_elsewhere, newest) = {
            let mut known = lock(&self.known);
            let was_elsewhere = known.elsewhere.remove(&registered).is_some();
            known.without_room.remove(&registered);
            (known.registered.insert(registered), was_elsewhere, known.newest.clone())
        };
        if let Some(target) = self.targets.iter().find(|target| target.id == registered) {
            let is_stopping = lock(&self.is_stopping);
            if was_elsewhere && !*is_stopping {
                target.open();
            }
            target.tell(Word::Taken { is_confirmed });
            drop(is_stopping);
            if let Some(config) = newest.filter(|_| is_new) {
                target.set_config(&config, self.failover.get().is_some());
            }
        }
        self.announce(registered);
    }

    /// Another process serves a target of this one: it is to be seen here that it does, and what to do, and nothing is served.
    fn on_elsewhere(&self, id: TargetId, is_for_good: bool) {
        let Some(target) = self.targets.iter().find(|target| target.id == id) else { return };
        target.bar();
        let mut known = lock(&self.known);
        known.registered.remove(&id);
        let config = known.newest.as_ref();
        let nids = config.and_then(|config| config.targets.iter().find(|known| known.id == id));
        let nids = nids.map(|known| known.nids.clone()).unwrap_or_default();
        let text = elsewhere(id, &target.path, &nids, &self.addresses);
        if is_for_good {
            tracing::error!("{text}");
        } else {
            tracing::info!(target = %id, "another process serves it; the management server is asked again");
        }
        known.elsewhere.insert(id, Elsewhere { text, is_for_good });
    }

    /// This process has an older copy of a target, which the management server does not take.
    fn on_outdated(&self, id: TargetId, known: Start) {
        if let Some(target) = self.targets.iter().find(|target| target.id == id) {
            target.tell(Word::Outdated { by: Endpoint::Target(TargetId::MGT), known });
        }
    }

    /// What an operator is to do about a target that another process serves, or that is an older copy.
    pub(super) fn barred(&self, target: &Target) -> Option<String> {
        let outdated = target.outdated().map(str::to_owned);
        outdated
            .or_else(|| lock(&self.known).elsewhere.get(&target.id).map(|elsewhere| elsewhere.text.clone()))
    }

    /// Why nobody finds a target that the management server does not take.
    pub(super) fn without_room(&self, target: TargetId) -> Option<String> {
        lock(&self.known).without_room.contains(&target).then(|| without_room(target))
    }

    /// Waits until the management server has taken the targets of this process. When it does not answer, they go on
    /// trying while they are served.
    pub(super) fn wait_registered(&self, wanted: &[TargetId]) -> Result<()> {
        let is_settled = |known: &Known, id: &TargetId| {
            let is_elsewhere = known.elsewhere.get(id).is_some_and(|elsewhere| elsewhere.is_for_good);
            let is_outdated =
                || self.targets.iter().any(|target| target.id == *id && target.outdated().is_some());
            is_elsewhere || known.registered.contains(id) || is_outdated()
        };
        let is_done = |known: &Known| {
            known.refused.is_some()
                || (known.in_force.is_some() && wanted.iter().all(|id| is_settled(known, id)))
        };
        let known = self.wait_at_start(CONFIG_TIMEOUT, is_done)?;
        if let Some(refused) = &known.refused {
            bail!("{refused}");
        }
        if !is_done(&known) && known.without_room.is_empty() {
            tracing::info!("serves its targets without the management server");
        }
        let all = known.config.iter().flat_map(|config| &config.targets);
        let mut others = all.filter(|other| !wanted.contains(&other.id));
        if let Some(line) =
            others.find_map(|other| listen::unreachable(&self.addresses, (other.id, &other.nids)))
        {
            tracing::warn!("{line}");
        }
        Ok(())
    }

    /// Whether nobody can find this target, because the management server has not taken it since this process began.
    pub(super) fn is_hidden(&self, target: TargetId) -> bool {
        target != TargetId::MGT && self.mgc.get().is_some() && !lock(&self.known).registered.contains(&target)
    }

    pub(super) fn describe_mgs(&self) -> MgsStatus {
        let is_heard = self.mgc.get().is_some_and(|mgc| mgc.with(|mgc| mgc.is_heard(net::clock::now())));
        let has_config = lock(&self.known).config.is_some();
        MgsStatus {
            nids: self.mgs_nids(),
            is_heard,
            is_awaited: !has_config || self.targets.iter().any(|target| self.is_hidden(target.id)),
            unreached: self.router.unreached(TargetId::MGT).iter().map(ToString::to_string).collect(),
        }
    }

    /// Says for whom its targets wait, if they do: at once, and seldom from then on.
    pub(super) fn say_awaited(&self, reminder: &mut Reminder) {
        if self.mgc.get().is_none() {
            return;
        }
        let mgs = self.describe_mgs();
        if !mgs.is_heard && mgs.is_awaited && reminder.is_due(&mgs.unreached, Instant::now()) {
            tracing::warn!("{}; {}", awaited(&mgs, "this process"), awaited_fix());
        }
    }

    /// Waits until the file system is known, with a first metadata and object target.
    pub(super) fn wait_mountable(&self, fsname: &str, until: Instant) -> Result<()> {
        let has = |known: &Known, kind| {
            known.config.as_ref().is_some_and(|config| config.of_kind(kind).next().is_some())
        };
        let is_unknown = |known: &Known| known.unknown_count >= self.mgs_addresses.len().max(1);
        let is_done =
            |known: &Known| is_unknown(known) || (has(known, TargetKind::Mdt) && has(known, TargetKind::Ost));
        let known = self.wait_at_start(until.saturating_duration_since(Instant::now()), is_done)?;
        let mgs = self.mgs_nids().join(":");
        if is_unknown(&known) || known.config.as_ref().is_some_and(|config| config.targets.is_empty()) {
            bail!("the management server at {mgs} knows no file system '{fsname}'; check the name");
        }
        if known.config.is_none() {
            bail!("{}", not_heard(&mgs, &self.router.unreached(TargetId::MGT)));
        }
        if !is_done(&known) {
            bail!("'{fsname}' has no metadata or no object target yet; start them: {HOW_TO_SERVE}");
        }
        Ok(())
    }

    fn wait(&self, limit: Duration, is_done: impl Fn(&Known) -> bool) -> MutexGuard<'_, Known> {
        let known = lock(&self.known);
        let waited = self.changed.wait_timeout_while(known, limit, |known| !is_done(known));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// As `wait`, unless somebody ends this process.
    fn wait_at_start(
        &self,
        limit: Duration,
        is_done: impl Fn(&Known) -> bool,
    ) -> Result<MutexGuard<'_, Known>> {
        let start = Instant::now();
        loop {
            let known = self.wait(END_INTERVAL.min(limit), &is_done);
            if is_done(&known) || start.elapsed() >= limit {
                return Ok(known);
            }
            if sys::is_end_pending() {
                bail!(Ended);
            }
        }
    }

    /// Of the configuration, when one has come.
    pub fn config<T>(&self, of: impl FnOnce(&ClusterConfig) -> T) -> Option<T> {
        lock(&self.known).config.as_ref().map(of)
    }

    /// Of the one that is in force; 0 while none is.
    pub(super) fn config_version(&self) -> u64 {
        lock(&self.known).in_force.map_or(0, |in_force| in_force.version)
    }

    /// Stores a parameter on the management server. Every process of the file system does it: to the same end.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn set_permanent(&self, path: &str, value: Option<String>) -> Result<Vec<(String, String)>> {
        if self.mgc.get().is_none() {
            return Ok(Vec::new());
        }
        if value.is_none() {
            self.check_is_permanent(path)?;
        }
        let shown = value.clone().unwrap_or_default();
        let path = path.to_owned();
        match self.change_config(|fsname| MgsRequest::SetParam { fsname, path: path.clone(), value })? {
            Ok(()) => Ok(vec![(path, shown)]),
            Err(status) => bail!("the management server refuses '{path}': {status}"),
        }
    }

    /// Returns when this process works with the new configuration, so that whoever asks it next finds the change.
    ///
    /// # Errors
    /// The management server does not answer, or has not been heard yet.
    pub fn change_config(
        &self,
        make_request: impl FnOnce(String) -> MgsRequest,
    ) -> Result<Result<(), Status>> {
        let fsname = self.config(|config| config.fsname.clone());
        let (Some(owner), Some(fsname)) = (self.mgc.get(), fsname) else {
            bail!("the management server has not been heard yet; see `sheen status`")
        };
        let (sender, receiver) = mpsc::channel();
        let (id, before) = {
            let mut known = lock(&self.known);
            known.last_change += 1;
            let id = known.last_change;
            known.changes.insert(id, sender);
            (id, known.received)
        };
        owner.submit(mgc::Input::Change { id, request: make_request(fsname) });
        let answered = receiver.recv_timeout(CHANGE_TIMEOUT).ok().or_else(|| {
            lock(&self.known).changes.remove(&id);
            owner.submit(mgc::Input::GiveUp(id));
            // It may have come just now.
            receiver.try_recv().ok()
        });
        let Some(result) = answered else {
            bail!(
                "the management server does not answer; it is not asked again, and may have done it or not; see `sheen status`"
            )
        };
        Ok(result.map(|version| {
            let has = |known: &Known| known.in_force.is_some_and(|in_force| in_force.has(version, before));
            drop(self.wait(CHANGE_TIMEOUT, has));
        }))
    }

    /// Asks the management server.
    ///
    /// # Errors
    /// It does not answer in this time. What was to be modified may be modified later.
    pub fn ask_mgs(
        &self,
        request: MgsRequest,
        is_modifying: bool,
        limit: Duration,
    ) -> Result<Result<MgsReply, Status>> {
        let Some(owner) = self.mgc.get() else { bail!("there is no session with the management server") };
        let (sender, receiver) = mpsc::channel();
        let id = {
            let mut known = lock(&self.known);
            known.last_change += 1;
            let id = known.last_change;
            known.questions.insert(id, sender);
            id
        };
        owner.submit(mgc::Input::Ask { id, request, is_modifying });
        if let Ok(result) = receiver.recv_timeout(limit) {
            return Ok(result);
        }
        lock(&self.known).questions.remove(&id);
        if !is_modifying {
            owner.submit(mgc::Input::Withdraw(id));
        }
        bail!("the management server at {} does not answer", self.mgs_nids().join(":"))
    }

    /// # Errors
    /// Nothing of this name is set for good.
    fn check_is_permanent(&self, path: &str) -> Result<()> {
        let params = self.config(|config| config.params.clone()).unwrap_or_default();
        if params.iter().any(|(known, _)| known == path) {
            return Ok(());
        }
        let known: Vec<String> = params.into_iter().map(|(known, _)| known).collect();
        bail!(control::Absent(match known.as_slice() {
            [] => "no parameter is permanent; there is nothing to take out".to_owned(),
            known => format!("'{path}' is not permanent; these are: {}", known.join(", ")),
        }))
    }

    /// Asks the same management server over a session of its own.
    pub fn apart(&self, fsname: &str) -> Arc<Node> {
        let (router, timer, targets) = (Router::new(), Timer::start(), Targets::default());
        let node = Node::new(router, timer, targets, false, Vec::new(), None, self.mgs_addresses.clone());
        node.follow_config(fsname, Vec::new());
        node
    }
}

fn without_room(target: TargetId) -> String {
    format!(
        "the management server has no room for {target}, so that nobody finds it here: take parameters (lctl set_param -P -d) or pools \
         away, or see that its device is not full; it is asked again"
    )
}

/// What ends the waiting for a management server.
pub fn awaited_fix() -> String {
    format!(
        "start it on its machine (sheen up, {HOW_TO_SERVE}), or say where it is: sheen serve --mgsnode NID …"
    )
}

/// Why a mount gives up.
fn not_heard(mgs: &str, unreached: &[Unreached]) -> String {
    let is_unresolved = |each: &Unreached| matches!(each, Unreached::Unresolved { .. });
    let why: Vec<String> = unreached.iter().map(ToString::to_string).collect();
    match unreached {
        [] => format!("the management server at {mgs} does not answer; is it running?"),
        [_, ..] if unreached.iter().all(is_unresolved) => {
            format!(
                "the management server is not found: {}; correct its name, or what resolves it",
                why.join("; ")
            )
        }
        _ => format!("the management server at {mgs} does not answer ({}); is it running?", why.join("; ")),
    }
}

/// That a target is not served here, since it is elsewhere. `nids`: where it is or was, `here` among them perhaps.
fn elsewhere(id: TargetId, dir: &Path, nids: &[String], here: &[String]) -> String {
    let format = |nids: Vec<&String>| {
        nids.into_iter().map(|nid| nid::format_nid(nid)).collect::<Vec<String>>().join(" or ")
    };
    format!(
        "{id} is served at {}, and not here, at {}, from {}, which is a copy of it or what it was copied from: end this server; or, if \
         this is the one to keep, end the other one first, then end this one too and start it again",
        format(nids.iter().filter(|nid| !here.contains(nid)).collect()),
        format(here.iter().collect()),
        dir.display()
    )
}

/// That somebody waits for the management server, and what is known of why.
pub fn awaited(mgs: &MgsStatus, who: &str) -> String {
    let why = match mgs.unreached.as_slice() {
        [] => "it has not answered yet".to_owned(),
        unreached => unreached.join("; "),
    };
    format!(
        "{who} waits for the management server at {} ({why}): until it answers nobody finds what is served here, and nothing is mounted",
        mgs.nids.join(":")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_resolve_is_not_said_to_be_silent() {
        let at = |address: &str| (address.to_owned(), "why".to_owned());
        let unresolved = |name| {
            let (address, why) = at(name);
            Unreached::Unresolved { address, why }
        };
        let (address, why) = at("b:1");
        let refused = Unreached::NotConnected { address, why };
        let said = |unreached: &[Unreached]| not_heard("m", unreached);
        assert!(
            said(&[unresolved("a:1")]).starts_with("the management server is not found: a:1: this name does")
        );
        for unreached in [&[][..], std::slice::from_ref(&refused), &[unresolved("a:1"), refused.clone()][..]]
        {
            assert!(
                said(unreached).starts_with("the management server at m does not answer"),
                "{unreached:?}"
            );
        }
    }

    /// It has been restored from a copy of before its last changes, and counts on from there.
    #[test]
    fn a_change_is_waited_for_also_when_the_management_server_has_gone_back_to_an_older_version() {
        let in_force = |version, received| InForce { version, received };
        assert!(!in_force(50, 7).has(31, 7), "that one is of before");
        assert!(in_force(31, 8).has(31, 7));
        assert!(in_force(32, 9).has(31, 7), "somebody has changed something else since");
        assert!(!in_force(30, 8).has(31, 7));
        assert!(in_force(50, 7).has(50, 7), "it was so already");
    }

    #[test]
    fn what_is_waited_for_is_said_at_once_then_seldom_and_anew_for_another_reason() {
        let mut reminder = Reminder::new();
        let start = reminder.start;
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!reminder.is_due(&[], at(1)), "nothing has failed, and nothing is late");
        let refused = vec!["10.0.0.1:7988: Connection refused".to_owned()];
        assert!(reminder.is_due(&refused, at(1)));
        let said = (2..181).filter(|seconds| reminder.is_due(&refused, at(*seconds))).count();
        assert_eq!(said, 2, "in three minutes");
        assert!(reminder.is_due(&["mgs:7988: this name does not resolve".to_owned()], at(181)));
        assert!(Reminder { start, said: None }.is_due(&[], at(5)), "silence is late by now");
    }
}
