//! The screen of `status`.

use super::alerts::listed;
use super::report::{Report, Target};
use crate::control::MountStatus;
use indicatif::BinaryBytes;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Of more targets only those are shown that are not simply active, of more mounts only those that do not hear some target; and so many alerts
/// at most.
const ROWS_MAX: usize = 32;

pub fn of(report: &Report) -> String {
    let mut lines: Vec<String> = Vec::new();
    if let (Some(fsname), Some(dir)) = (&report.fsname, &report.dir) {
        lines.push(format!("{fsname}  {}  {}", report.mgs_nid.as_deref().unwrap_or("-"), dir.display()));
    }
    let is_empty = report.targets.is_empty() && report.mounts.is_empty() && report.alerts.is_empty();
    if is_empty && report.elsewhere.is_empty() {
        lines.push("nothing runs here; start a cluster: sheen up".to_owned());
    }
    let is_shown =
        |target: &&Target| report.targets.len() <= ROWS_MAX || target.status.state != super::ACTIVE;
    if !report.targets.is_empty() {
        lines.push(row(["target", "state", "pid", "space left", "clients", "nid", "directory"]));
    }
    lines.extend(report.targets.iter().filter(is_shown).map(of_target));
    match report.targets.iter().filter(is_shown).count() {
        shown if shown < report.targets.len() => {
            lines.push(format!("and {} more, which are active", report.targets.len() - shown));
        }
        _ => {}
    }
    lines.extend(of_mounts(&report.mounts));
    lines.extend(of_elsewhere(&report.elsewhere));
    let owners: BTreeSet<String> = report.targets.iter().filter_map(of_owner).collect();
    lines.extend(owners);
    lines.extend(report.alerts.iter().take(ROWS_MAX).map(|alert| match alert.fix.as_str() {
        "" => format!("alert: {}", alert.text),
        fix => format!("alert: {}; {fix}", alert.text),
    }));
    if report.alerts.len() > ROWS_MAX {
        lines.push(format!("and {} more alerts: sheen status --json", report.alerts.len() - ROWS_MAX));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn of_mounts(mounts: &[MountStatus]) -> Vec<String> {
    let is_shown = |mount: &&MountStatus| mounts.len() <= ROWS_MAX || !mount.unheard.is_empty();
    let shown = mounts.iter().filter(is_shown).take(ROWS_MAX).map(|mount| {
        let (pid, path) = (mount.pid.to_string(), mount.path.display().to_string());
        row(["mount", &mount.transport, &pid, "", "", &mount.fsname, &path])
    });
    let mut lines: Vec<String> = shown.collect();
    if lines.len() < mounts.len() {
        lines.push(format!("and {} more mounts: sheen mounts", mounts.len() - lines.len()));
    }
    lines
}

fn of_elsewhere(paths: &[PathBuf]) -> Option<String> {
    let (is, has) = match paths {
        [] => return None,
        [_] => ("is mounted, by a process", "it is of another user, or has"),
        _ => ("are mounted, by processes", "they are of other users, or have"),
    };
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    Some(format!("{} {is} that cannot be asked here: {has} another SHEEN_RUN", listed(&paths)))
}

fn row([name, state, pid, space, clients, nid, place]: [&str; 7]) -> String {
    format!("{name:<18} {state:<11} {pid:>8} {space:>24} {clients:>8}  {nid:<22} {place}")
}

fn of_target(target: &Target) -> String {
    let status = &target.status;
    let space = target.space.map_or_else(
        || "-".to_owned(),
        |space| format!("{} of {}", BinaryBytes(space.bytes_available), BinaryBytes(space.bytes_total)),
    );
    let clients = target.client_count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let (pid, place) = (status.pid.to_string(), status.dir.display().to_string());
    row([&target.name(), &status.state, &pid, &space, &clients, &status.nid, &place])
}

/// Who owns a target that several servers could serve. They say the same, once they have heard it.
fn of_owner(target: &Target) -> Option<String> {
    target.status.owner.as_ref().map(|owner| format!("{} is owned by {owner}", target.name()))
}
