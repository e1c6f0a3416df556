//! Operations over several MDTs with real processes: mounts and MDTs are killed in every combination, and renames get in each
//! other's way. The simulation has each place and each order (`sheen sim --scenario crash-table`, `rename-deadlock`).

mod journal;
mod migrate;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use super::fsck::fsck;
use crate::agent::Agent;
use crate::case::{Bed, Case, Context, Suite, expect, note};
use crate::cluster::{Cluster, Shape};
use crate::load::Stop;
use crate::random::Random;
use crate::{renames, sweep, sys};
use journal::{Counts, Journal, Kind};

/// The suite.
pub static SUITE: Suite = Suite { name: "dne", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "subsets", seconds: 300, run: subsets },
    Case { name: "renames", seconds: 300, run: renames_meet },
    Case { name: "migrate", seconds: 300, run: migrate::migrate_a_tree },
];

const MOVER_COUNT: usize = 16;
/// How long they move, unless `--seconds` says otherwise.
const MOVING: Duration = Duration::from_secs(60);
/// For the last of their calls.
const MOVERS_WAIT: Duration = Duration::from_secs(60);
/// What the journal has of one round: enough for each operation to be in it.
const WORK: Duration = Duration::from_millis(600);

fn start(context: &Context, mdt_count: u32) -> Result<Cluster> {
    context.skip_if_local()?;
    let cluster =
        Cluster::new(&context.options, &context.work, Shape { mdt_count, ost_count: 2, is_split: true })?;
    cluster.up()?;
    Ok(cluster)
}

/// Directories of these names in the mount, each on the MDT of its number.
fn make_homes(context: &Context, root: &Path, mdt_count: u16) -> Result<Vec<String>> {
    let homes: Vec<String> = (0..mdt_count).map(|index| format!("m{index}")).collect();
    for (index, home) in (0..mdt_count).zip(&homes) {
        context.mkdir_on(index, &root.join(home))?;
    }
    Ok(homes)
}

/// Every set of {client, MDT0000, MDT0001} dies at once; the empty one is the control, which ends when each kind of call was answered.
/// After each the checker looks at all targets.
fn subsets(context: &Context) -> Result<()> {
    let cluster = start(context, 2)?;
    make_homes(context, &cluster.mount, 2)?;
    let mut random = context.random();
    let mut counts = Counts::new();
    for round in 0..8 * context.rounds(1) {
        let has = |bit: u64| round >> bit & 1 == 1;
        let down = Down { client: has(0), mdts: [has(1), has(2)] };
        let checked = |cluster: &Cluster, random: &mut Random| -> Result<Counts> {
            let done = subset(context, cluster, round, &down, random)?;
            cluster.down()?;
            fsck(cluster, &[], 0)?;
            Ok(done)
        };
        let done = checked(&cluster, &mut random);
        for (kind, count) in done.with_context(|| format!("round {round}, in which {down:?} die"))? {
            *counts.entry(kind).or_default() += count;
        }
        if round + 1 < 8 * context.rounds(1) {
            cluster.up()?;
        }
    }
    let missing: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !counts.contains_key(kind)).collect();
    expect(missing.is_empty(), &format!("never done: {missing:?}"))?;
    let words: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind:?}")).collect();
    note(&words.join(", "));
    Ok(())
}

#[derive(Debug)]
struct Down {
    client: bool,
    mdts: [bool; 2],
}

/// One round with a mount of its own; -> the operations that were acknowledged.
fn subset(
    context: &Context,
    cluster: &Cluster,
    round: u64,
    down: &Down,
    random: &mut Random,
) -> Result<Counts> {
    let point = cluster.mount_again(&format!("client{round}"))?;
    let mounts = cluster.mounts()?;
    let client = mounts.iter().find(|(path, _)| *path == point.to_string_lossy()).map(|(_, pid)| *pid);
    let client = client.context("no process of that mount")?;
    let mut victims = cluster.targets()?;
    let is_down = |name: &str| (name == "MDT0000" && down.mdts[0]) || (name == "MDT0001" && down.mdts[1]);
    victims.retain(|(name, _)| is_down(name));
    if down.client {
        victims.push(("the client".to_owned(), client));
    }
    // Of the names of one round nothing is left for the next.
    let mut journal = Journal::new(point.clone(), round, context.options.sheen.clone());
    let is_control = victims.is_empty();
    let stop = Stop::default();
    let seed = random.number();
    std::thread::scope(|scope| -> Result<()> {
        let worker = scope.spawn(|| journal.work(&stop, &mut Random::new(seed), is_control));
        std::thread::sleep(WORK + Duration::from_millis(random.below(300)));
        let killed = kill_and_restart(cluster, &victims, down.client.then_some(&point));
        // Who lives goes on.
        if !down.client && killed.is_ok() {
            std::thread::sleep(WORK);
        }
        stop.now();
        let worked = worker.join().map_err(|_| anyhow!("the worker panicked"))?;
        killed?;
        // The calls of a mount that dies fail.
        if down.client { Ok(()) } else { worked.context("a call failed") }
    })?;
    if down.client {
        // Its directory is a mount that nobody serves.
        sys::detach(&point)?;
    } else {
        cluster.unmount(&point)?;
    }
    // By a mount that has not seen anything of it.
    let looking = cluster.mount_again(&format!("looks{round}"))?;
    journal.check(&looking)?;
    journal.check(&cluster.mount)?;
    cluster.unmount(&looking)?;
    expect(!journal.done().is_empty(), "nothing was done")?;
    Ok(journal.done().clone())
}

/// `client`: where the mount is that dies with the servers.
fn kill_and_restart(cluster: &Cluster, victims: &[(String, i32)], client: Option<&PathBuf>) -> Result<()> {
    let up = cluster.up_in_waiting()?;
    for (name, pid) in victims {
        sys::kill(*pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
    }
    // Who was about to take a name back waits in the kernel for the call that holds its directory, and that call for him: his death is
    // not complete before somebody ends this (docs/limits.md).
    for mount in client.into_iter().flat_map(|point| sweep::mounts_under(point)) {
        mount.abort();
    }
    up.go().with_context(|| format!("up after the death of {victims:?}"))
}

/// Processes on two mounts move files and directories between three MDTs.
fn renames_meet(context: &Context) -> Result<()> {
    let mut cluster = start(context, 3)?;
    let homes = make_homes(context, &cluster.mount, 3)?;
    let roots: [PathBuf; 2] = [cluster.mount.clone(), cluster.mount_again("second")?];
    renames::plant(&cluster.mount, &homes)?;
    cluster.new_complaints();
    let lasts = context.options.seconds.map_or(MOVING, Duration::from_secs);
    let mut random = context.random();
    let mut movers = Vec::new();
    for (number, root) in roots.iter().cycle().take(MOVER_COUNT).enumerate() {
        let mut mover = Agent::new()?;
        let (seed, seconds) = (random.number(), lasts.as_secs());
        let request = json!({"op": "renames", "root": root, "homes": homes, "mover": number, "seed": seed, "seconds": seconds});
        mover.start(&request)?;
        movers.push(mover);
    }
    let (mut moved, mut refused) = (0, 0);
    for (number, mover) in movers.iter_mut().enumerate() {
        let answer =
            mover.answer(lasts + MOVERS_WAIT)?.with_context(|| format!("mover {number} is stuck"))?;
        let answer = answer.map_err(|errno| {
            anyhow!("a call of mover {number} failed: {}", std::io::Error::from_raw_os_error(errno))
        })?;
        let count = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or_default();
        expect(count("moved") > 0, &format!("mover {number} has moved nothing: {answer}"))?;
        moved += count("moved");
        refused += count("refused");
    }
    note(&format!("{moved} renames, {refused} refused, {MOVER_COUNT} processes, {} s", lasts.as_secs()));
    for root in &roots {
        renames::check(root, &homes)?;
    }
    let evictions: Vec<String> =
        cluster.new_complaints().into_iter().filter(|line| line.contains("evicted")).collect();
    expect(evictions.is_empty(), &format!("somebody was evicted: {evictions:?}"))?;
    let [_, second] = &roots;
    cluster.unmount(second)?;
    cluster.down()?;
    fsck(&cluster, &[], 0).map(drop)
}
