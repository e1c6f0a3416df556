//! What room the other MDTs and the OSTs have is asked for here. Where directories and objects go by that: see `by_space` and `placement`.

use super::peers::Call;
use super::{Mds, Output};
use base::{ClusterConfig, Now, Status, TargetId, TargetKind};
use rpc::Answer;
use store::MetaStore;
use wire::{MdtReply, MdtRequest, OstReply, OstRequest, Reply, Request};

/// MDTs that take part: those from the first one on without a gap. One behind a gap is as good as not there until the others are.
pub(super) fn mdt_count(config: &ClusterConfig) -> u16 {
    // In order of their indexes.
    let following =
        config.of_kind(TargetKind::Mdt).zip(0..).take_while(|(mdt, index)| mdt.id.index == *index);
    u16::try_from(following.count()).unwrap_or(u16::MAX).max(1)
}

impl<M: MetaStore> Mds<M> {
    pub(super) fn place_directory(&mut self, now: Now, out: &mut Vec<Output>) -> u16 {
        let is_mdt =
            |target: &TargetId| target.kind == TargetKind::Mdt && target.index < self.known_targets.mdt_count;
        let heard: Vec<u16> = self.peers.heard(now.time).filter(is_mdt).map(|target| target.index).collect();
        if !heard.is_empty() && self.by_space.spaces_mut().must_ask(now.time) {
            self.ask_space(now, heard.iter().copied().map(TargetId::mdt), out);
        }
        let own_space = self.statfs();
        self.by_space.choose(self.options.index, &own_space, &heard)
    }

    /// Objects were dealt out by what is known of the room of OSTs: if that has aged, it is asked for.
    pub(super) fn on_dealt(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.placement.must_ask(now.time) {
            let osts = self.placement.osts().to_vec();
            self.ask_space(now, osts.into_iter().map(TargetId::ost), out);
        }
    }

    /// Who has not answered yet, because it is away, say, is not asked again.
    pub(super) fn ask_space(
        &mut self,
        now: Now,
        targets: impl IntoIterator<Item = TargetId>,
        out: &mut Vec<Output>,
    ) {
        let asked = self.peers.asked_for_space();
        for target in targets.into_iter().filter(|target| !asked.contains(target)) {
            let request = match target.kind {
                TargetKind::Ost => Request::Ost(OstRequest::Statfs),
                _ => Request::Mdt(MdtRequest::Statfs),
            };
            self.call(now, target, request, Call::Space, out);
        }
    }

    /// Without an answer what is known stays, until it is asked for again.
    pub(super) fn on_space(&mut self, target: TargetId, result: Result<Answer, Status>) {
        if result.is_ok() && target.kind == TargetKind::Ost {
            self.placement.note_heard(target.index);
        }
        match result.map(|answer| answer.reply) {
            Ok(Reply::Mdt(MdtReply::Statfs(space))) if target.kind == TargetKind::Mdt => {
                self.by_space.spaces_mut().note(target.index, space);
            }
            Ok(Reply::Ost(OstReply::Statfs(space))) if target.kind == TargetKind::Ost => {
                self.placement.note_space(target.index, space);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::TargetConfig;

    /// `mkfs --mdt --index 5` beside MDT0000 makes no six MDTs, and no two: MDT0001 is not there, and nothing is to be sent to it.
    #[test]
    fn mdts_behind_a_gap_take_no_part() {
        for (indexes, wanted) in
            [(&[][..], 1), (&[0], 1), (&[0, 5], 1), (&[0, 1, 3], 2), (&[5], 1), (&[0, 1, 2], 3)]
        {
            let of = |id| TargetConfig { id, uuid: 1, nids: Vec::new(), is_active: true };
            let ids = indexes.iter().map(|index| TargetId::mdt(*index)).chain([TargetId::ost(1)]);
            let config = ClusterConfig { targets: ids.map(of).collect(), ..ClusterConfig::default() };
            assert_eq!(mdt_count(&config), wanted, "{indexes:?}");
        }
    }
}
