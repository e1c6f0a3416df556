//! Ends of different versions: what both can do is in force, what one cannot do is answered.

use crate::network::{Cluster, TARGET};
use base::{Duration, Endpoint, Epoch, Status, Xid};
use bytes::Bytes;
use rpc::{Import, ImportOutput, ImportState};
use target::{CoreEvent, CoreOutput};
use wire::session::{SessionState, features};
use wire::{ConnectReply, ConnectRequest, Frame, FrameKind, Opcode, Reply, Request};

/// The target hears a frame: what it says at once.
fn hand_in(cluster: &mut Cluster, frame: Frame) -> Vec<CoreOutput> {
    let mut out = Vec::new();
    cluster.core.as_mut().unwrap().on_frame(cluster.now, frame, &mut out);
    out
}

#[test]
fn a_request_that_only_a_newer_version_has_is_not_supported_and_its_session_goes_on() {
    let mut cluster = Cluster::new(7, 1);
    cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    let last = cluster.last_sent[&FrameKind::Request].clone();
    let cases: [(&[u8], u8, Option<u8>); 3] =
        [(&[60, 1], 60, None), (&[20, 200], 20, Some(200)), (&[10, 200, 1, 2], 10, Some(200))];
    for (body, class, operation) in cases {
        for slot in [Frame::NO_SLOT, 3] {
            let frame =
                Frame { body: Bytes::copy_from_slice(body), slot, flags: 0, xid: Xid(1000), ..last.clone() };
            let out = hand_in(&mut cluster, frame.clone());
            let [CoreOutput::Event(event), CoreOutput::Send(answer)] = &out[..] else { panic!("{out:?}") };
            let opcode = Opcode { class, operation };
            assert_eq!(*event, CoreEvent::UnknownRequest { client: last.src.client_id(), opcode });
            assert_eq!((answer.status, answer.xid), (Status::NotSupported, Xid(1000)));
            assert_eq!((answer.session, answer.transno.0), (last.session, 0));
            let out = hand_in(&mut cluster, Frame { session: 99, ..frame });
            let [CoreOutput::Send(answer)] = &out[..] else { panic!("{out:?}") };
            assert_eq!(answer.status, Status::NotConnected, "sessions come first");
        }
    }
    let operation = cluster.submit(0);
    cluster.run_for(Duration::from_secs(1));
    assert!(cluster.callers[0].done.contains_key(&operation));
    assert_eq!(cluster.callers[0].evictions, 0);
}

/// What a caller that says this of itself is answered.
fn connect(versions: (u32, u32), features: u64) -> Result<ConnectReply, Status> {
    // The second caller says nothing of its own.
    let mut cluster = Cluster::new(8, 2);
    cluster.run_for(Duration::from_secs(1));
    let options = cluster.callers[1].import.options().clone();
    let request = Request::Connect(ConnectRequest {
        version: versions.0,
        version_oldest: versions.1,
        features,
        fsname: options.fsname,
        client: options.client,
        incarnation: options.incarnation,
        target_epoch: Epoch::ZERO,
        session: 0,
        nid: options.nid,
        target_uuid: 0,
        starts: wire::Starts::default(),
    });
    let mut frame = Frame::new(FrameKind::Request, options.client.endpoint(), Endpoint::Target(TARGET));
    frame.xid = Xid(1);
    frame.body = request.to_bytes();
    let out = hand_in(&mut cluster, frame);
    cluster.on_core(out);
    cluster.run_for(Duration::from_secs(1));
    let answer = &cluster.last_sent[&FrameKind::Reply];
    match (answer.status, Reply::from_bytes(&answer.body)) {
        (Status::Ok, Ok(Reply::Connected(reply))) => Ok(reply),
        (status, _) => Err(status),
    }
}

#[test]
fn both_ends_speak_the_lower_version_with_the_features_that_both_have() {
    let newer = wire::VERSION + 1;
    let with_unknown = connect((newer, wire::VERSION_OLDEST), u64::MAX).unwrap();
    let of_mdt = features::ALL & !features::OBJECT_MANIFESTS;
    assert_eq!((with_unknown.version, with_unknown.features), (wire::VERSION, of_mdt));
    let without = connect((wire::VERSION, wire::VERSION_OLDEST), 0).unwrap();
    assert_eq!((without.version, without.features), (wire::VERSION, 0));
    assert_eq!(connect((newer, newer), features::ALL), Err(Status::VersionMismatch));
    assert_eq!(connect((0, 0), features::ALL), Err(Status::VersionMismatch));
}

/// A target that answers with a version of its own choice.
fn state_after_reply(version: u32, features: u64) -> ImportState {
    let cluster = Cluster::new(9, 1);
    let mut import = Import::new(cluster.callers[0].import.options().clone());
    let mut out = Vec::new();
    import.connect(cluster.now, &mut out);
    let Some(ImportOutput::Send(asked)) = out.pop() else { panic!("it connects") };
    let mut answer = Frame::new(FrameKind::Reply, asked.dst, asked.src);
    answer.xid = asked.xid;
    let reply = ConnectReply {
        version,
        features,
        session: 5,
        state: SessionState::New,
        target_epoch: Epoch::ZERO,
        target_uuid: 7,
        slot_count: 16,
        server_time_ns: 0,
        lease_ms: 1000,
        software: String::new(),
        started_at: base::WallTime::default(),
    };
    answer.body = Reply::Connected(reply).to_bytes();
    import.on_frame(cluster.now, answer, &mut out);
    import.state()
}

#[test]
fn an_answer_in_a_version_that_was_not_offered_is_refused() {
    assert_eq!(
        state_after_reply(wire::VERSION, u64::MAX),
        ImportState::Active,
        "unknown features are ignored"
    );
    let refused = ImportState::Refused(Status::VersionMismatch);
    assert_eq!(state_after_reply(wire::VERSION + 1, features::ALL), refused);
    assert_eq!(state_after_reply(wire::VERSION_OLDEST - 1, features::ALL), refused);
}
