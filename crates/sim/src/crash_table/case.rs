//! One case: run to its place, lose who is down, have come back who does, and look.

use super::down::{OST_COUNT, Syncs};
use super::stories::Script;
use super::tree::{self, Tree};
use super::{Case, Holder, holders};
use crate::Outcome;
use crate::clockwork::{Clockwork, Executed};
use crate::damage::find_damage;
use crate::model::{Op, Outcome as Told};
use crate::sweep::{self, Shared};
use base::{Duration, TargetId, TargetKind, Time, Transno};
use std::collections::BTreeMap;
use store::MetaStore;

/// The seat of the one who operates.
const CLIENT: usize = 0;
/// A call of the setup.
const SETUP_CALL_MAX: Duration = Duration::from_secs(10);
/// From the death of targets to their next start.
const OUTAGE: Duration = Duration::from_millis(200);
/// By then everything that can come back has: two recovery windows and an eviction.
const SETTLED_MAX: Duration = Duration::from_secs(300);
/// How often it is looked whether it has.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Objects of files that are lost with a client go at the latest so long after the recovery.
const STRAYS_GONE: Duration = Duration::from_secs(40);

/// An operation of the story that has begun.
struct Step {
    is_acknowledged: bool,
    begun_at: Time,
    /// Transactions of the client that MDTs have executed by its answer.
    records: Vec<Executed>,
}

struct Run<'a> {
    clockwork: Clockwork,
    case: &'a Case,
    script: Script,
    steps: Vec<Step>,
    /// Of OSTs, when machines went: rows of which more is there have no data.
    durable_data: BTreeMap<TargetId, Transno>,
    /// Events before the first step.
    begun_at: u64,
}

/// Runs a case. Its counts say how many events there are from the begin to the quiet end, if it is not broken off before
/// (`events`), and what depended on whom.
pub fn run(case: &Case, trace_count: usize) -> Outcome {
    sweep::guarded(|shared| {
        if let Some(mut run) = Run::begin(case, shared, trace_count) {
            run.go();
        }
    })
}

fn has_witness(op: &Op) -> bool {
    holders(op).contains(&Holder::Witness)
}

impl<'a> Run<'a> {
    /// `None`: the setup has failed.
    fn begin(case: &'a Case, shared: Shared, trace_count: usize) -> Option<Run<'a>> {
        let script = case.story.script(case.mdt_count);
        let mut clockwork = Clockwork::new(case.mdt_count, OST_COUNT, shared, trace_count);
        clockwork.mount();
        for op in script.setup.iter().chain([&Op::SyncAll]) {
            match clockwork.call(CLIENT, op.clone(), SETUP_CALL_MAX) {
                None | Some(Told::Error(_)) => {
                    clockwork.violate("setup", format!("{op:?} has failed"));
                    return None;
                }
                Some(_) => {}
            }
        }
        if !clockwork.run_until(SETTLED_MAX, Clockwork::is_at_rest) {
            clockwork.violate("setup", format!("it does not come to rest: {}", clockwork.under_way()));
            return None;
        }
        let are_data_late = case.syncs == Syncs::Never && case.story.has_data(case.mdt_count);
        let is_late = |id: &TargetId| match id.kind {
            TargetKind::Mgt => false,
            TargetKind::Mdt => !case.syncs.is_prompt(id.index),
            TargetKind::Ost => are_data_late,
        };
        clockwork.prompt.retain(|id| !is_late(id));
        clockwork.spoken.clear();
        let begun_at = clockwork.event_count;
        let durable_data = BTreeMap::new();
        Some(Run { clockwork, case, script, steps: Vec::new(), durable_data, begun_at })
    }

    fn go(&mut self) {
        let at = self.begun_at.saturating_add(self.case.at);
        self.launch_next();
        while self.clockwork.event_count < at && !self.is_at_end() {
            let until = self.clockwork.now.time.after(SETTLED_MAX);
            if self.clockwork.is_broken() || !self.clockwork.step(until) {
                break;
            }
            self.note();
        }
        self.clockwork.count("events", self.clockwork.event_count - self.begun_at);
        self.note_durable();
        self.lose();
        let must = self.must();
        self.settle();
        if !self.clockwork.is_broken() {
            self.check(must);
        }
    }

    fn note_durable(&mut self) {
        let osts = self.clockwork.servers.values().filter(|server| server.id.kind == TargetKind::Ost);
        self.durable_data = osts.map(|server| (server.id, server.meta.durable())).collect();
    }

    fn launch_next(&mut self) {
        self.clockwork.executed.clear();
        let op = self.script.steps[self.steps.len()].clone();
        let begun_at = self.clockwork.now.time;
        self.steps.push(Step { is_acknowledged: false, begun_at, records: Vec::new() });
        self.clockwork.launch(CLIENT, op);
    }

    /// Notes what has become of the present step, and begins the next when it is answered.
    fn note(&mut self) {
        let seat = &self.clockwork.seats[CLIENT];
        let Some(step) = self.steps.last_mut().filter(|step| !step.is_acknowledged) else { return };
        let own = self.clockwork.executed.iter().filter(|executed| executed.client == seat.id);
        step.records = own.copied().collect();
        let Some(told) = seat.told.clone() else { return };
        step.is_acknowledged = true;
        if let Told::Error(errno) = told {
            let op = &self.script.steps[self.steps.len() - 1];
            return self.clockwork.violate("call", format!("{op:?} has failed: errno {errno}"));
        }
        if self.steps.len() < self.script.steps.len() {
            self.launch_next();
        }
    }

    fn is_complete(&self) -> bool {
        self.steps.len() == self.script.steps.len() && self.steps.iter().all(|step| step.is_acknowledged)
    }

    fn is_at_end(&self) -> bool {
        self.is_complete() && self.clockwork.is_at_rest()
    }

    /// How many of the steps must be there in the end, with what is left of those who are gone.
    fn must(&self) -> usize {
        let down = self.case.down;
        if !down.has_client() {
            return self.script.steps.len();
        }
        let steps = self.script.steps.iter().zip(&self.steps);
        let acknowledged: Vec<(&Op, &Step)> = steps.filter(|(_, step)| step.is_acknowledged).collect();
        let is_kept = |(op, step): &(&Op, &Step)| self.is_held(op, step, Holder::Coordinator);
        // What an MDT has keeps what it depends on. Data do not: the name of the file may be lost.
        let has_names = |step: &Step| step.records.iter().any(|record| record.target.kind == TargetKind::Mdt);
        let from_first = acknowledged.iter().take_while(|acknowledged| is_kept(acknowledged)).count();
        let last = acknowledged.iter().rposition(|last| has_names(last.1) && is_kept(last));
        let kept = match self.is_complete() {
            // It was synced.
            true => self.steps.len(),
            false => from_first.max(last.map_or(0, |last| last + 1)),
        };
        // A witness brings back what it knows of, on top of what is there.
        let brought_back = |from: usize, may: &dyn Fn(&Op) -> bool| {
            let is_held = |(op, step): &&(&Op, &Step)| may(op) && self.is_held(op, step, Holder::Witness);
            from + acknowledged.iter().skip(from).take_while(is_held).count()
        };
        let must = brought_back(kept, &has_witness);
        let would = brought_back(must, &|_| true);
        let lost = acknowledged.len().saturating_sub(must);
        self.clockwork.count("acknowledged and kept by a server", u64::from(must > 0));
        self.clockwork.count("acknowledged and brought back by a witness", u64::from(must > kept));
        self.clockwork.count("acknowledged and lost", u64::from(lost > 0));
        self.clockwork.count("a witness would save", u64::from(would > must));
        must
    }

    /// Whether this holder of an acknowledged step is alive, and still has its record when all have come back.
    fn is_held(&self, op: &Op, step: &Step, holder: Holder) -> bool {
        let down = self.case.down;
        match holder {
            Holder::Client => !down.has_client(),
            Holder::Coordinator => {
                let is_kept = |record: &Executed| {
                    let server = self.clockwork.servers.get(&record.target);
                    let rows = server.map(|server| server.meta.durable());
                    let durable = self.durable_data.get(&record.target).copied().or(rows);
                    !down.has_target(record.target) || durable >= Some(record.transno)
                };
                // What the client has kept back no server knows of.
                !step.records.is_empty() && step.records.iter().all(is_kept)
            }
            Holder::Witness => self.clockwork.spoken.iter().any(|spoken| {
                let is_about = |record: &Executed| {
                    let is_in_time = || (step.begun_at..=record.at).contains(&spoken.sent_at);
                    // What needs no prepare is told when it is executed, or a little later with more.
                    let is_told = || spoken.told.contains(&(record.client, record.transno));
                    spoken.from == record.target && if has_witness(op) { is_told() } else { is_in_time() }
                };
                step.records.iter().any(is_about) && !down.has_target(spoken.to)
            }),
        }
    }

    fn lose(&mut self) {
        let Case { down, death, .. } = *self.case;
        if down.has_client() {
            self.clockwork.lose_client(CLIENT, death);
        }
        for id in down.targets() {
            self.clockwork.lose_target(id, death, OUTAGE);
        }
    }

    /// Until everybody serves, everything is done, and the client, if it lives, has made all its calls.
    fn settle(&mut self) {
        let until = self.clockwork.now.time.after(SETTLED_MAX);
        let mut look_at = self.clockwork.now.time;
        while !self.clockwork.is_broken() {
            let is_looked_at = self.clockwork.now.time >= look_at;
            if is_looked_at {
                look_at = self.clockwork.now.time.after(LOOK_INTERVAL);
            }
            let is_done = self.case.down.has_client() || self.is_complete();
            if is_looked_at && is_done && self.clockwork.is_at_rest() {
                return;
            }
            if !self.clockwork.step(until) {
                let (begun, what) = (self.steps.len(), self.clockwork.under_way());
                return self.clockwork.violate("progress", format!("stuck in step {begun}: {what}"));
            }
            if !self.case.down.has_client() {
                self.note();
            }
        }
    }

    fn check(&mut self, must: usize) {
        let mut wrong = self.look(must);
        if wrong.is_some() && self.case.down.has_client() && self.case.story.has_data(self.case.mdt_count) {
            // A size that was lost with a client and does not fit its objects is found in the background.
            self.clockwork.count("looked at again", 1);
            self.clockwork.run_until(STRAYS_GONE, |_| false);
            wrong = self.look(must);
        }
        if let Some((checker, what)) = wrong {
            return self.clockwork.violate(checker, what);
        }
        let mut damage = self.damage();
        if damage.is_some() && self.case.down.has_client() {
            // What was lost with a client may have left objects, which are found in the background.
            self.clockwork.run_until(STRAYS_GONE, |_| false);
            damage = self.damage();
        }
        if let Some(what) = damage {
            self.clockwork.violate("fsck", what);
        }
    }

    /// What somebody finds who comes new, if it is wrong.
    fn look(&mut self, must: usize) -> Option<(&'static str, String)> {
        let observer = self.clockwork.mount();
        match tree::walk(&mut self.clockwork, observer) {
            Ok(found) => self.not_a_prefix(&found, must),
            Err(what) => Some(("tree", what)),
        }
    }

    fn damage(&mut self) -> Option<String> {
        match self.clockwork.run_until(SETTLED_MAX, Clockwork::is_at_rest) {
            true => find_damage(self.clockwork.servers.values()),
            false => Some(format!("it does not come to rest: {}", self.clockwork.under_way())),
        }
    }

    fn not_a_prefix(&self, found: &Tree, must: usize) -> Option<(&'static str, String)> {
        let states = tree::states(&self.script);
        // The last that can be there: who lives has made all.
        let may = self.steps.len();
        let explains = |count: &usize| states.get(*count).is_some_and(|state| state == found);
        if (must..=may).any(|count| explains(&count)) {
            return None;
        }
        Some(match (0..must).rev().find(explains) {
            Some(count) => {
                let lost: Vec<String> =
                    self.script.steps[count..must].iter().map(|op| format!("{op:?}")).collect();
                ("lost", format!("acknowledged, and not there: {}", lost.join(", ")))
            }
            None => {
                let closest = (0..=may).rev().map(|count| tree::difference(found, &states[count]));
                let closest = closest.min_by_key(String::len).unwrap_or_default();
                ("prefix", format!("no first few of the operations lead here: {closest}"))
            }
        })
    }
}

#[cfg(test)]
mod tests;
