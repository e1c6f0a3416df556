use super::*;

#[test]
fn a_client_is_named_as_logs_show_it() {
    let id = ClientId(0x1234_5678_9abc_def0_1122_3344_5566_7788);
    assert_eq!(parse_clients(&id.to_string()).ok(), Some(Meant::One(id)));
    assert_eq!(parse_clients("nid:0@lo").ok(), Some(Meant::OfNid("0@lo".to_owned())));
    let mdt = Endpoint::Target(TargetId::mdt(1)).client_id();
    assert_eq!(parse_clients("fs-MDT0001_UUID").ok(), Some(Meant::One(mdt)));
    assert!(parse_clients("fs-XYZ0001_UUID").is_err());
    assert!(parse_clients("17").is_err());
    assert!(parse_clients("nid:").is_err());
}

#[test]
fn a_client_that_is_not_there_is_an_error() {
    let id = ClientId(7);
    let known = || vec![(id, "0@lo".to_owned()), (ClientId(8), "0@lo".to_owned())];
    assert_eq!(meant(known(), &id.to_string()).ok(), Some(vec![id]));
    assert_eq!(meant(known(), "nid:0@lo").ok().map(|found| found.len()), Some(2));
    assert!(meant(known(), &ClientId(9).to_string()).is_err());
}

#[test]
fn stripes_are_checked() {
    assert_eq!(parse_stripe_count("-1").ok(), Some(u16::MAX));
    assert!(parse_stripe_count("0").is_err());
    assert!(parse_stripe_count("2001").is_err());
    assert_eq!(parse_stripe_size("65536").ok(), Some(65536));
    for wrong in ["0", "65537", "4294901760", "4M", ""] {
        assert!(parse_stripe_size(wrong).is_err(), "{wrong}");
    }
}

/// Collectors of Lustre's know no ports in names, and tell targets by `_UUID`.
#[test]
fn clients_are_under_the_nids_of_their_machines() {
    let (mount, mdt) = (ClientId(77), Endpoint::Target(TargetId::mdt(1)).client_id());
    let clients = vec![
        (mount, "0@lo".to_owned()),
        (mdt, "10.0.0.1:7990@tcp".to_owned()),
        (ClientId(78), "10.0.0.1:7991@tcp".to_owned()),
        (ClientId(79), "a/b@x".to_owned()),
    ];
    let found = exports("mdt", "fs-MDT0000", clients);
    let shown: Vec<(&str, String)> = found
        .iter()
        .map(|(name, export)| (name.as_str(), (EXPORT_UUID.read)(export).expect("a value")))
        .collect();
    let id = |number: u128| ClientId(number).to_string();
    assert_eq!(
        shown,
        [
            ("mdt/fs-MDT0000/exports/0@lo", id(77)),
            ("mdt/fs-MDT0000/exports/10.0.0.1@tcp", format!("fs-MDT0001_UUID\n{}", id(78))),
            ("mdt/fs-MDT0000/exports/a_b@x", id(79)),
        ]
    );
}
