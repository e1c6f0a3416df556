//! Files of which a name is being taken away, and the count of links that the kernel keeps of them.
//!
//! When it hears that a name is gone, the kernel counts one link less of what it has; it does not ask. Attributes
//! that an answer brings it in between are of after that already, perhaps, and then the same link goes twice. So it
//! comes to none while names are left: a link(2) of such a file fails without our being asked, until attributes are
//! asked for again. (`fuse_entry_unlinked`; `vfs_link`.)
//!
//! An answer with attributes of such a file is therefore preceded by a notification that there is another version of
//! them. The caller is told what is true, and the kernel keeps its count (as in `late_answers`). The names in the
//! answer get no lifetime either: should its count have been too low already, whoever comes by them asks. That goes
//! on for a while after the answer to the removal, which a process takes in only when it gets a processor; until it
//! is known that it has: it has called again, or somebody else who needs the inode's lock (a link) has.
//!
//! What else is in such an answer the kernel does not take in either. So that is done only where nothing else can be new to it: the size is
//! the only one that it can have, owner and mode are what they were when the removal began, and nobody has an advisory lock, who would rely on
//! what others have written. Otherwise the kernel may count twice; the answer has no lifetime, so whoever comes by the name has it count anew.
//!
//! What sets attributes without a version needs no such care. The answer to a link or a setattr comes under the
//! inode's lock, which a removal holds until it has counted. A create that finds the file there is left: an answer to
//! it cannot be voided.

use crate::cache::ANSWER_LIFE;
use crate::call::{Answer, Call, Caller, EntryAnswer};
use crate::ctx::{Ctx, Who};
use crate::machine::Notify;
use crate::nodes::Node;
use crate::state::State;
use base::{Attr, Duration, Fid, FileType, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
struct Unlink {
    /// The call that takes the name away.
    call: u64,
    /// The thread that has called.
    pid: u32,
    answered_at: Option<Time>,
    /// Mode, owner and group when it began, as far as they were known.
    rights: Option<Rights>,
}

type Rights = (u32, u32, u32);

fn rights_of(attr: &Attr) -> Rights {
    (attr.permissions, attr.uid, attr.gid)
}

/// The last removal of each file's names, of a moment ago at most.
#[derive(Debug, Default)]
pub(crate) struct Unlinks {
    by_node: BTreeMap<u64, Unlink>,
    under_way: BTreeSet<(u64, u64)>,
    /// Those that are answered, by time.
    answered: VecDeque<(Time, u64)>,
}

impl Unlinks {
    fn begin(&mut self, who: &Who, node: u64, rights: Option<Rights>) {
        // Of one that is looked at again when it is done, what was known before counts.
        let before = self.by_node.get(&node).filter(|unlink| unlink.call == who.id);
        let rights = before.map_or(rights, |unlink| unlink.rights);
        self.by_node.insert(node, Unlink { call: who.id, pid: who.caller.pid, answered_at: None, rights });
        self.under_way.insert((who.id, node));
    }

    /// Its last name is gone: there is nothing to link.
    pub(crate) fn forget(&mut self, who: &Who, node: u64) {
        if self.under_way.remove(&(who.id, node)) && self.is_of(who.id, node) {
            self.by_node.remove(&node);
        }
    }

    fn is_of(&self, call: u64, node: u64) -> bool {
        self.by_node.get(&node).is_some_and(|unlink| unlink.call == call)
    }

    /// A call is about to be answered.
    fn end(&mut self, call: u64, is_done: bool, now: Time) {
        while let Some((at, node)) = self.answered.front().copied() {
            if at.after(ANSWER_LIFE) > now {
                break;
            }
            self.answered.pop_front();
            if self.by_node.get(&node).is_some_and(|unlink| unlink.answered_at == Some(at)) {
                self.by_node.remove(&node);
            }
        }
        while let Some(ended) = self.under_way.range((call, 0)..=(call, u64::MAX)).next().copied() {
            self.under_way.remove(&ended);
            let node = ended.1;
            let Some(unlink) = self.by_node.get_mut(&node).filter(|unlink| unlink.call == call) else {
                continue;
            };
            if is_done {
                unlink.answered_at = Some(now);
                self.answered.push_back((now, node));
            } else {
                self.by_node.remove(&node);
            }
        }
    }

    /// A call that needs the inode's lock has come: the kernel has counted.
    pub(crate) fn settle(&mut self, node: u64) {
        if self.by_node.get(&node).is_some_and(|unlink| unlink.answered_at.is_some()) {
            self.by_node.remove(&node);
        }
    }

    /// Asserts that there are none without their call, or their end.
    pub(crate) fn check(&self) {
        for (node, unlink) in &self.by_node {
            let is_known = match unlink.answered_at {
                None => self.under_way.contains(&(unlink.call, *node)),
                Some(at) => self.answered.contains(&(at, *node)),
            };
            assert!(is_known, "{node}");
        }
    }

    /// Whether the kernel may still count a link less of what it has of a file, when this thread asks about it.
    pub(crate) fn is_uncounted(&self, node: u64, caller: Caller, now: Time) -> bool {
        let Some(unlink) = self.by_node.get(&node) else { return false };
        let is_back = caller.pid != 0 && caller.pid == unlink.pid;
        unlink.answered_at.is_none_or(|at| !is_back && at.after(ANSWER_LIFE) > now)
    }
}

/// Whether the kernel takes attributes in with the answer unless there is another version of them.
pub(crate) fn is_versioned(call: &Call) -> bool {
    matches!(call, Call::Lookup { .. } | Call::Getattr { .. } | Call::Statx { .. } | Call::Readdir { .. })
}

impl State {
    /// Files in an answer of which the kernel may still count a link less, and whether nothing else in it can be new to it.
    fn uncounted_in(&self, answer: &Answer, caller: Caller) -> Vec<(u64, bool)> {
        if self.unlinks.by_node.is_empty() {
            return Vec::new();
        }
        let is_uncounted = |attr: &&Attr| {
            attr.link_count > 0
                && attr.file_type != FileType::Directory
                && self.unlinks.is_uncounted(attr.fid.inode_number(), caller, self.now.time)
        };
        let attrs: Vec<&Attr> = match answer {
            Answer::Attr(answer) => vec![&answer.attr],
            Answer::Entry(entry) => entry.attr.iter().collect(),
            Answer::Entries(entries) => {
                entries.iter().filter_map(|entry| entry.entry.as_ref()?.attr.as_ref()).collect()
            }
            _ => Vec::new(),
        };
        let told = attrs.into_iter().filter(is_uncounted);
        told.map(|attr| (attr.fid.inode_number(), self.is_all_else_old(attr))).collect()
    }

    fn is_all_else_old(&self, attr: &Attr) -> bool {
        let unlink = self.unlinks.by_node.get(&attr.fid.inode_number());
        let is_right = unlink.is_some_and(|unlink| unlink.rights == Some(rights_of(attr)));
        let is_same = |node: &Node| {
            let is_size = |size: &u64| *size == attr.size_bytes;
            node.data.advisory.is_empty() && node.kernel_size.possible().iter().all(is_size)
        };
        is_right && self.nodes.by_fid(attr.fid).is_some_and(is_same)
    }

    fn rights_of(&self, fid: Fid) -> Option<Rights> {
        self.nodes.by_fid(fid)?.attr().map(rights_of)
    }

    pub(crate) fn end_unlinks(&mut self, call: u64, is_done: bool) {
        let now = self.now.time;
        self.unlinks.end(call, is_done, now);
    }

    /// A name that leads to an inode is about to be taken away.
    pub(crate) fn begin_unlink(&mut self, who: &Who, fid: Option<Fid>) {
        if let Some(fid) = fid {
            self.unlinks.begin(who, fid.inode_number(), self.rights_of(fid));
        }
    }

    /// It has been: `link_count` are left, if that is known.
    pub(crate) fn note_unlinked(&mut self, who: &Who, fid: Fid, link_count: Option<u32>) {
        match link_count {
            Some(0) => self.unlinks.forget(who, fid.inode_number()),
            _ => self.unlinks.begin(who, fid.inode_number(), self.rights_of(fid)),
        }
    }
}

/// An answer to a call is ready.
pub(crate) async fn keep_link_counts(ctx: &Ctx, who: &Who, answer: &mut Answer) {
    let nodes = ctx.with(|state| state.uncounted_in(answer, who.caller));
    if nodes.is_empty() {
        return;
    }
    for (node, _) in nodes.into_iter().filter(|(_, is_all_else_old)| *is_all_else_old) {
        ctx.notify(Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 }).await;
    }
    // What locks say may have changed meanwhile.
    let take_lifetimes = |entry: &mut EntryAnswer| {
        (entry.entry_valid, entry.attr_valid) = (Duration::ZERO, Duration::ZERO);
    };
    match answer {
        Answer::Attr(answer) => answer.attr_valid = Duration::ZERO,
        Answer::Entry(entry) => take_lifetimes(entry),
        Answer::Entries(entries) => {
            entries.iter_mut().filter_map(|entry| entry.entry.as_mut()).for_each(take_lifetimes);
        }
        _ => {}
    }
}
