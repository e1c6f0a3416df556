//! The end of a mount: what is waited for, what is given up, and who keeps it.

use super::unsaved::{Patience, Silence, Unsaved, Watch, once_more};
use super::{FINISH_TIMEOUT, Mount, begin, lock};
use crate::control::{Leave, Say};
use crate::{in_use, mount_table};
use anyhow::{Context, Result, bail};
use client::{Call, Input};
use fuse::Session;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// For closes and sessions at the end, when everything is durable; and for them when some server has been given up before.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
const DRAIN_PATIENCE_GIVEN_UP: Duration = Duration::from_millis(500);
/// How often a sync looks whether the servers answer.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// How often somebody who waits is told why. Well below the time after which a silent process counts as hanging.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);
/// A mount that is busy, by nobody who can be found, is tried again for so long and so often.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Who takes a mount off its path by itself has given up after this: it tries for `BUSY_PATIENCE`, and looks who uses it.
const ASKER_PATIENCE: Duration = Duration::from_secs(30);
/// A file system that lives for so long after it was unmounted is kept by somebody.
const KEPT_AFTER: Duration = Duration::from_millis(500);

/// A mount has ended, and servers did not get everything.
#[derive(Debug, thiserror::Error)]
#[error("{mount} is unmounted, and this is lost: {lost}")]
pub struct Lost {
    mount: String,
    lost: Unsaved,
}

impl Mount {
    /// Makes everything durable that was done through this mount. Waits for as long as the servers answer, however slow their
    /// disks are. What was lost before is said, and keeps nobody from leaving: it is told once.
    ///
    /// # Errors
    /// A target fails, or has been silent for too long (`Silence`).
    pub fn sync(&self, patience: Patience, say: &Say<'_>) -> Result<()> {
        self.sync_under(&mut Watch::new(patience, net::clock::now().time), say)
    }

    fn sync_under(&self, watch: &mut Watch, say: &Say<'_>) -> Result<()> {
        once_more(
            watch,
            || self.is_destroyed(),
            say,
            |watch| {
                let answer = begin(&self.owner, &self.shared, Call::SyncAll);
                let synced = self.wait_heard(&answer, watch, say)?;
                let synced =
                    synced.with_context(|| format!("the mount {} has ended", self.path.display()))?;
                let failed = synced.err().map(io::Error::from_raw_os_error);
                failed.map_or(Ok(()), |error| Err(error).context(format!("sync of {}", self.path.display())))
            },
        )
    }

    /// What comes, for as long as the servers are heard; `None` when it will not come.
    ///
    /// # Errors
    /// They have been silent for too long.
    fn wait_heard<T>(
        &self,
        answer: &Receiver<T>,
        watch: &mut Watch,
        say: &Say<'_>,
    ) -> Result<Option<T>, Silence> {
        let (start, mut notes_after) = (Instant::now(), NOTE_INTERVAL);
        loop {
            match answer.recv_timeout(SYNC_INTERVAL) {
                Ok(answer) => return Ok(Some(answer)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let targets = self.with_client(|client| watch.given_up(client, net::clock::now().time));
            if !targets.is_empty() {
                return Err(Silence { targets, mount: self.path.display().to_string() });
            }
            if start.elapsed() > notes_after {
                notes_after += NOTE_INTERVAL;
                let broken = self.with_client(|client| Watch::broken(client));
                let who = if broken.is_empty() { "the servers' disks".to_owned() } else { broken.join(" ") };
                let seconds = start.elapsed().as_secs();
                say(&format!("waiting {seconds} s for {who} to make {} durable", self.path.display()));
            }
        }
    }

    /// As `unmount`, at the end of a whole cluster: what is lost then is no error where that was accepted beforehand, but said.
    ///
    /// # Errors
    /// As `unmount`.
    pub fn unmount_with_cluster(&self, leave: Leave, patience: Patience, say: &Say<'_>) -> Result<()> {
        match self.unmount(leave, patience, say) {
            Err(error) if leave == Leave::Cut && error.is::<Lost>() => {
                say(&error.to_string());
                Ok(())
            }
            other => other,
        }
    }

    /// Makes everything durable, unmounts and, unless others keep it, waits until all is finished. Servers that have been silent for
    /// too long are not waited for: that is no error while nothing is missing there.
    ///
    /// # Errors
    /// It is in use, or servers that have not got everything are silent, and `leave` does not accept that; nothing has changed then.
    /// Or it is unmounted, and something of it is lost (`Lost`).
    pub fn unmount(&self, leave: Leave, patience: Patience, say: &Say<'_>) -> Result<()> {
        self.unmount_by(leave, patience, say, None)
    }

    /// As `unmount` with `Leave::Unmount`, for somebody who takes the mount off its path when `may_detach` has told him to.
    ///
    /// # Errors
    /// As `unmount`, or he has not done so.
    pub fn unmount_by_asker(&self, patience: Patience, say: &Say<'_>, may_detach: &dyn Fn()) -> Result<()> {
        self.unmount_by(Leave::Unmount, patience, say, Some(may_detach))
    }

    fn unmount_by(
        &self,
        leave: Leave,
        patience: Patience,
        say: &Say<'_>,
        may_detach: Option<&dyn Fn()>,
    ) -> Result<()> {
        // Somebody else has unmounted it: what is on the path now, if anything, is not ours.
        if self.is_destroyed() {
            return self.wait_ended();
        }
        self.is_given_up.store(false, Ordering::Release);
        let device = self.device();
        let mut is_durable = true;
        match leave {
            // What hangs must be out of the way at once.
            Leave::Detach => {
                self.detach(leave, &device)?;
                if let Err(error) = self.sync(patience, say) {
                    self.is_given_up.store(error.is::<Silence>(), Ordering::Release);
                    let missing = self.with_client(|client| Unsaved::of(client));
                    let missing = missing.map(|missing| format!("; not there: {missing}"));
                    say(&format!("{error:#}; detached all the same{}", missing.unwrap_or_default()));
                }
            }
            Leave::Cut => {
                if let Err(error) = self.flush(patience, say) {
                    self.is_given_up.store(error.is::<Silence>(), Ordering::Release);
                    say(&format!("{error:#}; going on all the same"));
                    is_durable = false;
                }
                self.detach(leave, &device)?;
            }
            Leave::Unmount | Leave::Stop => {
                if leave == Leave::Stop {
                    self.check_unused(&device)?;
                }
                if let Err(error) = self.sync(patience, say) {
                    // Another unmount was faster, perhaps one whose caller was killed.
                    if self.is_destroyed() {
                        return self.wait_ended();
                    }
                    self.check_nothing_missing(error, say)?;
                    self.is_given_up.store(true, Ordering::Release);
                }
                match may_detach {
                    Some(may_detach) => {
                        may_detach();
                        self.wait_detached()?;
                    }
                    None => self.detach(leave, &device)?,
                }
            }
        }
        if self.is_kept() {
            match leave {
                Leave::Detach => return Ok(()),
                Leave::Unmount => {
                    if let Some(copies) = in_use::named(&in_use::copies(&device)) {
                        let path = self.path.display();
                        say(&format!(
                            "{path} is still mounted {copies}; its client lives until that is gone"
                        ));
                    }
                    return Ok(());
                }
                Leave::Stop | Leave::Cut => self.cut_off(leave, &device, is_durable, say),
            }
        }
        self.wait_ended()
    }

    /// After a sync that has failed: it can be done without when only servers were silent that have got everything.
    ///
    /// # Errors
    /// Something is missing there, or it was another failure.
    fn check_nothing_missing(&self, error: anyhow::Error, say: &Say<'_>) -> Result<()> {
        let silence = error.downcast::<Silence>()?;
        let path = self.path.display();
        if let Some(missing) = self.with_client(|client| Unsaved::of(client)) {
            return Err(silence).context(format!(
                "{path} stays mounted, for servers have not got everything: {missing}; unmount it when they are back, or give that up with --force"
            ));
        }
        // Nor is anything in the kernel that it would have to write first: it writes what was changed through a mapping when that ends, and
        // a mount with mappings is in use.
        say(&format!("{silence}; nothing of {path} is missing there"));
        Ok(())
    }

    /// As `sync`, and what programs have changed through mappings, of which nobody has told us.
    fn flush(&self, patience: Patience, say: &Say<'_>) -> Result<()> {
        let watch = &mut Watch::new(patience, net::clock::now().time);
        self.sync_under(watch, say)?;
        match self.wait_heard(&self.write_pages(), watch, say)? {
            Some(Ok(())) => self.sync_under(watch, say),
            Some(Err(error)) => Err(error).with_context(|| format!("cannot flush {}", self.path.display())),
            None => bail!("what was changed through mappings of {} is not written", self.path.display()),
        }
    }

    /// Has the kernel write what programs have changed through mappings.
    fn write_pages(&self) -> Receiver<io::Result<()>> {
        let (path, (sender, written)) = (self.path.clone(), mpsc::channel());
        // On a thread of its own: it ends with the connection at the latest. Without it nothing comes, which the receiver says.
        let _ = std::thread::Builder::new().name("write-pages".into()).spawn(move || {
            let _ = sender.send(crate::sys::write_pages(&path));
        });
        written
    }

    /// Whether it is gone from its path, for whoever sees our mount namespace. (Something else may be there.)
    pub fn is_detached(&self) -> bool {
        !mount_table::is_mounted_on(&self.path, &self.device())
    }

    /// # Errors
    /// Whoever was to take it off its path has given up.
    fn wait_detached(&self) -> Result<()> {
        let start = Instant::now();
        while !self.is_destroyed() && !self.is_detached() {
            if start.elapsed() > ASKER_PATIENCE {
                bail!("{} is still mounted: whoever was to unmount it has not", self.path.display());
            }
            std::thread::sleep(BUSY_RETRY_INTERVAL);
        }
        if let Some(session) = lock(&self.session).as_mut() {
            session.forget_mount_point();
        }
        Ok(())
    }

    fn is_destroyed(&self) -> bool {
        lock(&self.shared.on_destroyed).is_none()
    }

    fn wait_ended(&self) -> Result<()> {
        if self.shared.wait_for(FINISH_TIMEOUT, |progress| progress.is_ended) {
            let lost = lock(&self.shared.progress).lost.clone();
            return match lost {
                Some(lost) => bail!(Lost { mount: self.path.display().to_string(), lost }),
                None => Ok(()),
            };
        }
        bail!("{} is unmounted, but its client does not end; see its log", self.path.display())
    }

    /// As mount tables name it; empty when the kernel does not say.
    pub fn device(&self) -> String {
        let connection = lock(&self.session).as_ref().and_then(Session::connection);
        // An anonymous device: 20 bits of minor number below the major one.
        connection.map_or_else(String::new, |number| format!("{}:{}", number >> 20, number & 0xF_FFFF))
    }

    /// The kernel refuses only what is in use in our own mount namespace, and mounted there.
    fn check_unused(&self, device: &str) -> Result<()> {
        let is_detached = self.is_detached();
        let users = in_use::users(device).into_iter().filter(|user| user.is_elsewhere || is_detached);
        match in_use::named(&users.collect::<Vec<_>>()) {
            Some(users) => bail!("{}", self.in_use_line(Leave::Stop, &users)),
            None => Ok(()),
        }
    }

    fn in_use_line(&self, leave: Leave, by: &str) -> String {
        in_use_line(&self.path, by, Some(otherwise(leave)))
    }

    /// Takes the mount out of our mount namespace.
    fn detach(&self, leave: Leave, device: &str) -> Result<()> {
        let is_lazy = matches!(leave, Leave::Detach | Leave::Cut);
        detach(&self.path, device, Some(otherwise(leave)), || match lock(&self.session).as_mut() {
            Some(session) => session.unmount(is_lazy),
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        })
    }

    /// Whether somebody keeps the file system although it was taken out of here.
    fn is_kept(&self) -> bool {
        let start = Instant::now();
        let is_connected = || lock(&self.session).as_ref().is_some_and(Session::is_connected);
        while !self.is_destroyed() && is_connected() {
            // A path walk that was on its way holds it for a moment.
            if start.elapsed() > KEPT_AFTER {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Whoever still has it mounted or open gets ENOTCONN from now on.
    fn cut_off(&self, leave: Leave, device: &str, is_durable: bool, say: &Say<'_>) {
        let mut copies = in_use::copies(device);
        // What is below our own mount point was detached with it, and a mount of somebody else may be there by now.
        copies.retain(|copy| copy.elsewhere.is_some() || copy.path != self.path);
        let copied = in_use::named(&copies).map(|copies| format!("still mounted {copies}"));
        let users = if leave == Leave::Cut { in_use::users(device) } else { Vec::new() };
        let used = in_use::named(&users).map(|users| format!("in use by {users}"));
        let reasons: Vec<String> = copied.into_iter().chain(used).collect();
        if !reasons.is_empty() {
            let (path, reasons) = (self.path.display(), reasons.join(" and "));
            let state = if is_durable { "everything is durable, " } else { "" };
            say(&format!("{path} is {reasons}: {state}cutting it off"));
        }
        let still_connected = |session: &Session| session.abort().is_err() && session.is_connected();
        if lock(&self.session).as_ref().is_some_and(still_connected) {
            let path = self.path.display();
            say(&format!(
                "{path} cannot be cut off: mount fusectl on /sys/fs/fuse/connections, or end this process"
            ));
        }
    }

    /// After the kernel has let go: data are flushed, the sessions ended, the threads joined.
    pub(super) fn finish(&self) {
        let is_given_up = self.is_given_up.load(Ordering::Acquire);
        let patience = if is_given_up { DRAIN_PATIENCE_GIVEN_UP } else { DRAIN_PATIENCE };
        self.owner.submit(Input::Drain { patience });
        if self.shared.wait_for(FINISH_TIMEOUT, |progress| progress.is_drained) {
            self.claim.forget();
        } else {
            tracing::warn!(mount = %self.path.display(), "the servers did not answer at the end of the mount");
        }
        let lost = self.with_client(|client| Unsaved::of(client));
        if let Some(lost) = &lost {
            tracing::error!(mount = %self.path.display(), "lost at the end of the mount: {lost}");
        }
        self.shared.router.remove_local(self.endpoint);
        let session = lock(&self.session).take();
        if let Some(session) = session {
            session.leave();
        }
        self.shared.set_progress(|progress| {
            progress.lost = lost;
            progress.is_ended = true;
        });
        tracing::info!(mount = %self.path.display(), "unmounted");
    }
}

fn otherwise(leave: Leave) -> &'static str {
    match leave {
        Leave::Unmount => "detach it with --lazy",
        Leave::Stop | Leave::Cut | Leave::Detach => "cut it off with --force",
    }
}

fn in_use_line(path: &Path, by: &str, otherwise: Option<&str>) -> String {
    let otherwise = otherwise.map(|otherwise| format!(", or {otherwise}")).unwrap_or_default();
    format!("{} is in use by {by}; close what is open in it{otherwise}", path.display())
}

/// Has `unmount` take what is mounted off its path, again and again while somebody holds it who cannot be found. `otherwise`: what else whoever
/// asked can do.
///
/// # Errors
/// It is in use, something else is mounted over it, or the kernel has another reason.
pub fn detach(
    path: &Path,
    device: &str,
    otherwise: Option<&str>,
    mut unmount: impl FnMut() -> io::Result<()>,
) -> Result<()> {
    let start = Instant::now();
    loop {
        if !mount_table::is_mounted_on(path, device) {
            return Ok(());
        }
        if mount_table::mounted_on(path).is_some_and(|top| top.device != device) {
            bail!("something else is mounted over {}; unmount that first", path.display());
        }
        match unmount() {
            Ok(()) => {
                mount_table::forget_helper(path);
                return Ok(());
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let below = || {
                    let path = mount_table::mounted_below(path)?;
                    Some(format!("a mount on {}", path.display()))
                };
                let by = in_use::named(&in_use::users(device)).or_else(below);
                // A process that ends, or a path walk on its way, holds it for a moment.
                if by.is_none() && start.elapsed() < BUSY_PATIENCE {
                    std::thread::sleep(BUSY_RETRY_INTERVAL);
                    continue;
                }
                let by =
                    by.unwrap_or_else(|| "a process that cannot be looked at, or an NFS export".to_owned());
                bail!("{}", in_use_line(path, &by, otherwise))
            }
            // Somebody else was faster.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("cannot unmount {}", path.display())),
        }
    }
}
