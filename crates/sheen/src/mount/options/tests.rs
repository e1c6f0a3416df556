#![allow(clippy::unwrap_used)]

use super::*;

fn parse(text: &str) -> Result<Choices> {
    Choices::parse(&[text.to_owned()], None)
}

#[test]
fn the_last_word_counts() {
    let choices = parse("ro,noatime,rw,noflock,flock").unwrap();
    assert_eq!(choices.flags, libc::MS_NOATIME);
    assert_eq!(choices.lock_scope, LockScope::Cluster);
    assert_eq!(parse("noatime,relatime").unwrap().flags, 0);
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
fn every_word_is_in_the_table_once() {
    for (index, (word, _)) in TABLE.iter().enumerate() {
        assert!(TABLE.iter().skip(index + 1).all(|(other, _)| other != word), "{word}");
        parse(word).unwrap();
    }
}
