#![allow(clippy::unwrap_used)]

use super::*;

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
    let target = |name: &str, space, is_active, is_drained| TargetState {
        name: name.to_owned(),
        space,
        is_active,
        is_drained,
    };
    let full = Statfs { bytes_available: 0, ..space(1) };
    let targets = vec![
        target("MDT0000", Some(space(1)), true, false),
        target("OST0000", Some(space(1)), true, false),
        target("OST000a", Some(space(1)), true, true),
        target("OST000b", None, true, true),
        target("OST000c", None, false, false),
        target("OST000d", Some(full), true, true),
        target("OST000e", Some(Statfs { inodes_free: 0, ..space(1) }), true, false),
    ];
    let table = table("fs", Path::new("/m"), &targets, &Show::default());
    let expected = "UUID                   1K-blocks        Used   Available Use% Mounted on
fs-MDT0000_UUID              100          50          40  56% /m[MDT:0]
fs-OST0000_UUID              100          50          40  56% /m[OST:0]
fs-OST000a_UUID              100          50          40  56% /m[OST:10] N
fs-OST000b_UUID: Resource temporarily unavailable
fs-OST000c_UUID: inactive device
fs-OST000d_UUID              100          50           0 100% /m[OST:13] NS
fs-OST000e_UUID              100          50          40  56% /m[OST:14] I

filesystem_summary:          100          50          40  56% /m

";
    assert_eq!(table, expected);
}

/// `df -i` shows the same (`Statfs::inodes_of`).
#[test]
fn inodes_in_use_are_those_of_the_mdts() {
    let target = |name: &str, device, inodes_total, inodes_free| TargetState {
        name: name.to_owned(),
        space: Some(Statfs { inodes_total, inodes_free, device, ..Statfs::default() }),
        is_active: true,
        is_drained: false,
    };
    let show = Show { is_inodes: true, ..Show::default() };
    for (ost_free, expected) in [(60, ["80", "30", "50"]), (20, ["50", "30", "20"])] {
        let targets =
            [target("MDT0000", 1, 40, 25), target("MDT0001", 2, 40, 25), target("OST0000", 3, 70, ost_free)];
        let table = table("fs", Path::new("/m"), &targets, &show);
        let summary = table.lines().find(|line| line.starts_with("filesystem_summary:")).unwrap();
        assert_eq!(summary.split_whitespace().skip(1).take(3).collect::<Vec<_>>(), expected);
    }
}
