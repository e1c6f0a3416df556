use super::*;
use crate::handles::Handle;
use crate::machine::ClientOptions;
use base::{ClientId, Now, OpenHandle, Status, WallTime, limits};
use wire::mdt::{FileLock, FlockKind, OpenArgs};

pub(crate) fn state() -> State {
    let now = Now { time: Time(1), wall: WallTime(1) };
    let options = ClientOptions {
        client: ClientId(1),
        incarnation: 1,
        fsname: "test".to_string(),
        nid: "here".to_string(),
        has_inc_epoch: true,
        has_versioned_setattr: true,
        is_mmap_relaxed: false,
        is_statfs_lazy: true,
        access_times: crate::AccessTimes::default(),
        has_kill_privileges: true,
        is_write_back_early: false,
    };
    State::new(now, options)
}

/// A database that locks its records one by one.
#[test]
fn many_advisory_locks_of_a_file_are_told_in_requests_that_are_not_too_long() {
    let mut state = state();
    let fid = Fid::ROOT;
    let lock = |number: u64| FileLock {
        owner: 1,
        pid: 1,
        is_flock: false,
        kind: FlockKind::Write,
        extent: Extent::at(2 * number, 1),
    };
    let held: Vec<FileLock> = (0..44_000).map(lock).collect();
    *state.nodes.get_or_new(fid).data.advisory = crate::advisory::Advisory::holding(held.clone());
    let requests = state.replays(State::mdt(fid));
    let mut told = Vec::new();
    for (request, data) in requests {
        assert!(request.to_bytes().len() <= limits::FRAME_BODY_BYTES_MAX / 2);
        assert!(data.is_empty());
        let Request::Mdt(MdtRequest::ReplayFlocks { fid: of, locks }) = request else {
            panic!("{request:?}")
        };
        assert_eq!(of, fid);
        told.extend(locks);
    }
    assert_eq!(told, held);
}

/// Two have claimed one lock in a recovery, and the other one has come first.
#[test]
fn locks_that_a_restarted_mdt_refuses_are_lost() {
    let mut state = state();
    let fid = Fid::ROOT;
    let lock = |owner: u64, is_flock: bool| {
        let extent = Extent::at(owner, 1);
        FileLock { owner, pid: 1, is_flock, kind: FlockKind::Write, extent }
    };
    let (refused, taken) = (lock(1, true), lock(2, false));
    *state.nodes.get_or_new(fid).data.advisory = crate::advisory::Advisory::holding(vec![refused, taken]);
    for (fh, owner) in [(10, (1, true)), (11, (2, false))] {
        let args = OpenArgs { handle: OpenHandle(fh), read: true, write: true, execute: false };
        state.handles.insert(fh, Handle::new(fid, args));
        state.lock_owners.note(fh, fid, owner);
    }
    let request = Request::Mdt(MdtRequest::ReplayFlocks { fid, locks: vec![refused] });
    state.on_replay_failed(State::mdt(fid), &request, Status::Stale);
    assert!(state.has_lost_flock(10));
    assert!(!state.has_lost_flock(11));
    let advisory = &state.nodes.get_or_new(fid).data.advisory;
    assert!(advisory.has_of(1, true), "the MDT may have it all the same");
    let replayed = state.nodes.get_or_new(fid).data.advisory.replayed().to_vec();
    assert_eq!(replayed, [taken]);
}
