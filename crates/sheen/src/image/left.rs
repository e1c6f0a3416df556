//! What commands have left behind that were broken off: `list` shows it, `clean` ends it.

use super::place::Image;
use crate::say;
use anyhow::{Result, bail};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// A version that is being made, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    pub name: String,
    /// Always: so programs tell it from versions.
    pub is_incomplete: bool,
    /// A command is at it.
    pub is_at_work: bool,
    #[serde(with = "crate::path_words")]
    pub path: PathBuf,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.is_at_work {
            true => "a command is at it",
            false => "a command was broken off; sheen image clean ends it",
        };
        write!(f, "{:<20} incomplete: {what}", self.name)
    }
}

/// What there is of it in a directory of images.
///
/// # Errors
/// It cannot be read, or is on no mount of ours.
pub fn all(dir: &Path) -> Result<Vec<Left>> {
    let left = |image: Image| Left {
        path: image.building(),
        is_at_work: image.is_at_work(),
        is_incomplete: true,
        name: image.name,
    };
    Ok(Image::unfinished(dir)?.into_iter().map(left).collect())
}

/// The command: ends all that is left, but what a node holds or a command is at.
///
/// # Errors
/// Something is left.
pub fn clean(dir: &Path) -> Result<()> {
    let (mut ended, mut is_all) = (String::new(), true);
    for image in Image::unfinished(dir)? {
        match image.lock().and_then(|_locked| image.clean()) {
            Ok(()) => ended.push_str(&format!("{}: what a command had left is ended\n", image.name)),
            Err(error) => {
                is_all = false;
                say::note(format_args!("{}: {error:#}", image.name));
            }
        }
    }
    if ended.is_empty() && is_all {
        ended = format!("nothing is left in {}\n", dir.display());
    }
    say::outcome(&ended)?;
    if is_all { Ok(()) } else { bail!("not all that is left could be ended") }
}
