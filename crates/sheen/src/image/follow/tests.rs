use super::*;

fn pauses(is_changing: bool, changing_seconds: u64, since_news_s: u64) -> Vec<u128> {
    let mark = Mark { is_changing, changing_seconds, ..Mark::default() };
    let mut pause = POLL;
    let mut next = || {
        pause = next_pause(pause, &mark, Duration::from_secs(since_news_s));
        pause.as_millis()
    };
    (0..8).map(|_| next()).collect()
}

#[test]
fn names_are_forgotten_all_the_time_while_an_update_runs_and_seldom_when_it_says_nothing() {
    assert_eq!(pauses(true, 0, 0), [0; 8]);
    assert_eq!(pauses(true, 64, 100), [0; 8], "the next word comes after 64 s more");
    assert_eq!(pauses(true, 64, 200), [200, 400, 800, 1600, 3200, 5000, 5000, 5000], "broken off");
    assert_eq!(pauses(false, 64, 0)[..4], [200, 400, 800, 1600], "it has ended");
}

#[test]
fn a_pause_grows_again_after_a_time_without() {
    let mark = Mark { is_changing: true, ..Mark::default() };
    assert_eq!(next_pause(Duration::ZERO, &mark, Duration::from_secs(60)), POLL);
}
