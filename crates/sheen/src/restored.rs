//! `restored`: a directory of a target that was put back from an older copy is the newest that there is.

use crate::cli;
use crate::cluster;
use crate::others;
use crate::target_dir;
use anyhow::{Context, Result, bail};
use base::Epoch;
use std::sync::Arc;
use store::MetaStore;
use store_disk::{MetaDisk, Options};

/// # Errors
/// A directory is no target, served, or cannot be changed; those before it are done.
pub fn restored(arguments: &cli::Restored) -> Result<()> {
    let over = Epoch(arguments.over);
    if over > Epoch::BELIEVED_MAX {
        bail!(
            "nobody remembers start number {over}; give the number of the start that others know, at most {}",
            Epoch::BELIEVED_MAX
        );
    }
    cluster::target_dirs(&arguments.dirs)?.iter().try_for_each(|path| {
        if target_dir::exists(path) {
            others::check_user(path)?;
            others::check_fenced(path, arguments.fenced)?;
        }
        let dir = target_dir::open(path)?;
        let shown = dir.path.display();
        if let Some(lost) = dir.lost_store() {
            bail!("{} is missing, and this target was served: is its disk mounted?", lost.display());
        }
        if !MetaDisk::is_there(&dir.meta_path()) {
            bail!("{shown} was never served: there is nothing in it that others could know better");
        }
        let cannot = || format!("cannot change {} in {shown}", dir.id);
        let disk = MetaDisk::open(&dir.meta_path(), &Options::default(), Arc::new(|| {})).with_context(cannot)?;
        let batch = target::core::restored::as_newest(&disk, over).with_context(cannot)?;
        disk.apply(disk.applied().next(), &batch).with_context(cannot)?;
        disk.close();
        if disk.durable() < disk.applied() {
            bail!("{shown} was not changed for sure: its device failed to keep it");
        }
        println!(
            "{shown} is the newest copy of {} now: what was done since it was made is lost; clients lose their sessions with it, and \
             `sheen fsck` over all targets shows what others have that it does not know",
            dir.id
        );
        Ok(())
    })
}
