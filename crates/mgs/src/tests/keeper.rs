//! The management server as keeper: the rules that every keeper follows.

use super::{World, world};
use crate::FILESYSTEM_COUNT_MAX;
use crate::owners::OWNER_COUNT_MAX;
use base::{Duration, Epoch, Status, TargetId};
use coordinate::conformance::{self, MOMENT_MILLIS};
use coordinate::of_mgs::Asks;
use coordinate::{Keeper, KeeperError, OfMgs};
use rpc::Kind;
use std::sync::Mutex;
use wire::{MgsReply, MgsRequest, TargetOwner};

struct Shared(Mutex<World>);

impl Asks for &Shared {
    fn ask(
        &self,
        request: MgsRequest,
        is_modifying: bool,
        _limit: std::time::Duration,
    ) -> Result<Result<MgsReply, Status>, KeeperError> {
        let kind = if is_modifying { Kind::Modifying } else { Kind::Plain };
        Ok(self.0.lock().unwrap().ask(request, kind))
    }

    fn ask_last(
        &self,
        request: MgsRequest,
        limit: std::time::Duration,
    ) -> Result<Result<MgsReply, Status>, KeeperError> {
        self.ask(request, true, limit)
    }
}

impl conformance::World for Shared {
    fn keeper(&self, me: TargetOwner) -> Box<dyn Keeper + '_> {
        Box::new(OfMgs { asks: self, fsname: "a".to_owned(), me })
    }

    fn wait(&self) {
        self.0.lock().unwrap().pass(Duration::from_millis(MOMENT_MILLIS));
    }
}

#[test]
fn it_conforms_as_a_keeper() {
    assert_eq!(conformance::run(&Shared(Mutex::new(world())), 0), 10);
}

fn take(world: &mut World, fsname: &str, target: TargetId) -> Result<MgsReply, Status> {
    let by = TargetOwner { server: 1, nid: "a:1".into(), host: "a".into(), pid: 1 };
    let take = MgsRequest::TakeOwned { fsname: fsname.into(), target, over: Epoch(0), by };
    world.ask(take, Kind::Modifying)
}

/// A target is taken before it is registered the first time. Made-up ones have only so much room, and real ones have their own.
#[test]
fn targets_that_nobody_has_keep_out_no_registered_one() {
    let mut world = world();
    let (registered, later) = (TargetId::mdt(0), TargetId::mdt(1));
    world.register("a", registered, 1).unwrap();
    for index in 0..OWNER_COUNT_MAX as u16 {
        assert!(take(&mut world, "a", TargetId::ost(index)).is_ok());
    }
    assert_eq!(take(&mut world, "b", TargetId::ost(0)), Err(Status::NoSpace));
    assert_eq!(take(&mut world, "a", later), Err(Status::NoSpace));
    assert!(take(&mut world, "a", registered).is_ok());
    world.register("a", later, 2).unwrap();
    assert!(take(&mut world, "a", later).is_ok());
    assert_eq!(
        take(&mut world, "b", registered),
        Err(Status::NoSpace),
        "of that name in another file system"
    );
}

#[test]
fn file_systems_that_nobody_has_are_so_many_and_keep_out_no_target_of_another_one() {
    let mut world = world();
    for number in 0..FILESYSTEM_COUNT_MAX {
        world.register(&format!("made-up-{number}"), TargetId::mdt(0), 1).unwrap();
    }
    assert_eq!(world.register("one-more", TargetId::mdt(0), 1), Err(Status::NoSpace));
    assert!(world.register("made-up-0", TargetId::ost(0), 2).is_ok());
    assert_eq!(world.mgs.configs().len(), FILESYSTEM_COUNT_MAX);
}
