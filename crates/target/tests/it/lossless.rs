//! Only the process of the target has died, and its owner knows what its clients held: nobody waits for the others.

use crate::network::{Cluster, client};
use base::limits::{LEASE, RECOVERY_HARD, RECOVERY_WINDOW};
use base::{Duration, Endpoint, Epoch, Fid, Status, Transno, Xid};
use rpc::ImportState;
use target::CoreOutput;
use wire::manifest::{Replayed, Touched};
use wire::{Frame, FrameKind, Manifest, MdtRequest, Request, flags};

/// Both have a session and changed something; what the last of it came to is not durable. Caller 1 is away.
fn worked() -> Cluster {
    let mut cluster = Cluster::new(3, 2);
    for caller in 0..2 {
        cluster.submit(caller);
    }
    cluster.run_for(Duration::from_secs(3));
    cluster.is_disk_slow = true;
    for caller in 0..2 {
        cluster.submit(caller);
    }
    cluster.run_for(Duration::from_millis(500));
    assert_eq!(cluster.callers.iter().map(|caller| caller.done.len()).sum::<usize>(), 4);
    cluster.is_disk_slow = false;
    cluster.partitioned.insert(1);
    cluster
}

fn is_recovering(cluster: &Cluster) -> bool {
    cluster.core.as_ref().unwrap().is_recovering()
}

#[test]
fn who_is_back_is_served_and_replays_nothing() {
    let mut cluster = worked();
    cluster.kill();
    let operation = cluster.submit(0);
    cluster.run_for(Duration::from_secs(5));
    assert!(is_recovering(&cluster));
    assert!(cluster.callers[0].done.contains_key(&operation));
    assert_eq!(cluster.callers[0].import.retained_count(), 0, "what is durable is committed");
    let report = cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
    assert!(report.is_lossless);
    assert_eq!((report.awaited_count, report.returned_count, report.early_count), (2, 1, 1));
    cluster.partitioned.clear();
    cluster.run_for(Duration::from_secs(30));
    assert!(!is_recovering(&cluster));
    assert_eq!(cluster.replayed, []);
    for caller in &cluster.callers {
        assert_eq!(caller.import.state(), ImportState::Active);
        assert_eq!((caller.evictions, caller.lost_replays), (0, 0));
    }
    let report = cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
    assert_eq!((report.returned_count, report.evicted_count), (2, 0));
}

/// The last incarnation was another one, or the store has lost what it had answered, or it was recovering itself.
#[test]
fn what_is_not_of_the_last_incarnation_is_not_believed() {
    for what in 0..3 {
        let mut cluster = worked();
        let core = cluster.core.take().unwrap();
        let (epoch, last) = (core.epoch(), core.last_transno());
        cluster.left = match what {
            0 => Some((Epoch(epoch.0 - 1), last)),
            1 => Some((epoch, last.next())),
            _ => {
                cluster.store.crash(0);
                cluster.start();
                cluster.run_for(Duration::from_secs(1));
                let core = cluster.core.take().unwrap();
                assert!(core.is_recovering());
                Some((core.epoch(), core.last_transno()))
            }
        };
        cluster.store.crash(cluster.store.unsynced_count());
        cluster.start();
        for caller in 0..2 {
            cluster.lose_connection(caller);
        }
        let operation = cluster.submit(0);
        cluster.run_for(Duration::from_secs(5));
        assert!(is_recovering(&cluster) && !cluster.core.as_ref().unwrap().is_lossless(), "{what}");
        assert!(!cluster.callers[0].done.contains_key(&operation), "{what}");
        cluster.partitioned.clear();
        cluster.run_for(Duration::from_secs(30));
        assert!(cluster.callers[0].done.contains_key(&operation), "{what}");
        assert_eq!(cluster.callers[1].evictions, 0, "{what}");
    }
}

/// Who is away is given up as always, and also who has come back and dies then.
#[test]
fn the_absent_are_given_up() {
    let mut cluster = worked();
    cluster.kill();
    cluster.run_for(LEASE);
    assert_eq!(cluster.unheard(&[]), 1);
    cluster.lapsed(1, 1);
    assert!(!is_recovering(&cluster));
    let mut cluster = worked();
    cluster.kill();
    cluster.run_for(Duration::from_secs(1));
    cluster.partitioned.insert(0);
    cluster.run_for(LEASE * 3);
    assert_eq!(cluster.unheard(&[0]), 2, "others wait for what caller 0 has been granted meanwhile");
    cluster.holder_lapsed(0);
    assert!(is_recovering(&cluster));
    cluster.partitioned.clear();
    cluster.partitioned.insert(1);
    cluster.run_for(RECOVERY_WINDOW);
    assert!(!is_recovering(&cluster));
    assert_eq!(cluster.callers[0].evictions, 1);
}

/// Whose word that it is done does not arrive; and that word.
fn almost_back() -> (Cluster, Frame) {
    let mut cluster = worked();
    cluster.partitioned.clear();
    let is_done = |frame: &Frame| {
        frame.src == Endpoint::Client(client(1))
            && frame.kind == FrameKind::Request
            && matches!(Request::from_bytes(&frame.body), Ok(Request::ReplayDone))
    };
    cluster.is_lost = Box::new(is_done);
    cluster.kill();
    cluster.run_for(Duration::from_secs(2));
    let mut done = cluster.last_sent[&FrameKind::Request].clone();
    assert_eq!(done.src, Endpoint::Client(client(1)), "it says that it is there");
    assert!(is_recovering(&cluster));
    (done.flags, done.body) = (0, Request::ReplayDone.to_bytes());
    (cluster, done)
}

/// It was told that everything is committed: whatever this is, it is not to be executed beside new work.
#[test]
fn what_claims_to_be_a_replay_is_refused() {
    let (mut cluster, mut frame) = almost_back();
    let touched = Touched { fids: vec![Fid::ROOT], ..Touched::default() };
    let entries = vec![Replayed { transno: Transno(5), slot: 0, touched }];
    let manifest = Request::Manifest(Manifest { after: Transno::ZERO, entries, is_last: true });
    let rows = cluster.rows();
    for (transno, request) in [(Transno(5), Request::PING), (Transno::ZERO, manifest)] {
        frame.flags = flags::REPLAY;
        (frame.transno, frame.xid, frame.slot) = (transno, Xid(frame.xid.0 + 1), 0);
        frame.body = match transno {
            Transno::ZERO => request.to_bytes(),
            _ => Request::Mdt(wire::MdtRequest::Sync).to_bytes(),
        };
        let mut out = Vec::new();
        cluster.core.as_mut().unwrap().on_frame(cluster.now, frame.clone(), &mut out);
        let is_refusal = |output: &CoreOutput| matches!(output, CoreOutput::Send(reply) if reply.status == Status::ProtocolError);
        assert!(out.iter().any(is_refusal), "{out:?}");
        assert!(!out.iter().any(|output| matches!(output, CoreOutput::Execute(_))));
    }
    assert_eq!(cluster.rows(), rows);
    cluster.is_lost = Box::new(|_| false);
    cluster.run_for(Duration::from_secs(30));
    assert!(!is_recovering(&cluster));
}

/// What a client has open or locked it says in no slot. Anything else is not executed before the client is served.
#[test]
fn what_names_nothing_open_and_no_lock_holds_up_no_recovery() {
    let (mut cluster, done) = almost_back();
    let flocks = Request::Mdt(MdtRequest::ReplayFlocks { fid: Fid::ROOT, locks: Vec::new() });
    let statfs = Request::Mdt(MdtRequest::Statfs);
    for (request, slot) in [(&statfs, 3), (&statfs, Frame::NO_SLOT), (&flocks, 3)] {
        let mut frame = done.clone();
        frame.flags |= flags::REPLAY;
        (frame.xid, frame.slot, frame.body) = (Xid(done.xid.0 + 1), slot, request.to_bytes());
        let mut out = Vec::new();
        cluster.core.as_mut().unwrap().on_frame(cluster.now, frame, &mut out);
        let sent = out.iter().filter_map(|output| match output {
            CoreOutput::Send(reply) => Some(reply.status),
            _ => None,
        });
        let (sent, is_executed) =
            (sent.collect::<Vec<_>>(), out.iter().any(|output| matches!(output, CoreOutput::Execute(_))));
        cluster.on_core(out);
        assert_eq!((sent, is_executed), (vec![Status::ProtocolError], false), "{request:?} in {slot}");
    }
    cluster.deliver(done);
    assert!(!is_recovering(&cluster), "nothing of it is under way");
}

/// What it has named may have no end here. Who is done is not served then; but not for ever.
#[test]
fn who_is_done_and_cannot_be_served_is_given_up_at_the_hard_limit() {
    for is_aborted in [false, true] {
        let (mut cluster, done) = almost_back();
        let flocks = Request::Mdt(MdtRequest::ReplayFlocks { fid: Fid::ROOT, locks: Vec::new() });
        let mut frame = done.clone();
        frame.flags |= flags::REPLAY;
        (frame.xid, frame.body) = (Xid(done.xid.0 + 1), flocks.to_bytes());
        let mut out = Vec::new();
        cluster.core.as_mut().unwrap().on_frame(cluster.now, frame, &mut out);
        assert!(matches!(out[..], [CoreOutput::Execute(_)]), "nobody answers it: {out:?}");
        cluster.deliver(done);
        let missing = |cluster: &Cluster| {
            let missing = cluster.core.as_ref().unwrap().missing();
            missing.iter().map(|missing| missing.client).collect::<Vec<_>>()
        };
        assert_eq!(missing(&cluster), [client(1)]);
        assert!(is_recovering(&cluster));
        match is_aborted {
            true => cluster.abort_recovery(),
            false => cluster.run_for(RECOVERY_HARD),
        }
        assert!(!is_recovering(&cluster));
        assert_eq!(missing(&cluster), []);
        let core = cluster.core.as_ref().unwrap();
        assert!(!core.is_connected(client(1)) || !is_aborted, "the one that was given up is gone");
        assert_eq!(core.recovery_report(cluster.now.time).evicted_count, 1);
    }
}

/// Its owner says with the note that the data outside of the store are there, too, and durable.
#[test]
fn a_target_with_external_data_replays_nothing_either() {
    let mut cluster = Cluster::new(4, 2);
    cluster.core = None;
    cluster.store = std::sync::Arc::new(store::MemoryMeta::new());
    cluster.has_external_data = true;
    cluster.start();
    for caller in 0..2 {
        cluster.lose_connection(caller);
        cluster.submit(caller);
    }
    cluster.run_for(Duration::from_secs(5));
    cluster.partitioned.insert(1);
    cluster.kill();
    let operation = cluster.submit(0);
    cluster.run_for(Duration::from_secs(5));
    assert!(cluster.core.as_ref().unwrap().is_lossless());
    assert!(cluster.callers[0].done.contains_key(&operation), "it does not wait for the other");
    cluster.partitioned.clear();
    cluster.run_for(Duration::from_secs(30));
    assert!(!is_recovering(&cluster));
    assert_eq!(cluster.replayed, []);
}
