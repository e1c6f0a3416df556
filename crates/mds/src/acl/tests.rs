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
    assert!(acl.allows(true, 1, 10, |_| false, 7));
    assert!(acl.allows(false, 7, 10, |_| false, 5));
    assert!(!acl.allows(false, 7, 10, |_| false, 2));
    assert!(acl.allows(false, 8, 10, |gid| gid == 20, 5));
    assert!(!acl.allows(false, 8, 10, |gid| gid == 20, 2));
    assert!(!acl.allows(false, 8, 10, |_| false, 4));
}

#[test]
fn a_default_list_takes_the_place_of_the_umask() {
    let (inherited, mode) = Acl::from_xattr(&extended()).unwrap().inherit(0o666);
    assert_eq!(mode, 0o640);
    assert_eq!(inherited.mode(), 0o640);
}
