//! What the keeper has confirmed: until when this process may serve what it owns.
//!
//! Each target has its own confirmation. A question that was asked while a target was being taken does not renew its lease, whenever its
//! answer comes: until the next one, what counts is when the target was asked for.

use base::{Epoch, TargetId, Time};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Confirmed {
    /// When the last question was asked that was answered.
    heard: Time,
    owned: BTreeMap<TargetId, (Epoch, Time)>,
}

impl Confirmed {
    /// It was given; it was asked for at that time.
    pub fn on_taken(&mut self, target: TargetId, epoch: Epoch, asked_at: Time) {
        self.owned.insert(target, (epoch, asked_at));
    }

    /// This process does not serve it any more, or renews its lease no more.
    pub fn on_left(&mut self, target: TargetId) {
        self.owned.remove(&target);
    }

    /// The leases of these ownerships have been renewed; it was asked for at that time.
    pub fn on_kept(&mut self, asked_at: Time, kept: impl IntoIterator<Item = (TargetId, Epoch)>) {
        self.heard = self.heard.max(asked_at);
        for (target, epoch) in kept {
            if let Some((_, at)) = self.owned.get_mut(&target).filter(|(owned, _)| *owned == epoch) {
                *at = (*at).max(asked_at);
            }
        }
    }

    /// Of all that this process owns. Of one that owns nothing: when the keeper was heard.
    pub fn all(&self) -> Time {
        self.owned.values().map(|(_, at)| *at).min().unwrap_or(self.heard)
    }

    pub fn of(&self, target: TargetId) -> Option<Time> {
        self.owned.get(&target).map(|(_, at)| *at)
    }
}
