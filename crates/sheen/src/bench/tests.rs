use super::beside::Shares;
use super::figures::{Report, Summary};
use super::pattern::Pattern;
use super::place::Place;
use super::plan::{Kind, Plan, Step, Unit, Wanted};
use super::rounds::{self, Sample, Samples, rate};
use super::worker::{Task, Worker};
use super::{Bench, Common, What};
use clap::Parser;
use std::path::Path;
use std::time::Duration;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: Bench,
}

fn common(words: &[&str]) -> Common {
    let line = Line::try_parse_from([&["bench"], words].concat()).expect("a command");
    match line.bench.what {
        What::Md(options)
        | What::Io(options)
        | What::Stream(options)
        | What::Direct(options)
        | What::Ls(options) => options.common,
        What::Mmap(options) => options.common,
        What::Tree(options) => options.common,
        What::Fill(_)
        | What::Dne(_)
        | What::Ab(_)
        | What::Recovery(_)
        | What::Image(_)
        | What::ImageReader(_)
        | What::Worker(_)
        | What::Reader(_)
        | What::NullMount(_)
        | What::RecoveryLoad(_) => {
            panic!("that measures nothing")
        }
    }
}

fn plan(kind: Kind, dir: &Path) -> Plan {
    let common = common(&["md", dir.to_str().expect("text"), "-n", "1", "--remount", "true"]);
    Plan {
        procs: vec![1],
        file_count: 20,
        directory_count: 5,
        file_bytes: 100,
        mib: 2,
        ..Plan::new(kind, &common)
    }
}

#[test]
fn every_phase_of_every_kind_does_its_amount_and_names_are_gone_at_the_end() {
    for (kind, amounts) in [
        (Kind::Md, vec![20; 9]),
        (Kind::Io, [vec![2 << 20; 4], vec![2 << 16; 2], vec![2 << 16; 2]].concat()),
        (Kind::Stream, vec![2 << 20; 5]),
        (Kind::Direct, vec![(2 << 20) / 4096 / 16; 6]),
        (Kind::Ls, vec![20; 3]),
        (Kind::Names, vec![20; 3]),
        (Kind::Mmap, vec![2 << 20, 1 << 19, 2 << 12]),
        (Kind::Small, vec![20; 3]),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let place = Place::new(dir.path()).expect("a place");
        place.fill(&plan(kind, dir.path())).expect("filled");
        let patterns = Pattern::ALL.to_vec();
        let task = Task {
            kind,
            dir: place.work.clone(),
            index: 0,
            files: 20,
            mib: 2,
            patterns,
            ops: Vec::new(),
            shared: false,
            cold: true,
            client_cold: true,
            null: false,
        };
        let mut worker = Worker::new(&task).expect("a worker");
        let mut perform = |step| {
            worker.prepare(step).expect("prepared");
            worker.perform(step).expect("performed")
        };
        let wanted = Wanted {
            patterns: &task.patterns,
            ops: &[],
            is_cold: task.cold,
            is_client_cold: task.client_cold,
            is_null: task.null,
        };
        let steps = wanted.steps(kind).into_iter();
        assert_eq!(steps.map(|(_, step)| perform(step)).collect::<Vec<u64>>(), amounts, "{kind:?}");
        if kind == Kind::Md {
            let left = std::fs::read_dir(place.work.join("p0")).expect("it is there").count();
            assert_eq!(left, 20, "only what was to be found uncached");
        }
        drop(place);
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0, "{kind:?}");
    }
}

#[test]
fn a_tree_has_its_files_and_directories_and_tools_see_all_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = Place::new(dir.path()).expect("a place");
    let (walk, copy) = (plan(Kind::Walk, dir.path()), plan(Kind::Move, dir.path()));
    place.fill(&walk).expect("filled");
    let mut open = vec![place.tree()];
    let (mut directory_count, mut file_count) = (0, 0);
    while let Some(directory) = open.pop() {
        directory_count += 1;
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            match entry.file_type().expect("a type").is_dir() {
                true => open.push(entry.path()),
                false => file_count += 1,
            }
        }
    }
    assert_eq!((directory_count, file_count), (5, 20));
    place.clear().expect("cleared");
    for plan in [walk, copy] {
        let phases = plan.phases();
        let samples = rounds::run(&plan, &place, None).expect("a round");
        assert_eq!(samples.iter().map(|samples| samples.of_place.len()).sum::<usize>(), phases.len());
    }
    assert_eq!(std::fs::read_dir(&place.work).expect("it is there").count(), 0);
}

#[test]
fn workers_that_share_a_directory_have_names_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    for index in 0..2 {
        let (kind, dir) = (Kind::Md, dir.path().to_owned());
        let task = Task {
            kind,
            dir,
            index,
            files: 3,
            mib: 0,
            patterns: Vec::new(),
            ops: Vec::new(),
            shared: true,
            cold: false,
            client_cold: false,
            null: false,
        };
        let mut worker = Worker::new(&task).expect("a worker");
        worker.perform(Step::Create).expect("nobody else has these names");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 6);
}

#[test]
fn streams_are_read_in_the_same_directory() {
    let (dir, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
    let mut place = Place::new(dir.path()).expect("a place");
    assert!(place.read_streams_in(elsewhere.path()).is_err());
    assert_eq!(place.measured_beside, None);
    place.read_streams_in(dir.path()).expect("it shows itself");
    assert!(place.streams_as_read().starts_with(dir.path()));
}

#[test]
fn one_side_is_compared_with_one_thing() {
    let refused = |words: &[&str]| Line::try_parse_from([&["bench"], words].concat()).is_err();
    assert!(refused(&["md", "/tmp", "--compare", "/tmp", "--floor", "rpc"]));
    assert!(refused(&["mmap", "/tmp", "--compare", "/tmp", "--params", "a=1"]));
    assert!(refused(&["tree", "/tmp", "--procs", "2"]), "walks are of one process");
    assert!(!refused(&["mmap", "/tmp", "--params", "a=1"]));
    assert!(refused(&["tree", "/tmp", "--beside-procs", "2"]), "nothing is streamed");
    assert!(refused(&["tree", "/tmp", "--beside-mib", "9", "--small"]));
    assert!(!refused(&["tree", "/tmp", "--beside-mib", "9", "--beside-procs", "3", "--beside-dir", "/"]));
}

#[test]
fn a_listing_by_a_new_client_is_measured_where_somebody_says_how_to_have_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let usual = plan(Kind::Ls, dir.path());
    let with = Plan { remount_client: Some("remount".to_owned()), ..usual.clone() };
    let phases = |plan: &Plan| -> Vec<(&'static str, bool)> {
        let phases = plan.phases().into_iter();
        phases.map(|phase| (phase.name, plan.client_remount_before(phase.act).is_some())).collect()
    };
    assert_eq!(phases(&usual), [("ls -l cold", false), ("ls -l warm", false)]);
    let expected = [("ls -l cold", false), ("ls -l client cold", true), ("ls -l warm", false)];
    assert_eq!(phases(&with), expected);
}

/// What a server on this machine has in the page cache is not what a local disk reads.
#[test]
fn every_read_of_data_is_cold_where_that_is_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let cold_phases = |kind: Kind, is_cold: bool| -> Vec<&'static str> {
        let plan = Plan { is_cold, ..plan(kind, dir.path()) };
        let phases = plan.phases().into_iter();
        phases.filter(|phase| plan.is_cold_before(phase.act)).map(|phase| phase.name).collect()
    };
    for kind in [Kind::Io, Kind::Stream, Kind::Direct] {
        let reads = plan(kind, dir.path()).phases().into_iter().map(|phase| phase.name);
        let reads: Vec<&str> =
            reads.filter(|name| name.starts_with("read") && *name != "read 1M warm").collect();
        assert!(reads.len() >= 2, "{kind:?}");
        assert_eq!((cold_phases(kind, true), cold_phases(kind, false)), (reads, Vec::new()), "{kind:?}");
    }
    for words in [&["ls"][..], &["ls", "--names"]] {
        let words = [&["bench"], words, &[dir.path().to_str().expect("text"), "--cold"]].concat();
        let line = Line::try_parse_from(words).expect("a command");
        let said = super::run(&line.bench).map_err(|error| error.to_string());
        assert!(said.is_err_and(|said| said.starts_with("--cold is of ")), "it makes nothing cold");
    }
}

#[test]
fn a_comparison_with_what_stays_warm_is_told() {
    let of = |words: &[&str], has_floor, is_root| super::warm_note(&common(words), has_floor, is_root);
    let both = ["ls", "/", "--remount", "true", "--compare", "/"];
    assert!(of(&both, false, false).is_some_and(|note| note.contains("is warm")));
    assert_eq!(of(&both, false, true), None);
    assert!(of(&both[..4], true, false).is_some());
    assert_eq!(
        (of(&both[..4], false, false), of(&["ls", "/", "--compare", "/"], false, false)),
        (None, None)
    );
}

#[test]
fn the_median_of_an_even_number_lies_between_the_middle_two() {
    let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).expect("there are samples");
    assert_eq!((summary.n, summary.median, summary.min, summary.max), (4, 2.5, 1.0, 4.0));
    assert!((summary.spread_percent - 120.0).abs() < 1e-9);
    assert_eq!(Summary::of(&[7.0]).map(|summary| (summary.median, summary.spread_percent)), Some((7.0, 0.0)));
    assert_eq!(Summary::of(&[]), None);
}

#[test]
fn rates_are_per_second() {
    assert!((rate(Unit::OperationsPerSecond, 100, Duration::from_millis(500)) - 200.0).abs() < 1e-6);
    assert!((rate(Unit::MibPerSecond, 4 << 20, Duration::from_secs(2)) - 2.0).abs() < 1e-6);
}

#[test]
fn a_size_of_all_processes_is_shared_among_them() {
    let plan = Plan { mib: 2048, is_mib_of_all: true, ..Plan::of(Kind::Stream, 5) };
    assert_eq!([1, 4, 3].map(|procs| plan.of_each(procs).mib), [2048, 512, 682]);
    assert_eq!(plan.amount(), "2048 MiB of all processes together");
    let plan = Plan { is_mib_of_all: false, ..plan };
    assert_eq!([1, 4].map(|procs| plan.of_each(procs).mib), [2048, 2048]);
    let size = |word: &str| {
        let line = Line::try_parse_from(["bench", "stream", "/", "--size", word]).ok()?;
        let What::Stream(options) = line.bench.what else { panic!("another command") };
        options.size
    };
    assert_eq!(["2GiB", "2G", "512MiB", "7M"].map(size), [2048, 2048, 512, 7].map(Some));
    assert_eq!(["0M", "2", "GiB", "-1G", "9999999G", "2KiB", ""].map(size), [None; 7]);
    assert!(
        Line::try_parse_from(["bench", "stream", "/", "--size", "1G", "--mib", "5"]).is_err(),
        "one of them"
    );
}

#[test]
fn a_write_without_its_fsync_has_a_row_and_is_compared_with_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (place, other) =
        (Place::new(dir.path()).expect("a place"), Place::new(dir.path()).expect("another one"));
    let plan = plan(Kind::Stream, dir.path());
    let sample = |rate: f64, unsynced_rate: f64| Sample {
        rate,
        cost: None,
        shares: Shares::default(),
        counted: Duration::ZERO,
        first_entry: None,
        memory: None,
        unsynced_rate: (unsynced_rate > 0.0).then_some(unsynced_rate),
    };
    let samples: Vec<Samples> = plan
        .phases()
        .iter()
        .map(|phase| {
            let unsynced_rate = if phase.unsynced_name().is_some() { 900.0 } else { 0.0 };
            let (of_place, of_other) =
                (vec![sample(300.0, unsynced_rate)], vec![sample(600.0, 2.0 * unsynced_rate)]);
            Samples { phase: *phase, procs: 1, needed_bytes: None, of_place, of_other }
        })
        .collect();
    let mut report = Report::new("stream", &plan, &place, Some(&other));
    report.add(&samples);
    let json: serde_json::Value = serde_json::from_str(&report.to_json().expect("text")).expect("JSON");
    let rows: Vec<(&str, f64, Option<f64>)> = json["figures"]
        .as_array()
        .expect("figures")
        .iter()
        .map(|figure| {
            let operation = figure["operation"].as_str().expect("a name");
            (operation, figure["directory"]["median"].as_f64().expect("a rate"), figure["ratio"].as_f64())
        })
        .collect();
    let expected = [
        ("write 1M", 300.0, Some(0.5)),
        ("write 1M, no fsync", 900.0, None),
        ("read 1M", 300.0, Some(0.5)),
        ("read 1M warm", 300.0, Some(0.5)),
        ("write 1M direct", 300.0, Some(0.5)),
        ("write 1M direct, no fsync", 900.0, None),
        ("read 1M direct", 300.0, Some(0.5)),
    ];
    assert_eq!(rows, expected);
    assert!(json["figures"][1]["other"].is_null());
}
