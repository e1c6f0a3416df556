//! Two servers that share the storage of the same targets: the one takes over from the other when it is fenced, and never before.
//!
//! Each server has control sockets of its own, as on a machine of its own: one that stands still does not hold up questions to the other.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::agent::Agent;
use crate::bounded;
use crate::case::{Bed, Case, Context, Suite, expect, expect_bytes, note, read, skip, wait_until};
use crate::cluster::{COMMAND_LIMIT, Cluster, Shape};
use crate::load;
use crate::sys;

pub mod coordinator;

/// The suite.
pub static SUITE: Suite = Suite { name: "failover", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "owner_killed", seconds: 120, run: owner_killed },
    Case { name: "owner_stopped", seconds: 120, run: owner_stopped },
    Case { name: "woken_after_takeover", seconds: 120, run: woken_after_takeover },
    Case { name: "stopped_within_a_write", seconds: 120, run: stopped_within_a_write },
    Case { name: "fence_fails", seconds: 120, run: fence_fails },
    Case { name: "fence_lies", seconds: 120, run: fence_lies },
    Case { name: "owner_leaves", seconds: 120, run: owner_leaves },
    Case { name: "mgs_made_anew", seconds: 120, run: mgs_made_anew },
    Case { name: "damaged_at_takeover", seconds: 180, run: damaged_at_takeover },
];

const TARGETS: [&str; 2] = ["MDT0000", "OST0000"];
/// What a fence command does that works: nothing is left that could write.
const KILL: &str = "kill -9 \"$SHEEN_FENCE_PID\" 2>/dev/null || true";
/// Bounds a hang only.
const PATIENCE: Duration = Duration::from_secs(60);
/// Long enough for several attempts at what must not happen: a lease takes 3 s to end, and the next attempt comes after 5 s.
const SEVERAL_ATTEMPTS: Duration = Duration::from_secs(9);

/// A server process with control sockets of its own.
struct Server {
    child: Child,
    run: PathBuf,
    log: PathBuf,
}

impl Server {
    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn signal(&self, signal: i32) -> Result<()> {
        sys::kill(self.pid(), signal).context("signal to a server")
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A management server, two servers for the same targets, and a mount; or two management servers of which the second one stands by, and
/// one server for the targets (`coordinator::managers`).
struct Pair {
    cluster: Cluster,
    source: String,
    transport: &'static str,
    first: Server,
    second: Server,
    /// The one that is not there twice.
    other: Server,
    /// What there is to check at the end.
    dirs: &'static [&'static str],
}

impl Pair {
    /// The first server owns everything; the second one stands by.
    fn start(context: &Context, fence: &str) -> Result<Pair> {
        Pair::start_with(context, &["--fence-cmd", fence], |_, _| Ok(()))
    }

    /// With other arguments of both servers. `begin` sees the first one before it serves anything.
    fn start_with(
        context: &Context,
        words: &[&str],
        begin: impl FnOnce(&Cluster, &Server) -> Result<()>,
    ) -> Result<Pair> {
        context.skip_if_local()?;
        let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
        let dir = |name: &str| cluster.data.join(name);
        fs::create_dir_all(dir("log"))?;
        let path = |name: &str| dir(name).to_string_lossy().into_owned();
        cluster.sheen(&["mkfs", "--mgs", &path("mgs")])?;
        let mgs = serve(&cluster, "m", &[&path("mgs")])?;
        let nid = wait_for(&cluster, &mgs, |targets| {
            targets.first().and_then(|target| target.get("nid")?.as_str().map(str::to_owned))
        })?;
        for (kind, name) in [("--mdt", "mdt0"), ("--ost", "ost0")] {
            let words = ["mkfs", kind, "--index", "0", "--fsname", "suite", "--mgsnode", &nid, &path(name)];
            cluster.sheen(&words)?;
        }
        let (mdt, ost) = (path("mdt0"), path("ost0"));
        let arguments = [&["--failover"], words, &[&mdt, &ost]].concat();
        let first = serve(&cluster, "a", &arguments)?;
        begin(&cluster, &first)?;
        wait_served(&cluster, &first)?;
        let second = serve(&cluster, "b", &arguments)?;
        wait_for(&cluster, &second, |targets| all(targets, "standby"))?;
        let (source, transport) = (format!("{nid}:/suite"), context.options.transport.word());
        let dirs = &["mgs", "mdt0", "ost0"];
        let pair = Pair { cluster, source, transport, first, second, other: mgs, dirs };
        pair.mount(&pair.cluster.mount)?;
        Ok(pair)
    }

    fn mount(&self, point: &Path) -> Result<()> {
        let options = format!("transport={}", self.transport);
        self.cluster.sheen(&["mount", &self.source, &point.to_string_lossy(), "-o", &options]).map(drop)
    }

    fn wait_second_serves(&self) -> Result<()> {
        wait_served(&self.cluster, &self.second).with_context(|| self.second.log())
    }

    /// Until the second server says of both targets what an operator should do.
    fn wait_alert(&self, words: &[&str]) -> Result<()> {
        wait_for(&self.cluster, &self.second, |targets| {
            let has = |target: &Value| {
                let alert = target.get("alert").and_then(Value::as_str).unwrap_or_default();
                words.iter().all(|word| alert.contains(word))
            };
            (targets.len() == TARGETS.len() && targets.iter().all(has)).then_some(())
        })
    }

    /// The second server goes on standing by, and has opened nothing.
    fn expect_standby(&self, generations: &[u64], limit: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            let targets = targets(&self.cluster, &self.second)?;
            expect(all(&targets, "standby").is_some(), &format!("it has taken over: {targets:?}"))?;
            std::thread::sleep(Duration::from_millis(300));
        }
        expect(!self.second.log().contains("serving"), "the second server has served something")?;
        expect(self.generations()? == generations, "somebody has begun a new life of a target")
    }

    /// Epochs of ownership, as the second server knows them.
    fn generations(&self) -> Result<Vec<u64>> {
        let targets = targets(&self.cluster, &self.second)?;
        let epoch = |target: &Value| {
            let owner = target.get("owner").and_then(Value::as_str)?;
            owner.split("epoch ").nth(1)?.split(',').next()?.parse().ok()
        };
        let epochs: Option<Vec<u64>> = targets.iter().map(epoch).collect();
        epochs.with_context(|| format!("no epochs in {targets:?}"))
    }

    /// Runs `disturb` beside workers, of which no call may fail, and checks what they and a new mount find afterwards.
    fn undisturbed(&self, context: &Context, disturb: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut random = context.random();
        let synced = random.bytes(300_000);
        let mut file = fs::File::create(self.cluster.mount.join("synced"))?;
        file.write_all(&synced)?;
        file.sync_all()?;
        load::under_load(&self.cluster, &mut random, disturb)?;
        let again = self.cluster.point("again")?;
        self.mount(&again)?;
        expect_bytes(&read(&again.join("synced"))?, &synced, "what was synced before")
    }

    /// A third server, with other words, says so and serves nothing.
    fn expect_refused(&self, words: &[&str], why: &str) -> Result<()> {
        let dir = self.cluster.data.join("ost0").to_string_lossy().into_owned();
        let arguments = [&["serve"], words, &[&dir]].concat();
        let said = ask(&self.cluster, &self.cluster.point("c.run")?, &arguments)?;
        expect(
            !said.is_success() && said.all().contains(why) && said.all().trim().lines().count() == 1,
            &format!("it is told in one line why not: {}", said.all()),
        )
    }

    /// Again while the server itself is at it.
    fn failover(&self, target: &str, words: &[&str]) -> Result<bounded::Said> {
        let arguments = [&["failover", target][..], words].concat();
        let mut said = ask(&self.cluster, &self.second.run, &arguments)?;
        wait_until(PATIENCE, "the server's own attempt is over", || {
            let is_over = said.is_success() || !said.all().contains("is under way, which waits");
            if !is_over {
                said = ask(&self.cluster, &self.second.run, &arguments)?;
            }
            Ok(is_over)
        })?;
        Ok(said)
    }

    /// Everything ends in order, and nothing is wrong with what is on the disks.
    fn end(mut self) -> Result<()> {
        for point in [self.cluster.point("again")?, self.cluster.mount.clone()] {
            if crate::sweep::mounts_under(&point).is_empty() {
                continue;
            }
            self.cluster.unmount(&point)?;
        }
        for server in [&mut self.first, &mut self.second] {
            if server.child.try_wait()?.is_none() {
                server.signal(libc::SIGTERM)?;
                server.child.wait()?;
            }
        }
        self.other.signal(libc::SIGTERM)?;
        self.other.child.wait()?;
        let dirs: Vec<String> = self
            .dirs
            .iter()
            .map(|name| self.cluster.data.join(name).to_string_lossy().into_owned())
            .collect();
        let words: Vec<&str> =
            ["fsck"].into_iter().chain(dirs.iter().map(String::as_str)).chain(["--data"]).collect();
        self.cluster.sheen(&words).map(drop)
    }
}

fn serve(cluster: &Cluster, name: &str, arguments: &[&str]) -> Result<Server> {
    let (run, log) = places(cluster, name)?;
    let mut command = cluster.command();
    command.env("SHEEN_RUN", &run).arg("serve").arg("--log").arg(&log).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Server { child: command.spawn().context("a server")?, run, log })
}

/// Its control sockets and its log.
fn places(cluster: &Cluster, name: &str) -> Result<(PathBuf, PathBuf)> {
    let log = cluster.data.join("log").join(format!("{name}.log"));
    Ok((cluster.point(&format!("{name}.run"))?, log))
}

/// A server that is there already and begins when it is told to, after the one before was killed: why, see `Cluster::up_in_waiting`.
struct Waiting(Server);

impl Waiting {
    fn start(cluster: &Cluster, name: &str, arguments: &[&str]) -> Result<Waiting> {
        let (run, log) = places(cluster, name)?;
        let served = cluster.command();
        let mut command = Command::new("sh");
        command.args(["-c", "echo there; exec >/dev/null; read -r _ && exec \"$0\" \"$@\""]);
        command.arg(served.get_program()).args(["serve", "--log"]).arg(&log).args(arguments);
        for (key, value) in served.get_envs() {
            command.env(key, value.unwrap_or_default());
        }
        command.env("SHEEN_RUN", &run);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("a shell that waits")?;
        let mut there = String::new();
        child.stdout.take().context("no output of the shell")?.read_to_string(&mut there)?;
        expect(there == "there\n", &format!("the shell that waits says {there:?}"))?;
        Ok(Waiting(Server { child, run, log }))
    }

    fn go(mut self) -> Result<Server> {
        let mut input = self.0.child.stdin.take().context("it was told already")?;
        input.write_all(b"go\n").context("telling a server to begin")?;
        Ok(self.0)
    }
}

/// Starts the commands of this process: made with the first of them, before there is a mount.
static STARTER: Mutex<Option<Agent>> = Mutex::new(None);

fn ask(cluster: &Cluster, run: &Path, arguments: &[&str]) -> Result<bounded::Said> {
    let mut command = cluster.command();
    command.env("SHEEN_RUN", run).args(arguments);
    let mut starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    let agent = match &mut *starter {
        Some(agent) => agent,
        none => none.insert(Agent::new()?),
    };
    agent.say(&command, "SHEEN_ASK=1", COMMAND_LIMIT).with_context(|| format!("sheen {arguments:?}"))
}

/// What a server says about its targets; none while it does not answer yet.
fn targets(cluster: &Cluster, server: &Server) -> Result<Vec<Value>> {
    let said = ask(cluster, &server.run, &["status", "--json"])?;
    if !said.is_success() {
        bail!("sheen status: {}", said.all());
    }
    let report: Value = serde_json::from_str(&said.output)?;
    Ok(report.get("targets").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn wait_for<T>(cluster: &Cluster, server: &Server, find: impl Fn(&[Value]) -> Option<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        let targets = targets(cluster, server)?;
        if let Some(found) = find(&targets) {
            return Ok(found);
        }
        expect(begun.elapsed() < PATIENCE, &format!("still {targets:?}: {}", server.log()))?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn all(targets: &[Value], state: &str) -> Option<()> {
    let is_it = |target: &Value| target.get("state").and_then(Value::as_str) == Some(state);
    (targets.len() == TARGETS.len() && targets.iter().all(is_it)).then_some(())
}

fn wait_served(cluster: &Cluster, server: &Server) -> Result<()> {
    wait_for(cluster, server, |targets| all(targets, "active"))
}

fn owner_killed(context: &Context) -> Result<()> {
    let pair = Pair::start(context, KILL)?;
    kill_owner(context, &pair, || Ok(()))?;
    pair.end()
}

/// Kills the first server under load, and waits for a new file by the second.
fn kill_owner(context: &Context, pair: &Pair, before: impl FnOnce() -> Result<()>) -> Result<()> {
    pair.undisturbed(context, || {
        before()?;
        let begun = Instant::now();
        pair.first.signal(libc::SIGKILL)?;
        pair.wait_second_serves()?;
        fs::write(pair.cluster.mount.join("after"), "there")?;
        note(&format!("{:.1} s from kill -9 of the owner to a new file", begun.elapsed().as_secs_f64()));
        Ok(())
    })?;
    expect(pair.generations()? == [2, 2], "each target was taken once more")
}

fn owner_stopped(context: &Context) -> Result<()> {
    let pair = Pair::start(context, KILL)?;
    pair.undisturbed(context, || {
        pair.first.signal(libc::SIGSTOP)?;
        pair.wait_second_serves()?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", pair.first.pid())).unwrap_or_default();
        expect(stat.contains(") Z "), &format!("the old owner is dead when the new one serves: {stat}"))
    })?;
    pair.end()
}

/// On storage that does not carry locks from one machine to the other, and a fence of which the old owner notices nothing: it goes on when
/// everything is over, learns that it was replaced, and ends. Nothing of it reaches the targets.
fn woken_after_takeover(context: &Context) -> Result<()> {
    woken(context, |pair| pair.first.signal(libc::SIGSTOP))
}

/// The same, stopped as it comes back from one of the several calls that write one piece of data: the rest of that is to do yet.
fn stopped_within_a_write(context: &Context) -> Result<()> {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        return skip("strace is not installed");
    }
    woken(context, |pair| {
        let trace = pair.cluster.data.join("trace");
        let pid = pair.first.pid().to_string();
        let stopping = format!("inject=pwrite64:signal=SIGSTOP:when={}", 1 + context.random().below(12));
        let mut tracer = Command::new("strace")
            .args(["-f", "-qq", "-y", "-p", &pid, "-e", "trace=pwrite64", "-e", &stopping, "-o"])
            .arg(&trace)
            .spawn()?;
        let is_stopped = wait_until(PATIENCE, "a write has stopped the owner", || {
            Ok(fs::read_to_string(&trace).unwrap_or_default().contains("--- stopped by SIGSTOP"))
        });
        // Let go, it stands still.
        let detached = sys::kill(tracer.id() as i32, libc::SIGINT);
        tracer.wait()?;
        is_stopped?;
        detached?;
        pair.first.signal(libc::SIGSTOP)?;
        let said = fs::read_to_string(&trace)?;
        let written = said.lines().rfind(|line| line.contains("pwrite64(")).unwrap_or_default();
        expect(written.contains("/ost0/") || written.contains("/mdt0/"), &format!("a target's: {said}"))?;
        note(&format!("stopped behind {written}"));
        Ok(())
    })
}

fn woken(context: &Context, stop: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
    let pair = Pair::start(context, "true")?;
    pair.undisturbed(context, || {
        stop(&pair)?;
        for name in ["mdt0", "ost0"] {
            fs::remove_file(pair.cluster.data.join(name).join("lock"))?;
        }
        pair.wait_second_serves()?;
        fs::write(pair.cluster.mount.join("after"), "there")?;
        // The new owner stands still meanwhile, so that every byte that changes is the old one's.
        pair.second.signal(libc::SIGSTOP)?;
        let before = at_rest(&pair.cluster)?;
        pair.first.signal(libc::SIGCONT)?;
        let stat = format!("/proc/{}/stat", pair.first.pid());
        wait_until(PATIENCE, "the old owner ends by itself", || {
            Ok(fs::read_to_string(&stat).unwrap_or_default().contains(") Z "))
        })?;
        let after = contents(&pair.cluster)?;
        pair.second.signal(libc::SIGCONT)?;
        let is_same = |path: &&PathBuf| before.get(*path) == after.get(*path);
        let changed: Vec<&PathBuf> =
            before.keys().chain(after.keys()).filter(|path| !is_same(path)).collect();
        expect(changed.is_empty(), &format!("the old owner has written after the takeover: {changed:?}"))?;
        note(&format!("{} files of both targets are byte for byte as before it woke", after.len()));
        // Its threads wake together: what it is told may come before it has noticed that it stood still (`fence_lies` waits for that).
        let log = pair.first.log();
        expect(log.contains("it ends at once"), &format!("it says why: {log}"))
    })?;
    pair.end()
}

/// What each file of the two targets holds: a hash of its bytes, and when it was last changed.
fn contents(cluster: &Cluster) -> Result<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut found = BTreeMap::new();
    let mut dirs: Vec<PathBuf> = ["mdt0", "ost0"].iter().map(|name| cluster.data.join(name)).collect();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let (path, metadata) = (entry.path(), entry.metadata()?);
            if metadata.is_dir() {
                dirs.push(path);
                continue;
            }
            let mut hasher = DefaultHasher::new();
            hasher.write(&fs::read(&path)?);
            found.insert(path, (hasher.finish(), metadata.modified()?));
        }
    }
    Ok(found)
}

/// The same when nothing is on its way any more: what a process that stands still has handed to the kernel may still arrive.
fn at_rest(cluster: &Cluster) -> Result<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut found = contents(cluster)?;
    wait_until(PATIENCE, "nothing of the targets changes", || {
        std::thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut found, contents(cluster)?);
        Ok(before == found)
    })?;
    Ok(found)
}

fn fence_fails(context: &Context) -> Result<()> {
    let pair = Pair::start(context, "exit 3")?;
    pair.undisturbed(context, || {
        let before = pair.generations()?;
        let said = pair.failover("MDT0000", &["--fenced", "--epoch", "1"])?;
        expect(
            !said.is_success() && said.all().contains("renews its lease"),
            &format!("too early: {}", said.all()),
        )?;
        pair.first.signal(libc::SIGKILL)?;
        pair.wait_alert(&["the fence command has failed", "sheen failover suite-", " --fenced"])?;
        pair.expect_standby(&before, SEVERAL_ATTEMPTS)?;
        let text = ask(&pair.cluster, &pair.second.run, &["status"])?.output;
        let command = "sheen failover suite-OST0000 --fenced --epoch 1";
        expect(
            text.lines().any(|line| line.starts_with("alert: suite-OST0000: ") && line.contains(command)),
            &format!("status shows it: {text}"),
        )?;
        expect(!pair.failover("suite-MDT0000", &[])?.is_success(), "nothing is confirmed without saying so")?;
        expect(!pair.failover("suite-MDT0000", &["--fenced"])?.is_success(), "nor without saying of whom")?;
        let said = pair.failover("suite-MDT0000", &["--fenced", "--epoch", "7"])?;
        expect(
            !said.is_success() && said.all().contains("epoch 1 and not with 7"),
            &format!("of another owner: {}", said.all()),
        )?;
        for target in TARGETS {
            let said = pair.failover(&format!("suite-{target}"), &["--fenced", "--epoch", "1"])?;
            expect(said.is_success(), &format!("an operator confirms: {}", said.all()))?;
        }
        pair.wait_second_serves()
    })?;
    pair.end()
}

fn fence_lies(context: &Context) -> Result<()> {
    let pair = Pair::start(context, "true")?;
    pair.undisturbed(context, || {
        let before = pair.generations()?;
        pair.first.signal(libc::SIGSTOP)?;
        pair.wait_alert(&["in use", &pair.first.pid().to_string()])?;
        pair.expect_standby(&before, SEVERAL_ATTEMPTS)?;
        let said = pair.failover("suite-OST0000", &["--fenced", "--epoch", "1"])?;
        expect(!said.is_success() && said.all().contains("in use"), &format!("nor by hand: {}", said.all()))?;
        pair.first.signal(libc::SIGCONT)?;
        wait_served(&pair.cluster, &pair.first)?;
        wait_until(PATIENCE, "the owner goes on", || Ok(pair.first.log().contains("still owns its targets")))
    })?;
    expect(pair.generations()? == [1, 1], "nobody else has owned them")?;
    pair.end()
}

/// Who ends in order need not be fenced.
fn owner_leaves(context: &Context) -> Result<()> {
    let pair = Pair::start(context, "exit 3")?;
    pair.expect_refused(&[], "is served with --failover")?;
    pair.undisturbed(context, || {
        pair.first.signal(libc::SIGTERM)?;
        pair.wait_second_serves()
    })?;
    expect(!pair.second.log().contains("fence"), "nobody was fenced")?;
    pair.end()
}

/// The management server has lost its disk, and who owned the targets, which is cut off from it and writes on for all that anybody knows. On
/// storage that does not carry locks from one machine to the other.
fn mgs_made_anew(context: &Context) -> Result<()> {
    let mut pair = Pair::start(context, "exit 3")?;
    let bytes = context.random().bytes(300_000);
    let file = pair.cluster.mount.join("synced");
    fs::write(&file, &bytes)?;
    fs::File::open(&file)?.sync_all()?;
    pair.first.signal(libc::SIGSTOP)?;
    for name in ["mdt0", "ost0"] {
        fs::remove_file(pair.cluster.data.join(name).join("lock"))?;
    }
    pair.other.signal(libc::SIGTERM)?;
    pair.other.child.wait()?;
    let dir = pair.cluster.data.join("mgs");
    fs::remove_dir_all(&dir)?;
    let dir = dir.to_string_lossy().into_owned();
    pair.cluster.sheen(&["mkfs", "--mgs", &dir])?;
    let address = pair.source.split_once('@').context("a NID")?.0.to_owned();
    pair.other = serve(&pair.cluster, "m2", &["--listen", &address, &dir])?;
    pair.wait_alert(&["made anew", " --fenced --epoch 0"])?;
    let begun = Instant::now();
    while begun.elapsed() < SEVERAL_ATTEMPTS {
        let targets = targets(&pair.cluster, &pair.second)?;
        expect(all(&targets, "standby").is_some(), &format!("it has taken over: {targets:?}"))?;
        std::thread::sleep(Duration::from_millis(300));
    }
    expect(!pair.second.log().contains("serving"), "the second server has served something")?;
    pair.first.signal(libc::SIGKILL)?;
    pair.first.child.wait()?;
    for target in TARGETS {
        let said = pair.failover(&format!("suite-{target}"), &["--fenced", "--epoch", "0"])?;
        expect(said.is_success(), &format!("an operator confirms: {}", said.all()))?;
    }
    pair.wait_second_serves()?;
    expect_bytes(&read(&file)?, &bytes, "what was synced before")?;
    pair.end()
}

/// The server that takes over finds that it cannot open one of the targets. It serves the other one, and neither is it ended for that nor
/// fenced by a server that would have a try.
fn damaged_at_takeover(context: &Context) -> Result<()> {
    let mut pair = Pair::start(context, KILL)?;
    let bytes = context.random().bytes(300_000);
    let file = pair.cluster.mount.join("synced");
    fs::write(&file, &bytes)?;
    fs::File::open(&file)?.sync_all()?;
    let index = pair.cluster.data.join("ost0/meta/index");
    let words = index.to_string_lossy().into_owned();
    pair.first.signal(libc::SIGKILL)?;
    pair.first.child.wait()?;
    let sound = fs::read(&index)?;
    fs::OpenOptions::new().write(true).open(&index)?.set_len(sound.len() as u64 / 2)?;
    let is_refused = |targets: &[Value]| {
        let ost = targets.iter().find(|target| is_named(target, "OST0000"))?;
        ost.get("alert").and_then(Value::as_str).filter(|alert| alert.contains(&words)).map(drop)
    };
    wait_for(&pair.cluster, &pair.second, is_refused).context("what is damaged is named")?;
    // Until then the dead first server owns the MDT, and a third one would rightly have it fenced too.
    wait_for(&pair.cluster, &pair.second, |targets| is_active(targets, "MDT0000").then_some(()))
        .context("the sound target is taken over")?;
    let path = |name: &str| pair.cluster.data.join(name).to_string_lossy().into_owned();
    let third =
        serve(&pair.cluster, "c", &["--failover", "--fence-cmd", KILL, &path("mdt0"), &path("ost0")])?;
    wait_for(&pair.cluster, &third, is_refused).context("the third server has had a try")?;
    let begun = Instant::now();
    while begun.elapsed() < SEVERAL_ATTEMPTS {
        let targets = targets(&pair.cluster, &pair.second)?;
        expect(is_active(&targets, "MDT0000"), &format!("the MDT is served all the time: {targets:?}"))?;
        std::thread::sleep(Duration::from_millis(300));
    }
    expect(
        !third.log().contains("it is fenced"),
        &format!("nobody is fenced for a damaged base: {}", third.log()),
    )?;
    // Whole at once: two servers try to open it.
    let beside = index.with_extension("sound");
    fs::write(&beside, sound)?;
    fs::rename(&beside, &index)?;
    wait_until(PATIENCE, "the OST is served again", || {
        let both = [&pair.second, &third].map(|server| targets(&pair.cluster, server));
        let [second, third] = both;
        Ok(is_active(&second?, "OST0000") || is_active(&third?, "OST0000"))
    })?;
    expect_bytes(&read(&file)?, &bytes, "what was synced before")?;
    pair.first = third;
    pair.end()
}

fn is_named(target: &Value, name: &str) -> bool {
    target.get("name").and_then(Value::as_str) == Some(name)
}

fn is_active(targets: &[Value], name: &str) -> bool {
    let is_it = |target: &Value| target.get("state").and_then(Value::as_str) == Some("active");
    targets.iter().any(|target| is_named(target, name) && is_it(target))
}
