use super::*;

#[test]
fn a_client_is_named_as_logs_show_it() {
    let id = ClientId(0x1234_5678_9abc_def0_1122_3344_5566_7788);
    assert_eq!(parse_clients(&id.to_string()).ok(), Some(Meant::One(id)));
    assert_eq!(parse_clients("nid:0@lo").ok(), Some(Meant::OfNid("0@lo".to_owned())));
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
