#![allow(clippy::unwrap_used)]

use super::*;

fn report(verdict: Verdict, is_optional: bool) -> Report {
    Report { name: "step".to_owned(), seconds: 1.0, verdict, is_optional, note: String::new() }
}

#[test]
fn a_failed_step_fails_even_when_it_is_optional() {
    assert!(table(&[report(Verdict::Passed, false)], Duration::ZERO, false));
    assert!(!table(&[report(Verdict::Failed("why".to_owned()), true)], Duration::ZERO, false));
}

#[test]
fn only_an_optional_step_may_be_left_out() {
    let not_run = || Verdict::NotRun("time budget".to_owned());
    assert!(table(&[report(not_run(), true)], Duration::ZERO, false));
    assert!(!table(&[report(not_run(), false)], Duration::ZERO, false));
}

#[test]
fn mandatory_steps_are_skipped_only_with_leave_and_the_last_line_names_them() {
    let skipped = |is_optional| report(Verdict::Skipped("no /dev/fuse".to_owned()), is_optional);
    let (mandatory, optional) = ([skipped(false)], [skipped(true)]);
    assert!(!table(&mandatory, Duration::ZERO, false));
    assert!(table(&mandatory, Duration::ZERO, true));
    assert!(table(&optional, Duration::ZERO, false));
    assert!(!table(
        &[skipped(false), report(Verdict::NotRun("late".to_owned()), false)],
        Duration::ZERO,
        true
    ));
    let said = |reports: &[Report], allow_skips| Outcome::of(reports).to_text(allow_skips);
    let counts = "0 failed, 0 mandatory ones not run, 1 mandatory and 0 optional ones skipped: step";
    assert_eq!(said(&mandatory, false), format!("{counts} (--allow-skips passes without them)"));
    assert_eq!(said(&mandatory, true), format!("{counts} (allowed)"));
    assert!(said(&optional, false).ends_with("0 mandatory and 1 optional ones skipped"));
}

#[test]
fn a_suite_without_the_program_of_its_name_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    fs::write(dir.path().join("bin/pjdfstest"), "").unwrap();
    let is_missing = |suite| plan::program_missing(dir.path(), suite).is_some();
    assert_eq!(["pjdfstest", "fsx", "posix"].map(is_missing), [false, true, false]);
}

#[test]
fn a_switch_that_is_on_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let switch = dir.path().join("enable_uring");
    let after = |text: &str| {
        fs::write(&switch, text).unwrap();
        turn_on(&switch).unwrap();
        fs::read_to_string(&switch).unwrap()
    };
    assert_eq!([after("Y\n"), after("N\n")], ["Y\n", "1"]);
}

#[test]
fn optional_steps_stop_beginning_before_mandatory_ones() {
    let plan = Plan::new().unwrap();
    let now = Instant::now();
    let deadlines = Deadlines { optional: now, hard: now + Duration::from_secs(3600) };
    for step in &plan.steps {
        assert_eq!(deadlines.limit(step).is_err(), step.is_optional, "{}", step.name);
        assert!(deadlines.limit(step).unwrap_or_default() <= step.limit);
    }
}

#[test]
fn every_suite_has_a_place_in_the_plan() {
    let plan = Plan::new().unwrap();
    for suite in mount_suites::suites::ALL {
        let is_planned = plan.steps.iter().any(|step| step.name == suite.name);
        assert!(is_planned, "{} is in no step", suite.name);
    }
}

#[test]
fn nodes_boot_for_cases_that_exist() {
    let unknown: Vec<&str> =
        plan::BOOTED.iter().copied().filter(|name| !crate::boot::has_case(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let plan = Plan::new().unwrap();
    let boot = plan.steps.iter().find(|step| step.name == "boot").unwrap();
    let command = boot.commands(&plan, boot.limit).pop().unwrap();
    assert!(plan::BOOTED.iter().all(|name| command.get_args().any(|word| word == *name)), "{command:?}");
}

/// A name that no test has would pass.
#[test]
fn the_planted_mistake_has_its_test() {
    let (module, name) = plan::PLANTED_TEST.split_once("::").unwrap();
    let path = crate::workspace::root().unwrap().join(format!("crates/mds/tests/it/{module}.rs"));
    assert!(fs::read_to_string(path).unwrap().contains(&format!("fn {name}(")));
}

#[test]
fn a_step_that_hangs_fails_at_its_limit() {
    let directory = std::env::temp_dir().join(format!("sheen-xtask-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let limit = Duration::from_millis(500);
    let verdict_of = |is_short| {
        let work = Work { name: "hangs", limit, is_short, logs: &directory, mounts: &directory };
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; trap '' TERM; while true; do sleep 1; done"]);
        work.run(vec![command]).unwrap()
    };
    assert!(matches!(verdict_of(false), Verdict::Failed(why) if why.contains("time limit")));
    // What the budget of all steps ends has not failed.
    assert!(matches!(verdict_of(true), Verdict::NotRun(why) if why.contains("time budget")));
    std::fs::remove_dir_all(&directory).unwrap();
}
