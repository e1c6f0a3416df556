//! A second process that does what a case tells it: record locks belong to processes, so cases about them need several.
//!
//! The child is this same binary as `mount-suites agent`; it reads one JSON request a line and answers one JSON line, `{"ok": …}`
//! or `{"errno": N}`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::sys::{self, LockKind, LockMode};
use crate::{bounded, renames};

/// How long an answer that must come at once may take.
const ANSWER_WAIT: Duration = Duration::from_secs(100);

/// Between two signals of a timer: some come during each call that waits for a server.
const ALARM_INTERVAL: Duration = Duration::from_millis(20);

/// The case's side of one agent process; dropping it kills the process.
pub struct Agent {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

impl Agent {
    /// Starts an agent.
    pub fn new() -> Result<Agent> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the agent process does not start")?;
        let requests = child.stdin.take().context("the agent has no input")?;
        let output = child.stdout.take().context("the agent has no output")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Agent { child, requests, answers })
    }

    /// The process id, for signals.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// True when the process is gone.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Sends a request without waiting for its answer (a lock that blocks).
    pub fn start(&mut self, request: &Value) -> Result<()> {
        writeln!(self.requests, "{request}").context("the agent is gone")
    }

    /// The answer to the oldest request: `Ok(Err(errno))` if the call failed, `None` if there is no answer within `wait`.
    pub fn answer(&mut self, wait: Duration) -> Result<Option<Result<Value, i32>>> {
        match self.answers.recv_timeout(wait) {
            Ok(line) => {
                let answer: Value = serde_json::from_str(&line)?;
                let errno = answer.get("errno").and_then(Value::as_i64);
                Ok(Some(match errno {
                    Some(errno) => Err(errno as i32),
                    None => Ok(answer.get("ok").cloned().unwrap_or(Value::Null)),
                }))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the agent process ended"),
        }
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: &Value) -> Result<Result<Value, i32>> {
        self.start(request)?;
        self.answer(ANSWER_WAIT)?.with_context(|| format!("no answer in {ANSWER_WAIT:?} to {request}"))
    }

    /// Runs a short command as `bounded::say` does, as a child of the agent. A child of a process that has files of a mount open for writing
    /// closes its copies within exec(2), and waits there for servers that are stopped.
    pub fn say(&mut self, command: &Command, tag: &str, limit: Duration) -> Result<bounded::Said> {
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let words: Vec<String> =
            [command.get_program()].into_iter().chain(command.get_args()).map(text).collect();
        let environment: Vec<[Option<String>; 2]> =
            command.get_envs().map(|(name, value)| [Some(text(name)), value.map(text)]).collect();
        let request = json!({
            "op": "say", "words": words, "environment": environment, "tag": tag, "limit_ms": limit.as_millis() as u64,
        });
        self.start(&request)?;
        let answer = self.answer(limit + ANSWER_WAIT)?.context("the agent does not answer")?;
        let said = answer.map_err(|errno| anyhow::anyhow!("{words:?} does not start: errno {errno}"))?;
        let part = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let status = said.get("wait_status").and_then(Value::as_i64);
        let end = match status {
            Some(status) => bounded::End::Exited(ExitStatus::from_raw(status as i32)),
            None => bounded::End::TimedOut { is_stuck: said.get("is_stuck") == Some(&Value::Bool(true)) },
        };
        Ok(bounded::Said { end, output: part("output"), errors: part("errors") })
    }

    /// Opens `path` under the name `key`.
    pub fn open(&mut self, key: &str, path: &Path, flags: i32) -> Result<()> {
        let opened = self.call(&json!({"op": "open", "key": key, "path": path, "flags": flags}))?;
        opened
            .map(drop)
            .map_err(|errno| anyhow::anyhow!("the agent cannot open {}: errno {errno}", path.display()))
    }

    /// Closes what `key` names.
    pub fn close(&mut self, key: &str) -> Result<()> {
        self.call(&json!({"op": "close", "key": key}))?
            .map(drop)
            .map_err(|errno| anyhow::anyhow!("close: {errno}"))
    }

    /// flock(2); the answer is 0 or the errno.
    pub fn flock(&mut self, key: &str, operation: i32) -> Result<i32> {
        Ok(self.call(&json!({"op": "flock", "key": key, "operation": operation}))?.err().unwrap_or(0))
    }

    /// A record lock; the answer is 0 or the errno.
    pub fn lock(&mut self, request: LockRequest) -> Result<i32> {
        Ok(self.call(&request.json(false))?.err().unwrap_or(0))
    }

    /// A record lock that may wait; take its end with `answer`.
    pub fn start_lock(&mut self, request: LockRequest) -> Result<()> {
        self.start(&request.json(true))
    }
}

/// The agent whose wait is refused with EDEADLK; none may be granted before. (Which wait came last is not for the case to say.)
pub fn refused(agents: &mut [Agent]) -> Result<usize> {
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_WAIT {
        for (index, agent) in agents.iter_mut().enumerate() {
            match agent.answer(Duration::from_millis(10))? {
                Some(Err(libc::EDEADLK)) => return Ok(index),
                Some(other) => bail!("a wait in a circle ended with {other:?}"),
                None => {}
            }
        }
    }
    bail!("a circle of waiting locks is not found")
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Gone already is what we want.
        let _ = self.child.kill();
        // A child in an uninterruptible wait is not waited for: the case's own limit covers the rest.
        let _ = self.child.try_wait();
    }
}

/// One record lock request on the file that `key` names.
#[derive(Clone, Copy)]
pub struct LockRequest<'a> {
    pub key: &'a str,
    pub kind: LockKind,
    pub mode: LockMode,
    pub start: i64,
    pub byte_count: i64,
}

impl LockRequest<'_> {
    fn json(&self, wait: bool) -> Value {
        json!({
            "op": "lock", "key": self.key, "ofd": self.kind == LockKind::Ofd, "start": self.start,
            "byte_count": self.byte_count, "wait": wait,
            "mode": match self.mode { LockMode::Read => "r", LockMode::Write => "w", LockMode::Unlock => "u" },
        })
    }
}

/// The child's side: serves requests from standard input until it ends.
pub fn serve() -> Result<()> {
    sys::catch_alarm()?;
    let mut files = BTreeMap::new();
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = match perform(&mut files, &request) {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({"errno": error.raw_os_error().unwrap_or(-1)}),
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn say(request: &Value) -> io::Result<Value> {
    let read = |name: &str| request.get(name).cloned().unwrap_or_default();
    let words: Vec<String> = serde_json::from_value(read("words"))?;
    let environment: Vec<[Option<String>; 2]> = serde_json::from_value(read("environment"))?;
    let [program, arguments @ ..] = words.as_slice() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut command = Command::new(program);
    command.args(arguments);
    for [name, value] in &environment {
        match (name, value) {
            (Some(name), Some(value)) => drop(command.env(name, value)),
            (Some(name), None) => drop(command.env_remove(name)),
            (None, _) => {}
        }
    }
    let limit = Duration::from_millis(read("limit_ms").as_u64().unwrap_or_default());
    let said = bounded::say(&mut command, read("tag").as_str().unwrap_or_default(), limit)?;
    let (wait_status, is_stuck) = match said.end {
        bounded::End::Exited(status) => (Some(status.into_raw()), false),
        bounded::End::TimedOut { is_stuck } => (None, is_stuck),
    };
    Ok(
        json!({"wait_status": wait_status, "is_stuck": is_stuck, "output": said.output, "errors": said.errors}),
    )
}

fn perform(files: &mut BTreeMap<String, File>, request: &Value) -> io::Result<Value> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| request.get(name).and_then(Value::as_i64).unwrap_or_default();
    let key = text("key").to_owned();
    if text("op") == "open" {
        files.insert(key, sys::open(Path::new(text("path")), number("flags") as i32, 0o644)?);
        return Ok(Value::Null);
    }
    if text("op") == "renames" {
        return move_about(request);
    }
    match text("op") {
        "say" => return say(request),
        "stat" => return fs::metadata(text("path")).map(|_| Value::Null),
        "statfs" => return sys::statfs(Path::new(text("path"))).map(|_| Value::Null),
        "timed" => return under_a_timer(request),
        _ => {}
    }
    let file = files.get(&key).ok_or(io::Error::from_raw_os_error(libc::EBADF))?;
    match text("op") {
        "close" => drop(files.remove(&key)),
        "flock" => sys::flock(file, number("operation") as i32)?,
        "lock" => {
            let kind =
                if request.get("ofd") == Some(&Value::Bool(true)) { LockKind::Ofd } else { LockKind::Posix };
            let mode = match text("mode") {
                "r" => LockMode::Read,
                "w" => LockMode::Write,
                _ => LockMode::Unlock,
            };
            let wait = request.get("wait") == Some(&Value::Bool(true));
            sys::lock(file, kind, mode, number("start"), number("byte_count"), wait)?;
        }
        "sync" => file.sync_all()?,
        "write" => file.write_all_at(text("bytes").as_bytes(), number("offset") as u64)?,
        _ => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    }
    Ok(Value::Null)
}

/// Renames, makes and looks up in a directory until a file says that it is enough, with a timer that goes off all the time.
fn under_a_timer(request: &Value) -> io::Result<Value> {
    let path =
        |name: &str| Path::new(request.get(name).and_then(Value::as_str).unwrap_or_default()).to_owned();
    let (dir, enough) = (path("dir"), path("enough"));
    let names = [dir.join("one"), dir.join("two"), dir.join("made")];
    let [one, two, made] = &names;
    fs::create_dir(one)?;
    sys::start_alarms(ALARM_INTERVAL)?;
    let (mut call_count, mut longest) = (0, Duration::ZERO);
    while !enough.exists() {
        let begun = Instant::now();
        fs::rename(one, two)?;
        fs::metadata(two)?;
        fs::create_dir(made)?;
        fs::rename(two, one)?;
        fs::remove_dir(made)?;
        call_count += 5;
        longest = longest.max(begun.elapsed());
    }
    sys::start_alarms(Duration::ZERO)?;
    Ok(json!({"calls": call_count, "alarms": sys::alarm_count(), "longest_ms": longest.as_millis() as u64}))
}

fn move_about(request: &Value) -> io::Result<Value> {
    let number = |name: &str| request.get(name).and_then(Value::as_u64).unwrap_or_default();
    let root = request.get("root").and_then(Value::as_str).unwrap_or_default();
    let homes = request.get("homes").cloned().unwrap_or_default();
    let homes: Vec<String> = serde_json::from_value(homes)?;
    let lasts = Duration::from_secs(number("seconds"));
    let moves = renames::work(Path::new(root), &homes, number("mover"), number("seed"), lasts);
    let moves = moves.map_err(|failed| {
        eprintln!("{failed}");
        failed.source
    })?;
    Ok(json!({"moved": moves.moved, "refused": moves.refused}))
}
