//! Files whose data other clients have lately wanted from this one. The kernel forgets an inode whose names are
//! revoked, and asks for it again, so this is not known of nodes.

use base::{Duration, Fid, Time};
use std::collections::{BTreeMap, VecDeque};

/// For so long after a lock on them was called back others are likely to want them again, as OSTs count it, too.
const SHARED_FOR: Duration = Duration::from_secs(10);
/// Beyond that the first ones are forgotten.
const COUNT_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct LatelyShared {
    until: BTreeMap<Fid, Time>,
    /// Each time that was noted, the first one first.
    order: VecDeque<(Time, Fid)>,
}

impl LatelyShared {
    /// A lock on data of the file was called back.
    pub(crate) fn note(&mut self, fid: Fid, now: Time) {
        while let Some((until, first)) = self.order.front().copied()
            && (until <= now || self.order.len() >= COUNT_MAX)
        {
            self.order.pop_front();
            if self.until.get(&first) == Some(&until) {
                self.until.remove(&first);
            }
        }
        let until = now.after(SHARED_FOR);
        self.until.insert(fid, until);
        self.order.push_back((until, fid));
    }

    pub(crate) fn has(&self, fid: Fid, now: Time) -> bool {
        self.until.get(&fid).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_called_back_counts_for_a_while_and_few_are_known() {
        let fid = |oid| Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 };
        let mut shared = LatelyShared::default();
        let start = Time::ZERO.after(Duration::from_secs(5));
        shared.note(fid(1), start);
        let later = start.after(Duration::from_secs(9));
        shared.note(fid(2), later);
        assert!(shared.has(fid(1), later) && shared.has(fid(2), later) && !shared.has(fid(3), later));
        let end = start.after(SHARED_FOR);
        assert!(!shared.has(fid(1), end) && shared.has(fid(2), end));
        for oid in 0..5000 {
            shared.note(fid(2), end);
            shared.note(fid(10 + oid), end);
        }
        assert!(shared.has(fid(2), end) && shared.has(fid(5009), end) && !shared.has(fid(10), end));
        assert!(shared.until.len() <= COUNT_MAX && shared.order.len() <= COUNT_MAX);
        shared.note(fid(3), end.after(SHARED_FOR));
        assert_eq!(shared.order.len(), 1);
    }
}
