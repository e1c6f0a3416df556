use super::*;

#[test]
fn globs_stay_between_dots() {
    assert!(glob::matches("llite.*.stats", "llite.fs-1.stats"));
    assert!(!glob::matches("llite.*", "llite.fs-1.stats"));
    assert!(glob::matches("llite.*.*", "llite.fs-1.stats"));
    assert!(glob::matches("{mdc,osc}.*.state", "osc.a.state"));
    assert!(glob::matches("osc.fs-OST000[0-3]-*.state", "osc.fs-OST0002-osc-1.state"));
    assert!(!glob::matches("osc.fs-OST000[0-3]-*.state", "osc.fs-OST0004-osc-1.state"));
    assert!(glob::matches("osc/*/st?te", "osc.a.state"));
    assert!(glob::matches("*", "version"));
    assert!(!glob::matches("vers", "version"));
}

#[test]
fn hostile_globs_end_soon_and_do_not_panic() {
    let name = "osc.fs-OST0002-osc-0000000000000001.state";
    for pattern in ["[", "[a", "{", "{a", "}", "{,}{,}{,}{,}{,}{,}{,}{,}{,}", "é*", "[]", "***", "[-]"] {
        let _ = glob::matches(pattern, name);
    }
    assert!(!glob::matches(&"*a".repeat(400), &"a".repeat(300)));
}

#[test]
fn every_parameter_is_declared_once_and_explained() {
    for (at, declared) in TABLE.iter().enumerate() {
        assert!(declared.doc.ends_with('.'), "{} has no sentence", declared.path);
        assert!(
            TABLE.iter().skip(at + 1).all(|other| other.path != declared.path),
            "{} twice",
            declared.path
        );
    }
}

#[test]
fn a_client_is_named_as_logs_show_it() {
    let id = ClientId(0x1234_5678_9abc_def0_1122_3344_5566_7788);
    assert_eq!(parse_client(&id.to_string()).ok(), Some(id));
    assert!(parse_client("17").is_err());
}
