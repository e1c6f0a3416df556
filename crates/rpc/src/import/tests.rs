//! When an import sends again.

use super::*;
use base::{ClientId, TargetId};
use std::collections::BTreeMap;
use wire::session::{SessionState, features};
use wire::{ConnectReply, LockRequest, OstRequest, Reply, flags};

const TARGET: TargetId = TargetId::ost(0);

struct Caller {
    import: Import,
    now: Now,
    sent: Vec<Frame>,
    refused: BTreeMap<Ticket, Status>,
}

impl Caller {
    /// With a session.
    fn new() -> Caller {
        let options = ImportOptions {
            client: ClientId(1),
            incarnation: 1,
            fsname: "t".into(),
            nid: "caller".into(),
            starts: Vec::new(),
            target: TARGET,
            target_uuid: 0,
        };
        let now = Now { time: Time(1_000_000_000), wall: WallTime(0) };
        let mut caller =
            Caller { import: Import::new(options), now, sent: Vec::new(), refused: BTreeMap::new() };
        caller.act(|import, now, out| import.connect(now, out));
        caller.connected(1);
        caller
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Import, Now, &mut Vec<ImportOutput>) -> R) -> R {
        let mut out = Vec::new();
        let result = act(&mut self.import, self.now, &mut out);
        self.import.check();
        for output in out {
            match output {
                ImportOutput::Send(frame) => self.sent.push(frame),
                ImportOutput::Completed { ticket, result: Err(status) } => {
                    self.refused.insert(ticket, status);
                }
                _ => {}
            }
        }
        result
    }

    /// The target answers the last connect as this incarnation.
    fn connected(&mut self, epoch: u64) {
        let is_first = self.import.session == 0;
        self.connected_as(epoch, if is_first { SessionState::New } else { SessionState::Resumed });
    }

    /// The same; it waits for what is replayed.
    fn connected_to_replay(&mut self, epoch: u64) {
        self.connected_as(epoch, SessionState::Replay);
    }

    fn connected_as(&mut self, epoch: u64, state: SessionState) {
        let reply = Reply::Connected(ConnectReply {
            version: wire::VERSION,
            features: features::ALL,
            session: epoch << 8 | 1,
            state,
            target_epoch: Epoch(epoch),
            target_uuid: 0,
            slot_count: limits::SLOT_COUNT,
            server_time_ns: 0,
            lease_ms: 0,
            software: String::new(),
            started_at: base::WallTime::default(),
        });
        let connect = self.sent.pop().expect("it connects");
        self.reply(&connect, &reply);
    }

    fn reply(&mut self, to: &Frame, reply: &Reply) {
        let mut frame = Frame::new(FrameKind::Reply, to.dst, to.src);
        (frame.session, frame.xid, frame.body) = (self.import.session, to.xid, reply.to_bytes());
        self.act(|import, now, out| import.on_frame(now, frame, out));
    }

    fn refuse(&mut self, to: &Frame, status: Status) {
        let mut frame = Frame::new(FrameKind::Reply, to.dst, to.src);
        (frame.session, frame.xid, frame.status) = (self.import.session, to.xid, status);
        self.act(|import, now, out| import.on_frame(now, frame, out));
    }

    fn submit(&mut self, kind: Kind) -> Frame {
        let request = Request::Ost(OstRequest::Statfs);
        self.act(|import, now, out| import.submit(now, request, Bytes::new(), kind, 0, out));
        self.sent.pop().expect("it is sent at once")
    }

    /// Requests of this xid that are sent while so long passes.
    fn resends(&mut self, of: &Frame, wait: Duration) -> usize {
        self.sent.clear();
        let end = self.now.time.after(wait);
        while self.now.time < end {
            self.now.time = self.now.time.after(Duration::from_millis(100));
            self.act(|import, now, out| import.on_tick(now, out));
        }
        self.sent.iter().filter(|frame| frame.xid == of.xid).count()
    }

    /// A request that the target answers when it has been sent so long ago.
    fn answered_after(&mut self, wait: Duration) -> usize {
        let frame = self.submit(Kind::Plain);
        let resends = self.resends(&frame, wait);
        self.reply(&frame, &Reply::Done);
        resends
    }
}

#[test]
fn a_slow_target_is_asked_again_less_and_less_often() {
    let mut caller = Caller::new();
    let slow = Duration::from_secs(10);
    assert_eq!(caller.answered_after(slow), 2, "after two and after six seconds");
    assert_eq!(caller.answered_after(slow), 0);
    assert_eq!(caller.answered_after(slow), 0);
    assert_eq!(caller.import.timeouts(caller.now.time).current, slow);
    // What others wait for is sent again as if it were lost.
    let cancel = caller.submit(Kind::Reserved);
    assert_eq!(caller.resends(&cancel, Duration::from_secs(3)), 1);
}

#[test]
fn a_request_to_the_slowest_target_is_sent_again_all_the_same() {
    let mut caller = Caller::new();
    let never = caller.submit(Kind::Plain);
    caller.resends(&never, Duration::from_secs(590));
    assert!(caller.import.timeouts(caller.now.time).current >= Duration::from_secs(570));
    let late = caller.submit(Kind::Plain);
    assert_eq!(caller.resends(&late, limits::RESEND_MAX * 3), 3);
}

#[test]
fn what_was_expected_of_a_target_ends_with_its_incarnation() {
    let mut caller = Caller::new();
    caller.answered_after(Duration::from_millis(1500));
    assert_eq!(caller.import.timeouts(caller.now.time).current, Duration::from_millis(1500));
    // The same one, after a lost connection.
    for (epoch, expected) in [(1, 1500), (2, 0)] {
        caller.act(|import, now, out| import.on_connection_lost(now, out));
        caller.connected(epoch);
        let current = caller.import.timeouts(caller.now.time).current;
        assert_eq!(current, Duration::from_millis(expected), "incarnation {epoch}");
    }
}

#[test]
fn what_is_withdrawn_is_not_sent_again() {
    let mut caller = Caller::new();
    let request = Request::Ost(OstRequest::Statfs);
    let ticket =
        caller.act(|import, now, out| import.submit(now, request, Bytes::new(), Kind::Plain, 0, out));
    let frame = caller.sent.pop().expect("it is sent at once");
    caller.act(|import, _, _| import.withdraw(ticket));
    assert_eq!(caller.resends(&frame, Duration::from_secs(60)), 0);
    assert_eq!(caller.import.outstanding(), 0);
    caller.reply(&frame, &Reply::Done);
    // It has its answer, as far as the target is concerned.
    assert_eq!(caller.submit(Kind::Plain).acked, frame.xid);
}

/// Seed 913 of three clients, with mounts that go: the target lets a client go before it answers that, for its disk is slow.
#[test]
fn who_leaves_does_not_come_back_for_what_arrives_after_its_goodbye() {
    let mut caller = Caller::new();
    let late = caller.submit(Kind::Plain);
    caller.act(|import, now, out| import.disconnect(now, out));
    let goodbye = caller.sent.pop().expect("it says goodbye");
    caller.refuse(&late, Status::NotConnected);
    assert_eq!(caller.import.state(), ImportState::Disconnected);
    assert_eq!(caller.sent, [], "and nothing more");
    caller.reply(&goodbye, &Reply::Done);
    assert_eq!(caller.import.state(), ImportState::Disconnected);
}

/// What it has not got it cannot have executed. What was told to be written already is lost in either case.
#[test]
fn a_change_that_was_not_sent_before_an_eviction_is_told_from_one_that_was() {
    let change = |is_answered| {
        let Request::Ost(OstRequest::Write { object, offset_bytes, lock, stamp, asked, .. }) = write_to(0, 1)
        else {
            panic!("a write")
        };
        Request::Ost(OstRequest::Write { object, offset_bytes, lock, stamp, is_answered, asked })
    };
    let submit = |caller: &mut Caller, is_answered| {
        let (request, data) = (change(is_answered), Bytes::from_static(b"x"));
        caller.act(|import, now, out| import.submit(now, request, data, Kind::Modifying, 0, out))
    };
    // By its target, or by the MDT of the file.
    for is_by_mdt in [false, true] {
        let mut caller = Caller::new();
        let sent = submit(&mut caller, false);
        caller.act(|import, now, out| import.on_connection_lost(now, out));
        let connect = caller.sent.pop().expect("it connects");
        let (unsent, told) = (submit(&mut caller, false), submit(&mut caller, true));
        if is_by_mdt {
            caller.act(|import, now, out| import.give_up_writes(now, 0, out));
        } else {
            caller.sent.push(connect);
            caller.connected_as(1, SessionState::New);
        }
        let refused = |ticket| caller.refused.get(&ticket).copied();
        assert_eq!(refused(sent), Some(Status::Evicted), "it may have been executed");
        assert_eq!(refused(unsent), Some(Status::LockLost));
        assert_eq!(refused(told), Some(Status::Evicted));
    }
}

/// It was sent, and the process that was to write it to a socket ended.
#[test]
fn a_request_that_no_frame_carries_ends_and_keeps_no_slot() {
    let mut caller = Caller::new();
    let object = base::ObjectId { fid: base::Fid::ROOT, component: 0, stripe: 0 };
    let long = Request::Ost(OstRequest::Destroy { objects: vec![object; 100_000] });
    for kind in [Kind::Modifying, Kind::Plain, Kind::Reserved] {
        let mut out = Vec::new();
        let ticket = caller.import.submit(caller.now, long.clone(), Bytes::new(), kind, 0, &mut out);
        caller.import.check();
        let is_end = |output: &ImportOutput| matches!(output, ImportOutput::Completed { ticket: of, result: Err(Status::Overflow) } if *of == ticket);
        assert!(out.len() == 1 && is_end(&out[0]), "{out:?}");
    }
    assert_eq!(caller.submit(Kind::Modifying).slot, 0);
}

fn lock_request(number: u64) -> Request {
    Request::Lock(LockRequest::Enqueue {
        lock: base::LockId(number),
        resource: wire::Resource::Rename,
        mode: wire::LockMode::Pr,
        policy: wire::LockPolicy::Plain,
        can_wait: true,
    })
}

impl Caller {
    fn put(&mut self, request: Request) -> Ticket {
        self.act(|import, now, out| import.submit(now, request, Bytes::new(), Kind::Plain, 0, out))
    }

    fn bound(&mut self, plain: usize) {
        let bounds = InFlightBounds { plain, ..InFlightBounds::default() };
        self.act(|import, now, out| import.set_bounds(now, bounds, out));
    }
}

/// Who has the lock waits for what is behind it.
#[test]
fn a_request_for_a_lock_takes_no_place_of_a_read() {
    let mut caller = Caller::new();
    caller.bound(1);
    caller.put(lock_request(1));
    assert_eq!(caller.sent.len(), 1);
    for _ in 0..2 {
        caller.put(Request::Ost(OstRequest::Statfs));
    }
    assert_eq!(caller.sent.len(), 2, "one of the two");
    let first = caller.sent.pop().expect("it is sent");
    caller.reply(&first, &Reply::Done);
    assert_eq!(caller.sent.len(), 2, "and then the other");
}

#[test]
fn requests_for_locks_have_so_many_places_and_leave_them_however_they_end() {
    let mut caller = Caller::new();
    let tickets: Vec<Ticket> =
        (0..limits::PLAIN_ASIDE_MAX as u64 + 4).map(|number| caller.put(lock_request(number))).collect();
    assert_eq!(caller.sent.len(), limits::PLAIN_ASIDE_MAX);
    // One that was not sent is given up, and then one that was.
    let last = *tickets.last().expect("there are some");
    caller.act(|import, now, out| import.abandon(now, last, out));
    assert_eq!(caller.sent.len(), limits::PLAIN_ASIDE_MAX);
    caller.act(|import, now, out| import.abandon(now, tickets[0], out));
    assert_eq!(caller.sent.len(), limits::PLAIN_ASIDE_MAX + 1);
    let (granted, refused) = (caller.sent[1].clone(), caller.sent[2].clone());
    caller.reply(&granted, &Reply::Done);
    caller.refuse(&refused, Status::Stale);
    assert_eq!(caller.sent.len(), limits::PLAIN_ASIDE_MAX + 3, "all of them");
    caller.act(|import, now, out| import.disconnect(now, out));
    let goodbye = caller.sent.pop().expect("it says goodbye");
    caller.reply(&goodbye, &Reply::Done);
    assert_eq!(caller.import.outstanding(), 0);
    assert_eq!(caller.import.lanes.in_flight(), 0);
}

fn write_to(mdt: u16, number: u32) -> Request {
    let fid = base::Fid { seq: base::Fid::sequence(mdt, 0), oid: number, ver: 0 };
    Request::Ost(OstRequest::Write {
        object: base::ObjectId { fid, component: 0, stripe: 0 },
        offset_bytes: 0,
        lock: base::LockId(1),
        stamp: WallTime(0),
        is_answered: true,
        asked: None,
    })
}

impl Caller {
    fn write(&mut self, mdt: u16, number: u32) {
        let data = Bytes::from_static(b"x");
        self.act(|import, now, out| {
            import.submit(now, write_to(mdt, number), data, Kind::Modifying, 0, out);
        });
    }

    fn hold(&mut self, mdts: &[u16]) {
        let mdts = mdts.iter().copied().collect();
        self.act(|import, now, out| import.hold_writes(now, mdts, out));
    }

    /// Of which MDT's files the writes are that were sent since.
    fn written(&mut self) -> Vec<u16> {
        let mdt_of = |frame: Frame| match Request::from_bytes(&frame.body) {
            Ok(Request::Ost(request)) => request.written_file()?.mdt_index(),
            _ => None,
        };
        std::mem::take(&mut self.sent).into_iter().filter_map(mdt_of).collect()
    }
}

/// More of them are waiting than there are slots.
#[test]
fn writes_that_are_held_for_a_silent_mdt_leave_the_slots_to_others() {
    let mut caller = Caller::new();
    let slot_count = u32::from(limits::SLOT_COUNT);
    (0..2 * slot_count).for_each(|number| caller.write(0, number));
    caller.write(1, 0);
    let on_their_way = caller.sent.clone();
    assert_eq!(caller.written(), [0; limits::SLOT_COUNT as usize]);
    caller.hold(&[0]);
    for frame in &on_their_way {
        caller.reply(frame, &Reply::Done);
    }
    assert_eq!(caller.written(), [1], "the others wait");
    caller.hold(&[]);
    assert_eq!(caller.written(), [0; limits::SLOT_COUNT as usize - 1]);
}

/// The OST was restarted, and has executed none of them.
#[test]
fn held_writes_that_were_not_executed_give_their_slots_back() {
    let mut caller = Caller::new();
    (0..u32::from(limits::SLOT_COUNT)).for_each(|number| caller.write(0, number));
    caller.write(1, 0);
    caller.sent.clear();
    caller.hold(&[0]);
    caller.act(|import, now, out| import.on_connection_lost(now, out));
    caller.connected_to_replay(2);
    let questions = std::mem::take(&mut caller.sent);
    assert_eq!(questions.len(), usize::from(limits::SLOT_COUNT));
    for question in &questions {
        assert_ne!(question.flags & flags::ASK, 0);
        caller.refuse(question, Status::Again);
    }
    caller.act(|import, now, out| import.replay_now(now, Vec::new(), out));
    let done = caller.sent.pop().expect("it is done with its replays");
    caller.reply(&done, &Reply::Done);
    assert_eq!(caller.written(), [1]);
    caller.hold(&[]);
    assert_eq!(caller.written(), [0; limits::SLOT_COUNT as usize - 1], "one slot is taken");
}
