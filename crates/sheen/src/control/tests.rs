#![allow(clippy::unwrap_used)]

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_line_asks_and_a_line_answers() {
    let (near, far) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || serve(&far, &|ask, _| Tell::error(format!("{ask:?}"))));
    (&near).write_all(b"{\"op\":\"status\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(&near).read_line(&mut line).unwrap();
    assert_eq!(line, "{\"error\":\"Status\"}\n");
    server.join().unwrap().unwrap();
}

/// A long wait is explained line by line before the answer; who asks gets the answer only.
#[test]
fn notes_come_before_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        serve(&stream, &|_, tell| {
            tell(&Tell::note("waiting for the disk"));
            tell(&Tell::note("waiting for the disk"));
            Tell { params: vec![("a".to_owned(), "b".to_owned())], ..Tell::default() }
        })
    });
    let told = ask(&path, &Ask::Stop { leave: Leave::Stop }).unwrap();
    assert_eq!(told.note, None);
    assert_eq!(told.params.len(), 1);
    server.join().unwrap().unwrap();
}

#[test]
fn what_is_no_request_gets_an_error() {
    for garbage in [&b"\n"[..], b"{\"op\":\"explode\"}\n", b"\xff\xff\n", b"[[[[[[[[\n"] {
        let (near, far) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || serve(&far, &|_, _| Tell::default()));
        (&near).write_all(garbage).unwrap();
        let mut line = String::new();
        let _ = BufReader::new(&near).read_line(&mut line);
        assert!(line.is_empty() || line.contains("error"), "{line}");
        let _ = server.join().unwrap();
    }
}

/// A server that hangs is waited for by nobody who asks about a mount.
#[test]
fn a_mount_is_found_beside_a_process_that_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let silent = UnixListener::bind(dir.path().join("1.sock")).unwrap();
    let listener = UnixListener::bind(dir.path().join("2.sock")).unwrap();
    let text = r#"{"source":"h@tcp:/fs","path":"/mnt","fsname":"fs","transport":"dev","mgs_nids":[]}"#;
    let mount: MountStatus = serde_json::from_str(text).unwrap();
    let process = Process { pid: 2, mounts: vec![mount], ..Process::default() };
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        serve(&stream, &|_, _| Tell { process: Some(process.clone()), ..Tell::default() })
    });
    let found = mount_in(dir.path(), &mounted("0:50")).unwrap();
    // It has been asked, and is not answered while this is looked at.
    assert_eq!((found.pid, silent.accept().is_ok()), (2, true));
    server.join().unwrap().unwrap();
}

/// Its client lives on in a copy elsewhere. Who unmounts the path means the mount that came after it.
#[test]
fn a_mount_that_was_detached_is_not_found_at_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("1.sock")).unwrap();
    let text = r#"{"source":"h@tcp:/fs","path":"/mnt","fsname":"fs","transport":"dev","mgs_nids":[]}"#;
    let after: MountStatus = serde_json::from_str(text).unwrap();
    let before = MountStatus { is_detached: true, transport: "uring".to_owned(), ..after.clone() };
    let server = tell_in_turn(listener, vec![vec![before.clone(), after], vec![before]]);
    let found = mount_in(dir.path(), &mounted("0:50")).unwrap();
    assert_eq!((found.transport.as_str(), found.is_detached), ("dev", false));
    assert_eq!(mount_in(dir.path(), &mounted("0:50")), None);
    server.join().unwrap().unwrap();
}

/// A process that says something else of its mounts each time that it is asked.
fn tell_in_turn(listener: UnixListener, told: Vec<Vec<MountStatus>>) -> std::thread::JoinHandle<Result<()>> {
    std::thread::spawn(move || {
        for mounts in told {
            let process = Process { pid: 1, mounts, ..Process::default() };
            let (stream, _) = listener.accept()?;
            serve(&stream, &|_, _| Tell { process: Some(process.clone()), ..Tell::default() })?;
        }
        Ok(())
    })
}

fn mounted(device: &str) -> Mounted {
    let line = format!("40 1 {device} / /mnt rw - fuse.sheen h@tcp:/fs rw,user_id=0");
    mount_table::parse_line(line.as_bytes()).unwrap()
}

/// Who unmounts a path means what he sees there, and not what somebody else sees on the same path in another mount namespace.
#[test]
fn a_mount_of_another_namespace_is_not_found_at_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("1.sock")).unwrap();
    let text = r#"{"source":"h@tcp:/fs","path":"/mnt","fsname":"fs","transport":"dev","mgs_nids":[]}"#;
    let of_older: MountStatus = serde_json::from_str(text).unwrap();
    let on = |device: &str| MountStatus { device: device.to_owned(), ..of_older.clone() };
    let (there, here) = (on("0:49"), on("0:50"));
    let server = tell_in_turn(listener, vec![vec![there.clone(), here], vec![there], vec![of_older]]);
    let found = || mount_in(dir.path(), &mounted("0:50")).map(|mount| mount.device);
    assert_eq!(found().as_deref(), Some("0:50"));
    assert_eq!(found(), None);
    assert_eq!(found().as_deref(), Some(""), "an older process does not say");
    server.join().unwrap().unwrap();
}

/// "Nothing runs here" is not true where somebody else's processes do.
#[test]
fn sockets_of_another_user_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, path) = (sys::uid(), dir.path().join(format!("{}.sock", std::process::id())));
    assert_eq!(other_owner(dir.path(), ours), None);
    let _socket = UnixListener::bind(path).unwrap();
    let _dead = UnixListener::bind(dir.path().join("4194305.sock")).unwrap();
    assert_eq!(other_owner(dir.path(), ours), None);
    assert_eq!(other_owner(dir.path(), ours + 1), Some(ours));
    fs::remove_file(dir.path().join(format!("{}.sock", std::process::id()))).unwrap();
    assert_eq!(other_owner(dir.path(), ours + 1), None);
}

/// Nothing comes from it, however long one waits.
#[test]
fn a_process_that_is_stopped_is_not_waited_for_like_one_that_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id();
    assert!(!sys::is_stopped(pid));
    sys::kill(pid, libc::SIGSTOP).unwrap();
    while !sys::is_stopped(pid) {
        std::thread::yield_now();
    }
    let path = dir.path().join(format!("{pid}.sock"));
    let listener = UnixListener::bind(&path).unwrap();
    let error = ask(&path, &Ask::Status).unwrap_err();
    assert_eq!(error.downcast_ref::<Silent>().map(|silent| silent.0), Some(NOTE_AFTER));
    drop(listener);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Whoever asked it before has gone, and still takes room in its queue.
#[test]
fn a_process_that_has_let_nobody_in_for_long_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    // Ours: it lives.
    let path = dir.path().join(format!("{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    sys::let_one_wait(&listener);
    drop(sys::connect_at_once(&path).unwrap());
    for what in [Ask::Status, Ask::Metrics, Ask::Stop { leave: Leave::Stop }] {
        let told = ask_all(dir.path(), &what);
        assert!(matches!(&told[..], [(_, Err(error))] if is_silence(error)), "{what:?}: {told:?}");
    }
    assert_eq!(processes_in(dir.path()), []);
    assert_eq!(mount_in(dir.path(), &mounted("0:50")), None);
}

/// Descriptors that are used up come back; until then whoever wants in is not asked for without end.
#[test]
fn who_cannot_be_let_in_is_waited_for() {
    let waits = std::cell::Cell::new(0);
    let incoming = [Err("none left"), Ok(1), Err("none left"), Err("none left"), Ok(2)].into_iter();
    let came: Vec<i32> = waiting_between(incoming, || waits.set(waits.get() + 1)).collect();
    assert_eq!((came, waits.get()), (vec![1, 2], 3));
}

/// Root asks there for the mounts of other users, and believes what it is told.
#[test]
fn nobody_else_answers_for_a_user() {
    let home = tempfile::tempdir().unwrap();
    let (dir, user) = (home.path().join("sheen-7"), sys::uid());
    let mode = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    assert!(!is_only_of(&dir, user), "it is not there");
    fs::create_dir(&dir).unwrap();
    mode(0o755);
    assert!(is_only_of(&dir, user));
    assert_eq!(is_only_of(&dir, user + 1), user == 0, "what root has made is believed");
    for open in [0o777, 0o1777, 0o775] {
        mode(open);
        assert!(!is_only_of(&dir, user), "{open:o}");
    }
    mode(0o755);
    let link = home.path().join("sheen-8");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    assert!(!is_only_of(&link, user), "anybody can make such a link");
    if user == 0 {
        std::os::unix::fs::chown(&dir, Some(3_999_999_998), None).unwrap();
        assert!(!is_only_of(&dir, 7), "another user has made it");
    }
}

/// In /tmp anybody can have made the directory of a user, with links to that user's files under the names of logs.
#[test]
fn no_log_is_made_where_somebody_else_can_have_put_links() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, stranger) = (sys::uid(), 4711);
    let is_root = ours == 0;
    let run_dir = dir.path().join("run");
    fs::create_dir(&run_dir).unwrap();
    let made = |user| make_log_dir_for(user, run_dir.clone());
    if is_root {
        std::os::unix::fs::chown(&run_dir, Some(stranger), None).unwrap();
    }
    let error = made(stranger + 1).unwrap_err().to_string();
    assert!(error.contains("belongs to somebody else; say with SHEEN_RUN"), "{error}");
    assert!(!run_dir.join("log").exists(), "nothing was made there");
    assert_eq!(made(if is_root { stranger } else { ours }).unwrap(), run_dir.join("log"));
    if is_root {
        std::os::unix::fs::chown(&run_dir, Some(0), None).unwrap();
        std::os::unix::fs::chown(run_dir.join("log"), Some(stranger), None).unwrap();
        let error = made(stranger + 1).unwrap_err().to_string();
        assert!(error.contains("log belongs to somebody else; say with --log"), "{error}");
    }
}
