//! Servers without a mount on their machine: one whose management server is not there, and one that was killed.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::case::{Context, expect, expect_eq, names, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::sys;

/// Bounds a hang only.
const PATIENCE: Duration = Duration::from_secs(60);
/// What its log says when it has waited for long enough at its start, and is ready.
const GOES_ON: &str = "serves its targets without the management server";

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(cluster: &Cluster, context: &Context, dir: &str, log: &Path) -> Result<Server> {
    let mut command = cluster.command();
    command.args(["serve", dir, "--log"]).arg(log);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(context.work.join("errors"))?);
    Ok(Server(command.spawn().context("a server")?))
}

/// Status and metrics name its target, and what starts it again, until somebody does.
pub(super) fn killed_is_missed(context: &Context) -> Result<()> {
    let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
    let dir = context.work.join("mgs").to_string_lossy().into_owned();
    let log = context.work.join("log");
    cluster.sheen(&["mkfs", "--mgs", &dir])?;
    let status = || -> Result<Value> { Ok(serde_json::from_str(&cluster.sheen(&["status", "--json"])?)?) };
    let wait_active =
        || wait_until(PATIENCE, "it is served", || Ok(status()?["targets"][0]["state"] == "active"));
    let metric = |state: &str| -> Result<bool> {
        let text = cluster.sheen(&["metrics"])?;
        Ok(text.lines().any(|line| {
            line.starts_with("sheen_target_state{")
                && line.contains("\"MGS\"")
                && line.contains(&format!("\"{state}\""))
                && line.ends_with(" 1.0")
        }))
    };
    let mut server = serve(&cluster, context, &dir, &log)?;
    wait_active()?;
    // From then on it is missed.
    wait_until(PATIENCE, "it has written down what it serves", || {
        Ok(names(&cluster.run_dir())?.iter().any(|name| name.ends_with(".served")))
    })?;
    sys::kill(i32::try_from(server.0.id())?, libc::SIGKILL)?;
    server.0.wait()?;
    let found = status()?;
    expect_eq(found["targets"][0]["state"].as_str(), Some("down"), &found.to_string())?;
    expect_eq(found["targets"][0]["name"].as_str(), Some("MGS"), &found.to_string())?;
    let alert = found["alerts"][0]["text"].as_str().unwrap_or_default();
    expect(alert.starts_with("MGS is down: process "), &found.to_string())?;
    let fix = found["alerts"][0]["fix"].as_str().unwrap_or_default();
    expect(fix.starts_with(&format!("start: sheen serve {dir} --log")), &found.to_string())?;
    expect(metric("down")? && !metric("active")?, "metrics say that it is down")?;

    let mut server = serve(&cluster, context, &dir, &log)?;
    wait_active()?;
    expect_eq(status()?["alerts"].as_array().map(Vec::len), Some(0), "nothing is missed")?;
    expect(metric("active")? && !metric("down")?, "metrics say that it is served")?;
    sys::kill(i32::try_from(server.0.id())?, libc::SIGTERM)?;
    server.0.wait()?;
    expect_eq(status()?["targets"].as_array().map(Vec::len), Some(0), "who has ended in order is not missed")
}

/// It says at once for whom it waits and why, is seen, and can be ended, all while it still starts.
pub(super) fn without_its_mgs(context: &Context) -> Result<()> {
    let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
    for (at, (nid, why, signal)) in [
        ("nowhere.invalid:7988@tcp", "does not resolve", libc::SIGTERM),
        ("127.0.0.1:1@tcp", "refused", libc::SIGINT),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = context.work.join(format!("ost{at}")).to_string_lossy().into_owned();
        cluster.sheen(&["mkfs", "--ost", "--index", "0", "--fsname", "suite", "--mgsnode", nid, &dir])?;
        let log = context.work.join(format!("log{at}"));
        let mut server = serve(&cluster, context, &dir, &log)?;
        let said = || fs::read_to_string(&log).unwrap_or_default();
        wait_until(PATIENCE, "it says for whom it waits", || Ok(said().contains(why)))?;
        let waits = said().lines().filter(|line| line.contains("waits for the management server at")).count();
        expect(waits >= 1 && said().contains(nid) && said().contains("--mgsnode"), &said())?;

        let status: Value = serde_json::from_str(&cluster.sheen(&["status", "--json"])?)?;
        expect_eq(status["targets"][0]["name"].as_str(), Some("OST0000"), &status.to_string())?;
        expect_eq(status["targets"][0]["state"].as_str(), Some("waiting"), &status.to_string())?;
        let alert = status["alerts"][0]["text"].as_str().unwrap_or_default();
        expect(alert.contains(nid) && alert.contains(why), &status.to_string())?;

        let pid = i32::try_from(server.0.id()).context("a process id")?;
        sys::kill(pid, signal)?;
        let end = server.0.wait()?;
        expect(end.success(), &format!("it ended with {end}: {}", said()))?;
        expect(said().contains("stopped") && !said().contains(GOES_ON), &said())?;
    }
    Ok(())
}
