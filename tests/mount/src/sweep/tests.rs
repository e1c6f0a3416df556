use super::*;

#[test]
fn mountinfo_lines_give_point_kind_and_minor() {
    let line = "641 29 0:57 / /a\\040b rw,nosuid - fuse.sheen sheen:/F rw,user_id=0";
    let mount = parse_mount(line).expect("a well-formed line");
    assert_eq!(mount, Mounted { point: PathBuf::from("/a b"), kind: "fuse.sheen".to_owned(), minor: 57 });
    assert!(mount.is_fuse());
}

#[test]
fn a_broken_mountinfo_line_is_skipped() {
    assert_eq!(parse_mount("641 29 0:57"), None);
    assert_eq!(parse_mount("641 29 x / /a rw - ext4 d rw"), None);
}

#[test]
fn we_are_never_among_the_tagged() {
    let ourselves = std::process::id() as i32;
    assert!(!tagged("PATH=nothing-has-this-path").contains(&ourselves));
    if let Ok(path) = std::env::var("PATH") {
        assert!(!tagged(&format!("PATH={path}")).contains(&ourselves));
    }
}
