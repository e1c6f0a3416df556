//! `sheen serve --config FILE`: what a server is told in /etc/sheen/NAME.toml, in the words of the command line.

use crate::cli::Serve;
use crate::nid;
use crate::spelling;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file is a few lines; more is not one.
const FILE_BYTES_MAX: u64 = 1 << 20;
const KEYS: [&str; 9] = [
    "targets",
    "listen",
    "insecure_network",
    "mgsnode",
    "failover",
    "fence_cmd",
    "coordinator",
    "log",
    "metrics",
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServeFile {
    #[serde(default)]
    targets: Vec<PathBuf>,
    listen: Option<String>,
    #[serde(default)]
    insecure_network: bool,
    mgsnode: Option<String>,
    #[serde(default)]
    failover: bool,
    fence_cmd: Option<String>,
    coordinator: Option<String>,
    log: Option<PathBuf>,
    metrics: Option<String>,
}

/// Puts what the file says in the place of what was not said on the command line.
///
/// # Errors
/// The file cannot be read, a key is not known or has a value of another kind; the line says which.
pub fn complete(arguments: &Serve) -> Result<Serve> {
    let Some(path) = &arguments.config else { return Ok(arguments.clone()) };
    let told = parse(&read(path)?).with_context(|| format!("{}", path.display()))?;
    let mut arguments = arguments.clone();
    arguments.dirs = told.targets;
    arguments.listen = told.listen;
    arguments.insecure_network = told.insecure_network;
    if let Some(nids) = &told.mgsnode {
        nid::parse_nids(nids).with_context(|| format!("{}: 'mgsnode'", path.display()))?;
    }
    arguments.mgsnode = told.mgsnode;
    arguments.failover = told.failover;
    arguments.fence_cmd = told.fence_cmd;
    let coordinator = told.coordinator.as_deref().map(str::parse).transpose();
    arguments.coordinator = coordinator.with_context(|| format!("{}: 'coordinator'", path.display()))?;
    arguments.background.log = arguments.background.log.or(told.log);
    arguments.background.metrics = arguments.background.metrics.or(told.metrics);
    Ok(arguments)
}

/// The NAME of the file in this directory by which `sheen-server@NAME` serves a target.
pub fn name_of(files: &Path, target: &Path) -> Option<String> {
    let is_it = |dir: &PathBuf| dir == target || dir.canonicalize().is_ok_and(|dir| dir == target);
    let mut names: Vec<String> = std::fs::read_dir(files)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
        .collect();
    names.sort();
    let has_it = |name: &String| {
        let told = read(&files.join(format!("{name}.toml"))).and_then(|text| parse(&text));
        told.is_ok_and(|told| told.targets.iter().any(is_it))
    };
    names.into_iter().find(has_it)
}

fn read(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(cannot)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).with_context(cannot)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{} is larger than 1 MiB; it is no configuration of a server", path.display());
    }
    Ok(text)
}

fn parse(text: &str) -> Result<ServeFile> {
    let table: toml::Table = text.parse().map_err(|error| one_line(text, &error))?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        match spelling::nearest(key, KEYS) {
            Some(near) => bail!("the key '{key}' is not known; did you mean '{near}'?"),
            None => bail!("the key '{key}' is not known; there are {}", KEYS.join(", ")),
        }
    }
    let told: ServeFile = toml::from_str(text).map_err(|error| one_line(text, &error))?;
    if told.targets.is_empty() {
        bail!("it names no target; say which directories are served: targets = [\"DIR\"]");
    }
    if let Some(dir) = told.targets.iter().find(|dir| !dir.is_absolute()) {
        bail!("the target '{}' is no absolute path; begin it with /", dir.display());
    }
    let of_failover = [("fence_cmd", told.fence_cmd.is_some()), ("coordinator", told.coordinator.is_some())];
    if let Some((key, _)) = of_failover.iter().find(|(_, is_there)| *is_there && !told.failover) {
        bail!("'{key}' is for servers with failover; add failover = true, or take it out");
    }
    Ok(told)
}

/// Its own text shows the place in several lines.
fn one_line(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    anyhow::anyhow!("line {}: {}", before.matches('\n').count() + 1, error.message())
}

#[cfg(test)]
mod tests;
