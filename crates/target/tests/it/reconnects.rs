//! Callers that lose their connection in the middle of a recovery, and a target that stands still in one.

use crate::network::{Cluster, client};
use base::limits::RECOVERY_HARD;
use base::{Duration, Endpoint, Fid, Xid};
use std::cell::RefCell;
use std::rc::Rc;
use wire::{Frame, FrameKind, Request};

fn fid(oid: u32) -> Fid {
    Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 }
}

fn is_request_of(frame: &Frame, caller: usize, is_wanted: fn(&Request) -> bool) -> bool {
    let is_its = frame.kind == FrameKind::Request && frame.src == Endpoint::Client(client(caller));
    is_its && Request::from_bytes(&frame.body).is_ok_and(|request| is_wanted(&request))
}

fn is_connect(request: &Request) -> bool {
    matches!(request, Request::Connect(_))
}

fn is_done(request: &Request) -> bool {
    matches!(request, Request::ReplayDone)
}

/// Two callers whose target has restarted and lost what it had not synced; the first one may have something to replay.
fn recovering(has_external_data: bool, has_retained: bool) -> Cluster {
    let mut cluster = Cluster::of(has_external_data, 2);
    for caller in 0..2 {
        cluster.submit_on(caller, fid(99));
    }
    cluster.run_for(Duration::from_secs(3));
    cluster.is_disk_slow = true;
    cluster.submit_on(1, fid(2));
    if has_retained {
        cluster.submit_on(0, fid(1));
    }
    cluster.run_for(Duration::from_millis(500));
    cluster.lose_unsynced();
    cluster
}

fn come_back(cluster: &mut Cluster) {
    (0..2).for_each(|caller| cluster.lose_connection(caller));
}

fn completed_count(cluster: &Cluster) -> usize {
    let core = cluster.core.as_ref().unwrap();
    assert!(core.is_recovering());
    core.recovery_report(cluster.now.time).completed_count
}

fn all_recover(cluster: &mut Cluster) {
    cluster.expect_recovered(Duration::from_secs(60));
}

#[test]
fn who_reconnects_while_the_end_of_a_recovery_waits_for_the_disk_goes_on_when_it_is_there() {
    for (has_external_data, has_retained) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut cluster = recovering(has_external_data, has_retained);
        come_back(&mut cluster);
        cluster.is_lost = Box::new(|frame| is_request_of(frame, 0, is_done));
        cluster.run_for(Duration::from_secs(5));
        cluster.is_disk_slow = true;
        cluster.is_lost = Box::new(|_| false);
        cluster.run_for(Duration::from_secs(20));
        assert_eq!(completed_count(&cluster), 2, "it waits for the disk alone");
        cluster.lose_connection(0);
        cluster.is_lost = Box::new(|frame| is_request_of(frame, 0, |request| !is_connect(request)));
        cluster.run_for(Duration::from_millis(100));
        cluster.is_disk_slow = false;
        cluster.sync(true);
        all_recover(&mut cluster);
    }
}

/// Connects and ends of replays of the first caller, as they were sent.
fn recorded(cluster: &mut Cluster) -> Rc<RefCell<Vec<Frame>>> {
    let frames = Rc::new(RefCell::new(Vec::new()));
    let record = frames.clone();
    cluster.is_lost = Box::new(move |frame| {
        if is_request_of(frame, 0, |request| is_connect(request) || is_done(request)) {
            record.borrow_mut().push(frame.clone());
        }
        // The other one keeps the recovery from its end.
        is_request_of(frame, 1, is_done)
    });
    frames
}

#[test]
fn late_copies_of_an_earlier_attempt_say_nothing_of_the_later_one() {
    let mut cluster = recovering(false, true);
    let frames = recorded(&mut cluster);
    come_back(&mut cluster);
    cluster.run_for(Duration::from_secs(3));
    assert_eq!(completed_count(&cluster), 1);
    let first = std::mem::take(&mut *frames.borrow_mut());
    let is_kind = |frame: &Frame, is_wanted: fn(&Request) -> bool| is_request_of(frame, 0, is_wanted);
    let of_first = |is_wanted| first.iter().rfind(|frame| is_kind(frame, is_wanted)).cloned().unwrap();
    let (connect, done) = (of_first(is_connect), of_first(is_done));

    // Its second connect alone arrives, and then what the former connection had brought.
    cluster.lose_connection(0);
    let second = frames.borrow().iter().find(|frame| is_kind(frame, is_connect)).cloned().unwrap();
    cluster.deliver(second);
    assert_eq!(completed_count(&cluster), 0);
    cluster.deliver(done);
    assert_eq!(completed_count(&cluster), 0, "what it holds is not said yet in this attempt");

    cluster.run_for(Duration::from_secs(3));
    assert_eq!(completed_count(&cluster), 1);
    assert!(connect.xid > Xid::ZERO);
    cluster.deliver(connect);
    assert_eq!(completed_count(&cluster), 1, "it has connected since");
    all_recover(&mut cluster);
}

/// Whatever comes first afterwards.
#[test]
fn a_target_that_stands_still_in_its_recovery_gives_up_nobody_for_that_time() {
    for (has_external_data, is_told_first, seconds) in
        [(false, false, 70), (false, true, 70), (true, false, 3600), (true, true, 70)]
    {
        let mut cluster = recovering(has_external_data, true);
        // It listens, and nobody has come yet.
        cluster.is_lost = Box::new(|frame| frame.kind == FrameKind::Request);
        cluster.run_for(Duration::from_secs(3));
        assert!(cluster.core.as_ref().unwrap().is_open());
        assert_eq!(completed_count(&cluster), 0);
        cluster.now.time = cluster.now.time.after(Duration::from_secs(seconds));
        if is_told_first {
            let stranger = 50;
            cluster.departed(stranger, 1);
        }
        let mut out = Vec::new();
        cluster.core.as_mut().unwrap().on_tick(cluster.now, &mut out);
        cluster.on_core(out);
        come_back(&mut cluster);
        all_recover(&mut cluster);
    }
}

#[test]
fn a_target_that_stands_still_again_and_again_waits_for_nobody_without_end() {
    let mut cluster = recovering(false, true);
    cluster.is_lost = Box::new(|frame| frame.kind == FrameKind::Request);
    cluster.run_for(Duration::from_secs(3));
    for _ in 0..50 {
        cluster.now.time = cluster.now.time.after(RECOVERY_HARD / 20);
        let mut out = Vec::new();
        cluster.core.as_mut().unwrap().on_tick(cluster.now, &mut out);
        cluster.on_core(out);
        cluster.sync(true);
    }
    assert!(!cluster.core.as_ref().unwrap().is_recovering());
}
