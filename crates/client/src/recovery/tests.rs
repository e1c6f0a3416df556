use super::*;
use crate::machine::ClientOptions;
use base::{ClientId, Now, WallTime, limits};
use wire::mdt::{FileLock, FlockKind};

pub(crate) fn state() -> State {
    let now = Now { time: Time(1), wall: WallTime(1) };
    let options = ClientOptions {
        client: ClientId(1),
        incarnation: 1,
        fsname: "test".to_string(),
        nid: "here".to_string(),
        has_inc_epoch: true,
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
