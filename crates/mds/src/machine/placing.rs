//! Where a directory goes that is placed by space: what the other MDTs have is asked for here, see `by_space`.

use super::peers::Call;
use super::{Mds, Output};
use base::{ClusterConfig, Now, Status, TargetId, TargetKind};
use rpc::Answer;
use store::MetaStore;
use wire::{MdtReply, MdtRequest, Reply, Request};

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
        if !heard.is_empty() && self.by_space.must_ask(now.time) {
            for mdt in &heard {
                let request = Request::Mdt(MdtRequest::Statfs);
                self.call(now, TargetId::mdt(*mdt), request, Call::Space { mdt: *mdt }, out);
            }
        }
        let own_space = self.statfs();
        self.by_space.choose(self.options.index, &own_space, &heard)
    }

    /// Without an answer what is known stays, until it is asked for again.
    pub(super) fn on_space(&mut self, mdt: u16, result: Result<Answer, Status>) {
        if let Ok(Answer { reply: Reply::Mdt(MdtReply::Statfs(space)), .. }) = result {
            self.by_space.note(mdt, space);
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
