use super::*;

#[test]
fn the_statistics_are_understood() {
    let said = "\nNumber of files: 1,234 (reg: 1,000, dir: 234)\nTotal file size: 98765 bytes\n";
    assert_eq!(counts(said), Some(Copied { file_count: 1234, total_bytes: 98765 }));
    assert_eq!(counts("Number of files: 12"), None);
    assert_eq!(counts("Number of files: x\nTotal file size: 1 bytes"), None);
}

#[test]
fn progress_is_told_from_other_lines() {
    let far = |line| Far::of(line).map(|far| (far.bytes, far.files));
    let between = "     32768  45%   10.23MB/s    0:00:12 (xfr#5, to-chk=169/396)";
    assert_eq!(far(between), Some((32768, Some((227, 396)))));
    assert_eq!(far("     32768  45%   10.23MB/s    0:00:12"), Some((32768, None)));
    assert_eq!(
        far("     32768  45%   10.23MB/s    0:00:12 (xfr#5, to-chk=9/3)"),
        Some((32768, Some((0, 3))))
    );
    assert_eq!(far("32768  45%  (xfr#5, to-chk=x/396)"), Some((32768, None)));
    assert_eq!(far("Number of files: 12"), None);
    assert_eq!(far("12 files"), None);
    assert_eq!(far(""), None);
}

#[test]
fn lines_end_with_a_carriage_return_too() {
    let mut taken = Vec::new();
    let kept = follow(&b"1 1%\r2 2%\rNumber\n\xff"[..], |line| {
        let is_taken = Far::of(line).is_some();
        taken.extend(is_taken.then(|| line.to_owned()));
        is_taken
    });
    assert_eq!(taken, ["1 1%", "2 2%"]);
    assert_eq!(kept, "Number\n\u{fffd}\n");
}

#[test]
fn a_root_gets_an_init_unless_one_is_asked_for() {
    assert_eq!(included(None), "systemd-sysv");
    assert_eq!(included(Some("ssh,udev")), "systemd-sysv,ssh,udev");
    assert_eq!(included(Some("ssh,sysvinit-core")), "ssh,sysvinit-core");
    assert_eq!(included(Some("systemd-sysv")), "systemd-sysv");
}
