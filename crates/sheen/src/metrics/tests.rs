#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::BTreeSet;

fn encoded(told: Vec<(u32, Result<Tell>)>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Gathered::of(told)));
    let mut text = String::new();
    text::encode(&mut text, &registry).unwrap();
    text
}

fn telling(metrics: Vec<Sample>) -> Result<Tell> {
    Ok(Tell { metrics, ..Tell::default() })
}

#[test]
fn families_have_names_of_their_own_and_are_explained() {
    let mut full_names: Vec<String> = FAMILIES.iter().map(|family| family.full_name()).collect();
    full_names.sort();
    full_names.dedup();
    assert_eq!(full_names.len(), FAMILIES.len());
    let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FAMILIES.len(), "figures are told apart by the name alone");
    for family in FAMILIES {
        assert!(
            family.name.starts_with("sheen_")
                && family.name.chars().all(|c| c == '_' || c.is_ascii_lowercase())
        );
        assert!(!family.doc.ends_with('.') && family.doc.len() > 8, "{}", family.name);
    }
}

/// What a label may be: something that the configuration names, or a word of a fixed list. A client, a file, a user or a process is none.
#[test]
fn labels_are_of_the_configuration_or_of_fixed_lists() {
    const CONFIGURED: [&str; 4] = ["target", "peer", "fsname", "mount"];
    const FIXED: [&str; 9] =
        ["version", "state", "operation", "direction", "kind", "outcome", "awaited", "call", "request"];
    for family in FAMILIES {
        let unknown =
            family.labels.iter().find(|label| !CONFIGURED.contains(label) && !FIXED.contains(label));
        assert_eq!(unknown, None, "{}: what bounds the values of this label?", family.name);
        // A figure for each pair of a mount and a target is as many as the configuration has; more at once would not be.
        let of_configuration = family.labels.iter().filter(|label| CONFIGURED.contains(label)).count();
        let of_lists = family.labels.len() - of_configuration;
        assert!(of_lists <= 1, "{}: {:?}", family.name, family.labels);
    }
}

#[test]
fn figures_of_all_processes_are_in_one_text() {
    let operation = |count: f64| families::TARGET_OPERATIONS.sample(&["fs-MDT0000", "open"], count);
    let text = encoded(vec![
        (1, telling(vec![operation(2.0), families::TARGET_DATA.sample(&["fs-OST0000", "read"], 4096.0)])),
        (2, telling(vec![operation(3.0), families::MGS_LEASES.sample(&[], 1.0)])),
        (3, Err(control::Silent(std::time::Duration::ZERO).into())),
        (4, Err(anyhow::anyhow!("another collector is being answered"))),
        (5, Err(io::Error::from(io::ErrorKind::PermissionDenied).into())),
    ]);
    for line in [
        "# TYPE sheen_target_operations counter",
        "sheen_target_operations_total{target=\"fs-MDT0000\",operation=\"open\"} 5.0",
        "sheen_target_data_bytes_total{target=\"fs-OST0000\",direction=\"read\"} 4096.0",
        "# UNIT sheen_target_data_bytes bytes",
        "sheen_mgs_leases 1.0",
        "sheen_processes{state=\"answering\"} 2.0",
        "sheen_processes{state=\"silent\"} 1.0",
        "sheen_processes{state=\"refused\"} 1.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

/// A process of another version may say anything; a path may have any character.
#[test]
fn what_is_not_known_is_left_out_and_labels_are_quoted() {
    let strange = Sample { family: "sheen_later".to_owned(), labels: vec!["x".to_owned()], value: 1.0 };
    let short = Sample { family: families::TARGET_LOCKS.name.to_owned(), labels: Vec::new(), value: 1.0 };
    let open = families::MOUNT_OPEN_FILES.sample(&["fs", "/a \"b\"\\c\nd"], 7.0);
    let text = encoded(vec![(1, telling(vec![strange, short, open]))]);
    assert!(!text.contains("later") && !text.contains("target_locks"), "{text}");
    let line = "sheen_mount_open_files{fsname=\"fs\",mount=\"/a \\\"b\\\"\\\\c\\nd\"} 7.0";
    assert!(text.lines().any(|found| found == line), "{text}");
}

/// The table of docs/operating/metrics.md.
fn table() -> String {
    let mut out = String::from("| metric | labels | what it is |\n|---|---|---|\n");
    for family in FAMILIES {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        out.push_str(&format!("| `{}` | {} | {} |\n", family.full_name(), labels.join(", "), family.doc));
    }
    out
}

#[test]
fn the_document_has_all_metrics() {
    const BEGIN: &str = "| metric | labels |";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/metrics.md");
    let found = std::fs::read_to_string(path).unwrap();
    let (before, rest) = found.split_once(BEGIN).unwrap();
    let after = rest.split_once("\n\n").map(|(_, after)| after).unwrap();
    let wanted = format!("{before}{}\n{after}", table());
    if std::env::var_os("SHEEN_WRITE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    assert!(found == wanted, "write it anew: SHEEN_WRITE_DOCS=1 cargo test -p sheen the_document_has");
}

#[test]
fn the_manual_has_every_state_watched_in_which_a_target_serves_nobody() {
    let manual = include_str!("../../../../docs/operating/metrics.md");
    let watched = manual.split("sheen_target_state{state=~\"").nth(1).and_then(|rest| rest.split('"').next());
    let watched: BTreeSet<&str> = watched.unwrap().split('|').collect();
    let is_harmless = |state: &&str| [status::ACTIVE, "standby"].contains(state);
    let wanted = collect::STATES.into_iter().filter(|state| !is_harmless(state)).collect();
    assert_eq!(watched, wanted);
}

/// Each management server has the same name, whatever cluster of this machine it is of.
#[test]
fn a_management_server_that_is_down_is_told_beside_that_of_another_cluster() {
    let of = |dir: &str, state: &str| TargetStatus {
        name: "MGS".to_owned(),
        fsname: String::new(),
        dir: dir.into(),
        nid: String::new(),
        state: state.to_owned(),
        pid: 0,
        recovery: None,
        owner: None,
        alert: None,
        unserved: None,
        unheard: Vec::new(),
    };
    let told = || vec![(1, telling(collect::of_missed(&[of("/a/mgs", status::ACTIVE)])))];
    let down = |missed: &[&str]| {
        let (mut gathered, mut heard) = (Gathered::of(told()), BTreeSet::from([PathBuf::from("/a/mgs")]));
        for dir in missed {
            gathered.add_missed(&[of(dir, status::DOWN)], &mut heard);
        }
        let labels = ["MGS".to_owned(), status::DOWN.to_owned()];
        gathered.0[families::TARGET_STATE.name][&labels[..]]
    };
    assert_eq!(down(&["/b/mgs"]), 1.0);
    assert_eq!(down(&["/b/mgs", "/b/mgs"]), 1.0, "it is missed once");
    assert_eq!(down(&["/a/mgs"]), 0.0, "it is served again");
}
