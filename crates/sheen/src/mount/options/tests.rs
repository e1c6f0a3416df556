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
    for (text, other) in [("noatime,ro,strictatime", "strictatime"), ("flock,noflock", "noflock")] {
        let said = parse(text).unwrap_err().to_string();
        assert!(said.contains(&format!("'{other}' exclude each other")), "{said}");
    }
    parse("noflock,ro,noflock").unwrap();
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
    assert_eq!(parse(table).unwrap(), Choices::default());
}

#[test]
fn options_in_force_are_shown() {
    let shown = |text| parse(text).unwrap().shown("dev").join(",");
    assert_eq!(shown(""), "flock,lazystatfs,user_xattr,transport=dev");
    assert_eq!(
        shown("localflock,nolazystatfs,nouser_xattr,mmap=relaxed"),
        "localflock,nolazystatfs,nouser_xattr,mmap=relaxed,transport=dev"
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
    for (index, (word, _)) in TABLE.iter().enumerate() {
        assert!(TABLE.iter().skip(index + 1).all(|(other, _)| other != word), "{word}");
        parse(word).unwrap();
    }
}

#[test]
fn a_mount_made_before_the_first_process_is_known_by_systemds_word() {
    assert!(is_from_initrd(&["ro,x-initrd.mount".to_owned(), "retry=6".to_owned()]));
    assert!(!is_from_initrd(&["ro,x-initrd.mount=no".to_owned(), "x-systemd.automount".to_owned()]));
}
