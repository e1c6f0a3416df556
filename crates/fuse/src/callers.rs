//! What `/proc` says of threads that call.

use std::fs;

/// `status` of a thread, by its number in a request. `None` where it cannot be seen, or is gone: zero is somebody in a pid namespace that ours
/// does not contain, and in the `/proc` of another one a number is somebody else's.
///
/// It holds the thread's name, which is any bytes, and cut in the middle of a character where it is long; so what is no UTF-8 is replaced.
pub fn thread_status(tid: u32) -> Option<String> {
    let is_ours = fs::read_link("/proc/self").is_ok_and(|pid| pid.as_os_str() == &*own_pid());
    if tid == 0 || !is_ours {
        return None;
    }
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    Some(String::from_utf8_lossy(&status).into_owned())
}

fn own_pid() -> std::ffi::OsString {
    std::process::id().to_string().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::sys;

    #[test]
    fn a_thread_is_seen_whatever_its_name_is() {
        let read = || {
            let name = c"x\xc3";
            // SAFETY: the name is NUL-terminated.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }, 0);
            thread_status(sys::thread_id()).unwrap()
        };
        let status = std::thread::spawn(read).join().unwrap();
        assert!(status.starts_with("Name:\tx\u{fffd}\n"), "{status}");
        assert!(status.contains("\nGroups:") && status.contains("\nSigPnd:"), "{status}");
    }

    #[test]
    fn who_cannot_be_seen_has_no_status() {
        assert_eq!(thread_status(0), None);
        assert_eq!(thread_status(u32::MAX), None);
    }
}
