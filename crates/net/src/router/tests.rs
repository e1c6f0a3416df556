#![allow(clippy::unwrap_used)]

use super::*;
use crate::callers::CALLERS_PER_CONNECTION_MAX;
use crate::connection::SHARE_BYTES_MAX;
use crate::owner::QUEUE_BYTES_MAX;
use crate::{Owner, OwnerOptions, Timer};
use base::{ClientId, Machine, Now, Xid};
use bytes::Bytes;
use std::io::{Read, Write};
use std::sync::mpsc;

/// Answers requests with their own data, and hands replies to the test.
struct Echo;

enum Output {
    Send(Frame),
    Got(Frame),
}

impl Machine for Echo {
    type Input = Option<Frame>;
    type Output = Output;

    fn handle(&mut self, _now: Now, input: Option<Frame>, out: &mut Vec<Output>) {
        let Some(frame) = input else { return };
        if frame.kind == FrameKind::Request {
            let reply = Frame { kind: FrameKind::Reply, src: frame.dst, dst: frame.src, ..frame };
            out.push(Output::Send(reply));
        } else {
            out.push(Output::Got(frame));
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn echo(router: &Arc<Router>, endpoint: Endpoint) -> mpsc::Receiver<Frame> {
    let (sender, receiver) = mpsc::channel();
    let (sender, sending) = (Mutex::new(sender), Arc::downgrade(router));
    let perform = Box::new(move |output| match output {
        Output::Send(frame) => sending.upgrade().unwrap().send(frame),
        Output::Got(frame) => sender.lock().unwrap().send(frame).unwrap(),
    });
    let options = OwnerOptions { tick: || None, frame: Some, perform, timer: Timer::start(), lateness: None };
    router.add_local(endpoint, Owner::new(Echo, options));
    receiver
}

const HEADER_BYTES: usize = 128;
const CLIENT: Endpoint = Endpoint::Client(ClientId(5));
const OST: Endpoint = Endpoint::Target(TargetId::ost(0));

fn request(xid: u64, byte_count: usize) -> Frame {
    let mut frame = Frame::new(FrameKind::Request, CLIENT, OST);
    frame.xid = Xid(xid);
    frame.body = Bytes::from(vec![1; byte_count.min(100_000)]);
    frame.data = Bytes::from(vec![2; byte_count]);
    frame
}

fn next(replies: &mpsc::Receiver<Frame>) -> Frame {
    replies.recv_timeout(Duration::from_secs(60)).unwrap()
}

/// Sends the request until a reply comes, as an import does.
fn insist(router: &Router, replies: &mpsc::Receiver<Frame>, frame: &Frame) -> Frame {
    for _ in 0..600 {
        router.send(frame.clone());
        run::run_all();
        if let Ok(reply) = replies.recv_timeout(Duration::from_millis(100)) {
            return reply;
        }
    }
    panic!("no reply in a minute");
}

#[test]
fn machines_of_one_process_talk_without_a_network() {
    let router = Router::new();
    let replies = echo(&router, CLIENT);
    let _server = echo(&router, OST);
    router.send(request(1, 10));
    run::run_all();
    assert_eq!(replies.try_recv().unwrap().xid, Xid(1));
}

#[test]
fn frames_of_all_sizes_travel_over_tcp_in_their_order() {
    let (near, far) = (Router::new(), Router::new());
    let _server = echo(&far, OST);
    let replies = echo(&near, CLIENT);
    let address = far.listen("127.0.0.1:0").unwrap();
    near.set_addresses(TargetId::ost(0), vec!["127.0.0.1:1".into(), address.to_string()]);
    // The first address refuses; the second is tried in turn.
    insist(&near, &replies, &request(1, 0));
    let sizes: Vec<usize> = (0..64).map(|at| [0, 1, 4096, 70_000, limits::BULK_BYTES_MAX][at % 5]).collect();
    for (at, size) in sizes.iter().enumerate() {
        near.send(request(at as u64 + 10, *size));
        run::run_all();
    }
    for (at, size) in sizes.iter().enumerate() {
        let reply = next(&replies);
        assert_eq!((reply.xid, reply.data.len()), (Xid(at as u64 + 10), *size));
    }
    near.close();
    far.close();
}

#[test]
fn who_is_not_reached_is_told_apart_from_a_name_that_does_not_resolve() {
    let (near, far) = (Router::new(), Router::new());
    let _server = echo(&far, OST);
    let replies = echo(&near, CLIENT);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let target = TargetId::ost(0);
    // A port without a number is looked up nowhere, and so needs no name server.
    near.set_addresses(target, vec![free.clone(), "nowhere.invalid:port".into()]);
    for _ in 0..3000 {
        near.send(request(1, 0));
        if near.unreached(target).len() == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let unreached = near.unreached(target);
    assert!(
        matches!(&unreached[0], Unreached::NotConnected { address, .. } if *address == free),
        "{unreached:?}"
    );
    assert!(
        matches!(&unreached[1], Unreached::Unresolved { address, .. } if address == "nowhere.invalid:port")
    );
    let address = far.listen(&free).unwrap();
    near.set_addresses(target, vec![address.to_string()]);
    insist(&near, &replies, &request(2, 0));
    assert_eq!(near.unreached(target), []);
    near.close();
    far.close();
}

#[test]
fn headers_of_a_newer_version_are_skipped_on_a_connection() {
    let far = Router::new();
    let _server = echo(&far, OST);
    let mut stream = TcpStream::connect(far.listen("127.0.0.1:0").unwrap()).unwrap();
    // Those that are read together with others, and one that is read in a piece of its own.
    let sizes = [0, 10, 4096, 1 << 20, 5];
    for (at, size) in sizes.iter().enumerate() {
        let more = vec![0xff; 1 + 37 * at];
        stream.write_all(&request(at as u64 + 1, *size).to_bytes_with(&more)).unwrap();
    }
    for (at, size) in sizes.iter().enumerate() {
        let wanted = request(at as u64 + 1, *size);
        let mut bytes = vec![0; wanted.to_bytes().len()];
        stream.read_exact(&mut bytes).unwrap();
        let reply = Frame::from_bytes(bytes.into()).unwrap();
        assert_eq!((reply.kind, reply.xid, reply.data), (FrameKind::Reply, wanted.xid, wanted.data));
    }
    far.close();
}

/// Hazard 8.2: connections are counted by processes and targets, not by cores or callers.
#[test]
fn a_process_has_one_connection_to_a_target_however_many_threads_and_callers_it_has() {
    let (near, far) = (Router::new(), Router::new());
    let targets = [TargetId::ost(0), TargetId::ost(1)];
    let address = far.listen("127.0.0.1:0").unwrap().to_string();
    let _servers = targets.map(|target| echo(&far, Endpoint::Target(target)));
    for target in targets {
        near.set_addresses(target, vec![address.clone()]);
    }
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let near = &near;
            scope.spawn(move || {
                let src = Endpoint::Client(ClientId(100 + caller));
                let replies = echo(near, src);
                for (xid, target) in (1..).zip([targets, targets].concat()) {
                    let frame = Frame { src, dst: Endpoint::Target(target), ..request(xid, 10) };
                    assert_eq!(insist(near, &replies, &frame).xid, Xid(xid));
                }
            });
        }
    });
    assert_eq!(lock(&far.accepted).len(), targets.len());
    near.close();
    far.close();
}

/// What an MDT tells stands behind no data of an OST of the same server, and does not end with that one's connection.
#[test]
fn each_target_of_a_server_tells_a_caller_over_the_connection_on_which_it_was_asked() {
    let far = Router::new();
    let mdt = Endpoint::Target(TargetId::mdt(0));
    let _servers = [OST, mdt].map(|target| echo(&far, target));
    let address = far.listen("127.0.0.1:0").unwrap();
    let [mut to_mdt, mut to_ost] = [mdt, OST].map(|target| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(&Frame { dst: target, ..request(1, 0) }.to_bytes()).unwrap();
        assert_eq!(reply_on(&mut stream), Xid(1));
        stream
    });
    let tell = |target, xid| {
        far.send(Frame { kind: FrameKind::Reply, src: target, dst: CLIENT, ..request(xid, 0) });
        run::run_all();
    };
    tell(mdt, 2);
    tell(OST, 3);
    assert_eq!((reply_on(&mut to_mdt), reply_on(&mut to_ost)), (Xid(2), Xid(3)));
    drop(to_ost);
    until("it is forgotten", || read(&far.learned).len() == 1);
    tell(mdt, 4);
    assert_eq!(reply_on(&mut to_mdt), Xid(4));
    far.close();
}

#[test]
fn an_address_where_the_target_is_not_any_more_is_passed_over() {
    let (near, far, elsewhere) = (Router::new(), Router::new(), Router::new());
    let _server = echo(&far, OST);
    let replies = echo(&near, CLIENT);
    // It takes connections, and drops frames for targets that it does not have.
    let wrong = elsewhere.listen("127.0.0.1:0").unwrap().to_string();
    let right = far.listen("127.0.0.1:0").unwrap().to_string();
    near.set_addresses(TargetId::ost(0), vec![wrong, right]);
    assert_eq!(insist(&near, &replies, &request(1, 10)).xid, Xid(1));
    for router in [near, far, elsewhere] {
        router.close();
    }
}

/// A connect may last until after its target has moved, and the old place may be another server's.
#[test]
fn a_connect_that_a_new_address_has_overtaken_changes_nothing() {
    let (near, old, new) = (Router::new(), Router::new(), Router::new());
    let _server = echo(&new, OST);
    let replies = echo(&near, CLIENT);
    let before = old.listen("127.0.0.1:0").unwrap().to_string();
    let after = new.listen("127.0.0.1:0").unwrap().to_string();
    let target = TargetId::ost(0);
    near.set_addresses(target, vec![before.clone()]);
    let attempt = near.attempt_count.fetch_add(1, Ordering::Relaxed);
    let waiting = vec![request(1, 10)];
    lock(&near.routes).get_mut(&target).unwrap().link = Link::Connecting { attempt, waiting };
    near.set_addresses(target, vec![after]);
    run::run_all();
    assert_eq!(next(&replies).xid, Xid(1), "what waited goes to the new address");
    let late = connect(&before, &near.backlogs).unwrap();
    assert!(!near.on_connected(target, attempt, &late));
    near.on_connect_failed(target, attempt, None);
    near.send(request(2, 10));
    run::run_all();
    assert_eq!(next(&replies).xid, Xid(2), "and so does what is sent then");
    for router in [near, old, new] {
        router.close();
    }
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    let (near, first) = (Router::new(), Router::new());
    let replies = echo(&near, CLIENT);
    let _server = echo(&first, OST);
    let address = first.listen("127.0.0.1:0").unwrap().to_string();
    near.set_addresses(TargetId::ost(0), vec![address.clone()]);
    insist(&near, &replies, &request(1, 10));
    first.close();
    let second = Router::new();
    let _server = echo(&second, OST);
    let mut listened = second.listen(&address);
    for _ in 0..3000 {
        if listened.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        listened = second.listen(&address);
    }
    listened.unwrap();
    assert_eq!(insist(&near, &replies, &request(2, 10)).xid, Xid(2));
    near.close();
    second.close();
}

#[test]
fn a_connection_that_is_given_up_is_made_anew_and_its_sessions_are_told() {
    let (near, far) = (Router::new(), Router::new());
    let replies = echo(&near, CLIENT);
    let _server = echo(&far, OST);
    let (told, lost) = mpsc::channel();
    near.on_lost(move |target| told.send(target).unwrap());
    near.drop_connection(TargetId::ost(0));
    let address = far.listen("127.0.0.1:0").unwrap().to_string();
    near.set_addresses(TargetId::ost(0), vec![address]);
    near.drop_connection(TargetId::ost(0));
    insist(&near, &replies, &request(1, 10));
    assert!(lost.try_recv().is_err(), "there was none");
    near.drop_connection(TargetId::ost(0));
    assert_eq!(lost.recv_timeout(Duration::from_secs(60)).unwrap(), TargetId::ost(0));
    assert_eq!(insist(&near, &replies, &request(2, 10)).xid, Xid(2));
    near.close();
    far.close();
    assert!(lost.try_recv().is_err(), "it is told once");
}

/// A connected pair, and who is told of connections of the first one that have ended.
fn told_pair() -> (Arc<Router>, Arc<Router>, mpsc::Receiver<Frame>, mpsc::Receiver<TargetId>) {
    let (near, far) = (Router::new(), Router::new());
    let replies = echo(&near, CLIENT);
    echo(&far, OST);
    let (told, lost) = mpsc::channel();
    near.on_lost(move |target| told.send(target).unwrap());
    near.set_addresses(TargetId::ost(0), vec![far.listen("127.0.0.1:0").unwrap().to_string()]);
    insist(&near, &replies, &request(1, 10));
    (near, far, replies, lost)
}

/// It would wait for what was under way as for an answer that is slow.
#[test]
fn sessions_are_told_of_a_connection_that_has_ended_also_where_somebody_sends_before_its_reader_notices() {
    let (near, far, replies, lost) = told_pair();
    // Its reader stops here.
    let learned = read(&near.learned);
    match &lock(&near.routes)[&TargetId::ost(0)].link {
        Link::Up(connection) => connection.close(),
        _ => panic!("it is up"),
    }
    near.send_to_target(TargetId::ost(0), request(2, 10));
    assert!(lost.try_recv().is_err());
    drop(learned);
    assert_eq!(lost.recv_timeout(Duration::from_secs(60)).unwrap(), TargetId::ost(0));
    assert_eq!(insist(&near, &replies, &request(3, 10)).kind, FrameKind::Reply);
    near.close();
    far.close();
    assert!(lost.try_recv().is_err(), "it is told once");
}

#[test]
fn sessions_are_told_when_their_target_is_elsewhere() {
    let (near, far, replies, lost) = told_pair();
    let other = Router::new();
    let _server = echo(&other, OST);
    let address = other.listen("127.0.0.1:0").unwrap().to_string();
    near.set_addresses(TargetId::ost(0), vec![address]);
    assert_eq!(lost.recv_timeout(Duration::from_secs(60)).unwrap(), TargetId::ost(0));
    assert_eq!(insist(&near, &replies, &request(2, 10)).xid, Xid(2));
    [near, far, other].iter().for_each(|router| router.close());
    assert!(lost.try_recv().is_err(), "it is told once");
}

/// A device stood still, so that the rest of what a connection had brought was read long after its client had made another one.
#[test]
fn what_comes_late_by_an_older_connection_takes_no_caller_away_from_a_newer_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backlogs = Arc::default();
    let connect = || {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Connection::new(stream, String::new(), &backlogs).unwrap()
    };
    let (first, second) = (connect(), connect());
    let conversation = Conversation { caller: CLIENT, asked: OST };
    let mut callers = Callers::default();
    for connection in [&first, &second, &first] {
        assert!(callers.learn(conversation, connection));
    }
    assert!(callers.is_at(&conversation, &second));
    first.close();
    callers.forget(&first);
    assert!(callers.is_at(&conversation, &second));
    assert_eq!(callers.len(), 1);
    // One that has ended is no way to anybody.
    let third = connect();
    assert!(callers.learn(conversation, &third));
    third.close();
    assert!(callers.learn(conversation, &second));
    assert!(callers.is_at(&conversation, &second));
}

#[test]
fn a_peer_that_sends_garbage_loses_its_connection_and_nobody_else() {
    let (near, far) = (Router::new(), Router::new());
    let replies = echo(&near, CLIENT);
    let _server = echo(&far, OST);
    let address = far.listen("127.0.0.1:0").unwrap();
    near.set_addresses(TargetId::ost(0), vec![address.to_string()]);
    let mut damaged = request(3, 100).to_bytes();
    *damaged.last_mut().unwrap() ^= 1;
    let mut too_long = request(3, 100).to_bytes();
    too_long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    for garbage in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), damaged, too_long] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&garbage).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // A reset is as good as an end: it may overtake the end when bytes were left unread.
        assert!(matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_)));
    }
    assert_eq!(insist(&near, &replies, &request(4, 10)).xid, Xid(4));
    near.close();
    far.close();
}

#[test]
fn a_peer_that_does_not_read_blocks_nobody() {
    let far = Router::new();
    let _server = echo(&far, OST);
    let address = far.listen("127.0.0.1:0").unwrap();
    let mut deaf = TcpStream::connect(address).unwrap();
    for xid in 1..20 {
        deaf.write_all(&request(xid, limits::BULK_BYTES_MAX).to_bytes()).unwrap();
    }
    let near = Router::new();
    let other = Endpoint::Client(ClientId(6));
    let replies = echo(&near, other);
    near.set_addresses(TargetId::ost(0), vec![address.to_string()]);
    assert_eq!(insist(&near, &replies, &Frame { src: other, ..request(1, 10) }).xid, Xid(1));
    near.close();
    far.close();
}

/// One that brings as many names as all others may have together is answered for some of them, and others come as ever.
#[test]
fn names_that_one_connection_makes_up_leave_room_for_others() {
    const NAME_COUNT: usize = 70_000;
    let (near, far) = (Router::new(), Router::new());
    let _server = echo(&far, OST);
    let address = far.listen("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let is_last = |xid: Xid| xid == Xid(NAME_COUNT as u64);
        (1..).find(|_| is_last(reply_on(&mut answers)))
    });
    for number in 0..NAME_COUNT {
        let src = Endpoint::Client(ClientId(1000 + number as u128));
        stream.write_all(&Frame { src, ..request(0, 0) }.to_bytes()).unwrap();
    }
    // Who was there first is there.
    let src = Endpoint::Client(ClientId(1000));
    stream.write_all(&Frame { src, ..request(NAME_COUNT as u64, 0) }.to_bytes()).unwrap();
    assert_eq!(reader.join().unwrap(), Some(CALLERS_PER_CONNECTION_MAX + 1));
    assert_eq!(read(&far.learned).len(), CALLERS_PER_CONNECTION_MAX);
    let replies = echo(&near, CLIENT);
    near.set_addresses(TargetId::ost(0), vec![address.to_string()]);
    assert_eq!(insist(&near, &replies, &request(1, 10)).xid, Xid(1));
    // One of those names turns out to be somebody else's, and makes room for another one where it was.
    let moved = Endpoint::Client(ClientId(1001));
    let replies = echo(&near, moved);
    assert_eq!(insist(&near, &replies, &Frame { src: moved, ..request(1, 10) }).xid, Xid(1));
    for name in [ClientId(7), ClientId(8)] {
        stream.write_all(&Frame { src: Endpoint::Client(name), ..request(5, 0) }.to_bytes()).unwrap();
    }
    assert_eq!(reply_on(&mut stream), Xid(5));
    let taken = Conversation { caller: Endpoint::Client(ClientId(7)), asked: OST };
    until("the frames were taken", || read(&far.learned).connection_of(&taken).is_some());
    assert_eq!(read(&far.learned).len(), CALLERS_PER_CONNECTION_MAX + 2);
    near.close();
    far.close();
}

/// Waits, for long if need be, until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not in a minute: {what}");
}

/// Stands still at its first frame, as in a write to its disk, until it may go on; then says whose frames come, and which.
struct Stuck {
    go_on: Option<mpsc::Receiver<()>>,
}

impl Machine for Stuck {
    type Input = Option<Frame>;
    type Output = (Endpoint, Xid);

    fn handle(&mut self, _now: Now, input: Option<Frame>, out: &mut Vec<(Endpoint, Xid)>) {
        let Some(frame) = input else { return };
        if let Some(go_on) = self.go_on.take() {
            go_on.recv().unwrap();
        }
        out.push((frame.src, frame.xid));
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn reply_on(stream: &mut TcpStream) -> Xid {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let byte_count = Frame::byte_count(&header).unwrap().unwrap();
    let mut bytes = header.to_vec();
    bytes.resize(byte_count, 0);
    stream.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
    Frame::from_bytes(bytes.into()).unwrap().xid
}

/// Each of them brings more than may wait. Who brings little is in nobody's way, also where the same connection leads to another target,
/// and nothing of all of it is lost.
#[test]
fn many_connections_do_not_outrun_a_machine() {
    const CONNECTION_COUNT: u64 = 8;
    const FRAME_COUNT: u64 = 96;
    const FRAME_BYTES: usize = 256 << 10;
    let far = Router::new();
    let (other, free) = (TargetId::ost(1), Endpoint::Target(TargetId::ost(1)));
    let _server = echo(&far, free);
    let (go, go_on) = mpsc::channel();
    let (sender, seen) = mpsc::channel();
    let sender = Mutex::new(sender);
    let perform = Box::new(move |output| sender.lock().unwrap().send(output).unwrap());
    let options = OwnerOptions { tick: || None, frame: Some, perform, timer: Timer::start(), lateness: None };
    let stuck = Owner::new(Stuck { go_on: Some(go_on) }, options);
    far.add_local(OST, stuck.clone());
    let address = far.listen("127.0.0.1:0").unwrap();
    let writers: Vec<_> = (0..CONNECTION_COUNT)
        .map(|number| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for xid in 1..=FRAME_COUNT {
                    let src = Endpoint::Client(ClientId(100 + u128::from(number)));
                    let mut frame = Frame { src, ..request(xid, 0) };
                    frame.data = Bytes::from(vec![2; FRAME_BYTES]);
                    stream.write_all(&frame.to_bytes()).unwrap();
                }
                stream
            })
        })
        .collect();
    // One of them is in the machine itself.
    until("all others wait", || {
        let accepted = lock(&far.accepted);
        accepted.values().filter(|connection| connection.is_reader_waiting()).count()
            >= CONNECTION_COUNT as usize - 1
    });
    let one_more = SHARE_BYTES_MAX + FRAME_BYTES;
    assert!(stuck.queued_bytes() <= QUEUE_BYTES_MAX + CONNECTION_COUNT as usize * one_more);
    assert!(stuck.queued_bytes() >= QUEUE_BYTES_MAX, "only then is anybody to wait");
    let mut modest = TcpStream::connect(address).unwrap();
    for xid in 1..=100 {
        modest.write_all(&request(xid, 10).to_bytes()).unwrap();
        modest.write_all(&Frame { dst: free, ..request(xid, 10) }.to_bytes()).unwrap();
    }
    for xid in 1..=100 {
        assert_eq!(reply_on(&mut modest), Xid(xid), "{other} answers");
    }
    go.send(()).unwrap();
    let mut last: HashMap<Endpoint, u64> = HashMap::new();
    for _ in 0..CONNECTION_COUNT * FRAME_COUNT + 100 {
        let (src, xid) = seen.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(xid.0, last.insert(src, xid.0).unwrap_or(0) + 1, "all of each, in their order");
    }
    drop(writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>());
    assert_eq!(stuck.queued_bytes(), 0);
    far.close();
}

#[test]
fn who_says_nothing_makes_room_for_somebody_who_does() {
    let far = Router::accepting(3, ReaderLimits::DEFAULT);
    let _server = echo(&far, OST);
    let address = far.listen("127.0.0.1:0").unwrap();
    let connect = || {
        let is_there = |local| lock(&far.accepted).values().any(|other| other.peer() == local);
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let local = stream.local_addr().unwrap().to_string();
        until("it is accepted", || is_there(&*local));
        stream
    };
    // Each is another client, who is answered where he asks.
    let ask = |stream: &mut TcpStream, xid| {
        let port = stream.local_addr().unwrap().port();
        let frame = Frame { src: Endpoint::Client(ClientId(port.into())), ..request(xid, 10) };
        stream.write_all(&frame.to_bytes()).unwrap();
        assert_eq!(reply_on(stream), Xid(xid));
    };
    let mut first = connect();
    ask(&mut first, 1);
    let [mut silent, mut later] = [connect(), connect()];
    // The first was heard less lately than either; but it has said who it is.
    let mut new = connect();
    assert!(matches!(silent.read(&mut [0; 16]), Ok(0) | Err(_)), "it makes room");
    ask(&mut new, 2);
    ask(&mut later, 3);
    ask(&mut first, 4);
    // All of them are in use.
    let mut refused = TcpStream::connect(address).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(matches!(refused.read(&mut [0; 16]), Ok(0)), "and changes nothing for the others");
    for (xid, stream) in (5..).zip([&mut first, &mut new, &mut later]) {
        ask(stream, xid);
    }
    assert_eq!(lock(&far.accepted).len(), 3);
    far.close();
}

#[test]
fn the_connection_that_is_of_the_least_use_is_given_up() {
    let now = Time::ZERO.after(SILENT_MAX * 3);
    let ago = |wait: Duration| Time(now.0 - u64::try_from(wait.as_nanos()).unwrap());
    let (moment, silence) = (Duration::from_secs(1), SILENT_MAX);
    let least = |uses: &[(bool, Duration)]| {
        least_useful(uses.iter().map(|(is_known, wait)| (*is_known, ago(*wait))), now)
    };
    assert_eq!(least(&[(true, moment), (false, moment), (false, moment * 2)]), Some(2));
    assert_eq!(least(&[(true, silence * 2), (false, moment)]), Some(1), "it never said who it is");
    assert_eq!(least(&[(true, silence), (true, silence * 2), (true, moment)]), Some(1));
    assert_eq!(least(&[(true, silence - moment), (true, moment)]), None, "those may have sessions");
}

/// Of machines with so many connections each, heard so many seconds ago; the place that goes for a newcomer of another one.
#[test]
fn a_machine_with_more_than_half_of_the_places_makes_room_for_others() {
    let now = Time::ZERO.after(SILENT_MAX);
    let [greedy, modest, other] = [1, 2, 3].map(|last| Some(IpAddr::from([10, 0, 0, last])));
    let given_up = |places: &[(Option<IpAddr>, u64)], newcomer| {
        let places =
            places.iter().map(|(machine, seconds)| (*machine, Time(now.0 - seconds * 1_000_000_000)));
        of_the_greediest(places, newcomer)
    };
    let places = [(modest, 9), (greedy, 1), (greedy, 3), (greedy, 2)];
    for newcomer in [modest, other] {
        assert_eq!(given_up(&places, newcomer), Some(2), "what it has not used for longest");
    }
    assert_eq!(given_up(&places, greedy), None, "it gets no more by that");
    assert_eq!(given_up(&places, None), None);
    let half = [(modest, 9), (greedy, 1), (greedy, 3), (other, 2)];
    assert_eq!(given_up(&half, other), None, "as many as all others have");
    let unknown = [(None, 9), (None, 1), (None, 3), (other, 2)];
    assert_eq!(given_up(&unknown, other), None);
}

/// An OST answers a read of one byte out of the block in which it is.
#[test]
fn a_short_part_of_something_long_waits_without_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let connection = Connection::new(stream, "a test".into(), &Arc::default()).unwrap();
    let block = Bytes::from(vec![7; 4096]);
    connection.send(&Frame { data: block.slice(..1), ..request(1, 0) });
    assert!(block.is_unique(), "nothing that waits has a part in it");
    let large = Bytes::from(vec![7; 1 << 20]);
    connection.send(&Frame { data: large.clone(), ..request(2, 0) });
    assert!(!large.is_unique(), "it is not copied");
    run::run_all();
    let (mut peer, _) = listener.accept().unwrap();
    let mut sent = vec![0; 2 * wire::frame::HEADER_BYTES];
    peer.read_exact(&mut sent).unwrap();
    connection.close();
}

/// Each alone stays far below what one may have.
#[test]
fn peers_that_ask_and_do_not_read_have_a_bound_together() {
    const PEER_COUNT: usize = 4;
    const REQUEST_COUNT: usize = 24;
    const BYTES_MAX: usize = 8 << 20;
    let (near, far) = (Router::new(), Router::new());
    far.backlogs().set_byte_count_max(BYTES_MAX);
    let (sending, answered) = (Arc::downgrade(&far), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&answered);
    let perform = Box::new(move |output| {
        let Output::Send(frame) = output else { panic!("only requests come") };
        sending.upgrade().unwrap().send(frame);
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let options = OwnerOptions { tick: || None, frame: Some, perform, timer: Timer::start(), lateness: None };
    far.add_local(OST, Owner::new(Echo, options));
    let address = far.listen("127.0.0.1:0").unwrap();
    let mut deaf = Vec::new();
    for peer in 0..PEER_COUNT {
        let mut stream = TcpStream::connect(address).unwrap();
        let src = Endpoint::Client(ClientId(100 + peer as u128));
        for xid in 1..=REQUEST_COUNT {
            stream.write_all(&Frame { src, ..request(xid as u64, 1 << 20) }.to_bytes()).unwrap();
        }
        deaf.push(stream);
    }
    let all = (PEER_COUNT * REQUEST_COUNT) as u64;
    until("all are answered, or dropped", || answered.load(Ordering::SeqCst) == all);
    let waiting = far.backlogs().byte_count();
    // Each of them may have its share and one frame beyond.
    let beyond = PEER_COUNT * (crate::backlogs::SHARE_BYTES + (1 << 20) + 200_000);
    assert!((BYTES_MAX / 2..=BYTES_MAX + beyond).contains(&waiting), "{waiting} bytes wait");
    let other = Endpoint::Client(ClientId(6));
    let replies = echo(&near, other);
    near.set_addresses(TargetId::ost(0), vec![address.to_string()]);
    for xid in 1..10 {
        let asked = Frame { src: other, ..request(xid, limits::BULK_BYTES_MAX) };
        assert_eq!(insist(&near, &replies, &asked).xid, Xid(xid), "who reads is answered");
    }
    drop(deaf);
    until("nothing waits any more", || far.backlogs().byte_count() == 0);
    near.close();
    far.close();
}

/// A mount asks targets, and is asked by none: somebody at the address of one of them does not get what is meant for another one.
#[test]
fn a_server_that_takes_the_name_of_another_one_gets_nothing_that_is_meant_for_it() {
    let (near, far) = (Router::new(), Router::new());
    let (mdt, replies) = (TargetId::mdt(0), echo(&near, CLIENT));
    let _server = echo(&far, Endpoint::Target(mdt));
    let wrong = TcpListener::bind("127.0.0.1:0").unwrap();
    near.set_addresses(TargetId::ost(0), vec![wrong.local_addr().unwrap().to_string()]);
    near.set_addresses(mdt, vec![far.listen("127.0.0.1:0").unwrap().to_string()]);
    near.send(request(1, 10));
    run::run_all();
    let (mut stranger, _) = wrong.accept().unwrap();
    assert_eq!(reply_on(&mut stranger), Xid(1), "it is asked as the OST that it is taken for");
    let claim = Frame { src: Endpoint::Target(mdt), dst: CLIENT, ..request(2, 10) };
    stranger.write_all(&claim.to_bytes()).unwrap();
    let answer = Frame { kind: FrameKind::Reply, src: OST, dst: CLIENT, ..request(1, 10) };
    stranger.write_all(&answer.to_bytes()).unwrap();
    assert_eq!(next(&replies).xid, Xid(1), "what came before this was seen, too");
    let asked = Frame { dst: Endpoint::Target(mdt), ..request(3, 10) };
    assert_eq!(insist(&near, &replies, &asked).src, Endpoint::Target(mdt));
    assert_eq!(read(&near.learned).len(), 0);
    near.close();
    far.close();
}

mod parked;
