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
    table(&mut out, "pages per rpc", "rpcs", &[3, 0, 1, 0, 0], &[0, 5]);
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
