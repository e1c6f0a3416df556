//! Calls that are prepared on other MDTs first (`mds::machine::cross`).

use super::rules::Rule;
use super::state::{Answer, Call, Flow, Id, Phase, Refusal, Row, State};
use super::steps::{Machine, Way};
use super::work::{Change, MDT_COUNT, What, Why, Work};

/// Records that are not durable, after which an MDT syncs before it prepares more.
const LOG_MAX: usize = 5;

impl Machine<'_> {
    /// Whether an MDT has not heard yet what a former incarnation of this one had decided.
    pub fn is_behind(&self, state: &State, mdt: usize, work: &Work) -> bool {
        let of = &state.mdts[mdt];
        let asked: Vec<usize> =
            (0..MDT_COUNT).filter(|other| *other != mdt && self.story.touched(*other, work) != 0).collect();
        let is_streamed = matches!(self.story.kind(work.call), super::work::Kind::Mkdir { .. });
        let is_pending = |id: Id, decided: &Work| {
            let done = of.decided.iter().find(|(known, _)| *known == id).map_or(0, |(_, done)| *done);
            let mut participants = self.story.participants(decided);
            participants.any(|participant| done & (1 << participant) == 0 && asked.contains(&participant))
        };
        !is_streamed
            && of.rows.decisions().any(|(id, decided)| id.epoch < of.epoch && is_pending(id, &decided))
    }

    pub fn prepare(
        &self,
        state: &mut State,
        mdt: usize,
        work: Work,
        participants: &[usize],
        is_replay: bool,
    ) -> bool {
        // What was given up before is heard of first: an attempt begins anew after a while.
        let is_void = |call: &Call| matches!(call.what, What::Decide { is_commit: false, .. });
        let is_too_early =
            |to: &usize| state.mdts[*to].log.len() > LOG_MAX || state.calls[mdt][*to].iter().any(is_void);
        if participants.iter().any(is_too_early) {
            return false;
        }
        let id = state.new_prepare_id(mdt);
        let waiting = participants.iter().fold(0, |all, to| all | 1 << to);
        state.mdts[mdt].flows.push(Flow { id, work, is_replay, waiting, refused: None });
        for to in participants {
            state.send(mdt, *to, What::Prepare { id, work, is_replay });
        }
        true
    }

    /// `None`: it waits.
    pub fn on_prepare(
        &self,
        state: &mut State,
        mdt: usize,
        id: Id,
        work: Work,
        is_replay: bool,
    ) -> Option<(Answer, bool)> {
        let waits = self.rules.has(Rule::PreparesAnswerDurable);
        let give_way = Some((Answer::Refused(Refusal::GiveWay), false));
        let of = &state.mdts[mdt];
        if self.rules.has(Rule::DecidedIsRemembered) && of.decided_here.contains(&id) {
            return give_way;
        }
        if of.frozen.contains(&id) {
            return Some((Answer::Done, waits));
        }
        if of.phase == Phase::Recovering && !is_replay {
            return give_way;
        }
        let (story, asker) = (self.story, Some((id.mdt, id.epoch)));
        let (touched, changed) = (story.touched(mdt, &work), story.changed(mdt, &work));
        if self.is_frozen(state, mdt, touched, asker) {
            return give_way;
        }
        let is_in_the_way = |flow: &Flow| {
            let (its, looked_at) = (story.changed(mdt, &flow.work), story.touched(mdt, &flow.work));
            its & touched != 0 || looked_at & changed != 0
        };
        if of.flows.iter().any(is_in_the_way) && !is_replay {
            return give_way;
        }
        if self.is_on_its_way(state, mdt, &work, asker, is_replay) {
            return give_way;
        }
        let client = story.client(work.call);
        let is_unheard =
            !is_replay && of.phase == Phase::Serving && self.is_unheard(state, mdt, touched, client);
        let (index, epoch) = (id.mdt, id.epoch);
        let in_the_way = of.rows.prepares().filter(|(old, prepared)| {
            old.mdt == index && old.epoch < epoch && story.changed(mdt, prepared) & touched != 0
        });
        let in_the_way: Vec<(Id, Work)> = in_the_way.collect();
        if !self.rules.has(Rule::ReplacedAtOnce) {
            in_the_way.iter().for_each(|(old, _)| self.execute_decision(state, mdt, *old, false));
        }
        match story.can(mdt, &state.mdts[mdt].rows, &work) {
            Ok(()) => {}
            Err(Why::Absent) if !is_replay => return give_way,
            // A prepare is durable with all that was before it when its coordinator hears of it; a refusal is shown at once.
            Err(_) if is_unheard => return None,
            Err(_) => return Some((Answer::Refused(Refusal::ForGood), false)),
        }
        let mut batch = vec![Change::Put(Row::Prepare { id, work })];
        batch.extend(
            in_the_way.iter().map(|(id, work)| Change::Delete(Row::Prepare { id: *id, work: *work })),
        );
        let of = &mut state.mdts[mdt];
        of.commit(batch);
        of.frozen.retain(|frozen| in_the_way.iter().all(|(old, _)| old != frozen));
        of.frozen.push(id);
        Some((Answer::Done, waits))
    }

    pub fn on_prepared(&self, state: &mut State, mdt: usize, from: usize, id: Id, answer: Answer) {
        let Some(flow) = state.mdts[mdt].flows.iter_mut().find(|flow| flow.id == id) else { return };
        flow.waiting &= !(1 << from);
        if let Answer::Refused(why) = answer {
            flow.refused = flow.refused.max(Some(why));
        }
        if flow.waiting != 0 {
            return;
        }
        let flow = *flow;
        let call = flow.work.call;
        let refusal = flow.refused.or_else(|| {
            let again = self.story.can(mdt, &state.mdts[mdt].rows, &flow.work);
            again.is_err().then_some(Refusal::GiveWay)
        });
        match refusal {
            None => {
                state.mdts[mdt].flows.retain(|flow| flow.id != id);
                self.execute(state, mdt, flow.work, Some(id), flow.is_replay);
            }
            Some(why) => {
                self.drop_flow(state, mdt, call);
                if why == Refusal::ForGood {
                    self.refuse(state, mdt, call, flow.is_replay);
                }
            }
        }
    }

    pub fn refuse(&self, state: &mut State, mdt: usize, call: u8, is_replay: bool) {
        let is_excused = self.has_lost_what_it_needs(state, call);
        let client = &mut state.clients[self.story.client(call)];
        if !is_replay {
            if client.is_alive {
                client.reply = Some(super::state::Told { call, work: None });
            }
            return;
        }
        if client.is_alive && !is_excused {
            state.broken.get_or_insert("a replay of a living client is refused");
        }
        if client.is_alive {
            state.refused |= 1 << call;
        }
        state.mdts[mdt].refused |= 1 << call;
    }

    /// Whether what a call was built on is lost, with a client that is gone.
    fn has_lost_what_it_needs(&self, state: &State, call: u8) -> bool {
        self.story.calls[usize::from(call)].needs.iter().any(|before| {
            let is_there = state.mdts[self.story.coordinator(*before)].rows.applied(*before).is_some();
            let is_lost = !state.clients[self.story.client(*before)].is_alive
                || state.refused & (1 << before) != 0
                || self.has_lost_what_it_needs(state, *before);
            !is_there && is_lost
        })
    }

    /// Gives back what a flow has prepared.
    pub fn drop_flow(&self, state: &mut State, mdt: usize, call: u8) {
        let Some(at) = state.mdts[mdt].flows.iter().position(|flow| flow.work.call == call) else { return };
        let Flow { id, work, .. } = state.mdts[mdt].flows.remove(at);
        for to in self.story.participants(&work).collect::<Vec<_>>() {
            state.send(mdt, to, What::Decide { id, is_commit: false });
        }
    }

    pub fn send_decisions(&self, state: &mut State, mdt: usize) {
        let of = &state.mdts[mdt];
        let is_due = |row: &Row| !self.rules.has(Rule::DecisionsLeaveDurable) || of.durable.has(row);
        let due: Vec<(Id, Work)> = of
            .rows
            .decisions()
            .filter(|(id, work)| is_due(&Row::Decision { id: *id, work: *work }))
            .collect();
        for (id, work) in due {
            let of = &state.mdts[mdt];
            let done = of.decided.iter().find(|(known, _)| *known == id).map_or(0, |(_, done)| *done);
            let what = What::Decide { id, is_commit: true };
            for to in self.story.participants(&work).collect::<Vec<_>>() {
                let is_sent = state.calls[mdt][to].iter().any(|call| call.what == what);
                if done & (1 << to) == 0 && !is_sent {
                    state.send(mdt, to, what.clone());
                }
            }
        }
    }

    pub fn on_decide(
        &self,
        state: &mut State,
        mdt: usize,
        id: Id,
        is_commit: bool,
    ) -> Option<(Answer, bool)> {
        self.execute_decision(state, mdt, id, is_commit);
        // Nothing depends on what is void: should this be lost, it is undecided again, and asked about.
        Some((Answer::Done, is_commit && self.rules.has(Rule::DecisionsAnswerDurable)))
    }

    pub fn execute_decision(&self, state: &mut State, mdt: usize, id: Id, is_commit: bool) {
        if state.can_be_copied(mdt, id) {
            state.mdts[mdt].decided_here.push(id);
        }
        let of = &mut state.mdts[mdt];
        if !of.frozen.contains(&id) {
            return;
        }
        of.frozen.retain(|frozen| *frozen != id);
        let Some((_, work)) = of.rows.prepares().find(|(found, _)| *found == id) else { return };
        let mut batch = if is_commit { self.own_part(state, mdt, &work) } else { Vec::new() };
        batch.push(Change::Delete(Row::Prepare { id, work }));
        state.mdts[mdt].commit(batch);
    }

    pub fn on_decided(&self, state: &mut State, mdt: usize, from: usize, id: Id) {
        let of = &mut state.mdts[mdt];
        let Some((_, work)) = of.rows.decisions().find(|(found, _)| *found == id) else { return };
        let at = match of.decided.iter().position(|(known, _)| *known == id) {
            Some(at) => at,
            None => {
                of.decided.push((id, 0));
                of.decided.sort_unstable();
                of.decided.iter().position(|(known, _)| *known == id).unwrap_or(0)
            }
        };
        of.decided[at].1 |= 1 << from;
        let done = of.decided[at].1;
        if self.story.participants(&work).all(|to| done & (1 << to) != 0) {
            of.decided.remove(at);
            of.commit(vec![Change::Delete(Row::Decision { id, work })]);
        }
    }

    /// The coordinator says what it knows, which does not change any more. False: it does not know yet.
    pub fn ask(&self, state: &mut State, mdt: usize, id: Id) -> bool {
        let coordinator = &state.mdts[usize::from(id.mdt)];
        if !coordinator.is_up() || !state.mdts[mdt].frozen.contains(&id) {
            return false;
        }
        // To who has executed it what it has prepared is a copy.
        let is_awaited = !coordinator.decided.iter().any(|(of, done)| *of == id && done & (1 << mdt) != 0);
        let decision = coordinator.rows.decisions().find(|(found, _)| *found == id);
        if let Some((_, work)) = decision.filter(|_| is_awaited) {
            let is_durable = coordinator.durable.has(&Row::Decision { id, work });
            if is_durable {
                self.execute_decision(state, mdt, id, true);
            }
            return is_durable;
        }
        let is_under_way =
            self.rules.has(Rule::UnderWayIsNotVoid) && coordinator.flows.iter().any(|flow| flow.id == id);
        let may_come_again = self.rules.has(Rule::UndecidedInRecovery)
            && id.epoch < coordinator.epoch
            && coordinator.phase == Phase::Recovering;
        if is_under_way || may_come_again {
            return false;
        }
        self.execute_decision(state, mdt, id, false);
        true
    }

    /// Whether a replay can be executed now, has to wait, or fails for good.
    pub fn replay(&self, state: &mut State, mdt: usize, call: u8) -> bool {
        let Some((_, work)) = self.lost(state, mdt).find(|(lost, _)| *lost == call) else { return false };
        if state.mdts[mdt].flows.iter().any(|flow| flow.work.call == call)
            || !self.is_its_turn(state, mdt, call)
        {
            return false;
        }
        match self.look(state, mdt, call, Some(work)) {
            Way::Waits => false,
            Way::Fails => {
                self.refuse(state, mdt, call, true);
                true
            }
            Way::Goes(work) => self.go(state, mdt, work, true),
        }
    }
}
