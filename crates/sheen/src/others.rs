//! Targets that are not this user's, or perhaps another server's: commands that change what is on a disk ask here first.

use crate::control;
use crate::serve_file;
use crate::served;
use crate::sys;
use crate::target_dir;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where units read what they serve.
const CONFIGURATIONS: &str = "/etc/sheen";

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
    bail!(
        "{} belongs to user {owner}, whose server could not open what root makes there: {} {}",
        path.display(),
        becoming(owner, group),
        served::command(std::env::args_os().skip(1))
    )
}

/// Refuses root to serve what another user serves: the next server of that user could not open what this one has written. Where root has
/// served it before, or there is no target, nothing is refused.
///
/// # Errors
/// It is another's, with the command that serves it as that user.
pub fn check_server(path: &Path) -> Result<()> {
    check_server_is(path, sys::uid())
}

fn check_server_is(path: &Path, user: u32) -> Result<()> {
    let Ok(found) = fs::metadata(path.join("target.json")) else { return Ok(()) };
    let (owner, group) = (found.uid(), found.gid());
    if user != 0 || owner == 0 || has_files_of_root(path) || is_owner_fixed(path) {
        return Ok(());
    }
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let command = match serve_file::name_of(Path::new(CONFIGURATIONS), &real) {
        Some(name) => format!("sheen serve --config {CONFIGURATIONS}/{name}.toml"),
        None => served::command(std::env::args_os().skip(1)),
    };
    bail!(
        "{} belongs to user {owner}, whose server could not open what root's writes there: {} (or give it to root: chown -R root: {})",
        path.display(),
        server_command(&command, owner, group),
        served::quoted_path(path)
    )
}

/// Rows may be in etcd, and a server that was killed has perhaps written nothing but its log.
fn has_files_of_root(path: &Path) -> bool {
    let of_directory = |name: &str| fs::read_dir(path.join(name)).into_iter().flatten().flatten();
    let inside = ["meta", "meta/log", "objects"].into_iter().flat_map(of_directory).map(|entry| entry.path());
    let aside = ["coordinator", "owned", "taken"].into_iter().map(|name| path.join(name));
    let is_roots = |path: PathBuf| {
        // Each file system has a directory of root's at its top.
        fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.uid() == 0)
    };
    inside.chain(aside).any(is_roots)
}

/// Whether what root makes there is another user's too, as some file systems over a network have it: then that user opens it all the same.
fn is_owner_fixed(path: &Path) -> bool {
    let probe = path.join(format!(".owner-{}", std::process::id()));
    let made = File::options().write(true).create_new(true).open(&probe);
    let Ok(owner) = made.and_then(|file| file.metadata()).map(|found| found.uid()) else { return false };
    let _ = fs::remove_file(probe);
    owner != 0
}

/// How root has a server started that belongs to another user: by the package's unit where that has served it, else by this command, and so
/// that who asks in our run directory finds it, where that user may write there.
pub fn server_command(command: &str, owner: u32, group: u32) -> String {
    let configured =
        command.strip_prefix("sheen serve --config ").and_then(|file| file.strip_prefix(CONFIGURATIONS));
    let configured = configured.and_then(|file| file.strip_prefix('/'));
    let unit = configured.and_then(|file| file.strip_suffix(".toml"));
    if let Some(unit) = unit.filter(|unit| !unit.contains([' ', '/']))
        && sys::name_of_user(owner).as_deref() == Some("sheen")
    {
        return format!("systemctl start sheen-server@{unit}");
    }
    let run_dir = control::run_dir();
    let is_open = fs::metadata(&run_dir).is_ok_and(|dir| dir.gid() == group && dir.mode() & 0o020 != 0);
    let place = match is_open {
        true => format!("env SHEEN_RUN={} ", served::quoted_path(&run_dir)),
        false => String::new(),
    };
    format!("{} {place}{command}", becoming(owner, group))
}

fn becoming(owner: u32, group: u32) -> String {
    match sys::name_of_user(owner) {
        Some(name) => format!("runuser -u {name} --"),
        None => format!("setpriv --reuid {owner} --regid {group} --clear-groups"),
    }
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

    #[test]
    fn root_does_not_serve_what_another_user_serves() {
        const NOBODY: u32 = 3_999_999;
        let dir = tempfile::tempdir().expect("a directory");
        let (label, meta) = (dir.path().join("target.json"), dir.path().join("meta"));
        assert!(check_server_is(dir.path(), 0).is_ok(), "what is no target is refused elsewhere");
        fs::create_dir(&meta).expect("a directory");
        for path in [&label, &meta.join("log.1")] {
            fs::write(path, "").expect("a file");
            // Only root can give it away; everybody else is such a user.
            let given = std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY));
            assert_eq!(given.is_ok(), sys::uid() == 0);
        }
        assert!(check_server_is(dir.path(), 7).is_ok());
        let why = check_server_is(dir.path(), 0).expect_err("it is refused").to_string();
        assert!(why.contains("belongs to user"), "{why}");
        if sys::uid() == 0 {
            fs::create_dir(meta.join("lost+found")).expect("a directory");
            assert!(check_server_is(dir.path(), 0).is_err(), "that is root's on each disk");
            fs::create_dir(meta.join("log")).expect("a directory");
            for file in ["meta/log/2", "owned"].map(|name| dir.path().join(name)) {
                fs::write(&file, "").expect("a file");
                assert!(check_server_is(dir.path(), 0).is_ok(), "root has served it all the time");
                fs::remove_file(file).expect("it was there");
            }
        }
    }

    #[test]
    fn the_command_for_a_server_of_another_user_becomes_that_user() {
        let said = server_command("sheen serve /srv/sheen/ost0", 3_999_999, 3_999_998);
        assert_eq!(
            said,
            "setpriv --reuid 3999999 --regid 3999998 --clear-groups sheen serve /srv/sheen/ost0"
        );
        let said = server_command("sheen serve --config /etc/sheen/x.toml", 0, 3_999_998);
        assert_eq!(
            said, "runuser -u root -- sheen serve --config /etc/sheen/x.toml",
            "the unit is of user sheen"
        );
    }
}
