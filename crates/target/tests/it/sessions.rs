//! What sessions promise.

use crate::bounds::connect_frame;
use crate::network::{Cluster, TARGET, client, options};
use base::limits::{LEASE, PING_INTERVAL, UNSYNCED_TRANSACTIONS_MAX};
use base::{ClientId, Duration, Endpoint, Epoch, Fid, Now, Status, TargetId, Time, WallTime, Xid};
use rpc::{ImportState, Kind};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::MemoryMeta;
use target::{Core, CoreOutput, EvictReason};
use wire::{ConnectRequest, Frame, FrameKind, MdtRequest, Reply, Request, flags};

/// Random work, crashes and losses; then calm. Everything acknowledged must be there, and nothing twice.
fn storm(seed: u64, has_external_data: bool, plain_callers: &[usize]) -> (u64, u64) {
    let mut cluster = Cluster::new(seed, 3);
    cluster.has_external_data = has_external_data;
    cluster.plain_callers.extend(plain_callers);
    cluster.start();
    cluster.loss_one_in = 12;
    for _ in 0..60 {
        for _ in 0..cluster.rng.below(6) {
            let caller = cluster.rng.below(3) as usize;
            let fid = Fid { seq: Fid::SEQ_NORMAL, oid: cluster.rng.below(3) as u32, ver: 0 };
            cluster.submit_on(caller, fid);
        }
        let pause = Duration::from_millis(cluster.rng.below(600));
        cluster.run_for(pause);
        if cluster.rng.one_in(6) {
            cluster.crash();
            let pause = Duration::from_millis(cluster.rng.below(3000));
            cluster.run_for(pause);
            cluster.start();
        }
    }
    cluster.loss_one_in = 0;
    cluster.run_for(Duration::from_secs(200));
    let rows = cluster.rows();
    for (index, caller) in cluster.callers.iter().enumerate() {
        assert_eq!(caller.import.state(), ImportState::Active, "seed {seed}, caller {index}");
        assert!(caller.sent.is_empty(), "seed {seed}: everything was answered: {:?}", caller.sent);
        assert_eq!(caller.evictions, 0, "seed {seed}: nobody who lives is evicted");
        assert_eq!(caller.lost_replays, 0, "seed {seed}");
        assert!(caller.failed.is_empty(), "seed {seed}: {:?}", caller.failed);
        for operation in caller.done.keys() {
            assert!(
                rows.contains(operation),
                "seed {seed}: operation {operation} was acknowledged and is gone"
            );
        }
        assert_eq!(caller.import.uncommitted_after(base::Transno::ZERO), 0, "seed {seed}");
    }
    assert_eq!(cluster.counter(), rows.len() as u64, "seed {seed}");
    (cluster.crashes, rows.len() as u64)
}

/// A client that is fast fills what it may keep for a replay long before a second is over; it would wait for the next sync then.
#[test]
fn many_transactions_are_synced_before_the_time_comes() {
    let mut cluster = Cluster::new(1, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(3));
    cluster.store.take_kick();
    let mut run = |count: u64| {
        let until = cluster.now.time.after(Duration::from_millis(400));
        for _ in 0..count {
            cluster.submit(0);
        }
        while cluster.step(until) {}
        assert!(cluster.callers[0].sent.is_empty(), "all are answered");
        cluster.store.take_kick()
    };
    assert!(!run(UNSYNCED_TRANSACTIONS_MAX / 2), "no need yet");
    assert!(run(UNSYNCED_TRANSACTIONS_MAX / 2 + 1), "the store is asked to sync");
    assert!(!run(UNSYNCED_TRANSACTIONS_MAX / 2), "once");
}

#[test]
fn everything_acknowledged_survives_and_nothing_runs_twice() {
    let (mut crashes, mut rows) = (0, 0);
    for seed in 0..300 {
        let (more_crashes, more_rows) = storm(seed, false, &[]);
        crashes += more_crashes;
        rows += more_rows;
    }
    assert!(crashes > 300 && rows > 10_000, "the storm blew: {crashes} crashes, {rows} rows");
}

/// An operator evicts, and callers are away for longer than a recovery waits; the target loses power in between, with a part of what was not
/// durable.
#[test]
fn who_is_evicted_hears_of_all_that_is_lost_and_of_nothing_else() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..100 {
        let mut cluster = Cluster::new(seed, 3);
        cluster.start();
        for _ in 0..20 {
            for _ in 0..cluster.rng.below(6) {
                let caller = cluster.rng.below(3) as usize;
                cluster.submit(caller);
            }
            let pause = Duration::from_millis(cluster.rng.below(400));
            cluster.run_for(pause);
            let caller = cluster.rng.below(3) as usize;
            if cluster.rng.one_in(4) {
                cluster.partitioned.insert(caller);
            }
            if cluster.rng.one_in(4) {
                evict(&mut cluster, caller);
            }
            if cluster.rng.one_in(4) {
                cluster.crash();
                cluster.start();
                cluster.run_for(Duration::from_secs(100));
            }
            cluster.partitioned.clear();
        }
        cluster.run_for(Duration::from_secs(200));
        let rows = cluster.rows();
        for (index, caller) in cluster.callers.iter().enumerate() {
            let gone: BTreeSet<u64> = caller.left_behind.difference(&rows).copied().collect();
            assert_eq!(caller.lost_with_session, gone, "seed {seed}, caller {index}");
            kept += caller.left_behind.len() - gone.len();
            lost += gone.len();
        }
    }
    assert!(kept > 100 && lost > 30, "there is something to tell apart: {kept} kept, {lost} lost");
}

fn evict(cluster: &mut Cluster, caller: usize) {
    let (now, mut out) = (cluster.now, Vec::new());
    cluster.core.as_mut().unwrap().evict(now, client(caller), EvictReason::Operator, &mut out);
    cluster.on_core(out);
}

/// Some callers, or all, are of a version that does not say what it replays.
#[test]
fn versions_that_list_their_replays_and_others_recover_together() {
    for seed in 0..150 {
        storm(seed, false, &[0]);
        storm(seed, false, &[0, 1, 2]);
    }
}

#[test]
fn with_data_outside_the_store_everything_acknowledged_survives() {
    for seed in 0..150 {
        storm(seed, true, &[]);
    }
}

#[test]
fn who_does_not_come_back_is_evicted_and_told() {
    let mut cluster = Cluster::new(1, 2);
    cluster.submit(0);
    cluster.submit(1);
    cluster.run_for(Duration::from_secs(3));
    cluster.crash();
    cluster.partitioned.insert(1);
    cluster.start();
    cluster.run_for(Duration::from_secs(10));
    let waiting = cluster.submit(0);
    cluster.run_for(Duration::from_secs(30));
    assert!(!cluster.callers[0].done.contains_key(&waiting), "new work waits for the end of recovery");
    cluster.run_for(Duration::from_secs(30));
    assert!(cluster.callers[0].done.contains_key(&waiting));
    cluster.partitioned.clear();
    let late = cluster.submit(1);
    cluster.run_for(Duration::from_secs(40));
    assert_eq!(cluster.callers[1].evictions, 1);
    assert_eq!(cluster.callers[1].failed.get(&late), Some(&Status::Evicted));
    let afresh = cluster.submit(1);
    cluster.run_for(Duration::from_secs(3));
    assert!(cluster.callers[1].done.contains_key(&afresh), "the session goes on afresh");
}

/// Somebody asks for a session who is no caller, and hears nothing.
fn connect(cluster: &mut Cluster, who: Endpoint, incarnation: u64) {
    let request = Request::Connect(ConnectRequest {
        version: wire::VERSION,
        version_oldest: wire::VERSION_OLDEST,
        features: 0,
        fsname: "t".into(),
        client: who.client_id(),
        incarnation,
        target_epoch: Epoch::ZERO,
        session: 0,
        nid: "other".into(),
        target_uuid: 0,
        starts: wire::Starts::default(),
    });
    cluster.is_lost = Box::new(move |frame| frame.dst == who);
    let mut frame = Frame::new(FrameKind::Request, who, Endpoint::Target(TARGET));
    frame.xid = Xid(1);
    frame.body = request.to_bytes();
    let mut out = Vec::new();
    cluster.core.as_mut().unwrap().on_frame(cluster.now, frame, &mut out);
    cluster.on_core(out);
}

/// A target that was killed too has lost nothing with its session, as a mount has with what it had not written.
#[test]
fn another_target_in_a_new_incarnation_is_back_and_a_mount_is_lost() {
    let ends = [(Endpoint::Target(TargetId::mdt(1)), 0), (Endpoint::Client(client(5)), 1)];
    for (who, evicted) in ends {
        let mut cluster = Cluster::new(12, 1);
        connect(&mut cluster, who, 1);
        cluster.submit(0);
        cluster.run_for(Duration::from_secs(3));
        cluster.kill();
        connect(&mut cluster, who, 2);
        cluster.run_for(Duration::from_secs(5));
        let report = cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
        assert!(report.ended.is_some(), "{who}");
        assert_eq!((report.awaited_count, report.evicted_count), (2, evicted), "{who}");
        assert_eq!((report.returned_count, report.completed_count), (2 - evicted, 2 - evicted), "{who}");
    }
}

/// Of two callers that had something done, one hears nothing of the target's restart.
fn restarted_without_the_second() -> Cluster {
    let mut cluster = Cluster::new(5, 2);
    cluster.submit(0);
    cluster.submit(1);
    cluster.run_for(Duration::from_secs(2));
    cluster.crash();
    cluster.start();
    cluster.partitioned.insert(1);
    cluster
}

#[test]
fn a_client_that_is_known_to_have_died_is_not_waited_for() {
    let mut cluster = restarted_without_the_second();
    cluster.run_for(Duration::from_secs(3));
    assert!(cluster.core.as_ref().unwrap().is_recovering(), "the second one is waited for");
    cluster.departed(1, 0);
    cluster.run_for(Duration::from_secs(1));
    assert!(
        cluster.core.as_ref().unwrap().is_recovering(),
        "an earlier incarnation of it died, not this one"
    );
    cluster.departed(1, 1);
    cluster.run_for(Duration::from_secs(1));
    let core = cluster.core.as_ref().unwrap();
    assert!(!core.is_recovering());
    assert_eq!(core.clients().count(), 1);
    assert_eq!(cluster.callers[0].evictions, 0);
}

/// It was the difference of two times of the calendar, and a clock that was set back made it less than nothing.
#[test]
fn how_long_a_recovery_took_does_not_follow_the_calendar() {
    let took = [-1, 0, 1].map(|hours| {
        let mut cluster = restarted_without_the_second();
        cluster.run_for(Duration::from_secs(3));
        cluster.clock_set_by_nanos = hours * 3_600_000_000_000;
        cluster.departed(1, 1);
        cluster.run_for(Duration::from_secs(5));
        let report = cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
        assert!(report.ended.is_some(), "{hours} hours");
        report.took
    });
    assert!(took[1] >= Duration::from_secs(3), "the second one was waited for: {took:?}");
    assert_eq!(took, [took[1]; 3]);
}

#[test]
fn a_client_without_a_lease_is_given_up_when_it_was_not_heard_either() {
    let mut cluster = Cluster::new(5, 3);
    for caller in 0..3 {
        cluster.submit(caller);
    }
    cluster.run_for(Duration::from_secs(2));
    cluster.lapsed(1, 1);
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 3, "nobody waits for it");
    cluster.crash();
    cluster.start();
    cluster.partitioned.extend([1, 2]);
    cluster.submit(0);
    cluster.run_for(Duration::from_millis(2500));
    cluster.lapsed(1, 1);
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 3, "too early");
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(cluster.unheard(&[]), 2, "the first one has come back");
    cluster.lapsed(0, 1);
    cluster.lapsed(1, 0);
    cluster.lapsed(1, 1);
    cluster.run_for(Duration::from_secs(1));
    let core = cluster.core.as_ref().unwrap();
    assert!(core.is_recovering(), "the third one may come");
    assert_eq!(core.clients().count(), 2);
    cluster.lapsed(2, 1);
    cluster.run_for(Duration::from_secs(1));
    assert!(!cluster.core.as_ref().unwrap().is_recovering());
    assert_eq!(cluster.callers[0].evictions, 0);
}

#[test]
fn a_holder_without_a_lease_is_given_up_when_it_was_not_heard_either() {
    let mut cluster = Cluster::new(5, 2);
    cluster.submit(0);
    cluster.submit(1);
    cluster.run_for(Duration::from_secs(2));
    cluster.partitioned.insert(1);
    cluster.run_for(LEASE);
    cluster.holder_lapsed(1);
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 2, "what it says may be lost once");
    cluster.run_for(PING_INTERVAL);
    assert_eq!(cluster.unheard(&[]), 0, "nobody waits for anybody");
    assert_eq!(cluster.unheard(&[0, 1]), 1, "the first one pings");
    cluster.lapsed(1, 1);
    cluster.holder_lapsed(0);
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 2);
    cluster.holder_lapsed(1);
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 1);
    cluster.partitioned.clear();
    cluster.run_for(Duration::from_secs(10));
    assert_eq!((cluster.callers[0].evictions, cluster.callers[1].evictions), (0, 1), "it is told");
}

/// A recovery looks at those who are not heard, and at nobody else.
#[test]
fn who_has_come_back_is_no_holder_while_the_target_recovers() {
    let mut cluster = restarted_without_the_second();
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(15));
    assert_eq!(cluster.unheard(&[0]), 1, "the first one says that it is there");
    cluster.holder_lapsed(0);
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 2);
}

#[test]
fn an_operator_ends_a_recovery() {
    let mut cluster = Cluster::new(5, 2);
    cluster.submit(0);
    cluster.submit(1);
    cluster.run_for(Duration::from_secs(2));
    cluster.abort_recovery();
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 2, "there is none to end");
    cluster.crash();
    cluster.start();
    cluster.partitioned.insert(1);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(3));
    let missing = |cluster: &Cluster| cluster.core.as_ref().unwrap().missing().len();
    assert_eq!(missing(&cluster), 1);
    cluster.abort_recovery();
    cluster.run_for(Duration::from_secs(1));
    let core = cluster.core.as_ref().unwrap();
    assert!(!core.is_recovering());
    assert_eq!((core.clients().count(), missing(&cluster)), (1, 0));
    assert_eq!(cluster.callers[0].evictions, 0);
}

#[test]
fn no_recovery_is_longer_than_its_hard_limit() {
    let mut cluster = restarted_without_the_second();
    cluster.core.as_mut().unwrap().set_recovery_hard(Duration::from_secs(20));
    cluster.run_for(Duration::from_secs(9));
    assert!(cluster.core.as_ref().unwrap().is_recovering());
    cluster.run_for(Duration::from_secs(12));
    assert!(!cluster.core.as_ref().unwrap().is_recovering());
}

#[test]
fn an_evicted_client_learns_it_by_its_next_request() {
    let mut cluster = Cluster::new(2, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    let client = cluster.callers[0].import.options().client;
    let mut out = Vec::new();
    let now = cluster.now;
    cluster.core.as_mut().unwrap().evict(now, client, EvictReason::Operator, &mut out);
    out.retain(|output| !matches!(output, target::CoreOutput::Send(_)));
    cluster.on_core(out);
    let operation = cluster.submit(0);
    cluster.run_for(Duration::from_secs(3));
    assert_eq!(cluster.callers[0].evictions, 1);
    assert_eq!(cluster.callers[0].failed.get(&operation), Some(&Status::Evicted));
}

/// The disk takes longer than a caller waits for an answer: it asks for a session again and again, and gets one, not another one each
/// time, of which it would hear when there is the next one already.
#[test]
fn who_asks_again_for_a_session_gets_the_one_that_was_made() {
    let mut cluster = Cluster::new(2, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    let client = cluster.callers[0].import.options().client;
    let (now, mut out) = (cluster.now, Vec::new());
    cluster.core.as_mut().unwrap().evict(now, client, EvictReason::Operator, &mut out);
    cluster.on_core(out);
    cluster.is_disk_slow = true;
    cluster.run_for(Duration::from_secs(3));
    cluster.is_disk_slow = false;
    cluster.sync(true);
    cluster.run_for(Duration::from_secs(1));
    let operation = cluster.submit(0);
    cluster.run_for(Duration::from_secs(3));
    assert!(cluster.callers[0].done.contains_key(&operation));
    assert_eq!(cluster.session_count, 2, "the one that was lost, and the next");
    assert_eq!(cluster.callers[0].evictions, 1);
}

#[test]
fn sync_is_answered_when_it_is_durable() {
    let mut cluster = Cluster::new(3, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_millis(10));
    let ticket = cluster.request(0, Request::Mdt(MdtRequest::Sync), Kind::Plain);
    cluster.run_for(Duration::from_secs(1));
    assert!(!cluster.callers[0].sent.contains_key(&ticket));
    assert_eq!(cluster.store.unsynced_count(), 0);
}

#[test]
fn a_sync_that_can_never_be_durable_is_answered() {
    let mut cluster = Cluster::new(3, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_millis(10));
    cluster.submit(0);
    cluster.store.set_failing(true);
    let before = cluster.request(0, Request::Mdt(MdtRequest::Sync), Kind::Plain);
    cluster.run_for(Duration::from_secs(3));
    assert!(!cluster.callers[0].sent.contains_key(&before), "who waited when it failed");
    let after = cluster.request(0, Request::Mdt(MdtRequest::Sync), Kind::Plain);
    cluster.run_for(Duration::from_secs(3));
    assert!(!cluster.callers[0].sent.contains_key(&after), "and who asks later");
}

#[test]
fn goodbye_takes_the_client_out_so_that_no_restart_waits_for_it() {
    let mut cluster = Cluster::new(4, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_millis(10));
    let mut out = Vec::new();
    let now = cluster.now;
    cluster.callers[0].import.disconnect(now, &mut out);
    for output in out {
        if let rpc::ImportOutput::Send(frame) = output {
            let mut more = Vec::new();
            cluster.core.as_mut().unwrap().on_frame(now, frame, &mut more);
            cluster.on_core(more);
        }
    }
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(cluster.callers[0].import.state(), ImportState::Disconnected);
    assert_eq!(cluster.store.unsynced_count(), 0, "everything was durable before the answer");
    cluster.crash();
    cluster.start();
    cluster.run_for(Duration::from_millis(10));
    let core = cluster.core.as_ref().unwrap();
    assert_eq!(core.clients().count(), 0);
    assert!(!core.is_recovering(), "{} {}", core.durable(), core.last_transno());
}

#[test]
fn a_caller_for_another_target_is_refused() {
    let mut cluster = Cluster::new(5, 1);
    let mut options = cluster.callers[0].import.options().clone();
    options.target_uuid = 8;
    cluster.callers[0].import = rpc::Import::new(options);
    let operation = cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(cluster.callers[0].failed.get(&operation), Some(&Status::WrongTarget));
    assert_eq!(cluster.executed, 0);
}

#[test]
fn an_answer_that_comes_while_the_caller_looks_for_the_target_counts() {
    let mut cluster = Cluster::new(6, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(3));
    let operation = cluster.submit(0);
    let executed = cluster.executed;
    while cluster.executed == executed {
        let until = cluster.now.time.after(Duration::from_secs(1));
        assert!(cluster.step(until));
    }
    // The target dies with its answer under way, and the caller is the first to know.
    cluster.crash();
    let mut out = Vec::new();
    let now = cluster.now;
    cluster.callers[0].import.on_connection_lost(now, &mut out);
    assert!(!cluster.callers[0].done.contains_key(&operation));
    cluster.run_for(Duration::from_secs(1));
    assert!(cluster.callers[0].done.contains_key(&operation));
    // So it is replayed in its place, not executed anew after what others did later.
    cluster.start();
    cluster.run_for(Duration::from_secs(5));
    assert!(cluster.rows().contains(&operation));
    assert_eq!(cluster.callers[0].lost_replays, 0);
}

/// How many frames with unchecked data each side has sent, and how many others.
fn unchecked_count(cluster: &Cluster, kind: FrameKind) -> (u64, u64) {
    let of_kind = || cluster.flags_sent.iter().filter(|((sent, _), _)| *sent == kind);
    let is_unchecked = |flags: u32| flags & flags::UNCHECKED_DATA != 0;
    let unchecked = of_kind().filter(|((_, flags), _)| is_unchecked(*flags)).map(|(_, count)| count).sum();
    (unchecked, of_kind().map(|(_, count)| count).sum::<u64>() - unchecked)
}

#[test]
fn data_go_unchecked_both_ways_once_the_target_has_said_that_it_knows_how() {
    let mut cluster = Cluster::new(1, 1);
    cluster.callers[0].import.set_checked_data(false);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(cluster.callers[0].import.state(), ImportState::Active);
    for (kind, what) in [(FrameKind::Request, "requests"), (FrameKind::Reply, "replies")] {
        cluster.flags_sent.clear();
        cluster.submit(0);
        cluster.run_for(Duration::from_secs(1));
        let (unchecked, checked) = unchecked_count(&cluster, kind);
        assert!(unchecked >= 1 && checked == 0, "{what}: {unchecked} unchecked, {checked} checked");
    }
    cluster.callers[0].import.set_checked_data(true);
    cluster.flags_sent.clear();
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(unchecked_count(&cluster, FrameKind::Request).0, 0);
    assert_eq!(unchecked_count(&cluster, FrameKind::Reply).0, 0);
    assert!(cluster.callers[0].failed.is_empty());
}

#[test]
fn a_target_that_cannot_do_without_checksums_gets_them() {
    let mut cluster = Cluster::new(1, 1);
    cluster.is_plain = true;
    cluster.callers[0].import.set_checked_data(false);
    let operation = cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    assert_eq!(unchecked_count(&cluster, FrameKind::Request).0, 0);
    assert!(cluster.callers[0].done.contains_key(&operation));
}

/// It left, and the server that was to write it to a socket ended.
#[test]
fn an_answer_that_no_frame_carries_is_a_failure() {
    let mut cluster = Cluster::new(3, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(3));
    let (now, mut out, mut core_out) = (cluster.now, Vec::new(), Vec::new());
    let question = Request::Mdt(wire::MdtRequest::Statfs);
    cluster.callers[0].import.submit(now, question, Default::default(), rpc::Kind::Plain, 0, &mut out);
    let core = cluster.core.as_mut().unwrap();
    for output in out {
        if let rpc::ImportOutput::Send(frame) = output {
            core.on_frame(now, frame, &mut core_out);
        }
    }
    let work = core_out.into_iter().find_map(|output| match output {
        target::CoreOutput::Execute(work) => Some(work),
        _ => None,
    });
    let long = wire::Reply::Mdt(wire::MdtReply::Bytes(vec![0; base::limits::FRAME_BODY_BYTES_MAX]));
    let mut core_out = Vec::new();
    core.reply(now, work.unwrap().token, Ok((long, Default::default())), &mut core_out);
    let sent = core_out.into_iter().find_map(|output| match output {
        target::CoreOutput::Send(frame) => Some(frame),
        _ => None,
    });
    let sent = sent.expect("it is answered");
    assert_eq!((sent.status, sent.body.len()), (Status::Overflow, 0));
}

/// The client dates what it does by it: by the time of its arrival it would be off by the sync.
#[test]
fn an_answer_that_has_waited_for_a_sync_tells_the_time_at_which_it_leaves() {
    let store = Arc::new(MemoryMeta::new());
    let mut now = Now { time: Time(1), wall: WallTime(1_000) };
    let mut core = Core::open(Arc::clone(&store), options(now)).unwrap();
    store.sync();
    let mut out = Vec::new();
    core.on_durable(now, &mut out);
    core.on_frame(now, connect_frame(ClientId(5), "host"), &mut out);
    assert!(!out.iter().any(|output| matches!(output, CoreOutput::Send(_))), "its row is not durable yet");
    now = Now { time: Time(5_000), wall: WallTime(6_000) };
    store.sync();
    core.on_durable(now, &mut out);
    let told = out.iter().find_map(|output| match output {
        CoreOutput::Send(frame) => match Reply::from_bytes(&frame.body) {
            Ok(Reply::Connected(reply)) => Some(reply.server_time_ns),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(told, Some(6_000));
}
