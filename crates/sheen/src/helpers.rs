//! `install-helpers`: the names under which mount(8), umount(8) and mkfs(8) look for a program of a file system, and those of Lustre's tools
//! where no others are.

use crate::cli;
use crate::say;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// `mount -t sheen` calls the first, `mount -o remount` and `umount` look for the type that the kernel lists, `mkfs -t sheen`
/// calls the last.
const NAMES: [&str; 5] =
    ["mount.sheen", "mount.fuse.sheen", "umount.sheen", "umount.fuse.sheen", "mkfs.sheen"];

/// Subcommands that are programs of their own by their links.
pub const TOOLS: [&str; 2] = ["lfs", "lctl"];
const DIR_OF_TOOLS: &str = "usr/local/bin";
/// Where shells look for programs: one of Lustre's own stays what is found.
const DIRS_OF_PROGRAMS: [&str; 5] = ["usr/local/sbin", "usr/sbin", "usr/bin", "sbin", "bin"];

/// # Errors
/// Something of somebody else has one of the names (nothing is changed then), or the directory cannot be written.
pub fn install(arguments: &cli::InstallHelpers) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let dir = arguments.prefix.join("sbin");
    let links: Vec<PathBuf> = NAMES.iter().map(|name| dir.join(name)).collect();
    let dir_of_tools = arguments.prefix.join(DIR_OF_TOOLS);
    if arguments.remove {
        let tools = TOOLS.iter().map(|name| dir_of_tools.join(name));
        let links: Vec<PathBuf> = links.into_iter().chain(tools).collect();
        let ours = links.iter().filter(|link| fs::read_link(link).is_ok_and(|to| to == program));
        for link in ours {
            fs::remove_file(link).with_context(|| format!("cannot remove {}", link.display()))?;
        }
        return Ok(());
    }
    if !dir.is_dir() {
        bail!("{} is no directory; make it first, or choose another --prefix", dir.display());
    }
    if let Some(taken) = links.iter().find(|link| !is_free(link)) {
        bail!("{} is not a link to a sheen; remove it first", taken.display());
    }
    let mut made = String::new();
    let mut links = links;
    for name in TOOLS.iter().filter(|_| dir_of_tools.is_dir()) {
        let link = dir_of_tools.join(name);
        match taken_by(&arguments.prefix, name).or_else(|| (!is_free(&link)).then(|| link.clone())) {
            Some(other) if leads_to_sheen(&other) => {}
            Some(other) => {
                made += &format!("{} is there already, and stays; `sheen {name}` is ours\n", other.display())
            }
            None => links.push(link),
        }
    }
    for link in &links {
        // Beside it and renamed: whoever mounts at this moment finds the old one or the new one.
        let aside = link.with_extension(format!("new{}", std::process::id()));
        let linked = symlink(&program, &aside).and_then(|()| fs::rename(&aside, link));
        linked.with_context(|| format!("cannot make {}", link.display()))?;
        made += &format!("{} -> {}\n", link.display(), program.display());
    }
    say::outcome(&made)
}

/// The program of this name that is found beside ours.
fn taken_by(prefix: &Path, name: &str) -> Option<PathBuf> {
    let mut paths = DIRS_OF_PROGRAMS.iter().map(|dir| prefix.join(dir).join(name));
    paths.find(|path| fs::symlink_metadata(path).is_ok())
}

/// As the package has it.
fn leads_to_sheen(link: &Path) -> bool {
    let program = fs::canonicalize(link).unwrap_or_default();
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sheen"))
}

/// Nothing is there, or a link of an earlier installation: to a sheen, or to nothing, since whatever it was is removed.
fn is_free(link: &Path) -> bool {
    match (fs::symlink_metadata(link), fs::read_link(link)) {
        (Err(_), _) => true,
        (Ok(_), Ok(to)) => {
            to.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sheen")) || !link.exists()
        }
        (Ok(_), Err(_)) => false,
    }
}

#[cfg(test)]
mod tests;
