//! A process and the management server: its leases, and whose it asks about.

use crate::skew::management::{Management, target};
use base::limits::LEASE;
use base::{ClientId, Duration, Machine, Now, Status, TargetId, Time, WallTime};
use client::mgc::{Input, LIVES_PER_REQUEST_MAX, Mgc, Output};
use std::collections::BTreeSet;
use wire::{Frame, Life, MgsRequest, Request};

const STEP: Duration = Duration::from_millis(100);

struct Process {
    now: Now,
    mgc: Mgc,
    mgs: Management,
    /// Nothing arrives, either way.
    is_cut_off: bool,
    renewals_sent: usize,
    renewed: Vec<Time>,
    lapsed: Vec<Vec<Life>>,
    registered: usize,
    /// For each time that a target was found elsewhere: whether it is for good.
    elsewhere: Vec<bool>,
    /// Who is asked whether he serves a target says that he does.
    is_served_elsewhere: bool,
    no_room_count: usize,
    unheard_count: usize,
    changed: Vec<(u64, Result<u64, Status>)>,
    /// Of the last configuration.
    params: Vec<(String, String)>,
    /// Whoever carries frames makes a new connection when he is told that nothing comes, and has been told.
    follows: bool,
    is_lost: bool,
}

impl Process {
    fn new() -> Process {
        let now = Now { time: Time(1_000_000_000), wall: WallTime(0) };
        Process {
            now,
            mgc: Mgc::new(ClientId(77), "test", "here", Vec::new()),
            mgs: Management::new(now),
            is_cut_off: false,
            renewals_sent: 0,
            renewed: Vec::new(),
            lapsed: Vec::new(),
            registered: 0,
            elsewhere: Vec::new(),
            is_served_elsewhere: false,
            no_room_count: 0,
            unheard_count: 0,
            changed: Vec::new(),
            params: Vec::new(),
            follows: false,
            is_lost: false,
        }
    }

    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.mgc.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Send(frame) => self.carry(&frame),
                Output::Renewed(at) => self.renewed.push(at),
                Output::Lapsed { lives, .. } => self.lapsed.push(lives),
                Output::Unheard => {
                    self.unheard_count += 1;
                    self.is_lost = self.follows;
                }
                Output::Registered { .. } => self.registered += 1,
                Output::NoRoom(_) => self.no_room_count += 1,
                Output::Elsewhere { is_for_good, .. } => self.elsewhere.push(is_for_good),
                Output::Config(config) => self.params = config.params,
                Output::Changed { id, result } => self.changed.push((id, result)),
                _ => {}
            }
        }
    }

    fn carry(&mut self, frame: &Frame) {
        let request = Request::from_bytes(&frame.body);
        self.renewals_sent += usize::from(matches!(request, Ok(Request::Mgs(MgsRequest::Renew { .. }))));
        if !self.is_cut_off {
            let answers = self.mgs.on_frame(self.now, frame);
            self.take(answers.unwrap_or_default());
        }
    }

    fn take(&mut self, answers: Vec<Frame>) {
        let synced = self.mgs.sync_where_asked(self.now).unwrap_or_default();
        if !self.is_cut_off {
            answers.into_iter().chain(synced).for_each(|frame| self.input(Input::Frame(frame)));
        }
    }

    fn pass(&mut self, wait: Duration) {
        let end = self.now.time.after(wait);
        while self.now.time < end {
            self.now.time = self.now.time.after(STEP);
            let sent = self.mgs.on_tick(self.now);
            self.take(sent);
            if self.is_served_elsewhere {
                let found = self.mgs.find(self.now);
                self.take(found);
            }
            if std::mem::take(&mut self.is_lost) {
                self.input(Input::ConnectionLost);
            }
            if self.mgc.next_deadline().is_some_and(|deadline| deadline <= self.now.time) {
                self.input(Input::Tick);
            }
        }
    }
}

fn life(number: u128) -> Life {
    Life { client: ClientId(number), incarnation: 1 }
}

#[test]
fn renewals_that_are_lost_hold_up_no_later_one() {
    let mut process = Process::new();
    process.input(Input::Keep(vec![life(1)]));
    process.pass(Duration::from_secs(5));
    assert!((4..=6).contains(&process.renewed.len()), "{:?}", process.renewed);
    process.is_cut_off = true;
    process.renewals_sent = 0;
    process.pass(Duration::from_secs(20));
    // Twenty new ones, each sent again once while its answer would be worth something.
    assert!((20..=41).contains(&process.renewals_sent), "{}", process.renewals_sent);
    let healed = process.now.time;
    process.is_cut_off = false;
    process.pass(Duration::from_secs(1));
    assert!(process.renewed.last().is_some_and(|at| *at >= healed), "{:?}", process.renewed);
}

#[test]
fn a_management_server_that_says_nothing_is_noticed_time_and_again() {
    let mut process = Process::new();
    process.pass(LEASE * 10);
    process.input(Input::Keep(vec![life(1)]));
    process.pass(LEASE * 10);
    assert_eq!(process.unheard_count, 0);
    assert!(process.mgc.is_heard(process.now));
    process.is_cut_off = true;
    process.pass(LEASE * 10);
    assert!((8..=10).contains(&process.unheard_count), "{}", process.unheard_count);
    // It stays so, whenever somebody looks.
    for _ in 0..40 {
        process.pass(STEP);
        assert!(!process.mgc.is_heard(process.now));
    }
    process.is_cut_off = false;
    process.pass(LEASE);
    assert!(process.mgc.is_heard(process.now));
    process.unheard_count = 0;
    process.pass(LEASE * 10);
    // Who keeps no lease asks nothing each second.
    process.input(Input::Keep(Vec::new()));
    process.is_cut_off = true;
    process.pass(LEASE * 10);
    assert_eq!(process.unheard_count, 0);
}

#[test]
fn of_very_many_clients_all_are_asked_about_in_turn() {
    let mut process = Process::new();
    let all: Vec<Life> = (0..LIVES_PER_REQUEST_MAX as u128 * 5 / 2).map(life).collect();
    // Nobody is known to be gone right after a start, which is over with the first that its disk makes durable.
    process.input(Input::Start);
    process.pass(LEASE * 2);
    for _ in 0..3 {
        process.input(Input::AskLapsed(all.clone()));
        process.pass(STEP);
    }
    let counts: Vec<usize> = process.lapsed.iter().map(Vec::len).collect();
    assert_eq!(counts, [LIVES_PER_REQUEST_MAX; 3]);
    let told: BTreeSet<Life> = process.lapsed.concat().into_iter().collect();
    assert_eq!(told.len(), all.len());
}

/// A server has no leases to renew, and its connection may be one to a process that stands still.
#[test]
fn who_keeps_no_lease_notices_it_by_the_question_that_is_open() {
    let mut process = Process::new();
    process.follows = true;
    process.input(Input::Register(target(TargetId::ost(0)).into()));
    process.input(Input::Start);
    process.pass(Duration::from_secs(60));
    assert_eq!(process.unheard_count, 0, "an open question is answered in time");
    process.is_cut_off = true;
    process.pass(Duration::from_secs(33));
    assert!((3..=4).contains(&process.unheard_count), "{}", process.unheard_count);
    process.is_cut_off = false;
    process.pass(Duration::from_secs(10));
    process.unheard_count = 0;
    process.pass(Duration::from_secs(60));
    assert_eq!(process.unheard_count, 0);
}

fn set_param(value: &str) -> MgsRequest {
    MgsRequest::SetParam {
        fsname: "test".to_owned(),
        path: "llite.*.stats".to_owned(),
        value: Some(value.to_owned()),
    }
}

/// A server whose change 5 is on its way, and hears nobody.
fn cut_off_with_a_change() -> Process {
    let mut process = Process::new();
    process.input(Input::Register(target(TargetId::ost(0)).into()));
    process.input(Input::Start);
    process.pass(Duration::from_secs(10));
    process.is_cut_off = true;
    process.input(Input::Change { id: 5, request: set_param("1") });
    process.pass(Duration::from_secs(1));
    process
}

/// Whoever wanted it has been told that nobody answers, and somebody may have set another value since.
#[test]
fn a_parameter_whose_caller_has_given_up_is_not_set_any_more() {
    for is_next in [false, true] {
        let mut process = cut_off_with_a_change();
        if is_next {
            process.mgs = Management::new(process.now);
        }
        process.input(Input::GiveUp(5));
        process.is_cut_off = false;
        process.pass(Duration::from_secs(30));
        assert_eq!((process.changed.len(), process.params.len()), (0, 0), "{is_next}");
        process.input(Input::Change { id: 6, request: set_param("2") });
        process.pass(Duration::from_secs(10));
        assert!(matches!(process.changed[..], [(6, Ok(_))]), "{:?}", process.changed);
        assert_eq!(process.params, [("llite.*.stats".to_owned(), "2".to_owned())]);
    }
}

/// Its question was at a management server that is dead, and the next one does not know its session.
#[test]
fn a_parameter_that_was_on_its_way_is_set_at_the_next_management_server() {
    let mut process = cut_off_with_a_change();
    process.mgs = Management::new(process.now);
    process.is_cut_off = false;
    process.pass(Duration::from_secs(30));
    assert!(matches!(process.changed[..], [(5, Ok(_))]), "{:?}", process.changed);
    // What is not the same when it is done twice is for the operator to look at.
    process.is_cut_off = true;
    let pool = MgsRequest::ChangePool {
        fsname: "test".to_owned(),
        name: "flash".parse().expect("it is a name"),
        change: wire::PoolChange::New,
    };
    process.input(Input::Change { id: 6, request: pool });
    process.pass(Duration::from_secs(1));
    process.mgs = Management::new(process.now);
    process.is_cut_off = false;
    process.pass(Duration::from_secs(30));
    assert_eq!(process.changed[1..], [(6, Err(Status::Evicted))]);
}

/// Whoever serves it is to know why nobody finds it.
#[test]
fn a_target_for_which_there_is_no_room_says_so_and_asks_until_there_is_some() {
    let mut process = Process::new();
    process.input(Input::Register(target(TargetId::ost(0)).into()));
    process.input(Input::Start);
    process.pass(Duration::from_secs(1));
    let mut count = 0;
    let mut set = |process: &mut Process, name: u64, value: String| {
        count += 1;
        let (fsname, path) = ("test".to_owned(), format!("p{name}"));
        let request = MgsRequest::SetParam { fsname, path, value: Some(value) };
        process.input(Input::Change { id: count, request });
        process.pass(Duration::from_millis(200));
        matches!(process.changed.last(), Some((_, Ok(_))))
    };
    let mut names = 1..;
    for byte_count in [4096, 256, 16, 1] {
        while names.next().is_some_and(|name| set(&mut process, name, "x".repeat(byte_count))) {}
    }
    process.registered = 0;
    process.input(Input::Register(target(TargetId::ost(1)).into()));
    process.pass(Duration::from_secs(60));
    assert_eq!(process.registered, 0);
    assert!((2..10).contains(&process.no_room_count), "{}", process.no_room_count);
    assert!(set(&mut process, 1, String::new()), "a value that is empty is none");
    process.pass(Duration::from_secs(30));
    assert_eq!(process.registered, 1);
}

/// A process with a copy of OST0, which another one has registered elsewhere.
fn with_a_copy() -> Process {
    let mut process = Process::new();
    process.input(Input::Register(target(TargetId::ost(0)).into()));
    process.input(Input::Start);
    process.pass(Duration::from_secs(5));
    process.input(Input::Disconnect);
    process.pass(Duration::from_secs(1));
    assert!(std::mem::take(&mut process.registered) > 0);
    let copy = base::TargetConfig { nids: vec!["copy:7988".to_owned()], ..target(TargetId::ost(0)) };
    process.mgc = Mgc::new(ClientId(78), "test", "there", vec![copy.into()]);
    process.is_served_elsewhere = true;
    process.input(Input::Start);
    process
}

/// The other one may be restarted at any time, and the copy is not to take its place in between.
#[test]
fn a_target_that_is_served_elsewhere_asks_a_few_times_and_then_never_again() {
    let mut process = with_a_copy();
    process.pass(Duration::from_secs(30));
    assert_eq!(process.elsewhere, [false, false, false, false, true]);
    let asked = process.mgs.probes.len();
    assert_eq!(asked, 5);
    process.is_served_elsewhere = false;
    process.pass(Duration::from_secs(60));
    // Nor does it when the management server is a new one, who knows nobody.
    process.mgs = Management::new(process.now);
    process.input(Input::ConnectionLost);
    process.pass(Duration::from_secs(60));
    assert_eq!((process.registered, process.mgs.probes.len()), (0, 0));
}

#[test]
fn a_target_takes_the_place_of_a_process_that_was_just_ending() {
    let mut process = with_a_copy();
    process.pass(Duration::from_secs(3));
    assert!(!process.elsewhere.is_empty() && !process.elsewhere.contains(&true), "{:?}", process.elsewhere);
    process.is_served_elsewhere = false;
    process.pass(Duration::from_secs(10));
    assert_eq!(process.registered, 1);
}
