//! `lctl`: parameters of all processes of this machine.

use crate::cli::{Lctl, LctlCommand};
use crate::control::{self, Ask};
use anyhow::{Result, bail};
use std::io::{self, Write};

/// # Errors
/// No process has such a parameter, or one refuses a value.
pub fn run(arguments: &Lctl) -> Result<()> {
    match &arguments.command {
        LctlCommand::GetParam { no_name, only_name, patterns } => {
            patterns.iter().try_for_each(|pattern| get(pattern, *no_name, *only_name))
        }
        LctlCommand::SetParam { permanent, delete, quiet, settings } => {
            settings.iter().try_for_each(|setting| set(setting, *permanent, *delete, *quiet))
        }
        LctlCommand::ListParam { mark, patterns } => {
            patterns.iter().try_for_each(|pattern| list(pattern, *mark))
        }
    }
}

/// What all processes answer, in order of name.
fn ask_all(ask: &Ask, pattern: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for process in control::processes() {
        found.extend(control::ask_if_alive(process.pid, ask)?.unwrap_or_default().params);
    }
    if found.is_empty() {
        bail!("no process of this machine has a parameter '{pattern}'; see `lctl list_param '*'`");
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn get(pattern: &str, no_name: bool, only_name: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    for (name, value) in ask_all(&Ask::GetParam { pattern: pattern.to_owned() }, pattern)? {
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

fn set(setting: &str, is_permanent: bool, is_deleted: bool, is_quiet: bool) -> Result<()> {
    let (pattern, value) = match setting.split_once('=') {
        Some((pattern, value)) => (pattern, value),
        None if is_deleted => (setting, ""),
        None => bail!("'{setting}' sets nothing; write PATH=VALUE"),
    };
    let (pattern, value) = (pattern.to_owned(), value.to_owned());
    let ask = Ask::SetParam { pattern: pattern.clone(), value, is_permanent, is_deleted };
    for (name, value) in ask_all(&ask, &pattern)? {
        if !is_quiet {
            println!("{name}={value}");
        }
    }
    Ok(())
}

fn list(pattern: &str, mark: bool) -> Result<()> {
    for (name, flags) in ask_all(&Ask::ListParam { pattern: pattern.to_owned() }, pattern)? {
        println!("{name}{}", if mark { flags.as_str() } else { "" });
    }
    Ok(())
}
