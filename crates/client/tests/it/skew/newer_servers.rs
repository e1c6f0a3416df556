//! A made-up next version among servers: each of them finds that every other one is of it. Beside what it says otherwise
//! (`newer`) it asks for what nobody here knows, and puts records of an unknown kind into its streams.

use super::newer;
use base::{Endpoint, Fid, Status, TargetKind, Xid};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wire::peer::{Item, OperationId, Part};
use wire::{Frame, FrameKind, PeerRequest, Request};

/// Sessions of a test do not come so far.
const FIRST_XID: u64 = 1 << 40;
/// Of an operation, and of a part.
const UNKNOWN: u8 = 200;
/// Where the kind of its first part stands in a `Hold`: behind class, operation, epoch, a length, two names of operations and a length.
const PART_KIND_AT: usize = 1 + 1 + 8 + 4 + 18 + 18 + 4;

/// What nobody of today knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    Operation,
    StreamedPart,
}

#[derive(Default)]
pub struct NewerServers {
    asked: BTreeMap<Xid, Asked>,
    /// How often which kind of target has answered what to this.
    pub answers: BTreeMap<(TargetKind, Asked, Status), usize>,
}

impl NewerServers {
    pub fn pass(&mut self, frame: Frame, under_way: &mut VecDeque<Frame>) -> Option<Frame> {
        let (Endpoint::Target(src), Endpoint::Target(dst)) = (frame.src, frame.dst) else {
            return Some(frame);
        };
        match frame.kind {
            FrameKind::Request if self.asked.contains_key(&frame.xid) => return Some(frame),
            FrameKind::Request if frame.session != 0 => {
                under_way.push_back(self.beside(&frame, Asked::Operation, unknown_operation(dst.kind)));
                if dst.kind == TargetKind::Mdt {
                    let body = hold_with_unknown_part(src.index);
                    under_way.push_back(self.beside(&frame, Asked::StreamedPart, body));
                }
            }
            FrameKind::Reply => {
                if let Some(asked) = self.asked.get(&frame.xid) {
                    *self.answers.entry((src.kind, *asked, frame.status)).or_default() += 1;
                    return None;
                }
                under_way.push_back(newer::unknown_callback(&frame));
            }
            FrameKind::Request | FrameKind::Callback => {}
        }
        Some(newer::seen_from_today(&frame))
    }

    /// In the session of a request, behind it.
    fn beside(&mut self, request: &Frame, asked: Asked, body: Bytes) -> Frame {
        let xid = Xid(FIRST_XID + self.asked.len() as u64);
        self.asked.insert(xid, asked);
        Frame { xid, flags: 0, slot: Frame::NO_SLOT, body, data: Bytes::new(), ..request.clone() }
    }
}

fn unknown_operation(of: TargetKind) -> Bytes {
    let class = if of == TargetKind::Mdt { 50 } else { 30 };
    Bytes::copy_from_slice(&[class, UNKNOWN, 1, 2, 3])
}

/// The first item of a stream, which would do something new.
pub fn hold_with_unknown_part(mdt_index: u16) -> Bytes {
    let previous = OperationId::before_all(mdt_index);
    let part = Part::RemoveDirectory { fid: Fid::ROOT, must_own: false };
    let item = Item {
        id: OperationId { epoch: 1, number: 1, ..previous },
        previous,
        parts: vec![part],
        witness: None,
    };
    let hold = Request::Peer(PeerRequest::Hold { epoch: 1, items: vec![item] });
    let mut body = hold.to_bytes().to_vec();
    assert_eq!(body[PART_KIND_AT], 2, "a `RemoveDirectory`");
    body[PART_KIND_AT] = UNKNOWN;
    body.into()
}
