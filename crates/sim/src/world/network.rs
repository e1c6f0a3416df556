//! The network: frames are lost, copied, delayed, and cut off.

use super::*;
use crate::frames::{describe, host};

impl World {
    pub(super) fn post_frame(&mut self, frame: Frame) {
        self.digest(&[self.now.time.0, frame.xid.0, frame.transno.0, frame.body.len() as u64]);
        if let Some((before, now)) = self.replays.see(&frame) {
            let what =
                format!("{} has replayed on {now:?} what it had done to {before:?}", frame.src.client_id());
            self.violate("replay", what);
        }
        self.losses.see(&frame);
        if let Err(error) = frame.check_length() {
            self.violate("frame", format!("{} -> {}: {error}", frame.src.client_id(), frame.dst.client_id()));
        }
        if self.is_cut(&frame) {
            return self.count("frame cut");
        }
        let mut copies = 1;
        if self.loss_one_in > 0 && self.rng.one_in(self.loss_one_in) {
            copies = if self.rng.one_in(2) { 0 } else { 2 };
            self.count(if copies == 0 { "frame lost" } else { "frame copied" });
        }
        let is_slow = self.slow.is_some_and(|end| end == host(frame.src) || end == host(frame.dst));
        for _ in 0..copies {
            let mut delay = 5_000 + self.rng.below(self.delay_ns_max) * if is_slow { SLOWNESS } else { 1 };
            if self.loss_one_in > 0 && self.rng.one_in(100) {
                self.count("frame delayed");
                delay += self.rng.below(3_000_000_000);
            }
            let held_for = self.held_for(&frame);
            self.post(held_for.saturating_add(Duration::from_nanos(delay)), Event::Deliver(frame.clone()));
        }
    }

    pub(super) fn deliver(&mut self, frame: Frame) {
        if self.is_cut(&frame) {
            return self.count("frame cut");
        }
        self.trace(|| describe(&frame));
        match frame.dst {
            Endpoint::Target(id) => {
                if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                    self.on_server(id, |server, now, _, out| server.on_frame(now, frame, out));
                }
            }
            Endpoint::Client(id) => {
                let host = host(frame.dst).client_id();
                if let Some(seat) = self.mounts.iter().position(|mount| mount.id == host) {
                    match id == host {
                        true => {
                            self.losses.hear(&frame);
                            self.on_client(seat, Input::Frame(frame));
                        }
                        false => self.on_mgc(seat, mgc::Input::Frame(frame)),
                    }
                } else if let Some(target) = Server::of_caller(id)
                    && self.servers.get(&target).is_some_and(|server| server.engine.is_some())
                {
                    self.on_server(target, |server, now, _, out| server.on_frame(now, frame, out));
                }
            }
        }
    }

    fn held_for(&self, frame: &Frame) -> Duration {
        let is_to_ost = matches!(host(frame.dst), Endpoint::Target(id) if id.kind == TargetKind::Ost);
        let held = self.held.as_ref().filter(|held| is_to_ost && held.from == host(frame.src));
        held.map_or(Duration::ZERO, |held| held.until.since(self.now.time))
    }

    fn is_cut(&self, frame: &Frame) -> bool {
        let (src, dst) = (host(frame.src), host(frame.dst));
        let is_between = |cut: &Cut| match *cut {
            Cut::End(end) => end == src || end == dst,
            Cut::Link(a, b) => (a, b) == (src, dst) || (b, a) == (src, dst),
        };
        self.cut.iter().any(is_between)
    }

    /// Somebody is cut off from all, or two from each other. Short ones are ridden out; long ones cost the client its
    /// sessions.
    pub(super) fn partition(&mut self) {
        let ids: Vec<TargetId> = self.servers.keys().copied().collect();
        let seat = self.rng.below(self.mounts.len() as u64) as usize;
        let client = Endpoint::Client(self.mounts[seat].id);
        let target = self.rng.pick(&ids).map_or(client, |id| Endpoint::Target(*id));
        let is_long = self.rng.one_in(2);
        let (cut, name) = match (self.rng.below(6), is_long) {
            (0, false) => (Cut::End(target), "partition, short"),
            (0, true) => (Cut::End(target), "partition, long"),
            (1, false) => (Cut::End(client), "partition, short"),
            (1, true) => (Cut::End(client), "partition, long"),
            (_, false) => (Cut::Link(client, target), "link cut, short"),
            (_, true) => (self.cut_from_open_file().unwrap_or(Cut::Link(client, target)), "link cut, long"),
        };
        // Who is cut off from all for longer than a lease lasts is not waited for by a target that recovers.
        let nanoseconds_max = if cut == Cut::End(client) { 1_500_000_000 } else { 5_000_000_000 };
        let nanoseconds = if is_long { 100_000_000_000 } else { 0 } + self.rng.below(nanoseconds_max);
        self.count(name);
        self.trace(|| format!("{cut:?} for {nanoseconds} ns"));
        // Two cuts together may be one from all that matters.
        if is_long || !self.cut.is_empty() {
            // Others may wait for what it holds until it is evicted.
            self.is_doubtful = true;
            self.lost_at = self.now.time;
        }
        self.cut.insert(cut);
        self.post(Duration::from_nanos(nanoseconds), Event::Heal(cut));
    }

    fn cut_from_open_file(&mut self) -> Option<Cut> {
        let (client, mdt) = self.link_to_open_file()?;
        Some(Cut::Link(Endpoint::Client(client), Endpoint::Target(mdt)))
    }

    /// A client and the MDT that has a file which it has open: that MDT may give up what the client goes on using.
    pub(super) fn link_to_open_file(&mut self) -> Option<(ClientId, TargetId)> {
        let handles: Vec<_> = self.model.handles.iter().map(|((seat, _), ino)| (*seat, *ino)).collect();
        let (seat, ino) = *self.rng.pick(&handles)?;
        Some((self.mounts[seat].id, self.mdt_of(ino)?))
    }

    /// The MDT that has an inode.
    pub(super) fn mdt_of(&self, ino: usize) -> Option<TargetId> {
        let mdts: Vec<TargetId> =
            self.servers.keys().filter(|id| id.kind == TargetKind::Mdt).copied().collect();
        // The numbers of an MDT's files are in one range, so this is the MDT of the node.
        let node = self.model.inode(ino).node?;
        let is_its = |id: &&TargetId| {
            let first = |index| Fid { seq: Fid::sequence(index, 0), oid: 0, ver: 0 }.inode_number();
            (first(id.index)..first(id.index + 1)).contains(&node)
        };
        mdts.iter().find(is_its).copied()
    }
}
