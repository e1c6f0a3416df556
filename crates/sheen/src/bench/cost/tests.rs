use super::{Daemons, Meter, samples};
use crate::sys;
use std::path::Path;
use std::time::Duration;

#[test]
fn of_a_stats_text_the_counted_rows_are_taken() {
    let text = "snapshot_time             1.2 secs.nsecs\n\
                mds_close                 3 samples [usecs] 25 57 109 4603\n\
                cross_mdt                 2 samples [reqs]\n";
    assert_eq!(samples(text), [("mds_close".to_owned(), 3), ("cross_mdt".to_owned(), 2)]);
}

#[test]
fn a_directory_that_is_not_ours_has_no_cost() {
    assert_eq!(Daemons::of(Path::new("/proc")), None);
    assert!(Meter::start(None).is_none());
}

#[test]
fn cpu_time_of_threads_that_have_ended_is_counted() {
    let before = sys::cpu_time(std::process::id()).expect("our own clock");
    let wanted = before + Duration::from_millis(2);
    let burn = move || while sys::cpu_time(std::process::id()).expect("our own clock") < wanted {};
    std::thread::spawn(burn).join().expect("it ends");
    assert!(sys::cpu_time(std::process::id()).expect("our own clock") >= wanted);
}

#[test]
fn a_process_that_is_both_has_one_figure_and_no_requests() {
    let meter = Meter::start(Some(Daemons::null(std::process::id()))).expect("our own process");
    let cost = meter.stop(10).expect("it lives");
    assert_eq!((cost.operation_count, cost.is_client_serving), (10, true));
    assert_eq!((cost.server_cpu, cost.requests), (None, None));
}
