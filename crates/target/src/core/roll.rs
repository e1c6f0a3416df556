//! Who of the clients that a recovery waits for is where. It is asked with each frame, and thousands of clients send thousands of them:
//! only who has changed is looked at again.

use super::Core;
use super::recovery::Awaited;
use base::{ClientId, Endpoint};
use std::collections::BTreeSet;
use store::MetaStore;

/// What is known of all awaited clients, but for those that have changed since they were looked at.
#[derive(Debug, Default)]
pub(super) struct Roll {
    changed: BTreeSet<ClientId>,
    /// Awaited at all.
    awaited: BTreeSet<ClientId>,
    /// Of those, the ones that are no mounts.
    targets: BTreeSet<ClientId>,
    /// It is not known what they replay.
    unknown: BTreeSet<ClientId>,
    /// More may come of them.
    unfinished: BTreeSet<ClientId>,
    /// Their opens and locks have come, and wait.
    holding: BTreeSet<ClientId>,
    /// They have said that they are done, and nothing of what they have said waits.
    returned: BTreeSet<ClientId>,
}

impl Roll {
    fn look(&mut self, client: ClientId, awaited: Option<&Awaited>) {
        let is_target = !matches!(client.endpoint(), Endpoint::Client(_));
        let is_so = |is_so: fn(&Awaited) -> bool| awaited.is_some_and(is_so);
        for (set, is_in) in [
            (&mut self.awaited, awaited.is_some()),
            (&mut self.targets, awaited.is_some() && is_target),
            (&mut self.unknown, is_so(|awaited| !awaited.is_known())),
            (&mut self.unfinished, is_so(|awaited| !awaited.is_done())),
            (&mut self.holding, is_so(Awaited::is_holding)),
            (&mut self.returned, is_so(Awaited::has_returned)),
        ] {
            if is_in {
                set.insert(client);
            } else {
                set.remove(&client);
            }
        }
    }
}

/// The awaited clients as they are now.
pub(super) struct Called<'a>(&'a Roll);

impl Called<'_> {
    pub fn is_somebody_awaited(&self) -> bool {
        !self.0.awaited.is_empty()
    }

    pub fn is_target_awaited(&self) -> bool {
        !self.0.targets.is_empty()
    }

    pub fn is_somebody_unknown(&self) -> bool {
        !self.0.unknown.is_empty()
    }

    pub fn is_somebody_unfinished(&self) -> bool {
        !self.0.unfinished.is_empty()
    }

    pub fn holding(&self) -> Vec<ClientId> {
        self.0.holding.iter().copied().collect()
    }

    pub fn returned(&self) -> Vec<ClientId> {
        self.0.returned.iter().copied().collect()
    }
}

impl<M: MetaStore> Core<M> {
    /// Something of an awaited client changes, or it comes or goes: before or after, but in the same input.
    pub(super) fn note_change(&mut self, client: ClientId) {
        if let Some(recovery) = &mut self.recovery {
            recovery.roll.changed.insert(client);
        }
    }

    /// How the awaited clients stand, as far as there is a recovery.
    pub(super) fn call_roll(&mut self) -> Option<Called<'_>> {
        let recovery = self.recovery.as_mut()?;
        for client in std::mem::take(&mut recovery.roll.changed) {
            let awaited = self.exports.get(&client).and_then(|export| export.awaited.as_ref());
            recovery.roll.look(client, awaited);
        }
        Some(Called(&recovery.roll))
    }

    /// Whether anything more is waited for of a client; all were looked at when the last input ended. (In a lossless recovery who is
    /// done is awaited until it is served.)
    pub(super) fn is_somebody_holding_up(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| {
            let roll = &recovery.roll;
            let holding_up = if recovery.is_lossless { &roll.awaited } else { &roll.unfinished };
            !roll.changed.is_empty() || !holding_up.is_empty()
        })
    }

    /// Asserts that nobody has changed without a note of it.
    pub(super) fn check_roll(&self) {
        let Some(recovery) = &self.recovery else { return };
        let roll = &recovery.roll;
        let is_in = |set: &BTreeSet<ClientId>, client: &ClientId| set.contains(client);
        for (client, export) in self.exports.iter().filter(|(client, _)| !roll.changed.contains(client)) {
            let mut now = Roll::default();
            now.look(*client, export.awaited.as_ref());
            let sets = |roll: &Roll| {
                let Roll { changed: _, awaited, targets, unknown, unfinished, holding, returned } = roll;
                [awaited, targets, unknown, unfinished, holding, returned].map(|set| is_in(set, client))
            };
            assert_eq!(sets(roll), sets(&now), "{client:?} has changed without a note");
        }
        assert!(
            roll.awaited
                .iter()
                .all(|client| is_in(&roll.changed, client) || self.exports.contains_key(client))
        );
    }
}
