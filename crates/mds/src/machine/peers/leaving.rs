//! The end of an MDT in order: other targets hear of it, so that none that is restarted meanwhile waits for it.

use super::*;

impl Peers {
    /// Nothing more is asked of this target.
    pub(super) fn has_parted_from(&self, target: TargetId) -> bool {
        let is_over = |import: &Import| {
            matches!(import.state(), ImportState::Disconnecting | ImportState::Disconnected)
        };
        self.is_leaving && self.imports.get(&target).is_some_and(is_over)
    }
}

impl<M: MetaStore> Mds<M> {
    /// An OST has nothing for this MDT that the next incarnation would not ask for again: rows say what has to be done there. Another MDT that
    /// is restarted waits for this one because of operations that both are about, so it is told only where there are none.
    pub(in crate::machine) fn on_leave(&mut self, now: Now, out: &mut Vec<Output>) {
        if std::mem::replace(&mut self.peers.is_leaving, true) {
            return;
        }
        let has_operations = self.core.is_recovering()
            || !self.flows.is_empty()
            || !self.cross.is_empty()
            || !self.streams.is_empty();
        let targets = self.peers.imports.keys().copied();
        let told = targets.filter(|target| target.kind == TargetKind::Ost || !has_operations);
        let told: Vec<TargetId> = told.collect();
        for target in told {
            self.with_import(now, target, out, Import::disconnect);
        }
    }

    /// Every target that has a session with this MDT, and is to know, has heard that it leaves. Those that recover, or do not answer so that
    /// they are looked for, are not waited for.
    pub fn has_left(&self) -> bool {
        let is_awaited = |import: &Import| import.state() == ImportState::Disconnecting;
        self.peers.is_leaving && !self.peers.imports.values().any(is_awaited)
    }
}
