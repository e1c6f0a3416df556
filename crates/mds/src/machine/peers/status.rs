//! The sessions with other targets, as operators see them.

use super::super::Mds;
use base::{Now, TargetId, Transno, WallTime};
use rpc::{History, Import, ImportOutput, OVERDUE_WORD, session_word, state_word};
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
    /// Lustre's word for the state of the session.
    pub state: &'static str,
    /// There is a session, and its target answers nothing.
    pub is_overdue: bool,
    /// The states and since when, oldest first.
    pub history: Vec<(WallTime, &'static str)>,
    /// Of a session that has begun and does not work: since when, as far as that is remembered.
    pub out_since: Option<WallTime>,
    /// The configuration has it in use.
    pub is_active: bool,
    /// Where it is.
    pub nids: Vec<String>,
    /// Requests that were not answered yet.
    pub outstanding: usize,
    pub last_committed: Transno,
    pub eviction_count: u64,
}

impl<M: MetaStore> Mds<M> {
    /// Sessions with all targets that a configuration has told of.
    pub fn peers(&self, now: Now) -> Vec<PeerStatus> {
        self.peers.imports.iter().map(|(target, import)| self.peer_status(now, *target, import)).collect()
    }

    fn peer_status(&self, now: Now, target: TargetId, import: &Import) -> PeerStatus {
        let known = self.config.target(target);
        let past = self.peers.pasts.get(&target);
        PeerStatus {
            target,
            state: session_word(import),
            is_overdue: import.overdue_since().is_some(),
            history: past.map(|past| past.history.words()).unwrap_or_default(),
            out_since: past.and_then(|past| past.history.out_since(import, now)),
            is_active: known.is_some_and(|known| known.is_active),
            nids: known.map(|known| known.nids.clone()).unwrap_or_default(),
            outstanding: import.outstanding(),
            last_committed: import.last_committed(),
            eviction_count: past.map_or(0, |past| past.eviction_count),
        }
    }
}
