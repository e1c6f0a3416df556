//! What must hold after the recovery.

use super::{Churn, HARD, MDT, RECOVERY_MAX};
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

    pub(super) fn count_recovery(&mut self) {
        let took =
            self.restarted.zip(self.recovered).map(|(restarted, recovered)| recovered.since(restarted));
        let Some(took) = took.filter(|took| *took < HARD) else {
            self.must_not("recovery", || "the MDT has not recovered".to_owned());
            // Whoever has not finished by then is evicted, and nobody has who waited for the absent.
            self.count("hard timeout");
            let living = self.seats.iter().filter(|seat| !seat.is_gone);
            return living.for_each(|_| self.count("living client evicted"));
        };
        self.count(match took.as_secs() {
            0..1 => "recovery below 1 s",
            1..5 => "recovery of 1 to 5 s",
            5..10 => "recovery of 5 to 10 s",
            10..100 => "recovery of 10 to 100 s",
            _ => "recovery of 100 s or more",
        });
        if took >= RECOVERY_MAX {
            self.must_not("recovery", || format!("the recovery took {} s", took.as_secs()));
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
            let undecided = seat.undecided();
            let wrong: Vec<String> = match seat.is_gone {
                true => {
                    let expected = durable.get(&directory).unwrap_or(&none);
                    expected.symmetric_difference(found).map(|name| text(name)).collect()
                }
                false => {
                    let wrong = seat.names.symmetric_difference(found);
                    wrong.filter(|name| Some(*name) != undecided.as_ref()).map(|name| text(name)).collect()
                }
            };
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
