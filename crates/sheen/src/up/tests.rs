#![allow(clippy::unwrap_used)]

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    up: cli::Up,
}

/// Killed before `cluster.json` was there, `up` leaves no more than this.
#[test]
fn what_an_interrupted_up_leaves_is_no_reason_to_refuse_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("mnt");
    let data = dir.path().join("data");
    for made in [&mount, &data] {
        fs::create_dir(made).unwrap();
    }
    let up = Line::parse_from(["up", "--mount", mount.to_str().unwrap()]).up;
    drop(lock(&data, "up").unwrap());
    fs::write(data.join(cluster::FILE_ASIDE), b"{ \"form").unwrap();
    let cluster = design(&up, &data).unwrap();
    fs::write(data.join("letter"), b"somebody's").unwrap();
    assert!(design(&up, &data).unwrap_err().to_string().contains("is not empty"));
    // Killed later, it leaves the file and some of the targets.
    cluster.save(&data).unwrap();
    target_dir::make(&data.join("mgs"), target_id("mgs").unwrap(), &cluster.fsname, &[]).unwrap();
    let (taken_up, _) = plan(&up, &data).unwrap();
    make_targets(&data, &taken_up).unwrap();
    assert!(target_dir::exists(&data.join("ost0003")));
}

#[test]
fn who_has_no_sheen_on_his_path_is_told_commands_that_work() {
    let (with, without) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(with.path().join("sheen"), "").unwrap();
    let search = |dirs: &[&Path]| own_command(Some(&std::env::join_paths(dirs).unwrap()));
    assert_eq!(search(&[without.path(), with.path()]), "sheen");
    let own = std::env::current_exe().unwrap();
    assert_eq!(search(&[without.path()]), served::quoted(own.to_str().unwrap()));
    assert_eq!(own_command(None), served::quoted(own.to_str().unwrap()));
}

/// Where another cluster has the usual port, `127.0.0.1@tcp` leads to that one.
#[test]
fn who_has_started_a_cluster_is_told_where_its_management_server_listens() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let up = Line::parse_from(["up", "--mount", mount.to_str().unwrap()]).up;
    let mut cluster = design(&up, &dir.path().join("data")).unwrap();
    cluster.servers[0].address = "127.0.0.1:7989".to_owned();
    let shown = six_lines(&dir.path().join("data"), &cluster);
    let wanted = format!("mounted  {} (127.0.0.1:7989@tcp:/sheen)", mount.display());
    assert!(shown.lines().any(|line| line == wanted), "{shown}");
}

/// `cp -a /usr/include /a b/` would copy `/a` too, into another directory.
#[test]
fn commands_that_are_shown_have_a_path_for_one_word() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, data) = (dir.path().join("m p"), dir.path().join("it's data"));
    fs::create_dir(&mount).unwrap();
    let up = Line::parse_from(["up", "--mount", mount.to_str().unwrap()]).up;
    let cluster = design(&up, &data).unwrap();
    let shown = six_lines(&data, &cluster);
    let words_of = |name: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix(name)).unwrap().replace("&&", "");
        let split = format!("printf '%s\\n' {line}");
        let split = std::process::Command::new("sh").args(["-c", &split]).output().unwrap();
        String::from_utf8(split.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (data, mount) = (data.to_str().unwrap(), mount.to_str().unwrap());
    assert_eq!(words_of("health ")[1..], ["status", "--dir", data]);
    assert_eq!(words_of("stop ")[1..], ["down", "--dir", data]);
    let next = words_of("next ");
    assert_eq!(next[..4], ["cp", "-a", "/usr/include", &format!("{mount}/")]);
    assert_eq!(next[5..], ["lfs", "df", "-h", mount]);
}

/// Its disk is not mounted, mostly: an empty target in its place would hide that.
#[test]
fn a_target_that_was_there_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, data) = (dir.path().join("mnt"), dir.path().join("data"));
    for made in [&mount, &data] {
        fs::create_dir(made).unwrap();
    }
    let up = Line::parse_from(["up", "--split", "--mount", mount.to_str().unwrap()]).up;
    let mut cluster = design(&up, &data).unwrap();
    make_targets(&data, &cluster).unwrap();
    cluster.servers[0].address = "127.0.0.1:7988".to_owned();
    assert!(missing_servers(&data, &cluster).unwrap().is_empty());
    for name in ["ost0001", "mdt0000"] {
        fs::remove_dir_all(data.join(name)).unwrap();
    }
    // As the place on which its disk is mounted.
    fs::create_dir(data.join("ost0001")).unwrap();
    make_targets(&data, &cluster).unwrap();
    let missing = missing_servers(&data, &cluster).unwrap();
    let names: Vec<&str> = missing.keys().map(|at| cluster.servers[*at].name.as_str()).collect();
    assert_eq!(names, ["mdt0000", "ost0001"]);
    assert!(missing.values().all(|why| why.contains("mount its disk")), "{missing:?}");
    assert!(
        check_has_root(&data, &cluster, &missing).is_err_and(|error| error.to_string().contains("mdt0000"))
    );
    fs::remove_dir_all(data.join("mgs")).unwrap();
    assert!(missing_servers(&data, &cluster).is_err(), "without it none is found");
}

/// Whoever waits for the lock is told who has it: a command that runs, or what a killed one has started.
#[test]
fn the_holder_of_the_lock_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let _lock = lock(dir.path(), "down").unwrap();
    let path = dir.path().join(LOCK_NAME);
    let ours = format!("runs as pid {}", std::process::id());
    let holder = lock_holder(&path);
    assert!(holder.contains("sheen down") && holder.contains(&ours), "{holder}");
    fs::write(&path, format!("up {}", u32::MAX)).unwrap();
    let holder = lock_holder(&path);
    assert!(holder.contains("sheen up") && holder.contains("killed"), "{holder}");
    for nobody in ["", "nonsense", "up many"] {
        fs::write(&path, nobody).unwrap();
        assert!(lock_holder(&path).contains("another"));
    }
}

/// An `up` that fails leaves all as it was, also while another one waits for it.
#[test]
fn a_lock_that_was_removed_meanwhile_is_made_anew() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().canonicalize().unwrap().join("data");
    let path = dir.join(LOCK_NAME);
    let first = lock(&dir, "up").unwrap();
    let open_count = || {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|open| open == path)).count()
    };
    let waiting = std::thread::spawn({
        let dir = dir.clone();
        move || lock(&dir, "up").unwrap()
    });
    while open_count() < 2 {
        std::thread::yield_now();
    }
    fs::remove_dir_all(&dir).unwrap();
    drop(first);
    let second = waiting.join().unwrap();
    assert!(!sys::is_removed(&second).unwrap());
    assert!(fs::File::open(&path).unwrap().try_lock().is_err(), "others find it locked");
}

/// `up` waits for its own MDTs, and for clients; what others start after it cannot be waited for.
#[test]
fn an_mdt_that_is_not_of_the_cluster_is_known_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let up = Line::parse_from(["up", "--mount", mount.to_str().unwrap(), "--mdts", "2"]).up;
    let cluster = design(&up, &dir.path().join("data")).unwrap();
    assert!(is_foreign_mdt("MDT0002", &cluster) && is_foreign_mdt("MDT000a", &cluster));
    for known in ["MDT0000", "MDT0001", "OST0007", "MGS", "94c1b5a2-0000-0000-0000-000000000001@0@lo", ""] {
        assert!(!is_foreign_mdt(known, &cluster), "{known}");
    }
}

/// What runs is not what was asked for: that is said, and nothing is written down for the next start.
#[test]
fn what_differs_from_what_runs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, data) = (dir.path().join("mnt"), dir.path().join("data"));
    fs::create_dir(&mount).unwrap();
    let up =
        |words: &[&str]| Line::parse_from([&["up", "--mount", mount.to_str().unwrap()], words].concat()).up;
    let cluster = design(&up(&[]), &data).unwrap();
    let status = |mount: &Path| -> MountStatus {
        let text = format!(
            r#"{{"source":"","path":"{}","fsname":"sheen","transport":"uring","mgs_nids":[],"options":[]}}"#,
            mount.display()
        );
        serde_json::from_str(&text).unwrap()
    };
    let target: TargetStatus = serde_json::from_str(
        r#"{"name":"MGS","fsname":"sheen","dir":"/d/mgs","nid":"127.0.0.1@tcp","state":"active"}"#,
    )
    .unwrap();
    let running =
        [Process { targets: vec![target], mounts: vec![status(&cluster.mount)], ..Process::default() }];
    let revised = |words: &[&str], running: &[Process]| revise(cluster.clone(), &up(words), &data, running);
    for words in
        [&["--split"][..], &["--listen", "127.0.0.2"], &["--listen", "127.0.0.1:1"], &["--transport", "dev"]]
    {
        let line = revised(words, &running).unwrap_err().to_string();
        assert!(line.contains(words[0]) && line.contains("sheen down --dir"), "{line}");
        assert!(revised(words, &[]).is_ok(), "{words:?}");
    }
    let other = Line::parse_from(["up", "--mount", dir.path().to_str().unwrap()]).up;
    let line = revise(cluster.clone(), &other, &data, &running).unwrap_err().to_string();
    assert!(line.contains(&format!("`sheen down --dir {}` first", data.display())), "{line}");
    for words in [&["--listen", "127.0.0.1"][..], &["--transport", "auto"], &["--transport", "uring"], &[]] {
        assert!(revised(words, &running).is_ok(), "{words:?}");
    }
    // Its servers run, and its mount is to be started anew.
    let servers = [Process { mounts: Vec::new(), ..running[0].clone() }];
    assert_eq!(revised(&["--transport", "dev"], &servers).unwrap().transport, "dev");
}

/// A process tells the address that it has, and not the name by which that was asked for.
#[test]
fn metrics_that_are_served_already_are_known_by_their_address() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, data) = (dir.path().join("mnt"), dir.path().join("data"));
    fs::create_dir(&mount).unwrap();
    let up =
        |metrics: &str| Line::parse_from(["up", "--mount", mount.to_str().unwrap(), "--metrics", metrics]).up;
    let mut cluster = design(&up("off"), &data).unwrap();
    let mut target: TargetStatus = serde_json::from_str(
        r#"{"name":"MGS","fsname":"sheen","dir":"/d/mgs","nid":"127.0.0.1@tcp","state":"active"}"#,
    )
    .unwrap();
    target.dir = data.join("mgs");
    let serving = |metrics: Option<&str>| {
        let metrics = metrics.map(str::to_owned);
        [Process { targets: vec![target.clone()], metrics, ..Process::default() }]
    };
    let mut chosen = |given: &str, bound: Option<&str>| {
        choose_metrics(&up(given), &data, &mut cluster, &serving(bound)).is_ok()
    };
    for given in ["127.0.0.1:7989", "localhost:7989", "localhost:0"] {
        assert!(chosen(given, Some("127.0.0.1:7989")), "{given}");
        assert!(!chosen(given, Some("127.0.0.2:7990")) && !chosen(given, None), "{given}");
    }
    assert!(chosen("off", None) && !chosen("off", Some("127.0.0.1:7989")));
}

#[test]
fn processes_of_their_own_have_ports_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let (mount, data) = (dir.path().join("mnt"), dir.path().join("data"));
    fs::create_dir(&mount).unwrap();
    let plan = |words: &[&str]| {
        let words = [&["up", "--mount", mount.to_str().unwrap(), "--listen"], words].concat();
        plan(&Line::parse_from(words).up, &data)
    };
    let line = plan(&["127.0.0.1:9300", "--split"]).err().unwrap().to_string();
    assert!(line.contains("name the host only"), "{line}");
    assert!(plan(&["127.0.0.1", "--split"]).is_ok() && plan(&["127.0.0.1:9300"]).is_ok());
    assert!(!data.exists());
}

#[test]
fn servers_of_data_are_stopped_first_and_the_management_server_last() {
    let process = |names: &[&str]| {
        let target = |name: &&str| TargetStatus {
            name: (*name).to_owned(),
            fsname: "sheen".to_owned(),
            dir: PathBuf::new(),
            nid: String::new(),
            state: String::new(),
            pid: 0,
            recovery: None,
            owner: None,
            alert: None,
            unserved: None,
            unheard: Vec::new(),
        };
        Process { targets: names.iter().map(target).collect(), ..Process::default() }
    };
    let mut processes =
        [&["MGS"][..], &["MDT0000"], &["MGS", "MDT0001"], &["OST0001"], &[], &["OST0000"]].map(process);
    processes.sort_by_key(stop_rank);
    let first = |process: &Process| process.targets.first().map_or("", |target| &target.name).to_owned();
    let names: Vec<String> = processes.iter().map(first).collect();
    assert_eq!(names, ["", "OST0001", "OST0000", "MDT0000", "MGS", "MGS"]);
}
