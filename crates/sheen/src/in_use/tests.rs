#![allow(clippy::unwrap_used)]

use super::*;
use std::process::{Child, Command, Stdio};

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn sleeper(dir: &Path) -> Sleeper {
    let mut command = Command::new("sleep");
    Sleeper(command.arg("1000").current_dir(dir).stdin(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_process_that_works_in_a_directory_uses_its_device() {
    let dir = tempfile::tempdir().unwrap();
    let device = sys::device_of(dir.path()).unwrap();
    let sleeper = sleeper(dir.path());
    let users = users(&device);
    let found = users.iter().find(|user| user.pid == sleeper.0.id()).unwrap();
    assert!(!found.is_elsewhere);
    assert!(!users.iter().any(|user| user.pid == std::process::id()), "not ourselves");
    assert!(super::users("0:1048575").is_empty(), "nobody uses a device that does not exist");
}

#[test]
fn what_is_mounted_here_is_found() {
    let device = sys::device_of(Path::new("/proc")).unwrap();
    let copies = copies(&device);
    assert!(copies.iter().any(|copy| copy.elsewhere.is_none() && copy.path == Path::new("/proc")));
}

#[test]
fn a_mapped_file_is_in_use() {
    let program = fs::read_link("/proc/self/exe").unwrap();
    let device = sys::device_of(&program).unwrap();
    assert!(has_mapped(Path::new("/proc/self"), &device));
    assert!(!has_mapped(Path::new("/proc/self"), "0:1048575"));
}

#[test]
fn one_is_named_and_the_others_counted() {
    assert_eq!(named::<User>(&[]), None);
    let user = |pid, is_elsewhere| User { pid, command: "vi".to_owned(), is_elsewhere };
    assert_eq!(named(&[user(7, false)]).unwrap(), "pid 7 (vi)");
    let three = [user(7, true), user(8, false), user(9, false)];
    assert_eq!(named(&three).unwrap(), "pid 7 (vi) in another mount namespace and 2 more");
}
