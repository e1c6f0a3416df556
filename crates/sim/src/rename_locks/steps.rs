//! What can happen next in a state.

use super::rules::{Rule, Rules};
use super::state::{Claim, Hold, Left, Mdt, Message, Op, Outcome, Phase, RenameQueue, State, Tag, Who};
use super::stories::{DIRECTORY_COUNT_MAX, Directory, MDT_COUNT, Move, Resources, Story, inode_of, names_in};
use crate::state_space::{self, Exploration, Model};

/// How much may happen, and how many states there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// MDTs that are restarted, and sessions that MDT0000 gives up for their silence, each.
    pub restarts: u8,
    pub silences: u8,
    pub departures: u8,
    /// Requests for the rename lock that arrive twice.
    pub copies: u8,
    /// Locks that clients get.
    pub grants: u8,
    pub state_count_max: usize,
}

impl Bounds {
    const NOTHING: Bounds =
        Bounds { restarts: 0, silences: 0, departures: 0, copies: 0, grants: 0, state_count_max: usize::MAX };

    pub(super) const fn nothing(state_count_max: usize) -> Bounds {
        Bounds { state_count_max, ..Bounds::NOTHING }
    }

    /// Nothing evil, and one of each kind alone.
    pub fn each_alone(state_count_max: usize) -> [Bounds; 6] {
        let nothing = Bounds::nothing(state_count_max);
        [
            nothing,
            Bounds { restarts: 1, ..nothing },
            Bounds { silences: 1, ..nothing },
            Bounds { departures: 1, ..nothing },
            Bounds { copies: 1, ..nothing },
            Bounds { grants: 1, ..nothing },
        ]
    }

    /// For people.
    pub(super) fn in_words(&self) -> String {
        let named = [
            (self.restarts, "restart"),
            (self.silences, "silence"),
            (self.departures, "departure"),
            (self.copies, "copy"),
            (self.grants, "grant"),
        ];
        let some = named.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = some.map(|(count, name)| format!("{count} {name}")).collect();
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
    }
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Step {
        op: usize,
    },
    Retry {
        op: usize,
    },
    Arrive(Message),
    /// The claims of a prepare are good.
    Finish {
        mdt: usize,
        tag: Tag,
    },
    GiveWay {
        mdt: usize,
        tag: Tag,
    },
    /// A participant asks what has become of what it has prepared, and is answered.
    Ask {
        mdt: usize,
        tag: Tag,
    },
    /// A client gives its lock back, which was called back.
    Cancel {
        client: usize,
    },
    /// The lock of a client that is gone ends.
    Evict {
        client: usize,
    },
    /// A client that is gone is given up by its coordinator.
    Drop {
        op: usize,
    },
    Reconnect {
        peer: usize,
        mdt: usize,
    },
    Introduce {
        mdt: usize,
        to: usize,
    },
    Restart {
        mdt: usize,
    },
    Silence {
        mdt: usize,
    },
    Depart {
        client: usize,
    },
    Copy(Message),
    Grant {
        client: usize,
    },
}

impl Event {
    fn is_evil(self) -> bool {
        matches!(
            self,
            Event::Restart { .. }
                | Event::Silence { .. }
                | Event::Depart { .. }
                | Event::Copy(_)
                | Event::Grant { .. }
        )
    }
}

pub(super) struct Machine<'a> {
    pub story: &'a Story,
    pub rules: Rules,
    bounds: Bounds,
}

/// Goes through all states of a story.
pub fn explore(story: &Story, rules: Rules, bounds: Bounds) -> Exploration {
    state_space::explore(&Machine { story, rules, bounds }, bounds.state_count_max)
}

impl Model for Machine<'_> {
    type State = State;
    type Event = Event;

    fn begin(&self) -> State {
        let parents = self.first_parents();
        let mut names = [0; DIRECTORY_COUNT_MAX];
        for (child, (_, parent)) in self.story.directories.iter().enumerate().skip(1) {
            names[*parent as usize] |= 1 << child;
        }
        let Bounds { restarts, silences, departures, copies, grants, .. } = self.bounds;
        State {
            names,
            parents,
            ops: [0, 1].map(|op| Op::new(0, self.story.moves[op].to)),
            mdts: [(); MDT_COUNT].map(|()| Mdt::default()),
            rename: RenameQueue::default(),
            messages: Vec::new(),
            calls: Vec::new(),
            has_lock: self.story.locks.map(|lock| lock != 0),
            is_there: [true; 2],
            left: Left { restarts, silences, departures, copies, grants },
            broken: None,
        }
    }

    fn next(&self, state: &State) -> Vec<(Event, State)> {
        let events = self.events(state).into_iter();
        let after = |event: Event| {
            let mut after = state.clone();
            self.happen(&mut after, event);
            after.settle();
            (event, after)
        };
        events.map(after).collect()
    }

    fn is_evil(&self, event: &Event) -> bool {
        event.is_evil()
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.broken
    }

    fn judge(&self, state: &State) -> Option<&'static str> {
        self.judge_rest(state)
    }

    fn describe(&self, state: &State, event: Event) -> String {
        match event {
            Event::Step { op } => {
                format!("{} goes on, {:?}: {:?}", self.story.describe(op), state.ops[op].phase, state.ops[op])
            }
            event => format!("{event:?}"),
        }
    }
}

impl Machine<'_> {
    pub(super) fn first_parents(&self) -> [Directory; DIRECTORY_COUNT_MAX] {
        let mut parents = [0; DIRECTORY_COUNT_MAX];
        for (child, (_, parent)) in self.story.directories.iter().enumerate() {
            parents[child] = *parent;
        }
        parents
    }

    fn events(&self, state: &State) -> Vec<Event> {
        let mut events = Vec::new();
        for op in 0..2 {
            self.events_of_op(state, op, &mut events);
            self.events_of_client(state, op, &mut events);
        }
        let arriving = state.messages.iter().copied().filter(|message| self.can_arrive(state, *message));
        events.extend(arriving.map(Event::Arrive));
        for mdt in 0..MDT_COUNT {
            self.events_of_mdt(state, mdt, &mut events);
        }
        if state.left.copies > 0 {
            let locks = state.messages.iter().filter(|message| matches!(message, Message::Lock(_)));
            events.extend(locks.filter(|lock| self.can_arrive(state, **lock)).map(|lock| Event::Copy(*lock)));
        }
        events
    }

    fn events_of_op(&self, state: &State, at: usize, events: &mut Vec<Event>) {
        let (op, coordinator) = (&state.ops[at], self.story.coordinator(at));
        let goes_on = match op.phase {
            Phase::Ready => (0..MDT_COUNT).all(|mdt| self.frozen(state, mdt) & op.parked == 0),
            Phase::Claiming => self.is_granted(state, coordinator, Who::Flow(at as u8)),
            Phase::Preparing => op.unanswered == 0,
            Phase::AskingLock | Phase::AskingParent | Phase::BackingOff | Phase::Ended(_) => false,
        };
        if goes_on {
            events.push(Event::Step { op: at });
        }
        // So the late messages of one attempt meet the next one, and are finitely many.
        let is_free = !state.is_recovering(coordinator) && state.old_attempt_count(at) <= 1;
        if op.phase == Phase::BackingOff && is_free && state.is_there[at] {
            events.push(Event::Retry { op: at });
        }
        if !state.is_there[at] && !op.has_ended() {
            events.push(Event::Drop { op: at });
        }
    }

    fn events_of_client(&self, state: &State, client: usize, events: &mut Vec<Event>) {
        let (lock, home) = (self.story.locks[client], self.story.home_of_lock(client));
        let is_wanted = |claim: &Claim| claim.resources & lock != 0 && claim.who != Who::Flow(client as u8);
        let is_claimed = state.mdts[home].claims.iter().any(is_wanted);
        let has_lock = state.has_lock[client];
        let is_idle = state.ops[client].has_ended();
        if state.is_there[client] {
            if has_lock && is_claimed && (is_idle || self.rules.has(Rule::CancelsWhileWaiting)) {
                events.push(Event::Cancel { client });
            }
            let is_frozen = self.frozen(state, home) & lock != 0;
            let is_any_claimed = state.mdts[home].claims.iter().any(|claim| claim.resources & lock != 0);
            let is_free = !(is_any_claimed || is_frozen) || !self.rules.has(Rule::NoGrantBesideClaims);
            let is_served = !state.is_recovering(home);
            if state.left.grants > 0 && lock != 0 && !has_lock && is_free && is_served {
                events.push(Event::Grant { client });
            }
            if state.left.departures > 0 {
                events.push(Event::Depart { client });
            }
        } else if has_lock && self.rules.has(Rule::GoneHolderIsEvicted) {
            events.push(Event::Evict { client });
        }
    }

    fn events_of_mdt(&self, state: &State, mdt: usize, events: &mut Vec<Event>) {
        let here = &state.mdts[mdt];
        for claim in &here.claims {
            let Who::Part(tag) = claim.who else { continue };
            if here.prepared.contains(&tag) {
                continue;
            }
            if self.is_granted(state, mdt, claim.who) {
                events.push(Event::Finish { mdt, tag });
            } else if self.rules.has(Rule::PreparesGiveWay) {
                events.push(Event::GiveWay { mdt, tag });
            }
        }
        let asks = here.prepared.iter().filter(|tag| self.fate(state, **tag, mdt).is_some());
        if self.rules.has(Rule::UndecidedIsAsked) {
            events.extend(asks.map(|tag| Event::Ask { mdt, tag: *tag }));
        }
        let others = (0..MDT_COUNT).filter(|other| *other != mdt);
        for other in others {
            if here.awaited >> other & 1 == 1 {
                events.push(Event::Reconnect { peer: other, mdt });
            }
            if here.stale >> other & 1 == 1 {
                events.push(Event::Introduce { mdt: other, to: mdt });
            }
        }
        if state.left.restarts > 0 {
            events.push(Event::Restart { mdt });
        }
        let has_session = (state.mdts[0].awaited | state.mdts[0].stale) >> mdt & 1 == 0;
        if mdt != 0 && state.left.silences > 0 && has_session {
            events.push(Event::Silence { mdt });
        }
    }

    /// What a participant hears of something that it has prepared, if it is heard.
    fn fate(&self, state: &State, tag: Tag, mdt: usize) -> Option<bool> {
        let op = tag.op as usize;
        let coordinator = self.story.coordinator(op);
        let there = &state.mdts[coordinator];
        let told = |is_commit| Message::Decide(tag, mdt as u8, is_commit);
        let is_coming = [true, false].into_iter().any(|fate| state.messages.contains(&told(fate)));
        // It cannot ask yet, hears it anyway, or hears that nothing is certain.
        if there.awaited != 0 || there.stale >> mdt & 1 == 1 || is_coming {
            return None;
        }
        if there.decisions.iter().any(|(id, _)| *id == tag) {
            return Some(true);
        }
        let is_under_way = state.ops[op].attempt == tag.attempt && state.ops[op].phase == Phase::Preparing;
        (!is_under_way || !self.rules.has(Rule::UnderWayIsNotVoid)).then_some(false)
    }

    fn happen(&self, state: &mut State, event: Event) {
        match event {
            Event::Step { op } => self.step(state, op),
            Event::Retry { op } => {
                let attempt = state.ops[op].attempt + 1;
                state.ops[op] = Op::new(attempt, self.story.moves[op].to);
            }
            Event::Arrive(message) => {
                if let Some(at) = state.messages.iter().position(|other| *other == message) {
                    state.messages.swap_remove(at);
                }
                self.arrive(state, message);
            }
            Event::Finish { mdt, tag } => self.prepare(state, tag, mdt),
            Event::GiveWay { mdt, tag } => {
                state.drop_claims(mdt, |who| who == Who::Part(tag));
                state.send(Message::Prepared(tag, mdt as u8, false));
            }
            Event::Ask { mdt, tag } => {
                let fate = self.fate(state, tag, mdt);
                self.on_decision(state, tag, mdt, fate == Some(true));
            }
            Event::Cancel { client } | Event::Evict { client } => state.has_lock[client] = false,
            Event::Drop { op } => self.drop_flow(state, op),
            Event::Reconnect { peer, mdt } => self.reconnect(state, peer, mdt),
            Event::Introduce { mdt, to } => self.introduce(state, mdt, to),
            Event::Restart { mdt } => {
                state.left.restarts -= 1;
                self.restart(state, mdt);
            }
            Event::Silence { mdt } => {
                state.left.silences -= 1;
                self.give_up_silent(state, mdt);
            }
            Event::Depart { client } => {
                state.left.departures -= 1;
                state.is_there[client] = false;
            }
            // It stays on its way, and has arrived too.
            Event::Copy(message) => {
                state.left.copies -= 1;
                self.arrive(state, message);
            }
            Event::Grant { client } => {
                state.left.grants -= 1;
                state.has_lock[client] = true;
            }
        }
    }

    /// What others have prepared on an MDT.
    pub(super) fn frozen(&self, state: &State, mdt: usize) -> Resources {
        let prepared = state.mdts[mdt].prepared.iter();
        prepared.fold(0, |all, tag| all | self.story.resources(tag.op as usize, mdt))
    }

    /// Whether a claim has all that it wants: nobody before it does, and no lock of a client is in its way.
    pub(super) fn is_granted(&self, state: &State, mdt: usize, who: Who) -> bool {
        let claims = &state.mdts[mdt].claims;
        let Some(at) = claims.iter().position(|claim| claim.who == who) else { return false };
        let wanted = claims[at].resources;
        let is_locked = |client: &usize| {
            let is_own = who == Who::Flow(*client as u8);
            state.has_lock[*client] && !is_own && self.locked_on(*client, mdt) & wanted != 0
        };
        let waits_for_lock = self.rules.has(Rule::LocksAreCalledBack) && [0, 1].iter().any(is_locked);
        !waits_for_lock && claims[..at].iter().all(|claim| claim.resources & wanted == 0)
    }

    fn locked_on(&self, client: usize, mdt: usize) -> Resources {
        if self.story.home_of_lock(client) == mdt { self.story.locks[client] } else { 0 }
    }

    /// Whether what a rename changes on an MDT is there.
    pub(super) fn is_possible(&self, state: &State, op: usize, mdt: usize) -> bool {
        let Move { what, from, to } = self.story.moves[op];
        let is_here = |directory: Directory| self.story.home(directory) == mdt;
        let has_name = |directory: Directory| state.names[directory as usize] >> what & 1 == 1;
        (!is_here(from) || has_name(from))
            && (!is_here(to) || !has_name(to))
            && (!is_here(what) || state.parents[what as usize] == from)
    }

    /// Changes what a rename changes on an MDT.
    pub(super) fn execute(&self, state: &mut State, op: usize, mdt: usize) {
        let Move { what, from, to } = self.story.moves[op];
        if !self.is_possible(state, op, mdt) {
            state.broken = Some("what was decided cannot be executed");
        }
        let changed = self.story.resources(op, mdt);
        let is_own = |client: usize| client == op && mdt == self.story.coordinator(op);
        let believes = |client: &usize| {
            state.has_lock[*client] && !is_own(*client) && self.locked_on(*client, mdt) & changed != 0
        };
        if [0, 1].iter().any(believes) {
            state.broken = Some("a client has a lock on what has changed");
        }
        if changed & names_in(from) != 0 {
            state.names[from as usize] &= !(1 << what);
        }
        if changed & names_in(to) != 0 {
            state.names[to as usize] |= 1 << what;
        }
        if changed & inode_of(what) != 0 {
            state.parents[what as usize] = to;
        }
    }

    fn step(&self, state: &mut State, at: usize) {
        let Move { what, from, to: _ } = self.story.moves[at];
        let coordinator = self.story.coordinator(at);
        state.ops[at].parked = 0;
        if state.ops[at].has_lost || state.ops[at].is_refused {
            return self.back_off(state, at);
        }
        if !state.ops[at].is_peeked {
            if self.frozen(state, self.story.home(from)) & names_in(from) != 0 {
                return self.park(state, at, names_in(from));
            }
            if state.names[from as usize] >> what & 1 == 0 {
                return self.end(state, at, Outcome::Refused);
            }
            state.ops[at].is_peeked = true;
        }
        // One of them only: two that both ask for it last have one order too.
        if !self.asks_lock_first(at) && !self.has_claimed(state, at) {
            return;
        }
        if self.story.is_of_directories && !state.ops[at].has_walked && !self.walk(state, at) {
            return;
        }
        if !self.has_claimed(state, at) {
            return;
        }
        let needs = self.story.resources(at, coordinator);
        if self.frozen(state, coordinator) & needs != 0 && self.rules.has(Rule::PreparedIsFrozen) {
            return self.park(state, at, needs);
        }
        if !self.is_possible(state, at, coordinator) {
            return self.end(state, at, Outcome::Refused);
        }
        let participants: Vec<usize> = self.story.participants(at).collect();
        if state.ops[at].phase != Phase::Preparing && !participants.is_empty() {
            let tag = state.tag(at);
            participants.iter().for_each(|mdt| state.send(Message::Prepare(tag, *mdt as u8)));
            state.ops[at].unanswered = participants.iter().fold(0, |set, mdt| set | 1 << mdt);
            state.ops[at].phase = Phase::Preparing;
            return;
        }
        self.commit(state, at, &participants);
    }

    fn commit(&self, state: &mut State, at: usize, participants: &[usize]) {
        let (tag, coordinator) = (state.tag(at), self.story.coordinator(at));
        self.execute(state, at, coordinator);
        let left = participants.iter().fold(0, |set, mdt| set | 1 << mdt);
        if left != 0 {
            state.mdts[coordinator].decisions.push((tag, left));
        }
        participants.iter().for_each(|mdt| state.send(Message::Decide(tag, *mdt as u8, true)));
        self.end(state, at, Outcome::Done);
    }

    /// Walks up from the new parent under the rename lock. False: something is waited for, or it has ended.
    fn walk(&self, state: &mut State, at: usize) -> bool {
        if self.rules.has(Rule::RenameLock) && state.ops[at].lock != Hold::Held {
            if self.asks_lock_first(at) {
                self.release(state, at);
            }
            self.ask_for_lock(state, at);
            if state.ops[at].lock != Hold::Held {
                return false;
            }
        }
        let (what, coordinator, tag) = (self.story.moves[at].what, self.story.coordinator(at), state.tag(at));
        while state.ops[at].walk != 0 {
            let directory = state.ops[at].walk;
            if directory == what {
                self.end(state, at, Outcome::Refused);
                return false;
            }
            if self.story.home(directory) != coordinator {
                state.send(Message::Peek(tag, directory));
                state.ops[at].phase = Phase::AskingParent;
                return false;
            }
            let is_frozen = self.frozen(state, coordinator) & inode_of(directory) != 0;
            if is_frozen && self.rules.has(Rule::WalkAwaitsFrozen) {
                (state.ops[at].parked, state.ops[at].phase) = (inode_of(directory), Phase::Ready);
                return false;
            }
            state.ops[at].walk = state.parents[directory as usize];
        }
        state.ops[at].has_walked = true;
        if !self.rules.has(Rule::HeldUntilApplied) {
            self.unlock(state, at);
        }
        true
    }

    fn asks_lock_first(&self, at: usize) -> bool {
        at == 0 || self.rules.has(Rule::LockBeforeClaims)
    }

    fn ask_for_lock(&self, state: &mut State, at: usize) {
        let tag = state.tag(at);
        (state.ops[at].lock, state.ops[at].phase) = (Hold::Asked, Phase::AskingLock);
        if self.story.coordinator(at) == 0 {
            state.rename.claims.push((tag, true));
            return self.promote(state);
        }
        state.send(Message::Lock(tag));
        state.calls.push(tag);
    }

    /// Claims what is changed here. False: it waits.
    fn has_claimed(&self, state: &mut State, at: usize) -> bool {
        let (who, coordinator) = (Who::Flow(at as u8), self.story.coordinator(at));
        let claims = &mut state.mdts[coordinator].claims;
        if claims.iter().all(|claim| claim.who != who) {
            claims.push(Claim { who, resources: self.story.resources(at, coordinator) });
        }
        let is_granted = self.is_granted(state, coordinator, who);
        if !is_granted {
            state.ops[at].phase = Phase::Claiming;
        }
        is_granted
    }

    /// Waits for a decision, and holds nothing meanwhile.
    fn park(&self, state: &mut State, at: usize, on: Resources) {
        self.release(state, at);
        (state.ops[at].parked, state.ops[at].phase) = (on, Phase::Ready);
    }

    pub(super) fn release(&self, state: &mut State, at: usize) {
        state.drop_claims(self.story.coordinator(at), |who| who == Who::Flow(at as u8));
    }

    pub(super) fn unlock(&self, state: &mut State, at: usize) {
        let tag = state.tag(at);
        if std::mem::replace(&mut state.ops[at].lock, Hold::No) == Hold::No {
            return;
        }
        if self.story.coordinator(at) != 0 {
            return state.send(Message::Unlock(tag));
        }
        state.rename.claims.retain(|(id, _)| *id != tag);
        self.promote(state);
    }

    /// Tells those who were asked to prepare that nothing comes of it.
    pub(super) fn abort(&self, state: &mut State, at: usize) {
        if state.ops[at].phase == Phase::Preparing {
            let tag = state.tag(at);
            let participants: Vec<usize> = self.story.participants(at).collect();
            participants.iter().for_each(|mdt| state.send(Message::Decide(tag, *mdt as u8, false)));
        }
    }

    pub(super) fn back_off(&self, state: &mut State, at: usize) {
        self.abort(state, at);
        if self.rules.has(Rule::BackOffReleases) {
            self.release(state, at);
        }
        if self.rules.has(Rule::BackOffUnlocks) {
            self.unlock(state, at);
        }
        let attempt = state.ops[at].attempt;
        state.ops[at] = Op { phase: Phase::BackingOff, ..Op::new(attempt, self.story.moves[at].to) };
    }

    fn end(&self, state: &mut State, at: usize, outcome: Outcome) {
        if outcome != Outcome::Done {
            self.abort(state, at);
        }
        self.release(state, at);
        self.unlock(state, at);
        let attempt = state.ops[at].attempt;
        state.ops[at] = Op { phase: Phase::Ended(outcome), ..Op::new(attempt, 0) };
    }
}
