//! The process of an MDT dies, and not all of its clients are back: who is back goes on, where it does not meet what the others hold.

use crate::harness::{ROOT, World, entry_of, fid_of, migrate, new, rename};
use base::{Extent, Fid, LockId, SetAttr, Status, TargetId};
use store::MemoryHoldings;
use wire::lock::{LockWant, bits};
use wire::mdt::{FileLock, FlockKind, NewNode, OpenArgs};
use wire::{LockGrant, LockMode, LockPolicy, LockRequest, MdtRequest, Request, Resource};

const MDT: TargetId = TargetId::mdt(0);

/// Client 1 has a file open and its inode locked, and is away; client 0 has neither.
struct Scene {
    world: World,
    file: Fid,
    open: OpenArgs,
    lock: LockId,
}

fn chmod(fid: Fid, permissions: u32) -> MdtRequest {
    let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
    MdtRequest::Setattr { fid, set, creds: ROOT, handle: None, want: LockWant::default(), stamp: None }
}

fn scene(mdt_count: u16) -> Scene {
    let mut world = World::new(mdt_count, 2);
    let file = world.mkfile(Fid::ROOT, "theirs");
    let open = world.open(1, file, true);
    let lock = LockId(world.new_id(1));
    let want = LockWant { inode: Some(lock), ..LockWant::default() };
    let reply = world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
    assert_eq!(entry_of(&reply).grants.len(), 1, "it has the lock");
    let mask = match entry_of(&reply).grants[0].policy {
        LockPolicy::Bits(mask) => mask,
        other => panic!("{other:?}"),
    };
    assert_ne!(mask & bits::PERM, 0);
    let grant = LockGrant {
        lock,
        resource: Resource::Inode(file),
        mode: LockMode::Pr,
        policy: LockPolicy::Bits(mask),
    };
    let named = vec![
        Request::Mdt(MdtRequest::Reopen { fid: file, open }),
        Request::Lock(LockRequest::Replay { locks: vec![grant] }),
    ];
    world.clients[1].reopens.insert(MDT, named);
    world.set_cut(1, 0, true);
    Scene { world, file, open, lock }
}

impl Scene {
    fn is_recovering(&self) -> bool {
        self.world.servers[0].mds.core().is_recovering()
    }

    fn early_count(&self) -> u64 {
        self.world.servers[0].mds.core().recovery_report(self.world.now.time).early_count
    }
}

#[test]
fn who_is_back_is_served_where_it_meets_nobody_who_is_away() {
    let mut scene = scene(1);
    scene.world.kill(0);
    let dir = scene.world.mkdir(Fid::ROOT, "d");
    scene.world.mkfile(dir, "f");
    scene.world.rename((dir, "f"), (dir, "g"), 0).unwrap();
    assert_eq!(scene.world.names(dir), ["g"]);
    let changing = scene.world.start(0, 0, chmod(scene.file, 0o600));
    scene.world.pass_seconds(5);
    assert!(scene.is_recovering());
    assert!(scene.early_count() >= 4);
    assert_eq!(scene.world.result(0, changing), None, "somebody who is away may rely on the inode");
    assert!(scene.world.clients[1].callbacks.is_empty());
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(10);
    assert!(!scene.is_recovering());
    assert!(scene.world.result(0, changing).unwrap().is_ok());
    assert!(scene.world.clients[1].callbacks.iter().any(|(_, lock, _)| *lock == scene.lock));
    assert_eq!(scene.world.clients[1].evictions, 0);
    scene.world.close(1, scene.file, scene.open);
    scene.world.check_consistent();
}

/// What it would replay is not known.
#[test]
fn after_a_power_failure_everybody_is_waited_for() {
    let mut scene = scene(1);
    scene.world.crash(0, 0);
    let making = scene.world.start(0, 0, MdtRequest::Create(new(Fid::ROOT, "d", NewNode::Directory)));
    scene.world.pass_seconds(5);
    assert_eq!(scene.world.result(0, making), None);
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(10);
    assert!(scene.world.result(0, making).unwrap().is_ok());
    assert_eq!(scene.early_count(), 0);
}

/// Nor is it when the note is of another incarnation, has lost something, or the log has.
#[test]
fn a_note_that_cannot_be_all_is_not_believed() {
    for what in 0..3 {
        let mut scene = scene(1);
        match what {
            // Served elsewhere in between.
            0 => {
                let here = std::mem::take(&mut scene.world.servers[0].holdings);
                scene.world.kill(0);
                scene.world.servers[0].holdings = here;
            }
            1 => {
                // It holds two things: one too many.
                let small = MemoryHoldings::with_room(1);
                let mut noting: Box<dyn store::Holdings> = Box::new(small.clone());
                let mut held = scene.world.servers[0].holdings.clone();
                let left = store::Holdings::take_left(&mut held).unwrap();
                assert!(left.held.len() > 1);
                noting.begin(left.epoch, &left.held, true);
                noting.set_applied(left.applied);
                scene.world.servers[0].holdings = small;
            }
            _ => {
                let applied = scene.world.servers[0].mds.core().last_transno();
                store::Holdings::set_applied(&mut scene.world.servers[0].holdings.clone(), applied.next());
            }
        }
        scene.world.kill(0);
        let making = scene.world.start(0, 0, MdtRequest::Create(new(Fid::ROOT, "d", NewNode::Directory)));
        scene.world.pass_seconds(3);
        assert_eq!(scene.world.result(0, making), None, "{what}");
        scene.world.set_cut(1, 0, false);
        scene.world.pass_seconds(10);
        assert!(scene.world.result(0, making).unwrap().is_ok());
        assert_eq!(scene.early_count(), 0);
        // It has recovered, and knows again what is held.
        scene.world.set_cut(1, 0, true);
        scene.world.kill(0);
        if what != 1 {
            scene.world.mkdir(Fid::ROOT, "e");
            assert!(scene.is_recovering());
        }
    }
}

/// The next incarnation knows of the absent client what the last one knew, and of the other what that one has done meanwhile.
#[test]
fn who_is_away_over_two_deaths_is_still_waited_for() {
    let mut scene = scene(1);
    scene.world.kill(0);
    let dir = scene.world.mkdir(Fid::ROOT, "d");
    let ours = scene.world.mkfile(dir, "ours");
    let open = scene.world.open(0, ours, true);
    scene.world.servers[0].is_synced = false;
    scene.world.mkfile(dir, "later");
    assert_eq!(scene.world.servers[0].mds.open_count(), 2);
    let reopen = Request::Mdt(MdtRequest::Reopen { fid: ours, open });
    scene.world.clients[0].reopens.insert(MDT, vec![reopen]);
    scene.world.kill(0);
    scene.world.servers[0].is_synced = true;
    scene.world.run();
    assert_eq!(scene.world.names(dir), ["later", "ours"]);
    let changing = scene.world.start(0, 0, chmod(scene.file, 0o600));
    scene.world.pass_seconds(5);
    assert!(scene.is_recovering());
    assert_eq!(scene.world.result(0, changing), None);
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(10);
    assert!(scene.world.result(0, changing).unwrap().is_ok());
    assert_eq!(scene.world.servers[0].mds.open_count(), 2);
    assert_eq!([0, 1].map(|client| scene.world.clients[client].evictions), [0, 0]);
    scene.world.close(0, ours, open);
    scene.world.close(1, scene.file, scene.open);
    scene.world.check_consistent();
}

/// What was served early and was not durable is replayed; who was away has nothing to replay, before or after.
#[test]
fn what_was_served_early_and_lost_with_the_power_comes_back() {
    let mut scene = scene(1);
    scene.world.kill(0);
    let dir = scene.world.mkdir(Fid::ROOT, "d");
    scene.world.servers[0].is_synced = false;
    for name in ["a", "b", "c"] {
        scene.world.mkfile(dir, name);
    }
    scene.world.rename((dir, "a"), (Fid::ROOT, "e"), 0).unwrap();
    assert!(scene.is_recovering());
    assert!(scene.world.retained_count(0, 0) >= 4, "they are not durable");
    scene.world.servers[0].is_synced = true;
    scene.world.crash(0, 1);
    let looking = scene.world.start(0, 0, MdtRequest::Getattr { fid: dir, want: LockWant::default() });
    scene.world.pass_seconds(5);
    assert_eq!(scene.world.result(0, looking), None, "everybody is waited for");
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(10);
    assert!(scene.world.result(0, looking).unwrap().is_ok());
    assert_eq!(scene.world.names(dir), ["b", "c"]);
    assert!(scene.world.lookup(0, Fid::ROOT, "e").is_some());
    assert_eq!(scene.world.clients[0].refused, []);
    assert_eq!([0, 1].map(|client| scene.world.clients[client].evictions), [0, 0]);
    scene.world.close(1, scene.file, scene.open);
    scene.world.check_consistent();
}

/// What is told to be committed during such a recovery survives everything that comes after.
#[test]
fn what_was_served_early_and_is_durable_is_committed() {
    let mut scene = scene(1);
    scene.world.kill(0);
    let dir = scene.world.mkdir(Fid::ROOT, "d");
    scene.world.mkfile(dir, "a");
    scene.world.names(dir);
    assert!(scene.is_recovering());
    assert_eq!(scene.world.retained_count(0, 0), 0);
    scene.world.crash(0, 0);
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(10);
    assert_eq!(scene.world.names(dir), ["a"]);
    assert_eq!([0, 1].map(|client| scene.world.clients[client].evictions), [0, 0]);
}

#[test]
fn what_waits_for_who_is_away_goes_on_when_that_one_is_given_up() {
    for is_abort in [false, true] {
        let mut scene = scene(1);
        scene.world.kill(0);
        let changing = scene.world.start(0, 0, chmod(scene.file, 0o600));
        scene.world.pass_seconds(2);
        assert_eq!(scene.world.result(0, changing), None);
        match is_abort {
            true => scene.world.abort_recovery(0),
            false => scene.world.evict(0, scene.world.clients[1].id),
        }
        assert!(!scene.is_recovering());
        scene.world.pass_seconds(2);
        assert!(scene.world.result(0, changing).unwrap().is_ok());
        scene.world.set_cut(1, 0, false);
        scene.world.pass_seconds(10);
        assert_eq!(scene.world.clients[1].evictions, 1);
        assert_eq!(scene.world.getattr(1, scene.file).unwrap().permissions, 0o600);
        assert_eq!(scene.world.servers[0].mds.open_count(), 0);
    }
}

/// The client has given the lock back, and closed the file, with the MDT that died: it does not name them.
#[test]
fn what_a_client_does_not_name_it_does_not_have() {
    let mut scene = scene(1);
    scene.world.kill(0);
    let changing = scene.world.start(0, 0, chmod(scene.file, 0o600));
    assert_eq!(scene.world.servers[0].mds.open_count(), 1);
    scene.world.clients[1].reopens.clear();
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(3);
    assert!(scene.world.result(0, changing).unwrap().is_ok());
    assert_eq!(scene.world.servers[0].mds.open_count(), 0);
    assert!(scene.world.servers[0].holdings.held().is_empty());
    assert_eq!(scene.world.clients[1].evictions, 0);
}

#[test]
fn what_is_open_by_who_is_away_counts_as_open() {
    let mut scene = scene(1);
    scene.world.kill(0);
    let reply = scene.world.ask(0, 0, MdtRequest::Getattr { fid: scene.file, want: LockWant::default() });
    assert!(entry_of(&reply.unwrap()).may_be_written);
    assert!(scene.is_recovering());
}

#[test]
fn an_open_file_without_a_name_stays_for_who_is_away() {
    let mut scene = scene(1);
    scene.world.clients[1].reopens.get_mut(&MDT).unwrap().truncate(1);
    // It has no lock: nobody is asked for one.
    scene.world.set_cut(1, 0, false);
    let cancel = Request::Lock(LockRequest::Cancel { locks: vec![scene.lock] });
    scene.world.submit(1, MDT, cancel, rpc::Kind::Reserved);
    scene.world.run();
    scene.world.set_cut(1, 0, true);
    scene.world.kill(0);
    scene.world.unlink(Fid::ROOT, "theirs").unwrap();
    assert!(scene.is_recovering());
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(5);
    assert!(!scene.is_recovering());
    assert_eq!(scene.world.getattr(1, scene.file).unwrap().link_count, 0);
    scene.world.close(1, scene.file, scene.open);
    assert_eq!(scene.world.getattr(1, scene.file), Err(Status::Stale));
    scene.world.check_consistent();
}

/// Advisory locks are not noted.
#[test]
fn advisory_locks_wait_for_the_end() {
    let mut scene = scene(1);
    scene.world.kill(0);
    let ours = scene.world.mkfile(Fid::ROOT, "ours");
    let (kind, extent) = (FlockKind::Write, Extent::WHOLE);
    let lock = FileLock { owner: 1, pid: 1, is_flock: true, kind, extent };
    let locking = scene.world.start(0, 0, MdtRequest::Flock { fid: ours, lock, can_wait: false });
    scene.world.pass_seconds(2);
    assert!(scene.is_recovering());
    assert_eq!(scene.world.result(0, locking), None);
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(5);
    assert!(scene.world.result(0, locking).unwrap().is_ok());
}

#[test]
fn operations_over_several_mdts_wait_for_the_end() {
    let mut scene = scene(2);
    let dir = scene.world.mkdir(Fid::ROOT, "d");
    let file = scene.world.mkfile(Fid::ROOT, "f");
    scene.world.kill(0);
    let mut there = new(dir, "there", NewNode::Directory);
    there.mdt_index = Some(1);
    let waiting = [
        MdtRequest::Create(there),
        // The rename lock is one for all.
        rename((Fid::ROOT, "d2"), (dir, "d2"), 0),
        migrate((Fid::ROOT, "f"), file),
    ];
    scene.world.mkdir(Fid::ROOT, "d2");
    let waiting = waiting.map(|request| scene.world.start(0, 0, request));
    scene.world.mkdir(dir, "here");
    scene.world.pass_seconds(5);
    assert!(scene.is_recovering());
    assert_eq!(waiting.map(|of| scene.world.result(0, of)), [None, None, None]);
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(10);
    for of in waiting {
        assert!(scene.world.result(0, of).is_some());
    }
    assert_eq!(scene.world.names(dir), ["d2", "here", "there"]);
    scene.world.close(1, scene.file, scene.open);
    scene.world.check_consistent();
}

/// What it had under way here is not noted.
#[test]
fn nobody_is_served_early_before_the_other_mdts_are_back() {
    let mut scene = scene(2);
    scene.world.kill(0);
    scene.world.set_silent(1, true);
    scene.world.kill(0);
    let making = scene.world.start(0, 0, MdtRequest::Create(new(Fid::ROOT, "d", NewNode::Directory)));
    scene.world.pass_seconds(2);
    assert_eq!(scene.world.result(0, making), None);
    scene.world.set_silent(1, false);
    scene.world.pass_seconds(10);
    assert!(scene.world.result(0, making).unwrap().is_ok());
    assert!(scene.is_recovering(), "client 1 is away");
}

/// A mount that is new has nothing to say first.
#[test]
fn who_comes_for_the_first_time_is_served_early() {
    let mut scene = scene(1);
    scene.world.kill(0);
    scene.world.add_client(base::ClientId(7));
    let making = scene.world.start(2, 0, MdtRequest::Create(new(Fid::ROOT, "d", NewNode::Directory)));
    let made = fid_of(&scene.world.result(2, making).unwrap().unwrap());
    assert!(scene.is_recovering());
    scene.world.set_cut(1, 0, false);
    scene.world.pass_seconds(5);
    assert!(!scene.is_recovering());
    assert_eq!(scene.world.lookup(0, Fid::ROOT, "d"), Some(made));
}

/// What the kernel still has of its log need not be on the device.
#[test]
fn a_target_that_was_fenced_leaves_no_note() {
    let mut scene = scene(1);
    assert!(scene.world.servers[0].holdings.is_whole());
    scene.world.servers[0].is_synced = false;
    scene.world.mkdir(Fid::ROOT, "d");
    scene.world.fail_disk(0);
    assert!(!scene.world.servers[0].holdings.is_whole());
}
