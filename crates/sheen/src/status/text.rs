//! The screen of `status`.

use super::report::{Report, Target};
use indicatif::BinaryBytes;
use std::collections::BTreeSet;

/// Of a cluster with more targets only those are shown that are not simply active.
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
    for mount in &report.mounts {
        let (pid, path) = (mount.pid.to_string(), mount.path.display().to_string());
        lines.push(row(["mount", &mount.transport, &pid, "", "", &mount.fsname, &path]));
    }
    lines.extend(report.elsewhere.iter().map(|path| {
        format!(
            "{} is mounted, by a process that cannot be asked here: it is of another user, or has another SHEEN_RUN",
            path.display()
        )
    }));
    let owners: BTreeSet<String> = report.targets.iter().filter_map(of_owner).collect();
    lines.extend(owners);
    lines.extend(report.alerts.iter().map(|alert| match alert.fix.as_str() {
        "" => format!("alert: {}", alert.text),
        fix => format!("alert: {}; {fix}", alert.text),
    }));
    lines.push(String::new());
    lines.join("\n")
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
