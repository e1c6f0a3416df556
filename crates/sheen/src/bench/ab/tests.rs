use super::judge::Stored;
use super::*;
use crate::bench::beside::Shares;
use crate::bench::cost::{Cost, Counts};
use clap::Parser;
use std::time::Duration;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    ab: Ab,
}

fn options(words: &[&str]) -> Ab {
    let usual = ["ab", "127.0.0.1@tcp:/fs", "--workload", "md", "--a", ""];
    Line::try_parse_from([&usual, words].concat()).expect("a command").ab
}

fn error_of<T>(result: Result<T>) -> String {
    result.err().map(|error| format!("{error:#}")).unwrap_or_default()
}

#[test]
fn words_are_mount_options_or_parameters() {
    let parsed =
        Config::parse("noatime llite.*.max_read_ahead_mb=64 flock,ro {osc,mdc}.*.max_rpcs_in_flight=4");
    let parsed = format!("{:?}", parsed.expect("a configuration"));
    assert!(parsed.contains(r#"options: ["noatime", "flock,ro"]"#), "{parsed}");
    assert!(parsed.contains(r#"("{osc,mdc}.*.max_rpcs_in_flight", "4")"#), "{parsed}");
    assert!(Config::parse("").is_ok() && Config::parse("transport=dev").is_ok());
    for (config, words) in [
        ("noatme", "the mount option 'noatme' is not known; did you mean 'noatime'?"),
        ("llite.*.max_read_ahed_mb=1", "there is llite.*.max_read_ahead_mb"),
        ("llite.*.max_read_ahead_mb", "sets nothing; write PATH=VALUE"),
        ("llite.*.max_read_ahead_mb=many", "does not take 'many'"),
        ("remount", "each round has new mounts"),
    ] {
        assert!(
            error_of(Config::parse(config)).contains(words),
            "{config}: {}",
            error_of(Config::parse(config))
        );
    }
}

#[test]
fn fewer_than_five_rounds_are_refused_with_the_reason() {
    let said = error_of(run(&options(&["--b", "noatime", "-n", "4"])));
    assert!(said.contains("a single one decides") && said.contains("-n 5 or more"), "{said}");
    let said = error_of(run(&options(&["--b", "noatme", "-n", "5"])));
    assert!(said.contains("--b") && said.contains("noatime"), "{said}");
    let said = error_of(run(&options(&["--b", "", "-n", "5", "--plot", "/nonexistent/x.svg"])));
    assert!(said.contains("cannot write /nonexistent/x.svg"), "{said}");
    let said = error_of(run(&options(&["--b", "", "-n", "5", "--only", "stta"])));
    assert!(said.contains("'stta' is no phase") && said.contains("mkdir, create, stat"), "{said}");
}

/// The claim of the review: -4.4 % from noise.
#[test]
fn noise_is_no_difference() {
    let a = [100.0, 130.0, 90.0, 115.0, 85.0, 120.0, 95.0];
    let b = [96.0, 101.0, 120.0, 88.0, 118.0, 84.0, 125.0];
    let difference = Difference::of_rounds(&a, &b);
    assert!(!difference.is_real, "{difference:?}");
    assert!(difference.low_percent < 0.0 && difference.high_percent > 0.0, "{difference:?}");
    assert!((difference.percent - 1.0).abs() < 1e-9, "{difference:?}");
    assert!(!difference.is_regression_beyond(0.0));
}

#[test]
fn a_difference_that_every_round_shows_is_real() {
    let a = [100.0, 102.0, 98.0, 101.0, 99.0];
    let b = a.map(|rate| rate * 0.85);
    for difference in [Difference::of_rounds(&a, &b), Difference::of_runs(&a, &b)] {
        assert!(difference.is_real && (difference.percent + 15.0).abs() < 1e-9, "{difference:?}");
        assert!(difference.low_percent <= -15.0 + 1e-9 && difference.high_percent < -10.0, "{difference:?}");
        assert!(difference.is_regression_beyond(10.0) && !difference.is_regression_beyond(15.1));
    }
    let faster = Difference::of_rounds(&b, &a);
    assert!(faster.is_real && faster.percent > 17.0 && !faster.is_regression_beyond(0.0), "{faster:?}");
    assert_eq!(
        Difference::of_rounds(&a, &b),
        Difference::of_rounds(&a, &b),
        "the same samples, the same interval"
    );
}

/// What hits a whole round hits both sides of it: the pairs show more than the two heaps.
#[test]
fn rounds_that_differ_hide_nothing_when_their_sides_agree() {
    let a = [100.0, 50.0, 200.0, 80.0, 150.0, 60.0, 120.0];
    let b = a.map(|rate| rate * 0.8);
    assert!(Difference::of_rounds(&a, &b).is_real);
    assert!(!Difference::of_runs(&a, &b).is_real);
}

fn samples(rates: &[f64]) -> Samples {
    let cost = |rate: f64| Cost {
        operation_count: 100,
        rpc_unit_count: 100,
        client_cpu: Duration::from_secs_f64(1.0 / rate),
        server_cpu: Some(Duration::from_millis(500)),
        mdt_cpu: None,
        ost_cpu: None,
        is_client_serving: false,
        has_all_servers: true,
        counts: Some(Counts { requests: [("mds_create".to_owned(), 250)].into(), ..Counts::default() }),
    };
    let sample = |rate: &f64| Sample {
        rate: *rate,
        cost: Some(cost(*rate)),
        shares: Shares::default(),
        counted: Duration::ZERO,
        first_entry: None,
        memory: None,
        unsynced_rate: None,
    };
    Samples(vec![("mkdir", rates.iter().map(sample).collect())])
}

fn report_of(a: &[f64], b: &[f64], options: &Ab) -> Report {
    let phases: Vec<Phase> = plan(options).phases().into_iter().take(1).collect();
    report(options, &phases, &samples(a), &samples(b), None).expect("a report")
}

/// What the machine does meanwhile hits both sides, and nothing that one has warmed up serves the other.
#[test]
fn sides_take_turns_each_time_with_new_mounts_and_empty_caches() {
    struct Log(Vec<String>);
    impl Rounds for Log {
        type Mounted = String;

        fn mount(&mut self, side: usize) -> Result<String> {
            let name = format!("m{}.{side}", self.0.len());
            self.0.push(format!("mount {side}"));
            Ok(name)
        }

        fn fill(&mut self, side: usize, mounted: &mut String) -> Result<()> {
            assert!(mounted.ends_with(&format!(".{side}")));
            self.0.push("fill".to_owned());
            Ok(())
        }

        fn empty_caches(&mut self) -> Result<()> {
            self.0.push("empty".to_owned());
            Ok(())
        }

        fn measure(&mut self, side: usize, mounted: &String) -> Result<()> {
            assert!(mounted.ends_with(&format!(".{side}")));
            self.0.push(format!("measure {side}"));
            if self.0.len() > 28 { bail!("enough") } else { Ok(()) }
        }

        fn unmount(&mut self, mounted: String) -> Result<()> {
            assert!(mounted.starts_with(&format!("m{}.", self.0.len() - 4)), "those of this round");
            self.0.push("unmount".to_owned());
            Ok(())
        }
    }
    let round = |side| {
        let words = [&format!("mount {side}"), "fill", "empty", &format!("measure {side}"), "unmount"];
        words.map(str::to_owned).to_vec()
    };
    let mut log = Log(Vec::new());
    alternate(&["A", "B"], 2, &mut log).expect("rounds");
    assert_eq!(log.0, [0, 1, 0, 1].map(round).concat());
    let said = error_of(alternate(&["A", "B"], 5, &mut log));
    assert_eq!(said, "round 1, B: enough");
}

/// What is filled through one mount is measured through another: none of the measured ones knows more than a new client.
#[test]
fn a_place_is_filled_as_another_mount_shows_it() {
    let (dir, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
    let mut place = Place::new(dir.path()).expect("a place");
    let own = (place.measured.clone(), place.work.clone());
    let said = error_of(place.seen_in(elsewhere.path(), |_| panic!("nothing is made there")));
    assert!(said.contains("does not show what is made in"), "{said}");
    // As another mount shows the same: only the way there is another.
    let other = elsewhere.path().join("mount");
    std::os::unix::fs::symlink(dir.path(), &other).expect("a way there");
    let plan = Plan { file_count: 3, ..Plan::of(Kind::Ls, 1) };
    let fill = |place: &Place| {
        assert!(place.measured == other && place.work.starts_with(&other), "{}", place.work.display());
        place.fill(&plan)
    };
    place.seen_in(&other, fill).expect("filled");
    assert_eq!((place.measured.clone(), place.work.clone()), own);
    assert_eq!(fs::read_dir(&place.work).expect("it is there").count(), 3);
    assert!(place.seen_in(&other, |_| bail!("full")).is_err());
    assert_eq!((place.measured.clone(), place.work.clone()), own, "after an error too");
}

#[test]
fn what_is_cold_is_refused_without_root_before_anything_is_mounted() {
    let said = |workload: Workload| {
        let plan = Plan { is_cold: false, patterns: Pattern::ALL.to_vec(), ..Plan::of(workload.kind(), 5) };
        error_of(check_warm(&plan))
    };
    for workload in [Workload::Ls, Workload::Mmap, Workload::Small] {
        let word = workload.kind().word();
        assert_eq!(
            said(workload),
            format!("--workload {word} has cold phases, and only root drops the kernel's caches; be root")
        );
    }
    for workload in [Workload::Md, Workload::Io, Workload::Stream, Workload::Direct] {
        assert_eq!(said(workload), "", "{workload:?}");
    }
}

#[test]
fn each_side_says_how_many_rounds_it_had() {
    let b = options(&["--b", "noatime"]);
    let text = serde_json::to_string(&report_of(&[10.0; 10], &[1.0; 10], &b)).expect("JSON");
    let options = options(&["--baseline", "x"]);
    let stored = Stored::parse(&text, &options).expect("a baseline");
    let phases: Vec<Phase> = plan(&options).phases().into_iter().take(1).collect();
    let of_a = samples(&[11.0; 5]);
    let report = report(&options, &phases, &of_a, &Samples::of(&phases), Some(&stored)).expect("a report");
    let text = to_text(&report);
    let sides: Vec<&str> = text.lines().skip(1).take(2).collect();
    assert_eq!(sides, ["A: defaults, n=5", "baseline: defaults, n=10"], "{text}");
    assert_eq!(text.matches("n=").count(), 2, "{text}");
}

#[test]
fn the_gate_fails_on_a_real_regression_only() {
    let options = options(&["--b", "noatime"]);
    let a = [100.0, 102.0, 98.0, 101.0, 99.0];
    let slower = report_of(&a, &a.map(|rate| rate * 0.85), &options);
    assert!(check_gate(&slower, None).is_ok());
    assert!(check_gate(&slower, Some(20)).is_ok());
    let said = error_of(check_gate(&slower, Some(10)));
    assert_eq!(said, "slower by more than 10 %, and really so: mkdir by 15.0 %");
    let noisy = report_of(&a, &[40.0, 130.0, 80.0, 120.0, 60.0], &options);
    assert!(check_gate(&noisy, Some(10)).is_ok(), "{noisy:?}");
    assert!(to_text(&slower).contains("real") && to_text(&noisy).contains("no difference that is real"));
}

#[test]
fn a_stored_run_is_a_baseline_for_the_same_workload() {
    let options_of_b = options(&["--b", "noatime"]);
    let stored = report_of(&[10.0, 11.0, 12.0, 11.0, 10.0], &[1.0; 5], &options_of_b);
    let text = serde_json::to_string(&stored).expect("JSON");
    let same = options(&["--baseline", "x"]);
    let read = Stored::parse(&text, &same).expect("a baseline");
    assert_eq!(read.rates("mkdir").expect("samples"), [10.0, 11.0, 12.0, 11.0, 10.0]);
    assert!(error_of(read.rates("stat")).contains("the baseline has no 'stat'"));
    assert_eq!(read.cost("mkdir"), stored.phases[0].a_cost);
    assert!(read.cost("mkdir").is_some() && read.cost("stat").is_none());
    assert_eq!(read.other_machine, None, "it is this one");
    let mut elsewhere: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    elsewhere["cpu_count"] = 4096.into();
    let read = Stored::parse(&elsewhere.to_string(), &same).expect("a baseline");
    let said = read.other_machine.expect("it is another one");
    assert!(said.contains(", 4096 CPUs"), "{said}");
    let other = options(&["--baseline", "x", "--procs", "4"]);
    assert_eq!(
        error_of(Stored::parse(&text, &other)),
        "its procs is 1, and here it is 4; compare like with like"
    );
    assert!(error_of(Stored::parse("{}", &same)).contains("sheen bench ab --json"));
}

#[test]
fn a_picture_has_every_sample() {
    let report = report_of(&[1.0, 2.0, 3.0, 2.0, 2.0], &[4.0, 5.0, 6.0, 5.0, 5.0], &options(&["--b", "a<b"]));
    let svg = plot::svg(&report);
    assert_eq!(svg.matches("<circle").count(), 10);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("a&lt;b"), "{svg}");
}

#[test]
fn each_side_has_its_processor_time_and_its_requests() {
    let report = report_of(&[1.0, 2.0, 2.0, 2.0, 2.0], &[4.0; 5], &options(&["--b", "noatime"]));
    let text = to_text(&report);
    let line = text.lines().filter(|line| line.starts_with("mkdir ")).nth(1).expect("a line of costs");
    let words: Vec<&str> = line.split_whitespace().collect();
    // Half a second of the mount and half a second of servers, over a hundred operations.
    assert_eq!(words, ["mkdir", "1.000", "10000.0", "2.500", "0.750", "7500.0", "2.500"], "{text}");
    assert!(text.contains("CPU of mounts and servers"), "{text}");
}

#[test]
fn only_the_patterns_that_are_named_are_touched() {
    let of = |only: &[&str]| {
        let words = ["ab", "127.0.0.1@tcp:/fs", "--workload", "mmap", "--a", "", "--b", ""];
        let ab = Line::try_parse_from([&words, only].concat()).expect("a command").ab;
        let plan = plan(&ab);
        chosen(&plan, &ab.only).map(|phases| (phases.len(), plan.patterns))
    };
    assert_eq!(of(&["--only", "mmap seq"]).expect("one"), (1, vec![Pattern::Seq]));
    assert_eq!(of(&[]).expect("all"), (3, Pattern::ALL.to_vec()));
    assert!(
        error_of(of(&["--only", "mmap sequential"]))
            .contains("there are: mmap seq, mmap stride, mmap random")
    );
}
