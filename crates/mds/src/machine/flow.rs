//! Flows: requests that run as operations, from arrival to answer.

mod ending;

use super::cross::{RenameHold, Settling, Walk};
use super::streams::mdt_of;
use super::{Mds, Output};
use crate::op::{self, Cx, Demand, Outcome, Remote, Stop, part};
use crate::rows;
use crate::tx::Resources;
use crate::unheard;
use base::{ClientId, Duration, Fid, Now, Status, TargetId, Time, Transno, limits};
use bytes::Bytes;
use ldlm::{Claimed, Need, OpId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Batch, MetaStore, Pressure, Reserve};
use target::Token;
use wire::lock::bits;
use wire::mdt::Met;
use wire::peer::{OperationId, Part};
use wire::session::features;
use wire::{LockMode, LockPolicy, MdtRequest, PeerRequest, Reply, Request, Resource};

/// A prepare that cannot get its locks for so long gives way: its coordinator may be what the others wait for.
const PREPARE_WAIT: Duration = Duration::from_millis(1000);

/// So often who is in the way of others looks whether the targets that it waits for are still heard.
const ANSWER_WAIT: Duration = limits::RESEND_FIRST;

/// The same for who holds nothing.
const PUT_OFF_FOR: Duration = Duration::from_millis(50);
const PUT_OFF_SHARE_US: u64 = 50;

/// What looks like somebody else's change for so often is damage.
const ATTEMPTS_MAX: u32 = 100;

/// The same for what another MDT calls damage: the next attempt asks for the name again, and only who makes and removes
/// it again within each of these attempts can keep it up.
const DAMAGE_ATTEMPTS_MAX: u32 = 10;

/// An inode that is changed each time that it was about to move stays where it is.
const MIGRATION_ATTEMPTS_MAX: u32 = 20;

/// What a flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In `runnable`.
    Running,
    Claiming,
    /// In `parked`.
    Frozen,
    /// In `unheard_waiters`.
    Unheard,
    /// Answers of other MDTs, or the rename lock.
    Asking,
    /// A timer.
    Backoff,
}

/// One request on its way.
#[derive(Debug)]
pub(super) struct Flow {
    pub token: Token,
    pub request: Request,
    /// Of a replay: what it had met when it was executed first.
    pub met: Option<Met>,
    /// That came with it.
    pub data: Bytes,
    pub started: Time,
    pub stage: Stage,
    /// Has claims in the lock space.
    pub is_claimed: bool,
    pub claimed: Vec<Need>,
    pub timer: Option<Time>,
    pub remote: Remote,
    pub settling: Option<Settling>,
    pub rename: Option<RenameHold>,
    pub walk: Option<Walk>,
    pub has_lost_rename: bool,
    /// Attempts that gave way to other operations.
    pub attempt_count: u32,
    /// The last of them, one after another, to something here. (Another MDT has all gives way to it while it recovers.)
    pub met_here_count: u32,
    /// Those of them that met what may be damage.
    pub damage_count: u32,
    /// What the operation came to without changing anything, by a name that was asked for on another MDT.
    pub concluded: Option<Result<(), Status>>,
    /// Asked for again since then, the name led where it had led.
    pub is_confirmed: bool,
    /// It waits for no lock, and leaves out what would need one.
    pub goes_at_once: bool,
    /// Once is enough for who changes nothing: others may change what it looks at all the time.
    pub has_waited_until_heard: bool,
    /// Targets that it has to hear from before it goes on.
    pub awaited: Vec<TargetId>,
    /// It is not begun anew before these are heard.
    pub is_put_off: bool,
}

impl Flow {
    pub fn wait_for(&mut self, targets: impl IntoIterator<Item = TargetId>) {
        self.awaited.clear();
        self.awaited.extend(targets);
    }

    /// Others wait for it, here or elsewhere.
    fn is_in_the_way(&self) -> bool {
        let is_locking_renames = self.rename.is_some_and(RenameHold::is_held);
        self.is_claimed || self.settling.is_some() || is_locking_renames || gives_way(&self.request)
    }
}

/// What one run of an operation came to.
pub(super) struct Run {
    pub result: Result<Reply, Stop>,
    pub outcome: Outcome,
    pub batch: Batch,
    pub needs: Vec<Need>,
    pub touched: Resources,
    pub changed: Resources,
    pub destroys: Vec<Vec<u8>>,
    pub adopts: Vec<Vec<u8>>,
    pub parts: Vec<(u16, Part)>,
    /// FIDs that other MDTs have given.
    pub taken: BTreeMap<u16, Fid>,
}

/// Whether a flow is still there after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Waits,
    Ended,
}

impl<M: MetaStore> Mds<M> {
    pub(super) fn start_flow(
        &mut self,
        now: Now,
        token: Token,
        request: Request,
        met: Option<Met>,
        data: Bytes,
    ) {
        let op = self.new_op();
        let flow = Box::new(Flow {
            token,
            request,
            met,
            data,
            started: now.time,
            stage: Stage::Running,
            is_claimed: false,
            claimed: Vec::new(),
            timer: None,
            remote: Remote::default(),
            settling: None,
            rename: None,
            walk: None,
            has_lost_rename: false,
            attempt_count: 0,
            met_here_count: 0,
            damage_count: 0,
            concluded: None,
            is_confirmed: false,
            goes_at_once: false,
            has_waited_until_heard: false,
            awaited: Vec::new(),
            is_put_off: false,
        });
        self.flows.insert(op, flow);
        self.runnable.push_back(op);
    }

    /// Whose word is awaited about what is frozen.
    pub(super) fn frozen_by(&self, touched: &Resources) -> BTreeSet<TargetId> {
        let mut awaited = BTreeSet::new();
        for (resource, id) in self.cross.frozen_among(touched) {
            match resource {
                Resource::Inode(fid) if id.mdt_index == self.options.index => {
                    awaited.extend(self.adoptions.awaited_for(fid));
                }
                _ => awaited.extend([TargetId::mdt(id.mdt_index)]),
            }
        }
        awaited
    }

    /// Targets that are not heard, and that replays wait for.
    pub(super) fn unheard_of_replays(&self, now: Now) -> BTreeSet<TargetId> {
        let mut awaited: BTreeSet<TargetId> = BTreeSet::new();
        if self.core.is_recovering() {
            let waits = |flow: &&Flow| flow.token.replay.is_some() && flow.stage != Stage::Running;
            let flows = self.flows.values().map(|flow| &**flow);
            awaited.extend(flows.filter(waits).flat_map(|flow| &flow.awaited));
        }
        awaited.retain(|target| self.peers.is_silent(now.time, *target));
        awaited
    }

    /// Lets a flow go on.
    pub(super) fn wake(&mut self, op: OpId) {
        if let Some(flow) = self.flows.get_mut(&op)
            && flow.stage != Stage::Running
        {
            flow.stage = Stage::Running;
            self.parked.remove(&op);
            self.unheard_waiters.remove(op);
            self.runnable.push_back(op);
        }
    }

    pub(super) fn set_timer(&mut self, op: OpId, flow: &mut Flow, at: Time) {
        self.clear_timer(op, flow);
        flow.timer = Some(at);
        self.timers.insert((at, op));
    }

    fn clear_timer(&mut self, op: OpId, flow: &mut Flow) {
        if let Some(at) = flow.timer.take() {
            self.timers.remove(&(at, op));
        }
    }

    pub(super) fn on_flow_timer(&mut self, now: Now, op: OpId, out: &mut Vec<Output>) {
        let Some(flow) = self.flows.get_mut(&op) else { return };
        flow.timer = None;
        match flow.stage {
            Stage::Backoff => self.wake(op),
            Stage::Claiming => {
                let Some(mut flow) = self.flows.remove(&op) else { return };
                self.fail(now, op, &mut flow, part::GIVE_WAY, out);
            }
            Stage::Asking => self.look_at_asked(now, op, out),
            Stage::Running | Stage::Frozen | Stage::Unheard => {}
        }
    }

    /// Asks, or waits for an answer that was asked for. Who is in the way of others does not wait for a target that is away.
    pub(super) fn ask(&mut self, now: Now, op: OpId, flow: &mut Flow) -> Step {
        flow.stage = Stage::Asking;
        if flow.is_in_the_way() {
            self.set_timer(op, flow, now.time.after(ANSWER_WAIT));
        }
        Step::Waits
    }

    fn look_at_asked(&mut self, now: Now, op: OpId, out: &mut Vec<Output>) {
        let Some(mut flow) = self.take_flow(op, Stage::Asking) else { return };
        let step = if !self.is_hopeless(now, &flow) {
            self.ask(now, op, &mut flow)
        } else if gives_way(&flow.request) {
            self.fail(now, op, &mut flow, part::GIVE_WAY, out)
        } else {
            self.stop_waiting_for_fids(op);
            if flow.settling.is_none() {
                // A late answer is none to what is asked then.
                self.abandon_calls(now, |call| call.is_question_of(op), out);
            }
            self.put_off(now, op, &mut flow, out)
        };
        self.keep_flow(op, flow, step);
    }

    fn is_hopeless(&self, now: Now, flow: &Flow) -> bool {
        flow.awaited.iter().any(|target| self.peers.is_silent(now.time, *target))
    }

    /// Holds nothing until those that it waits for are heard.
    pub(super) fn put_off(&mut self, now: Now, op: OpId, flow: &mut Flow, out: &mut Vec<Output>) -> Step {
        let step = self.give_way(now, op, flow, out);
        flow.is_put_off = true;
        step
    }

    fn stay_put_off(&mut self, now: Now, op: OpId, flow: &mut Flow) -> Step {
        flow.is_put_off = true;
        flow.stage = Stage::Backoff;
        // However many there are, so many look in a second.
        let share = Duration::from_micros(self.flows.len() as u64 * PUT_OFF_SHARE_US);
        self.set_timer(op, flow, now.time.after(PUT_OFF_FOR.max(share)));
        Step::Waits
    }

    /// Nothing is held while waiting for somebody's decision, which may be away.
    pub(super) fn hold_nothing(&mut self, now: Now, op: OpId, flow: &mut Flow, out: &mut Vec<Output>) {
        self.abort_parts(now, flow, out);
        self.release_claims(now, op, flow);
        self.release_rename(now, flow);
        flow.walk = None;
        // What was seen on the way up held under the rename lock only.
        flow.remote.walked.clear();
    }

    pub(super) fn on_claim_ready(&mut self, now: Now, op: OpId, out: &mut Vec<Output>) {
        if self.flows.get(&op).is_some_and(|flow| flow.stage == Stage::Claiming) {
            self.wake(op);
        } else if self.strays.is_claim(op) {
            self.on_stray_claim_ready(now, op, out);
        } else if self.accesses.is_claim(op) {
            self.on_access_claim_ready(now, op, out);
        } else if self.data_work.contains_key(&op) {
            self.on_data_claim_ready(now, op);
        } else {
            self.on_rename_lock_ready(now, op);
        }
    }

    pub(super) fn advance(&mut self, now: Now, op: OpId, out: &mut Vec<Output>) {
        let Some(mut flow) = self.take_flow(op, Stage::Running) else { return };
        self.clear_timer(op, &mut flow);
        let step = self.step(now, op, &mut flow, out);
        self.keep_flow(op, flow, step);
    }

    /// A flow that is at this stage, to go on with it; `keep_flow` takes it back.
    pub(super) fn take_flow(&mut self, op: OpId, stage: Stage) -> Option<Box<Flow>> {
        self.flows.get(&op).filter(|flow| flow.stage == stage)?;
        self.flows.remove(&op)
    }

    /// Unless it has ended.
    pub(super) fn keep_flow(&mut self, op: OpId, flow: Box<Flow>, step: Step) {
        if step == Step::Waits {
            self.flows.insert(op, flow);
        }
    }

    /// The operation is run again, with what the flow knows now.
    pub(super) fn run_again(&mut self, op: OpId, flow: &mut Flow) -> Step {
        flow.stage = Stage::Running;
        self.runnable.push_back(op);
        Step::Waits
    }

    /// The operation is run again when something that is frozen has been decided.
    pub(super) fn await_decision(&mut self, op: OpId, flow: &mut Flow) -> Step {
        flow.stage = Stage::Frozen;
        self.parked.insert(op);
        Step::Waits
    }

    fn step(&mut self, now: Now, op: OpId, flow: &mut Flow, out: &mut Vec<Output>) -> Step {
        if std::mem::take(&mut flow.is_put_off) && self.is_hopeless(now, flow) {
            return self.stay_put_off(now, op, flow);
        }
        flow.awaited.clear();
        if flow.has_lost_rename || self.is_rename_lock_doubtful(now, flow) {
            return self.back_off(now, op, flow, out);
        }
        match Self::refusal(flow) {
            // Whoever uses the directory all the time goes on using it.
            Some(part::GIVE_WAY)
                if is_migration(&flow.request) && flow.attempt_count >= MIGRATION_ATTEMPTS_MAX =>
            {
                return self.fail(now, op, flow, Status::Busy, out);
            }
            Some(part::GIVE_WAY) => return self.give_way(now, op, flow, out),
            // What the name leads to may have gone, on a third MDT, since the name was asked for on its own. There a
            // name without its inode is all that can be seen.
            Some(Status::Corrupt)
                if !flow.remote.peeked.is_empty() && flow.damage_count < DAMAGE_ATTEMPTS_MAX =>
            {
                flow.damage_count += 1;
                return self.back_off(now, op, flow, out);
            }
            Some(status) => return self.fail(now, op, flow, status, out),
            None => {}
        }
        let run = match self.run(now, flow) {
            Ok(run) => run,
            Err(status) => return self.fail(now, op, flow, status, out),
        };
        self.take_given(now, flow, &run.taken, out);
        if let Some(step) = self.await_end(now, op, flow, &run) {
            return step;
        }
        if self.cross.is_frozen(&run.touched) && !self.may_look(flow, &run.touched) {
            return self.park(now, op, flow, &run.touched, out);
        }
        if let Some(step) = self.await_stream(now, op, flow, &run, out) {
            return step;
        }
        if let Some(step) = self.confirm(now, op, flow, &run, out) {
            return step;
        }
        let is_shown = match &run.result {
            Ok(_) => run.batch.is_empty() && run.parts.is_empty(),
            Err(Stop::Status(status)) => *status != part::GIVE_WAY,
            Err(_) => false,
        };
        if is_shown && !flow.has_waited_until_heard && self.waits_until_heard(op, flow, &run) {
            return Step::Waits;
        }
        match &run.result {
            Err(Stop::Status(part::GIVE_WAY))
                if !is_prepare(&flow.request) && flow.met_here_count < ATTEMPTS_MAX =>
            {
                flow.met_here_count += 1;
                self.back_off(now, op, flow, out)
            }
            Err(Stop::Status(status)) => {
                let is_damage = *status == part::GIVE_WAY && !is_prepare(&flow.request);
                let status = if is_damage { Status::Corrupt } else { *status };
                self.fail(now, op, flow, status, out)
            }
            Err(Stop::Peek { parent, name }) => {
                let (parent, name) = (*parent, name.clone());
                self.peek(now, op, flow, parent, name, out)
            }
            Err(Stop::Walk { directory, moved }) => {
                let (directory, moved) = (*directory, *moved);
                self.walk(now, op, flow, directory, moved, out)
            }
            Err(Stop::NewFid { mdt }) => self.need_fid(now, op, flow, *mdt, out),
            Err(Stop::Place) => {
                flow.remote.placed = Some(self.place_directory(now, out));
                self.run_again(op, flow)
            }
            Err(Stop::PeekDirectory { fid }) => self.peek_directory(now, op, flow, *fid, out),
            Err(Stop::PeekFile { fid }) => self.peek_file(now, op, flow, *fid, out),
            Err(Stop::PeekWhole { fid }) => self.peek_whole(now, op, flow, *fid, out),
            Ok(_) if run.batch.is_empty() && run.parts.is_empty() => {
                let needs = self.unsettled_needs(flow, &run.outcome);
                if !needs.is_empty() && !self.claim_or_wait(now, op, flow, &needs) {
                    return Step::Waits;
                }
                self.finish_reading(now, op, flow, run)
            }
            Ok(_) => self.step_changing(now, op, flow, run, out),
        }
    }

    /// What follows from a name on another MDT and from what is here has to have been true of both at one time, and the answer
    /// about the name may be old: the operation may have waited. So nothing is concluded from it before it is asked for again.
    /// (What changes something is checked when the other MDT prepares it.)
    fn confirm(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        run: &Run,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        let conclusion = match &run.result {
            Err(Stop::Status(status)) if *status != part::GIVE_WAY => Err(*status),
            Ok(_) if run.batch.is_empty() && run.parts.is_empty() => Ok(()),
            _ => return None,
        };
        let (parent, name) = flow.remote.peeked.keys().next().cloned()?;
        let is_certain = flow.is_confirmed && flow.concluded == Some(conclusion);
        if is_certain || flow.settling.is_some() {
            return None;
        }
        flow.concluded = Some(conclusion);
        flow.is_confirmed = false;
        self.release_claims(now, op, flow);
        Some(self.peek(now, op, flow, parent, name, out))
    }

    /// A coordinator that does again what it had lost must see how things were before.
    fn may_look(&self, flow: &Flow, touched: &Resources) -> bool {
        match &flow.request {
            // What it does again takes the place of what stands in its way.
            Request::Peer(PeerRequest::Prepare { id, .. }) => self.cross.is_only_void(*id, touched),
            Request::Peer(
                PeerRequest::PeekName { epoch, .. }
                | PeerRequest::PeekParent { epoch, .. }
                | PeerRequest::PeekWhole { epoch, .. }
                | PeerRequest::PeekFile { epoch, .. }
                | PeerRequest::PeekDirectory { epoch, .. },
            ) => self.is_frozen_for_asker_only(flow.token.client, *epoch, touched),
            // The decision may wait for the end of recovery, which waits for this. It takes nothing away: what was
            // prepared is made on the rows as they are when it is decided.
            Request::Mdt(MdtRequest::Reopen { .. }) => self.core.is_recovering(),
            _ => false,
        }
    }

    /// The operation looked at a directory that another MDT has made here, and that has not come to life: it waits until it has, or
    /// is known not to.
    fn await_stream(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        run: &Run,
        out: &mut Vec<Output>,
    ) -> Option<Step> {
        let held = self.streams.held_among(&run.touched, restarted_asker(flow));
        if !held.is_empty() {
            self.want_held(now, &held, out);
            if gives_way(&flow.request) {
                // Whoever waits here may be waited for there.
                return Some(self.fail(now, op, flow, part::GIVE_WAY, out));
            }
            self.hold_nothing(now, op, flow, out);
            flow.wait_for(held.iter().filter_map(|fid| self.streams.coordinator_of(*fid)));
            return Some(self.await_decision(op, flow));
        }
        match self.perhaps_coming(flow, &run.touched, &run.changed) {
            Ok(None) => None,
            Ok(Some(looked_for)) => Some(self.ask_whether_coming(now, op, flow, looked_for, out)),
            Err(status) => Some(self.fail(now, op, flow, status, out)),
        }
    }

    /// The operation looked at something that another MDT's operation holds: it waits for the decision.
    fn park(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        touched: &Resources,
        out: &mut Vec<Output>,
    ) -> Step {
        if gives_way(&flow.request) {
            // Whoever waits here may be waited for there.
            return self.fail(now, op, flow, part::GIVE_WAY, out);
        }
        // What is replayed has been executed, so nothing will be in its way.
        if is_of_many(&flow.request) && flow.token.replay.is_none() {
            return self.fail(now, op, flow, Status::Busy, out);
        }
        self.hold_nothing(now, op, flow, out);
        flow.wait_for(self.frozen_by(touched));
        self.await_decision(op, flow)
    }

    fn step_changing(
        &mut self,
        now: Now,
        op: OpId,
        flow: &mut Flow,
        mut run: Run,
        out: &mut Vec<Output>,
    ) -> Step {
        let is_streamed = !run.parts.is_empty() && self.is_streamable(flow, &run.parts);
        let is_settled = run.parts.is_empty() || is_streamed || self.is_settled(flow, &run.parts);
        let is_silent = |(mdt, _): &(u16, Part)| self.peers.is_silent(now.time, TargetId::mdt(*mdt));
        if !is_settled && run.parts.iter().any(is_silent) {
            // Nothing is claimed for what cannot be prepared.
            flow.wait_for(run.parts.iter().map(|(mdt, _)| TargetId::mdt(*mdt)));
            return self.put_off(now, op, flow, out);
        }
        if let Request::Peer(PeerRequest::Prepare { id, .. }) = &flow.request {
            self.release_void_claims(now, *id, &run.touched);
        }
        // What clients replay needs no claims: they name their locks only afterwards.
        let is_replay = self.is_before_locks(flow);
        // What was answered is not refused for want of room, also not by who was not asked for it at first.
        let is_again = is_replay || flow.token.replay.is_some() || is_replayed_prepare(&flow.request);
        if !is_again && !self.has_room(&flow.request) {
            return self.fail(now, op, flow, Status::NoSpace, out);
        }
        run.needs.extend(self.unsettled_needs(flow, &run.outcome));
        if !is_replay && carries_data(&flow.request) && !flow.goes_at_once {
            if !self.claim(now, op, flow, &run.needs) {
                // Who is in the way may wait for these data: only they are taken in.
                self.release_claims(now, op, flow);
                flow.goes_at_once = true;
                return self.step(now, op, flow, out);
            }
        } else if !is_replay && is_of_many(&flow.request) {
            if !self.claim(now, op, flow, &run.needs) {
                return self.fail(now, op, flow, Status::Busy, out);
            }
        } else if !is_replay && !self.claim_or_wait(now, op, flow, &run.needs) {
            return Step::Waits;
        }
        if is_of_many(&flow.request) && self.unheard_below(flow, &run).is_some() {
            return self.fail(now, op, flow, Status::Busy, out);
        }
        // What is prepared is durable, with all that is before it, when the coordinator hears of it.
        if !is_prepare(&flow.request) && self.waits_until_heard(op, flow, &run) {
            return Step::Waits;
        }
        match self.can_be_adopted(&run.adopts) {
            Ok(true) => {}
            // An OST has not been heard since this MDT has started.
            Ok(false) if flow.attempt_count < MIGRATION_ATTEMPTS_MAX => {
                return self.back_off(now, op, flow, out);
            }
            Ok(false) => return self.fail(now, op, flow, Status::Busy, out),
            Err(status) => return self.fail(now, op, flow, status, out),
        }
        if is_prepare(&flow.request) {
            return self.finish_prepare(now, op, flow, run, out);
        }
        if !is_settled {
            return self.settle_parts(now, op, flow, run.parts, out);
        }
        if self.placement.settle(true) {
            self.on_dealt(now, out);
        }
        self.commit(now, op, flow, run, out)
    }

    fn has_room(&self, request: &Request) -> bool {
        let Pressure { reserve, is_log_short, is_log_ending, .. } = self.core.store().pressure();
        let granted = match reserve {
            _ if is_log_ending => Demand::Frees,
            // While the base has room the log goes round in its segments.
            Reserve::Ample => Demand::Takes,
            Reserve::Low if !is_log_short => Demand::Keeps,
            Reserve::Low | Reserve::Exhausted => Demand::Frees,
        };
        demand_of(request) <= granted
    }

    /// Runs the operation over the rows as they are, without any effect.
    fn run(&mut self, now: Now, flow: &Flow) -> Result<Run, Status> {
        self.check_closing_lock(flow)?;
        let store = Arc::clone(self.core.store());
        self.placement.settle(false);
        let features = self.core.features_of(flow.token.client);
        let given = self.given_fids();
        let is_leaving = match &flow.request {
            Request::Mdt(MdtRequest::Reopen { fid, .. }) => self.cross.is_leaving(*fid),
            _ => false,
        };
        let mut cx = self.cx(&*store, now.wall, &flow.remote);
        cx.client = flow.token.client;
        cx.features = features;
        cx.data = flow.data.clone();
        cx.goes_at_once = flow.goes_at_once;
        cx.met = flow.met;
        cx.given = given;
        cx.is_replay = flow.token.replay.is_some_and(|transno| transno != Transno::ZERO);
        let is_again = cx.is_replay || is_replayed_prepare(&flow.request);
        cx.is_leaving = is_leaving;
        cx.position_names_max = (!is_again).then_some(op::POSITION_NAMES_MAX);
        let result = match &flow.request {
            Request::Mdt(request) => op::run(&mut cx, request).map(Reply::Mdt),
            Request::Peer(request) => super::cross::run_peer(&mut cx, request).map(Reply::Peer),
            _ => Err(Stop::Status(Status::ProtocolError)),
        };
        let Cx { tx, parts, outcome, taken, .. } = cx;
        let (needs, touched, changed) = (tx.needs()?, tx.touched(), tx.changed());
        let (destroys, adopts) = (tx.keys_put(rows::DESTROYS), tx.keys_put(rows::ADOPTS));
        let batch = tx.into_batch();
        Ok(Run { result, outcome, needs, touched, changed, destroys, adopts, parts, taken, batch })
    }

    /// Whether the operation looked at a change whose caller may not have heard of it (`unheard`); if so, it waits until this
    /// is durable at the latest. It keeps its claims: those of them who wait for each other wait for the store alone.
    fn waits_until_heard(&mut self, op: OpId, flow: &mut Flow, run: &Run) -> bool {
        let Some(below) = self.unheard_below(flow, run) else { return false };
        self.core.store().kick();
        self.stats.waited_for_hearing += 1;
        flow.has_waited_until_heard = true;
        flow.stage = Stage::Unheard;
        self.unheard_waiters.insert(op, below);
        true
    }

    fn unheard_below(&self, flow: &Flow, run: &Run) -> Option<(Transno, Token)> {
        if flow.token.replay.is_some() || !self.core.is_serving() {
            return None;
        }
        let removed = unheard::removed(&run.changed, &run.needs);
        let is_heard = |token: &Token| self.core.is_heard(token);
        self.unheard.first_below(&run.touched, &removed, is_heard)
    }

    /// With each input; `caller`: of whom it is, of the one client that may have said that it has heard.
    pub(super) fn wake_unheard_waiters(&mut self, caller: Option<ClientId>) {
        if self.unheard_waiters.is_empty() {
            return;
        }
        let is_heard = |token: &Token| self.core.is_heard(token);
        for op in self.unheard_waiters.over(self.core.durable(), caller, is_heard) {
            self.wake(op);
        }
    }

    /// What has to be claimed before the caller learns of a file, or opens it, that another client writes without waiting for
    /// OSTs: that client writes what it has kept back, and gives the lock back. So does who has closed a file with data here.
    fn unsettled_needs(&self, flow: &Flow, outcome: &Outcome) -> Vec<Need> {
        if flow.token.replay.is_some() || !self.core.is_serving() {
            return Vec::new();
        }
        let (mode, policy) = (LockMode::Pr, LockPolicy::Bits(bits::WRITE_BACK));
        let need = |fid: &Fid| Need { resource: Resource::Inode(*fid), mode, policy };
        let is_held = |need: &Need| self.locks.is_held_against(flow.token.client, *need);
        outcome.unsettled.iter().map(need).chain(outcome.awaited).filter(is_held).collect()
    }

    /// Claims what is needed, or leaves the flow waiting for it.
    fn claim_or_wait(&mut self, now: Now, op: OpId, flow: &mut Flow, needs: &[Need]) -> bool {
        if self.claim(now, op, flow, needs) {
            return true;
        }
        self.stats.waited_for_locks += 1;
        flow.stage = Stage::Claiming;
        if is_prepare(&flow.request) {
            self.set_timer(op, flow, now.time.after(PREPARE_WAIT));
        }
        false
    }

    /// Claims what is needed, unless it is claimed already. False: wait.
    fn claim(&mut self, now: Now, op: OpId, flow: &mut Flow, needs: &[Need]) -> bool {
        if flow.is_claimed {
            if needs.iter().all(|need| is_covered(need, &flow.claimed)) {
                return true;
            }
            // Something else has to be changed than when the flow began to wait.
            self.release_claims(now, op, flow);
        }
        // Who has an inode moved has no part in its change: it looks at it again as everybody does.
        let is_own = !is_prepare(&flow.request) && !is_migration(&flow.request);
        let exempt = is_own.then_some(flow.token.client);
        flow.claimed = needs.to_vec();
        flow.is_claimed = true;
        self.locks.claim(now.time, op, exempt, needs.to_vec(), &mut self.lock_out) == Claimed::Ready
    }

    pub(super) fn release_claims(&mut self, now: Now, op: OpId, flow: &mut Flow) {
        if std::mem::take(&mut flow.is_claimed) {
            flow.claimed.clear();
            self.locks.release(now.time, op, &mut self.lock_out);
        }
    }

    /// The same as `back_off` for what another MDT has said.
    pub(super) fn give_way(&mut self, now: Now, op: OpId, flow: &mut Flow, out: &mut Vec<Output>) -> Step {
        flow.met_here_count = 0;
        self.back_off(now, op, flow, out)
    }

    /// Starts an operation anew after a while: others were in its way.
    pub(super) fn back_off(&mut self, now: Now, op: OpId, flow: &mut Flow, out: &mut Vec<Output>) -> Step {
        self.abort_parts(now, flow, out);
        self.release_claims(now, op, flow);
        self.release_rename(now, flow);
        flow.remote = Remote::default();
        flow.concluded = None;
        flow.is_confirmed = false;
        flow.walk = None;
        flow.has_lost_rename = false;
        flow.attempt_count += 1;
        flow.stage = Stage::Backoff;
        // Two MDTs that stood in each other's way come back at different times.
        let wait_ms = u64::from(flow.attempt_count.min(20)) * (5 + 4 * u64::from(self.options.index % 16));
        self.set_timer(op, flow, now.time.after(Duration::from_millis(wait_ms)));
        Step::Waits
    }

    /// The client is gone; what it asked for and has not been decided is given up.
    pub(super) fn drop_flows_of(&mut self, now: Now, client: ClientId, out: &mut Vec<Output>) {
        let is_its = |flow: &Flow| flow.token.client == client;
        let ops: Vec<OpId> = self.flows.iter().filter(|(_, flow)| is_its(flow)).map(|(op, _)| *op).collect();
        for op in ops {
            let Some(mut flow) = self.flows.remove(&op) else { continue };
            self.abort_parts(now, &mut flow, out);
            self.end(now, op, &mut flow);
        }
    }

    /// A prepare that is still on its way when its operation was decided against.
    pub(super) fn drop_prepare_flow(&mut self, now: Now, id: OperationId, out: &mut Vec<Output>) {
        let is_it = |flow: &Flow| matches!(&flow.request, Request::Peer(PeerRequest::Prepare { id: other, .. }) if *other == id);
        let found = self.flows.iter().find(|(_, flow)| is_it(flow)).map(|(op, _)| *op);
        if let Some(op) = found
            && let Some(mut flow) = self.flows.remove(&op)
        {
            self.fail(now, op, &mut flow, part::GIVE_WAY, out);
        }
    }

    /// One line for each request under way, and what it waits for.
    pub fn under_way(&self) -> Vec<String> {
        let flow_line = |op: &OpId, flow: &Flow| {
            format!(
                "{op:?} {:?} for {} attempt {} settling {:?} rename {:?}: {:?}",
                flow.stage, flow.token.client, flow.attempt_count, flow.settling, flow.rename, flow.request
            )
        };
        let flows = self.flows.iter().map(|(op, flow)| flow_line(op, flow));
        flows
            .chain(self.cross.under_way())
            .chain(self.streams.under_way())
            .chain(self.adoptions.under_way())
            .collect()
    }

    /// Asserts that every waiting flow is where its waker looks.
    pub(super) fn check_flows(&self) {
        for (op, flow) in &self.flows {
            assert_eq!(flow.stage == Stage::Frozen, self.parked.contains(op), "{op:?} {:?}", flow.stage);
            assert_eq!(flow.stage == Stage::Unheard, self.unheard_waiters.contains(*op), "{op:?}");
            assert_eq!(flow.is_claimed, self.locks.is_claimed(*op));
            assert!(flow.stage != Stage::Running, "{op:?} is left running");
            assert!(flow.stage != Stage::Backoff || flow.timer.is_some());
        }
        assert!(self.parked.iter().all(|op| self.flows.contains_key(op)));
    }
}

/// Another MDT that asks for an operation, and as which incarnation.
fn restarted_asker(flow: &Flow) -> Option<(u16, u64)> {
    let epoch = match &flow.request {
        Request::Peer(PeerRequest::Prepare { id, .. }) => id.epoch,
        Request::Peer(
            PeerRequest::PeekName { epoch, .. }
            | PeerRequest::PeekParent { epoch, .. }
            | PeerRequest::PeekWhole { epoch, .. }
            | PeerRequest::PeekFile { epoch, .. }
            | PeerRequest::PeekDirectory { epoch, .. },
        ) => *epoch,
        _ => return None,
    };
    Some((mdt_of(flow.token.client)?, epoch))
}

/// Nobody replays it: a client could not say again what it was told of an inode that others have used since.
fn is_migration(request: &Request) -> bool {
    matches!(request, Request::Mdt(MdtRequest::Migrate { .. }))
}

/// Who opens the file then writes to objects that only this layout names, and no replay of his own would bring it back.
fn is_layout(request: &Request) -> bool {
    matches!(request, Request::Mdt(MdtRequest::SetLayout { .. }))
}

pub(super) fn is_prepare(request: &Request) -> bool {
    matches!(request, Request::Peer(PeerRequest::Prepare { .. }))
}

/// Its asker holds what others wait for, and asks again.
pub(super) fn gives_way(request: &Request) -> bool {
    is_prepare(request) || matches!(request, Request::Peer(PeerRequest::PeekParent { .. }))
}

/// For an operation that its coordinator has lost.
fn is_replayed_prepare(request: &Request) -> bool {
    matches!(request, Request::Peer(PeerRequest::Prepare { is_replay: true, .. }))
}

/// It is about files that have nothing to do with each other: who waits for one of them is not to wait for another.
fn is_of_many(request: &Request) -> bool {
    matches!(request, Request::Mdt(MdtRequest::ReportSizes { .. }))
}

fn carries_data(request: &Request) -> bool {
    matches!(request, Request::Mdt(MdtRequest::Close { data: Some(_), .. }))
}

fn demand_of(request: &Request) -> Demand {
    match request {
        Request::Mdt(request) => op::demand_of(request),
        Request::Peer(PeerRequest::Prepare { parts, .. }) => part::demand_of(parts),
        _ => Demand::Frees,
    }
}

fn is_covered(need: &Need, claimed: &[Need]) -> bool {
    claimed.iter().any(|claim| {
        claim.resource == need.resource
            && match (claim.policy, need.policy) {
                (LockPolicy::Bits(claimed), LockPolicy::Bits(needed)) => claimed & needed == needed,
                (claimed, needed) => claimed == needed,
            }
    })
}
