//! The last start of each target is remembered, and tells an older copy of it.

use super::*;
use base::{Epoch, Start, WallTime};

fn start(epoch: u64, at: i64) -> Start {
    Start { epoch: Epoch(epoch), at: WallTime(at) }
}

impl World {
    fn began(&mut self, uuid: u128, starts: &[Start]) -> Result<MgsReply, Status> {
        self.began_at("a:1", uuid, starts)
    }

    fn began_at(&mut self, nid: &str, uuid: u128, starts: &[Start]) -> Result<MgsReply, Status> {
        let target = TargetConfig { id: TargetId::mdt(0), uuid, nids: vec![nid.into()], is_active: true };
        let claim = wire::Claim { is_taken: false, starts: starts.to_vec() };
        self.ask(MgsRequest::Register { fsname: "a".into(), target, claim }, Kind::Modifying)
    }
}

#[test]
fn an_older_copy_is_refused_also_by_the_next_management_server() {
    let mut world = world();
    let is_taken = |reply| matches!(reply, Ok(MgsReply::Config(_)));
    let is_confirmed = |reply| matches!(reply, Ok(MgsReply::Confirmed(_)));
    assert!(is_taken(world.began(7, &[start(1, 10)])), "nothing was known of it");
    for nid in ["a:1", "b:1"] {
        assert!(is_taken(world.began_at(nid, 7, &[start(1, 10)])), "nor is by what it has said itself");
    }
    assert!(is_confirmed(world.began(7, &[start(1, 10), start(2, 20)])));
    assert!(is_taken(world.began(7, &[])), "an older program says nothing of its starts");
    let known = Ok(MgsReply::Outdated { known: start(2, 20) });
    let config = world.mgs.config("a").cloned();
    assert_eq!(world.began(7, &[start(1, 10)]), known);
    let refused =
        MgsEvent::OutdatedRefused { fsname: "a".into(), target: TargetId::mdt(0), known: start(2, 20) };
    assert_eq!(world.events.last(), Some(&refused));

    world.mgs = open(&world.store, world.now);
    world.pass(Duration::from_secs(20));
    world.pass(Duration::from_secs(20));
    // However often the copy has been started since.
    for starts in [&[start(1, 10), start(2, 30)][..], &[start(1, 10), start(2, 30), start(3, 40)]] {
        assert_eq!(world.began(7, starts), known);
    }
    assert_eq!(world.mgs.config("a").cloned(), config);
    assert_eq!(
        world.began(8, &[start(1, 10)]),
        Err(Status::Exists),
        "another target is not compared with it"
    );
    assert!(is_confirmed(world.began(7, &[start(2, 20), start(3, 30)])));
    let impossible = Epoch(Epoch::MAX.0 + 1).0;
    assert_eq!(world.began(7, &[start(3, 30), start(impossible, 60)]), Err(Status::Invalid));
    // What an operator has said to be the newest begins anew.
    assert!(is_confirmed(world.began(7, &[start(70, 50)])));
}

/// It would be refused for good: no start has a number after it.
#[test]
fn a_start_after_which_there_is_no_room_for_more_is_not_remembered() {
    let mut world = world();
    assert!(world.began(7, &[start(Epoch::MAX.0, 10)]).is_ok());
    assert!(matches!(world.began(7, &[start(1, 20)]), Ok(MgsReply::Config(_) | MgsReply::Confirmed(_))));
    let known = start(Epoch::BELIEVED_MAX.0, 30);
    assert!(world.began(7, &[known]).is_ok());
    assert_eq!(world.began(7, &[start(2, 40)]), Ok(MgsReply::Outdated { known }));
    for epoch in [known.epoch.0 + 1, known.epoch.0 + 2] {
        let reply = world.began(7, &[start(epoch, 50)]);
        assert!(matches!(reply, Ok(MgsReply::Config(_) | MgsReply::Confirmed(_))), "{reply:?}");
    }
}
