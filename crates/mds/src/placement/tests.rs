#![allow(clippy::unwrap_used)]
use super::*;

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
