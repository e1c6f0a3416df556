//! What is lost: incarnations of MDTs, sessions, clients.

use super::rules::Rule;
use super::state::{Hold, Message, Op, Outcome, Phase, State, Tag, Who};
use super::steps::Machine;
use super::stories::MDT_COUNT;

impl Machine<'_> {
    fn is_of(&self, tag: Tag, mdt: usize) -> bool {
        self.story.coordinator(tag.op as usize) == mdt
    }

    fn ops_of(&self, mdt: usize) -> impl Iterator<Item = usize> {
        (0..2).filter(move |op| self.story.coordinator(*op) == mdt)
    }

    /// An MDT loses all that it has not written, and begins anew.
    pub(super) fn restart(&self, state: &mut State, mdt: usize) {
        for op in self.ops_of(mdt).collect::<Vec<_>>() {
            state.calls.retain(|tag| tag.op as usize != op);
            if !state.ops[op].has_ended() {
                let attempt = state.ops[op].attempt;
                state.ops[op] = Op { phase: Phase::BackingOff, ..Op::new(attempt, self.story.moves[op].to) };
            }
        }
        let sent = std::mem::take(&mut state.messages);
        for message in sent {
            if self.sender(message) != mdt {
                state.send(message);
            } else if !Self::is_request(message) {
                self.ask_again(state, message);
            }
        }
        self.drop_waiting_parts(state, mdt, |_| true);
        state.mdts[mdt].claims.clear();
        if !self.rules.has(Rule::PreparesAreKept) {
            state.mdts[mdt].prepared.clear();
        }
        if !self.rules.has(Rule::DecisionsAreKept) {
            state.mdts[mdt].decisions.clear();
        }
        for (tag, left) in state.mdts[mdt].decisions.clone() {
            let participants = (0..MDT_COUNT).filter(|other| left >> other & 1 == 1);
            participants.for_each(|other| state.send(Message::Decide(tag, other as u8, true)));
        }
        if mdt == 0 {
            state.rename = super::state::RenameQueue::default();
        }
        let others = (0..MDT_COUNT).filter(|other| *other != mdt);
        state.mdts[mdt].awaited = others.clone().fold(0, |set, other| set | 1 << other);
        state.mdts[mdt].stale = 0;
        others.for_each(|other| state.mdts[other].stale |= 1 << mdt);
    }

    /// An answer was lost: its request is sent again, where somebody waits for it.
    fn ask_again(&self, state: &mut State, answer: Message) {
        let tag = answer.tag();
        let is_current = state.current(tag).is_some();
        match answer {
            Message::Parent(_, directory, _) if is_current => state.send(Message::Peek(tag, directory)),
            Message::Prepared(_, from, _) if is_current => state.send(Message::Prepare(tag, from)),
            Message::Decided(_, from) => state.send(Message::Decide(tag, from, true)),
            _ => {}
        }
    }

    /// Prepares that wait for claims are gone; those who live ask for them again.
    fn drop_waiting_parts(&self, state: &mut State, mdt: usize, is_meant: impl Fn(Tag) -> bool) {
        let prepared = state.mdts[mdt].prepared.clone();
        let waiting = |who: Who| match who {
            Who::Part(tag) if !prepared.contains(&tag) && is_meant(tag) => Some(tag),
            _ => None,
        };
        let dropped: Vec<Tag> =
            state.mdts[mdt].claims.iter().filter_map(|claim| waiting(claim.who)).collect();
        state.drop_claims(mdt, |who| waiting(who).is_some());
        for tag in dropped {
            if state.current(tag).is_some_and(|op| op.unanswered >> mdt & 1 == 1) {
                state.send(Message::Prepare(tag, mdt as u8));
            }
        }
    }

    /// `peer` has found the new incarnation of `mdt`.
    pub(super) fn reconnect(&self, state: &mut State, peer: usize, mdt: usize) {
        state.mdts[mdt].awaited &= !(1 << peer);
        if mdt == 0 {
            self.lose_rename_locks(state, peer, |_| true);
            self.ask_for_locks_again(state, peer);
        }
    }

    /// `to` learns of the new incarnation of `mdt`, or has a new session for it after it had given up the former.
    pub(super) fn introduce(&self, state: &mut State, mdt: usize, to: usize) {
        state.mdts[to].stale &= !(1 << mdt);
        self.drop_waiting_parts(state, to, |tag| self.is_of(tag, mdt));
        if to == 0 {
            if self.rules.has(Rule::RestartFreesLock) {
                self.free_rename_lock(state, mdt);
            }
            self.lose_rename_locks(state, mdt, |_| true);
            self.ask_for_locks_again(state, mdt);
        }
    }

    /// MDT0000 has heard nothing of `mdt` for very long, and ends its session.
    pub(super) fn give_up_silent(&self, state: &mut State, mdt: usize) {
        self.free_rename_lock(state, mdt);
        self.drop_waiting_parts(state, 0, |tag| self.is_of(tag, mdt));
        state
            .messages
            .retain(|message| !matches!(message, Message::LockAnswer(tag, _) if self.is_of(*tag, mdt)));
        state.mdts[0].stale |= 1 << mdt;
        if self.rules.has(Rule::SilentHolderStops) {
            // It has heard nothing either.
            self.lose_rename_locks(state, mdt, |op| op.lock == Hold::Held);
        }
    }

    fn free_rename_lock(&self, state: &mut State, mdt: usize) {
        let is_its = |tag: &Tag| self.is_of(*tag, mdt);
        let freed: Vec<Tag> = state.rename.claims.iter().map(|(tag, _)| *tag).filter(is_its).collect();
        state.rename.claims.retain(|(tag, _)| !is_its(tag));
        state.rename.released.extend(freed);
        self.promote(state);
    }

    fn lose_rename_locks(&self, state: &mut State, mdt: usize, is_meant: impl Fn(&Op) -> bool) {
        if !self.rules.has(Rule::LostLockStartsAnew) {
            return;
        }
        for op in self.ops_of(mdt) {
            let op = &mut state.ops[op];
            op.has_lost |= op.lock != Hold::No && !op.has_ended() && is_meant(op);
        }
    }

    fn ask_for_locks_again(&self, state: &mut State, mdt: usize) {
        for tag in state.calls.clone() {
            let is_sent = state.messages.contains(&Message::Lock(tag));
            if self.is_of(tag, mdt) && !is_sent {
                state.send(Message::Lock(tag));
            }
        }
    }

    /// The coordinator has given up the client of a rename.
    pub(super) fn drop_flow(&self, state: &mut State, op: usize) {
        self.abort(state, op);
        self.release(state, op);
        if self.rules.has(Rule::GoneGivesBack) {
            self.unlock(state, op);
        }
        state.ops[op].phase = Phase::Ended(Outcome::GivenUp);
    }
}
