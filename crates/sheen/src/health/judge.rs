//! What is green, yellow and red of what a mount says about its targets.

use super::{Check, Level};
use crate::control::{StepHealth, TargetHealth};
use crate::listen::HOW_TO_SERVE;
use crate::mount::unasked::{self, Unasked};
use crate::mount_table::Mounted;
use crate::nid;
use crate::served;
use client::{ProbeStep, TargetProbe};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// Slower than this is no disk at work: something is overloaded or in the way.
const SLOW_US: u64 = 1_000_000;
/// Of space and inodes, in percent that are left.
pub const LOW_PERCENT: u64 = 10;
const FULL_PERCENT: u64 = 1;
/// File times come from servers, so that a wrong clock breaks nothing; logs of two machines do not fit together any more.
const SKEW_MS_MAX: i64 = 1000;

/// In words that travel.
pub fn describe(probe: TargetProbe) -> TargetHealth {
    let step = |step: ProbeStep| match step {
        ProbeStep::NotTried => StepHealth::NotTried,
        ProbeStep::Took(took) => StepHealth::TookUs(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
        ProbeStep::Failed(status) => StepHealth::Failed(status.to_string()),
        ProbeStep::Silent => StepHealth::Silent,
    };
    let space = probe.space.unwrap_or_default();
    TargetHealth {
        target: probe.target.to_string(),
        is_used: probe.is_used,
        state: probe.state.to_owned(),
        nids: probe.nids.iter().map(|address| nid::format_nid(address)).collect(),
        clock_ahead_ms: probe.clock_ahead_ns.map(|ahead| ahead / 1_000_000),
        version: probe.software,
        answer: step(probe.answer),
        lock: step(probe.lock),
        read: step(probe.read),
        bytes_total: space.bytes_total,
        bytes_available: space.bytes_available,
        inodes_total: space.inodes_total,
        inodes_free: space.inodes_free,
        device: space.device,
    }
}

/// The first kernel that drops all names of a mount at once. An overlay keeps those that it has looked up, and finds none of them again.
const DROPS_ALL_NAMES: (u32, u32) = (6, 16);

/// A mount whose process has not been asked.
pub fn unasked(mounted: &Mounted, why: Unasked) -> Check {
    let path = mounted.path.display();
    let red = |found: String, todo: String| Check::bad(Level::Red, "mount", found, todo);
    match why {
        Unasked::Stopped(pid) => {
            let end = unasked::end_of(&mounted.path, pid);
            let found = format!("{path} is mounted by process {pid}, which is stopped");
            red(found, format!("wake it: kill -CONT {pid}; or {end}"))
        }
        Unasked::Silent(pid) => {
            let end = unasked::end_of(&mounted.path, pid);
            let found = format!("{path} is mounted by process {pid}, which lives and says nothing");
            red(found, format!("look at its log; or {end}"))
        }
        Unasked::Dead => {
            red(format!("{path} is mounted, and its process has ended"), unasked::fix_of_dead(mounted))
        }
        Unasked::Elsewhere => red(
            format!("{path} is mounted, and no process that can be asked here serves it"),
            format!(
                "ask as the user who mounted it, with the same SHEEN_RUN; if its process is gone: umount -l {}, and mount it again",
                served::quoted_path(&mounted.path)
            ),
        ),
    }
}

/// Overlays over a mount whose names the kernel keeps.
pub fn overlays(overlays: &[PathBuf], options: &[String], kernel_release: &str) -> Option<Check> {
    let first = overlays.first()?;
    let is_old = version_of(kernel_release).is_some_and(|version| version < DROPS_ALL_NAMES);
    if is_old || options.iter().any(|word| word == "names=uncached") {
        return None;
    }
    let others = match overlays.len() - 1 {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    Some(Check::bad(
        Level::Yellow,
        "overlay",
        format!("{}{others} is an overlay over this mount, and may say ESTALE for good", first.display()),
        format!(
            "mount with -o names=uncached; where it says ESTALE: mount -o remount {}",
            served::quoted_path(first)
        ),
    ))
}

/// `6.18.44-cloud`: the first two numbers.
fn version_of(kernel_release: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel_release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// What the process of the mount says that it is.
pub fn version(theirs: &str) -> Check {
    let ours = wire::SOFTWARE;
    if theirs == ours {
        return Check::green("version", format!("{theirs}, protocol {}", wire::VERSION));
    }
    let found = format!("the mount runs {theirs}, this program is {ours}");
    Check::bad(Level::Yellow, "version", found, "mount it again to run the new one")
}

/// One line for one target: the worst that there is to say.
pub fn target(health: &TargetHealth) -> Check {
    let name = &health.target;
    if !health.is_used {
        let todo = format!("use it again: sheen lctl set_param '{}.*{name}*.active=1'", class(name));
        return Check::bad(Level::Yellow, name, "is switched off for this mount", todo);
    }
    let steps = [("answer", &health.answer), ("grant a lock", &health.lock), ("read", &health.read)];
    for (what, step) in steps {
        match step {
            StepHealth::Silent => return silent(health, what),
            StepHealth::Failed(status) => {
                let todo = "see its log and `sheen status`";
                return Check::bad(Level::Red, name, format!("does not {what}: {status}"), todo);
            }
            StepHealth::TookUs(_) | StepHealth::NotTried => {}
        }
    }
    let took = |step: &StepHealth| match step {
        StepHealth::TookUs(us) => *us,
        StepHealth::NotTried | StepHealth::Failed(_) | StepHealth::Silent => 0,
    };
    let [answer, lock, read] = [&health.answer, &health.lock, &health.read].map(took);
    let shown = |us: u64| format!("{}.{:02} ms", us / 1000, us % 1000 / 10);
    let round_trips = format!(
        "answers in {}, locks in {}, reads in {}, runs {}",
        shown(answer),
        shown(lock),
        shown(read),
        if health.version.is_empty() { "a version that it does not tell" } else { &health.version }
    );
    if answer.max(lock).max(read) > SLOW_US {
        let todo = format!("look at the load and the disk of its server, {}", place(health));
        return Check::bad(Level::Yellow, name, round_trips, todo);
    }
    let clock = health.clock_ahead_ms.unwrap_or_default();
    if clock.abs() > SKEW_MS_MAX {
        let found = format!("{round_trips}; its clock was {clock} ms ahead of ours when we compared them");
        return Check::bad(
            Level::Yellow,
            name,
            found,
            "set the clocks (NTP), and mount again to look once more",
        );
    }
    let room = room(health, &round_trips);
    if room.level == Level::Green && health.version != wire::SOFTWARE {
        let found = format!("{}; this program is {}", room.found, wire::SOFTWARE);
        let todo = format!("serve it by this program when its turn comes, {}", place(health));
        return Check::bad(Level::Yellow, name, found, todo);
    }
    room
}

fn class(name: &str) -> &'static str {
    if name.starts_with("MDT") { "mdc" } else { "osc" }
}

fn place(health: &TargetHealth) -> String {
    health.nids.first().cloned().unwrap_or_else(|| "which no configuration names".to_owned())
}

/// A target that recovers answers later by itself.
fn silent(health: &TargetHealth, what: &str) -> Check {
    let (name, place) = (&health.target, place(health));
    if health.state == "REPLAY" {
        let todo = "wait for it; `sheen status` says for whom it waits";
        return Check::bad(Level::Yellow, name, format!("recovers on {place} and does not {what} yet"), todo);
    }
    let found = format!("does not {what} within 3 s on {place} (session {})", health.state);
    let todo = format!("start it (sheen up, {HOW_TO_SERVE}), or see its log there");
    Check::bad(Level::Red, name, found, todo)
}

/// Nobody at all is reached: then it is not they who are to be started. `why`: how connecting to the management server fails.
pub fn network(why: &io::Error, targets: &[TargetHealth]) -> Option<Check> {
    let is_silent = |health: &TargetHealth| health.answer == StepHealth::Silent && health.state != "REPLAY";
    let used = || targets.iter().filter(|health| health.is_used);
    if used().count() == 0 || !used().all(is_silent) {
        return None;
    }
    let why = why.to_string();
    let why = why.split(" (os error").next().unwrap_or_default();
    let found = format!(
        "neither the management server nor any of {} targets is reached from this machine: {why}",
        used().count()
    );
    let todo = "check the network of this machine first (ip addr, ip route, its firewall), then whether the servers run";
    Some(Check::bad(Level::Red, "network", found, todo))
}

/// What there is nothing of is not scarce.
pub fn percent_left(left: u64, total: u64) -> u64 {
    if total == 0 { 100 } else { u64::try_from(u128::from(left) * 100 / u128::from(total)).unwrap_or(100) }
}

/// Inodes count where names are made, bytes where data lie.
fn room(health: &TargetHealth, round_trips: &str) -> Check {
    let name = &health.target;
    let bytes = percent_left(health.bytes_available, health.bytes_total);
    let inodes = percent_left(health.inodes_free, health.inodes_total);
    let (left, of) = if inodes < bytes { (inodes, "inodes") } else { (bytes, "space") };
    let found = format!("{round_trips}; {left} % of its {of} left");
    let todo = "remove files, or add targets; see `sheen lfs df`";
    match left {
        left if left <= FULL_PERCENT => Check::bad(Level::Red, name, found, todo),
        left if left <= LOW_PERCENT => Check::bad(Level::Yellow, name, found, todo),
        _ => Check::green(name, found),
    }
}

/// What all targets together have for files. `None` while one is missing: its line says so.
pub fn space(targets: &[TargetHealth]) -> Option<Check> {
    let sum = |kind: &str, of: fn(&TargetHealth) -> u64| {
        let mut seen = BTreeSet::new();
        let of_kind = targets.iter().filter(|health| health.target.starts_with(kind));
        of_kind.filter(|health| seen.insert(health.device)).map(of).fold(0, u64::saturating_add)
    };
    let is_whole = targets.iter().all(|health| matches!(health.answer, StepHealth::TookUs(_)));
    let gib = sum("OST", |health| health.bytes_available) >> 30;
    let inodes = sum("MDT", |health| health.inodes_free);
    let found = format!("{gib} GiB on all OSTs and {inodes} inodes on all MDTs are left");
    (is_whole && !targets.is_empty()).then(|| Check::green("space", found))
}
