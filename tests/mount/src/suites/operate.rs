//! What operators look with: `sheen health` and the benches that compare. Times are not looked at, only what is counted and said.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

mod benches;
mod leaving;
mod waiting;

use super::split_cluster;
use crate::agent::Agent;
use crate::case::{Bed, Case, Context, Suite, expect, expect_eq, names, wait_until};
use crate::cluster::{COMMAND_LIMIT, Cluster};
use crate::{sweep, sys};

/// The suite.
pub static SUITE: Suite = Suite { name: "operate", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "health_has_three_colours", seconds: 120, run: health },
    Case { name: "remote_directories_cause_no_sync", seconds: 120, run: dne },
    Case { name: "benches_run_on_floors", seconds: 180, run: benches::on_floors },
    Case { name: "a_listing_by_a_new_mount_is_measured", seconds: 120, run: benches::new_mount },
    Case { name: "two_configurations_are_compared", seconds: 240, run: ab },
    Case { name: "a_comparison_that_is_stopped_leaves_nothing", seconds: 180, run: stopped },
    Case { name: "down_with_force_ends_what_is_lost_too", seconds: 240, run: down_with_force },
    Case { name: "a_mount_that_stands_still_keeps_its_place", seconds: 180, run: mount_stands_still },
    Case { name: "a_server_that_stands_still_is_not_left_behind", seconds: 300, run: server_stands_still },
    Case { name: "a_server_without_its_mgs_says_so_and_ends", seconds: 120, run: waiting::without_its_mgs },
    Case { name: "a_server_that_was_killed_is_missed", seconds: 120, run: waiting::killed_is_missed },
    Case { name: "an_mdt_that_left_in_order_is_not_waited_for", seconds: 240, run: leaving::left_in_order },
    Case { name: "what_takes_long_says_so_to_terminals_only", seconds: 120, run: progress },
];

const LIMIT: Duration = Duration::from_secs(60);
/// Well above what it takes with dead targets, and well below what a human would call hanging.
const HEALTH_LIMIT: Duration = Duration::from_secs(30);

/// The report about a path, which must come with this exit status.
fn health_of(cluster: &Cluster, path: &Path, status: i32) -> Result<Value> {
    let path = path.to_string_lossy();
    let said = cluster.try_sheen(&["health", &path, "--json"], HEALTH_LIMIT)?;
    expect_eq(said.end.status_code(), Some(status), &format!("sheen health {path}: {}", said.all()))?;
    serde_json::from_str(&said.output).with_context(|| format!("it says {}", said.output))
}

/// The checks that are of this colour.
fn of_level(report: &Value, level: &str) -> Vec<String> {
    let checks = report["checks"].as_array().cloned().unwrap_or_default();
    let is_wanted = |check: &&Value| check["level"] == level;
    let text = |check: &Value| check["subject"].as_str().unwrap_or_default().to_owned();
    checks.iter().filter(is_wanted).map(text).collect()
}

fn health(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let report = health_of(&cluster, &cluster.mount, 0)?;
    expect_eq(report["level"].as_str(), Some("green"), "a new cluster")?;
    let green = ["mount", "options", "version", "MGS", "MDT0000", "MDT0001", "OST0000", "OST0001", "space"];
    expect_eq(of_level(&report, "green"), green, "what was looked at")?;
    for target in report["targets"].as_array().context("targets")? {
        expect(target["version"].as_str().is_some_and(|version| !version.is_empty()), &format!("{target}"))?;
        for step in ["answer", "lock", "read"] {
            expect(target[step]["took_us"].is_u64(), &format!("{step}: {target}"))?;
        }
    }
    expect_eq(names(&cluster.mount)?, Vec::<String>::new(), "what it leaves behind")?;
    let read_only = cluster.mount_with("readonly", "ro")?;
    let said = cluster.sheen(&["health", &read_only.to_string_lossy()])?;
    expect(said.lines().all(|line| line.starts_with("green ")), &said)?;
    expect(said.contains("ro,"), &said)?;

    cluster.sheen(&["lctl", "set_param", "osc.*OST0001*.active=0"])?;
    let report = health_of(&cluster, &cluster.mount, 1)?;
    expect_eq(of_level(&report, "yellow"), ["OST0001"], "an OST that is switched off")?;
    cluster.sheen(&["lctl", "set_param", "osc.*OST0001*.active=1"])?;

    // Stopped, not ended: its connections stay, and nobody answers.
    let targets = cluster.targets()?;
    let pid = |name: &str| targets.iter().find(|(known, _)| known == name).map(|(_, pid)| *pid);
    let ost = pid("OST0000").context("OST0000 runs")?;
    sys::kill(ost, libc::SIGSTOP)?;
    let report = health_of(&cluster, &cluster.mount, 2);
    let told = mdts_tell(&cluster, "DISCONN");
    sys::kill(ost, libc::SIGCONT)?;
    expect_eq(of_level(&report?, "red"), ["OST0000"], "an OST that is stopped")?;
    told?;
    mdts_tell(&cluster, "FULL")?;
    // The process of the mount: who looks is told which one it is.
    let mounts = cluster.mounts()?;
    let at_mount = |(path, _): &&(String, i32)| Path::new(path) == cluster.mount;
    let (_, mounting) = mounts.iter().find(at_mount).context("the mount has a process")?;
    sys::kill(*mounting, libc::SIGSTOP)?;
    let said = cluster.try_sheen(&["health", &cluster.mount.to_string_lossy()], HEALTH_LIMIT);
    sys::kill(*mounting, libc::SIGCONT)?;
    let said = said?;
    expect(said.errors.contains(&format!("process {mounting} is stopped")), &said.all())?;
    let words = format!("by process {mounting}, which is stopped; wake it: kill -CONT {mounting}");
    expect(said.output.contains(&words), &said.all())?;
    expect_eq(said.end.status_code(), Some(2), &said.all())?;
    for name in ["MDT0000", "OST0001"] {
        sys::kill(pid(name).context("it runs")?, libc::SIGKILL)?;
    }
    let report = health_of(&cluster, &cluster.mount, 2)?;
    expect_eq(of_level(&report, "red"), ["MDT0000", "OST0001"], "targets that are gone")?;
    cluster.up()?;

    let report = health_of(&cluster, &context.work, 2)?;
    expect_eq(of_level(&report, "red"), ["mount"], "what is no mount")?;
    let said = cluster.try_sheen(&["health"], HEALTH_LIMIT)?;
    expect_eq(said.end.status_code(), Some(3), &said.all())
}

/// Waits until both MDTs tell this state of their sessions with OST0000.
fn mdts_tell(cluster: &Cluster, word: &str) -> Result<()> {
    wait_until(HEALTH_LIMIT, "the MDTs tell of an OST", || {
        let said = cluster.sheen(&["lctl", "get_param", "-n", "osp.*OST0000-osc-MDT*.state"])?;
        Ok(said.matches(&format!("current_state: {word}")).count() == 2)
    })
}

/// Longer than servers that are silent are waited for at the end of a cluster.
const DOWN_LIMIT: Duration = Duration::from_secs(150);

/// Servers of bytes that a mount still keeps are dead: `down --force` says what is lost and ends all that is left.
fn down_with_force(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let path = cluster.mount.join("file");
    // It stays open there: a close would wait for the OSTs, also of the copy that a command of ours gets and closes.
    let mut writer = Agent::new()?;
    writer.open("file", &path, libc::O_WRONLY | libc::O_CREAT)?;
    let write =
        |letter: &str| json!({"op": "write", "key": "file", "bytes": letter.repeat(4096), "offset": 0});
    wait_until(HEALTH_LIMIT, "writes are kept back", || {
        expect_eq(writer.call(&write("b"))?, Ok(Value::Null), "a write")?;
        let kept = cluster.sheen(&["lctl", "get_param", "-n", "osc.*.cur_dirty_bytes"])?;
        Ok(kept.lines().any(|line| line == "4096"))
    })?;
    expect_eq(writer.call(&json!({"op": "sync", "key": "file"}))?, Ok(Value::Null), "fsync")?;
    let osts: Vec<i32> =
        cluster.targets()?.iter().filter(|(name, _)| name.starts_with("OST")).map(|(_, pid)| *pid).collect();
    for pid in &osts {
        sys::kill(*pid, libc::SIGSTOP)?;
    }
    let written = writer.call(&write("c"));
    for pid in &osts {
        sys::kill(*pid, libc::SIGKILL)?;
    }
    expect_eq(written?, Ok(Value::Null), "a write that nobody but the mount gets")?;
    let data = cluster.data.to_string_lossy().into_owned();
    let said = cluster.try_sheen(&["down", "--force", "--dir", &data], DOWN_LIMIT)?;
    expect(said.is_success(), &format!("down --force: {} {}", said.end.describe(), said.all()))?;
    expect(said.errors.contains("this is lost: ") && said.errors.contains("4096 bytes"), &said.all())?;
    expect(sweep::mounts_under(&cluster.mount).is_empty(), "it is unmounted")?;
    expect_eq(control_sockets(&cluster)?, Vec::<String>::new(), "processes that are left")?;
    drop(writer);
    cluster.up()?;
    expect_eq(fs::read(&path)?, vec![b'b'; 4096], "what had been synced")?;
    cluster.down().map(drop)
}

/// Neither `up` nor `down` takes a mount whose process says nothing for a dead one: what was written there is nowhere else.
fn mount_stands_still(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let path = cluster.mount.join("file");
    let mut writer = Agent::new()?;
    writer.open("file", &path, libc::O_WRONLY | libc::O_CREAT)?;
    let write = json!({"op": "write", "key": "file", "bytes": "w".repeat(4096), "offset": 0});
    expect_eq(writer.call(&write)?, Ok(Value::Null), "a write that is not synced")?;
    let mounts = cluster.mounts()?;
    let pid = mounts.iter().find(|(path, _)| *path == cluster.mount.to_string_lossy()).map(|(_, pid)| *pid);
    let pid = pid.context("no process of the mount")?;
    let data = cluster.data.to_string_lossy().into_owned();
    sys::kill(pid, libc::SIGSTOP)?;
    let said = ["up", "down"].map(|command| cluster.try_sheen(&[command, "--dir", &data], DOWN_LIMIT));
    sys::kill(pid, libc::SIGCONT)?;
    for said in said {
        let said = said?;
        expect(!said.is_success(), &format!("the mount is not given up: {}", said.all()))?;
        let words = format!("lives and says nothing: let it go on (kill -CONT {pid})");
        expect(said.errors.contains(&words), &said.all())?;
    }
    drop(writer);
    expect_eq(fs::read(&path)?, vec![b'w'; 4096], "what was written before")?;
    cluster.up()?;
    expect_eq(cluster.mounts()?, mounts, "nothing was started")?;
    cluster.down().map(drop)
}

/// `down` calls no cluster stopped of which a server lives and says nothing: that one is named, and killed with `--force`.
fn server_stands_still(context: &Context) -> Result<()> {
    let mut cluster = split_cluster(context)?;
    let targets = cluster.targets()?;
    let pid = |name: &str| targets.iter().find(|(known, _)| known == name).map(|(_, pid)| *pid);
    let (ost, mdt) = (pid("OST0000").context("OST0000")?, pid("MDT0001").context("MDT0001")?);
    let left = || targets.iter().filter(|(_, pid)| !sweep::has_ended(*pid)).count();
    let data = cluster.data.to_string_lossy().into_owned();
    // Who asks at another place hears nothing of servers that are well.
    let elsewhere = context.work.join("elsewhere").to_string_lossy().into_owned();
    cluster.set_environment("SHEEN_RUN", &elsewhere);
    let said = cluster.try_sheen(&["down", "--force", "--dir", &data], DOWN_LIMIT)?;
    expect(!said.is_success(), &format!("servers that answer elsewhere: {}", said.all()))?;
    let words = format!("has its control socket in {}, and nothing was ended", cluster.run_dir().display());
    expect(said.errors.contains(&words), &said.all())?;
    let right = cluster.run_dir().to_string_lossy().into_owned();
    cluster.set_environment("SHEEN_RUN", &right);
    expect_eq(left(), targets.len(), "no server was stopped")?;
    expect_eq(cluster.mounts()?.len(), 1, "nor the mount")?;
    sys::kill(ost, libc::SIGSTOP)?;
    let said = cluster.try_sheen(&["down", "--dir", &data], DOWN_LIMIT)?;
    expect(!said.is_success(), &format!("a server is left: {}", said.all()))?;
    let words = format!("process {ost}, a server of this cluster, is stopped, and no server was ended");
    expect(said.errors.contains(&words), &said.all())?;
    expect_eq(left(), targets.len(), "no server was stopped")?;
    expect_eq(cluster.mounts()?.len(), 1, "nor the mount")?;
    // One more that nobody can ask to end: it has lost its socket.
    fs::remove_file(cluster.run_dir().join(format!("{mdt}.sock")))?;
    let said = cluster.try_sheen(&["down", "--force", "--dir", &data], DOWN_LIMIT)?;
    expect(said.is_success(), &format!("down --force: {} {}", said.end.describe(), said.all()))?;
    for pid in [ost, mdt] {
        let words = format!("process {pid}, a server of this cluster, lives and says nothing: it is killed");
        expect(said.errors.contains(&words), &said.all())?;
    }
    expect_eq(left(), 0, "no process is left")?;
    expect_eq(control_sockets(&cluster)?, Vec::<String>::new(), "sockets that are left")?;
    cluster.up()?;
    cluster.down().map(drop)
}

fn control_sockets(cluster: &Cluster) -> Result<Vec<String>> {
    Ok(names(&cluster.run_dir())?.into_iter().filter(|name| name.ends_with(".sock")).collect())
}

/// `sheen bench dne`: a directory on another MDT makes no device sync, one with `enable_dne_remote_sync` does.
fn dne(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let mount = cluster.mount.to_string_lossy();
    let arguments = ["bench", "dne", &mount, "--procs", "2", "--files", "20", "-n", "1", "--json"];
    // The first FIDs that one MDT gives to another must be durable; they last for a million directories.
    for (home, other) in [(0, 1), (1, 0)] {
        let top = cluster.mount.join(format!("on{home}"));
        context.mkdir_on(home, &top)?;
        context.mkdir_on(other, &top.join("below"))?;
        fs::remove_dir_all(&top)?;
    }
    let text = cluster.sheen(&arguments)?;
    let report: Value = serde_json::from_str(&text).with_context(|| format!("it says {text}"))?;
    let compared = report["compared"].as_array().context("compared")?;
    let of = |name: &str| compared.iter().find(|each| each["operation"] == name).context("an operation");
    for (name, is_awaited) in [("local", false), ("remote", false), ("remote, sync", true)] {
        let each = of(name)?;
        expect_eq(each["operation_count"].as_u64(), Some(40), name)?;
        let awaited = each["awaited_sync_count"].as_u64().context("a count")?;
        expect_eq(awaited > 0, is_awaited, &format!("somebody waited for a sync: {each}"))?;
        let figure =
            report["figures"].as_array().and_then(|all| all.iter().find(|it| it["operation"] == name));
        let rpcs = figure.and_then(|figure| figure["cost"]["rpcs"]["median"].as_f64()).context("RPCs")?;
        expect((1.0..1.5).contains(&rpcs), &format!("{name}: {rpcs} requests each"))?;
    }
    expect_eq(names(&cluster.mount)?, Vec::<String>::new(), "what it leaves behind")?;
    let value = cluster.sheen(&["lctl", "get_param", "-n", "mdt.*MDT0000.enable_dne_remote_sync"])?;
    expect_eq(value.trim(), "0", "the switch afterwards")
}

/// `sheen bench ab`, tiny: what it says, what it refuses, and that it leaves nothing behind.
fn ab(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let source = cluster.source()?;
    let file = |name: &str| context.work.join(name).to_string_lossy().into_owned();
    let (stored, plot) = (file("run.json"), file("plot.svg"));
    let transport = format!("transport={}", context.options.transport.word());
    let with = |config: &str| format!("{transport} {config}");
    let (a, b) = (with(""), with("noatime osc.*.max_dirty_mb=16"));
    let usual =
        ["bench", "ab", &source, "--workload", "md", "--mounts", "2", "--procs", "2", "--files", "20"];
    let said = |more: &[&str]| cluster.sheen(&[&usual, more].concat());
    let text = said(&["-n", "5", "--a", &a, "--b", &b, "--plot", &plot, "--json"])?;
    let report: Value = serde_json::from_str(&text).with_context(|| format!("it says {text}"))?;
    let phases = report["phases"].as_array().context("phases")?;
    expect(phases.len() >= 8, &text)?;
    for phase in phases {
        expect_eq(phase["a"]["n"].as_u64(), Some(5), "rounds of A")?;
        expect_eq(phase["b"]["n"].as_u64(), Some(5), "rounds of B")?;
        let percent = |name: &str| phase["difference"][name].as_f64().context("a number");
        let (low, high) = (percent("low_percent")?, percent("high_percent")?);
        expect(low <= high, &format!("{phase}"))?;
        expect_eq(
            phase["difference"]["is_real"].as_bool(),
            Some(low > 0.0 || high < 0.0),
            "whether it is real",
        )?;
        for side in ["a_cost", "b_cost"] {
            let cost = &phase[side];
            expect(cost["cpu_seconds"]["median"].as_f64() > Some(0.0), &format!("CPU time of {phase}"))?;
            expect_eq(cost["has_servers"].as_bool(), Some(true), "servers are here, and counted")?;
            expect_eq(cost["rpcs_per_operation"]["n"].as_u64(), Some(5), "rounds with requests")?;
        }
        // Both mounts are counted: with one of two it would be half of one.
        if phase["operation"] == "mkdir" {
            let rpcs = phase["a_cost"]["rpcs_per_operation"]["median"].as_f64().context("requests")?;
            expect((1.0..1.9).contains(&rpcs), &format!("{rpcs} requests for a directory"))?;
        }
    }
    expect_eq(crate::case::read(Path::new(&plot))?.starts_with(b"<svg"), true, "a picture")?;
    crate::case::write(Path::new(&stored), text.as_bytes())?;
    let text = said(&["-n", "5", "--a", &a, "--baseline", &stored, "--only", "stat,open"])?;
    expect(text.contains("baseline: ") && text.lines().count() == 12, &text)?;
    // A run of a machine that was a thousand times faster, and one of a machine that was as much slower.
    for (factor, status) in [(1000.0, 1), (0.001, 0)] {
        let mut before = report.clone();
        for phase in before["phases"].as_array_mut().context("phases")? {
            for sample in phase["a"]["samples"].as_array_mut().context("samples")? {
                *sample = (sample.as_f64().context("a rate")? * factor).into();
            }
        }
        let other = file("other.json");
        crate::case::write(Path::new(&other), before.to_string().as_bytes())?;
        let gate = ["-n", "5", "--a", &a, "--baseline", &other, "--only", "stat", "--gate", "10"];
        let said = cluster.try_sheen(&[&usual, &gate[..]].concat(), COMMAND_LIMIT)?;
        expect_eq(said.end.status_code(), Some(status), &said.all())?;
        expect_eq(said.errors.contains("slower by more than 10 %"), status == 1, &said.all())?;
        expect(said.output.contains("95 % interval"), "the table is printed all the same")?;
    }
    listed_by_new_clients(&cluster, &source, &transport)?;
    let refused = |more: &[&str], words: &str| -> Result<()> {
        let said = cluster.try_sheen(&[&usual, more].concat(), HEALTH_LIMIT)?;
        expect_eq(said.end.status_code(), Some(1), &said.all())?;
        expect(said.errors.contains(words) && said.errors.lines().count() == 1, &said.all())
    };
    refused(&["-n", "4", "--a", "", "--b", ""], "give -n 5 or more")?;
    refused(&["-n", "5", "--a", "", "--b", "noatme"], "did you mean 'noatime'?")?;
    refused(&["-n", "5", "--a", &a, "--b", &a, "--plot", "/nonexistent/x.svg"], "/nonexistent/x.svg")?;
    let nowhere = ["bench", "ab", "127.0.0.1:1@tcp:/x", "--workload", "md", "--a", &a, "--b", &a];
    let said = cluster.try_sheen(&nowhere, COMMAND_LIMIT)?;
    expect(!said.is_success() && said.errors.lines().count() == 1, &said.all())?;
    expect_eq(names(&cluster.mount)?, Vec::<String>::new(), "what it leaves behind")?;
    expect_eq(cluster.mounts()?.len(), 1, "mounts that are left")
}

/// What is listed cold was made through another mount: a new client asks for parts of the listing, and for nothing of single files that
/// it would have known.
fn listed_by_new_clients(cluster: &Cluster, source: &str, config: &str) -> Result<()> {
    const FILE_COUNT: f64 = 2000.0;
    const REQUESTS_MAX: f64 = 8.0;
    let files = FILE_COUNT.to_string();
    let mut command =
        vec!["bench", "ab", source, "--workload", "ls", "--only", "ls -l cold", "--files", &files];
    command.extend(["-n", "5", "--a", config, "--b", config, "--json"]);
    let text = cluster.sheen(&command)?;
    let report: Value = serde_json::from_str(&text).with_context(|| format!("it says {text}"))?;
    for side in ["a_cost", "b_cost"] {
        let samples = report["phases"][0][side]["rpcs_per_operation"]["samples"].as_array();
        let samples = samples.context("requests")?.iter().filter_map(Value::as_f64);
        let counts: Vec<f64> = samples.map(|each| (each * FILE_COUNT).round()).collect();
        expect_eq(counts.len(), 5, "rounds")?;
        expect(
            counts.iter().all(|count| (1.0..=REQUESTS_MAX).contains(count)),
            &format!("requests for each listing: {counts:?}"),
        )?;
    }
    Ok(())
}

/// Whoever stops it in a round gets the parameters of servers back, and no mount stays: by Ctrl-C, by kill(1), and when the terminal goes.
fn stopped(context: &Context) -> Result<()> {
    const PARAM: &str = "osd-local.*OST*.metadata_cache_mb";
    let cluster = split_cluster(context)?;
    let source = cluster.source()?;
    let values = || cluster.sheen(&["lctl", "get_param", PARAM]);
    let before = values()?;
    let config = format!("transport={} {PARAM}=77", context.options.transport.word());
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut command = cluster.command();
        // Far more than it comes to.
        command.args(["bench", "ab", &source, "--workload", "io", "--mib", "4096", "-n", "100"]);
        let mut bench = command.args(["--a", &config, "--b", &config]).stderr(Stdio::piped()).spawn()?;
        let begun = wait_until(LIMIT, "a round has begun", || {
            Ok(values()? != before
                && std::fs::read_dir(std::env::temp_dir())?.flatten().any(|entry| {
                    let home = entry.path();
                    let name = format!("sheen-bench-{}-", bench.id());
                    entry.file_name().to_string_lossy().starts_with(&name)
                        && std::fs::read_dir(home.join("0")).is_ok_and(|mut work| work.next().is_some())
                }))
        });
        let pid = i32::try_from(bench.id())?;
        sys::kill(pid, signal)?;
        if begun.is_err() {
            bench.kill()?;
        }
        let said = bench.wait_with_output()?;
        begun?;
        let errors = String::from_utf8_lossy(&said.stderr);
        expect_eq(said.status.code(), Some(1), &format!("signal {signal}: {errors}"))?;
        expect(errors.contains("stopped"), &errors)?;
        expect_eq(values()?, before.clone(), &format!("after signal {signal}: {errors}"))?;
        expect_eq(cluster.mounts()?.len(), 1, "mounts that are left")?;
        expect_eq(names(&cluster.mount)?, Vec::<String>::new(), "what it leaves behind")?;
    }
    cluster.down().map(drop)
}

/// A bench and a check: how many of what, and at which rate, in one line of a terminal; nothing where there is none.
fn progress(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    crate::case::write(&cluster.mount.join("file"), &vec![7; 1 << 20])?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (mount, data) = (text(&cluster.mount), text(&cluster.data));
    let bench = ["bench", "md", &mount, "--files", "40", "--procs", "1", "-n", "1"];
    shows(&cluster, &bench, &["md, ", " of 8 phases, ", "/s, ", " left"])?;
    cluster.down()?;
    shows(
        &cluster,
        &["fsck", &data, "--data"],
        &["reading data: 1 of 1 objects, 1.00 MiB of 1.00 MiB, ", "B/s"],
    )
}

/// One drawing has all the words; standard error that is no terminal stays empty.
fn shows(cluster: &Cluster, arguments: &[&str], words: &[&str]) -> Result<()> {
    let said = cluster.try_sheen(arguments, COMMAND_LIMIT)?;
    expect(said.is_success() && said.errors.is_empty(), &said.all())?;
    let program = cluster.command().get_program().to_string_lossy().into_owned();
    let quoted =
        [&[program.as_str()], arguments].concat().iter().map(|word| format!("'{word}'")).collect::<Vec<_>>();
    // script(1) has a terminal of its own for it.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &quoted.join(" "), "/dev/null"]).stdin(Stdio::null());
    let ours = cluster.command();
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(said) = command.output() else { return crate::case::skip("no script(1)") };
    let shown = String::from_utf8_lossy(&said.stdout);
    expect(said.status.success(), &shown)?;
    let is_whole = |line: &str| words.iter().all(|word| line.contains(word));
    expect(shown.split('\r').any(is_whole), &format!("{words:?} in one line of {shown:?}"))
}
