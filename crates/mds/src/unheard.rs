//! Changes that their callers have perhaps not heard of, and that a crash could take back.
//!
//! A change that was answered is replayed in its old place. One whose answer is lost with the MDT has no place: its caller sends it
//! again when the MDT has recovered, after everything that was built on it, which can then not be replayed. So nobody is
//! shown a change, and nothing is built on it, before its caller has its answer or the change is durable.

use crate::tx::Resources;
use base::{ClientId, Fid, Transno};
use ldlm::OpId;
use std::collections::{BTreeMap, BTreeSet};
use target::Token;
use wire::lock::bits;
use wire::{LockPolicy, Resource};

/// A change as others look at it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    token: Token,
    transno: Transno,
}

/// The latest such change of everything that a replay can fail for: names; inodes that were made, or whose permissions, layout or
/// xattrs were changed. Times, sizes and counts are not among them: whole directories would be.
#[derive(Debug, Default)]
pub struct Unheard {
    marks: BTreeMap<Resource, Mark>,
    by_transno: BTreeMap<Transno, Vec<Resource>>,
}

impl Unheard {
    /// Notes an applied change: what it changed, and what it had to claim for that.
    pub fn note(&mut self, token: Token, transno: Transno, changed: &Resources, needs: &[ldlm::Need]) {
        let marked: Vec<Resource> =
            changed.iter().copied().filter(|resource| is_marked(resource, needs)).collect();
        self.marks.extend(marked.iter().map(|resource| (*resource, Mark { token, transno })));
        self.by_transno.insert(transno, marked);
    }

    /// Everything up to here survives any crash.
    pub fn forget(&mut self, durable: Transno) {
        while let Some(entry) = self.by_transno.first_entry().filter(|entry| *entry.key() <= durable) {
            let (transno, resources) = entry.remove_entry();
            for resource in resources {
                if self.marks.get(&resource).is_some_and(|mark| mark.transno == transno) {
                    self.marks.remove(&resource);
                }
            }
        }
    }

    /// A change that has to be heard of or durable before an operation that looked at this is answered. `removed`: inodes that it
    /// takes away; those that are directories had to be empty.
    pub fn first_below(
        &self,
        touched: &Resources,
        removed: &[Fid],
        is_heard: impl Fn(&Token) -> bool,
    ) -> Option<(Transno, Token)> {
        if self.marks.is_empty() {
            return None;
        }
        let looked_at = touched.iter().filter_map(|resource| self.marks.get(resource));
        let names_in = |directory: &Fid| {
            let name = |hash| Resource::Name { parent: *directory, hash };
            self.marks.range(name(0)..=name(u64::MAX)).map(|(_, mark)| mark)
        };
        let mut marks = looked_at.chain(removed.iter().flat_map(names_in));
        marks.find(|mark| !is_heard(&mark.token)).map(|mark| (mark.transno, mark.token))
    }

    /// Asserts that both indexes agree.
    pub fn check(&self) {
        for (resource, mark) in &self.marks {
            assert!(self.by_transno.get(&mark.transno).is_some_and(|resources| resources.contains(resource)));
        }
    }
}

/// Operations that wait until a change is heard of, or durable. Thousands may wait for the changes of as many callers.
#[derive(Debug, Default)]
pub struct Waiters {
    below: BTreeMap<OpId, (Transno, Token)>,
    /// By whose the change is.
    by_caller: BTreeSet<(ClientId, OpId)>,
    /// What the last look found durable.
    durable: Transno,
}

impl Waiters {
    pub fn insert(&mut self, op: OpId, below: (Transno, Token)) {
        self.remove(op);
        if below.0 <= self.durable {
            // The device was quicker than the look at what the change was marked with: it is looked at again.
            self.durable = Transno::ZERO;
        }
        self.by_caller.insert((below.1.client, op));
        self.below.insert(op, below);
    }

    pub fn remove(&mut self, op: OpId) {
        if let Some((_, token)) = self.below.remove(&op) {
            self.by_caller.remove(&(token.client, op));
        }
    }

    pub fn contains(&self, op: OpId) -> bool {
        self.below.contains_key(&op)
    }

    pub fn is_empty(&self) -> bool {
        self.below.is_empty()
    }

    /// Those that need not wait any longer. Of changes of others than `caller` it is only asked when more has become durable.
    pub fn over(
        &mut self,
        durable: Transno,
        caller: Option<ClientId>,
        is_heard: impl Fn(&Token) -> bool,
    ) -> Vec<OpId> {
        let is_over = |(transno, token): &(Transno, Token)| *transno <= durable || is_heard(token);
        if durable > self.durable {
            self.durable = durable;
            return self.below.iter().filter(|(_, below)| is_over(below)).map(|(op, _)| *op).collect();
        }
        let of_caller = |caller| self.by_caller.range((caller, OpId(0))..=(caller, OpId(u64::MAX)));
        let its = caller.into_iter().flat_map(of_caller).map(|(_, op)| *op);
        its.filter(|op| self.below.get(op).is_some_and(is_over)).collect()
    }
}

/// Whether a replay of what comes after it can fail for this change.
fn is_marked(changed: &Resource, needs: &[ldlm::Need]) -> bool {
    let need = needs.iter().find(|need| need.resource == *changed);
    match (changed, need.map(|need| need.policy)) {
        (Resource::Inode(_), Some(LockPolicy::Bits(mask))) => mask & !(bits::UPDATE | bits::CHILDREN) != 0,
        // Names, and inodes that nobody can have known: they are new.
        _ => true,
    }
}

/// Inodes that an operation takes away.
pub fn removed(changed: &Resources, needs: &[ldlm::Need]) -> Vec<Fid> {
    let is_whole = |need: &ldlm::Need| need.policy == LockPolicy::Bits(bits::ALL);
    let whole = needs.iter().filter(|need| is_whole(need) && changed.contains(&need.resource));
    whole.filter_map(|need| if let Resource::Inode(fid) = need.resource { Some(fid) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Xid;
    use std::cell::Cell;

    const COUNT: u64 = 3000;

    fn below(index: u64) -> (Transno, Token) {
        let client = ClientId(u128::from(index));
        let token =
            Token { client, session: 1, xid: Xid(1), slot: 0, trace: 0, replay: None, is_unawaited: false };
        (Transno(index), token)
    }

    #[test]
    fn each_of_thousands_who_wait_is_looked_at_when_its_caller_speaks_or_more_is_durable() {
        let (mut waiters, looked_at_count) = (Waiters::default(), Cell::new(0));
        let has_heard = |token: &Token| {
            looked_at_count.set(looked_at_count.get() + 1);
            token.client.0.is_multiple_of(2)
        };
        (1..=COUNT).for_each(|index| waiters.insert(OpId(index), below(index)));
        for index in 1..=COUNT {
            let over = waiters.over(Transno::ZERO, Some(ClientId(u128::from(index))), has_heard);
            assert_eq!(over.contains(&OpId(index)), index % 2 == 0, "{over:?}");
            over.into_iter().for_each(|op| waiters.remove(op));
            assert_eq!(waiters.over(Transno::ZERO, None, has_heard), [], "nobody has said anything");
        }
        assert_eq!(looked_at_count.get(), COUNT);
        let over = waiters.over(Transno(COUNT / 2), None, |_| false);
        let odd: Vec<OpId> = (1..=COUNT / 2).filter(|index| index % 2 == 1).map(OpId).collect();
        assert_eq!(over, odd, "those whose changes are durable");
    }

    #[test]
    fn who_comes_to_wait_for_what_is_durable_already_is_looked_at() {
        let mut waiters = Waiters::default();
        waiters.insert(OpId(9), below(9));
        assert_eq!(waiters.over(Transno(5), None, |_| false), []);
        waiters.insert(OpId(4), below(4));
        assert_eq!(waiters.over(Transno(5), None, |_| false), [OpId(4)]);
    }
}
