//! Targets that are ended in order: whoever is restarted meanwhile waits for none of them.

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::super::grow::{self, Joined, PATIENCE, end, wait_seen};
use crate::case::{Context, expect, wait_until};
use crate::cluster::Cluster;
use crate::sys;

/// More than a whole recovery window, in which it would wait for somebody in vain: that shows in what it says then.
const RECOVERED_WITHIN: std::time::Duration = std::time::Duration::from_secs(120);

fn parameter(cluster: &Cluster, name: &str) -> Result<String> {
    cluster.sheen(&["lctl", "get_param", "-n", name])
}

/// An OST is restarted while the only MDT is not there.
pub(super) fn left_in_order(context: &Context) -> Result<()> {
    let (mut cluster, mounts) = grow::running(context)?;
    grow::make_files(&cluster, &mounts, "before")?;
    let begun = Instant::now();
    let mut joined = Joined::add(&cluster, &context.work, "--ost", 2)?;
    wait_seen(&cluster, &mounts, "OST0002", begun)?;
    grow::make_files(&cluster, &mounts, "grown")?;
    let knows_mdt = || -> Result<bool> {
        Ok(parameter(&cluster, "obdfilter.*OST0002.exports.*.uuid")?.contains("MDT0000_UUID"))
    };
    wait_until(PATIENCE, "the OST knows the MDT", knows_mdt)?;

    let is_mdt = |(name, _): &(String, i32)| name == "MDT0000";
    let (_, pid) = cluster.targets()?.into_iter().find(is_mdt).context("the MDT")?;
    sys::kill(pid, libc::SIGTERM).context("end the MDT")?;
    wait_until(PATIENCE, "the MDT has ended", || Ok(sys::kill(pid, 0).is_err()))?;
    expect(!knows_mdt()?, "the OST has heard its goodbye")?;

    joined.signal(libc::SIGTERM)?;
    joined.serve_again(&cluster)?;
    let status = || parameter(&cluster, "obdfilter.*OST0002.recovery_status");
    wait_until(RECOVERED_WITHIN, "the OST has recovered", || {
        // Its server may not answer yet.
        Ok(status().is_ok_and(|text| text.contains("COMPLETE") || text.contains("INACTIVE")))
    })?;
    let text = status()?;
    let is_alone = text.contains("status: INACTIVE") || text.contains("evicted_clients: 0\n");
    expect(is_alone, &format!("it has waited for nobody in vain: {text}"))?;

    // The MDT is back, and uses it.
    cluster.up()?;
    wait_until(PATIENCE, "the OST knows the MDT again", knows_mdt)?;
    for name in ["before", "grown"] {
        grow::check_files(&mounts[0], name)?;
    }
    grow::make_files(&cluster, &mounts, "again")?;
    drop(cluster.new_complaints());
    end(&cluster, &mounts, joined)
}
