//! Documents that name tests: each name must be one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

/// All Rust sources below a directory.
fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            found.push((path, text));
        }
    }
    found
}

/// What stands between backticks in the last column of each row, with the row's number.
fn named(document: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in document.lines().filter(|line| line.starts_with("| ") && line.contains('.')) {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let (Some(number), Some(shown)) = (cells.first(), cells.last()) else { continue };
        found.extend(shown.split('`').skip(1).step_by(2).map(|name| ((*number).to_owned(), name.to_owned())));
    }
    found
}

fn exists(name: &str, sources: &[(PathBuf, String)]) -> bool {
    match name.split_once('/') {
        Some((suite, case)) => {
            let wanted = format!("\"{case}\"");
            let is_of_suite = |path: &Path| {
                let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
                parts.contains(&"suites") && parts.iter().any(|part| part.trim_end_matches(".rs") == suite)
            };
            sources.iter().any(|(path, text)| is_of_suite(path) && text.contains(&wanted))
        }
        None => {
            let wanted = format!("fn {name}(");
            sources.iter().any(|(_, text)| text.contains(&wanted))
        }
    }
}

#[test]
fn the_tests_that_hazards_md_names_exist() {
    let root = workspace::root().expect("a workspace");
    let document = fs::read_to_string(root.join("docs/hazards.md")).expect("docs/hazards.md");
    let sources = [sources(&root.join("crates")), sources(&root.join("tests"))].concat();
    let named = named(&document);
    assert!(named.len() > 40, "names are found in the document: {named:?}");
    let missing: Vec<_> = named.iter().filter(|(_, name)| !exists(name, &sources)).collect();
    assert!(missing.is_empty(), "docs/hazards.md names tests that do not exist: {missing:?}");
}

#[test]
fn a_test_that_does_not_exist_is_missed() {
    let sources = [(PathBuf::from("tests/mount/src/suites/kill9.rs"), "\"all\" fn a_rule() {".to_owned())];
    assert!(exists("a_rule", &sources) && exists("kill9/all", &sources));
    assert!(!exists("a_rul", &sources) && !exists("kill9/al", &sources) && !exists("fsx/all", &sources));
}
