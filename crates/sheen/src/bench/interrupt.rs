//! Who stops a comparison in the middle of it gets back what it has changed: servers keep no parameter of one side, and no mount stays.
//!
//! The signal kills nothing. It makes whatever waits for a worker, or is about to begin something, fail; what was made and set is undone
//! on the way out, as after any other error. Who asks a second time does not want to wait for that either.

use crate::say;
use crate::sys;
use anyhow::{Context, Result, bail};
use std::io::{PipeReader, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// As a shell says it of a program that Ctrl-C has ended.
const EXIT_STATUS: i32 = 130;

/// It ends when somebody has asked.
static ASKED: OnceLock<PipeReader> = OnceLock::new();
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// From now on whoever asks this command to stop is heard here. Must come before any other thread is started.
///
/// # Errors
/// There is no room for a thread or a pipe.
pub fn arm() -> Result<()> {
    let (reader, writer) = pipe().context("a pipe")?;
    if ASKED.set(reader).is_err() {
        return Ok(());
    }
    sys::hold_interrupts();
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        sys::wait_for_interrupt();
        IS_ASKED.store(true, Ordering::Release);
        drop(writer);
        say::note("stopping: parameters are set back, and the mounts of this comparison go; once more ends it at once");
        sys::wait_for_interrupt();
        say::note("ended; look what is left: sheen mounts");
        process::exit(EXIT_STATUS);
    })?;
    Ok(())
}

/// # Errors
/// Somebody has asked this command to stop.
pub fn check() -> Result<()> {
    if IS_ASKED.load(Ordering::Acquire) {
        bail!("it was stopped; nothing is left of it");
    }
    Ok(())
}

/// Waits until this can be read.
///
/// # Errors
/// Somebody has asked this command to stop.
pub fn wait_readable(of: BorrowedFd<'_>) -> Result<()> {
    if let Some(asked) = ASKED.get() {
        sys::wait_readable([of, asked.as_fd()])?;
    }
    check()
}
