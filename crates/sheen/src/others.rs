//! Targets that are not this user's, or perhaps another server's: commands that change what is on a disk ask here first.

use crate::served;
use crate::sys;
use crate::target_dir;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses to change a target that another server may have. `is_fenced`: an operator says that none can write to it.
///
/// # Errors
/// It may be so.
pub fn check_fenced(path: &Path, is_fenced: bool) -> Result<()> {
    if !is_fenced && target_dir::is_shared(path)? {
        bail!(
            "{} is served with --failover, and a server of another machine may own it; end all servers of it, or fence them, and say so with \
             --fenced",
            path.display()
        );
    }
    Ok(())
}

/// Refuses root to change a target of another user: what root makes or replaces there, the server of that user could not open.
///
/// # Errors
/// It is another's, with the command that does this as that user.
pub fn check_user(path: &Path) -> Result<()> {
    check_user_is(path, sys::uid())
}

fn check_user_is(path: &Path, user: u32) -> Result<()> {
    let file = path.join("target.json");
    let found = fs::metadata(&file).with_context(|| format!("cannot look at {}", file.display()))?;
    let (owner, group) = (found.uid(), found.gid());
    if user != 0 || owner == 0 {
        return Ok(());
    }
    let as_owner = match sys::name_of_user(owner) {
        Some(name) => format!("runuser -u {name} --"),
        None => format!("setpriv --reuid {owner} --regid {group} --clear-groups"),
    };
    bail!(
        "{} belongs to user {owner}, whose server could not open what root makes there: {as_owner} {}",
        path.display(),
        served::command(std::env::args_os().skip(1))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_servers_could_write_to_is_changed_when_they_are_said_to_be_fenced() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(check_fenced(dir.path(), false).is_ok());
        fs::write(dir.path().join("coordinator"), "management server\n").expect("a file");
        let why = check_fenced(dir.path(), false).expect_err("it is refused").to_string();
        assert!(why.contains("--fenced"), "{why}");
        assert!(check_fenced(dir.path(), true).is_ok());
    }

    #[test]
    fn only_root_can_take_what_is_another_users_from_it() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(check_user_is(dir.path(), 0).is_err(), "there is no target");
        fs::write(dir.path().join("target.json"), "").expect("a file");
        assert!(check_user_is(dir.path(), 7).is_ok());
        assert_eq!(check_user_is(dir.path(), 0).is_ok(), sys::uid() == 0);
    }
}
