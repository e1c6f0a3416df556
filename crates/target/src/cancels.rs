//! Locks that were given up and stay in the way until what was written under them is durable: otherwise somebody
//! could read, and act upon, what a crash takes back (hazard 5.6).

use base::{ClientId, LockId, Transno};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct CancelQueue {
    /// Last write under each lock that is not known to be durable.
    written: BTreeMap<(ClientId, LockId), Transno>,
    waiting: Vec<WaitingCancel>,
    /// What the last look found durable: every request looks, and seldom has anything changed.
    durable: Transno,
}

/// Locks whose end waits.
#[derive(Debug)]
pub struct WaitingCancel {
    pub client: ClientId,
    pub locks: Vec<LockId>,
    up_to: Transno,
}

/// What becomes of locks that are given up.
#[derive(Debug)]
pub struct GivenUp {
    /// These end now.
    pub clean: Vec<LockId>,
    /// These end with what was written under them, up to here: `take_durable` brings them.
    pub dirty: Option<(Vec<LockId>, Transno)>,
}

impl CancelQueue {
    pub fn on_written(&mut self, client: ClientId, lock: LockId, transno: Transno) {
        self.written.insert((client, lock), transno);
    }

    /// Queues the locks that have to wait.
    pub fn give_up(&mut self, durable: Transno, client: ClientId, locks: &[LockId]) -> GivenUp {
        let last_written = |lock: &LockId| self.written.get(&(client, *lock)).copied();
        let undurable = |lock: &LockId| last_written(lock).filter(|at| *at > durable);
        let up_to = locks.iter().filter_map(undurable).max();
        let (dirty, clean): (Vec<LockId>, Vec<LockId>) =
            locks.iter().copied().partition(|lock| undurable(lock).is_some());
        let Some(up_to) = up_to else { return GivenUp { clean, dirty: None } };
        self.waiting.push(WaitingCancel { client, locks: dirty.clone(), up_to });
        GivenUp { clean, dirty: Some((dirty, up_to)) }
    }

    /// Locks that end now.
    pub fn take_durable(&mut self, durable: Transno) -> Vec<WaitingCancel> {
        if durable <= self.durable {
            return Vec::new();
        }
        self.durable = durable;
        self.written.retain(|_, transno| *transno > durable);
        self.waiting.extract_if(.., |cancel| cancel.up_to <= durable).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_when_what_was_written_under_it_is_durable() {
        let (client, clean, dirty) = (ClientId(1), LockId(1), LockId(2));
        let mut cancels = CancelQueue::default();
        cancels.on_written(client, dirty, Transno(7));
        let given = cancels.give_up(Transno(6), client, &[clean, dirty]);
        assert_eq!(given.clean, [clean]);
        assert_eq!(given.dirty, Some((vec![dirty], Transno(7))));
        assert!(cancels.take_durable(Transno(6)).is_empty());
        let ended = cancels.take_durable(Transno(7));
        assert_eq!(ended.iter().map(|ended| ended.locks.clone()).collect::<Vec<_>>(), [vec![dirty]]);
        assert!(cancels.give_up(Transno(7), client, &[dirty]).dirty.is_none(), "nothing is to be waited for");
    }
}
