#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_full_log_is_moved_aside_and_the_oldest_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let log = RotatingLog::open(&path).unwrap();
    for round in 0..6_u8 {
        log.make_writer().write_all(&[round]).unwrap();
        log.lock().byte_count = LOG_BYTES_MAX;
    }
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    assert_eq!([read("a.log"), read("a.log.1"), read("a.log.3")], [[5], [4], [2]]);
    assert!(!dir.path().join("a.log.4").exists());
}

#[test]
fn logs_side_by_side_keep_their_old_ones_apart() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["x.ost0", "x.ost1", "x"];
    for name in names {
        let log = RotatingLog::open(&dir.path().join(name)).unwrap();
        log.make_writer().write_all(name.as_bytes()).unwrap();
        log.lock().byte_count = LOG_BYTES_MAX;
        log.make_writer().write_all(b"next").unwrap();
    }
    for name in names {
        assert_eq!(fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap(), name);
    }
}

/// A word that is no level would be the name of a part, and everything else would not be logged any more.
#[test]
fn a_word_that_is_misspelt_switches_no_log_off() {
    let refused = |words: &str| format!("{:#}", parse_filter(words).unwrap_err());
    assert!(refused("wran").starts_with("'wran' is no level; write error, warn, info"));
    assert_eq!(refused("mds=debugg"), "'debugg' is no level; did you mean 'debug'?");
    assert_eq!(refused("info,mdss=debug"), "there is no part 'mdss' that logs; did you mean 'mds'?");
    assert!(refused("info,nonsuch=debug").contains("parts are base, client"));
    for words in ["foo", "mds", "info,", "=", "=debug", "mds=", "info,mds=debug=trace", "sheen::a[b]=info"] {
        let line = refused(words);
        assert!(!line.contains('\n') && line.contains("info"), "{words}: {line}");
    }
    for words in ["", "warn", "off", "info,mds=debug", "debug,store_disk=warn,sheen::mount=trace"] {
        assert!(parse_filter(words).is_ok(), "{words}");
    }
}

#[test]
fn the_parts_that_log_are_the_crates_of_this_program() {
    let crates = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = crates.map(|entry| name(entry).replace('-', "_")).collect();
    names.sort();
    assert_eq!(names, PARTS);
}

/// Who makes a server say one thing again and again does not take the rest of its log away.
#[test]
fn what_is_said_very_often_leaves_the_log_to_the_rest() {
    const FLOOD: u64 = 10 * LINES_AT_ONCE as u64;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let log = RotatingLog::open(&path).unwrap();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!("before");
        (0..FLOOD).for_each(|number| tracing::warn!(number, "flood"));
        tracing::warn!("after");
        (0..=LINES_AT_ONCE).for_each(|number| tracing::error!(number, "damage"));
    });
    let text = fs::read_to_string(&path).unwrap();
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count() as u64;
    assert_eq!((count("before"), count("after"), count("damage")), (1, 1, u64::from(LINES_AT_ONCE) + 1));
    // Some more of them if that took seconds.
    assert!((u64::from(LINES_AT_ONCE)..FLOOD / 2).contains(&count("flood")), "{} of {FLOOD}", count("flood"));
}

#[test]
fn lines_that_were_left_out_are_counted() {
    let mut now = Instant::now();
    let mut allowance = Allowance::new(now);
    for _ in 0..LINES_AT_ONCE {
        assert_eq!(allowance.take(now), Some(0));
    }
    assert_eq!([allowance.take(now), allowance.take(now)], [None, None]);
    now += LINE_INTERVAL;
    assert_eq!([allowance.take(now), allowance.take(now)], [Some(2), None]);
    now += LINE_INTERVAL * 10;
    assert_eq!(allowance.take(now), Some(1));
    assert_eq!(allowance.line_count, 9);
    now += LINE_INTERVAL * 10 * LINES_AT_ONCE;
    assert_eq!(allowance.take(now), Some(0));
    assert_eq!(allowance.line_count, LINES_AT_ONCE - 1, "no more than that, however long nothing was said");
}

/// What a mount has warned of is looked for when it is gone.
#[test]
fn a_log_with_a_warning_is_not_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let is_quiet_after = |say: fn()| {
        let log = RotatingLog::open(&dir.path().join("a.log")).unwrap();
        let is_quiet = Arc::clone(&log.is_quiet);
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
        tracing::subscriber::with_default(subscriber, say);
        is_quiet.load(Ordering::Relaxed)
    };
    assert!(is_quiet_after(|| tracing::info!("it is mounted")));
    assert!(!is_quiet_after(|| tracing::warn!("it is lost")));
    assert!(!is_quiet_after(|| tracing::error!("it is lost")));
}
