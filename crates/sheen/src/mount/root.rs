//! The directory that a mount shows as its root.

use super::{Shared, Unanswered, begin, call};
use crate::node::Ended;
use crate::{nid, sys};
use anyhow::{Context, Result, bail};
use base::{FileType, TargetId};
use client::{Answer, Call, Client};
use net::Owner;
use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// That has the root of every file system.
const ROOT_MDT: TargetId = TargetId::mdt(0);
/// How long a mount waits for a session with it, as for the management server.
const SESSION_WAIT: Duration = Duration::from_secs(15);
/// Between two looks at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Until this mount has a session with the MDT of the root. One that recovers has sessions, and answers later.
///
/// # Errors
/// It does not come, or the MDT refuses; `Ended`.
pub(super) fn wait_for_mdt(owner: &Owner<Client>, shared: &Shared) -> Result<()> {
    // That makes the session.
    let asked = begin(owner, shared, Call::Getattr { node: client::ROOT_NODE, fh: None });
    let start = Instant::now();
    let mut interval = Duration::from_millis(1);
    loop {
        match asked.recv_timeout(interval) {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(errno)) => {
                let error = io::Error::from_raw_os_error(errno);
                return Err(error).with_context(|| format!("{ROOT_MDT} does not serve the root"));
            }
            Err(RecvTimeoutError::Disconnected) => bail!(Unanswered),
            Err(RecvTimeoutError::Timeout) => interval = (interval * 2).min(LOOK_INTERVAL),
        }
        let status = owner.with(|client| client.target_status(ROOT_MDT));
        if status.as_ref().is_some_and(|status| status.session.is_there()) {
            return Ok(());
        }
        if sys::is_end_pending() {
            bail!(Ended);
        }
        if start.elapsed() >= SESSION_WAIT {
            let nids = status.map(|status| status.session.nids).unwrap_or_default();
            let nids: Vec<String> = nids.iter().map(|nid| nid::format_nid(nid)).collect();
            let what = format!(
                "{ROOT_MDT} at {} does not answer, and without it nothing is mounted",
                nids.join(":")
            );
            return Err(anyhow::Error::new(Unanswered).context(what));
        }
    }
}

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
