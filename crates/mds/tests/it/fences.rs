//! Clients that are given up, and the OSTs that end their sessions: each once, and for each a word of its own.

use crate::harness::{ROOT, World, entry_of, fid_of, migrate, new};
use base::{ClientId, Fid, LockId, SetAttr, Status};
use mds::MdsEvent;
use store::MetaStore;
use wire::lock::LockWant;
use wire::mdt::{NewNode, OpenArgs};
use wire::{Life, MdtReply, MdtRequest};

/// Longer than anybody who was given up may come back.
const LONG_ENOUGH: u64 = 31;

struct Scene {
    world: World,
    file: Fid,
    gone: ClientId,
    life: Life,
}

/// Client 1 has a file open for writing.
fn scene() -> Scene {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    world.open(1, file, true);
    world.pass_seconds(2);
    let gone = world.clients[1].id;
    Scene { world, file, gone, life: Life { client: gone, incarnation: 1 } }
}

/// It was given up, an OST is asked and does not answer, and then it is heard again.
fn scene_of_one_who_came_back() -> Scene {
    let mut scene = scene();
    let world = &mut scene.world;
    world.is_ost_late = true;
    world.set_cut(1, 0, true);
    world.depart(0, scene.gone);
    world.pass_seconds(LONG_ENOUGH);
    assert_eq!(world.fenced, [scene.life]);
    world.set_cut(1, 0, false);
    world.pass_seconds(3);
    world.getattr(1, Fid::ROOT).unwrap();
    scene
}

/// It was evicted while it lived, is cut off, and could have come back; the MDT was restarted since, perhaps.
fn scene_of_one_evicted_and_cut_off(is_restarted: bool) -> Scene {
    let mut scene = scene();
    let world = &mut scene.world;
    world.set_cut(1, 0, true);
    world.evict(0, scene.gone);
    if is_restarted {
        world.crash(0, 0);
    }
    world.pass_seconds(2 * LONG_ENOUGH);
    scene
}

fn chmod(fid: Fid) -> MdtRequest {
    let set = SetAttr { permissions: Some(0o700), ..SetAttr::default() };
    MdtRequest::Setattr { fid, set, creds: ROOT, handle: None, want: LockWant::default(), stamp: None }
}

fn may_be_written(world: &mut World, file: Fid) -> bool {
    let request = MdtRequest::Getattr { fid: file, want: LockWant::default() };
    entry_of(&world.ask(0, 0, request).unwrap()).may_be_written
}

/// The lease of client 1 has ended, the OST is asked and does not answer, and then the client is given up for a lock that it does not
/// give back.
#[test]
fn a_fence_that_is_under_way_counts_when_the_lock_is_taken_away_meanwhile() {
    for is_recovering in [false, true] {
        let Scene { mut world, file, gone, life } = scene();
        let want = LockWant { inode: Some(LockId(world.new_id(1))), ..LockWant::default() };
        world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
        world.set_cut(1, 0, true);
        if is_recovering {
            world.kill(0);
        }
        world.is_ost_late = true;
        let changing = world.start(0, 0, chmod(file));
        world.pass_seconds(6);
        world.lapse(0, gone);
        assert_eq!(world.fenced, [life]);
        assert_eq!(world.result(0, changing), None, "the OST has not answered");
        world.pass_seconds(26);
        assert!(world.result(0, changing).unwrap().is_ok());
        assert!(world.events.contains(&MdsEvent::LockTimeout { client: gone }));
        assert_eq!(world.given_up(0), [life]);
        world.pass_seconds(2 * LONG_ENOUGH);
        assert_eq!(world.fenced, [life], "it is asked already");
        assert_eq!(world.given_up(0), [life], "and has not answered");
        world.let_ost_answer(true);
        assert_eq!(world.given_up(0), [], "recovering: {is_recovering}");
    }
}

/// Who was heard after all, and goes then, is not gone since the OSTs were asked.
#[test]
fn a_fence_that_was_under_way_before_a_client_was_heard_does_not_count_for_it() {
    let Scene { mut world, file, gone, life } = scene();
    let want = LockWant { inode: Some(LockId(world.new_id(1))), ..LockWant::default() };
    world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
    world.set_cut(1, 0, true);
    world.is_ost_late = true;
    world.start(0, 0, chmod(file));
    world.pass_seconds(6);
    world.lapse(0, gone);
    assert_eq!(world.fenced, [life]);
    world.clients[1].is_polite = false;
    world.set_cut(1, 0, false);
    world.pass_seconds(3);
    world.set_cut(1, 0, true);
    world.depart(0, gone);
    world.let_ost_answer(true);
    assert_eq!(world.given_up(0), [life], "what it has sent since may be under way");
    world.pass_seconds(LONG_ENOUGH);
    assert_eq!(world.fenced, [life, life]);
    assert_eq!(world.given_up(0), []);
}

/// It was given up, the OST was asked, and it came back before the answer; then it is given up again.
#[test]
fn the_answer_to_an_earlier_fence_is_none_to_a_later_one() {
    let Scene { mut world, file, gone, life } = scene();
    world.is_ost_late = true;
    for count in [1, 2] {
        world.set_cut(1, 0, true);
        world.depart(0, gone);
        world.pass_seconds(LONG_ENOUGH);
        assert_eq!(world.fenced.len(), count);
        if count == 1 {
            world.set_cut(1, 0, false);
            world.pass_seconds(3);
            world.open(1, file, true);
        }
    }
    world.let_ost_answer(false);
    assert_eq!(world.given_up(0), [life], "that was about the first time");
    world.let_ost_answer(true);
    assert_eq!(world.given_up(0), []);
    world.create(new(Fid::ROOT, "g", NewNode::Regular)).unwrap();
}

/// What it sent before it was given up may still be with an OST that has not heard of it.
#[test]
fn who_comes_back_and_goes_before_it_has_opened_anything_again_is_fenced_after_all() {
    let Scene { mut world, gone, life, .. } = scene_of_one_who_came_back();
    assert_eq!(world.given_up(0), [life], "it is there, and has not said what it had open");
    world.set_cut(1, 0, true);
    world.depart(0, gone);
    world.let_ost_answer(false);
    assert_eq!(world.given_up(0), [life], "that question was taken back");
    world.pass_seconds(LONG_ENOUGH);
    assert_eq!(world.fenced, [life, life]);
    world.let_ost_answer(true);
    assert_eq!(world.given_up(0), []);
}

/// It lives, and has opened again what it writes.
#[test]
fn who_comes_back_and_stays_is_fenced_no_more_and_its_files_have_a_size_again() {
    let Scene { mut world, file, life, .. } = scene_of_one_who_came_back();
    assert!(may_be_written(&mut world, file), "what it had sent before may come");
    world.pass_seconds(LONG_ENOUGH);
    assert_eq!(world.given_up(0), []);
    assert!(!may_be_written(&mut world, file));
    assert_eq!(world.fenced, [life]);
}

/// Somebody there reads the file, which says nothing of who writes it there and has not come to open it again.
#[test]
fn who_comes_back_and_opens_a_file_for_reading_has_not_opened_again_what_it_writes() {
    let Scene { mut world, file, .. } = scene_of_one_who_came_back();
    let open = world.open(1, file, false);
    world.close(1, file, open);
    assert!(may_be_written(&mut world, file), "what it had sent before may come");
    let open = world.open(1, file, true);
    world.close(1, file, open);
    assert!(!may_be_written(&mut world, file), "it has sent all of that again");
}

/// Its first word may be its last: nobody is told of its end, but it is heard no more.
#[test]
fn who_comes_back_and_is_silent_is_not_believed_to_have_opened_anything_again() {
    let Scene { mut world, gone, life, .. } = scene();
    world.set_cut(1, 0, true);
    world.depart(0, gone);
    world.pass_seconds(1);
    world.set_cut(1, 0, false);
    world.pass_seconds(3);
    world.getattr(1, Fid::ROOT).unwrap();
    world.set_cut(1, 0, true);
    world.pass_seconds(2 * LONG_ENOUGH);
    assert_eq!(world.given_up(0), [life]);
    assert_eq!(world.fenced, []);
    world.depart(0, gone);
    world.pass_seconds(LONG_ENOUGH);
    assert_eq!(world.fenced, [life]);
    assert_eq!(world.given_up(0), []);
}

/// However it comes to light that a client has died that was evicted while it lived.
#[test]
fn who_is_evicted_by_an_operator_and_dies_before_it_has_heard_of_it_is_fenced() {
    for (end, is_restarted) in [
        ("process", false),
        ("process", true),
        ("lease", false),
        ("lease", true),
        ("newer", false),
        ("newer", true),
    ] {
        let Scene { mut world, file, gone, life } = scene_of_one_evicted_and_cut_off(is_restarted);
        assert_eq!(world.fenced, [], "as far as is known it lives");
        assert_eq!(world.given_up(0), [life]);
        assert!(may_be_written(&mut world, file));
        match end {
            "process" => world.depart(0, gone),
            "lease" => {
                assert_eq!(world.servers[0].mds.unheard(world.now.time), [life]);
                assert!(world.servers[0].mds.is_kept_waiting());
                world.lapse(0, gone);
            }
            _ => {
                world.set_cut(1, 0, false);
                world.remount(1, 2);
                world.getattr(1, Fid::ROOT).unwrap();
            }
        }
        world.pass_seconds(2 * LONG_ENOUGH);
        assert_eq!(world.fenced, [life], "{end}, restarted: {is_restarted}");
        assert_eq!(world.given_up(0), [], "{end}, restarted: {is_restarted}");
        assert!(!may_be_written(&mut world, file), "{end}, restarted: {is_restarted}");
        assert!(!world.servers[0].mds.is_kept_waiting());
    }
}

#[test]
fn who_is_evicted_by_an_operator_and_lives_is_not_fenced() {
    for is_restarted in [false, true] {
        let Scene { mut world, file, life, .. } = scene_of_one_evicted_and_cut_off(is_restarted);
        world.set_cut(1, 0, false);
        assert_eq!(world.getattr(1, file).map(drop), Err(Status::Evicted));
        world.open(1, file, true);
        assert_eq!(world.given_up(0), [life], "it may go yet");
        world.pass_seconds(LONG_ENOUGH);
        assert_eq!(world.given_up(0), []);
        assert_eq!(world.fenced, [], "restarted: {is_restarted}");
        assert_eq!(world.clients[1].evictions, 1);
    }
}

/// A program of before that was known has left a row that does not say who may live.
#[test]
fn of_whom_nothing_more_is_written_down_is_fenced_after_a_restart() {
    let Scene { mut world, gone, life, .. } = scene();
    world.set_cut(1, 0, true);
    world.evict(0, gone);
    assert!(world.tamper(0, |store| {
        let mut batch = store::Batch::new();
        batch.put(mds::rows::STATE, &mds::rows::evicted_key(life), &[]);
        store.apply(store.applied().next(), &batch).unwrap();
    }));
    world.pass_seconds(2 * LONG_ENOUGH);
    assert_eq!(world.fenced, [life]);
    assert_eq!(world.given_up(0), []);
}

/// For as long as it has to come back the file stays. Then whoever moves it need not wait for somebody who is cut off from its MDT, and
/// may be for hours.
#[test]
fn a_file_moves_away_from_an_mdt_that_a_living_writer_has_been_cut_off_from_for_long() {
    let mut world = World::new(2, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let open = world.open(1, file, true);
    world.pass_seconds(2);
    let gone = world.clients[1].id;
    world.set_cut(1, 0, true);
    world.evict(0, gone);
    world.pass_seconds(LONG_ENOUGH - 3);
    assert_eq!(world.ask(0, 1, migrate((Fid::ROOT, "f"), file)).map(drop), Err(Status::TextBusy));
    assert_eq!(world.lookup(0, Fid::ROOT, "f"), Some(file));
    world.pass_seconds(5);
    assert!(may_be_written(&mut world, file));
    let moved = world.ask(0, 1, migrate((Fid::ROOT, "f"), file)).map(|reply| fid_of(&reply)).unwrap();
    assert_eq!(world.fenced, [], "as far as is known it lives");
    assert!(!world.adopted.is_empty(), "what it has sent meets no object of that name any more");
    let request = MdtRequest::Getattr { fid: moved, want: LockWant::default() };
    let entry = entry_of(&world.ask(0, 1, request).unwrap()).clone();
    assert!(!entry.attr.unwrap().is_size_known, "it is to be measured");
    assert!(!entry.may_be_written, "and can be");
    // It comes back, and hears that the file is not where it has written it.
    world.set_cut(1, 0, false);
    world.pass_seconds(3);
    let request = |open| MdtRequest::Reopen { fid: file, open };
    assert!(world.ask(1, 0, request(open)).is_err());
    world.pass_seconds(2 * LONG_ENOUGH);
    assert_eq!(world.given_up(0), []);
    world.check_consistent();
}

/// Others have begun to execute it meanwhile, which keeps nobody from saying what he writes there already; and have measured it.
#[test]
fn who_had_a_file_open_before_others_execute_it_opens_it_again_and_no_size_from_before_counts() {
    for has_begun_anew in [false, true] {
        let Scene { mut world, file, gone, .. } = scene();
        world.ask(0, 0, chmod(file)).unwrap();
        world.set_cut(1, 0, true);
        world.evict(0, gone);
        world.pass_seconds(2 * LONG_ENOUGH);
        world.lapse(0, gone);
        world.pass_seconds(2);
        let other = world.open(0, file, true);
        let MdtReply::Closed { wants_size: Some(write_epoch), .. } = world.close(0, file, other) else {
            panic!("nobody can write it any more")
        };
        let running = OpenArgs { execute: true, ..world.open_args(0, false) };
        let run = |fid, open| MdtRequest::Open {
            fid,
            open,
            creds: ROOT,
            want: LockWant::default(),
            closes: Vec::new(),
            accesses: Vec::new(),
        };
        world.ask(0, 0, run(file, running)).unwrap();
        world.set_cut(1, 0, false);
        assert_eq!(world.getattr(1, file).map(drop), Err(Status::Evicted));
        let again = world.open_args(1, true);
        assert_eq!(world.ask(1, 0, run(file, again)).map(drop), Err(Status::TextBusy));
        if has_begun_anew {
            world.ask(1, 0, MdtRequest::Reopen { fid: file, open: again }).unwrap();
            assert!(may_be_written(&mut world, file));
            world.close(1, file, again);
        }
        let (mtime, stamp) = (world.now.wall, world.now.wall);
        let report =
            MdtRequest::ReportSize { fid: file, write_epoch, size_bytes: 5, block_count: 8, mtime, stamp };
        world.ask(0, 0, report).unwrap();
        assert_eq!(world.getattr(0, file).unwrap().is_size_known, !has_begun_anew, "it was measured before");
    }
}

/// What had been opened again and closed before a power failure is not open after it, whatever is replayed.
#[test]
fn what_was_opened_again_in_service_and_closed_is_closed_after_a_replay() {
    let Scene { mut world, file, .. } = scene();
    world.servers[0].is_synced = false;
    let open = world.open_args(1, true);
    world.ask(1, 0, MdtRequest::Reopen { fid: file, open }).unwrap();
    world.close(1, file, open);
    world.crash(0, 0);
    world.servers[0].is_synced = true;
    world.pass_seconds(LONG_ENOUGH);
    assert!(!world.servers[0].mds.core().is_recovering());
    assert!(!may_be_written(&mut world, file));
}

/// It asks for a session after it was given up, and dies then: nothing is heard of it, and its session stays for five minutes.
#[test]
fn who_comes_back_and_dies_is_fenced_when_its_lease_has_ended() {
    for has_spoken in [false, true] {
        let Scene { mut world, file, gone, life } = scene();
        world.set_cut(1, 0, true);
        world.depart(0, gone);
        world.pass_seconds(1);
        world.set_cut(1, 0, false);
        if has_spoken {
            world.pass_seconds(3);
            world.getattr(1, Fid::ROOT).unwrap();
        } else {
            world.connect_unheard(1, 0);
        }
        assert!(world.servers[0].mds.core().is_connected(gone));
        world.set_cut(1, 0, true);
        world.pass_seconds(LONG_ENOUGH);
        assert_eq!((world.fenced.as_slice(), world.given_up(0)), (&[][..], vec![life]));
        assert_eq!(world.servers[0].mds.unheard(world.now.time), [life]);
        world.is_ost_late = true;
        world.lapse(0, gone);
        assert_eq!(world.fenced, [life], "spoken: {has_spoken}");
        assert_eq!(world.given_up(0), [life], "the OST has not answered");
        world.let_ost_answer(true);
        assert_eq!(world.given_up(0), [], "spoken: {has_spoken}");
        assert!(!world.servers[0].mds.core().is_connected(gone));
        world.pass_seconds(2 * LONG_ENOUGH);
        assert_eq!(world.fenced, [life], "once");
        assert!(!may_be_written(&mut world, file));
    }
}

/// That the next incarnation of a client opens the same file says nothing of what the one before has sent.
#[test]
fn no_size_is_wanted_before_the_fence_because_the_next_incarnation_has_come() {
    let Scene { mut world, file, gone, life } = scene();
    world.is_ost_late = true;
    world.set_cut(1, 0, true);
    world.depart(0, gone);
    world.set_cut(1, 0, false);
    world.remount(1, 2);
    let open = world.open(1, file, true);
    world.close(1, file, open);
    world.pass_seconds(2 * LONG_ENOUGH);
    assert_eq!(world.fenced, [life]);
    let mut is_size_wanted = || {
        let open = world.open(0, file, true);
        let closed = world.close(0, file, open);
        let is_wanted = matches!(closed, MdtReply::Closed { wants_size: Some(_), .. });
        world.let_ost_answer(true);
        is_wanted
    };
    assert!(!is_size_wanted(), "the OST has not answered");
    assert!(is_size_wanted());
    assert_eq!(world.clients[1].evictions, 0);
}
