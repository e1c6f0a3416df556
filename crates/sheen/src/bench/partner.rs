//! A process of this program with which a bench talks by lines, from the bench's end. It dies with it.

use super::bed::sheen;
use super::interrupt;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

pub struct Partner {
    /// What it is, as messages say it.
    what: &'static str,
    child: Child,
    /// `None` when it was told that nothing more comes.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// One that hangs in a mount ends with the mount: it is not waited for.
    is_waited_for: bool,
}

impl Partner {
    /// Starts `sheen WORDS…`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(what: &'static str, words: impl IntoIterator<Item = OsString>) -> Result<Partner> {
        let mut command = sheen(&[])?;
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start a {what}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().with_context(|| format!("the output of a {what} is a pipe"))?;
        Ok(Partner { what, child, input, output: BufReader::new(output), is_waited_for: true })
    }

    /// The same, for one that may hang in a mount.
    #[must_use]
    pub fn not_waited_for(mut self) -> Partner {
        self.is_waited_for = false;
        self
    }

    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        told.and_then(Result::ok).with_context(|| format!("a {} does not listen", self.what))
    }

    /// # Errors
    /// It has ended, or says something else.
    pub fn expect(&mut self, word: &str) -> Result<()> {
        match self.line()?.trim() {
            said if said == word => Ok(()),
            other => bail!("a {} said {other:?} instead of being {word}", self.what),
        }
    }

    /// # Errors
    /// It has ended, or says something else.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a {} said {line:?}", self.what))
    }

    /// # Errors
    /// It has ended, or somebody has asked this command to stop.
    pub fn line(&mut self) -> Result<String> {
        if self.output.buffer().is_empty() {
            interrupt::wait_readable(self.output.get_ref().as_fd())?;
        }
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a {} ended early; see above", self.what);
        }
        Ok(line)
    }

    /// It has nothing more to wait for.
    pub fn dismiss(&mut self) {
        self.input = None;
    }

    /// # Errors
    /// It failed at its end.
    pub fn end(mut self) -> Result<()> {
        self.dismiss();
        let status = self.child.wait()?;
        if !status.success() {
            bail!("a {} failed at its end ({status})", self.what);
        }
        Ok(())
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // After `end` it is gone already; otherwise nobody wants its result.
        let _ = self.child.kill();
        let _ =
            if self.is_waited_for { self.child.wait().map(drop) } else { self.child.try_wait().map(drop) };
    }
}
