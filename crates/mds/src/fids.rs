//! New file identifiers. Each incarnation of the MDT begins with sequences that no earlier one has used, so that a
//! number lost in a crash never comes back with another meaning (hazards 1.6 and 5.2). Nothing has to be stored: the
//! sequences of an incarnation follow from its epoch, which was made durable before anything was served.

use base::{Epoch, Fid, Status};
use std::collections::BTreeMap;

/// Sequences of one incarnation: 16,384 of 2^20 files each; 65,536 incarnations fit.
const SEQUENCES_PER_EPOCH: u64 = 1 << 14;

// An MDT that had to begin after whatever start is believed of it has FIDs for as many starts again.
const _: () = assert!(2 * Epoch::BELIEVED_MAX.0 * SEQUENCES_PER_EPOCH <= Fid::SEQ_PER_MDT);

#[derive(Debug)]
pub struct Fids {
    mdt_index: u16,
    epoch: Epoch,
    /// Sequences that this incarnation has begun, the one of its own files the last but for those that were given.
    begun_count: u64,
    own: Sequence,
    /// Those that other MDTs use, of this incarnation.
    given: BTreeMap<u16, Sequence>,
    /// Sequences that were ever given, and to whom.
    users: BTreeMap<u64, u16>,
}

#[derive(Clone, Copy, Debug)]
struct Sequence {
    seq: u64,
    next_oid: u32,
}

/// FIDs for another MDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub first: Fid,
    pub count: u32,
    /// Who uses the sequence has to be written down first.
    pub is_new_sequence: bool,
}

impl Fids {
    pub fn new(mdt_index: u16, epoch: Epoch) -> Fids {
        let nothing = Sequence { seq: 0, next_oid: Fid::OIDS_PER_SEQ };
        Fids {
            mdt_index,
            epoch,
            begun_count: 0,
            own: nothing,
            given: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }

    /// Which incarnation of its MDT has issued a FID.
    pub fn epoch_of(fid: Fid) -> Option<Epoch> {
        let nth = fid.seq.checked_sub(Fid::SEQ_NORMAL)? % Fid::SEQ_PER_MDT;
        Some(Epoch(nth / SEQUENCES_PER_EPOCH))
    }

    /// A FID that was never issued before.
    ///
    /// # Errors
    /// `NoSpace` when all numbers of the MDT are used up.
    pub fn allocate(&mut self) -> Result<Fid, Status> {
        if self.own.next_oid >= Fid::OIDS_PER_SEQ {
            self.own = self.begin_sequence()?;
        }
        let Sequence { seq, next_oid: oid } = self.own;
        self.own.next_oid += 1;
        Ok(Fid { seq, oid, ver: 0 })
    }

    /// FIDs for directories that another MDT makes here: at most `count`, and at least one.
    ///
    /// # Errors
    /// As `allocate`.
    pub fn give(&mut self, user: u16, count: u32) -> Result<Given, Status> {
        let current = self.given.get(&user).copied().filter(|sequence| sequence.next_oid < Fid::OIDS_PER_SEQ);
        let is_new_sequence = current.is_none();
        let mut sequence = match current {
            Some(sequence) => sequence,
            None => self.begin_sequence()?,
        };
        let count = count.clamp(1, Fid::OIDS_PER_SEQ - sequence.next_oid);
        let first = Fid { seq: sequence.seq, oid: sequence.next_oid, ver: 0 };
        sequence.next_oid += count;
        self.given.insert(user, sequence);
        self.users.insert(sequence.seq, user);
        Ok(Given { first, count, is_new_sequence })
    }

    /// The MDT that makes directories with the FIDs of this one's sequence, if it is not this MDT itself.
    pub fn user_of(&self, fid: Fid) -> Option<u16> {
        self.users.get(&fid.seq).copied()
    }

    /// An earlier incarnation has given a sequence away.
    pub fn note_given(&mut self, seq: u64, user: u16) {
        self.users.insert(seq, user);
    }

    fn begin_sequence(&mut self) -> Result<Sequence, Status> {
        let nth = self
            .epoch
            .0
            .checked_mul(SEQUENCES_PER_EPOCH)
            .and_then(|first| first.checked_add(self.begun_count))
            .filter(|nth| *nth < Fid::SEQ_PER_MDT && self.begun_count < SEQUENCES_PER_EPOCH)
            .ok_or(Status::NoSpace)?;
        self.begun_count += 1;
        Ok(Sequence { seq: Fid::sequence(self.mdt_index, nth), next_oid: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_fids_are_nobody_elses_and_say_whose_they_are() {
        let mut fids = Fids::new(1, Epoch(7));
        let own = fids.allocate().expect("a FID");
        let first = fids.give(0, 10).expect("FIDs");
        let next = fids.give(0, 5).expect("FIDs");
        let other = fids.give(2, 1).expect("FIDs");
        assert!(first.is_new_sequence && !next.is_new_sequence && other.is_new_sequence);
        assert_eq!((next.first.seq, next.first.oid), (first.first.seq, first.first.oid + 10));
        assert_ne!(own.seq, first.first.seq);
        assert_ne!(other.first.seq, first.first.seq);
        let users = [own, first.first, other.first].map(|fid| fids.user_of(fid));
        assert_eq!(users, [None, Some(0), Some(2)]);
        assert_eq!(fids.allocate().expect("a FID").seq, own.seq);
        assert!([own, first.first, other.first].iter().all(|fid| Fids::epoch_of(*fid) == Some(Epoch(7))));
    }

    #[test]
    fn who_begins_after_the_highest_start_that_is_believed_has_fids() {
        for starts in [1, 64, Epoch::BELIEVED_MAX.0 - 1] {
            assert!(Fids::new(0, Epoch(Epoch::BELIEVED_MAX.0 + starts)).allocate().is_ok());
        }
    }

    #[test]
    fn a_used_up_sequence_is_followed_by_a_new_one() {
        let mut fids = Fids::new(0, Epoch(1));
        let whole = fids.give(1, u32::MAX).expect("FIDs");
        assert_eq!(whole.count, Fid::OIDS_PER_SEQ - 1);
        let next = fids.give(1, 1).expect("FIDs");
        assert!(next.is_new_sequence);
        assert_ne!(next.first.seq, whole.first.seq);
    }
}
