//! Directories that come in a stream: who looks for them where they are not, not yet, or not any more.

use crate::cross::mkdir_on;
use crate::harness::{ROOT, World, new};
use base::{Attr, ClientId, Duration, Endpoint, Fid, Machine, Status, TargetId, Transno, Xid};
use mds::{MdsEvent, rows};
use store::{Batch, MetaStore};
use wire::mdt::NewNode;
use wire::peer::{Item, OperationId, Part, Witness};
use wire::{MdtRequest, PeerReply, PeerRequest, Reply, Request};

/// After so long directories that were made have left for the MDT where they are to be.
pub const GATHERED: Duration = Duration::from_millis(2);

fn link(from: u16, to: u16) -> (Endpoint, Endpoint) {
    (Endpoint::Target(TargetId::mdt(from)), Endpoint::Target(TargetId::mdt(to)))
}

fn getattr(fid: Fid) -> MdtRequest {
    MdtRequest::Getattr { fid, want: Default::default() }
}

/// Seed 5743: "it is on its way" can be older than its execution and its removal, and nobody waits for ever for what was there.
#[test]
fn a_directory_that_came_and_went_while_its_coordinator_was_asked_is_absent() {
    let mut world = World::new(2, 2);
    mkdir_on(&mut world, Fid::ROOT, "first", 1);
    for client in [0, 1] {
        for mdt in [0, 1] {
            let _ = world.ask(client, mdt, getattr(Fid::ROOT));
        }
    }
    // What the coordinator sends is lost, so the directory is neither held nor there when it is looked for.
    world.cut.insert(link(0, 1));
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let looking = world.start(1, 1, getattr(dir));
    assert_eq!(world.result(1, looking), None, "the coordinator is asked");
    // Its answers come late; its requests, with the directory, do not.
    world.held = Some((0, 1));
    world.cut.clear();
    world.pass_seconds(8);
    assert_eq!(world.result(1, looking), None, "no answer has come");
    world.rmdir(Fid::ROOT, "d").unwrap();
    assert!(world.let_go() > 0);
    world.pass_seconds(1);
    assert_eq!(world.result(1, looking), Some(Err(Status::Stale)));
    world.check_consistent();
}

/// Seed 783 of three clients: replays that a participant gets partly as prepared parts and partly in the stream have made what it held for
/// the incarnation before, and the release of the later ones is no release of that.
#[test]
fn a_release_executes_nothing_that_a_former_incarnation_has_sent() {
    let mut world = World::new(2, 1);
    mkdir_on(&mut world, Fid::ROOT, "first", 1);
    world.servers[0].is_synced = false;
    let dirs = ["prepared", "streamed"].map(|name| mkdir_on(&mut world, Fid::ROOT, name, 1));
    world.pass(GATHERED);
    // Until it is answered, the new incarnation does not know that the other MDT takes streams.
    world.cut.insert(link(1, 0));
    world.crash(0, 0);
    world.cut.clear();
    world.pass_seconds(3);
    assert!(!world.servers[1].mds.is_quiet(), "it has prepared the one and holds the other");
    world.servers[0].is_synced = true;
    world.pass_seconds(5);
    let is_failure = |event: &&MdsEvent| matches!(event, MdsEvent::Failed { .. });
    assert_eq!(world.events.iter().find(is_failure), None);
    assert!(world.servers[1].mds.is_quiet());
    for dir in dirs {
        assert_eq!(world.getattr(0, dir).unwrap().link_count, 2);
    }
    world.check_consistent();
}

fn make_directory(attr: Attr) -> Part {
    Part::MakeDirectory {
        attr,
        parent: Fid::ROOT,
        name: "d".into(),
        xattrs: Vec::new(),
        default_layout: None,
    }
}

pub fn prepare_count(world: &World, mdt: usize) -> usize {
    world.servers[mdt].store.rows().keys().filter(|(table, _)| *table == rows::PREPARES).count()
}

/// The replay of what a coordinator had prepared, and lost, comes in its stream where the former incarnation did not know that this MDT
/// takes streams. With both its directory was there and was to be made, and the MDT could not be opened any more.
#[test]
fn what_was_prepared_for_a_directory_is_taken_back_when_that_comes_in_the_stream() {
    const PEER: usize = 1;
    let mut world = World::new(1, 1);
    world.add_client(Endpoint::Target(TargetId::mdt(1)).client_id());
    let id = |epoch| OperationId { mdt_index: 1, epoch, number: 1 };
    let given = world.ask_as_peer(PEER, 0, PeerRequest::NewFids { count: 1 });
    let Reply::Peer(PeerReply::NewFids { first: fid, .. }) = given else { panic!("{given:?}") };
    let attr = Attr { fid, ..world.getattr(0, Fid::ROOT).unwrap() };
    let parts = vec![make_directory(attr)];
    let prepare = PeerRequest::Prepare {
        id: id(5),
        parts: parts.clone(),
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        is_replay: false,
    };
    let prepared = world.ask_as_peer(PEER, 0, prepare);
    assert!(matches!(prepared, Reply::Peer(PeerReply::Prepared { .. })), "{prepared:?}");
    assert_eq!(prepare_count(&world, 0), 1);
    let looking = world.start(0, 0, getattr(fid));
    assert_eq!(world.result(0, looking), None, "it is frozen");
    // The next incarnation of the coordinator.
    let item = Item { id: id(6), previous: OperationId::before_all(1), parts, witness: None };
    assert_eq!(world.ask_as_peer(PEER, 0, PeerRequest::Hold { epoch: 6, items: vec![item] }), Reply::Done);
    assert_eq!(world.ask_as_peer(PEER, 0, PeerRequest::Release { epoch: 6, up_to: id(6) }), Reply::Done);
    assert_eq!(prepare_count(&world, 0), 0);
    assert!(matches!(world.result(0, looking), Some(Ok(_))), "and is there");
    assert!(world.tamper(0, |_| ()), "it opens again");
}

/// The second MDT starts anew, with a part of an operation of the first one that an earlier incarnation has prepared.
fn start_with_prepared(world: &mut World, part: Part) {
    let asker = rows::Asker { uid: 0, gid: 0, groups: Vec::new() };
    let row = rows::encode(&rows::Prepare { parts: vec![part], asker });
    let id = OperationId { mdt_index: 0, epoch: 1, number: 1000 };
    let is_started = world.tamper(1, |store| {
        let mut batch = Batch::new();
        batch.put(rows::PREPARES, &rows::operation_key(id), &row);
        store.apply(store.applied().next(), &batch).unwrap();
    });
    assert!(is_started);
}

/// What such an MDT has left, from before that was taken back.
#[test]
fn an_mdt_opens_with_what_was_prepared_for_a_directory_that_is_there_and_keeps_the_directory() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let attr = world.getattr(0, dir).unwrap();
    start_with_prepared(&mut world, make_directory(attr));
    assert_eq!(prepare_count(&world, 1), 0);
    world.pass_seconds(3);
    let is_told = |event: &MdsEvent| {
        *event
            == MdsEvent::Failed {
                what: "a directory that is there had been prepared too, and that was forgotten",
                fid: dir,
                status: Status::VersionConflict,
            }
    };
    assert_eq!(world.events.iter().filter(|event| is_told(event)).count(), 1);
    assert_eq!(world.getattr(0, dir).unwrap().link_count, 2);
    world.rmdir(Fid::ROOT, "d").unwrap();
    world.check_consistent();
}

/// A client that replays what it cannot have done takes away what others have prepared to change. That is damage of one operation, which
/// was decided against or is told of each time, and no reason not to start.
#[test]
fn an_mdt_opens_with_what_was_prepared_and_cannot_be_executed() {
    let mut world = World::new(2, 1);
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let file = world.mkfile(dir, "f");
    let gone = Fid { oid: 77_777, ..file };
    let part = Part::DropLink { fid: gone, parent: Fid::ROOT, name: b"name".to_vec(), must_own: false };
    start_with_prepared(&mut world, part);
    world.pass_seconds(3);
    let what = "an operation that was prepared cannot be executed any more";
    let told = MdsEvent::Failed { what, fid: gone, status: Status::Corrupt };
    assert_eq!(world.events.iter().filter(|event| **event == told).count(), 1);
    assert_eq!(world.names(dir), ["f"]);
    world.pass_seconds(10);
    assert_eq!(prepare_count(&world, 1), 0, "its coordinator knows nothing of it");
    world.unlink(dir, "f").unwrap();
    world.check_consistent();
}

/// Two MDTs, of which the first has FIDs of the second and has nothing left to do.
pub fn settled() -> World {
    let mut world = World::new(2, 2);
    mkdir_on(&mut world, Fid::ROOT, "first", 1);
    for client in [0, 1] {
        for mdt in [0, 1] {
            let _ = world.ask(client, mdt, getattr(Fid::ROOT));
        }
    }
    world.pass_seconds(3);
    assert!(world.servers.iter().all(|server| server.mds.is_quiet()));
    world.take_asked(0, 1);
    world.take_asked(1, 0);
    world
}

/// How many items each message of the first MDT to the second has had.
fn held_counts(world: &mut World) -> Vec<usize> {
    let count = |request| match request {
        Request::Peer(PeerRequest::Hold { items, .. }) => Some(items.len()),
        _ => None,
    };
    world.take_asked(0, 1).into_iter().filter_map(count).collect()
}

/// A message for each directory cost the one process of a cluster more than the directory.
#[test]
fn directories_that_nobody_looks_for_travel_together() {
    let mut world = settled();
    world.servers[0].is_synced = false;
    for number in 0..80 {
        mkdir_on(&mut world, Fid::ROOT, &format!("d{number}"), 1);
    }
    assert_eq!(held_counts(&mut world), [32, 32]);
    world.pass(Duration::from_millis(1));
    assert_eq!(held_counts(&mut world), [0; 0], "more may come");
    world.pass(Duration::from_millis(1));
    assert_eq!(held_counts(&mut world), [16], "they do not wait for more for long");
    world.servers[0].is_synced = true;
    world.pass_seconds(3);
    assert!(world.servers.iter().all(|server| server.mds.is_quiet()));
    // And one that releases all of them.
    let is_about_items = |request: &Request| {
        matches!(request, Request::Peer(PeerRequest::Hold { .. } | PeerRequest::Release { .. }))
    };
    let asked = world.take_asked(0, 1);
    assert_eq!(asked.iter().filter(|request| is_about_items(request)).count(), 1, "{asked:?}");
    world.check_consistent();
}

#[test]
fn a_directory_that_somebody_looks_for_leaves_at_once() {
    let mut world = settled();
    world.servers[0].is_synced = false;
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    assert_eq!(held_counts(&mut world), [0; 0]);
    let looking = world.start(1, 1, getattr(dir));
    assert_eq!(held_counts(&mut world), [1], "no time has passed");
    assert_eq!(world.result(1, looking), None, "it is not durable where it was made");
    world.servers[0].is_synced = true;
    world.run();
    assert!(matches!(world.result(1, looking), Some(Ok(_))));
    world.check_consistent();
}

/// Only so many releases are under way, and each is answered when the participant syncs, once a second: who looked at directories that he
/// had just made saw four a second.
#[test]
fn who_looks_for_a_directory_does_not_wait_for_those_before_it_to_be_durable() {
    let mut world = settled();
    world.servers[1].is_synced = false;
    for number in 0..20 {
        let dir = mkdir_on(&mut world, Fid::ROOT, &format!("d{number}"), 1);
        let looking = world.start(1, 1, getattr(dir));
        assert!(matches!(world.result(1, looking), Some(Ok(_))), "the {number}th");
    }
    world.servers[1].is_synced = true;
    world.pass_seconds(3);
    assert!(world.servers.iter().all(|server| server.mds.is_quiet()));
    world.check_consistent();
}

/// An MDT that is restarted while the management server is away knows no other one yet, and tries for a while in vain.
#[test]
fn what_was_streamed_before_a_restart_is_released_when_the_configuration_has_come() {
    let mut world = settled();
    world.cut.insert(link(0, 1));
    mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.pass_seconds(1);
    world.is_config_late = true;
    world.kill(0);
    world.pass_seconds(5);
    world.cut.clear();
    world.configure(0);
    world.pass_seconds(10);
    assert!(world.servers.iter().all(|server| server.mds.is_quiet()));
    world.check_consistent();
}

/// What coordinator and client have lost is given back by the other MDT as soon as it has been told.
#[test]
fn an_mdt_is_told_of_its_directories_though_nobody_looks_for_them() {
    let mut world = settled();
    world.servers[0].is_synced = false;
    mkdir_on(&mut world, Fid::ROOT, "d", 1);
    let due = world.servers[0].mds.next_deadline().unwrap();
    assert!(due <= world.now.time.after(GATHERED), "{due:?}");
    world.pass(GATHERED);
    assert_eq!(held_counts(&mut world), [1]);
}

pub fn all_are_quiet(world: &World) -> bool {
    world.servers.iter().all(|server| server.mds.is_quiet())
}

/// An ACL of a directory with so many users, for what is made in it: it gets it twice.
fn set_default_acl(world: &mut World, dir: Fid, user_count: u32) {
    const NOBODY: u32 = u32::MAX;
    let users = (1..=user_count).map(|id| (0x02, 7, id));
    let entries = [(0x01, 7, NOBODY)].into_iter().chain(users);
    let entries = entries.chain([(0x04, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 5, NOBODY)]);
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&u16::to_le_bytes(tag));
        value.extend_from_slice(&u16::to_le_bytes(permissions));
        value.extend_from_slice(&u32::to_le_bytes(id));
    }
    let name = b"system.posix_acl_default".to_vec();
    let request = MdtRequest::Setxattr { fid: dir, name, value, flags: 0, creds: ROOT };
    world.ask(0, dir.mdt_index().unwrap(), request).unwrap();
}

/// 40 of 32 KiB are more than a message and more than a transaction: the server ended, each time that it was started; or the other MDT could not
/// execute them, nor anything that came after.
#[test]
fn directories_with_long_acls_go_in_several_messages_and_transactions() {
    let mut world = settled();
    let dir = world.mkdir(Fid::ROOT, "dir");
    set_default_acl(&mut world, dir, 2000);
    for is_resent in [false, true] {
        world.servers[0].is_synced = false;
        if is_resent {
            world.cut.insert(link(0, 1));
        }
        for number in 0..100 {
            mkdir_on(&mut world, dir, &format!("d{number}{is_resent}"), 1);
        }
        world.pass(GATHERED);
        if is_resent {
            world.cut.clear();
            world.pass_seconds(8);
            world.kill(0);
        }
        world.servers[0].is_synced = true;
        world.pass_seconds(20);
        assert!(all_are_quiet(&world), "{}", world.under_way());
    }
    assert!(held_counts(&mut world).iter().all(|count| *count <= 16));
    world.check_consistent();
}

/// More than an answer to who asks for them all.
#[test]
fn what_is_held_for_an_mdt_is_given_back_in_parts() {
    let mut world = settled();
    world.servers[0].is_synced = false;
    for number in 0..300 {
        let mut request = new(Fid::ROOT, &format!("d{number}"), NewNode::Directory);
        request.mdt_index = Some(1);
        request.creds.groups = Some(vec![7; 1100]);
        world.create(request).unwrap();
    }
    world.pass(GATHERED);
    let name_count = world.name_count();
    world.servers[0].is_synced = true;
    world.set_cut(0, 0, true);
    world.take_asked(0, 1);
    world.crash(0, 0);
    assert_eq!(world.name_count(), name_count - 300);
    let is_part = |request: &Request| matches!(request, Request::Peer(PeerRequest::TakeBackPart { .. }));
    assert_eq!(world.take_asked(0, 1).into_iter().filter(is_part).count(), 3);
    world.abort_recovery(0);
    world.pass_seconds(5);
    assert_eq!(world.name_count(), name_count);
    assert!(all_are_quiet(&world), "{}", world.under_way());
    world.check_consistent();
}

/// An MDT of a version that asks for all at once gets as many as an answer holds.
#[test]
fn who_knows_no_parts_gets_as_much_as_an_answer_holds() {
    const PEER: usize = 1;
    let mut world = World::new(1, 1);
    world.add_client(Endpoint::Target(TargetId::mdt(1)).client_id());
    let id = |number| OperationId { mdt_index: 1, epoch: 5, number };
    let mut request = new(Fid::ROOT, "d", NewNode::Directory);
    request.creds.groups = Some(vec![7; 50_000]);
    for number in 1..=5 {
        let witness = Witness {
            client: ClientId(7),
            slot: 0,
            xid: Xid(number),
            transno: Transno(number),
            request: MdtRequest::Create(request.clone()),
        };
        let previous = id(number - 1);
        let item = Item { id: id(number), previous, parts: Vec::new(), witness: Some(Box::new(witness)) };
        assert_eq!(
            world.ask_as_peer(PEER, 0, PeerRequest::Hold { epoch: 5, items: vec![item] }),
            Reply::Done
        );
    }
    let whole = world.ask_as_peer(PEER, 0, PeerRequest::TakeBack { epoch: 6 });
    let Reply::Peer(PeerReply::HeldBack { witnesses }) = whole else { panic!("{whole:?}") };
    assert_eq!(witnesses.len(), 2);
    let (mut after, mut given) = (None, Vec::new());
    loop {
        let part = world.ask_as_peer(PEER, 0, PeerRequest::TakeBackPart { epoch: 6, after });
        let Reply::Peer(PeerReply::HeldBackPart { witnesses, next }) = part else { panic!("{part:?}") };
        given.extend(witnesses.into_iter().map(|witness| witness.xid.0));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(given, [1, 2, 3, 4, 5]);
}

/// The three seconds for the others to answer were over before anybody knew where they are.
#[test]
fn others_are_asked_for_what_they_hold_when_it_is_known_where_they_are() {
    let mut world = settled();
    world.servers[0].is_synced = false;
    let dir = mkdir_on(&mut world, Fid::ROOT, "d", 1);
    world.pass(GATHERED);
    world.servers[0].is_synced = true;
    world.set_cut(0, 0, true);
    world.is_config_late = true;
    world.crash(0, 0);
    world.pass_seconds(5);
    world.configure(0);
    world.run();
    world.abort_recovery(0);
    world.pass_seconds(5);
    assert_eq!(world.lookup(1, Fid::ROOT, "d"), Some(dir));
    assert!(all_are_quiet(&world), "{}", world.under_way());
    world.check_consistent();
}

/// Of whom a restarted MDT would not know that it uses the sequence, it would not ask about a FID of it.
#[test]
fn no_fid_is_given_before_it_is_durable_to_whom() {
    const PEER: usize = 1;
    let mut world = World::new(1, 1);
    world.add_client(Endpoint::Target(TargetId::mdt(1)).client_id());
    // It has a session.
    assert_eq!(world.ask_as_peer(PEER, 0, PeerRequest::Forget { epoch: 1 }), Reply::Done);
    world.servers[0].is_synced = false;
    let ask = |world: &mut World| {
        let request = Request::Peer(PeerRequest::NewFids { count: 1 });
        world.submit(PEER, TargetId::mdt(0), request, rpc::Kind::Plain)
    };
    let asked = [ask(&mut world), ask(&mut world)];
    world.run();
    let are_given =
        |world: &World| asked.map(|of| world.clients[PEER].done.contains_key(&(TargetId::mdt(0), of)));
    assert_eq!(are_given(&world), [false, false]);
    world.servers[0].is_synced = true;
    world.run();
    assert_eq!(are_given(&world), [true, true]);
}

/// One transaction did not take so many, and they came again with each restart.
#[test]
fn very_many_directories_are_forgotten_when_they_have_been_made() {
    let mut world = settled();
    let row = rows::encode(&rows::Streamed { previous: OperationId::before_all(0), parts: Vec::new() });
    // Of an incarnation before all, so they have been executed long ago.
    let id = |number| OperationId { mdt_index: 0, epoch: 0, number };
    world.servers[0].is_synced = false;
    let is_started = world.tamper(0, |store| {
        for first in (0..60_000).step_by(1000) {
            let mut batch = Batch::new();
            for number in first..first + 1000 {
                batch.put(rows::STREAMED, &rows::streamed_key(1, id(1 + number)), &row);
            }
            store.apply(store.applied().next(), &batch).unwrap();
        }
    });
    assert!(is_started);
    world.begin(0);
    world.pass_seconds(1);
    let counts = held_counts(&mut world);
    assert_eq!(counts.into_iter().sum::<usize>(), 60_000, "and none is released");
    world.servers[0].is_synced = true;
    world.pass_seconds(70);
    let left = world.servers[0].store.rows().keys().filter(|(table, _)| *table == rows::STREAMED).count();
    assert_eq!(left, 0);
    let is_failure = |event: &&MdsEvent| matches!(event, MdsEvent::Failed { .. });
    assert_eq!(world.events.iter().find(is_failure), None);
}

/// One message with directories is on its way at a time. So when the replays of the last ones are executed, and the recovery is over with them, the other
/// MDT may have them for the lost incarnation only: a second loss of coordinator and client finds them there.
#[test]
fn what_is_held_is_forgotten_only_when_everything_has_been_sent_again() {
    let mut world = settled();
    world.servers[0].is_synced = false;
    let dirs = ["a", "b", "c"].map(|name| mkdir_on(&mut world, Fid::ROOT, name, 1));
    world.pass(GATHERED);
    assert_eq!(held_counts(&mut world).iter().sum::<usize>(), 3);
    world.set_cut(0, 0, true);
    world.crash(0, 0);
    world.begin(0);
    world.pass_seconds(1);
    let is_asking = |request: &Request| {
        matches!(request, Request::Peer(PeerRequest::TakeBack { .. } | PeerRequest::TakeBackPart { .. }))
    };
    assert!(world.take_asked(0, 1).iter().any(is_asking));
    // The client is back, and what the other MDT answers is late.
    world.held = Some((1, 0));
    world.servers[0].is_synced = true;
    world.set_cut(0, 0, false);
    world.pass_seconds(2);
    let is_forget = |request: &Request| matches!(request, Request::Peer(PeerRequest::Forget { .. }));
    let sent_again = |asked: &[Request]| -> usize {
        let count = |request: &Request| match request {
            Request::Peer(PeerRequest::Hold { items, .. }) => items.len(),
            _ => 0,
        };
        asked.iter().map(count).sum()
    };
    let asked = world.take_asked(0, 1);
    assert!(!world.servers[0].mds.core().is_recovering(), "everything is replayed");
    assert_eq!(sent_again(&asked), 1, "and one message is not answered");
    assert!(!asked.iter().any(is_forget), "{asked:?}");
    world.let_go();
    world.pass_seconds(2);
    let asked = world.take_asked(0, 1);
    let (before, behind) = asked.split_at(asked.iter().position(is_forget).unwrap());
    assert_eq!((sent_again(before), sent_again(behind)), (2, 0), "{asked:?}");
    for dir in dirs {
        assert_eq!(world.getattr(0, dir).unwrap().link_count, 2);
    }
    world.check_consistent();
}
