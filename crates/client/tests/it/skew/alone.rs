//! One target of today among the other servers and the clients of a recording: those ask it and answer it as they did then.

use super::meaning::Meaning;
use super::played::{MDT_COUNT, Numbers, OST_COUNT, differences, done};
use super::tap::Tap;
use super::tape::{Tape, What};
use crate::world::World;
use base::{Endpoint, TargetId, Xid};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Frame, FrameKind, OstRequest, Request};

/// How long is waited for a request that was made by then, in tenths of a second.
const PATIENCE: usize = 100;

/// Plays everybody but one target. Returns what that one says otherwise than then, each in a line.
///
/// What is for it arrives at the recorded times and in the recorded order, and its store becomes durable in that order too. An answer
/// to it waits until it has asked. When it asks, or answers, may be another moment than then.
pub fn play_to(tape: &Tape, target: TargetId) -> Vec<String> {
    let mut player = Player::new(tape, target);
    for number in 0..tape.moments.len() {
        player.play(number);
    }
    player.differences()
}

struct Player<'a> {
    tape: &'a Tape,
    target: TargetId,
    world: World,
    numbers: Numbers,
    /// Of each moment: as which incarnation of the target it happened.
    incarnations: Vec<usize>,
    /// What the target had asked then, by moment. Of one that was sent again the first.
    asked_then: BTreeMap<usize, Meaning>,
    /// Moments of those that it has not asked yet.
    unasked: BTreeSet<usize>,
    /// Where we are.
    at: usize,
    /// Requests of today, by those of then.
    xids: BTreeMap<usize, Xid>,
    /// All requests of today: incarnation, whom, and which.
    asked: BTreeSet<(usize, Endpoint, Xid)>,
    said: Vec<Frame>,
    unexpected: Vec<String>,
}

impl<'a> Player<'a> {
    fn new(tape: &'a Tape, target: TargetId) -> Player<'a> {
        let mut world = World::with_servers(MDT_COUNT, OST_COUNT, false, Tap::Alone(target, Vec::new()));
        // When stores sync is in the recording.
        world.is_syncing = false;
        world.run();
        let mut incarnation = 0;
        let mut incarnations = Vec::new();
        let mut asked_then = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (number, moment) in tape.moments.iter().enumerate() {
            match &moment.what {
                What::Restart(of) | What::PowerLoss(of) if *of == target => incarnation += 1,
                What::Frame(frame)
                    if is_request_of(frame, target) && seen.insert((incarnation, frame.dst, frame.xid)) =>
                {
                    asked_then.insert(number, Meaning::of(frame));
                }
                _ => {}
            }
            incarnations.push(incarnation);
        }
        let unasked = asked_then.keys().copied().collect();
        Player {
            tape,
            target,
            world,
            numbers: Numbers::default(),
            incarnations,
            asked_then,
            unasked,
            at: 0,
            xids: BTreeMap::new(),
            asked: BTreeSet::new(),
            said: Vec::new(),
            unexpected: Vec::new(),
        }
    }

    fn play(&mut self, number: usize) {
        let moment = &self.tape.moments[number];
        while self.world.now.time < moment.time {
            self.world.pass_a_little();
        }
        self.listen();
        self.at = number;
        match &moment.what {
            What::Restart(of) if *of == self.target => self.world.restart(*of),
            What::PowerLoss(of) if *of == self.target => self.world.lose_power(*of),
            What::Sync(of) if *of == self.target => self.world.sync_target(*of),
            What::Frame(frame) if frame.dst == Endpoint::Target(self.target) => self.hand_in(frame),
            What::Restart(_) | What::PowerLoss(_) | What::Sync(_) | What::Frame(_) => {}
        }
        self.world.run();
        self.listen();
    }

    fn hand_in(&mut self, frame: &Frame) {
        let mut frame = self.numbers.of_today(frame);
        if frame.kind == FrameKind::Reply
            && let Some(request) = self.request_of(&frame)
        {
            for _ in 0..PATIENCE {
                if self.xids.contains_key(&request) {
                    break;
                }
                self.world.pass_a_little();
                self.listen();
            }
            let Some(xid) = self.xids.get(&request) else { return };
            frame.xid = *xid;
        }
        self.world.hand_in(frame);
    }

    /// The moment in which this incarnation had asked then what is answered now.
    fn request_of(&self, reply: &Frame) -> Option<usize> {
        let is_it = |number: &&usize| match &self.tape.moments[**number].what {
            What::Frame(then) => {
                (then.dst, then.xid) == (reply.src, reply.xid)
                    && self.incarnations[**number] == self.incarnations[self.at]
            }
            _ => false,
        };
        self.asked_then.keys().find(is_it).copied()
    }

    /// Takes what the target has said.
    fn listen(&mut self) {
        let Tap::Alone(_, said) = &mut self.world.tap else { panic!("it stays alone") };
        for frame in std::mem::take(said) {
            if is_request_of(&frame, self.target) {
                self.note_asked(&frame);
                continue;
            }
            let from = &self.tape.moments[self.at..];
            let frames = from.iter().filter_map(|moment| match &moment.what {
                What::Frame(frame) => Some(frame),
                _ => None,
            });
            self.numbers.learn(frames, &frame);
            self.said.push(frame);
        }
    }

    fn note_asked(&mut self, frame: &Frame) {
        let incarnation = self.incarnations[self.at];
        if !self.asked.insert((incarnation, frame.dst, frame.xid)) {
            return;
        }
        let meaning = Meaning::of(&self.numbers.of_then(frame));
        let is_it = |number: &&usize| {
            self.incarnations[**number] == incarnation && self.asked_then.get(number) == Some(&meaning)
        };
        if let Some(number) = self.unasked.iter().find(is_it).copied() {
            self.unasked.remove(&number);
            self.xids.insert(number, frame.xid);
        } else if is_own_matter(frame) {
            self.world.hand_in(done(frame));
        } else {
            self.unexpected.push(format!("now: {} to {}: {}", meaning.src, meaning.dst, meaning.text));
        }
    }

    fn differences(&self) -> Vec<String> {
        let unasked = self.unasked.iter().filter_map(|number| {
            let What::Frame(frame) = &self.tape.moments[*number].what else { return None };
            let text = &self.asked_then.get(number)?.text;
            (!is_own_matter(frame)).then(|| format!("then: {} to {}: {text}", frame.src, frame.dst))
        });
        let said: Vec<Frame> = self.said.iter().map(|frame| self.numbers.of_then(frame)).collect();
        let then = self.tape.frames();
        let then = then.filter(|frame| frame.src == Endpoint::Target(self.target));
        let then = then.filter(|frame| frame.kind != FrameKind::Request);
        unasked.chain(self.unexpected.iter().cloned()).chain(differences(then, said.iter())).collect()
    }
}

fn is_request_of(frame: &Frame, target: TargetId) -> bool {
    frame.kind == FrameKind::Request && frame.src == Endpoint::Target(target)
}

/// How often a target makes sure of another one, or wants to know its room, is its own matter. It gets on without an answer.
fn is_own_matter(frame: &Frame) -> bool {
    let request = Request::from_bytes(&frame.body);
    matches!(request, Ok(Request::Ping { .. } | Request::Ost(OstRequest::Statfs)))
}
