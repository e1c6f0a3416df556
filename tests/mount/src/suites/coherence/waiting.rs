use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::agent::{self, Agent, LockRequest};
use crate::case::{Context, expect, expect_answer, write};
use crate::sys::{LockKind, LockMode};

const STILL_WAITING: Duration = Duration::from_millis(60);
const GRANTED: Duration = Duration::from_secs(60);

fn agents(context: &Context) -> Result<[Agent; 2]> {
    let (a, b) = context.both("file");
    write(&a, b"x")?;
    let mut agents = [Agent::new()?, Agent::new()?];
    for (agent, path) in agents.iter_mut().zip([a, b]) {
        agent.open("f", &path, libc::O_RDWR)?;
    }
    Ok(agents)
}

fn granted(agent: &mut Agent, what: &str) -> Result<()> {
    let answer = agent.answer(GRANTED)?.with_context(|| format!("{what}: still waiting"))?;
    expect_answer(answer.err().unwrap_or(0), 0, what)
}

/// flock goes back and forth; the waiter gets it when it is free and not before.
pub fn flock_handover(context: &Context) -> Result<()> {
    let [mut one, mut two] = agents(context)?;
    expect_answer(one.flock("f", libc::LOCK_EX)?, 0, "the first lock")?;
    for _ in 0..context.rounds(30) {
        two.start(&json!({"op": "flock", "key": "f", "operation": libc::LOCK_EX}))?;
        expect(two.answer(STILL_WAITING)?.is_none(), "granted while it was held")?;
        expect_answer(one.flock("f", libc::LOCK_UN)?, 0, "unlock")?;
        granted(&mut two, "handed over")?;
        std::mem::swap(&mut one, &mut two);
    }
    Ok(())
}

fn handover(context: &Context, kind: LockKind) -> Result<()> {
    let [mut one, mut two] = agents(context)?;
    let request = |mode| LockRequest { key: "f", kind, mode, start: 3, byte_count: 4 };
    expect_answer(one.lock(request(LockMode::Write))?, 0, "the first lock")?;
    for _ in 0..context.rounds(30) {
        two.start_lock(request(LockMode::Write))?;
        expect(two.answer(STILL_WAITING)?.is_none(), "granted while it was held")?;
        expect_answer(one.lock(request(LockMode::Unlock))?, 0, "unlock")?;
        granted(&mut two, "handed over")?;
        std::mem::swap(&mut one, &mut two);
    }
    Ok(())
}

/// POSIX locks go back and forth.
pub fn posix_handover(context: &Context) -> Result<()> {
    handover(context, LockKind::Posix)
}

/// OFD locks go back and forth.
pub fn ofd_handover(context: &Context) -> Result<()> {
    handover(context, LockKind::Ofd)
}

/// Two files, two mounts, each holds one and wants the other's: one gets EDEADLK, the other the lock.
pub fn deadlock(context: &Context) -> Result<()> {
    circles(context, ["x", "y"])
}

/// The same with files on two MDTs, where none of them sees the circle.
pub fn deadlock_over_mdts(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    for mdt in [0, 1] {
        context.mkdir_on(mdt, &context.a.join(format!("mdt{mdt}")))?;
    }
    circles(context, ["mdt0/x", "mdt1/y"])
}

fn circles(context: &Context, names: [&str; 2]) -> Result<()> {
    for number in 0..context.rounds(10) {
        let mut agents = [Agent::new()?, Agent::new()?];
        for (key, name) in ["x", "y"].into_iter().zip(names) {
            let (a, b) = context.both(&format!("{name}{number}"));
            write(&a, b"")?;
            for (agent, path) in agents.iter_mut().zip([a, b]) {
                agent.open(key, &path, libc::O_RDWR)?;
            }
        }
        let request = |key, mode| LockRequest { key, kind: LockKind::Posix, mode, start: 0, byte_count: 0 };
        let [one, two] = &mut agents;
        // Which of the waits comes second is not for us to say.
        expect_answer(one.lock(request("x", LockMode::Write))?, 0, "one holds x")?;
        expect_answer(two.lock(request("y", LockMode::Write))?, 0, "two holds y")?;
        one.start_lock(request("y", LockMode::Write))?;
        two.start_lock(request("x", LockMode::Write))?;
        let refused = agent::refused(&mut agents)?;
        let [one, two] = &mut agents;
        let (loser, own, winner) = if refused == 0 { (one, "x", two) } else { (two, "y", one) };
        expect_answer(loser.lock(request(own, LockMode::Unlock))?, 0, "the refused one gives up")?;
        granted(winner, "the other gets it")?;
    }
    Ok(())
}
