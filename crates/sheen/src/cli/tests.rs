use super::*;

fn words(arguments: &[&str]) -> Vec<String> {
    let arguments = as_sheen(arguments.iter().map(OsString::from));
    arguments.into_iter().map(|word| word.to_string_lossy().into_owned()).collect()
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
    assert_eq!(words(&called), ["sheen", "mount", "h@tcp:/fs", "/mnt", "-o", "ro,noatime"]);
    assert_eq!(words(&["umount.fuse.sheen", "/mnt", "-l"]), ["sheen", "umount", "/mnt", "--lazy"]);
}

#[test]
fn the_command_line_is_well_formed() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}
