//! Directories that are placed by space.

use crate::cross::mkdir_on;
use crate::harness::{ROOT, World, entry_of, fid_of, migrate, new};
use base::{Fid, Status};
use store::Reserve;
use wire::mdt::{DirStriping, NewNode};
use wire::{MdtReply, MdtRequest};

fn place_below(world: &mut World, fid: Fid, levels: Option<u8>) {
    let striping = Some(DirStriping::by_space(1, levels));
    let request = MdtRequest::SetDefaultStriping { fid, striping, creds: ROOT };
    world.ask(0, fid.mdt_index().unwrap(), request).unwrap();
}

fn default_of(world: &mut World, fid: Fid) -> Option<DirStriping> {
    match world.ask(0, fid.mdt_index().unwrap(), MdtRequest::GetDefaultStriping { fid }).unwrap() {
        MdtReply::DefaultStriping(striping) => striping,
        other => panic!("{other:?}"),
    }
}

/// Makes so many, and says where they are.
fn mdts(world: &mut World, parent: Fid, prefix: &str, count: usize) -> Vec<u16> {
    let made = (0..count).map(|number| world.mkdir(parent, &format!("{prefix}{number}")));
    made.map(|fid| fid.mdt_index().unwrap()).collect()
}

#[test]
fn two_levels_are_placed_in_turn_and_what_is_below_stays_with_its_parent() {
    let mut world = World::new(3, 1);
    place_below(&mut world, Fid::ROOT, Some(2));
    assert_eq!(mdts(&mut world, Fid::ROOT, "a", 6), [0, 1, 2, 0, 1, 2]);
    for first in 0..3 {
        let top = world.lookup(0, Fid::ROOT, &format!("a{first}")).unwrap();
        assert_eq!(default_of(&mut world, top), Some(DirStriping::by_space(1, Some(1))));
        // Each MDT deals from itself on.
        let expected: Vec<u16> = (0..3).map(|number| (first + number) % 3).collect();
        assert_eq!(mdts(&mut world, top, "b", 3), expected);
        for number in 0..3 {
            let parent = world.lookup(0, top, &format!("b{number}")).unwrap();
            assert_eq!(default_of(&mut world, parent), None);
            let mdt = parent.mdt_index().unwrap();
            assert_eq!(mdts(&mut world, parent, "c", 2), [mdt, mdt]);
        }
    }
    world.check_consistent();
}

#[test]
fn without_a_count_of_levels_all_are_placed() {
    let mut world = World::new(2, 1);
    place_below(&mut world, Fid::ROOT, None);
    let mut parent = Fid::ROOT;
    for level in 0..5 {
        assert_eq!(default_of(&mut world, parent), Some(DirStriping::by_space(1, None)), "{level}");
        assert_eq!(mdts(&mut world, parent, "d", 2).iter().sum::<u16>(), 1, "{level}");
        parent = world.mkdir(parent, "next");
    }
    world.check_consistent();
}

#[test]
fn nothing_said_places_a_directory_with_its_parent() {
    let mut world = World::new(2, 1);
    assert_eq!(mdts(&mut world, Fid::ROOT, "d", 4), [0; 4]);
}

#[test]
fn a_full_mdt_gets_no_directories_once_it_has_said_so() {
    let mut world = World::new(3, 1);
    world.servers[1].store.set_reserve(Reserve::Low);
    place_below(&mut world, Fid::ROOT, None);
    // The first choice asks, and waits for no answer.
    mdts(&mut world, Fid::ROOT, "first", 1);
    let placed = mdts(&mut world, Fid::ROOT, "d", 8);
    assert!(placed.iter().all(|mdt| *mdt != 1), "{placed:?}");
    // It has room again: known when what was said has aged.
    world.servers[1].store.set_reserve(Reserve::Ample);
    world.pass_seconds(61);
    mdts(&mut world, Fid::ROOT, "again", 1);
    let placed = mdts(&mut world, Fid::ROOT, "e", 6);
    assert_eq!(placed.iter().filter(|mdt| **mdt == 1).count(), 2, "{placed:?}");
    world.check_consistent();
}

#[test]
fn one_directory_is_placed_by_space_where_it_is_asked_for() {
    let mut world = World::new(2, 1);
    let mut place = |name: &str, stripe_count| {
        let create = new(Fid::ROOT, name, NewNode::Directory);
        let striping = DirStriping::by_space(stripe_count, None);
        world.ask(0, 0, MdtRequest::MakeStriped { create, striping, stripes: Vec::new() }).unwrap()
    };
    let fids: Vec<Fid> = ["a", "b"].iter().map(|name| entry_of(&place(name, 0)).fid).collect();
    assert_eq!(fids.iter().map(|fid| fid.mdt_index().unwrap()).collect::<Vec<_>>(), [0, 1]);
    assert!(matches!(place("c", 2), MdtReply::Striped { stripes, .. } if stripes.len() == 2));
    // It says nothing about those below.
    for fid in fids {
        assert_eq!(default_of(&mut world, fid), None);
    }
    world.check_consistent();
}

/// The choice would be another one by then.
#[test]
fn a_replay_makes_a_directory_where_it_was() {
    for kept in 0..3 {
        let mut world = World::new(3, 1);
        place_below(&mut world, Fid::ROOT, Some(1));
        world.servers[0].is_synced = false;
        let made: Vec<Fid> = (0..4).map(|number| world.mkdir(Fid::ROOT, &format!("d{number}"))).collect();
        world.servers[0].is_synced = true;
        world.crash(0, kept);
        world.pass_seconds(5);
        for (number, fid) in made.iter().enumerate() {
            assert_eq!(world.lookup(0, Fid::ROOT, &format!("d{number}")), Some(*fid), "{kept}");
        }
        world.check_consistent();
    }
}

#[test]
fn an_mdt_that_is_not_heard_is_passed_over() {
    let mut world = World::new(2, 1);
    place_below(&mut world, Fid::ROOT, None);
    world.set_silent(1, true);
    world.pass_seconds(40);
    for number in 0..3 {
        let create = new(Fid::ROOT, &format!("d{number}"), NewNode::Directory);
        let made = world.start(0, 0, MdtRequest::Create(create));
        let made = world.result(0, made).expect("nobody else is waited for").unwrap();
        assert_eq!(entry_of(&made).fid.mdt_index(), Some(0));
    }
}

#[test]
fn levels_end_and_words_are_no_mdts() {
    for levels in [1, 2, DirStriping::LEVELS_MAX] {
        let striping = DirStriping::by_space(1, Some(levels));
        assert_eq!((striping.is_by_space(), striping.levels()), (true, Some(levels)));
        let below = striping.inherited();
        assert_eq!(below.and_then(|below| below.levels()), Some(levels - 1).filter(|left| *left > 0));
    }
    let named = DirStriping { stripe_count: 1, mdts: vec![DirStriping::BY_SPACE - 1] };
    assert!(!named.is_by_space());
    let mut world = World::new(2, 1);
    for mdts in [vec![DirStriping::BY_SPACE - 1], vec![0, DirStriping::BY_SPACE], vec![u16::MAX, 0]] {
        let striping = Some(DirStriping { stripe_count: 0, mdts });
        let request = MdtRequest::SetDefaultStriping { fid: Fid::ROOT, striping, creds: ROOT };
        assert_eq!(world.ask(0, 0, request), Err(Status::NoDevice));
    }
}

#[test]
fn a_drained_mdt_gets_no_directories_but_where_there_is_no_other() {
    let mut world = World::new(3, 1);
    let old = [0, 1].map(|mdt| {
        let made = world.ask(0, 0, make_on(&format!("old{mdt}"), 0, &[mdt])).unwrap();
        entry_of(&made).fid
    });
    let set = |fid: Fid, striping: DirStriping| MdtRequest::SetDefaultStriping {
        fid,
        striping: Some(striping),
        creds: ROOT,
    };
    let named = DirStriping { stripe_count: 1, mdts: vec![1] };
    world.ask(0, 0, set(old[0], named)).unwrap();
    let mover = mkdir_on(&mut world, Fid::ROOT, "mover", 1);
    world.drain_all(&[], &[1]);
    // In a directory that is there already: not beside it, and not where the default says.
    for parent in old {
        let placed = mdts(&mut world, parent, "d", 6);
        assert!(placed.iter().all(|mdt| *mdt != 1), "{placed:?}");
        assert!(placed.contains(&0) && placed.contains(&2), "in turn: {placed:?}");
    }
    assert_eq!(mdts(&mut world, Fid::ROOT, "stays", 2), [0, 0]);
    // Over all that are left; and nobody gets there whoever is named.
    let over_all = world.ask(0, 0, make_on("all", DirStriping::ALL, &[])).unwrap();
    let stripes = |reply: &MdtReply| match reply {
        MdtReply::Striped { stripes, .. } => stripes.iter().filter_map(|fid| fid.mdt_index()).collect(),
        other => panic!("{other:?}"),
    };
    let over: Vec<u16> = stripes(&over_all);
    assert_eq!(over, [0, 2]);
    for named in [&[1][..], &[0, 1]] {
        assert_eq!(world.ask(0, 0, make_on("refused", 0, named)).err(), Some(Status::Invalid));
    }
    // Nothing moves there, not even back.
    let to_it = migrate((Fid::ROOT, "old0"), old[0]);
    assert_eq!(world.ask(0, 1, to_it).err(), Some(Status::Invalid));
    let away = fid_of(&world.ask(0, 2, migrate((Fid::ROOT, "mover"), mover)).unwrap());
    assert_eq!(away.mdt_index(), Some(2));
    let back = migrate((Fid::ROOT, "mover"), away);
    assert_eq!(world.ask(0, 1, back).err(), Some(Status::Invalid));
    // What it has stays in use, and files come with their directory.
    let file = world.mkfile(old[1], "file");
    assert_eq!(file.mdt_index(), Some(1));
    world.ask(0, 0, set(Fid::ROOT, DirStriping::by_space(1, None))).unwrap();
    world.kill(0);
    world.pass_seconds(3);
    let placed = mdts(&mut world, Fid::ROOT, "after", 4);
    assert!(placed.iter().all(|mdt| *mdt != 1), "it is known after a restart: {placed:?}");
    world.drain_all(&[], &[0, 1, 2]);
    assert_eq!(mdts(&mut world, old[1], "last", 3).len(), 3, "there is no other");
    world.drain_all(&[], &[]);
    let placed = mdts(&mut world, Fid::ROOT, "again", 6);
    assert!(placed.contains(&1), "{placed:?}");
    world.check_consistent();
}

fn make_on(name: &str, stripe_count: u16, mdts: &[u16]) -> MdtRequest {
    let create = new(Fid::ROOT, name, NewNode::Directory);
    let striping = DirStriping { stripe_count, mdts: mdts.to_vec() };
    MdtRequest::MakeStriped { create, striping, stripes: Vec::new() }
}
