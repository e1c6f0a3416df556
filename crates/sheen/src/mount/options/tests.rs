#![allow(clippy::unwrap_used)]

use super::*;

fn parse(text: &str) -> Result<Choices> {
    Choices::parse(&[text.to_owned()], None)
}

#[test]
fn the_last_word_counts() {
    assert_eq!(parse("ro,noatime,rw").unwrap().flags, libc::MS_NOATIME);
    assert_eq!(parse("remount,noatime,relatime").unwrap().flags, 0);
    assert_eq!(parse("remount,noatime,strictatime").unwrap().flags, libc::MS_STRICTATIME);
}

#[test]
fn words_that_exclude_each_other_are_refused() {
    for (text, other) in [
        ("noatime,ro,strictatime", "strictatime"),
        ("flock,noflock", "noflock"),
        ("strictatime,atime", "atime"),
        ("atime,strictatime", "strictatime"),
    ] {
        let said = parse(text).unwrap_err().to_string();
        assert!(said.contains(&format!("'{other}' exclude each other")), "{said}");
    }
    parse("noflock,ro,noflock").unwrap();
    parse("relatime,atime").unwrap();
    let with = |text: &str, transport| Choices::parse(&[text.to_owned()], Some(transport));
    let said = with("transport=uring", Transport::Dev).unwrap_err().to_string();
    assert!(
        said.contains("--transport dev and the mount option 'transport=uring' exclude each other"),
        "{said}"
    );
    assert_eq!(with("transport=uring", Transport::Uring).unwrap().transport, Transport::Uring);
    assert_eq!(with("noatime", Transport::Dev).unwrap().transport, Transport::Dev);
}

#[test]
fn access_times_follow_the_flags() {
    let said = |text| access_words(parse(text).unwrap().access_times());
    assert_eq!(said(""), "relatime");
    assert_eq!(said("strictatime,nodiratime"), "strictatime,nodiratime");
    assert_eq!(said("strictatime,ro"), "noatime");
    let shown =
        |text: &str| access_words(access_times_of(&text.split(',').map(str::to_owned).collect::<Vec<_>>()));
    assert_eq!(shown("rw,nosuid"), "strictatime");
    assert_eq!(shown("rw,relatime,nodiratime"), "relatime,nodiratime");
    assert_eq!(shown("ro,relatime"), "noatime");
}

#[test]
fn what_fstab_and_the_kernel_add_is_taken() {
    let table = "defaults,_netdev,nofail,x-systemd.requires=net,user_id=0,group_id=0,blksize=4096";
    let usual = Choices { retry_count: NETDEV_RETRY_COUNT, ..Choices::default() };
    assert_eq!(parse(table).unwrap(), usual);
    for word in ["user", "users", "owner", "group", "user=somebody"] {
        assert_eq!(parse(word).unwrap(), Choices::default(), "{word}");
        // As mount(8) hands it on, with what it implies.
        let flags = parse(&format!("noexec,nosuid,nodev,{word},exec")).unwrap().flags;
        assert_eq!(flags, libc::MS_NOSUID | libc::MS_NODEV, "{word}");
    }
}

#[test]
fn what_is_mounted_over_the_network_at_a_boot_is_tried_again() {
    let count = |text| parse(text).unwrap().retry_count;
    assert_eq!((count("noatime"), count("_netdev,nofail")), (0, NETDEV_RETRY_COUNT));
    assert_eq!((count("_netdev,retry=0"), count("retry=7,_netdev")), (0, 7));
}

#[test]
fn options_in_force_are_shown() {
    let shown = |text| parse(text).unwrap().shown("dev").join(",");
    assert_eq!(shown(""), "flock,lazystatfs,user_xattr,names=cached,transport=dev");
    assert_eq!(
        shown("localflock,nolazystatfs,nouser_xattr,mmap=relaxed"),
        "localflock,nolazystatfs,nouser_xattr,mmap=relaxed,names=cached,transport=dev"
    );
    assert!(shown("names=uncached").ends_with(",names=uncached,transport=dev"));
    assert!(shown("noflock").starts_with("noflock,"));
}

#[test]
fn an_unknown_option_is_refused_with_what_may_have_been_meant() {
    let error = |text| parse(text).unwrap_err().to_string();
    assert!(error("lazystatf").contains("'lazystatfs'"));
    assert!(error("noatme").contains("'noatime'"));
    assert!(error("user_xatr").contains("'user_xattr'"));
    for (text, near) in [
        ("NOATIME", "'noatime'"),
        ("flock=yes", "'flock'"),
        ("transport=foo", "'transport=auto', 'transport=dev' or 'transport=uring'"),
        ("trnsport=foo", "'transport=auto', 'transport=dev' or 'transport=uring'"),
        ("names=foo", "'names=cached' or 'names=uncached'"),
        ("mmap=strict", "'mmap=relaxed'"),
        ("Retry=5", "'retry='"),
        ("xatime", "'atime' or 'noatime'"),
    ] {
        let said = error(text);
        assert!(said.ends_with(&format!("did you mean {near}?")), "{said}");
    }
    assert!(!error("zebra").contains("did you mean"));
    assert!(!error("x").contains("did you mean"));
    assert!(error("retry=often").contains("retry="));
}

#[test]
fn own_words_are_those_that_a_remount_cannot_change() {
    let options = ["remount,ro,_netdev".to_owned(), "noflock,transport=dev".to_owned()];
    assert_eq!(own_words(&options), ["noflock", "transport=dev"]);
}

#[test]
fn the_kernel_keeps_no_names_below_the_overlay_of_a_root() {
    let is_uncached = |text| parse(text).unwrap().are_names_uncached;
    assert!(!is_uncached("ro"));
    assert!(is_uncached("ro,names=uncached"));
    assert!(is_uncached("ro,x-initrd.mount"));
    assert!(!is_uncached("names=cached,x-initrd.mount"));
    assert!(parse("names=cached,names=uncached").is_err());
}

#[test]
fn every_word_is_in_the_table_once() {
    let help = help();
    for (index, (word, effect, doc)) in TABLE.iter().enumerate() {
        assert!(TABLE.iter().skip(index + 1).all(|(other, ..)| other != word), "{word}");
        parse(word).unwrap();
        assert_eq!(doc.is_empty(), matches!(effect, Effect::Nothing), "{word}");
        assert!(doc.is_empty() || help.contains(&format!("\n{word}: {doc}\n")), "{word} in {help}");
    }
    assert!(help.contains("retry=N") && help.contains("_netdev, "), "{help}");
}

#[test]
fn a_mount_made_before_the_first_process_is_known_by_systemds_word() {
    assert!(is_from_initrd(&["ro,x-initrd.mount".to_owned(), "retry=6".to_owned()]));
    assert!(!is_from_initrd(&["ro,x-initrd.mount=no".to_owned(), "x-systemd.automount".to_owned()]));
}

/// `mount -s` lets be what is not known, and nothing else.
#[test]
fn a_sloppy_mount_has_the_options_that_are_known() {
    let given = ["ro,bogus,noatime".to_owned(), "x-mine,intr=7,retry=2,_netdev".to_owned()];
    let known = known_of(&given);
    assert_eq!(known, ["ro", "noatime", "x-mine", "retry=2", "_netdev"]);
    let choices = Choices::parse(&known, None).unwrap();
    assert_eq!((choices.flags, choices.retry_count), (libc::MS_RDONLY | libc::MS_NOATIME, 2));
    assert!(Choices::parse(&given, None).is_err());
    assert!(Choices::parse(&known_of(&["flock,noflock".to_owned()]), None).is_err());
}

#[test]
fn what_is_synchronous_follows_the_flags() {
    let said = |text| parse(text).unwrap().sync_rule();
    assert_eq!(said(""), SyncRule::None);
    assert_eq!(said("dirsync"), SyncRule::Names);
    assert_eq!(said("dirsync,sync"), SyncRule::All);
    assert_eq!(said("sync,async"), SyncRule::None);
    let shown = |text: &str| sync_rule_of(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(shown("rw,relatime"), SyncRule::None);
    assert_eq!(shown("rw,relatime,dirsync"), SyncRule::Names);
    assert_eq!(shown("rw,sync,dirsync"), SyncRule::All);
}

/// mount(8) repeats what is in the mount table.
#[test]
fn a_remount_does_not_add_dirsync() {
    let adds = |asked: &str, shown: &str| {
        let shown: Vec<String> = shown.split(',').map(str::to_owned).collect();
        parse(asked).unwrap().adds_dirsync(&shown)
    };
    assert!(adds("dirsync", "rw,relatime"));
    assert!(adds("dirsync,sync", "rw,relatime"));
    assert!(adds("dirsync", "rw,relatime,sync"));
    assert!(!adds("dirsync,sync,async", "rw,sync,dirsync"));
    assert!(!adds("dirsync", "rw,dirsync"));
    assert!(!adds("sync", "rw,relatime"));
}
