//! Requests without a slot that are not executed twice: who asks for an advisory lock, or gives one up, may have done the opposite since.
//! What they were answered is kept until their caller is known to have it, and a copy that comes late is answered with it.

use base::{Status, StatusClass, Xid};
use std::collections::BTreeMap;
use wire::{MdtRequest, Request};

/// Answers of one client. Behind a request that waits for long its caller does not say what it has got: the oldest go.
const ANSWERS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Once {
    /// Nothing while the request is under way.
    answers: BTreeMap<Xid, Option<Status>>,
    answered_count: usize,
}

/// Whether a copy of a request may not be executed.
pub(super) fn is_once(request: &Request) -> bool {
    matches!(request, Request::Mdt(MdtRequest::Flock { .. } | MdtRequest::FlockCancel { .. }))
}

impl Once {
    /// Such a request is executed.
    pub fn begin(&mut self, xid: Xid) {
        self.answers.entry(xid).or_default();
    }

    pub fn answer_of(&self, xid: Xid) -> Option<Status> {
        self.answers.get(&xid).copied().flatten()
    }

    /// A request without a slot is answered.
    pub fn end(&mut self, xid: Xid, status: Status) {
        let Some(answer) = self.answers.get_mut(&xid) else { return };
        if status.class() == StatusClass::Retry {
            self.answers.remove(&xid);
            return;
        }
        if answer.replace(status).is_none() {
            self.answered_count += 1;
        }
        if self.answered_count > ANSWERS_MAX {
            let oldest = self.answers.iter().find(|(_, answer)| answer.is_some()).map(|(xid, _)| *xid);
            oldest.and_then(|xid| self.answers.remove(&xid));
            self.answered_count -= 1;
        }
    }

    /// The client has got every answer up to this.
    pub fn forget_up_to(&mut self, acked: Xid) {
        while let Some(first) = self.answers.first_entry().filter(|first| *first.key() <= acked) {
            self.answered_count -= usize::from(first.remove().is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_until_they_are_heard_and_so_many() {
        let mut once = Once::default();
        once.end(Xid(1), Status::Ok);
        assert_eq!(once.answer_of(Xid(1)), None, "it is another request");
        once.begin(Xid(2));
        assert_eq!(once.answer_of(Xid(2)), None, "it is under way");
        for xid in 3..3 + ANSWERS_MAX as u64 {
            once.begin(Xid(xid));
            once.end(Xid(xid), Status::Again);
            assert_eq!(once.answer_of(Xid(xid)), None, "it may be asked again");
            once.begin(Xid(xid));
            once.end(Xid(xid), Status::Ok);
        }
        assert_eq!(once.answer_of(Xid(3)), Some(Status::Ok));
        once.end(Xid(2), Status::Interrupted);
        assert_eq!(once.answer_of(Xid(2)), None, "there is no room");
        assert_eq!(once.answer_of(Xid(3)), Some(Status::Ok));
        once.forget_up_to(Xid(3));
        assert_eq!((once.answer_of(Xid(3)), once.answer_of(Xid(4))), (None, Some(Status::Ok)));
        once.forget_up_to(Xid(u64::MAX));
        assert_eq!((once.answers.len(), once.answered_count), (0, 0));
    }
}
