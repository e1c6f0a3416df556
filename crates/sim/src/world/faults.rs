//! What a machine room does: targets lose power, clients die, networks part, disks fill.

use super::*;
use crate::model::EIO;
use crate::servers::Progress;
use store::MetaStore;

impl World {
    pub(super) fn plan_faults(&mut self) {
        let weather = self.options.weather;
        let ids: Vec<TargetId> = self.servers.keys().copied().collect();
        if weather.has_crashes && self.rng.one_in(12) {
            let count = if self.rng.one_in(4) { 2 } else { 1 };
            for _ in 0..count {
                if let Some(id) = self.rng.pick(&ids).copied() {
                    let at = Duration::from_nanos(self.rng.below(20_000_000));
                    let is_power = !self.rng.one_in(4);
                    self.post(at, Event::Crash(id, is_power));
                }
            }
        }
        if weather.has_partitions && self.rng.one_in(40) {
            self.partition();
        }
        if weather.has_crashes && weather.has_partitions && self.cut.is_empty() && self.rng.one_in(30) {
            self.plan_death_unseen();
        }
        if weather.has_evictions && self.rng.one_in(80) {
            self.plan_eviction(&ids);
        }
        if weather.has_deaths && self.rng.one_in(80) {
            let seat = self.rng.below(self.mounts.len() as u64) as usize;
            self.kill_mount(seat);
        }
        if weather.has_crashes && weather.has_deaths && self.rng.one_in(self.options.blackout_one_in) {
            self.plan_blackout(&ids);
        }
        if weather.has_full_disks && self.are_osts_up() {
            self.plan_full_disks();
        }
    }

    /// The process of a target dies and comes back while a client cannot reach it, that lives, and goes on believing what it holds there.
    /// Others go on meanwhile, where they do not meet it.
    fn plan_death_unseen(&mut self) {
        let seat = self.rng.below(self.mounts.len() as u64) as usize;
        let (mdt_count, ost_count) = (self.options.mdt_count, self.options.ost_count);
        let is_ost = self.rng.one_in(2);
        let index = self.rng.below(u64::from(if is_ost { ost_count } else { mdt_count })) as u16;
        let any = (self.mounts[seat].id, if is_ost { TargetId::ost(index) } else { TargetId::mdt(index) });
        let (client, target) = match self.link_to_open_file() {
            // Whoever has a file open has perhaps written it.
            Some((client, _)) if is_ost => (client, any.1),
            Some(link) if self.rng.one_in(2) => link,
            _ => any,
        };
        self.count(if is_ost { "OST's process killed unseen" } else { "process killed unseen" });
        let cut = Cut::Link(Endpoint::Client(client), Endpoint::Target(target));
        self.trace(|| format!("{cut:?} while the process of {target} dies"));
        self.cut.insert(cut);
        let dies_at = self.rng.below(50_000_000);
        let heals_at = dies_at + self.rng.below(6_000_000_000);
        self.post(Duration::from_nanos(dies_at), Event::Crash(target, false));
        self.post(Duration::from_nanos(heals_at), Event::Heal(cut));
    }

    /// For some rounds those of all OSTs, or of one of them, which writes over several objects meet in their middle.
    fn plan_full_disks(&mut self) {
        if !self.full.is_empty() {
            if self.rng.one_in(4) {
                self.fill_disks(BTreeSet::new());
            }
        } else if self.rng.one_in(40) {
            let mut osts: Vec<TargetId> = self.servers.keys().copied().collect();
            osts.retain(|id| id.kind == TargetKind::Ost);
            let one = if self.rng.one_in(4) { None } else { self.rng.pick(&osts).copied() };
            self.count(if one.is_some() { "disk of one OST full" } else { "disks full" });
            self.fill_disks(one.map_or_else(|| osts.into_iter().collect(), |id| BTreeSet::from([id])));
        }
    }

    /// These are full from now on, and no others.
    pub(super) fn fill_disks(&mut self, full: BTreeSet<TargetId>) {
        for server in self.servers.values() {
            server.objects.set_low(full.contains(&server.id));
        }
        self.trace(|| format!("disks full: {full:?}"));
        self.full = full;
    }

    /// An operator throws a client out, often one that does not answer just then and goes on not knowing it.
    fn plan_eviction(&mut self, ids: &[TargetId]) {
        let seat = self.rng.below(self.mounts.len() as u64) as usize;
        let client = self.mounts[seat].id;
        let at = Duration::from_nanos(self.rng.below(20_000_000));
        let (client, target) = match self.link_to_open_file() {
            Some(link) if self.rng.one_in(2) => {
                let until = Duration::from_nanos(20_000_000 + self.rng.below(15_000_000_000));
                let cut = Cut::Link(Endpoint::Client(link.0), Endpoint::Target(link.1));
                self.cut.insert(cut);
                self.post(until, Event::Heal(cut));
                link
            }
            Some(link) => link,
            None => (client, self.rng.pick(ids).copied().unwrap_or(TargetId::mdt(0))),
        };
        self.trace(|| format!("an operator wants {target} to evict {client}"));
        self.is_doubtful = true;
        self.lost_at = self.now.time;
        self.post(at, Event::Evict(target, client));
    }

    /// Some machines of the room, servers and clients, lose power together: now and then all of them.
    fn plan_blackout(&mut self, ids: &[TargetId]) {
        let is_total = self.rng.one_in(4);
        let mut targets = ids.to_vec();
        targets.retain(|_| is_total || self.rng.one_in(2));
        let mut seats: Vec<usize> = (0..self.mounts.len()).collect();
        seats.retain(|_| is_total || self.rng.one_in(2));
        let at = match self.rng.below(3) {
            0 => self.rng.below(1_500_000_000),
            _ => self.rng.below(40_000_000),
        };
        self.post(Duration::from_nanos(at), Event::Blackout(targets, seats));
    }

    pub(super) fn black_out(&mut self, targets: &[TargetId], seats: &[usize]) {
        self.count("blackout");
        for id in targets {
            self.crash(*id, true);
        }
        for seat in seats {
            self.kill_mount(*seat);
        }
    }

    pub(super) fn start(&mut self, id: TargetId) {
        self.trace(|| format!("{id} starts"));
        self.plan_breaks_after_start(id);
        let config = self.config.clone();
        self.on_server(id, |server, now, _, out| server.start(now, &config, out));
    }

    pub(super) fn crash(&mut self, id: TargetId, is_power: bool) {
        let mut rng = self.rng.fork();
        let Some(server) = self.servers.get_mut(&id) else { return };
        if server.engine.is_none() {
            return;
        }
        let done = server.done();
        if is_power {
            server.crash(&mut rng);
            self.count("power failure");
        } else {
            server.kill();
            if rng.one_in(6) {
                server.move_elsewhere();
            }
            self.count("process killed");
        }
        self.note_death(id, done);
        self.fill_disks(BTreeSet::new());
        self.trace(|| format!("{id} dies (power failure: {is_power})"));
        self.wire.retain(|_, event| match event {
            Event::Sync(of) => *of != id,
            Event::Probe(_) => id != TargetId::MGT,
            _ => true,
        });
        self.check_disks_after_crash();
        let down = match self.rng.below(4) {
            0 => self.rng.below(10_000_000_000),
            _ => self.rng.below(500_000_000),
        };
        self.post(Duration::from_nanos(down), Event::Start(id));
    }

    fn note_death(&mut self, id: TargetId, done: Option<Progress>) {
        if let (Some(done), Some(server)) = (done, self.servers.get(&id)) {
            self.losses.note_death(id, done, server.meta.applied());
        }
    }

    /// Full disks fill up under running targets only: what was written before a crash still fits afterwards.
    pub(super) fn are_osts_up(&self) -> bool {
        self.servers.values().all(|server| match &server.engine {
            Some(Engine::Ost(oss)) => !oss.core().is_recovering(),
            Some(Engine::Mdt(_) | Engine::Mgs(_)) => true,
            None => false,
        })
    }

    /// A client machine loses power; another mount takes its seat.
    pub(super) fn kill_mount(&mut self, seat: usize) {
        self.count("client died");
        self.trace(|| format!("client {seat} dies"));
        self.is_doubtful = true;
        self.lost_at = self.now.time;
        for model in &mut self.candidates {
            model.drop_client(seat);
        }
        self.model.drop_client(seat);
        // Nobody will ever say how its calls end; what is doubtful is not judged.
        for done in self.round.iter_mut().filter(|done| done.client == seat) {
            done.outcome.get_or_insert(Told::Error(EIO));
        }
        let mount = self.new_mount();
        self.mounts[seat] = mount;
    }
}
