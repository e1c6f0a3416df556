//! The targets of this process: each a machine on its stores, with an owner.

mod barrier;
mod door;
mod fetcher;
mod mgs_rows;
mod peers;
mod perform;
mod prober;

use crate::cluster::Identity;
use crate::control::{self, RecoveryStatus};
use crate::memory;
use crate::params;
use crate::status;
use crate::target_dir::{NotWritten, TargetDir};
use anyhow::{Context, Result, anyhow};
use barrier::Barrier;
use base::limits::RECOVERY_WINDOW;
use base::{ClientId, ClusterConfig, Duration, Endpoint, Epoch, Machine, Start, TargetId, TargetKind, Time};
use door::Door;
use fetcher::Fetcher;
use mds::{Mds, MdsOptions};
use mgs::{Mgs, MgsOptions};
pub use mgs_rows::{InEtcd, MgsRows, Trouble};
use net::{Lateness, Owner, OwnerOptions, Port, Router, Timer};
use oss::{Oss, OssOptions};
use perform::perform;
use prober::Prober;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;
use store::{MetaStore, ObjectStore, OnDurable, StoreError};
use store_disk::{
    DirectoryError, HoldingsFile, MetaDisk, ObjectDisk, ObjectOpenError, ObjectOptions, OpenError, Options,
};
use target::{Core, Missing, Word};
use wire::{Frame, Life};

/// Callers of the management server hold nothing there, and register again when it has forgotten them: it need not wait
/// for processes that may be gone for ever.
const MGS_RECOVERY_WINDOW: Duration = Duration::from_millis(200);

/// Between two looks whether the start of a target is durable.
const BEGUN_INTERVAL: std::time::Duration = std::time::Duration::from_micros(500);
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(1);
const BEGUN_WAIT: std::time::Duration = std::time::Duration::from_secs(2);
/// How long a target that starts waits for the management server to say whether it is the newest copy.
const WORD_WAIT: Duration = Duration::from_millis(500);

pub type MgsOwner = Arc<Owner<Mgs<MgsRows>>>;
pub type MdsOwner = Arc<Owner<Mds<MetaDisk>>>;
pub type OssOwner = Arc<Owner<Oss<MetaDisk, ObjectDisk>>>;

/// One target that runs here.
pub struct Target {
    pub id: TargetId,
    pub fsname: String,
    pub path: PathBuf,
    /// Which incarnation of the target this is.
    pub epoch: Epoch,
    pub served: Served,
    meta: Arc<dyn MetaStore>,
    /// The same, where they are on a disk.
    disk: Option<Arc<MetaDisk>>,
    objects: Option<Arc<ObjectDisk>>,
    fetcher: Option<Arc<Fetcher>>,
    is_fenced: Arc<AtomicBool>,
    /// Who comes to it.
    door: Arc<dyn Port>,
    barrier: Arc<Barrier>,
    /// What it says of itself to others: its last starts, this one the last.
    starts: Vec<Start>,
    trouble: Trouble,
    router: Arc<Router>,
    _dir: TargetDir,
}

/// The targets of a process: a place for each directory that it was started for. In a server with failover some are filled later, when
/// it takes over; none is ever emptied.
#[derive(Default)]
pub struct Targets {
    places: Vec<OnceLock<Target>>,
    refused: Vec<Refused>,
}

/// A target that could not be served at the start of its process, while others are.
pub struct Refused {
    /// Of the target, or of the directory if that does not say which target it is.
    pub name: String,
    pub fsname: String,
    pub path: PathBuf,
    /// In one line.
    pub why: String,
}

impl Targets {
    pub fn awaited(count: usize, refused: Vec<Refused>) -> Targets {
        Targets { places: std::iter::repeat_with(OnceLock::new).take(count).collect(), refused }
    }

    pub fn started(targets: Vec<Target>, refused: Vec<Refused>) -> Targets {
        Targets { places: targets.into_iter().map(OnceLock::from).collect(), refused }
    }

    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    pub fn fill(&self, index: usize, target: Target) {
        let place = self.places.get(index);
        assert!(place.is_some_and(|place| place.set(target).is_ok()), "a place is filled once");
    }

    /// True for a process that never serves any.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Those that are served.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Target> {
        self.places.iter().filter_map(OnceLock::get)
    }
}

/// The machine of a target.
pub enum Served {
    Mgs(MgsOwner),
    Mds(MdsOwner),
    Oss(OssOwner),
}

/// Calls the machine's owner when a store has made more durable. The store is opened before the machine that uses it,
/// and the machine before its owner, so the call is filled in last.
#[derive(Default)]
struct DurableHook {
    call: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl DurableHook {
    fn notice(self: &Arc<DurableHook>) -> OnDurable {
        let hook = Arc::clone(self);
        Arc::new(move || {
            if let Some(call) = hook.call.get() {
                call();
            }
        })
    }

    /// What became durable before this is told now.
    fn fill(&self, call: impl Fn() + Send + Sync + 'static) {
        assert!(self.call.set(Box::new(call)).is_ok(), "the call is filled in once");
        // Not before: what comes in between would be told to nobody.
        if let Some(call) = self.call.get() {
            call();
        }
    }
}

/// What the targets of a process share.
pub struct Shared<'a> {
    pub router: &'a Arc<Router>,
    pub timer: &'a Arc<Timer>,
    /// What others see of this process.
    pub nid: &'a str,
    pub no_sync: bool,
}

/// Opens the stores of a target and serves it. `in_etcd`: where the rows of a management server are, if not in its directory.
///
/// # Errors
/// The stores cannot be opened, or what they hold is damaged.
pub fn start(dir: TargetDir, shared: &Shared<'_>, in_etcd: Option<InEtcd>) -> Result<Target> {
    let name = dir.id.to_string();
    let cannot = || format!("cannot serve {name} from {}", dir.path.display());
    if let (None, Some(lost)) = (&in_etcd, dir.lost_store()) {
        return Err(anyhow!("{} is missing, and this target was served: {LOST}", lost.display()))
            .with_context(cannot);
    }
    let hook = Arc::new(DurableHook::default());
    let open = || open_meta(&dir, shared.no_sync, hook.notice());
    let now = net::clock::now();
    let device = device_number(&dir.path).with_context(cannot)?;
    let (trouble, barrier) = (Trouble::default(), Arc::new(Barrier::new(dir.id, &dir.path)));
    let (mut disk, mut objects, mut fetching) = (None, None, None);
    let (epoch, starts);
    let meta: Arc<dyn MetaStore>;
    let served = match dir.id.kind {
        TargetKind::Mgt => {
            let active_until = in_etcd.as_ref().map(|in_etcd| in_etcd.active_until);
            let rows = MgsRows::open(&dir, in_etcd, open, hook.notice(), &trouble).with_context(cannot)?;
            let rows = Arc::new(rows);
            meta = Arc::clone(&rows) as Arc<dyn MetaStore>;
            disk = rows.disk().cloned();
            let uuid = rows.uuid().unwrap_or(dir.uuid);
            let options = MgsOptions { uuid, now, recovery_window: MGS_RECOVERY_WINDOW, active_until };
            if let Some(disk) = &disk {
                dir.set_served(disk).with_context(cannot)?;
            }
            let machine = Mgs::open(rows, options).with_context(cannot)?;
            epoch = machine.core().epoch();
            starts = machine.core().lineage().starts().to_vec();
            let prober = Arc::new(Prober::default());
            let asking = Arc::clone(&prober);
            let perform = perform(&dir, shared, &barrier);
            let perform = move |output| match output {
                mgs::Output::Probe(probe) => asking.start(probe),
                output => perform(output),
            };
            let owner = own(machine, shared, || mgs::Input::Tick, mgs::Input::Frame, perform);
            prober.fill(&owner);
            Served::Mgs(owner)
        }
        TargetKind::Mdt => {
            let rows = Arc::clone(disk.insert(Arc::new(open().with_context(cannot)?)));
            meta = Arc::clone(&rows) as Arc<dyn MetaStore>;
            let options = MdsOptions {
                index: dir.id.index,
                uuid: dir.uuid,
                fsname: dir.fsname.clone(),
                nid: shared.nid.to_owned(),
                now,
                device,
                recovery_window: RECOVERY_WINDOW,
                root_owner: crate::sys::owner(),
            };
            let holdings = Box::new(HoldingsFile::new(held_path(&dir).with_context(cannot)?, dir.uuid));
            dir.set_served(&rows).with_context(cannot)?;
            let mut machine = Mds::open_with(rows, holdings, options).with_context(cannot)?;
            machine.await_word();
            epoch = machine.core().epoch();
            starts = machine.core().lineage().starts().to_vec();
            let perform = perform(&dir, shared, &barrier);
            Served::Mds(own(machine, shared, || mds::Input::Tick, mds::Input::Frame, perform))
        }
        TargetKind::Ost => {
            let rows = Arc::clone(disk.insert(Arc::new(open().with_context(cannot)?)));
            meta = Arc::clone(&rows) as Arc<dyn MetaStore>;
            let options = ObjectOptions {
                heard_directory: Some(heard_dir()),
                no_sync: shared.no_sync,
                ..ObjectOptions::default()
            };
            let data = ObjectDisk::open(&dir.objects_path(), &options, hook.notice()).with_context(cannot)?;
            let data = Arc::clone(objects.insert(Arc::new(data)));
            let options = OssOptions::new(dir.id.index, dir.uuid, &dir.fsname, device, now);
            let holdings = Box::new(HoldingsFile::new(held_path(&dir).with_context(cannot)?, dir.uuid));
            dir.set_served(&rows).with_context(cannot)?;
            let fetcher = Arc::clone(fetching.insert(Fetcher::new(Arc::clone(&data))));
            let mut machine = Oss::open_with(rows, data, holdings, options).with_context(cannot)?;
            machine.await_word();
            epoch = machine.core().epoch();
            starts = machine.core().lineage().starts().to_vec();
            let perform = perform(&dir, shared, &barrier);
            let starting = Arc::clone(&fetcher);
            let perform = move |output| match output {
                oss::Output::Fetch { id, object, extent } => starting.start(id, object, extent),
                output => perform(output),
            };
            let owner = own(machine, shared, || oss::Input::Tick, oss::Input::Frame, perform);
            fetcher.fill(&owner);
            Served::Oss(owner)
        }
    };
    let machine: Arc<dyn Port> = match &served {
        Served::Mgs(owner) => owner.clone(),
        Served::Mds(owner) => owner.clone(),
        Served::Oss(owner) => owner.clone(),
    };
    let router = Arc::clone(shared.router);
    let door = Arc::new(Door { machine, uuid: dir.uuid, router: Arc::clone(&router) });
    let mut target = Target {
        id: dir.id,
        fsname: dir.fsname.clone(),
        path: dir.path.clone(),
        epoch,
        served,
        meta,
        disk,
        objects,
        fetcher: fetching,
        is_fenced: Arc::default(),
        door,
        barrier,
        starts,
        trouble,
        router,
        _dir: dir,
    };
    target.fill_hook(&hook);
    target.wait_begun()?;
    target.open();
    tracing::info!(target = %target.id, dir = %target.path.display(), "serving");
    Ok(target)
}

/// Whether a target that could not be opened may have left something behind that its device failed to keep, and the kernel of this machine
/// writes some time. Not what is damaged, or cannot be read, made or found room for: of that nothing is left, and it is no better for
/// fencing this process with its other targets.
pub fn may_be_unkept(error: &anyhow::Error) -> bool {
    let is_of_change = |error: &(dyn std::error::Error + 'static)| {
        let of_line = error.downcast_ref::<NotWritten>().map(|error| &error.source);
        let of_directory = match error.downcast_ref::<DirectoryError>() {
            Some(DirectoryError::Io { source, .. }) => Some(source),
            _ => of_line,
        };
        of_directory.is_some_and(store_disk::may_be_unkept)
            || error.downcast_ref::<OpenError>().is_some_and(OpenError::is_unkept)
            || error.downcast_ref::<ObjectOpenError>().is_some_and(ObjectOpenError::is_unkept)
            || error.downcast_ref::<StoreError>().is_some_and(StoreError::is_fence)
            || error.is::<NotKept>()
    };
    error.chain().any(is_of_change)
}

#[derive(Debug, thiserror::Error)]
#[error("the device under {} failed to keep that {id} was started", path.display())]
struct NotKept {
    path: PathBuf,
    id: TargetId,
}

/// What helps a target without its stores.
const LOST: &str = "is its disk mounted? Otherwise restore this target from its mirror or backup";

/// What helps a target whose rows are damaged.
pub const RESTORE: &str = "end its process, look at it with `sheen fsck`, restore this target from its mirror or backup, and serve it again";

fn damage_of(disk: Option<&MetaDisk>) -> Option<String> {
    Some(disk?.damage()?.to_string())
}

fn open_meta(dir: &TargetDir, no_sync: bool, on_durable: OnDurable) -> Result<MetaDisk> {
    let cache_bytes = memory::metadata_cache_bytes(dir.id.kind);
    let data_table = (dir.id.kind == TargetKind::Mdt).then_some(mds::rows::DATA);
    let mut options = Options { cache_bytes, data_table, ..Options::default() };
    options.no_sync |= no_sync;
    let path = dir.meta_path();
    std::fs::create_dir_all(&path)?;
    Ok(MetaDisk::open_or_create(&path, &options, on_durable)?)
}

/// Where it is noted what clients hold at a target: in the run directory, which is memory where it should be. Without one every client
/// is waited for. A copy of a target has a note of its own: it may be opened while the original is served from the same machine.
fn held_path(target: &TargetDir) -> Result<PathBuf> {
    let dir = control::run_dir().join("held");
    let made = control::make_run_dir()
        .and_then(|_| Ok(std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?));
    if let Err(error) = made {
        tracing::info!("what clients hold is not noted: {error:#}");
    }
    let place = std::fs::metadata(&target.path)?;
    Ok(dir.join(format!("{:032x}-{:x}-{:x}", target.uuid, place.dev(), place.ino())))
}

/// Where stores tell each other of errors of write-back.
pub fn heard_dir() -> PathBuf {
    if let Err(error) = control::make_run_dir() {
        tracing::info!("what is heard of devices is not noted: {error:#}");
    }
    control::run_dir().join("heard")
}

/// One number for the local file system under a target, different on every machine.
fn device_number(path: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    // That of a running kernel and not /etc/machine-id, which all nodes of one image may have: a full OST of one would close the others'. Without
    // it, machines are told apart by their device numbers alone.
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().hash(&mut hasher);
    std::fs::metadata(path)?.dev().hash(&mut hasher);
    Ok(hasher.finish())
}

fn own<M>(
    machine: M,
    shared: &Shared<'_>,
    tick: fn() -> M::Input,
    frame: fn(Frame) -> M::Input,
    perform: impl Fn(M::Output) + Send + Sync + 'static,
) -> Arc<Owner<M>>
where
    M: Machine + Send + 'static,
    M::Input: Send + 'static,
    M::Output: Send + 'static,
{
    let options = OwnerOptions {
        tick,
        frame,
        perform: Box::new(perform),
        timer: Arc::clone(shared.timer),
        lateness: Some(Lateness::OF_SERVERS),
    };
    Owner::new(machine, options)
}

impl Target {
    fn fill_hook(&self, hook: &DurableHook) {
        let (id, path) = (self.id, self.path.clone());
        let (meta, objects, is_fenced) =
            (Arc::clone(&self.meta), self.objects.clone(), Arc::clone(&self.is_fenced));
        let disk = self.disk.clone();
        let fence = move || {
            let is_poisoned =
                meta.pressure().poisoned || objects.as_ref().is_some_and(|objects| objects.is_poisoned());
            if !is_poisoned || is_fenced.swap(true, Ordering::AcqRel) {
                return;
            }
            if let Some(damage) = damage_of(disk.as_deref()) {
                tracing::error!(target = %id, "{damage}: nothing of this target is served any more; {RESTORE}");
            } else {
                tracing::error!(
                    target = %id,
                    "the device under {} failed to keep data: this target is fenced; end its process, bring the storage back, and serve it again",
                    path.display()
                );
            }
        };
        match &self.served {
            Served::Mgs(owner) => {
                let owner = Arc::clone(owner);
                hook.fill(move || {
                    fence();
                    owner.post(mgs::Input::Durable);
                });
            }
            Served::Mds(owner) => {
                let owner = Arc::clone(owner);
                hook.fill(move || {
                    fence();
                    owner.post(mds::Input::Durable);
                });
            }
            Served::Oss(owner) => {
                let owner = Arc::clone(owner);
                hook.fill(move || {
                    fence();
                    owner.post(oss::Input::Durable);
                });
            }
        }
    }

    /// The lease of this management server holds until then.
    pub fn set_active_until(&self, until: Time) {
        if let Served::Mgs(owner) = &self.served {
            owner.submit(mgs::Input::ActiveUntil(until));
        }
    }

    /// What was found wrong with its rows while it was served, and what to do about it.
    pub fn damage(&self) -> Option<String> {
        damage_of(self.disk.as_deref())
    }

    /// Its device has failed, or its rows are damaged. Asks the machine nothing, which may stand still in a write.
    pub fn has_failed(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }

    /// A device failed to keep something of it, also when it was closed. Damaged rows are no such failure: nothing is under way there.
    pub fn is_unkept(&self) -> bool {
        self.objects.as_ref().is_some_and(|objects| objects.is_poisoned())
            || (self.meta.pressure().poisoned && self.damage().is_none())
    }

    /// What an operator should do something about while it is served.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For operators: `active`, `recovering`, `held` or `failed`.
    pub fn state(&self) -> &'static str {
        if self.has_failed() {
            return status::FENCED;
        }
        let is_recovering = match &self.served {
            Served::Mgs(owner) => look(owner, |machine| is_recovering(machine.core())),
            Served::Mds(owner) => look(owner, |machine| is_recovering(machine.core())),
            Served::Oss(owner) => look(owner, |machine| is_recovering(machine.core())),
        };
        match is_recovering {
            None => status::HELD,
            Some(true) => "recovering",
            Some(false) => status::ACTIVE,
        }
    }

    /// The recovery under way, if somebody is waited for.
    pub fn recovery(&self) -> Option<RecoveryStatus> {
        match &self.served {
            Served::Mgs(_) => None,
            Served::Mds(owner) => look(owner, |machine| recovery_of(machine.core())).flatten(),
            Served::Oss(owner) => look(owner, |machine| recovery_of(machine.core())).flatten(),
        }
    }

    /// Whoever is waited for is given up.
    pub fn abort_recovery(&self) {
        match &self.served {
            Served::Mgs(_) => {}
            Served::Mds(owner) => owner.submit(mds::Input::AbortRecovery),
            Served::Oss(owner) => owner.submit(oss::Input::AbortRecovery),
        }
    }

    /// Only metadata targets call others.
    /// `is_aside`: not on the thread of the caller, which must not stand still with the target.
    pub fn set_config(&self, config: &ClusterConfig, is_aside: bool) {
        if let Served::Mds(owner) = &self.served {
            let tell = |input| if is_aside { owner.post(input) } else { owner.submit(input) };
            // First, so that nothing new goes to a target that is drained and new at the same time.
            let [osts, mdts] = [TargetKind::Ost, TargetKind::Mdt].map(|kind| params::no_create(config, kind));
            tell(mds::Input::NoCreate { osts, mdts });
            tell(mds::Input::Config(config.clone()));
        }
    }

    /// By which the configuration knows it.
    pub fn uuid(&self) -> u128 {
        self._dir.uuid
    }

    /// Its last starts, this one the last.
    pub fn starts(&self) -> &[Start] {
        &self.starts
    }

    /// Others hear of this start when it is durable, so that none of another time has its epoch. Not for ever: where its device stands
    /// still the other targets of this process go on, and this one says nothing of its starts.
    fn wait_begun(&mut self) -> Result<()> {
        let (up_to, since) = (self.meta.applied(), Instant::now());
        while self.meta.durable() < up_to {
            if self.meta.pressure().poisoned {
                return Err(self.not_kept());
            }
            if since.elapsed() >= BEGUN_WAIT {
                tracing::warn!(target = %self.id, dir = %self.path.display(), "its device is slow to keep that it was started");
                self.starts.clear();
                break;
            }
            std::thread::sleep(BEGUN_INTERVAL);
        }
        Ok(())
    }

    fn not_kept(&self) -> anyhow::Error {
        NotKept { path: self.path.clone(), id: self.id }.into()
    }

    /// Closes one that nobody has been served by.
    ///
    /// # Errors
    /// Its device failed to keep that it was started.
    pub fn close_unserved(&self) -> Result<()> {
        self.leave();
        self.close();
        if self.is_unkept() { Err(self.not_kept()) } else { Ok(()) }
    }

    /// The management server is asked whether this is the newest copy: it has some time to answer, and then whoever comes is served.
    pub fn await_word(&self) {
        self.tell(Word::AskedUntil(net::clock::now().time.after(WORD_WAIT)));
    }

    /// What is known of this start. The management server's own is followed, whatever others know.
    pub fn tell(&self, word: Word) {
        if let Word::Outdated { by, known } = word {
            self.barrier.set_outdated(by, known);
        }
        match &self.served {
            Served::Mgs(_) => {}
            Served::Mds(owner) => owner.post(mds::Input::Word(word)),
            Served::Oss(owner) => owner.post(oss::Input::Word(word)),
        }
    }

    /// That it is an older copy, and what to do.
    pub fn outdated(&self) -> Option<&str> {
        self.barrier.outdated()
    }

    /// The connection to another target has ended.
    pub fn on_connection_lost(&self, lost: TargetId) {
        if let Served::Mds(owner) = &self.served {
            owner.submit(mds::Input::ConnectionLost(lost));
        }
    }

    /// Another target has just started. Not on the thread of the caller, which reads what the management server says and must not stand still
    /// with the target.
    pub fn on_target_started(&self, started: TargetId, epoch: Epoch) {
        if let Served::Mds(owner) = &self.served {
            owner.post(mds::Input::TargetStarted(started, epoch));
        }
    }

    /// The process of a client of this machine has ended. (The management server waits for nobody anyway.)
    pub fn on_departed(&self, departed: Identity) {
        let (client, incarnation) = (ClientId(departed.client), departed.incarnation);
        match &self.served {
            Served::Mgs(_) => {}
            Served::Mds(owner) => owner.submit(mds::Input::Departed { client, incarnation }),
            Served::Oss(owner) => owner.submit(oss::Input::Departed { client, incarnation }),
        }
    }

    /// Who is waited for, in a recovery or for locks, and has not been heard. (The management server waits for nobody.)
    pub fn unheard(&self) -> Vec<Life> {
        let now = net::clock::now().time;
        match &self.served {
            Served::Mgs(_) => Vec::new(),
            Served::Mds(owner) => look(owner, |machine| machine.unheard(now)).unwrap_or_default(),
            Served::Oss(owner) => look(owner, |machine| machine.unheard(now)).unwrap_or_default(),
        }
    }

    /// The lease of one of them has ended.
    pub fn on_lapsed(&self, at: Time, life: Life) {
        match &self.served {
            Served::Mgs(_) => {}
            Served::Mds(owner) => owner.post(mds::Input::Lapsed { at, life }),
            Served::Oss(owner) => owner.post(oss::Input::Lapsed { at, life }),
        }
    }

    /// Other targets need not wait for this one from now on; whether it has anything to say to them, and may be able to. Not on the thread of
    /// the caller, which must not stand still with the target.
    pub fn say_goodbye(&self) -> bool {
        match &self.served {
            Served::Mds(owner) if !self.has_failed() && !self.barrier.is_closed() => {
                owner.post(mds::Input::Leave);
                true
            }
            Served::Mgs(_) | Served::Mds(_) | Served::Oss(_) => false,
        }
    }

    /// Those who answer have heard that. False also while the machine is busy.
    pub fn has_said_goodbye(&self) -> bool {
        match &self.served {
            Served::Mds(owner) => owner.try_with(|machine| machine.has_left()).unwrap_or(false),
            Served::Mgs(_) | Served::Oss(_) => true,
        }
    }

    /// Whoever comes is served, and whom it calls hears it.
    pub fn open(&self) {
        self.barrier.set_elsewhere(false);
        if self.barrier.is_closed() {
            return;
        }
        self.router.add_local(Endpoint::Target(self.id), Arc::clone(&self.door));
    }

    /// Another process serves it: here it is as if it were not served at all.
    pub fn bar(&self) {
        self.barrier.set_elsewhere(true);
        self.leave();
    }

    /// Takes no more requests.
    pub fn leave(&self) {
        self.router.remove_local(Endpoint::Target(self.id));
    }

    /// Makes everything durable. It has left.
    pub fn close(&self) {
        if let Some(fetcher) = &self.fetcher {
            fetcher.stop();
        }
        if let Some(objects) = &self.objects {
            objects.close();
        }
        self.meta.close();
    }
}

/// Looks at a machine. `None` while nothing is written: who waits with a change has its machine.
fn look<M, R>(owner: &Owner<M>, mut look: impl FnMut(&mut M) -> R) -> Option<R>
where
    M: Machine + Send + 'static,
    M::Input: Send + 'static,
    M::Output: Send + 'static,
{
    if !store_disk::may_be_held() {
        return Some(owner.with(look));
    }
    while !store_disk::is_held() {
        let found = owner.try_with(&mut look);
        if found.is_some() {
            return found;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    None
}

/// One that has nobody to wait for and serves nothing yet waits for the management server's word.
fn is_recovering<M: MetaStore>(core: &Core<M>) -> bool {
    core.is_recovering() && (core.is_open() || !core.missing().is_empty())
}

fn recovery_of<M: MetaStore>(core: &Core<M>) -> Option<RecoveryStatus> {
    let name = |missing: Missing<'_>| match missing.client.endpoint() {
        Endpoint::Target(target) => target.to_string(),
        Endpoint::Client(client) => format!("{client}@{}", missing.nid),
    };
    let missing: Vec<String> = core.missing().into_iter().map(name).collect();
    if !core.is_recovering() || missing.is_empty() {
        return None;
    }
    let report = core.recovery_report(net::clock::now().time);
    Some(RecoveryStatus {
        seconds_left: report.time_left.as_secs(),
        client_count: report.awaited_count,
        done_count: report.completed_count,
        missing,
        unheard: core.awaited_targets().map(|target| target.to_string()).collect(),
    })
}
