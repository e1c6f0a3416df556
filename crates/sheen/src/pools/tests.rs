#![allow(clippy::unwrap_used)]
use super::*;
use base::TargetConfig;

fn osts(words: &[&str]) -> Result<Vec<u16>> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    parse_osts("scratch", &words)
}

#[test]
fn osts_have_lustres_names() {
    assert_eq!(osts(&["scratch-OST000a", "OST0001", "OST0002_UUID", "7"]).unwrap(), [10, 1, 2, 7]);
    assert_eq!(osts(&["OST[0-2,5]"]).unwrap(), [0, 1, 2, 5]);
    assert_eq!(osts(&["scratch-OST[10-11]", "0,3"]).unwrap(), [10, 11, 0, 3]);
}

#[test]
fn what_names_no_ost_is_refused_in_one_line() {
    for words in [
        &["OST"][..],
        &["OSTx"],
        &["OST[0-"],
        &["OST[3-1]"],
        &["OST[]"],
        &["65535"],
        &["MDT0000"],
        &["other-OST0001"],
        &["-1"],
        &["1", "OST0001"],
        &[""],
    ] {
        let told = osts(words).unwrap_err().to_string();
        assert!(!told.contains('\n') && !told.is_empty(), "{words:?}: {told}");
    }
}

#[test]
fn pools_have_a_file_system_and_a_name() {
    let place: Place = "scratch.flash".parse().unwrap();
    assert_eq!((place.fsname.as_str(), place.pool.as_str()), ("scratch", "flash"));
    for text in ["scratch", "scratch.", "scratch.sixteen_chars_16", "scratch.a b"] {
        assert!(text.parse::<Place>().is_err(), "{text}");
    }
}

/// Its processes may run all the same, and answer somebody else.
#[test]
fn who_hears_nobody_is_not_told_that_nothing_runs() {
    let of_root = || -> Result<()> { bail!("ask as root") };
    let said = |here: &[Process]| process_of(here, "scratch", of_root).unwrap_err().to_string();
    assert_eq!(said(&[]), "ask as root");
    assert!(said(&[Process::default()]).starts_with("no process of file system 'scratch'"));
    assert!(process_of(&[], "scratch", || Ok(())).is_err());
}

#[test]
fn a_refused_change_is_told_in_words() {
    let ost = |index| TargetConfig { id: TargetId::ost(index), uuid: 1, nids: Vec::new(), is_active: true };
    let pools = vec![Pool { name: "flash".parse().unwrap(), osts: vec![1] }];
    let targets = vec![ost(0), ost(1)];
    let config = ClusterConfig { fsname: "s".to_owned(), version: 1, targets, params: Vec::new(), pools };
    let told =
        |name: &str, action| check(&config, &name.parse().unwrap(), &action).map_err(|e| e.to_string());
    assert_eq!(told("flash", PoolAction::Add(vec![0])), Ok(()));
    assert_eq!(told("disk", PoolAction::New), Ok(()));
    let refused = [
        ("flash", PoolAction::New, "exists already"),
        ("disk", PoolAction::Destroy, "there is no pool s.disk"),
        ("flash", PoolAction::Destroy, "take them out first"),
        ("flash", PoolAction::Add(vec![0, 9]), "there is no OST0009"),
        // A script that is run again with one more must not take it for added.
        (
            "flash",
            PoolAction::Add(vec![0, 1]),
            "in pool s.flash already: OST0001; nothing was changed, name the others only",
        ),
        (
            "flash",
            PoolAction::Remove(vec![1, 0]),
            "not in pool s.flash: OST0000; nothing was changed, name the others only",
        ),
    ];
    for (name, action, wanted) in refused {
        let line = told(name, action).unwrap_err();
        assert!(line.contains(wanted), "{line}");
    }
    for action in [PoolAction::Add(vec![1]), PoolAction::Remove(vec![0])] {
        let line = told("flash", action).unwrap_err();
        assert!(line.ends_with("; nothing was changed"), "there are no others: {line}");
    }
}

/// `lfs setstripe -p none` asks for no pool.
#[test]
fn a_pool_has_a_name_that_can_be_asked_for() {
    let said = create(&"scratch.none".parse().unwrap()).unwrap_err().to_string();
    assert!(said.contains("no pool can be named 'none'"), "{said}");
}
