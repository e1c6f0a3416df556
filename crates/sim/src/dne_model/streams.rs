//! Directories on other MDTs (`mds::machine::streams`).

use super::rules::Rule;
use super::state::{Answer, Held, Id, Outgoing, Phase, Row, State};
use super::steps::Machine;
use super::work::{Change, Item, MDT_COUNT, What};

impl Machine<'_> {
    fn unsent(state: &State, from: usize, to: usize) -> Vec<Item> {
        let sent_to = state.mdts[from].outgoing[to].sent_to;
        state.mdts[from].rows.streamed(to).filter(|item| item.id > sent_to).collect()
    }

    fn is_sending(state: &State, from: usize, to: usize) -> bool {
        state.calls[from][to].iter().any(|call| matches!(call.what, What::Hold { .. }))
    }

    fn is_durable(state: &State, from: usize, to: usize, item: &Item) -> bool {
        let Item { id, previous, work } = *item;
        state.mdts[from].durable.has(&Row::Streamed { to: to as u8, id, previous, work })
    }

    /// Whether something could be sent, whenever that is.
    pub fn has_gathered(&self, state: &State, from: usize, to: usize) -> bool {
        !Self::is_sending(state, from, to) && !Self::unsent(state, from, to).is_empty()
    }

    /// Sends what is not sent, unless such a message is on its way.
    pub fn hold(&self, state: &mut State, from: usize, to: usize) -> bool {
        let items = Self::unsent(state, from, to);
        let Some(last) = items.last() else { return false };
        if Self::is_sending(state, from, to) {
            return false;
        }
        state.mdts[from].outgoing[to].sent_to = last.id;
        let epoch = state.mdts[from].epoch;
        state.send(from, to, What::Hold { epoch, items });
        true
    }

    pub fn send_streams(&self, state: &mut State, from: usize) {
        for to in (0..MDT_COUNT).filter(|to| *to != from) {
            let of = &state.mdts[from];
            let is_prompt = of.phase == Phase::Recovering || of.told_recovered & (1 << to) == 0;
            let unsent = Self::unsent(state, from, to);
            let is_due = |item: &Item| Self::is_durable(state, from, to, item);
            if is_prompt || unsent.first().is_some_and(is_due) {
                self.hold(state, from, to);
            }
            self.send_release(state, from, to);
            self.send_forget(state, from, to);
        }
    }

    fn send_release(&self, state: &mut State, from: usize, to: usize) {
        let Outgoing { sent_to, released_to, .. } = state.mdts[from].outgoing[to];
        let is_due =
            |item: &Item| !self.rules.has(Rule::PartsLeaveDurable) || Self::is_durable(state, from, to, item);
        let sent = state.mdts[from].rows.streamed(to).filter(|item| item.id <= sent_to);
        let mark = sent.filter(is_due).map(|item| item.id).max();
        if let Some(up_to) = mark.filter(|mark| *mark > released_to) {
            state.mdts[from].outgoing[to].released_to = up_to;
            let epoch = state.mdts[from].epoch;
            state.send(from, to, What::Release { epoch, up_to });
        }
    }

    /// It has recovered, and what it has not sent again is void.
    fn send_forget(&self, state: &mut State, from: usize, to: usize) {
        let of = &state.mdts[from];
        if of.phase != Phase::Serving || of.told_recovered & (1 << to) != 0 {
            return;
        }
        if self.rules.has(Rule::ForgetLast) && !Self::unsent(state, from, to).is_empty() {
            return;
        }
        let epoch = of.epoch;
        state.mdts[from].told_recovered |= 1 << to;
        if self.rules.has(Rule::VoidIsForgotten) {
            state.send(from, to, What::Forget { epoch });
        }
    }

    pub fn on_hold(
        &self,
        state: &mut State,
        from: usize,
        to: usize,
        epoch: u8,
        items: &[Item],
    ) -> Option<(Answer, bool)> {
        for item in items {
            state.knowing[usize::from(item.work.call)] |= 1 << to;
            let of = &mut state.mdts[to];
            if item.id <= of.rows.executed(from) {
                continue;
            }
            of.held.retain(|held| held.item.id != item.id);
            of.held.push(Held { item: *item, sender: epoch });
            of.held.sort_unstable();
        }
        Some((Answer::Done, false))
    }

    pub fn on_release(
        &self,
        state: &mut State,
        from: usize,
        to: usize,
        epoch: u8,
        up_to: Id,
    ) -> Option<(Answer, bool)> {
        let of = &mut state.mdts[to];
        of.released_to[from] = of.released_to[from].max(up_to);
        let is_void = |held: &Held| self.rules.has(Rule::VoidIsNotExecuted) && held.sender < epoch;
        let of = &state.mdts[to];
        let mut executed = of.rows.executed(from);
        let start = executed;
        let mut ready = Vec::new();
        let mut held: Vec<Held> = of.held.clone();
        held.retain(|held| usize::from(held.item.id.mdt) == from && held.item.id <= of.released_to[from]);
        for held in held.iter().filter(|held| !is_void(held)) {
            if self.rules.has(Rule::NoGaps) && held.item.previous > executed {
                break;
            }
            ready.push(held.item);
            executed = held.item.id;
        }
        if !ready.is_empty() {
            self.execute_items(state, from, to, epoch, &ready, start);
        }
        if executed < up_to {
            return Some((Answer::Behind, false));
        }
        Some((Answer::Done, self.rules.has(Rule::ReleasesAnswerDurable)))
    }

    fn execute_items(&self, state: &mut State, from: usize, to: usize, epoch: u8, ready: &[Item], start: Id) {
        let mut batch = Vec::new();
        for item in ready {
            batch.extend(self.own_part(state, to, &item.work));
        }
        let Some(last) = ready.last().map(|item| item.id) else { return };
        let position = |id: Id| Row::Executed { from: from as u8, id };
        let moved = [Change::Delete(position(start)), Change::Put(position(last))];
        if self.rules.has(Rule::PositionWithParts) {
            batch.extend(moved);
            state.mdts[to].commit(batch);
        } else {
            state.mdts[to].commit(batch);
            state.mdts[to].commit(moved.to_vec());
        }
        // What is void stays until its coordinator has recovered: until then it may ask for it.
        let is_over = |held: &Held| {
            usize::from(held.item.id.mdt) == from && held.item.id <= last && held.sender >= epoch
        };
        state.mdts[to].held.retain(|held| !is_over(held) && !ready.contains(&held.item));
    }

    pub fn on_released(&self, state: &mut State, from: usize, to: usize, up_to: Id, answer: Answer) {
        if answer != Answer::Done {
            return state.mdts[from].outgoing[to].start_over();
        }
        let over = state.mdts[from].rows.streamed(to).filter(|item| item.id <= up_to);
        let row = |item: Item| Row::Streamed {
            to: to as u8,
            id: item.id,
            previous: item.previous,
            work: item.work,
        };
        let batch: Vec<Change> = over.map(|item| Change::Delete(row(item))).collect();
        if !batch.is_empty() {
            state.mdts[from].commit(batch);
        }
    }

    pub fn on_forget(&self, state: &mut State, from: usize, to: usize, epoch: u8) -> Option<(Answer, bool)> {
        let is_void = |held: &Held| usize::from(held.item.id.mdt) == from && held.sender < epoch;
        state.mdts[to].held.retain(|held| !is_void(held));
        Some((Answer::Done, false))
    }
}
