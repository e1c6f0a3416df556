//! The first things that a user does: start, use, stop, start again.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::case::{Bed, Case, Context, Suite, expect, expect_bytes, expect_eq, read, wait_until, write};
use crate::cluster::{Cluster, Shape};
use crate::forest::{self, Leaf};
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "smoke", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "one_process", seconds: 120, run: one_process },
    Case { name: "split", seconds: 120, run: split },
    Case { name: "second_mount", seconds: 120, run: second_mount },
    Case { name: "up_again_restarts_what_died", seconds: 120, run: restart_what_died },
    Case { name: "dead_mount_is_freed", seconds: 120, run: dead_mount },
    Case { name: "killed_up_and_down", seconds: 240, run: killed_up_and_down },
    Case { name: "by_hand", seconds: 120, run: by_hand },
    Case { name: "lfs_and_lctl", seconds: 120, run: lfs_and_lctl },
    Case { name: "at_rest", seconds: 240, run: at_rest },
];

const ONE: Shape = Shape { mdt_count: 2, ost_count: 4, is_split: false };

fn start(context: &Context, shape: Shape) -> Result<Cluster> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, shape)?;
    let begun = Instant::now();
    let said = cluster.up()?;
    println!("up after {:.2} s:\n{said}", begun.elapsed().as_secs_f64());
    Ok(cluster)
}

fn stop(mut cluster: Cluster) -> Result<()> {
    cluster.down()?;
    let complaints = cluster.new_complaints();
    expect(complaints.is_empty(), &format!("unexpected warnings or errors: {complaints:#?}"))
}

/// Writes, renames, stops, starts, finds everything.
fn use_and_restart(cluster: &Cluster, seed: u64) -> Result<()> {
    let mut leaves = forest::every_size(seed);
    let directory = cluster.mount.join("dir");
    forest::plant(&directory, &leaves)?;
    forest::check(&directory, &leaves)?;
    for leaf in leaves.iter_mut().take(4) {
        let renamed = format!("renamed-{}", leaf.name);
        fs::rename(directory.join(&leaf.name), directory.join(&renamed))?;
        leaf.name = renamed;
    }
    fs::rename(&directory, cluster.mount.join("moved"))?;
    let directory = cluster.mount.join("moved");
    forest::check(&directory, &leaves)?;
    let inode = inode(&directory.join(&leaves[0].name))?;
    cluster.down()?;
    expect(crate::sweep::mounts_under(&cluster.mount).is_empty(), "still mounted after down")?;
    cluster.up()?;
    forest::check(&directory, &leaves)?;
    expect_eq(self::inode(&directory.join(&leaves[0].name))?, inode, "inode number after a restart")?;
    fs::remove_dir_all(&directory)?;
    expect_eq(crate::case::names(&cluster.mount)?, Vec::<String>::new(), "names after removing everything")
}

fn inode(path: &Path) -> Result<u64> {
    Ok(std::os::unix::fs::MetadataExt::ino(&fs::metadata(path)?))
}

fn one_process(context: &Context) -> Result<()> {
    let cluster = start(context, ONE)?;
    use_and_restart(&cluster, context.seed)?;
    stop(cluster)
}

fn split(context: &Context) -> Result<()> {
    let cluster = start(context, Shape::SPLIT)?;
    use_and_restart(&cluster, context.seed)?;
    stop(cluster)
}

fn second_mount(context: &Context) -> Result<()> {
    let cluster = start(context, Shape::SPLIT)?;
    let leaves = forest::every_size(context.seed);
    forest::plant(&cluster.mount.join("dir"), &leaves)?;
    let second = cluster.mount_again("mnt2")?;
    forest::check(&second.join("dir"), &leaves)?;
    write(&second.join("back"), b"from the second")?;
    expect_bytes(&read(&cluster.mount.join("back"))?, b"from the second", "through the first")?;
    cluster.unmount(&second)?;
    expect_bytes(&read(&cluster.mount.join("back"))?, b"from the second", "after the second is gone")?;
    stop(cluster)
}

fn restart_what_died(context: &Context) -> Result<()> {
    let cluster = start(context, Shape::SPLIT)?;
    cluster.up()?;
    let leaves = forest::every_size(context.seed);
    forest::plant(&cluster.mount.join("dir"), &leaves)?;
    let targets = cluster.targets()?;
    expect(targets.len() >= 6, &format!("targets in the status: {targets:?}"))?;
    for (name, pid) in &targets {
        sys::kill(*pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
    }
    cluster.up()?;
    forest::check(&cluster.mount.join("dir"), &leaves)?;
    let after = cluster.targets()?;
    expect(after.iter().all(|(_, pid)| *pid > 0), &format!("all run again: {after:?}"))?;
    cluster.down().map(drop)
}

fn dead_mount(context: &Context) -> Result<()> {
    let cluster = start(context, Shape::SPLIT)?;
    write(&cluster.mount.join("file"), b"synced")?;
    fs::File::open(cluster.mount.join("file"))?.sync_all()?;
    for (path, pid) in cluster.mounts()? {
        sys::kill(pid, libc::SIGKILL).with_context(|| format!("kill the mount {path}"))?;
    }
    wait_until(Duration::from_secs(60), "the dead mount says so", || {
        // Not stat(2): the kernel may answer it from what it knows.
        Ok(fs::read_dir(&cluster.mount).is_err())
    })?;
    cluster.up()?;
    expect_bytes(&read(&cluster.mount.join("file"))?, b"synced", "what was synced before the mount died")?;
    cluster.down().map(drop)
}

/// `up` and `down` are killed at any moment; the next one takes up what is there, waits for what is on its way, and nothing is lost.
fn killed_up_and_down(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let mut random = context.random();
    for shape in [Shape::SPLIT, ONE] {
        let home = context.work.join(if shape.is_split { "split" } else { "one" });
        fs::create_dir(&home)?;
        let cluster = Cluster::new(&context.options, &home, shape)?;
        for round in 0..context.rounds(4) {
            killed(cluster.up_command(), random.below(600))?;
            cluster.up().context("up after a killed up")?;
            write(&cluster.mount.join(format!("file{round}")), b"here")?;
            killed(cluster.up_command(), random.below(50))?;
            killed(cluster.down_command(), random.below(200))?;
            // There may be nothing to stop any more, but never half of a thing that cannot be stopped.
            cluster.down().context("down after a killed down")?;
        }
        killed(cluster.down_command(), random.below(200))?;
        cluster.up().context("up after a killed down")?;
        for round in 0..context.rounds(4) {
            expect_bytes(&read(&cluster.mount.join(format!("file{round}")))?, b"here", "what was written")?;
        }
        cluster.down()?;
    }
    Ok(())
}

/// Starts a command and kills it after so many milliseconds, with SIGKILL.
fn killed(mut command: Command, after_ms: u64) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    std::thread::sleep(Duration::from_millis(after_ms));
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// A process that the case started and ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.try_wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// mkfs, serve, mount, umount, as an operator does it.
fn by_hand(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
    let path = |name: &str| context.work.join(name).to_string_lossy().into_owned();
    let port = free_port()?;
    let nid = format!("127.0.0.1:{port}@tcp");
    cluster.sheen(&["mkfs", "--mgs", &path("mgs")])?;
    let common = ["--fsname", "hand", "--mgsnode", &nid];
    cluster.sheen(&[&["mkfs", "--mdt", "--index", "0"], &common[..], &[&path("mdt0")]].concat())?;
    cluster.sheen(&[&["mkfs", "--ost", "--index", "0"], &common[..], &[&path("ost0")]].concat())?;
    let mut servers = Vec::new();
    let address = format!("127.0.0.1:{port}");
    for arguments in
        [&["serve", "--listen", &address, &path("mgs")][..], &["serve", &path("mdt0"), &path("ost0")]]
    {
        let log = fs::File::create(context.work.join(format!("serve{}.log", servers.len())))?;
        let mut command = cluster.command();
        command.args(arguments).stdout(log.try_clone()?).stderr(log);
        servers.push(Server(command.spawn()?));
    }
    let point = cluster.mount.to_string_lossy().into_owned();
    let transport = format!("transport={}", context.options.transport.word());
    let source = format!("{nid}:/hand");
    wait_until(Duration::from_secs(60), "the file system can be mounted", || {
        let said =
            cluster.try_sheen(&["mount", &source, &point, "-o", &transport], Duration::from_secs(40))?;
        if !said.is_success() {
            println!("mount: {}", said.all().trim_end());
        }
        Ok(said.is_success())
    })?;
    let leaf = Leaf { name: "file".to_owned(), byte_count: 3_000_000, seed: context.seed };
    forest::plant(&cluster.mount.join("sub"), std::slice::from_ref(&leaf))?;
    let listed = cluster.sheen(&["mounts"])?;
    let is_told = |line: &str| line.contains(&format!(" on {point} ")) && ends_with_pid(line);
    expect(listed.lines().any(is_told), &format!("`sheen mounts` names the mount: {listed}"))?;
    cluster.unmount(&cluster.mount)?;
    cluster.sheen(&["mount", &format!("{source}/sub"), &point, "-o", &transport])?;
    forest::check(&cluster.mount, &[leaf])?;
    cluster.unmount(&cluster.mount)
}

/// As the line of a mount in `sheen mounts` does whose process has answered.
pub fn ends_with_pid(line: &str) -> bool {
    line.rsplit_once(" pid ").is_some_and(|(_, pid)| pid.parse::<u32>().is_ok())
}

/// What operators ask first.
fn lfs_and_lctl(context: &Context) -> Result<()> {
    let cluster = start(context, Shape::SPLIT)?;
    let mount = cluster.mount.to_string_lossy().into_owned();
    let file = cluster.mount.join("file").to_string_lossy().into_owned();
    write(Path::new(&file), &vec![7u8; 5 << 20])?;
    let said = cluster.sheen(&["lfs", "df", &mount])?;
    for word in ["MDT:0", "MDT:1", "OST:0", "OST:3", "filesystem_summary"] {
        expect(said.contains(word), &format!("`lfs df` shows {word}:\n{said}"))?;
    }
    cluster.sheen(&["lfs", "df", "-h", &mount])?;
    cluster.sheen(&["lfs", "df", "-i", &mount])?;
    let fid = cluster.sheen(&["lfs", "path2fid", &file])?;
    let path = cluster.sheen(&["lfs", "fid2path", &mount, fid.trim()])?;
    expect(path.trim_end().ends_with("file"), &format!("fid2path of {fid}: {path}"))?;
    let striped = cluster.mount.join("striped").to_string_lossy().into_owned();
    cluster.sheen(&["lfs", "setstripe", "-c", "4", "-S", "1M", &striped])?;
    let layout = cluster.sheen(&["lfs", "getstripe", &striped])?;
    expect(layout.contains("lmm_stripe_count:"), &format!("getstripe:\n{layout}"))?;
    let leaf = Leaf { name: "striped".to_owned(), byte_count: (9 << 20) + 77, seed: context.seed };
    fs::OpenOptions::new()
        .write(true)
        .open(&striped)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &leaf.bytes()))?;
    expect_bytes(&read(Path::new(&striped))?, &leaf.bytes(), "a file of four stripes")?;
    let remote = cluster.mount.join("remote").to_string_lossy().into_owned();
    cluster.sheen(&["lfs", "mkdir", "-i", "1", &remote])?;
    let where_it_is = cluster.sheen(&["lfs", "getdirstripe", &remote])?;
    expect(where_it_is.contains('1'), &format!("getdirstripe: {where_it_is}"))?;
    let deep = cluster.mount.join("remote/below/deep");
    fs::create_dir(cluster.mount.join("remote/below"))?;
    write(&deep, b"x")?;
    let shown = |options: &[&str]| cluster.sheen(&[&["lfs", "getstripe"], options, &[&mount]].concat());
    expect(shown(&["-r"])?.contains("remote/below/deep"), "getstripe -r shows what is below")?;
    expect(!shown(&[])?.contains("remote/below/deep"), "getstripe does not")?;
    let (osts, mdts) = (cluster.sheen(&["lfs", "osts", &mount])?, cluster.sheen(&["lfs", "mdts", &mount])?);
    expect(
        osts.starts_with("OBDS:\n0: ") && osts.ends_with("-OST0003_UUID ACTIVE\n"),
        &format!("OSTs:\n{osts}"),
    )?;
    expect(
        mdts.starts_with("MDTS:\n0: ") && mdts.ends_with("-MDT0001_UUID ACTIVE\n"),
        &format!("MDTs:\n{mdts}"),
    )?;
    let nids = cluster.sheen(&["lctl", "list_nids"])?;
    expect(
        nids.contains("0@lo") && nids.contains("127.0.0.1:"),
        &format!("NIDs of clients and servers:\n{nids}"),
    )?;
    let parameters = cluster.sheen(&["lctl", "list_param", "*"])?;
    expect(parameters.lines().count() > 3, &format!("list_param:\n{parameters}"))?;
    stop(cluster)
}

/// Ticks (1/100 s) of processor time that a process has used.
fn ticks(pid: i32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after = stat.rsplit_once(')').context("a stat line")?.1;
    let field = |index: usize| -> Result<u64> {
        Ok(after.split_whitespace().nth(index).context("a field of the stat line")?.parse()?)
    };
    Ok(field(11)? + field(12)?)
}

/// At rest: below 1 % of one core and 300 MiB, all processes together. What was written before is settled in the background, on a
/// busy machine later than on others: one quiet stretch of ten seconds is looked for.
fn at_rest(context: &Context) -> Result<()> {
    let cluster = start(context, ONE)?;
    forest::plant(&cluster.mount.join("dir"), &forest::every_size(context.seed))?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let mut pids: Vec<i32> = cluster
        .targets()?
        .into_iter()
        .chain(cluster.mounts()?)
        .map(|(_, pid)| pid)
        .filter(|pid| *pid > 0)
        .collect();
    pids.sort_unstable();
    pids.dedup();
    let sum = |of: fn(i32) -> Result<u64>| -> Result<u64> { pids.iter().map(|pid| of(*pid)).sum() };
    let mut used = u64::MAX;
    for _ in 0..12 {
        let before = sum(ticks)?;
        std::thread::sleep(Duration::from_secs(10));
        used = sum(ticks)? - before;
        println!("{used} ticks of 1,000 in 10 s ({} %)", used as f64 / 10.0);
        if used < 10 {
            break;
        }
    }
    let mib = sum(|pid| Ok(sys::status_kib(pid, "VmRSS")?))? / 1024;
    println!("{mib} MiB at rest");
    expect(used < 10, &format!("never less than 10 ticks of processor time in 10 s, at last {used}"))?;
    expect(mib < 300, &format!("{mib} MiB at rest"))?;
    stop(cluster)
}
