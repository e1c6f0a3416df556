//! `upgrade`: directories of targets from an older format to the one of this program.

use crate::cli;
use crate::cluster;
use crate::others;
use crate::progress::{Goal, Progress};
use crate::target_dir;
use anyhow::{Context, Result};
use std::path::Path;
use store_disk::FORMAT_VERSION;
use store_disk::upgrade::{Reached, STEPS, Step, Upgraded};

/// # Errors
/// A directory is no target, served, newer, or cannot be upgraded; it is as it was then, and those before it are done.
pub fn upgrade(arguments: &cli::Upgrade) -> Result<()> {
    cluster::target_dirs(&arguments.dirs)?.iter().try_for_each(|dir| {
        check_may_change(dir, arguments.fenced)?;
        println!("{}", upgrade_one(dir, STEPS)?);
        Ok(())
    })
}

/// What is no target is said by the upgrade itself.
fn check_may_change(dir: &Path, is_fenced: bool) -> Result<()> {
    if !target_dir::exists(dir) {
        return Ok(());
    }
    others::check_user(dir)?;
    others::check_fenced(dir, is_fenced)
}

/// What was done, in one line.
fn upgrade_one(dir: &Path, steps: &[Step]) -> Result<String> {
    let path = dir.canonicalize().with_context(|| format!("there is no directory {}", dir.display()))?;
    let shown = path.display();
    let mut progress = None;
    let mut told = |reached| {
        // What follows the copy takes no time that anybody waits for.
        let Reached::Copied { file_count, byte_count, total_bytes } = reached else { return progress = None };
        let goal = Goal { items: None, bytes: Some(total_bytes) };
        let begin = || Progress::begin(format!("copying the metadata of {shown}"), "files", goal);
        progress.get_or_insert_with(begin).set(file_count, byte_count);
    };
    let upgraded = store_disk::upgrade::upgrade(&path, steps, &mut told);
    drop(progress);
    Ok(match upgraded? {
        Upgraded::NothingToDo => {
            format!("{shown} has format {FORMAT_VERSION}, which is this program's: nothing to do")
        }
        Upgraded::Done { from, copy, about } => format!(
            "{shown} had format {from} and has {FORMAT_VERSION} now ({}); its former metadata are kept in {}",
            about.join(", "),
            copy.display()
        ),
        Upgraded::Removed { to } => format!(
            "{shown} has format {FORMAT_VERSION}, which is this program's; what an upgrade to format {to} had begun and not ended is removed"
        ),
        Upgraded::Completed { copy } => format!(
            "{shown} has format {FORMAT_VERSION} now, by an upgrade that had been interrupted; its former metadata are kept in {}",
            copy.display()
        ),
    })
}
