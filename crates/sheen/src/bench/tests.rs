use super::Kind;
use super::figures::Summary;
use super::rounds::rate;
use super::worker::{Task, Unit, Worker};
use std::time::Duration;

#[test]
fn every_phase_of_every_kind_does_its_amount_and_names_are_gone_at_the_end() {
    for (kind, amounts) in [
        (Kind::Md, vec![20; 7]),
        (Kind::Io, [vec![2 << 20; 4], vec![2 << 16; 2], vec![2 << 16; 2]].concat()),
        (Kind::Stream, vec![2 << 20; 4]),
        (Kind::Ls, vec![3; 2]),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        if kind == Kind::Ls {
            for name in ["a", "b", "c"] {
                std::fs::write(dir.path().join(name), name).expect("a file");
            }
        }
        let task = Task { kind, dir: dir.path().to_path_buf(), index: 0, files: 20, mib: 2 };
        let mut worker = Worker::new(&task).expect("a worker");
        let perform = |phase: &super::worker::Phase| {
            worker.prepare(phase.step).expect("prepared");
            worker.perform(phase.step).expect("performed")
        };
        assert_eq!(kind.phases().iter().map(perform).collect::<Vec<u64>>(), amounts, "{kind:?}");
        if kind == Kind::Md {
            assert_eq!(std::fs::read_dir(dir.path().join("p0")).expect("it is there").count(), 0);
        }
    }
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
