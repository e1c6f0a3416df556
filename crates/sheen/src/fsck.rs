//! `fsck`: checks a file system that nobody serves, and repairs it. What is damage, and what is done about it, is in the
//! crate of the same name; here its stores are opened, and what is found is said.

mod output;
mod stores;

use crate::cli;
use crate::cluster;
use crate::others;
use crate::say;
use crate::target_dir::{self, TargetDir};
use crate::up;
use anyhow::{Context, Result, bail};
use base::{TargetId, TargetKind};
use fsck::{Finding, Kind, Repair, Report};
use output::{Outcome, Watcher};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store_disk::DirectoryError;
use stores::Stores;

/// Statuses of fsck(8).
const REPAIRED: u8 = 1;
const UNCORRECTED: u8 = 4;
const OPERATIONAL: u8 = 8;
pub const USAGE: u8 = 16;

/// Says what is found, one line each. The status is that of fsck(8).
pub fn fsck(arguments: &cli::Fsck) -> ExitCode {
    match run(arguments, &output::print) {
        Ok(outcome) => ExitCode::from(status(&outcome)),
        Err(error) => {
            say::note(crate::one_line(&format!("{error:#}")));
            ExitCode::from(OPERATIONAL)
        }
    }
}

fn status(outcome: &Outcome) -> u8 {
    let repaired = if outcome.repaired_count > 0 { REPAIRED } else { 0 };
    let left = if outcome.left().is_clean() { 0 } else { UNCORRECTED };
    repaired | left
}

/// The directories of a file system, locked.
struct System {
    fsname: String,
    targets: Vec<TargetDir>,
    /// What is damaged so that not even the target is known.
    nameless: Vec<Finding>,
}

/// Says what it finds, and what it has done, with `say`.
fn run(arguments: &cli::Fsck, say: &dyn Fn(&str) -> Result<()>) -> Result<Outcome> {
    let system = lock(&directories(arguments)?)?;
    check_others(&system, arguments)?;
    let options = fsck::Options {
        fsname: system.fsname.clone(),
        reads_data: arguments.data,
        removes_remains: arguments.remove_remains,
    };
    let mut watcher = Watcher::new(arguments.json);
    let without = without(&arguments.without, &system)?;
    let found = check(&system, &without, &options, &mut watcher)?;
    let mut outcome = Outcome { found, repaired_count: 0, after: None };
    if !arguments.json {
        say(&outcome.found_text(&system.targets))?;
    }
    if arguments.repair
        && let Err(error) = try_repair(&system, &without, &options, &mut outcome, &mut watcher)
    {
        if arguments.json {
            // What was found is said all the same.
            let why = crate::one_line(&format!("{error:#}"));
            say(&outcome.json(&system.targets, Some(&why))?)?;
        }
        return Err(error);
    }
    if arguments.json {
        say(&outcome.json(&system.targets, None)?)?;
    } else {
        say(&outcome.end_text(arguments.repair))?;
    }
    Ok(outcome)
}

/// Those that are given, and those of clusters but for the targets that an operator does without and that are not there, or not readable.
fn directories(arguments: &cli::Fsck) -> Result<Vec<PathBuf>> {
    let is_left_out = |id: TargetId| {
        let names = |name: &String| *name == id.to_string() || name.ends_with(&format!("-{id}"));
        arguments.without.iter().any(names)
    };
    let mut found = Vec::new();
    for path in cluster::target_dirs(&arguments.dirs)? {
        let is_of_cluster = !arguments.dirs.contains(&path);
        match target_dir::check_answers(&path) {
            Err(_) if is_of_cluster && target_dir::id_by_name(&path).is_some_and(is_left_out) => {}
            Err(error) if is_of_cluster => match target_dir::id_by_name(&path) {
                Some(id) if id.kind != TargetKind::Mgt => {
                    bail!("{error:#}; or check without it (--without {id})")
                }
                _ => return Err(error),
            },
            _ => found.push(path),
        }
    }
    Ok(found)
}

/// That what is repaired is left as its servers can use it, and that none of another machine is at it.
fn check_others(system: &System, arguments: &cli::Fsck) -> Result<()> {
    for dir in &system.targets {
        if arguments.repair {
            others::check_user(&dir.path)?;
            others::check_fenced(&dir.path, arguments.fenced)?;
        } else if !arguments.fenced && target_dir::is_shared(&dir.path)? {
            say::note(format_args!(
                "{} is served with --failover: if a server of another machine owns it now, what is found here may be no damage",
                dir.path.display()
            ));
        }
    }
    Ok(())
}

/// Does what can be done about what was found, if anything can.
fn try_repair(
    system: &System,
    without: &BTreeSet<TargetId>,
    options: &fsck::Options,
    outcome: &mut Outcome,
    watcher: &mut Watcher,
) -> Result<()> {
    check_up_to_date(&outcome.found)?;
    if outcome.found.findings.iter().any(|finding| finding.repair.is_safe()) {
        check_may_repair(system, &outcome.found)?;
        outcome.repaired_count = repair(system, without, options, &outcome.found, watcher)?;
        // What counts is what is on the disk now.
        outcome.after = Some(check(system, without, options, watcher)?);
    }
    Ok(())
}

fn lock(directories: &[PathBuf]) -> Result<System> {
    let (mut targets, mut nameless): (Vec<TargetDir>, _) = (Vec::new(), Vec::new());
    let mut opened = BTreeSet::new();
    for path in directories {
        // Its lock would be ours.
        if path.canonicalize().is_ok_and(|path| !opened.insert(path)) {
            bail!("{} is given twice; name each target once", path.display());
        }
        let dir = match target_dir::open_to_check(path) {
            Ok(dir) => dir,
            Err(error) => match error.downcast_ref::<DirectoryError>() {
                Some(DirectoryError::Damaged { reason, .. }) => {
                    nameless.push(damaged_superblock(path, reason));
                    continue;
                }
                Some(DirectoryError::Running { .. }) => {
                    return Err(error).with_context(|| {
                        format!("a file system is checked when nobody serves it; {} first", how_to_end(path))
                    });
                }
                _ => return Err(error),
            },
        };
        if let Some(other) = targets.iter().find(|other| other.id == dir.id) {
            bail!(
                "{} and {} are both {}; name each target once",
                other.path.display(),
                path.display(),
                dir.id
            );
        }
        targets.push(dir);
    }
    targets.sort_by_key(|dir| dir.id);
    let mut names = targets.iter().filter(|dir| dir.id.kind != TargetKind::Mgt).map(|dir| &dir.fsname);
    let fsname = names.next().cloned().unwrap_or_default();
    if let Some(other) = names.find(|name| **name != fsname) {
        bail!("these are targets of '{fsname}' and of '{other}'; name those of one file system");
    }
    if fsname.is_empty() && nameless.is_empty() {
        bail!("there is no MDT and no OST among these; name all targets of a file system");
    }
    Ok(System { fsname, targets, nameless })
}

/// Who serves this target is told to end, and nobody else.
fn how_to_end(path: &Path) -> String {
    // As it is named: a target of a cluster may be a link to its disk.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match path.parent().filter(|dir| dir.join(cluster::FILE).is_file()) {
        Some(dir) => format!("`{}`", up::down_command(dir)),
        None => "end the process that serves it".to_owned(),
    }
}

fn damaged_superblock(path: &Path, reason: &str) -> Finding {
    let repair = Repair::Not("restore it from a backup");
    let subject = path.join("target.json").display().to_string();
    // Which target it is stands in this very file.
    let id = target_dir::id_by_name(path).unwrap_or(TargetId::MGT);
    Finding::new(Kind::SuperblockDamaged, id, subject, crate::one_line(reason), repair)
}

/// Targets that an operator does without.
fn without(names: &[String], system: &System) -> Result<BTreeSet<TargetId>> {
    let parse = |name: &String| -> Result<TargetId> {
        let id = name.strip_prefix(&format!("{}-", system.fsname)).unwrap_or(name).parse().ok();
        let id = id.filter(|id: &TargetId| id.kind != TargetKind::Mgt);
        let Some(id) = id else { bail!("--without names an MDT or an OST (MDT0001, OST0003), not '{name}'") };
        if let Some(given) = system.targets.iter().find(|dir| dir.id == id) {
            bail!("{id} is in {}: leave out either that or --without {name}", given.path.display());
        }
        Ok(id)
    };
    names.iter().map(parse).collect()
}

/// A target of which nothing is known, so that nothing is concluded from what others have.
fn unknown<'a>(id: TargetId) -> fsck::Target<'a> {
    fsck::Target { id, uuid: None, meta: None, objects: None }
}

/// Reads everything; nothing is changed.
fn check(
    system: &System,
    without: &BTreeSet<TargetId>,
    options: &fsck::Options,
    watcher: &mut Watcher,
) -> Result<Report> {
    let stores = Stores::open_to_read(&system.targets)?;
    let mut targets = stores.targets();
    let known: BTreeSet<TargetId> = system.targets.iter().map(|dir| dir.id).collect();
    let mut missing: BTreeSet<TargetId> =
        fsck::expected(&targets, &options.fsname).difference(&known).copied().collect();
    check_none_missing(system, &missing, without)?;
    // Without a name that can be read, it is one of them.
    missing.extend(without);
    targets.extend(missing.into_iter().map(unknown));
    let mut report = fsck::check(&targets, options, &mut |doing| watcher.note(doing));
    watcher.end();
    // Of some only what others have of theirs tells.
    check_none_missing(system, &report.missing, without)?;
    report.findings.extend(system.nameless.iter().cloned());
    report.findings.extend(stores.findings()?);
    Ok(report)
}

fn check_none_missing(
    system: &System,
    missing: &BTreeSet<TargetId>,
    without: &BTreeSet<TargetId>,
) -> Result<()> {
    match missing.difference(without).next() {
        Some(first) if system.nameless.is_empty() => bail!(
            "{first} belongs to '{}' and is not given; name the directories of all its targets, or add --without {first} if it is lost",
            system.fsname
        ),
        _ => Ok(()),
    }
}

/// What a target does not know any more would be taken for nobody's.
fn check_up_to_date(found: &Report) -> Result<()> {
    match found.findings.iter().find(|finding| finding.kind == Kind::TargetOutdated) {
        Some(Finding { target, what, .. }) => bail!(
            "nothing is repaired: {target} is older than what other targets know of it ({what}); restore its newest copy"
        ),
        None => Ok(()),
    }
}

fn check_may_repair(system: &System, found: &Report) -> Result<()> {
    if let Some(target) = found.awaiting.first() {
        bail!(
            "nothing is repaired: mounts may still come back to {target} and say what is missing; start the servers, \
             unmount, stop them, and check again"
        );
    }
    let is_unreadable = |kind: Kind| {
        matches!(
            kind,
            Kind::SuperblockDamaged
                | Kind::IndexDamaged
                | Kind::LogDamaged
                | Kind::RowDamaged
                | Kind::ObjectsLost
        )
    };
    if let Some(finding) = found.findings.iter().find(|finding| is_unreadable(finding.kind)) {
        bail!(
            "nothing is repaired while {} of {} is not readable: restore that first",
            finding.subject,
            system.fsname
        );
    }
    Ok(())
}

fn repair(
    system: &System,
    without: &BTreeSet<TargetId>,
    options: &fsck::Options,
    found: &Report,
    watcher: &mut Watcher,
) -> Result<u64> {
    let stores = Stores::open_to_repair(&system.targets)?;
    let is_counter = |finding: &&Finding| finding.kind == Kind::SpaceCounterWrong;
    let mut repaired_count = 0;
    for finding in found.findings.iter().filter(is_counter) {
        stores.recount(finding.target)?;
        repaired_count += 1;
    }
    let now = net::clock::now().wall;
    let mut watch = |doing| watcher.note(doing);
    // Data are not read again in between.
    let options = fsck::Options { reads_data: false, ..options.clone() };
    let mut targets = stores.targets();
    targets.extend(without.iter().copied().map(unknown));
    let repaired = fsck::repair_all(&targets, &options, found, now, &mut watch);
    drop(targets);
    let closed = stores.close();
    watcher.end();
    let repaired_count = repaired_count + repaired?;
    closed.map(|()| repaired_count)
}

#[cfg(test)]
mod tests;
