//! The sessions with other targets, as operators see them.

use super::super::Mds;
use base::{Now, TargetId, WallTime};
use rpc::{History, Import, ImportOutput, OVERDUE_WORD, SessionStatus, state_word};
use store::MetaStore;

/// What a session has been through.
#[derive(Debug, Default)]
pub(super) struct Past {
    history: History,
    eviction_count: u64,
}

impl Past {
    pub fn note(&mut self, now: WallTime, output: &ImportOutput) {
        match output {
            ImportOutput::State(state) => self.history.add(now, state_word(*state)),
            ImportOutput::Overdue => self.history.add(now, OVERDUE_WORD),
            ImportOutput::AnswersAgain => self.history.add(now, state_word(rpc::ImportState::Active)),
            ImportOutput::Evicted => {
                self.history.add(now, "EVICTED");
                self.eviction_count += 1;
            }
            ImportOutput::Send(_)
            | ImportOutput::Completed { .. }
            | ImportOutput::Committed(_)
            | ImportOutput::ReplayWanted
            | ImportOutput::ReplayFailed { .. }
            | ImportOutput::Recovered
            | ImportOutput::Lost { .. }
            | ImportOutput::Outdated(_)
            | ImportOutput::Callback(_) => {}
        }
    }
}

/// The session of an MDT with another target.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    pub target: TargetId,
    pub session: SessionStatus,
    /// The configuration has it in use.
    pub is_active: bool,
}

impl<M: MetaStore> Mds<M> {
    /// Sessions with all targets that a configuration has told of.
    pub fn peers(&self, now: Now) -> Vec<PeerStatus> {
        self.peers.imports.iter().map(|(target, import)| self.peer_status(now, *target, import)).collect()
    }

    fn peer_status(&self, now: Now, target: TargetId, import: &Import) -> PeerStatus {
        let known = self.config.target(target);
        let nids = known.map(|known| known.nids.clone()).unwrap_or_default();
        let nothing = Past::default();
        let Past { history, eviction_count } = self.peers.pasts.get(&target).unwrap_or(&nothing);
        let session = SessionStatus::of(import, history, *eviction_count, now, nids);
        PeerStatus { target, session, is_active: known.is_some_and(|known| known.is_active) }
    }
}
