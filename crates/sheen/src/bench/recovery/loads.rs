//! The loads of a round, from outside.

use super::load::{Progress, Report};
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How loads are started, beside where.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    pub ost_count: u16,
    pub pause_ms: u32,
}

/// The process of one load.
pub struct Load {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    /// # Errors
    /// It cannot be started.
    pub fn start(dir: &Path, index: u32, options: LoadOptions) -> Result<Load> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(["bench", "recovery-load", "--dir"]).arg(dir);
        command.args(["--index", &index.to_string(), "--osts", &options.ost_count.to_string()]);
        command.args(["--pause-ms", &options.pause_ms.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().context("cannot start a load")?;
        let input = child.stdin.take().context("the input of a load is a pipe")?;
        let output = child.stdout.take().context("the output of a load is a pipe")?;
        Ok(Load { child, input, output: BufReader::new(output) })
    }

    /// Waits until its threads have begun.
    ///
    /// # Errors
    /// It has ended.
    pub fn wait_warm(&mut self) -> Result<()> {
        match self.line()?.trim() {
            "warm" => Ok(()),
            other => bail!("a load said {other:?} instead of being warm"),
        }
    }

    /// Asks when it goes on after this time; `progress` has the answer.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask_progress_after(&mut self, time_ns: u64) -> Result<()> {
        self.tell(&format!("after {time_ns}\n"))
    }

    /// `None` if it does not go on.
    ///
    /// # Errors
    /// It has ended.
    pub fn progress(&mut self) -> Result<Option<Progress>> {
        self.answer()
    }

    /// Asks for its report, at its end.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask_stop(&mut self) -> Result<()> {
        self.tell("stop\n")
    }

    /// # Errors
    /// It has ended before it could say.
    pub fn report(&mut self) -> Result<Report> {
        self.answer()
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        self.input.write_all(line.as_bytes()).context("a load does not listen")
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a load said {line:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a load ended early; see above");
        }
        Ok(line)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // One that hangs in a mount ends with the mount: it is not waited for.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}
