use super::*;
use std::fmt::Write as _;

#[test]
fn globs_stay_within_one_part() {
    assert!(glob::matches("llite.*.stats", "llite/fs-1/stats"));
    assert!(!glob::matches("llite.*", "llite/fs-1/stats"));
    assert!(glob::matches("llite.*.*", "llite/fs-1/stats"));
    assert!(glob::matches("{mdc,osc}.*.state", "osc/a/state"));
    assert!(glob::matches("osc.fs-OST000[0-3]-*.state", "osc/fs-OST0002-osc-1/state"));
    assert!(!glob::matches("osc.fs-OST000[0-3]-*.state", "osc/fs-OST0004-osc-1/state"));
    assert!(glob::matches("osc/*/st?te", "osc/a/state"));
    assert!(glob::matches("*", "version"));
    assert!(!glob::matches("*", "osc/a/state"));
    assert!(!glob::matches("vers", "version"));
    assert!(glob::matches("mdt.*.exports.*.uuid", "mdt/fs-MDT0000/exports/127.0.0.1:9@tcp/uuid"));
    assert!(glob::matches(
        "mdt.*.exports.127.0.0.1:9@tcp.uuid",
        "mdt/fs-MDT0000/exports/127.0.0.1:9@tcp/uuid"
    ));
    assert!(glob::matches("mdt.*.exports.*.*", "mdt/fs-MDT0000/exports/127.0.0.1:9@tcp/uuid"));
    assert!(glob::matches("mgs.MGS.exports.*.*", "mgs/MGS/exports/127.0.0.1:9@tcp/uuid"));
    assert!(glob::matches("*.*.exports.127.*.uu*", "mdt/fs-MDT0000/exports/127.0.0.1:9@tcp/uuid"));
    assert!(!glob::matches("mdt.*.uuid", "mdt/fs-MDT0000/exports/0@lo/uuid"));
}

#[test]
fn a_pattern_meets_the_paths_that_it_may_mean() {
    for (pattern, path) in [
        ("osc.fs-OST0000-osc-0123.active", "osc.*.active"),
        ("osc.*.active", "osc.*.active"),
        ("{osc,mdc}.*.active", "mdc.*.active"),
        ("osc.*OST000[0-3]*.act?ve", "osc.*.active"),
        ("ldlm.namespaces.mdt-*.lock_count", "ldlm.namespaces.*.lock_count"),
        ("ldlm.namespaces.*.lock_count", "ldlm.namespaces.mdt-*.lock_count"),
        ("*.*.stats", "llite.*.stats"),
        ("debug", "debug"),
    ] {
        assert!(glob::meets(pattern, path), "{pattern} and {path}");
    }
    for (pattern, path) in [
        ("osc.active", "osc.*.active"),
        ("osc.*.activ", "osc.*.active"),
        ("osc.*.*.active", "osc.*.active"),
        ("mdc.*.active", "osc.*.active"),
        ("*", "osc.*.active"),
        ("", "debug"),
        ("ldlm.namespaces.filter-*.lock_count", "ldlm.namespaces.mdt-*.lock_count"),
    ] {
        assert!(!glob::meets(pattern, path), "{pattern} and {path}");
    }
}

#[test]
fn hostile_globs_end_soon_and_do_not_panic() {
    let name = "osc/fs-OST0002-osc-0000000000000001/state";
    for pattern in
        ["[", "[a", "{", "{a", "}", "{,}{,}{,}{,}{,}{,}{,}{,}{,}", "é*", "[]", "***", "[-]", "/", "..."]
    {
        let _ = glob::matches(pattern, name);
        let _ = glob::meets(pattern, "osc.*.state");
        let _ = check(pattern, "1", true);
    }
    assert!(!glob::matches(&"*a".repeat(400), &"a".repeat(300)));
    assert!(!glob::meets(&"*a".repeat(400), "osc.*.state"));
}

fn declared() -> Vec<Declared> {
    CLASSES.iter().flat_map(|class| class.declared()).collect()
}

#[test]
fn every_parameter_is_declared_once_and_explained() {
    let declared = declared();
    for (at, one) in declared.iter().enumerate() {
        assert!(one.doc.ends_with('.'), "{} has no sentence", one.path);
        assert!(declared.iter().skip(at + 1).all(|other| other.path != one.path), "{} twice", one.path);
    }
}

#[test]
fn what_is_absent_is_not_declared() {
    for (path, reason) in absent::ABSENT {
        assert!(!reason.is_empty());
        assert!(!declared().iter().any(|declared| glob::meets(path, &declared.path)), "{path} is here");
    }
}

#[test]
fn wrong_names_values_and_what_can_only_be_read_are_told_apart() {
    let said = |pattern: &str, value: &str, is_permanent| {
        check(pattern, value, is_permanent).map_err(|error| format!("{error:#}")).err().unwrap_or_default()
    };
    assert_eq!(said("osc.*.max_rpcs_in_flight", "8", true), "");
    assert_eq!(said("osc.fs-OST0001-*.active", "0", true), "");
    assert_eq!(said("llite.*.stats", "clear", false), "");
    assert!(said("osc.*.max_rpc_in_flight", "8", false).contains("osc.*.max_rpcs_in_flight"));
    assert!(said("osc.*.max_rpcs_in_flight", "0", false).contains("a number from 1 to 512"));
    assert!(said("osc.*.max_rpcs_in_flight", "many", false).contains("a number from 1 to 512"));
    assert!(said("llite.*.uuid", "1", false).contains("can only be read"));
    assert!(said("mdt.*.evict_client", &base::ClientId(7).to_string(), true).contains("once"));
    assert!(said("llite.*.stats", "0", true).contains("once"));
    assert!(said("llite.fs-1.statahead_min", "32", false).contains("a listing brings"));
    for (below, reason) in [
        ("nodemap.active", "trust every client"),
        ("nodemap", "trust every client"),
        ("nodemap.default.admin_nodemap", "trust every client"),
        ("qmt.fs-QMT0000.dt-0x0.glb-usr", "no quotas"),
        ("osd-*.fs-OST0001.quota_slave.info", "no quotas"),
        ("mdt.*.hsm_control", "no HSM"),
        ("mdt.fs-MDT0000.hsm.max_requests", "no HSM"),
        ("mdd.*.lfsck_namespace", "sheen fsck"),
    ] {
        let line = said(below, "1", false);
        assert!(line.contains(reason), "{below}: {line}");
    }
    assert!(!said("osc.hsm-OST0001.activ", "1", false).contains("HSM"));
    assert!(said("nonsense", "1", false).contains("list_param"));
    for line in [said("osc.*.activ", "1", false), said("timeout", "5", false), said("debug", "=[", false)] {
        assert!(!line.is_empty() && !line.contains('\n'), "{line}");
    }
}

/// docs/parameters.md as the tables have it.
fn document() -> String {
    let mut out = String::from(
        "# Parameters\n\n\
         Read with `sheen lctl get_param NAME`, set with `sheen lctl set_param NAME=VALUE`, listed with\n\
         `sheen lctl list_param [-R] [-F] NAME`. Names take globs: `*` and `?` within one part, `[…]`, `{a,b}`.\n\n\
         `set_param -P` keeps a value at the management server: it holds for all processes of the file system now, for\n\
         those that come later, and after restarts; `set_param -P -d NAME` takes it out, and what it has set stays until\n\
         a restart. `get_param mgs.MGS.live.*` shows what is permanent. A management server that does not answer within 10 s is\n\
         not asked again: somebody may set another value by then. Each file system of this machine is asked; one that refuses is named, and keeps\n\
         no other from it. Without `-P` that holds for each process of this machine that has the parameter.\n\n\
         This page is made from the tables in `crates/sheen/src/params`; a test compares it.\n\n\
         | name | what it is | can be set to |\n|---|---|---|\n",
    );
    let cell = |text: &str| text.replace('|', "\\|");
    for declared in declared() {
        let values = declared.values.as_deref().unwrap_or("");
        let _ = writeln!(out, "| `{}` | {} | {} |", declared.path, cell(declared.doc), cell(values));
    }
    out.push_str("\n## Parameters of Lustre that are not here\n\n| name | why |\n|---|---|\n");
    for (path, reason) in absent::ABSENT {
        let _ = writeln!(out, "| `{path}` | {} |", cell(reason));
    }
    out
}

#[test]
fn the_document_says_what_the_tables_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/parameters.md");
    if std::env::var_os("SHEEN_WRITE_DOCS").is_some() {
        std::fs::write(path, document()).expect("docs/parameters.md can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == document(), "write it anew: SHEEN_WRITE_DOCS=1 cargo test -p sheen the_document_says");
}

#[test]
fn names_that_look_alike_are_proposed() {
    let paths = ["osc.*.max_rpcs_in_flight", "mdc.*.max_rpcs_in_flight", "osc.*.active", "debug"];
    assert_eq!(names::alike("osc.*.max_rpc_in_flight", &paths).first().map(String::as_str), Some(paths[0]));
    assert_eq!(names::alike("debgu", &paths), ["debug"]);
    assert!(names::alike("entirely.different.thing", &paths).is_empty());
}

#[test]
fn what_one_ost_is_told_goes_before_what_all_are_told() {
    let ost =
        |index| base::TargetConfig { id: TargetId::ost(index), uuid: 1, nids: Vec::new(), is_active: true };
    let params = [
        ("obdfilter.*.no_create", "1"),
        ("obdfilter.fs-OST0001.no_create", "0"),
        ("obdfilter.other-OST0003.no_create", "0"),
        ("osc.fs-OST0002.active", "0"),
    ];
    let params = params.map(|(path, value)| (path.to_owned(), value.to_owned())).to_vec();
    let config = ClusterConfig {
        fsname: "fs".to_owned(),
        targets: vec![ost(1), ost(2), ost(3)],
        params,
        ..Default::default()
    };
    assert_eq!(no_create(&config, TargetKind::Ost), BTreeSet::from([2, 3]));
    assert!(no_create(&config, TargetKind::Mdt).is_empty(), "that is about OSTs");
    assert_eq!(drained(&config), BTreeSet::from([TargetId::ost(2), TargetId::ost(3)]));
    assert!(!are_osts_drained(&config), "OST0001 is open");
    let params = vec![("obdfilter.*.no_create".to_owned(), "1".to_owned())];
    assert!(are_osts_drained(&ClusterConfig { params: params.clone(), ..config.clone() }));
    let none = ClusterConfig { params, targets: Vec::new(), ..config.clone() };
    assert!(!are_osts_drained(&none), "there are none yet");
    assert!(no_create(&ClusterConfig { params: Vec::new(), ..config.clone() }, TargetKind::Ost).is_empty());
    let mdt = |index| base::TargetConfig { id: TargetId::mdt(index), ..ost(index) };
    let params = vec![("mdt.fs-MDT0001.no_create".to_owned(), "1".to_owned())];
    let config = ClusterConfig { targets: vec![mdt(0), mdt(1), ost(1)], params, ..config };
    assert_eq!(no_create(&config, TargetKind::Mdt), BTreeSet::from([1]));
    assert!(no_create(&config, TargetKind::Ost).is_empty());
}

/// An MDT that has dropped a client already has no session of it any more.
#[test]
fn who_cannot_do_something_once_keeps_none_behind_him_from_it() {
    const fn ending(ends: fn(&bool, &str) -> anyhow::Result<()>, is_lasting: bool) -> [Param<bool>; 1] {
        let write = Write::Word { values: "a client", check: |_| Ok(()), apply: ends, is_lasting };
        [Param { name: "end", doc: "Ends a session.", read: |_| None, write: Some(write) }]
    }
    static PARAMS: [Param<bool>; 1] = ending(end, false);
    static LASTING: [Param<bool>; 1] = ending(end, true);
    fn end(has_it: &bool, value: &str) -> anyhow::Result<()> {
        if *has_it { Ok(()) } else { bail!("no client {value} is there") }
    }
    const fn class(
        instances: fn(&Node) -> Vec<(String, bool)>,
        params: &'static [Param<bool>],
    ) -> Class<bool> {
        Class { path: "mdt/*", instances, params }
    }
    let instances = |_: &Node| vec![("mdt/a".to_owned(), false), ("mdt/b".to_owned(), true)];
    let nobody = |_: &Node| vec![("mdt/a".to_owned(), false)];
    let node = Node::idle();
    let set = |class: Class<bool>| set_in(&[&class], &node, "mdt.*.end", "x");
    let done = set(class(instances, &PARAMS));
    assert_eq!(done.expect("one has it"), [("mdt.b.end".to_owned(), "x".to_owned())]);
    let error = set(class(nobody, &PARAMS)).expect_err("nobody has it");
    assert_eq!(error.to_string(), "no client x is there");
    assert!(set(class(instances, &LASTING)).is_err(), "a value is for all, or for none");
}
