//! `lfs mkdir`, `lfs setdirstripe`, `lfs getdirstripe`: on which MDTs directories are.

use super::{ask, each, has_errno, open, parent_of, targets_of, umask, unexpected};
use crate::ioctl::{Ask, Tell};
use crate::say;
use anyhow::{Context, Result, anyhow, bail};
use base::limits::DIRECTORY_STRIPES_MAX;
use base::{Fid, TargetId};
use clap::Args;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use wire::mdt::DirStriping;

/// How names are spread over stripes, where Lustre has names of its own hashes.
const HASH_TYPE: &str = "xxh3";

#[derive(Debug, Args)]
pub struct Mkdir {
    /// MDTs, from 0: one for each stripe, or the first of them; -1 for one that has room
    #[arg(short = 'i', long = "mdt-index", value_delimiter = ',', allow_negative_numbers = true)]
    mdt_index: Vec<i32>,
    /// Over so many MDTs; -1 for all
    #[arg(short = 'c', long = "mdt-count", allow_negative_numbers = true)]
    mdt_count: Option<i32>,
    /// Make nothing, but say how new directories in these are made
    #[arg(short = 'D', long = "default")]
    is_default: bool,
    /// Take back what -D has said
    #[arg(short = 'd', long = "delete", conflicts_with_all = ["mdt_index", "mdt_count", "max_inherit", "mode"])]
    is_deleted: bool,
    /// With -D -i -1: for so many levels of directories; -1, or nothing, for all
    #[arg(short = 'X', long = "max-inherit", allow_negative_numbers = true, requires = "is_default")]
    max_inherit: Option<i32>,
    #[arg(short = 'm', long)]
    mode: Option<String>,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Mkdir {
    /// # Errors
    /// One line: what cannot be, or what failed on which path.
    pub fn run(&self) -> Result<()> {
        if self.is_deleted {
            return each(&self.paths, |path| set_default(path, None));
        }
        let striping = self.striping()?;
        if self.is_default {
            return each(&self.paths, |path| set_default(path, Some(&striping)));
        }
        let mode = match &self.mode {
            Some(mode) => u32::from_str_radix(mode, 8).map_err(|_| anyhow!("'{mode}' is no octal mode"))?,
            None => 0o777,
        };
        let umask = if self.mode.is_some() { 0 } else { umask() };
        let failed = |path: &&PathBuf| {
            let made = mkdir(path, &striping, mode & 0o7777, umask);
            made.inspect_err(|error| say::note(format_args!("{error:#}"))).is_err()
        };
        // As mkdir(1): one that cannot be made does not keep the others from being made.
        if let [path] = &self.paths[..] {
            return mkdir(path, &striping, mode & 0o7777, umask);
        }
        match self.paths.iter().filter(failed).count() {
            0 => Ok(()),
            count => bail!("{count} of {} are not made; the others are", self.paths.len()),
        }
    }

    /// What is asked for, as far as it can be told without a file system.
    fn striping(&self) -> Result<DirStriping> {
        let named: Vec<i32> = self.mdt_index.iter().copied().filter(|index| *index != -1).collect();
        let is_index =
            |index: &i32| u16::try_from(*index).ok().filter(|index| *index < DirStriping::BY_SPACE);
        let mdts: Option<Vec<u16>> = named.iter().map(is_index).collect();
        let mdts = mdts.context("an MDT has an index from 0 on; see `lfs df`")?;
        let is_each_other = mdts.iter().collect::<BTreeSet<_>>().len() == mdts.len();
        if !is_each_other || (self.mdt_index.len() > 1 && mdts.len() < self.mdt_index.len()) {
            bail!("-i names each MDT once, or the first one");
        }
        let is_by_space = self.mdt_index.contains(&-1);
        let stripe_count = match self.mdt_count {
            None if mdts.is_empty() && !is_by_space => bail!("say where: -i INDEX[,INDEX] or -c COUNT"),
            None => 0,
            Some(-1) => DirStriping::ALL,
            Some(count) => match u16::try_from(count) {
                Ok(count @ 1..) if usize::from(count) <= DIRECTORY_STRIPES_MAX => count,
                _ => bail!("a directory has 1 to {DIRECTORY_STRIPES_MAX} stripes, or -1 for all MDTs"),
            },
        };
        if mdts.len() > 1 && stripe_count != 0 && usize::from(stripe_count) != mdts.len() {
            bail!("-i names {} MDTs, and -c says {}", mdts.len(), self.mdt_count.unwrap_or_default());
        }
        match (is_by_space, self.max_inherit) {
            (true, _) => Ok(DirStriping::by_space(stripe_count, self.levels()?)),
            (false, None) => Ok(DirStriping { stripe_count, mdts }),
            (false, Some(_)) => bail!("-X is for directories that are placed by space: say -i -1 too"),
        }
    }

    /// For how many levels -D says something, unless it is for all.
    fn levels(&self) -> Result<Option<u8>> {
        match self.max_inherit {
            None | Some(-1) => Ok(None),
            Some(levels) => match u8::try_from(levels) {
                Ok(levels @ 1..=DirStriping::LEVELS_MAX) => Ok(Some(levels)),
                _ => bail!("-X is 1 to {} levels, or -1 for all", DirStriping::LEVELS_MAX),
            },
        }
    }
}

fn mkdir(path: &Path, striping: &DirStriping, mode: u32, umask: u32) -> Result<()> {
    let (parent, name) = parent_of(path)?;
    let request = match striping.mdts[..] {
        [mdt_index] if striping.stripe_count <= 1 && !striping.is_by_space() => {
            Ask::MkdirOn { name, mode, umask, mdt_index }
        }
        _ => Ask::MkdirStriped { name, mode, umask, striping: striping.clone() },
    };
    let why = |error| match (&striping.mdts[..], has_errno(&error, libc::EINVAL)) {
        // What cannot be in itself was found before.
        ([mdt], true) if !striping.is_by_space() => is_drained(*mdt),
        ([_, _, ..], true) => {
            anyhow!("one of these MDTs takes nothing new: it is drained (mdt.*.no_create=1)")
        }
        _ => with_mdts(error, striping),
    };
    ask(&parent, path, &request).map(drop).map_err(why)
}

/// Why an MDT that was named is refused.
pub fn is_drained(mdt_index: u16) -> anyhow::Error {
    anyhow!("{} takes nothing new: it is drained (mdt.*.no_create=1)", TargetId::mdt(mdt_index))
}

/// A directory in which many are made, each on an MDT that is named.
pub struct DirectoryMaker {
    path: PathBuf,
    parent: File,
    mdt_index: u16,
    mdt_count: u16,
}

impl DirectoryMaker {
    /// # Errors
    /// It is on no mount of ours.
    pub fn new(path: &Path) -> Result<DirectoryMaker> {
        let parent = open(path)?;
        let Tell::DirStripes { stripes, .. } = ask(&parent, path, &Ask::Getdirstripe)? else {
            return Err(unexpected(path));
        };
        let targets = targets_of(&parent, path)?;
        let mdt_count = targets.iter().filter(|name| name.starts_with("MDT")).count() as u16;
        let mdt_index = stripes.first().and_then(|stripe| stripe.mdt_index());
        let mdt_index = mdt_index.with_context(|| format!("{} is on no MDT", path.display()))?;
        Ok(DirectoryMaker { path: path.to_owned(), parent, mdt_index, mdt_count })
    }

    /// The MDT that comes so many after that of the directory itself.
    pub fn other_mdt_index(&self, distance: u16) -> u16 {
        (self.mdt_index + distance) % self.mdt_count.max(1)
    }

    pub fn mdt_count(&self) -> u16 {
        self.mdt_count
    }

    /// One that is striped over all MDTs, the directory's own first.
    ///
    /// # Errors
    /// It is there already, or cannot be made.
    pub fn mkdir_striped(&self, name: &str) -> Result<()> {
        let mdts = (0..self.mdt_count).map(|distance| self.other_mdt_index(distance)).collect();
        let striping = DirStriping { stripe_count: 0, mdts };
        let request = Ask::MkdirStriped { name: name.into(), mode: 0o755, umask: 0, striping };
        ask(&self.parent, &self.path.join(name), &request).map(drop)
    }

    /// # Errors
    /// It is there already, or cannot be made.
    pub fn mkdir(&self, name: &str, mdt_index: u16) -> Result<()> {
        let request = Ask::MkdirOn { name: name.into(), mode: 0o755, umask: 0, mdt_index };
        ask(&self.parent, &self.path.join(name), &request).map(drop)
    }
}

fn set_default(path: &Path, striping: Option<&DirStriping>) -> Result<()> {
    let request = Ask::Setdirstripe(striping.cloned());
    let none = DirStriping::default();
    ask(&open(path)?, path, &request).map(drop).map_err(|error| {
        if has_errno(&error, libc::ENOTDIR) {
            return anyhow!("{} is no directory", path.display());
        }
        with_mdts(error, striping.unwrap_or(&none))
    })
}

/// Says which MDT is not there.
fn with_mdts(error: anyhow::Error, striping: &DirStriping) -> anyhow::Error {
    match (&striping.mdts[..], has_errno(&error, libc::ENXIO)) {
        ([mdt], true) => anyhow!("there is no MDT {mdt}; see `lfs df`"),
        (_, true) => anyhow!("not all of these MDTs are there; see `lfs df`"),
        (_, false) => error,
    }
}

#[derive(Debug, Args)]
pub struct Getdirstripe {
    /// Print the index of the first MDT only
    #[arg(short = 'i', long)]
    mdt_index: bool,
    /// Print the count of stripes only
    #[arg(short = 'c', long)]
    mdt_count: bool,
    /// What new directories in these get
    #[arg(short = 'D', long = "default")]
    is_default: bool,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Getdirstripe {
    /// # Errors
    /// One line: what, and on which path.
    pub fn run(&self) -> Result<()> {
        each(&self.paths, |path| self.print(path))
    }

    fn print(&self, path: &Path) -> Result<()> {
        if !fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?.is_dir() {
            bail!("{} is no directory", path.display());
        }
        let Tell::DirStripes { stripes, default } = ask(&open(path)?, path, &Ask::Getdirstripe)? else {
            return Err(unexpected(path));
        };
        let shown = if self.is_default { Shown::of_default(default.as_ref()) } else { Shown::of(&stripes) };
        if self.mdt_count {
            println!("{}", shown.count);
        }
        if self.mdt_index {
            println!("{}", shown.offset);
        }
        if !self.mdt_count && !self.mdt_index {
            print!("{}\n{}", path.display(), shown.text());
        }
        Ok(())
    }
}

/// What is printed of a directory, in Lustre's form.
#[derive(Debug)]
struct Shown {
    count: i32,
    offset: i32,
    hash_type: &'static str,
    /// Of a default that places directories by space: levels, -1 for all.
    max_inherit: Option<i32>,
    stripes: Vec<Fid>,
}

impl Shown {
    fn of(stripes: &[Fid]) -> Shown {
        let offset = stripes.first().and_then(|fid| fid.mdt_index()).map_or(-1, i32::from);
        match stripes {
            [_] => Shown { count: 0, offset, hash_type: "none", max_inherit: None, stripes: Vec::new() },
            _ => Shown {
                count: stripes.len() as i32,
                offset,
                hash_type: HASH_TYPE,
                max_inherit: None,
                stripes: stripes.to_vec(),
            },
        }
    }

    fn of_default(default: Option<&DirStriping>) -> Shown {
        let Some(striping) = default else {
            return Shown { count: 0, offset: -1, hash_type: "none", max_inherit: None, stripes: Vec::new() };
        };
        let DirStriping { stripe_count, mdts } = striping;
        let count = match *stripe_count {
            DirStriping::ALL => -1,
            0 => mdts.len() as i32,
            count => i32::from(count),
        };
        let max_inherit = striping.is_by_space().then(|| striping.levels().map_or(-1, i32::from));
        let named = mdts.first().filter(|_| max_inherit.is_none());
        let offset = named.map_or(-1, |mdt| i32::from(*mdt));
        Shown { count, offset, hash_type: HASH_TYPE, max_inherit, stripes: Vec::new() }
    }

    fn text(&self) -> String {
        let Shown { count, offset, hash_type, max_inherit, stripes } = self;
        let mut text =
            format!("lmv_stripe_count: {count} lmv_stripe_offset: {offset} lmv_hash_type: {hash_type}");
        if let Some(levels) = max_inherit {
            text += &format!(" lmv_max_inherit: {levels}");
        }
        text.push('\n');
        if !stripes.is_empty() {
            text += "mdtidx\t\t FID[seq:oid:ver]\n";
        }
        for fid in stripes {
            let mdt = fid.mdt_index().map_or(-1, i32::from);
            // Writing to memory cannot fail.
            let written = writeln!(text, "{mdt:6}\t\t {fid}\t\t");
            assert!(written.is_ok(), "a text is written to memory");
        }
        text
    }
}

#[cfg(test)]
mod tests;
