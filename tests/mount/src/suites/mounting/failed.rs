//! Mounts that fail: what they say, and that nothing of them stays at the servers.

use anyhow::{Context as _, Result, bail};

use super::{LIMIT, start, stop};
use crate::case::{Context, expect, wait_until, write};
use crate::cluster::Cluster;

/// How often each is tried.
const ATTEMPT_COUNT: usize = 3;

/// A SUBDIR that is not there, or is a file, is found out by lookups, which leave locks and sessions; a file system that is not there, by
/// the management server alone.
pub fn say_goodbye(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    write(&cluster.mount.join("file"), b"x")?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let source = cluster.source()?;
    let (mgs, _) = source.rsplit_once(":/").context("a file system")?;
    let before = exports(&cluster)?;
    let failures = [
        (format!("{source}/nosuch"), "has no directory 'nosuch'; make it first"),
        (format!("{source}/file"), "'file' of 'file' is no directory"),
        (format!("{mgs}:/nosuch"), "nosuch"),
    ];
    for (source, message) in failures.iter().cycle().take(failures.len() * ATTEMPT_COUNT) {
        // Servers of the same machine would find out by themselves that the process has ended.
        let said = match cluster.mount_source_elsewhere("failed", source) {
            Ok(_) => bail!("{source} is mounted"),
            Err(error) => format!("{error:#}"),
        };
        expect(said.contains(message), &format!("mount {source} says '{message}', not: {said}"))?;
    }
    // The last goodbye may be on its way.
    wait_until(LIMIT, "the servers have the sessions that they had", || Ok(exports(&cluster)? == before))?;
    stop(cluster)
}

/// How many sessions each target has.
fn exports(cluster: &Cluster) -> Result<String> {
    cluster.sheen(&["lctl", "get_param", "*.*.num_exports"])
}
