#![allow(clippy::unwrap_used)]

use super::*;
use base::{Duration, Now};
use std::sync::mpsc;
use std::thread::ThreadId;

/// Counts its inputs and says each number; ticks once, 20 ms after the input 0.
#[derive(Default)]
struct Counter {
    seen: u64,
    tick_at: Option<Time>,
}

impl Machine for Counter {
    type Input = Option<u64>;
    type Output = Seen;

    fn handle(&mut self, now: Now, input: Option<u64>, out: &mut Vec<Seen>) {
        self.seen += 1;
        match input {
            Some(0) => self.tick_at = Some(now.time.after(Duration::from_millis(20))),
            None => self.tick_at = None,
            Some(_) => {}
        }
        out.push((self.seen, input));
    }

    fn next_deadline(&self) -> Option<Time> {
        self.tick_at
    }
}

/// Number of the input, and the input.
type Seen = (u64, Option<u64>);

fn counter() -> (Arc<Owner<Counter>>, mpsc::Receiver<Seen>) {
    counter_that(None)
}

fn counter_that(lateness: Option<Lateness>) -> (Arc<Owner<Counter>>, mpsc::Receiver<Seen>) {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let perform = Box::new(move |output| sender.lock().unwrap().send(output).unwrap());
    let options = OwnerOptions { tick: || None, frame: |_| None, perform, timer: Timer::start(), lateness };
    (Owner::new(Counter::default(), options), receiver)
}

/// Says on which thread it runs; `true` waits within until it may go on.
struct Gate {
    entered: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl Machine for Gate {
    type Input = bool;
    type Output = ThreadId;

    fn handle(&mut self, _: Now, waits: bool, out: &mut Vec<ThreadId>) {
        if waits {
            self.entered.send(()).unwrap();
            self.go_on.recv().unwrap();
        }
        out.push(std::thread::current().id());
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

/// Hazard 8.1: nobody else is woken for an input; if the machine is busy, who brings one does not wait either.
#[test]
fn an_input_runs_on_the_thread_that_brings_it() {
    let (entered_sender, entered) = mpsc::channel();
    let (go_on, go_on_receiver) = mpsc::channel();
    let (sender, outputs) = mpsc::channel();
    let sender = Mutex::new(sender);
    let perform = Box::new(move |output| sender.lock().unwrap().send(output).unwrap());
    let options =
        OwnerOptions { tick: || false, frame: |_| false, perform, timer: Timer::start(), lateness: None };
    let owner = Owner::new(Gate { entered: entered_sender, go_on: go_on_receiver }, options);
    let here = std::thread::current().id();
    owner.submit(false);
    assert_eq!(outputs.try_recv(), Ok(here), "it has run when it is handed in");
    let other = Arc::clone(&owner);
    let thread = std::thread::spawn(move || other.submit(true));
    let there = thread.thread().id();
    entered.recv().unwrap();
    owner.submit(false);
    assert!(outputs.try_recv().is_err(), "it is queued, and this thread is free");
    go_on.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(outputs.try_iter().collect::<Vec<_>>(), [there, there], "the owner takes it along");
}

/// Who looks may hold what outputs want: they are another thread's, and it does not wait for them.
#[test]
fn who_looks_at_a_machine_runs_nothing() {
    let (sender, outputs) = mpsc::channel();
    let held = Arc::new(Mutex::new(()));
    let wanted = Arc::clone(&held);
    let sender = Mutex::new(sender);
    let perform = Box::new(move |_: ThreadId| {
        let _wanted = wanted.lock().unwrap();
        sender.lock().unwrap().send(std::thread::current().id()).unwrap();
    });
    let options =
        OwnerOptions { tick: || false, frame: |_| false, perform, timer: Timer::start(), lateness: None };
    let gate = Gate { entered: mpsc::channel().0, go_on: mpsc::channel().1 };
    let owner = Owner::new(gate, options);
    let guard = held.lock().unwrap();
    // As of a thread that has queued its input, and has not run it yet.
    lock(&owner.inputs).push(false, None);
    owner.with(|_| ());
    assert!(outputs.try_recv().is_err(), "nothing is performed while this thread holds the lock");
    drop(guard);
    let performed = outputs.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_ne!(performed, std::thread::current().id());
}

#[test]
fn who_does_not_wait_for_a_machine_is_told_that_it_is_taken() {
    let (owner, _seen) = counter();
    assert_eq!(owner.with(|_| owner.try_with(|counter| counter.seen)), None);
    owner.submit(Some(1));
    assert_eq!(owner.try_with(|counter| counter.seen), Some(1));
}

#[test]
fn inputs_of_many_threads_all_run_and_outputs_keep_their_order() {
    let (owner, outputs) = counter();
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let owner = Arc::clone(&owner);
            std::thread::spawn(move || {
                for step in 1..=2000 {
                    owner.submit(Some(thread * 10_000 + step));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let seen: Vec<_> = outputs.try_iter().collect();
    assert_eq!(seen.len(), 16_000);
    assert!(seen.iter().enumerate().all(|(at, (number, _))| *number == at as u64 + 1));
    let of_first = seen.iter().filter_map(|(_, input)| input.filter(|input| *input < 10_000));
    assert!(of_first.eq(1..=2000), "the inputs of one thread keep their order");
}

#[test]
fn a_deadline_brings_a_tick() {
    let (owner, outputs) = counter();
    owner.submit(Some(0));
    assert_eq!(outputs.recv_timeout(Duration::from_secs(60)).unwrap(), (1, Some(0)));
    assert_eq!(outputs.recv_timeout(Duration::from_secs(60)).unwrap(), (2, None));
    assert_eq!(owner.with(|counter| counter.tick_at), None);
}

/// A machine hangs in one input, with its tick behind it: what has come until it goes on is not judged as if it were not there.
#[test]
fn what_came_while_a_machine_stood_still_goes_before_its_tick() {
    let late_after = Duration::from_millis(50);
    for (lateness, first) in
        [(None, None), (Some(Lateness { late_after, frames_first: late_after }), Some(7))]
    {
        let (owner, outputs) = counter_that(lateness);
        owner.submit(Some(1));
        assert_eq!(outputs.recv().unwrap(), (1, Some(1)));
        owner.with(|_| {
            // As the timer does.
            lock(&owner.inputs).push_tick(clock::now().time);
            std::thread::sleep(late_after);
            lock(&owner.inputs).push(Some(7), None);
        });
        let seen: Vec<_> = (0..2).map(|_| outputs.recv().unwrap().1).collect();
        assert_eq!(seen.first(), Some(&first));
        assert!(seen.contains(&None) && seen.contains(&Some(7)));
    }
}

/// What comes all the time goes before a late tick only once.
#[test]
fn a_late_tick_comes_in_the_end() {
    let mut inputs = Inputs::default();
    let (second, tick) = (Duration::from_secs(1), || None);
    let at = |seconds| Time::ZERO.after(Duration::from_secs(seconds));
    let next = |inputs: &mut Inputs<Option<u64>>, now| inputs.pop(now, second, tick).map(|(input, _)| input);
    inputs.push(Some(1), None);
    inputs.push_tick(at(0));
    inputs.push(Some(2), None);
    inputs.push(Some(3), None);
    assert_eq!(next(&mut inputs, at(0)), Some(Some(1)));
    for number in [2, 3] {
        assert_eq!(next(&mut inputs, at(9)), Some(Some(number)));
        inputs.push(Some(number + 2), None);
        inputs.push_tick(at(9));
    }
    assert_eq!(next(&mut inputs, at(99)), Some(None), "what came since waits for it");
    assert_eq!(next(&mut inputs, at(99)), Some(Some(4)));
    assert_eq!(next(&mut inputs, at(99)), Some(Some(5)));
    assert_eq!(next(&mut inputs, at(99)), None, "there was one tick");
}

/// A process was stopped: its timer goes on before those who read its connections.
#[test]
fn a_deadline_that_is_long_past_leaves_time_for_what_is_unread() {
    let (late_after, frames_first) = (Duration::from_secs(1), Duration::from_secs(3600));
    let (owner, outputs) = counter_that(Some(Lateness { late_after, frames_first }));
    owner.with(|counter| counter.tick_at = Some(Time::ZERO));
    let begun = clock::now().time;
    owner.deadline.store(0, Ordering::Relaxed);
    if owner.deadline() == Time::ZERO {
        Arc::clone(&owner).on_deadline();
    }
    assert!(owner.deadline() >= begun.after(frames_first));
    assert!(outputs.try_recv().is_err(), "it has not come");
    owner.ticks_from.store(clock::now().time.0, Ordering::Relaxed);
    Arc::clone(&owner).on_deadline();
    assert_eq!(outputs.recv_timeout(Duration::from_secs(60)).unwrap(), (1, None), "it is not late any more");
}

#[test]
fn a_posted_input_runs_on_the_timer_thread() {
    let (owner, outputs) = counter();
    owner.post(Some(3));
    assert_eq!(outputs.recv_timeout(Duration::from_secs(60)).unwrap(), (1, Some(3)));
}

/// Takes longer than a turn for each input, and says its number; what is said goes to another machine of the same thread.
struct Slow(Arc<Mutex<Vec<String>>>);

impl Machine for Slow {
    type Input = u64;
    type Output = u64;

    fn handle(&mut self, _: Now, number: u64, out: &mut Vec<u64>) {
        std::thread::sleep(TURN);
        self.0.lock().unwrap().push(format!("asked {number}"));
        out.push(number);
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

struct Listener(Arc<Mutex<Vec<String>>>);

impl Machine for Listener {
    type Input = u64;
    type Output = ();

    fn handle(&mut self, _: Now, number: u64, _: &mut Vec<()>) {
        self.0.lock().unwrap().push(format!("answered {number}"));
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

#[test]
fn an_answer_does_not_wait_for_what_is_asked_besides() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let timer = Timer::start();
    let options = OwnerOptions {
        tick: || 0,
        frame: |_| 0,
        perform: Box::new(|()| ()),
        timer: Arc::clone(&timer),
        lateness: None,
    };
    let listener = Owner::new(Listener(Arc::clone(&said)), options);
    let perform = Box::new(move |number| listener.queue(number));
    let slow = Owner::new(
        Slow(Arc::clone(&said)),
        OwnerOptions { tick: || 0, frame: |_| 0, perform, timer, lateness: None },
    );
    (0..3).for_each(|number| slow.queue(number));
    run::run_all();
    let order = ["asked 0", "answered 0", "asked 1", "answered 1", "asked 2", "answered 2"];
    assert_eq!(*said.lock().unwrap(), order);
}
