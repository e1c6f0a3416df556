//! `lfs df`: room and inodes of each target, as Lustre prints them.

use super::servers::states_of;
use super::{chosen_mounts, each, fsname_of, open, pools_of, stripes};
use crate::ioctl::TargetState;
use crate::mount_table::Mounted;
use crate::served;
use anyhow::{Context, Result};
use base::TargetId;
use std::path::Path;
use wire::mdt::Statfs;

/// What is shown.
#[derive(Clone, Copy, Default)]
pub struct Show<'a> {
    pub is_human: bool,
    pub is_inodes: bool,
    /// Its OSTs only; with the file system's name before it or without.
    pub pool: Option<&'a str>,
}

/// # Errors
/// The path is on no mount of ours, or there is no mount; there is no such pool.
pub fn run(path: Option<&Path>, show: &Show<'_>) -> Result<()> {
    each(chosen_mounts(path)?, |mounted| print(&mounted, show))
}

fn print(mounted: &Mounted, show: &Show<'_>) -> Result<()> {
    let root = open(&mounted.path)?;
    let mut targets = states_of(&root, &mounted.path)?;
    let fsname = fsname_of(&mounted.source);
    if let Some(pool) = show.pool {
        let name = stripes::bare_pool(pool, fsname);
        let pools = pools_of(&root, &mounted.path)?;
        let pool = pools.iter().find(|pool| pool.name.as_str() == name);
        let pool = pool.with_context(|| {
            format!("there is no pool {name}; see `lfs pool_list {}`", served::quoted_path(&mounted.path))
        })?;
        let members: Vec<String> = pool.osts.iter().map(|ost| TargetId::ost(*ost).to_string()).collect();
        targets.retain(|target| members.contains(&target.name));
    }
    print!("{}", table(fsname, &mounted.path, &targets, show));
    Ok(())
}

/// What Lustre shows behind a target: that it gets nothing new, and what it has no more of.
fn letters_of(target: &TargetState, space: &Statfs) -> String {
    let letters: String = [
        (target.is_drained, 'N'),
        (space.bytes_available == 0, 'S'),
        (space.inodes_total > 0 && space.inodes_free == 0, 'I'),
    ]
    .into_iter()
    .filter_map(|(is_so, letter)| is_so.then_some(letter))
    .collect();
    if letters.is_empty() { letters } else { format!(" {letters}") }
}

/// The table of one file system, as Lustre prints it.
fn table(fsname: &str, mount: &Path, targets: &[TargetState], show: &Show<'_>) -> String {
    let Show { is_human, is_inodes, .. } = *show;
    let mut out = String::new();
    let titles = match (is_inodes, is_human) {
        (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["bytes", "Used", "Available", "Use%"],
        (false, false) => ["1K-blocks", "Used", "Available", "Use%"],
    };
    let [all, used, free, percent] = titles;
    out += &format!("{:<20} {all:>11} {used:>11} {free:>11} {percent:>4} Mounted on\n", "UUID");
    let row = |name: &str, space: &Statfs, place: &str| {
        let (total, free, available) = if is_inodes {
            (space.inodes_total, space.inodes_free, space.inodes_free)
        } else {
            (space.bytes_total, space.bytes_free, space.bytes_available)
        };
        let used = total.saturating_sub(free);
        let whole = used.saturating_add(available);
        let percent = if whole == 0 { 0 } else { (u128::from(used) * 100).div_ceil(u128::from(whole)) };
        let print = |value: u64| match (is_inodes, is_human) {
            (_, true) => human(value),
            (true, false) => value.to_string(),
            (false, false) => (value / 1024).to_string(),
        };
        format!(
            "{name:<20} {:>11} {:>11} {:>11} {percent:>3}% {place}\n",
            print(total),
            print(used),
            print(available)
        )
    };
    let mut sum = Statfs::default();
    let mut mdt_inodes = Statfs::default();
    let mut seen = Vec::new();
    for target in targets {
        let name = &target.name;
        let uuid = format!("{fsname}-{name}_UUID");
        let Some(space) = &target.space else {
            // Lustre's words: an operator has switched it off, or it does not answer.
            let why = if target.is_active { "Resource temporarily unavailable" } else { "inactive device" };
            out += &format!("{uuid}: {why}\n");
            continue;
        };
        let (kind, digits) = name.split_at_checked(3).unwrap_or((name, ""));
        let index = u16::from_str_radix(digits, 16).unwrap_or_default();
        let letters = letters_of(target, space);
        out += &row(&uuid, space, &format!("{}[{kind}:{index}]{letters}", mount.display()));
        let is_ost = kind == "OST";
        // Targets on one local file system share its space: it is counted once.
        if !seen.contains(&(is_ost, space.device)) {
            seen.push((is_ost, space.device));
            let into = if is_ost { &mut sum } else { &mut mdt_inodes };
            into.bytes_total += space.bytes_total;
            into.bytes_free += space.bytes_free;
            into.bytes_available += space.bytes_available;
            into.inodes_total += space.inodes_total;
            into.inodes_free += space.inodes_free;
        }
    }
    // A pool has no MDTs.
    if show.pool.is_none() {
        (sum.inodes_total, sum.inodes_free) = Statfs::inodes_of(&mdt_inodes, &sum);
    }
    out += "\n";
    out += &row("filesystem_summary:", &sum, &mount.display().to_string());
    out += "\n";
    out
}

/// `1.5G`, as `lfs df -h` writes it.
fn human(value: u64) -> String {
    let mut amount = value as f64;
    for unit in ["", "K", "M", "G", "T", "P"] {
        if amount < 1024.0 || unit == "P" {
            return if unit.is_empty() { format!("{value}") } else { format!("{amount:.1}{unit}") };
        }
        amount /= 1024.0;
    }
    value.to_string()
}

#[cfg(test)]
mod tests;
