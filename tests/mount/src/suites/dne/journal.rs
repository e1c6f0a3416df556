//! Names on two MDTs, changed by one process that notes what it was told: so what must be there is known after each call, but for
//! the one that was not answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::load::Stop;
use crate::random::Random;

/// Names of each kind in each home.
const NAME_COUNT: u64 = 4;

/// One call. Names are below the root.
#[derive(Clone, Debug)]
enum Step {
    Mkdir(String),
    Rmdir(String),
    Create(String),
    Unlink(String),
    Link(String, String),
    Rename(String, String),
}

/// What a name leads to: a directory, or a file, told from others by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File(u64),
}

type Names = BTreeMap<String, Node>;

/// By name: the inode, whether it is a directory, and its links.
type Found = BTreeMap<String, (u64, bool, u64)>;

/// One operation can be on its way, so the third walk finds what the second has found.
const WALK_COUNT_MAX: usize = 3;

/// The names of one round, and the call on its way.
pub struct Journal {
    root: PathBuf,
    round: u64,
    names: Names,
    unanswered: Option<Step>,
    made: u64,
    done: u64,
}

impl Journal {
    /// For names that no other round uses.
    pub fn new(root: PathBuf, round: u64) -> Journal {
        Journal { root, round, names: Names::new(), unanswered: None, made: 0, done: 0 }
    }

    /// Calls that were answered.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// One call after the other until told to stop.
    ///
    /// # Errors
    /// The first call that fails; it may have been executed or not.
    pub fn work(&mut self, stop: &Stop, random: &mut Random) -> Result<()> {
        while !stop.is_over() {
            let step = self.draw(random);
            let Some(after) = self.after(&step) else { continue };
            self.unanswered = Some(step.clone());
            self.execute(&step).with_context(|| format!("{step:?}"))?;
            (self.names, self.unanswered) = (after, None);
            self.made += u64::from(matches!(step, Step::Create(_)));
            self.done += 1;
        }
        Ok(())
    }

    fn draw(&self, random: &mut Random) -> Step {
        let name = |kind: char, random: &mut Random| {
            let (home, number) = (random.below(2), random.below(NAME_COUNT));
            format!("m{home}/{kind}{number}.{}", self.round)
        };
        let file = |random: &mut Random| {
            let directory = name('d', random);
            match self.names.contains_key(&directory) && random.one_in(2) {
                true => format!("{directory}/f{}", random.below(NAME_COUNT)),
                false => name('f', random),
            }
        };
        match random.below(12) {
            0 | 1 => Step::Mkdir(name('d', random)),
            2 => Step::Rmdir(name('d', random)),
            3 | 4 => Step::Create(file(random)),
            5 => Step::Unlink(file(random)),
            6 | 7 => Step::Link(file(random), file(random)),
            8 | 9 => Step::Rename(name('d', random), name('d', random)),
            _ => Step::Rename(file(random), file(random)),
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
            Step::Mkdir(path) | Step::Create(path) if !is_free(path) => return None,
            Step::Rmdir(path) if !below(&names, path).is_empty() => return None,
            Step::Mkdir(path) => {
                names.insert(path.clone(), Node::Directory);
            }
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
                    .filter(|node| names.get(to) != Some(node) || *node == Node::Directory)?;
                if from == to || !below(&names, to).is_empty() {
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

    fn execute(&self, step: &Step) -> std::io::Result<()> {
        let at = |name: &String| self.root.join(name);
        match step {
            Step::Mkdir(path) => fs::create_dir(at(path)),
            Step::Rmdir(path) => fs::remove_dir(at(path)),
            Step::Create(path) => fs::File::create_new(at(path)).map(drop),
            Step::Unlink(path) => fs::remove_file(at(path)),
            Step::Link(from, to) => fs::hard_link(at(from), at(to)),
            Step::Rename(from, to) => fs::rename(at(from), at(to)),
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

    /// By name: the inode, and whether it is a directory; with as many links as a file says that it has.
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
                found.insert(name, (stat.ino(), stat.is_dir(), stat.nlink()));
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
        let (ino, is_directory, link_count) = found.get(name)?;
        let names_of = expected.values().filter(|other| *other == node).count() as u64;
        let is_one = expected.iter().all(|(other, its)| {
            let is_same_inode = found.get(other).is_some_and(|(other, ..)| other == ino);
            is_same_inode == (other == name || (its == node && *node != Node::Directory))
        });
        let is_right = match node {
            Node::Directory => *is_directory,
            Node::File(_) => !is_directory && *link_count == names_of,
        };
        if !is_one || !is_right {
            return Some(format!(
                "{name} should be {node:?} with {names_of} names, and is {:?}",
                found.get(name)
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests;
