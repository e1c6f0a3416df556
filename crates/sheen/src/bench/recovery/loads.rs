//! The loads of a round, from outside.

use super::super::partner::Partner;
use super::load::{Progress, Report};
use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;

/// How loads are started, beside where.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    pub ost_count: u16,
    pub pause_ms: u32,
}

/// The process of one load.
pub struct Load(Partner);

impl Load {
    /// # Errors
    /// It cannot be started.
    pub fn start(dir: &Path, index: u32, options: LoadOptions) -> Result<Load> {
        let mut words: Vec<OsString> = ["bench", "recovery-load", "--dir"].map(OsString::from).to_vec();
        words.push(dir.into());
        let numbers =
            [("--index", index), ("--osts", options.ost_count.into()), ("--pause-ms", options.pause_ms)];
        words.extend(
            numbers.into_iter().flat_map(|(option, value)| [option.into(), value.to_string().into()]),
        );
        Ok(Load(Partner::start("load", words)?.not_waited_for()))
    }

    /// Waits until its threads have begun.
    ///
    /// # Errors
    /// It has ended.
    pub fn wait_warm(&mut self) -> Result<()> {
        self.0.expect("warm")
    }

    /// Asks when it goes on after this time; `progress` has the answer.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask_progress_after(&mut self, time_ns: u64) -> Result<()> {
        self.0.tell(&format!("after {time_ns}"))
    }

    /// `None` if it does not go on.
    ///
    /// # Errors
    /// It has ended.
    pub fn progress(&mut self) -> Result<Option<Progress>> {
        self.0.answer()
    }

    /// Asks for its report, at its end.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask_stop(&mut self) -> Result<()> {
        self.0.tell("stop")
    }

    /// # Errors
    /// It has ended before it could say.
    pub fn report(&mut self) -> Result<Report> {
        self.0.answer()
    }
}
