#![allow(clippy::unwrap_used)]

use super::stripes::Key;
use super::*;
use base::layout::Component;
use base::{Extent, Layout};
use std::os::unix::fs::symlink;
use wire::ComponentHint;

/// `lfs df $DIR` is asked by scripts whether there is such a directory.
#[test]
fn what_is_not_there_is_on_no_mount() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().canonicalize().unwrap().join("mnt");
    let line = format!("40 1 0:50 / {} rw - fuse.sheen 10.0.0.1@tcp:/fs rw,user_id=0", mount.display());
    let mounts = || vec![crate::mount_table::parse_line(line.as_bytes()).unwrap()];
    let found = |path: &Path| chosen_of(mounts(), Some(path)).map_err(|error| format!("{error:#}"));
    // A dead mount cannot be looked into, as this one that is not there.
    assert_eq!(found(&mount), Ok(mounts()));
    fs::create_dir(&mount).unwrap();
    fs::write(mount.join("file"), "").unwrap();
    symlink("nothere", mount.join("link")).unwrap();
    assert_eq!(found(&mount.join("file")), Ok(mounts()));
    for name in ["nothere", "nothere/deep", "link"] {
        let said = found(&mount.join(name)).unwrap_err();
        assert!(said.starts_with("cannot open ") && said.contains("No such file"), "{said}");
    }
}

#[test]
fn sizes_have_units_and_are_multiples_of_the_least_stripe() {
    assert_eq!(parse_size("64K").unwrap(), 64 << 10);
    assert_eq!(parse_size("4m").unwrap(), 4 << 20);
    assert_eq!(parse_size("1048576").unwrap(), 1 << 20);
    for bad in ["", "K", "5", "100K5", "4G", "-1", "99999999999G", "1é"] {
        assert!(parse_size(bad).is_err(), "{bad}");
    }
}

#[test]
fn all_osts_and_any_ost_have_numbers_of_their_own() {
    let hint =
        Striping::of(&[(Key::Count, "-1"), (Key::Index, "-1")]).hint("scratch").unwrap().as_plain().unwrap();
    assert_eq!((hint.stripe_count, hint.first_ost), (Some(u16::MAX), None));
    assert!(Striping::of(&[(Key::Count, "-2")]).hint("scratch").is_err());
    let count = |text| {
        Striping::of(&[(Key::Count, text)]).hint("scratch").map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(count("2000"), Ok(()));
    // No layout has them: the file would get fewer without a word.
    assert!(
        count("2001")
            .is_err_and(|line| line.contains("stripe count 2001") && line.contains("0 to 2000, or -1"))
    );
    assert!(Striping::of(&[(Key::Index, "65534")]).hint("scratch").is_ok());
}

#[test]
fn options_are_of_the_component_whose_end_stands_before_them() {
    let words = "sheen lfs setstripe -E 4M -c 1 -S 1M -i 2 -E 64M -c 2 -E -1 -S 4M -c -1 file";
    let cli = <crate::cli::Cli as clap::Parser>::try_parse_from(words.split(' ')).unwrap();
    let crate::cli::Command::Lfs(Lfs { command: LfsCommand::Setstripe { striping, .. } }) = cli.command
    else {
        panic!("these are the words of lfs setstripe")
    };
    let component = |end_bytes, size: u32, stripe_count, first_ost| ComponentHint {
        end_bytes,
        stripe_size_bytes: Some(size),
        stripe_count: Some(stripe_count),
        first_ost,
        ..ComponentHint::default()
    };
    let components = vec![
        component(Some(4 << 20), 1 << 20, 1, Some(2)),
        component(Some(64 << 20), 1 << 20, 2, None),
        component(None, 4 << 20, u16::MAX, None),
    ];
    assert_eq!(striping.hint("scratch").unwrap(), LayoutHint { components });
}

#[test]
fn options_that_make_no_layout_get_one_line() {
    let many: Vec<String> = (1..=17).map(|end| format!("{}K", end * 64)).collect();
    let many: Vec<(Key, &str)> = many.iter().map(|end| (Key::End, end.as_str())).collect();
    let cases: [(&[(Key, &str)], &str); 22] = [
        (&[(Key::Count, "1"), (Key::End, "1M")], "before the first -E"),
        (&[(Key::End, "1M"), (Key::End, "1M")], "must rise"),
        (&[(Key::End, "-1"), (Key::End, "1M")], "1048576 is not behind EOF"),
        (&[(Key::End, "100K")], "multiple of 64K"),
        (&[(Key::End, "0")], "multiple of 64K"),
        (&[(Key::End, "1M"), (Key::Size, "4M")], "no multiple of its stripe size"),
        (&[(Key::End, "1M"), (Key::Size, "1M"), (Key::Size, "1M")], "-S is given twice"),
        (&[(Key::Count, "1"), (Key::Count, "2")], "-c is given twice"),
        (&many, "at most 16"),
        (&[(Key::Osts, "1,1")], "names no OSTs"),
        (&[(Key::Osts, "2-")], "names no OSTs"),
        (&[(Key::Osts, "1,2"), (Key::Count, "3")], "leave -c out"),
        (&[(Key::Osts, "1,2"), (Key::Index, "2")], "leave -i out"),
        (&[(Key::Pool, "sixteen_chars_16")], "1 to 15 letters"),
        (&[(Key::Pool, "a b")], "1 to 15 letters"),
        (&[(Key::Osts, "65535")], "names no OSTs"),
        (&[(Key::Pattern, "mdt")], "in front of -L mdt"),
        (&[(Key::End, "1M"), (Key::Pattern, "mdt")], "524288 at most"),
        (&[(Key::End, "64K"), (Key::End, "128K"), (Key::Pattern, "mdt")], "first component only"),
        (&[(Key::End, "64K"), (Key::Pattern, "mdt"), (Key::Count, "2")], "leave -c out"),
        (&[(Key::End, "64K"), (Key::Pattern, "mdt"), (Key::Osts, "2")], "-o names OSTs"),
        (&[(Key::End, "64K"), (Key::Pattern, "raid1")], "use raid0 or mdt"),
    ];
    for (words, wanted) in cases {
        let told = Striping::of(words).hint("scratch").unwrap_err().to_string();
        assert!(told.contains(wanted) && !told.contains('\n'), "{words:?}: {told}");
    }
}

#[test]
fn osts_and_pools_are_named() {
    let hint = |words: &[(Key, &str)]| Striping::of(words).hint("scratch").unwrap();
    let plain = hint(&[(Key::Osts, "4,0-2"), (Key::Count, "4")]).as_plain().unwrap();
    assert_eq!(plain.osts, [4, 0, 1, 2]);
    let pool: Option<PoolName> = "flash".parse().ok();
    for name in ["flash", "scratch.flash"] {
        assert_eq!(hint(&[(Key::Pool, name)]).as_plain().unwrap().pool, pool);
    }
    let named =
        |text: &str| Striping::of(&[(Key::Pool, text)]).hint("scratch").map_err(|error| error.to_string());
    let pool_of = |text: &str| named(text).unwrap().as_plain().unwrap().pool.map(|pool| pool.to_string());
    // Names of pools have dots too.
    assert_eq!(pool_of("ssd.v1").as_deref(), Some("ssd.v1"));
    assert_eq!(pool_of("scratch.ssd.v1").as_deref(), Some("ssd.v1"));
    assert_eq!(pool_of("other.flash").as_deref(), Some("other.flash"), "which is not there");
    assert_eq!(pool_of("scratch.none"), None);
    assert!(named("otherfs.flashpool").is_err_and(|said| said.contains("'otherfs.flashpool' names no pool")));
    // A component has the pool of the one before it, unless it says otherwise; OSTs are its own.
    let words = [
        (Key::End, "1M"),
        (Key::Pool, "flash"),
        (Key::End, "2M"),
        (Key::Osts, "3"),
        (Key::End, "-1"),
        (Key::Pool, "none"),
    ];
    let components = hint(&words).components;
    let told: Vec<_> = components.iter().map(|part| (part.pool.clone(), part.osts.clone())).collect();
    assert_eq!(told, [(pool.clone(), vec![]), (pool, vec![3]), (None, vec![])]);
}

#[test]
fn data_on_the_mdt_are_asked_for_and_shown() {
    let words = [(Key::End, "64K"), (Key::Pattern, "mdt"), (Key::End, "-1"), (Key::Count, "2")];
    let hint = Striping::of(&words).hint("scratch").unwrap();
    let told: Vec<_> = hint.components.iter().map(|part| (part.end_bytes, part.osts.clone())).collect();
    assert_eq!(told, [(Some(64 << 10), vec![Layout::ON_MDT]), (None, vec![])]);
    let line = "      stripe_count:  0 stripe_size:   65536 pattern:       mdt stripe_offset: 0\n";
    assert!(layout_text::of_directory(&hint).contains(line));
    let component =
        |id, end_bytes, osts| Component { id, end_bytes, stripe_size_bytes: 64 << 10, osts, pool: None };
    let components = vec![component(1, 64 << 10, vec![Layout::ON_MDT]), component(2, Extent::EOF, vec![3])];
    let text = layout_text::of_file(&Layout { fid: Fid { seq: 1, oid: 2, ver: 0 }, components });
    assert!(text.contains("lmm_pattern:       mdt\n") && !text.contains("65535"), "{text}");
    assert_eq!(text.matches("lmm_objects").count(), 1, "{text}");
}

#[test]
fn the_pool_of_a_layout_is_printed() {
    let fid = Fid { seq: 0x200000401, oid: 0x11, ver: 0 };
    let mut layout = Layout::plain(fid, 1, 1 << 20, vec![2]);
    assert!(!layout_text::of_file(&layout).contains("lmm_pool"));
    layout.components[0].pool = "flash".parse().ok();
    let text = layout_text::of_file(&layout);
    assert!(text.contains("lmm_stripe_offset: 2\nlmm_pool:          flash\n\tobdidx"), "{text}");
    let words = [(Key::Pool, "flash"), (Key::Osts, "3,1")];
    let line = "stripe_count:  2 stripe_size:   1048576 pattern:       raid0 stripe_offset: 3 \
                pool:          flash osts:          3,1\n";
    assert_eq!(layout_text::of_directory(&Striping::of(&words).hint("scratch").unwrap()), line);
}

#[test]
fn composite_layouts_are_printed_as_lustre_does() {
    let component =
        |id, end_bytes, osts| Component { id, end_bytes, stripe_size_bytes: 1 << 20, osts, pool: None };
    let components = vec![component(1, 4 << 20, vec![2]), component(2, Extent::EOF, vec![3, 0])];
    let fid = Fid { seq: 0x200000401, oid: 0x11, ver: 0 };
    let expected = "  lcm_layout_gen:    2
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   4194304
      lmm_stripe_count:  1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 2
      lmm_objects:
      - 0: { l_ost_idx: 2, l_fid: [0x200000401:0x11:0x0] }

    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 4194304
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  2
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 3
      lmm_objects:
      - 0: { l_ost_idx: 3, l_fid: [0x200000401:0x11:0x0] }
      - 1: { l_ost_idx: 0, l_fid: [0x200000401:0x11:0x0] }
";
    assert_eq!(layout_text::of_file(&Layout { fid, components }), expected);
}

#[test]
fn what_a_directory_keeps_is_printed() {
    let plain = LayoutHint::plain(ComponentHint { stripe_count: Some(u16::MAX), ..ComponentHint::default() });
    let line = "stripe_count:  -1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n";
    assert_eq!(layout_text::of_directory(&plain), line);
    let ends =
        Striping::of(&[(Key::End, "1M"), (Key::End, "eof"), (Key::Count, "-1")]).hint("scratch").unwrap();
    let text = layout_text::of_directory(&ends);
    assert!(text.contains("lcme_extent.e_end:   1048576\n      stripe_count:  1 "), "{text}");
    assert!(text.ends_with(line), "{text}");
}

/// An OST that is drained is there: who names it is told so.
#[test]
fn an_ost_that_is_refused_is_missing_or_drained() {
    let said = |osts: &[u16], first_ost: Option<u16>, pool: Option<&str>| {
        let pool = pool.map(|name| name.parse().unwrap());
        let component = ComponentHint { osts: osts.to_vec(), first_ost, pool, ..ComponentHint::default() };
        let error = io::Error::from_raw_os_error(libc::EINVAL).into();
        let known = || Ok(["MDT0000", "OST0000", "OST0001"].map(str::to_owned).to_vec());
        explain_refusal(error, &LayoutHint { components: vec![component] }, known).to_string()
    };
    let drained = "OST0001 takes no new files: it is drained (obdfilter.*.no_create=1)";
    assert_eq!(said(&[], Some(1), None), drained);
    assert_eq!(said(&[1], None, None), drained);
    assert!(said(&[0, 1], None, None).starts_with("one of OST0000, OST0001 takes no new files"));
    assert_eq!(said(&[], Some(7), None), "there is no OST 7; see `lfs df`");
    assert_eq!(said(&[0, 7, 8], None, None), "there are no OSTs 7,8; see `lfs df`");
    assert!(said(&[], Some(1), Some("fast")).starts_with("OST0001 is not in pool fast, or drained"));
    assert!(said(&[0, 1], None, Some("fast")).starts_with("one of OST0000, OST0001 is not in pool fast"));
    assert!(said(&[], None, Some("fast")).starts_with("pool fast takes no new files: its OSTs are drained"));
    assert!(said(&[], None, None).contains("Invalid argument"));
}

#[test]
fn an_ost_is_called_as_lustre_calls_it() {
    for name in ["4", "OST0004", "fs-a-OST0004", "fs-a-OST0004_UUID", "OST0004_UUID"] {
        assert_eq!(parse_ost(name, "fs-a"), Some(4), "{name}");
    }
    for name in ["MDT0004", "other-OST0004", "OST", "x4", "", "70000"] {
        assert_eq!(parse_ost(name, "fs-a"), None, "{name}");
    }
}

#[test]
fn files_of_an_ost_are_those_with_it_in_any_component() {
    let component =
        |id, end_bytes, osts| Component { id, end_bytes, stripe_size_bytes: 64 << 10, osts, pool: None };
    let components = vec![
        component(1, 64 << 10, vec![Layout::ON_MDT]),
        component(2, 1 << 20, vec![3]),
        component(3, Extent::EOF, vec![0, 5]),
    ];
    let layout = Layout { fid: Fid { seq: 1, oid: 2, ver: 0 }, components };
    assert!(is_wanted(&layout, None) && is_wanted(&layout, Some(3)) && is_wanted(&layout, Some(5)));
    assert!(!is_wanted(&layout, Some(1)));
    assert!(!is_wanted(&layout, Some(Layout::ON_MDT)), "that is no OST");
}

/// What is asked for behind it is shown all the same.
#[test]
fn what_fails_keeps_nothing_else_from_being_done() {
    use clap::Parser as _;
    let paths = ["/no/such/first/f", "/no/such/last/f"];
    for words in [
        &["getstripe", "-r", paths[0], paths[1]][..],
        &["setstripe", "-c", "1", paths[0], paths[1]],
        &["path2fid", paths[0], paths[1]],
        &["getdirstripe", paths[0], paths[1]],
        &["setdirstripe", "-d", paths[0], paths[1]],
        &["setdirstripe", "-D", "-c", "1", paths[0], paths[1]],
        &["ladvise", "-a", "willread", paths[0], paths[1]],
        &["fid2path", "/", "first", "last"],
    ] {
        let words: Vec<&str> = ["sheen", "lfs"].iter().chain(words).copied().collect();
        let crate::cli::Command::Lfs(lfs) = crate::cli::Cli::try_parse_from(&words).unwrap().command else {
            panic!("another command")
        };
        let error = format!("{:#}", run(&lfs).unwrap_err());
        assert!(error.contains("last") && !error.contains("first"), "{words:?}: {error}");
    }
}

/// Wherever they are, nobody asks them.
#[test]
fn special_files_are_said_to_be_so() {
    let dir = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let link = dir.path().join("link");
    symlink("/dev/null", &link).unwrap();
    for (path, what) in
        [(Path::new("/dev/null"), "a device"), (&link, "a device"), (&dir.path().join("socket"), "a socket")]
    {
        for said in [layout_of(path).unwrap_err().to_string(), open(path).unwrap_err().to_string()] {
            assert!(said.contains(&format!("is {what};")), "{said}");
        }
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path(), &link, Path::new("/dev/null"), dir.path()] {
        let error = fid_of(path).unwrap_err().to_string();
        assert!(error.contains("is not on a SheenFS mount"), "{error}");
    }
}

#[test]
fn only_directories_have_a_default_to_take_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let (nothing, some) = (Striping::default(), Striping::of(&[(Key::Count, "2")]));
    let directory = [dir.path().to_owned()];
    assert!(check_deletable(&nothing, &directory).is_ok());
    assert!(check_deletable(&some, &directory).is_err());
    assert!(check_deletable(&nothing, &[dir.path().to_owned(), file]).is_err());
    // What it asks for then.
    assert_eq!(nothing.hint("scratch").unwrap(), LayoutHint::plain(ComponentHint::default()));
}
