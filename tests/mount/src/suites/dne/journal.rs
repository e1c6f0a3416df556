//! Names on two MDTs, changed by one process that notes what it was told: so what must be there is known after each call, but for
//! the one that was not answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::bounded;
use crate::load::Stop;
use crate::random::Random;

/// Names of each kind in each home.
const NAME_COUNT: u64 = 4;
/// Draws for one call of a kind, of which some are not possible with the names that are there.
const DRAW_COUNT_MAX: usize = 50;
/// Of one command, which may wait for a server that is started again.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);
/// Who does each kind of call has that long.
const EACH_DONE_PATIENCE: Duration = Duration::from_secs(120);
/// Of directories that are changed; none that a umask leaves.
const MODES: [u32; 3] = [0o700, 0o701, 0o750];

/// One call. Names are below the root.
#[derive(Clone, Debug)]
enum Step {
    Mkdir(String),
    /// `lfs mkdir -i`
    MkdirOn(String, u64),
    /// `lfs mkdir -c 2 -i 0,1`: both are named, since only those that answer are chosen from.
    MkdirStriped(String),
    /// `lfs setdirstripe -D -i`
    SetDefault(String, u64),
    /// `lfs migrate -m`
    Migrate(String, u64),
    Chmod(String, u32),
    Rmdir(String),
    Create(String),
    Unlink(String),
    Link(String, String),
    Rename(String, String),
}

/// What is done, as far as it is one kind to those who look at what has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Mkdir,
    MkdirOn,
    MkdirStriped,
    SetDefault,
    Migrate,
    ChmodStriped,
    Rmdir,
    RmdirStriped,
    Create,
    Unlink,
    Link,
    RenameFile,
    RenameFileOver,
    RenameDirectory,
    RenameDirectoryOver,
}

impl Kind {
    pub const ALL: [Kind; 15] = [
        Kind::Mkdir,
        Kind::MkdirOn,
        Kind::MkdirStriped,
        Kind::SetDefault,
        Kind::Migrate,
        Kind::ChmodStriped,
        Kind::Rmdir,
        Kind::RmdirStriped,
        Kind::Create,
        Kind::Unlink,
        Kind::Link,
        Kind::RenameFile,
        Kind::RenameFileOver,
        Kind::RenameDirectory,
        Kind::RenameDirectoryOver,
    ];
}

/// How often each kind was answered.
pub type Counts = BTreeMap<Kind, u64>;

/// What a name leads to: a directory, with its mode where that was changed, or a file, told from others by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory { is_striped: bool, mode: Option<u32> },
    File(u64),
}

impl Node {
    const PLAIN: Node = Node::Directory { is_striped: false, mode: None };

    fn is_directory(self) -> bool {
        matches!(self, Node::Directory { .. })
    }
}

type Names = BTreeMap<String, Node>;

/// By name.
type Found = BTreeMap<String, Seen>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    ino: u64,
    is_directory: bool,
    link_count: u64,
    /// Its permissions.
    mode: u32,
}

/// One operation can be on its way, so the third walk finds what the second has found.
const WALK_COUNT_MAX: usize = 3;

/// The names of one round, and the call on its way.
pub struct Journal {
    root: PathBuf,
    sheen: PathBuf,
    round: u64,
    names: Names,
    unanswered: Option<Step>,
    made: u64,
    done: Counts,
    /// Kinds that come before any of them comes again.
    due: Vec<Kind>,
}

impl Journal {
    /// For names that no other round uses; `sheen` is the program that `lfs` is a part of.
    pub fn new(root: PathBuf, round: u64, sheen: PathBuf) -> Journal {
        let (done, due) = (Counts::new(), Vec::new());
        Journal { root, sheen, round, names: Names::new(), unanswered: None, made: 0, done, due }
    }

    /// Calls that were answered.
    pub fn done(&self) -> &Counts {
        &self.done
    }

    /// One call after the other until told to stop; with `is_each_done`, not before each kind was answered.
    ///
    /// # Errors
    /// The first call that fails; it may have been executed or not.
    pub fn work(&mut self, stop: &Stop, random: &mut Random, is_each_done: bool) -> Result<()> {
        let is_missing = |done: &Counts| is_each_done && done.len() < Kind::ALL.len();
        let (began, mut refusal) = (Instant::now(), String::new());
        while !stop.is_over() || is_missing(&self.done) {
            let Some((kind, step)) = self.draw(random) else { continue };
            let Some(after) = self.after(&step) else { continue };
            self.unanswered = Some(step.clone());
            let refused = self.execute(&step).with_context(|| format!("{step:?}"))?;
            (self.names, self.unanswered) = (after, None);
            self.made += u64::from(matches!(step, Step::Create(_)));
            match refused {
                None => *self.done.entry(kind).or_default() += 1,
                Some(why) => refusal = why,
            }
            if is_missing(&self.done) && began.elapsed() > EACH_DONE_PATIENCE {
                let missing: Vec<&Kind> =
                    Kind::ALL.iter().filter(|kind| !self.done.contains_key(kind)).collect();
                bail!("never done: {missing:?}; what was refused last: {refusal}");
            }
        }
        Ok(())
    }

    /// A call that is possible, of a kind that was not drawn lately.
    fn draw(&mut self, random: &mut Random) -> Option<(Kind, Step)> {
        if self.due.is_empty() {
            self.due.extend(Kind::ALL);
        }
        let kind = self.due.swap_remove(random.size(self.due.len()));
        let steps = (0..DRAW_COUNT_MAX).map(|_| self.draw_of(kind, random));
        let mut possible = steps.filter(|step| self.kind_of(step) == kind && self.after(step).is_some());
        Some((kind, possible.next()?))
    }

    fn draw_of(&self, kind: Kind, random: &mut Random) -> Step {
        let name = |kind: char, random: &mut Random| {
            let (home, number) = (random.below(2), random.below(NAME_COUNT));
            format!("m{home}/{kind}{number}.{}", self.round)
        };
        let directory = |random: &mut Random| {
            let above = name('d', random);
            match self.names.contains_key(&above) && random.one_in(4) {
                true => format!("{above}/d{}", random.below(NAME_COUNT)),
                false => above,
            }
        };
        let file = |random: &mut Random| {
            let above = name('d', random);
            match self.names.contains_key(&above) && random.one_in(2) {
                true => format!("{above}/f{}", random.below(NAME_COUNT)),
                false => name('f', random),
            }
        };
        match kind {
            Kind::Mkdir => Step::Mkdir(directory(random)),
            Kind::MkdirOn => Step::MkdirOn(directory(random), random.below(2)),
            Kind::MkdirStriped => Step::MkdirStriped(directory(random)),
            Kind::SetDefault => Step::SetDefault(directory(random), random.below(2)),
            Kind::Migrate => Step::Migrate(directory(random), random.below(2)),
            Kind::ChmodStriped => Step::Chmod(directory(random), MODES[random.size(MODES.len())]),
            Kind::Rmdir | Kind::RmdirStriped => Step::Rmdir(directory(random)),
            Kind::Create => Step::Create(file(random)),
            Kind::Unlink => Step::Unlink(file(random)),
            Kind::Link => Step::Link(file(random), file(random)),
            Kind::RenameFile | Kind::RenameFileOver => Step::Rename(file(random), file(random)),
            Kind::RenameDirectory | Kind::RenameDirectoryOver => {
                Step::Rename(directory(random), directory(random))
            }
        }
    }

    fn kind_of(&self, step: &Step) -> Kind {
        let is_striped =
            |path: &String| matches!(self.names.get(path), Some(Node::Directory { is_striped: true, .. }));
        match step {
            Step::Mkdir(_) => Kind::Mkdir,
            Step::MkdirOn(..) => Kind::MkdirOn,
            Step::MkdirStriped(_) => Kind::MkdirStriped,
            Step::SetDefault(..) => Kind::SetDefault,
            Step::Migrate(..) => Kind::Migrate,
            Step::Chmod(..) => Kind::ChmodStriped,
            Step::Rmdir(path) if is_striped(path) => Kind::RmdirStriped,
            Step::Rmdir(_) => Kind::Rmdir,
            Step::Create(_) => Kind::Create,
            Step::Unlink(_) => Kind::Unlink,
            Step::Link(..) => Kind::Link,
            Step::Rename(from, to) => {
                let is_directory = self.names.get(from).is_some_and(|node| node.is_directory());
                match (is_directory, self.names.contains_key(to)) {
                    (true, true) => Kind::RenameDirectoryOver,
                    (true, false) => Kind::RenameDirectory,
                    (false, true) => Kind::RenameFileOver,
                    (false, false) => Kind::RenameFile,
                }
            }
        }
    }

    /// The names after a call; `None` for one that is refused or changes nothing.
    fn after(&self, step: &Step) -> Option<Names> {
        let mut names = self.names.clone();
        let below = |names: &Names, path: &str| -> Vec<String> {
            let prefix = format!("{path}/");
            names.keys().filter(|name| name.starts_with(&prefix)).cloned().collect()
        };
        let is_free = |path: &String| !self.names.contains_key(path);
        match step {
            Step::Mkdir(path) | Step::MkdirOn(path, _) | Step::MkdirStriped(path) | Step::Create(path)
                if !is_free(path) =>
            {
                return None;
            }
            Step::Rmdir(path) if !below(&names, path).is_empty() => return None,
            Step::Mkdir(path) | Step::MkdirOn(path, _) => {
                names.insert(path.clone(), Node::PLAIN);
            }
            Step::MkdirStriped(path) => {
                names.insert(path.clone(), Node::Directory { is_striped: true, mode: None });
            }
            // What it says is for directories that are made later, and is seen by where these are.
            Step::SetDefault(path, _) => {
                names.get(path).filter(|node| node.is_directory())?;
            }
            // Files of several names would stay, and those that were open just before.
            Step::Migrate(path, _) => {
                let is_plain = |name: &String| names.get(name) == Some(&Node::PLAIN);
                (is_plain(path) && below(&names, path).iter().all(is_plain)).then_some(())?;
            }
            Step::Chmod(path, mode) => match names.get_mut(path)? {
                Node::Directory { is_striped: true, mode: before } => *before = Some(*mode),
                _ => return None,
            },
            Step::Create(path) => {
                names.insert(path.clone(), Node::File(self.made));
            }
            Step::Rmdir(path) | Step::Unlink(path) => {
                names.remove(path)?;
            }
            Step::Link(from, to) => {
                let node = *names.get(from)?;
                is_free(to).then(|| names.insert(to.clone(), node))?;
            }
            Step::Rename(from, to) => {
                let node = names
                    .get(from)
                    .copied()
                    .filter(|node| names.get(to) != Some(node) || node.is_directory())?;
                let is_alike = names.get(to).is_none_or(|over| over.is_directory() == node.is_directory());
                let is_below = to.starts_with(&format!("{from}/"));
                if from == to || is_below || !is_alike || !below(&names, to).is_empty() {
                    return None;
                }
                for name in below(&names, from) {
                    let node = names.remove(&name)?;
                    names.insert(format!("{to}{}", name.strip_prefix(from)?), node);
                }
                names.remove(from);
                names.insert(to.clone(), node);
            }
        }
        Some(names)
    }

    /// Why it was refused, and has changed no name.
    fn execute(&self, step: &Step) -> Result<Option<String>> {
        let at = |name: &String| self.root.join(name);
        match step {
            Step::Mkdir(path) => fs::create_dir(at(path))?,
            Step::MkdirOn(path, mdt) => self.lfs(&["mkdir", "-i", &mdt.to_string()], path)?,
            Step::MkdirStriped(path) => self.lfs(&["mkdir", "-c", "2", "-i", "0,1"], path)?,
            Step::SetDefault(path, mdt) => {
                self.lfs(&["setdirstripe", "-D", "-i", &mdt.to_string()], path)?;
            }
            // What moves an inode is not done again by the mount when its MDT has died.
            Step::Migrate(path, mdt) => {
                return self.lfs_or_refusal(&["migrate", "-m", &mdt.to_string()], path);
            }
            Step::Chmod(path, mode) => fs::set_permissions(at(path), fs::Permissions::from_mode(*mode))?,
            Step::Rmdir(path) => fs::remove_dir(at(path))?,
            Step::Create(path) => fs::File::create_new(at(path)).map(drop)?,
            Step::Unlink(path) => fs::remove_file(at(path))?,
            Step::Link(from, to) => fs::hard_link(at(from), at(to))?,
            Step::Rename(from, to) => fs::rename(at(from), at(to))?,
        }
        Ok(None)
    }

    fn lfs(&self, words: &[&str], path: &str) -> Result<()> {
        self.lfs_or_refusal(words, path)?.map_or(Ok(()), |refusal| Err(anyhow!(refusal)))
    }

    /// What the command says when it fails; one that does not end is an error.
    fn lfs_or_refusal(&self, words: &[&str], path: &str) -> Result<Option<String>> {
        let mut command = Command::new(&self.sheen);
        command.arg("lfs").args(words).arg(self.root.join(path));
        let said = bounded::say(&mut command, "SHEEN_JOURNAL=1", COMMAND_LIMIT)?;
        let refusal =
            || format!("lfs {}: {}: {}", words.join(" "), said.end.describe(), said.all().trim_end());
        match said.end {
            bounded::End::TimedOut { .. } => bail!(refusal()),
            bounded::End::Exited(status) if status.success() => Ok(None),
            bounded::End::Exited(_) => Ok(Some(refusal())),
        }
    }

    /// Through this mount there is what was answered, and what was not answered wholly or not at all.
    pub fn check(&self, root: &Path) -> Result<()> {
        let found = self.settled(root)?;
        let after = self.unanswered.as_ref().and_then(|step| self.after(step));
        let before = difference(&found, &self.names);
        let Some(wrong) = before else { return Ok(()) };
        match after.map(|after| difference(&found, &after)) {
            Some(None) => Ok(()),
            Some(Some(other)) => bail!("neither before {:?} nor after it: {wrong}; {other}", self.unanswered),
            None => bail!("{wrong}"),
        }
    }

    /// What two walks in a row have found. An operation of a client that is gone may still be on its way between MDTs and be executed
    /// beside a walk, which then sees one of its names before it and another after it, as it would beside any rename.
    fn settled(&self, root: &Path) -> Result<Found> {
        let mut before = self.found(root)?;
        for _ in 0..WALK_COUNT_MAX {
            let found = self.found(root)?;
            if found == before {
                return Ok(found);
            }
            before = found;
        }
        bail!("names change under {} although nobody changes them", root.display())
    }

    /// All that is there of the round.
    fn found(&self, root: &Path) -> Result<Found> {
        let mut found = Found::new();
        let mut todo = vec!["m0".to_owned(), "m1".to_owned()];
        while let Some(directory) = todo.pop() {
            let path = root.join(&directory);
            // What was renamed between two calls is found elsewhere, or by the next walk.
            let Some(entries) =
                there(fs::read_dir(&path)).with_context(|| format!("list {}", path.display()))?
            else {
                continue;
            };
            for entry in entries {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let is_ours = directory.contains('/') || name.ends_with(&format!(".{}", self.round));
                if !is_ours {
                    continue;
                }
                let stat = there(fs::symlink_metadata(path.join(&name)))
                    .with_context(|| format!("stat {directory}/{name}"))?;
                let Some(stat) = stat else { continue };
                let name = format!("{directory}/{name}");
                if stat.is_dir() {
                    todo.push(name.clone());
                }
                let (is_directory, mode) = (stat.is_dir(), stat.mode() & 0o7777);
                found.insert(name, Seen { ino: stat.ino(), is_directory, link_count: stat.nlink(), mode });
            }
        }
        Ok(found)
    }
}

/// `None` for what is not there.
fn there<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// What is wrong, if something is: names, kinds, which names are one file, and how many it says that it has.
fn difference(found: &Found, expected: &Names) -> Option<String> {
    let (there, wanted): (BTreeSet<&String>, BTreeSet<&String>) =
        (found.keys().collect(), expected.keys().collect());
    if there != wanted {
        let (missing, too_many) = (wanted.difference(&there), there.difference(&wanted));
        return Some(format!(
            "missing {:?}, too many {:?}",
            missing.collect::<Vec<_>>(),
            too_many.collect::<Vec<_>>()
        ));
    }
    for (name, node) in expected {
        let seen = found.get(name)?;
        let is_below = |other: &str| {
            let rest = other.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('/'));
            rest.is_some_and(|rest| !rest.contains('/'))
        };
        let has_links = match node {
            // Its own name, its own dot, and one of each directory in it.
            Node::Directory { .. } => {
                2 + expected.iter().filter(|(other, its)| its.is_directory() && is_below(other)).count()
            }
            Node::File(_) => expected.values().filter(|other| *other == node).count(),
        };
        let is_one = expected.iter().all(|(other, its)| {
            let is_same_inode = found.get(other).is_some_and(|other| other.ino == seen.ino);
            is_same_inode == (other == name || (its == node && !node.is_directory()))
        });
        let is_right = match node {
            Node::Directory { mode, .. } => seen.is_directory && mode.is_none_or(|mode| mode == seen.mode),
            Node::File(_) => !seen.is_directory,
        };
        if !is_one || !is_right || seen.link_count != has_links as u64 {
            return Some(format!("{name} should be {node:?} with {has_links} links, and is {seen:?}"));
        }
    }
    None
}

#[cfg(test)]
mod tests;
