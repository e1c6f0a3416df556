//! A target that is served somewhere is served nowhere else.

use super::*;
use crate::{PROBE_COUNT_MAX, PROBE_WAIT};

/// As which `World` calls.
const THIS: ClientId = ClientId(5);
const OTHER: ClientId = ClientId(6);

fn at(nid: &str, process: ClientId) -> Vec<Found> {
    vec![Found { nid: nid.into(), process }]
}

impl World {
    fn ost_at(&mut self, index: u16, nids: &[&str]) -> Ticket {
        let nids = nids.iter().map(|nid| (*nid).to_owned()).collect();
        let target = TargetConfig { id: TargetId::ost(index), uuid: 7, nids, is_active: true };
        let request = MgsRequest::Register { fsname: "a".into(), target, claim: wire::Claim::default() };
        self.submit(request, Kind::Modifying)
    }

    fn nids(&self, index: u16) -> Vec<String> {
        let config = self.mgs.config("a").unwrap();
        config.targets.iter().find(|known| known.id == TargetId::ost(index)).unwrap().nids.clone()
    }

    fn is_refused(&self, ticket: Ticket) -> bool {
        self.result(ticket) == Some(Err(Status::Busy))
    }

    fn is_taken(&self, ticket: Ticket) -> bool {
        matches!(self.result(ticket), Some(Ok(MgsReply::Config(_))))
    }
}

#[test]
fn a_copy_beside_the_original_is_refused_and_changes_nothing() {
    let mut world = world();
    world.ost_at(0, &["a:1"]);
    world.found = Some(at("a:1", OTHER));
    let before = world.mgs.config("a").unwrap().clone();
    let copy = world.ost_at(0, &["b:1"]);
    assert!(world.is_refused(copy));
    assert_eq!(*world.mgs.config("a").unwrap(), before);
    let [probe] = &world.probes[..] else { panic!("{:?}", world.probes) };
    assert_eq!((probe.target, probe.uuid), (TargetId::ost(0), 7));
    assert_eq!(probe.nids, ["a:1"]);
    let refused = MgsEvent::CopyRefused {
        fsname: "a".into(),
        target: TargetId::ost(0),
        at: "a:1".into(),
        copy_at: vec!["b:1".into()],
    };
    assert!(world.events.contains(&refused), "{:?}", world.events);

    // Another port of the same machine is another address.
    let copy = world.ost_at(0, &["a:2"]);
    assert!(world.is_refused(copy));
    // The original may register as often as it likes, and nobody is asked.
    let original = world.ost_at(0, &["a:1"]);
    assert!(world.is_taken(original));
    assert_eq!(world.probes.len(), 2);
    // It has ended.
    world.found = Some(Vec::new());
    let copy = world.ost_at(0, &["b:1"]);
    assert!(world.is_taken(copy));
    assert_eq!(world.nids(0), ["b:1", "a:1"]);
}

#[test]
fn the_old_place_of_a_target_that_has_moved_is_refused_when_it_comes_back() {
    let mut world = world();
    world.ost_at(0, &["a:1"]);
    world.ost_at(0, &["b:1"]);
    assert_eq!(world.nids(0), ["b:1", "a:1"]);
    world.found = Some(at("b:1", OTHER));
    let stale = world.ost_at(0, &["a:1"]);
    assert!(world.is_refused(stale));
    assert_eq!(world.probes.last().unwrap().nids, ["b:1"]);
    // Where it is, it is restarted without a question, whatever other addresses it had.
    let asked = world.probes.len();
    let moved = world.ost_at(0, &["b:1"]);
    assert!(world.is_taken(moved));
    assert_eq!(world.probes.len(), asked);
}

#[test]
fn a_process_is_no_copy_of_itself_by_another_name_of_its_machine() {
    let mut world = world();
    world.ost_at(0, &["10.0.0.1:1"]);
    world.found = Some(at("10.0.0.1:1", THIS));
    let renamed = world.ost_at(0, &["server:1", "10.1.0.1:1"]);
    assert!(world.is_taken(renamed));
    // One of several answers is enough.
    world.found = Some([at("server:1", THIS), at("10.1.0.1:1", OTHER)].concat());
    let other = world.ost_at(0, &["b:1"]);
    assert!(world.is_refused(other));
}

#[test]
fn who_does_not_answer_keeps_no_target_from_moving_and_nobody_else_waits() {
    let mut world = world();
    world.ost_at(0, &["a:1"]);
    world.ost_at(1, &["a:1"]);
    world.found = None;
    let moved = world.ost_at(0, &["b:1"]);
    assert_eq!(world.result(moved), None);
    // Others are served meanwhile.
    let other = world.ost_at(1, &["a:1"]);
    assert!(world.is_taken(other));
    world.ask(MgsRequest::ListFilesystems, Kind::Plain).unwrap();
    assert_eq!(world.mgs.next_deadline(), Some(world.now.time.after(PROBE_WAIT)));
    world.pass(PROBE_WAIT);
    assert!(world.is_taken(moved));
    assert_eq!(world.nids(0), ["b:1", "a:1"]);
    // What comes late is about nobody any more.
    let late = Input::Probed { id: world.probes[0].id, found: at("a:1", OTHER) };
    world.input(late);
    assert_eq!(world.nids(0), ["b:1", "a:1"]);
}

#[test]
fn one_registration_of_each_target_waits_and_few_in_all() {
    let mut world = world();
    let count = PROBE_COUNT_MAX as u16;
    for index in 0..=count {
        world.ost_at(index, &["a:1"]);
    }
    world.found = None;
    world.ost_at(0, &["b:1"]);
    world.ost_at(0, &["c:1"]);
    assert_eq!(world.probes.len(), 1, "the second one is to come again");
    for index in 1..=count {
        world.ost_at(index, &["b:1"]);
    }
    assert_eq!(world.probes.len(), PROBE_COUNT_MAX);
    world.input(Input::Evict(THIS));
    assert_eq!(world.mgs.probes.next_deadline(), None, "nobody waits who is gone");
}

#[test]
fn what_a_server_has_taken_by_the_rules_of_failover_moves_at_once() {
    let mut world = world();
    world.ost_at(0, &["a:1"]);
    world.found = Some(at("a:1", OTHER));
    let nids = vec!["b:1".to_owned()];
    let target = TargetConfig { id: TargetId::ost(0), uuid: 7, nids, is_active: true };
    let request = MgsRequest::Register {
        fsname: "a".into(),
        target,
        claim: wire::Claim { is_taken: true, ..wire::Claim::default() },
    };
    assert!(matches!(world.ask(request, Kind::Modifying), Ok(MgsReply::Config(_))));
    assert_eq!(world.probes, []);
    assert_eq!(world.nids(0), ["b:1", "a:1"]);
}

/// It knows the addresses from its rows.
#[test]
fn a_management_server_that_was_restarted_asks_as_before() {
    let mut world = world();
    world.ost_at(0, &["a:1"]);
    world.store.sync();
    world.mgs = open(&world.store, world.now);
    let caller = ImportOptions {
        client: THIS,
        incarnation: 2,
        starts: Vec::new(),
        fsname: "any".into(),
        nid: "test".into(),
        target: TargetId::MGT,
        target_uuid: 0,
    };
    (world.import, world.done) = (Import::new(caller), Vec::new());
    world.found = Some(at("a:1", OTHER));
    let copy = world.ost_at(0, &["b:1"]);
    world.pass(RECOVERY_WINDOW);
    assert!(world.is_refused(copy), "{:?}", world.result(copy));
}
