//! Changes that their callers have perhaps not heard of, and that a crash could take back.
//!
//! A change that was answered is replayed in its old place. One whose answer is lost with the MDT has no place: its caller sends it
//! again when the MDT has recovered, after everything that was built on it, which can then not be replayed. So nobody is
//! shown a change, and nothing is built on it, before its caller has its answer or the change is durable.

use crate::tx::Resources;
use base::{Fid, Transno};
use std::collections::BTreeMap;
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
