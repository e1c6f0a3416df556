//! Programs of the system that walk or copy a tree: what people run, with all that these programs ask.

use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    LsRecursive,
    FindLs,
    FindPrint,
    Du,
    Rsync,
    Copy,
    /// Into a repository beside the tree, in the same file system.
    GitAdd,
    GitStatus,
    RemoveCopy,
    TarOut,
    TarIn,
}

impl Tool {
    pub fn program(self) -> &'static str {
        match self {
            Tool::LsRecursive => "ls",
            Tool::FindLs | Tool::FindPrint => "find",
            Tool::Du => "du",
            Tool::Rsync => "rsync",
            Tool::Copy => "cp",
            Tool::GitAdd | Tool::GitStatus => "git",
            Tool::RemoveCopy => "rm",
            Tool::TarOut | Tool::TarIn => "tar",
        }
    }

    pub fn is_here(self) -> bool {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|dir| dir.join(self.program()).is_file())
    }

    pub fn command(self, paths: &Paths) -> Command {
        let Paths { tree, copy, archive, unpacked, empty, repository: _, aside: _ } = paths;
        let mut command = Command::new(self.program());
        match self {
            Tool::GitAdd => paths.of_repository(&mut command).args(["add", "--all"]),
            Tool::GitStatus => paths.of_repository(&mut command).args(["status", "--porcelain"]),
            Tool::LsRecursive => command.arg("-lR").arg(tree),
            Tool::FindLs => command.arg(tree).arg("-ls"),
            Tool::FindPrint => command.arg(tree).args(["-printf", "%s %n\\n"]),
            Tool::Du => command.arg("-s").arg(tree),
            // With the slash it is what is in the directory that is compared.
            Tool::Rsync => command.arg("-an").arg(tree.join("")).arg(empty.join("")),
            Tool::Copy => command.arg("-a").arg(tree).arg(copy),
            Tool::RemoveCopy => command.arg("-rf").arg(copy),
            Tool::TarOut => command.arg("-C").arg(tree).arg("-cf").arg(archive).arg("."),
            Tool::TarIn => command.arg("-C").arg(unpacked).arg("-xf").arg(archive),
        };
        command
    }

    /// What has to be there before it is measured.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn prepare(self, paths: &Paths) -> Result<()> {
        match self {
            Tool::GitAdd => {
                run(paths.of_repository(&mut Command::new(self.program())).args(["init", "--quiet"]))
            }
            _ => Ok(()),
        }
    }

    /// Has the program's own pages in memory: dropping caches takes them too, and they are not what is measured.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn warm_program(self) -> Result<()> {
        run(Command::new(self.program()).arg("--version"))
    }
}

/// Where the tools work.
pub struct Paths {
    tree: PathBuf,
    copy: PathBuf,
    /// Not in the measured file system: its other end is.
    archive: PathBuf,
    /// The directory of that.
    aside: PathBuf,
    unpacked: PathBuf,
    empty: PathBuf,
    repository: PathBuf,
}

impl Paths {
    /// # Errors
    /// Nothing can be made there.
    pub fn new(work: &Path, tree: PathBuf) -> Result<Paths> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let aside = std::env::temp_dir().join(format!("sheen-bench-tar-{}-{number}", std::process::id()));
        // In a directory for all users: one of our own, into which nobody else can put a link.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&aside)
            .with_context(|| format!("cannot make {}", aside.display()))?;
        let below = |name: &str| work.join(name);
        let paths = Paths {
            tree,
            copy: below("copy"),
            archive: aside.join("tree.tar"),
            aside,
            unpacked: below("unpacked"),
            empty: below("empty"),
            repository: below("repository"),
        };
        for dir in [&paths.unpacked, &paths.empty] {
            fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(paths)
    }

    /// A command of git, whose user has no settings.
    fn of_repository<'a>(&self, git: &'a mut Command) -> &'a mut Command {
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        git.arg("--git-dir").arg(&self.repository).arg("--work-tree").arg(&self.tree)
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        // What stays behind goes with the place.
        for dir in [&self.aside, &self.copy, &self.unpacked, &self.empty, &self.repository] {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// # Errors
/// It cannot be run, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir(Path::new("/"));
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
