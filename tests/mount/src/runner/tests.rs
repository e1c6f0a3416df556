use super::*;

#[test]
fn a_run_of_which_no_case_could_work_is_skipped() {
    let skipped = || Verdict::Skipped("no pjdfstest".to_owned());
    let report = |name: &str, verdict| Report { name: format!("suite/{name}"), seconds: 1.0, verdict };
    let outcome = |verdicts: [Verdict; 2]| {
        let [one, other] = verdicts;
        Outcome::of(&[report("one", one), report("other", other), report("stop", Verdict::Passed)])
    };
    assert_eq!(outcome([skipped(), skipped()]), Outcome::Skipped("no pjdfstest".to_owned()));
    assert_eq!(outcome([skipped(), Verdict::Passed]), Outcome::Complete);
    assert_eq!(outcome([Verdict::Passed, Verdict::Passed]), Outcome::Complete);
    assert_eq!(outcome([skipped(), Verdict::NotRun("late".to_owned())]), Outcome::Incomplete);
}
