//! What the servers of a mount do not have yet, and whether they answer: when an unmount waits, and what it says of what is lost.

use crate::control::Say;
use anyhow::Result;
use base::{TargetId, Time};
use client::Client;
use std::fmt;
use std::time::Duration;

/// For an unmount whose servers are gone, the end of the process included: all of it is over in ten seconds. Who lives and has a slow
/// disk answers pings meanwhile, of which there is one in five seconds at least.
pub const LEAVING: Patience = Patience { silence: HEARD_WITHIN, session: BACK_WITHIN };
/// For the end of a cluster, whose servers may be about to come back.
pub const STOPPING: Patience = Patience { silence: BACK_WITHIN, session: BACK_WITHIN };
/// For a forced end with a target that has failed in this process: that is not about to come back before this process has ended. The others
/// have time for what they still get.
pub const WITHOUT_FAILED: Patience = Patience { silence: HEARD_WITHIN, session: HEARD_WITHIN };
/// For those that have been waited for already.
pub const NONE: Patience = Patience { silence: Duration::ZERO, session: BACK_WITHIN };

const HEARD_WITHIN: Duration = Duration::from_millis(6500);
const BACK_WITHIN: Duration = Duration::from_secs(40);

/// How long servers are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// That have not been heard.
    silence: Duration,
    /// That are heard, and make no session.
    session: Duration,
}

/// Targets that did not answer in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} of {} {}; see `sheen status`", .targets.join(" "), .mount, does(.targets))]
pub struct Silence {
    pub targets: Vec<String>,
    pub mount: String,
}

fn does(targets: &[String]) -> &'static str {
    if targets.len() == 1 { "does not answer" } else { "do not answer" }
}

/// Watches the targets of a mount from its making on. All that is waited for one after the other is waited for under one watch: so whoever is
/// silent costs it once.
pub struct Watch {
    patience: Patience,
    began: Time,
    /// Some session was not whole at each look since then.
    broken_since: Option<Time>,
}

impl Watch {
    pub fn new(patience: Patience, now: Time) -> Watch {
        Watch { patience, began: now, broken_since: None }
    }

    /// Targets that a call waits for and that have no session now.
    pub fn broken(client: &Client) -> Vec<String> {
        named(client, |status| !matches!(status.session.state, "FULL"))
    }

    /// Whom it need not wait for any longer: targets that have said nothing for so long, or that answer and have made no session for so
    /// long.
    pub fn given_up(&mut self, client: &Client, now: Time) -> Vec<String> {
        let heard = |status: &client::TargetStatus| status.last_contact.unwrap_or(self.began).max(self.began);
        let silent = named(client, |status| now.since(heard(status)) >= self.patience.silence);
        if !silent.is_empty() {
            return silent;
        }
        let broken = Watch::broken(client);
        if broken.is_empty() {
            self.broken_since = None;
            return broken;
        }
        let since = *self.broken_since.get_or_insert(now);
        if now.since(since) >= self.patience.session { broken } else { Vec::new() }
    }
}

/// Does what has failed once more, unless it was silence or all is over.
///
/// # Errors
/// Those of the last time.
pub fn once_more(
    watch: &mut Watch,
    is_over: impl Fn() -> bool,
    say: &Say<'_>,
    mut attempt: impl FnMut(&mut Watch) -> Result<()>,
) -> Result<()> {
    match attempt(watch) {
        Err(error) if !error.is::<Silence>() && !is_over() => {
            say(&format!("{error:#}; once more"));
            attempt(watch)
        }
        done => done,
    }
}

/// Targets in use of which this is true.
fn named(client: &Client, is_meant: impl Fn(&client::TargetStatus) -> bool) -> Vec<String> {
    let is_meant = |target: &TargetId| {
        let status = client.target_status(*target);
        status.is_some_and(|status| {
            status.is_active && !matches!(status.session.state, "NEW" | "CLOSED") && is_meant(&status)
        })
    };
    client.targets().into_iter().filter(is_meant).map(|target| target.to_string()).collect()
}

/// What was acknowledged to programs and is not known to be on the disk of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsaved(Vec<OfTarget>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct OfTarget {
    target: String,
    /// Written by programs, and not yet sent or not answered.
    kept_bytes: u64,
    /// Requests that were answered, or are on their way.
    change_count: usize,
}

impl Unsaved {
    /// `None` when servers have all.
    pub fn of(client: &Client) -> Option<Unsaved> {
        let of_target = |target: TargetId| {
            let status = client.target_status(target)?;
            let change_count = status.session.retained_count + status.modifying_in_flight;
            let is_some = status.dirty_bytes > 0 || change_count > 0;
            let target = target.to_string();
            is_some.then_some(OfTarget { target, kept_bytes: status.dirty_bytes, change_count })
        };
        let found: Vec<OfTarget> = client.targets().into_iter().filter_map(of_target).collect();
        if found.is_empty() { None } else { Some(Unsaved(found)) }
    }
}

impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, OfTarget { target, kept_bytes, change_count }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{target} ({kept_bytes} bytes that it has not got")?;
            match change_count {
                0 => write!(f, ")")?,
                1 => write!(f, ", 1 change that it may not have kept)")?,
                count => write!(f, ", {count} changes that it may not have kept)")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
