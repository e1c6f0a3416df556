//! The Debian package: what is installed where, and a check that installs it, uses it and removes it.
//!
//! It is put together here with dpkg-deb, from the release binary that is there already: nothing is built twice, and no other tool is
//! needed. Man pages and completions come from the binary itself.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use mount_suites::{runner, sys};

use crate::workspace;

/// Options of `cargo xtask package`.
#[derive(Args)]
pub struct Options {
    /// The binary to be packed; without it the release binary, which must have been built.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Install the package in a private copy of this machine's root, use it, remove it.
    #[arg(long)]
    check: bool,
}

/// Where mount(8), umount(8) and mkfs(8) look for us.
const HELPERS: [&str; 5] =
    ["mount.sheen", "mount.fuse.sheen", "umount.sheen", "umount.fuse.sheen", "mkfs.sheen"];
/// Completions by their generated name.
const COMPLETIONS: [(&str, &str); 3] = [
    ("sheen.bash", "usr/share/bash-completion/completions/sheen"),
    ("_sheen", "usr/share/zsh/vendor-completions/_sheen"),
    ("sheen.fish", "usr/share/fish/vendor_completions.d/sheen.fish"),
];
/// Files of the repository.
const FILES: [(&str, &str); 6] = [
    ("packaging/initramfs/boot", "usr/share/initramfs-tools/scripts/sheen"),
    ("packaging/initramfs/halfroot", "usr/share/sheen/halfroot"),
    ("packaging/systemd/sheen-server@.service", "usr/lib/systemd/system/sheen-server@.service"),
    ("packaging/systemd/tmpfiles.conf", "usr/lib/tmpfiles.d/sheen.conf"),
    ("packaging/example.toml", "usr/share/doc/sheen/example.toml"),
    ("LICENSE", "usr/share/doc/sheen/copyright"),
];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Why this machine can make no package, if it cannot.
pub fn missing() -> Option<String> {
    let has =
        |tool: &&str| Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success());
    ["dpkg-deb", "gzip", "unshare"].iter().find(|tool| !has(tool)).map(|tool| format!("no {tool}"))
}

/// # Errors
/// Something cannot be read or written, or the check failed.
pub fn run(options: &Options) -> Result<bool> {
    let (root, target) = (workspace::root()?, workspace::target()?);
    let binary = options.binary.clone().unwrap_or_else(|| target.join("release/sheen"));
    if !binary.is_file() {
        bail!("{} is not there; build it first: cargo build --release -p sheen", binary.display());
    }
    let package = make(&root, &target.join("debian"), &binary)?;
    println!("{}", package.display());
    if !options.check {
        return Ok(true);
    }
    if sys::effective_uid() != 0 {
        println!("skipped: not root");
        std::process::exit(runner::SKIPPED_STATUS);
    }
    let mut check = Command::new("unshare");
    check.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh"]);
    let status = check.arg(root.join("packaging/check-install")).arg(&package).status().context("unshare")?;
    if status.code() == Some(runner::SKIPPED_STATUS) {
        std::process::exit(runner::SKIPPED_STATUS);
    }
    Ok(status.success())
}

/// Puts everything in its place below a directory, and packs that.
pub fn make(root: &Path, work: &Path, binary: &Path) -> Result<PathBuf> {
    let stage = work.join("sheen");
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    install(binary, &stage.join("usr/bin/sheen"), 0o755)?;
    // What is for debuggers is four fifths of it. It works with it as well, where there is no strip.
    let _ = Command::new("strip").arg("--strip-debug").arg(stage.join("usr/bin/sheen")).status();
    fs::create_dir_all(stage.join("usr/sbin"))?;
    for name in HELPERS {
        symlink("../bin/sheen", stage.join("usr/sbin").join(name))?;
    }
    for (from, to) in FILES {
        install(&root.join(from), &stage.join(to), 0o644)?;
    }
    // update-initramfs(8) runs it where it is installed.
    install(
        &root.join("packaging/initramfs/hook"),
        &stage.join("usr/share/initramfs-tools/hooks/sheen"),
        0o755,
    )?;
    // Servers are configured here; nothing in it belongs to the package.
    fs::create_dir_all(stage.join("etc/sheen"))?;
    let generated = work.join("generated");
    succeed(Command::new(binary).arg("generate").arg(&generated))?;
    for (from, to) in COMPLETIONS {
        install(&generated.join("completions").join(from), &stage.join(to), 0o644)?;
    }
    man_pages(&generated.join("man"), &stage.join("usr/share/man"))?;
    for script in SCRIPTS {
        install(&root.join("packaging/debian").join(script), &stage.join("DEBIAN").join(script), 0o755)?;
    }
    fs::write(stage.join("DEBIAN/control"), control(&stage)?)?;
    let package = work.join(format!("sheen_{}_{}.deb", env!("CARGO_PKG_VERSION"), architecture()?));
    // Quick rather than small: it is made with every test command.
    let options = ["--root-owner-group", "-Zgzip", "-z1", "--build"];
    succeed(Command::new("dpkg-deb").args(options).arg(&stage).arg(&package))?;
    Ok(package)
}

fn man_pages(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let page = entry?.path();
        let name = page.file_name().context("a man page without a name")?;
        install(&page, &to.join("man1").join(name), 0o644)?;
        succeed(Command::new("gzip").arg("-9n").arg(to.join("man1").join(name)))?;
    }
    fs::create_dir_all(to.join("man8"))?;
    for (helper, page) in [("mount", "mount"), ("umount", "umount"), ("mkfs", "mkfs")] {
        symlink(format!("../man1/sheen-{page}.1.gz"), to.join("man8").join(format!("{helper}.sheen.8.gz")))?;
    }
    Ok(())
}

fn control(stage: &Path) -> Result<String> {
    let said = Command::new("du").args(["-sk", "--apparent-size"]).arg(stage).output()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let kib = said.split_whitespace().next().context("du says nothing")?;
    Ok(format!(
        "Package: sheen\nVersion: {}\nArchitecture: {}\nMaintainer: SheenFS <sheen@localhost>\nInstalled-Size: {kib}\n\
         Depends: libc6, adduser\nRecommends: fuse3\nSection: admin\nPriority: optional\n\
         Description: parallel file system in one program\n \
         Servers, clients and tools of SheenFS, a parallel file system with the\n \
         architecture and vocabulary of Lustre, in userspace.\n",
        env!("CARGO_PKG_VERSION"),
        architecture()?
    ))
}

fn architecture() -> Result<String> {
    let said = Command::new("dpkg").arg("--print-architecture").output().context("dpkg")?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let cannot = || format!("cannot install {} as {}", from.display(), to.display());
    fs::create_dir_all(to.parent().unwrap_or(to)).with_context(cannot)?;
    fs::copy(from, to).with_context(cannot)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(cannot)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
