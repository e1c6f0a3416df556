//! What takes a name away does the same when it is replayed: to what it had done it to at first, or not at all.

use super::*;
use base::{Transno, Xid};
use wire::mdt::Met;
use wire::{FrameKind, MdtReply, Reply, flags};

/// A client's request at a target.
type Asked<N> = (ClientId, Endpoint, N);

/// Answers that told what names had led to, and replays that are on their way.
#[derive(Default)]
pub(super) struct Replays {
    met: BTreeMap<Asked<Transno>, Met>,
    /// Under the numbers that they had when they were executed first.
    replayed: BTreeMap<Asked<Xid>, Transno>,
}

impl Replays {
    /// A frame is sent. Returns what a replay had met at first and what it has met now, if it is something else.
    pub fn see(&mut self, frame: &Frame) -> Option<(Met, Met)> {
        match (frame.src, frame.dst, frame.kind) {
            (Endpoint::Client(client), target, FrameKind::Request)
                if frame.flags & flags::REPLAY != 0 && frame.transno != Transno::ZERO =>
            {
                self.replayed.insert((client, target, frame.xid), frame.transno);
                None
            }
            (target, Endpoint::Client(client), FrameKind::Reply) if frame.transno != Transno::ZERO => {
                let Ok(Reply::Mdt(MdtReply::RemovedMet { met, .. })) = Reply::from_bytes(&frame.body) else {
                    return None;
                };
                let Some(transno) = self.replayed.get(&(client, target, frame.xid)) else {
                    self.met.insert((client, target, frame.transno), met);
                    return None;
                };
                let before = self.met.get(&(client, target, *transno)).copied();
                before.filter(|before| *before != met).map(|before| (before, met))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(is_reply: bool, xid: u64, transno: u64, reply: Option<Met>) -> Frame {
        let (client, target) = (Endpoint::Client(ClientId(7)), Endpoint::Target(TargetId::mdt(0)));
        let mut frame = match is_reply {
            true => Frame::new(FrameKind::Reply, target, client),
            false => Frame::new(FrameKind::Request, client, target),
        };
        (frame.xid, frame.transno) = (Xid(xid), Transno(transno));
        frame.flags = if is_reply { 0 } else { flags::REPLAY };
        if let Some(met) = reply {
            let (parent_attr, new_parent_attr, child, replaced) = (None, None, None, None);
            let removed = MdtReply::RemovedMet { parent_attr, new_parent_attr, child, replaced, met };
            frame.body = Reply::Mdt(removed).to_bytes();
        }
        frame
    }

    #[test]
    fn a_replay_that_takes_something_else_away_is_found() {
        let fid = |oid| Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 };
        let met = |oid| Met { fid: fid(oid), replaced: None };
        for (again, is_found) in [(1, false), (2, true)] {
            let mut replays = Replays::default();
            assert_eq!(replays.see(&frame(true, 5, 50, Some(met(1)))), None);
            assert_eq!(replays.see(&frame(false, 5, 50, None)), None);
            let found = replays.see(&frame(true, 5, 90, Some(met(again))));
            assert_eq!(found, is_found.then_some((met(1), met(2))));
        }
    }
}
