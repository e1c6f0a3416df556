//! What somebody should do something about, each with the command that does it.

use super::report::{Heard, Report, Target};
use super::{ACTIVE, DOWN, FENCED, REFUSED, name_of};
use crate::control::{MountStatus, Process, TargetStatus, Unheard};
use crate::health::{LOW_PERCENT, percent_left};
use crate::listen::HOW_TO_SERVE;
use crate::metrics::Figures;
use crate::mount::unasked::{self, Unasked};
use crate::node;
use crate::served::{self, Gone};
use crate::targets::RESTORE;
use crate::up;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names of missing clients, or of anything, in one line.
const SHOWN_MAX: usize = 4;
/// So many sets of targets that mounts miss are told one by one.
const GROUPS_MAX: usize = 32;

/// A session between servers is out for a moment whenever one of them is started.
const BREAK_SECONDS_MIN: u64 = 5;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Alert {
    /// A sentence, which begins with what it is about.
    pub text: String,
    /// What ends it: a command mostly. Empty where the sentence says it.
    pub fix: String,
}

impl Alert {
    fn new(text: impl Into<String>, fix: impl Into<String>) -> Alert {
        Alert { text: text.into(), fix: fix.into() }
    }
}

pub fn of(report: &Report, heard: &Heard) -> Vec<Alert> {
    let targets = || report.targets.iter().map(|target| &target.status);
    let fenced = targets().filter(|target| target.state == FENCED);
    let mut alerts: Vec<Alert> = fenced.map(|target| of_fenced(target, report.dir.as_deref())).collect();
    alerts.extend(of_down(report));
    alerts.extend(heard.gone.iter().map(of_gone));
    alerts.extend(targets().filter_map(of_recovery));
    let takeovers = targets().filter_map(|target| {
        Some(Alert::new(format!("{}: {}", name_of(target), target.alert.as_ref()?), ""))
    });
    // Whoever stands by for a target says the same.
    alerts.extend(takeovers.collect::<BTreeSet<Alert>>());
    alerts.extend(of_waiting(report, heard));
    alerts.extend(of_management(report, heard));
    alerts.extend(of_drained(heard));
    alerts.extend(of_sessions(report, &heard.figures));
    alerts.extend(of_overdue(report));
    alerts.extend(of_peers(report));
    alerts.extend(of_space(&report.targets));
    alerts.extend(heard.silent.iter().map(|pid| of_silent(*pid, heard)));
    let dead = heard.unasked.iter().filter(|(_, why)| *why == Unasked::Dead);
    alerts.extend(dead.map(|(mounted, _)| {
        let text = format!(
            "{} is dead: its process has ended, and whoever uses it gets ENOTCONN",
            mounted.path.display()
        );
        Alert::new(text, unasked::fix_of_dead(mounted))
    }));
    alerts
}

/// A process that says nothing, with what is known of what it does.
fn of_silent(pid: u32, heard: &Heard) -> Alert {
    let mounts = || heard.unasked.iter().filter(|(_, why)| why.pid() == Some(pid));
    let targets = heard.silent_targets.iter().filter(|target| target.pid == pid).map(name_of);
    let paths = mounts().map(|(mounted, _)| mounted.path.display().to_string());
    let does: Vec<String> = paths.chain(targets).collect();
    let does = if does.is_empty() { String::new() } else { format!(" ({})", listed(&does)) };
    let text = format!("process {pid}{does} does not answer: it is stopped, or its device stands still");
    let end = match mounts().next() {
        Some((mounted, _)) => unasked::end_of(&mounted.path, pid),
        None => format!("end it: kill -KILL {pid}"),
    };
    Alert::new(text, format!("look at its log; wake it: kill -CONT {pid}; or {end}"))
}

/// Of a cluster of `up`.
fn start(dir: &Path) -> String {
    format!("start: sheen up --dir {}", served::quoted_path(dir))
}

/// What an operator does about a target whose device failed, or whose rows are damaged.
fn of_fenced(target: &TargetStatus, cluster: Option<&Path>) -> Alert {
    if let Some(why) = &target.unserved {
        let text = format!("{} is not served: {why}", name_of(target));
        let fix = match cluster {
            Some(dir) => format!(
                "stop: {}; look: sheen fsck {}; if it is damaged, restore {}; {}",
                up::forced_down_command(dir),
                served::quoted_path(dir),
                target.dir.display(),
                start(dir)
            ),
            None => format!("process {}: {RESTORE}", target.pid),
        };
        return Alert::new(text, fix);
    }
    let text = format!(
        "{} is fenced: the device under {} failed to keep data",
        name_of(target),
        target.dir.display()
    );
    let fix = match cluster {
        Some(dir) => {
            format!("stop: {}; bring the storage back; {}", up::forced_down_command(dir), start(dir))
        }
        None => format!("end process {}, bring the storage back, and serve it again", target.pid),
    };
    Alert::new(text, fix)
}

/// Who was killed, or has given up.
fn of_gone(gone: &Gone) -> Alert {
    let names: Vec<String> = gone.targets.iter().map(name_of).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let text = format!("{} {verb} down: process {} has died", listed(&names), gone.pid);
    let vanished: Vec<String> = gone.vanished.iter().map(|dir| dir.display().to_string()).collect();
    if vanished.is_empty() {
        return Alert::new(text, format!("start: {}", gone.start));
    }
    let is = if vanished.len() == 1 { "is" } else { "are" };
    let text = format!("{text}, and {} {is} not there (is a disk not mounted?)", listed(&vanished));
    let fix = format!(
        "mount it, then start: {}; or, if they were removed for good: rm {}",
        gone.start,
        served::quoted_path(&gone.record)
    );
    Alert::new(text, fix)
}

fn of_down(report: &Report) -> Option<Alert> {
    let down = report.targets.iter().filter(|target| target.status.state == DOWN);
    let names: Vec<String> = down.map(Target::name).collect();
    let dir = report.dir.as_deref()?;
    let verb = if names.len() == 1 { "is" } else { "are" };
    let alert = || Alert::new(format!("{} {verb} down", listed(&names)), start(dir));
    (!names.is_empty()).then(alert)
}

/// Whom a recovery waits for, and for how long at most. To what is refused nobody comes: they are with the one that is served.
pub fn of_recovery(target: &TargetStatus) -> Option<Alert> {
    let recovery = target.recovery.as_ref().filter(|_| target.state != REFUSED)?;
    let name = name_of(target);
    let so_far =
        format!("{name} recovers: {} of {} clients are done", recovery.done_count, recovery.client_count);
    let (awaited, wait) = if recovery.unheard.is_empty() {
        (format!("{} s left for {}", recovery.seconds_left, listed(&recovery.missing)), "wait")
    } else {
        let (is, wait) = if recovery.unheard.len() == 1 { ("is", "start it") } else { ("are", "start them") };
        let unheard = listed(&recovery.unheard);
        (format!("the others replay what needs {unheard}, which {is} not heard"), wait)
    };
    let fix = format!("{wait}, or give them up: sheen lctl abort_recovery {name}");
    Some(Alert::new(format!("{so_far}, {awaited}"), fix))
}

/// Who has not been heard by the management server since it began, each with what it knows of why.
fn of_waiting(report: &Report, heard: &Heard) -> Vec<Alert> {
    let fix = match &report.dir {
        Some(dir) => start(dir),
        None => node::awaited_fix(),
    };
    let waiting = heard.processes.iter().filter_map(|process| {
        let mgs = process.mgs.as_ref().filter(|mgs| !mgs.is_heard && mgs.is_awaited)?;
        Some(Alert::new(node::awaited(mgs, &format!("process {}", process.pid)), fix.clone()))
    });
    waiting.collect()
}

/// Mounts and targets go on without it, and nobody hears of what moves.
fn of_management(report: &Report, heard: &Heard) -> Option<Alert> {
    let is_deaf =
        |process: &&Process| process.mgs.as_ref().is_some_and(|mgs| !mgs.is_heard && !mgs.is_awaited);
    let deaf = heard.processes.iter().filter(is_deaf);
    let (mut nids, mut pids) = (BTreeSet::new(), Vec::new());
    for process in deaf {
        nids.extend(process.mgs.iter().flat_map(|mgs| mgs.nids.clone()));
        pids.push(process.pid.to_string());
    }
    let verb = if pids.len() == 1 { "process" } else { "processes" };
    let nids: Vec<String> = nids.into_iter().collect();
    let text = format!(
        "the management server at {} does not answer {verb} {}: what is mounted goes on, nothing new can be mounted",
        nids.join(":"),
        listed(&pids)
    );
    let fix = match &report.dir {
        Some(dir) => start(dir),
        None => format!("start it on its machine: sheen up, {HOW_TO_SERVE}"),
    };
    (!pids.is_empty()).then(|| Alert::new(text, fix))
}

/// Nobody can make a file with data.
fn of_drained(heard: &Heard) -> Vec<Alert> {
    let names: BTreeSet<&String> =
        heard.processes.iter().filter_map(|process| process.drained_fsname.as_ref()).collect();
    let alert = |name: &String| {
        Alert::new(
            format!("all OSTs of {name} are drained: whoever makes a file gets ENOSPC"),
            format!(
                "add one, or open them, on a server: sheen lctl set_param obdfilter.{name}-OST*.no_create=0"
            ),
        )
    };
    names.into_iter().map(alert).collect()
}

/// Where a target is, and for how long it was not heard.
fn place_of(unheard: &Unheard) -> String {
    format!("{} at {} (for {} s)", unheard.target, unheard.nids.join(", "), unheard.seconds)
}

/// Targets by name, each with what is known of where it is and for how long it was not heard.
type Missed = BTreeMap<String, Option<Unheard>>;

/// Mounts that miss the same targets.
#[derive(Default)]
struct Group {
    mounts: Vec<String>,
    missed: Missed,
}

impl Group {
    fn add(&mut self, mounts: Vec<String>, missed: Missed) {
        self.mounts.extend(mounts);
        for (target, unheard) in missed {
            let longest = self.missed.entry(target).or_default();
            let seconds = |unheard: &Option<Unheard>| unheard.as_ref().map(|unheard| unheard.seconds);
            if seconds(&unheard) >= seconds(longest) {
                *longest = unheard;
            }
        }
    }

    fn alert(&self, one: &str, many: &str, fix: impl FnOnce(&str) -> String) -> Alert {
        let place = |(target, unheard): (&String, &Option<Unheard>)| {
            unheard.as_ref().map_or_else(|| target.clone(), place_of)
        };
        let places: Vec<String> = self.missed.iter().map(place).collect();
        let verb = if self.mounts.len() == 1 { one } else { many };
        let text = format!("{} {verb} {}", listed(&self.mounts), listed(&places));
        Alert::new(text, fix(self.mounts.first().map_or("", String::as_str)))
    }
}

/// Mounts with the targets that each misses. What many of them miss is said once; so is what they miss where each misses something else.
fn grouped(missed: impl Iterator<Item = (String, Missed)>) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
    for (mount, missed) in missed.filter(|(_, missed)| !missed.is_empty()) {
        groups.entry(missed.keys().cloned().collect()).or_default().add(vec![mount], missed);
    }
    let groups: Vec<Group> = groups.into_values().collect();
    if groups.len() <= GROUPS_MAX {
        return groups;
    }
    let mut all = Group::default();
    groups.into_iter().for_each(|group| all.add(group.mounts, group.missed));
    vec![all]
}

/// Targets whose connections stand, and that answer nothing. Of one here whose process is silent that is said already.
fn of_overdue(report: &Report) -> Vec<Alert> {
    let is_known = |name: &str| {
        report.targets.iter().any(|target| target.name() == name && target.status.state != ACTIVE)
    };
    let overdue = report.mounts.iter().map(|mount| {
        let is_overdue = |unheard: &&Unheard| unheard.is_connected && !is_known(&unheard.target);
        let missed = mount.unheard.iter().filter(is_overdue);
        let missed = missed.map(|unheard| (unheard.target.clone(), Some(unheard.clone())));
        (mount.path.display().to_string(), missed.collect())
    });
    let fix = |path: &str| {
        format!(
            "look: sheen health {}; on its server: sheen status (is its process stopped? does its device stand still?); else look at \
             the network between",
            served::quoted(path)
        )
    };
    let alert = |group: Group| {
        let Alert { text, fix } = group.alert("waits for", "wait for", fix);
        Alert::new(format!("{text}, connected, without any answer"), fix)
    };
    grouped(overdue).into_iter().map(alert).collect()
}

/// Targets that MDTs here call and do not hear. Of one here that does not work that is said already.
fn of_peers(report: &Report) -> Vec<Alert> {
    let is_known = |name: &str| {
        report.targets.iter().any(|target| target.name() == name && target.status.state != ACTIVE)
    };
    let alert = |target: &Target| {
        let is_broken =
            |unheard: &&Unheard| unheard.seconds >= BREAK_SECONDS_MIN && !is_known(&unheard.target);
        let unheard: Vec<String> = target.status.unheard.iter().filter(is_broken).map(place_of).collect();
        let name = target.name();
        let text = format!("{name} does not reach {}: operations that need both wait", listed(&unheard));
        let fix = format!(
            "on its server: sheen status (is it served?); then look at the network between the two servers (a firewall, a route), both ways; \
             more: sheen lctl get_param 'osp.*{}.import'",
            target.status.name
        );
        (!unheard.is_empty()).then(|| Alert::new(text, fix))
    };
    report.targets.iter().filter_map(alert).collect()
}

/// Targets elsewhere that mounts of this machine do not reach. What is known of a target here is said already.
fn of_sessions(report: &Report, figures: &Figures) -> Vec<Alert> {
    let is_known = |name: &str| report.targets.iter().any(|target| target.name() == name);
    let mut without: BTreeMap<String, Missed> = BTreeMap::new();
    for (labels, works) in figures.all("sheen_mount_session") {
        let [fsname, mount, target] = labels else { continue };
        let is_shown =
            |status: &&MountStatus| status.fsname == *fsname && status.path.display().to_string() == *mount;
        let Some(status) = report.mounts.iter().find(is_shown) else { continue };
        if works != 0.0 || is_known(target) {
            continue;
        }
        let unheard = status.unheard.iter().find(|unheard| unheard.target == *target);
        if unheard.is_none_or(|unheard| !unheard.is_connected) {
            without.entry(mount.clone()).or_default().insert(target.clone(), unheard.cloned());
        }
    }
    let fix = |mount: &str| {
        format!(
            "look which and why: sheen health {}; start on their servers: {HOW_TO_SERVE}",
            served::quoted(mount)
        )
    };
    let groups = grouped(without.into_iter()).into_iter();
    groups.map(|group| group.alert("has no session with", "have no session with", fix)).collect()
}

/// What is on an MDT goes to another MDT only.
fn more_room(names: &[String]) -> String {
    let has = |kind: &str| names.iter().any(|name| name.contains(kind));
    let kinds = match (has("-MDT"), has("-OST")) {
        (true, false) => "--mdt",
        (true, true) => "--ost (or --mdt)",
        _ => "--ost",
    };
    format!(
        "remove files, or add a target elsewhere: sheen mkfs {kinds} --index N …, sheen serve --listen ADDRESS DIR"
    )
}

/// Targets on one device are full together.
fn of_space(targets: &[Target]) -> Vec<Alert> {
    let mut low: BTreeMap<(u64, u64, &str), Vec<String>> = BTreeMap::new();
    for target in targets {
        let Some(space) = target.space else { continue };
        let of_bytes = (space.bytes_total, percent_left(space.bytes_available, space.bytes_total), "space");
        let of_inodes = (space.inodes_total, percent_left(space.inodes_free, space.inodes_total), "inodes");
        for found in [of_bytes, of_inodes].into_iter().filter(|(_, percent, _)| *percent <= LOW_PERCENT) {
            low.entry(found).or_default().push(target.name());
        }
    }
    let alert = |((_, percent, what), names): ((u64, u64, &str), Vec<String>)| {
        let text = format!("{}: {percent} % of the {what} of the local file system left", listed(&names));
        Alert::new(text, more_room(&names))
    };
    low.into_iter().map(alert).collect()
}

/// The first ones, and how many there are besides.
pub(super) fn listed(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN_MAX).map(String::as_str).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
