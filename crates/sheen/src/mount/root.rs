//! The directory that a mount shows as its root.

use super::{Shared, Unanswered, begin};
use crate::node::Ended;
use crate::{nid, sys};
use anyhow::{Context, Result, bail};
use base::{FileType, TargetId, TargetKind};
use client::{Answer, Call, Client};
use net::Owner;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// That has the root of every file system.
const ROOT_MDT: TargetId = TargetId::mdt(0);
/// Between two looks at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What a mount asks for before it is there.
pub struct Awaited {
    /// Directory of the file system to mount; empty for its root.
    pub subdir: String,
    /// All of it is given up then.
    pub until: Instant,
}

/// Until this mount has a session with the MDT of the root. One that recovers has sessions, and answers later.
///
/// # Errors
/// It does not come, or the MDT refuses; `Ended`.
pub(super) fn wait_for_mdt(owner: &Owner<Client>, shared: &Shared, until: Instant) -> Result<()> {
    // That makes the session.
    let asked = begin(owner, shared, Call::Getattr { node: client::ROOT_NODE, fh: None });
    let session = || owner.with(|client| client.target_status(ROOT_MDT)).map(|status| status.session);
    let is_there = || session().is_some_and(|session| session.is_there());
    match answer(&asked, until, is_there)? {
        Waited::Answer(Ok(_)) | Waited::Enough => Ok(()),
        Waited::Answer(Err(errno)) => {
            let error = io::Error::from_raw_os_error(errno);
            Err(error).with_context(|| format!("{ROOT_MDT} does not serve the root"))
        }
        Waited::Silence => {
            let nids = session().map(|session| session.nids).unwrap_or_default();
            let who = place(ROOT_MDT, &nids);
            let what = format!("{who} does not answer, and without it nothing is mounted");
            Err(anyhow::Error::new(Unanswered).context(what))
        }
    }
}

/// The node of a directory, held for the life of the mount.
///
/// # Errors
/// It is not there, is no directory, or cannot be looked at; the MDTs on the way to it do not answer; `Ended`.
pub(super) fn find(owner: &Owner<Client>, shared: &Shared, awaited: &Awaited) -> Result<u64> {
    let Awaited { subdir, until } = awaited;
    let mut node = client::ROOT_NODE;
    for name in subdir.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            bail!("'..' in '{subdir}' is not possible; name the directory from the root");
        }
        let asked = begin(owner, shared, Call::Lookup { parent: node, name: name.as_bytes().to_vec() });
        let Waited::Answer(found) = answer(&asked, *until, || false)? else {
            let silent = owner.with(|client| asked_mdts(client));
            let who = match silent.as_slice() {
                [] => "its MDT does".to_owned(),
                [silent] => format!("{silent} does"),
                _ => format!("{} do", silent.join(", ")),
            };
            let what = format!("{who} not answer, and without that '{name}' of '{subdir}' is not found");
            return Err(anyhow::Error::new(Unanswered).context(what));
        };
        node = directory(found, name, subdir)?;
    }
    Ok(node)
}

/// How a wait has ended.
enum Waited {
    Answer(Result<Answer, i32>),
    /// What was waited for is there without it.
    Enough,
    Silence,
}

/// # Errors
/// `Ended`; the mount is about to end.
fn answer(
    asked: &Receiver<Result<Answer, i32>>,
    until: Instant,
    is_enough: impl Fn() -> bool,
) -> Result<Waited> {
    let mut interval = Duration::from_millis(1);
    loop {
        match asked.recv_timeout(interval) {
            Ok(answer) => return Ok(Waited::Answer(answer)),
            Err(RecvTimeoutError::Disconnected) => bail!(Unanswered),
            Err(RecvTimeoutError::Timeout) => interval = (interval * 2).min(LOOK_INTERVAL),
        }
        if is_enough() {
            return Ok(Waited::Enough);
        }
        if sys::is_end_pending() {
            bail!(Ended);
        }
        if Instant::now() >= until {
            return Ok(Waited::Silence);
        }
    }
}

/// Those that owe this client an answer, and where they are.
fn asked_mdts(client: &Client) -> Vec<String> {
    let is_mdt = |target: &TargetId| target.kind == TargetKind::Mdt;
    let asked = client.targets().into_iter().filter(is_mdt).filter_map(|target| {
        let session = client.target_status(target)?.session;
        (session.outstanding > 0).then(|| place(target, &session.nids))
    });
    asked.collect()
}

fn place(target: TargetId, nids: &[String]) -> String {
    let nids: Vec<String> = nids.iter().map(|nid| nid::format_nid(nid)).collect();
    format!("{target} at {}", nids.join(":"))
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
