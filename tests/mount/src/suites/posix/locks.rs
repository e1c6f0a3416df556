use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::agent::{self, Agent, LockRequest};
use crate::case::{Context, expect, expect_answer, expect_eq, wait_until, write};
use crate::sys::{self, Conflict, LockKind, LockMode};

/// A wait that must not end: long enough for a wrong grant to show.
const STILL_WAITING: Duration = Duration::from_millis(150);
/// A wait that must end.
const GRANTED: Duration = Duration::from_secs(60);

fn request(kind: LockKind, mode: LockMode, start: i64, byte_count: i64) -> LockRequest<'static> {
    LockRequest { key: "f", kind, mode, start, byte_count }
}

/// Two agents with the case's file open as "f", one on each mount.
fn two_agents(context: &Context) -> Result<(Agent, Agent)> {
    let (a, b) = context.both("file");
    write(&a, b"0123456789")?;
    let (mut one, mut two) = (Agent::new()?, Agent::new()?);
    one.open("f", &a, libc::O_RDWR)?;
    two.open("f", &b, libc::O_RDWR)?;
    Ok((one, two))
}

fn expect_waiting(agent: &mut Agent, what: &str) -> Result<()> {
    expect(agent.answer(STILL_WAITING)?.is_none(), what)
}

fn expect_granted(agent: &mut Agent, what: &str) -> Result<()> {
    let answer = agent.answer(GRANTED)?.with_context(|| format!("{what}: still waiting"))?;
    expect_answer(answer.err().unwrap_or(0), 0, what)
}

/// flock: shared, exclusive, upgrade, wait, unlock by close.
pub fn flock(context: &Context) -> Result<()> {
    let (mut one, mut two) = two_agents(context)?;
    let no_wait = libc::LOCK_NB;
    expect_answer(one.flock("f", libc::LOCK_SH)?, 0, "shared")?;
    expect_answer(two.flock("f", libc::LOCK_SH | no_wait)?, 0, "shared twice")?;
    expect_answer(
        two.flock("f", libc::LOCK_EX | no_wait)?,
        libc::EWOULDBLOCK,
        "upgrade against a shared lock",
    )?;
    expect_answer(one.flock("f", libc::LOCK_UN)?, 0, "unlock")?;
    expect_answer(two.flock("f", libc::LOCK_EX | no_wait)?, 0, "exclusive")?;
    one.start(&serde_json::json!({"op": "flock", "key": "f", "operation": libc::LOCK_EX}))?;
    expect_waiting(&mut one, "exclusive while another holds it")?;
    two.close("f")?;
    expect_granted(&mut one, "exclusive after the other's close")
}

/// POSIX locks: conflicts by range and mode, waiting, unlock.
pub fn posix(context: &Context) -> Result<()> {
    let (mut one, mut two) = two_agents(context)?;
    let (kind, write, read) = (LockKind::Posix, LockMode::Write, LockMode::Read);
    expect_answer(one.lock(request(kind, write, 0, 10))?, 0, "write lock 0..10")?;
    expect_answer(two.lock(request(kind, write, 5, 10))?, libc::EAGAIN, "an overlapping write lock")?;
    expect_answer(two.lock(request(kind, read, 9, 1))?, libc::EAGAIN, "an overlapping read lock")?;
    expect_answer(two.lock(request(kind, write, 10, 0))?, 0, "from 10 to the end of everything")?;
    expect_answer(one.lock(request(kind, read, 1 << 40, 1))?, libc::EAGAIN, "far beyond the end")?;
    expect_answer(one.lock(request(kind, read, 0, 10))?, 0, "downgrade")?;
    expect_answer(two.lock(request(kind, read, 0, 5))?, 0, "read locks together")?;
    two.start_lock(request(kind, write, 0, 5))?;
    expect_waiting(&mut two, "upgrade while another reads")?;
    expect_answer(one.lock(request(kind, LockMode::Unlock, 0, 0))?, 0, "unlock")?;
    expect_granted(&mut two, "upgrade after the unlock")
}

/// Unlocking the middle splits; locking over merges.
pub fn split_and_merge(context: &Context) -> Result<()> {
    let (mut one, mut two) = two_agents(context)?;
    let (kind, write) = (LockKind::Posix, LockMode::Write);
    expect_answer(one.lock(request(kind, write, 0, 100))?, 0, "0..100")?;
    expect_answer(one.lock(request(kind, LockMode::Unlock, 40, 20))?, 0, "unlock 40..60")?;
    expect_answer(two.lock(request(kind, write, 40, 20))?, 0, "the hole")?;
    expect_answer(two.lock(request(kind, write, 39, 1))?, libc::EAGAIN, "just below the hole")?;
    expect_answer(two.lock(request(kind, write, 60, 1))?, libc::EAGAIN, "just above the hole")?;
    expect_answer(two.lock(request(kind, LockMode::Unlock, 0, 0))?, 0, "the other gives up")?;
    expect_answer(one.lock(request(kind, write, 30, 50))?, 0, "over the hole")?;
    expect_answer(two.lock(request(kind, LockMode::Read, 50, 1))?, libc::EAGAIN, "the merged range")
}

/// POSIX: closing any descriptor of the file drops the process's locks.
pub fn dropped_on_close(context: &Context) -> Result<()> {
    let (mut one, mut two) = two_agents(context)?;
    let (kind, write) = (LockKind::Posix, LockMode::Write);
    one.open("again", &context.a.join("file"), libc::O_RDONLY)?;
    expect_answer(one.lock(request(kind, write, 0, 0))?, 0, "lock all")?;
    expect_answer(two.lock(request(kind, write, 0, 1))?, libc::EAGAIN, "while it is held")?;
    one.close("again")?;
    expect_answer(two.lock(request(kind, write, 0, 1))?, 0, "after another descriptor was closed")
}

/// OFD locks belong to the open: two opens of one process conflict, and close frees.
pub fn ofd(context: &Context) -> Result<()> {
    let (mut one, mut two) = two_agents(context)?;
    let (kind, write) = (LockKind::Ofd, LockMode::Write);
    one.open("second", &context.a.join("file"), libc::O_RDWR)?;
    expect_answer(one.lock(request(kind, write, 0, 10))?, 0, "lock")?;
    let same_process = LockRequest { key: "second", ..request(kind, write, 5, 1) };
    expect_answer(one.lock(same_process)?, libc::EAGAIN, "another open of the same process")?;
    expect_answer(two.lock(request(LockKind::Posix, write, 5, 1))?, libc::EAGAIN, "a POSIX lock against it")?;
    two.start_lock(request(kind, write, 0, 1))?;
    expect_waiting(&mut two, "a waiting OFD lock")?;
    one.close("f")?;
    expect_granted(&mut two, "after close of the open that held it")
}

/// A circle of waiting POSIX locks is refused with EDEADLK, across mounts.
pub fn deadlock(context: &Context) -> Result<()> {
    let (one, two) = two_agents(context)?;
    let mut agents = [one, two, Agent::new()?];
    agents[2].open("f", &context.a.join("file"), libc::O_RDWR)?;
    let (kind, write) = (LockKind::Posix, LockMode::Write);
    for (index, agent) in agents.iter_mut().enumerate() {
        expect_answer(agent.lock(request(kind, write, index as i64, 1))?, 0, "own byte")?;
    }
    // Each waits for the next one's byte.
    for (index, agent) in agents.iter_mut().enumerate() {
        agent.start_lock(request(kind, write, (index as i64 + 1) % 3, 1))?;
    }
    let refused = agent::refused(&mut agents)?;
    let (before, first) = ((refused + 2) % 3, (refused + 1) % 3);
    expect_answer(
        agents[refused].lock(request(kind, LockMode::Unlock, 0, 0))?,
        0,
        "the refused one gives up",
    )?;
    expect_granted(&mut agents[before], "who waited for it")?;
    expect_answer(agents[before].lock(request(kind, LockMode::Unlock, 0, 0))?, 0, "and gives up")?;
    expect_granted(&mut agents[first], "who waited for that one")
}

/// A signal ends a wait with EINTR, and the lock is not taken afterwards.
pub fn wait_and_signal(context: &Context) -> Result<()> {
    let (mut one, mut two) = two_agents(context)?;
    for kind in [LockKind::Posix, LockKind::Ofd] {
        expect_answer(one.lock(request(kind, LockMode::Write, 0, 10))?, 0, "held")?;
        two.start_lock(request(kind, LockMode::Write, 0, 10))?;
        expect_waiting(&mut two, "waiting")?;
        // A signal that comes before the call ends nothing: it is sent until it meets the wait.
        let mut answer = None;
        wait_until(GRANTED, "the signal ends the wait", || {
            sys::kill(two.pid(), libc::SIGALRM)?;
            answer = two.answer(STILL_WAITING)?;
            Ok(answer.is_some())
        })?;
        let answer = answer.context("an answer")?;
        expect_answer(answer.err().unwrap_or(0), libc::EINTR, "a wait that a signal ended")?;
        expect_answer(one.lock(request(kind, LockMode::Unlock, 0, 0))?, 0, "unlock")?;
        expect_answer(one.lock(request(kind, LockMode::Write, 0, 10))?, 0, "nobody took it meanwhile")?;
        expect_answer(one.lock(request(kind, LockMode::Unlock, 0, 0))?, 0, "unlock")?;
    }
    Ok(())
}

/// F_GETLK names the range, the kind and (on one node) the process.
pub fn getlk(context: &Context) -> Result<()> {
    let (mut one, _two) = two_agents(context)?;
    expect_answer(one.lock(request(LockKind::Posix, LockMode::Write, 100, 50))?, 0, "lock")?;
    for path in [context.a.join("file"), context.b.join("file")] {
        let file = sys::open(&path, libc::O_RDWR, 0)?;
        let found = sys::conflict(&file, LockKind::Posix, LockMode::Read, 0, 0)?;
        let found = found.context("F_GETLK sees no conflict")?;
        let expected = Conflict { is_write: true, start: 100, byte_count: 50, pid: found.pid };
        expect_eq(&found, &expected, "F_GETLK")?;
        let none = sys::conflict(&file, LockKind::Posix, LockMode::Write, 0, 100)?;
        expect_eq(none, None, "F_GETLK beside the lock")?;
    }
    Ok(())
}

/// The death of a process frees its locks of every kind.
pub fn freed_by_death(context: &Context) -> Result<()> {
    for kind in [LockKind::Posix, LockKind::Ofd] {
        let (mut one, mut two) = two_agents(context)?;
        expect_answer(one.lock(request(kind, LockMode::Write, 0, 0))?, 0, "held")?;
        expect_answer(two.lock(request(kind, LockMode::Write, 0, 1))?, libc::EAGAIN, "while it lives")?;
        sys::kill(one.pid(), libc::SIGKILL)?;
        wait_until(GRANTED, "a lock of a dead process is free", || {
            Ok(two.lock(request(kind, LockMode::Write, 0, 1))? == 0)
        })?;
    }
    let (mut one, mut two) = two_agents(context)?;
    expect_answer(one.flock("f", libc::LOCK_EX)?, 0, "flock held")?;
    sys::kill(one.pid(), libc::SIGKILL)?;
    wait_until(GRANTED, "a flock of a dead process is free", || {
        Ok(two.flock("f", libc::LOCK_EX | libc::LOCK_NB)? == 0)
    })
}
