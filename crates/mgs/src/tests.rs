#![allow(clippy::unwrap_used)]
use super::{Found, Input, Mgs, MgsEvent, MgsOptions, Output, POLL_WAIT, Probe};
use base::limits::RECOVERY_WINDOW;
use base::{ClientId, Duration, Machine, Now, Status, TargetConfig, TargetId, Time};
use bytes::Bytes;
use rpc::{Answer, Import, ImportOptions, ImportOutput, Kind, Ticket};
use std::sync::Arc;
use store::MemoryMeta;
use wire::{MgsReply, MgsRequest, PoolChange, Reply, Request};

mod copies;
mod keeper;
mod standby;
mod starts;

struct World {
    store: Arc<MemoryMeta>,
    mgs: Mgs<MemoryMeta>,
    import: Import,
    now: Now,
    done: Vec<(Ticket, Result<Answer, Status>)>,
    probes: Vec<Probe>,
    /// Who answers to a probe, at once; `None`: nothing is known yet.
    found: Option<Vec<Found>>,
    events: Vec<MgsEvent>,
}

fn world() -> World {
    let store = Arc::new(MemoryMeta::new());
    let now = Now { time: Time(1_000_000_000), ..Now::default() };
    let mgs = open(&store, now);
    let import = Import::new(ImportOptions {
        client: ClientId(5),
        incarnation: 1,
        starts: Vec::new(),
        fsname: "any".into(),
        nid: "test".into(),
        target: TargetId::MGT,
        target_uuid: 0,
    });
    let (done, probes, events) = (Vec::new(), Vec::new(), Vec::new());
    World { store, mgs, import, now, done, probes, found: Some(Vec::new()), events }
}

fn open(store: &Arc<MemoryMeta>, now: Now) -> Mgs<MemoryMeta> {
    Mgs::open(
        Arc::clone(store),
        MgsOptions { uuid: 9, now, recovery_window: RECOVERY_WINDOW, active_until: None },
    )
    .unwrap()
}

impl World {
    fn submit(&mut self, request: MgsRequest, kind: Kind) -> Ticket {
        let mut outputs = Vec::new();
        let ticket = self.import.submit(self.now, Request::Mgs(request), Bytes::new(), kind, 0, &mut outputs);
        self.pump(outputs);
        ticket
    }

    fn pump(&mut self, mut outputs: Vec<ImportOutput>) {
        loop {
            let mut sent = Vec::new();
            for output in outputs.drain(..) {
                match output {
                    ImportOutput::Send(frame) => {
                        self.mgs.handle(self.now, Input::Frame(frame), &mut sent);
                        self.answer_probes(&mut sent);
                    }
                    ImportOutput::Completed { ticket, result } => self.done.push((ticket, result)),
                    ImportOutput::ReplayWanted => self.import.replay_now(self.now, vec![], &mut Vec::new()),
                    _ => {}
                }
            }
            // What the first makes possible may want to be durable too.
            for _ in 0..2 {
                self.store.sync();
                self.mgs.handle(self.now, Input::Durable, &mut sent);
                self.mgs.check();
            }
            for output in sent {
                match output {
                    Output::Send(frame) => self.import.on_frame(self.now, frame, &mut outputs),
                    Output::Event(event) => self.events.push(event),
                    Output::Probe(_) => {}
                }
            }
            if outputs.is_empty() {
                return;
            }
        }
    }

    fn answer_probes(&mut self, sent: &mut Vec<Output>) {
        let probes = sent.iter().filter_map(|output| match output {
            Output::Probe(probe) => Some(probe.clone()),
            _ => None,
        });
        let probes: Vec<Probe> = probes.collect();
        for probe in &probes {
            if let Some(found) = self.found.clone() {
                self.mgs.handle(self.now, Input::Probed { id: probe.id, found }, sent);
            }
        }
        self.probes.extend(probes);
    }

    fn input(&mut self, input: Input) {
        let mut sent = Vec::new();
        self.mgs.handle(self.now, input, &mut sent);
        let mut outputs = Vec::new();
        for output in sent {
            match output {
                Output::Send(frame) => self.import.on_frame(self.now, frame, &mut outputs),
                Output::Event(event) => self.events.push(event),
                Output::Probe(_) => {}
            }
        }
        self.pump(outputs);
    }

    fn pass(&mut self, wait: Duration) {
        self.now.time = self.now.time.after(wait);
        let mut sent = Vec::new();
        self.mgs.handle(self.now, Input::Tick, &mut sent);
        let mut outputs = Vec::new();
        for output in sent {
            if let Output::Send(frame) = output {
                self.import.on_frame(self.now, frame, &mut outputs);
            }
        }
        self.import.on_tick(self.now, &mut outputs);
        self.pump(outputs);
    }

    fn result(&self, ticket: Ticket) -> Option<Result<MgsReply, Status>> {
        let (_, result) = self.done.iter().find(|(done, _)| *done == ticket)?;
        Some(result.clone().map(|answer| match answer.reply {
            Reply::Mgs(reply) => reply,
            other => panic!("{other:?}"),
        }))
    }

    fn ask(&mut self, request: MgsRequest, kind: Kind) -> Result<MgsReply, Status> {
        let ticket = self.submit(request, kind);
        self.result(ticket).expect("answered at once")
    }

    fn register(&mut self, fsname: &str, id: TargetId, uuid: u128) -> Result<MgsReply, Status> {
        let target = TargetConfig { id, uuid, nids: vec!["127.0.0.1:7988".into()], is_active: true };
        self.ask(
            MgsRequest::Register { fsname: fsname.into(), target, claim: wire::Claim::default() },
            Kind::Modifying,
        )
    }
}

fn version(reply: Result<MgsReply, Status>) -> u64 {
    match reply {
        Ok(MgsReply::Config(config)) => config.version,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_index_belongs_to_the_target_that_registered_first() {
    let mut world = world();
    assert_eq!(version(world.register("a", TargetId::mdt(0), 1)), 1);
    assert_eq!(version(world.register("a", TargetId::mdt(0), 1)), 1, "the same again changes nothing");
    assert_eq!(world.register("a", TargetId::mdt(0), 2), Err(Status::Exists));
    assert_eq!(version(world.register("b", TargetId::mdt(0), 2)), 1, "another file system");
    assert_eq!(
        world.ask(MgsRequest::ListFilesystems, Kind::Plain),
        Ok(MgsReply::Filesystems(vec!["a".into(), "b".into()]))
    );
    assert_eq!(world.register("no/name", TargetId::mdt(0), 2), Err(Status::Invalid));
}

#[test]
fn a_poll_is_answered_on_change_or_after_a_while() {
    let mut world = world();
    world.register("a", TargetId::ost(0), 1).unwrap();
    let poll = MgsRequest::GetConfig { fsname: "a".into(), known_version: 1 };
    let first = world.submit(poll.clone(), Kind::Plain);
    assert_eq!(world.result(first), None);
    world.register("a", TargetId::ost(1), 2).unwrap();
    assert_eq!(version(world.result(first).unwrap()), 2);
    let second = world.submit(MgsRequest::GetConfig { fsname: "a".into(), known_version: 2 }, Kind::Plain);
    world.pass(POLL_WAIT);
    assert_eq!(version(world.result(second).unwrap()), 2);
    let unknown = MgsRequest::GetConfig { fsname: "x".into(), known_version: 0 };
    assert_eq!(world.ask(unknown, Kind::Plain), Err(Status::NotFound));
}

/// A process that was killed says no goodbye; one that lives is never silent for long.
#[test]
fn a_session_of_which_nothing_is_heard_for_a_minute_ends() {
    let mut world = world();
    assert!(world.ask(MgsRequest::ListFilesystems, Kind::Plain).is_ok());
    assert_eq!(world.mgs.core().clients().count(), 1);
    let quarter = Duration::from_secs(15);
    for _ in 0..8 {
        world.pass(quarter);
        assert!(world.ask(MgsRequest::ListFilesystems, Kind::Plain).is_ok());
    }
    assert_eq!(world.mgs.core().clients().count(), 1);
    // Only the management server's time goes on: it would be heard otherwise.
    let mut pass = |wait_s| {
        world.now.time = world.now.time.after(Duration::from_secs(wait_s));
        world.mgs.handle(world.now, Input::Tick, &mut Vec::new());
        world.mgs.core().clients().count()
    };
    assert_eq!(pass(100), 1, "it has stood still itself");
    assert!((0..50).all(|_| pass(1) == 1));
    assert_eq!((0..20).map(|_| pass(1)).last(), Some(0));
}

#[test]
fn parameters_are_kept_over_a_restart() {
    let mut world = world();
    world.register("a", TargetId::ost(0), 1).unwrap();
    let set = |value: Option<&str>| MgsRequest::SetParam {
        fsname: "a".into(),
        path: "llite.*.stats".into(),
        value: value.map(String::from),
    };
    assert_eq!(version(world.ask(set(Some("1")), Kind::Modifying)), 2);
    world.mgs = open(&world.store, world.now);
    assert_eq!(world.mgs.config("a").unwrap().params, [("llite.*.stats".into(), "1".into())]);
    world.pass(Duration::from_secs(20));
    world.pass(Duration::from_secs(20));
    assert_eq!(version(world.ask(set(None), Kind::Modifying)), 3);
    assert_eq!(world.mgs.config("a").unwrap().params, []);
}

#[test]
fn a_damaged_row_is_refused_at_the_start() {
    let mut world = world();
    world.register("a", TargetId::ost(0), 1).unwrap();
    assert!(world.store.rot(super::CONFIGS, b"a"));
    let options =
        MgsOptions { uuid: 9, now: world.now, recovery_window: RECOVERY_WINDOW, active_until: None };
    assert!(Mgs::open(Arc::clone(&world.store), options).is_err());
}

/// In layouts and requests that number stands for something else.
#[test]
fn the_highest_number_is_no_index_of_a_target() {
    let mut world = world();
    for id in [TargetId::ost(u16::MAX), TargetId::mdt(u16::MAX)] {
        assert_eq!(world.register("a", id, 1).unwrap_err(), Status::Invalid);
    }
    assert!(world.mgs.config("a").is_none_or(|config| config.targets.is_empty()));
    world.register("a", TargetId::ost(u16::MAX - 1), 1).unwrap();
}

#[test]
fn a_target_keeps_the_addresses_of_its_other_nodes() {
    let mut world = world();
    let mut register = |nids: &[&str]| {
        let nids = nids.iter().map(|nid| (*nid).to_owned()).collect();
        let target = TargetConfig { id: TargetId::ost(0), uuid: 9, nids, is_active: true };
        let request = MgsRequest::Register { fsname: "nodes".into(), target, claim: wire::Claim::default() };
        match world.ask(request, Kind::Modifying) {
            Ok(MgsReply::Config(config)) => config.targets[0].nids.join(" "),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(register(&["a:1", "a-ib:1"]), "a:1 a-ib:1");
    assert_eq!(register(&["b:1"]), "b:1 a:1 a-ib:1", "taken over by another node");
    assert_eq!(register(&["a:7", "a-ib:7"]), "a:7 a-ib:7 b:1", "back, on another port");
    assert_eq!(register(&["a:7", "a-ib:7"]), "a:7 a-ib:7 b:1");
}

/// Fills the configuration of a file system with parameters, until there is no room for another target.
fn fill(world: &mut World, fsname: &str) {
    let mut count = 0;
    for byte_count in [4096, 256, 16, 1] {
        let mut set = || {
            count += 1;
            let (path, value) = (format!("p{count}"), Some("x".repeat(byte_count)));
            world.ask(MgsRequest::SetParam { fsname: fsname.into(), path, value }, Kind::Modifying)
        };
        while set().is_ok() {}
    }
}

/// It would ask for ever, and nobody would know why it is not found.
#[test]
fn a_target_for_which_there_is_no_room_is_told_of_once() {
    let mut world = world();
    world.register("a", TargetId::ost(0), 1).unwrap();
    fill(&mut world, "a");
    world.events.clear();
    for _ in 0..3 {
        assert_eq!(world.register("a", TargetId::ost(1), 2), Err(Status::NoSpace));
    }
    let refused = MgsEvent::RegistrationWithoutRoom { fsname: "a".into(), target: TargetId::ost(1) };
    let count = |world: &World| world.events.iter().filter(|event| **event == refused).count();
    assert_eq!(count(&world), 1);
    let free = MgsRequest::SetParam { fsname: "a".into(), path: "p1".into(), value: None };
    world.ask(free, Kind::Modifying).unwrap();
    world.register("a", TargetId::ost(1), 2).unwrap();
    fill(&mut world, "a");
    assert_eq!(world.register("a", TargetId::ost(2), 3), Err(Status::NoSpace));
    assert_eq!(count(&world), 1);
}

/// Clients would look for it where it was.
#[test]
fn in_a_full_configuration_a_target_that_was_taken_over_is_where_it_is() {
    let mut world = world();
    let register = |world: &mut World, nid: &str| {
        let target = TargetConfig { id: TargetId::ost(0), uuid: 1, nids: vec![nid.into()], is_active: true };
        let claim = wire::Claim::default();
        world.ask(MgsRequest::Register { fsname: "a".into(), target, claim }, Kind::Modifying).unwrap();
        world.mgs.config("a").unwrap().targets[0].nids.clone()
    };
    assert_eq!(register(&mut world, "first:7988"), ["first:7988"]);
    fill(&mut world, "a");
    assert_eq!(register(&mut world, "other:7988"), ["other:7988"]);
}

impl World {
    fn change_pool(&mut self, name: &str, change: PoolChange) -> Result<MgsReply, Status> {
        let name = name.parse().unwrap();
        self.ask(MgsRequest::ChangePool { fsname: "a".into(), name, change }, Kind::Modifying)
    }

    fn pools(&self) -> Vec<(&str, &[u16])> {
        let pools = &self.mgs.config("a").unwrap().pools;
        pools.iter().map(|pool| (pool.name.as_str(), &pool.osts[..])).collect()
    }
}

fn with_osts() -> World {
    let mut world = world();
    for index in 0..3 {
        world.register("a", TargetId::ost(index), 10 + u128::from(index)).unwrap();
    }
    world
}

#[test]
fn pools_survive_a_restart() {
    let mut world = with_osts();
    world.change_pool("flash", PoolChange::New).unwrap();
    world.change_pool("disk", PoolChange::New).unwrap();
    world.change_pool("flash", PoolChange::Add(vec![2, 0])).unwrap();
    world.store.crash(0);
    world.mgs = open(&world.store, world.now);
    assert_eq!(world.pools(), [("disk", &[][..]), ("flash", &[0, 2])]);
}

#[test]
fn a_pool_goes_when_it_is_empty() {
    let mut world = with_osts();
    world.change_pool("flash", PoolChange::New).unwrap();
    world.change_pool("flash", PoolChange::Add(vec![0, 1])).unwrap();
    assert_eq!(world.change_pool("flash", PoolChange::Destroy), Err(Status::NotEmpty));
    world.change_pool("flash", PoolChange::Remove(vec![1, 0])).unwrap();
    let version = version(world.change_pool("flash", PoolChange::Destroy));
    assert_eq!(world.pools(), []);
    assert_eq!(world.mgs.config("a").unwrap().version, version);
}

#[test]
fn what_makes_no_pool_changes_nothing() {
    let mut world = with_osts();
    world.change_pool("flash", PoolChange::New).unwrap();
    let before = version(world.change_pool("flash", PoolChange::Add(vec![0])));
    let refused = [
        ("flash", PoolChange::New, Status::Exists),
        ("disk", PoolChange::Destroy, Status::NotFound),
        ("disk", PoolChange::Add(vec![1]), Status::NotFound),
        ("flash", PoolChange::Add(vec![1, 9]), Status::NoDevice),
        ("flash", PoolChange::Add(vec![1, 0]), Status::Exists),
        ("flash", PoolChange::Add(vec![1, 1]), Status::Exists),
        ("flash", PoolChange::Add(vec![]), Status::Invalid),
        ("flash", PoolChange::Remove(vec![0, 1]), Status::NoDevice),
    ];
    for (name, change, status) in refused {
        assert_eq!(world.change_pool(name, change.clone()), Err(status), "{name} {change:?}");
    }
    assert_eq!(world.pools(), [("flash", &[0][..])]);
    assert_eq!(world.mgs.config("a").unwrap().version, before);
}
