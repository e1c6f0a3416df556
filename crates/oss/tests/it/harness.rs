//! One target, some clients, a clock that stands still until it is moved.

use base::{
    ClientId, Duration, Endpoint, Extent, Fid, LockId, Machine, Now, ObjectId, Status, TargetId, Time,
    Transno, WallTime,
};
use bytes::Bytes;
use oss::{FetchId, Input, Oss, OssEvent, OssOptions, Output};
use rpc::import::{Answer, Import, ImportOptions, ImportOutput, Kind, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::memory::{Kept, MemoryMeta, MemoryObjects};
use store::{MemoryHoldings, StoreError};
use wire::ost::{ExtentOp, ObjectAttr};
use wire::{
    Callback, Frame, LockGrant, LockMode, LockPolicy, LockRequest, OstReply, OstRequest, Reply, Request,
    Resource,
};

pub fn object(number: u32) -> ObjectId {
    ObjectId { fid: Fid { seq: Fid::SEQ_NORMAL, oid: number, ver: 0 }, component: 0, stripe: 0 }
}

pub struct TestClient {
    import: Import,
    pub results: BTreeMap<Ticket, Result<Answer, Status>>,
    pub callbacks: Vec<LockId>,
    pub held: BTreeMap<LockId, LockGrant>,
    pub evicted_count: usize,
    /// Gives locks back as soon as it is asked.
    pub is_polite: bool,
    is_cut_off: bool,
    /// What is sent to it is lost, what it sends arrives.
    pub is_deaf: bool,
}

impl TestClient {
    pub fn retained_count(&self) -> usize {
        self.import.uncommitted_after(Transno::ZERO)
    }
}

pub struct World {
    pub meta: Arc<MemoryMeta>,
    pub objects: Arc<MemoryObjects>,
    pub holdings: MemoryHoldings,
    pub oss: Option<Oss<MemoryMeta, MemoryObjects>>,
    pub clients: BTreeMap<ClientId, TestClient>,
    pub events: Vec<OssEvent>,
    /// What the device was asked for.
    pub fetching: Vec<FetchId>,
    pub now: Now,
    wire: VecDeque<Frame>,
    next_lock: u64,
    /// Stores become durable as soon as somebody asks.
    pub is_syncing: bool,
}

impl World {
    pub fn new() -> World {
        let now = Now { time: Time(1_000_000_000), wall: WallTime(1_700_000_000_000_000_000) };
        let mut world = World {
            meta: Arc::new(MemoryMeta::new()),
            objects: Arc::new(MemoryObjects::new()),
            holdings: MemoryHoldings::new(),
            oss: None,
            clients: BTreeMap::new(),
            events: vec![],
            fetching: vec![],
            now,
            wire: VecDeque::new(),
            next_lock: 1,
            is_syncing: true,
        };
        world.start();
        world
    }

    pub fn start(&mut self) {
        self.try_start().expect("the stores are sound");
    }

    pub fn try_start(&mut self) -> Result<(), StoreError> {
        let options = OssOptions::new(0, 77, "test", 5, self.now);
        let (meta, objects) = (Arc::clone(&self.meta), Arc::clone(&self.objects));
        self.oss = Some(Oss::open_with(meta, objects, Box::new(self.holdings.clone()), options)?);
        self.run();
        Ok(())
    }

    /// Power failure: `keep_rows` batches and the object mutations that `keep` names survive of what was not synced.
    pub fn crash(&mut self, keep_rows: usize, keep: impl FnMut(u64) -> Kept) {
        self.oss = None;
        self.wire.clear();
        self.holdings.forget();
        self.meta.crash(keep_rows);
        self.objects.crash(keep);
    }

    /// The process dies; the kernel has what it wrote.
    pub fn kill(&mut self) {
        self.oss = None;
        self.wire.clear();
        self.meta.crash(usize::MAX);
        self.objects.kill();
    }

    /// An operator at the controls.
    pub fn control(&mut self, input: Input) {
        self.handle(input);
        self.run();
    }

    pub fn client(&mut self, number: u128) -> ClientId {
        let id = ClientId(number);
        self.mount(id, 1);
        id
    }

    /// An MDT that calls this target.
    pub fn mdt(&mut self, index: u16) -> ClientId {
        self.client(Endpoint::Target(TargetId::mdt(index)).client_id().0)
    }

    /// The next mount of a client whose process was killed.
    pub fn remount(&mut self, client: ClientId) {
        self.mount(client, 2);
    }

    fn mount(&mut self, id: ClientId, incarnation: u64) {
        let import = Import::new(ImportOptions {
            client: id,
            incarnation,
            starts: Vec::new(),
            fsname: "test".to_string(),
            nid: format!("client{}", id.0),
            target: TargetId::ost(0),
            target_uuid: 77,
        });
        let client = TestClient {
            import,
            results: BTreeMap::new(),
            callbacks: vec![],
            held: BTreeMap::new(),
            evicted_count: 0,
            is_polite: true,
            is_cut_off: false,
            is_deaf: false,
        };
        self.clients.insert(id, client);
    }

    /// Its connection breaks and comes back.
    pub fn reconnect(&mut self, client: ClientId) {
        let (now, mut out) = (self.now, vec![]);
        self.client_mut(client).import.on_connection_lost(now, &mut out);
        self.on_client_outputs(client, out);
        self.run();
    }

    pub fn cut_off(&mut self, client: ClientId, is_cut_off: bool) {
        self.client_mut(client).is_cut_off = is_cut_off;
    }

    pub fn client_mut(&mut self, client: ClientId) -> &mut TestClient {
        self.clients.get_mut(&client).expect("the test made this client")
    }

    pub fn oss(&self) -> &Oss<MemoryMeta, MemoryObjects> {
        self.oss.as_ref().expect("the target runs")
    }

    /// Lets time pass in small steps.
    pub fn pass(&mut self, wait: Duration) {
        let end = self.now.time.after(wait);
        while self.now.time < end {
            let step = Duration::from_millis(250).min(end.since(self.now.time));
            self.now.time = self.now.time.after(step);
            self.now.wall.0 += step.as_nanos() as i64;
            self.handle(Input::Tick);
            for id in self.clients.keys().copied().collect::<Vec<_>>() {
                let mut out = vec![];
                let now = self.now;
                self.client_mut(id).import.on_tick(now, &mut out);
                self.on_client_outputs(id, out);
            }
            self.run();
        }
    }

    pub fn sync(&mut self) {
        self.objects.sync();
        self.meta.sync();
        self.handle(Input::Durable);
        self.run();
    }

    fn handle(&mut self, input: Input) {
        let Some(oss) = &mut self.oss else { return };
        let mut out = vec![];
        oss.handle(self.now, input, &mut out);
        oss.check();
        for output in out {
            match output {
                Output::Send(frame) => self.wire.push_back(frame),
                Output::Fetch { id, .. } => self.fetching.push(id),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// The device brings all that it was asked for.
    pub fn fetch(&mut self) {
        self.fetch_with(Ok(()));
    }

    /// Or fails to.
    pub fn fetch_with(&mut self, result: Result<(), StoreError>) {
        for id in std::mem::take(&mut self.fetching) {
            self.handle(Input::Fetched(id, result.clone()));
        }
        self.run();
    }

    /// Delivers frames, and syncs when asked to, until nothing moves.
    pub fn run(&mut self) {
        loop {
            while let Some(frame) = self.wire.pop_front() {
                self.deliver(frame);
            }
            let (is_meta_kicked, are_objects_kicked) = (self.meta.take_kick(), self.objects.take_kick());
            if !self.is_syncing || !(is_meta_kicked || are_objects_kicked) {
                break;
            }
            if are_objects_kicked {
                self.objects.sync();
            }
            if is_meta_kicked {
                self.meta.sync();
            }
            self.handle(Input::Durable);
        }
    }

    fn deliver(&mut self, frame: Frame) {
        let is_cut_off = |id: ClientId| self.clients.get(&id).is_some_and(|client| client.is_cut_off);
        if is_cut_off(frame.src.client_id()) || is_cut_off(frame.dst.client_id()) {
            return;
        }
        if frame.dst == Endpoint::Target(TargetId::ost(0)) {
            return self.handle(Input::Frame(frame));
        }
        let id = frame.dst.client_id();
        if self.client_mut(id).is_deaf {
            return;
        }
        let now = self.now;
        let mut out = vec![];
        self.client_mut(id).import.on_frame(now, frame, &mut out);
        self.on_client_outputs(id, out);
    }

    fn on_client_outputs(&mut self, id: ClientId, outputs: Vec<ImportOutput>) {
        for output in outputs {
            match output {
                ImportOutput::Send(frame) => self.wire.push_back(frame),
                ImportOutput::Completed { ticket, result } => self.on_completed(id, ticket, result),
                ImportOutput::Callback(Callback::Blocking { lock, .. }) => {
                    self.client_mut(id).callbacks.push(lock);
                    if self.client_mut(id).is_polite && self.client_mut(id).held.remove(&lock).is_some() {
                        self.cancel_later(id, lock);
                    }
                }
                ImportOutput::ReplayWanted => {
                    let locks = self.client_mut(id).held.values().cloned().collect();
                    let replay = vec![(Request::Lock(LockRequest::Replay { locks }), Bytes::new())];
                    let (now, mut out) = (self.now, vec![]);
                    self.client_mut(id).import.replay_now(now, replay, &mut out);
                    self.on_client_outputs(id, out);
                }
                ImportOutput::Evicted => {
                    let client = self.client_mut(id);
                    client.evicted_count += 1;
                    client.held.clear();
                }
                _ => {}
            }
        }
    }

    fn on_completed(&mut self, id: ClientId, ticket: Ticket, result: Result<Answer, Status>) {
        let client = self.client_mut(id);
        if let Ok(Answer { reply: Reply::Locked(grant), .. }) = &result {
            client.held.insert(grant.lock, grant.clone());
        }
        client.results.insert(ticket, result);
    }

    pub fn submit(&mut self, client: ClientId, request: Request, data: Bytes, kind: Kind) -> Ticket {
        let (now, mut out) = (self.now, vec![]);
        let ticket = self.client_mut(client).import.submit(now, request, data, kind, 0, &mut out);
        self.on_client_outputs(client, out);
        ticket
    }

    /// The session that a client uses.
    pub fn session_of(&mut self, client: ClientId) -> u64 {
        // With it the session begins.
        self.attr(client, object(1));
        let request = Request::Ost(OstRequest::Getattr { objects: vec![object(1)] });
        self.submit(client, request, Bytes::new(), Kind::Plain);
        let session = self.wire.back().expect("it is on its way").session;
        self.run();
        session
    }

    /// What an import would not send yet.
    pub fn hand_in(&mut self, frame: Frame) {
        self.wire.push_back(frame);
        self.run();
    }

    pub fn result(&mut self, client: ClientId, ticket: Ticket) -> Option<Result<Answer, Status>> {
        self.client_mut(client).results.get(&ticket).cloned()
    }

    /// Submits, runs, and expects the answer at once.
    pub fn call(
        &mut self,
        client: ClientId,
        request: Request,
        data: &[u8],
        kind: Kind,
    ) -> Result<(Reply, Bytes), Status> {
        let ticket = self.submit(client, request, Bytes::copy_from_slice(data), kind);
        self.run();
        let result = self.result(client, ticket).expect("nothing keeps this request waiting");
        result.map(|answer| (answer.reply, answer.data))
    }

    pub fn submit_lock(
        &mut self,
        client: ClientId,
        object: ObjectId,
        mode: LockMode,
        extent: Extent,
    ) -> Ticket {
        let lock = LockId(self.next_lock);
        self.next_lock += 1;
        let (resource, policy) = (Resource::Object(object), LockPolicy::Extent(extent));
        let request = LockRequest::Enqueue { lock, resource, mode, policy, can_wait: true };
        let ticket = self.submit(client, Request::Lock(request), Bytes::new(), Kind::Plain);
        self.run();
        ticket
    }

    pub fn lock(&mut self, client: ClientId, object: ObjectId, mode: LockMode, extent: Extent) -> LockGrant {
        let ticket = self.submit_lock(client, object, mode, extent);
        match self.result(client, ticket) {
            Some(Ok(Answer { reply: Reply::Locked(grant), .. })) => grant,
            other => panic!("no lock but {other:?}"),
        }
    }

    fn cancel_later(&mut self, client: ClientId, lock: LockId) -> Ticket {
        self.client_mut(client).held.remove(&lock);
        let request = Request::Lock(LockRequest::Cancel { locks: vec![lock] });
        self.submit(client, request, Bytes::new(), Kind::Reserved)
    }

    pub fn cancel(&mut self, client: ClientId, lock: LockId) -> Ticket {
        let ticket = self.cancel_later(client, lock);
        self.run();
        ticket
    }

    pub fn write_request(&self, object: ObjectId, offset_bytes: u64, lock: LockId) -> Request {
        Request::Ost(OstRequest::Write {
            object,
            offset_bytes,
            lock,
            stamp: self.now.wall,
            is_answered: false,
            asked: None,
        })
    }

    pub fn write(
        &mut self,
        client: ClientId,
        object: ObjectId,
        offset_bytes: u64,
        data: &[u8],
        lock: LockId,
    ) -> Result<(), Status> {
        let request = self.write_request(object, offset_bytes, lock);
        self.call(client, request, data, Kind::Modifying).map(|_| ())
    }

    /// Locks the bytes and writes them; the lock stays with the client.
    pub fn lock_and_write(
        &mut self,
        client: ClientId,
        object: ObjectId,
        offset_bytes: u64,
        data: &[u8],
    ) -> LockId {
        let extent = Extent::at(offset_bytes, data.len() as u64);
        let lock = self.lock(client, object, LockMode::Pw, extent).lock;
        self.write(client, object, offset_bytes, data, lock).expect("the lock is held");
        lock
    }

    pub fn change(
        &mut self,
        client: ClientId,
        object: ObjectId,
        extent: Extent,
        op: ExtentOp,
        lock: LockId,
    ) -> Result<(), Status> {
        let request = OstRequest::Change { object, extent, op, lock, stamp: self.now.wall };
        self.call(client, Request::Ost(request), &[], Kind::Modifying).map(|_| ())
    }

    pub fn read(&mut self, client: ClientId, object: ObjectId, extent: Extent) -> Result<Vec<u8>, Status> {
        let request = OstRequest::Read { object, extent, lock: None };
        self.call(client, Request::Ost(request), &[], Kind::Plain).map(|(_, data)| data.to_vec())
    }

    pub fn attr(&mut self, client: ClientId, object: ObjectId) -> Option<ObjectAttr> {
        let request = Request::Ost(OstRequest::Getattr { objects: vec![object] });
        match self.call(client, request, &[], Kind::Plain) {
            Ok((Reply::Ost(OstReply::Attrs(attrs)), _)) => attrs[0],
            other => panic!("no attributes but {other:?}"),
        }
    }

    pub fn submit_ost(&mut self, client: ClientId, request: OstRequest, kind: Kind) -> Ticket {
        let ticket = self.submit(client, Request::Ost(request), Bytes::new(), kind);
        self.run();
        ticket
    }

    pub fn committed(&self) -> Transno {
        self.oss().core().last_committed()
    }
}

impl World {
    /// The calendar jumps ahead; nothing else moves.
    pub fn set_clock(&mut self, ahead: Duration) {
        self.now.wall.0 += ahead.as_nanos() as i64;
    }

    /// Time in which nobody says anything.
    pub fn skip(&mut self, wait: Duration) {
        self.now.time = self.now.time.after(wait);
        self.set_clock(wait);
    }
}

impl World {
    /// Tells the target that a store has made more durable.
    pub fn nudge(&mut self) {
        self.handle(Input::Durable);
        self.run();
    }
}
