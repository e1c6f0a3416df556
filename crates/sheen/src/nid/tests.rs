#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn nids_have_a_default_port_and_may_be_listed() {
    assert_eq!(parse_nid("host@tcp").unwrap(), "host:7988");
    assert_eq!(parse_nid("10.0.0.1:99@tcp").unwrap(), "10.0.0.1:99");
    assert_eq!(
        parse_nids("a@tcp0:b:1@tcp0").unwrap(),
        ["a:7988", "b:1"],
        "as Lustre's first network may be written"
    );
    assert_eq!(parse_nid("[::1]:99@tcp").unwrap(), "[::1]:99");
    assert_eq!(parse_nid("[::1]@tcp").unwrap(), "[::1]:7988");
    assert_eq!(parse_nids("a@tcp,b:1@tcp:c@tcp").unwrap(), ["a:7988", "b:1", "c:7988"]);
}

#[test]
fn what_is_no_nid_is_refused() {
    for bad in
        ["", "host", "host@o2ib", "host@tcp1", "host:port@tcp", ":1@tcp", "a b@tcp", "h:0@tcp", "h:70000@tcp"]
    {
        assert!(parse_nids(bad).is_err(), "{bad:?}");
    }
}

/// Its last part would be taken for a port.
#[test]
fn an_ipv6_address_stands_in_brackets() {
    for (bad, instead) in [
        ("::1@tcp", "[::1]@tcp"),
        ("2001:db8::5@tcp", "[2001:db8::5]@tcp"),
        ("fe80::1:7988@tcp", "[fe80::1:7988]@tcp"),
    ] {
        let error = parse_nids(bad).unwrap_err().to_string();
        assert!(error.contains(instead), "{bad}: {error}");
        assert!(parse_nids(instead).is_ok(), "{instead}");
    }
    for bad in [
        "[::1@tcp",
        "::1]@tcp",
        "a:b:1@tcp",
        "[host]@tcp",
        "[::1]x@tcp",
        "[]@tcp",
        "[::g]:1@tcp",
        "[[::1]]@tcp",
    ] {
        assert!(parse_nids(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_source_names_servers_file_system_and_directory() {
    let source = Source::parse("a:1@tcp:b@tcp:/fs/x/y/").unwrap();
    assert_eq!(source.mgs, ["a:1", "b:7988"]);
    assert_eq!((source.fsname.as_str(), source.subdir.as_str()), ("fs", "x/y"));
    for bad in ["a@tcp", "a@tcp:fs", "a@tcp:/", "a@tcp:/toolongname", "a@tcp:/f s", ":/fs"] {
        assert!(Source::parse(bad).is_err(), "{bad:?}");
    }
}
