//! Frames that wait until the target serves. What has no room is dropped, and its sender sends it again.

use base::{ClientId, Xid};
use std::collections::{BTreeSet, VecDeque};
use wire::Frame;

const FRAMES_MAX: usize = 16_384;
/// Of bodies and data. Who waits with file data in so many frames is many clients: one that was there before has little on its way until
/// it knows that it is served.
const BYTES_MAX: usize = 256 << 20;

#[derive(Debug, Default)]
pub(super) struct HeldFrames {
    frames: VecDeque<Frame>,
    /// Of those with a session. They are sent again and again while they wait.
    held: BTreeSet<(ClientId, u64, Xid)>,
    byte_count: usize,
}

impl HeldFrames {
    pub fn push(&mut self, frame: Frame) {
        let byte_count = self.byte_count + frame.body.len() + frame.data.len();
        let which = (frame.src.client_id(), frame.session, frame.xid);
        let is_copy = frame.session != 0 && self.held.contains(&which);
        if self.frames.len() < FRAMES_MAX && byte_count <= BYTES_MAX && !is_copy {
            self.held.insert(which);
            self.byte_count = byte_count;
            self.frames.push_back(frame.detached());
        }
    }

    /// All of them, as they came.
    pub fn take(&mut self) -> VecDeque<Frame> {
        std::mem::take(self).frames
    }
}
