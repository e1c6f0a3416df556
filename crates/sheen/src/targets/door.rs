//! Who comes to a target, before its machine: here the process says for it that it serves it.
//!
//! The machine is not asked, since it may stand still with its device, and then it is served all the same.

use base::Endpoint;
use net::run::Runnable;
use net::{Port, Router, connection};
use std::sync::Arc;
use wire::{Frame, FrameKind, Reply, Request};

/// The class of `Request::WhoServes`: nothing else is read here.
const WHO_SERVES: u8 = 6;

/// In the place of the machine of a target.
pub struct Door {
    pub machine: Arc<dyn Port>,
    pub uuid: u128,
    pub router: Arc<Router>,
}

impl Port for Door {
    fn push_frame(&self, frame: Frame, held: Option<connection::Held>) {
        match answer(&frame, self.uuid, &self.router) {
            Some(answer) => self.router.send(answer),
            None => self.machine.push_frame(frame, held),
        }
    }

    fn is_full(&self) -> bool {
        self.machine.is_full()
    }
}

impl Runnable for Door {
    fn run(&self) {
        self.machine.run();
    }
}

/// `None`: for the machine.
fn answer(frame: &Frame, uuid: u128, router: &Router) -> Option<Frame> {
    if frame.kind != FrameKind::Request || frame.session != 0 || frame.body.first() != Some(&WHO_SERVES) {
        return None;
    }
    let Ok(Request::WhoServes { target_uuid }) = Request::from_bytes(&frame.body) else { return None };
    let mut answer = Frame::new(FrameKind::Reply, frame.dst, frame.src);
    (answer.xid, answer.trace) = (frame.xid, frame.trace);
    if target_uuid == uuid && matches!(frame.dst, Endpoint::Target(_)) {
        answer.body = Reply::ServedBy { process: router.process() }.to_bytes();
    } else {
        answer.status = base::Status::WrongTarget;
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ClientId, TargetId, Xid};
    use std::sync::Mutex;

    /// A machine that stands still.
    #[derive(Default)]
    struct Still(Mutex<Vec<Frame>>);

    impl Runnable for Still {
        fn run(&self) {}
    }

    impl Port for Still {
        fn push_frame(&self, frame: Frame, _held: Option<connection::Held>) {
            self.0.lock().expect("nobody panics").push(frame);
        }

        fn is_full(&self) -> bool {
            true
        }
    }

    #[test]
    #[expect(clippy::unwrap_used, reason = "a test")]
    fn a_target_whose_machine_stands_still_is_said_to_be_served_to_who_means_it() {
        let (router, machine) = (Router::new(), Arc::new(Still::default()));
        let ost = Endpoint::Target(TargetId::ost(3));
        let door = Door { machine: machine.clone(), uuid: 7, router: router.clone() };
        router.add_local(ost, Arc::new(door));
        let address = router.listen("127.0.0.1:0").unwrap().to_string();
        let question = |target_uuid| {
            let mut frame = Frame::new(FrameKind::Request, Endpoint::Client(ClientId(9)), ost);
            (frame.xid, frame.body) = (Xid(1), Request::WhoServes { target_uuid }.to_bytes());
            frame
        };
        let limit = std::time::Duration::from_secs(60);
        let answer = net::ask(&address, &question(7), limit).unwrap();
        let process = router.process();
        assert_eq!(Reply::from_bytes(&answer.body).unwrap(), Reply::ServedBy { process });
        let other = net::ask(&address, &question(8), limit).unwrap();
        assert_eq!((other.status, other.body.len()), (base::Status::WrongTarget, 0));
        assert!(machine.0.lock().unwrap().is_empty());
        // All else is the machine's, and what is not answered is not waited for longer than was said.
        let mut ping = question(7);
        ping.body = Request::PING.to_bytes();
        assert!(net::ask(&address, &ping, std::time::Duration::from_millis(50)).is_err());
        assert_eq!(machine.0.lock().unwrap().len(), 1);
        router.close();
        assert!(net::ask(&address, &question(7), limit).is_err(), "nobody is there any more");
    }
}
