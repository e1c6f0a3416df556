//! The driver: time goes on to whatever happens next, and machines, disks, kernels and processes do their part.

use super::*;
use crate::frames::short;

/// Longer than the management server waits for it, at times.
const PROBE_NS_MAX: u64 = 2_500_000_000;
/// The same of a device that is asked for what is not in memory.
const FETCH_NS_MAX: u64 = 20_000_000;

impl World {
    pub(super) fn post(&mut self, after: Duration, event: Event) {
        self.posted += 1;
        self.wire.insert((self.now.time.after(after), self.posted), event);
    }

    /// Advances to the next thing that happens. False when nothing does before `until`.
    pub(super) fn step(&mut self, until: Time) -> bool {
        let event_at = self.wire.keys().next().map(|(time, _)| *time);
        let servers = self.servers.values().filter_map(|server| server.deadline);
        let mounts = self.mounts.iter().filter_map(|mount| mount.deadline);
        let next = servers.chain(mounts).chain(event_at).min();
        let Some(next) = next.filter(|next| *next <= until) else { return false };
        self.advance(next);
        if event_at.is_some_and(|at| at <= self.now.time) {
            if let Some((_, event)) = self.wire.pop_first() {
                self.on_event(event);
            }
            return true;
        }
        let now = self.now;
        let due: Vec<TargetId> =
            self.servers.values().filter(|s| is_due(s.deadline, now)).map(|s| s.id).collect();
        for id in due {
            self.on_server(id, |server, now, _, out| server.on_tick(now, out));
            if self.servers.get(&id).is_some_and(|server| is_due(server.deadline, now)) {
                self.violate("machines", format!("a tick of {id} leaves its deadline in the past"));
                return false;
            }
        }
        for seat in 0..self.mounts.len() {
            if is_due(self.mounts[seat].deadline, now) {
                self.on_mgc(seat, mgc::Input::Tick);
                self.on_client(seat, Input::Tick);
                if is_due(self.mounts[seat].deadline, now) {
                    self.violate(
                        "machines",
                        format!("a tick of client {seat} leaves its deadline in the past"),
                    );
                    return false;
                }
            }
        }
        true
    }

    pub(super) fn advance(&mut self, to: Time) {
        let by = to.0.saturating_sub(self.now.time.0);
        self.now.time = Time(self.now.time.0 + by);
        self.now.wall = WallTime(self.now.wall.0 + by as i64);
    }

    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver(frame) => self.deliver(frame),
            Event::Sync(id) => {
                self.count("sync");
                self.on_server(id, |server, now, rng, out| server.sync(now, rng, out));
            }
            Event::Start(id) => {
                if self.servers.get(&id).is_some_and(|server| server.engine.is_none()) {
                    self.start(id);
                }
            }
            Event::Probe(probe) => {
                let found = self.servers.get(&probe.target).map(|server| server.serves(&probe));
                let found = found.unwrap_or_default();
                self.on_server(TargetId::MGT, |server, now, _, out| {
                    server.on_probed(now, probe.id, found, out);
                });
            }
            Event::Fetched(id, fetch) => {
                self.on_server(id, |server, now, _, out| server.fetched(now, fetch, out));
            }
            Event::Crash(id, is_power) => self.crash(id, is_power),
            Event::Evict(id, client) => {
                self.count("evicted by an operator");
                self.on_server(id, |server, now, _, out| server.evict(now, client, out));
            }
            Event::Break(seat, id) => self.break_connection(seat, id),
            Event::Blackout(targets, seats) => self.black_out(&targets, &seats),
            Event::Heal(cut) => {
                self.trace(|| format!("{cut:?} is over"));
                self.cut.remove(&cut);
            }
            Event::Notify(seat, generation, id, notify) => {
                if self.mounts[seat].generation != generation {
                    return;
                }
                let waits_for = notify.directory();
                if waits_for.is_some_and(|node| self.mounts[seat].port.borrow().is_locked(node)) {
                    self.count("notification waited");
                    self.post(Duration::from_micros(100), Event::Notify(seat, generation, id, notify));
                } else {
                    let result = self.notify(seat, &notify);
                    self.on_client(seat, Input::Notified(id, result));
                }
            }
        }
    }

    pub(super) fn notify(&mut self, seat: usize, notify: &Notify) -> NotifyResult {
        self.trace(|| format!("kernel {seat}: {notify:?}"));
        let was_known = self.mounts[seat].port.borrow_mut().on_notify(notify);
        if was_known { NotifyResult::Ok } else { NotifyResult::NoEntry }
    }

    pub(super) fn on_server(
        &mut self,
        id: TargetId,
        act: impl FnOnce(&mut Server, Now, &mut Rng, &mut Vec<Effect>),
    ) {
        let now = self.clocks.of_server(self.now, id);
        let mut rng = self.rng.fork();
        let Some(server) = self.servers.get_mut(&id) else { return };
        let mut effects = Vec::new();
        act(server, now, &mut rng, &mut effects);
        let wants_sync = server.engine.is_some() && server.wants_sync() && !server.is_syncing;
        server.is_syncing |= wants_sync;
        if wants_sync {
            let takes = 100_000 + self.rng.below(self.sync_ns_max);
            self.post(Duration::from_nanos(takes), Event::Sync(id));
        }
        for effect in effects {
            self.on_effect(id, effect);
        }
    }

    pub(super) fn on_effect(&mut self, id: TargetId, effect: Effect) {
        match effect {
            Effect::Send(frame) => self.post_frame(frame),
            Effect::Probe(probe) => {
                self.count("probe");
                let takes = Duration::from_nanos(self.rng.below(PROBE_NS_MAX));
                self.post(takes, Event::Probe(probe));
            }
            Effect::Fetch(fetch) => {
                self.count("read fetched");
                let takes = Duration::from_nanos(self.rng.below(FETCH_NS_MAX));
                self.post(takes, Event::Fetched(id, fetch));
            }
            Effect::Failed(what) => self.violate("machines", format!("{id}: {what}")),
            Effect::Note(note) => self.trace(|| format!("{id}: {note}")),
            Effect::Core(event) => {
                self.trace(|| format!("{id}: {event:?}"));
                match event {
                    CoreEvent::Evicted { client, why } => {
                        if why == target::EvictReason::Lapsed {
                            let is_recovering = self.servers.get(&id).is_some_and(Server::is_recovering);
                            self.count(if is_recovering { "lease ended" } else { "holder without a lease" });
                        }
                        self.on_evicted(client);
                    }
                    CoreEvent::Executed { replay: Some(_), .. } => self.count("replayed"),
                    CoreEvent::Executed { .. } => self.count("executed"),
                    CoreEvent::RecoveryEnded { .. } => {
                        self.count("recovery");
                        match self.servers.get(&id).and_then(Server::served_early) {
                            None => {}
                            Some(0) if id.kind == TargetKind::Ost => {
                                self.count("OST's recovery without a loss")
                            }
                            Some(_) if id.kind == TargetKind::Ost => {
                                self.count("OST's recovery that others were served in");
                            }
                            Some(0) => self.count("recovery without a loss"),
                            Some(_) => self.count("recovery that others were served in"),
                        }
                    }
                    CoreEvent::ReplayRefused { .. } => self.count("replay refused"),
                    CoreEvent::ProtocolError { client, what } => {
                        self.violate("protocol", format!("{id}: {what}, by {client}"));
                    }
                    _ => {}
                }
            }
        }
    }

    pub(super) fn on_evicted(&mut self, client: ClientId) {
        self.count("eviction");
        if let Some(mount) = self.mounts.iter_mut().find(|mount| mount.id == client) {
            let was_expected = mount.is_doubtful;
            mount.is_doubtful = true;
            if !was_expected && !self.is_doubtful {
                self.violate("eviction", format!("client {client} lives and was evicted"));
            }
        }
    }

    pub fn on_client(&mut self, seat: usize, input: Input) {
        let now = self.clocks.of_seat(self.now, seat);
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mount = &mut self.mounts[seat];
            if let Input::Call { id, call, .. } = &input {
                self.losses.on_call(mount.id, *id, call);
            }
            mount.port.borrow_mut().now = now.time;
            let mut out = Vec::new();
            mount.machine.handle(now, input, &mut out);
            mount.machine.check();
            self.note_losses(seat, &out);
            for output in out {
                self.on_output(seat, output);
            }
            self.poll_tasks(seat);
            let calls = std::mem::take(&mut self.mounts[seat].port.borrow_mut().outbox);
            for (id, call, caller) in calls.into_iter().rev() {
                inputs.push(Input::Call { id, call, caller });
            }
        }
        self.mounts[seat].note_deadline();
    }

    /// What a mount says of what is lost, in its log and to its callers.
    fn note_losses(&mut self, seat: usize, out: &[Output]) {
        let client = self.mounts[seat].id;
        let mut found = Vec::new();
        for output in out {
            match output {
                Output::Event(ClientEvent::Evicted(target)) => self.losses.on_evicted(client, *target),
                Output::Event(ClientEvent::Lost { target, request_count }) => {
                    self.count("loss with an eviction");
                    found.push(self.losses.on_lost(client, *target, *request_count));
                }
                Output::Event(ClientEvent::ReplayRefused { .. }) => self.losses.on_refused(client),
                Output::Event(ClientEvent::Recovered(target)) => self.losses.on_recovered(client, *target),
                Output::Reply { id, result } => {
                    found.push(self.losses.on_answer(client, *id, result));
                }
                _ => {}
            }
        }
        for output in out {
            if let Output::Event(
                ClientEvent::Evicted(target)
                | ClientEvent::Recovered(target)
                | ClientEvent::Connected(target),
            ) = output
            {
                found.push(self.losses.check_told(client, *target));
            }
        }
        if let Some(what) = found.into_iter().find_map(Result::err) {
            self.violate("losses", what);
        }
    }

    /// The machine of a mount has to do with the management server.
    pub fn on_mgc(&mut self, seat: usize, input: mgc::Input) {
        let mut out = Vec::new();
        self.mounts[seat].mgc.handle(self.now, input, &mut out);
        for output in out {
            match output {
                mgc::Output::Send(frame) => self.post_frame(frame),
                mgc::Output::Renewed(at) => self.on_client(seat, Input::Lease(at)),
                mgc::Output::Started(target, epoch) => {
                    self.on_client(seat, Input::TargetStarted(target, epoch));
                }
                _ => {}
            }
        }
        self.mounts[seat].note_deadline();
    }

    pub(super) fn on_output(&mut self, seat: usize, output: Output) {
        match output {
            Output::Send(frame) => self.post_frame(frame),
            Output::Reply { id, result } => {
                self.trace(|| format!("client {seat}: call {id} -> {}", short(&format!("{result:?}"))));
                self.mounts[seat].port.borrow_mut().on_reply(id, result);
            }
            Output::Notify(id, Notify::IncEpoch) => {
                // Takes no lock in the kernel: done at once.
                self.mounts[seat].port.borrow_mut().drop_all_names();
                let generation = self.mounts[seat].generation;
                self.post(Duration::ZERO, Event::Notify(seat, generation, id, Notify::IncEpoch));
            }
            Output::Notify(id, notify) => {
                self.count("notification");
                let delay = Duration::from_nanos(1000 + self.rng.below(300_000));
                let generation = self.mounts[seat].generation;
                self.post(delay, Event::Notify(seat, generation, id, notify));
            }
            Output::NeedGroups { id, .. } => {
                self.trace(|| format!("client {seat}: call {id} needs groups"));
            }
            Output::NeedSignals { .. } => {}
            // Its kernels are told at once.
            Output::CallOff(_) => {}
            Output::Drained => self.mounts[seat].is_drained = true,
            Output::Event(event) => {
                self.trace(|| format!("client {seat}: {event:?}"));
                self.mounts[seat].eviction_count += u64::from(matches!(event, ClientEvent::Evicted(_)));
                let is_certain = !self.is_doubtful && !self.mounts[seat].is_doubtful;
                let are_all_certain = is_certain && !self.mounts.iter().any(|mount| mount.is_doubtful);
                match event {
                    ClientEvent::Evicted(target) if is_certain => {
                        self.violate("eviction", format!("client {seat} was evicted by {target}"));
                    }
                    ClientEvent::ReplayRefused { target, status } if are_all_certain => {
                        let what = format!("{target} refused a replay of client {seat}: {status}");
                        self.violate("replay", what);
                    }
                    _ => {}
                }
            }
        }
    }

    pub(super) fn poll_tasks(&mut self, seat: usize) {
        let mount = &mut self.mounts[seat];
        let mut ended = Vec::new();
        loop {
            let before = ended.len();
            mount.tasks.retain_mut(|running| match running.task.poll() {
                Some(outcome) => {
                    ended.push((running.index, running.op.clone(), outcome));
                    false
                }
                None => true,
            });
            // Who has ended may have held what another waits for.
            if ended.len() == before {
                break;
            }
        }
        for (index, op, outcome) in ended {
            self.trace(|| format!("client {seat}: {op:?} -> {}", tell(&outcome)));
            if let Some(done) = self.round.get_mut(index) {
                done.outcome = Some(outcome);
            }
        }
    }

    pub(super) fn launch(&mut self, seat: usize, op: Op) {
        self.started += 1;
        self.count(op.name());
        self.trace(|| format!("client {seat}: starts {op:?}"));
        self.forget_synced(seat, &op);
        let index = self.round.len();
        self.round.push(Done { client: seat, op: op.clone(), outcome: None, has_told_loss: false });
        let mount = &mut self.mounts[seat];
        mount.port.borrow_mut().now = self.now.time;
        let task = Task::new(&mount.port, op.clone());
        mount.tasks.push(Running { op, task, index });
        self.poll_tasks(seat);
        let calls = std::mem::take(&mut self.mounts[seat].port.borrow_mut().outbox);
        for (id, call, caller) in calls {
            self.on_client(seat, Input::Call { id, call, caller });
        }
    }

    pub(super) fn run_until_done(&mut self) -> bool {
        let until = self.now.time.after(ROUND_MAX);
        while self.round.iter().any(|done| done.outcome.is_none()) {
            if self.is_broken() {
                return false;
            }
            if !self.step(until) {
                if self.is_broken() {
                    return false;
                }
                let stuck: Vec<String> = self
                    .round
                    .iter()
                    .filter(|done| done.outcome.is_none())
                    .map(|done| format!("client {}: {:?}", done.client, done.op))
                    .collect();
                self.violate("progress", format!("never answered: {}", stuck.join("; ")));
                return false;
            }
        }
        !self.is_broken()
    }

    pub fn run_for(&mut self, duration: Duration) {
        let until = self.now.time.after(duration);
        while !self.is_broken() && self.step(until) {}
        self.advance(until);
    }

    /// Runs one operation alone.
    pub fn run_alone(&mut self, seat: usize, op: Op) -> Option<Told> {
        self.round.clear();
        self.launch(seat, op);
        if !self.run_until_done() {
            return None;
        }
        let mut done = self.round.pop()?;
        done.take_told_loss();
        done.outcome
    }
}

fn is_due(deadline: Option<Time>, now: Now) -> bool {
    deadline.is_some_and(|deadline| deadline <= now.time)
}
