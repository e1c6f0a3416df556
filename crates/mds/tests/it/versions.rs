//! MDTs of different versions: what one of them cannot read is refused by a line, and nothing else suffers from it.

use crate::cross::mkdir_on;
use crate::harness::{OtherVersion, World};
use crate::streams::{GATHERED, all_are_quiet, settled};
use base::{Endpoint, Fid, Status, TargetId};
use bytes::Bytes;
use mds::MdsEvent;
use target::CoreEvent;
use wire::peer::{Item, OperationId, Part};
use wire::{PeerRequest, Reply, Request};

fn is_hold(request: &Request) -> bool {
    matches!(request, Request::Peer(PeerRequest::Hold { .. }))
}

/// What the MDTs have left undone since this was asked last, as an operator reads it.
fn take_failures(world: &mut World) -> Vec<(&'static str, Status)> {
    let failure = |event: &MdsEvent| match event {
        MdsEvent::Failed { what, status, .. } => Some((*what, *status)),
        _ => None,
    };
    let failures = world.events.iter().filter_map(failure).collect();
    world.events.clear();
    failures
}

/// An MDT that was put back to an older version, say: what it was to do is kept until it can, and said once.
#[test]
fn parts_that_an_mdt_does_not_understand_are_kept_until_it_does() {
    for status in [Status::NotSupported, Status::ProtocolError] {
        let mut world = settled();
        world.events.clear();
        let older = OtherVersion { mdt: 1, is_it: is_hold, status, body: Bytes::new() };
        world.other_version = Some(older.clone());
        let dirs = ["d", "e"].map(|name| mkdir_on(&mut world, Fid::ROOT, name, 1));
        world.pass_seconds(25);
        let failures = take_failures(&mut world);
        assert!(matches!(failures[..], [(what, of)] if what.contains("does not understand") && of == status));
        let sent_count = world.take_asked(0, 1).into_iter().filter(is_hold).count();
        assert!((2..=4).contains(&sent_count), "{sent_count} messages: it says so for each");
        // Neither of the two is gone by a restart of the one that keeps them.
        world.kill(0);
        world.pass_seconds(5);
        assert_eq!(take_failures(&mut world).len(), 1);
        world.other_version = None;
        world.kill(1);
        world.pass_seconds(5);
        assert_eq!(take_failures(&mut world), []);
        for (name, dir) in ["d", "e"].into_iter().zip(dirs) {
            assert_eq!(world.lookup(0, Fid::ROOT, name), Some(dir));
            assert_eq!(world.getattr(0, dir).unwrap().link_count, 2);
        }
        assert!(all_are_quiet(&world), "{}", world.under_way());
        world.check_consistent();
        // Another time is another line.
        world.other_version = Some(older);
        mkdir_on(&mut world, Fid::ROOT, "f", 1);
        world.pass_seconds(2);
        assert_eq!(take_failures(&mut world).len(), 1);
    }
}

/// A newer version had executed them before, and the witnesses hold what it was asked.
#[test]
fn witnesses_that_cannot_be_read_are_told_of_and_the_mdt_recovers() {
    let mut world = settled();
    world.servers[0].is_synced = false;
    mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.pass(GATHERED);
    world.servers[0].is_synced = true;
    world.set_cut(0, 0, true);
    // One witness, which begins with zeros and ends with an operation that nobody knows.
    let mut body = vec![50, 14, 1, 0, 0, 0];
    body.extend([0; 16 + 2 + 8 + 8]);
    body.push(250);
    let is_it = |request: &Request| matches!(request, Request::Peer(PeerRequest::TakeBackPart { .. }));
    world.other_version = Some(OtherVersion { mdt: 1, is_it, status: Status::Ok, body: body.into() });
    world.events.clear();
    world.crash(0, 0);
    world.abort_recovery(0);
    world.pass_seconds(5);
    let failures = take_failures(&mut world);
    assert!(matches!(failures[..], [(what, Status::ProtocolError)] if what.contains("cannot be read")));
    world.set_cut(0, 0, false);
    world.pass_seconds(5);
    let dir = mkdir_on(&mut world, Fid::ROOT, "e", 1);
    world.pass_seconds(2);
    assert_eq!(world.getattr(0, dir).unwrap().link_count, 2);
    assert!(all_are_quiet(&world), "{}", world.under_way());
    world.check_consistent();
}

/// An operation and a part that only the next version knows.
#[test]
fn what_only_a_newer_mdt_knows_is_refused_by_a_line_and_its_session_goes_on() {
    const PEER: usize = 1;
    let mut world = World::new(1, 1);
    let newer = Endpoint::Target(TargetId::mdt(1)).client_id();
    world.add_client(newer);
    let previous = OperationId::before_all(1);
    let hold = |number, parts| {
        let item = Item { id: OperationId { epoch: 5, number, ..previous }, previous, parts, witness: None };
        PeerRequest::Hold { epoch: 5, items: vec![item] }
    };
    // It stands behind class, operation, epoch, a length, two names of operations and a length.
    let part = Part::RemoveDirectory { fid: Fid::ROOT, must_own: false };
    let mut unknown_part = Request::Peer(hold(1, vec![part])).to_bytes().to_vec();
    assert_eq!(std::mem::replace(&mut unknown_part[1 + 1 + 8 + 4 + 18 + 18 + 4], 200), 2);
    // The session.
    assert_eq!(world.ask_as_peer(PEER, 0, PeerRequest::Forget { epoch: 5 }), Reply::Done);
    let cases: [(Vec<u8>, Status); 2] =
        [(vec![50, 200, 1, 2], Status::NotSupported), (unknown_part, Status::ProtocolError)];
    for (number, (body, status)) in cases.into_iter().enumerate() {
        world.events.clear();
        world.body_instead = Some(body.into());
        assert_eq!(world.try_as_peer(PEER, 0, PeerRequest::Forget { epoch: 5 }), Err(status));
        let is_told = match &world.events[..] {
            [MdsEvent::Core(CoreEvent::UnknownRequest { client, opcode })] => {
                *client == newer && opcode.to_string() == "50.200"
            }
            [MdsEvent::Core(CoreEvent::ProtocolError { client, what })] => {
                *client == newer && *what == "a request cannot be read"
            }
            _ => false,
        };
        assert!(is_told, "{:?}", world.events);
        let next = hold(number as u64 + 1, Vec::new());
        assert_eq!(world.ask_as_peer(PEER, 0, next), Reply::Done, "the session goes on");
        assert_eq!(world.clients[PEER].evictions, 0);
    }
    let dir = world.mkdir(Fid::ROOT, "d");
    assert_eq!(world.lookup(0, Fid::ROOT, "d"), Some(dir));
}
