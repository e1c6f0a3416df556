//! `lfs`: what a mount knows about files and space, in Lustre's words and formats.

mod advice;
mod df;
mod directories;
mod layout_text;
mod migrate;
mod servers;
pub mod stripes;

pub use directories::DirectoryMaker;

use crate::ioctl::{self, Ask, Tell};
use crate::mount_table::Mounted;
use crate::pools;
use crate::say;
use crate::served;
use crate::sys::{self, Known};
use anyhow::{Context, Result, anyhow, bail};
use base::{Fid, Layout, Pool, PoolName, TargetId, TargetKind};
use clap::{Args, Subcommand};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use stripes::Striping;
use wire::ComponentHint;
use wire::mdt::LayoutHint;

#[derive(Debug, Args)]
pub struct Lfs {
    #[command(subcommand)]
    command: LfsCommand,
}

#[derive(Debug, Subcommand)]
enum LfsCommand {
    /// Space or inodes of each target
    #[command(disable_help_flag = true)]
    Df {
        /// In K, M, G, T
        #[arg(short = 'h')]
        human: bool,
        /// Print help
        #[arg(long, action = clap::ArgAction::Help)]
        help: Option<bool>,
        /// Inodes
        #[arg(short = 'i')]
        inodes: bool,
        /// Only OSTs of this pool
        #[arg(short = 'p', long)]
        pool: Option<String>,
        /// Any path in the mount; all mounts when none is given
        path: Option<PathBuf>,
    },
    /// The OSTs that a mount knows
    Osts {
        /// Any path in the mount; all mounts when none is given
        path: Option<PathBuf>,
    },
    /// The MDTs that a mount knows
    Mdts {
        /// Any path in the mount; all mounts when none is given
        path: Option<PathBuf>,
    },
    /// Where the data of files are
    Getstripe {
        /// Print the stripe count only
        #[arg(short = 'c', long)]
        stripe_count: bool,
        /// Print the stripe size only
        #[arg(short = 'S', long)]
        stripe_size: bool,
        /// Print the first OST only
        #[arg(short = 'i', long)]
        stripe_index: bool,
        /// Print the pool only
        #[arg(short = 'p', long)]
        pool: bool,
        /// Directories themselves, not their contents
        #[arg(short = 'd', long)]
        directory: bool,
        /// Directories below too
        #[arg(short = 'r', long, conflicts_with = "directory")]
        recursive: bool,
        /// Only files whose layout names this OST (OST0004, or 4), and no directories
        #[arg(
            short = 'O',
            long = "ost",
            visible_alias = "obd",
            value_name = "OST",
            conflicts_with = "directory"
        )]
        ost: Option<String>,
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Make a file with a layout, give another one to a file that is empty, or set the default of a directory
    Setstripe {
        /// Take the default of a directory back
        #[arg(short = 'd', long)]
        delete: bool,
        #[command(flatten)]
        striping: Striping,
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Make directories on an MDT or over several, or set the default of a directory
    #[command(visible_alias = "setdirstripe")]
    Mkdir(directories::Mkdir),
    /// The MDTs of directories
    Getdirstripe(directories::Getdirstripe),
    /// Move directory trees to another MDT
    Migrate(migrate::Migrate),
    /// The FID of files
    Path2fid {
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// List the pools of a file system, or the OSTs of a pool
    #[command(name = "pool_list")]
    PoolList {
        /// Any path in a mount, or the name of a file system that is mounted here, with or without a pool's
        #[arg(value_name = "FSNAME[.POOL]|PATH")]
        place: PathBuf,
    },
    /// Tell the OSTs what of files will be read soon, or will not be
    Ladvise(advice::Ladvise),
    /// The paths of FIDs
    Fid2path {
        /// Any path in the mount
        mount: PathBuf,
        #[arg(required = true)]
        fids: Vec<String>,
    },
}

/// # Errors
/// One line: what, and on which path.
pub fn run(arguments: &Lfs) -> Result<()> {
    match &arguments.command {
        LfsCommand::Df { human, inodes, pool, path, .. } => {
            let show = df::Show { is_human: *human, is_inodes: *inodes, pool: pool.as_deref() };
            df::run(path.as_deref(), &show)
        }
        LfsCommand::PoolList { place } => pool_list(place),
        LfsCommand::Osts { path } => servers::list(path.as_deref(), TargetKind::Ost),
        LfsCommand::Mdts { path } => servers::list(path.as_deref(), TargetKind::Mdt),
        LfsCommand::Getstripe {
            stripe_count,
            stripe_size,
            stripe_index,
            pool,
            directory,
            recursive,
            ost,
            paths,
        } => {
            let only = Only {
                count: *stripe_count,
                size: *stripe_size,
                index: *stripe_index,
                pool: *pool,
                ost: None,
            };
            let depth = match (directory, recursive) {
                (true, _) => Depth::Itself,
                (false, false) => Depth::Files,
                (false, true) => Depth::Tree,
            };
            let mut failures = Failures::default();
            for path in paths {
                // Paths may be of several file systems.
                match ost.as_deref().map(|ost| known_ost(ost, path)).transpose() {
                    Ok(ost) => getstripe(path, &Only { ost, ..only }, depth, &mut failures)?,
                    Err(error) => failures.add(error),
                }
            }
            failures.end()
        }
        LfsCommand::Setstripe { delete, striping, paths } => {
            let hints = paths.iter().map(|path| hint_for(striping, path)).collect::<Result<Vec<_>>>()?;
            if *delete {
                check_deletable(striping, paths)?;
            }
            each(paths.iter().zip(&hints), |(path, hint)| setstripe(path, hint))
        }
        LfsCommand::Mkdir(mkdir) => mkdir.run(),
        LfsCommand::Migrate(migrate) => migrate.run(),
        LfsCommand::Getdirstripe(getdirstripe) => getdirstripe.run(),
        LfsCommand::Path2fid { paths } => each(paths, |path| {
            let fid = fid_of(path)?;
            if paths.len() == 1 {
                println!("{fid}");
            } else {
                println!("{}: {fid}", path.display());
            }
            Ok(())
        }),
        LfsCommand::Ladvise(ladvise) => ladvise.run(),
        LfsCommand::Fid2path { mount, fids } => each(fids, |fid| fid2path(mount, fid)),
    }
}

fn umask() -> u32 {
    let mask = sys::set_umask(0o077);
    sys::set_umask(mask);
    mask
}

/// To ask is no access, where the caller may say so.
fn open(path: &Path) -> Result<File> {
    if let Some(what) = sys::known_of(path, true).ok().as_ref().and_then(special) {
        bail!("{} is {what}; a mount can be asked about files and directories only", path.display());
    }
    let open = |flags| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path);
    let opened = match open(libc::O_NOATIME) {
        // It is somebody else's.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(0),
        opened => opened,
    };
    opened.with_context(|| format!("cannot open {}", path.display()))
}

/// What is below belongs to another file system, or to another place in this one.
fn is_mount_root(path: &Path) -> bool {
    sys::known_of(path, false).is_ok_and(|known| known.is_mount_root)
}

/// Whoever opens a special file talks to its device or pipe, which may do something at once, and never to the mount.
fn special(known: &Known) -> Option<&'static str> {
    match known.mode & libc::S_IFMT {
        libc::S_IFIFO => Some("a FIFO"),
        libc::S_IFSOCK => Some("a socket"),
        libc::S_IFCHR | libc::S_IFBLK => Some("a device"),
        _ => None,
    }
}

/// The kernel does not know what is asked for, and lets it pass on a read-only mount.
fn check_writable(file: &File, path: &Path) -> Result<()> {
    match sys::is_read_only(file) {
        Ok(true) => Err(io::Error::from_raw_os_error(libc::EROFS)),
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    }
    .with_context(|| path.display().to_string())
}

fn ask(file: &File, path: &Path, ask: &Ask) -> Result<Tell> {
    if ask.is_change() {
        check_writable(file, path)?;
    }
    let mut buffer = ioctl::pack(ask);
    if buffer.len() > ioctl::BUFFER_BYTES {
        bail!("{}: the request is too long", path.display());
    }
    buffer.resize(ioctl::BUFFER_BYTES, 0);
    match sys::ioctl(file, ioctl::COMMAND, &mut buffer) {
        Ok(()) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::ENOSYS)) => {
            bail!("{} is not on a SheenFS mount; see `sheen mounts`", path.display())
        }
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    }
    ioctl::unpack(&buffer).with_context(|| format!("{}: the mount's answer cannot be read", path.display()))
}

/// Asks about what has this path without opening it, which others would notice: they lose the page cache for a file
/// that they write then. Directories are opened, which nobody notices, and so is a file in one that cannot be asked
/// about it.
fn ask_about(path: &Path, of_name: impl FnOnce(Vec<u8>) -> Ask, of_open: &Ask) -> Result<Tell> {
    let known = sys::known_of(path, false).with_context(|| format!("cannot open {}", path.display()))?;
    if known.is_type(libc::S_IFDIR) {
        return ask(&open(path)?, path, of_open);
    }
    let by_name = || {
        let (parent, name) = parent_of(path)?;
        let told =
            ask(&parent, path, &of_name(name)).map_err(|error| match has_errno(&error, libc::EINVAL) {
                true => unexpected(path),
                false => error,
            })?;
        let fid = match &told {
            Tell::Fid(fid) | Tell::Stripe { fid, .. } => *fid,
            _ => return Err(unexpected(path)),
        };
        // Something else may be mounted on the name.
        if fid.inode_number() != known.inode_number {
            bail!("{} is on another mount than the directory that it is in", path.display());
        }
        Ok(told)
    };
    match by_name() {
        Err(_) if known.is_type(libc::S_IFREG) => ask(&open(path)?, path, of_open),
        told => told,
    }
}

/// `sheen sync`
///
/// # Errors
/// The path is on no mount of ours, or a target fails.
pub fn sync(path: &Path) -> Result<()> {
    ask(&open(path)?, path, &Ask::Sync)?;
    Ok(())
}

fn has_errno(error: &anyhow::Error, errno: i32) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error() == Some(errno))
}

fn unexpected(path: &Path) -> anyhow::Error {
    anyhow!("{}: the mount is of another version; mount it again", path.display())
}

struct Only {
    count: bool,
    size: bool,
    index: bool,
    pool: bool,
    /// Of files that have it in their layout.
    ost: Option<u16>,
}

/// What is shown of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Itself,
    /// It, and the files in it.
    Files,
    /// It, the files in it, and all that is below.
    Tree,
}

/// What keeps nothing else from being shown.
#[derive(Default)]
struct Failures {
    last: Option<anyhow::Error>,
}

impl Failures {
    fn add(&mut self, error: anyhow::Error) {
        if let Some(error) = self.last.replace(error) {
            say::note(format_args!("{error:#}"));
        }
    }

    /// # Errors
    /// The last one; those before it are said.
    fn end(self) -> Result<()> {
        self.last.map_or(Ok(()), Err)
    }
}

/// # Errors
/// The last one, when all have had their turn; those before it are said.
fn each<T>(of: impl IntoIterator<Item = T>, act: impl FnMut(T) -> Result<()>) -> Result<()> {
    let mut failures = Failures::default();
    of.into_iter().map(act).filter_map(Result::err).for_each(|error| failures.add(error));
    failures.end()
}

/// The OST that is meant by `OST0004`, with the file system's name and `_UUID` as well, or `4`.
fn parse_ost(text: &str, fsname: &str) -> Option<u16> {
    if let Ok(index) = text.parse() {
        return Some(index);
    }
    let bare = text.strip_suffix("_UUID").unwrap_or(text);
    let bare = bare.strip_prefix(fsname).and_then(|rest| rest.strip_prefix('-')).unwrap_or(bare);
    let id = bare.parse::<TargetId>().ok().filter(|id| id.kind == TargetKind::Ost)?;
    Some(id.index)
}

/// # Errors
/// It is none, or none that the mount of this path knows.
fn known_ost(text: &str, path: &Path) -> Result<u16> {
    let known = targets_of(&open(path)?, path)?;
    let mounts = chosen_mounts(Some(path))?;
    let fsname = mounts.first().map_or("", |mounted| fsname_of(&mounted.source));
    let index = parse_ost(text, fsname).filter(|index| known.contains(&TargetId::ost(*index).to_string()));
    index.with_context(|| format!("there is no OST '{text}'; see `lfs df {}`", served::quoted_path(path)))
}

/// # Errors
/// What is found cannot be printed.
fn getstripe(path: &Path, only: &Only, depth: Depth, failures: &mut Failures) -> Result<()> {
    // Not by recursion: a tree may be deeper than a stack.
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        match stripe_text(&path, only) {
            Ok(text) => print_text(&text)?,
            Err(error) => {
                failures.add(error);
                continue;
            }
        }
        if depth == Depth::Itself || !fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            continue;
        }
        let (files, directories) = match files_and_directories(&path) {
            Ok(found) => found,
            Err(error) => {
                failures.add(error);
                continue;
            }
        };
        for file in files {
            match stripe_text(&file, only) {
                Ok(text) => print_text(&text)?,
                Err(error) => failures.add(error),
            }
        }
        if depth == Depth::Tree {
            let (mounted, directories): (Vec<_>, Vec<_>) =
                directories.into_iter().partition(|directory| is_mount_root(directory));
            for path in mounted {
                say::note(format_args!("{} is passed over: something else is mounted there", path.display()));
            }
            waiting.extend(directories.into_iter().rev());
        }
    }
    Ok(())
}

fn print_text(text: &str) -> Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// What is in a directory, by name.
fn files_and_directories(path: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        let entry = entry?;
        let file_type = entry.file_type()?;
        if file_type.is_file() {
            files.push(entry.path());
        } else if file_type.is_dir() {
            directories.push(entry.path());
        }
    }
    files.sort();
    directories.sort();
    Ok((files, directories))
}

/// Of what a link leads to.
fn layout_of(path: &Path) -> Result<Tell> {
    let known = sys::known_of(path, true).with_context(|| format!("cannot open {}", path.display()))?;
    if let Some(what) = special(&known) {
        bail!("{} is {what}; only files and directories have a layout", path.display());
    }
    let is_link = sys::known_of(path, false).is_ok_and(|known| known.is_type(libc::S_IFLNK));
    let place = if is_link {
        fs::canonicalize(path).with_context(|| format!("cannot open {}", path.display()))?
    } else {
        path.to_owned()
    };
    ask_about(&place, |name| Ask::GetstripeOf { name }, &Ask::Getstripe)
}

/// What is to be printed of a path; nothing where it is not wanted.
fn stripe_text(path: &Path, only: &Only) -> Result<String> {
    let (figures, text) = match layout_of(path)? {
        Tell::Stripe { layout, .. } => {
            let layout = layout.unwrap_or_default();
            if !is_wanted(&layout, only.ost) {
                return Ok(String::new());
            }
            (layout_text::figures_of(&layout), layout_text::of_file(&layout))
        }
        Tell::DefaultStripe { .. } if only.ost.is_some() => return Ok(String::new()),
        Tell::DefaultStripe { layout, .. } => {
            (layout_text::default_figures_of(&layout), layout_text::of_directory(&layout))
        }
        _ => return Err(unexpected(path)),
    };
    if !(only.count || only.size || only.index || only.pool) {
        return Ok(format!("{}\n{text}\n", path.display()));
    }
    let mut out = String::new();
    for (is_wanted, value) in [
        (only.count, figures.stripe_count),
        (only.size, i64::from(figures.stripe_size_bytes)),
        (only.index, figures.stripe_offset),
    ] {
        if is_wanted {
            out += &format!("{value}\n");
        }
    }
    if only.pool {
        out += &format!("{}\n", figures.pool.as_ref().map_or("", PoolName::as_str));
    }
    Ok(out)
}

fn is_wanted(layout: &Layout, ost: Option<u16>) -> bool {
    ost.is_none_or(|ost| layout.osts().any(|of_layout| of_layout == ost))
}

/// `64K`, `1M`, `4194304`.
pub fn parse_size(text: &str) -> Result<u32> {
    match parse_bytes(text).and_then(|size| u32::try_from(size).ok()) {
        Some(size) if size.is_multiple_of(base::Layout::STRIPE_SIZE_MIN) => Ok(size),
        _ => bail!("stripe size '{text}' is not possible; use a multiple of 64K below 4G"),
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    const UNITS: [(char, u32); 5] = [('k', 10), ('m', 20), ('g', 30), ('t', 40), ('p', 50)];
    let (at, last) = text.char_indices().last()?;
    let unit = UNITS.iter().find(|(letter, _)| last.eq_ignore_ascii_case(letter));
    let (digits, shift) = unit.map_or((text, 0), |(_, shift)| (text.get(..at).unwrap_or_default(), *shift));
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The directory of a path, open, and the name in it.
fn parent_of(path: &Path) -> Result<(File, Vec<u8>)> {
    let Some(name) = path.file_name() else { bail!("{} has no name to make", path.display()) };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((open(parent)?, name.as_bytes().to_vec()))
}

/// A hint that says nothing takes a default back; on a file it would be a layout.
fn check_deletable(striping: &Striping, paths: &[PathBuf]) -> Result<()> {
    if !striping.is_empty() {
        bail!("-d takes the default of a directory back; leave the other options out");
    }
    match paths.iter().find(|path| !path.is_dir()) {
        Some(path) => bail!("{} is no directory, and has no default to take back", path.display()),
        None => Ok(()),
    }
}

/// What is there of a path: it, or the directory in which it is to be made.
fn place_of(path: &Path) -> &Path {
    let place = if path.exists() { Some(path) } else { path.parent() };
    place.filter(|place| !place.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn hint_for(striping: &Striping, path: &Path) -> Result<LayoutHint> {
    // That it is on no mount of ours is said when it is asked.
    let mounts = if striping.may_name_fsname() { chosen_mounts(Some(place_of(path))).ok() } else { None };
    let mounted = mounts.iter().flatten().next();
    striping.hint(mounted.map_or("", |mounted| fsname_of(&mounted.source)))
}

fn setstripe(path: &Path, hint: &LayoutHint) -> Result<()> {
    let set = |file: &File, request: Ask| {
        check_pools(file, path, hint)?;
        let is_new = matches!(request, Ask::CreateStriped { .. });
        let why = |error| {
            let hint = if is_new { with_pool_of(file, path, hint) } else { hint.clone() };
            explain_refusal(error, &hint, || targets_of(file, path))
        };
        ask(file, path, &request).map(drop).map_err(why)
    };
    if path.exists() {
        return set(&open(path)?, Ask::Setstripe(hint.clone()));
    }
    let (parent, name) = parent_of(path)?;
    set(&parent, Ask::CreateStriped { name, mode: 0o666, umask: umask(), layout: hint.clone() })
}

/// Names of the targets that the mount knows, whether they answer or not.
fn targets_of(file: &File, path: &Path) -> Result<Vec<String>> {
    Ok(servers::states_of(file, path)?.into_iter().map(|target| target.name).collect())
}

fn explain_refusal(
    error: anyhow::Error,
    hint: &LayoutHint,
    targets: impl FnOnce() -> Result<Vec<String>>,
) -> anyhow::Error {
    if !has_errno(&error, libc::EINVAL) {
        return error;
    }
    let is_ost = |ost: &&u16| **ost != Layout::ON_MDT;
    let of_component = |component: &ComponentHint| -> Vec<u16> {
        let mut osts: Vec<u16> = component.osts.iter().filter(is_ost).copied().collect();
        // With -o it is the first of them.
        osts.extend(component.first_ost.filter(|_| osts.is_empty()));
        osts
    };
    let asked: Vec<u16> = hint.components.iter().flat_map(of_component).collect();
    let with_pool =
        hint.components.iter().filter_map(|component| Some((component.pool.as_ref()?, component)));
    if asked.is_empty() {
        let mut pools: Vec<&str> = with_pool.map(|(pool, _)| pool.as_str()).collect();
        pools.dedup();
        return match &pools[..] {
            [] => error,
            [pool] => anyhow!("pool {pool} takes no new files: {ALL_CLOSED}"),
            pools => anyhow!("one of the pools {} takes no new files: {ALL_CLOSED}", pools.join(", ")),
        };
    }
    let Ok(known) = targets() else { return error };
    let is_known = |ost: &&u16| known.contains(&TargetId::ost(**ost).to_string());
    let missing: Vec<String> = asked.iter().filter(|ost| !is_known(ost)).map(u16::to_string).collect();
    match &missing[..] {
        [] => {}
        [missing] => return anyhow!("there is no OST {missing}; see `lfs df`"),
        missing => return anyhow!("there are no OSTs {}; see `lfs df`", missing.join(",")),
    }
    let of_pool = with_pool.map(|(pool, component)| (pool, of_component(component)));
    if let Some((pool, osts)) = of_pool.into_iter().find(|(_, osts)| !osts.is_empty()) {
        return anyhow!(
            "{} is not in pool {pool}, or drained (obdfilter.*.no_create=1); see `lfs pool_list`",
            one_of(&osts)
        );
    }
    anyhow!("{} takes no new files: it is drained (obdfilter.*.no_create=1)", one_of(&asked))
}

const ALL_CLOSED: &str = "its OSTs are drained (obdfilter.*.no_create=1) or switched off; see `lfs df -p`";

fn one_of(osts: &[u16]) -> String {
    let names: Vec<String> = osts.iter().map(|ost| TargetId::ost(*ost).to_string()).collect();
    if let [only] = &names[..] { only.clone() } else { format!("one of {}", names.join(", ")) }
}

/// What a new file was asked for, with the pool that it has from its directory: that is known to the MDT alone.
fn with_pool_of(directory: &File, path: &Path, hint: &LayoutHint) -> LayoutHint {
    let Some(mut plain) = hint.as_plain().filter(|plain| plain.pool.is_none() && plain.osts.is_empty())
    else {
        return hint.clone();
    };
    if let Ok(Tell::DefaultStripe { layout, .. }) = ask(directory, path, &Ask::Getstripe) {
        plain.pool = layout.as_plain().and_then(|default| default.pool);
    }
    LayoutHint::plain(plain)
}

/// A list that may not fit into one answer. `ask_from` asks for it without so many of the first ones, which a mount of an older version does not
/// know: that one is asked `at_once`, and tells what fits.
fn in_parts<T>(
    mut ask_from: impl FnMut(u32) -> Result<Vec<T>>,
    at_once: impl FnOnce() -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let mut told = Vec::new();
    loop {
        match ask_from(told.len() as u32) {
            Ok(more) if more.is_empty() => return Ok(told),
            Ok(more) => told.extend(more),
            Err(error) if told.is_empty() && has_errno(&error, libc::EINVAL) => return at_once(),
            Err(error) => return Err(error),
        }
    }
}

fn pools_of(file: &File, path: &Path) -> Result<Vec<Pool>> {
    let pools = |request| match ask(file, path, &request)? {
        Tell::Pools(pools) => Ok(pools),
        _ => Err(unexpected(path)),
    };
    in_parts(|skip_count| pools(Ask::ListPoolsFrom { skip_count }), || pools(Ask::ListPools))
}

/// Whoever names a pool wants no other OSTs.
fn check_pools(file: &File, path: &Path, hint: &LayoutHint) -> Result<()> {
    let asked: Vec<&PoolName> =
        hint.components.iter().filter_map(|component| component.pool.as_ref()).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let pools = pools_of(file, path)?;
    let place = place_of(path);
    for name in asked {
        match pools.iter().find(|pool| pool.name == *name) {
            None => bail!("there is no pool {name}; see `lfs pool_list {}`", served::quoted_path(place)),
            Some(pool) if pool.osts.is_empty() => bail!("pool {name} has no OSTs; see `lctl pool_add`"),
            Some(_) => {}
        }
    }
    Ok(())
}

fn pool_list(place: &Path) -> Result<()> {
    let mounts = crate::mount_table::all_sheen();
    if place.exists() {
        let place = crate::mount_table::resolve(place)?;
        let pools = pools_of(&open(&place)?, &place)?;
        let mut above: Vec<_> = mounts.iter().filter(|mounted| place.starts_with(&mounted.path)).collect();
        above.sort_by_key(|mounted| mounted.path.as_os_str().len());
        let fsname = above.last().map_or("sheen", |mounted| fsname_of(&mounted.source));
        return pools::print(fsname, None, pools.iter().map(Into::into).collect());
    }
    let text = place.to_string_lossy();
    let (fsname, name) = text.split_once('.').map_or((&*text, None), |(fsname, name)| (fsname, Some(name)));
    let mounted = mounts.iter().find(|mounted| fsname_of(&mounted.source) == fsname);
    let mounted =
        mounted.with_context(|| format!("file system '{fsname}' is not mounted here; see `sheen mounts`"))?;
    let pools = pools_of(&open(&mounted.path)?, &mounted.path)?;
    pools::print(fsname, name, pools.iter().map(Into::into).collect())
}

/// The file system of a mount's source, `NID:/FSNAME/DIRECTORY`.
pub fn fsname_of(source: &str) -> &str {
    let path = source.rsplit_once(":/").map_or("sheen", |(_, path)| path);
    path.split('/').next().unwrap_or(path)
}

/// Of a link itself.
fn fid_of(path: &Path) -> Result<Fid> {
    match ask_about(path, |name| Ask::FidOf { name }, &Ask::NodeFid)? {
        Tell::Fid(fid) => Ok(fid),
        _ => Err(unexpected(path)),
    }
}

fn fid2path(mount: &Path, text: &str) -> Result<()> {
    let fid: Fid = text.parse().map_err(|()| anyhow!("'{text}' is no FID; write [0x200000401:0x1:0x0]"))?;
    let file = open(mount)?;
    let mut out = io::stdout().lock();
    let mut told_count = 0;
    loop {
        let paths = paths_of(&file, mount, fid, told_count).with_context(|| format!("fid {fid}"))?;
        for path in &paths {
            out.write_all(if path.is_empty() { b"/" } else { path })?;
            out.write_all(b"\n")?;
        }
        if paths.is_empty() {
            return Ok(());
        }
        told_count += paths.len() as u32;
    }
}

/// As many as fit, without so many of the first ones.
fn paths_of(file: &File, mount: &Path, fid: Fid, skip_count: u32) -> Result<Vec<Vec<u8>>> {
    let answer = match ask(file, mount, &Ask::FidToPathFrom { fid, skip_count }) {
        // The mount is of a version that tells only what fits at once.
        Err(error) if has_errno(&error, libc::EINVAL) && skip_count == 0 => {
            ask(file, mount, &Ask::FidToPath(fid))
        }
        Err(error) if has_errno(&error, libc::EINVAL) => return Ok(Vec::new()),
        answer => answer,
    };
    match answer {
        Ok(Tell::Paths(paths)) => Ok(paths),
        Ok(Tell::TooLong) => bail!("a path of it is too long to be told"),
        Ok(_) => Err(unexpected(mount)),
        Err(error) if has_errno(&error, libc::EPERM) => bail!("only root may ask for the paths of a FID"),
        Err(error) if has_errno(&error, libc::EXDEV) => {
            bail!(
                "it is outside of the directory that {} shows; ask at a mount of the whole file system",
                mount.display()
            )
        }
        Err(error) => Err(error),
    }
}

/// The mount that a path is in, or all.
///
/// # Errors
/// There is none, or nothing of that name.
fn chosen_mounts(path: Option<&Path>) -> Result<Vec<Mounted>> {
    chosen_of(crate::mount_table::all_sheen(), path)
}

fn chosen_of(mounts: Vec<Mounted>, path: Option<&Path>) -> Result<Vec<Mounted>> {
    let chosen: Vec<_> = match path {
        Some(path) => {
            let path = crate::mount_table::resolve(path).or_else(|error| {
                // A directory above it is missing.
                fs::symlink_metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
                Err(error)
            })?;
            let above = mounts.into_iter().filter(|mounted| path.starts_with(&mounted.path));
            let above = above.max_by_key(|mounted| mounted.path.as_os_str().len());
            // A mount itself may be dead. Names are looked up and nothing else, which a dead MDT could keep.
            if above.as_ref().is_some_and(|mounted| mounted.path != path) {
                path.canonicalize().with_context(|| format!("cannot open {}", path.display()))?;
            }
            above.into_iter().collect()
        }
        None => mounts,
    };
    if chosen.is_empty() {
        // In none of our mounts: whoever looks at it is not kept.
        if let Some(Err(error)) = path.map(fs::symlink_metadata) {
            return Err(error)
                .with_context(|| format!("cannot open {}", path.unwrap_or(Path::new("")).display()));
        }
        bail!(
            "{} is not on a SheenFS mount; see `sheen mounts`",
            path.unwrap_or(Path::new("this machine")).display()
        );
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests;
