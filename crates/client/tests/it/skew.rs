//! Versions that meet: recorded clients against the servers of today, recorded servers against the clients of today, and a
//! version that does not exist yet against both.
//!
//! `fixtures/VERSION/SESSION.frames` were recorded by the programs of that version, and stay as they are. For a version that is
//! to be released: `cargo test --release -p client --test it -- --ignored record_the`. What servers say to each other is in
//! `servers`.

mod alone;
pub mod management;
mod meaning;
mod newer;
mod newer_servers;
mod played;
mod server_sessions;
mod servers;
mod sessions;
pub mod tap;
pub mod tape;

use crate::world::World;
use base::Time;
use management::Management;
use meaning::Meaning;
use played::{MDT_COUNT, OST_COUNT, Servers, play_clients};
use sessions::{SESSIONS, Session};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tap::Tap;
use tape::{Tape, What};
use wire::{Callback, Frame, FrameKind, Reply, Request};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A world whose frames pass this tap from the first one on.
fn world(session: &Session, tap: Tap) -> World {
    let mut world = World::new(MDT_COUNT, OST_COUNT, 0);
    world.management = Some(Management::new(world.now));
    world.tap = tap;
    add_mounts(&mut world, session);
    world.run();
    world
}

fn add_mounts(world: &mut World, session: &Session) {
    for number in 0..session.mount_count {
        world.add_mount(number as u128 + 1);
        // Clients of the first version told of none.
        let never =
            client::AccessTimes { files: client::AccessRule::Never, directories: client::AccessRule::Never };
        world.input(number, client::Input::Set(client::Setting::AccessTimes(never)));
    }
}

fn record(session: &Session) -> Tape {
    let mut world = world(session, Tap::Recording(Vec::new()));
    (session.run)(&mut world);
    let Tap::Recording(moments) = std::mem::replace(&mut world.tap, Tap::Open) else { panic!("it records") };
    let (version, name) = (VERSION.to_owned(), session.name.to_owned());
    Tape { version, session: name, mount_count: session.mount_count, moments }
}

/// Plays the servers of a recording to clients of today, to which the same happens as to those of then.
fn play_servers(tape: &Tape) -> Vec<String> {
    let session = SESSIONS.iter().find(|session| session.name == tape.session);
    let session = session.unwrap_or_else(|| panic!("no script is called {}", tape.session));
    assert_eq!(session.mount_count, tape.mount_count);
    let mut world = world(session, Tap::Servers(Box::new(Servers::new(tape.clone()))));
    (session.run)(&mut world);
    let Tap::Servers(servers) = &world.tap else { panic!("they are there to the end") };
    servers.differences()
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// All recordings of all versions, and their bytes.
fn recorded() -> Vec<(Tape, Vec<u8>)> {
    read_tapes("")
}

/// Those in this folder of each version.
#[expect(clippy::disallowed_methods, reason = "recordings are files of the repository")]
fn read_tapes(folder: &str) -> Vec<(Tape, Vec<u8>)> {
    let list = |dir: PathBuf| {
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        paths
    };
    let folders = list(fixtures()).into_iter().map(|version| version.join(folder));
    let paths = folders
        .filter(|path| path.is_dir())
        .flat_map(list)
        .filter(|path| path.extension().is_some_and(|it| it == "frames"));
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tape = Tape::from_bytes(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let place = fixtures().join(&tape.version).join(folder).join(format!("{}.frames", tape.session));
        assert_eq!(path, place, "it is what it is called");
        (tape, bytes)
    };
    paths.map(read).collect()
}

#[test]
#[ignore = "writes fixtures; for a version that is to be released"]
fn record_the_sessions_of_this_version() {
    for session in SESSIONS {
        write_tape(&fixtures().join(VERSION), session, record);
    }
}

/// Leaves alone what is there.
fn write_tape(dir: &Path, session: &Session, record: impl FnOnce(&Session) -> Tape) {
    use std::io::Write;
    let path = dir.join(format!("{}.frames", session.name));
    if path.exists() {
        return;
    }
    std::fs::create_dir_all(dir).expect("a directory for recordings");
    let made = std::fs::File::options().write(true).create_new(true).open(&path);
    let mut file = made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.write_all(&record(session).to_bytes()).expect("a recording is written");
}

#[test]
fn servers_serve_the_clients_of_each_version_as_then() {
    for (tape, _) in recorded() {
        let differences = play_clients(&tape);
        assert!(differences.is_empty(), "{} of {}:\n{}", tape.session, tape.version, differences.join("\n"));
    }
}

#[test]
fn clients_understand_the_servers_of_each_version_as_then() {
    for (tape, _) in recorded() {
        let differences = play_servers(&tape);
        assert!(differences.is_empty(), "{} of {}:\n{}", tape.session, tape.version, differences.join("\n"));
    }
}

/// What is recorded is what is sent: a change of the encoding shows here, and needs another version.
#[test]
fn this_version_writes_what_it_has_recorded() {
    assert_written_as_recorded(recorded(), SESSIONS);
}

fn assert_written_as_recorded(recorded: Vec<(Tape, Vec<u8>)>, sessions: &[Session]) {
    let of_version: Vec<_> = recorded.into_iter().filter(|(tape, _)| tape.version == VERSION).collect();
    let names: BTreeSet<&str> = of_version.iter().map(|(tape, _)| tape.session.as_str()).collect();
    let wanted: BTreeSet<&str> = sessions.iter().map(|session| session.name).collect();
    assert_eq!(names, wanted, "every session was recorded by {VERSION}");
    for (tape, bytes) in &of_version {
        assert!(tape.to_bytes() == *bytes, "headers are what they were: {}", tape.session);
        for frame in tape.frames() {
            assert_eq!(body_again(frame), frame.body, "{:?} in {}", Meaning::of(frame), tape.session);
        }
    }
}

fn body_again(frame: &Frame) -> bytes::Bytes {
    match frame.kind {
        FrameKind::Request => Request::from_bytes(&frame.body).expect("a request").to_bytes(),
        FrameKind::Reply if frame.body.is_empty() => bytes::Bytes::new(),
        FrameKind::Reply => Reply::from_bytes(&frame.body).expect("a reply").to_bytes(),
        FrameKind::Callback => Callback::from_bytes(&frame.body).expect("a callback").to_bytes(),
    }
}

#[test]
fn a_session_of_today_plays_back_on_both_sides() {
    for session in SESSIONS {
        let tape = record(session);
        assert!(tape.frames().count() > 20, "{} says something", session.name);
        assert_eq!(play_clients(&tape), Vec::<String>::new(), "{}", session.name);
        assert_eq!(play_servers(&tape), Vec::<String>::new(), "{}", session.name);
    }
}

/// What versions could differ in is in the sessions, and not only lookups.
#[test]
fn the_sessions_contain_replays_callbacks_data_and_most_requests() {
    let tapes: Vec<Tape> = SESSIONS.iter().map(record).collect();
    let frames = || tapes.iter().flat_map(Tape::frames);
    let count = |is_it: &dyn Fn(&Frame) -> bool| frames().filter(|frame| is_it(frame)).count();
    assert!(count(&|frame| frame.kind == FrameKind::Callback) > 5);
    assert!(count(&|frame| frame.flags & wire::flags::REPLAY != 0) > 3);
    assert!(count(&|frame| frame.flags & wire::flags::ASK != 0) > 0);
    assert!(count(&|frame| frame.kind == FrameKind::Request && !frame.data.is_empty()) > 3);
    assert!(count(&|frame| frame.kind == FrameKind::Reply && !frame.data.is_empty()) > 3);
    let requests = frames().filter(|frame| frame.kind == FrameKind::Request);
    let operations: BTreeSet<&[u8]> = requests.filter_map(|frame| frame.body.get(..2)).collect();
    let of_class = |class: u8| operations.iter().filter(|operation| operation[0] == class).count();
    assert!(of_class(20) > 15, "{operations:?}");
    assert!(of_class(30) > 4, "{operations:?}");
    assert_eq!(of_class(10), 3, "{operations:?}");
}

/// The canary: what is not as it was is seen.
#[test]
fn another_answer_and_another_question_are_noticed() {
    let mut tape = record(&SESSIONS[0]);
    let is_removal = |frame: &Frame| {
        let request = Request::from_bytes(&frame.body);
        matches!(request, Ok(Request::Mdt(wire::MdtRequest::Rmdir { .. })))
            && frame.kind == FrameKind::Request
    };
    let asked = tape.frames().find(|frame| is_removal(frame)).expect("a directory is removed").clone();
    for moment in &mut tape.moments {
        let What::Frame(frame) = &mut moment.what else { continue };
        if frame.kind == FrameKind::Reply && (frame.dst, frame.xid) == (asked.src, asked.xid) {
            frame.status = base::Status::NotFound;
        }
    }
    let differences = play_clients(&tape).join("\n");
    assert!(differences.contains("NotFound") && differences.contains("NotEmpty"), "{differences}");
    let mut servers = Servers::new(record(&SESSIONS[0]));
    let body = Request::Mgs(wire::MgsRequest::ListFilesystems).to_bytes();
    assert_eq!(servers.answer(Time::ZERO, &Frame { body, ..asked }), Vec::new());
    let is_it = |line: &String| line.starts_with("now: ") && line.contains("ListFilesystems");
    assert!(servers.differences().iter().any(is_it));
}

#[test]
fn a_recording_that_is_cut_or_foreign_is_a_line() {
    let bytes = record(&SESSIONS[0]).to_bytes();
    for end in (0..bytes.len()).step_by(97) {
        // Between two moments it is a shorter one.
        if let Err(line) = Tape::from_bytes(&bytes[..end]) {
            assert!(line.contains("recording"), "{line}");
        }
    }
    let foreign = Tape::from_bytes(b"sheen frames 9\n\n");
    assert!(foreign.is_err_and(|line| line.contains("does not begin with `sheen frames 1`")));
}

#[test]
fn the_next_version_and_this_one_work_together() {
    for session in SESSIONS {
        let mut world = world(session, Tap::Newer);
        (session.run)(&mut world);
    }
}
