//! The management server as keeper: the rules that every keeper follows.

use super::{World, world};
use base::{Duration, Status};
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
