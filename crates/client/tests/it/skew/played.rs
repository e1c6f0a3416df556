//! One end of a recording against the other end of today.

use super::management::Management;
use super::meaning::Meaning;
use super::tap::Tap;
use super::tape::{Tape, What};
use crate::world::World;
use base::{Endpoint, Fid, TargetKind, Time, Xid};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Frame, FrameKind, LockRequest, MdtReply, PeerReply, Reply, Request};

pub const MDT_COUNT: u16 = 2;
pub const OST_COUNT: u16 = 2;

/// Plays the clients of a recording to the servers of today. Returns what they answer otherwise than then, each in a line.
///
/// The frames arrive at the recorded times and in the recorded order; everything that follows from one happens before the next.
/// What is said at which moment of this may differ, so what each client hears from each target is compared as a whole.
pub fn play_clients(tape: &Tape) -> Vec<String> {
    let mut world = World::new(MDT_COUNT, OST_COUNT, 0);
    world.management = Some(Management::new(world.now));
    world.tap = Tap::Clients(Vec::new());
    let (mut numbers, mut heard) = (Numbers::default(), Vec::new());
    for moment in &tape.moments {
        while world.now.time < moment.time {
            world.pass_a_little();
        }
        match &moment.what {
            What::Restart(target) => {
                assert_eq!(target.kind, TargetKind::Mdt, "only MDTs are restarted in recordings");
                world.restart_mdt(target.index);
            }
            What::Frame(frame) if matches!(frame.dst, Endpoint::Target(_)) => {
                world.hand_in(numbers.of_today(frame));
            }
            What::Frame(_) | What::PowerLoss(_) | What::Sync(_) => {}
        }
        if let Tap::Clients(answers) = &mut world.tap {
            for answer in answers.drain(..) {
                numbers.learn(tape.frames(), &answer);
                heard.push(answer);
            }
        }
    }
    let heard: Vec<Frame> = heard.iter().map(|answer| numbers.of_then(answer)).collect();
    differences(tape.frames().filter(|frame| frame.kind != FrameKind::Request), heard.iter())
}

/// Numbers of sessions, and FIDs, that the servers of today have given instead of those of then.
#[derive(Default)]
pub struct Numbers {
    sessions: BTreeMap<(Endpoint, Endpoint, u64), u64>,
    fids: BTreeMap<Fid, Fid>,
}

impl Numbers {
    /// `said`: where the answer of then is to be found, as the first one like it.
    pub fn learn<'a>(&mut self, mut said: impl Iterator<Item = &'a Frame>, answer: &Frame) {
        let reply_of =
            |frame: &Frame| Reply::from_bytes(&frame.body).ok().filter(|_| frame.kind == FrameKind::Reply);
        let is_same = |then: &&Frame| {
            then.kind == FrameKind::Reply
                && (then.src, then.dst, then.xid) == (answer.src, answer.dst, answer.xid)
        };
        let then = said.find(is_same).and_then(reply_of);
        match then.zip(reply_of(answer)) {
            Some((Reply::Connected(then), Reply::Connected(now))) => {
                self.sessions.insert((answer.dst, answer.src, then.session), now.session);
            }
            Some((then, now)) => self.fids.extend(fids_of(&then).into_iter().zip(fids_of(&now))),
            None => {}
        }
    }

    pub fn of_today(&self, frame: &Frame) -> Frame {
        if frame.kind != FrameKind::Request {
            // Its session was given by who sends it, as then.
            return Frame { body: with_other_fids(&frame.body, &self.fids), ..frame.clone() };
        }
        let session = |then: u64| *self.sessions.get(&(frame.src, frame.dst, then)).unwrap_or(&then);
        let mut frame = Frame { session: session(frame.session), ..frame.clone() };
        if let Ok(Request::Connect(mut connect)) = Request::from_bytes(&frame.body) {
            connect.session = session(connect.session);
            frame.body = Request::Connect(connect).to_bytes();
        }
        frame.body = with_other_fids(&frame.body, &self.fids);
        frame
    }

    pub fn of_then(&self, answer: &Frame) -> Frame {
        let fids = self.fids.iter().map(|(then, now)| (*now, *then)).collect();
        Frame { body: with_other_fids(&answer.body, &fids), ..answer.clone() }
    }
}

/// What an answer says that was made or found.
fn fids_of(reply: &Reply) -> Vec<Fid> {
    match reply {
        Reply::Mdt(MdtReply::Entry(entry) | MdtReply::WithData { entry, .. }) => vec![entry.fid],
        Reply::Mdt(MdtReply::Striped { stripes, .. }) => stripes.clone(),
        Reply::Peer(PeerReply::NewFid { fid } | PeerReply::Prepared { fid: Some(fid), .. }) => vec![*fid],
        Reply::Peer(PeerReply::NewFids { first, count }) => {
            (first.oid..first.oid.saturating_add(*count)).map(|oid| Fid { oid, ..*first }).collect()
        }
        _ => Vec::new(),
    }
}

/// The bytes with each FID replaced that is to be another.
fn with_other_fids(bytes: &Bytes, fids: &BTreeMap<Fid, Fid>) -> Bytes {
    let encoded = |fid: &Fid| borsh::to_vec(fid).expect("memory takes all");
    let others: BTreeMap<Vec<u8>, Vec<u8>> =
        fids.iter().filter(|(a, b)| a != b).map(|(a, b)| (encoded(a), encoded(b))).collect();
    let length = encoded(&Fid::ROOT).len();
    let (mut replaced, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        match bytes.get(at..at + length).and_then(|fid| others.get(fid)) {
            Some(other) => {
                replaced.extend_from_slice(other);
                at += length;
            }
            None => {
                replaced.push(bytes[at]);
                at += 1;
            }
        }
    }
    replaced.into()
}

/// What each end says otherwise than then, whatever the order.
pub fn differences<'a>(
    then: impl Iterator<Item = &'a Frame>,
    now: impl Iterator<Item = &'a Frame>,
) -> Vec<String> {
    // An answer is one to its request; a target may call back as often as it likes.
    let key = |frame: &Frame| (Meaning::of(frame), (frame.kind == FrameKind::Reply).then_some(frame.xid));
    let mut then: Vec<_> = then.map(key).collect();
    let mut now: Vec<_> = now.map(key).collect();
    for said in [&mut then, &mut now] {
        said.sort();
        said.dedup();
    }
    let line = |when: &str, (meaning, xid): &(Meaning, Option<Xid>)| {
        let (src, dst, byte_count) = (meaning.src, meaning.dst, meaning.data.len());
        format!("{when}: {src} to {dst}, {xid:?}, {byte_count} bytes of data: {}", meaning.text)
    };
    let gone = then.iter().filter(|said| now.binary_search(said).is_err()).map(|said| line("then", said));
    let new = now.iter().filter(|said| then.binary_search(said).is_err()).map(|said| line("now", said));
    gone.chain(new).collect()
}

pub fn done(request: &Frame) -> Frame {
    let mut reply = Frame::new(FrameKind::Reply, request.dst, request.src);
    (reply.session, reply.xid) = (request.session, request.xid);
    reply.body = Reply::Done.to_bytes();
    reply
}

/// The servers of a recording, for the clients of today.
///
/// A request is looked for among those of then that were not asked yet; its answer, and what else targets said, comes at its
/// recorded time, but not before everything has been asked that had arrived before it.
pub struct Servers {
    tape: Tape,
    is_asked: Vec<bool>,
    /// Moments before this one have been said or asked.
    next: usize,
    /// Requests of today, by those of then.
    xids: BTreeMap<(Endpoint, Endpoint, Xid), Xid>,
    /// Requests that nobody asked then.
    unexpected: Vec<String>,
}

impl Servers {
    pub fn new(tape: Tape) -> Servers {
        let is_asked = vec![false; tape.moments.len()];
        Servers { tape, is_asked, next: 0, xids: BTreeMap::new(), unexpected: Vec::new() }
    }

    /// What the servers say when this arrives.
    pub fn answer(&mut self, now: Time, frame: &Frame) -> Vec<Frame> {
        let meaning = Meaning::of(frame);
        let is_it = |(number, what): &(usize, &What)| match what {
            What::Frame(then) => {
                then.kind == FrameKind::Request
                    && self.is_asked.get(*number) == Some(&false)
                    && Meaning::of(then) == meaning
            }
            What::Restart(_) | What::PowerLoss(_) | What::Sync(_) => false,
        };
        let whats = self.tape.moments.iter().map(|moment| &moment.what).enumerate();
        let Some((number, What::Frame(then))) = whats.skip(self.next).find(is_it) else {
            // Locks may go back sooner than they did then, and any server takes that.
            if matches!(Request::from_bytes(&frame.body), Ok(Request::Lock(LockRequest::Cancel { .. }))) {
                return vec![done(frame)];
            }
            self.unexpected.push(format!("{} to {}: {}", meaning.src, meaning.dst, meaning.text));
            return Vec::new();
        };
        self.xids.insert((then.src, then.dst, then.xid), frame.xid);
        self.is_asked[number] = true;
        self.say(now)
    }

    /// What they say by themselves, or have been about to say.
    pub fn say(&mut self, now: Time) -> Vec<Frame> {
        let mut said = Vec::new();
        while let Some(moment) = self.tape.moments.get(self.next).filter(|moment| moment.time <= now) {
            match &moment.what {
                What::Restart(_) | What::PowerLoss(_) | What::Sync(_) => {}
                What::Frame(frame) if frame.kind == FrameKind::Request => {
                    if !self.is_asked[self.next] {
                        break;
                    }
                }
                What::Frame(frame) => {
                    let xid = self.xids.get(&(frame.dst, frame.src, frame.xid)).copied();
                    said.push(Frame { xid: xid.unwrap_or(frame.xid), ..frame.clone() });
                }
            }
            self.next += 1;
        }
        said
    }

    /// Requests of today that nobody asked then, and those of then that nobody asks today.
    pub fn differences(&self) -> Vec<String> {
        let unasked = self.tape.moments.iter().zip(&self.is_asked).filter(|(_, is_asked)| !**is_asked);
        let unasked = unasked.filter_map(|(moment, _)| match &moment.what {
            What::Frame(frame) if frame.kind == FrameKind::Request => {
                Some(format!("then: {} to {}: {}", frame.src, frame.dst, Meaning::of(frame).text))
            }
            _ => None,
        });
        unasked.chain(self.unexpected.iter().map(|line| format!("now: {line}"))).collect()
    }
}
