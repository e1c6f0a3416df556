//! The client as a machine, between a kernel that calls and servers that answer whatever decodes. Any result of a call is
//! right; a panic is not, nor an invariant that does not hold afterwards.

use super::mutate;
use base::layout::Component;
use base::{
    Attr, ClientId, ClusterConfig, Endpoint, Epoch, Extent, Fid, FileType, Layout, LockId, Machine, Now,
    ObjectId, Rng, Status, TargetConfig, TargetId, Time, Transno, Version, WallTime,
};
use bytes::Bytes;
use client::{Call, Caller, Client, ClientOptions, Input, NotifyResult, Output, SetattrCall};
use wire::mdt::{Entry, Met};
use wire::session::SessionState;
use wire::{
    Callback, ConnectReply, Frame, FrameKind, LockGrant, LockMode, LockPolicy, MdtReply, OstReply, Reply,
    Request, Resource,
};

const ROUNDS: usize = 4000;
const CLIENT: ClientId = ClientId(7);
const FILE: Fid = Fid { seq: Fid::SEQ_NORMAL, oid: 5, ver: 0 };
const TARGETS: [TargetId; 3] = [TargetId::mdt(0), TargetId::mdt(1), TargetId::ost(0)];

fn config() -> ClusterConfig {
    let target = |id| TargetConfig { id, uuid: 9, nids: vec!["127.0.0.1:1".to_owned()], is_active: true };
    ClusterConfig {
        fsname: "scratch".to_owned(),
        version: 1,
        targets: TARGETS.map(target).to_vec(),
        params: Vec::new(),
        pools: Vec::new(),
    }
}

fn grants() -> Vec<LockGrant> {
    (1..6)
        .map(|lock| LockGrant {
            lock: LockId(lock),
            resource: Resource::Inode(FILE),
            mode: LockMode::Pr,
            policy: LockPolicy::Bits(wire::lock::bits::XATTR),
        })
        .collect()
}

fn entry(fid: Fid, file_type: FileType) -> Entry {
    let time = WallTime(1_700_000_000_000_000_000);
    let attr = Attr {
        fid,
        file_type,
        permissions: 0o644,
        uid: 0,
        gid: 0,
        link_count: 1,
        rdev: 0,
        size_bytes: 5000,
        block_count: 16,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        mtime_stamp: time,
        version: Version(1),
        is_size_known: true,
        write_epoch: 1,
        has_xattrs: true,
    };
    Entry {
        fid,
        file_type,
        attr: Some(attr.clone()),
        layout: Some(Layout::plain(fid, 1, 1 << 20, vec![0])),
        symlink_target: Some(b"target".to_vec()),
        parent_attr: Some(Attr { fid: Fid::ROOT, file_type: FileType::Directory, ..attr }),
        is_open_elsewhere: false,
        may_be_written: false,
        was_created: true,
        was_size_known: true,
        grants: grants(),
        stripes: Vec::new(),
        data: None,
    }
}

/// A file whose first bytes are on its MDT.
fn on_mdt() -> Box<Entry> {
    let mut entry = entry(FILE, FileType::Regular);
    let component = Component {
        id: 1,
        end_bytes: 64 << 10,
        stripe_size_bytes: 64 << 10,
        osts: vec![Layout::ON_MDT],
        pool: None,
    };
    entry.layout = Some(Layout { fid: FILE, components: vec![component] });
    let object = Resource::Object(ObjectId { fid: FILE, component: 1, stripe: 0 });
    let policy = LockPolicy::Extent(Extent::WHOLE);
    entry.grants.push(LockGrant { lock: LockId(3), resource: object, mode: LockMode::Pr, policy });
    Box::new(entry)
}

/// Answers that mean something to somebody.
fn replies() -> Vec<Vec<u8>> {
    let boxed = |fid, file_type| Box::new(entry(fid, file_type));
    let object = Resource::Object(ObjectId { fid: FILE, component: 1, stripe: 0 });
    let meant = [
        Reply::Mdt(MdtReply::Entry(boxed(FILE, FileType::Regular))),
        Reply::Mdt(MdtReply::Entry(boxed(FILE, FileType::Directory))),
        Reply::Mdt(MdtReply::Entry(boxed(Fid::ROOT, FileType::Directory))),
        Reply::Mdt(MdtReply::Striped {
            entry: boxed(FILE, FileType::Directory),
            stripes: vec![FILE, Fid::ROOT],
        }),
        Reply::Mdt(MdtReply::WithData { entry: on_mdt(), grant_bytes: u64::MAX, has_bytes: true }),
        Reply::Mdt(MdtReply::Absent { grants: grants() }),
        Reply::Mdt(MdtReply::Removed {
            parent_attr: None,
            new_parent_attr: None,
            child: Some(boxed(FILE, FileType::Regular)),
            replaced: Some(boxed(FILE, FileType::Regular)),
            met: None,
        }),
        Reply::Mdt(MdtReply::RemovedMet {
            parent_attr: None,
            new_parent_attr: None,
            child: None,
            replaced: None,
            met: Met { fid: FILE, replaced: Some(Fid::ROOT) },
        }),
        Reply::Mdt(MdtReply::Closed { wants_size: Some(1), attr: None }),
        Reply::Mdt(MdtReply::Bytes(b"bytes".to_vec())),
        Reply::Mdt(MdtReply::Xattrs { xattrs: vec![(b"user.a".to_vec(), Some(vec![1]))], grants: grants() }),
        Reply::Ost(OstReply::Data { size_bytes: 5000 }),
        Reply::Ost(OstReply::LockedData {
            size_bytes: 5000,
            lock: LockGrant {
                lock: LockId(1),
                resource: object,
                mode: LockMode::Pr,
                policy: LockPolicy::Extent(Extent::WHOLE),
            },
        }),
        Reply::Ost(OstReply::Attrs(vec![None])),
        Reply::Ost(OstReply::Seek { offset_bytes: Some(7) }),
        Reply::Locked(LockGrant {
            lock: LockId(1),
            resource: object,
            mode: LockMode::Pw,
            policy: LockPolicy::Extent(Extent::WHOLE),
        }),
        Reply::Done,
    ];
    let mut bytes: Vec<Vec<u8>> = meant.iter().map(|reply| reply.to_bytes().to_vec()).collect();
    bytes.extend(super::decoders::replies());
    bytes
}

fn call(rng: &mut Rng) -> Call {
    let node = if rng.one_in(3) { client::ROOT_NODE } else { FILE.inode_number() };
    let (parent, name, fh) = (client::ROOT_NODE, b"name".to_vec(), rng.below(6));
    let (offset_bytes, flags) = (rng.below(1 << 21), rng.below(4) as u32);
    match rng.below(22) {
        0..=3 => Call::Lookup { parent, name },
        4 => Call::Getattr { node, fh: None },
        5 => Call::Setattr {
            node,
            set: SetattrCall { size_bytes: Some(offset_bytes), ..SetattrCall::default() },
        },
        6 => Call::Mkdir { parent, name, mode: 0o755, umask: 0 },
        7 => Call::Unlink { parent, name },
        8 => Call::Rename { parent, name, new_parent: node, new_name: b"new".to_vec(), flags: 0 },
        9 => Call::Link { node, parent, name },
        10 | 11 => Call::Open { node, flags },
        12 => Call::Create { parent, name, mode: 0o644, umask: 0, flags: 2 },
        13 => Call::Read { node, fh, offset_bytes, byte_count: 100_000, is_direct: flags & 1 != 0 },
        14 => Call::Write {
            node,
            fh,
            offset_bytes,
            data: Bytes::from_static(b"some data"),
            flags,
            is_writeback: false,
            kill_privileges: false,
        },
        15 => Call::Release { node, fh, flock_owner: None },
        16 => Call::Fsync { node, fh, data_only: false },
        17 => Call::Readdir { node: parent, fh, offset: 0, byte_count: 4096, is_plus: rng.one_in(2) },
        18 => Call::Opendir { node: parent, flags: 0 },
        19 => Call::Getxattr { node, name: b"user.a".to_vec() },
        20 => Call::Statfs { node },
        _ => Call::Lseek { node, fh, offset_bytes, whence: 3 },
    }
}

/// What a server may say to a request; `None` for a lost one.
fn answer(rng: &mut Rng, replies: &[Vec<u8>], request: &Frame) -> Option<Frame> {
    let mut frame = Frame::new(FrameKind::Reply, request.dst, request.src);
    (frame.xid, frame.session, frame.slot) = (request.xid, 3, request.slot);
    if let Ok(Request::Connect(_)) = Request::from_bytes(&request.body) {
        let state = *rng.pick(&[
            SessionState::Resumed,
            SessionState::Resumed,
            SessionState::New,
            SessionState::Replay,
        ])?;
        let reply = ConnectReply {
            version: wire::VERSION,
            features: u64::MAX,
            session: 3,
            state,
            target_epoch: Epoch(1),
            target_uuid: 9,
            slot_count: 16,
            server_time_ns: rng.next_u64() as i64,
            lease_ms: 30_000,
            software: String::new(),
            started_at: base::WallTime::default(),
        };
        frame.body = Reply::Connected(reply).to_bytes();
        return Some(frame);
    }
    match rng.below(10) {
        0 => return None,
        1 => {
            frame.status = Status::from_code(rng.below(80) as u16).unwrap_or(Status::Io);
            return Some(frame);
        }
        2..=5 => frame.body = rng.pick(replies)?.clone().into(),
        _ => frame.body = mutate::input(rng, replies).into(),
    }
    if Reply::from_bytes(&frame.body).is_err() && !rng.one_in(10) {
        frame.body = Reply::Done.to_bytes();
    }
    frame.data = if rng.one_in(2) { Bytes::from(mutate::random(rng)) } else { Bytes::new() };
    frame.transno = Transno(if rng.one_in(2) { 0 } else { rng.below(1 << 42) });
    frame.last_committed = Transno(rng.below(1 << 42));
    Some(frame)
}

pub fn feed() {
    let options = ClientOptions {
        client: CLIENT,
        incarnation: 1,
        fsname: "scratch".to_owned(),
        nid: "0@lo".to_owned(),
        has_inc_epoch: true,
        has_versioned_setattr: true,
        is_mmap_relaxed: false,
        has_kill_privileges: true,
        is_write_back_early: true,
        is_statfs_lazy: true,
        access_times: client::AccessTimes::default(),
    };
    let at = |round: usize| Now {
        time: Time(20_000_000 * round as u64 + 1),
        wall: WallTime(1_700_000_000_000_000_000),
    };
    let mut machine = Client::new(at(0), options);
    let (mut rng, replies) = (Rng::new(super::seed()), replies());
    let mut waiting: Vec<Input> = vec![Input::Config(config())];
    let (mut answered_count, mut worked_count) = (0, 0);
    for round in 0..ROUNDS * super::factor() {
        if rng.one_in(2) {
            let id = round as u64 + 1;
            waiting.push(Input::Call { id, call: call(&mut rng), caller: Caller::default() });
        }
        if rng.one_in(20) {
            let target = rng.pick(&TARGETS).copied().unwrap_or(TargetId::mdt(0));
            let mut frame = Frame::new(FrameKind::Callback, Endpoint::Target(target), CLIENT.endpoint());
            frame.session = 3;
            let lock = LockId(rng.below(40));
            let resource = Resource::Inode(FILE);
            frame.body = match rng.below(8) {
                0 => Callback::Evicted { session: 3 }.to_bytes(),
                _ => Callback::Blocking { lock, resource }.to_bytes(),
            };
            waiting.push(Input::Frame(frame));
        }
        waiting.push(Input::Tick);
        let mut out = Vec::new();
        for input in std::mem::take(&mut waiting) {
            machine.handle(at(round), input, &mut out);
        }
        machine.check();
        for output in out {
            match output {
                Output::Send(frame) => waiting.extend(answer(&mut rng, &replies, &frame).map(Input::Frame)),
                Output::Notify(id, _) => waiting.push(Input::Notified(id, NotifyResult::Ok)),
                Output::NeedGroups { id, .. } => {
                    waiting.push(Input::Groups { id, groups: (round % 2 == 0).then(|| vec![1]) })
                }
                Output::NeedSignals { id, .. } => {
                    waiting.push(Input::Signals { id, signals: client::Signals::Harmless });
                }
                Output::Reply { result, .. } => {
                    answered_count += 1;
                    worked_count += usize::from(result.is_ok());
                }
                Output::CallOff(_) | Output::Drained | Output::Event(_) => {}
            }
        }
    }
    assert!(answered_count > ROUNDS / 8, "{answered_count} calls were answered");
    assert!(worked_count > ROUNDS / 40, "{worked_count} calls worked, so that answers were believed");
}
