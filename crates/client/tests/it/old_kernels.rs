//! Kernels that take answers in without looking whether they were told meanwhile to forget what these say.

use crate::world::{TOP, World};
use base::Duration;
use client::{Answer, Call, Input, Notify, NotifyId, NotifyResult, SetattrCall};

fn chmod(node: u64, mode: u32) -> Call {
    Call::Setattr { node, set: SetattrCall { mode: Some(mode), ..SetattrCall::default() } }
}

fn attr_valid(answer: Result<Answer, i32>) -> Duration {
    match answer {
        Ok(Answer::Attr(answer)) => answer.attr_valid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_setattr_answers_has_a_lifetime_only_where_a_revocation_is_looked_for() {
    for has_versioned_setattr in [false, true] {
        let mut world = World::new(1, 1, 0);
        world.has_versioned_setattr = has_versioned_setattr;
        world.add_mount(1);
        world.run();
        let file = world.create(0, TOP, "f");
        world.release(0, file);
        world.pass(Duration::from_secs(3));
        let truncate = SetattrCall { size_bytes: Some(3), ..SetattrCall::default() };
        let valid = attr_valid(world.call(0, chmod(file.0, 0o600)));
        assert_eq!(valid.is_zero(), !has_versioned_setattr);
        let valid = attr_valid(world.call(0, Call::Setattr { node: file.0, set: truncate }));
        assert!(valid.is_zero() || has_versioned_setattr);
        world.pass(Duration::from_secs(3));
        assert!(!attr_valid(world.call(0, Call::Getattr { node: file.0, fh: None })).is_zero());
    }
}

/// A world whose first mount has been answered about a file of the second one, and whose process has not taken the
/// answer in; the second changes the file. -> What the first tells its kernel.
fn revoked_while_introduced() -> (World, u64, u64, NotifyId) {
    let mut world = World::new(1, 1, 0);
    world.has_inc_epoch = false;
    world.add_mount(1);
    world.add_mount(2);
    world.run();
    let file = world.create(1, TOP, "f");
    world.release(1, file);
    world.pass(Duration::from_secs(3));
    let found = world.lookup(0, TOP, "f").expect("it was made");
    assert!(found.entry_valid.is_zero() && !found.attr_valid.is_zero());
    world.mounts[0].is_kernel_stuck = true;
    let changing = world.begin(1, chmod(file.0, 0o600));
    let told = next_told(&mut world, found.node).expect("it believes the attributes");
    assert!(!world.is_answered(1, changing));
    (world, found.node, changing, told)
}

/// The only notification that waits, about the attributes of this inode.
fn next_told(world: &mut World, inode: u64) -> Option<NotifyId> {
    let (id, notify) = world.mounts[0].stuck.pop()?;
    assert_eq!(notify, Notify::InvalInode { node: inode, offset_bytes: -1, byte_count: 0 });
    assert!(world.mounts[0].stuck.is_empty());
    Some(id)
}

#[test]
fn a_kernel_that_does_not_know_an_inode_yet_is_told_again() {
    let (mut world, node, changing, mut told) = revoked_while_introduced();
    for _ in 0..5 {
        world.input(0, Input::Notified(told, NotifyResult::NoEntry));
        world.pass(Duration::from_millis(10));
        assert!(!world.is_answered(1, changing));
        told = next_told(&mut world, node).expect("it is told again");
    }
    world.input(0, Input::Notified(told, NotifyResult::Ok));
    assert!(world.finish(1, changing).is_ok());
    assert!(world.mounts[0].stuck.is_empty());
}

#[test]
fn a_kernel_that_has_forgotten_an_inode_is_not_told_again() {
    let (mut world, node, changing, told) = revoked_while_introduced();
    world.input(0, Input::Forget(vec![(node, 1)]));
    world.input(0, Input::Notified(told, NotifyResult::NoEntry));
    assert!(world.finish(1, changing).is_ok());
    assert_eq!(next_told(&mut world, node), None);
}

/// A process that is never heard of again holds nobody up.
#[test]
fn a_kernel_is_not_told_again_for_ever() {
    let (mut world, node, changing, mut told) = revoked_while_introduced();
    let mut tell_count = 1;
    loop {
        world.input(0, Input::Notified(told, NotifyResult::NoEntry));
        world.pass(Duration::from_millis(100));
        let Some(next) = next_told(&mut world, node) else { break };
        told = next;
        tell_count += 1;
        assert!(tell_count < 100, "it ends");
    }
    assert!(tell_count > 1);
    assert!(world.finish(1, changing).is_ok());
}
