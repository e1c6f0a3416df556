use super::*;

const START: Time = Time(1_000_000_000_000);

fn at(seconds: u64) -> Time {
    START.after(Duration::from_secs(seconds))
}

/// Ten clients that come within ten seconds and expect so much.
fn callers(expects: u64) -> Vec<Caller> {
    let caller = |number| Caller {
        comes: Some(at(number)),
        gone: None,
        expects: Duration::from_secs(expects),
        replay_count: 2,
    };
    (0..10).map(caller).collect()
}

fn seconds(verdict: Option<Verdict>) -> (u64, bool, u64) {
    let verdict = verdict.expect("somebody comes");
    (verdict.took.as_secs(), verdict.is_hard, verdict.evicted_living)
}

#[test]
fn when_all_come_nobody_waits() {
    assert_eq!(seconds(recover(&callers(600), true)), (10, false, 0));
    assert_eq!(seconds(recover(&callers(600), false)), (10, false, 0));
}

#[test]
fn one_who_never_comes_is_waited_for_as_long_as_the_others_say() {
    let mut callers = callers(600);
    callers[3].comes = None;
    assert_eq!(seconds(recover(&callers, true)), (876, false, 0), "25 s before the hard limit");
    assert_eq!(seconds(recover(&callers, false)), (301, false, 0));
    // Who expects less extends it less: 100 s and a quarter, and 125 s, are within the soft limit.
    callers.iter_mut().for_each(|caller| caller.expects = Duration::from_secs(100));
    assert_eq!(seconds(recover(&callers, true)), (301, false, 0));
    callers[7].expects = Duration::from_secs(400);
    assert_eq!(seconds(recover(&callers, true)), (626, false, 0));
}

#[test]
fn one_who_vanishes_after_that_brings_it_to_the_hard_limit() {
    let mut callers = callers(600);
    callers[3].comes = None;
    callers[5].gone = Some(at(400));
    assert_eq!(seconds(recover(&callers, true)), (900, true, 8));
    // Without the extension he has not vanished yet when it is over, and if he has, a minute is lost.
    assert_eq!(seconds(recover(&callers, false)), (301, false, 0));
    callers[5].gone = Some(at(100));
    assert_eq!(seconds(recover(&callers, false)), (361, false, 0));
}

#[test]
fn who_comes_too_late_is_evicted() {
    let mut callers = callers(200);
    callers[2].comes = Some(at(420));
    assert_eq!(seconds(recover(&callers, true)), (376, false, 1));
}

#[test]
fn a_client_notices_by_its_own_request_or_by_a_ping() {
    let second = Duration::from_secs(1);
    // 5 s expected: late after 11.25 s. The ping would have found nobody after 75 s.
    assert_eq!(notices(START, Some((START, second)), START), START.after(Duration::from_millis(11_250)));
    assert_eq!(notices(START, Some((START, second * 600)), START), at(75));
    assert_eq!(notices(at(10), None, START), at(75));
    // Late before the MDT died: early replies had put that off.
    assert_eq!(notices(at(100), Some((START, second * 8)), START), at(105));
}
