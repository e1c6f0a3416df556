//! Servers as machines, in memory: a client connects and sends damaged requests that decode all the same. Any answer is
//! right; a panic is not, nor an invariant that does not hold afterwards.

use super::mutate;
use base::{ClientId, Duration, Endpoint, Epoch, Machine, Now, Rng, TargetId, Time, WallTime, Xid};
use bytes::Bytes;
use std::sync::Arc;
use store::memory::{MemoryMeta, MemoryObjects, SyncMode};
use wire::{ConnectRequest, Frame, FrameKind, Reply, Request};

const ROUNDS: usize = 4000;
const CLIENT: ClientId = ClientId(7);
const UUID: u128 = 9;

fn at(round: usize) -> Now {
    Now { time: Time(1_000_000 * round as u64 + 1), wall: WallTime(1_700_000_000_000_000_000) }
}

fn connect(target: TargetId) -> Frame {
    let mut frame = Frame::new(FrameKind::Request, CLIENT.endpoint(), Endpoint::Target(target));
    frame.xid = Xid(1);
    let request = ConnectRequest {
        version: wire::VERSION,
        version_oldest: wire::VERSION_OLDEST,
        features: 0,
        fsname: "scratch".to_owned(),
        client: CLIENT,
        incarnation: 1,
        target_epoch: Epoch::ZERO,
        session: 0,
        nid: "0@lo".to_owned(),
        target_uuid: UUID,
        starts: wire::Starts::default(),
    };
    frame.body = Request::Connect(request).to_bytes();
    frame
}

/// Sends damaged requests; how many of them came as far as the machine.
fn feed<M: Machine>(
    target: TargetId,
    mut machine: M,
    frame_input: fn(Frame) -> M::Input,
    other_inputs: &[fn() -> M::Input],
    frame_of: fn(M::Output) -> Option<Frame>,
) {
    let examples = super::decoders::requests();
    let mut rng = Rng::new(super::seed());
    let mut session = 0;
    let (mut sent_count, mut answer_count) = (0, 0);
    let rounds = ROUNDS * super::factor();
    for round in 0..rounds {
        let mut out = Vec::new();
        if round % 200 == 0 {
            // It may have been evicted.
            machine.handle(at(round), frame_input(connect(target)), &mut out);
        }
        if round % 50 == 0 {
            for input in other_inputs {
                machine.handle(at(round), input(), &mut out);
            }
        }
        let bytes = mutate::input(&mut rng, &examples);
        if let Ok(request) = Request::from_bytes(&bytes) {
            let mut frame = Frame::new(FrameKind::Request, CLIENT.endpoint(), Endpoint::Target(target));
            frame.session = session;
            frame.xid = Xid(2 + round as u64);
            frame.slot = if rng.one_in(2) { Frame::NO_SLOT } else { rng.below(20) as u16 };
            frame.flags = if rng.one_in(8) { rng.next_u64() as u32 & 7 } else { 0 };
            frame.body = request.to_bytes();
            frame.data = if rng.one_in(2) { Bytes::from(mutate::random(&mut rng)) } else { Bytes::new() };
            machine.handle(at(round), frame_input(frame), &mut out);
            sent_count += 1;
        }
        machine.check();
        for frame in out.into_iter().filter_map(frame_of).filter(|frame| frame.kind == FrameKind::Reply) {
            answer_count += 1;
            if let Ok(Reply::Connected(reply)) = Reply::from_bytes(&frame.body) {
                session = reply.session;
            }
        }
    }
    assert!(session > 0, "{target} took the client");
    assert!(sent_count > rounds / 4, "{target}: {sent_count} requests could be decoded");
    assert!(answer_count > sent_count / 4, "{target}: {answer_count} answers to {sent_count} requests");
}

fn mdt() {
    let options = mds::MdsOptions {
        index: 0,
        uuid: UUID,
        fsname: "scratch".to_owned(),
        nid: "0@lo".to_owned(),
        now: at(0),
        device: 1,
        recovery_window: Duration::from_secs(60),
        root_owner: (0, 0),
    };
    let store = Arc::new(MemoryMeta::with(SyncMode::OnKick, None));
    let Ok(machine) = mds::Mds::open(store, options) else { panic!("an MDT in memory opens") };
    feed(
        TargetId::mdt(0),
        machine,
        mds::Input::Frame,
        &[|| mds::Input::Durable, || mds::Input::Tick],
        |output| match output {
            mds::Output::Send(frame) => Some(frame),
            mds::Output::Event(_) => None,
        },
    );
}

fn ost() {
    let options = oss::OssOptions::new(0, UUID, "scratch", 1, at(0));
    let store = Arc::new(MemoryMeta::with(SyncMode::OnKick, None));
    let objects = Arc::new(MemoryObjects::with(SyncMode::OnKick, None));
    let Ok(machine) = oss::Oss::open(store, objects, options) else { panic!("an OST in memory opens") };
    feed(
        TargetId::ost(0),
        machine,
        oss::Input::Frame,
        &[|| oss::Input::Durable, || oss::Input::Tick],
        |output| match output {
            oss::Output::Send(frame) => Some(frame),
            oss::Output::Fetch { .. } | oss::Output::Event(_) => None,
        },
    );
}

fn mgs() {
    let options = mgs::MgsOptions {
        uuid: UUID,
        now: at(0),
        recovery_window: Duration::from_secs(60),
        active_until: None,
    };
    let store = Arc::new(MemoryMeta::with(SyncMode::OnKick, None));
    let Ok(machine) = mgs::Mgs::open(store, options) else { panic!("an MGS in memory opens") };
    feed(
        TargetId::MGT,
        machine,
        mgs::Input::Frame,
        &[|| mgs::Input::Durable, || mgs::Input::Tick],
        |output| match output {
            mgs::Output::Send(frame) => Some(frame),
            mgs::Output::Event(_) | mgs::Output::Probe(_) => None,
        },
    );
}

pub fn feed_all() {
    mdt();
    ost();
    mgs();
}
