//! `lctl`: parameters of all processes of this machine, and pools.

use crate::cli::{self, Lctl, LctlCommand};
use crate::control::{self, Ask};
use crate::params;
use crate::pools;
use crate::say;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
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
            let pids: Vec<u32> = control::processes().iter().map(|process| process.pid).collect();
            get_all(patterns, |pattern| get(&pids, pattern, *no_name, *only_name))
        }
        LctlCommand::SetParam { permanent, delete, quiet, settings } => {
            let settings: Vec<Setting> =
                settings.iter().map(|setting| Setting::parse(setting, *delete)).collect::<Result<_>>()?;
            // Nothing is set before everything is known to be possible.
            for setting in settings.iter().filter(|_| !*delete) {
                params::check(&setting.pattern, &setting.value, *permanent)?;
            }
            settings.iter().try_for_each(|setting| set(setting, *permanent, *delete, *quiet))
        }
        LctlCommand::ListParam { mark, recursive, patterns } => {
            patterns.iter().try_for_each(|pattern| list(pattern, *mark, *recursive))
        }
        LctlCommand::PoolNew { place } => pools::create(place),
        LctlCommand::PoolAdd(members) => pools::add(members),
        LctlCommand::PoolRemove(members) => pools::remove(members),
        LctlCommand::PoolDestroy { place } => pools::destroy(place),
        LctlCommand::PoolList { place } => pools::list(place),
    }
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
    let pids: Vec<u32> = control::processes().iter().map(|process| process.pid).collect();
    ask_these(&pids, ask)
}

fn ask_these(pids: &[u32], ask: &Ask) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for pid in pids {
        found.extend(control::ask_if_alive(*pid, ask)?.unwrap_or_default().params);
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn nobody_has(pattern: &str) -> Result<()> {
    nobody_of(&control::processes(), pattern)
}

fn nobody_of<T>(processes: &[T], pattern: &str) -> Result<()> {
    if processes.is_empty() {
        bail!("nothing of '{pattern}' is here: no server and no mount runs; start them: sheen up");
    }
    bail!("no process of this machine has '{pattern}' now; see `lctl list_param -R '*'`")
}

/// Collectors ask for whatever any version of Lustre has, in one command: what is here is printed, what is not gets a line each.
fn get_all(patterns: &[String], get: impl Fn(&str) -> Result<()>) -> Result<()> {
    let get = |pattern: &String| params::check_name(pattern).and_then(|()| get(pattern));
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

fn get(pids: &[u32], pattern: &str, no_name: bool, only_name: bool) -> Result<()> {
    let found = ask_these(pids, &Ask::GetParam { pattern: pattern.to_owned() })?;
    if found.is_empty() {
        return nobody_of(pids, pattern);
    }
    let mut out = io::stdout().lock();
    for (name, value) in found {
        let value = value.trim_end_matches('\n');
        match (only_name, no_name, value.contains('\n')) {
            (true, ..) => writeln!(out, "{name}")?,
            (false, true, _) => writeln!(out, "{value}")?,
            (false, false, true) => writeln!(out, "{name}=\n{value}")?,
            (false, false, false) => writeln!(out, "{name}={value}")?,
        }
    }
    Ok(())
}

fn set(setting: &Setting, is_permanent: bool, is_deleted: bool, is_quiet: bool) -> Result<()> {
    let (pattern, value) = (setting.pattern.clone(), setting.value.clone());
    let ask = Ask::SetParam { pattern, value, is_permanent, is_deleted };
    let found = if is_permanent { ask_file_systems(&ask)? } else { ask_all(&ask)? };
    if found.is_empty() {
        return nobody_has(&setting.pattern);
    }
    if !is_quiet {
        for (name, value) in found {
            if is_deleted { println!("{name}") } else { println!("{name}={value}") }
        }
    }
    Ok(())
}

fn abort_recovery(target: &str) -> Result<()> {
    let found = ask_all(&Ask::AbortRecovery { target: target.to_owned() })?;
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
pub fn reread_access_times() -> Result<()> {
    let (pattern, value) = ("llite.*.access_times".to_owned(), "1".to_owned());
    ask_all(&Ask::SetParam { pattern, value, is_permanent: false, is_deleted: false }).map(drop)
}

/// `sheen failover`
///
/// # Errors
/// Nobody stands by for the target here, or it is not taken over.
pub fn failover(arguments: &cli::Failover) -> Result<()> {
    let target = &arguments.target;
    if !arguments.fenced {
        bail!(
            "two servers that write to {target} destroy it; make sure that its old owner cannot write any more, then say so: sheen failover {target} --fenced"
        );
    }
    let found = ask_all(&Ask::Failover { target: target.clone() })?;
    if found.is_empty() {
        bail!("no server of this machine stands by for '{target}'; see `sheen status`");
    }
    for (name, _) in found {
        println!("{name} is taken over");
    }
    Ok(())
}

/// Asks one process of each file system; they all have the same management server. Returns when every process of this
/// machine has heard of the change, or has had the time to.
fn ask_file_systems(ask: &Ask) -> Result<Vec<(String, String)>> {
    let processes = control::processes();
    let mut chosen: BTreeMap<&str, u32> = BTreeMap::new();
    for process in &processes {
        if let Some(fsname) = process.fsname() {
            chosen.entry(fsname).or_insert(process.pid);
        }
    }
    let mut found = Vec::new();
    for (fsname, pid) in chosen {
        found.extend(control::ask_if_alive(pid, ask)?.unwrap_or_default().params);
        wait_for_config(fsname, pid);
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Returns when every process of the file system on this machine works with the configuration of that one, or has had the time.
pub fn wait_for_config(fsname: &str, pid: u32) {
    let start = Instant::now();
    while start.elapsed() < CONFIG_PATIENCE {
        let mut processes = control::processes();
        processes.retain(|process| process.fsname() == Some(fsname));
        let wanted = processes.iter().find(|process| process.pid == pid).and_then(|one| one.config_version);
        if processes.iter().all(|process| process.config_version >= wanted) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn list(pattern: &str, mark: bool, is_recursive: bool) -> Result<()> {
    let found = ask_all(&Ask::ListParam { pattern: pattern.to_owned(), is_recursive })?;
    if found.is_empty() {
        params::check_level(pattern)?;
        return nobody_has(pattern);
    }
    for (name, flags) in found {
        println!("{name}{}", if mark { flags.as_str() } else { "" });
    }
    Ok(())
}
