//! A process: the targets that it serves, its mounts, its session with the management server, its control socket.

mod management;
mod start;

pub use management::{Ended, awaited, awaited_fix};
pub use start::{mount, serve};

use crate::cluster::Identity;
use crate::control::{Ask, Leave, MountStatus, Process, Say, TargetStatus, Tell, TellBefore};
use crate::failover::Failover;
use crate::mount::options::Choices;
use crate::mount::unsaved::{self, Patience, Silence};
use crate::mount::{Awaited, Mount, Surroundings};
use crate::served::Record;
use crate::target_dir::TargetDir;
use crate::targets::{self, InEtcd, Target, Targets};
use crate::{alive, health, metrics, nid, params, pools, status, sys};
use anyhow::{Context, Result, bail};
use base::{ClusterConfig, Duration, Epoch, TargetConfig, TargetId, Time};
use client::mgc::{self, Mgc, Registration};
use management::Known;
use net::{Helpers, Owner, Router, Timer};
use start::start_helpers;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use wire::{Claim, Life};

/// How long the end of an MDT waits for the answers of others to its goodbye, and a client for that of the management server. They come with a
/// sync of each; one that does not come costs nothing but a recovery in which that MDT is waited for, or a session that ends by itself.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(2);
const GOODBYE_LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Everything that runs in this process.
pub struct Node {
    pub router: Arc<Router>,
    pub timer: Arc<Timer>,
    /// Where targets and mounts are in one process.
    helpers: Option<Arc<Helpers>>,
    pub targets: Targets,
    /// Of a server with failover.
    failover: OnceLock<Arc<Failover>>,
    no_sync: bool,
    pub mounts: Mutex<Vec<Arc<Mount>>>,
    /// Addresses `HOST:PORT` on which it listens; none when it does not.
    addresses: Vec<String>,
    cluster_dir: Option<PathBuf>,
    mgs_addresses: Vec<String>,
    /// Where the metrics of this machine are served, if this process does.
    metrics_address: OnceLock<SocketAddr>,
    mgc: OnceLock<Arc<Owner<Mgc>>>,
    known: Mutex<Known>,
    /// What permanent parameters have been set to here, by name.
    pub applied_params: Mutex<BTreeMap<String, String>>,
    changed: Condvar,
    /// Nothing is to be told to targets any more. Held for a moment only, never over a machine, which may stand still with its device.
    is_stopping: Mutex<bool>,
    /// Held by the thread that tells targets who is gone while it does. Lock order: this one, then `is_stopping`.
    telling: Mutex<()>,
}

fn registration(target: &Target, addresses: &[String], is_taken: bool) -> Registration {
    let (id, uuid, nids) = (target.id, target.uuid(), addresses.to_vec());
    Registration {
        target: TargetConfig { id, uuid, nids, is_active: true },
        claim: Claim { is_taken, starts: target.starts().to_vec() },
    }
}

impl Node {
    fn new(
        router: Arc<Router>,
        timer: Arc<Timer>,
        targets: Targets,
        no_sync: bool,
        addresses: Vec<String>,
        cluster_dir: Option<PathBuf>,
        mgs_addresses: Vec<String>,
    ) -> Arc<Node> {
        router.set_addresses(TargetId::MGT, mgs_addresses.clone());
        let helpers = if targets.is_empty() { None } else { start_helpers(&router) };
        let node = Arc::new(Node {
            router,
            timer,
            helpers,
            targets,
            failover: OnceLock::new(),
            no_sync,
            mounts: Mutex::default(),
            addresses,
            cluster_dir,
            mgs_addresses,
            metrics_address: OnceLock::new(),
            mgc: OnceLock::new(),
            known: Mutex::default(),
            applied_params: Mutex::default(),
            changed: Condvar::new(),
            is_stopping: Mutex::default(),
            telling: Mutex::default(),
        });
        let told = Arc::downgrade(&node);
        node.router.on_lost(move |lost| {
            let Some(node) = told.upgrade() else { return };
            for target in node.targets.iter() {
                target.on_connection_lost(lost);
            }
            let mounts = lock(&node.mounts).clone();
            for mount in mounts {
                mount.on_connection_lost(lost);
            }
            if let Some(owner) = node.mgc.get().filter(|_| lost == TargetId::MGT) {
                owner.submit(mgc::Input::ConnectionLost);
            }
        });
        node
    }

    /// Asks the management server about clients that targets wait for and have not heard. It answers with those that are gone.
    fn ask_lapsed(&self) {
        let Some(mgc) = self.mgc.get() else { return };
        let unheard: BTreeSet<Life> = self.targets.iter().flat_map(Target::unheard).collect();
        if unheard.is_empty() {
            return;
        }
        // Who lives on this machine is not given up for want of a processor.
        let here: BTreeSet<Life> = alive::living().into_iter().map(Identity::life).collect();
        let unheard: Vec<Life> = unheard.difference(&here).copied().collect();
        mgc.submit(mgc::Input::AskLapsed(unheard));
    }

    /// The leases that this process keeps are those of its mounts.
    fn keep_leases(&self) {
        let lives = lock(&self.mounts).iter().map(|mount| mount.life()).collect();
        if let Some(mgc) = self.mgc.get() {
            mgc.submit(mgc::Input::Keep(lives));
        }
    }

    fn on_renewed(&self, at: Time) {
        let mounts = lock(&self.mounts).clone();
        for mount in mounts {
            mount.on_lease(at);
        }
    }

    fn on_lapsed(&self, at: Time, lives: &[Life]) {
        for target in self.targets.iter() {
            lives.iter().for_each(|life| target.on_lapsed(at, *life));
        }
    }

    /// The addresses of a target are known from here on: whoever waits for it may come.
    fn announce(&self, registered: TargetId) {
        let target = self.targets.iter().find(|target| target.id == registered);
        if let (Some(target), Some(mgc)) = (target, self.mgc.get()) {
            mgc.submit(mgc::Input::Announce(target.id, target.epoch));
        }
    }

    fn on_target_started(&self, started: TargetId, epoch: Epoch) {
        for target in self.targets.iter() {
            target.on_target_started(started, epoch);
        }
        let mounts = lock(&self.mounts).clone();
        for mount in mounts {
            mount.on_target_started(started, epoch);
        }
    }

    fn mgs_nids(&self) -> Vec<String> {
        self.mgs_addresses.iter().map(|address| nid::format_nid(address)).collect()
    }

    /// What operators see of this process on servers.
    fn own_nid(&self) -> String {
        match self.addresses.first() {
            Some(address) => nid::format_nid(address),
            None => nid::route::own_nid(&self.mgs_addresses),
        }
    }

    fn address(&self) -> String {
        self.addresses.first().cloned().unwrap_or_default()
    }

    fn add_mount(
        self: &Arc<Node>,
        path: &Path,
        choices: &Choices,
        source: String,
        awaited: Option<Awaited>,
        identity: Option<Identity>,
    ) -> Result<()> {
        let (config, told) = self.told().context("the file system is not known yet")?;
        let node = Arc::clone(self);
        let with = Surroundings {
            router: Arc::clone(&self.router),
            timer: Arc::clone(&self.timer),
            config,
            nid: self.own_nid(),
            // A comma stands between options there.
            source: source.replace(',', ":"),
            identity,
            awaited,
            on_end: Box::new(move |path| node.on_mount_end(path)),
        };
        let mount = Mount::start(path, choices, with)?;
        tracing::info!(mount = %path.display(), transport = mount.transport(), "mounted");
        lock(&self.mounts).push(Arc::clone(&mount));
        // What has come meanwhile went to those in the list.
        self.tell_since(told, |config| mount.set_config(config));
        self.keep_leases();
        self.wait_for_params()
    }

    /// A process that only mounts ends with its mount.
    fn on_mount_end(&self, path: &Path) {
        lock(&self.mounts).retain(|mount| mount.path != path);
        self.keep_leases();
        if lock(&self.mounts).is_empty() && self.targets.is_empty() {
            sys::end_myself();
        }
    }

    fn answer(&self, ask: Ask, tell: &TellBefore<'_>) -> Tell {
        let say: &Say<'_> = &|note| tell(&Tell::note(note));
        let result = match ask {
            Ask::Status => return Tell { process: Some(self.describe()), ..Tell::default() },
            Ask::Metrics => {
                return match metrics::of_node(self, || self.describe_targets()) {
                    Ok(metrics) => Tell { metrics, ..Tell::default() },
                    Err(error) => Tell::error(format!("{error:#}")),
                };
            }
            Ask::Stop { leave } => self.unmount_all(leave, self.patience_at_end(leave), say).map(|()| {
                sys::end_myself();
                Vec::new()
            }),
            // One that is not there any more was unmounted in the meantime, by an unmount whose caller was killed, say.
            Ask::Unmount { mount, leave, is_with_cluster, detaches_itself } => {
                let unmounted = match self.find_mount(&mount) {
                    Some(mount) if is_with_cluster => {
                        mount.unmount_with_cluster(leave, self.patience_at_end(leave), say)
                    }
                    Some(mount) if detaches_itself && leave == Leave::Unmount => {
                        let may_detach = || tell(&Tell { may_detach: true, ..Tell::default() });
                        mount.unmount_by_asker(unsaved::LEAVING, say, &may_detach)
                    }
                    Some(mount) => mount.unmount(leave, unsaved::LEAVING, say),
                    None => Ok(()),
                };
                unmounted.map(|()| Vec::new())
            }
            Ask::Probe { mount } => {
                let probes = self.find_mount(&mount).map(|mount| mount.probe());
                return match probes {
                    Some(Ok(probes)) => Tell { health: health::of_probes(probes), ..Tell::default() },
                    Some(Err(error)) => Tell::error(format!("{error:#}")),
                    None => {
                        Tell::error(format!("{} is not mounted by this process any more", mount.display()))
                    }
                };
            }
            Ask::GetParam { pattern } => Ok(params::get(self, &pattern)),
            Ask::ListParam { pattern, is_recursive } => Ok(params::list(self, &pattern, is_recursive)),
            Ask::SetParam { pattern, value, is_permanent, is_deleted } => match (is_permanent, is_deleted) {
                (false, _) => params::set(self, &pattern, &value),
                (true, true) => self.set_permanent(&pattern, None),
                (true, false) => params::check_now(self, &pattern, &value, true)
                    .and_then(|()| self.set_permanent(&pattern, Some(value))),
            },
            Ask::AbortRecovery { target } => Ok(self.abort_recovery(&target)),
            Ask::Failover { target, epoch } => {
                let confirm = |failover: &Arc<Failover>| failover.confirm(&target, Epoch(epoch));
                let confirmed = self.failover.get().and_then(confirm);
                confirmed.transpose().map(|done| done.into_iter().map(|name| (name, String::new())).collect())
            }
            Ask::ListPools => return Tell { pools: pools::of(self), ..Tell::default() },
            Ask::ChangePool { name, action } => pools::change(self, &name, action).map(|()| Vec::new()),
        };
        match result {
            Ok(params) => Tell { params, ..Tell::default() },
            Err(error) => Tell::failed(&error),
        }
    }

    /// Those that stand by too.
    fn describe_targets(&self) -> Vec<TargetStatus> {
        let failover = self.failover.get();
        let standbys = failover.map(|failover| failover.standbys(&self.own_nid())).unwrap_or_default();
        let targets = self.targets.iter().map(|target| TargetStatus {
            name: target.id.to_string(),
            fsname: target.fsname.clone(),
            dir: target.path.clone(),
            nid: self.own_nid(),
            state: self.state_of(target).to_owned(),
            pid: 0,
            recovery: target.recovery(),
            owner: failover.and_then(|failover| failover.owner(target.id)),
            alert: self
                .barred(target)
                .or_else(|| target.trouble())
                .or_else(|| self.without_room(target.id))
                .or_else(|| failover.and_then(|failover| failover.held())),
            unserved: target.damage(),
            unheard: target.unheard_peers(),
        });
        let refused = self.targets.refused().iter().map(|refused| TargetStatus {
            name: refused.name.clone(),
            fsname: refused.fsname.clone(),
            dir: refused.path.clone(),
            nid: self.own_nid(),
            state: status::FENCED.to_owned(),
            pid: 0,
            recovery: None,
            owner: None,
            alert: None,
            unserved: Some(refused.why.clone()),
            unheard: Vec::new(),
        });
        targets.chain(refused).chain(standbys).collect()
    }

    fn state_of(&self, target: &Target) -> &'static str {
        match target.state() {
            state if state != status::FENCED && self.barred(target).is_some() => status::REFUSED,
            "active" if self.is_hidden(target.id) => status::WAITING,
            state => state,
        }
    }

    /// Why targets of this process are not served, a line for each.
    pub(super) fn refusals(&self) -> Vec<String> {
        let refused = self.targets.refused().iter().map(|refused| refused.why.clone());
        refused.chain(self.targets.iter().filter_map(|target| self.barred(target))).collect()
    }

    /// What it serves is missed when it dies.
    fn record(&self) -> Option<Record> {
        let targets = self.describe_targets();
        let is_missed = !targets.is_empty() && self.failover.get().is_none();
        is_missed.then(|| Record::write(targets, self.cluster_dir.as_deref())).flatten()
    }

    fn describe(&self) -> Process {
        let mounts = lock(&self.mounts).clone();
        let mounts = mounts.iter().map(|mount| MountStatus {
            path: mount.path.clone(),
            fsname: mount.fsname.clone(),
            source: mount.source.clone(),
            mgs_nids: self.mgs_nids(),
            transport: mount.transport().to_owned(),
            device: mount.device(),
            is_detached: mount.is_detached(),
            options: mount.options(),
            options_at_start: mount.options_at_start(),
            unheard: mount.unheard(),
            pid: 0,
        });
        Process {
            pid: std::process::id(),
            cluster_dir: self.cluster_dir.clone(),
            targets: self.describe_targets(),
            mounts: mounts.collect(),
            config_version: self.mgc.get().map(|_| self.config_version()),
            mgs: self.mgc.get().map(|_| self.describe_mgs()),
            drained_fsname: self.config(drained_fsname).flatten(),
            metrics: self.metrics_address.get().map(ToString::to_string),
        }
    }

    /// The target, if it is here, and what has happened to its recovery.
    fn abort_recovery(&self, name: &str) -> Vec<(String, String)> {
        let is_meant =
            |target: &&Target| params::target_name(target) == name || target.id.to_string() == name;
        let abort = |target: &Target| {
            let given_up = target.recovery().map_or(0, |recovery| recovery.missing.len());
            target.abort_recovery();
            (params::target_name(target), given_up.to_string())
        };
        self.targets.iter().filter(is_meant).map(abort).collect()
    }

    fn find_mount(&self, path: &Path) -> Option<Arc<Mount>> {
        lock(&self.mounts).iter().find(|mount| mount.path == path).cloned()
    }

    /// Opens a target that this process owns now, and tells everybody that it is here. `in_etcd`: of a management server, where its rows
    /// are.
    ///
    /// # Errors
    /// As `targets::start`; this process ends.
    pub fn serve_one_more(&self, index: usize, dir: TargetDir, in_etcd: Option<InEtcd>) -> Result<()> {
        let nid = self.own_nid();
        let shared =
            targets::Shared { router: &self.router, timer: &self.timer, nid: &nid, no_sync: self.no_sync };
        let target = targets::start(dir, &shared, in_etcd)?;
        let is_stopping = lock(&self.is_stopping);
        if *is_stopping {
            target.close_unserved()?;
            bail!("this process ends");
        }
        let id = target.id;
        let registration = (id != TargetId::MGT).then(|| registration(&target, &self.addresses, true));
        self.targets.fill(index, target);
        let is_meant = |target: &&Target| target.id == id;
        if let Some(target) = self.targets.iter().find(is_meant) {
            self.tell_since(0, |config| target.set_config(&config, true));
        }
        drop(is_stopping);
        if let Some(mgc) = self.mgc.get() {
            registration.into_iter().for_each(|registration| mgc.submit(mgc::Input::Register(registration)));
            self.targets.iter().filter(is_meant).for_each(Target::await_word);
        }
        // Nobody waits for it: other targets may stand still with their devices.
        self.want_params();
        Ok(())
    }

    /// At the end of a cluster.
    fn patience_at_end(&self, leave: Leave) -> Patience {
        let has_failed = self.targets.iter().any(Target::has_failed) || !self.targets.refused().is_empty();
        if leave == Leave::Cut && has_failed { unsaved::WITHOUT_FAILED } else { unsaved::STOPPING }
    }

    fn unmount_all(&self, leave: Leave, patience: Patience, say: &Say<'_>) -> Result<()> {
        let mounts = lock(&self.mounts).clone();
        mounts.iter().try_for_each(|mount| mount.unmount_with_cluster(leave, patience, say))
    }

    /// A target that is restarted while an MDT of this process is not there is not to wait for it: it left in order.
    fn say_goodbye(&self) {
        let leaving: Vec<&Target> = self.targets.iter().filter(|target| target.say_goodbye()).collect();
        wait_at_goodbye(|| leaving.iter().all(|target| target.has_said_goodbye()));
    }

    /// Ends everything: mounts first, for they need the servers.
    fn stop(&self) {
        if let Some(failover) = self.failover.get() {
            failover.die_when_held();
        }
        let say = |note: &str| tracing::info!("{note}");
        if let Err(error) = self.unmount_all(Leave::Stop, unsaved::LEAVING, &say) {
            tracing::info!("{error:#}");
            // Whoever is gone was waited for. Somebody who uses the mount is no reason to hurry.
            let patience = if error.is::<Silence>() { unsaved::NONE } else { unsaved::LEAVING };
            if let Err(error) = self.unmount_all(Leave::Cut, patience, &say) {
                tracing::warn!("{error:#}");
            }
        }
        if let Some(failover) = self.failover.get() {
            failover.stop_taking();
        }
        if let Some(owner) = self.mgc.get() {
            owner.submit(mgc::Input::Disconnect);
            // What a server leaves is asked for again by the one that is started next; a client comes as somebody else.
            if self.targets.is_empty() {
                wait_at_goodbye(|| owner.with(|mgc| mgc.has_left()));
            }
        }
        *lock(&self.is_stopping) = true;
        // Whoever tells them something has done so.
        drop(lock(&self.telling));
        self.say_goodbye();
        // No machine looks into a store that is closed, because its time has come or somebody asks: who asked last hears nothing more
        // from here, and asks again.
        self.targets.iter().for_each(Target::leave);
        self.timer.stop();
        if let Some(helpers) = &self.helpers {
            helpers.stop();
        }
        self.router.close();
        for target in self.targets.iter().rev() {
            target.close();
        }
        if let Some(failover) = self.failover.get() {
            failover.leave();
        }
        tracing::info!("stopped");
    }
}

fn wait_at_goodbye(is_answered: impl Fn() -> bool) {
    let until = net::clock::now().time.after(GOODBYE_PATIENCE);
    while !is_answered() && net::clock::now().time < until {
        std::thread::sleep(GOODBYE_LOOK_INTERVAL);
    }
}

fn drained_fsname(config: &ClusterConfig) -> Option<String> {
    params::are_osts_drained(config).then(|| config.fsname.clone())
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
