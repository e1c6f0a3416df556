//! Asks for the management server whether a target is served where it was before.

use super::MgsOwner;
use base::{ClientId, Duration, Endpoint, Status};
use mgs::{ANSWER_WAIT, Found, Probe};
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
            let found = ask_all(&probe, ANSWER_WAIT);
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

/// What comes in time, up to the first answer that settles it.
fn ask_all(probe: &Probe, wait: Duration) -> Vec<Found> {
    let until = Instant::now() + wait;
    let (sender, receiver) = mpsc::channel();
    for nid in probe.nids.clone() {
        let (sender, question) = (sender.clone(), question(probe));
        // Of a thread that cannot be started there is no answer.
        let _ = std::thread::Builder::new().name("probe".into()).spawn(move || {
            let process = net::ask(&nid, &question, wait).ok().as_ref().and_then(process_of);
            // Nobody waits for what comes late.
            let _ = sender.send(process.map(|process| Found { nid, process }));
        });
    }
    drop(sender);
    let mut found: Vec<Found> = Vec::new();
    while let Ok(answer) = receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
        found.extend(answer);
        if found.last().is_some_and(|last| last.process != probe.process) {
            break;
        }
    }
    found
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use base::TargetId;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers one question that this process serves what it is asked for.
    fn serve(listener: TcpListener, process: ClientId) {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = vec![0; wire::frame::HEADER_BYTES];
            stream.read_exact(&mut bytes).unwrap();
            let byte_count = Frame::byte_count(&bytes).unwrap().unwrap();
            bytes.resize(byte_count, 0);
            stream.read_exact(&mut bytes[wire::frame::HEADER_BYTES..]).unwrap();
            let asked = Frame::from_bytes(bytes.into()).unwrap();
            let body = Reply::ServedBy { process }.to_bytes();
            let answer = Frame { kind: FrameKind::Reply, src: asked.dst, dst: asked.src, body, ..asked };
            stream.write_all(&answer.to_bytes()).unwrap();
            // The end of the connection comes from the other side.
            let _ = stream.read(&mut [0]);
        });
    }

    /// It takes connections, and says nothing as long as anybody waits.
    #[test]
    fn one_process_that_serves_the_target_settles_it_whoever_else_says_nothing() {
        let [silent, serving] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let nids: Vec<String> =
            [&silent, &serving].map(|listener| listener.local_addr().unwrap().to_string()).to_vec();
        let (process, other) = (ClientId(1), ClientId(2));
        let found = Found { nid: nids[1].clone(), process: other };
        serve(serving.try_clone().unwrap(), other);
        let probe = Probe { id: 1, target: TargetId::ost(0), uuid: 7, nids, process };
        let (sender, settled) = mpsc::channel();
        std::thread::spawn(move || sender.send(ask_all(&probe, Duration::from_secs(3600))).unwrap());
        assert_eq!(settled.recv_timeout(Duration::from_secs(60)).unwrap(), [found]);
    }
}
