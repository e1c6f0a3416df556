//! Whether each target answers, grants a lock, and reads: for `sheen health`. Nothing is written, and nothing is left behind: the
//! lock is on what cannot exist, and so is what is read under it.

use crate::call::{Answer, ProbeStep, TargetProbe};
use crate::ctx::{Ctx, First, Outcome, Race, join_all};
use crate::executor::oneshot;
use crate::state::State;
use base::{Duration, Extent, Fid, LockId, ObjectId, Status, TargetId, TargetKind};
use bytes::Bytes;
use rpc::{Kind, session_word};
use wire::lock::{LockWant, bits};
use wire::mdt::Statfs;
use wire::{
    LockMode, LockPolicy, LockRequest, MdtReply, MdtRequest, OstReply, OstRequest, Reply, Request, Resource,
};

/// A step that is not over by then counts as not answered. The probe goes on and cleans up when the target comes back.
const PATIENCE: Duration = Duration::from_secs(3);
/// In no sequence from which an MDT gives FIDs out, so that nobody else ever wants a lock on it.
const NOWHERE: Fid = Fid { seq: 0x2_0000_0006, oid: 1, ver: 0 };
const READ_EXTENT: Extent = Extent { start: 0, end: 4096 };

/// All targets side by side.
pub(crate) async fn probe_targets(ctx: &Ctx) -> Outcome<Answer> {
    let targets: Vec<TargetId> = ctx.with(|state| state.connections.keys().copied().collect());
    let probes = targets.into_iter().map(|target| {
        let ctx = ctx.clone();
        async move { probe(&ctx, target).await }
    });
    let found = join_all(probes.collect()).await;
    Ok(Answer::Probes(found.into_iter().flatten().collect()))
}

/// `None` for a target that has left the configuration meanwhile.
async fn probe(ctx: &Ctx, target: TargetId) -> Option<TargetProbe> {
    let begun = ctx.with(|state| state.begin_probe(target))?;
    let receiver = match begun {
        Begun::Switched(probe) => return Some(probe),
        // The one before still waits; one more would only wait with it.
        Begun::Already => None,
        Begun::Now => {
            let (sender, receiver) = oneshot();
            let of_task = ctx.clone();
            ctx.spawn(async move {
                run(&of_task, target).await;
                let done = of_task.with(|state| {
                    let mut done = state.probes.remove(&target)?;
                    // The first question may have made the session.
                    state.describe_session(&mut done);
                    Some(done)
                });
                // Who asked may have gone on without it.
                if let Some(done) = done {
                    sender.send(done);
                }
            });
            Some(receiver)
        }
    };
    let timer = ctx.sleep(PATIENCE);
    match receiver {
        Some(receiver) => {
            if let First::Left(Some(done)) = Race(receiver, timer).await {
                return Some(done);
            }
        }
        None => drop(timer.await),
    }
    ctx.with(|state| {
        let mut probe = state.probes.get(&target)?.clone();
        let steps = [&mut probe.answer, &mut probe.lock, &mut probe.read];
        if let Some(step) = steps.into_iter().find(|step| **step == ProbeStep::NotTried) {
            *step = ProbeStep::Silent;
        }
        state.describe_session(&mut probe);
        Some(probe)
    })
}

enum Begun {
    Now,
    Already,
    /// The target is not used, by an operator's choice.
    Switched(TargetProbe),
}

impl State {
    fn begin_probe(&mut self, target: TargetId) -> Option<Begun> {
        let is_used = self.connections.get(&target)?.is_serving();
        if self.probes.contains_key(&target) {
            return Some(Begun::Already);
        }
        let mut probe = TargetProbe { is_used, ..TargetProbe::new(target) };
        self.describe_session(&mut probe);
        if !is_used {
            return Some(Begun::Switched(probe));
        }
        self.probes.insert(target, probe);
        Some(Begun::Now)
    }

    fn describe_session(&self, probe: &mut TargetProbe) {
        let Some(connection) = self.connections.get(&probe.target) else { return };
        probe.state = session_word(&connection.import);
        probe.nids = self.nids_of(probe.target);
        let wall = connection.import.target_wall(self.now.time);
        probe.software = connection.import.software().to_owned();
        // What may be no more than the way of an answer is not blamed on a clock.
        let error = connection.import.target_wall_error(self.now.time);
        let error_ns = i64::try_from(error.as_nanos()).unwrap_or(i64::MAX);
        let ahead_ns = wall.map(|wall| wall.0.saturating_sub(self.now.wall.0));
        probe.clock_ahead_ns =
            ahead_ns.map(|ahead| if ahead < 0 { ahead.saturating_add(error_ns).min(0) } else { ahead });
    }

    fn note_step(&mut self, target: TargetId, note: impl FnOnce(&mut TargetProbe)) {
        if let Some(probe) = self.probes.get_mut(&target) {
            note(probe);
        }
    }
}

/// One step after the other, each noted when it is over; the first that fails is the last.
async fn run(ctx: &Ctx, target: TargetId) {
    let (answer, space) = timed(ctx, ask_space(ctx, target)).await;
    ctx.with(|state| state.note_step(target, |probe| (probe.answer, probe.space) = (answer, space)));
    if space.is_none() {
        return;
    }
    let lock = ctx.with(|state| state.connections.get_mut(&target).map(|it| it.locks.allocate()));
    let Some(lock) = lock else { return };
    ctx.with(|state| {
        if let Some(connection) = state.connections.get_mut(&target) {
            connection.expected_locks.insert(lock);
        }
    });
    let (locked, grant) = timed(ctx, enqueue(ctx, target, lock)).await;
    ctx.with(|state| state.note_step(target, |probe| probe.lock = locked));
    if grant.is_some() {
        let (read, _) = timed(ctx, read(ctx, target, lock)).await;
        ctx.with(|state| state.note_step(target, |probe| probe.read = read));
    }
    ctx.with(|state| {
        if let Some(connection) = state.connections.get_mut(&target) {
            connection.expected_locks.remove(&lock);
            connection.locks.forget_request(lock);
        }
        if grant.is_some() {
            state.send_cancel(target, vec![lock]);
        }
    });
}

async fn timed<T>(ctx: &Ctx, step: impl Future<Output = Outcome<T>>) -> (ProbeStep, Option<T>) {
    let begun = ctx.now().time;
    match step.await {
        Ok(value) => (ProbeStep::Took(ctx.now().time.since(begun)), Some(value)),
        Err(status) => (ProbeStep::Failed(status), None),
    }
}

async fn ask_space(ctx: &Ctx, target: TargetId) -> Outcome<Statfs> {
    let request = match target.kind {
        TargetKind::Mdt => Request::Mdt(MdtRequest::Statfs),
        _ => Request::Ost(OstRequest::Statfs),
    };
    match ctx.request(target, request, Bytes::new(), Kind::Plain).await?.reply {
        Reply::Mdt(MdtReply::Statfs(space)) | Reply::Ost(OstReply::Statfs(space)) => Ok(space),
        _ => Err(Status::ProtocolError),
    }
}

fn object_on(target: TargetId) -> ObjectId {
    ObjectId { fid: NOWHERE, component: 0, stripe: u32::from(target.index) }
}

async fn enqueue(ctx: &Ctx, target: TargetId, lock: LockId) -> Outcome<()> {
    let (resource, policy) = match target.kind {
        TargetKind::Mdt => (Resource::Inode(NOWHERE), LockPolicy::Bits(bits::LOOKUP)),
        _ => (Resource::Object(object_on(target)), LockPolicy::Extent(READ_EXTENT)),
    };
    let request = LockRequest::Enqueue { lock, resource, mode: LockMode::Pr, policy, can_wait: true };
    match ctx.request(target, Request::Lock(request), Bytes::new(), Kind::Plain).await?.reply {
        Reply::Locked(grant) if grant.lock == lock => Ok(()),
        _ => Err(Status::ProtocolError),
    }
}

/// Rows of an MDT, data of an OST. That nothing is there is what the store says when it was read.
async fn read(ctx: &Ctx, target: TargetId, lock: LockId) -> Outcome<()> {
    let request = match target.kind {
        TargetKind::Mdt => Request::Mdt(MdtRequest::Getattr { fid: NOWHERE, want: LockWant::default() }),
        _ => Request::Ost(OstRequest::Read {
            object: object_on(target),
            extent: READ_EXTENT,
            lock: Some(lock),
        }),
    };
    match ctx.request(target, request, Bytes::new(), Kind::Plain).await.map(|answer| answer.reply) {
        Ok(Reply::Ost(OstReply::Data { .. })) | Err(Status::Stale) => Ok(()),
        Ok(_) => Err(Status::ProtocolError),
        Err(status) => Err(status),
    }
}
