//! The management server as keeper: the rules that every keeper follows.

use super::{Input, World, world};
use crate::owners::OWNER_COUNT_MAX;
use crate::{FILESYSTEM_COUNT_MAX, FOUND_WITHIN};
use base::{Duration, Epoch, Machine, Status, TargetId};
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

impl World {
    /// Nothing arrives, and the management server runs.
    fn be_cut_off(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.time = self.now.time.after(Duration::from_secs(1));
            self.mgs.handle(self.now, Input::Tick, &mut Vec::new());
        }
    }

    /// What a server that stands by is told of a target that the first one has taken.
    fn has_lapsed(&mut self, target: TargetId) -> bool {
        let (fsname, asks) = ("a".into(), vec![target]);
        let asked = MgsRequest::KeepOwned { fsname, server: 2, keeps: Vec::new(), asks };
        match self.ask(asked, Kind::Plain) {
            Ok(MgsReply::Ownerships(owned)) => owned[0].has_lapsed,
            other => panic!("{other:?}"),
        }
    }
}

/// Its network was gone for longer than a lease. The server that came through first had all others fenced, which were well.
#[test]
fn who_was_cut_off_itself_calls_no_owner_dead_before_all_could_come_back() {
    let (mut world, target) = (world(), TargetId::ost(0));
    take(&mut world, "a", target).unwrap();
    assert!(!world.has_lapsed(target));
    world.be_cut_off(10);
    let heard_at = world.now.time;
    while world.now.time < heard_at.after(FOUND_WITHIN) {
        assert!(!world.has_lapsed(target), "{:?} after it", world.now.time.since(heard_at));
        world.pass(Duration::from_millis(500));
    }
    assert!(world.has_lapsed(target));
    // One that was gone before that stays so: whoever has fenced it need not do so again.
    world.be_cut_off(10);
    assert!(world.has_lapsed(target));
}

/// A takeover is asked for by who was told before that the owner is gone.
#[test]
fn who_was_cut_off_itself_gives_nobody_what_an_owner_could_not_renew() {
    let (mut world, target) = (world(), TargetId::ost(0));
    take(&mut world, "a", target).unwrap();
    world.be_cut_off(10);
    let by = TargetOwner { server: 2, nid: "b:1".into(), host: "b".into(), pid: 1 };
    let taken = MgsRequest::TakeOwned { fsname: "a".into(), target, over: Epoch(1), by };
    assert_eq!(world.ask(taken, Kind::Modifying), Err(Status::Busy));
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
