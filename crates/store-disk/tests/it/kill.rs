//! A writer killed with SIGKILL: what it was told is there, and nothing of what came after is there in part.

use base::Transno;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use store::{Batch, MetaStore};
use store_disk::{MetaDisk, Options};

const WRITER_DIRECTORY: &str = "STORE_DISK_TEST_WRITER";

fn options() -> Options {
    Options { checkpoint_bytes: Some(256 << 10), ..Options::default() }
}

/// Not a test of its own: the process that is killed. It says each transno after `apply` has returned.
#[test]
fn writer_process() {
    let Some(directory) = std::env::var_os(WRITER_DIRECTORY) else { return };
    let store = MetaDisk::open(Path::new(&directory), &options(), Arc::new(|| ())).unwrap();
    let mut t = store.applied();
    loop {
        t = t.next();
        let mut batch = Batch::new();
        batch.put(1, &(t.0 % 1000).to_be_bytes(), &[t.0.to_le_bytes(), t.0.to_le_bytes()].concat());
        batch.put(2, &(t.0 % 777).to_be_bytes(), &vec![t.0 as u8; 700]);
        batch.put(3, b"last", &t.0.to_le_bytes());
        if t.0.is_multiple_of(64) {
            store.kick();
        }
        store.apply(t, &batch).unwrap();
        eprintln!("applied {t}");
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_was_told() {
    let dir = tempfile::tempdir().unwrap();
    MetaDisk::create(dir.path(), &options()).unwrap();
    let mut told = 0;
    for round in 0..5_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::writer_process", "--exact", "--nocapture"])
            .env(WRITER_DIRECTORY, dir.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let goal = told + 500 + round * 1500;
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        while told < goal {
            let line = lines.next().expect("the writer ended by itself").unwrap();
            if let Some(t) = line.strip_prefix("applied ") {
                told = t.parse().unwrap();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some(t) = line.strip_prefix("applied ").and_then(|t| t.parse().ok()) {
                told = t;
            }
        }
        let store = MetaDisk::open(dir.path(), &options(), Arc::new(|| ())).unwrap();
        check(&store, told);
        told = store.applied().0;
    }
}

fn check(store: &MetaDisk, told: u64) {
    let last = store.applied().0;
    assert!(last >= told, "{told} was told, {last} is left");
    assert_eq!(store.durable(), Transno(last));
    assert_eq!(store.get(3, b"last").unwrap().unwrap(), last.to_le_bytes());
    for n in 0..1000 {
        let expected = (0..=last).rev().take(1000).find(|t| t % 1000 == n && *t > 0);
        let found = store.get(1, &n.to_be_bytes()).unwrap();
        assert_eq!(found, expected.map(|t| [t.to_le_bytes(), t.to_le_bytes()].concat()), "row {n} of {last}");
    }
    for n in 0..777 {
        let expected = (0..=last).rev().take(777).find(|t| t % 777 == n && *t > 0);
        let found = store.get(2, &n.to_be_bytes()).unwrap();
        assert_eq!(found, expected.map(|t| vec![t as u8; 700]), "row {n} of {last}");
    }
}
