//! Requests and rows that make no sense: typed answers, never a panic.

use crate::harness::{ROOT, World, new, rename};
use base::{
    Advice, Attr, ClientId, Extent, Fid, LockId, ObjectId, OpenHandle, Rng, SetAttr, SetTime, Status,
    TargetId, WallTime,
};
use bytes::Bytes;
use mds::rows;
use store::{Batch, MetaStore};
use wire::lock::LockWant;
use wire::mdt::{ClosingData, FileLock, FlockKind, LayoutHint, NewNode, OpenArgs, REPORTS_MAX, SizeReport};
use wire::peer::{FlockOwner, FlockWaitId, OperationId, Part};
use wire::{LockMode, LockPolicy, LockRequest, MdtRequest, OstRequest, PeerRequest, Request, Resource};

fn flip(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(4) {
        match (rng.below(8), bytes.len()) {
            (_, 0) => return,
            (0, _) => bytes.truncate(rng.below(bytes.len() as u64) as usize),
            (1, _) => bytes.push(rng.next_u64() as u8),
            (2, length) => bytes[rng.below(length as u64) as usize] = 0xff,
            (_, length) => bytes[rng.below(length as u64) as usize] ^= 1 << rng.below(8),
        }
    }
}

/// One of each, over a small tree.
fn samples(attr: &Attr, fids: &[Fid]) -> Vec<Request> {
    let (dir, file) = (fids[0], fids[1]);
    let want = LockWant { name: Some(LockId(1)), inode: Some(LockId(2)), ..LockWant::default() };
    let open = OpenArgs { handle: OpenHandle(3), read: true, write: true, execute: false };
    let lock = FileLock { owner: 1, pid: 1, is_flock: false, kind: FlockKind::Write, extent: Extent::WHOLE };
    let set = SetAttr {
        size_bytes: Some(5),
        uid: Some(3),
        permissions: Some(0o7777),
        mtime: Some(SetTime::To(WallTime(i64::MAX))),
        ..SetAttr::default()
    };
    let mut create = new(dir, "x", NewNode::Directory);
    create.mdt_index = Some(1);
    let id = OperationId { mdt_index: 1, epoch: 1, number: 1 };
    let part = Part::MakeDirectory {
        attr: attr.clone(),
        parent: dir,
        name: b"y".to_vec(),
        xattrs: vec![(b"system.posix_acl_default".to_vec(), vec![2, 0, 0, 0])],
        default_layout: None,
    };
    let report = SizeReport {
        fid: file,
        write_epoch: 1,
        size_bytes: u64::MAX,
        block_count: u64::MAX,
        mtime: WallTime(i64::MAX),
        stamp: WallTime(i64::MAX),
    };
    let name = || b"f".to_vec();
    let mdt = vec![
        MdtRequest::Lookup { parent: dir, name: name(), want },
        MdtRequest::Getattr { fid: file, want },
        MdtRequest::Setattr { fid: file, set, creds: ROOT, handle: Some(OpenHandle(3)), want, stamp: None },
        MdtRequest::Create(create),
        MdtRequest::Create(new(dir, "z", NewNode::Symlink { target: b"t".to_vec() })),
        MdtRequest::Unlink { parent: dir, name: name(), creds: ROOT },
        MdtRequest::Rmdir { parent: Fid::ROOT, name: b"d".to_vec(), creds: ROOT },
        rename((dir, "f"), (Fid::ROOT, "g"), 2),
        MdtRequest::Link { fid: file, parent: dir, name: b"l".to_vec(), creds: ROOT, want },
        MdtRequest::Open { fid: file, open, creds: ROOT, want, closes: Vec::new(), accesses: Vec::new() },
        MdtRequest::Close {
            fid: file,
            handle: OpenHandle(3),
            atime: Some(WallTime(i64::MIN)),
            unchanged_since: Some(1),
            data: Some(ClosingData {
                object: ObjectId { fid: file, component: 1, stripe: 0 },
                offset_bytes: u64::MAX,
                lock: LockId(4),
                stamp: WallTime(i64::MAX),
            }),
            cancels: vec![LockId(1), LockId(77)],
            accesses: Vec::new(),
        },
        report.alone(),
        MdtRequest::ReportSizes { reports: vec![report; REPORTS_MAX] },
        MdtRequest::ReportSizes { reports: vec![report; REPORTS_MAX + 1] },
        MdtRequest::Readdir {
            fid: dir,
            after: 0,
            entry_count_max: u32::MAX,
            with_attrs: true,
            with_xattrs: true,
            children: None,
            subdirectories: Some(base::LockId(u64::MAX - 1)),
            is_whole_wanted: false,
            accesses: Vec::new(),
        },
        MdtRequest::Readlink { fid: file },
        MdtRequest::Listxattr { fid: file, want },
        MdtRequest::Getxattr { fid: file, name: b"user.a".to_vec() },
        MdtRequest::Setxattr { fid: file, name: b"user.a".to_vec(), value: vec![1], flags: 0, creds: ROOT },
        MdtRequest::Setxattr {
            fid: dir,
            name: b"system.posix_acl_access".to_vec(),
            value: [
                &2u32.to_le_bytes()[..],
                &[1, 0, 7, 0, 0, 0, 0, 0, 4, 0, 7, 0, 0, 0, 0, 0, 32, 0, 7, 0, 0, 0, 0, 0],
            ]
            .concat(),
            flags: 0,
            creds: ROOT,
        },
        MdtRequest::Removexattr { fid: file, name: b"user.a".to_vec(), creds: ROOT },
        MdtRequest::Statfs,
        MdtRequest::Sync,
        MdtRequest::FidToPath { fid: file },
        MdtRequest::Flock { fid: file, lock, can_wait: true },
        MdtRequest::FlockCancel { fid: file, owner: 1, is_flock: false },
        MdtRequest::Getlk { fid: file, lock },
        MdtRequest::SetLayout {
            fid: file,
            layout: LayoutHint::plain(wire::ComponentHint {
                end_bytes: None,
                stripe_size_bytes: Some(65536),
                stripe_count: Some(9),
                first_ost: Some(0),
                ..Default::default()
            }),
            creds: ROOT,
        },
        MdtRequest::Reopen { fid: file, open },
        MdtRequest::ReplayFlocks { fid: file, locks: vec![lock] },
    ];
    let policy = LockPolicy::Bits(255);
    let (resource, mode) = (Resource::Inode(file), LockMode::Ex);
    let grant = wire::LockGrant { lock: LockId(8), resource, mode, policy };
    let mut requests: Vec<Request> = mdt.into_iter().map(Request::Mdt).collect();
    requests.extend([
        Request::Lock(LockRequest::Enqueue { lock: LockId(7), resource, mode, policy, can_wait: true }),
        Request::Lock(LockRequest::Cancel { locks: vec![LockId(7)] }),
        Request::Lock(LockRequest::Replay { locks: vec![grant] }),
        Request::Peer(PeerRequest::Prepare {
            id,
            parts: vec![part],
            uid: 0,
            gid: 0,
            groups: vec![],
            is_replay: true,
        }),
        Request::Peer(PeerRequest::Decide { id, is_commit: true }),
        Request::Peer(PeerRequest::Ask { id }),
        Request::Peer(PeerRequest::PeekName { parent: dir, name: name(), epoch: 1, is_replay: true }),
        Request::Peer(PeerRequest::LockRename { id, is_replay: false }),
        Request::Peer(PeerRequest::UnlockRename { id }),
        Request::Peer(PeerRequest::FlockWaits { owners: vec![FlockOwner { client: ClientId(1), owner: 1 }] }),
        Request::Peer(PeerRequest::RefuseFlock {
            wait: FlockWaitId { since: WallTime(0), mdt_index: 0, number: 1 },
        }),
    ]);
    requests
}

#[test]
fn damaged_requests_get_an_answer_or_none_but_never_a_panic() {
    let mut rng = Rng::new(11);
    let mut decoded_count = 0;
    for _ in 0..20 {
        let mut world = World::new(2, 2);
        let dir = world.mkdir(Fid::ROOT, "d");
        let file = world.mkfile(dir, "f");
        let attr = world.getattr(0, dir).unwrap();
        let samples = samples(&attr, &[dir, file]);
        for _ in 0..300 {
            let mut bytes = rng.pick(&samples).unwrap().to_bytes().to_vec();
            flip(&mut rng, &mut bytes);
            let Ok(request) = Request::from_bytes(&bytes) else { continue };
            if matches!(request, Request::Connect(_) | Request::Disconnect { .. }) {
                continue;
            }
            decoded_count += 1;
            world.submit(rng.below(2) as usize, TargetId::mdt(0), request, rpc::Kind::Plain);
            world.run();
        }
        world.pass_seconds(2);
    }
    assert!(decoded_count > 2000, "{decoded_count} of the damaged requests could be read");
}

#[test]
fn advice_that_ends_before_it_begins_is_refused() {
    let mut world = World::new(1, 1);
    let fid = world.mkfile(Fid::ROOT, "f");
    let (object, mdt) = (ObjectId { fid, component: 1, stripe: 0 }, TargetId::mdt(0));
    let mut advise = |start, end| {
        let (extent, advice) = (Extent::new(start, end), Advice::WillRead);
        let request = Request::Ost(OstRequest::Advise { object, extent, advice });
        let ticket = world.submit(0, mdt, request, rpc::Kind::Plain);
        world.run();
        world.clients[0].done.remove(&(mdt, ticket)).map(|result| result.map(drop))
    };
    assert_eq!(advise(0, 4096), Some(Ok(())));
    for (start, end) in [(1, 0), (u64::MAX, 0), (u64::MAX, u64::MAX - 1)] {
        assert_eq!(advise(start, end), Some(Err(Status::Invalid)), "{start}..{end}");
    }
}

#[test]
fn damaged_rows_are_refused_or_answered_with_an_error() {
    let mut rng = Rng::new(12);
    let mut refused_count = 0;
    for round in 0..150 {
        let mut world = World::new(1, 1);
        let dir = world.mkdir(Fid::ROOT, "d");
        let file = world.mkfile(dir, "f");
        let attr = world.getattr(0, dir).unwrap();
        let requests = samples(&attr, &[dir, file]);
        let is_started = world.tamper(0, |store| damage(&mut rng, store));
        if !is_started {
            refused_count += 1;
            continue;
        }
        world.pass_seconds(3);
        for request in requests {
            if matches!(request, Request::Mdt(_)) {
                world.submit(0, TargetId::mdt(0), request, rpc::Kind::Plain);
                world.run();
            }
        }
        assert!(refused_count < round + 1);
    }
}

/// Flips bits of some rows of the MDT, as a store whose checksums do not notice would return them.
fn damage(rng: &mut Rng, store: &store::MemoryMeta) {
    let own: Vec<_> = store.rows().into_iter().filter(|((table, _), _)| *table <= rows::STATE).collect();
    let mut batch = Batch::new();
    for _ in 0..3 {
        let Some(((table, key), value)) = rng.pick(&own) else { return };
        let mut value = value.clone();
        flip(rng, &mut value);
        batch.put(*table, key, &Bytes::from(value));
    }
    store.apply(store.applied().next(), &batch).unwrap();
}
