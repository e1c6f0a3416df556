//! Three members of etcd in a directory of their own. They end with the value that holds them.

use coordinate::Members;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MEMBER_COUNT: usize = 3;
/// Bounds a hang only.
const PATIENCE: Duration = Duration::from_secs(120);

/// The ports of all tests: a member that is dead for a while gets its own back.
static DRAWN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

pub struct Cluster {
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
    dir: tempfile::TempDir,
}

/// Whether this machine has the program. Says so when not.
pub fn is_installed() -> bool {
    let is_there = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        eprintln!("skipped: etcd is not installed (package etcd-server)");
    }
    is_there
}

impl Cluster {
    /// Ports that were free a moment ago, and that no other test of this process uses; nothing runs.
    pub fn new() -> Cluster {
        // Held until all are drawn, so that no two are the same.
        let mut held: Vec<TcpListener> = Vec::new();
        let mut ports: Vec<u16> = Vec::new();
        while ports.len() < 2 * MEMBER_COUNT {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            if DRAWN.lock().unwrap().insert(port) {
                ports.push(port);
            }
            held.push(listener);
        }
        let ports = ports.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let running = (0..MEMBER_COUNT).map(|_| None).collect();
        Cluster { ports, running, dir: tempfile::tempdir().unwrap() }
    }

    pub fn start_all(&mut self) {
        (0..MEMBER_COUNT).for_each(|index| self.start(index));
    }

    /// With what it had on its disk.
    pub fn start(&mut self, index: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = self.ports[index];
        let all: Vec<String> =
            (0..).zip(&self.ports).map(|(number, (_, peer))| format!("m{number}={}", url(*peer))).collect();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join(format!("{index}.log")))
            .unwrap();
        let child = Command::new("etcd")
            .args(["--name", &format!("m{index}"), "--data-dir"])
            .arg(self.dir.path().join(format!("m{index}")))
            .args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "test"])
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running[index] = Some(child);
    }

    /// As by kill -9.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.running[index].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// In their order, from this one on.
    pub fn members_from(&self, first: usize) -> Members {
        let all: Vec<String> = (0..MEMBER_COUNT)
            .map(|index| format!("127.0.0.1:{}", self.ports[(first + index) % MEMBER_COUNT].0))
            .collect();
        format!("etcd://{}", all.join(",")).parse().unwrap()
    }

    /// Of each member, as its neighbour to ask.
    pub fn client_url(&self, index: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[index].0)
    }

    pub fn logs(&self) -> String {
        (0..MEMBER_COUNT)
            .map(|index| {
                let log = std::fs::read_to_string(self.dir.path().join(format!("{index}.log")));
                let log = log.unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                format!("member {index}: {}\n", last.join("\n"))
            })
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            // Gone already is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Until this says something.
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "still not: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
