#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn sizes_have_units_and_are_multiples_of_the_least_stripe() {
    assert_eq!(parse_size("64K").unwrap(), 64 << 10);
    assert_eq!(parse_size("4m").unwrap(), 4 << 20);
    assert_eq!(parse_size("1048576").unwrap(), 1 << 20);
    for bad in ["", "K", "5", "100K5", "4G", "-1", "99999999999G", "1é"] {
        assert!(parse_size(bad).is_err(), "{bad}");
    }
}

#[test]
fn all_osts_and_any_ost_have_numbers_of_their_own() {
    let hint = layout_hint(Some(-1), None, Some(-1)).unwrap();
    assert_eq!((hint.stripe_count, hint.first_ost), (Some(u16::MAX), None));
    assert!(layout_hint(Some(-2), None, None).is_err());
}

#[test]
fn space_that_targets_share_is_counted_once() {
    let space = |device| Statfs {
        bytes_total: 100 << 10,
        bytes_free: 50 << 10,
        bytes_available: 40 << 10,
        inodes_total: 10,
        inodes_free: 5,
        device,
    };
    let targets = vec![
        ("MDT0000".to_owned(), Some(space(1))),
        ("OST0000".to_owned(), Some(space(1))),
        ("OST000a".to_owned(), Some(space(1))),
        ("OST000b".to_owned(), None),
    ];
    let table = df_table("fs", Path::new("/m"), &targets, false, false);
    let expected = "UUID                   1K-blocks        Used   Available Use% Mounted on
fs-MDT0000_UUID              100          50          40  56% /m[MDT:0]
fs-OST0000_UUID              100          50          40  56% /m[OST:0]
fs-OST000a_UUID              100          50          40  56% /m[OST:10]
fs-OST000b_UUID: inactive device

filesystem_summary:          100          50          40  56% /m

";
    assert_eq!(table, expected);
}
