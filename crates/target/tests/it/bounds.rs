//! What a peer may have kept here for it is bounded, whatever it says.

use crate::network::{TARGET, options};
use base::limits::{BULK_BYTES_MAX, QUEUED_REPLAY_BYTES_MAX, REQUESTS_PER_EXPORT_MAX, UNSPOKEN_SESSIONS_MAX};
use base::{
    ClientId, Endpoint, Epoch, Extent, Fid, LockId, Now, ObjectId, OpenHandle, Status, Time, WallTime, Xid,
};
use bytes::Bytes;
use std::sync::{Arc, Weak};
use store::{Batch, MemoryMeta, MetaStore};
use target::{Core, CoreEvent, CoreOutput, EvictReason, Work};
use wire::mdt::{ClosingData, FileLock, FlockKind};
use wire::session::ConnectReply;
use wire::{ConnectRequest, Frame, FrameKind, MdtRequest, OstRequest, Reply, Request};

const CLIENT: ClientId = ClientId(5);

struct Scene {
    store: Arc<MemoryMeta>,
    core: Core<MemoryMeta>,
    now: Now,
    session: u64,
}

/// What came of one frame.
struct Came {
    replies: Vec<Frame>,
    work: Vec<Work>,
    evicted: Vec<ClientId>,
}

impl Came {
    fn of(out: Vec<CoreOutput>) -> Came {
        let mut came = Came { replies: Vec::new(), work: Vec::new(), evicted: Vec::new() };
        for output in out {
            match output {
                CoreOutput::Send(frame) if frame.kind == FrameKind::Reply => came.replies.push(frame),
                CoreOutput::Execute(work) => came.work.push(*work),
                CoreOutput::Event(CoreEvent::Evicted { client, .. }) => came.evicted.push(client),
                _ => {}
            }
        }
        came
    }

    fn statuses(&self) -> Vec<Status> {
        self.replies.iter().map(|reply| reply.status).collect()
    }
}

fn request_frame(client: ClientId, request: &Request) -> Frame {
    let mut frame = Frame::new(FrameKind::Request, client.endpoint(), Endpoint::Target(TARGET));
    frame.body = request.to_bytes();
    frame
}

pub fn connect_frame(client: ClientId, nid: &str) -> Frame {
    connect_frame_of(client, nid, (Epoch::ZERO, 0))
}

/// Of who was connected to such an incarnation, and had such a session.
fn connect_frame_of(client: ClientId, nid: &str, (target_epoch, session): (Epoch, u64)) -> Frame {
    let request = Request::Connect(ConnectRequest {
        version: wire::VERSION,
        version_oldest: wire::VERSION_OLDEST,
        features: 0,
        fsname: "t".into(),
        client,
        incarnation: 1,
        target_epoch,
        session,
        nid: nid.into(),
        target_uuid: 0,
        starts: wire::Starts::default(),
    });
    request_frame(client, &request)
}

impl Scene {
    /// Whose rows of the start are not durable: everything waits.
    fn starting() -> Scene {
        let store = Arc::new(MemoryMeta::new());
        let now = Now { time: Time(1), ..Now::default() };
        let core = Core::open(Arc::clone(&store), options(now)).unwrap();
        Scene { store, core, now, session: 0 }
    }

    /// With a client that has a session.
    fn new() -> Scene {
        let mut scene = Scene::starting();
        scene.sync();
        scene.hand_in(connect_frame(CLIENT, "host"));
        let came = scene.sync();
        let Ok(Reply::Connected(ConnectReply { session, .. })) = Reply::from_bytes(&came.replies[0].body)
        else {
            panic!("it is answered")
        };
        scene.session = session;
        scene
    }

    fn hand_in(&mut self, frame: Frame) -> Came {
        let mut out = Vec::new();
        self.core.on_frame(self.now, frame, &mut out);
        self.core.check();
        Came::of(out)
    }

    fn sync(&mut self) -> Came {
        let mut out = Vec::new();
        // What the first makes possible may want to be durable too.
        for _ in 0..2 {
            self.store.sync();
            self.core.on_durable(self.now, &mut out);
        }
        Came::of(out)
    }

    fn ask(&mut self, xid: u64, slot: u16, request: &Request, data: Bytes) -> Came {
        let mut frame = request_frame(CLIENT, request);
        (frame.session, frame.xid, frame.slot, frame.data) = (self.session, Xid(xid), slot, data);
        self.hand_in(frame)
    }

    fn end(&mut self, work: &Work, data: Bytes) -> Came {
        let mut out = Vec::new();
        self.core.reply(self.now, work.token, Ok((Reply::Done, data)), &mut out);
        Came::of(out)
    }
}

fn bulk() -> Bytes {
    Bytes::from(vec![7; BULK_BYTES_MAX])
}

fn statfs() -> Request {
    Request::Mdt(MdtRequest::Statfs)
}

/// Who gives up waiting for an answer may use its slot again, and what was in it may still be under way.
#[test]
fn a_slot_that_is_used_again_and_again_begins_so_many_requests() {
    let mut scene = Scene::new();
    let mut begun = Vec::new();
    for xid in 1..=REQUESTS_PER_EXPORT_MAX as u64 {
        let came = scene.ask(xid, 0, &statfs(), Bytes::new());
        begun.extend(came.work);
    }
    assert_eq!(begun.len(), REQUESTS_PER_EXPORT_MAX);
    for slot in [0, 1] {
        let refused = scene.ask(1_000_000, slot, &statfs(), Bytes::new());
        assert_eq!((refused.statuses(), refused.work.len()), (vec![Status::Again], 0));
    }
    scene.end(&begun[0], Bytes::new());
    assert_eq!(scene.ask(1_000_000, 1, &statfs(), Bytes::new()).work.len(), 1);
}

#[test]
fn data_are_kept_for_requests_that_have_some() {
    let mut scene = Scene::new();
    let data = bulk();
    for (xid, slot) in [(1, Frame::NO_SLOT), (2, 0)] {
        let came = scene.ask(xid, slot, &statfs(), data.clone());
        assert_eq!(came.work[0].data.len(), 0);
    }
    let write = Request::Ost(OstRequest::Write {
        object: ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 },
        offset_bytes: 0,
        lock: LockId(1),
        stamp: base::WallTime(0),
        is_answered: true,
        asked: None,
    });
    assert_eq!(scene.ask(3, 1, &write, data.clone()).work[0].data, data);
}

/// Nobody of ours reads in a slot. It is read again for who asks again, and answered as it was for who has changed something.
#[test]
fn what_was_read_in_a_slot_is_not_kept() {
    let mut scene = Scene::new();
    let read = Request::Ost(OstRequest::Read {
        object: ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 },
        extent: Extent::at(0, BULK_BYTES_MAX as u64),
        lock: None,
    });
    for data in [bulk(), Bytes::new()] {
        let first = scene.ask(data.len() as u64 + 1, 0, &read, Bytes::new());
        let answer = scene.end(&first.work[0], data.clone());
        assert_eq!(answer.replies[0].data, data);
        let again = scene.ask(first.work[0].token.xid.0, 0, &read, Bytes::new());
        assert_eq!((again.work.len(), again.replies.len()), if data.is_empty() { (0, 1) } else { (1, 0) });
        again.work.iter().for_each(|work| drop(scene.end(work, data.clone())));
        scene.session = reconnected(&mut scene);
    }
}

/// The same client in its next incarnation.
fn reconnected(scene: &mut Scene) -> u64 {
    let (now, mut out) = (scene.now, Vec::new());
    scene.core.evict(now, CLIENT, EvictReason::Operator, &mut out);
    scene.hand_in(connect_frame(CLIENT, "host"));
    let came = scene.sync();
    match Reply::from_bytes(&came.replies[0].body) {
        Ok(Reply::Connected(ConnectReply { session, .. })) => session,
        other => panic!("{other:?}"),
    }
}

/// A quarter of a GiB, and not sixteen thousand of the longest frames.
#[test]
fn frames_that_wait_for_a_target_are_counted_by_their_bytes() {
    const COUNT: u128 = 100;
    let mut scene = Scene::starting();
    let data = bulk();
    for number in 0..COUNT {
        let mut frame = connect_frame(ClientId(100 + number), "host");
        frame.data = data.clone();
        scene.hand_in(frame);
    }
    scene.hand_in(connect_frame(CLIENT, "host"));
    scene.sync();
    let held: Vec<ClientId> = scene.core.clients().map(|(client, _)| client).collect();
    // Those of the bodies have room that the last data had not.
    let with_data = (256 << 20) / BULK_BYTES_MAX as u128 - 1;
    let wanted: Vec<ClientId> =
        std::iter::once(CLIENT).chain((0..with_data).map(|number| ClientId(100 + number))).collect();
    assert_eq!(held, wanted);
}

#[test]
fn what_a_client_is_called_is_cut() {
    let mut scene = Scene::new();
    let nid = |client| {
        let core = &scene.core;
        core.clients().find(|(known, _)| *known == client).map(|(_, nid)| nid.to_owned())
    };
    assert_eq!(nid(CLIENT).unwrap(), "host");
    let long = "ä".repeat(30_000);
    for (client, name) in [(ClientId(6), &long[..]), (ClientId(7), &format!("x{long}"))] {
        scene.hand_in(connect_frame(client, name));
        let known = scene.core.clients().find(|(known, _)| *known == client).unwrap().1;
        assert!(name.starts_with(known) && (299..=300).contains(&known.len()), "{} bytes", known.len());
        scene.sync();
    }
    let longest = scene.store.rows().into_values().map(|row| row.len()).max().unwrap();
    assert!(longest < 1000, "{longest} bytes in a row");
}

/// The last ones stay, and who has asked for something.
#[test]
fn sessions_that_nobody_uses_are_so_many_and_keep_nobody_out() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(1, Frame::NO_SLOT, &statfs(), Bytes::new()).work.len(), 1);
    let name = |number: usize| ClientId(1000 + number as u128);
    let mut evicted = Vec::new();
    for number in 0..UNSPOKEN_SESSIONS_MAX + 3 {
        let mut out = Vec::new();
        scene.core.on_frame(scene.now, connect_frame(name(number), "host"), &mut out);
        evicted.extend(Came::of(out).evicted);
    }
    assert_eq!(evicted, [0, 1, 2].map(name));
    assert_eq!(scene.core.clients().count(), UNSPOKEN_SESSIONS_MAX + 1);
    assert!(scene.core.is_connected(CLIENT) && scene.core.is_connected(name(UNSPOKEN_SESSIONS_MAX + 2)));
    scene.core.check();
    // Who goes makes room.
    let (now, mut out) = (scene.now, Vec::new());
    scene.core.evict(now, name(500), EvictReason::Operator, &mut out);
    let came = scene.hand_in(connect_frame(ClientId(6), "host"));
    assert_eq!(came.evicted, []);
    assert!(scene.store.applied() > scene.store.durable());
}

/// A buffer into which frames were read; whoever holds a piece of it holds all.
struct ReadBuffer {
    bytes: Vec<u8>,
    _is_held: Arc<()>,
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes as a piece of a long buffer, and whether that is still there.
fn read_with_others(bytes: &[u8]) -> (Bytes, Weak<()>) {
    let is_held = Arc::new(());
    let held = Arc::downgrade(&is_held);
    let mut buffer = vec![0; 256 << 10];
    buffer[1000..1000 + bytes.len()].copy_from_slice(bytes);
    let buffer = Bytes::from_owner(ReadBuffer { bytes: buffer, _is_held: is_held });
    (buffer.slice(1000..1000 + bytes.len()), held)
}

/// The last data of a file on its MDT.
fn close() -> Request {
    let object = ObjectId { fid: Fid::ROOT, component: 1, stripe: 0 };
    let data = ClosingData { object, offset_bytes: 0, lock: LockId(1), stamp: WallTime(0) };
    Request::Mdt(MdtRequest::Close {
        fid: Fid::ROOT,
        handle: OpenHandle(1),
        atime: None,
        unchanged_since: None,
        data: Some(data),
        cancels: Vec::new(),
        accesses: Vec::new(),
    })
}

/// What is counted by its own bytes keeps no more than those.
#[test]
fn what_waits_keeps_nothing_of_what_was_read_with_it() {
    let mut scene = Scene::starting();
    let mut frame = connect_frame(CLIENT, "host");
    let (body, buffer) = read_with_others(&frame.body);
    frame.body = body;
    let (data, other_buffer) = read_with_others(&[1, 2, 3]);
    frame.data = data;
    scene.hand_in(frame);
    assert_eq!((buffer.strong_count(), other_buffer.strong_count()), (0, 0), "before the target serves");
    scene.sync();
    assert!(scene.core.is_connected(CLIENT), "it was kept all the same");

    let mut scene = Scene::new();
    let (data, buffer) = read_with_others(&[1, 2, 3]);
    let came = scene.ask(1, 0, &close(), data);
    assert_eq!(&came.work[0].data[..], [1, 2, 3]);
    assert_eq!(buffer.strong_count(), 0, "while a request waits for others");
}

/// Who asks again and again for what has to wait for a lock has so much kept here, and all together have more, but not without an end.
#[test]
fn requests_that_wait_are_counted_by_their_bytes() {
    const PER_CLIENT: usize = (128 << 20) / BULK_BYTES_MAX;
    const IN_ALL: usize = (1 << 30) / BULK_BYTES_MAX;
    let (mut scene, data) = (Scene::new(), bulk());
    let mut begun: Vec<Work> = Vec::new();
    // Those of one client first, then of others as long as they have anything taken.
    let (mut counts, mut last_session) = (Vec::new(), scene.session);
    for number in 0..12_u128 {
        let client = if number == 0 { CLIENT } else { ClientId(100 + number) };
        if number > 0 {
            scene.hand_in(connect_frame(client, "host"));
            let came = scene.sync();
            let Ok(Reply::Connected(reply)) = Reply::from_bytes(&came.replies[0].body) else {
                panic!("answered")
            };
            last_session = reply.session;
        }
        let mut ask = |xid: u64, request: &Request, data: &Bytes| {
            let mut frame = request_frame(client, request);
            (frame.session, frame.xid, frame.slot, frame.data) =
                (last_session, Xid(xid), xid as u16 % 16, data.clone());
            scene.hand_in(frame)
        };
        let mut count = 0;
        loop {
            let came = ask(count + 1, &close(), &data);
            begun.extend(came.work);
            if came.replies.is_empty() {
                count += 1;
            } else {
                assert_eq!(came.replies[0].status, Status::Again, "it asks again later");
                break;
            }
        }
        counts.push(count as usize);
        assert_eq!(ask(10_000, &statfs(), &data).work.len(), 1, "what keeps little is begun all the same");
    }
    // The bodies count too, and so one fewer has room.
    assert_eq!(counts[0], PER_CLIENT - 1);
    let all: usize = counts.iter().sum();
    assert!((IN_ALL - 2..=IN_ALL).contains(&all) && counts[11] == 0, "{counts:?}");
    // What is answered makes room, and so does who goes.
    scene.end(&begun[0], Bytes::new());
    assert_eq!(scene.ask(20_000, 1, &close(), data.clone()).work.len(), 1);
    assert_eq!(scene.ask(20_001, 2, &close(), data.clone()).statuses(), [Status::Again]);
    let (now, mut out) = (scene.now, Vec::new());
    scene.core.evict(now, begun[all - 1].token.client, EvictReason::Operator, &mut out);
    scene.core.evict(now, CLIENT, EvictReason::Operator, &mut out);
    scene.session = reconnected(&mut scene);
    for xid in 1..PER_CLIENT as u64 {
        assert_eq!(scene.ask(xid, 1, &close(), data.clone()).work.len(), 1, "{xid}");
    }
}

/// A newer version's fields, say. They are not kept, and so they take nobody's room.
#[test]
fn what_nobody_understands_of_a_request_that_waits_does_not_count() {
    let mut scene = Scene::new();
    let long = vec![0; base::limits::FRAME_BODY_BYTES_MAX / 2];
    // As bytes that are kept these would be twice what a client has.
    let count = 2 * (128 << 20) / long.len() as u64;
    for xid in 1..=count {
        let mut frame = request_frame(CLIENT, &statfs());
        (frame.session, frame.xid, frame.slot) = (scene.session, Xid(xid), Frame::NO_SLOT);
        frame.body = [&frame.body[..], &long].concat().into();
        assert_eq!(scene.hand_in(frame).work.len(), 1, "{xid}");
    }
}

/// One names what it has open and locked, and another one does not come back for long.
#[test]
fn what_a_client_names_again_in_a_recovery_waits_within_a_bound() {
    const COUNT: u64 = 100;
    let mut scene = Scene::new();
    scene.hand_in(connect_frame(ClientId(6), "absent"));
    scene.sync();
    let session = scene.session;
    let mut options = scene.core.options().clone();
    options.now = scene.now;
    scene.core = Core::open(Arc::clone(&scene.store), options).unwrap();
    scene.sync();
    let mut connect = connect_frame(CLIENT, "host");
    let Ok(Request::Connect(mut request)) = Request::from_bytes(&connect.body) else { panic!("it is one") };
    request.session = session;
    connect.body = Request::Connect(request).to_bytes();
    let came = scene.hand_in(connect);
    let Ok(Reply::Connected(reply)) = Reply::from_bytes(&came.replies[0].body) else { panic!("answered") };
    scene.session = reply.session;
    let lock =
        FileLock { owner: 1, pid: 1, is_flock: false, kind: FlockKind::Read, extent: Extent::at(0, 1) };
    let request =
        Request::Mdt(MdtRequest::ReplayFlocks { fid: Fid::ROOT, locks: vec![lock; (1 << 20) / 32] });
    for xid in 1..=COUNT {
        let mut frame = request_frame(CLIENT, &request);
        (frame.session, frame.xid, frame.slot) = (scene.session, Xid(xid), Frame::NO_SLOT);
        frame.flags = wire::flags::REPLAY;
        assert_eq!(scene.hand_in(frame.clone()).work.len(), 0, "the other one may replay something yet");
        assert_eq!(scene.hand_in(frame).work.len(), 0, "said twice, it counts once");
    }
    let (now, mut out) = (scene.now, Vec::new());
    scene.core.evict(now, ClientId(6), EvictReason::Operator, &mut out);
    let begun: Vec<u64> = Came::of(out).work.iter().map(|work| work.token.xid.0).collect();
    let room = (QUEUED_REPLAY_BYTES_MAX / (request.to_bytes().len() + 1)) as u64;
    assert!(begun.len() as u64 <= room && begun.len() as u64 >= room - 1, "{} of {COUNT}", begun.len());
    assert!(begun.iter().copied().eq(1..=begun.len() as u64), "those that came first");
}

/// The same without a slot, as nobody of ours closes: what is short has room all the same.
#[test]
fn closes_without_a_slot_that_wait_are_counted_by_their_bytes() {
    const PER_CLIENT: usize = (128 << 20) / BULK_BYTES_MAX;
    let (mut scene, data) = (Scene::new(), bulk());
    let begun_count = |scene: &mut Scene, first: u64, data: &Bytes| {
        let xids = first..first + 2 * PER_CLIENT as u64;
        xids.take_while(|xid| scene.ask(*xid, Frame::NO_SLOT, &close(), data.clone()).work.len() == 1).count()
    };
    assert_eq!(begun_count(&mut scene, 1, &data), PER_CLIENT - 1);
    assert_eq!(begun_count(&mut scene, 1000, &Bytes::from_static(b"short")), 2 * PER_CLIENT);
}

/// A wait for an advisory lock is given up, and a copy of the request comes after that: nobody would ever give back what it gets.
#[test]
fn a_copy_of_what_was_answered_about_advisory_locks_is_not_executed() {
    let mut scene = Scene::new();
    let lock = FileLock { owner: 1, pid: 1, is_flock: false, kind: FlockKind::Write, extent: Extent::WHOLE };
    let wait = Request::Mdt(MdtRequest::Flock { fid: Fid::ROOT, lock, can_wait: true });
    let cancel = Request::Mdt(MdtRequest::FlockCancel { fid: Fid::ROOT, owner: 1, is_flock: false });
    let none = Bytes::new;
    let waiting = scene.ask(1, Frame::NO_SLOT, &wait, none()).work.remove(0);
    assert_eq!(scene.ask(1, Frame::NO_SLOT, &wait, none()).work.len(), 0, "it is under way");
    let cancelling = scene.ask(2, Frame::NO_SLOT, &cancel, none()).work.remove(0);
    let mut out = Vec::new();
    scene.core.reply(scene.now, waiting.token, Err(Status::Interrupted), &mut out);
    scene.end(&cancelling, none());
    for (xid, request, status) in [(1, &wait, Status::Interrupted), (2, &cancel, Status::Ok)] {
        let copy = scene.ask(xid, Frame::NO_SLOT, request, none());
        assert_eq!((copy.work.len(), copy.statuses()), (0, vec![status]));
    }
    // What may be asked again is, and what is only read.
    let refused = scene.ask(3, Frame::NO_SLOT, &wait, none()).work.remove(0);
    scene.core.reply(scene.now, refused.token, Err(Status::Again), &mut out);
    assert_eq!(scene.ask(3, Frame::NO_SLOT, &wait, none()).work.len(), 1);
    let read = scene.ask(4, Frame::NO_SLOT, &statfs(), none()).work.remove(0);
    scene.end(&read, none());
    assert_eq!(scene.ask(4, Frame::NO_SLOT, &statfs(), none()).work.len(), 1);
}

/// Who waits for a target sends what he asks again and again, and others have room as if he did not.
#[test]
fn copies_of_what_waits_for_a_target_take_no_room() {
    let mut scene = Scene::starting();
    let request = |client, session, xid| {
        let mut frame = request_frame(client, &statfs());
        (frame.session, frame.xid) = (session, Xid(xid));
        frame
    };
    for _ in 0..16_384 {
        scene.hand_in(request(CLIENT, 77, 5));
    }
    scene.hand_in(request(CLIENT, 77, 6));
    scene.hand_in(request(ClientId(6), 78, 5));
    let answered: Vec<(Endpoint, Xid)> =
        scene.sync().replies.iter().map(|reply| (reply.dst, reply.xid)).collect();
    let (one, other) = (CLIENT.endpoint(), ClientId(6).endpoint());
    assert_eq!(answered, [(one, Xid(5)), (one, Xid(6)), (other, Xid(5))]);
}

/// The answer that a client asks for after a restart is that to its last request in the slot, whatever it had given up before it.
#[test]
fn a_request_that_was_given_up_takes_no_slot_back() {
    let mut scene = Scene::new();
    let given_up = scene.ask(1, 0, &statfs(), Bytes::new()).work.remove(0);
    let last = scene.ask(2, 0, &statfs(), Bytes::new()).work.remove(0);
    let mut out = Vec::new();
    for (number, work) in [(2, &last), (1, &given_up)] {
        let mut batch = Batch::new();
        batch.put(7, &[number], b"done");
        scene.core.commit(scene.now, work.token, batch, Reply::Done, Bytes::new(), &mut out).unwrap();
    }
    scene.sync();
    let before = (scene.core.epoch(), scene.session);
    scene.core = Core::open(Arc::clone(&scene.store), options(scene.now)).unwrap();
    scene.sync();
    let mut replies = scene.hand_in(connect_frame_of(CLIENT, "host", before)).replies;
    replies.extend(scene.sync().replies);
    let Ok(Reply::Connected(reply)) = Reply::from_bytes(&replies[0].body) else { panic!("answered") };
    let mut ask = request_frame(CLIENT, &statfs());
    (ask.session, ask.xid, ask.slot, ask.flags) = (reply.session, Xid(2), 0, wire::flags::ASK);
    assert_eq!(scene.hand_in(ask).statuses(), [Status::Ok]);
}
