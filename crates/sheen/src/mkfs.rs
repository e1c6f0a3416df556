//! `mkfs`: the directory of one target.

use crate::cli;
use crate::nid;
use crate::target_dir;
use anyhow::{Result, bail};
use base::TargetId;

/// # Errors
/// An option is missing or wrong, or the directory is not empty; nothing is made then.
pub fn mkfs(arguments: &cli::Mkfs) -> Result<()> {
    if arguments.mgs {
        if arguments.index.is_some() {
            bail!("a management target has no --index; leave it out");
        }
        if arguments.fsname.is_some() {
            bail!("a management target serves all file systems; leave --fsname out");
        }
        if !arguments.mgsnode.is_empty() {
            bail!("a management target needs no --mgsnode; leave it out");
        }
        return target_dir::make(&arguments.dir, TargetId::MGT, "", &[]);
    }
    let Some(index) = arguments.index else { bail!("say which target it is: --index 0 for the first") };
    let Some(fsname) = &arguments.fsname else { bail!("say which file system it belongs to: --fsname NAME") };
    nid::check_fsname(fsname)?;
    if arguments.mgsnode.is_empty() {
        bail!("say where the management server is: --mgsnode HOST[:PORT]@tcp");
    }
    let mgs = nid::parse_nids(&arguments.mgsnode.join(":"))?;
    let id = if arguments.mdt { TargetId::mdt(index) } else { TargetId::ost(index) };
    target_dir::make(&arguments.dir, id, fsname, &mgs)
}
