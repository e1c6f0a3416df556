use super::*;

fn words(arguments: &[&str]) -> Vec<String> {
    let arguments = as_sheen(arguments.iter().map(OsString::from));
    arguments.into_iter().flatten().map(|word| word.to_string_lossy().into_owned()).collect()
}

#[test]
fn other_names_are_subcommands() {
    assert_eq!(words(&["/usr/bin/lfs", "df", "-h"]), ["sheen", "lfs", "df", "-h"]);
    assert_eq!(words(&["mkfs.sheen", "--mgs", "d"]), ["sheen", "mkfs", "--mgs", "d"]);
    assert_eq!(words(&["./sheen", "up"]), ["./sheen", "up"]);
}

#[test]
fn helpers_of_mount_take_its_arguments() {
    let called = ["/sbin/mount.sheen", "h@tcp:/fs", "/mnt", "-sv", "-t", "sheen", "-o", "ro,noatime"];
    assert_eq!(words(&called), ["sheen", "mount", "h@tcp:/fs", "/mnt", "--sloppy", "-o", "ro,noatime"]);
    // `mount -f` mounts nothing, and `mount -fav` hands it on.
    let called = ["/sbin/mount.sheen", "h@tcp:/fs", "/mnt", "-fv", "-n"];
    assert_eq!(words(&called), ["sheen", "mount", "h@tcp:/fs", "/mnt", "--fake"]);
    assert_eq!(words(&["umount.fuse.sheen", "/mnt", "-l"]), ["sheen", "umount", "/mnt", "--lazy"]);
    assert_eq!(words(&["umount.fuse.sheen", "/mnt", "-f"]), ["sheen", "umount", "/mnt", "--force"]);
}

/// They call their helper in the namespace that they come from.
#[test]
fn helpers_of_mount_act_in_no_other_namespace() {
    let said = |words: &[&str]| as_sheen(words.iter().map(OsString::from)).map_err(|error| error.to_string());
    for words in [
        &["umount.fuse.sheen", "/mnt", "-N", "/proc/7/fd/5"][..],
        &["mount.sheen", "h@tcp:/fs", "/mnt", "-N", "/proc/7/fd/5", "-o", "rw"],
    ] {
        assert!(said(words).is_err_and(|line| line.contains("nsenter --target PID --mount")), "{words:?}");
    }
}

#[test]
fn the_command_line_is_well_formed() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn lfs_and_lctl_say_their_version() {
    for called in ["/usr/bin/lfs", "/usr/bin/lctl", "sheen"] {
        let parsed = Cli::try_parse_from(words(&[called, "--version"]));
        assert_eq!(parsed.err().map(|error| error.kind()), Some(ErrorKind::DisplayVersion), "{called}");
    }
}

/// In layouts the highest number is the MDT of the file, in requests it is any target: as the index of one it would be neither.
#[test]
fn the_highest_number_is_no_index_of_a_target() {
    for kind in ["--ost", "--mdt"] {
        let parse = |index| Cli::try_parse_from(["sheen", "mkfs", kind, "--index", index, "d"]);
        let error = parse("65535").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("65535 is not in 0..=65534"), "{error}");
        assert!(parse("65534").is_ok());
    }
}

/// Names of files are bytes, everything else that is typed is text.
#[test]
fn only_paths_may_be_no_text() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = |text: &[u8]| OsString::from_vec(text.to_vec());
    let said = |words: &[&[u8]]| no_text(&words.iter().map(|word| bytes(word)).collect::<Vec<_>>());
    let wrong = said(&[b"sheen", b"lctl", b"get_param", b"llite.\xff"]);
    assert!(wrong.is_some_and(|line| line.starts_with("'llite.\u{fffd}' is not UTF-8 text")));
    let wrong = said(&[b"sheen", b"mount", b"h@tcp:/\xff", b"/mnt/\xfe"]);
    assert!(wrong.is_some_and(|line| line.contains("'h@tcp:/\u{fffd}'")));
    for fine in [&[b"sheen" as &[u8], b"up", b"--dir", b"/\xff"], &[b"sheen", b"lfs", b"path2fid", b"/\xff"]]
    {
        assert_eq!(said(fine), None);
    }
}

fn told(words: &[&str]) -> Option<String> {
    let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
    let error = Cli::try_parse_from(&arguments).err()?;
    instead_of(&error, &arguments).or_else(|| options_of(&error, &arguments))
}

/// They say what the dictionary says.
#[test]
fn who_looks_for_a_command_of_lustre_is_told_what_there_is() {
    let dictionary = include_str!("../../../../docs/operating/dictionary.md");
    for (name, instead) in instead::INSTEAD {
        let start = name.trim_end_matches('*');
        let names = [format!("`lfs {start}"), format!("`lctl {start}")];
        let row = dictionary.lines().find(|line| names.iter().any(|name| line.contains(name)));
        assert!(row.is_some(), "{name}");
        let tool = if row.is_some_and(|row| row.contains(&names[0])) { "lfs" } else { "lctl" };
        let word = name.replace('*', "x");
        let said = told(&["sheen", tool, &word, "x"]).unwrap_or_default();
        assert!(said.contains(&word) && said.contains(instead), "{word}: {said}");
    }
    assert_eq!(told(&["sheen", "lfs", "nonsense"]), None);
    assert_eq!(told(&["sheen", "dl"]), None, "that is no command of Lustre");
}

/// All that Lustre's tools have in their version 2.17.
#[test]
fn no_command_of_lustre_is_unknown() {
    const LFS: &str = "setstripe getstripe mkdir setdirstripe getdirstripe migrate mirror find df osts mdts check getname quota setquota \
        project path2fid fid2path rmfid data_version changelog changelog_clear hsm hsm_state hsm_set hsm_clear hsm_action hsm_archive \
        hsm_restore hsm_release hsm_remove hsm_cancel getsom somsync heat_get heat_set pcc ladvise pool_list flushctx swap_layouts rm_entry \
        rmentry unlink_foreign mv list_commands help";
    const LCTL: &str = "get_param set_param list_param find_param help_param conf_param apply_yaml dl device_list device activate deactivate \
        recover abort_recovery abort_recovery_mdt readonly notransno attach setup cleanup detach replace_nids del_ost llog_catlist llog_info \
        llog_print llog_cancel llog_check llog_remove lcfg_clear clear_conf lcfg_fork lcfg_erase pool_new pool_add pool_remove pool_destroy \
        pool_list lqa lqa_new barrier_freeze barrier_thaw barrier_stat barrier_rescan snapshot_create snapshot_destroy snapshot_modify \
        snapshot_list snapshot_mount snapshot_umount nodemap_add nodemap_info changelog_register changelog_deregister pcc lfsck_start \
        lfsck_stop lfsck_query network list_nids which_nid ping peer_list conn_list route_list net_drop_add net_delay_add dk debug_kernel \
        debug_daemon mark clear debug_file filter show debug_list test_create test_brw help";
    for (tool, words) in [("lfs", LFS), ("lctl", LCTL)] {
        for word in words.split_whitespace() {
            let arguments: Vec<OsString> = ["sheen", tool, word].map(OsString::from).to_vec();
            let Some(error) = Cli::try_parse_from(&arguments).err() else { continue };
            let is_told =
                error.kind() != ErrorKind::InvalidSubcommand || instead_of(&error, &arguments).is_some();
            assert!(is_told, "{tool} {word}: {error}");
        }
    }
}

/// The parser would propose `pool_destroy` for `del_pool`, which removes something.
#[test]
fn a_command_of_lustre_is_proposed_that_differs_in_a_letter_or_two() {
    let said = |words: &[&str]| {
        let arguments: Vec<OsString> = [&["sheen"], words].concat().into_iter().map(OsString::from).collect();
        command_near(&Cli::try_parse_from(&arguments).err()?, &arguments)
    };
    let near = said(&["lfs", "getstrip", "f"]).unwrap_or_default();
    assert_eq!(near, "no 'getstrip' in lfs; did you mean 'getstripe'? see `lfs --help`");
    for far in ["explode", "del_pool", "ost_remove"] {
        let said = said(&["lctl", far, "x"]).unwrap_or_default();
        assert_eq!(said, format!("no '{far}' in lctl; see `lctl --help`"));
    }
    assert_eq!(said(&["statu"]), None, "the parser knows better");
}

/// Options of Lustre that a command has not are no names of files, and what looks like them is mostly not what is meant.
#[test]
fn who_writes_an_option_that_is_not_there_is_told_which_are() {
    assert_eq!(
        told(&["sheen", "lfs", "df", "-v", "/mnt"]).as_deref(),
        Some("no -v here; lfs df has -h -i -p"),
    );
    let said = |words: &[&str]| told(&[&["sheen"], words].concat()).unwrap_or_default();
    for (words, has) in [
        (&["lfs", "getstripe", "-y", "f"] as &[&str], "no -y here; lfs getstripe has -c -S -i -p -d -r"),
        (
            &["lfs", "setstripe", "--component-add", "f"],
            "no --component-add here; lfs setstripe has --delete --component-end",
        ),
        (&["lfs", "setstripe", "-C", "2", "f"], "no -C here; lfs setstripe has -d -E -c"),
        (&["lfs", "setdirstripe", "-H", "crush", "d"], "no -H here; lfs mkdir has -i -c -D -d -X -m"),
        (&["lctl", "get_param", "-R", "x"], "no -R here; lctl get_param has -n -N"),
        (&["mkfs", "--reformat", "d"], "no --reformat here; mkfs has --mgs --mdt --ost --index"),
        (&["lctl", "list_nids", "-a"], "no -a here; lctl list_nids has no options"),
    ] {
        assert!(said(words).starts_with(has), "{words:?}: {}", said(words));
    }
    assert_eq!(told(&["sheen", "serve", "--lissten", "h"]), None, "the parser knows better");
}

/// What Lustre's `lfs migrate` moves without an MDT stays.
#[test]
fn who_wants_data_to_move_is_told_how() {
    for words in [&["lfs", "migrate", "-S", "1M", "f"] as &[&str], &["lfs", "migrate", "-o", "1", "f"]] {
        let said = told(&[&["sheen"], words].concat()).unwrap_or_default();
        assert!(said.contains("copy the file, and rename the copy over it"), "{said}");
    }
    for to_mdt in [&["-m", "1"], &["-vm", "1"]] {
        let words = [&["sheen", "lfs", "migrate"], to_mdt as &[&str], &["-H", "x", "f"]].concat();
        assert_eq!(told(&words).unwrap_or_default(), "no -H here; lfs migrate has -m -c -d -v");
    }
    for words in [&["lfs", "migrate", "f"] as &[&str], &["lfs", "migrate", "-c", "2", "f"]] {
        let parsed = Cli::try_parse_from([&["sheen"], words].concat());
        let Ok(Cli { command: Command::Lfs(lfs) }) = parsed else { panic!("{words:?}: {parsed:?}") };
        let said = crate::lfs::run(&lfs).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.starts_with("data do not move between OSTs yet"), "{said}");
    }
}

/// `-h` is that of df(1).
#[test]
fn every_command_has_help() {
    let asked = Cli::try_parse_from(["sheen", "lfs", "df", "--help"]).err();
    assert_eq!(asked.map(|error| error.kind()), Some(ErrorKind::DisplayHelp));
    assert!(Cli::try_parse_from(["sheen", "lfs", "df", "-h"]).is_ok());
}
