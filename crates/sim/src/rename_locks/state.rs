//! What the MDTs, the two renames and their clients are in.

use super::stories::{DIRECTORY_COUNT_MAX, Directory, MDT_COUNT, Resources};

/// One attempt of a rename. Numbers of attempts that nobody knows any more are given again, so that states are finitely many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tag {
    pub op: u8,
    pub attempt: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Goes on when nothing of `Op::parked` is frozen.
    Ready,
    AskingLock,
    AskingParent,
    Claiming,
    /// Goes on when all have answered.
    Preparing,
    BackingOff,
    Ended(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Done,
    /// There is no such name, or the directory would be below itself.
    Refused,
    /// Its client is gone.
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hold {
    No,
    Asked,
    Held,
}

/// A rename, at its coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Op {
    pub attempt: u8,
    pub phase: Phase,
    pub lock: Hold,
    /// The rename lock is not its any more, and it has heard so.
    pub has_lost: bool,
    pub is_peeked: bool,
    /// How far up it has walked.
    pub walk: Directory,
    pub has_walked: bool,
    pub parked: Resources,
    /// MDTs that have not answered, as a set of bits.
    pub unanswered: u8,
    pub is_refused: bool,
}

impl Op {
    pub fn new(attempt: u8, walk: Directory) -> Op {
        Op {
            attempt,
            phase: Phase::Ready,
            lock: Hold::No,
            has_lost: false,
            is_peeked: false,
            walk,
            has_walked: false,
            parked: 0,
            unanswered: 0,
            is_refused: false,
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}

/// Who claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    Flow(u8),
    /// What is, or is to be, prepared.
    Part(Tag),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub who: Who,
    pub resources: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Mdt {
    /// In order of arrival, granted or not.
    pub claims: Vec<Claim>,
    pub prepared: Vec<Tag>,
    /// With the MDTs that have not executed them.
    pub decisions: Vec<(Tag, u8)>,
    /// MDTs that have not come back since a restart.
    pub awaited: u8,
    /// MDTs whose former session is the last one that is known here.
    pub stale: u8,
}

/// The claims of the rename lock, on MDT0000.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct RenameQueue {
    /// The first has it. True: the request is not answered.
    pub claims: Vec<(Tag, bool)>,
    pub released: Vec<Tag>,
}

/// On its way, or sent again until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Message {
    Lock(Tag),
    LockAnswer(Tag, bool),
    Unlock(Tag),
    Peek(Tag, Directory),
    Parent(Tag, Directory, Option<Directory>),
    Prepare(Tag, u8),
    Prepared(Tag, u8, bool),
    Decide(Tag, u8, bool),
    Decided(Tag, u8),
}

impl Message {
    pub fn tag_mut(&mut self) -> &mut Tag {
        match self {
            Message::Lock(tag)
            | Message::LockAnswer(tag, _)
            | Message::Unlock(tag)
            | Message::Peek(tag, _)
            | Message::Parent(tag, _, _)
            | Message::Prepare(tag, _)
            | Message::Prepared(tag, _, _)
            | Message::Decide(tag, _, _)
            | Message::Decided(tag, _) => tag,
        }
    }

    pub fn tag(&self) -> Tag {
        let mut message = *self;
        *message.tag_mut()
    }
}

/// How often something may happen still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub restarts: u8,
    pub silences: u8,
    pub departures: u8,
    pub copies: u8,
    pub grants: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// By directory: those that have a name in it, as a set of bits. On the MDT of the former.
    pub names: [u8; DIRECTORY_COUNT_MAX],
    /// By directory, on its own MDT.
    pub parents: [Directory; DIRECTORY_COUNT_MAX],
    pub ops: [Op; 2],
    pub mdts: [Mdt; MDT_COUNT],
    pub rename: RenameQueue,
    /// Unordered.
    pub messages: Vec<Message>,
    /// Requests for the rename lock that were not answered to those who have sent them.
    pub calls: Vec<Tag>,
    /// By client: whether it has the lock of the story.
    pub has_lock: [bool; 2],
    pub is_there: [bool; 2],
    pub left: Left,
    pub broken: Option<&'static str>,
}

impl State {
    pub fn tag(&self, op: usize) -> Tag {
        Tag { op: op as u8, attempt: self.ops[op].attempt }
    }

    /// The rename that this is an attempt of, unless that is past.
    pub fn current(&mut self, tag: Tag) -> Option<&mut Op> {
        let op = &mut self.ops[tag.op as usize];
        (op.attempt == tag.attempt && !op.has_ended()).then_some(op)
    }

    pub fn is_recovering(&self, mdt: usize) -> bool {
        self.mdts[mdt].awaited != 0
    }

    pub fn send(&mut self, message: Message) {
        self.messages.push(message);
    }

    pub fn drop_claims(&mut self, mdt: usize, is_meant: impl Fn(Who) -> bool) {
        self.mdts[mdt].claims.retain(|claim| !is_meant(claim.who));
    }

    /// Attempts of a rename that messages speak of, but for the present one.
    pub fn old_attempt_count(&self, op: usize) -> usize {
        let is_old = |tag: &Tag| tag.op as usize == op && tag.attempt != self.ops[op].attempt;
        let mut old: Vec<Tag> = self.messages.iter().map(Message::tag).filter(is_old).collect();
        old.extend(self.calls.iter().copied().filter(is_old));
        old.sort_unstable();
        old.dedup();
        old.len()
    }

    /// The same whatever came first, where that makes no difference.
    pub fn settle(&mut self) {
        let messages = &self.messages;
        self.rename.released.retain(|tag| messages.contains(&Message::Lock(*tag)));
        self.rename.released.sort_unstable();
        self.rename.released.dedup();
        for op in 0..2 {
            self.renumber(op);
        }
        self.messages.sort_unstable();
        self.messages.dedup();
        self.calls.sort_unstable();
        self.mdts.iter_mut().for_each(|mdt| {
            mdt.prepared.sort_unstable();
            mdt.decisions.sort_unstable();
        });
    }

    fn renumber(&mut self, op: usize) {
        let mut numbers = Vec::new();
        self.with_tags(|tag| {
            if tag.op as usize == op {
                numbers.push(tag.attempt);
            }
        });
        numbers.push(self.ops[op].attempt);
        numbers.sort_unstable();
        numbers.dedup();
        let place = |attempt: u8| numbers.iter().position(|known| *known == attempt).unwrap_or(0) as u8;
        self.with_tags(|tag| {
            if tag.op as usize == op {
                tag.attempt = place(tag.attempt);
            }
        });
        self.ops[op].attempt = place(self.ops[op].attempt);
    }

    fn with_tags(&mut self, mut act: impl FnMut(&mut Tag)) {
        self.messages.iter_mut().for_each(|message| act(message.tag_mut()));
        self.calls.iter_mut().for_each(&mut act);
        self.rename.claims.iter_mut().for_each(|(tag, _)| act(tag));
        self.rename.released.iter_mut().for_each(&mut act);
        for mdt in &mut self.mdts {
            mdt.prepared.iter_mut().for_each(&mut act);
            mdt.decisions.iter_mut().for_each(|(tag, _)| act(tag));
            for claim in &mut mdt.claims {
                if let Who::Part(tag) = &mut claim.who {
                    act(tag);
                }
            }
        }
    }
}
