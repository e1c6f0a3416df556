//! A cluster started through the binary, exactly as a user would.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::bounded::{self, Said};
use crate::options::Options;
use crate::sweep;

/// How long any one `sheen` command may take before the suite gives up on it.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(180);

static COMMAND_COUNT: AtomicU32 = AtomicU32::new(0);

/// What to start.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub mdt_count: u32,
    pub ost_count: u32,
    /// One process per target and per mount, instead of one for all.
    pub is_split: bool,
}

impl Shape {
    /// What `sheen up` starts by default, in separate processes.
    pub const SPLIT: Shape = Shape { mdt_count: 2, ost_count: 4, is_split: true };
    /// The smallest one, in separate processes.
    pub const SMALL: Shape = Shape { mdt_count: 1, ost_count: 1, is_split: true };
}

/// A cluster under one directory; dropping it kills what is left of it.
pub struct Cluster {
    sheen: PathBuf,
    transport: &'static str,
    is_on_mdt: bool,
    shape: Shape,
    /// `DIR` of `sheen up --dir DIR`.
    pub data: PathBuf,
    /// The mount that `up` makes.
    pub mount: PathBuf,
    home: PathBuf,
    /// Control sockets and mount points: a socket address has 108 bytes at most, so their paths must be short.
    short: tempfile::TempDir,
    tag: String,
    fsname: String,
    environment: BTreeMap<String, String>,
    log_seen_bytes: BTreeMap<PathBuf, usize>,
}

impl Cluster {
    /// Prepares a cluster with its data in `home/data` and its mounts in a directory with a short path; nothing is started.
    pub fn new(options: &Options, home: &Path, shape: Shape) -> Result<Cluster> {
        let home = home.canonicalize().with_context(|| format!("{} is not there", home.display()))?;
        let sheen = options
            .sheen
            .canonicalize()
            .with_context(|| format!("{}: build the binary first", options.sheen.display()))?;
        let short = sweep::short_directory()?;
        let mount = short.path().join("mnt");
        for directory in [&mount, &short.path().join("run")] {
            fs::create_dir_all(directory)?;
        }
        Ok(Cluster {
            sheen,
            transport: options.transport.word(),
            is_on_mdt: options.on_mdt,
            shape,
            data: home.join("data"),
            mount,
            short,
            tag: format!(
                "SHEEN_BED={}-{}",
                std::process::id(),
                COMMAND_COUNT.fetch_add(1, Ordering::Relaxed)
            ),
            home,
            fsname: "suite".to_owned(),
            environment: BTreeMap::new(),
            log_seen_bytes: BTreeMap::new(),
        })
    }

    /// The transport of all mounts, as an option says it.
    pub fn transport(&self) -> &'static str {
        self.transport
    }

    /// Where the control sockets are.
    pub fn run_dir(&self) -> PathBuf {
        self.short.path().join("run")
    }

    /// Sets an environment variable for every command from now on.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.insert(name.to_owned(), value.to_owned());
    }

    /// A `sheen` command of this cluster's surroundings (control sockets in a directory of its own).
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.sheen);
        command.env("SHEEN_RUN", self.short.path().join("run")).envs(&self.environment);
        // The daemons inherit the bed's tag, so that the guard finds them wherever they detach to.
        self.tag(&mut command);
        command
    }

    /// Lets a command that is not ours end with the cluster at the latest.
    pub fn tag(&self, command: &mut Command) {
        if let Some((name, value)) = self.tag.split_once('=') {
            command.env(name, value);
        }
    }

    /// Runs `sheen ARGUMENTS…` for at most `limit`.
    pub fn try_sheen(&self, arguments: &[&str], limit: Duration) -> Result<Said> {
        let tag =
            format!("SHEEN_COMMAND={}-{}", std::process::id(), COMMAND_COUNT.fetch_add(1, Ordering::Relaxed));
        bounded::say(self.command().args(arguments), &tag, limit)
            .with_context(|| format!("sheen {arguments:?}"))
    }

    /// Runs `sheen ARGUMENTS…`, which must succeed.
    pub fn sheen(&self, arguments: &[&str]) -> Result<String> {
        let said = self.try_sheen(arguments, COMMAND_LIMIT)?;
        if !said.is_success() {
            bail!("sheen {}: {}: {}", arguments.join(" "), said.end.describe(), said.all().trim_end());
        }
        Ok(said.output)
    }

    /// `sheen up`: starts, or restarts what died.
    pub fn up(&self) -> Result<String> {
        let (arguments, is_new) = (self.up_arguments(), !self.data.exists());
        let said = self.sheen(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        if self.is_on_mdt && is_new {
            let mount = self.mount.to_string_lossy();
            self.sheen(&["lfs", "setstripe", "-E", "64K", "-L", "mdt", "-E", "-1", &mount])?;
        }
        Ok(said)
    }

    /// The same, for whoever wants to run it himself.
    pub fn up_command(&self) -> Command {
        let mut command = self.command();
        command.args(self.up_arguments());
        command
    }

    /// A `sheen up` that is there already and begins when it is told to, after servers were killed. A command that is only started
    /// then may never begin: exec(2) closes its copies of what this process has open on the mount, a close waits for data
    /// that are kept back, and these for the very server that the command is to start. `spawn` returns before those closes, so
    /// the shell is asked for a line.
    pub fn up_in_waiting(&self) -> Result<UpInWaiting> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo there; exec >/dev/null; read -r _ && exec timeout \"$0\" \"$@\""]);
        command.arg(COMMAND_LIMIT.as_secs().to_string()).arg(&self.sheen).args(self.up_arguments());
        command.env("SHEEN_RUN", self.short.path().join("run")).envs(&self.environment);
        self.tag(&mut command);
        // Errors not through a pipe, which daemons may hold open.
        let errors = self.short.path().join("up.errors");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(fs::File::create(&errors)?);
        let mut waiting = UpInWaiting { shell: command.spawn().context("a shell that waits")?, errors };
        let mut there = String::new();
        waiting.shell.stdout.take().context("no output of the shell")?.read_to_string(&mut there)?;
        anyhow::ensure!(there == "there\n", "the shell that waits says {there:?}");
        Ok(waiting)
    }

    fn up_arguments(&self) -> Vec<String> {
        let (data, mount) = (self.data.to_string_lossy(), self.mount.to_string_lossy());
        let (mdts, osts) = (self.shape.mdt_count.to_string(), self.shape.ost_count.to_string());
        let mut arguments = vec!["up", "--dir", &data, "--mount", &mount, "--mdts", &mdts, "--osts", &osts];
        arguments.extend(["--fsname", &self.fsname, "--transport", self.transport]);
        if self.shape.is_split {
            arguments.push("--split");
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// `sheen down`: stops everything cleanly.
    pub fn down(&self) -> Result<String> {
        self.sheen(&["down", "--dir", &self.data.to_string_lossy()])
    }

    /// The same, for whoever wants to run it himself.
    pub fn down_command(&self) -> Command {
        let mut command = self.command();
        command.arg("down").arg("--dir").arg(&self.data);
        command
    }

    /// `sheen status --json`.
    pub fn status(&self) -> Result<Value> {
        let text = self.sheen(&["status", "--dir", &self.data.to_string_lossy(), "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("status --json is not JSON: {text}"))
    }

    /// The device part of a mount command: `NID:/FSNAME`.
    pub fn source(&self) -> Result<String> {
        let status = self.status()?;
        let text = |name: &str| {
            status
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .with_context(|| format!("no {name} in {status}"))
        };
        Ok(format!("{}:/{}", text("mgs_nid")?, text("fsname")?))
    }

    /// A new directory of this name beside the first mount.
    pub fn point(&self, name: &str) -> Result<PathBuf> {
        let point = self.short.path().join(name);
        fs::create_dir_all(&point)?;
        Ok(point)
    }

    /// Mounts the cluster once more, on a directory of this name beside the first mount.
    pub fn mount_again(&self, name: &str) -> Result<PathBuf> {
        self.mount_with(name, "rw")
    }

    /// The same with options.
    pub fn mount_with(&self, name: &str, options: &str) -> Result<PathBuf> {
        let (point, source) = (self.point(name)?, self.source()?);
        let options = format!("transport={},{options}", self.transport);
        self.sheen(&["mount", &source, &point.to_string_lossy(), "-o", &options])?;
        Ok(point)
    }

    /// A mount as on another machine: servers cannot see whether its process lives. With the process.
    pub fn mount_elsewhere(&self, name: &str) -> Result<(PathBuf, i32)> {
        self.mount_source_elsewhere(name, &self.source()?)
    }

    /// The same, where no `sheen up` says what the source is.
    pub fn mount_source_elsewhere(&self, name: &str, source: &str) -> Result<(PathBuf, i32)> {
        let point = self.point(name)?;
        let options = format!("transport={}", self.transport);
        let run = self.point(&format!("{name}.run"))?;
        let sheen = |arguments: &[&str]| -> Result<String> {
            let mut command = self.command();
            command.env("SHEEN_RUN", &run).args(arguments);
            let said = bounded::say(&mut command, &self.tag, COMMAND_LIMIT)?;
            if !said.is_success() {
                bail!("sheen {arguments:?}: {}: {}", said.end.describe(), said.all().trim_end());
            }
            Ok(said.output)
        };
        sheen(&["mount", source, &point.to_string_lossy(), "-o", &options])?;
        let mounts: Value = serde_json::from_str(&sheen(&["mounts", "--json"])?)?;
        let pid = mounts.get(0).and_then(|mount| mount.get("pid")).and_then(Value::as_i64);
        let pid =
            pid.and_then(|pid| i32::try_from(pid).ok()).with_context(|| format!("no pid in {mounts}"))?;
        Ok((point, pid))
    }

    /// Unmounts as an operator does (through the helper, which flushes).
    pub fn unmount(&self, point: &Path) -> Result<()> {
        let said = self.say(Command::new("umount").arg(point))?;
        if !said.is_success() {
            bail!("umount {}: {}: {}", point.display(), said.end.describe(), said.all().trim_end());
        }
        Ok(())
    }

    /// Runs a command that may call helpers of ours: they find this cluster's control sockets.
    pub fn say(&self, command: &mut Command) -> Result<Said> {
        self.say_within(command, COMMAND_LIMIT)
    }

    /// The same for a time. At its end only this command is killed, not the cluster.
    pub fn say_within(&self, command: &mut Command, limit: Duration) -> Result<Said> {
        command.env("SHEEN_RUN", self.short.path().join("run"));
        self.tag(command);
        let tag =
            format!("SHEEN_COMMAND={}-{}", std::process::id(), COMMAND_COUNT.fetch_add(1, Ordering::Relaxed));
        Ok(bounded::say(command, &tag, limit)?)
    }

    /// Name and process id of every target that runs.
    pub fn targets(&self) -> Result<Vec<(String, i32)>> {
        Ok(named_pids(&self.status()?, "targets", "name"))
    }

    /// Path and process id of every mount that runs.
    pub fn mounts(&self) -> Result<Vec<(String, i32)>> {
        Ok(named_pids(&self.status()?, "mounts", "path"))
    }

    /// WARN and ERROR lines that the logs gained since the last call.
    pub fn new_complaints(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        let Ok(logs) = fs::read_dir(self.data.join("log")) else { return complaints };
        for path in logs.flatten().map(|entry| entry.path()) {
            let bytes = fs::read(&path).unwrap_or_default();
            let seen = self.log_seen_bytes.entry(path.clone()).or_default();
            // A rotated log is shorter than what was read of it.
            let new = bytes.get(*seen..).unwrap_or(&bytes);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            complaints.extend(
                String::from_utf8_lossy(new)
                    .lines()
                    .filter(|line| is_complaint(line))
                    .map(|line| format!("{name}: {line}")),
            );
            *seen = bytes.len();
        }
        complaints
    }

    /// Copies the logs to `to`.
    pub fn keep_logs(&self, to: &Path) {
        let Ok(logs) = fs::read_dir(self.data.join("log")) else { return };
        // Only for whoever reads the failure: a log that cannot be copied is no failure of its own.
        let _ = fs::create_dir_all(to);
        for entry in logs.flatten() {
            let _ = fs::copy(entry.path(), to.join(entry.file_name()));
        }
    }

    /// Kills and unmounts everything of this cluster, without asking it.
    pub fn release(&self) -> Vec<String> {
        let mut found = sweep::release(self.short.path(), &self.tag);
        found.extend(sweep::release(&self.home, &self.tag));
        found
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.release();
    }
}

fn named_pids(status: &Value, list: &str, name: &str) -> Vec<(String, i32)> {
    let entries = status.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| {
            let name = entry.get(name)?.as_str()?.to_owned();
            let pid = i32::try_from(entry.get("pid")?.as_i64()?).ok()?;
            Some((name, pid))
        })
        .collect()
}

/// True for a log line of level WARN or ERROR (the level is among the first words, after the time).
pub fn is_complaint(line: &str) -> bool {
    line.split_whitespace().take(3).any(|word| word == "WARN" || word == "ERROR")
}

/// Ends without having begun when dropped.
pub struct UpInWaiting {
    shell: Child,
    errors: PathBuf,
}

impl UpInWaiting {
    /// # Errors
    /// It failed, or took too long.
    pub fn go(mut self) -> Result<()> {
        if let Some(mut input) = self.shell.stdin.take() {
            input.write_all(b"go\n").context("telling sheen up to begin")?;
        }
        let status = self.shell.wait()?;
        if !status.success() {
            bail!("sheen up: {status}: {}", fs::read_to_string(&self.errors)?.trim_end());
        }
        Ok(())
    }
}

impl Drop for UpInWaiting {
    fn drop(&mut self) {
        // Without its input the shell ends.
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
