//! Asks for the management server whether a target is served where it was before.

use super::MgsOwner;
use base::{ClientId, Endpoint, Status};
use mgs::{Found, PROBE_WAIT, Probe};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use wire::{Frame, FrameKind, Reply, Request};

type Machine = <MgsOwner as std::ops::Deref>::Target;

/// Where the answers go, once that machine has its owner.
#[derive(Default)]
pub struct Prober {
    mgs: OnceLock<Weak<Machine>>,
}

impl Prober {
    pub fn fill(&self, mgs: &MgsOwner) {
        assert!(self.mgs.set(Arc::downgrade(mgs)).is_ok(), "a prober has one management server");
    }

    /// Asks at all of the addresses at the same time, on threads of their own: a name may take long to be found, and a machine that is
    /// dead says nothing. The management server bounds how many do.
    pub fn start(self: &Arc<Prober>, probe: Probe) {
        let me = Arc::clone(self);
        let started = std::thread::Builder::new().name("probe".into()).spawn(move || {
            let found = ask_all(&probe);
            if let Some(mgs) = me.mgs.get().and_then(Weak::upgrade) {
                mgs.post(mgs::Input::Probed { id: probe.id, found });
            }
        });
        if let Err(error) = started {
            // As if nobody had answered.
            tracing::warn!(%error, "nobody is asked whether a target is served elsewhere");
        }
    }
}

/// What comes in time.
fn ask_all(probe: &Probe) -> Vec<Found> {
    let until = Instant::now() + PROBE_WAIT;
    let (sender, receiver) = mpsc::channel();
    for nid in probe.nids.clone() {
        let (sender, question) = (sender.clone(), question(probe));
        // Of a thread that cannot be started there is no answer.
        let _ = std::thread::Builder::new().name("probe".into()).spawn(move || {
            let process = net::ask(&nid, &question, PROBE_WAIT).ok().as_ref().and_then(process_of);
            // Nobody waits for what comes late.
            let _ = sender.send(process.map(|process| Found { nid, process }));
        });
    }
    drop(sender);
    let next = || receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).flatten().collect()
}

fn question(probe: &Probe) -> Frame {
    let caller = ClientId(net::clock::random_u128());
    let mut frame = Frame::new(FrameKind::Request, caller.endpoint(), Endpoint::Target(probe.target));
    frame.xid = base::Xid(1);
    frame.body = Request::WhoServes { target_uuid: probe.uuid }.to_bytes();
    frame
}

fn process_of(answer: &Frame) -> Option<ClientId> {
    match Reply::from_bytes(&answer.body) {
        Ok(Reply::ServedBy { process }) if answer.status == Status::Ok => Some(process),
        // Another target, or a version that does not know the question.
        _ => None,
    }
}
