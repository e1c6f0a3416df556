//! What keeps a target from being served although its process has it.

use crate::served;
use base::{Endpoint, Start, TargetId};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Nobody comes to a target behind it, and nothing that the target says leaves.
pub struct Barrier {
    id: TargetId,
    path: PathBuf,
    /// Another process serves it.
    is_elsewhere: AtomicBool,
    /// It is an older copy, for as long as its process lives: how that is known, and what to do, in one line.
    outdated: OnceLock<String>,
}

impl Barrier {
    pub fn new(id: TargetId, path: &Path) -> Barrier {
        Barrier { id, path: path.to_owned(), is_elsewhere: AtomicBool::new(false), outdated: OnceLock::new() }
    }

    pub fn is_closed(&self) -> bool {
        self.is_elsewhere.load(Ordering::Acquire) || self.outdated.get().is_some()
    }

    pub fn set_elsewhere(&self, is_elsewhere: bool) {
        self.is_elsewhere.store(is_elsewhere, Ordering::Release);
    }

    /// Says so, the first time.
    pub fn set_outdated(&self, by: Endpoint, known: Start) {
        let text = outdated(self.id, &self.path, by, known);
        if self.outdated.set(text.clone()).is_ok() {
            tracing::error!("{text}");
        }
    }

    pub fn outdated(&self) -> Option<&str> {
        self.outdated.get().map(String::as_str)
    }
}

/// What an operator is to do about an older copy of a target.
fn outdated(id: TargetId, path: &Path, by: Endpoint, known: Start) -> String {
    let shown = path.display();
    let by = match by {
        Endpoint::Target(TargetId::MGT) => "the management server".to_owned(),
        Endpoint::Target(target) => target.to_string(),
        Endpoint::Client(client) => format!("the client {client}"),
    };
    format!(
        "{id} in {shown} is an older copy: {by} knows {known}, which is none of this one's; nothing is served from it: end this server, and, unless \
         another one has taken the target over, put the newest copy back and serve that; if this one is the newest that is left, say so with \
         `sheen restored --over {} {}`",
        known.epoch,
        served::quoted_path(path)
    )
}
