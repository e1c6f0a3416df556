#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn who_comes_over_a_network_is_called_by_its_address_there() {
    assert_eq!(nid_of(IpAddr::from([10, 77, 0, 5])), "10.77.0.5@tcp");
    assert_eq!(nid_of("fd00::5".parse().unwrap()), "[fd00::5]@tcp");
    for loopback in ["127.0.0.1", "127.0.0.9", "::1"] {
        assert_eq!(nid_of(loopback.parse().unwrap()), LOOPBACK);
    }
}

#[test]
fn an_address_to_which_there_is_no_way_is_passed_over() {
    let addresses = ["no such host:7988", "127.0.0.1:7988"].map(str::to_owned);
    assert_eq!(local_address(&addresses[0]).ok(), None);
    assert_eq!(local_address(&addresses[1]).ok(), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_eq!(own_nid(&addresses), LOOPBACK);
    assert_eq!(own_nid(&[]), LOOPBACK);
}
