//! Crashes, restarts, replays and checkpoints.

use super::rules::Rule;
use super::state::{Id, Outgoing, Phase, Rows, State};
use super::steps::Machine;
use super::work::{Kind, MDT_COUNT, Work};

impl Machine<'_> {
    pub fn crash(&self, state: &mut State, mdt: usize, kept: usize) {
        state.crashes_left -= 1;
        let former: Vec<Work> = state.mdts[mdt].rows.all_applied().collect();
        let of = &mut state.mdts[mdt];
        if of.marked.take().is_some() && !self.rules.has(Rule::LogKeptUntilCheckpoint) {
            // The log behind the mark is all that is left of it.
            of.durable = of.checkpoint.clone();
        }
        of.lose(kept);
        of.phase = Phase::Down;
        of.flows.clear();
        of.held.clear();
        of.decided.clear();
        of.frozen.clear();
        of.decided_here.clear();
        of.kept.clear();
        (of.asked, of.refused, of.is_taken_back) = (0, 0, true);
        of.outgoing = [Outgoing::new(mdt); MDT_COUNT];
        of.released_to = std::array::from_fn(Id::before_all);
        // The sessions are others now.
        state.copies.retain(|(from, to, _)| usize::from(*from) != mdt && usize::from(*to) != mdt);
        for other in 0..MDT_COUNT {
            state.calls[mdt][other].clear();
            // Who was not answered says it again.
            for call in &mut state.calls[other][mdt] {
                (call.answer, call.waits) = (None, false);
            }
        }
        for client in &mut state.clients {
            if client.reply.is_some_and(|told| self.story.coordinator(told.call) == mdt) {
                client.reply = None;
            }
        }
        for knowing in &mut state.knowing {
            *knowing &= !(1 << mdt);
        }
        let rows = &state.mdts[mdt].rows;
        let is_gone =
            |work: &&Work| self.story.coordinator(work.call) == mdt && rows.applied(work.call).is_none();
        let synced = state.synced;
        if former.iter().filter(is_gone).any(|work| synced & (1 << work.call) != 0) {
            state.break_at("what was durable is lost");
        }
    }

    pub fn restart(&self, state: &mut State, mdt: usize) {
        let has_witness = self.rules.has_witness && self.rules.has(Rule::Witness);
        let of = &mut state.mdts[mdt];
        of.epoch += 1;
        of.phase = Phase::Recovering;
        of.is_taken_back = !has_witness;
        of.told_recovered = 1 << mdt;
        if self.rules.has(Rule::PreparesAreLoaded) {
            of.frozen = of.rows.prepares().map(|(id, _)| id).collect();
        }
        for to in 0..MDT_COUNT {
            of.released_to[to] = of.rows.executed(to);
            if let Some(last) = of.rows.streamed(to).map(|item| item.id).max() {
                of.outgoing[to].last = last;
            }
        }
        for other in (0..MDT_COUNT).filter(|other| *other != mdt) {
            state.mdts[other].outgoing[mdt].start_over();
        }
    }

    pub fn take_back(&self, state: &mut State, mdt: usize, from: usize) -> bool {
        if state.mdts[mdt].asked & (1 << from) != 0 || !state.mdts[from].is_up() {
            return false;
        }
        let epoch = state.mdts[mdt].epoch;
        let is_its = |held: &super::state::Held| usize::from(held.item.id.mdt) == mdt && held.sender < epoch;
        let given: Vec<Work> =
            state.mdts[from].held.iter().filter(|held| is_its(held)).map(|held| held.item.work).collect();
        if !self.rules.has(Rule::HeldUntilRecovered) {
            state.mdts[from].held.retain(|held| !is_its(held));
        }
        let of = &mut state.mdts[mdt];
        of.kept.extend(given);
        of.kept.sort_unstable();
        of.kept.dedup();
        of.asked |= 1 << from;
        of.is_taken_back = (0..MDT_COUNT).all(|other| other == mdt || of.asked & (1 << other) != 0);
        true
    }

    /// Those that have not answered by now are away, and have lost what they held.
    pub fn stop_taking_back(&self, state: &mut State, mdt: usize) -> bool {
        let asked = state.mdts[mdt].asked;
        let is_over = |other: usize| other == mdt || asked & (1 << other) != 0 || !state.mdts[other].is_up();
        let is_over = (0..MDT_COUNT).all(is_over);
        state.mdts[mdt].is_taken_back |= is_over;
        is_over
    }

    /// What was executed here before the crash and is not there, as far as somebody says so.
    pub fn lost<'a>(&'a self, state: &'a State, mdt: usize) -> impl Iterator<Item = (u8, Work)> + 'a {
        let of = &state.mdts[mdt];
        let told = state.clients.iter().filter(|client| client.is_alive).flat_map(move |client| {
            let told = client.told.iter().filter_map(|told| told.work);
            let is_retained = self.rules.has(Rule::KeptUntilDurable);
            told.filter(move |_| is_retained)
        });
        let kept = of.kept.iter().copied().filter(|work| {
            let client = &state.clients[self.story.client(work.call)];
            !client.is_alive
        });
        let is_lost = move |work: &Work| {
            self.story.coordinator(work.call) == mdt
                && !matches!(self.story.kind(work.call), Kind::Look { .. })
                && of.rows.applied(work.call).is_none()
                && (of.refused | state.refused) & (1 << work.call) == 0
        };
        told.chain(kept).filter(is_lost).map(|work| (work.call, work))
    }

    /// Whether everything has been replayed that comes before it and touches the same.
    pub fn is_its_turn(&self, state: &State, mdt: usize, call: u8) -> bool {
        let of = &state.mdts[mdt];
        if !of.is_taken_back && self.rules.has(Rule::WitnessBeforeEnd) {
            return false;
        }
        if !self.rules.has(Rule::ReplaysInOrder) {
            return true;
        }
        let all: Vec<(u8, Work)> = self.lost(state, mdt).collect();
        let touched = |call: u8| {
            let of_call = all.iter().filter(|(lost, _)| *lost == call);
            let everywhere =
                |work: &Work| (0..MDT_COUNT).fold(0, |all, mdt| all | self.story.touched(mdt, work));
            of_call.fold(0, |all, (_, work)| all | everywhere(work))
        };
        let before = of.order.iter().take_while(|before| **before != call);
        let mut before = before.filter(|before| all.iter().any(|(lost, _)| lost == *before));
        !before.any(|before| touched(*before) & touched(call) != 0)
    }

    pub fn recovered(&self, state: &mut State, mdt: usize) -> bool {
        let of = &state.mdts[mdt];
        let may_end = of.is_taken_back || !self.rules.has(Rule::WitnessBeforeEnd);
        if !may_end || !of.flows.is_empty() || self.lost(state, mdt).next().is_some() {
            return false;
        }
        if self.rules.has_witness {
            self.judge_knowing(state, mdt);
        }
        let of = &mut state.mdts[mdt];
        of.phase = Phase::Serving;
        (of.kept, of.asked, of.refused) = (Vec::new(), 0, 0);
        of.is_taken_back = true;
        true
    }

    /// What somebody knows who has not been down since is not lost, if what it depends on is there.
    fn judge_knowing(&self, state: &mut State, mdt: usize) {
        let of = &state.mdts[mdt];
        let is_there = |call: u8| state.mdts[self.story.coordinator(call)].rows.applied(call).is_some();
        let mut is_lost = false;
        let mut forgotten = Vec::new();
        for call in 0..self.story.calls.len() as u8 {
            if self.story.coordinator(call) != mdt || is_there(call) {
                continue;
            }
            let needs = self.story.calls[usize::from(call)].needs;
            let is_gone = !state.clients[self.story.client(call)].is_alive;
            let is_refused = of.refused & (1 << call) != 0;
            let is_known = state.knowing[usize::from(call)] != 0;
            is_lost |= is_known && is_gone && !is_refused && needs.iter().all(|before| is_there(*before));
            forgotten.push(call);
        }
        for call in forgotten {
            state.knowing[usize::from(call)] = 0;
        }
        if is_lost {
            state.break_at("a living participant was told of it, and it is lost");
        }
    }

    pub fn begin_checkpoint(&self, state: &mut State, mdt: usize) {
        state.checkpoints_left -= 1;
        state.mdts[mdt].marked = Some(state.mdts[mdt].durable.clone());
    }

    pub fn end_checkpoint(&self, state: &mut State, mdt: usize) {
        let has_all = self.rules.has(Rule::CheckpointsHaveAllRows);
        let of = &mut state.mdts[mdt];
        let Some(mut marked) = of.marked.take() else { return };
        if !has_all {
            // The log before the mark is gone, and with it what only that had said.
            let mut kept = Rows::default();
            of.durable.iter().filter(|row| !marked.has(row)).for_each(|row| kept.put(*row));
            marked.without_work_under_way();
            of.durable.iter().filter(|row| marked.has(row)).for_each(|row| kept.put(*row));
            of.durable = kept;
        }
        of.checkpoint = marked;
    }
}
