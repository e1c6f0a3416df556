//! More connections than threads.

use super::*;

const SHORT: Duration = Duration::from_millis(50);

fn limits(kept_max: usize, threads_max: usize) -> ReaderLimits {
    ReaderLimits { kept_max, threads_max, patience: SHORT, wait_max: SHORT * 2, ..ReaderLimits::DEFAULT }
}

/// A server that echoes, and where.
fn server(limits: ReaderLimits) -> (Arc<Router>, SocketAddr) {
    let far = Router::accepting(CONNECTIONS_MAX, limits);
    let _replies = echo(&far, OST);
    let address = far.listen("127.0.0.1:0").unwrap();
    (far, address)
}

fn readers(router: &Router) -> &Readers {
    router.readers.get().unwrap()
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn say(stream: &mut TcpStream, client: usize, xid: u64) {
    let src = Endpoint::Client(ClientId(1000 + client as u128));
    stream.write_all(&Frame { src, ..request(xid, 10) }.to_bytes()).unwrap();
}

/// The largest connection count up to `wanted` for which this process may have descriptors, two for each.
fn connection_count(wanted: usize) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a local. Failing, the old one stays.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    let room = usize::try_from(limit.rlim_cur / 8).unwrap_or(wanted);
    if room < wanted {
        println!("{room} connections instead of {wanted}: no more descriptors");
    }
    wanted.min(room)
}

#[test]
fn thousands_of_connections_are_answered_in_their_order_by_a_few_threads() {
    const THREADS_MAX: usize = 24;
    const FRAMES_EACH: u64 = 3;
    let count = connection_count(2000);
    let (far, address) = server(limits(8, THREADS_MAX));
    let mut streams: Vec<TcpStream> = (0..count).map(|_| connect_to(address)).collect();
    for round in 0..3 {
        for xid in 1..=FRAMES_EACH {
            let says = |(client, stream)| say(stream, client, round * 10 + xid);
            streams.iter_mut().enumerate().for_each(says);
            assert!(readers(&far).thread_count() <= THREADS_MAX);
        }
        for stream in &mut streams {
            for xid in 1..=FRAMES_EACH {
                assert_eq!(reply_on(stream), Xid(round * 10 + xid));
            }
        }
    }
    assert_eq!(read(&far.learned).len(), count);
    until("all but those that are kept are parked", || readers(&far).parked_count() + 8 >= count);
    drop(streams);
    until("they are forgotten", || lock(&far.accepted).is_empty() && read(&far.learned).len() == 0);
    until("no thread is left without need", || readers(&far).thread_count() <= 8);
    assert_eq!((readers(&far).parked_count(), far.backlogs.connection_count()), (0, 0));
    far.close();
    until("none is left", || readers(&far).thread_count() == 0);
}

#[test]
fn a_parked_connection_is_served_while_others_are_stuck_in_half_a_frame() {
    let (far, address) = server(limits(2, 8));
    let mut stuck: Vec<TcpStream> = (0..7).map(|_| connect_to(address)).collect();
    let frame = request(1, 1 << 20).to_bytes();
    // Some in what is read with others, some in a large frame.
    let says = |(at, stream): (usize, &mut TcpStream)| stream.write_all(&frame[..[7, 200][at % 2]]).unwrap();
    stuck.iter_mut().enumerate().for_each(says);
    until("each has a thread", || readers(&far).thread_count() == stuck.len());
    for client in 0..100 {
        let mut stream = connect_to(address);
        say(&mut stream, client, 5);
        assert_eq!(reply_on(&mut stream), Xid(5));
    }
    for (at, stream) in stuck.iter_mut().enumerate() {
        stream.write_all(&frame[[7, 200][at % 2]..]).unwrap();
        assert_eq!(reply_on(stream), Xid(1), "who goes on is answered");
    }
    far.close();
}

#[test]
fn who_is_stuck_in_half_a_frame_goes_when_no_thread_is_left() {
    let (far, address) = server(ReaderLimits { stalled_max: SHORT * 4, ..limits(2, 8) });
    let stuck: Vec<TcpStream> = (0..40)
        .map(|at| {
            let mut stream = connect_to(address);
            stream.write_all(&request(1, 1 << 20).to_bytes()[..[7, 200][at % 2]]).unwrap();
            stream
        })
        .collect();
    for client in 0..20 {
        let mut stream = connect_to(address);
        say(&mut stream, client, 5);
        assert_eq!(reply_on(&mut stream), Xid(5));
    }
    assert!(readers(&far).thread_count() <= 8);
    drop(stuck);
    far.close();
}

/// Each of them is in the middle of a frame whenever it is looked at, and in none of them for long.
#[test]
fn who_is_always_in_the_middle_of_a_frame_keeps_no_thread_from_others() {
    const PEER_COUNT: usize = 12;
    let (far, address) = server(limits(2, 8));
    let frame = request(1, 10).to_bytes();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = Ending(&is_over);
        for _ in 0..PEER_COUNT {
            scope.spawn(|| {
                let mut stream = connect_to(address);
                let half = frame.len() / 2;
                stream.write_all(&frame[..half]).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    // Those that wait for a thread are not read.
                    stream.set_write_timeout(Some(SHORT)).unwrap();
                    if stream.write_all(&[&frame[half..], &frame[..half]].concat()).is_err() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        until("all threads are taken", || readers(&far).thread_count() == 8);
        for client in 0..20 {
            let mut stream = connect_to(address);
            say(&mut stream, client, 5);
            assert_eq!(reply_on(&mut stream), Xid(5));
        }
    });
    far.close();
}

/// True at the end, also that of a failure.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_kept_connection_from_which_nothing_comes_makes_room_for_one_that_is_busy() {
    let (far, address) = server(limits(1, 8));
    let mut first = connect_to(address);
    say(&mut first, 0, 1);
    assert_eq!(reply_on(&mut first), Xid(1));
    let is_parked = |stream: &TcpStream| {
        let local = stream.local_addr().unwrap().to_string();
        readers(&far).parked_peers().contains(&local)
    };
    std::thread::sleep(SHORT * 3);
    assert!(!is_parked(&first), "it is alone");
    let mut second = connect_to(address);
    until("the first gives its place back", || is_parked(&first));
    until("who speaks gets it", || {
        say(&mut second, 1, 2);
        assert_eq!(reply_on(&mut second), Xid(2));
        !is_parked(&second)
    });
    drop(second);
    until("one thread waits, and there is no other", || readers(&far).thread_count() == 1);
    until("who speaks has the place, although no other thread waits", || {
        say(&mut first, 0, 3);
        assert_eq!(reply_on(&mut first), Xid(3));
        std::thread::sleep(SHORT);
        !is_parked(&first)
    });
    far.close();
}

/// Its device stands still, and more connections than there are threads have brought more than may wait for it.
#[test]
fn another_machine_is_reached_while_all_threads_wait_for_a_full_one() {
    const FRAME_BYTES: usize = 1 << 20;
    let far = Router::accepting(CONNECTIONS_MAX, ReaderLimits { stalled_max: SHORT * 4, ..limits(2, 8) });
    let free = Endpoint::Target(TargetId::ost(1));
    let _server = echo(&far, free);
    let (go, go_on) = mpsc::channel();
    let perform = Box::new(|_| ());
    let options = OwnerOptions { tick: || None, frame: Some, perform, timer: Timer::start(), lateness: None };
    far.add_local(OST, Owner::new(Stuck { go_on: Some(go_on) }, options));
    let address = far.listen("127.0.0.1:0").unwrap();
    for client in 0..24 {
        std::thread::spawn(move || {
            let src = Endpoint::Client(ClientId(100 + client));
            let mut stream = connect_to(address);
            let frame = Frame { src, ..request(1, FRAME_BYTES) }.to_bytes();
            // Until it is given up.
            while stream.write_all(&frame).is_ok() {}
        });
    }
    until("all threads but one or two wait, or have given up", || {
        let accepted = lock(&far.accepted);
        let waiting_count = accepted.values().filter(|connection| connection.is_reader_waiting()).count();
        waiting_count >= 6 || accepted.len() < 24
    });
    for client in 0..20 {
        let mut stream = connect_to(address);
        let src = Endpoint::Client(ClientId(1000 + client));
        stream.write_all(&Frame { src, dst: free, ..request(5, 10) }.to_bytes()).unwrap();
        assert_eq!(reply_on(&mut stream), Xid(5));
    }
    go.send(()).unwrap();
    far.close();
}
