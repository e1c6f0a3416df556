//! In which order replays of several clients are executed, and who waits for whom.

use crate::network::{Cluster, client};
use base::limits::{
    LEASE, LISTED_OBJECTS_MAX, QUEUED_REPLAY_BYTES_MAX, RECOVERY_WINDOW, REPLAY_REQUESTS_MAX,
    REPLAY_SIGN_INTERVAL, SLOT_COUNT,
};
use base::{Duration, Endpoint, Fid, OpenHandle, Status, Transno};
use rpc::ImportState;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use target::CoreOutput;
use wire::manifest::{ENTRIES_MAX, Replayed, TOUCHED_MAX, Touched};
use wire::mdt::OpenArgs;
use wire::{Frame, FrameKind, Manifest, MdtRequest, Reply, Request, flags};

fn fid(oid: u32) -> Fid {
    Fid { seq: Fid::SEQ_NORMAL, oid, ver: 0 }
}

fn is_replay(frame: &Frame) -> bool {
    frame.kind == FrameKind::Request && frame.flags & flags::REPLAY != 0 && frame.transno != Transno::ZERO
}

fn is_manifest(frame: &Frame) -> bool {
    frame.kind == FrameKind::Request && matches!(Request::from_bytes(&frame.body), Ok(Request::Manifest(_)))
}

fn is_of(frame: &Frame, caller: usize) -> bool {
    frame.src == Endpoint::Client(client(caller))
}

/// Callers have changed one inode each, in this order, and nothing of it is durable.
fn changed(callers: &[(usize, u32)], plain: &[usize]) -> Cluster {
    changed_on(false, callers, plain)
}

/// The same on a target like an OST, whose data are outside of its store.
fn changed_on(has_external_data: bool, callers: &[(usize, u32)], plain: &[usize]) -> Cluster {
    let caller_count = callers.iter().map(|(caller, _)| caller + 1).max().unwrap();
    let mut cluster = Cluster::of(has_external_data, caller_count);
    cluster.plain_callers.extend(plain);
    for caller in 0..caller_count {
        cluster.submit_on(caller, fid(99));
    }
    cluster.run_for(Duration::from_secs(3));
    cluster.is_disk_slow = true;
    for (caller, oid) in callers {
        cluster.submit_on(*caller, fid(*oid));
        cluster.run_for(Duration::from_millis(500));
    }
    let answered = cluster.callers.iter().map(|caller| caller.done.len()).sum::<usize>();
    assert_eq!(answered, caller_count + callers.len());
    cluster
}

/// The target is back without what was not durable.
fn restart(cluster: &mut Cluster) {
    cluster.lose_unsynced();
    for caller in 0..cluster.callers.len() {
        cluster.lose_connection(caller);
    }
}

fn replayed(cluster: &Cluster) -> Vec<usize> {
    cluster.replayed.iter().map(|(caller, _)| *caller).collect()
}

fn all_recovered(cluster: &mut Cluster) {
    cluster.expect_recovered(Duration::from_secs(40));
}

#[test]
fn a_replay_does_not_wait_for_a_slow_client_that_touched_something_else() {
    for has_external_data in [false, true] {
        let mut cluster = changed_on(has_external_data, &[(0, 1), (1, 2), (0, 3)], &[]);
        cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
        restart(&mut cluster);
        cluster.run_for(Duration::from_secs(5));
        assert_eq!(replayed(&cluster), [1]);
        assert!(cluster.core.as_ref().unwrap().is_recovering());
        all_recovered(&mut cluster);
        assert_eq!(replayed(&cluster), [1, 0, 0]);
    }
}

#[test]
fn a_replay_waits_for_an_earlier_one_of_the_same_inode() {
    for has_external_data in [false, true] {
        let mut cluster = changed_on(has_external_data, &[(0, 1), (1, 1)], &[]);
        cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
        restart(&mut cluster);
        cluster.run_for(Duration::from_secs(5));
        assert_eq!(replayed(&cluster), [] as [usize; 0]);
        all_recovered(&mut cluster);
        assert_eq!(replayed(&cluster), [0, 1]);
    }
}

/// A second crash, in the middle: what is outside of the store may be lost although the rows are not, so all is done again.
#[test]
fn external_data_are_replayed_again_in_the_same_order_after_a_second_crash() {
    let mut cluster = changed_on(true, &[(0, 1), (1, 1), (2, 2), (2, 1)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(3));
    assert_eq!(replayed(&cluster), [2]);
    cluster.sync(true);
    restart(&mut cluster);
    all_recovered(&mut cluster);
    let of_first: Vec<usize> = cluster
        .replayed
        .iter()
        .filter(|(_, transno)| *transno != cluster.callers[2].done[&6])
        .map(|(caller, _)| *caller)
        .collect();
    assert_eq!((cluster.replayed.len(), of_first), (4, vec![0, 1, 2]));
}

#[test]
fn nothing_is_replayed_before_all_have_said_what_they_replay() {
    let mut cluster = changed(&[(1, 2), (0, 1)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_manifest(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(5));
    assert_eq!(replayed(&cluster), [] as [usize; 0], "it could have been anything");
    assert_eq!(cluster.core.as_ref().unwrap().missing().len(), 1);
    all_recovered(&mut cluster);
    assert_eq!(replayed(&cluster), [1, 0]);
}

#[test]
fn who_is_given_up_holds_up_nobody() {
    let mut cluster = changed(&[(0, 1), (1, 1)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(2));
    cluster.partitioned.insert(0);
    cluster.run_for(LEASE + REPLAY_SIGN_INTERVAL);
    assert_eq!(replayed(&cluster), [] as [usize; 0]);
    cluster.lapsed(0, 1);
    cluster.run_for(Duration::from_secs(3));
    assert_eq!(replayed(&cluster), [1]);
    assert!(!cluster.core.as_ref().unwrap().is_recovering());
}

/// It lives, and says so each second, but what it has listed does not come.
#[test]
fn who_owes_a_replay_is_given_up_without_those_who_wait_for_it() {
    let mut cluster = changed(&[(0, 1), (1, 1), (2, 2), (1, 3)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(5));
    let missing: Vec<_> =
        cluster.core.as_ref().unwrap().missing().iter().map(|missing| missing.client).collect();
    assert_eq!(missing, [client(0)], "the others have said all that they have to say");
    cluster.run_for(RECOVERY_WINDOW);
    assert!(!cluster.core.as_ref().unwrap().is_recovering());
    let evictions: Vec<_> =
        cluster.callers.iter().map(|caller| (caller.evictions, caller.lost_replays)).collect();
    assert_eq!(evictions[1..], [(0, 0), (0, 0)]);
    assert_eq!(cluster.replayed.len(), 3);
}

/// What is owed for such a client only holds up the others: they go on at once when an operator wants no more waiting.
#[test]
fn an_operator_who_wants_no_more_waiting_gives_up_nobody_else() {
    let mut cluster = changed(&[(0, 1), (1, 1)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(5));
    cluster.abort_recovery();
    cluster.run_for(Duration::from_secs(5));
    assert!(!cluster.core.as_ref().unwrap().is_recovering());
    assert_eq!((cluster.callers[1].evictions, replayed(&cluster)), (0, vec![1]));
}

/// The answer is lost with the connection: what comes again is told the same, and its caller learns that it is lost.
#[test]
fn a_replay_that_was_refused_stays_refused() {
    for plain in [&[][..], &[0, 1]] {
        stays_refused(changed(&[(0, 1), (1, 1)], plain), plain.is_empty());
    }
}

fn stays_refused(mut cluster: Cluster, has_manifests: bool) {
    cluster.refuses.insert(fid(1), Status::VersionConflict);
    cluster.is_lost = Box::new(|frame| {
        let is_answer = frame.kind == FrameKind::Reply && frame.dst == Endpoint::Client(client(0));
        is_answer && frame.status == Status::VersionConflict
    });
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(3));
    assert_eq!(cluster.refuses.len(), 0);
    if has_manifests {
        assert_eq!(replayed(&cluster), [1], "who waited for it goes on");
    }
    cluster.is_lost = Box::new(|_| false);
    cluster.lose_connection(0);
    cluster.run_for(Duration::from_secs(20));
    assert_eq!(replayed(&cluster), [1]);
    assert_eq!((cluster.callers[0].lost_replays, cluster.callers[1].lost_replays), (1, 0));
    assert!(!cluster.core.as_ref().unwrap().is_recovering());
}

#[test]
fn a_replay_that_was_put_off_is_executed_when_it_comes_again() {
    for plain in [&[][..], &[0, 1]] {
        let mut cluster = changed(&[(0, 1), (1, 1), (0, 1)], plain);
        cluster.refuses.insert(fid(1), Status::Again);
        restart(&mut cluster);
        all_recovered(&mut cluster);
        assert_eq!((cluster.refuses.len(), replayed(&cluster)), (0, vec![0, 1, 0]), "{plain:?}");
    }
}

/// Who waits for the replays of others has nothing to say for as long, and dies like anybody else.
#[test]
fn who_replays_is_heard_each_second_and_missed_within_a_lease() {
    let mut cluster = changed(&[(0, 1), (1, 1), (2, 2)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(12));
    assert_eq!(cluster.unheard(&[]), 0, "all of them live, and wait");
    cluster.partitioned.insert(1);
    cluster.run_for(LEASE + REPLAY_SIGN_INTERVAL);
    assert_eq!(cluster.unheard(&[]), 1, "it had said all that it had to say");
    cluster.lapsed(1, 1);
    assert_eq!(cluster.core.as_ref().unwrap().clients().count(), 2);
}

#[test]
fn who_does_not_say_what_it_replays_has_its_place_among_all() {
    let mut cluster = changed(&[(1, 1), (0, 2), (2, 3), (0, 4), (1, 5)], &[0]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 1) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(5));
    assert_eq!(replayed(&cluster), [] as [usize; 0], "the other one would have to pass it");
    all_recovered(&mut cluster);
    assert_eq!(replayed(&cluster), [1, 0, 2, 0, 1]);
}

#[test]
fn a_target_that_knows_no_manifests_gets_none() {
    let mut cluster = changed(&[(0, 1), (1, 1)], &[0, 1]);
    cluster.is_lost = Box::new(|frame| {
        assert!(!is_manifest(frame));
        false
    });
    restart(&mut cluster);
    all_recovered(&mut cluster);
    assert_eq!(replayed(&cluster), [0, 1]);
}

/// An answer that is lost, and a session that is made again in between.
#[test]
fn a_manifest_that_is_said_again_changes_nothing() {
    let mut cluster = changed(&[(0, 1), (1, 1), (0, 2), (1, 3)], &[]);
    cluster.is_lost = Box::new(|frame| {
        let is_connected = matches!(Reply::from_bytes(&frame.body), Ok(Reply::Connected(_)));
        frame.dst == Endpoint::Client(client(0)) && !is_connected
    });
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(3));
    assert_eq!(cluster.callers[0].import.state(), ImportState::Replaying);
    cluster.lose_connection(0);
    cluster.run_for(Duration::from_secs(1));
    cluster.lose_connection(1);
    all_recovered(&mut cluster);
    assert_eq!(cluster.replayed.len(), 4, "each was executed once");
}

/// A second crash, in the middle: what was executed already counts as done, in whatever order that was.
#[test]
fn a_recovery_that_is_broken_off_begins_again_where_it_was() {
    let mut cluster = changed(&[(0, 1), (1, 1), (2, 2), (2, 1)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(3));
    assert_eq!(replayed(&cluster), [2]);
    cluster.sync(true);
    restart(&mut cluster);
    all_recovered(&mut cluster);
    assert_eq!(replayed(&cluster), [0, 1, 2]);
}

/// More than one part.
#[test]
fn a_client_with_very_many_replays_says_so_in_parts() {
    let mut cluster = Cluster::new(1, 2);
    cluster.submit_on(0, fid(9));
    cluster.submit_on(1, fid(9));
    cluster.run_for(Duration::from_secs(3));
    cluster.is_disk_slow = true;
    let count = ENTRIES_MAX + ENTRIES_MAX / 2;
    for _ in 0..count {
        cluster.submit_on(0, fid(1));
    }
    cluster.run_for(Duration::from_secs(60));
    assert_eq!(cluster.callers[0].done.len(), count + 1);
    restart(&mut cluster);
    cluster.run_for(Duration::from_secs(60));
    all_recovered(&mut cluster);
    assert_eq!(cluster.replayed.len(), count);
}

fn frame_of(cluster: &Cluster, caller: usize, request: &Request) -> Frame {
    let connected = cluster.last_sent.get(&FrameKind::Reply).unwrap();
    let mut frame = Frame::new(FrameKind::Request, client(caller).endpoint(), connected.src);
    (frame.session, frame.xid, frame.flags) = (connected.session, base::Xid(900), flags::REPLAY);
    frame.body = request.to_bytes();
    frame
}

fn hand_in(cluster: &mut Cluster, frame: Frame) -> Vec<(Status, base::Xid)> {
    let mut out = Vec::new();
    let now = cluster.now;
    cluster.core.as_mut().unwrap().on_frame(now, frame, &mut out);
    let replies = out.iter().filter_map(|output| match output {
        CoreOutput::Send(frame) => Some((frame.status, frame.xid)),
        _ => None,
    });
    replies.collect()
}

/// Only a confused client, or none of ours, says such things. It is told so, and nothing changes.
#[test]
fn manifests_that_make_no_sense_are_refused() {
    let mut cluster = changed(&[(0, 1), (0, 2)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && (is_replay(frame) || is_manifest(frame)));
    restart(&mut cluster);
    cluster.run_for(Duration::from_millis(1500));
    let touched = Touched { fids: vec![fid(1)], ..Touched::default() };
    let entry = |transno, slot| Replayed { transno: Transno(transno), slot, touched: touched.clone() };
    let of = |entries, is_last| Request::Manifest(Manifest { after: Transno::ZERO, entries, is_last });
    let too_wide = Touched { fids: vec![fid(1); TOUCHED_MAX + 1], ..Touched::default() };
    let wide = Replayed { transno: Transno(3), slot: 0, touched: too_wide };
    let many = (1..=ENTRIES_MAX as u64 + 1).map(|transno| entry(transno, 0)).collect();
    let refused = [
        of(vec![entry(5, 0), entry(5, 1)], true),
        of(vec![entry(6, 0), entry(5, 0)], true),
        of(vec![entry(0, 0)], true),
        of(vec![entry(5, 9999)], true),
        of(vec![wide], true),
        of(many, true),
    ];
    for request in refused {
        let frame = frame_of(&cluster, 0, &request);
        assert_eq!(hand_in(&mut cluster, frame), [(Status::ProtocolError, base::Xid(900))], "{request:?}");
    }
    let gap = Request::Manifest(Manifest { after: Transno(4), entries: vec![entry(5, 0)], is_last: true });
    let frame = frame_of(&cluster, 0, &gap);
    assert_eq!(hand_in(&mut cluster, frame), [], "what is before it comes first");
    let mut fill = Transno::ZERO;
    let frames: Vec<Frame> = (0..REPLAY_REQUESTS_MAX / ENTRIES_MAX + 2)
        .map(|_| {
            let from = fill.0 + 1;
            let entries: Vec<Replayed> = (from..from + ENTRIES_MAX as u64).map(|n| entry(n, 0)).collect();
            let after = std::mem::replace(&mut fill, Transno(from + ENTRIES_MAX as u64 - 1));
            frame_of(&cluster, 0, &Request::Manifest(Manifest { after, entries, is_last: false }))
        })
        .collect();
    let answers: Vec<Status> =
        frames.into_iter().flat_map(|frame| hand_in(&mut cluster, frame)).map(|(status, _)| status).collect();
    assert_eq!(answers.first(), Some(&Status::Ok));
    assert_eq!(answers.last(), Some(&Status::ProtocolError), "more than a client may retain");
}

/// It would have no place.
#[test]
fn a_replay_that_was_not_listed_is_refused() {
    let mut cluster = changed(&[(0, 1), (0, 2)], &[]);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && is_replay(frame));
    restart(&mut cluster);
    cluster.run_for(Duration::from_millis(1500));
    let remove = MdtRequest::Getattr { fid: fid(1), want: wire::lock::LockWant::default() };
    let mut frame = frame_of(&cluster, 0, &Request::Mdt(remove));
    (frame.transno, frame.slot) = (Transno(7), 0);
    assert_eq!(hand_in(&mut cluster, frame), [(Status::ProtocolError, base::Xid(900))]);
    all_recovered(&mut cluster);
}

/// Restarts the target, which hears nothing of what these callers will replay, nor what `is_lost` says. -> Their manifests.
fn without_manifests(
    cluster: &mut Cluster,
    callers: &'static [usize],
    is_lost: impl Fn(&Frame) -> bool + 'static,
) -> Vec<Frame> {
    let said: Rc<RefCell<BTreeMap<usize, Frame>>> = Rc::default();
    let saying = Rc::clone(&said);
    cluster.is_lost = Box::new(move |frame| {
        let of = callers.iter().find(|caller| is_of(frame, **caller) && is_manifest(frame));
        if let Some(caller) = of {
            saying.borrow_mut().insert(*caller, frame.clone());
        }
        of.is_some() || is_lost(frame)
    });
    restart(cluster);
    cluster.run_for(Duration::from_millis(1500));
    let said = std::mem::take(&mut *said.borrow_mut());
    assert_eq!(said.keys().copied().collect::<Vec<_>>(), callers);
    said.into_values().collect()
}

/// What a client says of its replays is not what it replays. If that were believed, the replay would go before one that it depends on.
#[test]
fn a_replay_that_touches_what_was_not_said_is_refused() {
    for is_manifest_first in [true, false] {
        let mut cluster = changed(&[(1, 1), (0, 1), (2, 1)], &[]);
        let said = without_manifests(&mut cluster, &[0], move |frame| {
            is_replay(frame) && (is_of(frame, 1) || is_of(frame, 0) && is_manifest_first)
        });
        let mut frame = said[0].clone();
        let Ok(Request::Manifest(mut manifest)) = Request::from_bytes(&frame.body) else {
            panic!("it is one")
        };
        assert_eq!(manifest.entries.len(), 1);
        manifest.entries[0].touched.fids = vec![fid(2)];
        frame.body = Request::Manifest(manifest).to_bytes();
        cluster.deliver(frame);
        cluster.is_lost =
            Box::new(|frame| is_of(frame, 1) && is_replay(frame) || is_of(frame, 0) && is_manifest(frame));
        cluster.run_for(Duration::from_secs(5));
        assert_eq!(replayed(&cluster), [] as [usize; 0]);
        assert_eq!(cluster.callers[0].lost_replays, 1, "its caller is told");
        cluster.is_lost = Box::new(|_| false);
        cluster.run_for(Duration::from_secs(20));
        assert_eq!(replayed(&cluster), [1, 2], "who waits for the first one does not wait for the other");
        let report = cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
        assert_eq!((report.refused_count, report.evicted_count), (1, 0));
        assert!(!cluster.core.as_ref().unwrap().is_recovering());
    }
}

/// As many replays as a manifest holds, of inodes that nobody else touches, which never come.
fn filling(cluster: &Cluster, caller: usize, part: usize) -> Frame {
    let first = part * ENTRIES_MAX + 1;
    let touched = |n: usize| {
        let oids = (0..TOUCHED_MAX).map(|i| 1000 + (caller * REPLAY_REQUESTS_MAX + n) * TOUCHED_MAX + i);
        Touched { fids: oids.map(|oid| fid(oid as u32)).collect(), ..Touched::default() }
    };
    let entry = |n: usize| Replayed { transno: Transno(n as u64), slot: SLOT_COUNT, touched: touched(n) };
    let entries = (first..first + ENTRIES_MAX).map(entry).collect();
    let after = Transno(first as u64 - 1);
    frame_of(cluster, caller, &Request::Manifest(Manifest { after, entries, is_last: false }))
}

/// Together the clients say more of their replays than a target remembers. Who comes last keeps its place among all, and loses nothing.
#[test]
fn what_all_clients_say_of_their_replays_is_bounded() {
    let mut cluster = changed(&[(0, 1), (1, 2), (2, 3), (3, 4), (2, 5)], &[]);
    let said = without_manifests(&mut cluster, &[0, 1, 2], |frame| !is_of(frame, 3) && is_replay(frame));
    let report = |cluster: &Cluster| cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
    let of_one = ENTRIES_MAX * (TOUCHED_MAX + 2);
    let mut counts = vec![report(&cluster).listed_object_count];
    for (caller, part) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (2, 0)] {
        let mut frame = filling(&cluster, caller, part);
        frame.session = said[caller].session;
        assert_eq!(hand_in(&mut cluster, frame), [(Status::Ok, base::Xid(900))]);
        counts.push(report(&cluster).listed_object_count);
    }
    let expected: Vec<usize> = (0..8).map(|parts| counts[0] + parts * of_one).collect();
    assert_eq!(counts[..8], expected);
    assert!(expected[7] + of_one > LISTED_OBJECTS_MAX);
    assert_eq!(counts[8], expected[7], "there is no room for the last one");
    assert_eq!(report(&cluster).unlisted_count, 1);
    all_recovered(&mut cluster);
    assert_eq!(replayed(&cluster)[2..], [2, 3, 2]);
    assert_eq!((report(&cluster).unlisted_count, report(&cluster).refused_count), (1, 0));
}

/// A part of what a client has said comes again (its answer was lost, or the session is another one) when the lists are full by then.
#[test]
fn a_manifest_that_is_said_again_when_there_is_no_room_keeps_its_place() {
    let mut cluster = changed(&[(0, 1), (1, 2), (2, 3), (3, 4)], &[]);
    let said = without_manifests(&mut cluster, &[0, 1, 2], |frame| !is_of(frame, 3) && is_replay(frame));
    let report = |cluster: &Cluster| cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
    let of_one = ENTRIES_MAX * (TOUCHED_MAX + 2);
    let hear = |cluster: &mut Cluster, caller: usize, part: usize| {
        let mut frame = filling(cluster, caller, part);
        frame.session = said[caller].session;
        assert_eq!(hand_in(cluster, frame), [(Status::Ok, base::Xid(900))]);
    };
    for (caller, part) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)] {
        hear(&mut cluster, caller, part);
    }
    let full = report(&cluster).listed_object_count;
    assert!(full + of_one > LISTED_OBJECTS_MAX);
    for (caller, part) in [(0, 0), (0, 3), (1, 2)] {
        hear(&mut cluster, caller, part);
    }
    let now = report(&cluster);
    assert_eq!((now.listed_object_count, now.unlisted_count), (full, 0));
    hear(&mut cluster, 1, 3);
    assert_eq!(report(&cluster).unlisted_count, 1, "what is new has no room");
}

/// Replays that come before it is known what their client replays are kept, but not any number of bytes of them.
#[test]
fn what_is_kept_of_replays_that_come_early_is_bounded() {
    for plain in [&[][..], &[0]] {
        let mut cluster = changed(&[(0, 1), (1, 2)], plain);
        let said = Rc::new(RefCell::new(None));
        let saying = Rc::clone(&said);
        cluster.is_lost = Box::new(move |frame| {
            let is_meant = is_of(frame, 0) && (is_manifest(frame) || is_replay(frame));
            if is_meant {
                *saying.borrow_mut() = Some(frame.session);
            }
            is_meant
        });
        restart(&mut cluster);
        cluster.run_for(Duration::from_millis(1500));
        let session = said.borrow().unwrap();
        let remove = MdtRequest::Getattr { fid: fid(1), want: wire::lock::LockWant::default() };
        let early = |cluster: &Cluster, transno: u64| {
            let mut frame = frame_of(cluster, 0, &Request::Mdt(remove.clone()));
            (frame.session, frame.transno, frame.slot) = (session, Transno(transno), 0);
            // Behind nothing that was executed.
            frame.last_committed = Transno(u64::MAX);
            frame.data = bytes::Bytes::from(vec![7; 1 << 20]);
            frame
        };
        let queued =
            |cluster: &Cluster| cluster.core.as_ref().unwrap().recovery_report(cluster.now.time).queued_count;
        let room = QUEUED_REPLAY_BYTES_MAX >> 20;
        let of_others = queued(&cluster);
        for transno in (1000..1000 + 2 * room as u64).rev() {
            let frame = early(&cluster, transno);
            assert_eq!(hand_in(&mut cluster, frame), []);
        }
        let kept = queued(&cluster);
        let its = kept - of_others;
        assert!(its < room && its + 4 > room, "{its}");
        let frame = early(&cluster, 5000);
        assert_eq!(hand_in(&mut cluster, frame), []);
        assert_eq!(queued(&cluster), kept, "the last one comes again");
        if plain.is_empty() {
            all_recovered(&mut cluster);
        }
    }
}

/// The program was put back to one that does not know a request that its clients have sent. That request is lost, and nothing else is.
#[test]
fn a_replay_that_is_not_known_here_is_refused_and_holds_up_nobody() {
    for plain in [&[][..], &[0, 1]] {
        let mut cluster = changed(&[(0, 1), (1, 1), (0, 1)], plain);
        let taken: Rc<RefCell<Option<Frame>>> = Rc::default();
        let taking = Rc::clone(&taken);
        cluster.is_lost = Box::new(move |frame| {
            let mut taken = taking.borrow_mut();
            let is_first = is_of(frame, 0)
                && is_replay(frame)
                && taken.as_ref().is_none_or(|taken| taken.xid == frame.xid);
            if is_first {
                *taken = Some(frame.clone());
            }
            is_first
        });
        restart(&mut cluster);
        cluster.run_for(Duration::from_millis(1500));
        let mut frame = taken.borrow().clone().unwrap();
        frame.body = bytes::Bytes::from_static(&[20, 200]);
        cluster.deliver(frame);
        cluster.run_for(Duration::from_secs(20));
        assert!(!cluster.core.as_ref().unwrap().is_recovering(), "{plain:?}");
        assert_eq!(replayed(&cluster), [1, 0], "{plain:?}");
        let lost: Vec<_> =
            cluster.callers.iter().map(|caller| (caller.lost_replays, caller.evictions)).collect();
        assert_eq!(lost, [(1, 0), (0, 0)]);
        let report = cluster.core.as_ref().unwrap().recovery_report(cluster.now.time);
        assert_eq!((report.refused_count, report.evicted_count), (1, 0));
    }
}

/// However often it has said it, and in whatever order that came.
#[test]
fn what_a_client_has_open_is_looked_at_once_and_in_its_order() {
    const COUNT: u64 = 2000;
    let mut cluster = changed(&[(0, 1), (1, 2)], &[]);
    cluster.partitioned.insert(1);
    cluster.is_lost = Box::new(|frame| is_of(frame, 0) && (is_replay(frame) || is_manifest(frame)));
    restart(&mut cluster);
    cluster.run_for(Duration::from_millis(1500));
    let handle = |number| OpenArgs { handle: OpenHandle(number), read: true, write: false, execute: false };
    for _ in 0..2 {
        for number in (0..COUNT).rev() {
            let reopen = Request::Mdt(MdtRequest::Reopen { fid: fid(3), open: handle(number) });
            let mut frame = frame_of(&cluster, 0, &reopen);
            frame.xid = base::Xid(900 + number);
            assert_eq!(hand_in(&mut cluster, frame), [], "others may have made what it has open");
        }
    }
    let (now, mut out) = (cluster.now, Vec::new());
    cluster.core.as_mut().unwrap().abort_recovery(now, &mut out);
    let executed = out.iter().filter_map(|output| match output {
        CoreOutput::Execute(work) => Some(work.token.xid.0),
        _ => None,
    });
    assert_eq!(executed.collect::<Vec<_>>(), (900..900 + COUNT).collect::<Vec<_>>());
}
