use super::figures::Summary;
use super::rounds::rate;
use super::worker::Unit;
use std::time::Duration;

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
