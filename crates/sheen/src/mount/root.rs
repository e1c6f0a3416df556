//! The directory that a mount shows as its root.

use super::{Shared, call};
use anyhow::{Context, Result, bail};
use base::FileType;
use client::{Answer, Call, Client};
use net::Owner;
use std::io;

/// The node of a directory, held for the life of the mount.
///
/// # Errors
/// It is not there, is no directory, or cannot be looked at; the servers do not answer.
pub(super) fn find(owner: &Owner<Client>, shared: &Shared, subdir: &str) -> Result<u64> {
    let mut node = client::ROOT_NODE;
    for name in subdir.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            bail!("'..' in '{subdir}' is not possible; name the directory from the root");
        }
        let lookup = Call::Lookup { parent: node, name: name.as_bytes().to_vec() };
        node = directory(call(owner, shared, lookup)?, name, subdir)?;
    }
    Ok(node)
}

/// The node of what was found under a name on the way to `subdir`.
fn directory(found: Result<Answer, i32>, name: &str, subdir: &str) -> Result<u64> {
    let attr = match found {
        Ok(Answer::Entry(entry)) => entry.attr,
        Ok(_) | Err(libc::ENOENT) => None,
        Err(errno) => {
            let error = io::Error::from_raw_os_error(errno);
            return Err(error).with_context(|| format!("cannot look up '{name}' of '{subdir}'"));
        }
    };
    match attr {
        Some(attr) if attr.file_type == FileType::Directory => Ok(attr.fid.inode_number()),
        Some(_) => bail!("'{name}' of '{subdir}' is no directory, and cannot be mounted; name one"),
        None => bail!("the file system has no directory '{subdir}'; make it first"),
    }
}

#[cfg(test)]
mod tests;
