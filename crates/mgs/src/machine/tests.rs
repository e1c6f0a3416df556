#![allow(clippy::unwrap_used)]

use super::*;
use base::ClientId;
use rpc::{Import, ImportOptions, ImportOutput, Kind, Ticket};
use store::MemoryMeta;

/// A management server and one caller, joined back to back.
struct World {
    mgs: Mgs<MemoryMeta>,
    store: Arc<MemoryMeta>,
    import: Import,
    now: Now,
    done: BTreeMap<Ticket, Result<Reply, Status>>,
}

fn open(store: &Arc<MemoryMeta>, now: Now) -> Mgs<MemoryMeta> {
    let options = MgsOptions { uuid: 7, now, recovery_window: Duration::from_secs(1) };
    Mgs::open(Arc::clone(store), options).unwrap()
}

impl World {
    fn new() -> World {
        let store = Arc::new(MemoryMeta::new());
        let now = Now { time: Time(1_000_000_000), ..Now::default() };
        let import = Import::new(ImportOptions {
            client: ClientId(5),
            incarnation: 1,
            fsname: "fs".into(),
            nid: "n".into(),
            target: TargetId::MGT,
            target_uuid: 0,
        });
        World { mgs: open(&store, now), store, import, now, done: BTreeMap::new() }
    }

    fn submit(&mut self, request: MgsRequest) -> Ticket {
        let mut out = Vec::new();
        let (request, kind) = (Request::Mgs(request), Kind::Modifying);
        let ticket = self.import.submit(self.now, request, Bytes::new(), kind, 0, &mut out);
        self.carry(out);
        ticket
    }

    fn carry(&mut self, mut from_import: Vec<ImportOutput>) {
        while !from_import.is_empty() {
            let mut from_mgs = Vec::new();
            for output in std::mem::take(&mut from_import) {
                match output {
                    ImportOutput::Send(frame) => {
                        self.mgs.handle(self.now, Input::Frame(frame), &mut from_mgs);
                    }
                    ImportOutput::Completed { ticket, result } => {
                        self.done.insert(ticket, result.map(|answer| answer.reply));
                    }
                    ImportOutput::ReplayWanted => {
                        self.import.replay_now(self.now, Vec::new(), &mut from_import);
                    }
                    _ => {}
                }
            }
            self.store.sync();
            self.mgs.handle(self.now, Input::Durable, &mut from_mgs);
            self.mgs.check();
            for output in from_mgs {
                if let Output::Send(frame) = output {
                    self.import.on_frame(self.now, frame, &mut from_import);
                }
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now.time = self.now.time.after(time);
        let (mut out, mut from_mgs) = (Vec::new(), Vec::new());
        self.mgs.handle(self.now, Input::Tick, &mut from_mgs);
        for output in from_mgs {
            if let Output::Send(frame) = output {
                self.import.on_frame(self.now, frame, &mut out);
            }
        }
        self.import.on_tick(self.now, &mut out);
        self.carry(out);
    }

    fn ask(&mut self, request: MgsRequest) -> Result<Reply, Status> {
        let ticket = self.submit(request);
        for _ in 0..20 {
            if let Some(result) = self.done.remove(&ticket) {
                return result;
            }
            self.wait(Duration::from_millis(500));
        }
        panic!("no answer");
    }

    fn config(&mut self, request: MgsRequest) -> Result<ClusterConfig, Status> {
        match self.ask(request)? {
            Reply::Mgs(MgsReply::Config(config)) => Ok(config),
            other => panic!("{other:?}"),
        }
    }
}

fn register(id: TargetId, uuid: u128, nid: &str) -> MgsRequest {
    let target = TargetConfig { id, uuid, nids: vec![nid.into()], is_active: true };
    MgsRequest::Register { fsname: "fs".into(), target }
}

fn get(known_version: u64) -> MgsRequest {
    MgsRequest::GetConfig { fsname: "fs".into(), known_version }
}

#[test]
fn targets_register_once_and_again_at_a_new_address() {
    let mut world = World::new();
    assert_eq!(world.config(get(0)), Err(Status::NotFound));
    assert_eq!(world.config(register(TargetId::ost(0), 1, "a:1")).unwrap().version, 1);
    assert_eq!(world.config(register(TargetId::ost(0), 1, "a:1")).unwrap().version, 1, "nothing is new");
    let config = world.config(register(TargetId::ost(0), 1, "a:2")).unwrap();
    assert_eq!((config.version, config.targets[0].nids[0].as_str()), (2, "a:2"));
    assert_eq!(world.config(register(TargetId::ost(0), 9, "b:1")), Err(Status::Exists));
    assert_eq!(world.config(register(TargetId::MGT, 9, "b:1")), Err(Status::Invalid));
}

#[test]
fn who_follows_is_answered_at_a_change_or_after_a_while() {
    let mut world = World::new();
    world.config(register(TargetId::mdt(0), 1, "a:1")).unwrap();
    let poll = world.submit(get(1));
    assert!(!world.done.contains_key(&poll));
    world.config(register(TargetId::ost(1), 2, "a:2")).unwrap();
    let Some(Ok(Reply::Mgs(MgsReply::Config(config)))) = world.done.remove(&poll) else { panic!() };
    assert_eq!(config.version, 2);
    let poll = world.submit(get(2));
    world.wait(POLL + Duration::from_millis(1));
    assert!(world.done.contains_key(&poll), "answered without a change");
}

#[test]
fn permanent_parameters_are_set_changed_and_taken_out() {
    let mut world = World::new();
    let set = |value: Option<&str>| MgsRequest::SetParam {
        fsname: "fs".into(),
        path: "llite.*.x".into(),
        value: value.map(str::to_owned),
    };
    assert_eq!(world.config(set(Some("1"))), Err(Status::NotFound), "no such file system");
    world.config(register(TargetId::mdt(0), 1, "a:1")).unwrap();
    assert_eq!(world.config(set(Some("1"))).unwrap().params, [("llite.*.x".to_owned(), "1".to_owned())]);
    assert_eq!(world.config(set(Some("2"))).unwrap().params[0].1, "2");
    assert!(world.config(set(None)).unwrap().params.is_empty());
}

#[test]
fn a_restart_keeps_everything() {
    let mut world = World::new();
    world.config(register(TargetId::mdt(0), 1, "a:1")).unwrap();
    world.config(register(TargetId::ost(3), 2, "a:2")).unwrap();
    world.mgs = open(&world.store, world.now);
    world.wait(Duration::from_secs(3));
    let config = world.config(get(0)).unwrap();
    assert_eq!((config.version, config.targets.len()), (2, 2));
}

#[test]
fn a_damaged_row_is_refused() {
    let good = encode(&ClusterConfig { fsname: "fs".into(), version: 3, ..ClusterConfig::default() });
    assert!(decode(&good).is_some());
    for length in 0..good.len() {
        assert!(decode(&good[..length]).is_none());
    }
    let mut other_version = good;
    other_version[0] = 9;
    assert!(decode(&other_version).is_none());
}
