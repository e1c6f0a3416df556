//! What the outputs of a target's machine come to: frames that are sent, and events that are logged.

use super::{Barrier, Shared};
use crate::target_dir::TargetDir;
use base::{Endpoint, TargetId};
use mds::MdsEvent;
use mgs::MgsEvent;
use oss::OssEvent;
use std::sync::Arc;
use target::{CoreEvent, EvictReason};
use wire::Frame;

/// An output is a frame to send or an event to log.
pub trait Perform {
    fn core_event(&self) -> Option<&CoreEvent>;

    fn frame(self, target: TargetId) -> Option<Frame>;
}

impl Perform for mgs::Output {
    fn core_event(&self) -> Option<&CoreEvent> {
        if let mgs::Output::Event(MgsEvent::Core(event)) = self { Some(event) } else { None }
    }

    fn frame(self, target: TargetId) -> Option<Frame> {
        match self {
            mgs::Output::Send(frame) => return Some(frame),
            mgs::Output::Event(event) => log_mgs_event(target, &event),
            mgs::Output::Probe(_) => {}
        }
        None
    }
}

impl Perform for mds::Output {
    fn core_event(&self) -> Option<&CoreEvent> {
        if let mds::Output::Event(MdsEvent::Core(event)) = self { Some(event) } else { None }
    }

    fn frame(self, target: TargetId) -> Option<Frame> {
        match self {
            mds::Output::Send(frame) => return Some(frame),
            mds::Output::Event(event) => log_mds_event(target, &event),
        }
        None
    }
}

impl Perform for oss::Output {
    fn core_event(&self) -> Option<&CoreEvent> {
        if let oss::Output::Event(OssEvent::Core(event)) = self { Some(event) } else { None }
    }

    fn frame(self, target: TargetId) -> Option<Frame> {
        match self {
            oss::Output::Send(frame) => return Some(frame),
            oss::Output::Event(event) => log_oss_event(target, &event),
            oss::Output::Fetch { .. } => {}
        }
        None
    }
}

/// Sends the frames of a target, and logs its events.
pub fn perform<O: Perform>(
    dir: &TargetDir,
    shared: &Shared<'_>,
    barrier: &Arc<Barrier>,
) -> impl Fn(O) + Send + Sync + use<O> {
    let (id, sending, barrier) = (dir.id, Arc::clone(shared.router), Arc::clone(barrier));
    move |output: O| {
        if let Some(CoreEvent::Outdated { by, known }) = output.core_event() {
            barrier.set_outdated(*by, *known);
            sending.remove_local(Endpoint::Target(id));
        }
        if let Some(frame) = output.frame(id).filter(|_| !barrier.is_closed()) {
            sending.send(frame);
        }
    }
}

fn log_core_event(target: TargetId, event: &CoreEvent) {
    match event {
        CoreEvent::Connected { client, nid } => tracing::info!(%target, %client, nid, "connected"),
        CoreEvent::Disconnected { client } => tracing::info!(%target, %client, "disconnected"),
        CoreEvent::Evicted { client, why: EvictReason::Restarted } => {
            tracing::info!(%target, %client, "connected anew; its old session is gone");
        }
        CoreEvent::Evicted { client, why: EvictReason::Departed } => {
            tracing::info!(%target, %client, "its process has ended; it is not waited for");
        }
        CoreEvent::Evicted { client, why: EvictReason::Lapsed } => {
            tracing::warn!(%target, %client, "its lease has ended; it is not waited for");
        }
        CoreEvent::Evicted { client, .. } if target == TargetId::MGT => {
            tracing::info!(%target, %client, "gone")
        }
        CoreEvent::Evicted { client, why } => tracing::warn!(%target, %client, ?why, "evicted"),
        CoreEvent::RecoveryStarted { awaited } => tracing::info!(%target, awaited, "recovery started"),
        CoreEvent::RecoveryEnded { returned, evicted } => {
            tracing::info!(%target, returned, evicted, "recovery ended");
        }
        CoreEvent::RecoveryAwaits { target: awaited } => {
            tracing::warn!(
                %target, %awaited,
                "clients replay what waits for a target that is not heard: the recovery goes on when it is, or without these clients after `lctl abort_recovery`"
            );
        }
        CoreEvent::ReplayRefused { client, transno, status } => {
            tracing::warn!(%target, %client, %transno, %status, "something that was acknowledged is lost");
        }
        CoreEvent::ManifestForgotten { client } => {
            tracing::info!(%target, %client, "too much is replayed for all of it to be listed; this client's replays wait for all before them");
        }
        CoreEvent::ProtocolError { client, what } => tracing::warn!(%target, %client, what, "protocol error"),
        CoreEvent::UnknownRequest { client, opcode } => {
            tracing::info!(%target, %client, %opcode, "a newer version asks for what this one does not know");
        }
        CoreEvent::WentBack { client, committed, kept } => {
            tracing::error!(
                %target, %client, %committed, %kept,
                "what was durable is not there after a restart: its device has lost it, or this is an older copy; what is missing is lost"
            );
        }
        // The barrier has said so.
        CoreEvent::Outdated { .. } | CoreEvent::Executed { .. } => {}
    }
}

fn log_mgs_event(target: TargetId, event: &MgsEvent) {
    match event {
        MgsEvent::Core(event) => log_core_event(target, event),
        MgsEvent::Registered { fsname, target, version } => {
            tracing::info!(fsname, %target, version, "registered")
        }
        MgsEvent::RegistrationRefused { fsname, target } => {
            tracing::warn!(fsname, %target, "refused: another target has this index");
        }
        MgsEvent::RegistrationWithoutRoom { fsname, target } => {
            tracing::error!(
                fsname,
                %target,
                "refused: there is no room for it, and nobody finds it: take parameters (lctl set_param -P -d) or pools away"
            );
        }
        MgsEvent::OutdatedRefused { fsname, target, known } => {
            tracing::warn!(fsname, %target, "refused: an older copy, which knows nothing of {known}");
        }
        MgsEvent::CopyRefused { fsname, target, at, copy_at } => {
            let copy_at = copy_at.join(",");
            tracing::warn!(fsname, %target, at, copy_at, "refused: another process serves this target");
        }
        MgsEvent::ParamSet { fsname, path, version } => {
            tracing::info!(fsname, path, version, "parameter set")
        }
        MgsEvent::PoolChanged { fsname, name, version } => {
            tracing::info!(fsname, %name, version, "pool changed")
        }
        MgsEvent::Taken { fsname, target, epoch, nid } => {
            tracing::info!(fsname, %target, epoch = epoch.0, nid, "owned by another run of a server");
        }
    }
}

fn log_mds_event(target: TargetId, event: &MdsEvent) {
    match event {
        MdsEvent::Core(event) => log_core_event(target, event),
        MdsEvent::Destroyed { .. } | MdsEvent::Decided { .. } => tracing::debug!(%target, ?event),
        MdsEvent::LockTimeout { client } => {
            tracing::warn!(%target, %client, "did not give a lock back in time");
        }
        MdsEvent::PeerRefused { target: peer, status } => {
            tracing::warn!(%target, %peer, %status, "another target does not want this one");
        }
        MdsEvent::Failed { what, fid, status } => {
            tracing::error!(%target, what, %fid, %status, "left undone")
        }
        MdsEvent::DestroysUnread { ost, count, status } => {
            let ost = TargetId::ost(*ost);
            tracing::error!(
                %target, %ost, count, %status,
                "what is to be destroyed cannot be read: it takes room until it can, and is read again each second"
            );
        }
    }
}

fn log_oss_event(target: TargetId, event: &OssEvent) {
    match event {
        OssEvent::Core(event) => log_core_event(target, event),
        OssEvent::Corrupt { object, status } => {
            tracing::error!(%target, %object, %status, "damaged data were found and refused; restore or remove the file that owns the object");
        }
        OssEvent::LockTimeout { client } => {
            tracing::warn!(%target, %client, "did not give a lock back in time");
        }
        OssEvent::ReplayedLocksRefused { client, count } => {
            tracing::warn!(%target, %client, count, "claimed locks that another client holds");
        }
    }
}
