#![allow(clippy::unwrap_used)]
use super::*;
use clap::Parser as _;

fn refused(text: &str) -> String {
    let error = format!("{:#}", parse(text).unwrap_err());
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn a_file_says_what_the_command_line_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fast.toml");
    let text = "targets = [\"/srv/mdt0\", \"/srv/ost0\"]\nlisten = \"10.0.0.5\"\ninsecure_network = true\n\
                mgsnode = \"mgs@tcp\"\nfailover = true\nfence_cmd = \"off $SHEEN_FENCE_HOST\"\n\
                coordinator = \"etcd://10.0.0.1:2379,10.0.0.2:2379\"\nmetrics = \"127.0.0.1:9469\"\n";
    std::fs::write(&file, text).unwrap();
    let words = ["sheen", "serve", "--config", file.to_str().unwrap(), "--log", "/var/log/x"];
    let crate::cli::Command::Serve(serve) = crate::cli::Cli::try_parse_from(words).unwrap().command else {
        panic!("another command")
    };
    let told = complete(&serve).unwrap();
    assert_eq!(told.dirs, [PathBuf::from("/srv/mdt0"), "/srv/ost0".into()]);
    assert_eq!(told.listen.as_deref(), Some("10.0.0.5"));
    assert_eq!(told.mgsnode.as_deref(), Some("mgs@tcp"));
    assert_eq!(told.fence_cmd.as_deref(), Some("off $SHEEN_FENCE_HOST"));
    assert_eq!(told.coordinator, "etcd://10.0.0.1:2379,10.0.0.2:2379".parse().ok());
    assert!(told.coordinator.is_some() && told.insecure_network && told.failover);
    assert_eq!(told.background.log, Some("/var/log/x".into()));
    assert_eq!(told.background.metrics.as_deref(), Some("127.0.0.1:9469"));
}

#[test]
fn keys_that_are_not_known_are_refused_with_the_one_that_may_be_meant() {
    assert_eq!(
        refused("targets = [\"/d\"]\nlissten = \"h\""),
        "the key 'lissten' is not known; did you mean 'listen'?"
    );
    assert!(refused("targets = [\"/d\"]\ncolour = 1").contains("there are targets, listen"));
}

#[test]
fn values_that_make_no_server_are_refused() {
    assert!(refused("targets = [").starts_with("line 1: "));
    assert!(refused("targets = [\"/d\"]\n\nfailover = 7").starts_with("line 3: "));
    assert!(refused("targets = []").contains("names no target"));
    assert!(refused("targets = [\"d\"]").contains("no absolute path"));
    assert!(refused("targets = [\"/d\"]\nfence_cmd = \"x\"").contains("add failover = true"));
    assert!(refused("targets = [\"/d\"]\ncoordinator = \"x\"").contains("'coordinator' is for servers"));
    assert!(refused("").contains("names no target"));
}

#[test]
fn the_file_that_serves_a_target_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("ost0"), dir.path().join("link"));
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    std::fs::write(dir.path().join("a.toml"), "no configuration").unwrap();
    std::fs::write(dir.path().join("b.toml"), "targets = [\"/srv/other\"]").unwrap();
    assert_eq!(name_of(dir.path(), &target), None);
    std::fs::write(dir.path().join("c.toml"), format!("targets = [\"/srv/other\", {link:?}]")).unwrap();
    assert_eq!(name_of(dir.path(), &target).as_deref(), Some("c"));
    assert_eq!(name_of(&dir.path().join("none"), &target), None);
}

#[test]
fn the_example_that_is_installed_can_be_read() {
    let told = parse(include_str!("../../../../packaging/example.toml")).unwrap();
    assert_eq!(told.targets.len(), 1);
}

#[test]
fn a_value_that_is_no_address_is_refused_with_its_key() {
    for (line, key, words) in [
        ("failover = true\ncoordinator = \"http://h:1\"", "'coordinator'", "etcd://"),
        ("mgsnode = \"h@@tcp\"", "'mgsnode'", "no NID"),
        ("mgsnode = \"\"", "'mgsnode'", ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fast.toml");
        std::fs::write(&file, format!("targets = [\"/d\"]\n{line}\n")).unwrap();
        let words_of_command = ["sheen", "serve", "--config", file.to_str().unwrap()];
        let cli = crate::cli::Cli::try_parse_from(words_of_command).unwrap();
        let crate::cli::Command::Serve(serve) = cli.command else { panic!("another command") };
        let error = format!("{:#}", complete(&serve).unwrap_err());
        assert!(error.contains("fast.toml") && error.contains(key) && error.contains(words), "{error}");
    }
}
