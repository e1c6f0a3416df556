//! Targets that another server can serve too, from the same storage: `sheen serve --failover`.
//!
//! Each target has an owner, known to the management server, which renews a lease. When that ends, another server takes over: it runs
//! the fence command, and only when that has said that the old owner can no longer write does it lock the directory, take the ownership
//! and open the stores. No lease, epoch or clock protects the data: a process that stood still finishes its write when it goes on. The
//! fence does. Behind it are, in this order, the lock of the directory (whoever holds it still is not fenced, whatever the command
//! said), and the gate of the stores (a process that stood still writes nothing more before it has asked who owns its targets).
//!
//! Who keeps that, the management server or etcd, is behind a trait (`coordinate::Keeper`). A keeper that is not heard says nothing. For
//! the management server an owner serves on, for nobody can take its targets without that server; for etcd it writes until its lease ends,
//! and then waits to be told that it is still the owner. The management server itself is such a target when it keeps its rows in etcd:
//! each write of it is one over the ownership, so nobody need be fenced, and it answers nobody when its lease has ended. Only when a keeper says that somebody else owns a target does this process end,
//! at once and as by kill -9.

mod confirmed;
mod fence;
mod ownership;
mod takeovers;

use crate::control::TargetStatus;
use crate::nid;
use crate::node::{Node, lock};
use crate::sys;
use crate::target_dir::{self, Label, TargetDir};
use crate::targets::{self, InEtcd, Target};
use anyhow::{Context, Result, anyhow, bail};
use base::limits::{LEASE, LEASE_RENEWAL};
use base::{Epoch, TargetId, Time};
use confirmed::Confirmed;
use coordinate::{Keeper, KeeperError, Members, Silence};
pub use ownership::check_has_etcd;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};
use takeovers::Takeovers;
use wire::{Ownership, TargetOwner};

/// Twice as often as a lease needs it: whoever waits for its end sees it soon.
const KEEP_INTERVAL: Duration = Duration::from_millis(500);
/// While a keeper of several machines is silent: what is left of a lease is for asking, not for sleeping. (The management server is one
/// process, of which targets are served on.)
const SILENT_INTERVAL: Duration = Duration::from_millis(100);
const SEAT_INTERVAL: Duration = Duration::from_millis(100);
/// After a fence command that failed, or a target that could not be opened.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// A process that ends waits so long for its takeovers: a keeper is asked for 10 s at most, then stores are opened.
const TAKEOVER_PATIENCE: Duration = Duration::from_secs(30);
/// A process that is to end, and must not write, waits so long for the word of its keeper.
const HELD_MAX: base::Duration = base::Duration::from_secs(10);
/// An operator's word waits so long for a takeover under way, which asks a keeper and opens stores too.
const WORK_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How often this process says that it runs, and for how long that lets it write. A lease cannot have ended after standing still for less.
const PULSE_INTERVAL: Duration = Duration::from_millis(100);
const STILL_MAX: Duration = Duration::from_millis(1500);

const _: () = assert!(STILL_MAX.as_millis() + LEASE_RENEWAL.as_millis() < LEASE.as_millis());
const _: () = assert!(KEEP_INTERVAL.as_millis() * 2 <= LEASE_RENEWAL.as_millis());

/// In which another server is to serve what a dead one has left, where fencing is quick.
const TAKEOVER_GOAL: Duration = Duration::from_secs(10);
// The lease of the dead one ends, who stands by asks once more, and the recovery waits for the leases of clients that have died with it.
// What is left is for the fence, for opening the target and for replays.
const _: () = assert!(LEASE.as_millis() * 2 + KEEP_INTERVAL.as_millis() * 2 < TAKEOVER_GOAL.as_millis());

const ENDING: &str = "this process ends";

/// The state of a target that this process would serve if its owner could not.
pub const STANDBY: &str = "standby";

/// The targets of this process.
pub struct Failover {
    node: Weak<Node>,
    keeper: Box<dyn Keeper>,
    me: TargetOwner,
    fence_command: Option<String>,
    coordinator: Option<Members>,
    seats: Vec<Seat>,
    takeovers: Takeovers,
    confirmed: Mutex<Confirmed>,
    /// Why the keeper is not heard.
    silence: Mutex<Option<String>>,
}

/// A target that this process serves or could serve.
struct Seat {
    label: Label,
    view: Mutex<View>,
    /// Held while the target is taken over: by its own thread, or for an operator.
    work: Mutex<()>,
}

#[derive(Default)]
struct View {
    seen: Option<Ownership>,
    /// The epoch of our own ownership: the target is being opened, or served.
    owned: Option<Epoch>,
    /// It was asked for, and the keeper may have given it without our having heard of that, or may not have heard that it goes back.
    may_be_owned: bool,
    /// Its stores are being opened: it is nothing to be given back.
    is_opening: bool,
    /// Nor is it when a device failed to keep what was written to open them.
    is_unkept: bool,
    /// An operator has said meanwhile that who owned it with this epoch cannot write any more.
    confirmed: Option<Epoch>,
    /// What an operator should know, in a sentence.
    alert: Option<String>,
    again_at: Option<Instant>,
}

impl View {
    /// Whether the target is to be given up at the end. It is not owned any more from then on: that nobody owns it, which this process may
    /// be told before it has ended, is no loss. `is_unkept`: whoever is next has to fence this process.
    fn give_up(&mut self, is_unkept: bool) -> bool {
        if self.is_opening || self.is_unkept || is_unkept {
            return false;
        }
        let was_asked_for = std::mem::take(&mut self.may_be_owned);
        self.owned.take().is_some() || was_asked_for
    }
}

impl Failover {
    /// Takes what nobody owns, and stands by for the rest.
    ///
    /// # Errors
    /// A thread cannot be started, or this program has no client of that coordinator.
    pub fn start(
        node: &Arc<Node>,
        labels: Vec<Label>,
        address: &str,
        fence_command: Option<String>,
        coordinator: Option<&Members>,
    ) -> Result<Arc<Failover>> {
        let is_mgs = labels.iter().any(|label| label.id == TargetId::MGT);
        let fsname = match labels.first() {
            Some(label) if !is_mgs => label.fsname.clone(),
            _ => coordinate::MGS_NAME.to_owned(),
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let me = TargetOwner {
            server: net::clock::random_u128(),
            nid: address.to_owned(),
            host: host.trim().to_owned(),
            pid: std::process::id(),
        };
        let keeper = ownership::keeper(node, fsname, me.clone(), coordinator)?;
        let seat = |label| Seat { label, view: Mutex::default(), work: Mutex::default() };
        let failover = Arc::new(Failover {
            node: Arc::downgrade(node),
            keeper,
            me,
            fence_command,
            coordinator: coordinator.cloned(),
            seats: labels.into_iter().map(seat).collect(),
            takeovers: Takeovers::default(),
            confirmed: Mutex::default(),
            silence: Mutex::default(),
        });
        store_disk::may_write_until(now().after(STILL_MAX).0);
        let (pulsing, keeping) = (Arc::clone(&failover), Arc::clone(&failover));
        std::thread::Builder::new().name("pulse".into()).spawn(move || pulsing.pulse())?;
        std::thread::Builder::new().name("owner".into()).spawn(move || keeping.keep())?;
        for index in 0..failover.seats.len() {
            let sitting = Arc::clone(&failover);
            std::thread::Builder::new().name("standby".into()).spawn(move || sitting.sit(index))?;
        }
        Ok(failover)
    }

    /// For one target that nobody owns, without threads of its own.
    #[cfg(test)]
    pub fn of_one(node: &Arc<Node>, label: Label, keeper: Box<dyn Keeper>) -> Arc<Failover> {
        let seen = Ownership { target: label.id, epoch: Epoch(0), owner: None, has_lapsed: false };
        Failover::of_one_seen(node, label, keeper, seen, None)
    }

    /// The same for one of which that is known.
    #[cfg(test)]
    pub fn of_one_seen(
        node: &Arc<Node>,
        label: Label,
        keeper: Box<dyn Keeper>,
        seen: Ownership,
        fence_command: Option<String>,
    ) -> Arc<Failover> {
        let me = TargetOwner { server: 1, nid: "here:1".to_owned(), host: "here".to_owned(), pid: 1 };
        let view = Mutex::new(View { seen: Some(seen), ..View::default() });
        Arc::new(Failover {
            node: Arc::downgrade(node),
            keeper,
            me,
            fence_command,
            coordinator: None,
            seats: vec![Seat { label, view, work: Mutex::default() }],
            takeovers: Takeovers::default(),
            confirmed: Mutex::default(),
            silence: Mutex::default(),
        })
    }

    /// One attempt at its first target, which no operator has asked for.
    #[cfg(test)]
    pub fn try_first(&self) -> Result<bool> {
        let seat = self.seats.first().context("it has a target")?;
        self.try_take(seat, 0, &lock(&seat.work), None)
    }

    /// For one target, with the management server as keeper.
    #[cfg(test)]
    pub fn of_one_by_mgs(node: &Arc<Node>, label: Label) -> Arc<Failover> {
        let me = TargetOwner { server: 1, nid: "here:1".to_owned(), host: "here".to_owned(), pid: 1 };
        let keeper = ownership::keeper(node, label.fsname.clone(), me, None).expect("it needs nothing");
        Failover::of_one(node, label, keeper)
    }

    #[cfg(test)]
    pub fn keeper(&self) -> &dyn Keeper {
        self.keeper.as_ref()
    }

    #[cfg(test)]
    pub fn is_ending(&self) -> bool {
        self.takeovers.are_over()
    }

    /// Lets the stores write, as long as this process has not stood still nor outlived its leases, or has been confirmed since.
    fn pulse(&self) {
        let mut until = now().after(STILL_MAX);
        let mut stopped_at = None;
        loop {
            let at = now();
            let confirmed = lock(&self.confirmed).all();
            let lease_end = lease_end(self.keeper.silence(), confirmed);
            if stopped_at.is_none() && at >= until {
                stopped_at = Some(at);
                let why = match lease_end {
                    Some(end) if at >= end => "the leases of this process have ended",
                    _ => "this process stood still",
                };
                self.hang_up();
                let keeper = self.keeper.name();
                tracing::warn!("{why}; nothing is written before {keeper} has said who owns its targets");
            }
            if stopped_at.is_some_and(|stopped| confirmed > stopped) {
                stopped_at = None;
                tracing::info!("this process still owns its targets, and goes on");
            }
            if stopped_at.is_none() {
                let still = at.after(STILL_MAX);
                until = lease_end.map_or(still, |end| still.min(end));
                store_disk::may_write_until(until.0);
            }
            std::thread::sleep(PULSE_INTERVAL);
        }
    }

    /// Renews the leases, and follows who owns what.
    fn keep(&self) {
        loop {
            let asked_at = now();
            // What this process owned when it asked: only of that can it be told that it has lost it.
            let (owned, others): (Vec<_>, Vec<_>) = self
                .seats
                .iter()
                .map(|seat| {
                    (seat.label.id, lock(&seat.view).owned.filter(|_| !self.has_failed(seat.label.id)))
                })
                .partition(|(_, epoch)| epoch.is_some());
            let ids = |seats: &[(TargetId, Option<Epoch>)]| -> Vec<TargetId> {
                seats.iter().map(|(id, _)| *id).collect()
            };
            for failed in self.seats.iter().map(|seat| seat.label.id).filter(|id| self.has_failed(*id)) {
                lock(&self.confirmed).on_left(failed);
            }
            let answer = self.keeper.keep(&ids(&owned), &ids(&others));
            let pause = pause_after(answer.is_ok(), self.keeper.silence());
            match answer {
                Ok(ownerships) => {
                    if lock(&self.silence).take().is_some() {
                        tracing::info!("{} is heard again", self.keeper.name());
                    }
                    for ownership in ownerships {
                        let epoch = owned.iter().find(|(id, _)| *id == ownership.target);
                        self.on_ownership(ownership, epoch.and_then(|(_, epoch)| *epoch));
                    }
                    let kept = owned.iter().filter_map(|(id, epoch)| Some((*id, (*epoch)?)));
                    lock(&self.confirmed).on_kept(asked_at, kept);
                    self.tell_mgs();
                }
                Err(error) => self.on_silence(error.to_string()),
            }
            std::thread::sleep(pause);
        }
    }

    fn with_mgs(&self, tell: impl Fn(&Node, &Target)) {
        let Some(node) = self.node.upgrade() else { return };
        node.targets.iter().filter(|target| target.id == TargetId::MGT).for_each(|mgs| tell(&node, mgs));
    }

    /// Whoever asks the management server is answered for as long as its lease holds.
    fn tell_mgs(&self) {
        let confirmed = lock(&self.confirmed).of(TargetId::MGT);
        if let Some(confirmed) = confirmed {
            self.with_mgs(|_, mgs| mgs.set_active_until(confirmed.after(LEASE)));
        }
    }

    /// Whoever asked this management server is to look for another one.
    fn hang_up(&self) {
        self.with_mgs(|node, _| node.router.hang_up());
    }

    /// It is asked again and again; the log says it once.
    fn on_silence(&self, why: String) {
        let before = lock(&self.silence).replace(why.clone());
        if before.is_none() {
            let meanwhile = match self.keeper.silence() {
                Silence::ServesOn => "targets are served on",
                Silence::HoldsBack => "targets are served until their leases end",
            };
            tracing::warn!("{why}: {meanwhile}, and none is taken over; it is asked until it answers");
        }
    }

    /// A target whose device has failed is better served by somebody else: its lease is not renewed. Rows that are damaged are damaged for
    /// everybody: nobody is to fence this process and its other targets for them.
    fn has_failed(&self, id: TargetId) -> bool {
        let is_it = |target: &Target| target.id == id && target.has_failed() && target.damage().is_none();
        self.node.upgrade().is_some_and(|node| node.targets.iter().any(is_it))
    }

    /// What its device failed to keep, perhaps only when it was closed, may still be with the kernel of this machine, which writes it some
    /// time: then nobody may have the target without a fence. Nothing of a target that is not served here is there.
    fn is_unkept(&self, id: TargetId) -> bool {
        let is_it = |target: &Target| target.id == id && target.is_unkept();
        self.node.upgrade().is_some_and(|node| node.targets.iter().any(is_it))
    }

    fn on_ownership(&self, ownership: Ownership, owned: Option<Epoch>) {
        let seat = self.seats.iter().find(|seat| seat.label.id == ownership.target);
        let owned_now = seat.and_then(|seat| lock(&seat.view).owned);
        if let Some(epoch) = owned.filter(|epoch| is_lost(*epoch, &ownership, &self.me, owned_now)) {
            let owner = ownership.owner.as_ref().map_or_else(|| "nobody".to_owned(), describe);
            tracing::error!(
                target = %ownership.target,
                "owned by {owner} since epoch {}, not by this process, which owned epoch {}: it ends at once and writes nothing more",
                ownership.epoch.0,
                epoch.0
            );
            sys::die();
        }
        if let Some(seat) = seat {
            lock(&seat.view).seen = Some(ownership);
        }
    }

    /// Until this process serves the target.
    fn sit(&self, index: usize) {
        let Some(seat) = self.seats.get(index) else { return };
        loop {
            std::thread::sleep(SEAT_INTERVAL);
            if lock(&seat.view).again_at.is_some_and(|at| Instant::now() < at) {
                continue;
            }
            let taken = self.try_take(seat, index, &lock(&seat.work), None);
            match taken {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) if self.takeovers.are_over() => return,
                Err(error) => {
                    let alert = format!("{error:#}");
                    let mut view = lock(&seat.view);
                    if view.alert.as_ref() != Some(&alert) {
                        tracing::error!(target = %seat.label.id, "not taken over: {alert}");
                    }
                    view.alert = Some(alert);
                    view.again_at = Some(Instant::now() + AGAIN_AFTER);
                }
            }
        }
    }

    /// True when this process serves the target. `fenced`: an operator says that who owned it with this epoch cannot write any more.
    fn try_take(
        &self,
        seat: &Seat,
        index: usize,
        _working: &MutexGuard<'_, ()>,
        fenced: Option<Epoch>,
    ) -> Result<bool> {
        let (seen, is_owned) = {
            let view = lock(&seat.view);
            (view.seen.clone(), view.owned.is_some())
        };
        if is_owned {
            return Ok(true);
        }
        let Some(seen) = seen else {
            if fenced.is_some() {
                bail!("{} has not said yet who owns it; try again", self.keeper.name());
            }
            return Ok(false);
        };
        fenced.map_or(Ok(()), |fenced| check_meant(&seen, fenced))?;
        if let Some(owner) = seen.owner.as_ref().filter(|owner| owner.server != self.me.server) {
            if !seen.has_lapsed {
                if fenced.is_some() {
                    bail!("{} owns it and renews its lease; end that process first", describe(owner));
                }
                lock(&seat.view).alert = None;
                return Ok(false);
            }
            // Before anybody is fenced for it.
            let is_meant = self.check_storage(seat, seen.epoch, fenced.is_some())?;
            if !is_meant || (fenced.is_none() && !self.is_still_lapsed(seat, seen.epoch)?) {
                lock(&seat.view).alert = None;
                return Ok(false);
            }
            self.make_sure(seat, owner, seen.epoch, fenced.is_some())?;
        }
        let is_taken = self.take(seat, index, seen.epoch, fenced.is_some())?;
        if !is_taken {
            lock(&seat.view).alert = None;
        }
        Ok(is_taken)
    }

    /// Whether that owner still does not renew its lease. What was seen may be long ago: this process stood still since, or has heard nothing.
    fn is_still_lapsed(&self, seat: &Seat, epoch: Epoch) -> Result<bool> {
        let seen = self.ask(seat)?;
        Ok(seen.has_lapsed && seen.epoch == epoch)
    }

    /// Who owns a target now.
    fn ask(&self, seat: &Seat) -> Result<Ownership> {
        let answer = self.keeper.keep(&[], &[seat.label.id])?;
        let Some(seen) = answer.into_iter().find(|seen| seen.target == seat.label.id) else {
            bail!("{} has not said who owns it", self.keeper.name());
        };
        lock(&seat.view).seen = Some(seen.clone());
        Ok(seen)
    }

    /// That the owner can no longer write.
    fn make_sure(&self, seat: &Seat, owner: &TargetOwner, epoch: Epoch, is_fenced: bool) -> Result<()> {
        let (target, who) = (seat.label.id, describe(owner));
        if target == TargetId::MGT {
            // The next epoch fences it: it writes to etcd only what is over its own.
            tracing::warn!(%target, owner = who, epoch = epoch.0, "its owner does not renew its lease; this process takes over");
            return Ok(());
        }
        if is_fenced {
            tracing::warn!(%target, owner = who, epoch = epoch.0, "an operator says that its owner is fenced");
            return Ok(());
        }
        let confirm = || {
            format!(
                "{who} does not renew its lease; when it cannot write any more: sheen failover {}-{target} --fenced --epoch {}",
                seat.label.fsname, epoch.0
            )
        };
        let Some(command) = &self.fence_command else {
            bail!("takeover waits, without a fence command: {}", confirm())
        };
        tracing::warn!(%target, owner = who, epoch = epoch.0, "its owner does not renew its lease; it is fenced");
        let (fsname, is_own_host) = (seat.label.fsname.as_str(), is_of_host(owner, &self.me));
        let victim = fence::Victim { fsname, target, owner, epoch, is_own_host };
        let is_confirmed = || lock(&seat.view).confirmed == Some(epoch);
        let fenced = fence::run(command, &victim, is_confirmed)
            .with_context(|| format!("takeover waits: {}", confirm()))?;
        let by = match fenced {
            fence::Fenced::ByCommand => "the fence command says",
            fence::Fenced::ByWord => "an operator says, before the fence command has ended,",
        };
        tracing::warn!(%target, owner = who, "{by} that its owner cannot write any more");
        Ok(())
    }

    /// That the storage is the one that the last owner wrote to, and that the keeper knows of that owner, unless an operator does. A
    /// management server has only a directory of its own, and its rows elsewhere. False: another server has taken the target meanwhile, which
    /// the storage knew before this process.
    fn check_storage(&self, seat: &Seat, known: Epoch, is_confirmed: bool) -> Result<bool> {
        if seat.label.id == TargetId::MGT {
            return Ok(true);
        }
        let checked = target_dir::check_owned(&seat.label, known, self.keeper.name(), is_confirmed);
        let Err(error) = checked else { return Ok(true) };
        target_dir::check_coordinator(&seat.label.path, &self.keeper.identity()?)?;
        match target_dir::is_forgotten(&error) && self.ask(seat)?.epoch != known {
            true => Ok(false),
            false => Err(error),
        }
    }

    /// The lock first: whoever holds it still is not fenced, and keeps the ownership. False: another server has taken it meanwhile.
    fn take(&self, seat: &Seat, index: usize, over: Epoch, is_confirmed: bool) -> Result<bool> {
        let Some(node) = self.node.upgrade() else { return Ok(true) };
        if !self.check_storage(seat, over, is_confirmed)? {
            return Ok(false);
        }
        let dir = target_dir::open(&seat.label.path).context(
            "its owner should be unable to write, but no takeover while this directory cannot be locked",
        )?;
        dir.keep_coordinator(&self.keeper.identity()?)?;
        // Before it is asked for: whatever epoch a keeper has given out, the storage that was written with it knows.
        let is_kept = seat.label.id != TargetId::MGT;
        let before = if is_kept { dir.keep_owned(Epoch(over.0.saturating_add(1)))? } else { None };
        let _under_way = self.takeovers.begin().context(ENDING)?;
        let asked_at = now();
        lock(&seat.view).may_be_owned = true;
        let epoch = match self.keeper.take(seat.label.id, over) {
            Err(denied @ KeeperError::Denied { .. }) => {
                lock(&seat.view).may_be_owned = false;
                if is_kept {
                    dir.put_owned_back(before)?;
                }
                return Err(denied.into());
            }
            taken => taken?,
        };
        lock(&self.confirmed).on_taken(seat.label.id, epoch, asked_at);
        lock(&seat.view).owned = Some(epoch);
        tracing::info!(target = %seat.label.id, epoch = epoch.0, "owned by this process");
        let in_etcd = self.coordinator.clone().filter(|_| seat.label.id == TargetId::MGT);
        let in_etcd = in_etcd.map(|members| InEtcd {
            members,
            me: self.me.clone(),
            epoch,
            active_until: asked_at.after(LEASE),
        });
        let noted = if is_kept { dir.keep_taken(epoch) } else { Ok(()) };
        if let Err(error) = noted.and_then(|()| self.open(&node, seat, index, dir, in_etcd)) {
            lock(&seat.view).owned = None;
            lock(&self.confirmed).on_left(seat.label.id);
            // Also what an earlier attempt has left, whatever this one has met.
            if targets::may_be_unkept(&error) || lock(&seat.view).is_unkept {
                lock(&seat.view).is_unkept = true;
                tracing::warn!(
                    target = %seat.label.id,
                    "its device fails: it is not given back, and who takes over has to fence this server first"
                );
                return Err(error);
            }
            // Nothing of it is open here: another server has a try, and need not fence this one and its other targets for it.
            match self.keeper.give_back(seat.label.id) {
                Ok(()) => lock(&seat.view).may_be_owned = false,
                Err(silent) => {
                    tracing::warn!(target = %seat.label.id, "{silent}: whoever takes it over fences this server first");
                }
            }
            return Err(error);
        }
        let mut view = lock(&seat.view);
        (view.alert, view.is_unkept) = (None, false);
        Ok(true)
    }

    /// Unless this process is to end by now.
    fn open(
        &self,
        node: &Node,
        seat: &Seat,
        index: usize,
        dir: TargetDir,
        in_etcd: Option<InEtcd>,
    ) -> Result<()> {
        if self.takeovers.are_over() {
            bail!(ENDING);
        }
        lock(&seat.view).is_opening = true;
        let opened = node.serve_one_more(index, dir, in_etcd);
        lock(&seat.view).is_opening = false;
        opened
    }

    /// No takeover begins any more. One that waits for the keeper, or opens stores, is waited for: it needs the session of this process, and
    /// what it has taken is given back with the rest. That session may end from then on.
    pub fn stop_taking(&self) {
        if !self.takeovers.end(TAKEOVER_PATIENCE) {
            tracing::warn!(
                "a takeover is still under way after {} s, and is cut short",
                TAKEOVER_PATIENCE.as_secs()
            );
        }
        self.keeper.outlive_session();
    }

    /// An operator says that who owned a target with this epoch is fenced. `None`: this process does not stand by for it.
    ///
    /// # Errors
    /// It is not taken over.
    pub fn confirm(&self, name: &str, epoch: Epoch) -> Option<Result<String>> {
        let is_meant = |seat: &Seat| {
            let id = seat.label.id.to_string();
            (id == name || format!("{}-{id}", seat.label.fsname) == name) && lock(&seat.view).owned.is_none()
        };
        let index = self.seats.iter().position(is_meant)?;
        let seat = self.seats.get(index)?;
        let name = format!("{}-{}", seat.label.fsname, seat.label.id);
        // Before a takeover under way is waited for, which a word of another owner does not end.
        let seen = lock(&seat.view).seen.clone();
        if let Some(Err(error)) = seen.map(|seen| check_meant(&seen, epoch)) {
            return Some(Err(error));
        }
        let Some(working) = wait_for_work(seat, epoch) else {
            return Some(Err(anyhow!(
                "a takeover of {name} is under way, which waits for the storage, {} or the fence command; try again after that",
                self.keeper.name()
            )));
        };
        Some(self.try_take(seat, index, &working, Some(epoch)).map(|_| name))
    }

    /// Whether of each target is known who serves it.
    pub fn is_settled(&self) -> bool {
        self.seats.iter().all(|seat| {
            let is_served = self.is_served(seat.label.id);
            let view = lock(&seat.view);
            let owner = view.seen.as_ref().and_then(|seen| seen.owner.as_ref());
            let is_anothers = owner.is_some_and(|owner| owner.server != self.me.server);
            is_served || view.alert.is_some() || (view.owned.is_none() && is_anothers)
        })
    }

    fn is_served(&self, id: TargetId) -> bool {
        self.node.upgrade().is_some_and(|node| node.targets.iter().any(|target| target.id == id))
    }

    /// Targets that this process does not serve, as `status` shows them.
    pub fn standbys(&self, own_nid: &str) -> Vec<TargetStatus> {
        let waiting = self.seats.iter().filter(|seat| !self.is_served(seat.label.id));
        waiting
            .map(|seat| TargetStatus {
                name: seat.label.id.to_string(),
                fsname: seat.label.fsname.clone(),
                dir: seat.label.path.clone(),
                nid: own_nid.to_owned(),
                state: STANDBY.to_owned(),
                pid: 0,
                recovery: None,
                owner: self.owner(seat.label.id),
                alert: self.alert(seat),
                unserved: None,
                unheard: Vec::new(),
            })
            .collect()
    }

    /// Of whom nothing is known yet, that is why it is not served.
    fn alert(&self, seat: &Seat) -> Option<String> {
        let view = lock(&seat.view);
        let is_unknown = view.seen.is_none();
        view.alert.clone().or_else(|| lock(&self.silence).clone().filter(|_| is_unknown))
    }

    /// Who owns it, for an operator.
    pub fn owner(&self, id: TargetId) -> Option<String> {
        let seat = self.seats.iter().find(|seat| seat.label.id == id)?;
        let view = lock(&seat.view);
        let seen = view.seen.as_ref()?;
        let owner = describe(seen.owner.as_ref()?);
        Some(format!("{owner}, epoch {}{}", seen.epoch.0, if seen.has_lapsed { ", lease ended" } else { "" }))
    }

    /// Why nothing is written, for an operator.
    pub fn held(&self) -> Option<String> {
        if !store_disk::is_held() {
            return None;
        }
        let keeper = self.keeper.name();
        let why = lock(&self.silence).clone().unwrap_or_else(|| "this process stood still".to_owned());
        Some(format!(
            "{why}: nothing is written, and its clients wait, until {keeper} has said that this process owns it still"
        ))
    }

    /// This process ends. What it must not write would keep it for as long as the keeper is silent; nothing is lost when it does not: clients
    /// keep what was not durable.
    pub fn die_when_held(self: &Arc<Failover>) {
        let failover = Arc::clone(self);
        let watching = std::thread::Builder::new().name("held".into()).spawn(move || {
            let mut since = None;
            while !is_held_for_long(&mut since, store_disk::is_held(), now()) {
                std::thread::sleep(PULSE_INTERVAL);
            }
            let keeper = failover.keeper.name();
            tracing::warn!(
                "this process is to end, and {keeper} has not said for {} s whether it may write: it ends at once",
                HELD_MAX.as_secs()
            );
            sys::die();
        });
        if let Err(error) = watching {
            tracing::warn!(%error, "this process ends when it may write");
        }
    }

    /// Everything is closed: whoever comes next need fence nobody. But for what is still being opened, and what a device failed to keep.
    pub fn leave(&self) {
        let take_back = |seat: &&Seat| {
            let is_unkept = self.is_unkept(seat.label.id);
            if is_unkept {
                tracing::warn!(
                    target = %seat.label.id,
                    "its device failed to keep data: it is not given up, and who takes over has to fence this server first"
                );
            }
            lock(&seat.view).give_up(is_unkept)
        };
        let targets: Vec<TargetId> = self.seats.iter().filter(take_back).map(|seat| seat.label.id).collect();
        if targets.is_empty() {
            return;
        }
        if let Err(error) = self.keeper.leave(&targets) {
            tracing::warn!("{error}: who takes over has to fence this server first");
        }
    }
}

/// What an operator says of an owner is not said of the one after it.
fn check_meant(seen: &Ownership, fenced: Epoch) -> Result<()> {
    if seen.epoch == fenced {
        return Ok(());
    }
    bail!(
        "it is owned with epoch {} and not with {} any more: who owns it now may be able to write; see `sheen status`",
        seen.epoch.0,
        fenced.0
    )
}

/// Ends a fence command under way that is for this epoch. `None`: something else takes its time.
fn wait_for_work(seat: &Seat, confirmed: Epoch) -> Option<MutexGuard<'_, ()>> {
    let start = Instant::now();
    let working = loop {
        match seat.work.try_lock() {
            Ok(working) => break Some(working),
            Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if start.elapsed() >= WORK_PATIENCE => break None,
            Err(TryLockError::WouldBlock) => lock(&seat.view).confirmed = Some(confirmed),
        }
        std::thread::sleep(LOOK_INTERVAL);
    };
    lock(&seat.view).confirmed = None;
    working
}

/// Whether a target that a process owned when it asked is somebody else's now, or nobody's. With a newer epoch of its own it has taken the
/// target once more since it asked: it takes only what it does not serve. What it has given back since then (`owned_now`) is not lost.
fn is_lost(owned: Epoch, answer: &Ownership, me: &TargetOwner, owned_now: Option<Epoch>) -> bool {
    owned_now == Some(owned) && answer.owner.as_ref().is_none_or(|owner| owner.server != me.server)
}

/// From when on an owner that was confirmed last at that time writes nothing more unheard.
fn lease_end(silence: Silence, confirmed: Time) -> Option<Time> {
    // Before the first answer it owns nothing.
    (silence == Silence::HoldsBack && confirmed != Time::default()).then(|| confirmed.after(LEASE))
}

/// Whether nothing has been written for so long without a break. `since`: from when on.
fn is_held_for_long(since: &mut Option<Time>, is_held: bool, now: Time) -> bool {
    *since = since.or(Some(now)).filter(|_| is_held);
    since.is_some_and(|since| now.since(since) >= HELD_MAX)
}

/// Until the keeper is asked again.
fn pause_after(is_heard: bool, silence: Silence) -> Duration {
    match silence {
        Silence::HoldsBack if !is_heard => SILENT_INTERVAL,
        Silence::HoldsBack | Silence::ServesOn => KEEP_INTERVAL,
    }
}

/// Whether both run, or ran, on one machine. Machines of one image may have one name, and an address may have been another machine's before:
/// to be wrong about that is to leave a writer unfenced.
fn is_of_host(owner: &TargetOwner, me: &TargetOwner) -> bool {
    let host = |nid: &str| nid.rsplit_once(':').map_or(nid, |(host, _)| host).to_owned();
    owner.host == me.host && host(&owner.nid) == host(&me.nid)
}

fn describe(owner: &TargetOwner) -> String {
    format!("{} (process {} on {})", nid::format_nid(&owner.nid), owner.pid, owner.host)
}

fn now() -> Time {
    net::clock::now().time
}

#[cfg(test)]
mod tests;
