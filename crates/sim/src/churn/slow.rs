//! An MDT that has too much to do: what its clients want waits in a queue, which it comes through ever more slowly.
//!
//! Nobody tells a client how long an answer takes. Each has one call under way, so as many wait as there are clients, and each waits for
//! about as long as all of them take together.
//!
//! Renewals of leases are left out for the greatest part of that: of a thousand clients they would be two million frames, which are as
//! the ones before and after. The clocks of the management server and of those who renew there stand meanwhile, and the clients rely on
//! their leases. So is the greatest part of what they send again meanwhile, which the MDT has in its queue.

use super::{Churn, Event, MDT, Seat};
use base::{ClientId, Duration, Endpoint, Now, Time, Xid};
use client::Input;
use std::collections::{BTreeSet, VecDeque};
use wire::{Frame, FrameKind, Request};

/// For how long the MDT is slow.
const LASTS_MIN: Duration = Duration::from_secs(15 * 60);
const LASTS_SPREAD: Duration = Duration::from_secs(6 * 60);
/// How long all clients take together in the end.
const ROUND_MIN: Duration = Duration::from_secs(620);
const ROUND_SPREAD: Duration = Duration::from_secs(60);
/// Until it is as slow as that.
const RISE: Duration = Duration::from_secs(60);
/// So many rounds its disk may take for a sync, and such a part of one an answer, for what else it waits for.
const DISK_ROUNDS: u32 = 2;
const ANSWER_PART: u32 = 16;
/// At the beginning and at the end leases are renewed as ever.
const LEASES_SEEN: Duration = Duration::from_secs(3);
/// Who lives an MDT sees as what he sends arrives, and not only when his turn has come (so does Lustre's). So often it is told.
const NOTED_EACH: Duration = Duration::from_secs(60);
/// One copy in so many was not in the queue with the first one: it turns up when that may have been answered.
const STRAGGLER_ONE_IN: u64 = 8;

pub(super) struct Slow {
    since: Time,
    round: Duration,
    queue: VecDeque<Box<Frame>>,
    /// Requests in the queue, and those whose answers are on their way. A queue has each of them once.
    known: BTreeSet<(ClientId, Xid)>,
    is_serving: bool,
    /// When the MDT last took note of each client, and whether it only does that now.
    noted: Vec<Time>,
    is_noting: bool,
}

impl Slow {
    /// How much of its slowness it has reached.
    fn risen(&self, now: Time, of: Duration) -> Duration {
        let passed = now.since(self.since).min(RISE);
        Duration::from_nanos((of.as_nanos() * passed.as_nanos() / RISE.as_nanos()) as u64)
    }
}

/// The clock of leases, which may stand.
#[derive(Clone, Copy, Default)]
pub(super) struct LeaseClock {
    /// What it is behind.
    skipped: Duration,
    stands_since: Option<Time>,
}

impl LeaseClock {
    pub fn stands(self) -> bool {
        self.stands_since.is_some()
    }

    pub fn now(self, now: Now) -> Now {
        let time = self.stands_since.unwrap_or(now.time);
        Now { time: Time(time.0 - self.skipped.as_nanos() as u64), ..now }
    }

    /// What was measured with this clock, in the time of everybody else.
    pub fn in_our_time(self, at: Time) -> Time {
        at.after(self.skipped)
    }

    /// When a deadline by this clock passes, if it ever does.
    pub fn deadline(self, deadline: Option<Time>) -> Option<Time> {
        deadline.filter(|_| self.stands_since.is_none()).map(|at| self.in_our_time(at))
    }
}

impl Churn {
    /// The MDT becomes slow, and has been for a while when this returns.
    pub(super) fn run_slowly(&mut self) {
        let lasts = LASTS_MIN + self.at_random(LASTS_SPREAD);
        let round = ROUND_MIN + self.at_random(ROUND_SPREAD);
        self.slow = Some(Slow {
            since: self.now.time,
            round,
            queue: VecDeque::new(),
            known: BTreeSet::new(),
            is_serving: false,
            noted: vec![self.now.time; self.seats.len()],
            is_noting: false,
        });
        self.run_for(LEASES_SEEN);
        let stands = lasts - LEASES_SEEN * 2;
        self.stop_leases(self.now.time.after(stands));
        self.run_for(stands);
        self.start_leases();
        self.run_for(LEASES_SEEN);
    }

    fn stop_leases(&mut self, until: Time) {
        self.leases.stands_since = Some(self.now.time);
        for number in 0..self.seats.len() {
            self.on_client(number, Input::Lease(until));
        }
    }

    fn start_leases(&mut self) {
        let stood =
            self.leases.stands_since.take().map_or(Duration::ZERO, |since| self.now.time.since(since));
        self.leases.skipped += stood;
        for number in 0..self.seats.len() {
            self.note_deadline(number);
        }
    }

    /// What a client wants of the slow MDT.
    pub(super) fn enqueue(&mut self, frame: Box<Frame>) {
        self.note_sender(&frame);
        let Some(slow) = &mut self.slow else { return };
        let is_first = slow.known.insert((frame.src.client_id(), frame.xid));
        if !is_first {
            let (round, is_straggler) = (slow.round, self.rng.one_in(STRAGGLER_ONE_IN));
            self.count("request sent again to the slow MDT");
            if is_straggler {
                let late = self.at_random(round);
                self.post(late, Event::Straggle(frame));
            }
            return;
        }
        slow.queue.push_back(frame);
        if !slow.is_serving {
            self.serve_next();
        }
    }

    /// A sign of life is read when it arrives; what is answered then waits as everything does.
    fn note_sender(&mut self, frame: &Frame) {
        let Some((number, _)) = Seat::of(frame.src.client_id(), self.seats.len()) else { return };
        let now = self.now.time;
        let Some(slow) = &mut self.slow else { return };
        if now.since(slow.noted[number]) < NOTED_EACH || !is_ping(frame) {
            return;
        }
        slow.noted[number] = now;
        slow.is_noting = true;
        let copy = Frame { body: Request::PING.to_bytes(), ..frame.clone() };
        self.on_server(MDT, |server, now, out| server.on_frame(now, copy, out));
        if let Some(slow) = &mut self.slow {
            slow.is_noting = false;
        }
    }

    /// Whether this is what the MDT would answer who is only noted.
    pub(super) fn is_unsaid(&self, frame: &Frame) -> bool {
        let is_answer = frame.src == Endpoint::Target(MDT) && frame.kind == FrameKind::Reply;
        is_answer && self.slow.as_ref().is_some_and(|slow| slow.is_noting)
    }

    /// The next one in the queue, and the signs of life before it, which cost nothing once they are reached.
    pub(super) fn serve_next(&mut self) {
        loop {
            let Some(slow) = &mut self.slow else { return };
            let next = slow.queue.pop_front();
            slow.is_serving = next.is_some();
            let takes = slow.risen(self.now.time, slow.round / self.seats.len() as u32);
            let Some(frame) = next else { return };
            let is_work = !is_ping(&frame);
            self.on_server(MDT, |server, now, out| server.on_frame(now, *frame, out));
            if is_work {
                return self.post(takes, Event::Serve);
            }
        }
    }

    /// How much longer an answer is on its way for the sake of its slowness.
    pub(super) fn answer_delay(&mut self, frame: &Frame) -> Duration {
        let is_answer = frame.src == Endpoint::Target(MDT) && frame.kind == FrameKind::Reply;
        let Some(slow) = self.slow.as_ref().filter(|_| is_answer) else { return Duration::ZERO };
        let most = slow.risen(self.now.time, slow.round / ANSWER_PART);
        self.at_random(most.max(Duration::from_nanos(1)))
    }

    pub(super) fn note_answer(&mut self, frame: &Frame) {
        if let Some(slow) = &mut self.slow {
            slow.known.remove(&(frame.dst.client_id(), frame.xid));
        }
    }

    /// How much longer a sync takes: the disk is the first to be loaded, and what is acknowledged is not durable for a while.
    pub(super) fn disk_load(&mut self) -> Duration {
        let Some(slow) = &self.slow else { return Duration::ZERO };
        let most = slow.risen(self.now.time, slow.round * DISK_ROUNDS);
        self.at_random(most.max(Duration::from_nanos(1)))
    }
}

fn is_ping(frame: &Frame) -> bool {
    matches!(Request::from_bytes(&frame.body), Ok(Request::Ping { .. }))
}
