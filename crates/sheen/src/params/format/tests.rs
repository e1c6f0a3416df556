use super::*;

#[test]
fn a_stats_line_has_figures_unless_it_only_counts() {
    let stat = Stat { count: 2, min: 1, max: 3, sum: 4, sum_of_squares: 10 };
    let rows = [("open", "usecs", stat), ("sync", "reqs", stat), ("never", "usecs", Stat::default())];
    let text = stats(WallTime::from_parts(7, 5), &rows);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("snapshot_time ") && lines[0].ends_with(" secs.nsecs"));
    assert!(lines[1].starts_with("start_time ") && lines[1].ends_with(" 7.000000005 secs.nsecs"));
    assert!(lines[2].starts_with("elapsed_time "));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[3]), ["open", "2", "samples", "[usecs]", "1", "3", "4", "10"]);
    assert_eq!(words(lines[4]), ["sync", "2", "samples", "[reqs]"]);
    assert_eq!(lines.len(), 5);
}

#[test]
fn a_table_ends_when_both_sides_are_complete() {
    let mut out = String::new();
    table(&mut out, &Head::of_rpcs("pages per rpc", bucket_name), &[3, 0, 1, 0, 0], &[0, 5]);
    let rows: Vec<&str> = out.lines().skip(3).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0].split_whitespace().collect::<Vec<_>>(), ["1:", "3", "75", "75", "|", "0", "0", "0"]);
    assert_eq!(
        rows[2].split_whitespace().collect::<Vec<_>>(),
        ["4:", "1", "25", "100", "|", "0", "0", "100"]
    );
}

#[test]
fn buckets_have_binary_units() {
    assert_eq!([0, 9, 10, 20].map(bucket_name), ["1", "512", "1K", "1M"]);
}

#[test]
fn timeouts_are_whole_seconds_with_the_time_of_the_longest() {
    let now = Now { time: Time(200_000_000_000_000), wall: WallTime::from_parts(1_700_000_000, 5) };
    let ago = |seconds: u64| Some(Time(now.time.0 - seconds * 1_000_000_000));
    let report = TimeoutReport {
        last_answer: ago(3),
        current: Duration::from_millis(33_001),
        worst: Duration::from_secs(40),
        worst_at: ago(86_400 + 3600 + 61),
        parts: [1, 0, 33_001, 2000].map(Duration::from_millis),
    };
    let text = timeouts(now, &report);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "last reply : 1699999997, 0d0h00m03s ago");
    assert_eq!(lines[1], "service    : cur  34  worst  40 (at 1699909939, 1d1h01m01s ago)   1   0  34   2");
    assert_eq!(timeouts(now, &TimeoutReport::default()), "service    : cur   0  worst   0   0   0   0   0\n");
}

/// Section for section as Lustre has it; what parsers take from it are the words.
#[test]
fn requests_for_data_are_shown_in_four_tables() {
    let mut counts = TargetStats { read_rpcs_now: 2, ..TargetStats::default() };
    for (pages, place, in_flight, micros) in [(1, 0, 1, 90), (256, 256, 2, 700), (256, 300, 40, 700)] {
        counts.read_pages_per_rpc.add(pages);
        counts.read_page_offsets.add_place(place);
        counts.read_rpcs_in_flight.add_linear(in_flight);
        counts.read_micros.add(micros);
    }
    counts.write_page_offsets.add_place(1);
    let text = rpc_stats(&counts, 4097);
    let lines: Vec<Vec<&str>> = text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    let lines: Vec<String> =
        lines.iter().map(|words| words.join(" ")).filter(|line| !line.is_empty()).collect();
    let starts = |line: &&String| ["read write", "0:", "2:"].iter().all(|start| !line.starts_with(start));
    let shown: Vec<&str> =
        lines.iter().filter(starts).map(String::as_str).filter(|line| !line.contains(": 0 0 ")).collect();
    assert_eq!(
        shown,
        [
            "read RPCs in flight: 2",
            "write RPCs in flight: 0",
            "pending write pages: 2",
            "pending read pages: 0",
            "pages per rpc rpcs % cum % | rpcs % cum %",
            "1: 1 33 33 | 0 0 0",
            "256: 2 66 100 | 0 0 0",
            "rpcs in flight rpcs % cum % | rpcs % cum %",
            "1: 1 33 33 | 0 0 0",
            "31: 1 33 100 | 0 0 0",
            "offset rpcs % cum % | rpcs % cum %",
            "256: 2 66 100 | 0 0 100",
            "RPC latency (us) rpcs % cum % | rpcs % cum %",
            "128: 1 33 33 | 0 0 0",
            "1K: 2 66 100 | 0 0 0",
        ],
        "{text}"
    );
    assert!(
        lines.contains(&"0: 1 33 33 | 0 0 0".to_owned())
            && lines.contains(&"1: 0 0 33 | 1 100 100".to_owned()),
        "{text}"
    );
}

#[test]
fn what_requests_cost_the_disk_is_shown_in_six_tables() {
    let mut oss = OssStats::default();
    let mut disk = (DiskUse::default(), DiskUse::default());
    oss.write.add(1 << 20);
    disk.1.calls.add_linear(17);
    disk.1.in_flight.add_linear(1);
    disk.1.millis.add(3);
    for call_bytes in [61_440, 65_536, 65_536] {
        disk.1.call_bytes.add(call_bytes);
    }
    let text = brw_stats(&oss, &disk);
    let lines: Vec<String> =
        text.lines().skip(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let shown: Vec<&str> =
        lines.iter().map(String::as_str).filter(|line| !line.is_empty() && *line != "read | write").collect();
    assert_eq!(
        shown,
        [
            "pages per bulk r/w rpcs % cum % | rpcs % cum %",
            "256: 0 0 0 | 1 100 100",
            "discontiguous pages rpcs % cum % | rpcs % cum %",
            "0: 0 0 0 | 1 100 100",
            "disk fragmented I/Os ios % cum % | ios % cum %",
            "17: 0 0 0 | 1 100 100",
            "disk I/Os in flight ios % cum % | ios % cum %",
            "1: 0 0 0 | 1 100 100",
            "I/O time (1/1000s) ios % cum % | ios % cum %",
            "4: 0 0 0 | 1 100 100",
            "disk I/O size ios % cum % | ios % cum %",
            "64K: 0 0 0 | 3 100 100",
        ],
        "{text}"
    );
}

#[test]
fn pages_have_figures_without_squares_and_only_where_there_are_some() {
    let counted = Stat { count: 9, ..Stat::default() };
    let windows = Stat { count: 2, min: 1, max: 256, sum: 257, sum_of_squares: 65_537 };
    let huge = Stat { count: 1, min: 1, max: 1, sum: 1, sum_of_squares: u128::MAX };
    let text = stats(
        WallTime::default(),
        &[("hits", "pages", counted), ("readahead_pages", "pages", windows), ("read_bytes", "bytes", huge)],
    );
    let lines: Vec<String> =
        text.lines().skip(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "hits 9 samples [pages]".to_owned(),
            "readahead_pages 2 samples [pages] 1 256 257".to_owned(),
            format!("read_bytes 1 samples [bytes] 1 1 1 {}", u64::MAX),
        ]
    );
}
