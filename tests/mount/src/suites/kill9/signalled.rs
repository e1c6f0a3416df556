//! Signals of processes that wait for a server which is away: one that they handle ends no call, one that they die of ends them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::start_with;
use crate::agent::Agent;
use crate::case::{Context, expect, expect_answer, expect_eq, note, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::sys;

const SHAPE: Shape = Shape { mdt_count: 1, ost_count: 1, is_split: true };
/// Bounds a hang only.
const PATIENCE: Duration = Duration::from_secs(60);
/// For how long a server is away at least, and a call must still wait.
const AWAY: Duration = Duration::from_secs(3);

fn kill(cluster: &Cluster, target: &str) -> Result<()> {
    let (_, pid) =
        cluster.targets()?.into_iter().find(|(name, _)| name == target).context("no such target")?;
    sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill {target}"))
}

/// A timer goes off every few milliseconds in a program that changes names and looks them up while its MDT dies and comes back.
pub fn to_handle(context: &Context) -> Result<()> {
    let cluster = start_with(context, SHAPE)?;
    let (dir, enough) = (cluster.mount.join("dir"), context.work.join("enough"));
    fs::create_dir(&dir)?;
    let other = cluster.mount_again("other")?;
    let (mut agent, mut looking) = (Agent::new()?, Agent::new()?);
    agent.start(&json!({"op": "timed", "dir": dir, "enough": enough}))?;
    for number in 0..3 {
        let [file] = unknown(&cluster, &other, &format!("place{number}"), ["file"])?;
        let up = cluster.up_in_waiting()?;
        kill(&cluster, "MDT0000")?;
        // A lookup: what changes something waits for the MDT whatever comes.
        waiting(&mut looking, "stat", &file)?;
        for _ in 0..10 {
            sys::kill(looking.pid(), libc::SIGALRM)?;
            let answer = looking.answer(AWAY / 10)?;
            expect(answer.is_none(), &format!("a lookup while the MDT was away: {answer:?}"))?;
        }
        let answer = agent.answer(Duration::ZERO)?;
        expect(answer.is_none(), &format!("while the MDT was away: {answer:?}"))?;
        up.go()?;
        let seen = looking.answer(PATIENCE)?.context("the lookup does not end")?;
        expect_answer(seen.err().unwrap_or(0), 0, "the lookup when the MDT is back")?;
    }
    std::thread::sleep(Duration::from_millis(500));
    fs::write(&enough, "")?;
    let done = agent.answer(PATIENCE)?.context("it does not end")?;
    let done = done.map_err(io::Error::from_raw_os_error).context("a call failed")?;
    let number = |name: &str| done.get(name).and_then(Value::as_u64).unwrap_or_default();
    note(&format!("{} calls, {} signals", number("calls"), number("alarms")));
    expect(number("calls") > 20, "calls")?;
    expect(number("longest_ms") >= AWAY.as_millis() as u64, "no call waited for the MDT")?;
    expect(number("alarms") > 5, "signals")?;
    cluster.down().map(drop)
}

/// Files in a directory of which the first mount knows nothing, so that a look into it asks the MDT.
fn unknown<const N: usize>(
    cluster: &Cluster,
    other: &Path,
    dir: &str,
    names: [&str; N],
) -> Result<[PathBuf; N]> {
    fs::create_dir(other.join(dir))?;
    for name in names {
        fs::write(other.join(dir).join(name), "there")?;
    }
    let dir = cluster.mount.join(dir);
    fs::metadata(&dir)?;
    Ok(names.map(|name| dir.join(name)))
}

/// An agent whose call waits for the server.
fn waiting(agent: &mut Agent, op: &str, path: &Path) -> Result<()> {
    agent.start(&json!({"op": op, "path": path}))?;
    let answer = agent.answer(Duration::from_secs(1))?;
    expect(answer.is_none(), &format!("{op} while the server is away: {answer:?}"))
}

/// kill -9 ends who waits although the server does not come back, also one whose handled signals were told to the mount before.
pub fn killed(context: &Context) -> Result<()> {
    let cluster = start_with(context, SHAPE)?;
    // Of two lookups of one name the kernel asks us for one, and the other waits in the kernel for that one.
    let other = cluster.mount_again("other")?;
    let files = unknown(&cluster, &other, "place", ["one", "two"])?;
    let mut agents = [Agent::new()?, Agent::new()?];
    let up = cluster.up_in_waiting()?;
    kill(&cluster, "MDT0000")?;
    for (agent, file) in agents.iter_mut().zip(&files) {
        waiting(agent, "stat", file)?;
    }
    for _ in 0..5 {
        sys::kill(agents[1].pid(), libc::SIGALRM)?;
        let answer = agents[1].answer(Duration::from_millis(300))?;
        expect(answer.is_none(), &format!("a signal that is handled ended the wait: {answer:?}"))?;
    }
    for agent in &mut agents {
        sys::kill(agent.pid(), libc::SIGKILL)?;
        wait_until(PATIENCE, "who was killed ends", || agent.has_ended())?;
    }
    up.go()?;
    for file in &files {
        expect_eq(fs::read(file)?, b"there".to_vec(), "the file")?;
    }
    cluster.down().map(drop)
}

/// A statfs(2) that waits for an OST (`nolazystatfs`) may be ended by any signal, as POSIX has it, and does not end by itself.
pub fn statfs(context: &Context) -> Result<()> {
    let cluster = start_with(context, SHAPE)?;
    let patient = cluster.mount_with("patient", "nolazystatfs")?;
    for mount in [&cluster.mount, &patient] {
        // Both know what there was before.
        sys::statfs(mount)?;
    }
    let mut agent = Agent::new()?;
    let up = cluster.up_in_waiting()?;
    kill(&cluster, "OST0000")?;
    let lazy = agent.call(&json!({"op": "statfs", "path": cluster.mount}))?;
    expect_answer(lazy.err().unwrap_or(0), 0, "lazystatfs")?;
    waiting(&mut agent, "statfs", &patient)?;
    expect(agent.answer(AWAY)?.is_none(), "it waits on")?;
    let mut answer = None;
    wait_until(PATIENCE, "the signal ends the wait", || {
        sys::kill(agent.pid(), libc::SIGALRM)?;
        answer = agent.answer(Duration::from_millis(300))?;
        Ok(answer.is_some())
    })?;
    let errno = answer.and_then(Result::err).unwrap_or(0);
    expect_answer(errno, libc::EINTR, "statfs after the signal")?;
    waiting(&mut agent, "statfs", &patient)?;
    up.go()?;
    let late = agent.answer(PATIENCE)?.context("statfs after the OST came back")?;
    expect_answer(late.err().unwrap_or(0), 0, "statfs after the OST came back")?;
    cluster.down().map(drop)
}
