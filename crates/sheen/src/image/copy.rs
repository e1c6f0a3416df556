//! Makes one tree equal to another, by rsync(1): it writes every file under another name and renames it, so that a reader sees the
//! old one or the new one.

use super::place::OWN;
use crate::progress::{Goal, Progress};
use crate::sys;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// Owners by number, devices, hard links, ACLs and xattrs, and nothing that is mounted in the source. What goes, goes last: a program
/// that is replaced may need it until then. Times count to the nanosecond: of two of one second rsync takes those of one size for the same
/// otherwise.
const ARGUMENTS: &[&str] = &[
    "--archive",
    "--hard-links",
    "--acls",
    "--xattrs",
    "--numeric-ids",
    "--one-file-system",
    "--modify-window=-1",
    "--whole-file",
    "--no-human-readable",
    "--stats",
];
/// For all that there is.
const WHOLE: &[&str] = &["--delete-delay"];
/// For files with holes, named one by one. It writes their data in small pieces, and each is a request to an OST. A directory in the place of one
/// goes at once.
const HOLES: &[&str] = &["--sparse", "--files-from=-", "--from0", "--force", "--ignore-missing-args"];
/// What so few bytes take is no matter, and how a file system counts the last block of a file.
const HOLE_BYTES_MIN: u64 = 64 << 10;
/// rsync's status when files vanished from the source under it.
const VANISHED: i32 = 24;
/// Lines of a program that fails are kept up to here.
const SAID_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub file_count: u64,
    pub total_bytes: u64,
}

/// `lock` keeps others away from the target. rsync has it as its standard input, which it does not read: when this process is killed it goes
/// on copying, and then still holds the lock.
///
/// # Errors
/// rsync is not there, or what it said first.
pub fn copy(source: &Path, target: &Path, (name, lock): (&str, &File), checksum: bool) -> Result<Copied> {
    let copy = |more: &[&str], input: File| {
        let mut command = Command::new("rsync");
        command.stdin(input);
        command.args(ARGUMENTS).args(more).arg(format!("--exclude=/{OWN}/")).env("LC_ALL", "C");
        if checksum {
            command.arg("--checksum");
        }
        // With slashes, what is in the directories is meant.
        command.arg(source.join("")).arg(target.join(""));
        run(command, source, name)
    };
    // A file of a terabyte that is one hole, as of who logged in last, takes no room in the source, and none in the image. What is
    // copied so is then found equal.
    let names = with_holes(source);
    if !names.is_empty() {
        let mut list = sys::memory_file(c"files-with-holes").context("no memory for names of files")?;
        list.write_all(&names).and_then(|()| list.rewind()).context("no memory for names of files")?;
        // rsync has the lock all the same.
        let _lock = sys::inherited_copy(lock).context("the lock of the image")?;
        copy(HOLES, list)?;
    }
    let said = copy(WHOLE, lock.try_clone().context("the lock of the image")?)?;
    counts(&said).with_context(|| format!("rsync does not say what it copied: {said}"))
}

/// Names of the files of a tree that have holes, as rsync reads them. What cannot be read is for rsync to say.
fn with_holes(root: &Path) -> Vec<u8> {
    let device = root.metadata().map(|found| found.dev()).unwrap_or_default();
    let (mut names, mut left) = (Vec::new(), vec![PathBuf::from(".")]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(root.join(&dir)).into_iter().flatten().flatten() {
            let (path, Ok(found)) = (dir.join(entry.file_name()), entry.metadata()) else { continue };
            if found.is_dir() && found.dev() == device && path != Path::new(".").join(OWN) {
                left.push(path);
            } else if found.is_file() && has_holes(&entry.path(), &found) {
                names.extend_from_slice(path.as_os_str().as_bytes());
                names.push(0);
            }
        }
    }
    names
}

/// One that takes much less room than it has bytes is compressed where it has no hole; but not every file system tells of holes.
fn has_holes(path: &Path, found: &fs::Metadata) -> bool {
    let taken_bytes = found.blocks().saturating_mul(512);
    if taken_bytes.saturating_add(HOLE_BYTES_MIN) > found.len() {
        return false;
    }
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    let hole = file.and_then(|file| sys::first_hole(&file));
    taken_bytes < found.len() / 8 || hole.is_ok_and(|hole| hole < found.len())
}

/// What it says.
fn run(mut command: Command, source: &Path, name: &str) -> Result<String> {
    if io::stderr().is_terminal() {
        // All names first: only then does it know how much is left.
        command.args(["--info=progress2", "--no-inc-recursive", "--outbuf=N"]);
    }
    let (mut progress, mut files_done) = (None, 0);
    let (status, said, errors) = say(&mut command, |line| {
        let Some(far) = Far::of(line) else { return false };
        // Within a file it does not say how many are done: as many as when the file began.
        if let Some((done, all)) = far.files {
            let begin = || Progress::begin(name.to_owned(), "files", Goal::items(all));
            progress.get_or_insert_with(begin);
            files_done = done;
        }
        if let Some(progress) = &progress {
            progress.set(files_done, far.bytes);
        }
        true
    })?;
    drop(progress);
    if !status.success() {
        let first = errors.lines().next().unwrap_or("rsync says nothing");
        match status.code() {
            Some(VANISHED) => bail!("{} changed while it was copied: {first}", source.display()),
            _ => bail!("cannot copy {}: {first} ({status})", source.display()),
        }
    }
    Ok(said)
}

/// The lines `Number of files: 12 (reg: 7, dir: 5)` and `Total file size: 1234 bytes`.
pub fn counts(said: &str) -> Option<Copied> {
    let number = |start: &str| -> Option<u64> {
        let line = said.lines().find_map(|line| line.strip_prefix(start))?;
        line.split_ascii_whitespace().next()?.replace(',', "").parse().ok()
    };
    Some(Copied { file_count: number("Number of files:")?, total_bytes: number("Total file size:")? })
}

/// Runs it; what it says on standard output, but for the lines that are taken, and on standard error.
fn say(command: &mut Command, take: impl FnMut(&str) -> bool) -> Result<(ExitStatus, String, String)> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("{program} cannot be started; install the package {program}"))?;
    let output = child.stdout.take().context("its output")?;
    let errors = child.stderr.take().context("its errors")?;
    let errors = thread::spawn(move || follow(errors, |_| false));
    let said = follow(output, take);
    let errors = errors.join().unwrap_or_default();
    let status = child.wait().with_context(|| format!("{program} is lost"))?;
    Ok((status, said, errors))
}

/// How far rsync is: `  1234567  42%   10.23MB/s    0:00:12 (xfr#5, to-chk=169/396)`, without the parenthesis within a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Far {
    pub bytes: u64,
    /// So many are done, of so many.
    pub files: Option<(u64, u64)>,
}

impl Far {
    /// `None` for a line that says something else.
    pub fn of(line: &str) -> Option<Far> {
        let mut words = line.split_ascii_whitespace();
        let bytes = words.next()?.parse().ok()?;
        words.next().filter(|word| word.ends_with('%'))?;
        let files = line.split_once("-chk=").and_then(|(_, rest)| {
            let (left, all) = rest.trim_end().trim_end_matches(')').split_once('/')?;
            let (left, all) = (left.parse::<u64>().ok()?, all.parse::<u64>().ok()?);
            Some((all.saturating_sub(left), all))
        });
        Some(Far { bytes, files })
    }
}

/// Reads to the end, and keeps all lines that are not taken up to a bound; a carriage return ends a line too.
fn follow(mut from: impl Read, mut take: impl FnMut(&str) -> bool) -> String {
    let (mut kept, mut line, mut buffer) = (String::new(), Vec::new(), [0; 4096]);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for byte in &buffer[..count] {
            match byte {
                b'\n' | b'\r' => end_line(&mut line, &mut kept, &mut take),
                byte if line.len() < SAID_BYTES_MAX => line.push(*byte),
                _ => {}
            }
        }
    }
    end_line(&mut line, &mut kept, &mut take);
    kept
}

fn end_line(line: &mut Vec<u8>, kept: &mut String, take: &mut impl FnMut(&str) -> bool) {
    let text = String::from_utf8_lossy(line).into_owned();
    line.clear();
    if !text.trim().is_empty() && !take(&text) && kept.len() + text.len() < SAID_BYTES_MAX {
        kept.push_str(&text);
        kept.push('\n');
    }
}

/// A directory on a local disk that goes again.
pub struct Made(PathBuf);

impl Made {
    fn new() -> Result<Made> {
        let home = std::env::var_os("TMPDIR").unwrap_or_else(|| OsString::from("/var/tmp"));
        let path = Path::new(&home).join(format!("sheen-image-{}", std::process::id()));
        // Where the machine shares that directory with others, one of this name may be another process's, which keeps it.
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Made(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Nothing can be done about what stays; it lies where files for the time being lie.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The package of the usual init; the smallest variant has none.
const INIT: &str = "systemd-sysv";
const OTHER_INITS: [&str; 2] = ["sysvinit-core", "runit-init"];

/// What the smallest variant is to have besides: what was asked for, and an init if none was.
fn included(asked: Option<&str>) -> String {
    let Some(asked) = asked else { return INIT.to_owned() };
    let is_init = |package: &str| package == INIT || OTHER_INITS.contains(&package);
    if asked.split(',').any(is_init) { asked.to_owned() } else { format!("{INIT},{asked}") }
}

/// The smallest root of a release with an init, made on a local disk: dpkg(1) makes every file durable before it goes on.
///
/// # Errors
/// debootstrap is not there, or the last thing that it said.
pub fn debootstrap(suite: &str, include: Option<&str>, mirror: Option<&str>) -> Result<Made> {
    if suite.is_empty() || suite.starts_with('-') || suite.contains('/') {
        bail!("'{suite}' is no release; use a name such as bookworm");
    }
    let made = Made::new()?;
    let mut command = Command::new("debootstrap");
    command.arg("--variant=minbase").stdin(Stdio::null());
    command.arg(format!("--include={}", included(include)));
    command.arg(suite).arg(made.path()).args(mirror);
    // How many steps there are nobody knows before.
    let progress = Progress::begin("debootstrap", "steps", Goal::default());
    let (status, said, errors) = say(&mut command, |_| {
        progress.add(1, 0);
        false
    })?;
    drop(progress);
    if !status.success() {
        let last = errors.lines().last().or(said.lines().last()).unwrap_or("it says nothing");
        bail!("debootstrap failed: {last} ({status})");
    }
    forget_machine(made.path())?;
    Ok(made)
}

/// Each node makes an identity of its own at its boot, as machine-id(5) says: several with one would get one address from DHCP.
fn forget_machine(root: &Path) -> Result<()> {
    let (id, copy) = (root.join("etc/machine-id"), root.join("var/lib/dbus/machine-id"));
    if id.symlink_metadata().is_ok_and(|found| found.is_file()) {
        fs::write(&id, "").with_context(|| format!("cannot empty {}", id.display()))?;
    }
    match fs::remove_file(&copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", copy.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
