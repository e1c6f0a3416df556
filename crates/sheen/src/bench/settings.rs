//! Parameters of one side of a comparison: in force while that side is measured, and as they were before when it is not.

use super::cost::Daemons;
use crate::control::{self, Ask};
use crate::params;
use crate::say;
use anyhow::{Context, Result, bail};

/// `PATH=VALUE`, several with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    text: String,
    each: Vec<(String, String)>,
}

impl Settings {
    /// # Errors
    /// A parameter that is not known, or does not take the value.
    pub fn parse(text: &str) -> Result<Settings> {
        Settings::of_words(text.split(','))
    }

    /// Each of them a `PATH=VALUE`, whatever is in it.
    ///
    /// # Errors
    /// As `parse`.
    pub fn of_words<'a>(words: impl Iterator<Item = &'a str>) -> Result<Settings> {
        let parse = |word: &str| {
            let (pattern, value) =
                word.split_once('=').with_context(|| format!("'{word}' sets nothing; write PATH=VALUE"))?;
            params::check(pattern, value, false)?;
            Ok((pattern.to_owned(), value.to_owned()))
        };
        let each = words.map(parse).collect::<Result<Vec<(String, String)>>>()?;
        let texts = each.iter().map(|(pattern, value)| format!("{pattern}={value}"));
        Ok(Settings { text: texts.collect::<Vec<_>>().join(","), each })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Sets them in the processes that work for a directory.
    ///
    /// # Errors
    /// None of them has such a parameter, or one refuses.
    pub fn apply(&self, daemons: &Daemons) -> Result<Applied> {
        let mut applied = Applied { before: Vec::new() };
        // All are read before any is set: what one of them shows may depend on another.
        let mut before = Vec::new();
        for (pattern, _) in &self.each {
            let mut is_found = false;
            for pid in daemons.pids() {
                let get = Ask::GetParam { pattern: pattern.clone() };
                let params = control::ask_if_alive(pid, &get)?.unwrap_or_default().params;
                is_found |= !params.is_empty();
                before.extend(params.into_iter().map(|(name, value)| (pid, name, value)));
            }
            if !is_found {
                bail!("the mount that is measured has no '{pattern}'");
            }
        }
        applied.before = before;
        for (pattern, value) in &self.each {
            for pid in daemons.pids() {
                set(pid, pattern, value)?;
            }
        }
        Ok(applied)
    }
}

/// Sets back what was before when it is dropped.
#[derive(Debug, Default)]
pub struct Applied {
    before: Vec<(u32, String, String)>,
}

impl Drop for Applied {
    fn drop(&mut self) {
        for (pid, name, value) in self.before.iter().rev() {
            if let Err(error) = set(*pid, name, value.trim_end()) {
                say::note(format_args!("cannot set {name} back to {value}: {error:#}"));
            }
        }
    }
}

/// Has a mount give back the locks that it does not use, once. What has no parameters has no locks either.
///
/// # Errors
/// It refuses.
pub fn drop_idle_locks(daemons: &Daemons) -> Result<()> {
    set(daemons.client_pid(), "ldlm.namespaces.*.lru_size", "clear")
}

fn set(pid: u32, pattern: &str, value: &str) -> Result<()> {
    let (pattern, value) = (pattern.to_owned(), value.to_owned());
    let ask = Ask::SetParam { pattern, value, is_permanent: false, is_deleted: false };
    control::ask_if_alive(pid, &ask).map(drop)
}

#[cfg(test)]
mod tests;
