//! Scenes that come about by themselves too seldom. A client is evicted by an MDT that it cannot reach. It lives, has its lease, and goes on
//! with what it has on OSTs, while others do something to the file that it writes.

use super::*;
use crate::workload::{FIRST_READING_SLOT, SLOTS};
use base::limits::SESSION_LEASE;

/// One round in so many begins with one.
const SCENE_ONE_IN: u64 = 20;
/// In which everything that is kept back has been sent.
const SENT_AFTER: Duration = Duration::from_millis(2500);
/// No recovery waits so long.
const AWAY_MIN: Duration = Duration::from_secs(75);
const HEARD_WITHIN: Duration = Duration::from_secs(20);
const WRITE_BYTES: u64 = 5000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// The file is removed, and written on.
    Removed,
    /// Something that was written is on its way for longer than the MDT waits for its writer, which stays away.
    Away,
    /// The same, and the writer is back for a moment, too short to open again what it writes.
    Back,
    /// What the writer has just changed is lost with the power of the MDT or of an OST, whose recovery ends before he is back.
    Lost,
}

/// Who is in it.
struct Cast {
    writer: usize,
    slot: usize,
    path: Path,
    byte_count: u64,
    link: (ClientId, TargetId),
    other: usize,
}

/// What a client sends to OSTs arrives only then: it is in the socket of a machine that has not died with its process.
pub(super) struct Held {
    pub from: Endpoint,
    pub until: Time,
}

impl World {
    /// Somebody is evicted, cut off from an MDT and from nobody else.
    pub(super) fn play_scene(&mut self) {
        let Weather { has_partitions, has_evictions, has_deaths, .. } = self.options.weather;
        let is_quiet = self.cut.is_empty() && self.full.is_empty();
        let may_be = has_partitions && has_evictions && has_deaths && is_quiet;
        if !may_be || !self.rng.one_in(SCENE_ONE_IN) {
            return;
        }
        let Some(cast) = self.cast() else { return };
        let scene =
            *self.rng.pick(&[Scene::Removed, Scene::Away, Scene::Back, Scene::Lost]).unwrap_or(&Scene::Away);
        self.trace(|| format!("{scene:?}: client {} writes {:?}", cast.writer, cast.path));
        self.is_doubtful = true;
        self.lost_at = self.now.time;
        self.round.clear();
        match scene {
            Scene::Removed => {
                self.count("written after others had removed it");
                self.play_removed(&cast);
            }
            Scene::Lost => {
                self.count("power lost behind a writer");
                self.play_lost(&cast);
            }
            Scene::Away | Scene::Back => {
                let name = if scene == Scene::Back { "writer back for a moment" } else { "writer long away" };
                self.count(name);
                self.play_late_write(&cast, scene == Scene::Back);
            }
        }
        self.held = None;
        self.run_until_done();
    }

    fn cast(&mut self) -> Option<Cast> {
        let handles = self.model.handles.iter();
        let written: Vec<_> = handles
            .filter(|((seat, slot), _)| {
                *slot < FIRST_READING_SLOT && self.mounts[*seat].port.borrow().handles.contains_key(slot)
            })
            .map(|((seat, slot), ino)| (*seat, *slot, *ino))
            .collect();
        let (writer, slot, ino) = *self.rng.pick(&written)?;
        let path = self.model.path_of(ino)?;
        let Content::File(data) = &self.model.inode(ino).content else { return None };
        let byte_count = data.len() as u64;
        let link = (self.mounts[writer].id, self.mdt_of(ino)?);
        let others: Vec<usize> = (0..self.mounts.len()).filter(|seat| *seat != writer).collect();
        let other = *self.rng.pick(&others)?;
        Some(Cast { writer, slot, path, byte_count, link, other })
    }

    /// One operation, alone with those that have not ended. False when something is broken.
    fn act(&mut self, seat: usize, op: Op) -> bool {
        let index = self.round.len();
        self.launch(seat, op);
        let until = self.now.time.after(ROUND_MAX);
        while self.round.get(index).is_some_and(|done| done.outcome.is_none()) {
            if self.is_broken() || !self.step(until) {
                return false;
            }
        }
        !self.is_broken()
    }

    fn write_at(&mut self, cast: &Cast, offset: u64) -> Op {
        Op::Write { slot: cast.slot, offset, byte_count: WRITE_BYTES, fill: self.rng.below(256) as u8 }
    }

    fn evict_unheard(&mut self, (client, mdt): (ClientId, TargetId)) -> Cut {
        let cut = Cut::Link(Endpoint::Client(client), Endpoint::Target(mdt));
        self.cut.insert(cut);
        self.on_event(Event::Evict(mdt, client));
        cut
    }

    fn play_removed(&mut self, cast: &Cast) {
        let cut = self.evict_unheard(cast.link);
        if !self.act(cast.other, Op::Unlink { path: cast.path.clone() }) {
            return;
        }
        let heals_after = 1_000_000_000 + self.rng.below(5_000_000_000);
        self.post(Duration::from_nanos(heals_after), Event::Heal(cut));
        for _ in 0..3 {
            let pause = Duration::from_nanos(self.rng.below(heals_after / 3));
            self.run_for(pause);
            let offset = self.rng.below(cast.byte_count + 1);
            let write = self.write_at(cast, offset);
            if self.is_broken() || !self.act(cast.writer, write) {
                return;
            }
        }
    }

    /// He asks twice what has become of it.
    fn play_lost(&mut self, cast: &Cast) {
        let target = match self.rng.below(4) {
            0 => TargetId::ost(self.rng.below(u64::from(self.options.ost_count)) as u16),
            _ => cast.link.1,
        };
        if !self.change_unsynced(cast, target) {
            return;
        }
        let link = (cast.link.0, target);
        let cut = Cut::Link(Endpoint::Client(link.0), Endpoint::Target(target));
        self.cut.insert(cut);
        // An eviction is lost too, with what was done before it.
        if self.rng.one_in(4) {
            self.on_event(Event::Evict(target, link.0));
            let pause = Duration::from_nanos(self.rng.below(2 * self.sync_ns_max));
            self.run_for(pause);
        }
        self.crash(target, true);
        let is_early = self.rng.one_in(8);
        let away = Duration::from_nanos(self.rng.below(20_000_000_000));
        self.run_for(if is_early { away } else { AWAY_MIN.saturating_add(away) });
        self.cut.remove(&cut);
        for _ in 0..2 {
            if !self.act(cast.writer, Op::Fsync { slot: cast.slot }) {
                return;
            }
        }
        if self.rng.one_in(2) {
            self.act(cast.writer, Op::SyncAll);
        }
    }

    /// The target is to have something that it has answered and that is not durable.
    fn change_unsynced(&mut self, cast: &Cast, target: TargetId) -> bool {
        if target.kind == TargetKind::Ost {
            let write = self.write_at(cast, cast.byte_count);
            let is_written = self.act(cast.writer, write);
            // Something of it was sent, or nothing.
            let pause = Duration::from_millis(self.rng.below(2500));
            self.run_for(pause);
            return is_written && !self.is_broken();
        }
        let path = cast.path.clone();
        let changes = [
            Op::Chmod { path: path.clone(), permissions: 0o600 },
            Op::Setxattr { path: path.clone(), name: "user.a".into(), value: self.rng.below(256) as u8 },
            Op::Unlink { path },
        ];
        let change = self.rng.pick(&changes).cloned();
        change.is_some_and(|change| self.act(cast.writer, change))
    }

    fn play_late_write(&mut self, cast: &Cast, is_back: bool) {
        let (client, mdt) = cast.link;
        let end = cast.byte_count;
        // What it sends later it need not ask a lock for.
        let first = self.write_at(cast, end);
        if !self.act(cast.writer, first) {
            return;
        }
        self.run_for(SENT_AFTER);
        let pause = 2_000_000_000 + self.rng.below(8_000_000_000);
        let arrives_at =
            self.now.time.after(SENT_AFTER).after(SESSION_LEASE).after(Duration::from_nanos(pause));
        self.held = Some(Held { from: Endpoint::Client(client), until: arrives_at });
        let late = self.write_at(cast, end + WRITE_BYTES);
        self.launch(cast.writer, late);
        self.run_for(SENT_AFTER);
        let cut = self.evict_unheard(cast.link);
        self.run_for(SESSION_LEASE.saturating_add(Duration::from_millis(500)));
        if is_back {
            self.let_hear(cast.writer, cut);
        }
        if !self.is_broken() {
            self.look(cast);
        }
        // Its lease holds for three seconds more.
        let dies_at = arrives_at.0.saturating_sub(2_000_000_000) + self.rng.below(4_000_000_000);
        self.run_until(Time(dies_at));
        self.kill_mount(cast.writer);
        self.run_until(arrives_at.after(Duration::from_secs(1)));
        self.cut.remove(&cut);
        self.trace(|| format!("{client} has died away from {mdt}"));
    }

    fn run_until(&mut self, until: Time) {
        self.run_for(until.since(self.now.time));
    }

    /// The client hears of its eviction, and little of what it says then is heard.
    fn let_hear(&mut self, seat: usize, cut: Cut) {
        let id = self.mounts[seat].id;
        self.cut.remove(&cut);
        let until = self.now.time.after(HEARD_WITHIN);
        let before = self.mounts[seat].eviction_count;
        while self.mounts[seat].id == id
            && self.mounts[seat].eviction_count == before
            && !self.is_broken()
            && self.step(until)
        {}
        let moment = Duration::from_nanos(self.rng.below(2 * self.delay_ns_max));
        self.run_for(moment);
        self.cut.insert(cut);
    }

    /// Somebody opens the file and closes it, and is asked for its size if nobody else can write it; or has it move to another MDT.
    fn look(&mut self, cast: &Cast) {
        let mdt_count = u64::from(self.options.mdt_count);
        if mdt_count > 1 && self.rng.one_in(4) {
            let mdt_index = self.rng.below(mdt_count) as u16;
            self.act(cast.other, Op::Migrate { path: cast.path.clone(), mdt_index });
            return;
        }
        let is_free = |slot: &usize| !self.mounts[cast.other].port.borrow().handles.contains_key(slot);
        let Some(slot) = (0..SLOTS).find(is_free) else { return };
        let opened = Op::Open { path: cast.path.clone(), slot };
        if self.act(cast.other, opened) && self.mounts[cast.other].port.borrow().handles.contains_key(&slot) {
            self.act(cast.other, Op::Close { slot });
        }
    }
}
