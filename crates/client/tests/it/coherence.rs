//! Two mounts see one file system: what one changes, the other's kernel has forgotten by the time it is done.

use crate::world::{O_APPEND, O_RDONLY, O_RDWR, TOP, World, write_call};
use base::{Duration, Status, TargetId};
use client::{Answer, Call, Caller, EntryAnswer, Input, Notify, NotifyResult, SetattrCall};
use wire::{ComponentHint, LayoutHint};

const ENOENT: i32 = 2;

#[test]
fn an_absent_name_is_revoked_before_somebody_makes_it() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    assert_eq!(world.lookup(0, dir, "x"), Err(ENOENT));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.create(1, there, "x");
    let forgotten = Notify::InvalEntry { parent: dir, name: b"x".into() };
    assert!(world.mounts[0].notified.contains(&forgotten));
    assert!(world.lookup(0, dir, "x").is_ok());
}

/// What is mounted on a directory, and the path of who works in it, go when the kernel drops its name.
#[test]
fn the_name_of_a_directory_stays_and_is_believed_again_when_nobody_changes_what_is_beside_it() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    world.mkdir(0, dir, "in");
    let lifetime = |world: &mut World| world.lookup(0, dir, "in").expect("it is there").entry_valid;
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    let (kept, dropped) = (
        Notify::ExpireEntry { parent: dir, name: b"in".into() },
        Notify::InvalEntry { parent: dir, name: b"in".into() },
    );
    let change = |world: &mut World| {
        world.mounts[0].notified.clear();
        for (from, to) in [("in", "out"), ("out", "in")] {
            let (name, new_name) = (from.into(), to.into());
            let rename = Call::Rename { parent: there, name, new_parent: there, new_name, flags: 0 };
            assert_eq!(world.call(1, rename), Ok(Answer::Done));
        }
        let notified = &world.mounts[0].notified;
        (notified.contains(&kept), notified.contains(&dropped))
    };
    assert!(!lifetime(&mut world).is_zero());
    assert!(!lifetime(&mut world).is_zero());
    // The answer to who has looked it up again may still be on its way. (Its attributes change too, for which the name would stay.)
    assert!(change(&mut world).1);
    assert!(lifetime(&mut world).is_zero());
    assert_eq!(change(&mut world), (false, false), "the kernel asks anyway");
    world.pass(Duration::from_secs(40));
    assert!(!lifetime(&mut world).is_zero());
    world.pass(Duration::from_secs(2));
    assert_eq!(change(&mut world), (true, false));
    assert!(lifetime(&mut world).is_zero());
}

/// A lookup found the file and asks for its size while the file goes, and while its absence is looked up and told.
#[test]
fn a_late_answer_about_a_name_takes_nothing_from_what_the_kernel_was_told() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    let file = world.create(1, there, "x");
    assert_eq!(world.write(1, file, 0, b"of unknown size"), Ok(15));
    world.mounts[0].is_late = Some(TargetId::ost(0));
    let looking = world.begin(0, Call::Lookup { parent: dir, name: b"x".into() });
    assert!(!world.is_answered(0, looking), "it asks the OST for the size");
    assert_eq!(world.call(1, Call::Unlink { parent: there, name: b"x".into() }), Ok(Answer::Done));
    let Ok(Answer::Entry(absent)) = world.call(0, Call::Lookup { parent: dir, name: b"x".into() }) else {
        panic!("its absence is told with a lifetime")
    };
    assert!(absent.node == 0 && !absent.entry_valid.is_zero());
    world.let_come(0);
    match world.finish(0, looking) {
        Ok(Answer::Entry(late)) => assert!(late.entry_valid.is_zero(), "the lock is on its absence"),
        other => assert_eq!(other, Err(ENOENT)),
    }
    world.mounts[0].notified.clear();
    world.create(1, there, "x");
    let forgotten = Notify::InvalEntry { parent: dir, name: b"x".into() };
    assert!(world.mounts[0].notified.contains(&forgotten));
    assert!(world.lookup(0, dir, "x").is_ok());
}

#[test]
fn attributes_are_revoked_before_they_change() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    world.attr(0, dir);
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    let set = SetattrCall { mode: Some(0o700), ..Default::default() };
    assert!(world.call(1, Call::Setattr { node: there, set }).is_ok());
    let forgotten = Notify::InvalInode { node: dir, offset_bytes: -1, byte_count: 0 };
    assert!(world.mounts[0].notified.contains(&forgotten));
    assert_eq!(world.attr(0, dir).permissions, 0o700);
}

/// The kernel judges a chmod by the owner that came with the name when it was looked up last.
#[test]
fn the_name_of_a_directory_is_looked_up_again_when_others_have_changed_its_owner() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.lookup(0, TOP, "d").expect("it is there");
    world.mounts[0].notified.clear();
    let set = SetattrCall { uid: Some(1000), ..Default::default() };
    assert!(world.call(1, Call::Setattr { node: there, set }).is_ok());
    let attr = Notify::InvalInode { node: dir, offset_bytes: -1, byte_count: 0 };
    let name = Notify::ExpireEntry { parent: TOP, name: b"d".into() };
    assert_eq!(world.mounts[0].notified, [attr, name]);
}

/// Of more names than are remembered with it the kernel knows the owner as well, so it looks all names up again.
#[test]
fn every_name_of_a_file_is_looked_up_again_when_others_have_changed_its_owner() {
    for (name_count, is_all_forgotten) in [(8, false), (9, true)] {
        let mut world = World::new(1, 1, 2);
        let (node, fh) = world.create(1, TOP, "f0");
        world.release(1, (node, fh));
        for number in 1..name_count {
            let call = Call::Link { node, parent: TOP, name: format!("f{number}").into() };
            assert!(world.call(1, call).is_ok());
        }
        world.pass(Duration::from_secs(3));
        for number in 0..name_count {
            let entry = world.lookup(0, TOP, &format!("f{number}")).expect("it was linked");
            assert!(!entry.entry_valid.is_zero());
        }
        world.mounts[0].notified.clear();
        let set = SetattrCall { uid: Some(1000), ..Default::default() };
        assert!(world.call(1, Call::Setattr { node, set }).is_ok());
        let notified = &world.mounts[0].notified;
        assert_eq!(notified.contains(&Notify::IncEpoch), is_all_forgotten, "{notified:?}");
        let is_told =
            |name: String| notified.contains(&Notify::InvalEntry { parent: TOP, name: name.into() });
        assert!((name_count - 8..name_count).all(|number| is_told(format!("f{number}"))), "{notified:?}");
        // Once is enough.
        world.mounts[0].notified.clear();
        world.lookup(0, TOP, "f3").expect("it is there");
        let set = SetattrCall { uid: Some(1001), ..Default::default() };
        assert!(world.call(1, Call::Setattr { node, set }).is_ok());
        assert!(!world.mounts[0].notified.contains(&Notify::IncEpoch));
    }
}

impl World {
    /// Mount 1 changes the owner of a file, and mount 0, whose kernel still has it to forget, looks the file up meanwhile: the lock on its attributes is
    /// on its way back already, and nobody would tell the kernel of the change to come. -> What is found when all is done.
    fn look_up_while_its_owner_changes(&mut self, file: u64, parent: u64, name: &str) -> EntryAnswer {
        assert!(self.lookup(0, parent, name).is_ok_and(|found| !found.entry_valid.is_zero()));
        self.mounts[0].is_kernel_stuck = true;
        let set = SetattrCall { uid: Some(1000), ..Default::default() };
        let changing = self.begin(1, Call::Setattr { node: file, set });
        assert!(!self.is_answered(1, changing), "it waits for what the kernel of the other mount was told");
        let before = self.lookup(0, parent, name).expect("it is there");
        assert_eq!(before.attr.map(|attr| attr.uid), Some(0));
        assert!(before.entry_valid.is_zero(), "its owner would be believed with it");
        self.mounts[0].is_kernel_stuck = false;
        for (id, _) in std::mem::take(&mut self.mounts[0].stuck) {
            self.input(0, Input::Notified(id, NotifyResult::Ok));
        }
        assert!(self.finish(1, changing).is_ok());
        let after = self.lookup(0, parent, name).expect("it is there");
        assert_eq!(after.attr.as_ref().map(|attr| attr.uid), Some(1000));
        after
    }
}

#[test]
fn a_file_whose_owner_is_about_to_change_is_looked_up_each_time() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    world.release(1, file);
    world.pass(Duration::from_secs(3));
    let after = world.look_up_while_its_owner_changes(file.0, TOP, "f");
    assert!(!after.entry_valid.is_zero());
}

/// The same where its directory was listed, which is on another MDT: a lock on that one's children says nothing of the file's owner.
#[test]
fn a_file_of_another_mdt_whose_owner_is_about_to_change_is_looked_up_each_time() {
    let mut world = World::new(2, 1, 2);
    let make = Call::MkdirOn { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0, mdt_index: 1 };
    assert_eq!(world.call(1, make), Ok(Answer::Done));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    let file = world.create(1, TOP, "f");
    world.release(1, file);
    let (name, new_name) = (b"f".to_vec(), b"f".to_vec());
    let rename = Call::Rename { parent: TOP, name, new_parent: there, new_name, flags: 0 };
    assert_eq!(world.call(1, rename), Ok(Answer::Done));
    world.pass(Duration::from_secs(3));
    let dir = world.lookup(0, TOP, "d").expect("it was made").node;
    let Ok(Answer::Opened { fh, .. }) = world.call(0, Call::Opendir { node: dir, flags: 0 }) else {
        panic!("it cannot be opened")
    };
    let list = Call::Readdir { node: dir, fh, offset: 0, byte_count: 32 << 10, is_plus: true };
    assert!(world.call(0, list).is_ok());
    world.look_up_while_its_owner_changes(file.0, dir, "f");
}

/// The kernel made neither of them itself.
#[test]
fn what_lfs_changes_of_a_directory_is_asked_for_again() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let changes = [
        Call::Setdirstripe { node: dir, striping: None },
        Call::Setstripe { node: dir, layout: LayoutHint::default() },
    ];
    for change in changes {
        world.attr(0, dir);
        world.mounts[0].notified.clear();
        assert!(world.call(0, change.clone()).is_ok(), "{change:?}");
        let forgotten = Notify::InvalInode { node: dir, offset_bytes: -1, byte_count: 0 };
        assert_eq!(world.mounts[0].notified, [forgotten], "{change:?}");
    }
}

#[test]
fn pages_are_dropped_before_somebody_writes() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"old old old"), Ok(11));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.read(1, (node, fh), 0, 100), b"old old old");
    assert_eq!(world.write(0, file, 0, b"new"), Ok(3));
    assert!(world.mounts[1].notified.iter().any(|notify| matches!(
        notify,
        Notify::InvalInode { node: told, offset_bytes: 0, .. } if *told == node
    )));
    assert_eq!(world.read(1, (node, fh), 0, 100), b"new old old");
}

/// A private mapping fills pages also through a handle whose reads and writes pass by the page cache. Another handle of the mount would
/// be answered from them, and write the page of one of its stores back whole.
#[test]
fn pages_that_a_private_mapping_fills_through_a_handle_past_the_cache_are_dropped_too() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"old old old"), Ok(11));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, mode) = world.open(1, node, O_RDWR | O_APPEND);
    assert!(mode.is_direct);
    let read = |is_direct| Call::Read { node, fh, offset_bytes: 0, byte_count: 4096, is_direct };
    let dropped = |world: &World| -> Vec<(i64, i64)> {
        world.mounts[1].notified.iter().filter_map(pages_of(node)).collect()
    };
    assert_eq!(world.call(1, read(true)), Ok(Answer::Bytes("old old old".into())));
    assert_eq!(world.write(0, file, 0, b"mid"), Ok(3));
    assert_eq!(dropped(&world), [], "what a process reads so fills none");
    assert_eq!(world.call(1, read(false)), Ok(Answer::Bytes("mid old old".into())));
    assert_eq!(world.write(0, file, 0, b"new"), Ok(3));
    assert_eq!(dropped(&world), [(0, 4096)]);
    // This mount's own writes pass by them as well.
    assert_eq!(world.call(1, read(false)), Ok(Answer::Bytes("new old old".into())));
    assert_eq!(world.write(1, (node, fh), 0, b"own"), Ok(3));
    assert_eq!(dropped(&world), [(0, 4096), (0, 4096)]);
    assert_eq!(world.read(0, file, 0, 100), b"own old old");
}

#[test]
fn pages_far_behind_in_a_sparse_file_are_dropped_in_few_steps() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    // Nobody else has a lock yet, so that this one is for the whole file.
    assert_eq!(world.read(1, (node, fh), 0, 4096), b"");
    let far = 8 << 40;
    assert_eq!(world.read(1, (node, fh), far, 4096), b"");
    assert_eq!(world.write(0, file, 0, b"new"), Ok(3));
    let dropped: Vec<(i64, i64)> = world.mounts[1].notified.iter().filter_map(pages_of(node)).collect();
    assert_eq!(dropped, [(0, 4096), (far as i64, 4096)], "what was read, and nothing between");
}

/// Offset and length of what a notification drops of a file.
fn pages_of(node: u64) -> impl Fn(&Notify) -> Option<(i64, i64)> {
    move |notify| match notify {
        Notify::InvalInode { node: told, offset_bytes, byte_count }
            if *told == node && *offset_bytes >= 0 =>
        {
            Some((*offset_bytes, *byte_count))
        }
        _ => None,
    }
}

/// -> The world, and a directory, by mount 0, of which its kernel knows that there is no `x` and does not get around to dropping that; a call
/// of mount 1 that makes it.
fn with_a_name_that_is_not_dropped() -> (World, u64, Call) {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    assert_eq!(world.lookup(0, dir, "x"), Err(ENOENT));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.mounts[0].is_kernel_stuck = true;
    (world, dir, Call::Mkdir { parent: there, name: b"x".into(), mode: 0o755, umask: 0 })
}

#[test]
fn a_directory_that_the_kernel_holds_does_not_hold_up_others() {
    let (mut world, _, call) = with_a_name_that_is_not_dropped();
    assert!(matches!(world.call(1, call), Ok(Answer::Entry(_))));
    assert!(world.mounts[0].notified.contains(&Notify::IncEpoch));
}

/// Lets time pass for a mount whose kernel does everything at once, but drops no name.
fn pass_without_dropping_names(world: &mut World, mount: usize) {
    for _ in 0..10 {
        world.pass(Duration::from_millis(1));
        let is_entry = |(_, notify): &(_, Notify)| matches!(notify, Notify::InvalEntry { .. });
        let stuck = std::mem::take(&mut world.mounts[mount].stuck);
        let (entries, others): (Vec<_>, Vec<_>) = stuck.into_iter().partition(is_entry);
        world.mounts[mount].stuck = entries;
        for (id, _) in others {
            world.input(mount, client::Input::Notified(id, NotifyResult::Ok));
        }
        world.run();
    }
}

/// Two mounts that remove what the other one has made: each waits for a name that the other's kernel drops when its own call is answered.
#[test]
fn a_call_that_comes_while_a_name_is_dropped_holds_it_up_for_a_moment_only() {
    for is_another_call_there in [false, true] {
        let (mut world, dir, call) = with_a_name_that_is_not_dropped();
        let making = world.begin(1, call);
        pass_without_dropping_names(&mut world, 0);
        assert!(!world.is_answered(1, making), "the other kernel drops the name");
        assert_eq!(world.mounts[0].stuck.len(), 1);
        if is_another_call_there {
            // What it sends is lost, so that it is not answered.
            world.mounts[0].unreachable = Some(TargetId::mdt(0));
            world.begin(0, Call::Mkdir { parent: dir, name: b"y".into(), mode: 0o755, umask: 0 });
            world.mounts[0].unreachable = None;
        }
        pass_without_dropping_names(&mut world, 0);
        assert_eq!(world.mounts[0].notified.contains(&Notify::IncEpoch), is_another_call_there);
        assert_eq!(world.is_answered(1, making), is_another_call_there);
        assert!(matches!(world.finish(1, making), Ok(Answer::Entry(_))));
    }
}

#[test]
fn a_revocation_goes_around_pages_of_reads_that_wait() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, &[1; 64 << 10]), Ok(64 << 10));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.read(1, (node, fh), 0, 64 << 10).len(), 64 << 10);
    world.mounts[1].is_kernel_stuck = true;
    let writing = world.begin(0, write_call(file, 0, &[2; 64 << 10]));
    assert!(!world.is_answered(0, writing), "the reader's kernel still has pages");
    // The kernel had dropped these two itself, and has them locked for this now: the first notification ends only with it.
    let reading =
        world.begin(1, Call::Read { node, fh, offset_bytes: 16384, byte_count: 8192, is_direct: false });
    assert!(!world.is_answered(1, reading), "a lock on its way back is given to nobody");
    world.pass(Duration::from_millis(300));
    let mut stuck = std::mem::take(&mut world.mounts[1].stuck);
    let (hung, _) = stuck.remove(0);
    let mut around = vec![];
    while let Some((id, notify)) = stuck.pop() {
        around.extend(pages_of(node)(&notify));
        world.input(1, client::Input::Notified(id, NotifyResult::Ok));
        world.run();
        stuck.append(&mut world.mounts[1].stuck);
    }
    assert_eq!(around, [(0, 16384), (24576, 40960)]);
    assert_eq!(world.finish(0, writing), Ok(Answer::Written(64 << 10)));
    world.mounts[1].is_kernel_stuck = false;
    let Ok(Answer::Bytes(bytes)) = world.finish(1, reading) else { panic!("it is read") };
    assert_eq!(bytes, [2; 8192][..]);
    world.input(1, client::Input::Notified(hung, NotifyResult::Ok));
}

#[test]
fn a_second_writer_gets_no_page_cache() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (_, mode) = world.open(1, node, O_RDWR);
    assert!(mode.is_direct, "shared writable mappings would not be coherent");
    let _ = file;
}

#[test]
fn a_file_closed_elsewhere_is_cached_before_its_data_are_durable() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    // Sessions begin with something durable.
    assert_eq!(world.write(0, file, 0, b"durable"), Ok(7));
    world.pass(Duration::from_secs(2));
    world.is_syncing = false;
    assert_eq!(world.write(0, file, 0, b"not yet"), Ok(7));
    world.release(0, file);
    let (_, mode) = world.open(1, node, O_RDWR);
    assert!(!mode.is_direct, "nobody else has it open, so that it can be mapped");
}

#[test]
fn a_size_is_kept_only_when_the_data_of_all_writers_are_durable() {
    let mut world = World::new(1, 1, 2);
    let first = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.write(0, first, 0, b"durable"), Ok(7));
    world.pass(Duration::from_secs(2));
    world.is_syncing = false;
    assert_eq!(world.write(0, first, 7, b" or not"), Ok(7));
    world.release(0, first);
    // The last one has written nothing and waits for nothing of its own; the first one dies with the OST.
    world.release(1, (node, fh));
    world.mounts[0].is_cut_off = true;
    world.crash(TargetId::ost(0));
    world.start(TargetId::ost(0));
    world.is_syncing = true;
    world.pass(Duration::from_secs(100));
    let attr = world.attr(1, node);
    assert_eq!((attr.is_size_known, attr.size_bytes), (true, 7));
}

#[test]
fn the_size_is_unknown_while_somebody_truncates() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"to be cut"), Ok(9));
    world.release(0, file);
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDONLY);
    assert_eq!(world.read(1, (node, fh), 0, 100), b"to be cut");
    world.pass(Duration::from_secs(3));
    assert!(world.attr(1, node).is_size_known);
    // The one who truncates waits for pages in the reader's kernel. Should he die after that, the objects must say the size.
    world.mounts[1].is_kernel_stuck = true;
    let set = SetattrCall { size_bytes: Some(5), ..Default::default() };
    let cutting = world.begin(0, Call::Setattr { node: file.0, set });
    let is_about_pages = |notify: &Notify| matches!(notify, Notify::InvalInode { offset_bytes: 0.., .. });
    while !world.mounts[1].stuck.iter().any(|(_, notify)| is_about_pages(notify)) {
        let stuck = std::mem::take(&mut world.mounts[1].stuck);
        assert!(!stuck.is_empty(), "somebody waits for the reader's kernel");
        for (id, _) in stuck {
            world.input(1, client::Input::Notified(id, NotifyResult::Ok));
        }
        world.run();
    }
    assert!(!world.is_answered(0, cutting));
    assert!(!world.attr(1, node).is_size_known);
    world.mounts[1].is_kernel_stuck = false;
    for (id, _) in std::mem::take(&mut world.mounts[1].stuck) {
        world.input(1, client::Input::Notified(id, NotifyResult::Ok));
    }
    world.run();
    assert!(matches!(world.finish(0, cutting), Ok(Answer::Attr(answer)) if answer.attr.size_bytes == 5));
    world.pass(Duration::from_secs(3));
    let attr = world.attr(1, node);
    assert_eq!((attr.is_size_known, attr.size_bytes), (true, 5));
}

#[test]
fn sizes_are_seen_by_others_while_somebody_writes() {
    let mut world = World::new(1, 2, 2);
    let file = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    for round in 1..5u64 {
        assert_eq!(world.write(0, file, (round - 1) * 1000, &[9; 1000]), Ok(1000));
        assert_eq!(world.attr(1, node).size_bytes, round * 1000);
    }
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    assert!(world.attr(1, node).is_size_known);
    assert_eq!(world.attr(1, node).size_bytes, 4000);
}

#[test]
fn a_mount_that_is_cut_off_does_not_hold_up_others_for_ever() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    assert_eq!(world.lookup(0, dir, "x"), Err(ENOENT));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.mounts[0].is_cut_off = true;
    let making = world.begin(1, Call::Mkdir { parent: there, name: b"x".into(), mode: 0o755, umask: 0 });
    assert!(!world.is_answered(1, making));
    assert!(matches!(world.finish(1, making), Ok(Answer::Entry(_))));
    world.mounts[0].is_cut_off = false;
    world.pass(Duration::from_secs(20));
    assert!(world.lookup(0, dir, "x").is_ok());
}

#[test]
fn a_renamed_name_keeps_its_lifetime_only_under_a_lock() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "a");
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    assert!(world.lookup(0, TOP, "a").is_ok_and(|entry| !entry.entry_valid.is_zero()));
    let call =
        Call::Rename { parent: TOP, name: b"a".into(), new_parent: TOP, new_name: b"b".into(), flags: 0 };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    // The kernel of mount 0 has moved its entry and would answer from it.
    assert_eq!(world.call(1, Call::Unlink { parent: TOP, name: b"b".into() }), Ok(Answer::Done));
    let forgotten = Notify::InvalEntry { parent: TOP, name: b"b".into() };
    let notified = &world.mounts[0].notified;
    assert!(notified.contains(&forgotten) || notified.contains(&Notify::IncEpoch), "{notified:?}");
}

/// The MDT waits for a mount that is gone, and meanwhile the kernel asks again, for other processes that go by the
/// old name.
#[test]
fn a_name_that_is_told_again_while_it_is_renamed_takes_that_lifetime_along() {
    const EXCHANGE: u32 = 2;
    let rename = |name: &str, new_name: &str, flags| Call::Rename {
        parent: TOP,
        name: name.into(),
        new_parent: TOP,
        new_name: new_name.into(),
        flags,
    };
    for flags in [0, EXCHANGE] {
        let mut world = World::new(1, 1, 3);
        let (old, _) = (world.mkdir(0, TOP, "old"), world.mkdir(0, TOP, "other"));
        if flags == EXCHANGE {
            world.mkdir(0, TOP, "new");
        }
        world.pass(Duration::from_secs(3));
        assert!(world.lookup(0, TOP, "old").is_ok_and(|entry| !entry.entry_valid.is_zero()));
        assert_eq!(world.lookup(1, TOP, "new").is_ok(), flags == EXCHANGE);
        world.mounts[1].is_cut_off = true;
        world.mounts[0].notified.clear();
        let renaming = world.begin(0, rename("old", "new", flags));
        world.pass(Duration::from_secs(23));
        assert!(world.lookup(0, TOP, "old").is_ok_and(|entry| !entry.entry_valid.is_zero()));
        world.pass(Duration::from_secs(3));
        assert!(!world.is_answered(0, renaming), "what it was told before is over");
        assert_eq!(world.finish(0, renaming), Ok(Answer::Done));
        let told_all = world.mounts[0].notified.contains(&Notify::IncEpoch);
        world.mounts[0].notified.clear();
        assert_eq!(world.call(2, rename("other", "new", 0)), Ok(Answer::Done));
        let is_name = |notify: &Notify| match notify {
            Notify::InvalEntry { name, .. } | Notify::ExpireEntry { name, .. } => name == b"new",
            notify => *notify == Notify::IncEpoch,
        };
        let notified = &world.mounts[0].notified;
        assert!(told_all || notified.iter().any(is_name), "of {old}: {notified:?}");
    }
}

/// Mount 0 has listed a directory with the file `f` in it, which mount 1 has made: that directory, a large one, and the file as mount 1 knows it.
fn about_to_move() -> (World, u64, u64, u64) {
    let mut world = World::new(1, 1, 2);
    let (there, to_there) = (world.mkdir(1, TOP, "d"), world.mkdir(1, TOP, "e"));
    // Too many to be told as a whole.
    for number in 0..600 {
        world.mkdir(1, to_there, &format!("d{number}"));
    }
    let file = world.create(1, there, "f");
    world.release(1, file);
    world.pass(Duration::from_secs(40));
    let (dir, to) = (world.lookup(0, TOP, "d"), world.lookup(0, TOP, "e"));
    let (dir, to) = (dir.expect("it was made").node, to.expect("it was made").node);
    let Ok(Answer::Opened { fh, .. }) = world.call(0, Call::Opendir { node: dir, flags: 0 }) else {
        panic!("it cannot be opened")
    };
    let list = Call::Readdir { node: dir, fh, offset: 0, byte_count: 32 << 10, is_plus: true };
    assert!(world.call(0, list).is_ok());
    assert!(world.lookup(0, dir, "f").is_ok_and(|listed| !listed.entry_valid.is_zero()));
    (world, dir, to, file.0)
}

/// Under its old name it is covered no more, and under the new one not yet.
#[test]
fn an_owner_that_is_changed_right_after_a_rename_is_new_to_the_kernel() {
    let (mut world, dir, to, file) = about_to_move();
    world.mounts[0].is_late = Some(TargetId::mdt(0));
    let (name, new_name) = (b"f".into(), b"g".into());
    let moving = world.begin(0, Call::Rename { parent: dir, name, new_parent: to, new_name, flags: 0 });
    let set = SetattrCall { uid: Some(1000), ..Default::default() };
    let changing = world.begin(1, Call::Setattr { node: file, set });
    assert!(world.is_answered(1, changing), "nobody is asked");
    assert!(!world.is_answered(0, moving));
    world.mounts[0].notified.clear();
    world.let_come(0);
    assert_eq!(world.finish(0, moving), Ok(Answer::Done));
    let notified = &world.mounts[0].notified;
    assert!(notified.contains(&Notify::IncEpoch), "{notified:?}");
}

/// It keeps them for as long as the inode, and believes attributes anew with each lookup.
#[test]
fn a_kernel_that_may_have_an_old_acl_is_told_no_attributes_to_judge_by() {
    const ENODATA: i32 = 61;
    const ACL: &[u8] = b"system.posix_acl_access";
    let mut world = World::new(1, 1, 2);
    let there = world.mkdir(1, TOP, "d");
    world.pass(Duration::from_secs(3));
    let node = world.lookup(0, TOP, "d").expect("it was made").node;
    let ask = |world: &mut World| world.call(0, Call::Getxattr { node, name: ACL.into() });
    assert_eq!(ask(&mut world), Err(ENODATA));
    let is_believed = |world: &mut World| {
        let entry = world.lookup(0, TOP, "d").expect("it is there");
        !entry.attr_valid.is_zero()
    };
    assert!(is_believed(&mut world));
    // Until the kernel asks for attributes before it judges; nobody tells it that others change the ACL.
    world.pass(Duration::from_secs(30));
    // Version 2; owner rwx, one user rx, group, mask and others rx.
    let mut value = vec![2, 0, 0, 0];
    for (tag, permissions, id) in
        [(1, 7, u32::MAX), (2, 5, 1000), (4, 5, u32::MAX), (0x10, 5, u32::MAX), (0x20, 5, u32::MAX)]
    {
        value.extend([tag, 0, permissions, 0]);
        value.extend(id.to_le_bytes());
    }
    let set = Call::Setxattr { node: there, name: ACL.into(), value: value.clone(), flags: 0 };
    assert_eq!(world.call(1, set), Ok(Answer::Done));
    assert!(!is_believed(&mut world));
    assert!(!is_believed(&mut world), "it was not asked for the ACL since");
    assert!(world.call(0, Call::Getattr { node, fh: None }).is_ok());
    assert!(is_believed(&mut world), "it has dropped the ACL, and asks for it");
    assert_eq!(ask(&mut world), Ok(Answer::Bytes(value.into())));
    assert!(is_believed(&mut world));
}

/// Another MDT than that of the name decides: what it answers may come after what has become of the name since.
#[test]
fn a_late_answer_to_a_rename_says_nothing_of_a_name_that_others_have_made_since() {
    let mut world = World::new(2, 1, 2);
    let make = Call::MkdirOn { parent: TOP, name: b"e".into(), mode: 0o755, umask: 0, mdt_index: 1 };
    assert_eq!(world.call(0, make), Ok(Answer::Done));
    let (from, to) = (world.mkdir(0, TOP, "d"), world.lookup(0, TOP, "e").expect("it was made").node);
    // Too many to be told as a whole: what is known of the name has a lock of its own.
    for number in 0..600 {
        world.mkdir(0, from, &format!("d{number}"));
    }
    let rename = |from: (u64, &str), to: (u64, &str)| Call::Rename {
        parent: from.0,
        name: from.1.into(),
        new_parent: to.0,
        new_name: to.1.into(),
        flags: 0,
    };
    // Who decides tells what has become of inodes of its own.
    let file = world.create(0, to, "x");
    world.release(0, file);
    assert_eq!(world.call(0, rename((to, "x"), (from, "x"))), Ok(Answer::Done));
    assert_eq!(world.lookup(0, from, "x").map(|entry| entry.node), Ok(file.0));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    world.mounts[0].is_late = Some(TargetId::mdt(1));
    let moving = world.begin(0, rename((from, "x"), (to, "y")));
    let (made, _) = world.create(1, there, "x");
    assert_eq!(world.lookup(0, from, "x").map(|entry| entry.node), Ok(made));
    assert!(!world.is_answered(0, moving));
    world.let_come(0);
    assert_eq!(world.finish(0, moving), Ok(Answer::Done));
    assert_eq!(world.lookup(0, from, "x").map(|entry| entry.node), Ok(made));
    assert_eq!(world.lookup(0, to, "y").map(|entry| entry.node), Ok(file.0));
}

/// The lock on the children of the directory in which it was listed says nothing of a file that is in another one by now.
#[test]
fn a_file_that_has_left_its_listing_is_believed_only_with_a_lock_on_its_owner() {
    let (mut world, dir, to, file) = about_to_move();
    assert_eq!(world.lookup(0, to, "g"), Err(ENOENT));
    world.mounts[0].notified.clear();
    let (name, new_name) = (b"f".into(), b"g".into());
    let rename = Call::Rename { parent: dir, name, new_parent: to, new_name, flags: 0 };
    assert_eq!(world.call(0, rename), Ok(Answer::Done));
    let set = SetattrCall { uid: Some(1000), ..Default::default() };
    assert!(world.call(1, Call::Setattr { node: file, set }).is_ok());
    let forgotten = Notify::InvalEntry { parent: to, name: b"g".into() };
    let notified = &world.mounts[0].notified;
    assert!(notified.contains(&forgotten) || notified.contains(&Notify::IncEpoch), "{notified:?}");
}

/// Another mount exchanges the file with a second one while this mount's rename is on its way: the second is moved.
#[test]
fn a_rename_after_an_exchange_of_its_name_moves_what_it_leads_to_by_then() {
    let rename = |name: &str, new_name: &str, flags| Call::Rename {
        parent: TOP,
        name: name.into(),
        new_parent: TOP,
        new_name: new_name.into(),
        flags,
    };
    const NOREPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    for flags in [0, NOREPLACE, EXCHANGE] {
        let mut world = World::new(1, 1, 2);
        let (first, _) = world.create(1, TOP, "first");
        let (second, _) = world.create(1, TOP, "second");
        let (third, _) = world.create(1, TOP, "third");
        assert_eq!(world.lookup(0, TOP, "first").map(|entry| entry.node), Ok(first));
        let to = if flags == EXCHANGE { "third" } else { "new" };
        let known = world.lookup(0, TOP, to).map(|entry| entry.node);
        assert_eq!(known.is_ok(), flags == EXCHANGE);
        // Theirs is the first to arrive, and waits for this mount's lock.
        let theirs = world.prepare(1, rename("first", "second", EXCHANGE));
        let ours = world.prepare(0, rename("first", to, flags));
        world.run();
        assert_eq!(world.finish(1, theirs), Ok(Answer::Done));
        assert_eq!(world.finish(0, ours), Ok(Answer::Done));
        let told_all = |world: &World| world.mounts[0].notified.contains(&Notify::IncEpoch);
        assert!(told_all(&world), "the kernel moved the name of the first");
        for mount in [0, 1] {
            let mut at = |name| world.lookup(mount, TOP, name).map(|entry| entry.node);
            assert_eq!((at(to), at("second")), (Ok(second), Ok(first)), "mount {mount}, flags {flags}");
            assert_eq!(at("first"), if flags == EXCHANGE { Ok(third) } else { Err(2) });
        }
    }
}

/// Two mounts move one file to one place on another MDT, which has asked where its name leads for both before it moves it. The
/// second finds the file at both ends then, by an old answer: as if these were two names of it, and nothing to do.
#[test]
fn a_file_is_moved_to_another_mdt_once() {
    const NOREPLACE: u32 = 1;
    for flags in [0, NOREPLACE] {
        let mut world = World::new(2, 1, 2);
        let make = Call::MkdirOn { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0, mdt_index: 1 };
        assert_eq!(world.call(0, make), Ok(Answer::Done));
        world.create(0, TOP, "f");
        let calls = [0, 1].map(|mount| {
            let dir = world.lookup(mount, TOP, "d").expect("it was made").node;
            Call::Rename { parent: TOP, name: b"f".into(), new_parent: dir, new_name: b"g".into(), flags }
        });
        let ids: Vec<_> =
            calls.into_iter().enumerate().map(|(mount, call)| world.prepare(mount, call)).collect();
        world.run();
        let results: Vec<_> =
            ids.into_iter().enumerate().map(|(mount, id)| world.finish(mount, id)).collect();
        assert!(results.contains(&Ok(Answer::Done)), "{results:?}");
        assert!(results.contains(&Err(ENOENT)), "{results:?}, flags {flags}");
    }
}

/// The kernel looks for a name before it makes it: the lock on its absence is then the one on what it leads to.
#[test]
fn a_name_that_was_looked_for_and_made_costs_one_lock() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    assert_eq!(world.lookup(0, dir, "made"), Err(ENOENT));
    let before = world.mdt_lock_count(0);
    let made = world.create(0, dir, "made");
    assert!(world.mdt_lock_count(0) <= before + 2, "the name's and the inode's at most");
    world.release(0, made);
    let answer = world.lookup(0, dir, "made").expect("it was made");
    assert!(!answer.entry_valid.is_zero());
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    assert_eq!(world.lookup(1, there, "made").map(|entry| entry.node), Ok(made.0));
    assert_eq!(world.call(1, Call::Unlink { parent: there, name: b"made".into() }), Ok(Answer::Done));
    assert_eq!(world.lookup(0, dir, "made"), Err(ENOENT));
}

/// A kernel that drops its caches asks for the directories of another MDT again, whose names no listing covers.
#[test]
fn a_name_that_the_kernel_forgets_again_and_again_costs_one_lock() {
    let mut world = World::new(2, 1, 2);
    let make = Call::MkdirOn { parent: TOP, name: b"d".into(), mode: 0o755, umask: 0, mdt_index: 1 };
    assert_eq!(world.call(0, make), Ok(Answer::Done));
    let mut locks = Vec::new();
    for _ in 0..20 {
        let found = world.lookup(1, TOP, "d").expect("it was made");
        assert!(!found.entry_valid.is_zero(), "the kernel may keep it");
        world.input(1, Input::Forget(vec![(found.node, 1)]));
        world.run();
        locks.push(world.mdt_lock_count(0) + world.mdt_lock_count(1));
    }
    assert_eq!(locks.get(1), locks.last(), "locks after each time: {locks:?}");
    // The lock is what keeps the name true.
    assert_eq!(world.call(0, Call::Rmdir { parent: TOP, name: b"d".into() }), Ok(Answer::Done));
    assert_eq!(world.lookup(1, TOP, "d"), Err(ENOENT));
}

/// Locks that go back because they are too many go together; one that somebody waits for goes at once.
#[test]
fn idle_locks_are_given_back_together() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    for number in 0..100 {
        world.mkdir(0, dir, &format!("d{number}"));
    }
    let cancels = |world: &World| {
        let requests = world.requests(0, base::TargetKind::Mdt);
        requests.iter().find(|(kind, _)| *kind == "ldlm_cancel").map_or(0, |(_, count)| *count)
    };
    let (held, sent) = (world.mdt_lock_count(0), cancels(&world));
    assert!(held > 100, "{held}");
    let setting = client::TargetSetting::DropIdleLocks;
    world.input(0, client::Input::Set(client::Setting::Target(TargetId::mdt(0), setting)));
    world.run();
    assert!(world.mdt_lock_count(0) < held - 100);
    assert!(cancels(&world) <= sent + 2, "{} cancels", cancels(&world) - sent);
    assert_eq!(world.lookup(0, dir, "x"), Err(ENOENT));
    let there = world.lookup(1, TOP, "d").expect("it was made").node;
    let sent = cancels(&world);
    world.create(1, there, "x");
    assert!(world.lookup(0, dir, "x").is_ok());
    assert!(cancels(&world) > sent, "what is asked for does not wait for others");
}

#[test]
fn a_read_beside_a_write_of_its_own_mount_shows_its_size_only_with_its_bytes() {
    let mut world = World::new(1, 2, 1);
    let striped = ComponentHint {
        stripe_size_bytes: Some(64 << 10),
        stripe_count: Some(2),
        first_ost: Some(0),
        ..ComponentHint::default()
    };
    let layout = LayoutHint::plain(striped);
    let call = Call::CreateStriped { parent: TOP, name: b"f".into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    let (reader, _) = world.open(0, node, O_RDONLY);
    let (writer, _) = world.open(0, node, O_RDWR);
    let read = |fh| Call::Read { node, fh, offset_bytes: 1000, byte_count: 100_000, is_direct: false };
    // The locks are here; what the second object answers comes after the write.
    assert!(world.call(0, read(reader)).is_ok());
    world.mounts[0].is_late = Some(TargetId::ost(1));
    let reading = world.begin(0, read(reader));
    assert_eq!(world.write(0, (node, writer), 0, &[7; 5000]), Ok(5000));
    world.let_come(0);
    let Ok(Answer::Bytes(bytes)) = world.finish(0, reading) else { panic!("it is read") };
    assert!(bytes.iter().all(|byte| *byte == 7), "zeros in {} bytes", bytes.len());
}

/// The MDT has made the name; the size, which the answer needs, an OST does not tell.
#[test]
fn a_link_that_fails_for_want_of_attributes_is_there_all_the_same() {
    let ost = TargetId::ost(0);
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    assert_eq!(world.write(1, file, 0, b"x"), Ok(1));
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    assert_eq!(world.lookup(0, TOP, "g"), Err(ENOENT));
    world.mounts[0].is_late = Some(ost);
    let link = Call::Link { node, parent: TOP, name: b"g".to_vec() };
    let linking = world.begin(0, link);
    assert!(!world.is_answered(0, linking));
    let told = |world: &World| {
        world.mounts[0].notified.iter().filter(|notify| **notify == client::Notify::IncEpoch).count()
    };
    let before = told(&world);
    let mut answers = world.take_late(0);
    answers.iter_mut().for_each(|answer| answer.status = Status::Io);
    world.come(0, answers);
    assert_eq!(world.finish(0, linking), Err(Status::Io.errno()));
    assert_eq!(told(&world), before + 1, "the kernel does not believe that there is nothing");
    assert_eq!(world.lookup(0, TOP, "g").map(|entry| entry.node), Ok(node));
    assert_eq!(world.names(0, TOP), ["f", "g"]);
}

/// It ends set-id bits, and says nothing of an owner: another mount has just given the file away.
#[test]
fn a_chown_that_names_nobody_undoes_no_other() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(1, TOP, "f");
    world.release(1, file);
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    let set = SetattrCall { mode: Some(0o6755), ..Default::default() };
    assert!(world.call(1, Call::Setattr { node, set }).is_ok());
    world.mounts[0].is_late = Some(TargetId::mdt(0));
    let ending = world.begin(0, Call::Setattr { node, set: SetattrCall::default() });
    let set = SetattrCall { uid: Some(7), gid: Some(7), ..Default::default() };
    let giving = world.begin(1, Call::Setattr { node, set });
    world.let_come(0);
    assert!(world.finish(1, giving).is_ok());
    assert!(world.finish(0, ending).is_ok());
    for mount in [0, 1] {
        let attr = world.attr(mount, node);
        assert_eq!((attr.uid, attr.gid, attr.permissions), (7, 7, 0o755), "mount {mount}");
    }
    // Without such bits it sets the time of the change, also for the owner, and keeps what the other has set.
    let user = Caller { uid: 7, gid: 7, pid: 7 };
    assert!(world.call_as(1, user, Call::Setattr { node, set: SetattrCall::default() }).is_ok());
    assert_eq!(world.attr(0, node).uid, 7);
}
