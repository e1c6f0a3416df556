#![allow(clippy::unwrap_used)]
use super::Acl;
use base::Status;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// owner rwx, user 7 rwx, group r-x, group 20 rwx, mask r-x, other ---
fn extended() -> Vec<u8> {
    let none = u32::MAX;
    acl(&[(1, 7, none), (2, 7, 7), (4, 5, none), (8, 7, 20), (16, 5, none), (32, 0, none)])
}

#[test]
fn the_xattr_form_survives_a_round_trip() {
    let parsed = Acl::from_xattr(&extended()).unwrap();
    assert_eq!(parsed.to_xattr(), extended());
    assert_eq!(parsed.mode(), 0o750);
    assert!(!parsed.is_mode_only());
}

#[test]
fn lists_that_are_incomplete_or_out_of_order_are_refused() {
    let none = u32::MAX;
    for bad in [
        acl(&[]),
        acl(&[(1, 7, none), (4, 7, none)]),
        acl(&[(4, 7, none), (1, 7, none), (32, 0, none)]),
        acl(&[(1, 7, none), (2, 7, 7), (4, 5, none), (32, 0, none)]),
        acl(&[(1, 8, none), (4, 5, none), (32, 0, none)]),
        vec![2, 0, 0, 0, 1],
        vec![2],
    ] {
        assert_eq!(Acl::from_xattr(&bad), Err(Status::Invalid));
    }
    assert_eq!(Acl::from_xattr(&[1, 0, 0, 0]), Err(Status::NotSupported));
}

#[test]
fn the_mask_limits_named_users_and_all_groups() {
    let acl = Acl::from_xattr(&extended()).unwrap();
    assert!(acl.allows(true, 1, 10, |_| Some(false), 7));
    assert!(acl.allows(false, 7, 10, |_| Some(false), 5));
    assert!(!acl.allows(false, 7, 10, |_| Some(false), 2));
    assert!(acl.allows(false, 8, 10, |gid| Some(gid == 20), 5));
    assert!(!acl.allows(false, 8, 10, |gid| Some(gid == 20), 2));
    assert!(!acl.allows(false, 8, 10, |_| Some(false), 4));
}

/// owner rwx, group r-x, group 20 ---, mask rwx, other r-x
#[test]
fn a_group_that_forbids_what_others_may_counts_before_it_is_known() {
    let none = u32::MAX;
    let entries = [(1, 7, none), (4, 5, none), (8, 0, 20), (16, 7, none), (32, 5, none)];
    let acl = Acl::from_xattr(&acl(&entries)).unwrap();
    assert!(!acl.allows(false, 8, 10, |_| None, 5), "it may be in group 20");
    assert!(!acl.allows(false, 8, 10, |gid| Some(gid == 20), 5), "it is");
    assert!(acl.allows(false, 8, 10, |_| Some(false), 5), "it is not");
    assert!(acl.allows(false, 8, 10, |gid| (gid == 10).then_some(true), 5), "its own group allows it");
    assert!(!acl.allows(false, 8, 10, |gid| (gid == 20).then_some(true), 5), "its own group forbids it");
}

#[test]
fn what_every_group_and_others_may_needs_no_groups() {
    let none = u32::MAX;
    let listed = |mask| {
        let entries = [(1, 7, none), (2, 7, 7), (4, 5, none), (8, 7, 20), (16, mask, none), (32, 5, none)];
        Acl::from_xattr(&acl(&entries)).unwrap()
    };
    assert!(listed(7).allows(false, 8, 10, |_| None, 5));
    assert!(!listed(7).allows(false, 8, 10, |_| None, 7), "others may not");
    assert!(!listed(4).allows(false, 8, 10, |_| None, 5), "the mask takes it from all groups");
    assert!(listed(7).allows(false, 7, 10, |_| None, 7), "a named user");
    assert!(!listed(4).allows(false, 7, 10, |_| None, 5), "whom the mask limits");
}

#[test]
fn a_default_list_takes_the_place_of_the_umask() {
    let (inherited, mode) = Acl::from_xattr(&extended()).unwrap().inherit(0o666);
    assert_eq!(mode, 0o640);
    assert_eq!(inherited.mode(), 0o640);
}
