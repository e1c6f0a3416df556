#![allow(clippy::unwrap_used)]

use super::*;
use crate::control::{MountStatus, TargetStatus};

fn arranged(words: &[&str], now: &[(u64, u64)]) -> Result<Vec<String>> {
    let mut settings: Vec<Setting> =
        words.iter().map(|word| Setting::parse(word, false)).collect::<Result<_>>()?;
    arrange_bounds(&mut settings, now)?;
    Ok(settings.into_iter().map(|setting| format!("{}={}", setting.pattern, setting.value)).collect())
}

/// Both bounds can be moved past the former other one with one command, whichever way.
#[test]
fn bounds_come_in_an_order_in_which_each_fits() {
    for words in [["at_min=50", "at_max=60"], ["at_max=60", "at_min=50"]] {
        let up = arranged(&words, &[(0, 10)]).unwrap_or_default();
        assert_eq!(up, ["at_max=60", "at_min=50"]);
        let down = arranged(&words, &[(100, 600)]).unwrap_or_default();
        assert_eq!(down, ["at_min=50", "at_max=60"]);
    }
    let without = arranged(&["at_min=50", "debug=info", "at_max=0"], &[(100, 600)]).unwrap_or_default();
    assert_eq!(without, ["at_max=0", "debug=info", "at_min=50"]);
}

/// Neither is set when they do not fit each other, or what a process has and keeps.
#[test]
fn bounds_that_do_not_fit_are_refused_before_the_first_is_set() {
    for now in [&[][..], &[(0, 600)]] {
        let error = arranged(&["at_min=50", "at_max=10"], now).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|line| line.contains("at_min would be 50")), "{error:?}");
    }
    assert!(arranged(&["debug=info", "at_min=50"], &[(0, 600), (0, 10)]).is_err());
    assert!(arranged(&["debug=info", "at_max=50"], &[(60, 600)]).is_err());
    assert!(arranged(&["debug=info", "at_max=0"], &[(60, 600)]).is_ok());
    assert!(arranged(&["debug=info", "at_min=50"], &[(0, 0)]).is_ok());
}

/// `get_param -N 'osc.*'` is how scripts ask for instances.
#[test]
fn names_are_those_of_parameters_and_of_levels_above_them() {
    for pattern in ["osc.*", "llite.*", "mdt", "llite.*.stats", "*.*.exports.*.uuid"] {
        assert!(check_listed(pattern).is_ok(), "{pattern}");
    }
    let said = |pattern: &str| check_listed(pattern).unwrap_err().to_string();
    assert!(said("osc.*.idle_timeout").contains("of Lustre is not here: "), "{}", said("osc.*.idle_timeout"));
    assert!(said("llite.*.stat").contains("there is llite.*.stats"), "{}", said("llite.*.stat"));
}

#[test]
fn nids_are_those_of_servers_and_of_clients_on_their_way() {
    let target = TargetStatus {
        name: "OST0000".to_owned(),
        fsname: "fs".to_owned(),
        dir: "/data/OST0000".into(),
        nid: "10.0.0.1:7988@tcp".to_owned(),
        state: "active".to_owned(),
        pid: 7,
        recovery: None,
        owner: None,
        alert: None,
        unserved: None,
        unheard: Vec::new(),
    };
    let mount = MountStatus {
        path: "/mnt".into(),
        fsname: "fs".to_owned(),
        source: "127.0.0.1@tcp:/fs".to_owned(),
        mgs_nids: vec!["127.0.0.1:7988@tcp".to_owned()],
        transport: "dev".to_owned(),
        device: String::new(),
        is_detached: false,
        options: Vec::new(),
        options_at_start: Vec::new(),
        unheard: Vec::new(),
        pid: 7,
    };
    let targets = vec![target.clone(), target];
    let server = Process { targets, mounts: vec![mount.clone()], ..Process::default() };
    let client = Process { mounts: vec![mount], ..Process::default() };
    let nids = |here: &[Process]| nids_of(here).unwrap().into_iter().collect::<Vec<String>>();
    assert_eq!(nids(std::slice::from_ref(&server)), ["10.0.0.1:7988@tcp"]);
    assert_eq!(nids(&[server, client]), ["0@lo", "10.0.0.1:7988@tcp"]);
}

/// In the middle of an upgrade an older process knows less than the others.
#[test]
fn who_does_not_know_a_parameter_keeps_nobody_from_it() {
    let known = |value: &str| Ok(vec![("lod.*.qos_maxage".to_owned(), value.to_owned())]);
    let unknown = || Err(anyhow::anyhow!("there is no parameter"));
    let merged = merge([unknown(), known("7"), Ok(Vec::new()), known("7")].into_iter()).unwrap();
    assert_eq!(merged, known("7").unwrap());
    assert!(merge([Ok(Vec::new()), unknown()].into_iter()).is_err());
    assert_eq!(merge(std::iter::empty()).unwrap(), []);
}

/// What one file system has done stays done, whatever another one says.
#[test]
fn a_file_system_that_refuses_is_named_beside_those_that_do_not() {
    let refused = |names: &[&str]| -> Vec<Refusal> {
        let refusal = |name: &str| match name {
            "absent" => anyhow::Error::new(Absent("absent says no".to_owned())),
            name => anyhow::anyhow!("{name} says no"),
        };
        names.iter().map(|name| (name.to_string(), refusal(name))).collect()
    };
    let judged = |names: &[&str], is_done, is_deleted| {
        let notes = std::cell::RefCell::new(Vec::new());
        let judged =
            judge(refused(names), is_done, is_deleted, |line| notes.borrow_mut().push(line.to_owned()));
        (judged.map_err(|error| error.to_string()), notes.into_inner())
    };
    let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(judged(&[], true, false), (Ok(()), lines(&[])));
    assert_eq!(judged(&["absent"], true, true), (Ok(()), lines(&["absent: absent says no"])));
    let evicted = judged(&["absent"], true, false);
    assert_eq!(evicted, (Ok(()), lines(&["absent: absent says no"])));
    let one_is_left = judged(&["absent", "b"], true, true);
    let said = lines(&["absent: absent says no", "b: b says no"]);
    assert_eq!(one_is_left, (Err("it is not taken out in b".to_owned()), said));
    let somewhere = judged(&["b", "c"], true, false);
    assert_eq!(
        somewhere,
        (Err("it is not set in b, c".to_owned()), lines(&["b: b says no", "c: c says no"]))
    );
    for is_deleted in [false, true] {
        let nowhere = judged(&["a", "b"], false, is_deleted);
        assert_eq!(nowhere, (Err("a says no".to_owned()), lines(&["b: b says no"])));
    }
}

#[test]
fn what_is_refused_keeps_nothing_behind_it_from_being_set() {
    let setting = |name: &str| Setting { pattern: name.to_owned(), value: "1".to_owned() };
    let settings = [setting("a"), setting("b"), setting("c")];
    let mut asked = Vec::new();
    let set = |setting: &Setting| {
        asked.push(setting.pattern.clone());
        if setting.pattern == "c" { Ok(()) } else { Err(anyhow::anyhow!("{} is refused", setting.pattern)) }
    };
    let error = each(&settings, set).expect_err("two were refused");
    assert_eq!(error.to_string(), "b is refused");
    assert_eq!(asked, ["a", "b", "c"]);
}

/// What a script sets is set in all that have it, or it is told: the mounts of a machine may differ in what they allow.
#[test]
fn a_process_that_refuses_a_value_is_named_beside_those_that_take_it() {
    let known = || Ok(vec![("at_min".to_owned(), "20".to_owned())]);
    let ask = |pid: u32, ask: &Ask| match (pid, ask) {
        (2, Ask::SetParam { .. }) => Err(anyhow::anyhow!("at_min would be 20 and at_max 10")),
        (1 | 2, _) => known(),
        (3, _) => Err(anyhow::anyhow!("there is no parameter 'at_min'")),
        _ => Ok(Vec::new()),
    };
    let (pattern, value) = ("at_min".to_owned(), "20".to_owned());
    let set = Ask::SetParam { pattern, value, is_permanent: false, is_deleted: false };
    let judged = |pids: &[u32]| {
        let (found, refused) = set_in_each(pids.iter().copied(), "at_min", &set, ask);
        let judged = judge(refused, !found.is_empty(), false, |_| {});
        (found.len(), judged.map_err(|error| error.to_string()))
    };
    assert_eq!(judged(&[1, 3, 4]), (1, Ok(())), "it is set in all that have it");
    assert_eq!(judged(&[1, 2, 3]), (1, Err("it is not set in process 2".to_owned())));
    assert_eq!(judged(&[3, 2]), (0, Err("at_min would be 20 and at_max 10".to_owned())));
    assert_eq!(judged(&[3]), (0, Err("there is no parameter 'at_min'".to_owned())));
    assert_eq!(judged(&[4]), (0, Ok(())), "which nobody has");
}

#[test]
fn a_name_that_is_not_there_keeps_none_behind_it_from_being_listed() {
    let patterns = ["nonsense", "more nonsense"].map(str::to_owned).to_vec();
    let command = LctlCommand::ListParam { mark: false, recursive: false, patterns };
    let error = run(&Lctl { device: None, command }).expect_err("neither is there");
    assert!(error.to_string().starts_with("2 of 2 are not here"), "{error}");
}
