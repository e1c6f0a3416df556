//! `kill -9` of servers under load, restart, and no call has failed.

mod early;
mod lost;
mod recovery;
mod signalled;
mod striped;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use crate::case::{Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, read, skip};
use crate::cluster::{Cluster, Shape};
use crate::load::{Stop, Unfailing};
use crate::random::Random;
use crate::sys;
use striped::Forest;

/// The suite.
pub static SUITE: Suite = Suite { name: "kill9", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "each_server", seconds: 400, run: each_server },
    Case { name: "all_servers", seconds: 300, run: all_servers },
    Case { name: "striped_directories", seconds: 300, run: striped_directories },
    Case { name: "everything", seconds: 300, run: everything },
    Case { name: "elsewhere", seconds: 200, run: elsewhere },
    Case { name: "served_early", seconds: 500, run: early::served_early },
    Case { name: "served_early_by_an_ost", seconds: 500, run: early::served_early_by_an_ost },
    Case { name: "holder_elsewhere", seconds: 200, run: holder_elsewhere },
    Case { name: "abort_recovery", seconds: 400, run: abort_recovery },
    Case { name: "lost_with_its_mdt", seconds: 400, run: lost::is_told },
    Case { name: "signals_to_handle", seconds: 120, run: signalled::to_handle },
    Case { name: "killed_while_waiting", seconds: 120, run: signalled::killed },
    Case { name: "statfs_interrupted", seconds: 120, run: signalled::statfs },
    Case { name: "recovery_bench", seconds: 180, run: recovery::bench },
    Case { name: "under_fsx", seconds: 600, run: under_fsx },
    Case { name: "under_tar", seconds: 600, run: under_tar },
];

const SHAPE: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
const TARGET_COUNT: u64 = 1 + (SHAPE.mdt_count + SHAPE.ost_count) as u64;
const WORKER_COUNT: u64 = 3;
/// Of striped directories: all MDTs.
const STRIPE_COUNT: u32 = 3;
/// Less than a recovery waits for those of whom nothing is known, and more than it takes on a loaded machine.
const WITHIN_WINDOW: Duration = Duration::from_secs(45);
/// For a program that is disturbed all the time; it bounds a hang only.
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);

fn start(context: &Context) -> Result<Cluster> {
    start_with(context, SHAPE)
}

fn start_with(context: &Context, shape: Shape) -> Result<Cluster> {
    start_in(context, &context.work, shape)
}

/// In an empty directory of this case.
fn start_in(context: &Context, home: &Path, shape: Shape) -> Result<Cluster> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, home, shape)?;
    cluster.up()?;
    Ok(cluster)
}

/// How often servers die: `usual` times, or so often for each of `kinds` of deaths as was asked for.
fn kill_rounds(context: &Context, usual: u64, kinds: u64) -> u64 {
    match context.options.count {
        Some(count) => count * kinds,
        None if context.options.thorough => 50 * kinds,
        None => usual,
    }
}

/// The servers that die in this round: one after the other.
fn one_server(cluster: &Cluster, number: u64) -> Result<Vec<(String, i32)>> {
    let targets = cluster.targets()?;
    let at = number as usize % targets.len().max(1);
    Ok(vec![targets.get(at).cloned().context("no targets")?])
}

/// The same, and after the last one all of them.
fn one_server_or_all(cluster: &Cluster, number: u64) -> Result<Vec<(String, i32)>> {
    let number = number % (TARGET_COUNT + 1);
    if number == TARGET_COUNT { cluster.targets() } else { one_server(cluster, number) }
}

/// Kills the targets at these positions, waits a moment, starts them again.
fn kill_and_restart(cluster: &Cluster, victims: &[(String, i32)], random: &mut Random) -> Result<()> {
    let up = cluster.up_in_waiting()?;
    for (name, pid) in victims {
        sys::kill(*pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
    }
    std::thread::sleep(Duration::from_millis(random.below(700)));
    up.go().with_context(|| format!("up after the death of {victims:?}"))?;
    Ok(())
}

/// Work that must see no failure, and that knows afterwards what must be there.
trait Load: Send {
    fn work(&mut self, stop: &Stop, random: &mut Random) -> Result<()>;
    /// How many operations were done.
    fn done(&self) -> u64;
    fn check(&self) -> Result<()>;
}

impl Load for Unfailing {
    fn work(&mut self, stop: &Stop, random: &mut Random) -> Result<()> {
        Unfailing::work(self, stop, random)
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn check(&self) -> Result<()> {
        Unfailing::check(self)
    }
}

/// Runs `disturb` again and again beside workers, which it must not disturb.
fn undisturbed<W: Load>(
    context: &Context,
    new_worker: impl Fn(u64) -> Result<W>,
    rounds: u64,
    mut disturb: impl FnMut(u64, &mut Random) -> Result<()>,
) -> Result<()> {
    let stop = Stop::default();
    let mut random = context.random();
    let mut workers = (0..WORKER_COUNT).map(new_worker).collect::<Result<Vec<W>>>()?;
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for worker in &mut workers {
            let mut random = Random::new(random.number());
            let stop = &stop;
            threads.push(scope.spawn(move || {
                let result = worker.work(stop, &mut random);
                if result.is_err() {
                    stop.now();
                }
                result
            }));
        }
        let mut disturbed = Ok(());
        for number in 0..rounds {
            std::thread::sleep(Duration::from_millis(300 + random.below(900)));
            if stop.is_over() || (number >= 3 && context.is_enough(number, "rounds")) {
                break;
            }
            disturbed = disturb(number, &mut random).with_context(|| format!("round {number}"));
            if disturbed.is_err() {
                break;
            }
        }
        stop.now();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a worker panicked"))?.context("a call failed")?;
        }
        disturbed
    })?;
    for worker in &workers {
        println!("{} operations", worker.done());
        worker.check()?;
    }
    Ok(())
}

/// With files in a directory of its own.
fn with_files(cluster: &Cluster) -> impl Fn(u64) -> Result<Unfailing> {
    |index| Unfailing::new(cluster.mount.join(format!("worker{index}")))
}

fn each_server(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let rounds = kill_rounds(context, 8, TARGET_COUNT);
    undisturbed(context, with_files(&cluster), rounds, |number, random| {
        kill_and_restart(&cluster, &one_server(&cluster, number)?, random)
    })?;
    cluster.down().map(drop)
}

fn all_servers(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let rounds = kill_rounds(context, 5, 1);
    undisturbed(context, with_files(&cluster), rounds, |_, random| {
        let targets = cluster.targets()?;
        kill_and_restart(&cluster, &targets, random)
    })?;
    cluster.down().map(drop)
}

/// MDTs die alone, in pairs, and all at once, while directories over all of them are made and changed.
fn striped_directories(context: &Context) -> Result<()> {
    let cluster = start_with(context, Shape { mdt_count: STRIPE_COUNT, ..SHAPE })?;
    let new_worker =
        |index: u64| Forest::new(&cluster, cluster.mount.join(format!("worker{index}")), STRIPE_COUNT);
    undisturbed(context, new_worker, kill_rounds(context, 9, 3), |number, random| {
        let mut victims = cluster.targets()?;
        victims.retain(|(name, _)| name.starts_with("MDT"));
        let victim_count = 1 + number as usize / 3 % 3;
        let first = number as usize % victims.len().max(1);
        victims.rotate_left(first);
        victims.truncate(victim_count);
        expect(!victims.is_empty(), "no MDT")?;
        kill_and_restart(&cluster, &victims, random)
    })?;
    cluster.down().map(drop)
}

/// Servers and client die together: what was synced is there, and the mount comes back without a repair step.
fn everything(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    for number in 0..kill_rounds(context, 3, 1) {
        let path = cluster.mount.join(format!("file{number}"));
        let bytes = context.random().bytes(500_000 + number as usize);
        fs::write(&path, &bytes)?;
        fs::File::open(&path)?.sync_all()?;
        for (name, pid) in cluster.targets()?.into_iter().chain(cluster.mounts()?) {
            sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
        }
        cluster.up()?;
        for earlier in 0..=number {
            let bytes = context.random().bytes(500_000 + earlier as usize);
            let found = crate::case::read(&cluster.mount.join(format!("file{earlier}")))?;
            crate::case::expect_bytes(
                &found,
                &bytes,
                &format!("file{earlier} after the death of everything"),
            )?;
        }
    }
    cluster.down().map(drop)
}

/// What is left of an MDT's recovery, when it is over before its window is.
fn recovered(cluster: &Cluster) -> Result<String> {
    recovered_at(cluster, "mdt.*MDT0000.recovery_status")
}

/// The same, by a parameter of any target.
fn recovered_at(cluster: &Cluster, parameter: &str) -> Result<String> {
    let begun = Instant::now();
    loop {
        let status = cluster.sheen(&["lctl", "get_param", "-n", parameter])?;
        if status.contains("COMPLETE") {
            return Ok(status);
        }
        expect(begun.elapsed() < WITHIN_WINDOW, &format!("it still recovers: {status}"))?;
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A mount of another machine dies with an MDT, and one of yet another lives on: the recovery waits for the lease of the first only.
fn elsewhere(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let (dying, pid) = cluster.mount_elsewhere("dying")?;
    let (living, _) = cluster.mount_elsewhere("living")?;
    let leases = || cluster.sheen(&["lctl", "get_param", "-n", "mgs.MGS.num_leases"]);
    expect_eq(leases()?.trim(), "3", "leases")?;
    let open = fs::File::create(dying.join("theirs"))?;
    fs::write(living.join("ours"), "there")?;
    let mut victims = cluster.targets()?;
    victims.retain(|(name, _)| name == "MDT0000");
    expect_eq(victims.len(), 1, "MDTs of that name")?;
    sys::kill(pid, libc::SIGKILL).context("kill the mount")?;
    kill_and_restart(&cluster, &victims, &mut context.random())?;
    let status = recovered(&cluster)?;
    expect(status.contains("evicted_clients: 1\n"), &format!("who was given up: {status}"))?;
    expect_bytes(&read(&living.join("ours"))?, b"there", "what the living one wrote")?;
    for mount in [&living, &cluster.mount] {
        fs::write(mount.join("after"), mount.to_string_lossy().as_bytes())?;
    }
    expect_eq(leases()?.trim(), "2", "leases")?;
    // Its descriptor leads to nobody.
    drop(open);
    cluster.down().map(drop)
}

/// A mount of another machine dies and has locks that others wait for: they wait for its lease, and no callback has to be due.
fn holder_elsewhere(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let (dying, pid) = cluster.mount_elsewhere("dying")?;
    let (living, _) = cluster.mount_elsewhere("living")?;
    let mut open = fs::File::create(dying.join("theirs"))?;
    open.write_all(b"written")?;
    open.sync_all()?;
    // Kept back, under a lock that an open elsewhere calls back.
    open.write_all(b", and more")?;
    sys::kill(pid, libc::SIGKILL).context("kill the mount")?;
    let found = read(&living.join("theirs"))?;
    expect(found.starts_with(b"written"), &format!("what it had synced: {found:?}"))?;
    fs::remove_file(living.join("theirs"))?;
    let get = |name: &str| cluster.sheen(&["lctl", "get_param", "-n", name]);
    let (given_up, late) = (get("mdt.*.eviction_count")?, get("ldlm.namespaces.*.lock_timeouts")?);
    expect(given_up.lines().any(|count| count == "1"), &format!("who was given up by MDTs: {given_up}"))?;
    expect(late.lines().all(|count| count == "0"), &format!("callbacks that were due: {late}"))?;
    // Its descriptor leads to nobody.
    drop(open);
    cluster.down().map(drop)
}

/// A mount that stands still holds up a recovery, and an operator ends that; the mount is told when it goes on.
fn abort_recovery(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let still = cluster.mount_again("still")?;
    // Each look at its process takes time while that stands still.
    cluster.sheen(&["lctl", "set_param", "-P", "mdt.*.recovery_time_soft=300"])?;
    fs::write(still.join("before"), "there")?;
    let mounts = cluster.mounts()?;
    let pid = mounts.iter().find(|(path, _)| *path == still.to_string_lossy()).map(|(_, pid)| *pid);
    let pid = pid.context("no process of that mount")?;
    let mut victims = cluster.targets()?;
    victims.retain(|(name, _)| name == "MDT0000");
    let target = "MDT0000";
    let abort = |target: &str| cluster.sheen(&["lctl", "abort_recovery", target]);
    expect(abort(target)?.contains("waits for nobody"), "there is nothing to end")?;
    expect(abort("MDT0099").is_err(), "there is no such target")?;
    sys::kill(pid, libc::SIGSTOP)?;
    let (_, mdt) = victims.first().context("no such MDT")?;
    sys::kill(*mdt, libc::SIGKILL)?;
    // It ends when the recovery has.
    let mut up = Program(cluster.up_command().stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    let ended = until_missing(&cluster, target).and_then(|()| abort(target));
    sys::kill(pid, libc::SIGCONT)?;
    expect(up.0.wait()?.success(), "sheen up after the recovery")?;
    expect(ended?.contains("given up: 1"), "one is given up")?;
    let status = recovered(&cluster)?;
    expect(status.contains("evicted_clients: 1\n"), &format!("who was given up: {status}"))?;
    expect_bytes(&read(&still.join("before"))?, b"there", "what it wrote")?;
    fs::write(still.join("after"), "again")?;
    cluster.down().map(drop)
}

/// Until nobody but the one that stands still is missing, and `status` says so.
fn until_missing(cluster: &Cluster, target: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let text = cluster.sheen(&["status", "--dir", &cluster.data.to_string_lossy()])?;
        let line = text.lines().find(|line| line.contains(&format!("{target} recovers")));
        if line.is_some_and(|line| line.contains("abort_recovery") && !line.contains(", MDT")) {
            return Ok(());
        }
        expect(begun.elapsed() < 2 * WITHIN_WINDOW, &format!("nobody is missing: {text}"))?;
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Programs that work on the mount while servers die: the next begins when one has ended, and the last one is not disturbed to its
/// end. Each checks its own work and must succeed.
fn beside_programs(
    context: &Context,
    cluster: &Cluster,
    mut program_of: impl FnMut(u64) -> Result<Command>,
) -> Result<()> {
    let mut random = context.random();
    let (mut kills, mut killed) = (kill_rounds(context, 6, TARGET_COUNT + 1), 0);
    for number in 0.. {
        let begun = Instant::now();
        let mut program = Program(program_of(number)?.stdin(Stdio::null()).spawn()?);
        let status = loop {
            if let Some(status) = program.0.try_wait()? {
                break status;
            }
            expect(begun.elapsed() < PROGRAM_LIMIT, &format!("program {number} does not end"))?;
            std::thread::sleep(Duration::from_millis(100 + random.below(700)));
            if killed > 0 && context.is_enough(killed, "kills") {
                kills = killed;
            }
            if killed < kills {
                let victims = one_server_or_all(cluster, killed)?;
                kill_and_restart(cluster, &victims, &mut random)?;
                killed += 1;
            }
        };
        expect(status.success(), &format!("program {number} failed after {killed} kills: {status}"))?;
        if killed >= kills {
            println!("{killed} kills beside {} programs", number + 1);
            break;
        }
    }
    expect(killed > 0, "no server died")
}

/// A program that does not outlive its case.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Gone already is what we want; one that hangs in the mount is not waited for.
        let _ = self.0.kill();
        let _ = self.0.try_wait();
    }
}

/// fsx again and again, each time with a new seed and a new file.
fn under_fsx(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let binary = context.options.tools.join("bin/fsx");
    if !binary.exists() {
        return skip("fsx is not installed");
    }
    let configuration = context.work.join("fsx.toml");
    fs::write(&configuration, super::fsx::CONFIGURATION)?;
    let file = |number: u64| cluster.mount.join(format!("fsx{number}"));
    beside_programs(context, &cluster, |number| {
        if let Some(last) = number.checked_sub(1) {
            fs::remove_file(file(last))?;
        }
        let mut command = Command::new(&binary);
        command.arg("-f").arg(&configuration).arg("-P").arg(&context.work);
        let seed = (context.seed + 7 + number).to_string();
        command.args(["-N", "1500", "-S", &seed]).arg(file(number)).stdout(Stdio::null());
        Ok(command)
    })?;
    cluster.down().map(drop)
}

/// A tree is unpacked, compared and removed, again and again.
fn under_tar(context: &Context) -> Result<()> {
    if !std::path::Path::new("/usr/include/linux").exists() {
        return skip("no /usr/include/linux");
    }
    let cluster = start(context)?;
    let script = "set -e; mkdir \"$1\"; tar -C /usr/include -cf - linux asm-generic | tar -C \"$1\" -xf -
        for n in linux asm-generic; do diff -r \"/usr/include/$n\" \"$1/$n\"; done; rm -r \"$1\"";
    beside_programs(context, &cluster, |number| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(cluster.mount.join(format!("include{number}")));
        Ok(command)
    })?;
    crate::case::expect_eq(crate::case::names(&cluster.mount)?, Vec::<String>::new(), "what is left over")?;
    cluster.down().map(drop)
}
