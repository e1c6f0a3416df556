//! Older copies of a target, met by those who know of a later start.

use crate::network::{TARGET, options};
use base::{ClientId, Duration, Endpoint, Epoch, Now, Start, Status, TargetId, Time, Transno, WallTime};
use bytes::Bytes;
use rpc::{Import, ImportOptions, ImportOutput, ImportState, Kind};
use std::sync::Arc;
use store::{KEY_BYTES_MAX, MemoryMeta, MetaStore, Table};
use target::core::{STARTS_KEPT, restored};
use target::{Core, CoreEvent, CoreOutput, Lineage, Word};
use wire::{Frame, Reply, Request};

const MOUNT: ClientId = ClientId(77);
const TICK: Duration = Duration::from_secs(1);

type Store = Arc<MemoryMeta>;

/// All clocks: each start is at another time.
struct World {
    now: Now,
}

impl World {
    fn new() -> World {
        World { now: Now { time: Time(1), wall: WallTime(1_000_000_000_000) } }
    }

    fn tick(&mut self) {
        self.now.time = self.now.time.after(TICK);
        self.now.wall = WallTime(self.now.wall.0 + 1_000_000_000);
    }

    /// A start of the target on this store, which is durable.
    fn start(&mut self, store: &Store) -> Core<MemoryMeta> {
        self.tick();
        let core = Core::open(Arc::clone(store), options(self.now)).unwrap();
        store.sync();
        core
    }

    /// What comes of it, until neither side has anything to say.
    fn talk(&mut self, core: &mut Core<MemoryMeta>, import: &mut Import, out: Vec<ImportOutput>) -> Came {
        let mut came = Came::default();
        came.take(out);
        while !came.sent.is_empty() {
            let mut from_core = Vec::new();
            for frame in std::mem::take(&mut came.sent) {
                core.on_frame(self.now, frame, &mut from_core);
            }
            core.store().sync();
            core.on_durable(self.now, &mut from_core);
            let mut from_import = Vec::new();
            for output in from_core {
                match output {
                    CoreOutput::Send(frame) => {
                        came.answers.push(frame.clone());
                        import.on_frame(self.now, frame, &mut from_import);
                    }
                    CoreOutput::Event(event) => came.events.push(event),
                    _ => {}
                }
            }
            if from_import.iter().any(|output| matches!(output, ImportOutput::ReplayWanted)) {
                import.replay_now(self.now, Vec::new(), &mut from_import);
            }
            came.take(from_import);
        }
        came
    }

    /// What the target has made durable before, the caller hears.
    fn ping(&mut self, core: &mut Core<MemoryMeta>, import: &mut Import) {
        let mut out = Vec::new();
        import.submit(self.now, Request::PING, Bytes::new(), Kind::Plain, 0, &mut out);
        self.talk(core, import, out);
    }

    /// The caller looks for the target, which has been started.
    fn connect(&mut self, core: &mut Core<MemoryMeta>, import: &mut Import) -> Came {
        let mut out = Vec::new();
        match import.state() {
            ImportState::Idle => import.connect(self.now, &mut out),
            ImportState::Active => import.on_connection_lost(self.now, &mut out),
            _ => {
                self.tick();
                import.on_tick(self.now, &mut out);
            }
        }
        self.talk(core, import, out)
    }
}

#[derive(Default)]
struct Came {
    sent: Vec<Frame>,
    answers: Vec<Frame>,
    events: Vec<CoreEvent>,
    outdated: Vec<Start>,
    evictions: usize,
}

impl Came {
    fn take(&mut self, out: Vec<ImportOutput>) {
        for output in out {
            match output {
                ImportOutput::Send(frame) => self.sent.push(frame),
                ImportOutput::Outdated(known) => self.outdated.push(known),
                ImportOutput::Evicted => self.evictions += 1,
                _ => {}
            }
        }
    }

    /// That the target has found itself to be an older copy.
    fn outdated_by(&self) -> Option<(Endpoint, Start)> {
        self.events.iter().find_map(|event| match event {
            CoreEvent::Outdated { by, known } => Some((*by, *known)),
            _ => None,
        })
    }
}

fn caller(client: ClientId, starts: Vec<Start>) -> Import {
    Import::new(ImportOptions {
        client,
        incarnation: starts.last().map_or(1, |this| this.epoch.0),
        starts,
        fsname: "t".into(),
        nid: "there".into(),
        target: TARGET,
        target_uuid: 7,
    })
}

fn copy(store: &Store) -> Store {
    let copy = MemoryMeta::new();
    let mut batch = store::Batch::new();
    for table in 0..=Table::MAX {
        let _ = store.scan(table, &[], &[0xff; KEY_BYTES_MAX], usize::MAX, &mut |key, value| {
            batch.put(table, key, value);
            true
        });
    }
    copy.apply(store.applied(), &batch).unwrap();
    copy.sync();
    Arc::new(copy)
}

/// A target of which a copy was made before its second start, which a mount has met.
fn copied() -> (World, Store, Import) {
    let (mut world, store) = (World::new(), Store::default());
    let mut mount = caller(MOUNT, Vec::new());
    let mut first = world.start(&store);
    world.connect(&mut first, &mut mount);
    drop(first);
    let older = copy(&store);
    let mut second = world.start(&store);
    world.connect(&mut second, &mut mount);
    for _ in 0..10 {
        second.apply_internal(store::Batch::new()).unwrap();
    }
    for _ in 0..2 {
        world.ping(&mut second, &mut mount);
    }
    assert_eq!((mount.state(), mount.target_epoch()), (ImportState::Active, Epoch(2)));
    (world, older, mount)
}

#[test]
fn a_copy_that_takes_the_same_epoch_is_told_by_who_has_met_the_other_and_serves_nobody() {
    let (mut world, older, mut mount) = copied();
    let mut core = world.start(&older);
    assert_eq!(core.epoch(), mount.target_epoch(), "only the time of its start tells it");
    let came = world.connect(&mut core, &mut mount);
    let known = came.outdated_by().unwrap();
    assert_eq!((known.0, known.1.epoch), (Endpoint::Client(MOUNT), Epoch(2)));
    assert!(core.is_outdated() && came.answers.is_empty());
    let came = world.connect(&mut core, &mut caller(ClientId(78), Vec::new()));
    assert!(came.answers.is_empty(), "nor those who know nothing of it");
    // It can be started as often as anybody likes.
    for _ in 0..5 {
        let mut core = world.start(&older);
        assert!(world.connect(&mut core, &mut mount).outdated_by().is_some(), "{}", core.epoch());
    }
}

#[test]
fn a_caller_of_an_older_version_tells_a_copy_by_its_epoch_alone() {
    let (mut world, older, _) = copied();
    let mut core = world.start(&older);
    for (epoch, is_outdated) in [(2, false), (3, true)] {
        let (mut import, mut out) = (caller(MOUNT, Vec::new()), Vec::new());
        import.connect(world.now, &mut out);
        for output in &mut out {
            let ImportOutput::Send(frame) = output else { continue };
            let Ok(Request::Connect(mut connect)) = Request::from_bytes(&frame.body) else { panic!() };
            (connect.target_epoch, connect.starts) = (Epoch(epoch), wire::Starts::default());
            frame.body = Request::Connect(connect).to_bytes();
        }
        let came = world.talk(&mut core, &mut import, out);
        assert_eq!(came.outdated_by().is_some(), is_outdated, "{epoch}");
    }
}

#[test]
fn what_the_management_server_has_confirmed_is_not_ended_by_who_has_met_another_copy() {
    let (mut world, older, mut mount) = copied();
    let mut core = world.start(&older);
    core.on_word(world.now, Word::Taken { is_confirmed: true }, &mut Vec::new());
    let came = world.connect(&mut core, &mut mount);
    assert_eq!(came.outdated_by(), None);
    assert_eq!((mount.state(), came.evictions), (ImportState::Active, 1), "its session was with the other");
    assert_eq!(mount.last_committed(), core.last_committed(), "the other had got farther");
    // What it had done there has numbers that mean something else here.
    let answer =
        came.answers.iter().find(|answer| matches!(Reply::from_bytes(&answer.body), Ok(Reply::Connected(_))));
    assert_eq!(answer.unwrap().transno, Transno::ZERO);
}

#[test]
fn nothing_is_answered_before_the_management_server_has_spoken_or_had_its_time() {
    for has_word in [true, false] {
        let (mut world, store) = (World::new(), Store::default());
        let mut core = world.start(&store);
        core.await_word();
        world.tick();
        world.tick();
        let until = world.now.time.after(TICK);
        core.on_word(world.now, Word::AskedUntil(until), &mut Vec::new());
        let mut mount = caller(MOUNT, Vec::new());
        assert!(world.connect(&mut core, &mut mount).answers.is_empty());
        let mut out = Vec::new();
        if has_word {
            core.on_word(world.now, Word::Taken { is_confirmed: false }, &mut out);
        } else {
            world.tick();
            core.on_tick(world.now, &mut out);
        }
        core.store().sync();
        core.on_durable(world.now, &mut out);
        assert!(out.iter().any(|output| matches!(output, CoreOutput::Send(_))), "{has_word}");
    }
}

#[test]
fn a_calling_target_that_is_an_older_copy_is_told_so_also_after_it_had_left() {
    let (mut world, store) = (World::new(), Store::default());
    let mut core = world.start(&store);
    let mdt = Endpoint::Target(TargetId::mdt(3)).client_id();
    let start = |epoch, at| Start { epoch: Epoch(epoch), at: WallTime(at) };
    let mut newest = caller(mdt, vec![start(1, 10), start(2, 20)]);
    world.connect(&mut core, &mut newest);
    let mut out = Vec::new();
    newest.disconnect(world.now, &mut out);
    world.talk(&mut core, &mut newest, out);
    assert!(!core.is_connected(mdt));
    // What it remembers of callers it remembers when it is started again.
    let mut core = world.start(&store);
    for starts in [vec![start(1, 10)], vec![start(1, 10), start(2, 30)], vec![start(2, 30), start(3, 40)]] {
        let mut older = caller(mdt, starts.clone());
        let came = world.connect(&mut core, &mut older);
        assert_eq!(came.outdated, [start(2, 20)], "{starts:?}");
        assert_eq!(older.state(), ImportState::Refused(Status::Outdated));
        assert!(!core.is_connected(mdt));
        // Another incarnation takes no notice of what that one had asked.
        let (mut other, mut out) = (caller(mdt, vec![start(1, 10), start(2, 20), start(3, 50)]), Vec::new());
        other.connect(world.now, &mut out);
        out.clear();
        other.on_frame(world.now, came.answers[0].clone(), &mut out);
        assert!(out.iter().all(|output| !matches!(output, ImportOutput::Outdated(_))), "{out:?}");
        assert_eq!(other.state(), ImportState::Connecting);
    }
    let mut next = caller(mdt, vec![start(1, 10), start(2, 20), start(3, 30)]);
    assert!(world.connect(&mut core, &mut next).outdated.is_empty());
    assert_eq!(next.state(), ImportState::Active);
}

/// It would be remembered for good, and the target that it is said of could never come again.
#[test]
fn a_start_that_cannot_be_is_not_remembered_of_a_caller() {
    let (mut world, store) = (World::new(), Store::default());
    let mdt = Endpoint::Target(TargetId::mdt(1)).client_id();
    let start = |epoch, at| Start { epoch: Epoch(epoch), at: WallTime(at) };
    let mut core = world.start(&store);
    let mut caller = |starts| {
        let mut import = self::caller(mdt, starts);
        (world.connect(&mut core, &mut import), import.state())
    };
    let (_, state) = caller(vec![start(1, 10), start(Epoch::MAX.0 + 1, 20)]);
    assert_eq!(state, ImportState::Refused(Status::ProtocolError));
    let (came, state) = caller(vec![start(1, 10), start(2, 30)]);
    assert_eq!((came.outdated, state), (Vec::new(), ImportState::Active));
}

#[test]
fn a_copy_that_is_said_to_be_the_newest_is_met_as_a_new_target() {
    let (mut world, older, mut mount) = copied();
    let batch = restored::as_newest(&*older, Epoch(0)).unwrap();
    older.apply(older.applied().next(), &batch).unwrap();
    let mut core = world.start(&older);
    assert!(!core.is_connected(MOUNT) && core.epoch() > Epoch(2));
    let came = world.connect(&mut core, &mut mount);
    assert_eq!((came.outdated_by(), came.evictions), (None, 1));
    assert_eq!(mount.state(), ImportState::Active);
}

/// Somebody has said of it what it never was, or the copy is very old.
#[test]
fn a_copy_can_be_made_newer_than_whatever_is_known_of_its_target() {
    let (mut world, store) = (World::new(), Store::default());
    let (mdt, known) = (Endpoint::Target(TargetId::mdt(1)).client_id(), Epoch::BELIEVED_MAX);
    let mut core = world.start(&store);
    world.connect(&mut core, &mut caller(mdt, vec![Start { epoch: known, at: WallTime(20) }]));
    let copy = Store::default();
    drop(world.start(&copy));
    let batch = restored::as_newest(&*copy, known).unwrap();
    copy.apply(copy.applied().next(), &batch).unwrap();
    for _ in 0..2 {
        let starts = world.start(&copy).lineage().starts().to_vec();
        let mut again = caller(mdt, starts);
        assert!(world.connect(&mut core, &mut again).outdated.is_empty());
        assert_eq!(again.state(), ImportState::Active);
    }
}

/// It could begin after that once or twice, and never again.
#[test]
fn a_start_after_which_there_is_no_room_for_more_keeps_no_target_from_coming() {
    let (mut world, store) = (World::new(), Store::default());
    let mdt = Endpoint::Target(TargetId::mdt(1)).client_id();
    let mut core = world.start(&store);
    let start = |epoch, at| Start { epoch: Epoch(epoch), at: WallTime(at) };
    let mut said = caller(mdt, vec![start(Epoch::MAX.0, 20), start(1, 10)]);
    assert_eq!((world.connect(&mut core, &mut said).outdated, said.state()), (vec![], ImportState::Active));
    for epoch in [2, 3] {
        let mut again = caller(mdt, vec![start(epoch, 30)]);
        assert_eq!(world.connect(&mut core, &mut again).outdated, []);
        assert_eq!(again.state(), ImportState::Active);
    }
    // Nor does one that is said of the target itself end it.
    let high = Store::default();
    drop(world.start(&high));
    let batch = restored::as_newest(&*high, Epoch::BELIEVED_MAX).unwrap();
    high.apply(high.applied().next(), &batch).unwrap();
    let mut mount = caller(MOUNT, Vec::new());
    let mut of_high = world.start(&high);
    world.connect(&mut of_high, &mut mount);
    assert!(mount.target_epoch() > Epoch::BELIEVED_MAX);
    let came = world.connect(&mut core, &mut mount);
    assert_eq!((came.outdated_by(), mount.state()), (None, ImportState::Active));
}

#[test]
fn what_was_durable_and_is_gone_is_told_of() {
    let (mut world, store) = (World::new(), Store::default());
    let mut mount = caller(MOUNT, Vec::new());
    let mut core = world.start(&store);
    world.connect(&mut core, &mut mount);
    let older = copy(&store);
    // The same incarnation goes on.
    core.apply_internal(store::Batch::new()).unwrap();
    for _ in 0..2 {
        world.ping(&mut core, &mut mount);
    }
    let committed = mount.last_committed();
    assert!(committed > older.applied());
    let went_back = |came: &Came| {
        came.events
            .iter()
            .any(|event| matches!(event, CoreEvent::WentBack { committed: told, .. } if *told == committed))
    };
    let mut again = world.start(&copy(&store));
    assert!(!went_back(&world.connect(&mut again, &mut mount)));
    let mut behind = world.start(&older);
    let mut mount = caller(MOUNT, Vec::new());
    world.connect(&mut core, &mut mount);
    let came = world.connect(&mut behind, &mut mount);
    assert!(went_back(&came), "{:?}", came.events);
}

#[test]
fn a_target_remembers_its_last_starts_and_judges_by_those() {
    let (mut world, store) = (World::new(), Store::default());
    for _ in 0..STARTS_KEPT + 3 {
        world.start(&store);
    }
    let core = world.start(&store);
    let lineage = core.lineage();
    assert_eq!(lineage.starts().len(), STARTS_KEPT);
    assert_eq!((lineage.last().epoch, lineage.last().at), (core.epoch(), world.now.wall));
    let last = lineage.last();
    assert!(!lineage.is_behind(last));
    assert!(lineage.is_behind(Start { epoch: last.epoch, at: WallTime(1) }));
    assert!(lineage.is_behind(Start { epoch: last.epoch.next(), ..last }));
    assert!(
        !lineage.is_behind(Start { epoch: last.epoch, at: WallTime::default() }),
        "the time is not known"
    );
    assert!(!lineage.is_behind(Start { epoch: Epoch(1), at: WallTime(1) }), "that is too long ago");
    assert!(!Lineage::default().is_behind(last), "of nothing nothing is known");
    assert!(matches!(
        Reply::from_bytes(&Reply::Outdated { caller: last, known: last }.to_bytes()),
        Ok(Reply::Outdated { .. })
    ));
}
