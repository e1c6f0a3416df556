//! MDTs, fake OSTs and fake clients in one thread: frames are delivered at once, in order.

use base::limits::RECOVERY_WINDOW;
use base::{
    Attr, ClientId, ClusterConfig, Duration, Endpoint, Fid, LockId, Machine, Now, Status, TargetConfig,
    TargetId, TargetKind, Time, WallTime,
};
use bytes::Bytes;
use mds::{Input, Mds, MdsEvent, MdsOptions, Output};
use rpc::{Answer, Import, ImportOptions, ImportOutput, Kind, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::{MemoryHoldings, MemoryMeta};
use wire::mdt::{Credentials, Entry, Statfs};
use wire::ost::{AdoptStep, ListedObject};
use wire::{
    Callback, Frame, FrameKind, LockRequest, MdtReply, MdtRequest, OstReply, OstRequest, PeerRequest, Reply,
    Request, Resource,
};

mod calls;
mod stand_ins;

pub use calls::{migrate, new, readdir, rename};
pub use stand_ins::OtherVersion;
use stand_ins::{FakeOst, open_ost};

pub const ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: None };

pub fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Some(Vec::new()) }
}

pub struct Client {
    pub id: ClientId,
    imports: BTreeMap<TargetId, Import>,
    pub done: BTreeMap<(TargetId, Ticket), Result<Answer, Status>>,
    pub callbacks: Vec<(TargetId, LockId, Resource)>,
    /// Locks are given back as soon as they are asked for.
    pub is_polite: bool,
    /// What is said after a restart of a target.
    pub reopens: BTreeMap<TargetId, Vec<Request>>,
    pub evictions: usize,
    /// Replays that the MDTs have refused.
    pub refused: Vec<Status>,
    next_id: u64,
}

pub struct Server {
    pub store: Arc<MemoryMeta>,
    pub holdings: MemoryHoldings,
    pub mds: Mds<MemoryMeta>,
    /// Makes everything durable at once.
    pub is_synced: bool,
}

pub struct World {
    pub now: Now,
    pub servers: Vec<Server>,
    pub clients: Vec<Client>,
    config: ClusterConfig,
    /// What the OST has, in order.
    pub listed: Vec<ListedObject>,
    pub destroyed: BTreeSet<base::ObjectId>,
    /// Whose sessions the OST was to end, and the requests that said so.
    pub fenced: Vec<wire::Life>,
    fence_xids: BTreeSet<(ClientId, base::Xid)>,
    /// The OST's answers to those are kept until they are let go.
    pub is_ost_late: bool,
    late: VecDeque<Frame>,
    /// Objects, each with the FID of the file that it has now.
    pub adopted: Vec<(base::ObjectId, Fid)>,
    /// What each OST says of its room, if anything.
    pub rooms: BTreeMap<u16, Statfs>,
    /// How often OST0000 was asked for that.
    pub room_asked_count: usize,
    /// The OST cannot adopt anything.
    pub adopts_nothing: bool,
    pub events: Vec<MdsEvent>,
    frames: VecDeque<Frame>,
    /// Frames between these are lost.
    pub cut: BTreeSet<(Endpoint, Endpoint)>,
    /// Replies of the first of these MDTs to the second are kept until they are let go.
    pub held: Option<(u16, u16)>,
    kept: VecDeque<Frame>,
    /// Requests of the first of these MDTs to the second are copied, to arrive once more.
    pub copied: Option<(u16, u16)>,
    copies: Vec<Frame>,
    /// A restarted server gets its configuration by `configure` only.
    pub is_config_late: bool,
    /// An MDT that answers in another way than those of today.
    pub other_version: Option<OtherVersion>,
    /// The bytes that the next request has instead of its own.
    pub body_instead: Option<Bytes>,
    /// Requests that have arrived at MDTs, by who asks whom.
    requests: BTreeMap<(Endpoint, Endpoint), Vec<Request>>,
    /// Those that answer.
    osts: BTreeMap<u16, FakeOst>,
}

pub fn fid_of(reply: &MdtReply) -> Fid {
    entry_of(reply).fid
}

pub fn entry_of(reply: &MdtReply) -> &Entry {
    match reply {
        MdtReply::Entry(entry) | MdtReply::Striped { entry, .. } => entry,
        other => panic!("no entry: {other:?}"),
    }
}

pub fn attr_of(reply: &MdtReply) -> &Attr {
    entry_of(reply).attr.as_ref().unwrap()
}

fn now() -> Now {
    Now { time: Time(1_000_000_000), wall: WallTime(1_000_000_000_000_000_000) }
}

impl World {
    pub fn new(mdt_count: u16, client_count: u16) -> World {
        let mut targets: Vec<TargetConfig> =
            (0..mdt_count).map(|index| config_of(TargetId::mdt(index))).collect();
        targets.push(config_of(TargetId::ost(0)));
        let config = ClusterConfig {
            fsname: "test".into(),
            version: 1,
            targets,
            params: Vec::new(),
            pools: Vec::new(),
        };
        let mut world = World {
            now: now(),
            servers: Vec::new(),
            clients: Vec::new(),
            config,
            destroyed: BTreeSet::new(),
            fenced: Vec::new(),
            fence_xids: BTreeSet::new(),
            is_ost_late: false,
            late: VecDeque::new(),
            adopted: Vec::new(),
            rooms: BTreeMap::new(),
            room_asked_count: 0,
            adopts_nothing: false,
            listed: Vec::new(),
            events: Vec::new(),
            frames: VecDeque::new(),
            cut: BTreeSet::new(),
            held: None,
            is_config_late: false,
            kept: VecDeque::new(),
            copied: None,
            copies: Vec::new(),
            other_version: None,
            body_instead: None,
            requests: BTreeMap::new(),
            osts: BTreeMap::new(),
        };
        world.start_ost(0);
        for index in 0..mdt_count {
            let store = Arc::new(MemoryMeta::new());
            let holdings = MemoryHoldings::new();
            let mds = open(&store, &holdings, index, world.now);
            world.servers.push(Server { store, holdings, mds, is_synced: true });
        }
        for index in 0..mdt_count {
            world.configure(index);
        }
        for id in 0..client_count {
            world.add_client(ClientId(1000 + u128::from(id)));
        }
        world.run();
        world
    }

    /// The next mount of a client.
    pub fn remount(&mut self, client: usize, incarnation: u64) {
        let id = self.clients[client].id;
        self.add_incarnation(id, incarnation);
        self.clients.swap_remove(client);
    }

    pub fn add_client(&mut self, id: ClientId) {
        self.add_incarnation(id, 1);
    }

    fn add_incarnation(&mut self, id: ClientId, incarnation: u64) {
        let import = |target: TargetId| {
            Import::new(ImportOptions {
                client: id,
                starts: Vec::new(),
                incarnation,
                fsname: "test".into(),
                nid: "test".into(),
                target,
                target_uuid: 77,
            })
        };
        let mdts = (0..self.servers.len() as u16).map(TargetId::mdt);
        self.clients.push(Client {
            id,
            imports: mdts.map(|target| (target, import(target))).collect(),
            done: BTreeMap::new(),
            callbacks: Vec::new(),
            is_polite: true,
            reopens: BTreeMap::new(),
            evictions: 0,
            refused: Vec::new(),
            next_id: 1,
        });
    }

    /// A new configuration: which OSTs there are, and whether each is active. Nobody but OST0000 answers.
    pub fn name_osts(&mut self, osts: &[(u16, bool)]) {
        self.config.version += 1;
        self.config.targets.retain(|target| target.id.kind != TargetKind::Ost);
        let target = |(index, is_active): &(u16, bool)| TargetConfig {
            is_active: *is_active,
            ..config_of(TargetId::ost(*index))
        };
        self.config.targets.extend(osts.iter().map(target));
        for index in 0..self.servers.len() as u16 {
            self.configure(index);
        }
        self.run();
    }

    /// One more that answers.
    pub fn start_ost(&mut self, index: u16) {
        let store = Arc::new(MemoryMeta::new());
        let core = open_ost(&store, index, self.now);
        self.osts.insert(index, FakeOst { core, store });
    }

    /// An operator drains OSTs.
    pub fn drain(&mut self, osts: &[u16]) {
        self.drain_all(osts, &[]);
    }

    /// OSTs and MDTs.
    pub fn drain_all(&mut self, osts: &[u16], mdts: &[u16]) {
        for index in 0..self.servers.len() as u16 {
            let [osts, mdts] = [osts, mdts].map(|of| of.iter().copied().collect());
            self.give(index, Input::NoCreate { osts, mdts });
        }
        self.run();
    }

    pub fn configure(&mut self, index: u16) {
        let input = Input::Config(self.config.clone());
        self.give(index, input);
    }

    fn give(&mut self, index: u16, input: Input) {
        let mut out = Vec::new();
        let server = &mut self.servers[usize::from(index)];
        server.mds.handle(self.now, input, &mut out);
        server.mds.check();
        for output in out {
            match output {
                Output::Send(frame) => {
                    assert_eq!(frame.check_length(), Ok(()));
                    self.frames.push_back(frame);
                }
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// Delivers everything until nothing is left to do.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if let Some(frame) = self.frames.pop_front() {
                self.deliver(frame);
                continue;
            }
            if !self.sync() {
                return;
            }
        }
        panic!("the machines do not come to rest");
    }

    fn sync(&mut self) -> bool {
        let mut has_more = false;
        for index in 0..self.servers.len() {
            let server = &self.servers[index];
            if server.is_synced && server.store.unsynced_count() > 0 {
                server.store.sync();
                has_more = true;
                self.give(index as u16, Input::Durable);
            }
        }
        let mut told = Vec::new();
        for (index, ost) in &mut self.osts {
            if ost.store.unsynced_count() > 0 {
                ost.store.sync();
                let mut out = Vec::new();
                ost.core.on_durable(self.now, &mut out);
                told.push((*index, out));
            }
        }
        has_more |= !told.is_empty();
        told.into_iter().for_each(|(index, out)| self.on_ost(index, out));
        has_more
    }

    /// Makes an MDT durable if somebody there waits for that, and delivers what follows; whether somebody did.
    pub fn sync_if_awaited(&mut self, index: u16) -> bool {
        let store = &self.servers[usize::from(index)].store;
        if !store.take_awaited_kick() || store.unsynced_count() == 0 {
            return false;
        }
        store.sync();
        self.give(index, Input::Durable);
        self.run();
        true
    }

    fn ost(&mut self, index: u16) -> &mut FakeOst {
        self.osts.get_mut(&index).unwrap()
    }

    fn on_ost(&mut self, index: u16, out: Vec<target::CoreOutput>) {
        let (now, mut todo) = (self.now, VecDeque::from(out));
        while let Some(output) = todo.pop_front() {
            match output {
                target::CoreOutput::Send(frame) => self.frames.push_back(frame),
                target::CoreOutput::Execute(work) => {
                    let reply = match work.request {
                        Request::Ost(OstRequest::Destroy { objects }) => {
                            self.destroyed.extend(objects);
                            Reply::Done
                        }
                        Request::Ost(OstRequest::Fence(life)) => {
                            if self.fence_xids.insert((work.token.client, work.token.xid)) {
                                self.fenced.push(life);
                            }
                            Reply::Done
                        }
                        Request::Ost(OstRequest::Adopt { .. }) if self.adopts_nothing => {
                            let mut more = Vec::new();
                            let refused = Err(Status::NoSpace);
                            self.ost(index).core.reply(now, work.token, refused, &mut more);
                            todo.extend(more);
                            continue;
                        }
                        Request::Ost(OstRequest::Adopt { step: AdoptStep::Rows, .. }) => Reply::Done,
                        Request::Ost(OstRequest::Adopt { objects, to, .. }) => {
                            self.adopted.extend(objects.into_iter().map(|object| (object, to)));
                            Reply::Done
                        }
                        // One at a time.
                        Request::Ost(OstRequest::ListObjects { after }) => {
                            let is_behind = |listed: &&ListedObject| Some(listed.object) > after;
                            let listed: Vec<_> =
                                self.listed.iter().filter(is_behind).take(1).copied().collect();
                            let next = listed.last().map(|listed| listed.object);
                            Reply::Ost(OstReply::Objects { listed, next })
                        }
                        Request::Ost(OstRequest::Statfs) => {
                            self.room_asked_count += usize::from(index == 0);
                            self.rooms
                                .get(&index)
                                .map_or(Reply::Done, |room| Reply::Ost(OstReply::Statfs(*room)))
                        }
                        _ => Reply::Done,
                    };
                    let mut more = Vec::new();
                    self.ost(index).core.reply(now, work.token, Ok((reply, Bytes::new())), &mut more);
                    todo.extend(more);
                }
                _ => {}
            }
        }
    }

    fn deliver(&mut self, mut frame: Frame) {
        if frame.kind == FrameKind::Request
            && let Some(body) = self.body_instead.take()
        {
            frame.body = body;
        }
        if self.cut.contains(&(frame.src, frame.dst)) {
            return;
        }
        let is_about_fence = self.fence_xids.contains(&(frame.dst.client_id(), frame.xid));
        if self.is_ost_late && frame.src == Endpoint::Target(TargetId::ost(0)) && is_about_fence {
            if !self.late.iter().any(|late| late.xid == frame.xid) {
                self.late.push_back(frame);
            }
            return;
        }
        let is_on = |(from, to)| {
            let link = (Endpoint::Target(TargetId::mdt(from)), Endpoint::Target(TargetId::mdt(to)));
            (frame.src, frame.dst) == link
        };
        if frame.kind == FrameKind::Request && self.copied.is_some_and(is_on) {
            self.copies.push(frame.clone());
        }
        let is_held = frame.kind == FrameKind::Reply && self.held.is_some_and(is_on);
        if is_held {
            return self.kept.push_back(frame);
        }
        match frame.dst {
            Endpoint::Target(target)
                if target.kind == base::TargetKind::Mdt && usize::from(target.index) < self.servers.len() =>
            {
                if frame.kind == FrameKind::Request
                    && let Ok(request) = Request::from_bytes(&frame.body)
                {
                    self.requests.entry((frame.src, frame.dst)).or_default().push(request);
                }
                if let Some(answer) = self.other_version.as_ref().and_then(|other| other.answer(&frame)) {
                    return self.frames.push_back(answer);
                }
                self.give(target.index, Input::Frame(frame));
            }
            // An MDT that a test plays.
            Endpoint::Target(target) if target.kind == base::TargetKind::Mdt => {
                let id = Endpoint::Target(target).client_id();
                let Some(index) = self.clients.iter().position(|known| known.id == id) else { return };
                self.on_client_frame(index, frame);
            }
            Endpoint::Target(target) => {
                let Some(ost) = self.osts.get_mut(&target.index) else { return };
                let mut out = Vec::new();
                ost.core.on_frame(self.now, frame, &mut out);
                self.on_ost(target.index, out);
            }
            Endpoint::Client(client) => {
                let Some(index) = self.clients.iter().position(|known| known.id == client) else { return };
                self.on_client_frame(index, frame);
            }
        }
    }

    /// What one MDT has asked another since this was looked at last.
    pub fn take_asked(&mut self, from: u16, to: u16) -> Vec<Request> {
        let link = (Endpoint::Target(TargetId::mdt(from)), Endpoint::Target(TargetId::mdt(to)));
        self.requests.remove(&link).unwrap_or_default()
    }

    fn on_client_frame(&mut self, index: usize, frame: Frame) {
        let Endpoint::Target(target) = frame.src else { return };
        assert_ne!(frame.kind, FrameKind::Request);
        let mut out = Vec::new();
        let client = &mut self.clients[index];
        client.imports.get_mut(&target).unwrap().on_frame(self.now, frame, &mut out);
        self.on_import(index, target, out);
    }

    fn on_import(&mut self, index: usize, target: TargetId, outputs: Vec<ImportOutput>) {
        for output in outputs {
            let client = &mut self.clients[index];
            match output {
                ImportOutput::Send(frame) => self.frames.push_back(frame),
                ImportOutput::Completed { ticket, result } => {
                    client.done.insert((target, ticket), result);
                }
                ImportOutput::ReplayWanted => {
                    let requests = client.reopens.get(&target).cloned().unwrap_or_default();
                    let requests = requests.into_iter().map(|request| (request, Bytes::new())).collect();
                    let mut out = Vec::new();
                    client.imports.get_mut(&target).unwrap().replay_now(self.now, requests, &mut out);
                    self.on_import(index, target, out);
                }
                ImportOutput::Evicted => client.evictions += 1,
                ImportOutput::ReplayFailed { status, .. } => client.refused.push(status),
                ImportOutput::Callback(Callback::Blocking { lock, resource }) => {
                    client.callbacks.push((target, lock, resource));
                    if client.is_polite {
                        let cancel = Request::Lock(LockRequest::Cancel { locks: vec![lock] });
                        self.submit(index, target, cancel, Kind::Reserved);
                    }
                }
                _ => {}
            }
        }
    }

    /// Delivers the first answer of the OST that is late, or all of them.
    pub fn let_ost_answer(&mut self, is_all: bool) {
        let count = if is_all { self.late.len() } else { 1 };
        let is_late = std::mem::replace(&mut self.is_ost_late, false);
        self.frames.extend(self.late.drain(..count));
        self.run();
        self.is_ost_late = is_late && !is_all;
    }

    /// The management server says that a client has no lease.
    pub fn lapse(&mut self, index: u16, client: ClientId) {
        let life = wire::Life { client, incarnation: 1 };
        self.give(index, Input::Lapsed { at: self.now.time, life });
        self.run();
    }

    /// Who is written down as given up.
    pub fn given_up(&self, index: u16) -> Vec<wire::Life> {
        let rows = self.servers[usize::from(index)].store.rows();
        rows.keys().filter_map(|(_, key)| mds::rows::split_evicted_key(key)).collect()
    }

    /// Delivers what was held, late. How much that was.
    pub fn let_go(&mut self) -> usize {
        self.held = None;
        let kept = std::mem::take(&mut self.kept);
        let kept_count = kept.len();
        self.frames.extend(kept);
        self.run();
        kept_count
    }

    /// What was copied and is meant arrives once more, in its order. How much that is.
    pub fn arrive_again(&mut self, is_meant: impl Fn(&Request) -> bool) -> usize {
        self.copied = None;
        let mut copies = std::mem::take(&mut self.copies);
        copies.retain(|frame| Request::from_bytes(&frame.body).is_ok_and(|request| is_meant(&request)));
        let copy_count = copies.len();
        self.frames.extend(copies);
        self.run();
        copy_count
    }

    pub fn submit(&mut self, client: usize, target: TargetId, request: Request, kind: Kind) -> Ticket {
        self.submit_data(client, target, request, Bytes::new(), kind)
    }

    pub fn submit_data(
        &mut self,
        client: usize,
        target: TargetId,
        request: Request,
        data: Bytes,
        kind: Kind,
    ) -> Ticket {
        let mut out = Vec::new();
        let import = self.clients[client].imports.get_mut(&target).unwrap();
        let ticket = import.submit(self.now, request, data, kind, 0, &mut out);
        self.on_import(client, target, out);
        ticket
    }

    /// Sends a request and lets everything run; `None` while it waits.
    pub fn start(&mut self, client: usize, mdt: u16, request: MdtRequest) -> (TargetId, Ticket) {
        let target = TargetId::mdt(mdt);
        let ticket = self.submit(client, target, Request::Mdt(request), Kind::Modifying);
        self.run();
        (target, ticket)
    }

    pub fn result(&self, client: usize, of: (TargetId, Ticket)) -> Option<Result<MdtReply, Status>> {
        let result = self.clients[client].done.get(&of)?.clone();
        Some(result.map(|answer| match answer.reply {
            Reply::Mdt(reply) => reply,
            Reply::Done => MdtReply::Bytes(Vec::new()),
            other => panic!("{other:?}"),
        }))
    }

    /// What an MDT that a test plays asks of another.
    pub fn ask_as_peer(&mut self, peer: usize, mdt: u16, request: PeerRequest) -> Reply {
        self.try_as_peer(peer, mdt, request).expect("it is no failure")
    }

    pub fn try_as_peer(&mut self, peer: usize, mdt: u16, request: PeerRequest) -> Result<Reply, Status> {
        let target = TargetId::mdt(mdt);
        let ticket = self.submit(peer, target, Request::Peer(request), Kind::Plain);
        self.run();
        let answer = self.clients[peer].done.remove(&(target, ticket));
        answer.expect("nothing is waited for").map(|answer| answer.reply)
    }

    pub fn ask(&mut self, client: usize, mdt: u16, request: MdtRequest) -> Result<MdtReply, Status> {
        let of = self.start(client, mdt, request);
        if let Some(result) = self.result(client, of) {
            return result;
        }
        // Backoffs and repeated callbacks.
        for _ in 0..100 {
            self.pass(Duration::from_millis(50));
            if let Some(result) = self.result(client, of) {
                return result;
            }
        }
        panic!("no answer");
    }

    pub fn pass(&mut self, wait: Duration) {
        self.now.time = self.now.time.after(wait);
        self.now.wall = WallTime(self.now.wall.0 + wait.as_nanos() as i64);
        for index in 0..self.servers.len() {
            self.give(index as u16, Input::Tick);
        }
        for index in 0..self.clients.len() {
            let targets: Vec<TargetId> = self.clients[index].imports.keys().copied().collect();
            for target in targets {
                let mut out = Vec::new();
                self.clients[index].imports.get_mut(&target).unwrap().on_tick(self.now, &mut out);
                self.on_import(index, target, out);
            }
        }
        self.run();
    }

    pub fn pass_seconds(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.pass(Duration::from_millis(250));
        }
    }

    /// Stops a server for good measure, lets `change` have its store, and starts it again; false if it refuses to.
    pub fn tamper(&mut self, index: u16, change: impl FnOnce(&MemoryMeta)) -> bool {
        let server = &mut self.servers[usize::from(index)];
        server.store.sync();
        change(&server.store);
        server.store.sync();
        let options = options(index, self.now);
        match Mds::open(Arc::clone(&server.store), options) {
            Ok(mds) => server.mds = mds,
            Err(_) => return false,
        }
        self.configure(index);
        true
    }

    /// The server dies; what was not durable is lost but for the first `kept_count` transactions.
    pub fn crash(&mut self, index: u16, kept_count: usize) {
        let server = &mut self.servers[usize::from(index)];
        server.store.crash(kept_count);
        server.holdings.forget();
        self.restart(index);
    }

    /// That it has begun is durable, and nothing that comes later, if its disk is slow.
    pub fn begin(&mut self, index: u16) {
        self.servers[usize::from(index)].store.sync();
        self.give(index, Input::Durable);
        self.run();
    }

    /// The disk of a server fails at its next sync, which is now.
    pub fn fail_disk(&mut self, index: u16) {
        let server = &mut self.servers[usize::from(index)];
        server.is_synced = false;
        server.store.set_failing(true);
        server.store.sync();
        self.give(index, Input::Durable);
    }

    /// The process of a server dies, and nothing else.
    pub fn kill(&mut self, index: u16) {
        let server = &mut self.servers[usize::from(index)];
        server.store.crash(server.store.unsynced_count());
        self.restart(index);
    }

    fn restart(&mut self, index: u16) {
        let server = &mut self.servers[usize::from(index)];
        server.mds = open(&server.store, &server.holdings, index, self.now);
        self.frames.retain(|frame| {
            let us = Endpoint::Target(TargetId::mdt(index));
            frame.src != us && frame.dst != us
        });
        if !self.is_config_late {
            self.configure(index);
        }
        for other in 0..self.servers.len() as u16 {
            self.give(other, Input::ConnectionLost(TargetId::mdt(index)));
        }
        for client in 0..self.clients.len() {
            let mut out = Vec::new();
            let target = TargetId::mdt(index);
            self.clients[client].imports.get_mut(&target).unwrap().on_connection_lost(self.now, &mut out);
            self.on_import(client, target, out);
        }
        self.run();
    }

    /// No frame reaches an MDT or leaves it any more, or all do again.
    pub fn set_silent(&mut self, index: u16, is_silent: bool) {
        let silent = Endpoint::Target(TargetId::mdt(index));
        let clients = self.clients.iter().map(|client| Endpoint::Client(client.id));
        let servers = (0..self.servers.len() as u16).map(|mdt| Endpoint::Target(TargetId::mdt(mdt)));
        for other in clients.chain(servers).chain([Endpoint::Target(TargetId::ost(0))]) {
            for link in [(silent, other), (other, silent)] {
                if is_silent {
                    self.cut.insert(link);
                } else {
                    self.cut.remove(&link);
                }
            }
        }
    }

    /// An MDT says that it ends in order, and goes on.
    pub fn leave(&mut self, index: u16) {
        self.give(index, Input::Leave);
        self.run();
    }

    /// OST0000 loses power and starts again: for whom it waits then.
    pub fn restart_ost(&mut self) -> Vec<Endpoint> {
        let now = self.now;
        let ost = self.ost(0);
        ost.store.crash(ost.store.unsynced_count());
        ost.core = open_ost(&ost.store, 0, now);
        let awaited = ost.core.missing().iter().map(|missing| missing.client.endpoint()).collect();
        for index in 0..self.servers.len() as u16 {
            self.give(index, Input::ConnectionLost(TargetId::ost(0)));
        }
        self.run();
        awaited
    }

    pub fn is_ost_recovering(&self) -> bool {
        self.osts[&0].core.is_recovering()
    }

    /// Requests of a client that a crash of an MDT could still take back.
    pub fn retained_count(&self, client: usize, mdt: u16) -> usize {
        self.clients[client].imports[&TargetId::mdt(mdt)].retained_count()
    }

    /// An operator wants the absent to be waited for no longer.
    pub fn abort_recovery(&mut self, index: u16) {
        self.give(index, Input::AbortRecovery);
        self.run();
    }

    /// Frames between a client and an MDT are lost, or arrive again.
    pub fn set_cut(&mut self, client: usize, index: u16, is_cut: bool) {
        let ends = [Endpoint::Client(self.clients[client].id), Endpoint::Target(TargetId::mdt(index))];
        for link in [(ends[0], ends[1]), (ends[1], ends[0])] {
            if is_cut {
                self.cut.insert(link);
            } else {
                self.cut.remove(&link);
            }
        }
    }

    /// A client asks an MDT for a session, and does not hear that it has got one.
    pub fn connect_unheard(&mut self, client: usize, index: u16) {
        let target = TargetId::mdt(index);
        self.set_cut(client, index, true);
        self.cut.remove(&(Endpoint::Client(self.clients[client].id), Endpoint::Target(target)));
        let mut out = Vec::new();
        self.clients[client].imports.get_mut(&target).unwrap().on_connection_lost(self.now, &mut out);
        self.on_import(client, target, out);
        self.run();
    }

    /// An MDT sees that the process of a client has ended.
    pub fn depart(&mut self, index: u16, client: ClientId) {
        self.give(index, Input::Departed { client, incarnation: 1 });
        self.run();
    }

    pub fn evict(&mut self, index: u16, client: ClientId) {
        self.give(index, Input::Evict(client));
        self.run();
    }

    /// What all MDTs are about.
    pub fn under_way(&self) -> String {
        let lines = self.servers.iter().enumerate().map(|(index, server)| {
            let recovery = if server.mds.core().is_recovering() { " (recovering)" } else { "" };
            format!("MDT{index}{recovery}: {:#?}\n", server.mds.under_way())
        });
        let imports = self.clients.iter().flat_map(|client| &client.imports);
        let imports = imports.map(|(target, import)| format!("client at {target}: {:?}\n", import.state()));
        lines.chain(imports).collect()
    }

    /// Names on all MDTs.
    pub fn name_count(&self) -> usize {
        let names = |server: &Server| {
            server.store.rows().keys().filter(|(table, _)| *table == mds::rows::DENTRIES).count()
        };
        self.servers.iter().map(names).sum()
    }

    /// Nothing is left over on any MDT: every name has its inode, every inode its names, no operation is undecided.
    pub fn check_consistent(&self) {
        use mds::rows;
        let mut inodes = BTreeMap::new();
        let mut names = BTreeMap::new();
        let mut links = BTreeSet::new();
        for server in &self.servers {
            assert!(server.mds.is_quiet());
            for ((table, key), value) in server.store.rows() {
                match table {
                    rows::INODES => {
                        let inode: rows::Inode = rows::decode(&value).unwrap();
                        inodes.insert(inode.attr.fid, inode);
                    }
                    rows::DENTRIES => {
                        let (parent, _, name) = rows::split_dentry_key(&key).unwrap();
                        let dentry: rows::Dentry = rows::decode(&value).unwrap();
                        names.insert((dentry.fid, parent, name.to_vec()), dentry);
                    }
                    rows::LINKS => {
                        let (parent, name) = rows::split_link_key(&key).unwrap();
                        links.insert((Fid::from_key(&key).unwrap(), parent, name.to_vec()));
                    }
                    rows::PREPARES | rows::DECISIONS | rows::STREAMED => {
                        panic!("an operation was left undecided")
                    }
                    rows::DESTROYS => panic!("objects were not destroyed"),
                    rows::ADOPTS => panic!("objects were not adopted"),
                    _ => {}
                }
            }
        }
        let masters = inodes.values().filter(|inode| !inode.stripes.is_empty());
        let stripes: BTreeMap<Fid, Fid> = masters
            .flat_map(|master| master.stripes[1..].iter().map(|stripe| (*stripe, master.attr.fid)))
            .collect();
        let nameless = stripes.iter().map(|(stripe, master)| (*stripe, *master, Vec::new()));
        let expected: BTreeSet<_> = names.keys().cloned().chain(nameless).collect();
        assert_eq!(links, expected, "every name is known to its inode");
        for (stripe, master) in &stripes {
            let who_may = |fid: &Fid| {
                let inode = &inodes[fid];
                let attr = &inode.attr;
                (attr.permissions, attr.uid, attr.gid, inode.default_layout.clone())
            };
            assert_eq!(who_may(stripe), who_may(master), "{stripe} follows {master}");
        }
        for (_, parent, name) in names.keys() {
            let master = stripes.get(parent).unwrap_or(parent);
            let stripe = base::names::stripe_of(&inodes[master].stripes, name);
            assert_eq!(stripe.unwrap_or(*parent), *parent, "a name is in its stripe");
        }
        for (fid, inode) in &inodes {
            let own = names.keys().filter(|(of, ..)| of == fid).count() as u32;
            let is_directory = inode.attr.file_type == base::FileType::Directory;
            let children = |name: &&(Fid, Fid, Vec<u8>)| name.1 == *fid;
            let subdirectories = names.keys().filter(children).filter(|(child, ..)| {
                inodes.get(child).is_some_and(|inode| inode.attr.file_type == base::FileType::Directory)
            });
            let expected = if is_directory { 2 + subdirectories.count() as u32 } else { own };
            assert_eq!(inode.attr.link_count, expected, "{fid}");
            assert!(own > 0 || *fid == Fid::ROOT || stripes.contains_key(fid), "{fid} has no name");
        }
        let parents = names.keys().map(|(fid, parent, _)| (*fid, *parent));
        let parents: BTreeMap<Fid, Fid> =
            parents.chain(stripes.iter().map(|(stripe, master)| (*stripe, *master))).collect();
        for fid in inodes.keys() {
            // In a ring the way up is longer than there are inodes.
            let mut way = std::iter::successors(Some(*fid), |at| parents.get(at).copied());
            assert!(way.by_ref().take(inodes.len() + 1).any(|at| at == Fid::ROOT), "{fid} is below itself");
        }
        for ((fid, ..), dentry) in &names {
            assert_eq!(inodes.get(fid).map(|inode| inode.attr.file_type), Some(dentry.file_type));
        }
    }
}

fn config_of(id: TargetId) -> TargetConfig {
    TargetConfig { id, uuid: 77, nids: Vec::new(), is_active: true }
}

fn open(store: &Arc<MemoryMeta>, holdings: &MemoryHoldings, index: u16, now: Now) -> Mds<MemoryMeta> {
    Mds::open_with(Arc::clone(store), Box::new(holdings.clone()), options(index, now)).unwrap()
}

fn options(index: u16, now: Now) -> MdsOptions {
    MdsOptions {
        index,
        uuid: 77,
        fsname: "test".into(),
        nid: "test".into(),
        now,
        device: 1,
        recovery_window: RECOVERY_WINDOW,
        root_owner: (0, 0),
    }
}
