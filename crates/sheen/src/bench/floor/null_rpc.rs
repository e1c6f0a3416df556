//! The whole path with nothing at its end: each FUSE request becomes one RPC, whose reply lets the null file system
//! answer. Sessions, slots, routing and (when asked for) TCP are the real ones; nothing is stored and nothing cached.

use anyhow::Result;
use base::{
    ClientId, Duration, Endpoint, Extent, Fid, LockId, Machine, Now, ObjectId, TargetId, TargetKind, Time,
    WallTime,
};
use bytes::Bytes;
use fuse::null::NullFs;
use fuse::{Handler, Op};
use net::{Owner, OwnerOptions, Router, Timer};
use rpc::{Import, ImportOptions, ImportOutput, Kind, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::MemoryMeta;
use store::memory::SyncMode;
use target::{Core, CoreOptions, CoreOutput, Work};
use wire::lock::LockWant;
use wire::{Frame, MdtRequest, OstRequest, Reply, Request};

const SERVER: TargetId = TargetId { kind: TargetKind::Mdt, index: 0 };
const FSNAME: &str = "null";
const READ_BYTES_MAX: usize = 16 << 20;

/// The handler of the mount, and all that its requests pass through.
pub struct NullRpc {
    client: Arc<Owner<Client>>,
    routers: Vec<Arc<Router>>,
    timer: Arc<Timer>,
    _server: Arc<Owner<Server>>,
}

impl NullRpc {
    /// # Errors
    /// No port is free.
    pub fn new(null_fs: NullFs, over_tcp: bool) -> Result<Arc<NullRpc>> {
        let timer = Timer::start();
        let client_router = Router::new();
        let server_router = if over_tcp { Router::new() } else { Arc::clone(&client_router) };
        let sending = Arc::clone(&server_router);
        let server = Owner::new(
            Server::new()?,
            OwnerOptions {
                tick: || ServerInput::Tick,
                frame: ServerInput::Frame,
                perform: Box::new(move |frame| sending.send(frame)),
                timer: Arc::clone(&timer),
                lateness: None,
            },
        );
        server_router.add_local(Endpoint::Target(SERVER), server.clone());
        if over_tcp {
            let address = server_router.listen("127.0.0.1:0")?;
            client_router.set_addresses(SERVER, vec![address.to_string()]);
        }
        let id = ClientId(net::clock::random_u128());
        let sending = Arc::clone(&client_router);
        let client = Owner::new(
            Client::new(id),
            OwnerOptions {
                tick: || ClientInput::Tick,
                frame: ClientInput::Frame,
                perform: Box::new(move |output| match output {
                    ClientOutput::Send(frame) => sending.send(frame),
                    ClientOutput::Answer(call) => null_fs.request(call.request, call.reply),
                }),
                timer: Arc::clone(&timer),
                lateness: None,
            },
        );
        client_router.add_local(Endpoint::Client(id), client.clone());
        let routers = if over_tcp { vec![client_router, server_router] } else { vec![client_router] };
        Ok(Arc::new(NullRpc { client, routers, timer, _server: server }))
    }
}

impl Drop for NullRpc {
    fn drop(&mut self) {
        for router in &self.routers {
            router.close();
        }
        self.timer.stop();
    }
}

impl Handler for NullRpc {
    fn request(&self, request: fuse::Request, reply: fuse::Reply) {
        self.client.queue(ClientInput::Call(Box::new(Call { request, reply })));
    }

    fn forget(&self, _forgets: &[(u64, u64)]) {}

    fn interrupt(&self, _unique: u64) {}

    fn batch_end(&self, _thread_index: usize) {
        net::run::run_all();
    }

    fn destroyed(&self) {}
}

struct Call {
    request: fuse::Request,
    reply: fuse::Reply,
}

enum ClientInput {
    Call(Box<Call>),
    Frame(Frame),
    Tick,
}

enum ClientOutput {
    Send(Frame),
    Answer(Box<Call>),
}

/// One session, and the requests that wait for their replies.
struct Client {
    import: Import,
    waiting: BTreeMap<Ticket, Box<Call>>,
}

impl Client {
    fn new(client: ClientId) -> Client {
        let options = ImportOptions {
            client,
            incarnation: 0,
            starts: Vec::new(),
            fsname: FSNAME.to_owned(),
            nid: "bench".to_owned(),
            target: SERVER,
            target_uuid: 0,
        };
        Client { import: Import::new(options), waiting: BTreeMap::new() }
    }
}

impl Machine for Client {
    type Input = ClientInput;
    type Output = ClientOutput;

    fn handle(&mut self, now: Now, input: ClientInput, out: &mut Vec<ClientOutput>) {
        let mut said = Vec::new();
        match input {
            ClientInput::Call(call) => {
                let (request, data, kind) = to_rpc(&call.request);
                let ticket = self.import.submit(now, request, data, kind, 0, &mut said);
                self.waiting.insert(ticket, call);
            }
            ClientInput::Frame(frame) => self.import.on_frame(now, frame, &mut said),
            ClientInput::Tick => self.import.on_tick(now, &mut said),
        }
        for output in said {
            match output {
                ImportOutput::Send(frame) => out.push(ClientOutput::Send(frame)),
                // A refusal is answered too: the figures would show it, a hanging call nothing.
                ImportOutput::Completed { ticket, .. } => {
                    out.extend(self.waiting.remove(&ticket).map(ClientOutput::Answer));
                }
                _ => {}
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.import.next_deadline()
    }
}

/// A request of the same kind and size as the real client would send.
fn to_rpc(request: &fuse::Request) -> (Request, Bytes, Kind) {
    let fid = Fid { oid: request.nodeid as u32, ..Fid::ROOT };
    let object = ObjectId { fid, component: 0, stripe: 0 };
    let by_name =
        |name: &[u8]| MdtRequest::Lookup { parent: fid, name: name.to_vec(), want: LockWant::default() };
    let (body, kind) = match &request.op {
        Op::Write(write) => {
            let body = OstRequest::Write {
                object,
                offset_bytes: write.offset,
                lock: LockId::default(),
                stamp: WallTime::default(),
                is_answered: false,
                asked: None,
            };
            return (Request::Ost(body), write.data.clone(), Kind::Modifying);
        }
        Op::Read(read) => {
            let extent = Extent::at(read.offset, u64::from(read.size));
            return (
                Request::Ost(OstRequest::Read { object, extent, lock: None }),
                Bytes::new(),
                Kind::Plain,
            );
        }
        Op::Lookup { name } => (by_name(name), Kind::Plain),
        Op::Create { name, .. }
        | Op::Mkdir { name, .. }
        | Op::Unlink { name }
        | Op::Rmdir { name }
        | Op::Rename { old_name: name, .. } => (by_name(name), Kind::Modifying),
        _ => (MdtRequest::Getattr { fid, want: LockWant::default() }, Kind::Plain),
    };
    (Request::Mdt(body), Bytes::new(), kind)
}

enum ServerInput {
    Frame(Frame),
    Tick,
}

/// Says yes to everything.
struct Server {
    core: Core<MemoryMeta>,
    zeros: Bytes,
}

impl Server {
    fn new() -> Result<Server> {
        let options = CoreOptions {
            id: SERVER,
            uuid: net::clock::random_u128(),
            fsname: FSNAME.to_owned(),
            now: net::clock::now(),
            recovery_window: Duration::ZERO,
            has_external_data: false,
            owed: target::nothing_owed,
        };
        let core = Core::open(Arc::new(MemoryMeta::with(SyncMode::OnKick, None)), options)?;
        Ok(Server { core, zeros: Bytes::from(vec![0; READ_BYTES_MAX]) })
    }

    fn execute(&mut self, now: Now, work: &Work, out: &mut Vec<CoreOutput>) {
        let data = match &work.request {
            Request::Ost(OstRequest::Read { extent, .. }) => {
                self.zeros.slice(..self.zeros.len().min(extent.byte_count() as usize))
            }
            _ => Bytes::new(),
        };
        self.core.reply(now, work.token, Ok((Reply::Done, data)), out);
    }
}

impl Machine for Server {
    type Input = ServerInput;
    type Output = Frame;

    fn handle(&mut self, now: Now, input: ServerInput, out: &mut Vec<Frame>) {
        let mut todo = Vec::new();
        match input {
            ServerInput::Frame(frame) => self.core.on_frame(now, frame, &mut todo),
            ServerInput::Tick => self.core.on_tick(now, &mut todo),
        }
        while !todo.is_empty() {
            for output in std::mem::take(&mut todo) {
                match output {
                    CoreOutput::Send(frame) => out.push(frame),
                    CoreOutput::Execute(work) => self.execute(now, &work, &mut todo),
                    _ => {}
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline()
    }
}
