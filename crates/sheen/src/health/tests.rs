use super::judge;
use super::*;
use crate::control::StepHealth;

fn sound(name: &str) -> TargetHealth {
    TargetHealth {
        target: name.to_owned(),
        is_used: true,
        state: "FULL".to_owned(),
        nids: vec!["10.0.0.7:7988@tcp".to_owned()],
        clock_ahead_ms: Some(-3),
        version: wire::SOFTWARE.to_owned(),
        answer: StepHealth::TookUs(150),
        lock: StepHealth::TookUs(1250),
        read: StepHealth::TookUs(90),
        bytes_total: 100 << 30,
        bytes_available: 60 << 30,
        inodes_total: 1000,
        inodes_free: 900,
        device: 1,
    }
}

fn line(health: &TargetHealth) -> (Level, String) {
    let check = judge::target(health);
    (check.level, format!("{} {}; {}", check.subject, check.found, check.todo.unwrap_or_default()))
}

#[test]
fn a_sound_target_is_green_with_its_times_and_room() {
    let (level, text) = line(&sound("OST0001"));
    assert_eq!(level, Level::Green);
    let wanted = format!(
        "OST0001 answers in 0.15 ms, locks in 1.25 ms, reads in 0.09 ms, runs {}; 60 % of its space left; ",
        wire::SOFTWARE
    );
    assert_eq!(text, wanted);
}

#[test]
fn the_worst_that_there_is_decides_and_says_what_to_do() {
    let silent = TargetHealth { answer: StepHealth::Silent, state: "CONNECTING".into(), ..sound("OST0001") };
    let recovering = TargetHealth { state: "REPLAY".into(), ..silent.clone() };
    let refusing = TargetHealth { lock: StepHealth::Failed("I/O error".into()), ..sound("MDT0000") };
    let off = TargetHealth { is_used: false, ..sound("OST0002") };
    let slow = TargetHealth { read: StepHealth::TookUs(4_000_000), ..sound("OST0002") };
    let late = TargetHealth { clock_ahead_ms: Some(-90_000), ..sound("OST0002") };
    let low = TargetHealth { bytes_available: 9 << 30, ..sound("OST0002") };
    let full = TargetHealth { inodes_free: 5, ..sound("MDT0001") };
    let newer = TargetHealth { version: "99.0.0".into(), ..sound("OST0003") };
    let untold = TargetHealth { version: String::new(), ..sound("OST0003") };
    for (health, wanted, words) in [
        (
            silent,
            Level::Red,
            "does not answer within 3 s on 10.0.0.7:7988@tcp (session CONNECTING); start it",
        ),
        (recovering, Level::Yellow, "recovers on 10.0.0.7:7988@tcp and does not answer yet; wait for it"),
        (refusing, Level::Red, "does not grant a lock: I/O error; see its log"),
        (off, Level::Yellow, "sheen lctl set_param 'osc.*OST0002*.active=1'"),
        (slow, Level::Yellow, "; look at the load and the disk of its server"),
        (late, Level::Yellow, "-90000 ms ahead of ours"),
        (low, Level::Yellow, "9 % of its space left; remove files"),
        (full, Level::Red, "0 % of its inodes left; remove files"),
        (newer, Level::Yellow, "runs 99.0.0; 60 % of its space left; this program is "),
        (untold, Level::Yellow, "runs a version that it does not tell; 60 %"),
    ] {
        let (level, text) = line(&health);
        assert_eq!(level, wanted, "{text}");
        assert!(text.starts_with(&health.target) && text.contains(words), "{text}");
    }
}

#[test]
fn what_is_on_no_mount_is_red_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let report = look(dir.path());
    assert_eq!((report.level, report.checks.len()), (Level::Red, 1));
    assert!(
        to_text(&report).contains("is on no SheenFS mount; mount it: sheen mount"),
        "{}",
        to_text(&report)
    );
}

#[test]
fn what_does_not_exist_is_said_to_be_on_no_mount_by_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["no", "no/such"] {
        let report = look(&dir.path().join(name));
        assert_eq!(report.level, Level::Red);
        assert!(to_text(&report).contains("does not exist; see `sheen mounts`"), "{}", to_text(&report));
    }
}

#[test]
fn the_space_of_all_is_told_only_when_all_have_told_theirs() {
    let other_disk = TargetHealth { device: 2, ..sound("OST0002") };
    let whole = [sound("MDT0000"), sound("OST0000"), sound("OST0001"), other_disk];
    let said = judge::space(&whole).map(|check| check.found).unwrap_or_default();
    assert!(said.starts_with("120 GiB on all OSTs and 900 inodes"), "{said}");
    let part = [sound("MDT0000"), TargetHealth { answer: StepHealth::Silent, ..sound("OST0000") }];
    assert_eq!(judge::space(&part), None);
}

#[test]
fn a_mount_of_another_version_works_and_is_to_be_mounted_again() {
    let same = judge::version(env!("CARGO_PKG_VERSION"));
    assert!(same.level == Level::Green && same.found.contains("protocol "), "{same:?}");
    for theirs in ["0.0.1", "unknown"] {
        let other = judge::version(theirs);
        assert_eq!(other.level, Level::Yellow);
        assert!(other.found.starts_with(&format!("the mount runs {theirs}, this program is ")), "{other:?}");
        assert!(other.todo.is_some_and(|todo| todo.contains("mount it again")));
    }
}

#[test]
fn an_overlay_over_a_mount_that_keeps_names_is_named_with_the_option_that_it_needs() {
    let look = |overlays: &[&str], options: &[&str], release: &str| {
        let overlays: Vec<PathBuf> = overlays.iter().map(PathBuf::from).collect();
        let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
        judge::overlays(&overlays, &options, release)
    };
    let check = look(&["/a", "/b"], &["flock"], "6.18.44-cloud\n").expect("a line");
    assert_eq!((check.level, check.subject.as_str()), (Level::Yellow, "overlay"));
    assert!(check.found.starts_with("/a (and 1 more) is an overlay over this mount"), "{check:?}");
    assert!(check.todo.is_some_and(|todo| todo.contains("names=uncached")));
    assert!(look(&["/a"], &[], "6.16").is_some_and(|check| !check.found.contains("more")));
    assert!(look(&["/a"], &[], "no version").is_some(), "rather once too often");
    assert_eq!(look(&["/a"], &["flock", "names=uncached"], "6.18.0"), None);
    assert_eq!(look(&["/a"], &["flock"], "6.15.9"), None);
    assert_eq!(look(&["/a"], &["flock"], "5.19"), None);
    assert_eq!(look(&[], &["flock"], "6.18.0"), None);
}

#[test]
fn the_worst_line_is_the_exit_status() {
    assert_eq!([Level::Green, Level::Yellow, Level::Red].map(|level| level as u8), [0, 1, 2]);
    assert_eq!([Level::Yellow, Level::Red, Level::Green].into_iter().max(), Some(Level::Red));
}

#[test]
fn a_mount_whose_process_says_nothing_is_told_which_one_and_what_its_end_costs() {
    let line = b"40 1 0:50 / /mnt rw - fuse.sheen 10.0.0.1@tcp:/fs rw,user_id=0";
    let mounted = mount_table::parse_line(line).expect("it is a line of the table");
    let lost = "end it, and what was written there and is not on the servers yet is lost: kill -KILL 50, umount -l /mnt";
    for (why, found, todo) in [
        (
            Unasked::Stopped(50),
            "/mnt is mounted by process 50, which is stopped",
            "wake it: kill -CONT 50; or ",
        ),
        (
            Unasked::Silent(50),
            "/mnt is mounted by process 50, which lives and says nothing",
            "look at its log; or ",
        ),
    ] {
        let check = judge::unasked(&mounted, why);
        assert_eq!((check.level, check.subject.as_str(), check.found.as_str()), (Level::Red, "mount", found));
        assert!(check.todo.is_some_and(|said| said.starts_with(&format!("{todo}{lost}"))));
    }
    let dead = judge::unasked(&mounted, Unasked::Dead);
    assert_eq!(dead.found, "/mnt is mounted, and its process has ended");
    let todo = "umount -l /mnt, and mount it again: sheen mount 10.0.0.1@tcp:/fs /mnt";
    assert_eq!(dead.todo.as_deref(), Some(todo));
    let elsewhere = judge::unasked(&mounted, Unasked::Elsewhere);
    assert!(elsewhere.found.ends_with("no process that can be asked here serves it"));
    // `umount -l /m p` would unmount /m.
    let line = b"40 1 0:50 / /m\\040p rw - fuse.sheen 10.0.0.1@tcp:/fs rw,user_id=0";
    let mounted = mount_table::parse_line(line).expect("it is a line of the table");
    for why in [Unasked::Stopped(50), Unasked::Dead, Unasked::Elsewhere] {
        let todo = judge::unasked(&mounted, why).todo.unwrap_or_default();
        assert!(todo.contains("umount -l '/m p', and mount it again"), "{todo}");
    }
}

#[test]
fn where_nobody_is_reached_the_network_is_looked_at_and_nobody_is_to_be_started() {
    let why = io::Error::from_raw_os_error(libc::ENETUNREACH);
    let silent = |name| TargetHealth { answer: StepHealth::Silent, ..sound(name) };
    let off = TargetHealth { is_used: false, ..sound("OST0002") };
    let check = judge::network(&why, &[silent("MDT0000"), silent("OST0000"), off.clone()]).expect("a line");
    assert_eq!((check.level, check.subject.as_str()), (Level::Red, "network"));
    assert_eq!(
        check.found,
        "neither the management server nor any of 2 targets is reached from this machine: Network is unreachable"
    );
    assert!(check.todo.is_some_and(|todo| todo.starts_with("check the network of this machine")));
    let recovering = TargetHealth { state: "REPLAY".into(), ..silent("OST0000") };
    for others in [vec![sound("OST0000"), silent("MDT0000")], vec![recovering], vec![off], Vec::new()] {
        assert_eq!(judge::network(&why, &others), None, "{others:?}");
    }
}

/// A machine that refuses a connection is reached.
#[test]
fn a_management_server_that_is_not_started_is_no_matter_of_the_network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let nids = [crate::nid::format_nid(&address)];
    let (check, unreached) = management(&nids);
    assert!(check.level == Level::Green && unreached.is_none(), "{check:?}");
    drop(listener);
    let (check, unreached) = management(&nids);
    assert!(check.level == Level::Yellow && unreached.is_none(), "{check:?} {unreached:?}");
}

/// `localhost` is an IPv6 address too, mostly the first, on which nobody listens.
#[test]
fn a_name_with_several_addresses_is_tried_at_each() {
    let addresses: Vec<SocketAddr> = (1..=3).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
    let tried = |answer: fn(u16) -> io::Result<u16>| {
        let asked = std::cell::RefCell::new(Vec::new());
        let connected = connect_to_any(&addresses, |address, limit| {
            asked.borrow_mut().push((address.port(), limit));
            answer(address.port())
        });
        let asked = asked.into_inner();
        assert!(asked.iter().map(|(_, limit)| *limit).sum::<Duration>() <= CONNECT_TIMEOUT);
        (connected.map_err(|error| error.kind()), asked.len())
    };
    let second = tried(|port| if port == 2 { Ok(port) } else { Err(ErrorKind::ConnectionRefused.into()) });
    assert_eq!(second, (Ok(2), 2));
    let reached =
        tried(|port| Err(if port == 2 { ErrorKind::ConnectionRefused } else { ErrorKind::TimedOut }.into()));
    assert_eq!(reached, (Err(ErrorKind::ConnectionRefused), 3), "who refuses is reached");
    assert_eq!(tried(|_| Err(ErrorKind::TimedOut.into())), (Err(ErrorKind::TimedOut), 3));
    let none = connect_to_any(&[], |_, _| Ok(())).map_err(|error| error.kind());
    assert_eq!(none, Err(ErrorKind::NotFound));
}
