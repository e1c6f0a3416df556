//! What signals a thread has got that waits for us.
//!
//! `/proc/TID/status` says which are pending and what the process does about each. For one that ends the process without a core
//! file the kernel makes SIGKILL pending in each of its threads, so that one is nearly always the answer.

use client::Signals;

/// What a process does not die of that has made no choice (signal(7)).
const HARMLESS: [libc::c_int; 8] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGURG,
    libc::SIGWINCH,
];

/// `tid` as the kernel names it in a request of FUSE: zero for who lives in a pid namespace that ours does not contain.
pub fn of(tid: u32) -> Signals {
    fuse::thread_status(tid).and_then(|text| of_status(&text)).unwrap_or(Signals::Unknown)
}

/// `None` for what is no status.
fn of_status(text: &str) -> Option<Signals> {
    let value =
        |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
    let mask = |key: &str| u64::from_str_radix(value(key)?, 16).ok();
    let pending = mask("SigPnd")? | mask("ShdPnd")?;
    let survived =
        mask("SigBlk")? | mask("SigIgn")? | mask("SigCgt")? | HARMLESS.map(bit).iter().sum::<u64>();
    // A debugger is asked about every signal but this one.
    let is_traced = value("TracerPid").is_some_and(|pid| pid != "0");
    let is_killed = pending & bit(libc::SIGKILL) != 0;
    let is_fatal = is_killed || !is_traced && pending & !survived != 0;
    Some(if is_fatal { Signals::Fatal } else { Signals::Harmless })
}

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests;
