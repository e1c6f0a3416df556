//! Times of data, by which a file's MDT tells whether they were changed before or after somebody has set their time.
//!
//! They are of the clock of that MDT, as learnt when the session with it was made, for all that writes the file. Where that clock was set
//! meanwhile, or another client has learnt another time, a time alone does not tell what was first. So each stamp of a file is also later than
//! all that is known of it here: than the stamps that this client has given out for it, and than what its MDT has said. And who sets a time
//! explicitly says up to which stamp it speaks (`MdtRequest::Setattr`).

use crate::state::State;
use base::{Fid, TargetId, WallTime};

impl State {
    /// What time it is, as a target has it; MDT0000 where there is no session with that one.
    pub(crate) fn clock_of(&self, target: TargetId) -> WallTime {
        let wall_of = |target| self.connections.get(&target)?.import.target_wall(self.now.time);
        wall_of(target).or_else(|| wall_of(TargetId::mdt(0))).unwrap_or(self.now.wall)
    }

    /// Of a change of a file's data that is about to be made.
    pub(crate) fn stamp(&mut self, fid: Fid) -> WallTime {
        let stamp = self.next_stamp(fid);
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            node.data.last_stamp = stamp;
        }
        stamp
    }

    /// Later than all data that this client has changed, or has been told of.
    pub(crate) fn next_stamp(&self, fid: Fid) -> WallTime {
        let clock = self.clock_of(State::mdt(fid));
        let Some(node) = self.nodes.by_fid(fid) else { return clock };
        let told = node.attr().map(|attr| attr.mtime_stamp);
        let last = told.into_iter().fold(node.data.last_stamp, WallTime::max);
        clock.max(WallTime(last.0.saturating_add(1)))
    }
}
