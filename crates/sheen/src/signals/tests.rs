use super::*;
use std::process::Command;

const NO_SIGNAL: u64 = 0;

fn status(of_thread: u64, of_process: u64, blocked: u64, ignored: u64, caught: u64, tracer: u32) -> String {
    format!(
        "Name:\tx y\nTracerPid:\t{tracer}\nSigQ:\t1/2\nSigPnd:\t{of_thread:016x}\nShdPnd:\t{of_process:016x}\n\
         SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
    )
}

fn of_masks(thread: u64, process: u64, blocked: u64, ignored: u64, caught: u64) -> Option<Signals> {
    of_status(&status(thread, process, blocked, ignored, caught, 0))
}

#[test]
fn a_signal_is_fatal_when_nothing_catches_ignores_or_blocks_it() {
    let (alarm, quit) = (bit(libc::SIGALRM), bit(libc::SIGQUIT));
    assert_eq!(of_masks(0, 0, 0, 0, 0), Some(Signals::Harmless));
    assert_eq!(of_masks(0, alarm, 0, 0, 0), Some(Signals::Fatal));
    assert_eq!(of_masks(quit, 0, 0, 0, alarm), Some(Signals::Fatal));
    for (blocked, ignored, caught) in [(alarm, 0, 0), (0, alarm, 0), (0, 0, alarm)] {
        assert_eq!(of_masks(alarm, alarm, blocked, ignored, caught), Some(Signals::Harmless));
        assert_eq!(of_masks(alarm | quit, 0, blocked, ignored, caught), Some(Signals::Fatal));
    }
    assert_eq!(of_masks(1 << 63, 0, 0, 0, 0), Some(Signals::Fatal), "signal 64");
}

#[test]
fn what_stops_or_concerns_nobody_is_harmless() {
    for signal in HARMLESS {
        assert_eq!(of_masks(bit(signal), bit(signal), 0, 0, 0), Some(Signals::Harmless), "{signal}");
    }
}

#[test]
fn a_traced_process_dies_of_sigkill_only() {
    let term = status(0, bit(libc::SIGTERM), NO_SIGNAL, NO_SIGNAL, NO_SIGNAL, 77);
    assert_eq!(of_status(&term), Some(Signals::Harmless));
    let kill = status(bit(libc::SIGKILL), 0, NO_SIGNAL, NO_SIGNAL, NO_SIGNAL, 77);
    assert_eq!(of_status(&kill), Some(Signals::Fatal));
}

#[test]
fn what_is_no_status_says_nothing() {
    let whole = status(0, bit(libc::SIGKILL), 0, 0, 0, 0);
    for text in
        ["", "SigPnd:\tx\n", &whole.replace("SigCgt", "SigC"), &whole.replace("ShdPnd:\t0", "ShdPnd:\tg")]
    {
        assert_eq!(of_status(text), None, "{text}");
    }
    assert_eq!(of(0), Signals::Unknown);
}

/// The names and forms of the kernel that runs here.
#[test]
fn the_kernel_says_it_like_that() {
    assert_eq!(of(std::process::id()), Signals::Harmless);
    let mut child = Command::new("sleep").arg("1000").spawn().expect("a child of ours");
    crate::sys::kill(child.id(), libc::SIGSTOP).expect("a child of ours");
    assert_eq!(of(child.id()), Signals::Harmless);
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    assert_eq!(of(child.id()), Signals::Unknown, "nobody has the number");
}
