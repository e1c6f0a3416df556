//! Messages that arrive.

use super::rules::Rule;
use super::state::{Claim, Hold, Message, Phase, State, Tag, Who};
use super::steps::Machine;
use super::stories::{Directory, inode_of};

impl Machine<'_> {
    pub(super) fn sender(&self, message: Message) -> usize {
        let coordinator = self.story.coordinator(message.tag().op as usize);
        match message {
            Message::LockAnswer(..) => 0,
            Message::Parent(_, directory, _) => self.story.home(directory),
            Message::Prepared(_, from, _) | Message::Decided(_, from) => from as usize,
            Message::Lock(_)
            | Message::Unlock(_)
            | Message::Peek(..)
            | Message::Prepare(..)
            | Message::Decide(..) => coordinator,
        }
    }

    pub(super) fn receiver(&self, message: Message) -> usize {
        match message {
            Message::Lock(_) | Message::Unlock(_) => 0,
            Message::Peek(_, directory) => self.story.home(directory),
            Message::Prepare(_, to) | Message::Decide(_, to, _) => to as usize,
            Message::LockAnswer(..) | Message::Parent(..) | Message::Prepared(..) | Message::Decided(..) => {
                self.story.coordinator(message.tag().op as usize)
            }
        }
    }

    pub(super) fn is_request(message: Message) -> bool {
        !matches!(
            message,
            Message::LockAnswer(..) | Message::Parent(..) | Message::Prepared(..) | Message::Decided(..)
        )
    }

    /// Requests wait for a session; a look at what is frozen waits where it is looked at.
    pub(super) fn can_arrive(&self, state: &State, message: Message) -> bool {
        if !Self::is_request(message) {
            return true;
        }
        let (from, to) = (self.sender(message), self.receiver(message));
        let receiver = &state.mdts[to];
        if (receiver.awaited | receiver.stale) >> from & 1 == 1 {
            return false;
        }
        match message {
            Message::Peek(_, directory) if self.rules.has(Rule::WalkAwaitsFrozen) => {
                state.is_recovering(to) || self.frozen(state, to) & inode_of(directory) == 0
            }
            _ => true,
        }
    }

    pub(super) fn arrive(&self, state: &mut State, message: Message) {
        match message {
            Message::Lock(tag) => self.on_lock(state, tag),
            Message::LockAnswer(tag, is_given) => self.on_lock_answer(state, tag, is_given),
            Message::Unlock(tag) => self.on_unlock(state, tag),
            Message::Peek(tag, directory) => {
                let is_told = !state.is_recovering(self.story.home(directory));
                let parent = is_told.then_some(state.parents[directory as usize]);
                state.send(Message::Parent(tag, directory, parent));
            }
            Message::Parent(tag, directory, parent) => self.on_parent(state, tag, directory, parent),
            Message::Prepare(tag, to) => self.on_prepare(state, tag, to as usize),
            Message::Prepared(tag, from, is_agreed) => {
                if let Some(op) = state.current(tag)
                    && op.unanswered >> from & 1 == 1
                {
                    op.unanswered &= !(1 << from);
                    op.is_refused |= !is_agreed;
                }
            }
            Message::Decide(tag, to, is_commit) => {
                self.on_decision(state, tag, to as usize, is_commit);
                if is_commit {
                    state.send(Message::Decided(tag, to));
                }
            }
            Message::Decided(tag, from) => {
                let coordinator = self.story.coordinator(tag.op as usize);
                let decisions = &mut state.mdts[coordinator].decisions;
                decisions.iter_mut().filter(|(id, _)| *id == tag).for_each(|(_, left)| *left &= !(1 << from));
                decisions.retain(|(_, left)| *left != 0);
            }
        }
    }

    fn on_lock(&self, state: &mut State, tag: Tag) {
        let is_early = state.is_recovering(0) && self.rules.has(Rule::HeardBeforeGranting);
        let is_past = self.rules.has(Rule::UnlockedIsRemembered) && state.rename.released.contains(&tag);
        if is_early || is_past {
            return state.send(Message::LockAnswer(tag, false));
        }
        match state.rename.claims.iter().find(|(id, _)| *id == tag) {
            Some((_, true)) => {}
            Some((_, false)) => state.send(Message::LockAnswer(tag, true)),
            None => {
                state.rename.claims.push((tag, true));
                self.promote(state);
            }
        }
    }

    /// Gives the rename lock to who is first.
    pub(super) fn promote(&self, state: &mut State) {
        let Some((tag, is_waiting)) = state.rename.claims.first_mut() else { return };
        if !std::mem::take(is_waiting) {
            return;
        }
        let tag = *tag;
        if self.story.coordinator(tag.op as usize) != 0 {
            return state.send(Message::LockAnswer(tag, true));
        }
        if let Some(op) = state.current(tag) {
            (op.lock, op.phase) = (Hold::Held, Phase::Ready);
        }
    }

    fn on_lock_answer(&self, state: &mut State, tag: Tag, is_given: bool) {
        if !state.calls.contains(&tag) {
            return;
        }
        state.calls.retain(|call| *call != tag);
        match state.current(tag) {
            Some(op) if op.lock == Hold::Asked && is_given => {
                (op.lock, op.phase) = (Hold::Held, Phase::Ready);
            }
            Some(op) if op.lock == Hold::Asked => self.back_off(state, tag.op as usize),
            _ if is_given && self.rules.has(Rule::UnwantedGoesBack) => state.send(Message::Unlock(tag)),
            _ => {}
        }
    }

    fn on_unlock(&self, state: &mut State, tag: Tag) {
        let is_waiting = state.rename.claims.contains(&(tag, true));
        state.rename.claims.retain(|(id, _)| *id != tag);
        if is_waiting && self.rules.has(Rule::UnlockAnswersWaiter) {
            state.send(Message::LockAnswer(tag, false));
        }
        state.rename.released.push(tag);
        self.promote(state);
    }

    fn on_parent(&self, state: &mut State, tag: Tag, directory: Directory, parent: Option<Directory>) {
        let Some(op) = state.current(tag) else { return };
        if op.phase != Phase::AskingParent || op.walk != directory {
            return;
        }
        match parent {
            Some(parent) => (op.walk, op.phase) = (parent, Phase::Ready),
            None => self.back_off(state, tag.op as usize),
        }
    }

    fn on_prepare(&self, state: &mut State, tag: Tag, mdt: usize) {
        let refusal = Message::Prepared(tag, mdt as u8, false);
        if state.is_recovering(mdt) {
            return state.send(refusal);
        }
        if state.mdts[mdt].prepared.contains(&tag) {
            return state.send(Message::Prepared(tag, mdt as u8, true));
        }
        if state.mdts[mdt].claims.iter().any(|claim| claim.who == Who::Part(tag)) {
            return;
        }
        if !self.can_prepare(state, tag, mdt) {
            return state.send(refusal);
        }
        let resources = self.story.resources(tag.op as usize, mdt);
        state.mdts[mdt].claims.push(Claim { who: Who::Part(tag), resources });
        if self.is_granted(state, mdt, Who::Part(tag)) {
            self.prepare(state, tag, mdt);
        }
    }

    fn can_prepare(&self, state: &State, tag: Tag, mdt: usize) -> bool {
        let op = tag.op as usize;
        let is_frozen = self.frozen(state, mdt) & self.story.resources(op, mdt) != 0;
        let is_free = !is_frozen || !self.rules.has(Rule::PreparedIsFrozen);
        is_free && (self.is_possible(state, op, mdt) || !self.rules.has(Rule::PreparesCheck))
    }

    /// Its claims are good: it looks again, and writes down what it is to do.
    pub(super) fn prepare(&self, state: &mut State, tag: Tag, mdt: usize) {
        let is_well = self.can_prepare(state, tag, mdt);
        if is_well {
            state.mdts[mdt].prepared.push(tag);
        } else {
            state.drop_claims(mdt, |who| who == Who::Part(tag));
        }
        state.send(Message::Prepared(tag, mdt as u8, is_well));
    }

    pub(super) fn on_decision(&self, state: &mut State, tag: Tag, mdt: usize, is_commit: bool) {
        let is_prepared = state.mdts[mdt].prepared.contains(&tag);
        if is_prepared && is_commit {
            self.execute(state, tag.op as usize, mdt);
        }
        if is_prepared || !is_commit {
            state.mdts[mdt].prepared.retain(|id| *id != tag);
            state.drop_claims(mdt, |who| who == Who::Part(tag));
        }
    }
}
