//! Servers of different versions among each other: MDTs with MDTs and with OSTs.

use super::alone::play_to;
use super::newer_servers::{Asked, NewerServers};
use super::played::{MDT_COUNT, OST_COUNT};
use super::server_sessions::SERVER_SESSIONS;
use super::sessions::Session;
use super::tap::Tap;
use super::tape::{Tape, What};
use super::{VERSION, add_mounts, assert_written_as_recorded, fixtures, read_tapes, write_tape};
use crate::world::World;
use base::{Endpoint, Status, TargetId, TargetKind};
use std::collections::BTreeSet;
use wire::ost::AdoptStep;
use wire::{Frame, FrameKind, OstRequest, PeerRequest, Request};

/// Beside the recordings of clients and targets.
const FOLDER: &str = "servers";

fn world(session: &Session, tap: Tap) -> World {
    let mut world = World::with_servers(MDT_COUNT, OST_COUNT, false, tap);
    add_mounts(&mut world, session);
    world.run();
    world
}

fn record(session: &Session) -> Tape {
    let mut world = world(session, Tap::RecordingServers(Vec::new()));
    (session.run)(&mut world);
    let Tap::RecordingServers(moments) = std::mem::replace(&mut world.tap, Tap::Open) else {
        panic!("it records")
    };
    let (version, session_name) = (VERSION.to_owned(), session.name.to_owned());
    Tape { version, session: session_name, mount_count: session.mount_count, moments }
}

fn targets() -> impl Iterator<Item = TargetId> {
    (0..MDT_COUNT).map(TargetId::mdt).chain((0..OST_COUNT).map(TargetId::ost))
}

/// All recordings of all versions, and their bytes.
fn recorded() -> Vec<(Tape, Vec<u8>)> {
    read_tapes(FOLDER)
}

fn is_between(frame: &Frame) -> bool {
    matches!((frame.src, frame.dst), (Endpoint::Target(_), Endpoint::Target(_)))
}

#[test]
#[ignore = "writes fixtures; for a version that is to be released"]
fn record_the_server_sessions_of_this_version() {
    for session in SERVER_SESSIONS {
        write_tape(&fixtures().join(VERSION).join(FOLDER), session, record);
    }
}

/// Each target, as who is asked and as who asks.
#[test]
fn each_server_gets_on_with_the_others_of_each_version_as_then() {
    for (tape, _) in recorded() {
        for target in targets() {
            let differences = play_to(&tape, target);
            let (session, version) = (&tape.session, &tape.version);
            assert!(
                differences.is_empty(),
                "{target} in {session} of {version}:\n{}",
                differences.join("\n")
            );
        }
    }
}

/// What is recorded is what is sent: a change of the encoding shows here, and needs another version.
#[test]
fn servers_of_this_version_write_what_was_recorded() {
    assert_written_as_recorded(recorded(), SERVER_SESSIONS);
}

#[test]
fn a_session_of_servers_of_today_plays_back_to_each() {
    for session in SERVER_SESSIONS {
        let tape = record(session);
        assert!(
            tape.frames().filter(|frame| is_between(frame)).count() > 20,
            "{} says something",
            session.name
        );
        for target in targets() {
            assert_eq!(play_to(&tape, target), Vec::<String>::new(), "{target} in {}", session.name);
        }
    }
}

/// What versions could differ in is there: most of what MDTs ask each other and OSTs.
#[test]
fn the_sessions_of_servers_contain_what_they_can_ask() {
    let tapes: Vec<Tape> = SERVER_SESSIONS.iter().map(record).collect();
    let frames = tapes.iter().flat_map(Tape::frames).filter(|frame| is_between(frame));
    let mut asked = BTreeSet::new();
    let mut gave_back = 0;
    for frame in frames {
        match frame.kind {
            FrameKind::Request if frame.body.first() == Some(&50) || frame.body.first() == Some(&30) => {
                asked.insert((frame.body[0], frame.body[1]));
            }
            FrameKind::Reply => {
                let reply = wire::Reply::from_bytes(&frame.body);
                if let Ok(wire::Reply::Peer(wire::PeerReply::HeldBackPart { witnesses, .. })) = reply {
                    gave_back += witnesses.len();
                }
            }
            _ => {}
        }
    }
    let operation = |request: Request| {
        let body = request.to_bytes();
        (body[0], body[1])
    };
    let id = wire::peer::OperationId::before_all(0);
    let fid = base::Fid::ROOT;
    let of_peers = [
        PeerRequest::Prepare { id, parts: vec![], uid: 0, gid: 0, groups: vec![], is_replay: false },
        PeerRequest::Decide { id, is_commit: true },
        PeerRequest::Ask { id },
        PeerRequest::PeekName { parent: fid, name: vec![], epoch: 0, is_replay: false },
        PeerRequest::LockRename { id, is_replay: false },
        PeerRequest::UnlockRename { id },
        PeerRequest::FlockWaits { owners: vec![] },
        PeerRequest::PeekDirectory { fid, epoch: 0, is_replay: false },
        PeerRequest::NewFids { count: 1 },
        PeerRequest::Hold { epoch: 0, items: vec![] },
        PeerRequest::Release { epoch: 0, up_to: id },
        PeerRequest::Forget { epoch: 0 },
        PeerRequest::IsComing { fid, is_replay: false },
        PeerRequest::PeekWhole { fid, epoch: 0 },
        PeerRequest::PeekFile { fid, epoch: 0 },
        PeerRequest::PeekParent { fid, epoch: 0, is_replay: false },
        PeerRequest::TakeBackPart { epoch: 0, after: None },
    ];
    let of_osts = [
        OstRequest::Destroy { objects: vec![] },
        OstRequest::Adopt { objects: vec![], to: fid, step: AdoptStep::Rows },
        OstRequest::ListObjects { after: None },
        OstRequest::Fence(wire::Life { client: base::ClientId(0), incarnation: 0 }),
    ];
    let wanted = of_peers.map(|it| (format!("{it:?}"), operation(Request::Peer(it)))).into_iter();
    let wanted = wanted.chain(of_osts.map(|it| (format!("{it:?}"), operation(Request::Ost(it)))));
    let missing: Vec<String> =
        wanted.filter(|(_, operation)| !asked.contains(operation)).map(|(name, _)| name).collect();
    assert_eq!(missing, Vec::<String>::new(), "asked: {asked:?}");
    assert!(gave_back > 1, "what was held for an MDT is given back: {gave_back}");
}

/// The canary: what is not as it was is seen, whoever says it.
#[test]
fn another_answer_of_a_server_and_another_question_are_noticed() {
    let tape = record(&SERVER_SESSIONS[0]);
    let is_prepare = |frame: &Frame| {
        let request = Request::from_bytes(&frame.body);
        frame.kind == FrameKind::Request && matches!(request, Ok(Request::Peer(PeerRequest::Prepare { .. })))
    };
    let asked = tape.frames().find(|frame| is_prepare(frame)).expect("something is prepared").clone();
    let (Endpoint::Target(from), Endpoint::Target(to)) = (asked.src, asked.dst) else { panic!("two MDTs") };
    let changed = |change: &dyn Fn(&mut Frame)| {
        let mut tape = tape.clone();
        for moment in &mut tape.moments {
            if let What::Frame(frame) = &mut moment.what {
                change(frame);
            }
        }
        tape
    };
    let is_answer =
        |frame: &Frame| frame.kind == FrameKind::Reply && (frame.dst, frame.xid) == (asked.src, asked.xid);
    let refused = changed(&|frame| {
        if is_answer(frame) && frame.src == asked.dst {
            (frame.status, frame.body) = (Status::NoSpace, bytes::Bytes::new());
        }
    });
    let of_asked = play_to(&refused, to).join("\n");
    assert!(of_asked.contains("then: ") && of_asked.contains("NoSpace"), "{of_asked}");
    // Who is refused tells its client so, and decides nothing.
    let of_asker = play_to(&refused, from).join("\n");
    assert!(of_asker.contains("now: ") && of_asker.contains("NoSpace"), "{of_asker}");
    // One bit of what is asked: the uid in the name of the operation, say.
    let flipped = changed(&|frame| {
        if is_prepare(frame) && frame.xid == asked.xid && frame.src == asked.src {
            let flip = |(at, byte): (usize, &u8)| if at == 2 + 10 { byte ^ 64 } else { *byte };
            frame.body = frame.body.iter().enumerate().map(flip).collect();
        }
    });
    let lines = play_to(&flipped, from);
    let has = |when: &str| lines.iter().any(|line| line.starts_with(when) && line.contains("Prepare"));
    assert!(has("then: ") && has("now: "), "{lines:?}");
}

/// Longer headers and bodies, a feature and a flag that nobody knows change nothing, and what nobody can do is refused beside the
/// work, which goes on.
#[test]
fn servers_of_the_next_version_and_of_this_one_work_together() {
    for session in SERVER_SESSIONS {
        let mut world = world(session, Tap::NewerServers(Box::default()));
        (session.run)(&mut world);
        let Tap::NewerServers(newer) = &world.tap else { panic!("it stays") };
        check_answers(newer, session.name);
    }
}

fn check_answers(newer: &NewerServers, session: &str) {
    let NewerServers { answers, .. } = newer;
    let count = |of, asked, status| answers.get(&(of, asked, status)).copied().unwrap_or_default();
    let expected = [
        (TargetKind::Mdt, Asked::Operation, Status::NotSupported),
        (TargetKind::Mdt, Asked::StreamedPart, Status::ProtocolError),
        (TargetKind::Ost, Asked::Operation, Status::NotSupported),
    ];
    for (of, asked, status) in expected {
        assert!(count(of, asked, status) > 0, "{session}: {answers:?}");
    }
    // One that was restarted knows no session of before.
    let is_expected = |(of, asked, status): &(TargetKind, Asked, Status)| {
        *status == Status::NotConnected || expected.contains(&(*of, *asked, *status))
    };
    assert!(answers.keys().all(is_expected), "{session}: {answers:?}");
}
