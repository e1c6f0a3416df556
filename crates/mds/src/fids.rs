//! New file identifiers. Each incarnation of the MDT begins with sequences that no earlier one has used, so that a
//! number lost in a crash never comes back with another meaning (hazards 1.6 and 5.2). Nothing has to be stored: the
//! sequences of an incarnation follow from its epoch, which was made durable before anything was served.

use base::{Epoch, Fid, Status};

/// Sequences of one incarnation: 16,384 of 2^20 files each; 65,536 incarnations fit.
const SEQUENCES_PER_EPOCH: u64 = 1 << 14;

#[derive(Debug)]
pub struct Fids {
    mdt_index: u16,
    epoch: Epoch,
    /// Sequences that this incarnation has used up.
    used_count: u64,
    next_oid: u32,
}

impl Fids {
    pub fn new(mdt_index: u16, epoch: Epoch) -> Fids {
        Fids { mdt_index, epoch, used_count: 0, next_oid: 1 }
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
        if self.next_oid >= Fid::OIDS_PER_SEQ {
            self.used_count += 1;
            self.next_oid = 1;
        }
        let nth = self
            .epoch
            .0
            .checked_mul(SEQUENCES_PER_EPOCH)
            .and_then(|first| first.checked_add(self.used_count))
            .filter(|nth| *nth < Fid::SEQ_PER_MDT && self.used_count < SEQUENCES_PER_EPOCH)
            .ok_or(Status::NoSpace)?;
        let oid = self.next_oid;
        self.next_oid += 1;
        Ok(Fid { seq: Fid::sequence(self.mdt_index, nth), oid, ver: 0 })
    }
}
