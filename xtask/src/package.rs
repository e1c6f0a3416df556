//! The Debian package: what is installed where, and a check that installs it, uses it and removes it.
//!
//! cargo-deb packs what the manifest of the crate `sheen` lists (`[package.metadata.deb]`), from the release binary that is there
//! already: nothing is built twice. Man pages and completions come from the binary itself.

use std::ffi::OsString;
use std::fs;
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

/// Where the manifest says that man pages and completions are.
const GENERATED: &str = "packaging/generated";
/// Where the test command installs programs of Cargo.
const TOOLS: &str = "tools/bin";

/// Why this machine can make no package, if it cannot.
pub fn missing(target: &Path) -> Option<String> {
    let path = path(target).ok()?;
    let has = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let needed = [
        ("cargo-deb", "cargo install cargo-deb"),
        ("dpkg-shlibdeps", "package dpkg-dev"),
        ("strip", "package binutils"),
        ("unshare", "package util-linux"),
    ];
    needed.iter().find(|(program, _)| !has(program)).map(|(program, from)| format!("no {program} ({from})"))
}

/// Where programs are looked for: also where the test command has installed them.
fn path(target: &Path) -> Result<OsString> {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(target.join(TOOLS)).chain(std::env::split_paths(&usual)))?)
}

/// # Errors
/// Something cannot be read or written, or the check failed.
pub fn run(options: &Options) -> Result<bool> {
    let (root, target) = (workspace::root()?, workspace::target()?);
    let binary = options.binary.clone().unwrap_or_else(|| target.join("release/sheen"));
    if !binary.is_file() {
        bail!("{} is not there; build it first: cargo build --release -p sheen", binary.display());
    }
    if let Some(reason) = missing(&target) {
        bail!("{reason}");
    }
    let package = make(&root, &target.join("debian"), &binary)?;
    println!("{}", package.display());
    if !options.check {
        return Ok(true);
    }
    if sys::effective_uid() != 0 {
        runner::end_skipped("not root");
    }
    let scripts = ["packaging/check-install", "packaging/check-machines"];
    let mut skipped_count = 0;
    for script in scripts {
        let mut check = Command::new("unshare");
        check.args(["--mount", "--propagation", "private", "--pid", "--mount-proc", "--net", "--fork"]);
        check.args(["--kill-child", "sh"]);
        let status = check.arg(root.join(script)).arg(&package).status().context("unshare")?;
        match status.code() {
            Some(0) => {}
            // It has said what it misses; the other one may need less.
            Some(runner::SKIPPED_STATUS) => skipped_count += 1,
            _ => return Ok(false),
        }
    }
    if skipped_count == scripts.len() {
        std::process::exit(runner::SKIPPED_STATUS);
    }
    Ok(true)
}

/// Packs this binary, with the man pages and completions that it writes, into a file in `work`, which is emptied before.
pub fn make(root: &Path, work: &Path, binary: &Path) -> Result<PathBuf> {
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    // What cargo-deb takes for the directory where cargo builds: whatever else was built for other ends stays out of it.
    let built = work.join("built");
    let release = built.join("release");
    let cannot = || format!("cannot copy {} to {}", binary.display(), release.display());
    fs::create_dir_all(&release).with_context(cannot)?;
    fs::copy(binary, release.join("sheen")).with_context(cannot)?;
    let generated = root.join(GENERATED);
    if generated.exists() {
        fs::remove_dir_all(&generated)?;
    }
    succeed(Command::new(binary).arg("generate").arg(&generated))?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Quick rather than small: it is made with every test command. What is for debuggers is four fifths of the binary.
    let options = ["deb", "--package", "sheen", "--no-build", "--offline", "--locked", "--strip", "--fast"];
    command.current_dir(root).args(options).arg("--output").arg(work);
    command.env("PATH", path(&workspace::target()?)?).env("CARGO_TARGET_DIR", &built);
    let output =
        command.stderr(std::process::Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    let package = said.lines().last().context("cargo-deb does not say where the package is")?;
    Ok(PathBuf::from(package))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
