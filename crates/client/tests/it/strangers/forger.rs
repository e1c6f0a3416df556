//! Who has heard what clients and targets ask, and asks it again with damage.

use base::{Endpoint, Rng, Transno, Xid};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wire::{Frame, FrameKind, Request, flags};

/// Requests that are remembered.
const HEARD_MAX: usize = 512;
/// What it says between two moments: what it is answered gives it ideas.
const SAID_MAX: usize = 40;

/// Whose requests are repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Clients,
    Everybody,
}

pub struct Strangers {
    rng: Rng,
    whose: Whose,
    heard: VecDeque<Frame>,
    /// The last number under which a target has executed something.
    reached: BTreeMap<Endpoint, Transno>,
    said_count: usize,
    pub total_count: usize,
}

impl Strangers {
    pub fn new(seed: u64, whose: Whose) -> Strangers {
        Strangers {
            rng: Rng::new(seed),
            whose,
            heard: VecDeque::new(),
            reached: BTreeMap::new(),
            said_count: 0,
            total_count: 0,
        }
    }

    /// A frame that somebody sends; what is said because of it goes behind it.
    pub fn pass(&mut self, frame: &Frame, under_way: &mut VecDeque<Frame>) {
        if self.said_count < SAID_MAX && !self.rng.one_in(3) {
            let forged = self.forge();
            self.said_count += usize::from(forged.is_some());
            self.total_count += usize::from(forged.is_some());
            under_way.extend(forged);
        }
        if frame.kind == FrameKind::Reply && frame.transno != Transno::ZERO {
            self.reached.insert(frame.src, frame.transno);
        }
        let is_asked = frame.kind == FrameKind::Request && matches!(frame.dst, Endpoint::Target(_));
        let is_theirs = self.whose == Whose::Everybody || matches!(frame.src, Endpoint::Client(_));
        if is_asked && is_theirs {
            self.heard.push_back(frame.clone());
            if self.heard.len() > HEARD_MAX {
                self.heard.pop_front();
            }
        }
    }

    pub fn tick(&mut self) {
        self.said_count = 0;
    }

    fn heard(&mut self) -> Option<Frame> {
        let at = self.rng.below(self.heard.len().max(1) as u64) as usize;
        self.heard.get(at).cloned()
    }

    /// One of the requests that were heard, with damage that leaves it one.
    fn forge(&mut self) -> Option<Frame> {
        let mut frame = self.heard()?;
        if self.rng.one_in(2) {
            frame.session = self.session_of(&frame);
        }
        if self.rng.one_in(4) {
            // As if it had been answered before a restart.
            frame.flags |= flags::REPLAY;
            (frame.transno, frame.last_committed) = (self.transno(&frame), self.transno(&frame));
        }
        for _ in 0..self.rng.below(3) {
            self.damage_header(&mut frame);
        }
        for _ in 0..self.rng.below(4) {
            let body = self.damaged(&frame.body);
            if Request::from_bytes(&body).is_ok() {
                frame.body = body;
            }
        }
        if !frame.data.is_empty() && self.rng.one_in(4) {
            frame.data = self.damaged(&frame.data);
        }
        Some(frame)
    }

    /// That of the last request between these two.
    fn session_of(&self, frame: &Frame) -> u64 {
        let latest = self.heard.iter().rev().find(|heard| (heard.src, heard.dst) == (frame.src, frame.dst));
        latest.map_or(frame.session, |latest| latest.session)
    }

    fn damage_header(&mut self, frame: &mut Frame) {
        let small = self.rng.below(64);
        match self.rng.below(9) {
            0 => frame.xid = Xid(frame.xid.0.wrapping_add(1 + small)),
            1 => frame.xid = Xid(self.rng.next_u64()),
            2 => frame.slot = self.rng.below(40) as u16,
            3 => frame.slot = Frame::NO_SLOT,
            4 => frame.flags ^= 1 << self.rng.below(6),
            5 => frame.transno = self.transno(frame),
            6 => frame.last_committed = self.transno(frame),
            7 => frame.acked = Xid(frame.xid.0.wrapping_sub(small)),
            _ => {
                if let Some(other) = self.heard() {
                    (frame.src, frame.session) = (other.src, other.session);
                }
            }
        }
    }

    fn transno(&mut self, frame: &Frame) -> Transno {
        let reached = self.reached.get(&frame.dst).copied().unwrap_or_default();
        match self.rng.below(8) {
            0 => Transno::ZERO,
            1 => Transno(u64::MAX),
            2 => Transno(frame.transno.0.wrapping_add(1)),
            _ => Transno(reached.0.saturating_sub(self.rng.below(40))),
        }
    }

    fn damaged(&mut self, bytes: &Bytes) -> Bytes {
        let mut bytes = bytes.to_vec();
        let at = self.rng.below(bytes.len().max(1) as u64) as usize;
        match self.rng.below(6) {
            0..=2 if !bytes.is_empty() => bytes[at] ^= 1 << self.rng.below(8),
            3 if !bytes.is_empty() => bytes[at] = self.rng.next_u64() as u8,
            4 => {
                // A number of eight bytes as of another request, or as large as can be.
                let other = self.heard().map(|frame| frame.body).unwrap_or_default();
                let from = self.rng.below(other.len().max(1) as u64) as usize;
                let part = other.get(from..from + 8).unwrap_or(&[0xff; 8]);
                bytes.iter_mut().skip(at).zip(part).for_each(|(byte, new)| *byte = *new);
            }
            _ => bytes.truncate(at),
        }
        bytes.into()
    }
}
