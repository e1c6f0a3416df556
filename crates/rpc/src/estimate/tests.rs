use super::*;

fn at(milliseconds: u64) -> Time {
    Time(5_000_000_000).after(ms(milliseconds))
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Requests that a target answers after so long, sent again as an import does; how often in all.
fn ask(estimate: &mut Estimate, from: u64, count: u64, takes: u64) -> u64 {
    let mut resent_count = 0;
    for number in 0..count {
        let sent = at(from + number * takes);
        let (mut waited, mut wait) = (Duration::ZERO, estimate.late_after(sent));
        let mut is_resent = false;
        while waited + wait < ms(takes) {
            waited += wait;
            wait *= 2;
            is_resent = true;
            resent_count += 1;
            estimate.on_late(sent.after(waited), sent);
        }
        estimate.on_answer(sent.after(ms(takes)), sent, is_resent);
    }
    resent_count
}

#[test]
fn at_rest_a_request_is_late_as_early_as_can_be() {
    let mut estimate = Estimate::default();
    assert_eq!(estimate.late_after(at(0)), RESEND_FIRST);
    assert_eq!(ask(&mut estimate, 0, 100, 4), 0);
    assert_eq!(estimate.late_after(at(500)), RESEND_FIRST + ms(5));
}

#[test]
fn the_time_of_a_target_that_becomes_slow_is_found() {
    let mut estimate = Estimate::default();
    ask(&mut estimate, 0, 100, 1);
    // Much later than a request is late: it is sent again, and the next ones are waited for.
    let resent = ask(&mut estimate, 1000, 3, 20_000);
    assert!((1..=4).contains(&resent), "{resent}");
    assert_eq!(estimate.report(at(61_000)).current, ms(20_000));
    assert_eq!(ask(&mut estimate, 61_000, 5, 20_000), 0);
    assert_eq!(estimate.late_after(at(161_000)), ms(25_000) + RESEND_FIRST);
}

#[test]
fn an_answer_that_does_not_come_raises_the_estimate_up_to_its_bound() {
    let mut estimate = Estimate::default();
    ask(&mut estimate, 0, 10, 1);
    for second in [2, 30, 300, 599] {
        estimate.on_late(at(second * 1000), at(0));
        assert_eq!(estimate.report(at(second * 1000)).current, ms(second * 1000));
    }
    estimate.on_late(at(3_600_000), at(0));
    assert_eq!(estimate.report(at(3_600_000)).current, TimeoutBounds::default().max);
}

#[test]
fn a_lost_frame_leaves_nothing_behind() {
    let mut estimate = Estimate::default();
    ask(&mut estimate, 0, 10, 1);
    for number in 0..50 {
        let sent = at(1000 + number * 10_000);
        let late = sent.after(estimate.late_after(sent));
        estimate.on_late(late, sent);
        estimate.on_answer(late.after(ms(1)), sent, true);
        assert!(estimate.report(late.after(ms(1))).current >= RESEND_FIRST);
        // Sent before that, it says nothing of what is sent now.
        estimate.on_answer(late.after(ms(2)), late, false);
        assert!(estimate.report(late.after(ms(2))).current >= RESEND_FIRST);
        estimate.on_answer(late.after(ms(12)), late.after(ms(10)), false);
        assert_eq!(estimate.report(late.after(ms(12))).current, ms(2));
    }
}

#[test]
fn a_slow_answer_counts_for_the_time_of_the_history() {
    let bounds = TimeoutBounds { history: ms(40_000), ..TimeoutBounds::default() };
    let mut estimate = Estimate::default();
    estimate.set_bounds(bounds);
    estimate.on_answer(at(1000), at(0), false);
    for second in 1..=29 {
        estimate.on_answer(at(second * 1000 + 1), at(second * 1000), false);
        assert_eq!(estimate.report(at(second * 1000 + 1)).current, ms(1000), "{second}");
    }
    let report = estimate.report(at(30_000));
    assert_eq!(report.parts, [ms(1), ms(1), ms(1), ms(1000)]);
    assert_eq!(estimate.report(at(71_000)).current, Duration::ZERO, "nothing was asked for longer than that");
    assert_eq!((report.worst, report.worst_at), (ms(1000), Some(at(1000))));
    assert_eq!(report.last_answer, Some(at(29_001)));
}

#[test]
fn an_operator_bounds_the_estimate_and_switches_it_off() {
    let mut estimate = Estimate::default();
    let bounds = TimeoutBounds { min: ms(5000), max: ms(8000), ..TimeoutBounds::default() };
    estimate.set_bounds(bounds);
    assert_eq!(estimate.late_after(at(0)), ms(6250) + RESEND_FIRST);
    estimate.on_answer(at(30_000), at(0), false);
    assert_eq!(estimate.report(at(30_000)).current, ms(8000));
    estimate.set_bounds(TimeoutBounds { max: Duration::ZERO, ..bounds });
    assert_eq!(estimate.late_after(at(30_000)), RESEND_FIRST);
}

#[test]
fn another_incarnation_begins_anew() {
    let mut estimate = Estimate::default();
    estimate.on_answer(at(30_000), at(0), false);
    estimate.on_late(at(60_000), at(1000));
    estimate.forget();
    assert_eq!(estimate.report(at(60_000)).current, Duration::ZERO);
    assert_eq!(estimate.report(at(60_000)).worst, ms(30_000), "of all times");
}
