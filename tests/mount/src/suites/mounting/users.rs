//! Users who are not root: file systems and mounts of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::names_of;
use crate::bounded;
use crate::case::{Context, expect, expect_eq, expect_errno, names, skip};
use crate::cluster::COMMAND_LIMIT;
use crate::options::Transport;
use crate::sweep;

/// Somebody without rights, with a home of his own and the program in it.
struct User {
    home: tempfile::TempDir,
    options: Vec<String>,
}

/// `nobody` on Debian; fusermount3 wants to know the name of its user.
const NOBODY: u32 = 65534;

impl User {
    fn new(context: &Context) -> Result<User> {
        let home = sweep::short_directory()?;
        let program = home.path().join("sheen-program");
        fs::copy(&context.options.sheen, &program).context("a copy of the program")?;
        std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY))?;
        let transport = match context.options.transport {
            Transport::Dev => "dev",
            Transport::Uring => "uring",
        };
        Ok(User { home, options: vec!["--transport".to_owned(), transport.to_owned()] })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A command of this user with nothing in its environment that would show the way to somebody else's files.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY).current_dir(self.home.path()).env("HOME", self.home.path());
        command.env("XDG_RUNTIME_DIR", self.home.path().join("run"));
        for name in ["SHEEN_RUN", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        command
    }

    fn say(&self, mut command: Command) -> Result<bounded::Said> {
        let tag = format!("SHEEN_USER={}", self.home.path().display());
        Ok(bounded::say(&mut command, &tag, COMMAND_LIMIT)?)
    }

    fn sheen(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(&self.path("sheen-program"));
        command.args(arguments);
        let said = self.say(command)?;
        expect(said.is_success(), &format!("sheen {arguments:?}: {}", said.all()))?;
        Ok(said.output)
    }

    fn shell(&self, script: &str) -> Result<String> {
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-ec", script]);
        let said = self.say(command)?;
        expect(said.is_success(), &format!("{script}: {}", said.all()))?;
        Ok(said.output)
    }

    fn up(&self) -> Result<String> {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.sheen(&[&["up", "--mdts", "1", "--osts", "1"], &options[..]].concat())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        sweep::release(self.home.path(), &format!("SHEEN_USER={}", self.home.path().display()));
    }
}

/// /dev/fuse as udev leaves it: for everybody. Given back as it was.
struct OpenDevice(fs::Permissions);

const DEVICE: &str = "/dev/fuse";

impl OpenDevice {
    fn new() -> Result<OpenDevice> {
        let before = fs::metadata(DEVICE)?.permissions();
        fs::set_permissions(DEVICE, fs::Permissions::from_mode(0o666))?;
        Ok(OpenDevice(before))
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // Whoever took the device away has taken its permissions too.
        let _ = fs::set_permissions(DEVICE, self.0.clone());
    }
}

pub(super) fn not_root(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let _device = OpenDevice::new()?;
    if !Path::new("/usr/bin/fusermount3").exists() && !Path::new("/bin/fusermount3").exists() {
        return skip("no fusermount3 (package fuse3)");
    }
    let user = User::new(context)?;
    println!("{}", user.up()?);
    let mount = user.path("sheen");
    expect_eq(sweep::mounts_under(&mount).len(), 1, "mounts below the user's home")?;
    user.shell("cd ~/sheen; mkdir dir; echo mine > dir/file; chmod 600 dir/file; ln -s file dir/link; sync")?;
    expect_errno(names_of(&mount), libc::EACCES, "root looks into a mount of somebody else")?;
    let owner = user.shell("stat -c %u ~/sheen ~/sheen/dir ~/sheen/dir/file")?;
    expect_eq(owner, format!("{NOBODY}\n{NOBODY}\n{NOBODY}\n"), "who owns the root and what is in it")?;
    let source = user.sheen(&["mounts"])?;
    let source = source.split(' ').next().context("a source")?;
    user.shell("mkdir ~/second")?;
    user.sheen(&["mount", source, "second", "-o", "ro"])?;
    expect_eq(user.shell("cat ~/second/dir/link")?, "mine\n".to_owned(), "through a second mount")?;
    user.sheen(&["umount", "second"])?;
    expect(sweep::mounts_under(&user.path("second")).is_empty(), "the second one is unmounted")?;
    user.sheen(&["down"])?;
    expect(sweep::mounts_under(&mount).is_empty(), "down has unmounted")?;
    expect_eq(names(&mount)?, Vec::<String>::new(), "what is under the mount")?;
    user.up()?;
    expect_eq(user.shell("cat ~/sheen/dir/link")?, "mine\n".to_owned(), "after down and up")?;
    user.sheen(&["down"]).map(drop)
}

/// Control sockets do not go where somebody else could answer in their place, nor logs where links of somebody else could be.
pub(super) fn foreign_run_directory(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let user = User::new(context)?;
    let run = user.path("foreign");
    fs::create_dir(&run)?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777))?;
    let daemon = 1;
    std::os::unix::fs::chown(&run, Some(daemon), Some(daemon))?;
    let mgs = user.path("mgs").to_string_lossy().into_owned();
    user.sheen(&["mkfs", "--mgs", &mgs])?;
    let mut command = user.command(&user.path("sheen-program"));
    command.args(["serve", &mgs]).env("SHEEN_RUN", &run);
    let said = user.say(command)?;
    println!("{}", said.errors.trim_end());
    expect(!said.is_success() && said.errors.contains("somebody else"), &format!("said: {}", said.errors))?;
    expect_eq(names(&run)?, Vec::<String>::new(), "what is in the directory")?;
    fs::create_dir(user.path("point"))?;
    let mut command = user.command(&user.path("sheen-program"));
    command.args(["mount", "127.0.0.1@tcp:/nosuch", "point"]).env("SHEEN_RUN", &run);
    let said = user.say(command)?;
    println!("{}", said.errors.trim_end());
    expect(!said.is_success() && said.errors.contains("somebody else"), &format!("said: {}", said.errors))?;
    expect_eq(names(&run)?, Vec::<String>::new(), "what is in the directory after a mount")
}

/// Without the program that mounts for others, one line says what is missing.
pub(super) fn no_fusermount3(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let _device = OpenDevice::new()?;
    let user = User::new(context)?;
    let mut command = user.command(&user.path("sheen-program"));
    command.arg("up").env("PATH", user.path("nothing-here"));
    let said = user.say(command)?;
    println!("{}", said.errors.trim_end());
    expect(!said.is_success(), "up without fusermount3 fails")?;
    expect_eq(said.errors.lines().count(), 1, &format!("lines of {}", said.errors))?;
    expect(said.errors.contains("fusermount3"), &format!("'{}' names it", said.errors.trim_end()))?;
    expect(sweep::mounts_under(&user.path("sheen")).is_empty(), "nothing is mounted")
}
