//! Locks that were given up and stay in the way until what was written under them is durable: otherwise somebody
//! could read, and act upon, what a crash takes back (hazard 5.6).

use base::{ClientId, LockId, Time, Transno};
use ldlm::{LockOutput, LockSpace, OpId};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct CancelQueue {
    /// Last write under each lock that is not known to be durable.
    written: BTreeMap<(ClientId, LockId), Transno>,
    waiting: Vec<Waiting>,
    /// What the last look found durable: every request looks, and seldom has anything changed.
    durable: Transno,
}

#[derive(Debug)]
struct Waiting {
    what: Protected,
    up_to: Transno,
}

/// What ends when data are durable.
#[derive(Debug, PartialEq)]
enum Protected {
    Locks(ClientId, Vec<LockId>),
    /// `LockSpace::retire`
    Claim(OpId),
}

/// What becomes of locks that are given up.
#[derive(Debug)]
pub struct GivenUp {
    /// These end now.
    pub clean: Vec<LockId>,
    /// These end with what was written under them, up to here: `end_durable` ends them.
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
        self.waiting.push(Waiting { what: Protected::Locks(client, dirty.clone()), up_to });
        GivenUp { clean, dirty: Some((dirty, up_to)) }
    }

    /// The session of a client has ended, and all its locks go. Those under which something was written that is not durable live on as
    /// the claim of an operation, whether the client had given them up or not. Whether there are any.
    pub fn retire(
        &mut self,
        now: Time,
        durable: Transno,
        client: ClientId,
        op: OpId,
        locks: &mut LockSpace,
        out: &mut Vec<LockOutput>,
    ) -> bool {
        self.waiting
            .retain(|waiting| !matches!(waiting.what, Protected::Locks(holder, _) if holder == client));
        // Those of others are not looked at: all may go at once.
        let its = (client, LockId::ZERO)..=(client, LockId(u64::MAX));
        let its = self.written.extract_if(its, |_, _| true);
        let undurable: Vec<(LockId, Transno)> =
            its.filter(|(_, at)| *at > durable).map(|((_, lock), at)| (lock, at)).collect();
        let dirty: Vec<LockId> = undurable.iter().map(|(lock, _)| *lock).collect();
        let up_to = undurable.iter().map(|(_, at)| *at).max();
        if let Some(up_to) = up_to {
            locks.retire(client, &dirty, op);
            self.waiting.push(Waiting { what: Protected::Claim(op), up_to });
        }
        locks.drop_holder(now, client, out);
        up_to.is_some()
    }

    /// Ends what has waited for data that are durable now.
    pub fn end_durable(
        &mut self,
        now: Time,
        durable: Transno,
        locks: &mut LockSpace,
        out: &mut Vec<LockOutput>,
    ) {
        for what in self.take_durable(durable) {
            match what {
                Protected::Locks(client, ended) => locks.cancel(now, client, &ended, out),
                Protected::Claim(op) => locks.release(now, op, out),
            }
        }
    }

    fn take_durable(&mut self, durable: Transno) -> Vec<Protected> {
        if durable <= self.durable {
            return Vec::new();
        }
        self.durable = durable;
        self.written.retain(|_, transno| *transno > durable);
        let ended = self.waiting.extract_if(.., |waiting| waiting.up_to <= durable);
        ended.map(|waiting| waiting.what).collect()
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
        assert_eq!(cancels.take_durable(Transno(7)), [Protected::Locks(client, vec![dirty])]);
        assert!(cancels.give_up(Transno(7), client, &[dirty]).dirty.is_none(), "nothing is to be waited for");
    }

    /// The next incarnation of the client gives its locks the same numbers.
    #[test]
    fn what_a_client_that_is_gone_had_to_wait_for_is_nothing_of_the_next_one() {
        let (gone, other, lock, op) = (ClientId(1), ClientId(2), LockId(1), OpId(5));
        let (mut cancels, mut locks, mut out) = (CancelQueue::default(), LockSpace::new(), Vec::new());
        cancels.on_written(gone, lock, Transno(7));
        cancels.on_written(gone, LockId(2), Transno(5));
        cancels.on_written(other, lock, Transno(8));
        cancels.give_up(Transno(6), gone, &[lock]);
        cancels.give_up(Transno(6), other, &[lock]);
        assert!(cancels.retire(Time(0), Transno(6), gone, op, &mut locks, &mut out));
        assert!(locks.is_claimed(op));
        assert!(cancels.give_up(Transno(6), gone, &[lock, LockId(2)]).dirty.is_none());
        assert_eq!(cancels.take_durable(Transno(7)), [Protected::Claim(op)]);
        assert_eq!(cancels.take_durable(Transno(8)), [Protected::Locks(other, vec![lock])]);
        assert!(!cancels.retire(Time(0), Transno(8), gone, OpId(6), &mut locks, &mut out), "all is durable");
        assert!(!locks.is_claimed(OpId(6)));
    }
}
