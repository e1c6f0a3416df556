//! What commands say, to readers that may be gone.
//!
//! A command is never ended in the middle of its work by a terminal or a pipe that was closed: what it says meanwhile may
//! get lost. What it found or made is said at its end, when nothing is left to be done.

use crate::sys;
use anyhow::{Context, Result};
use std::fmt::Display;
use std::io::{self, Write};

/// One line on standard error, whether anybody reads it or not.
pub fn note(words: impl Display) {
    let _ = writeln!(io::stderr(), "sheen: {words}");
}

/// The last words of a command, on standard output. Without a reader the process ends here by SIGPIPE, as other tools do; so
/// this is not for servers, nor before the work is done.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn outcome(words: &str) -> Result<()> {
    sys::end_without_reader();
    let mut out = io::stdout().lock();
    let written = out.write_all(words.as_bytes()).and_then(|()| out.flush());
    written.context("it is done, but standard output cannot be written")
}
