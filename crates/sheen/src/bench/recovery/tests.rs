#![allow(clippy::unwrap_used)]
use super::load::Progress;
use super::*;
use crate::cli::{Cli, Command};
use clap::Parser;

fn options(words: &[&str]) -> Recovery {
    let line = [&["sheen", "bench", "recovery", "/nowhere"], words].concat();
    let Command::Bench(bench) = Cli::try_parse_from(line).unwrap().command else { panic!("a bench") };
    let super::super::What::Recovery(options) = bench.what else { panic!("of recovery") };
    options
}

#[test]
fn all_cases_run_without_and_with_dead_mounts_unless_something_else_is_said() {
    let usual = options(&[]);
    assert_eq!((usual.clients, usual.cases()), (32, Case::ALL.to_vec()));
    assert_eq!(usual.killed_counts().unwrap(), [0, 10]);
    assert_eq!(options(&["--clients", "4"]).killed_counts().unwrap(), [0, 3]);
    assert_eq!(options(&["--clients", "1"]).killed_counts().unwrap(), [0]);
    let given = options(&["--case", "mdt,mdt-and-mgs", "--kill-clients", "2"]);
    assert_eq!((given.cases(), given.killed_counts().unwrap()), (vec![Case::Mdt, Case::MdtAndMgs], vec![2]));
    let error = options(&["--clients", "3", "--kill-clients", "0,3"]).killed_counts().unwrap_err();
    assert_eq!(error.to_string(), "--kill-clients 3 leaves none of 3 mounts; give more --clients");
}

#[test]
fn each_case_kills_what_its_name_says() {
    let servers = ["mgs", "mdt0000", "ost0000", "ost0001"];
    let killed = |case: Case| servers.into_iter().filter(|name| case.is_killed(name)).collect::<Vec<_>>();
    assert!(killed(Case::None).is_empty());
    assert_eq!(killed(Case::Mdt), ["mdt0000"]);
    assert_eq!(killed(Case::Ost), ["ost0000"]);
    assert_eq!(killed(Case::Mgs), ["mgs"]);
    assert_eq!(killed(Case::All), servers);
    assert_eq!(killed(Case::MdtAndMgs), ["mgs", "mdt0000"]);
    for case in Case::ALL {
        assert_eq!(Case::from_str(case.word(), false), Ok(case), "what is printed can be given");
    }
}

fn sound_round() -> Round {
    let second = 1_000_000_000;
    Round {
        killed_ns: 10 * second,
        listening_ns: 11 * second,
        progress: vec![
            Progress { first_ns: 10 * second + second / 2, own_ns: 11 * second, last_ns: 12 * second },
            Progress { first_ns: 12 * second, own_ns: 12 * second + second / 2, last_ns: 13 * second },
        ],
        longest_ns: 2 * second,
        sound_count: 7,
        ..Round::default()
    }
}

#[test]
fn times_are_told_from_the_kill_and_from_listening() {
    let mut report = Report::new(&options(&["--clients", "2"]));
    report.add(Figure::of("mdt", 0, &[sound_round()]));
    report.check().unwrap();
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    let figure = &json["figures"][0];
    let median = |name: &str| figure[name]["median"].as_f64();
    assert_eq!(median("listening_seconds"), Some(1.0));
    assert_eq!(median("first_progress_seconds"), Some(-0.5));
    assert_eq!(median("own_progress_seconds"), Some(1.5));
    assert_eq!(median("last_progress_seconds"), Some(2.0));
    assert_eq!(median("last_progress_after_kill_seconds"), Some(3.0));
    assert_eq!(median("longest_pause_seconds"), Some(2.0));
    assert_eq!(figure["files_sound"], 7);
}

#[test]
fn whatever_is_lost_fails_the_command_and_is_shown() {
    let lost: [fn(&mut Round); 4] = [
        |round| round.went_on(7, None),
        |round| round.failed_count = 1,
        |round| round.broken("a file is gone"),
        |round| round.evicted_count = 1,
    ];
    for lose in lost {
        let mut round = sound_round();
        lose(&mut round);
        let mut report = Report::new(&options(&[]));
        report.add(Figure::of("ost", 3, &[sound_round(), round]));
        let error = report.check().unwrap_err().to_string();
        assert!(error.contains("ost with 3 mounts killed: "), "{error}");
    }
    let mut round = sound_round();
    round.went_on(7, None);
    round.broken("a file is gone");
    let mut report = Report::new(&options(&[]));
    report.add(Figure::of("ost", 3, &[round]));
    assert!(report.to_text().contains("    a file is gone\n"));
    assert!(report.to_text().contains("    mount 7 did not go on "), "{}", report.to_text());
    let figure = serde_json::to_value(&report).unwrap()["figures"][0].clone();
    assert_eq!(figure["mounts_stalled"], 1);
    assert!(figure["last_progress_seconds"].is_null(), "when the last one went on is not known");
    assert!(figure["own_progress_seconds"].is_null() && figure["first_progress_seconds"].is_object());
}
