//! Where a directory goes that is placed by space: what the other MDTs have is asked for here, see `by_space`.

use super::peers::Call;
use super::{Mds, Output};
use base::{Now, Status, TargetId, TargetKind};
use rpc::Answer;
use store::MetaStore;
use wire::{MdtReply, MdtRequest, Reply, Request};

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
