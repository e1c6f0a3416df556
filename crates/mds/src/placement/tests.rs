#![allow(clippy::unwrap_used)]
use super::*;

mod by_room;

const K: u64 = 1 << 10;

fn over(ost_count: u16) -> Placement {
    let mut placement = Placement::default();
    placement.configure((0..ost_count).collect());
    placement
}

fn until(end_bytes: u64, stripe_count: u16) -> ComponentHint {
    ComponentHint { end_bytes: Some(end_bytes), stripe_count: Some(stripe_count), ..ComponentHint::default() }
}

fn rest(stripe_count: u16) -> ComponentHint {
    ComponentHint { stripe_count: Some(stripe_count), ..ComponentHint::default() }
}

#[test]
fn each_component_gets_its_osts_and_an_id_of_its_own() {
    let hint = LayoutHint { components: vec![until(64 * K, 1), until(4 << 20, 2), rest(ALL_OSTS)] };
    let layout = over(4).layout(Fid::ROOT, 7, &hint).unwrap().unwrap();
    assert!(layout.is_valid());
    let told: Vec<_> =
        layout.components.iter().map(|part| (part.id, part.stripe_size_bytes, part.osts.clone())).collect();
    // The default stripe size is longer than the first component.
    assert_eq!(told[0], (7, 64 << 10, vec![0]));
    assert_eq!(told[1], (8, 1 << 20, vec![1, 2]));
    assert_eq!(told[2], (9, 1 << 20, vec![3, 0, 1, 2]));
}

#[test]
fn a_file_has_no_more_stripes_than_a_layout_may() {
    let hint = LayoutHint { components: vec![until(1 << 20, ALL_OSTS), until(2 << 20, 5), rest(ALL_OSTS)] };
    let layout = over(1999).layout(Fid::ROOT, 1, &hint).unwrap().unwrap();
    assert!(layout.is_valid());
    let counts: Vec<usize> = layout.components.iter().map(|part| part.osts.len()).collect();
    assert_eq!(counts, [1998, 1, 1]);
}

#[test]
fn hints_that_make_no_layout_are_refused() {
    let refused = |components: Vec<ComponentHint>| {
        over(2).layout(Fid::ROOT, 1, &LayoutHint { components }) == Err(Status::Invalid)
    };
    assert!(refused(vec![until(128 * K, 1), until(128 * K, 1)]));
    assert!(refused(vec![rest(1), until(128 * K, 1)]));
    assert!(refused(vec![until(0, 1), rest(1)]));
    assert!(refused(vec![until(1000, 1), rest(1)]));
    assert!(refused(vec![ComponentHint { stripe_size_bytes: Some(128 << 10), ..until(64 * K, 1) }]));
    assert!(refused(vec![ComponentHint { first_ost: Some(9), ..until(64 * K, 1) }]));
    assert!(refused((1..=17).map(|end| until(end * 64 * K, 1)).collect()));
    assert!(!refused((1..=16).map(|end| until(end * 64 * K, 1)).collect()));
}

#[test]
fn components_are_inherited_whole_or_not_at_all() {
    let composite = LayoutHint { components: vec![until(1 << 20, 1), rest(2)] };
    let plain = LayoutHint::plain(rest(3));
    let sized =
        LayoutHint::plain(ComponentHint { stripe_size_bytes: Some(64 << 10), ..ComponentHint::default() });
    assert_eq!(merge_hints(None, Some(&composite)), composite);
    assert_eq!(merge_hints(Some(&LayoutHint::default()), Some(&composite)), composite);
    assert_eq!(merge_hints(Some(&plain), Some(&composite)), plain);
    assert_eq!(merge_hints(Some(&composite), Some(&plain)), composite);
    let both = merge_hints(Some(&sized), Some(&plain)).as_plain().unwrap();
    assert_eq!((both.stripe_size_bytes, both.stripe_count), (Some(64 << 10), Some(3)));
}

fn in_pool(name: &str, stripe_count: u16) -> ComponentHint {
    ComponentHint { pool: name.parse().ok(), ..rest(stripe_count) }
}

fn on(osts: &[u16]) -> ComponentHint {
    ComponentHint { osts: osts.to_vec(), ..ComponentHint::default() }
}

fn with_pools(ost_count: u16, pools: &[(&str, &[u16])]) -> Placement {
    let mut placement = over(ost_count);
    let pool = |(name, osts): &(&str, &[u16])| Pool { name: name.parse().unwrap(), osts: osts.to_vec() };
    placement.configure_pools(pools.iter().map(pool));
    placement
}

#[test]
fn a_pool_gives_its_osts_in_turn_and_no_others() {
    let mut placement = with_pools(6, &[("flash", &[1, 3, 5])]);
    let mut osts = |hint: ComponentHint| {
        let layout = placement.layout(Fid::ROOT, 1, &LayoutHint::plain(hint)).unwrap().unwrap();
        layout.osts().collect::<Vec<u16>>()
    };
    assert_eq!(osts(in_pool("flash", 2)), [1, 3]);
    assert_eq!(osts(rest(2)), [0, 1]);
    assert_eq!(osts(in_pool("flash", 2)), [5, 1]);
    // No more than it has.
    assert_eq!(osts(in_pool("flash", ALL_OSTS)), [3, 5, 1]);
    assert_eq!(osts(in_pool("flash", 9)), [3, 5, 1]);
    assert_eq!(osts(ComponentHint { first_ost: Some(5), ..in_pool("flash", 2) }), [5, 1]);
    assert_eq!(osts(rest(1)), [2]);
    let first_elsewhere = ComponentHint { first_ost: Some(0), ..in_pool("flash", 1) };
    let one_elsewhere = ComponentHint { pool: first_elsewhere.pool.clone(), ..on(&[1, 0]) };
    for elsewhere in [first_elsewhere, one_elsewhere] {
        assert_eq!(placement.layout(Fid::ROOT, 1, &LayoutHint::plain(elsewhere)), Err(Status::Invalid));
    }
}

#[test]
fn a_component_remembers_its_pool() {
    let hint = LayoutHint { components: vec![until(1 << 20, 1), in_pool("flash", 1)] };
    let layout = with_pools(3, &[("flash", &[2])]).layout(Fid::ROOT, 1, &hint).unwrap().unwrap();
    let pools: Vec<Option<&str>> =
        layout.components.iter().map(|part| part.pool.as_ref().map(PoolName::as_str)).collect();
    assert_eq!(pools, [None, Some("flash")]);
    assert_eq!(layout.components[1].osts, [2]);
}

/// Its directory named it when it was there.
#[test]
fn files_of_a_pool_that_is_gone_or_empty_go_anywhere() {
    let mut placement = with_pools(2, &[("empty", &[])]);
    for name in ["empty", "gone"] {
        let hint = LayoutHint::plain(ComponentHint { first_ost: Some(7), ..in_pool(name, 2) });
        let layout = placement.layout(Fid::ROOT, 1, &hint).unwrap().unwrap();
        assert_eq!((layout.stripe_count(), &layout.components[0].pool), (2, &None));
        assert_eq!(placement.check_pools(&hint), Err(Status::Invalid));
    }
}

#[test]
fn osts_that_are_named_are_taken_as_they_are() {
    let layout = over(4).layout(Fid::ROOT, 1, &LayoutHint::plain(on(&[3, 0]))).unwrap().unwrap();
    assert_eq!(layout.osts().collect::<Vec<u16>>(), [3, 0]);
    let refused = |hint: ComponentHint| over(4).layout(Fid::ROOT, 1, &LayoutHint::plain(hint)).is_err();
    assert!(refused(on(&[3, 4])));
    assert!(refused(on(&[3, 3])));
    assert!(refused(ComponentHint { stripe_count: Some(1), ..on(&[3, 0]) }));
    assert!(refused(ComponentHint { first_ost: Some(0), ..on(&[3, 0]) }));
    assert!(!refused(ComponentHint { stripe_count: Some(2), first_ost: Some(3), ..on(&[3, 0]) }));
    // A replay names what the file had.
    let hint = LayoutHint::plain(on(&[3, 4]));
    let again = over(0).layout_again(Fid::ROOT, 1, &hint).unwrap().unwrap();
    assert_eq!(again.osts().collect::<Vec<u16>>(), [3, 4]);
}

#[test]
fn who_wants_other_osts_gets_none_of_the_directory() {
    let merged = |asked: ComponentHint, default: ComponentHint| {
        let (asked, default) = (LayoutHint::plain(asked), LayoutHint::plain(default));
        merge_hints(Some(&asked), Some(&default)).as_plain().unwrap()
    };
    let first = |first_ost| ComponentHint { first_ost: Some(first_ost), ..ComponentHint::default() };
    assert_eq!(merged(in_pool("flash", 1), first(2)), in_pool("flash", 1));
    assert_eq!(merged(on(&[1, 2]), in_pool("flash", 5)), on(&[1, 2]));
    assert_eq!(merged(rest(2), on(&[1])), rest(2));
    assert_eq!(merged(rest(2), in_pool("flash", 1)), in_pool("flash", 2));
    let sized = ComponentHint { stripe_size_bytes: Some(64 << 10), ..ComponentHint::default() };
    assert_eq!(merged(sized.clone(), on(&[1])), ComponentHint { osts: vec![1], ..sized });
}

#[test]
fn no_more_osts_are_named_than_a_layout_has_stripes() {
    let osts: Vec<u16> = (0..2001).collect();
    let of = |parts: &[&[u16]]| LayoutHint {
        components: parts
            .iter()
            .enumerate()
            .map(|(index, osts)| ComponentHint {
                end_bytes: (index + 1 < parts.len()).then_some((index as u64 + 1) << 20),
                ..on(osts)
            })
            .collect(),
    };
    assert_eq!(check_hint(&of(&[&osts[..2000]])), Ok(()));
    assert_eq!(check_hint(&of(&[&osts[..1000], &osts[..1000]])), Ok(()));
    assert_eq!(check_hint(&of(&[&osts])), Err(Status::Invalid));
    assert_eq!(check_hint(&of(&[&osts[..1000], &osts[..1001]])), Err(Status::Invalid));
}

/// Each program that makes a file there would be told that it was wrong.
#[test]
fn files_of_a_directory_whose_osts_are_gone_go_elsewhere() {
    let osts_for = |hint: ComponentHint| {
        let mut placement = with_pools(3, &[("flash", &[1, 2])]);
        let mut hint = LayoutHint::plain(hint);
        placement.drop_missing_osts(&mut hint);
        placement.layout(Fid::ROOT, 1, &hint).unwrap().unwrap().osts().collect::<Vec<u16>>()
    };
    let first = |first_ost, hint| ComponentHint { first_ost: Some(first_ost), ..hint };
    assert_eq!(osts_for(first(2, rest(1))), [2]);
    assert_eq!(osts_for(first(3, rest(2))), [0, 1]);
    assert_eq!(osts_for(first(0, in_pool("flash", 1))), [1], "it has left the pool");
    assert_eq!(osts_for(first(2, in_pool("flash", 1))), [2]);
    assert_eq!(osts_for(on(&[2, 1])), [2, 1]);
    assert_eq!(osts_for(on(&[2, 3])), [2], "what is left of them");
    assert_eq!(osts_for(ComponentHint { stripe_count: Some(2), ..first(3, on(&[3, 0])) }), [0]);
    assert_eq!(osts_for(on(&[8, 9])), [0, 1], "as many");
    let pool = in_pool("flash", 1).pool;
    assert_eq!(osts_for(ComponentHint { pool, ..on(&[0, 1]) }), [1]);
    let on_mdt = LayoutHint {
        components: vec![ComponentHint { osts: vec![Layout::ON_MDT], ..until(64 * K, 1) }, rest(1)],
    };
    let mut hint = on_mdt.clone();
    over(1).drop_missing_osts(&mut hint);
    assert_eq!(hint, on_mdt);
}

#[test]
fn a_default_is_told_with_what_it_leaves_to_the_file_system() {
    let mut placement = over(4);
    placement.set_stripe_count(ALL_OSTS);
    placement.set_stripe_size(128 << 10);
    let told = |hint: LayoutHint| -> Vec<_> {
        let told = placement.spelled_out(hint).components;
        told.into_iter().map(|part| (part.stripe_count, part.stripe_size_bytes, part.osts)).collect()
    };
    assert_eq!(told(LayoutHint::default()), [(Some(ALL_OSTS), Some(128 << 10), vec![])]);
    assert_eq!(told(LayoutHint::plain(rest(2))), [(Some(2), Some(128 << 10), vec![])]);
    assert_eq!(told(LayoutHint::plain(on(&[3, 1]))), [(None, Some(128 << 10), vec![3, 1])]);
    let on_mdt = ComponentHint { end_bytes: Some(64 * K), ..on(&[Layout::ON_MDT]) };
    let parts = told(LayoutHint { components: vec![on_mdt, ComponentHint::default()] });
    assert_eq!(parts[0], (None, Some(64 << 10), vec![Layout::ON_MDT]), "it ends with a whole stripe unit");
    assert_eq!(parts[1], (Some(ALL_OSTS), Some(128 << 10), vec![]));
}

#[test]
fn what_names_osts_that_are_not_there_is_no_default() {
    let placement = with_pools(3, &[("flash", &[1, 2]), ("empty", &[])]);
    let is_taken = |hint: ComponentHint| placement.check_osts(&LayoutHint::plain(hint)).is_ok();
    let first = |first_ost, hint| ComponentHint { first_ost: Some(first_ost), ..hint };
    assert!(is_taken(rest(9)) && is_taken(first(2, rest(1))) && is_taken(first(ALL_OSTS, rest(1))));
    assert!(is_taken(on(&[2, 0])) && is_taken(on(&[Layout::ON_MDT])));
    assert!(!is_taken(first(3, rest(1))) && !is_taken(on(&[2, 3])));
    assert!(is_taken(first(1, in_pool("flash", 1))) && !is_taken(first(0, in_pool("flash", 1))));
}
