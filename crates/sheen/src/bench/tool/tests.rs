use super::{Paths, Tool, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_tree_is_copied_packed_and_unpacked_and_only_the_tree_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("d1")).expect("a tree");
    fs::write(tree.join("d1/file0"), b"x").expect("a file");
    let paths = Paths::new(dir.path(), tree).expect("paths");
    let perform = |tool: Tool| run(&mut tool.command(&paths)).expect("it succeeds");
    perform(Tool::Copy);
    assert!(dir.path().join("copy/d1/file0").is_file());
    perform(Tool::RemoveCopy);
    assert!(!dir.path().join("copy").exists());
    perform(Tool::TarOut);
    // In the directory for all users anybody could have put a link where the archive is written to.
    let aside = fs::metadata(paths.archive.parent().expect("a directory")).expect("it is there");
    assert_eq!(aside.permissions().mode() & 0o777, 0o700);
    let aside = paths.aside.clone();
    perform(Tool::TarIn);
    assert!(dir.path().join("unpacked/d1/file0").is_file());
    if Tool::GitAdd.is_here() {
        Tool::GitAdd.prepare(&paths).expect("a repository");
        perform(Tool::GitAdd);
        perform(Tool::GitStatus);
        let index = fs::read(dir.path().join("repository/index")).expect("it is the measured tree's");
        assert!(index.windows(8).any(|window| window == b"d1/file0"));
    }
    for tool in [Tool::LsRecursive, Tool::FindLs, Tool::FindPrint, Tool::Du] {
        perform(tool);
    }
    drop(paths);
    assert!(!aside.exists());
    let left: Vec<_> = fs::read_dir(dir.path()).expect("it is there").flatten().collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn a_tool_that_fails_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = Paths::new(dir.path(), dir.path().join("nothing")).expect("paths");
    assert!(run(&mut Tool::Du.command(&paths)).is_err());
}
