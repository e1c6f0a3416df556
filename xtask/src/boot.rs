//! `cargo xtask boot`: nodes without disks, whose root is an image on a cluster of this machine, in virtual machines.
//!
//! A small Debian is made once with debootstrap and kept in `target/boot/root`; each run puts the package of the release binary into
//! it, makes its initramfs, and copies it into an image. A guest reaches this machine at its own address through QEMU's network,
//! and is asked over its serial console. Processors are emulated, so that waits are long; none is without a limit.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use mount_suites::{bounded, runner, sys};

use crate::{kernel, package, workspace};

mod half;
mod node;
mod off;
mod root;
mod servers;
mod units;

use node::{Extras, Machine, Node};
use servers::Servers;

/// Options of `cargo xtask boot`.
#[derive(Args)]
pub struct Options {
    /// Only cases whose name contains one of these; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Seconds that a node may take until its login, and for each command.
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// The binary that servers and nodes run; without it the release binary, which must have been built.
    #[arg(long)]
    sheen: Option<PathBuf>,
    /// All ends within so many seconds; a case that has not ended by then has neither passed nor failed.
    #[arg(long)]
    budget_seconds: Option<u64>,
}

/// What a case takes at least; with less left of the budget none begins.
const CASE_LEAST: Duration = Duration::from_secs(120);
/// How often the servers are killed anew when the command that they are to disturb had ended before.
const TRIES: u32 = 3;

type Case = fn(&Bed) -> Result<()>;
const CASES: &[(&str, Case)] = &[
    ("login", login),
    ("two_nodes_share_the_image", two_nodes_share_the_image),
    ("servers_are_killed_while_find_runs", servers_are_killed_while_find_runs),
    ("half_root_without_servers", half::without_servers),
    ("half_root_of_a_list", half::of_a_list),
    ("no_server", no_server),
    ("clock_years_behind", clock_years_behind),
    ("a_node_sees_updates", a_node_sees_updates),
    ("a_rebooted_node_sees_updates", a_rebooted_node_sees_updates),
    ("serves_to_the_end", off::serves_to_the_end),
    ("units_serve_and_mount", units::serve_and_mount),
];

/// Boots the nodes; true if all cases passed. Ends this process with a status of its own when the machine cannot do it.
pub fn run(options: &Options) -> Result<bool> {
    let deadline = options.budget_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let chosen: Vec<_> = CASES.iter().filter(|(name, _)| options.wants(name)).collect();
    ensure!(!chosen.is_empty(), "no case is called so");
    let target = workspace::target()?;
    if let Some(reason) = missing(&target) {
        runner::end_skipped(&reason);
    }
    let home = target.join("boot");
    fs::create_dir_all(&home)?;
    // Two at once would change one root.
    let lock = fs::File::create(home.join("lock"))?;
    lock.lock()?;
    let sheen = options.sheen.clone().unwrap_or_else(|| target.join("release/sheen"));
    ensure!(
        sheen.is_file(),
        "{} is not there; build it first: cargo build --release -p sheen",
        sheen.display()
    );
    let package = package::make(&workspace::root()?, &home.join("debian"), &sheen)?;
    // Half of the time, so that something is left for nodes.
    let patience = deadline.map_or(Duration::MAX, |deadline| deadline.duration_since(Instant::now()) / 2);
    if let Err(error) = root::make(&home, patience) {
        runner::end_skipped(&format!("no root for nodes: {error:#}"));
    }
    let root = root::prepare(&home, &package)?;
    let servers = Servers::start(&sheen, &home.join("cluster"))?;
    servers.make_image("node", &root.path)?;
    let machine = Machine { kernel: root.kernel, initramfs: root.initramfs, consoles: home };
    let bed = Bed { machine, servers, root: root.path, limit: Duration::from_secs(options.limit), deadline };
    let (mut failed_count, mut passed_count) = (0, 0);
    for (name, case) in chosen {
        if bed.left() < CASE_LEAST {
            println!("{name}: not run (time budget)");
            continue;
        }
        let begun = Instant::now();
        match case(&bed) {
            Ok(()) => {
                passed_count += 1;
                println!("{name}: passed in {} s", begun.elapsed().as_secs());
            }
            Err(_) if bed.left().is_zero() => println!("{name}: not ended (time budget)"),
            Err(error) => {
                failed_count += 1;
                println!("{name}: FAILED: {error:#}");
            }
        }
    }
    // What follows may end this process.
    drop(bed);
    if passed_count + failed_count == 0 {
        runner::end_skipped("no case had the time to end");
    }
    Ok(failed_count == 0)
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

/// Whether there is a case of that name.
#[cfg(test)]
pub fn has_case(name: &str) -> bool {
    CASES.iter().any(|(case, _)| *case == name)
}

/// Why this machine cannot boot nodes, if it cannot.
pub fn missing(target: &Path) -> Option<String> {
    if sys::effective_uid() != 0 {
        return Some("not root".to_owned());
    }
    ["debootstrap", "unshare", "chroot", "rsync", "dpkg-deb", "mkfs.ext4"]
        .into_iter()
        .find(|program| !kernel::has_program(program))
        .map(|program| format!("no {program}"))
        .or_else(|| package::missing(target))
        .or_else(kernel::missing)
}

/// What the cases work on.
struct Bed {
    machine: Machine,
    servers: Servers,
    /// What the image is made from.
    root: PathBuf,
    /// Of each wait.
    limit: Duration,
    /// Of all.
    deadline: Option<Instant>,
}

impl Bed {
    /// How long to wait for a login or a command.
    fn limit(&self) -> Duration {
        self.limit.min(self.left())
    }

    fn left(&self) -> Duration {
        self.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn boot(&self, name: &str) -> Result<Node> {
        self.boot_with(name, "", &Extras::default())
    }

    fn boot_with(&self, name: &str, words: &str, extras: &Extras<'_>) -> Result<Node> {
        let words = format!("sheenroot={} {words}", self.servers.image("node"));
        self.machine.start(name, &words, extras)
    }
}

fn login(bed: &Bed) -> Result<()> {
    let before = bed.servers.request_counts()?;
    let begun = Instant::now();
    let mut node = bed.boot("login")?;
    node.log_in(bed.limit())?;
    let (taken, after) = (begun.elapsed(), bed.servers.request_counts()?);
    let mounts = node.ask("cat /proc/mounts", bed.limit())?;
    ensure!(mounts.contains("/run/initramfs/sheen/image fuse"), "the image is not mounted: {mounts}");
    let kernel = node.ask("uname -r", bed.limit())?;
    ensure!(kernel.contains("6."), "uname -r says {kernel:?}");
    drop(node);
    let local = login_from_a_disk(bed)?;
    println!(
        "    requests per boot: {} to the MDT, {} to the OSTs",
        after.mdt.saturating_sub(before.mdt),
        after.ost.saturating_sub(before.ost)
    );
    println!(
        "    login after {:.1} s; from a disk of its own {:.1} s",
        taken.as_secs_f64(),
        local.as_secs_f64()
    );
    Ok(())
}

/// How long a node takes until its login when it has the same root, kernel and initramfs on an ext4 of its own.
fn login_from_a_disk(bed: &Bed) -> Result<Duration> {
    let disk = bed.machine.consoles.join("disk.img");
    root::make_disk(&bed.root, &disk)?;
    let begun = Instant::now();
    let extras = Extras { disk: Some(&disk), ..Extras::default() };
    let mut node = bed.machine.start("disk", "root=/dev/vda ro", &extras)?;
    node.log_in(bed.limit())?;
    let taken = begun.elapsed();
    let mounts = node.ask("cat /proc/mounts", bed.limit())?;
    ensure!(mounts.contains("/dev/vda / ext4"), "the disk is not the root: {mounts}");
    drop(node);
    fs::remove_file(&disk)?;
    Ok(taken)
}

fn two_nodes_share_the_image(bed: &Bed) -> Result<()> {
    // The second finds the MGS at the second of two NIDs.
    let words = format!("sheenroot={}", bed.servers.image_at_two_nids("node")?);
    let mut one = bed.boot("one")?;
    let mut two = bed.machine.start("two", &words, &Extras::default())?;
    one.log_in(bed.limit())?;
    two.log_in(bed.limit())?;
    // What one writes stays in its own memory.
    one.ask("echo mine >/etc/of-one", bed.limit())?;
    ensure!(two.status("test -e /etc/of-one", bed.limit())? != 0, "one node sees what the other wrote");
    let (first, second) = (one.ask(SUM, bed.limit())?, two.ask(SUM, bed.limit())?);
    ensure!(hashes(&first).len() == 2, "{SUM} says {first:?}");
    ensure!(hashes(&first) == hashes(&second), "the nodes read different files: {first:?} and {second:?}");
    Ok(())
}

/// A command of nodes that reads files of the image.
const SUM: &str = "sha256sum /bin/bash /lib/systemd/systemd";

/// What `SUM` found.
fn hashes(text: &str) -> Vec<&str> {
    text.split_whitespace().filter(|word| word.len() == 64).collect()
}

fn servers_are_killed_while_find_runs(bed: &Bed) -> Result<()> {
    let mut node = bed.boot("find")?;
    node.log_in(bed.limit())?;
    for _ in 0..TRIES {
        node.ask("echo 3 >/proc/sys/vm/drop_caches", bed.limit())?;
        node.begin("echo find''-began; find / /usr -xdev >/tmp/found 2>/tmp/errors")?;
        node.wait_for("find-began", bed.limit())?;
        bed.servers.kill(servers::TARGETS_OF_FILES)?;
        let had_ended = node.has_ended()?;
        bed.servers.restart(servers::TARGETS_OF_FILES)?;
        let (_, status) = node.end(bed.limit())?;
        if had_ended {
            println!("    find had ended before the servers were dead: again");
            continue;
        }
        ensure!(status == 0, "find / /usr -xdev ended with status {status}");
        ensure!(
            node.status("test ! -s /tmp/errors", bed.limit())? == 0,
            "errors: {}",
            node.ask("head /tmp/errors", bed.limit())?
        );
        ensure!(
            node.status("test $(wc -l </tmp/found) -gt 5000", bed.limit())? == 0,
            "find has found too little"
        );
        return Ok(());
    }
    bail!("find ended {TRIES} times before the servers were dead")
}

/// Who leaves the shell boots, once there are servers, and a network: the node's is taken away meanwhile, as if it had never come.
fn no_server(bed: &Bed) -> Result<()> {
    bed.servers.kill(servers::ALL)?;
    let given_up = without_servers(bed);
    bed.servers.restart(servers::ALL)?;
    let mut node = given_up?;
    node.type_line("exit")?;
    node.log_in(bed.limit())?;
    ensure!(
        node.status("grep '^IPV4ADDR=.*[1-9]' /run/net-*.conf", bed.limit())? == 0,
        "the network was not configured anew"
    );
    Ok(())
}

/// A node in the shell of its initramfs.
fn without_servers(bed: &Bed) -> Result<Node> {
    let mut node = bed.boot_with("no-server", "sheenopts=retry=1", &Extras::default())?;
    node.wait_for("cannot be mounted; the reason stands above", bed.limit())?;
    node.wait_for("There is no root on SheenFS", bed.limit())?;
    node.wait_for("(initramfs)", bed.limit())?;
    ensure!(node.status("test -x /usr/bin/sheen", bed.limit())? == 0, "the shell has no client");
    node.ask("for conf in /run/net-*.conf; do echo IPV4ADDR=0.0.0.0 >$conf; done", bed.limit())?;
    Ok(node)
}

fn clock_years_behind(bed: &Bed) -> Result<()> {
    let extras = Extras { clock: Some("2015-01-01"), ..Extras::default() };
    let mut node = bed.boot_with("clock", "", &extras)?;
    node.log_in(bed.limit())?;
    // The client has mounted the image at this time; systemd then goes on to the day when it was built.
    let begun = node.ask("dmesg | grep -i 'system clock to'", bed.limit())?;
    ensure!(begun.contains("system clock to 2015-01-01"), "the node began with another time: {begun}");
    node.ask("systemctl list-units --failed --no-legend >/tmp/failed; date -s 2015-01-01", bed.limit())?;
    node.ask("echo 3 >/proc/sys/vm/drop_caches", bed.limit())?;
    let here = succeed(Command::new("chroot").arg(&bed.root).args(SUM.split(' ')), bed.limit())?;
    let there = node.ask(SUM, bed.limit())?;
    ensure!(hashes(&here).len() == 2, "{SUM} says {here:?} here");
    ensure!(hashes(&here) == hashes(&there), "the node reads other files: {there:?}, here {here:?}");
    let date = node.ask("date +year-%Y", bed.limit())?;
    ensure!(date.contains("year-2015"), "the node has another time by now: {date}");
    ensure!(
        node.status("test ! -s /tmp/failed", bed.limit())? == 0,
        "failed units: {}",
        node.ask("cat /tmp/failed", bed.limit())?
    );
    let year = date.rsplit_once("year-").map_or("", |(_, year)| year.trim());
    println!("    began at 2015-01-01, read the image with its clock at {year}");
    Ok(())
}

/// In place, under a node that runs what is replaced.
fn a_node_sees_updates(bed: &Bed) -> Result<()> {
    let (program, word) = (bed.root.join("usr/local/bin/changing"), bed.root.join("srv/changing"));
    let update = |text: &str| -> Result<()> {
        let script = format!("#!/bin/sh\necho run-{text}\n[ $# -eq 0 ] || sleep \"$1\"\necho ended-{text}\n");
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        fs::write(&word, format!("word-{text}\n"))?;
        bed.servers.update_image("node", &bed.root, &[])
    };
    update("one")?;
    let mut node = bed.boot("updates")?;
    node.log_in(bed.limit())?;
    node.ask("systemctl is-active sheen-image.service", bed.limit())?;
    let said = node.ask("changing; cat /srv/changing", bed.limit())?;
    ensure!(said.contains("run-one") && said.contains("word-one"), "before: {said}");
    node.ask("(changing 1000000 >/tmp/running & sleep 1000000 </usr/local/bin/changing &)", bed.limit())?;
    for text in ["second", "the-third"] {
        update(text)?;
        // What runs is what it was; the name leads to the new file at once.
        let said = node.ask("changing; cat /tmp/running", bed.limit())?;
        ensure!(
            said.contains(&format!("ended-{text}")) && said.contains("run-one"),
            "after the update to {text}: {said}"
        );
        // The overlay has to be told.
        node.ask(&format!("until grep word-{text} /srv/changing; do sleep 1; done"), bed.limit())?;
    }
    ensure!(node.status("touch /usr/of-node", bed.limit())? != 0, "/usr is not the image's");
    node.ask("touch /srv/of-node /etc/of-node /var/of-node", bed.limit()).map(drop)
}

fn a_rebooted_node_sees_updates(bed: &Bed) -> Result<()> {
    let word = bed.root.join("srv/word");
    let update = |text: &str, arguments: &[&str]| -> Result<()> {
        fs::write(&word, format!("word-{text}\n"))?;
        bed.servers.update_image("node", &bed.root, arguments)
    };
    let sees = |node: &mut Node, text: &str| -> Result<()> {
        let said = node.ask("cat /srv/word", bed.limit())?;
        ensure!(said.contains(&format!("word-{text}")), "/srv/word should be {text}: {said}");
        Ok(())
    };
    // Texts of different lengths: an update in place compares sizes and seconds.
    update("one", &[])?;
    let mut node = bed.boot("update")?;
    node.log_in(bed.limit())?;
    sees(&mut node, "one")?;
    update("second", &[])?;
    let said = node.ask("cat /run/initramfs/sheen/image/srv/word", bed.limit())?;
    ensure!(said.contains("word-second"), "the image does not have the update: {said}");
    node.ask("until cat /srv/word | grep second; do sleep 1; done", bed.limit())?;
    update("the-third", &["--staged"])?;
    sees(&mut node, "second")?;
    node.ask("echo 3 >/proc/sys/vm/drop_caches", bed.limit())?;
    sees(&mut node, "second")?;
    drop(node);
    let mut node = bed.boot("updated")?;
    node.log_in(bed.limit())?;
    sees(&mut node, "the-third")
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command, limit: Duration) -> Result<String> {
    let said =
        bounded::say(command, "SHEEN_BOOT_PREPARE=1", limit).with_context(|| format!("{command:?}"))?;
    if !said.is_success() {
        bail!("{command:?}: {}: {}", said.end.describe(), bounded_tail(&said.all()));
    }
    Ok(said.output)
}

fn bounded_tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("; ")
}

/// A prepared root of a node.
struct Root {
    path: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
}

#[cfg(test)]
mod tests;
