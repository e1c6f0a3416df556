//! The kernel counts a link less by itself when it hears that a name is gone. Nothing that it is told in between has
//! it count the same link twice.

use crate::world::{ROOT, TOP, World};
use base::{Duration, TargetId};
use client::{Answer, Call, Caller, Input, Notify, NotifyResult, SetattrCall};

const REMOVER: Caller = Caller { pid: 100, ..ROOT };
const OTHER: Caller = Caller { pid: 200, ..ROOT };

/// How often the kernel was told that it has the attributes of a file no more.
fn told_of(world: &World, node: u64) -> usize {
    let told = Notify::InvalInode { node, offset_bytes: -1, byte_count: 0 };
    world.mounts[0].notified.iter().filter(|notify| **notify == told).count()
}

/// A file with so many names, `f0` and on, of which the kernel has been told.
fn file_of(name_count: u32) -> (World, u64) {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f0");
    world.release(0, file);
    for number in 1..name_count {
        let call = Call::Link { node: file.0, parent: TOP, name: format!("f{number}").into() };
        assert!(world.call_as(0, REMOVER, call).is_ok());
    }
    world.pass(Duration::from_secs(3));
    world.mounts[0].notified.clear();
    (world, file.0)
}

fn link_count(answer: Result<Answer, i32>) -> u32 {
    match answer {
        Ok(Answer::Attr(answer)) => answer.attr.link_count,
        Ok(Answer::Entry(entry)) => {
            assert!(entry.entry_valid.is_zero() && entry.attr_valid.is_zero(), "{entry:?}");
            entry.attr.expect("it comes with the name").link_count
        }
        other => panic!("{other:?}"),
    }
}

fn unlink(name: &str) -> Call {
    Call::Unlink { parent: TOP, name: name.into() }
}

/// Asks in both ways. -> The counts that come, after a notification each.
fn ask_as(world: &mut World, caller: Caller, node: u64) -> [u32; 2] {
    let calls = [Call::Getattr { node, fh: None }, Call::Lookup { parent: TOP, name: b"f0".into() }];
    calls.map(|call| {
        let before = told_of(world, node);
        world.mounts[0].is_kernel_stuck = true;
        let id = world.begin_as(0, caller, call);
        assert!(!world.is_answered(0, id), "the kernel has not heard that there is another version");
        assert_eq!(told_of(world, node), before + 1);
        world.mounts[0].is_kernel_stuck = false;
        for (id, _) in std::mem::take(&mut world.mounts[0].stuck) {
            world.input(0, Input::Notified(id, NotifyResult::Ok));
        }
        link_count(world.finish(0, id))
    })
}

#[test]
fn what_others_ask_of_a_file_that_has_just_lost_a_name_is_not_what_the_kernel_counts_from() {
    let (mut world, node) = file_of(3);
    assert_eq!(world.call_as(0, REMOVER, unlink("f1")), Ok(Answer::Done));
    assert_eq!(ask_as(&mut world, OTHER, node), [2, 2]);
    // As it is when a rename takes the name away.
    world.create(0, TOP, "new");
    let (name, new_name) = (b"new".into(), b"f2".into());
    let rename = Call::Rename { parent: TOP, name, new_parent: TOP, new_name, flags: 0 };
    assert_eq!(world.call_as(0, REMOVER, rename), Ok(Answer::Done));
    assert_eq!(ask_as(&mut world, OTHER, node), [1, 1]);
}

#[test]
fn what_is_asked_while_a_name_goes_is_not_what_the_kernel_counts_from() {
    let (mut world, node) = file_of(2);
    world.mounts[0].is_late = Some(TargetId::mdt(0));
    let unlinking = world.begin_as(0, REMOVER, unlink("f1"));
    let counts = ask_as(&mut world, OTHER, node);
    assert!(counts.into_iter().all(|count| [1, 2].contains(&count)), "{counts:?}");
    assert!(!world.is_answered(0, unlinking));
    world.let_come(0);
    assert_eq!(world.finish(0, unlinking), Ok(Answer::Done));
    assert_eq!(ask_as(&mut world, OTHER, node), [1, 1]);
}

/// Where it is known that the kernel has counted, and for files with one name, nothing is told.
#[test]
fn nothing_is_told_when_the_kernel_has_counted() {
    let (mut world, node) = file_of(4);
    let attr = |caller| (caller, Call::Getattr { node, fh: None });
    assert_eq!(world.call_as(0, REMOVER, unlink("f1")), Ok(Answer::Done));
    let ask = |world: &mut World, (caller, call)| {
        world.mounts[0].notified.clear();
        assert!(world.call_as(0, caller, call).is_ok());
        told_of(world, node)
    };
    assert_eq!(ask(&mut world, attr(REMOVER)), 0, "who has called again has the answer to the last call");
    assert_eq!(ask(&mut world, attr(OTHER)), 1);
    let again = Call::Link { node, parent: TOP, name: b"f1".into() };
    assert_eq!(ask(&mut world, (OTHER, again)), 0, "the kernel locks the inode for a link");
    assert_eq!(ask(&mut world, attr(OTHER)), 0);
    assert_eq!(world.call_as(0, REMOVER, unlink("f2")), Ok(Answer::Done));
    world.pass(Duration::from_secs(2));
    assert_eq!(ask(&mut world, attr(OTHER)), 0, "it was long ago");
}

#[test]
fn a_file_whose_only_name_goes_costs_no_notification() {
    let (mut world, node) = file_of(1);
    assert!(world.call_as(0, REMOVER, Call::Open { node, flags: 0 }).is_ok());
    assert_eq!(world.call_as(0, REMOVER, unlink("f0")), Ok(Answer::Done));
    let before = told_of(&world, node);
    assert_eq!(link_count(world.call_as(0, OTHER, Call::Getattr { node, fh: None })), 0);
    assert_eq!(told_of(&world, node), before);
}

/// The kernel would go by the size, or judge by the mode, of before for as long as nothing is taken in.
#[test]
fn what_others_have_changed_since_a_name_went_is_taken_in() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f0");
    let node = file.0;
    world.release(0, file);
    let link = Call::Link { node, parent: TOP, name: b"f1".into() };
    assert!(world.call_as(0, REMOVER, link).is_ok());
    world.pass(Duration::from_secs(3));
    assert_eq!(world.call_as(0, REMOVER, unlink("f1")), Ok(Answer::Done));
    world.mounts[0].notified.clear();
    let getattr = Call::Getattr { node, fh: None };
    assert_eq!(link_count(world.call_as(0, OTHER, getattr.clone())), 1);
    assert_eq!(told_of(&world, node), 1, "nothing but the count is new");
    assert!(world.call(1, Call::Lookup { parent: TOP, name: b"f0".into() }).is_ok());
    let set = SetattrCall { mode: Some(0o600), ..Default::default() };
    assert!(world.call(1, Call::Setattr { node, set }).is_ok());
    world.mounts[0].notified.clear();
    let Ok(Answer::Attr(answer)) = world.call_as(0, OTHER, getattr) else { panic!("it is there") };
    assert_eq!((answer.attr.permissions, answer.attr.link_count), (0o600, 1));
    assert!(answer.attr_valid.is_zero(), "should the kernel count twice, it asks again");
    assert_eq!(told_of(&world, node), 0);
}
