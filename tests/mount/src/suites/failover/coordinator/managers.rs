//! Two management servers that keep everything in etcd: one is active, the other one stands by.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{Etcd, MEMBER_COUNT};
use crate::case::{Context, expect, expect_eq, note, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::suites::failover::{PATIENCE, Pair, Server, Waiting, ask, serve, targets, wait_for, wait_served};
use crate::sys;

const PARAM: &str = "llite.*.max_read_ahead_mb";

fn is(targets: &[Value], state: &str) -> Option<String> {
    let [target] = targets else { return None };
    let word = |name: &str| target.get(name).and_then(Value::as_str).map(str::to_owned);
    word("state").filter(|found| found == state).and_then(|_| word("nid"))
}

/// The first management server is active, the second one stands by, and a third process serves the targets.
fn started(context: &Context) -> Result<(Etcd, Pair)> {
    let mut etcd = Etcd::new(context)?;
    etcd.start_all()?;
    let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
    let path = |name: &str| cluster.data.join(name).to_string_lossy().into_owned();
    fs::create_dir_all(cluster.data.join("log"))?;
    let url = etcd.url();
    let begin = |name: &str, dir: &str, state: &str| -> Result<(Server, String)> {
        cluster.sheen(&["mkfs", "--mgs", &path(dir)])?;
        let server = serve(&cluster, name, &["--failover", "--coordinator", &url, &path(dir)])?;
        let nid = wait_for(&cluster, &server, |targets| is(targets, state))?;
        Ok((server, nid))
    };
    let (first, first_nid) = begin("a", "mgs0", "active")?;
    let (second, second_nid) = begin("b", "mgs1", "standby")?;
    for (kind, name) in [("--mdt", "mdt0"), ("--ost", "ost0")] {
        let words = ["mkfs", kind, "--index", "0", "--fsname", "suite", "--mgsnode", &first_nid];
        cluster.sheen(&[&words[..], &["--mgsnode", &second_nid, &path(name)]].concat())?;
    }
    let other = serve(&cluster, "s", &[&path("mdt0"), &path("ost0")])?;
    wait_served(&cluster, &other)?;
    let source = format!("{first_nid}:{second_nid}:/suite");
    let transport = context.options.transport.word();
    let pair = Pair { cluster, source, transport, first, second, other, dirs: &["mdt0", "ost0"] };
    pair.mount(&pair.cluster.mount)?;
    Ok((etcd, pair))
}

impl Pair {
    fn wait_second_manages(&self) -> Result<()> {
        wait_for(&self.cluster, &self.second, |targets| is(targets, "active")).map(drop)
    }

    fn set_for_all(&self, value: &str) -> Result<()> {
        self.cluster.sheen(&["lctl", "set_param", "-P", &format!("{PARAM}={value}")]).map(drop)
    }

    /// A mount that comes now finds everything, the parameter too.
    fn expect_mount(&self, name: &str, value: &str) -> Result<()> {
        let (begun, point) = (Instant::now(), self.cluster.point(name)?);
        self.mount(&point)?;
        note(&format!("{:.1} s for a new mount", begun.elapsed().as_secs_f64()));
        fs::write(point.join(name), "there")?;
        wait_until(PATIENCE, "all mounts have the parameter", || {
            let text = self.cluster.sheen(&["lctl", "get_param", "-n", PARAM])?;
            Ok(text.lines().count() >= 2 && text.lines().all(|line| line.trim() == value))
        })?;
        self.cluster.unmount(&point)
    }
}

/// Who had the session of everybody dies: nobody notices who does not ask it, and what it knew is there.
pub fn killed(context: &Context) -> Result<()> {
    let (_etcd, mut pair) = started(context)?;
    pair.set_for_all("77")?;
    let path = |name: &str| pair.cluster.data.join(name).to_string_lossy().into_owned();
    let waiting = Waiting::start(&pair.cluster, "t", &[&path("mdt0"), &path("ost0")])?;
    let mut restarted = None;
    pair.undisturbed(context, || {
        let begun = Instant::now();
        pair.first.signal(libc::SIGKILL)?;
        pair.wait_second_manages()?;
        note(&format!("{:.1} s from kill -9 of the one to the other", begun.elapsed().as_secs_f64()));
        pair.expect_mount("late", "77")?;
        pair.set_for_all("78")?;
        pair.expect_mount("later", "78")?;
        pair.other.signal(libc::SIGKILL)?;
        let again = restarted.insert(waiting.go()?);
        wait_served(&pair.cluster, again)?;
        fs::write(pair.cluster.mount.join("after"), "there")?;
        let log = again.log();
        expect(
            log.contains("recovery ended target=MDT0000 returned=1 evicted=0"),
            &format!("with all clients that live: {log}"),
        )?;
        expect(!log.contains("lease has ended"), &format!("nobody is given up: {log}"))
    })?;
    expect(!pair.second.log().contains("fence command"), "nobody is fenced")?;
    let Some(restarted) = restarted else { bail!("the targets were not started again") };
    drop(std::mem::replace(&mut pair.other, restarted));
    pair.end()
}

/// One that stands still is replaced; when it goes on it changes nothing, and ends.
pub fn stopped(context: &Context) -> Result<()> {
    let (_etcd, pair) = started(context)?;
    pair.set_for_all("77")?;
    pair.undisturbed(context, || {
        pair.first.signal(libc::SIGSTOP)?;
        pair.wait_second_manages()?;
        pair.expect_mount("late", "77")?;
        pair.set_for_all("78")?;
        pair.first.signal(libc::SIGCONT)?;
        let stat = format!("/proc/{}/stat", pair.first.pid());
        wait_until(PATIENCE, "the one before ends by itself", || {
            Ok(fs::read_to_string(&stat).unwrap_or_default().contains(") Z "))
        })?;
        let log = pair.first.log();
        expect(log.contains("at once"), &format!("it says why: {log}"))?;
        pair.expect_mount("later", "78")
    })?;
    pair.end()
}

/// A mount dies, then the management server that has noticed it. The next one knows it as soon as it is active, and that mount is given
/// up, and nobody else.
pub fn knows_the_dead(context: &Context) -> Result<()> {
    let (_etcd, mut pair) = started(context)?;
    let path = |name: &str| pair.cluster.data.join(name).to_string_lossy().into_owned();
    let waiting = Waiting::start(&pair.cluster, "t", &[&path("mdt0"), &path("ost0")])?;
    fs::write(pair.cluster.mount.join("ours"), "there")?;
    let (dying, pid) = pair.cluster.mount_source_elsewhere("dying", &pair.source)?;
    fs::write(dying.join("theirs"), "there")?;
    sys::syncfs(&dying)?;
    let known = |server: &Server| -> Result<String> {
        let said = ask(&pair.cluster, &server.run, &["lctl", "get_param", "-n", "mgs.MGS.num_ended_leases"])?;
        Ok(said.output.trim().to_owned())
    };
    expect_eq(known(&pair.first)?.as_str(), "0", "who is gone before anybody died")?;
    sys::kill(pid, libc::SIGKILL)?;
    wait_until(PATIENCE, "it is known", || Ok(known(&pair.first)? == "1"))?;
    // The row is on its way to etcd for a second at most.
    std::thread::sleep(Duration::from_secs(2));
    pair.first.signal(libc::SIGKILL)?;
    pair.wait_second_manages()?;
    expect_eq(known(&pair.second)?.as_str(), "1", "what the next one knows when it begins")?;
    pair.other.signal(libc::SIGKILL)?;
    let again = waiting.go()?;
    wait_served(&pair.cluster, &again)?;
    fs::write(pair.cluster.mount.join("after"), "there")?;
    // Either in the recovery or before, for what it had locked.
    let (before, log) = (pair.other.log(), again.log());
    let given_up = "its lease has ended; it is not waited for target=MDT0000";
    expect(
        log.contains("recovery ended target=MDT0000 returned=1")
            && (before + &log).matches(given_up).count() == 1,
        &format!("only the dead one is given up: {log}"),
    )?;
    drop(std::mem::replace(&mut pair.other, again));
    pair.end()
}

/// A mount dies together with the management server, so no other one hears of it, and nobody asks about it. The one that takes over knows
/// of its lease, and that it has ended; the one after that knows it as soon as it is active, and a target that is restarted then is told.
pub fn knows_who_died_with_it(context: &Context) -> Result<()> {
    let (etcd, mut pair) = started(context)?;
    let path = |name: &str| pair.cluster.data.join(name).to_string_lossy().into_owned();
    let (url, dir) = (etcd.url(), path("mgs0"));
    let waiting = Waiting::start(&pair.cluster, "t", &[&path("mdt0"), &path("ost0")])?;
    fs::write(pair.cluster.mount.join("ours"), "there")?;
    let (dying, pid) = pair.cluster.mount_source_elsewhere("dying", &pair.source)?;
    fs::write(dying.join("theirs"), "there")?;
    sys::syncfs(&dying)?;
    let count = |server: &Server, name: &str| -> Result<String> {
        let said = ask(&pair.cluster, &server.run, &["lctl", "get_param", "-n", &format!("mgs.MGS.{name}")])?;
        Ok(said.output.trim().to_owned())
    };
    let ended = |server: &Server| count(server, "num_ended_leases");
    wait_until(PATIENCE, "both mounts have a lease", || Ok(count(&pair.first, "num_leases")? == "2"))?;
    // The row is on its way to etcd for two seconds at most.
    std::thread::sleep(Duration::from_secs(4));
    expect_eq(ended(&pair.first)?.as_str(), "0", "who is gone before anybody died")?;
    pair.first.signal(libc::SIGKILL)?;
    sys::kill(pid, libc::SIGKILL)?;
    pair.wait_second_manages()?;
    wait_until(PATIENCE, "the next one knows it by itself", || Ok(ended(&pair.second)? == "1"))?;
    std::thread::sleep(Duration::from_secs(4));
    let address = pair.source.split_once('@').context("a NID")?.0.to_owned();
    let words = ["--listen", &address, "--failover", "--coordinator", &url, &dir];
    let again = serve(&pair.cluster, "a2", &words)?;
    wait_for(&pair.cluster, &again, |targets| is(targets, "standby"))?;
    pair.second.signal(libc::SIGKILL)?;
    pair.other.signal(libc::SIGKILL)?;
    wait_for(&pair.cluster, &again, |targets| is(targets, "active"))?;
    expect_eq(ended(&again)?.as_str(), "1", "what the one after it knows when it begins")?;
    let restarted = waiting.go()?;
    wait_served(&pair.cluster, &restarted)?;
    fs::write(pair.cluster.mount.join("after"), "there")?;
    // Either in the recovery or before, for what it had locked.
    let (before, log) = (pair.other.log(), restarted.log());
    let given_up = "its lease has ended; it is not waited for target=MDT0000";
    expect(
        log.contains("recovery ended target=MDT0000 returned=1")
            && (before + &log).matches(given_up).count() == 1,
        &format!("only the dead one is given up: {log}"),
    )?;
    let status = ["lctl", "get_param", "-n", "mdt.*.recovery_status"];
    let status = ask(&pair.cluster, &restarted.run, &status)?.output;
    note(&status.split_whitespace().collect::<Vec<_>>().join(" "));
    let is_given_up = ["status: COMPLETE", "completed_clients: 1/2", "evicted_clients: 1"]
        .iter()
        .all(|line| status.lines().any(|said| said == *line));
    expect(is_given_up, &format!("it was given up in the recovery: {status}"))?;
    drop(std::mem::replace(&mut pair.other, restarted));
    drop(std::mem::replace(&mut pair.first, again));
    pair.end()
}

/// Without etcd nothing is changed and nobody new comes in; who is there goes on, and so does the same one when etcd is back.
pub fn without_etcd(context: &Context) -> Result<()> {
    let (mut etcd, pair) = started(context)?;
    pair.set_for_all("77")?;
    pair.undisturbed(context, || {
        etcd.kill(MEMBER_COUNT)?;
        wait_until(PATIENCE, "its lease has ended", || {
            Ok(pair.first.log().contains("leases of this process have ended"))
        })?;
        fs::write(pair.cluster.mount.join("between"), "there")?;
        let standby = targets(&pair.cluster, &pair.second)?;
        expect(is(&standby, "standby").is_some(), &format!("nobody takes over: {standby:?}"))?;
        etcd.start_all()?;
        wait_until(PATIENCE, "it goes on", || Ok(pair.first.log().contains("still owns its targets")))?;
        pair.expect_mount("late", "77")
    })?;
    expect(!pair.second.log().contains("takes over"), "the second one has never taken over")?;
    pair.end()
}

/// etcd answers and takes nothing, as when it is full: nobody else could write it either, and that is said.
pub fn refused(context: &Context) -> Result<()> {
    let (etcd, pair) = started(context)?;
    pair.set_for_all("77")?;
    let status =
        |server: &Server| -> Result<String> { Ok(ask(&pair.cluster, &server.run, &["status"])?.output) };
    let alert = "alert: MGS: etcd at ";
    pair.undisturbed(context, || {
        etcd.set_full(true)?;
        let error = pair.set_for_all("78").err().map(|error| format!("{error:#}")).unwrap_or_default();
        expect(
            error.contains("does not answer; it is not asked again"),
            &format!("who changes something: {error}"),
        )?;
        wait_until(PATIENCE, "it is an alert", || Ok(status(&pair.first)?.contains(alert)))?;
        let log = pair.first.log();
        expect_eq(log.matches("answers that it does not do this").count(), 1, "lines of the log")?;
        expect(log.contains("database space exceeded"), &format!("what etcd says: {log}"))?;
        etcd.set_full(false)?;
        wait_until(PATIENCE, "it is none any more", || Ok(!status(&pair.first)?.contains(alert)))?;
        pair.set_for_all("79")?;
        pair.expect_mount("late", "79")
    })?;
    let standby = targets(&pair.cluster, &pair.second)?;
    expect(is(&standby, "standby").is_some(), &format!("nobody has taken over: {standby:?}"))?;
    pair.end()
}
