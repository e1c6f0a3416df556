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
