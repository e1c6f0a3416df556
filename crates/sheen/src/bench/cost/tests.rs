use super::{Counts, Daemons, Meter, Requests, Row, read_sizes, rows, value};
use crate::sys;
use std::path::Path;
use std::time::Duration;

#[test]
fn of_a_stats_text_the_counted_rows_are_taken() {
    let text = "snapshot_time             1.2 secs.nsecs\n\
                mds_close                 3 samples [usecs] 25 57 109 4603\n\
                cross_mdt                 2 samples [reqs]\n";
    let row = |name: &str, count, sum| Row { name: name.to_owned(), count, sum };
    assert_eq!(rows(text), [row("mds_close", 3, 109), row("cross_mdt", 2, 0)]);
}

#[test]
fn sizes_of_reads_are_in_the_first_table_of_rpc_stats() {
    let mut stats = client::stats::TargetStats::default();
    for pages in [1, 200, 256, 1024] {
        stats.read_pages_per_rpc.add(pages);
        stats.read_rpcs_in_flight.add_linear(1);
    }
    stats.write_pages_per_rpc.add(4096);
    let sizes = read_sizes(&crate::params::format::rpc_stats(&stats, 0));
    let reads: Vec<(u64, u64)> = sizes.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(reads, [(1, 1), (256, 2), (1024, 1)]);
}

#[test]
fn what_was_set_to_zero_meanwhile_is_not_counted_below_zero() {
    let counts = |count| Counts {
        requests: [("ost_read".to_owned(), count)].into(),
        served_requests: Some([("ost_read".to_owned(), count), ("peer".to_owned(), 7)].into()),
        mdt_requests: count,
        ost_requests: count,
        reads_by_pages: [(256, count)].into(),
        read_bytes: count,
        base_read_count: count,
        base_read_bytes: count,
        mdt_device_bytes: count,
        ost_device_bytes: count,
        mdt_sync_count: count,
        mdt_awaited_sync_count: count,
    };
    let since =
        |count| Counts { served_requests: Some([("ost_read".to_owned(), count)].into()), ..counts(count) };
    assert_eq!(counts(5).since(&counts(2)), since(3));
    let nothing = Counts { served_requests: Some(Requests::new()), ..Counts::default() };
    assert_eq!(counts(1).since(&counts(2)), nothing);
    let unknown = Counts { served_requests: None, ..counts(5) };
    assert_eq!(unknown.since(&counts(2)).served_requests, None);
}

#[test]
fn a_number_is_found_under_its_whole_name() {
    let text = "base_reads                185\nbase_read_bytes           758000\n";
    assert_eq!((value(text, "base_reads"), value(text, "base_read_bytes")), (185, 758_000));
    assert_eq!(value(text, "base"), 0);
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
    let cost = meter.stop(10, 10).expect("it lives");
    assert_eq!((cost.operation_count, cost.is_client_serving), (10, true));
    assert_eq!((cost.server_cpu, cost.counts), (None, None));
}
