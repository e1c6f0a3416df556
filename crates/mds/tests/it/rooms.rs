//! New files by the room of OSTs.

use crate::harness::{World, entry_of, new};
use base::{Endpoint, Fid, TargetId};
use wire::ComponentHint;
use wire::mdt::{LayoutHint, NewNode, Statfs};

const OST: Endpoint = Endpoint::Target(TargetId::ost(0));
const MDT: Endpoint = Endpoint::Target(TargetId::mdt(0));

fn space(bytes_available: u64) -> Statfs {
    Statfs { bytes_total: 1 << 40, bytes_free: 1 << 39, bytes_available, device: 7, ..Statfs::default() }
}

/// OST0000 says that; OST0001 answers, and says nothing of its room.
fn world(room: Option<Statfs>) -> World {
    let mut world = World::new(1, 1);
    world.rooms.extend(room.map(|room| (0, room)));
    world.start_ost(1);
    world.name_osts(&[(0, true), (1, true)]);
    world.getattr(0, Fid::ROOT).unwrap();
    world
}

fn made(world: &mut World, name: &str, stripe_count: u16, first_ost: Option<u16>) -> Vec<u16> {
    let hint = ComponentHint { stripe_count: Some(stripe_count), first_ost, ..Default::default() };
    let mut request = new(Fid::ROOT, name, NewNode::Regular);
    request.layout = Some(LayoutHint::plain(hint));
    let reply = world.create(request).unwrap();
    entry_of(&reply).layout.clone().unwrap().osts().collect()
}

fn osts(world: &mut World, prefix: &str, count: usize) -> Vec<u16> {
    (0..count).flat_map(|number| made(world, &format!("{prefix}{number}"), 1, None)).collect()
}

#[test]
fn an_ost_that_says_that_it_is_full_gets_no_new_files_until_it_has_room() {
    let mut world = world(None);
    assert_eq!(osts(&mut world, "before", 4), [0, 1, 0, 1]);
    world.rooms.insert(0, space(0));
    assert_eq!(osts(&mut world, "unasked", 2), [0, 1], "what was said is not old");
    world.pass_seconds(5);
    // It asks, and waits for no answer.
    assert_eq!(osts(&mut world, "asks", 1), [0]);
    assert_eq!(osts(&mut world, "full", 5), [1; 5]);
    assert_eq!(made(&mut world, "wide", u16::MAX, None), [1]);
    assert_eq!(made(&mut world, "named", 2, Some(0)), [0, 1], "somebody wants it");
    world.rooms.insert(0, space(1 << 39));
    world.pass_seconds(5);
    assert_eq!(osts(&mut world, "asks-again", 1).len(), 1);
    let osts = osts(&mut world, "after", 4);
    assert_eq!(osts.iter().filter(|ost| **ost == 0).count(), 2, "{osts:?}");
    world.check_consistent();
}

/// The first file after its start is to miss one that is full, too.
#[test]
fn an_mdt_that_starts_asks_before_it_places() {
    let mut world = world(Some(space(0)));
    osts(&mut world, "asks", 1);
    world.crash(0, 0);
    world.pass_seconds(3);
    assert_eq!(osts(&mut world, "after", 3), [1; 3]);
}

#[test]
fn osts_are_asked_when_files_are_placed_and_what_is_known_is_old() {
    let mut world = world(Some(space(1 << 39)));
    osts(&mut world, "first", 1);
    let asked = world.room_asked_count;
    osts(&mut world, "more", 20);
    world.pass_seconds(60);
    assert_eq!(world.room_asked_count, asked, "nobody makes files");
    osts(&mut world, "later", 20);
    assert_eq!(world.room_asked_count, asked + 1, "once for all of them");
    let placement = world.servers[0].mds.placement_mut();
    placement.set_age_max(base::Duration::from_secs(3600));
    world.pass_seconds(60);
    osts(&mut world, "last", 20);
    assert_eq!(world.room_asked_count, asked + 1);
    // What needs no OST asks none.
    world.servers[0].mds.placement_mut().set_age_max(base::Duration::from_secs(1));
    world.mkdir(Fid::ROOT, "d");
    assert_eq!(world.room_asked_count, asked + 1);
}

#[test]
fn an_ost_that_does_not_answer_is_asked_once_and_delays_nobody() {
    let mut world = world(Some(space(1 << 39)));
    osts(&mut world, "first", 1);
    let asked = world.room_asked_count;
    world.cut.insert((MDT, OST));
    for round in 0..3 {
        world.pass_seconds(6);
        assert_eq!(osts(&mut world, &format!("cut{round}-"), 2).len(), 2);
    }
    world.rooms.insert(0, space(0));
    world.cut.clear();
    world.pass_seconds(60);
    assert_eq!(world.room_asked_count, asked + 1, "one question has waited for it");
    assert_eq!(osts(&mut world, "after", 4), [1; 4], "it has said that it is full");
}

#[test]
fn an_ost_that_is_away_gets_no_new_files_until_it_answers() {
    let mut world = world(Some(space(1 << 39)));
    // With by far the most room.
    world.rooms.insert(1, Statfs { device: 8, ..space(1 << 35) });
    osts(&mut world, "first", 1);
    world.cut.insert((MDT, OST));
    world.pass_seconds(5);
    // Nobody knows yet that it does not answer.
    osts(&mut world, "asks", 1);
    world.pass_seconds(4);
    assert_eq!(osts(&mut world, "slow", 2), [0; 2], "who is slow is not away");
    world.pass_seconds(1);
    osts(&mut world, "asks-again", 1);
    assert_eq!(osts(&mut world, "away", 5), [1; 5]);
    assert_eq!(made(&mut world, "wide", u16::MAX, None), [1]);
    assert_eq!(made(&mut world, "named", 1, Some(0)), [0], "somebody wants it");
    world.cut.clear();
    world.pass_seconds(60);
    assert_eq!(osts(&mut world, "back", 3), [0; 3]);
    world.check_consistent();
}

/// An MDT that has started without one knows nothing of its room: the others are shared out to by theirs all the same.
#[test]
fn an_ost_that_has_never_answered_does_not_hide_that_another_has_hardly_any_room() {
    let mut world = World::new(1, 1);
    world.start_ost(1);
    world.rooms.extend([(0, space(1 << 39)), (1, Statfs { device: 8, ..space(1 << 33) })]);
    world.name_osts(&[(0, true), (1, true), (2, true)]);
    world.getattr(0, Fid::ROOT).unwrap();
    osts(&mut world, "asks", 1);
    world.pass_seconds(5);
    osts(&mut world, "asks-again", 1);
    let osts = osts(&mut world, "by-room", 60);
    assert!(osts.iter().filter(|ost| **ost == 0).count() > 55 && !osts.contains(&2), "{osts:?}");
}
