use super::alerts;
use super::report::{Heard, Report, of_cluster};
use super::{REFUSED, line_of_unasked, status_of_unasked, text};
use crate::cluster::{Cluster, Shape};
use crate::control::{MgsStatus, MountStatus, Process, RecoveryStatus, TargetStatus, Tell, Unheard};
use crate::metrics::{Sample, figures_of};
use crate::mount::unasked::Unasked;
use crate::mount_table::{self, Mounted};
use crate::served::Gone;
use std::path::{Path, PathBuf};

fn target(name: &str, state: &str, pid: u32) -> TargetStatus {
    TargetStatus {
        name: name.to_owned(),
        fsname: "fs".to_owned(),
        dir: format!("/data/{name}").into(),
        nid: "10.0.0.1:7988@tcp".to_owned(),
        state: state.to_owned(),
        pid,
        recovery: None,
        owner: None,
        alert: None,
        unserved: None,
        unheard: Vec::new(),
    }
}

fn mount() -> MountStatus {
    MountStatus {
        path: "/mnt".into(),
        fsname: "fs".to_owned(),
        source: "10.0.0.1@tcp:/fs".to_owned(),
        mgs_nids: vec!["10.0.0.1:7988@tcp".to_owned()],
        transport: "dev".to_owned(),
        device: String::new(),
        is_detached: false,
        options: Vec::new(),
        options_at_start: Vec::new(),
        unheard: Vec::new(),
        pid: 7,
    }
}

fn heard(process: Process, samples: &[(&str, &[&str], f64)]) -> Heard {
    let sample = |(family, labels, value): &(&str, &[&str], f64)| Sample {
        family: family.to_string(),
        labels: labels.iter().map(ToString::to_string).collect(),
        value: *value,
    };
    let metrics = samples.iter().map(sample).collect();
    let figures = figures_of(vec![(7, Ok(Tell { metrics, ..Tell::default() }))]);
    let processes = vec![Process { pid: 7, ..process }];
    Heard {
        processes,
        silent: Vec::new(),
        silent_targets: Vec::new(),
        gone: Vec::new(),
        unasked: Vec::new(),
        figures,
    }
}

fn lines(targets: Vec<TargetStatus>, dir: Option<&Path>, heard: &Heard) -> Vec<String> {
    let mut report = Report::new(targets, vec![mount()]);
    report.dir = dir.map(Path::to_owned);
    report.add_figures(&heard.figures);
    report.alerts = alerts::of(&report, heard);
    text::of(&report).lines().map(str::to_owned).collect()
}

const QUIET: &[(&str, &[&str], f64)] = &[];

#[test]
fn space_and_clients_stand_beside_each_target() {
    let figures: &[(&str, &[&str], f64)] = &[
        ("sheen_target_exports", &["fs-OST0000"], 3.0),
        ("sheen_target_space", &["fs-OST0000", "total"], f64::from(8 << 20)),
        ("sheen_target_space", &["fs-OST0000", "available"], f64::from(4 << 20)),
        ("sheen_target_inodes", &["fs-OST0000", "total"], 100.0),
        ("sheen_target_inodes", &["fs-OST0000", "free"], 50.0),
    ];
    let said = lines(vec![target("OST0000", "active", 7)], None, &heard(Process::default(), figures));
    assert!(said[0].starts_with("target ") && said[0].contains(" space left  clients "), "{said:?}");
    let words: Vec<&str> = said[1].split_whitespace().collect();
    let wanted = ["fs-OST0000", "active", "7", "4.00", "MiB", "of", "8.00", "MiB", "3", "10.0.0.1:7988@tcp"];
    assert_eq!(words[..10], wanted);
    assert!(said[2].starts_with("mount ") && said.len() == 3, "no alert: {said:?}");
}

#[test]
fn whoever_is_missing_in_a_recovery_is_named_and_how_to_give_it_up() {
    let missing = (0..6).map(|number| format!("uuid{number}@nid")).collect();
    let unheard = Vec::new();
    let recovery = RecoveryStatus { seconds_left: 41, client_count: 9, done_count: 3, missing, unheard };
    let recovering = TargetStatus { recovery: Some(recovery), ..target("MDT0000", "recovering", 7) };
    let said = lines(vec![recovering], None, &heard(Process::default(), QUIET));
    assert_eq!(
        said.last().map(String::as_str),
        Some(
            "alert: fs-MDT0000 recovers: 3 of 9 clients are done, 41 s left for uuid0@nid, uuid1@nid, uuid2@nid, uuid3@nid and 2 more; \
             wait, or give them up: sheen lctl abort_recovery fs-MDT0000"
        )
    );
}

#[test]
fn a_target_that_replays_wait_for_is_named_and_that_it_is_waited_for_without_end() {
    let (missing, unheard) = (vec!["uuid0@nid".into()], vec!["MDT0001".into()]);
    let recovery = RecoveryStatus { seconds_left: 41, client_count: 9, done_count: 8, missing, unheard };
    let recovering = TargetStatus { recovery: Some(recovery), ..target("MDT0000", "recovering", 7) };
    let said = lines(vec![recovering], None, &heard(Process::default(), QUIET));
    assert_eq!(
        said.last().map(String::as_str),
        Some(
            "alert: fs-MDT0000 recovers: 8 of 9 clients are done, the others replay what needs MDT0001, which is not heard; \
             start it, or give them up: sheen lctl abort_recovery fs-MDT0000"
        )
    );
}

/// A copy has the clients of the target of which it is one in its rows. They are there, and never come to it.
#[test]
fn what_is_refused_waits_for_nobody() {
    let recovery = RecoveryStatus {
        seconds_left: 41,
        client_count: 9,
        done_count: 3,
        missing: vec!["x".into()],
        unheard: Vec::new(),
    };
    let alert = Some("10.0.0.2:7988 serves this target".to_owned());
    let refused = TargetStatus { recovery: Some(recovery), alert, ..target("OST0000", REFUSED, 7) };
    let figures: &[(&str, &[&str], f64)] = &[("sheen_target_exports", &["fs-OST0000"], 9.0)];
    let said = lines(vec![refused], None, &heard(Process::default(), figures));
    let words: Vec<&str> = said[1].split_whitespace().collect();
    assert_eq!(words[..6], ["fs-OST0000", "refused", "7", "-", "-", "10.0.0.1:7988@tcp"]);
    let alerts: Vec<&String> = said.iter().filter(|line| line.starts_with("alert:")).collect();
    assert_eq!(alerts, ["alert: fs-OST0000: 10.0.0.2:7988 serves this target"]);
}

/// An OST does not take what is on an MDT.
#[test]
fn where_an_mdt_is_full_another_mdt_is_named() {
    let figures: &[(&str, &[&str], f64)] = &[
        ("sheen_target_space", &["fs-MDT0000", "total"], 1000.0),
        ("sheen_target_space", &["fs-MDT0000", "available"], 10.0),
        ("sheen_target_inodes", &["fs-MDT0000", "total"], 100.0),
        ("sheen_target_inodes", &["fs-MDT0000", "free"], 90.0),
        ("sheen_target_space", &["fs-OST0000", "total"], 2000.0),
        ("sheen_target_space", &["fs-OST0000", "available"], 20.0),
        ("sheen_target_inodes", &["fs-OST0000", "total"], 100.0),
        ("sheen_target_inodes", &["fs-OST0000", "free"], 90.0),
        ("sheen_target_space", &["fs-MDT0001", "total"], 3000.0),
        ("sheen_target_space", &["fs-MDT0001", "available"], 30.0),
        ("sheen_target_inodes", &["fs-MDT0001", "total"], 100.0),
        ("sheen_target_inodes", &["fs-MDT0001", "free"], 90.0),
        ("sheen_target_space", &["fs-OST0001", "total"], 3000.0),
        ("sheen_target_space", &["fs-OST0001", "available"], 30.0),
        ("sheen_target_inodes", &["fs-OST0001", "total"], 100.0),
        ("sheen_target_inodes", &["fs-OST0001", "free"], 90.0),
    ];
    let names = ["MDT0000", "OST0000", "MDT0001", "OST0001"];
    let targets = names.into_iter().map(|name| target(name, "active", 7)).collect();
    let said = lines(targets, None, &heard(Process::default(), figures));
    for (names, kinds) in
        [("fs-MDT0000", "--mdt"), ("fs-OST0000", "--ost"), ("fs-MDT0001, fs-OST0001", "--ost (or --mdt)")]
    {
        let wanted = format!(
            "alert: {names}: 1 % of the space of the local file system left; \
             remove files, or add a target elsewhere: sheen mkfs {kinds} --index N"
        );
        assert!(said.iter().any(|line| line.starts_with(&wanted)), "{wanted}\n{said:#?}");
    }
}

#[test]
fn each_alert_has_what_ends_it() {
    let figures: &[(&str, &[&str], f64)] = &[
        ("sheen_target_space", &["fs-OST0000", "total"], 1000.0),
        ("sheen_target_space", &["fs-OST0000", "available"], 100.0),
        ("sheen_target_inodes", &["fs-OST0000", "total"], 100.0),
        ("sheen_target_inodes", &["fs-OST0000", "free"], 11.0),
        ("sheen_mount_session", &["fs", "/mnt", "fs-OST0009"], 0.0),
        ("sheen_mount_session", &["fs", "/mnt", "fs-OST0001"], 0.0),
    ];
    let mgs = MgsStatus {
        nids: vec!["10.0.0.1@tcp".to_owned()],
        is_heard: false,
        is_awaited: false,
        unreached: Vec::new(),
    };
    let mgs = Some(mgs);
    let drained_fsname = Some("fs".to_owned());
    let mut heard = heard(Process { mgs, drained_fsname, ..Process::default() }, figures);
    heard.silent = vec![99];
    let takeover =
        TargetStatus { alert: Some("say so: sheen failover".to_owned()), ..target("OST0002", "standby", 7) };
    let targets = vec![
        target("MDT0000", "failed", 7),
        target("OST0000", "active", 7),
        target("OST0001", "down", 0),
        takeover.clone(),
        takeover,
    ];
    let said = lines(targets, Some(&PathBuf::from("/data")), &heard);
    let alerts: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix("alert: ")).collect();
    let wanted = [
        "fs-MDT0000 is fenced: the device under /data/MDT0000 failed to keep data; stop: sheen down --force --dir /data; ",
        "fs-OST0001 is down; start: sheen up --dir /data",
        "fs-OST0002: say so: sheen failover",
        "the management server at 10.0.0.1@tcp does not answer process 7: ",
        "all OSTs of fs are drained: whoever makes a file gets ENOSPC; ",
        "/mnt has no session with fs-OST0009; look which and why: sheen health /mnt; ",
        "fs-OST0000: 10 % of the space of the local file system left; ",
        "process 99 does not answer: ",
    ];
    assert_eq!(alerts.len(), wanted.len(), "{alerts:#?}");
    for (alert, wanted) in alerts.iter().zip(wanted) {
        assert!(alert.starts_with(wanted), "{alert}\nis not\n{wanted}");
    }
}

#[test]
fn a_target_that_a_mount_does_not_hear_is_named_with_its_place_and_since_when() {
    let unheard = |target: &str, seconds, is_connected| Unheard {
        target: target.to_owned(),
        nids: vec!["10.0.0.9:7988@tcp".to_owned()],
        since: 1_700_000_000,
        seconds,
        is_connected,
    };
    let figures: &[(&str, &[&str], f64)] = &[
        ("sheen_mount_session", &["fs", "/mnt", "fs-OST0009"], 0.0),
        ("sheen_mount_session", &["fs", "/mnt", "fs-OST0003"], 0.0),
        ("sheen_mount_session", &["fs", "/mnt", "fs-OST0002"], 0.0),
    ];
    let heard = heard(Process::default(), figures);
    let hung = vec![
        unheard("fs-OST0009", 34, true),
        unheard("fs-OST0003", 5, false),
        unheard("fs-OST0002", 40, true),
    ];
    let here = vec![target("OST0002", "silent", 9)];
    let mut report = Report::new(here, vec![MountStatus { unheard: hung, ..mount() }]);
    report.alerts = alerts::of(&report, &heard);
    let texts: Vec<&str> = report.alerts.iter().map(|alert| alert.text.as_str()).collect();
    let wanted = [
        "/mnt has no session with fs-OST0003 at 10.0.0.9:7988@tcp (for 5 s)",
        "/mnt waits for fs-OST0009 at 10.0.0.9:7988@tcp (for 34 s), connected, without any answer",
    ];
    assert_eq!(texts, wanted, "what is silent here is said by its process's own line");
    assert!(report.alerts.iter().all(|alert| alert.fix.contains("sheen health /mnt")));
}

fn many_mounts(unheard: impl Fn(u64) -> Vec<Unheard>) -> Vec<MountStatus> {
    let of = |index: u64| MountStatus {
        path: format!("/mnt/{index:02}").into(),
        unheard: unheard(index),
        ..mount()
    };
    (0..64).map(of).collect()
}

#[test]
fn many_mounts_are_one_screen() {
    let report = Report::new(vec![target("MDT0000", "active", 7)], many_mounts(|_| Vec::new()));
    let shown = text::of(&report);
    let lines: Vec<&str> = shown.lines().skip(2).collect();
    assert_eq!(lines, ["and 64 more mounts: sheen mounts"]);
    let few: Vec<MountStatus> = many_mounts(|_| Vec::new()).into_iter().take(32).collect();
    assert_eq!(text::of(&Report::new(Vec::new(), few)).lines().count(), 32);
    let mut report = Report::new(Vec::new(), Vec::new());
    report.elsewhere = (0..64).map(|index| format!("/mnt/{index:02}").into()).collect();
    let wanted = "/mnt/00, /mnt/01, /mnt/02, /mnt/03 and 60 more are mounted, by processes that cannot be asked here: ";
    let shown = text::of(&report);
    assert!(shown.starts_with(wanted) && shown.lines().count() == 1, "{shown}");
    report.alerts =
        (0..64).map(|index| alerts::Alert { text: format!("{index}"), fix: String::new() }).collect();
    assert!(text::of(&report).ends_with("alert: 31\nand 32 more alerts: sheen status --json\n"));
}

#[test]
fn what_many_mounts_do_not_hear_is_one_alert() {
    let unheard = |target: u64, seconds, is_connected| Unheard {
        target: format!("fs-OST{target:04x}"),
        nids: vec!["10.0.0.9:7988@tcp".to_owned()],
        since: 1_700_000_000,
        seconds,
        is_connected,
    };
    let paths: Vec<String> = (0..64).map(|index| format!("/mnt/{index:02}")).collect();
    let labels: Vec<[&str; 3]> = paths.iter().map(|path| ["fs", path.as_str(), "fs-OST0003"]).collect();
    let samples: Vec<(&str, &[&str], f64)> =
        labels.iter().map(|labels| ("sheen_mount_session", &labels[..], 0.0)).collect();
    let heard = heard(Process::default(), &samples);
    let alerts_of = |mounts| {
        let mut report = Report::new(Vec::new(), mounts);
        report.alerts = alerts::of(&report, &heard);
        let rows = text::of(&report).lines().filter(|line| line.starts_with("mount ")).count();
        (report.alerts.into_iter().map(|alert| alert.text).collect::<Vec<_>>(), rows)
    };
    let (texts, rows) =
        alerts_of(many_mounts(|index| vec![unheard(9, index, true), unheard(3, index, false)]));
    let first = "/mnt/00, /mnt/01, /mnt/02, /mnt/03 and 60 more";
    let wanted = [
        format!("{first} have no session with fs-OST0003 at 10.0.0.9:7988@tcp (for 63 s)"),
        format!("{first} wait for fs-OST0009 at 10.0.0.9:7988@tcp (for 63 s), connected, without any answer"),
    ];
    assert_eq!((texts, rows), (wanted.to_vec(), 32));
    let (texts, _) = alerts_of(many_mounts(|index| vec![unheard(index % 2, 7, true)]));
    assert_eq!(texts.len(), 3, "{texts:#?}");
    assert!(texts[2].starts_with("/mnt/01, /mnt/03, /mnt/05, /mnt/07 and 28 more wait for fs-OST0001 at "));
    // Each misses something else.
    let (texts, _) = alerts_of(many_mounts(|index| vec![unheard(index, 7, true)]));
    assert_eq!(texts.len(), 2, "{texts:#?}");
    assert!(texts[1].starts_with(&format!("{first} wait for fs-OST0000 at ")), "{texts:#?}");
}

#[test]
fn a_break_between_two_servers_is_told_when_it_lasts() {
    let unheard = |target: &str, seconds| Unheard {
        target: target.to_owned(),
        nids: vec!["10.0.0.9:7988@tcp".to_owned()],
        since: 1_700_000_000,
        seconds,
        is_connected: false,
    };
    let broken = vec![unheard("fs-MDT0001", 8), unheard("fs-OST0000", 8), unheard("fs-OST0001", 2)];
    let mdt = TargetStatus { unheard: broken, ..target("MDT0000", "active", 7) };
    let mut report = Report::new(vec![mdt, target("OST0000", "silent", 9)], Vec::new());
    report.alerts = alerts::of(&report, &heard(Process::default(), &[]));
    let [alert] = &report.alerts[..] else { panic!("{:?}", report.alerts) };
    let wanted =
        "fs-MDT0000 does not reach fs-MDT0001 at 10.0.0.9:7988@tcp (for 8 s): operations that need both wait";
    assert_eq!(alert.text, wanted, "neither what is said already nor what may be a restart");
    assert!(alert.fix.contains("osp.*MDT0000.import"), "{}", alert.fix);
}

fn mounted(path: &str) -> Mounted {
    let line = format!("40 1 0:50 / {path} rw - fuse.sheen 10.0.0.1@tcp:/fs rw,user_id=0");
    mount_table::parse_line(line.as_bytes()).expect("it is a line of the table")
}

/// Who looks for a mount of another user, or for one that has died, sees it, as in the kernel's table.
#[test]
fn mounts_that_no_process_tells_of_are_listed_too() {
    let mounted = mounted("/mnt");
    for (why, process, pid) in [
        (Unasked::Stopped(99), " pid 99, which does not answer", 99),
        (Unasked::Dead, ", whose process has ended", 0),
        (Unasked::Elsewhere, ", whose process cannot be asked here", 0),
    ] {
        let line = line_of_unasked(&mounted, why);
        assert_eq!(line, format!("10.0.0.1@tcp:/fs on /mnt type fuse.sheen (rw){process}"));
        let status = status_of_unasked(&mounted, why);
        assert_eq!((status.fsname.as_str(), status.pid), ("fs", pid));
        let json = serde_json::to_value(status).expect("it is JSON");
        assert_eq!(json.get("pid").is_some(), pid != 0, "nobody kills process 0: {json}");
        assert_eq!(json.get("transport"), None, "{json}");
    }
}

#[test]
fn a_process_that_says_nothing_is_named_with_its_mounts_and_targets() {
    let mut heard = heard(Process::default(), QUIET);
    heard.processes.clear();
    heard.silent = vec![98, 99];
    heard.silent_targets = vec![target("OST0000", "silent", 98), target("OST0001", "silent", 98)];
    heard.unasked = vec![(mounted("/mnt"), Unasked::Stopped(99)), (mounted("/dead"), Unasked::Dead)];
    let mut report = Report::new(Vec::new(), Vec::new());
    report.alerts = alerts::of(&report, &heard);
    let shown = text::of(&report);
    let lines: Vec<&str> = shown.lines().collect();
    let wanted = [
        "alert: process 98 (fs-OST0000, fs-OST0001) does not answer: it is stopped, or its device stands still; look at its log; \
         wake it: kill -CONT 98; or end it: kill -KILL 98",
        "alert: process 99 (/mnt) does not answer: it is stopped, or its device stands still; look at its log; wake it: kill -CONT 99; \
         or end it, and what was written there and is not on the servers yet is lost: kill -KILL 99, umount -l /mnt, and mount it again",
        "alert: /dead is dead: its process has ended, and whoever uses it gets ENOTCONN; umount -l /dead, and mount it again: \
         sheen mount 10.0.0.1@tcp:/fs /dead",
    ];
    assert_eq!(lines, wanted, "and it is not said that nothing runs here");
}

#[test]
fn a_mount_that_nobody_tells_of_is_not_nothing() {
    let mut report = Report::new(Vec::new(), Vec::new());
    assert!(text::of(&report).starts_with("nothing runs here"));
    report.elsewhere = vec!["/mnt".into()];
    assert!(text::of(&report).starts_with("/mnt is mounted, by a process that cannot be asked here"));
}

#[test]
fn who_waits_for_a_management_server_says_for_which_and_why() {
    let mgs = MgsStatus {
        nids: vec!["mgs:7988@tcp".to_owned()],
        is_heard: false,
        is_awaited: true,
        unreached: vec!["mgs:7988: this name does not resolve (not known)".to_owned()],
    };
    let heard = heard(Process { mgs: Some(mgs), ..Process::default() }, QUIET);
    let said = lines(vec![target("OST0000", "waiting", 7)], None, &heard);
    let alerts: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix("alert: ")).collect();
    assert_eq!(alerts.len(), 1, "{alerts:#?}");
    let wanted = "process 7 waits for the management server at mgs:7988@tcp (mgs:7988: this name does not resolve (not known)): ";
    assert!(alerts[0].starts_with(wanted), "{alerts:#?}");
    assert!(alerts[0].contains("--mgsnode"), "{alerts:#?}");
}

#[test]
fn who_has_died_is_missed_with_what_starts_it_again() {
    let mut heard = heard(Process::default(), QUIET);
    let gone = ["OST0000", "OST0001"].map(|name| target(name, "down", 0)).to_vec();
    let (start, record) = ("sheen serve /data".to_owned(), "/run/sheen/99.served".into());
    heard.gone = vec![Gone { pid: 99, targets: gone.clone(), start, vanished: Vec::new(), record }];
    let said = lines(gone, None, &heard);
    let alerts: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix("alert: ")).collect();
    assert_eq!(alerts, ["fs-OST0000, fs-OST0001 are down: process 99 has died; start: sheen serve /data"]);
    heard.gone[0].vanished = vec!["/data/ost1".into()];
    let said = lines(heard.gone[0].targets.clone(), None, &heard);
    let alerts: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix("alert: ")).collect();
    assert_eq!(
        alerts,
        [
            "fs-OST0000, fs-OST0001 are down: process 99 has died, and /data/ost1 is not there (is a disk not mounted?); \
             mount it, then start: sheen serve /data; or, if they were removed for good: rm /run/sheen/99.served"
        ]
    );
}

#[test]
fn a_large_cluster_is_one_screen() {
    let mut targets: Vec<TargetStatus> =
        (0..200).map(|index| target(&format!("OST{index:04x}"), "active", 7)).collect();
    targets.push(target("OST00c8", "recovering", 7));
    let said = lines(targets, None, &heard(Process::default(), QUIET));
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[1].starts_with("fs-OST00c8 "), "{said:?}");
    assert_eq!(said[2], "and 200 more, which are active");
}

#[test]
fn a_damaged_target_is_named_once_with_what_is_wrong_and_what_to_do() {
    let why = "the index /data/OST0000/meta/index is damaged (it is cut: 8192 bytes of 16384 are left)";
    let damaged = TargetStatus { unserved: Some(why.to_owned()), ..target("OST0000", "failed", 7) };
    for (dir, fix) in [
        (None, "process 7: end its process, look at it with `sheen fsck`, restore "),
        (
            Some(Path::new("/data")),
            "stop: sheen down --force --dir /data; look: sheen fsck /data; if it is damaged, restore /data/OST0000; ",
        ),
    ] {
        let said = lines(vec![damaged.clone()], dir, &heard(Process::default(), QUIET));
        let alerts: Vec<&str> = said.iter().filter_map(|line| line.strip_prefix("alert: ")).collect();
        assert_eq!(alerts.len(), 1, "{alerts:#?}");
        assert!(alerts[0].starts_with(&format!("fs-OST0000 is not served: {why}; {fix}")), "{alerts:#?}");
    }
}

#[test]
fn commands_that_are_shown_have_a_path_for_one_word() {
    let mgs = MgsStatus {
        nids: vec!["10.0.0.1@tcp".to_owned()],
        is_heard: false,
        is_awaited: false,
        unreached: Vec::new(),
    };
    let mount = MountStatus { path: "/m p".into(), ..mount() };
    let process = Process { mgs: Some(mgs), mounts: vec![mount.clone()], ..Process::default() };
    let figures: &[(&str, &[&str], f64)] = &[("sheen_mount_session", &["fs", "/m p", "fs-OST0009"], 0.0)];
    let damaged = TargetStatus { unserved: Some("damaged".to_owned()), ..target("OST0002", "failed", 7) };
    let targets = vec![target("OST0000", "failed", 7), damaged, target("OST0001", "down", 0)];
    let heard = heard(process, figures);
    let mut report = Report::new(targets, vec![mount]);
    report.dir = Some("/d d".into());
    report.alerts = alerts::of(&report, &heard);
    assert_eq!(report.alerts.len(), 5, "{:#?}", report.alerts);
    for word in ["--dir ", "fsck ", "health "] {
        for alert in &report.alerts {
            assert!(alert.fix.split(word).skip(1).all(|rest| rest.starts_with('\'')), "{}", alert.fix);
        }
    }
}

/// The first free port is taken at the next start, whoever had it before.
#[test]
fn a_mount_of_another_cluster_at_the_same_address_is_not_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::new(Shape {
        fsname: "fs".to_owned(),
        mount: "/elsewhere".into(),
        is_split: false,
        transport: "auto".to_owned(),
        mdt_count: 1,
        ost_count: 1,
    });
    cluster.servers[0].address = "10.0.0.1:7988".to_owned();
    cluster.save(dir.path()).expect("a cluster");
    let shown_with = |mgs: TargetStatus, silent_targets: Vec<TargetStatus>| {
        let process = Process { mounts: vec![mount()], targets: vec![mgs], ..Process::default() };
        let mut heard = Heard { silent_targets, ..heard(process, QUIET) };
        of_cluster(dir.path(), &mut heard).expect("a report").mounts.len()
    };
    let ours = || TargetStatus { dir: dir.path().join("mgs"), ..target("MGS", "active", 7) };
    let at = |nid: &str| TargetStatus { nid: nid.to_owned(), ..target("MGS", "active", 7) };
    assert_eq!(shown_with(ours(), Vec::new()), 1);
    assert_eq!(shown_with(at("10.0.0.1:7989@tcp"), Vec::new()), 1, "it has an address of its own");
    assert_eq!(shown_with(at("10.0.0.1:7988@tcp"), Vec::new()), 0, "it has the address by now");
    assert_eq!(shown_with(at("10.0.0.2:7988@tcp"), vec![at("10.0.0.1:7988@tcp")]), 0, "and says nothing");
}
