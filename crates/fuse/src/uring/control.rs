//! The thread beside the rings: FORGET and INTERRUPT, and signals that the kernel forgot.
//!
//! A blocking reader of `/dev/fuse` would be woken for each FORGET, 10 to 17 µs on another CPU, so it is read every 10 ms
//! without blocking. Only while some request has been out for longer than that (it may be a blocked lock whose caller gets a
//! signal) is the descriptor watched.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Rings;
use crate::abi::opcode;
use crate::callers::thread_status;
use crate::decode::Frame;
use crate::device::{hand_over_forget, hand_over_interrupt};
use crate::session::Shared;
use crate::sys;

/// How long FORGETs may lie.
const PERIOD_MS: i32 = 10;
/// After so many rounds without a request the descriptor is watched instead of read.
const IDLE_ROUNDS: u32 = 100;

struct Drained {
    forgets: usize,
    interrupts: usize,
    has_ended: bool,
}

pub(super) fn run(shared: &Shared, rings: &Rings) {
    let device = shared.device.as_raw_fd();
    if let Err(error) = sys::set_nonblocking(&shared.device) {
        tracing::error!(%error, "cannot set /dev/fuse non-blocking; the mount ends");
        rings.end_all();
        return;
    }
    // The kernel refuses reads into less than the greatest WRITE would need.
    let mut buffer = vec![0u8; shared.message_bytes_max];
    let mut idle_rounds = 0;
    let mut taken_before = 0u64;
    loop {
        let drained = drain(shared, rings, &mut buffer);
        if drained.has_ended || rings.has_ended() {
            break;
        }
        let has_old = check_old_requests(shared, rings);
        let taken = rings.mailboxes.iter().map(|mailbox| mailbox.taken_count.load(Ordering::Relaxed)).sum();
        let is_busy = taken != taken_before || drained.forgets + drained.interrupts > 0;
        taken_before = taken;
        idle_rounds = if is_busy { 0 } else { idle_rounds + 1 };
        let result = if has_old {
            if drained.forgets > 0 && drained.interrupts == 0 {
                // A storm of FORGETs must not wake us for each one even while a lock waits.
                std::thread::sleep(Duration::from_millis(1));
            }
            sys::poll([device], PERIOD_MS).map(|_| ())
        } else if idle_rounds > IDLE_ROUNDS {
            sys::poll([device], 1000).map(|_| ())
        } else {
            std::thread::sleep(Duration::from_millis(PERIOD_MS as u64));
            Ok(())
        };
        if let Err(error) = result {
            tracing::error!(%error, "cannot watch /dev/fuse; the mount ends");
            break;
        }
    }
    rings.end_all();
}

/// Reads all that lies on the descriptor.
fn drain(shared: &Shared, rings: &Rings, buffer: &mut [u8]) -> Drained {
    let mut drained = Drained { forgets: 0, interrupts: 0, has_ended: false };
    loop {
        match (&*shared.device).read(buffer) {
            Ok(len) => {
                let Some(frame) = buffer.get(..len).and_then(|m| Frame::split(m, shared.dialect)) else {
                    continue;
                };
                match frame.header.opcode {
                    opcode::INTERRUPT => {
                        drained.interrupts += 1;
                        hand_over_interrupt(shared, &frame, |unique| {
                            rings.entries().iter().any(|entry| entry.is_handed_over(unique))
                        });
                    }
                    opcode::FORGET | opcode::BATCH_FORGET => {
                        drained.forgets += 1;
                        hand_over_forget(shared, &frame);
                    }
                    other => tracing::warn!(opcode = other, "a request came beside the rings"),
                }
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return drained,
                Some(libc::EINTR | libc::ENOENT) => {}
                Some(libc::ENODEV | libc::ECONNABORTED) => {
                    drained.has_ended = true;
                    return drained;
                }
                _ => {
                    tracing::error!(%error, "reading /dev/fuse failed; the mount ends");
                    drained.has_ended = true;
                    return drained;
                }
            },
        }
    }
}

/// True if some request has been out for longer than a period. Each such request gets one look at its caller's signals:
/// the kernel (seen on 6.18) sends no INTERRUPT for a signal that came before the ring took the request.
fn check_old_requests(shared: &Shared, rings: &Rings) -> bool {
    let now_ms = rings.now_ms();
    let mut has_old = false;
    let mut interrupted = Vec::new();
    for entry in rings.entries().iter() {
        let Some((unique, age_ms)) = entry.out(now_ms) else { continue };
        if age_ms <= PERIOD_MS as u64 {
            continue;
        }
        has_old = true;
        if !entry.is_handed_over(unique) {
            continue;
        }
        if entry.take_unchecked_pid().is_some_and(has_pending_signal) {
            interrupted.push(unique);
        }
    }
    for unique in interrupted {
        shared.handler.interrupt(unique);
    }
    has_old
}

/// Whether a thread has a signal that it does not block.
fn has_pending_signal(tid: u32) -> bool {
    thread_status(tid).is_some_and(|text| status_has_pending_signal(&text))
}

pub(super) fn status_has_pending_signal(text: &str) -> bool {
    let mask = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") != 0
}

#[cfg(test)]
mod tests {
    use super::status_has_pending_signal;

    #[test]
    fn a_signal_counts_unless_blocked() {
        let status = |pnd, shd, blk| format!("Name:\tx\nSigPnd:\t{pnd}\nShdPnd:\t{shd}\nSigBlk:\t{blk}\n");
        assert!(!status_has_pending_signal(&status("0000000000000000", "0", "0")));
        assert!(status_has_pending_signal(&status("0", "0000000000000200", "0")));
        assert!(!status_has_pending_signal(&status("200", "0", "200")));
        assert!(!status_has_pending_signal("garbage"));
    }
}
