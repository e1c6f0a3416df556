//! The clocks of the process.

use base::{Now, Time, WallTime};

/// Monotonic time that goes on while the machine sleeps (a lease must end then too), and the calendar.
pub fn now() -> Now {
    Now { time: Time(read(libc::CLOCK_BOOTTIME) as u64), wall: WallTime(read(libc::CLOCK_REALTIME)) }
}

/// Nanoseconds of one clock.
fn read(clock: libc::clockid_t) -> i64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid place for the answer; both clocks exist on every supported kernel.
    let result = unsafe { libc::clock_gettime(clock, &raw mut at) };
    assert_eq!(result, 0, "the kernel has no clock {clock}");
    at.tv_sec * 1_000_000_000 + at.tv_nsec
}

/// Randomness from the kernel: for identities, never for schedules.
pub fn random_u128() -> u128 {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        // SAFETY: the range from `filled` to the end of `bytes` is writable.
        let count =
            unsafe { libc::getrandom(bytes.as_mut_ptr().add(filled).cast(), bytes.len() - filled, 0) };
        if count > 0 {
            filled += count as usize;
        }
    }
    u128::from_le_bytes(bytes)
}
