#![allow(clippy::unwrap_used)]
use super::*;

fn written_and_read(hint: &LayoutHint) -> LayoutHint {
    LayoutHint::try_from_slice(&borsh::to_vec(hint).unwrap()).unwrap()
}

/// Rows and messages from before there were components have these bytes.
#[test]
fn a_plain_hint_is_written_as_before_there_were_components() {
    let component =
        ComponentHint { stripe_size_bytes: Some(65_536), stripe_count: Some(3), ..ComponentHint::default() };
    let hint = LayoutHint::plain(component);
    let before = borsh::to_vec(&(Some(65_536_u32), Some(3_u16), None::<u16>)).unwrap();
    assert_eq!(borsh::to_vec(&hint).unwrap(), before);
    assert_eq!(written_and_read(&hint), hint);
    assert_eq!(borsh::to_vec(&LayoutHint::default()).unwrap(), [0, 0, 0]);
    assert_eq!(written_and_read(&LayoutHint::default()), LayoutHint::default());
}

#[test]
fn components_survive_being_written() {
    let first = ComponentHint { end_bytes: Some(1 << 20), stripe_count: Some(1), ..ComponentHint::default() };
    let rest = ComponentHint { stripe_count: Some(u16::MAX), ..ComponentHint::default() };
    for components in [vec![first.clone(), rest], vec![first]] {
        let hint = LayoutHint { components };
        assert_eq!(written_and_read(&hint), hint);
        assert_eq!(hint.as_plain(), None);
    }
    assert!(LayoutHint::try_from_slice(&[4, 0, 0]).is_err());
}

#[test]
fn named_osts_and_pools_survive_being_written() {
    let named = ComponentHint { osts: vec![4, 1], ..ComponentHint::default() };
    let pooled = ComponentHint { pool: "flash".parse().ok(), ..ComponentHint::default() };
    assert!(pooled.pool.is_some());
    let first = ComponentHint { end_bytes: Some(1 << 20), ..pooled.clone() };
    for components in [vec![named.clone()], vec![pooled], vec![first, named]] {
        let hint = LayoutHint { components };
        assert_eq!(written_and_read(&hint), hint);
    }
}

/// Directories keep such bytes since there are components.
#[test]
fn components_that_name_no_osts_are_written_as_before() {
    let first = ComponentHint { end_bytes: Some(1 << 20), stripe_count: Some(1), ..ComponentHint::default() };
    let rest = ComponentHint { stripe_size_bytes: Some(65_536), ..ComponentHint::default() };
    let before: Vec<Unnamed> = vec![(Some(1 << 20), None, Some(1), None), (None, Some(65_536), None, None)];
    let hint = LayoutHint { components: vec![first, rest] };
    assert_eq!(borsh::to_vec(&hint).unwrap(), borsh::to_vec(&(2_u8, before)).unwrap());
}
