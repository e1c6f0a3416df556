//! `kill -9` of servers under load, restart, and no call has failed.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use crate::bounded;
use crate::case::{Bed, Case, Context, Suite, expect, skip};
use crate::cluster::{Cluster, Shape};
use crate::load::{Stop, Unfailing};
use crate::random::Random;
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "kill9", bed: Bed::Own, cases: CASES, canary: None };

static CASES: &[Case] = &[
    Case { name: "each_server", seconds: 400, run: each_server },
    Case { name: "all_servers", seconds: 300, run: all_servers },
    Case { name: "everything", seconds: 300, run: everything },
    Case { name: "under_fsx", seconds: 400, run: under_fsx },
    Case { name: "under_tar", seconds: 400, run: under_tar },
];

const SHAPE: Shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
const WORKER_COUNT: u64 = 3;

fn start(context: &Context) -> Result<Cluster> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, SHAPE)?;
    cluster.up()?;
    Ok(cluster)
}

fn kill_rounds(context: &Context, usual: u64) -> u64 {
    context.rounds(if context.options.thorough { 50 } else { usual })
}

/// Kills the targets at these positions, waits a moment, starts them again.
fn kill_and_restart(cluster: &Cluster, victims: &[(String, i32)], random: &mut Random) -> Result<()> {
    for (name, pid) in victims {
        sys::kill(*pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
    }
    std::thread::sleep(Duration::from_millis(random.below(700)));
    cluster.up().with_context(|| format!("up after the death of {victims:?}"))?;
    Ok(())
}

/// Runs `disturb` again and again beside three workers that must see no failure.
fn undisturbed(
    context: &Context,
    cluster: &Cluster,
    rounds: u64,
    mut disturb: impl FnMut(u64, &mut Random) -> Result<()>,
) -> Result<()> {
    let stop = Stop::default();
    let mut random = context.random();
    let mut workers = (0..WORKER_COUNT)
        .map(|index| Unfailing::new(cluster.mount.join(format!("worker{index}"))))
        .collect::<Result<Vec<_>>>()?;
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
            if stop.is_over() {
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
        println!("{} operations", worker.done);
        worker.check()?;
    }
    Ok(())
}

fn each_server(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let rounds = kill_rounds(context, 8);
    undisturbed(context, &cluster, rounds, |number, random| {
        let targets = cluster.targets()?;
        let victim = targets.get(number as usize % targets.len().max(1)).cloned().context("no targets")?;
        kill_and_restart(&cluster, &[victim], random)
    })?;
    cluster.down().map(drop)
}

fn all_servers(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let rounds = kill_rounds(context, 5);
    undisturbed(context, &cluster, rounds, |_, random| {
        let targets = cluster.targets()?;
        kill_and_restart(&cluster, &targets, random)
    })?;
    cluster.down().map(drop)
}

/// Servers and client die together: what was synced is there, and the mount comes back without a repair step.
fn everything(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    for number in 0..kill_rounds(context, 3) {
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

/// A program that works on the mount while servers die.
fn beside_program(context: &Context, cluster: &Cluster, mut program: Child) -> Result<()> {
    let mut random = context.random();
    let begun = Instant::now();
    let limit = Duration::from_secs(300 * context.options.patience.max(1));
    let mut killed = 0;
    let status = loop {
        if let Some(status) = program.try_wait()? {
            break status;
        }
        if begun.elapsed() > limit {
            program.kill()?;
            return Err(anyhow!("the program does not end within {limit:?}"));
        }
        std::thread::sleep(Duration::from_millis(300 + random.below(700)));
        if killed < kill_rounds(context, 6) {
            let targets = cluster.targets()?;
            let victim = targets.get(random.size(targets.len())).cloned().context("no targets")?;
            kill_and_restart(cluster, &[victim], &mut random)?;
            killed += 1;
        }
    };
    println!("{killed} servers killed in {:.1} s", begun.elapsed().as_secs_f64());
    expect(status.success(), &format!("the program failed: {status}"))?;
    expect(killed > 0, "the program ended before the first server died")
}

fn under_fsx(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let binary = context.options.tools.join("bin/fsx");
    if !binary.exists() {
        return skip("fsx is not installed");
    }
    let configuration = context.work.join("fsx.toml");
    fs::write(
        &configuration,
        "[weights]\nclose_open = 1.0\npunch_hole = 1.0\nfsync = 0.2\ncopy_file_range = 1.0\n",
    )?;
    let mut command = Command::new(binary);
    command.arg("-f").arg(&configuration).arg("-P").arg(&context.work).args(["-N", "3000", "-S", "7"]);
    let program = command.arg(cluster.mount.join("fsx")).stdin(Stdio::null()).spawn()?;
    beside_program(context, &cluster, program)?;
    cluster.down().map(drop)
}

fn under_tar(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let copy = cluster.mount.join("include");
    fs::create_dir(&copy)?;
    let mut command = Command::new("sh");
    let script = "tar -C /usr/include -cf - linux asm-generic | tar -C \"$1\" -xf - && \
                  for n in linux asm-generic; do diff -r \"/usr/include/$n\" \"$1/$n\" || exit 1; done";
    command.args(["-c", script, "sh"]).arg(&copy).stdin(Stdio::null());
    if !std::path::Path::new("/usr/include/linux").exists() {
        return skip("no /usr/include/linux");
    }
    beside_program(context, &cluster, command.spawn()?)?;
    let mut diff = Command::new("diff");
    diff.arg("-r").arg("/usr/include/linux").arg(copy.join("linux"));
    let said = bounded::say(&mut diff, "SHEEN_DIFF=1", Duration::from_secs(120))?;
    expect(said.is_success(), &format!("diff afterwards: {}", said.all()))?;
    cluster.down().map(drop)
}
