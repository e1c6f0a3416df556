//! Kernels that take answers in without looking whether they were told meanwhile to forget what these say.

use crate::world::{TOP, World};
use base::Duration;
use client::{Answer, Call, SetattrCall};

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
