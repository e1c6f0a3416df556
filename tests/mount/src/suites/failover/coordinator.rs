//! Two servers for the same targets, of which etcd says who owns them: three members on loopback ports, some or all of which go away.
//! Needs the program etcd, and a `sheen` that was built with the feature `etcd`; otherwise it is skipped.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{
    KILL, PATIENCE, Pair, SEVERAL_ATTEMPTS, TARGETS, all, ask, kill_owner, serve, targets, wait_for,
    wait_served,
};
use crate::case::{Bed, Case, Context, Suite, expect, note, skip, wait_until};
use crate::random::Random;
use crate::sys;

mod managers;

/// The suite.
pub static SUITE: Suite =
    Suite { name: "coordinator", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "member_and_owner_killed", seconds: 120, run: member_and_owner_killed },
    Case { name: "member_hangs", seconds: 180, run: member_hangs },
    Case { name: "leader_hangs", seconds: 180, run: leader_hangs },
    Case { name: "other_coordinators", seconds: 120, run: other_coordinators },
    Case { name: "etcd_goes_away", seconds: 120, run: etcd_goes_away },
    Case { name: "ended_without_etcd", seconds: 120, run: ended_without_etcd },
    Case { name: "etcd_hangs", seconds: 120, run: etcd_hangs },
    Case { name: "etcd_down_at_start", seconds: 120, run: etcd_down_at_start },
    Case { name: "owner_leaves", seconds: 120, run: owner_leaves },
    Case { name: "mgs_killed", seconds: 120, run: managers::killed },
    Case { name: "mgs_stopped", seconds: 120, run: managers::stopped },
    Case { name: "mgs_knows_the_dead", seconds: 120, run: managers::knows_the_dead },
    Case { name: "mgs_knows_who_died_with_it", seconds: 180, run: managers::knows_who_died_with_it },
    Case { name: "mgs_without_etcd", seconds: 120, run: managers::without_etcd },
    Case { name: "mgs_refused_by_etcd", seconds: 120, run: managers::refused },
];

const MEMBER_COUNT: usize = 3;
const DIRS: [&str; 2] = ["mdt0", "ost0"];
/// How long nothing must be written while etcd is away. Workers wait with changes all the time.
const QUIET: Duration = Duration::from_secs(2);

/// The members of etcd. They end with this.
struct Etcd {
    dir: PathBuf,
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
}

impl Etcd {
    /// Nothing runs yet.
    fn new(context: &Context) -> Result<Etcd> {
        Etcd::of(context, "etcd", MEMBER_COUNT)
    }

    /// With a name and a size of its own.
    fn of(context: &Context, name: &str, member_count: usize) -> Result<Etcd> {
        context.skip_if_local()?;
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            return skip("etcd is not installed (package etcd-server)");
        }
        let asked = Command::new(&context.options.sheen)
            .args(["serve", "--failover", "--coordinator", "etcd://127.0.0.1:1", "/nonexistent"])
            .output()
            .context("sheen serve")?;
        if String::from_utf8_lossy(&asked.stderr).contains("built without etcd") {
            return skip("sheen was built without the feature etcd");
        }
        let mut random = context.random();
        let held = (0..2 * member_count).map(|_| bind(&mut random)).collect::<Result<Vec<_>>>()?;
        let ports: Vec<u16> = held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<Result<_>>()?;
        let ports = ports.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let dir = context.work.join(name);
        // What an earlier run has left would be members of other ports.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        Ok(Etcd { dir, ports, running: (0..member_count).map(|_| None).collect() })
    }

    fn url(&self) -> String {
        let members: Vec<String> =
            self.ports.iter().map(|(client, _)| format!("127.0.0.1:{client}")).collect();
        format!("etcd://{}", members.join(","))
    }

    /// Those that do not run, with what they had on their disks; until all agree on a leader.
    fn start_all(&mut self) -> Result<()> {
        self.start_missing()?;
        let all = 0..self.running.len();
        self.wait_leader(all.clone()).map(drop).with_context(|| {
            let log = |index| fs::read_to_string(self.dir.join(format!("m{index}.log"))).unwrap_or_default();
            let last = |index| log(index).lines().last().unwrap_or_default().to_owned();
            all.map(last).collect::<Vec<String>>().join("\n")
        })
    }

    fn start_missing(&mut self) -> Result<()> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> =
            (0..).zip(&self.ports).map(|(index, (_, peer))| format!("m{index}={}", url(*peer))).collect();
        for (index, (client, peer)) in self.ports.iter().enumerate() {
            if self.running[index].is_some() {
                continue;
            }
            let name = format!("m{index}");
            let log = File::options().create(true).append(true).open(self.dir.join(format!("{name}.log")))?;
            let child = Command::new("etcd")
                .args(["--name", &name, "--data-dir"])
                .arg(self.dir.join(&name))
                .args(["--listen-client-urls", &url(*client), "--advertise-client-urls", &url(*client)])
                .args(["--listen-peer-urls", &url(*peer), "--initial-advertise-peer-urls", &url(*peer)])
                .args(["--initial-cluster", &all.join(",")])
                .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .context("etcd")?;
            self.running[index] = Some(child);
        }
        Ok(())
    }

    /// To as many of those that run; the first one is whom everybody asks first.
    fn signal(&self, count: usize, signal: i32) -> Result<()> {
        let mut members = self.running.iter().flatten().take(count);
        members.try_for_each(|member| sys::kill(member.id() as i32, signal).context("signal to a member"))
    }

    /// How a member sees the others.
    fn status(&self, index: usize) -> Result<Status> {
        let status: Value =
            serde_json::from_str(&post(self.ports[index].0, "/v3/maintenance/status", "{}")?)?;
        let word = |path: &str| status.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Status { member: word("/header/member_id"), leader: word("/leader"), term: word("/raftTerm") })
    }

    /// Whom these members follow, in which term, once they agree.
    fn wait_leader(&self, of: Range<usize>) -> Result<(usize, String)> {
        let mut found = None;
        wait_until(PATIENCE, "these members of etcd agree on a leader", || {
            // Those that are not there yet are no members that agree.
            let Ok(all) = of.clone().map(|index| self.status(index)).collect::<Result<Vec<Status>>>() else {
                return Ok(false);
            };
            let leader = all.iter().position(|one| one.member == one.leader);
            let agree = |index: usize| {
                all.iter().all(|one| one.leader == all[index].member && one.term == all[index].term)
            };
            found =
                leader.filter(|index| agree(*index)).map(|index| (of.start + index, all[index].term.clone()));
            Ok(found.is_some())
        })?;
        found.context("a leader")
    }

    /// From here on that member leads, unless etcd chooses another one: then the term is another one too.
    fn lead(&self, index: usize) -> Result<String> {
        let mut led = None;
        wait_until(PATIENCE, "this member of etcd leads", || {
            let (leader, term) = self.wait_leader(0..MEMBER_COUNT)?;
            if leader == index {
                led = Some(term);
                return Ok(true);
            }
            let question = format!(r#"{{"targetID": "{}"}}"#, self.status(index)?.member);
            // It may lead no more by now: looked at anew.
            let _ = post(self.ports[leader].0, "/v3/maintenance/transfer-leadership", &question);
            Ok(false)
        })?;
        led.context("a term")
    }

    /// As if it had no space left: it answers questions, renews leases, and takes nothing.
    fn set_full(&self, is_full: bool) -> Result<()> {
        let (port, member) = (self.ports[0].0, self.status(0)?.member);
        let action = if is_full { "ACTIVATE" } else { "DEACTIVATE" };
        let question = format!(r#"{{"action": "{action}", "memberID": "{member}", "alarm": "NOSPACE"}}"#);
        post(port, "/v3/maintenance/alarm", &question).map(drop)
    }

    fn kill(&mut self, count: usize) -> Result<()> {
        for child in self.running.iter_mut().filter(|child| child.is_some()).take(count) {
            if let Some(mut child) = child.take() {
                child.kill()?;
                child.wait()?;
            }
        }
        Ok(())
    }
}

/// A port that no connection has for its own end while its member does not run: below those that the kernel gives.
fn bind(random: &mut Random) -> Result<TcpListener> {
    let mut ports = (0..1000).map(|_| 10_000 + random.below(22_000) as u16);
    let bound = ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    bound.context("a port that is free")
}

/// Numbers of etcd, in its words.
struct Status {
    member: String,
    leader: String,
    term: String,
}

/// The body of the answer, which is a good one.
fn post(port: u16, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer of HTTP")?;
    expect(head.lines().next().is_some_and(|line| line.contains(" 200 ")), &answer)?;
    Ok(body.to_owned())
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Gone already is as well.
        let _ = self.kill(self.ports.len());
    }
}

fn started(context: &Context, fence: &str) -> Result<(Etcd, Pair)> {
    let mut etcd = Etcd::new(context)?;
    etcd.start_all()?;
    let words = ["--coordinator", &etcd.url(), "--fence-cmd", fence];
    let pair = Pair::start_with(context, &words, |_, _| Ok(()))?;
    Ok((etcd, pair))
}

/// Sizes and times of all that is in the directories of both targets.
fn state(pair: &Pair) -> Result<Vec<(PathBuf, u64, i64, i64)>> {
    fn walk(dir: &Path, found: &mut Vec<(PathBuf, u64, i64, i64)>) -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let (path, data) = {
                let entry = entry?;
                (entry.path(), entry.metadata()?)
            };
            if data.is_dir() {
                walk(&path, found)?;
            }
            found.push((path, data.size(), data.mtime(), data.mtime_nsec()));
        }
        Ok(())
    }
    let mut found = Vec::new();
    for name in DIRS {
        walk(&pair.cluster.data.join(name), &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn member_and_owner_killed(context: &Context) -> Result<()> {
    let (mut etcd, pair) = started(context, KILL)?;
    kill_owner(context, &pair, || {
        etcd.kill(1)?;
        Ok(fs::write(pair.cluster.mount.join("between"), "there")?)
    })?;
    pair.end()
}

/// A member that stands still takes connections, and answers nobody: the next one is asked. It is one that does not lead, so that the
/// others answer all the time (`leader_hangs`).
fn member_hangs(context: &Context) -> Result<()> {
    let (etcd, pair) = started(context, KILL)?;
    kill_owner(context, &pair, || {
        let term = etcd.lead(1)?;
        etcd.signal(1, libc::SIGSTOP)?;
        pair.expect_standby(&[1, 1], SEVERAL_ATTEMPTS)?;
        expect(!pair.second.log().contains("fence"), "the owner is heard as before")?;
        let log = pair.first.log();
        // The machine may have been too busy for the two that are left, which have chosen a leader anew: nobody answers meanwhile.
        let is_led_on = etcd.wait_leader(1..MEMBER_COUNT)? == (1, term);
        let has_paused = log.contains("leases of this process have ended");
        expect(!is_led_on || !has_paused, &format!("and hears: {log}"))?;
        note(if is_led_on {
            "the same leader all the time"
        } else {
            "a new leader, for no reason of this case"
        });
        wait_heard(&pair)
    })?;
    etcd.signal(1, libc::SIGCONT)?;
    pair.end()
}

/// Until the owner has been told of each pause that it is over.
fn wait_heard(pair: &Pair) -> Result<()> {
    wait_until(PATIENCE, "the owner goes on by itself", || {
        let log = pair.first.log();
        let count = |words: &str| log.matches(words).count();
        Ok(count("nothing is written before") == count("still owns its targets"))
    })
}

/// The member that leads, and that everybody asks first, stands still. Until the others have chosen a leader nobody answers, which may take
/// longer than what is left of a lease: then the owner pauses. Nobody is fenced for it, since a new leader gives each lease its whole time,
/// and no call fails. When the old one goes on it may end leases that have ended on its clock; then the owner is fenced (`etcd_hangs`).
fn leader_hangs(context: &Context) -> Result<()> {
    let (etcd, pair) = started(context, KILL)?;
    pair.undisturbed(context, || {
        etcd.lead(0)?;
        etcd.signal(1, libc::SIGSTOP)?;
        etcd.wait_leader(1..MEMBER_COUNT)?;
        pair.expect_standby(&[1, 1], SEVERAL_ATTEMPTS)?;
        expect(!pair.second.log().contains("fence"), "nobody is fenced for a choice of etcd")?;
        wait_heard(&pair)?;
        let paused = pair.first.log().matches("leases of this process have ended").count();
        note(&format!("the owner has paused {paused} times"));
        fs::write(pair.cluster.mount.join("without"), "there")?;
        etcd.signal(1, libc::SIGCONT)?;
        etcd.wait_leader(0..MEMBER_COUNT)?;
        Ok(fs::write(pair.cluster.mount.join("after"), "there")?)
    })?;
    pair.end()
}

/// Two servers that ask different coordinators would each be given the same target.
fn other_coordinators(context: &Context) -> Result<()> {
    let (_etcd, pair) = started(context, KILL)?;
    pair.expect_refused(&["--failover"], "is kept by etcd")?;
    let mut other = Etcd::of(context, "other", 1)?;
    other.start_all()?;
    let dir = |name: &str| pair.cluster.data.join(name).to_string_lossy().into_owned();
    let (mdt, ost, url) = (dir("mdt0"), dir("ost0"), other.url());
    let arguments = ["--failover", "--fence-cmd", KILL, "--coordinator", &url, &mdt, &ost];
    // As on storage that does not carry locks: only what is written down in the directories is between them.
    for name in DIRS {
        fs::remove_file(pair.cluster.data.join(name).join("lock"))?;
    }
    let third = serve(&pair.cluster, "c", &arguments)?;
    wait_for(&pair.cluster, &third, |targets| {
        let says = |target: &Value| {
            let alert = target.get("alert").and_then(Value::as_str).unwrap_or_default();
            alert.contains("asks another coordinator")
        };
        (targets.len() == TARGETS.len() && targets.iter().all(says)).then_some(())
    })?;
    pair.undisturbed(context, || Ok(()))?;
    expect(!third.log().contains("serving"), "the third one has served something")?;
    drop(third);
    pair.end()
}

/// Until the owner writes nothing any more.
fn wait_silenced(pair: &Pair) -> Result<()> {
    wait_until(PATIENCE, "the owner says that its leases have ended", || {
        Ok(pair.first.log().contains("leases of this process have ended"))
    })?;
    // What was in the middle of a write, or of a sync, ends it, which a busy disk may take long for.
    let mut before = state(pair)?;
    wait_until(PATIENCE, "what was under way has ended", || {
        std::thread::sleep(Duration::from_secs(1));
        let earlier = std::mem::replace(&mut before, state(pair)?);
        Ok(earlier == before)
    })?;
    std::thread::sleep(QUIET);
    expect(state(pair)? == before, "it has written without a lease")
}

/// A process that makes one file after the other durable, until it is told to end. (A thread's open file would be closed by each command
/// that starts meanwhile, within exec(2), and wait there for the owner.)
struct Synced {
    child: Child,
    /// Exists until it is to end.
    goes_on: PathBuf,
    /// As long as there were files.
    made: PathBuf,
}

impl Synced {
    fn begin(pair: &Pair) -> Result<Synced> {
        const LOOP: &str =
            r#"while [ -e "$2" ]; do printf durable >"$1" && sync "$1" && printf . >>"$3" || exit 1; done"#;
        let path = |name: &str| pair.cluster.data.join(name);
        let (goes_on, made) = (path("goes_on"), path("made"));
        fs::write(&goes_on, "")?;
        fs::write(&made, "")?;
        let child = Command::new("sh")
            .args(["-c", LOOP, "sh"])
            .args([&pair.cluster.mount.join("while"), &goes_on, &made])
            .spawn()?;
        Ok(Synced { child, goes_on, made })
    }

    fn count(&self) -> Result<u64> {
        Ok(fs::metadata(&self.made)?.len())
    }

    /// No call has failed.
    fn end(mut self) -> Result<()> {
        fs::remove_file(&self.goes_on)?;
        expect(self.child.wait()?.success(), "a file that is to be durable")
    }
}

impl Drop for Synced {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.goes_on);
        // Ended already is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An owner serves until its leases end, then it writes nothing; when etcd is back, it goes on under its epoch, and no call has failed.
fn etcd_goes_away(context: &Context) -> Result<()> {
    let (mut etcd, pair) = started(context, KILL)?;
    pair.undisturbed(context, || {
        etcd.kill(MEMBER_COUNT)?;
        let written = Synced::begin(&pair)?;
        wait_silenced(&pair)?;
        // From then on nothing could be made durable.
        let served_count = written.count()?;
        note(&format!("{served_count} files were made durable without etcd, until the leases had ended"));
        expect(served_count > 0, "the owner serves until its leases end")?;
        let log = pair.first.log();
        expect(log.contains("does not answer"), &format!("it says whom it does not hear: {log}"))?;
        expect(!pair.second.log().contains("fence"), "nobody is fenced while nothing is known")?;
        expect_held(&pair)?;
        etcd.start_all()?;
        wait_until(PATIENCE, "the owner goes on", || {
            Ok(pair.first.log().contains("still owns its targets"))
        })?;
        written.end()?;
        fs::write(pair.cluster.mount.join("after"), "there")?;
        Ok(())
    })?;
    pair.expect_standby(&[1, 1], SEVERAL_ATTEMPTS)?;
    pair.end()
}

/// Who asks is told what is wrong, and not that the process has to be killed.
fn expect_held(pair: &Pair) -> Result<()> {
    wait_for(&pair.cluster, &pair.first, |targets| all(targets, "held"))?;
    let text = ask(&pair.cluster, &pair.first.run, &["status"])?.output;
    expect(
        text.contains("etcd at") && !text.contains("kill"),
        &format!("status says whom the targets wait for: {text}"),
    )
}

/// A server is told to end while etcd does not answer, as where that is shut down first. What it must not write does not keep it.
fn ended_without_etcd(context: &Context) -> Result<()> {
    let (mut etcd, pair) = started(context, KILL)?;
    pair.undisturbed(context, || {
        etcd.kill(MEMBER_COUNT)?;
        let written = Synced::begin(&pair)?;
        wait_silenced(&pair)?;
        pair.first.signal(libc::SIGTERM)?;
        let stat = format!("/proc/{}/stat", pair.first.pid());
        wait_until(PATIENCE, "it ends", || {
            Ok(fs::read_to_string(&stat).unwrap_or_default().contains(") Z "))
        })?;
        etcd.start_all()?;
        pair.wait_second_serves()?;
        written.end()
    })?;
    pair.end()
}

/// All members take connections, and none answers. When they go on, the leases may have ended on their clocks: then the other server fences
/// the owner, and takes over. Either way somebody serves, and no call has failed.
fn etcd_hangs(context: &Context) -> Result<()> {
    let (etcd, pair) = started(context, KILL)?;
    pair.undisturbed(context, || {
        etcd.signal(MEMBER_COUNT, libc::SIGSTOP)?;
        wait_silenced(&pair)?;
        expect(!pair.second.log().contains("fence"), "nobody is fenced while nothing is known")?;
        etcd.signal(MEMBER_COUNT, libc::SIGCONT)?;
        wait_until(PATIENCE, "one of them goes on", || {
            let is_first = pair.first.log().contains("still owns its targets");
            Ok(is_first || all(&targets(&pair.cluster, &pair.second)?, "active").is_some())
        })?;
        Ok(fs::write(pair.cluster.mount.join("after"), "there")?)
    })?;
    pair.end()
}

fn etcd_down_at_start(context: &Context) -> Result<()> {
    let mut etcd = Etcd::new(context)?;
    let url = etcd.url();
    let words = ["--coordinator", &url, "--fence-cmd", KILL];
    let pair = Pair::start_with(context, &words, |cluster, first| {
        wait_for(cluster, first, |targets| {
            let says = |target: &Value| {
                let word =
                    |name: &str| target.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                word("state") == "standby" && word("alert").contains("does not answer")
            };
            (targets.len() == TARGETS.len() && targets.iter().all(says)).then_some(())
        })?;
        expect(first.log().contains("it is asked until it answers"), &format!("the log: {}", first.log()))?;
        expect(!first.log().contains("serving"), "nothing is served before somebody has said whose it is")?;
        etcd.start_all()?;
        wait_served(cluster, first)?;
        let left = targets(cluster, first)?;
        expect(left.iter().all(|target| target.get("alert").is_none_or(Value::is_null)), "no alert is left")
    })?;
    pair.undisturbed(context, || Ok(()))?;
    pair.end()
}

/// Who ends in order need not be fenced.
fn owner_leaves(context: &Context) -> Result<()> {
    let (_etcd, pair) = started(context, "exit 3")?;
    pair.undisturbed(context, || {
        pair.first.signal(libc::SIGTERM)?;
        pair.wait_second_serves()
    })?;
    expect(!pair.second.log().contains("fence"), "nobody was fenced")?;
    pair.end()
}
