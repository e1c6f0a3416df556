//! `lctl`: parameters of all processes of this machine, and pools.

use crate::cli::{self, Lctl, LctlCommand};
use crate::control::{self, Absent, Ask, Process};
use crate::nid;
use crate::params;
use crate::pools;
use crate::say;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How long the processes of this machine may take to hear of a permanent change; others hear of it in their own time.
const CONFIG_PATIENCE: Duration = Duration::from_secs(6);

/// # Errors
/// No process has such a parameter, or one refuses a value.
pub fn run(arguments: &Lctl) -> Result<()> {
    let device = arguments.device.as_ref();
    if device.is_some() && !matches!(arguments.command, LctlCommand::AbortRecovery { target: None }) {
        bail!("--device names the target of abort_recovery, and nothing else here");
    }
    match &arguments.command {
        LctlCommand::AbortRecovery { target } => match target.as_ref().or(device) {
            Some(target) => abort_recovery(target),
            None => bail!("say which target: lctl abort_recovery TARGET; see `sheen status`"),
        },
        LctlCommand::GetParam { no_name, only_name, patterns } => {
            // One that is silent is waited for once, not for each of a collector's patterns.
            let here = control::processes();
            match only_name {
                // No value is read for a name, which may be that of a level above parameters.
                true => each_of(patterns, |pattern| {
                    check_listed(pattern)?;
                    list(&here, pattern, false, false)
                }),
                false => each_of(patterns, |pattern| {
                    params::check_name(pattern)?;
                    get(&here, pattern, *no_name)
                }),
            }
        }
        LctlCommand::SetParam { permanent, delete, quiet, settings } => {
            let mut settings: Vec<Setting> =
                settings.iter().map(|setting| Setting::parse(setting, *delete)).collect::<Result<_>>()?;
            // Nothing is set before everything is known to be possible.
            for setting in settings.iter().filter(|_| !*delete) {
                params::check(&setting.pattern, &setting.value, *permanent)?;
            }
            let here = control::processes();
            if settings.len() > 1 && !*delete {
                check_together(&here, &mut settings, *permanent)?;
            }
            let set = |setting: &Setting| set(&here, setting, *permanent, *delete, *quiet);
            if *permanent { each(&settings, set) } else { settings.iter().try_for_each(set) }
        }
        LctlCommand::ListParam { mark, recursive, patterns } => {
            let here = control::processes();
            each_of(patterns, |pattern| list(&here, pattern, *mark, *recursive))
        }
        LctlCommand::ListNids => list_nids(),
        LctlCommand::PoolNew { place } => pools::create(place),
        LctlCommand::PoolAdd(members) => pools::add(members),
        LctlCommand::PoolRemove(members) => pools::remove(members),
        LctlCommand::PoolDestroy { place } => pools::destroy(place),
        LctlCommand::PoolList { place } => pools::list(place),
    }
}

/// Where its servers listen, and what its mounts are called at theirs.
fn list_nids() -> Result<()> {
    let here = control::processes();
    if here.is_empty() {
        control::check_others()?;
        bail!("no server and no mount runs here; start them: sheen up");
    }
    for nid in nids_of(&here)? {
        println!("{nid}");
    }
    Ok(())
}

fn nids_of(here: &[Process]) -> Result<BTreeSet<String>> {
    let mut nids: BTreeSet<String> = BTreeSet::new();
    for process in here {
        nids.extend(process.targets.iter().map(|target| target.nid.clone()));
        for mount in process.mounts.iter().filter(|_| process.targets.is_empty()) {
            let mgs: Vec<String> =
                mount.mgs_nids.iter().map(|nid| nid::parse_nid(nid)).collect::<Result<_>>()?;
            nids.insert(nid::route::own_nid(&mgs));
        }
    }
    Ok(nids)
}

/// What one argument of `set_param` wants.
struct Setting {
    pattern: String,
    value: String,
}

impl Setting {
    fn parse(text: &str, is_deleted: bool) -> Result<Setting> {
        let (pattern, value) = match text.split_once('=') {
            Some((pattern, value)) => (pattern, value),
            None if is_deleted => (text, ""),
            None => bail!("'{text}' sets nothing; write PATH=VALUE"),
        };
        Ok(Setting { pattern: pattern.to_owned(), value: value.to_owned() })
    }
}

/// What all processes answer, in order of name.
fn ask_all(ask: &Ask) -> Result<Vec<(String, String)>> {
    ask_these(&control::processes(), ask)
}

/// The same where somebody is to be here.
///
/// # Errors
/// Nobody is heard, and there are processes of other users.
fn ask_servers(ask: &Ask) -> Result<Vec<(String, String)>> {
    let here = control::processes();
    if here.is_empty() {
        control::check_others()?;
    }
    ask_these(&here, ask)
}

/// One that does not know what is asked, since it is of another version, keeps no other from answering.
fn ask_these(here: &[Process], ask: &Ask) -> Result<Vec<(String, String)>> {
    let answers = here.iter().map(|process| control::ask_if_alive(process.pid, ask));
    merge(answers.map(|answer| Ok(answer?.unwrap_or_default().params)))
}

/// What some have answered, in order of name; if that is nothing, the first error.
fn merge(answers: impl Iterator<Item = Result<Vec<(String, String)>>>) -> Result<Vec<(String, String)>> {
    let (mut found, mut refused) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(params) => found.extend(params),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    found.sort();
    found.dedup();
    match refused {
        Some(error) if found.is_empty() => Err(error),
        Some(error) => {
            eprintln!("another process says: {error:#}");
            Ok(found)
        }
        None => Ok(found),
    }
}

fn nobody_has(here: &[Process], pattern: &str) -> Result<()> {
    if here.is_empty() {
        control::check_others()?;
        bail!("nothing of '{pattern}' is here: no server and no mount runs; start them: sheen up");
    }
    bail!("no process of this machine has '{pattern}' now; see `lctl list_param -R '*'`")
}

/// Collectors ask for whatever any version of Lustre has, in one command: what is here is printed, what is not gets a line each.
fn each_of(patterns: &[String], get: impl Fn(&str) -> Result<()>) -> Result<()> {
    if let [pattern] = patterns {
        return get(pattern);
    }
    let failed =
        |pattern: &&String| get(pattern).inspect_err(|error| say::note(format_args!("{error:#}"))).is_err();
    match patterns.iter().filter(failed).count() {
        0 => Ok(()),
        count => bail!("{count} of {} are not here; the others are printed", patterns.len()),
    }
}

/// # Errors
/// It names no parameter and no level above parameters; what is said is about parameters.
fn check_listed(pattern: &str) -> Result<()> {
    params::check_name(pattern).or_else(|error| params::check_level(pattern).map_err(|_| error))
}

fn get(here: &[Process], pattern: &str, no_name: bool) -> Result<()> {
    let found = ask_these(here, &Ask::GetParam { pattern: pattern.to_owned() })?;
    if found.is_empty() {
        return nobody_has(here, pattern);
    }
    let mut out = io::stdout().lock();
    for (name, value) in found {
        let value = value.trim_end_matches('\n');
        match (no_name, value.contains('\n')) {
            (true, _) => writeln!(out, "{value}")?,
            (false, true) => writeln!(out, "{name}=\n{value}")?,
            (false, false) => writeln!(out, "{name}={value}")?,
        }
    }
    Ok(())
}

/// Whether all of several can be set here, and how they come in an order in which each can: before the first is set.
///
/// # Errors
/// No process has one of them, or two do not fit each other.
fn check_together(here: &[Process], settings: &mut [Setting], is_permanent: bool) -> Result<()> {
    // A permanent one may be for processes that are elsewhere, or not there yet.
    for setting in settings.iter().filter(|_| !is_permanent) {
        let ask = Ask::ListParam { pattern: setting.pattern.clone(), is_recursive: false };
        if !ask_these(here, &ask)?.iter().any(|(_, mark)| mark == SETTABLE) {
            return nobody_has(here, &setting.pattern);
        }
    }
    if !settings.iter().any(|setting| AT_BOUNDS.contains(&setting.pattern.as_str())) {
        return Ok(());
    }
    let mut now = Vec::new();
    for process in here {
        let read = |name: &str| -> Result<Option<u64>> {
            let found =
                ask_these(std::slice::from_ref(process), &Ask::GetParam { pattern: name.to_owned() })?;
            Ok(found.first().and_then(|(_, value)| value.parse().ok()))
        };
        let [min, max] = AT_BOUNDS.map(read);
        now.extend(min?.zip(max?));
    }
    arrange_bounds(settings, &now)
}

/// The mark of a parameter that can be set, in answers to `ListParam`.
const SETTABLE: &str = "=";

/// The first cannot be above the second, unless that one is 0.
const AT_BOUNDS: [&str; 2] = ["at_min", "at_max"];

/// Judges the bounds as they will be in each process, by what it has `now`. Of two that are set that one comes first which fits the other
/// one of before.
///
/// # Errors
/// They would not fit each other.
fn arrange_bounds(settings: &mut [Setting], now: &[(u64, u64)]) -> Result<()> {
    // The last one of a name counts.
    let [min_at, max_at] = AT_BOUNDS.map(|name| settings.iter().rposition(|setting| setting.pattern == name));
    let value_of = |at: usize| settings.get(at).and_then(|setting| setting.value.parse::<u64>().ok());
    let (min, max) = (min_at.and_then(value_of), max_at.and_then(value_of));
    if let (Some(min), Some(max)) = (min, max) {
        params::check_timeout_bounds(min, max)?;
    }
    for (min_now, max_now) in now {
        params::check_timeout_bounds(min.unwrap_or(*min_now), max.unwrap_or(*max_now))?;
    }
    if let (Some(min_at), Some(max_at), Some(max)) = (min_at, max_at, max) {
        let is_max_first = max == 0 || now.iter().all(|(min_now, _)| *min_now <= max);
        if is_max_first == (min_at < max_at) {
            settings.swap(min_at, max_at);
        }
    }
    Ok(())
}

/// What one file system refuses keeps none from what comes behind it.
///
/// # Errors
/// The last one; those before it are said.
fn each(settings: &[Setting], set: impl FnMut(&Setting) -> Result<()>) -> Result<()> {
    let mut errors: Vec<_> = settings.iter().map(set).filter_map(Result::err).collect();
    let last = errors.pop();
    errors.iter().for_each(|error| say::note(format_args!("{error:#}")));
    last.map_or(Ok(()), Err)
}

fn set(
    here: &[Process],
    setting: &Setting,
    is_permanent: bool,
    is_deleted: bool,
    is_quiet: bool,
) -> Result<()> {
    let (pattern, value) = (setting.pattern.clone(), setting.value.clone());
    let ask = Ask::SetParam { pattern, value, is_permanent, is_deleted };
    let (found, refused) = match is_permanent {
        true => ask_file_systems(here, &ask),
        false => set_in_each(here.iter().map(|process| process.pid), &setting.pattern, &ask, |pid, ask| {
            Ok(control::ask_if_alive(pid, ask)?.unwrap_or_default().params)
        }),
    };
    if found.is_empty() && refused.is_empty() {
        return nobody_has(here, &setting.pattern);
    }
    let is_done = !found.is_empty();
    if !is_quiet {
        for (name, value) in found {
            if is_deleted { println!("{name}") } else { println!("{name}={value}") }
        }
    }
    judge(refused, is_done, is_deleted, |line| say::note(line))
}

/// Sets in each process what that has of the pattern. One that has nothing of it, since it is of another version, refuses
/// nothing, unless nobody has it.
fn set_in_each(
    pids: impl Iterator<Item = u32>,
    pattern: &str,
    set: &Ask,
    ask: impl Fn(u32, &Ask) -> Result<Vec<(String, String)>>,
) -> (Vec<(String, String)>, Vec<Refusal>) {
    let list = Ask::ListParam { pattern: pattern.to_owned(), is_recursive: false };
    let (mut found, mut refused, mut ignorant) = (Vec::new(), Vec::new(), Vec::new());
    for pid in pids {
        match ask(pid, set) {
            Ok(params) => found.extend(params),
            Err(error) => {
                let has_it =
                    control::is_silence(&error) || ask(pid, &list).is_ok_and(|known| !known.is_empty());
                let refusals = if has_it { &mut refused } else { &mut ignorant };
                refusals.push((format!("process {pid}"), error));
            }
        }
    }
    found.sort();
    found.dedup();
    if found.is_empty() {
        refused.append(&mut ignorant);
    }
    ignorant.into_iter().for_each(|(process, error)| say::note(format_args!("{process}: {error:#}")));
    (found, refused)
}

/// Of several file systems, or processes, those that have not done what others have, or nobody has. What is to be taken out, or ended, need not have
/// been in all.
///
/// # Errors
/// Nobody has done it, or it is set, or still there, in some.
fn judge(refused: Vec<Refusal>, is_done: bool, is_deleted: bool, note: impl Fn(&str)) -> Result<()> {
    let has_it = |(_, error): &&Refusal| !error.is::<Absent>();
    let names: Vec<&str> = refused.iter().filter(has_it).map(|(fsname, _)| fsname.as_str()).collect();
    let names = names.join(", ");
    let mut refused = refused.into_iter();
    let only = if is_done { None } else { refused.next() };
    refused.for_each(|(fsname, error)| note(&format!("{fsname}: {error:#}")));
    match only {
        Some((_, error)) => Err(error),
        None if names.is_empty() => Ok(()),
        None if is_deleted => bail!("it is not taken out in {names}"),
        None => bail!("it is not set in {names}"),
    }
}

fn abort_recovery(target: &str) -> Result<()> {
    let found = ask_servers(&Ask::AbortRecovery { target: target.to_owned() })?;
    if found.is_empty() {
        bail!("no server of this machine serves '{target}'; see `sheen status`");
    }
    for (name, given_up) in found {
        match given_up.as_str() {
            "0" => println!("{name} waits for nobody"),
            count => println!("{name}: clients given up: {count}"),
        }
    }
    Ok(())
}

/// After a remount: each mount of this machine asks the kernel for its flags.
///
/// # Errors
/// A mount does not answer.
pub fn reread_flags() -> Result<()> {
    let (pattern, value) = ("llite.*.access_times".to_owned(), params::REREAD.to_owned());
    ask_all(&Ask::SetParam { pattern, value, is_permanent: false, is_deleted: false }).map(drop)
}

/// `sheen failover`
///
/// # Errors
/// Nobody stands by for the target here, or it is not taken over.
pub fn failover(arguments: &cli::Failover) -> Result<()> {
    let target = &arguments.target;
    let Some(epoch) = arguments.epoch.filter(|_| arguments.fenced) else {
        bail!(
            "two servers that write to {target} destroy it; make sure that its old owner cannot write any more, then say so with the \
             command that `sheen status` shows: sheen failover {target} --fenced --epoch N"
        );
    };
    let found = ask_servers(&Ask::Failover { target: target.clone(), epoch })?;
    if found.is_empty() {
        bail!("no server of this machine stands by for '{target}'; see `sheen status`");
    }
    for (name, _) in found {
        println!("{name} is taken over");
    }
    Ok(())
}

/// A file system, or a process, that has not done what it was asked for, and why.
type Refusal = (String, anyhow::Error);

/// Asks one process of each file system, a server's if there is one, which is newer than a mount in the middle of an upgrade; they all have
/// the same management server. Returns when every process of this machine has heard of the change, or has had the time to. One that refuses
/// keeps no other from doing it.
fn ask_file_systems(here: &[Process], ask: &Ask) -> (Vec<(String, String)>, Vec<Refusal>) {
    let mut chosen: BTreeMap<&str, u32> = BTreeMap::new();
    let (servers, mounts): (Vec<&Process>, Vec<&Process>) =
        here.iter().partition(|process| !process.targets.is_empty());
    for process in servers.into_iter().chain(mounts) {
        if let Some(fsname) = process.fsname() {
            chosen.entry(fsname).or_insert(process.pid);
        }
    }
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for (fsname, pid) in chosen {
        match control::ask_if_alive(pid, ask) {
            Ok(tell) => {
                found.extend(tell.unwrap_or_default().params);
                wait_for_config(here, fsname, pid);
            }
            Err(error) => refused.push((fsname.to_owned(), error)),
        }
    }
    found.sort();
    found.dedup();
    (found, refused)
}

/// Returns when each of these processes that belongs to the file system works with the configuration of that one, or has had the time.
pub fn wait_for_config(here: &[Process], fsname: &str, pid: u32) {
    let start = Instant::now();
    let of_it = here.iter().filter(|process| process.fsname() == Some(fsname));
    let mut awaited: Vec<u32> = of_it.map(|process| process.pid).filter(|other| *other != pid).collect();
    let Some(wanted) = config_version(pid) else { return };
    while !awaited.is_empty() && start.elapsed() < CONFIG_PATIENCE {
        // One that has ended, or is silent now, is not waited for.
        awaited.retain(|other| config_version(*other).is_some_and(|version| version < wanted));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `None`: it is not there any more, or follows no configuration.
fn config_version(pid: u32) -> Option<u64> {
    control::ask_if_alive(pid, &Ask::Status).ok()??.process?.config_version
}

fn list(here: &[Process], pattern: &str, mark: bool, is_recursive: bool) -> Result<()> {
    let found = ask_these(here, &Ask::ListParam { pattern: pattern.to_owned(), is_recursive })?;
    if found.is_empty() {
        params::check_level(pattern)?;
        return nobody_has(here, pattern);
    }
    for (name, flags) in found {
        println!("{name}{}", if mark { flags.as_str() } else { "" });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
