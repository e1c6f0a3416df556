//! What must hold after the recovery.

use super::{Churn, EXPECTED_MAX, EXPECTING_ONE_IN, MDT, RECOVERY_MAX};
use crate::damage::find_damage_under_way;
use mds::rows;
use std::collections::{BTreeMap, BTreeSet};

/// Names by directory (the number of its inode).
pub(super) type Names = BTreeMap<u64, BTreeSet<Vec<u8>>>;

impl Churn {
    /// As the rows of the MDT have it.
    pub(super) fn names(&self) -> Names {
        let mut names = Names::new();
        let Some(server) = self.servers.get(&MDT) else { return names };
        for ((table, key), _) in server.meta.rows() {
            if table == rows::DENTRIES
                && let Some((parent, _, name)) = rows::split_dentry_key(&key)
            {
                names.entry(parent.inode_number()).or_default().insert(name.to_vec());
            }
        }
        names
    }

    /// Clients that wait for the MDT, which is about to die, have found out that an answer takes ten minutes.
    pub(super) fn check_expectations(&self) {
        if self.is_broken() {
            return;
        }
        let waiting = self.seats.iter().filter(|seat| seat.asked.is_some());
        let expected: Vec<_> = waiting.map(|seat| seat.expects(MDT)).collect();
        let expecting = expected.iter().filter(|expected| **expected >= EXPECTED_MAX).count();
        self.count_more("client waits for the slow MDT at its death", expected.len() as u64);
        self.count_more("and expects an answer to take 600 s", expecting as u64);
        if expecting == 0 || expecting * EXPECTING_ONE_IN < expected.len() {
            let most = expected.iter().max().map_or(0, |most| most.as_secs());
            let what = format!(
                "{expecting} of {} who wait expect 600 s, and none more than {most} s",
                expected.len()
            );
            self.violate("slowness", what);
        }
    }

    /// There is somebody whom the MDT waits for in vain.
    pub(super) fn check_absence(&self) {
        let vanished = self.seats.iter().filter(|seat| seat.is_gone).count();
        if vanished == 0 {
            self.violate("vanishing", "no client has vanished".to_owned());
        }
    }

    pub(super) fn count_recovery(&mut self) {
        let took =
            self.restarted.zip(self.recovered).map(|(restarted, recovered)| recovered.since(restarted));
        let Some(took) = took else {
            return self.violate("recovery", "the MDT has not recovered".to_owned());
        };
        self.count("lease: recoveries");
        self.count_more("lease: ms of recovery", took.as_millis() as u64);
        self.count(match took.as_secs() {
            0..1 => "recovery below 1 s",
            1..5 => "recovery of 1 to 5 s",
            5..10 => "recovery of 5 to 10 s",
            _ => "recovery of 10 s or more",
        });
        if took >= RECOVERY_MAX {
            self.violate("recovery", format!("the recovery took {} s", took.as_secs()));
        }
    }

    /// What is there of clients that vanished, and of those that go on, is no damage.
    pub(super) fn check_disks(&self) {
        if let Some(what) = find_damage_under_way(self.servers.values()) {
            self.violate("fsck", what);
        }
    }

    pub(super) fn check_progress(&self) {
        let stuck: Vec<usize> = self.stuck().take(5).collect();
        if !stuck.is_empty() {
            self.violate("progress", format!("clients {stuck:?} have not gone on"));
        }
    }

    /// The living have what was acknowledged to them, and nothing else; of the others what was durable is there.
    pub(super) fn check_names(&self, durable: &Names) {
        let names = self.names();
        let none = BTreeSet::new();
        for (number, seat) in self.seats.iter().enumerate() {
            let Some(directory) = seat.directory else { continue };
            let found = names.get(&directory).unwrap_or(&none);
            let durable = durable.get(&directory).unwrap_or(&none);
            let vanished_before = seat.is_gone && seat.fate.gone < self.restarted;
            let wrong = seat.wrong_names(durable, found, vanished_before);
            let wrong: Vec<String> = wrong.iter().map(|name| text(name)).collect();
            if !wrong.is_empty() {
                let who = if seat.is_gone { "vanished" } else { "living" };
                return self.violate("names", format!("of client {number} ({who}): {}", wrong.join(", ")));
            }
        }
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
