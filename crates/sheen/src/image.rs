//! `sheen image`: trees on a mount from which diskless nodes boot.
//!
//! An image is a directory on SheenFS. Nodes mount it by its name, and what they have mounted then stays the same directory whatever
//! becomes of the name: so a new version is built beside the image and exchanged with it in one rename, for those that boot next. A
//! node that runs `hold` on its root has a shared flock(2) there, which ends with the node's client: no command takes away what is held.

mod copy;
mod detach;
mod follow;
mod left;
mod machine;
mod place;

use crate::say;
use crate::status;
use crate::sys;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use copy::Copied;
use place::{Image, Lock, Mark, Stored};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make an image
    Create(Create),
    /// Make an image equal to a directory: in place for all nodes at once, or as a new version
    Update(Update),
    /// List the images in a directory, with their older versions
    List(List),
    /// Remove an image, or one of its older versions, that no node holds
    Remove(Remove),
    /// Remove what commands have left behind that were broken off; nothing that a node holds
    Clean(Clean),
    /// On a node: keep the version that it runs from in use, and have overlays over it follow updates, until this process is ended
    Hold(Mounted),
    /// On a node that goes off: detach the image from everywhere but here, as a forced unmount of one place would end them all
    Detach(Mounted),
}

#[derive(Debug, Args)]
struct Create {
    /// The image, a directory that is not there yet: MOUNT/images/NAME
    #[arg(value_name = "DIR")]
    image: PathBuf,
    /// Copy this directory, the root of a machine
    #[arg(long, value_name = "SOURCE", required_unless_present = "debootstrap")]
    from: Option<PathBuf>,
    /// Let debootstrap make the root of this release of Debian
    #[arg(long, value_name = "SUITE", conflicts_with = "from")]
    debootstrap: Option<String>,
    /// Packages beyond debootstrap's smallest variant and an init, with commas between them
    #[arg(long, value_name = "PACKAGES", conflicts_with = "from")]
    include: Option<String>,
    /// Where debootstrap finds packages [default: its own]
    #[arg(long, value_name = "URL", conflicts_with = "from")]
    mirror: Option<String>,
}

#[derive(Debug, Args)]
struct Update {
    #[arg(value_name = "DIR")]
    image: PathBuf,
    /// What the image shall be equal to: what is not there goes
    #[arg(long, value_name = "SOURCE")]
    from: PathBuf,
    /// As a new version for nodes that boot from now on; those that run keep theirs
    #[arg(long)]
    staged: bool,
    /// Compare what files contain where size and time of change are the same
    #[arg(long, conflicts_with = "staged")]
    checksum: bool,
}

#[derive(Debug, Args)]
struct List {
    /// The directory of the images: MOUNT/images
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// For programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Remove {
    #[arg(value_name = "DIR")]
    image: PathBuf,
    /// Only this older version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

#[derive(Debug, Args)]
struct Clean {
    /// The directory of the images: MOUNT/images
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
struct Mounted {
    /// The root of a version, as the node has mounted it
    #[arg(value_name = "DIR")]
    root: PathBuf,
}

/// The command.
///
/// # Errors
/// What is wrong with an argument, in use, or cannot be read or written.
pub fn run(options: &Options) -> Result<()> {
    match &options.what {
        What::Create(arguments) => create(arguments),
        What::Update(arguments) => update(arguments),
        What::List(arguments) => list(arguments),
        What::Remove(arguments) => remove(arguments),
        What::Clean(arguments) => left::clean(&arguments.dir),
        What::Hold(arguments) => hold(arguments),
        What::Detach(arguments) => detach::detach(&arguments.root),
    }
}

fn create(arguments: &Create) -> Result<()> {
    let image = Image::at(&arguments.image)?;
    check_root()?;
    if image.current().symlink_metadata().is_ok() {
        bail!("{} is there already; sheen image update changes an image", image.current().display());
    }
    let made = arguments
        .debootstrap
        .as_deref()
        .map(|suite| copy::debootstrap(suite, arguments.include.as_deref(), arguments.mirror.as_deref()));
    let made = made.transpose()?;
    let source = made.as_ref().map_or(arguments.from.as_deref(), |made| Some(made.path()));
    let source = check_source(source.context("say what to copy: --from SOURCE")?, &image)?;
    let lock = image.lock()?;
    image.clean()?;
    let mark = build((&image, &lock), &source, image.next_version()?)?;
    lock.check()?;
    sys::rename(&image.building(), &image.current(), libc::RENAME_NOREPLACE)
        .with_context(|| format!("{} cannot get its name", image.current().display()))?;
    sync_name(&image)?;
    say::outcome(&made_line(&image, &mark, "is made"))
}

fn update(arguments: &Update) -> Result<()> {
    let image = Image::at(&arguments.image)?;
    check_root()?;
    image.mark()?;
    let source = check_source(&arguments.from, &image)?;
    let lock = image.lock()?;
    image.clean()?;
    // As it is now that nobody else changes it.
    let old = image.mark()?;
    match arguments.staged {
        true => stage((&image, &lock), &source, &old),
        false => in_place((&image, &lock), &source, &old, arguments.checksum),
    }
}

/// A new version beside the old one, which takes its name in one step.
fn stage((image, lock): (&Image, &Lock), source: &Path, old: &Mark) -> Result<()> {
    let mark = build((image, lock), source, old.version.saturating_add(1))?;
    lock.check()?;
    sys::rename(&image.building(), &image.current(), libc::RENAME_EXCHANGE)
        .with_context(|| format!("{} cannot be switched", image.current().display()))?;
    image.clean()?;
    sync_name(image)?;
    let line = format!("is switched; version {} stays until sheen image remove --version", old.version);
    say::outcome(&made_line(image, &mark, &line))
}

/// Nodes that boot after a crash of the servers find what the command has said that they will.
fn sync_name(image: &Image) -> Result<()> {
    status::sync(&image.current()).with_context(|| {
        format!("{} has got its name, which may not be durable yet", image.current().display())
    })
}

fn in_place((image, lock): (&Image, &Lock), source: &Path, old: &Mark, checksum: bool) -> Result<()> {
    let begun = Mark { is_changing: true, changing_seconds: 0, ..old.clone() };
    place::write_mark(&image.current(), &begun)?;
    let copied = thread::scope(|scope| {
        // Dropped when the copy has ended, also when it has failed.
        let (_copying, is_over) = mpsc::channel::<()>();
        scope.spawn(move || tell_that_it_goes_on((image, lock), begun, &is_over));
        copy::copy(source, &image.current(), (&image.name, &lock.file), checksum)
    });
    let copied = copied.with_context(|| {
        format!(
            "{} may be changed in part, no file of it torn; run the update again",
            image.current().display()
        )
    })?;
    let mark = mark_of(old.version.saturating_add(1), &copied);
    // All files first: until they are durable, a loss of power leaves an update that was broken off.
    status::sync(&image.current())?;
    lock.check()?;
    place::write_mark(&image.current(), &mark)?;
    status::sync(&image.current())?;
    say::outcome(&made_line(image, &mark, "is updated in place"))
}

/// Whenever an update in place has run for twice as long as it last said. Returns when the other end of the channel is dropped.
fn tell_that_it_goes_on((image, lock): (&Image, &Lock), mut mark: Mark, is_over: &mpsc::Receiver<()>) {
    let mut wait_seconds = 1;
    while is_over.recv_timeout(Duration::from_secs(wait_seconds)) == Err(mpsc::RecvTimeoutError::Timeout) {
        mark.changing_seconds += wait_seconds;
        wait_seconds = mark.changing_seconds;
        // Who does not hear it forgets less often.
        let _ = lock.check().and_then(|()| place::write_mark(&image.current(), &mark));
    }
}

/// Everything of a new version, durable, under the name that no node boots from. Nothing is left of it when it fails.
fn build((image, lock): (&Image, &Lock), source: &Path, version: u64) -> Result<Mark> {
    let target = image.building();
    let build = || -> Result<Mark> {
        fs::create_dir(&target).with_context(|| format!("cannot make {}", target.display()))?;
        let copied = copy::copy(source, &target, (&image.name, &lock.file), false)?;
        lock.check()?;
        let mark = mark_of(version, &copied);
        place::write_mark(&target, &mark)?;
        status::sync(&target)?;
        Ok(mark)
    };
    build().inspect_err(|_| {
        // Nobody boots from it, and the next command would remove it. Without the lock it is another command's by now.
        if lock.check().is_ok() {
            let _ = fs::remove_dir_all(&target);
        }
    })
}

fn mark_of(version: u64, copied: &Copied) -> Mark {
    let made_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (file_count, total_bytes) = (copied.file_count, copied.total_bytes);
    Mark { version, made_at, file_count, total_bytes, ..Mark::default() }
}

fn made_line(image: &Image, mark: &Mark, what: &str) -> String {
    format!(
        "{}: version {}, {} files, {} bytes, {what}\n",
        image.current().display(),
        mark.version,
        mark.file_count,
        mark.total_bytes
    )
}

/// Owners, devices and capabilities of a root are root's to set.
fn check_root() -> Result<()> {
    if sys::uid() != 0 {
        bail!("only root can give the files of an image their owners; run this as root");
    }
    Ok(())
}

/// The source as a path of its own. It must look like the root of a machine: a wrong directory would take all files away from nodes
/// that run.
fn check_source(source: &Path, image: &Image) -> Result<PathBuf> {
    let real = source.canonicalize().with_context(|| format!("cannot read {}", source.display()))?;
    for needed in ["sbin/init", "bin/sh"] {
        if real.join(needed).symlink_metadata().is_err() {
            bail!("{} is not the root of a machine: it has no {needed}", source.display());
        }
    }
    machine::check_whole(&real)?;
    let current = image.current();
    if real != Path::new("/") && (current.starts_with(&real) || real.starts_with(&current)) {
        bail!(
            "{} and the image {} lie in each other; copy from elsewhere",
            source.display(),
            current.display()
        );
    }
    machine::tell_what_differs(&real);
    Ok(real)
}

fn list(arguments: &List) -> Result<()> {
    let (found, left) = (place::all(&arguments.dir)?, left::all(&arguments.dir)?);
    if arguments.json {
        let found = found.iter().map(serde_json::to_value).chain(left.iter().map(serde_json::to_value));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        return say::outcome(&(serde_json::to_string(&found)? + "\n"));
    }
    let mut text = String::new();
    if found.is_empty() && left.is_empty() {
        text = format!("no images in {}\n", arguments.dir.display());
    }
    for stored in &found {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "{}", line_of(stored));
    }
    for left in &left {
        let _ = writeln!(text, "{left}");
    }
    say::outcome(&text)
}

fn line_of(stored: &Stored) -> String {
    let use_word = if stored.is_in_use { "in use" } else { "unused" };
    let age = if stored.is_current { "current" } else { "old" };
    let Stored { name, mark: Mark { version, file_count, total_bytes, is_changing, .. }, .. } = stored;
    if stored.is_damaged {
        let version = if stored.is_current { "?".to_owned() } else { version.to_string() };
        return format!(
            "{name:<20} version {version:<4} {age:<8} {use_word:<7} damaged: remove it, and make it anew"
        );
    }
    let unfinished = if *is_changing { ", an update in place is at it or was broken off" } else { "" };
    format!(
        "{name:<20} version {version:<4} {age:<8} {use_word:<7} {file_count:>9} files {total_bytes:>14} bytes{unfinished}"
    )
}

fn remove(arguments: &Remove) -> Result<()> {
    let image = Image::at(&arguments.image)?;
    let lock = image.lock()?;
    image.clean()?;
    let versions = image.versions()?;
    let chosen: Vec<_> = match arguments.version {
        None => versions,
        Some(version) => {
            let is_it = |stored: &Stored| stored.mark.version == version;
            if versions.iter().any(|stored| stored.is_current && !stored.is_damaged && is_it(stored)) {
                bail!("version {version} is the current one; without --version the whole image is removed");
            }
            versions.into_iter().filter(|stored| !stored.is_current && is_it(stored)).collect()
        }
    };
    if chosen.is_empty() {
        match arguments.version {
            Some(version) => bail!("{} has no version {version}; see sheen image list", image.name),
            None => bail!("{} is no image; see sheen image list", image.current().display()),
        }
    }
    // Held until they are gone: a node that boots meanwhile waits, and is told then.
    let claims = chosen.iter().map(|stored| image.claim(stored)).collect::<Result<Vec<_>>>()?;
    // The current one last: as long as there is one, an image is there, and what is left of it can be removed.
    for (stored, claim) in chosen.iter().zip(claims).rev() {
        image.discard(&lock, (stored, claim))?;
    }
    Ok(())
}

/// Until the process is told to end.
fn hold(arguments: &Mounted) -> Result<()> {
    sys::hold_end_signals();
    let held = place::hold(&arguments.root)?;
    say::note(format_args!("{} is held", arguments.root.display()));
    let root = arguments.root.canonicalize().unwrap_or_else(|_| arguments.root.clone());
    let shown = root.clone();
    thread::spawn(move || follow::follow(&root));
    // Both go on until this process ends, and with it the lock.
    thread::spawn(move || {
        place::hold_on(&held);
        say::note(format_args!(
            "{} was removed while this node had lost its lock, as when it cannot reach the servers for a time; boot again",
            shown.display()
        ));
    });
    sys::wait_for_end();
    Ok(())
}

#[cfg(test)]
mod tests;
