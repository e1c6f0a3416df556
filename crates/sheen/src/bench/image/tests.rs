#![allow(clippy::unwrap_used)]
use super::super::cost::{Cost, Counts};
use super::reader::read_all;
use super::report::from_memory_percent;
use super::*;
use std::os::unix::fs::symlink;
use std::time::Duration;

fn tree(dir: &std::path::Path) {
    fs::create_dir_all(dir.join("usr/bin")).unwrap();
    fs::write(dir.join("usr/bin/sh"), vec![7; 3 << 20]).unwrap();
    fs::write(dir.join("name"), b"word").unwrap();
    symlink("name", dir.join("link")).unwrap();
}

#[test]
fn a_tree_is_known_by_its_names_contents_and_links() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    tree(one.path());
    tree(other.path());
    let seen = read_all(one.path()).unwrap();
    assert_eq!((seen.file_count, seen.other_count, seen.total_bytes), (2, 3, (3 << 20) + 4));
    assert_eq!(read_all(other.path()).unwrap(), seen);
    // What is ours alone is not of the source.
    fs::create_dir(other.path().join(".sheen")).unwrap();
    fs::write(other.path().join(".sheen/image.json"), b"{}").unwrap();
    assert_eq!(read_all(other.path()).unwrap(), seen);
    fs::write(other.path().join("name"), b"work").unwrap();
    assert_ne!(read_all(other.path()).unwrap(), seen, "the contents differ");
    fs::write(other.path().join("name"), b"word").unwrap();
    fs::rename(other.path().join("name"), other.path().join("usr/name")).unwrap();
    assert_ne!(read_all(other.path()).unwrap(), seen, "a name differs");
    fs::rename(other.path().join("usr/name"), other.path().join("name")).unwrap();
    fs::remove_file(other.path().join("link")).unwrap();
    symlink("else", other.path().join("link")).unwrap();
    assert_ne!(read_all(other.path()).unwrap(), seen, "a link differs");
}

#[test]
fn what_did_not_come_from_a_device_came_from_memory() {
    let counts = |read_bytes, ost_device_bytes| Counts { read_bytes, ost_device_bytes, ..Counts::default() };
    assert_eq!(from_memory_percent(&counts(1600, 100)), Some(93.75));
    assert_eq!(from_memory_percent(&counts(100, 100)), Some(0.0));
    assert_eq!(from_memory_percent(&counts(100, 300)), Some(0.0), "read ahead for nobody");
    assert_eq!(from_memory_percent(&counts(0, 0)), None);
}

#[test]
fn figures_are_those_of_a_client_and_a_file() {
    let options = Image {
        dir: PathBuf::new(),
        from: PathBuf::new(),
        clients: 4,
        osts: 2,
        rounds: 3,
        transport: Transport::Dev,
        json: true,
    };
    let image = Seen { file_count: 10, other_count: 3, total_bytes: 8 << 20, sum: 1 };
    let round = |seconds: u64| Round {
        elapsed: Duration::from_secs(seconds),
        each: [seconds, 1].map(Duration::from_secs).to_vec(),
        cost: Cost {
            operation_count: 40,
            rpc_unit_count: 40,
            client_cpu: Duration::from_secs(3),
            server_cpu: None,
            mdt_cpu: Some(Duration::from_secs(1)),
            ost_cpu: Some(Duration::from_secs(seconds)),
            is_client_serving: false,
            has_all_servers: true,
            counts: Some(Counts {
                requests: [("mds_open".to_owned(), 20), ("ost_read".to_owned(), 60)].into(),
                mdt_requests: 20,
                ost_requests: 60,
                read_bytes: 32 << 20,
                ost_device_bytes: 8 << 20,
                ..Counts::default()
            }),
        },
    };
    let report = Report::of(&options, &image, &[round(2), round(4), round(8)]);
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    let of = |name: &str| json["figures"][name]["median"].as_f64().unwrap();
    assert_eq!((of("seconds"), of("first_seconds"), of("mib_per_s")), (4.0, 1.0, 8.0));
    assert_eq!((of("mdt_requests_per_client"), of("mdt_requests_per_file")), (5.0, 0.5));
    assert_eq!((of("ost_requests_per_client"), of("ost_requests_per_file")), (15.0, 1.5));
    assert_eq!((of("mdt_cpu_percent"), of("ost_cpu_percent"), of("client_cpu_seconds")), (25.0, 100.0, 3.0));
    assert_eq!((of("served_mib_per_client"), of("from_memory_percent")), (8.0, 75.0));
    assert_eq!(json["requests_per_client"]["ost_read"].as_f64(), Some(15.0));
    let text = report.to_text();
    assert!(text.contains("requests per client: mds_open 5.0, ost_read 15.0"), "{text}");
    assert_eq!(text.lines().count(), 22, "{text}");
}
