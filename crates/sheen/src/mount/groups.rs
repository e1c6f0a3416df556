//! The supplementary groups of who calls, which no request names.

use client::Caller;

/// `None` where they cannot be seen.
pub fn of(caller: Caller) -> Option<Vec<u32>> {
    fuse::thread_status(caller.pid).and_then(|status| of_status(&status, caller))
}

/// A thread that calls in somebody else's name (knfsd, ksmbd, io_uring with a personality) has other groups than those that its status shows, as
/// has one of another pid namespace: of user and group they show as well.
fn of_status(status: &str, caller: Caller) -> Option<Vec<u32>> {
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    // Real, effective, saved, and that for file systems.
    let for_files = |key: &str| value(key)?.split_whitespace().nth(3)?.parse::<u32>().ok();
    if for_files("Uid")? != caller.uid || for_files("Gid")? != caller.gid {
        return None;
    }
    value("Groups")?.split_whitespace().map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const STATUS: &str = "Name:\tx\u{fffd}\nUid:\t0\t0\t0\t1000\nGid:\t5\t6\t7\t8\nGroups:\t4 5000 \n";

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid, pid: 7 }
    }

    #[test]
    fn groups_are_those_of_the_caller_or_not_known() {
        assert_eq!(of_status(STATUS, caller(1000, 8)), Some(vec![4, 5000]));
        assert_eq!(of_status(STATUS, caller(0, 8)), None, "a server's own");
        assert_eq!(of_status(STATUS, caller(1000, 5)), None);
        assert_eq!(of_status(&STATUS.replace("4 5000 ", ""), caller(1000, 8)), Some(vec![]));
        assert_eq!(of_status(&STATUS.replace("5000", "x"), caller(1000, 8)), None);
        assert_eq!(of_status("", caller(0, 0)), None);
        assert_eq!(of(Caller { uid: 0, gid: 0, pid: 0 }), None, "somebody in another pid namespace");
    }

    /// The names and forms of the kernel that runs here.
    #[test]
    fn the_kernel_says_it_like_that() {
        let process = std::fs::metadata("/proc/self").expect("there is a /proc");
        let own = Caller { uid: process.uid(), gid: process.gid(), pid: std::process::id() };
        assert!(of(own).is_some());
        assert_eq!(of(Caller { uid: own.uid + 1, ..own }), None);
    }
}
