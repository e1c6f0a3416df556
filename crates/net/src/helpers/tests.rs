use super::*;
use crate::connection::Held;
use crate::run::Runnable;
use base::{ClientId, Endpoint, TargetId, Xid};
use std::sync::mpsc;
use std::thread::ThreadId;
use wire::FrameKind;

/// Says which frame it was given, and on which thread; the first one waits until it may go on.
struct Slow {
    told: Mutex<mpsc::Sender<(u64, ThreadId)>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Runnable for Slow {
    fn run(&self) {}
}

impl Port for Slow {
    fn is_full(&self) -> bool {
        false
    }

    fn push_frame(&self, frame: Frame, _: Option<Held>) {
        let told = self.told.lock().expect("no test panics inside");
        told.send((frame.xid.0, std::thread::current().id())).expect("the test listens");
        drop(told);
        if frame.xid == Xid(1) {
            self.go_on.lock().expect("no test panics inside").recv().expect("the test says when");
        }
    }
}

fn frame(xid: u64) -> Frame {
    let (client, ost) = (Endpoint::Client(ClientId(1)), Endpoint::Target(TargetId::ost(0)));
    Frame { xid: Xid(xid), ..Frame::new(FrameKind::Request, client, ost) }
}

#[test]
fn a_frame_runs_on_another_thread_while_one_before_it_takes_its_time() {
    let (sender, told) = mpsc::channel();
    let (go_on, receiver) = mpsc::channel();
    let port = Arc::new(Slow { told: Mutex::new(sender), go_on: Mutex::new(receiver) });
    let helpers = Helpers::start(2).expect("threads");
    helpers.push_frame(port.clone(), frame(1));
    let (first, one) = told.recv().expect("it runs");
    helpers.push_frame(port.clone(), frame(2));
    let (second, other) = told.recv().expect("it runs");
    assert_eq!((first, second), (1, 2));
    assert!(one != other && one != std::thread::current().id() && other != std::thread::current().id());
    // Who stops them waits for what has begun, and what comes after that is not begun.
    let waiting = Arc::clone(&helpers);
    let stopping = std::thread::spawn(move || waiting.stop());
    while !helpers.lock().is_stopped {
        std::thread::yield_now();
    }
    // The other thread has told of its frame, and may not have come to its end.
    while helpers.lock().busy_count > 1 {
        std::thread::yield_now();
    }
    assert_eq!(helpers.lock().busy_count, 1);
    go_on.send(()).expect("it waits");
    stopping.join().expect("stopped");
    assert_eq!(helpers.lock().busy_count, 0);
    helpers.push_frame(port, frame(3));
    assert!(told.try_recv().is_err());
}
