use super::{BLOCKERS_MAX, OWNERS_MAX, Search, Step, follow};
use base::limits::FRAME_BODY_BYTES_MAX;
use base::{ClientId, WallTime};
use std::collections::BTreeMap;
use wire::peer::{FlockOwner, FlockWait, FlockWaitId};

fn owner(number: u64) -> FlockOwner {
    FlockOwner { client: ClientId(1), owner: number }
}

fn id(number: u64) -> FlockWaitId {
    FlockWaitId { since: WallTime(number as i64), mdt_index: (number % 2) as u16, number }
}

/// `number` waits for `blockers`; the greater number is the younger wait.
fn wait(number: u64, blockers: &[u64]) -> FlockWait {
    FlockWait {
        id: id(number),
        owner: owner(number),
        blockers: blockers.iter().map(|of| owner(*of)).collect(),
    }
}

/// What an owner waits for, of these.
fn waits(of: &[FlockWait]) -> impl Fn(FlockOwner) -> Vec<FlockWait> {
    let mut waits: BTreeMap<FlockOwner, Vec<FlockWait>> = BTreeMap::new();
    for wait in of {
        waits.entry(wait.owner).or_default().push(wait.clone());
    }
    move |owner| waits.get(&owner).cloned().unwrap_or_default()
}

/// Runs a search at a place that knows `here`, beside one that knows `there`.
fn search(own: &FlockWait, here: &[FlockWait], there: &[FlockWait]) -> (Step, usize) {
    let mut search = Search::new(own.id);
    for round in 0..100 {
        match search.step(own, waits(here)) {
            Step::Ask(owners) => search.tell(follow(owners, waits(there))),
            step => return (step, round),
        }
    }
    panic!("a search without an end");
}

#[test]
fn a_circle_of_one_place_needs_no_question() {
    let own = wait(3, &[1]);
    let here = [wait(1, &[2]), wait(2, &[3])];
    assert_eq!(search(&own, &here, &[]), (Step::Found(id(3)), 0));
}

#[test]
fn a_circle_over_two_places_is_found_from_each_and_both_name_the_youngest() {
    let (one, two) = (wait(1, &[2]), wait(2, &[1]));
    assert_eq!(search(&one, std::slice::from_ref(&one), std::slice::from_ref(&two)).0, Step::Found(id(2)));
    assert_eq!(search(&two, std::slice::from_ref(&two), &[one]).0, Step::Found(id(2)));
    // 5 -> 1 -> 2 -> 3 -> 4 -> 5, every second one elsewhere.
    let odd = [wait(1, &[2]), wait(3, &[4]), wait(5, &[1])];
    let even = [wait(2, &[3]), wait(4, &[5])];
    assert_eq!(search(&odd[2], &odd, &even).0, Step::Found(id(5)));
    assert_eq!(search(&even[0], &even, &odd).0, Step::Found(id(5)));
}

#[test]
fn a_chain_and_a_circle_of_others_are_no_circle_of_ours() {
    let own = wait(9, &[1]);
    assert_eq!(search(&own, &[], &[wait(1, &[2])]).0, Step::Over);
    let others = [wait(1, &[2]), wait(2, &[1])];
    assert_eq!(search(&own, &others[..1], &others[1..]).0, Step::Over);
}

#[test]
fn what_was_told_once_and_is_not_true_any_more_is_no_circle() {
    let own = wait(2, &[1]);
    let mut search = Search::new(own.id);
    assert_eq!(search.step(&own, waits(&[])), Step::Ask(vec![owner(1)]));
    search.tell(vec![wait(1, &[2])]);
    assert_eq!(search.step(&own, waits(&[])), Step::Ask(vec![owner(1)]));
    search.tell(Vec::new());
    assert_eq!(search.step(&own, waits(&[])), Step::Over);
}

#[test]
fn a_process_that_waits_twice_is_followed_both_ways() {
    let mut second = wait(1, &[7]);
    second.id = id(4);
    let here = [wait(1, &[8]), second];
    assert_eq!(search(&wait(7, &[1]), &here, &[]).0, Step::Found(id(7)));
}

#[test]
fn a_search_is_bounded() {
    let count = OWNERS_MAX as u64 * 2;
    let chain: Vec<FlockWait> = (1..count).map(|number| wait(number, &[number + 1])).collect();
    assert_eq!(follow(vec![owner(1)], waits(&chain)).len(), OWNERS_MAX);
    assert_eq!(search(&wait(count + 1, &[1]), &chain, &chain).0, Step::Over);
}

/// An answer that was longer than a frame ended the server.
#[test]
fn what_is_told_of_very_many_owners_fits_in_a_frame() {
    let many = vec![wait(1, &(10_000..60_000).collect::<Vec<u64>>())];
    let chain: Vec<FlockWait> =
        (1..OWNERS_MAX as u64 * 2).map(|number| wait(number, &[number + 1])).collect();
    // The end of the chain is an owner too, who waits for nobody.
    for (told, wait_count, blocker_count) in
        [(many, 1, BLOCKERS_MAX), (chain, OWNERS_MAX - 1, OWNERS_MAX - 1)]
    {
        let told = follow(told.iter().map(|wait| wait.owner).collect(), waits(&told));
        let counted: usize = told.iter().map(|wait| wait.blockers.len()).sum();
        assert_eq!((told.len(), counted), (wait_count, blocker_count));
        let reply = wire::Reply::Peer(wire::PeerReply::FlockWaits(told));
        assert!(reply.to_bytes().len() < FRAME_BODY_BYTES_MAX);
    }
}

#[test]
fn no_question_names_more_owners_than_a_search_looks_at() {
    let own = wait(60_000, &(1..50_000).collect::<Vec<u64>>());
    let mut search = Search::new(own.id);
    let Step::Ask(owners) = search.step(&own, waits(&[])) else { panic!("nobody is asked") };
    assert!(owners.len() <= OWNERS_MAX);
    search.tell(vec![wait(owners[0].owner, &[60_000])]);
    let Step::Ask(owners) = search.step(&own, waits(&[])) else { panic!("it is looked at again") };
    assert!(owners.len() <= OWNERS_MAX);
}

/// Of many who are in each other's way nobody is come back to for each of them.
#[test]
fn who_is_in_the_way_of_many_is_gone_on_from_once() {
    const COUNT: u64 = 300;
    let others = |number: u64| (1..=COUNT).filter(|other| *other != number).collect::<Vec<u64>>();
    let here: Vec<FlockWait> = (1..=COUNT).map(|number| wait(number, &others(number))).collect();
    let own = wait(COUNT + 1, &others(0));
    let mut search = Search::new(own.id);
    let Step::Ask(owners) = search.step(&own, waits(&here)) else { panic!("there is no circle here") };
    assert_eq!((owners.len(), search.looked_at_count), (COUNT as usize, COUNT as usize));
}
