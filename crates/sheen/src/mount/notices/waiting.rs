//! Notices that wait for a thread, those about the names of one directory one after the other.

use client::{Notify, NotifyId};
use std::collections::{HashMap, VecDeque};

/// What a notice is about, as far as others wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Names of a directory, by its node. The kernel wants the directory's lock for each: where a call holds that, a second thread would
    /// stand there too.
    Names(u64),
    Other,
}

/// Each time that a thread has told of a name, the next one of its directory is ready.
#[derive(Default)]
pub(super) struct Waiting {
    ready: VecDeque<(NotifyId, Notify)>,
    /// By directories of which a name is ready or being told.
    behind: HashMap<u64, VecDeque<(NotifyId, Notify)>>,
}

impl Subject {
    pub(super) fn of(notice: &Notify) -> Subject {
        notice.directory().map_or(Subject::Other, Subject::Names)
    }
}

impl Waiting {
    /// Those that a thread could take now.
    pub(super) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn push(&mut self, id: NotifyId, notice: Notify) {
        if let Subject::Names(parent) = Subject::of(&notice) {
            if let Some(behind) = self.behind.get_mut(&parent) {
                return behind.push_back((id, notice));
            }
            self.behind.insert(parent, VecDeque::new());
        }
        self.ready.push_back((id, notice));
    }

    pub(super) fn pop(&mut self) -> Option<(NotifyId, Notify)> {
        self.ready.pop_front()
    }

    /// One that was popped is told.
    pub(super) fn end(&mut self, subject: Subject) {
        let Subject::Names(parent) = subject else { return };
        match self.behind.get_mut(&parent).and_then(VecDeque::pop_front) {
            Some(next) => self.ready.push_back(next),
            None => drop(self.behind.remove(&parent)),
        }
    }

    /// True when it was ready, and nobody will get it. Of names none is taken back.
    pub(super) fn remove(&mut self, id: NotifyId) -> bool {
        let found = self.ready.iter().position(|(known, _)| *known == id);
        found.and_then(|index| self.ready.remove(index)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parent: u64, name: &[u8]) -> Notify {
        Notify::InvalEntry { parent, name: name.to_vec() }
    }

    #[test]
    fn a_directory_in_which_a_thread_stands_keeps_its_own_names_only() {
        let mut waiting = Waiting::default();
        waiting.push(NotifyId(1), name(7, b"a"));
        waiting.push(NotifyId(2), name(7, b"b"));
        waiting.push(NotifyId(3), name(7, b"c"));
        assert_eq!(waiting.pop(), Some((NotifyId(1), name(7, b"a"))));
        assert_eq!(waiting.pop(), None, "the directory's next one waits for the first");
        waiting.push(NotifyId(4), name(1, b"d"));
        assert_eq!(waiting.pop(), Some((NotifyId(4), name(1, b"d"))), "another directory's does not");
        waiting.end(Subject::Names(7));
        assert_eq!(waiting.pop(), Some((NotifyId(2), name(7, b"b"))));
        waiting.end(Subject::Names(7));
        assert_eq!(waiting.pop(), Some((NotifyId(3), name(7, b"c"))), "in the order in which they came");
        waiting.end(Subject::Names(7));
        waiting.end(Subject::Names(1));
        assert!(waiting.behind.is_empty());
        waiting.push(NotifyId(5), name(7, b"e"));
        assert_eq!(waiting.ready_count(), 1);
    }

    #[test]
    fn several_names_wait_for_their_directory_as_one_does() {
        let mut waiting = Waiting::default();
        let several = Notify::Several(vec![name(7, b"b"), name(7, b"c")]);
        waiting.push(NotifyId(1), name(7, b"a"));
        waiting.push(NotifyId(2), several.clone());
        assert_eq!(waiting.pop(), Some((NotifyId(1), name(7, b"a"))));
        assert_eq!(waiting.pop(), None);
        waiting.end(Subject::Names(7));
        assert_eq!(waiting.pop(), Some((NotifyId(2), several)));
    }
}
