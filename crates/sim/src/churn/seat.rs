//! One of many clients: its machine, its lease, and a process that makes and removes files in a directory of its own.

use super::fate::Fate;
use super::slow::LeaseClock;
use crate::cluster::{CLIENT_MARK, client_options};
use crate::frames::MGC_MARK;
use crate::servers::new_mgc;
use base::{ClientId, ClusterConfig, Duration, Machine, Now, TargetId, Time};
use client::mgc::{self, Mgc};
use client::{Answer, Call, Caller, Client, Input, NotifyResult, Output, ROOT_NODE};
use std::collections::BTreeSet;
use wire::{Frame, Life};

const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };
const O_RDWR_EXCL: u32 = 0o202;
/// How often a client that only waits is looked at.
const LOOKED_AT_EACH: Duration = Duration::from_secs(150);
/// One file in so many stays, and the first stays open.
const KEPT_ONE_IN: u64 = 3;

type Names = BTreeSet<Vec<u8>>;

/// What the process is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Mkdir,
    Create(u64),
    Release(u64, u64),
    Unlink(u64),
}

pub(super) struct Seat {
    machine: Client,
    mgc: Mgc,
    number: usize,
    pub is_gone: bool,
    pub fate: Fate,
    /// Of its machines, after their last inputs. That of its lease is by the clock of leases.
    client_deadline: Option<Time>,
    mgc_deadline: Option<Time>,
    /// When its client last looked at its timers.
    ticked: Time,
    /// When it is looked at next.
    pub look_at: Option<Time>,
    pub directory: Option<u64>,
    /// Acknowledged.
    pub names: Names,
    /// Names that it has given to another file again.
    reused: Names,
    given_up: Option<GivenUp>,
    pub last_progress: Option<Time>,
    /// Since when it waits for an answer, and what it expected then.
    pub asked: Option<(Time, Duration)>,
    /// Of the call that is not answered, or comes next.
    step: Step,
    is_calling: bool,
    next_call: u64,
}

/// What is left of what a client had when the MDT gave it up.
#[derive(Default)]
struct GivenUp {
    /// The name of its call that was not answered.
    undecided: Option<Vec<u8>>,
    /// What it has removed since, when it was back. Its process was at that, and does not know that it was given up.
    removed: Names,
}

/// What came of an input.
#[derive(Default)]
pub(super) struct Said {
    pub frames: Vec<Frame>,
    pub has_progressed: bool,
    pub failed: Option<i32>,
}

impl Seat {
    pub fn new(now: Now, number: usize, config: &ClusterConfig) -> (Seat, Vec<Frame>) {
        let id = ClientId(CLIENT_MARK + number as u128);
        let options = client_options(id, number as u128);
        let mut seat = Seat {
            machine: Client::new(now, options),
            mgc: new_mgc(ClientId(id.0 | MGC_MARK), Vec::new()),
            number,
            is_gone: false,
            fate: Fate::default(),
            client_deadline: None,
            mgc_deadline: None,
            ticked: now.time,
            look_at: None,
            directory: None,
            names: Names::new(),
            reused: Names::new(),
            given_up: None,
            last_progress: None,
            asked: None,
            step: Step::Mkdir,
            is_calling: false,
            next_call: 1,
        };
        let mut frames = Vec::new();
        frames.extend(seat.on_client(now, Input::Lease(now.time)).frames);
        let lives = mgc::Input::Keep(vec![Life { client: id, incarnation: 1 }]);
        frames.extend(seat.on_mgc(now, LeaseClock::default(), lives).0);
        frames.extend(seat.on_client(now, Input::Config(config.clone())).frames);
        (seat, frames)
    }

    /// Whose name this is, and whether its machine calls the management server under it.
    pub fn of(caller: ClientId, seat_count: usize) -> Option<(usize, bool)> {
        let number = (caller.0 & !MGC_MARK).checked_sub(CLIENT_MARK)?;
        let number = usize::try_from(number).ok().filter(|number| *number < seat_count)?;
        Some((number, caller.0 & MGC_MARK != 0))
    }

    pub fn mgc_deadline(&self, leases: LeaseClock) -> Option<Time> {
        leases.deadline(self.mgc_deadline)
    }

    /// While the clock of leases stands, who waits is looked at seldom: the MDT has in its queue what would be sent again.
    pub fn client_deadline(&self, leases: LeaseClock) -> Option<Time> {
        let seldom = self.ticked.after(LOOKED_AT_EACH);
        match self.asked.is_some() && leases.stands() {
            true => self.client_deadline.map(|at| at.max(seldom)),
            false => self.client_deadline,
        }
    }

    pub fn next_deadline(&self, leases: LeaseClock) -> Option<Time> {
        let deadline = self.client_deadline(leases).into_iter().chain(self.mgc_deadline(leases)).min();
        deadline.filter(|_| !self.is_gone)
    }

    /// Nobody may give it up.
    pub fn is_living(&self) -> bool {
        !self.is_gone && !self.fate.is_away_long
    }

    pub fn is_given_up(&self) -> bool {
        self.given_up.is_some()
    }

    /// The MDT has given it up: what it has not got rid of is lost.
    pub fn give_up(&mut self) {
        let undecided = self.undecided();
        self.names.clear();
        self.given_up.get_or_insert(GivenUp { undecided, ..GivenUp::default() });
    }

    /// Of the names that were durable when the MDT died, and those that it has now, the ones that should be there and are not, or the
    /// other way round. `vanished_before`: the client, before the MDT was started again.
    pub fn wrong_names(&self, durable: &Names, found: &Names, vanished_before: bool) -> Names {
        if vanished_before {
            return durable.symmetric_difference(found).cloned().collect();
        }
        let undecided = self.undecided();
        let mut either: Names = undecided.into_iter().collect();
        let mut expected = self.names.clone();
        if let Some(given_up) = &self.given_up {
            // What was durable, and what it has done since.
            expected.extend(durable.difference(&given_up.removed).cloned());
            either.extend(given_up.undecided.clone());
        } else if !self.is_living() {
            // It has come back before it was given up or vanished, or has not, or came as far as some of its replays.
            either.extend(durable.symmetric_difference(&self.names).cloned());
            either.extend(self.reused.iter().cloned());
        }
        expected.symmetric_difference(found).filter(|name| !either.contains(*name)).cloned().collect()
    }

    /// How long it expects an answer of the target to take.
    pub fn expects(&self, target: TargetId) -> Duration {
        self.machine.target_status(target).map_or(Duration::ZERO, |status| status.timeouts.current)
    }

    /// What it would replay if the target died.
    pub fn retained_count(&self, target: TargetId) -> usize {
        self.machine.target_status(target).map_or(0, |status| status.session.retained_count)
    }

    /// The process calls, unless it waits for an answer.
    pub fn next_call(&mut self, now: Time) -> Option<Input> {
        if self.is_gone || std::mem::replace(&mut self.is_calling, true) {
            return None;
        }
        self.asked = Some((now, self.expects(super::MDT)));
        let parent = self.directory.unwrap_or(ROOT_NODE);
        let call = match &self.step {
            Step::Mkdir => {
                let name = format!("client{}", self.number).into_bytes();
                Call::Mkdir { parent, name, mode: 0o755, umask: 0 }
            }
            Step::Create(file) => {
                Call::Create { parent, name: name(*file), mode: 0o644, umask: 0, flags: O_RDWR_EXCL }
            }
            Step::Release(node, fh) => Call::Release { node: *node, fh: *fh, flock_owner: None },
            Step::Unlink(file) => Call::Unlink { parent, name: name(*file) },
        };
        let id = self.next_call;
        self.next_call += 1;
        Some(Input::Call { id, call, caller: CALLER })
    }

    /// A name that may be there or not: its call is not answered.
    pub fn undecided(&self) -> Option<Vec<u8>> {
        match self.step {
            Step::Create(file) | Step::Unlink(file) if self.is_calling => Some(name(file)),
            _ => None,
        }
    }

    pub fn on_client(&mut self, now: Now, input: Input) -> Said {
        if matches!(input, Input::Tick) {
            self.ticked = now.time;
        }
        let mut said = Said::default();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut out = Vec::new();
            self.machine.handle(now, input, &mut out);
            for output in out {
                match output {
                    Output::Send(frame) => said.frames.push(frame),
                    Output::Reply { result: Ok(answer), .. } => {
                        self.end_call(now.time);
                        self.on_answer(answer);
                        said.has_progressed = true;
                    }
                    Output::Reply { result: Err(errno), .. } => {
                        said.failed = Some(errno);
                        if self.is_given_up() {
                            // It is told once, and goes on with something new.
                            self.end_call(now.time);
                            self.step = Step::Create(self.next_call);
                            said.has_progressed = true;
                        }
                    }
                    Output::Notify(id, _) => inputs.push(Input::Notified(id, NotifyResult::Ok)),
                    Output::NeedGroups { id, .. } => {
                        inputs.push(Input::Groups { id, groups: Some(Vec::new()) })
                    }
                    Output::NeedSignals { .. } | Output::CallOff(_) | Output::Drained | Output::Event(_) => {}
                }
            }
        }
        self.client_deadline = self.machine.next_deadline();
        said
    }

    fn end_call(&mut self, now: Time) {
        self.is_calling = false;
        self.asked = None;
        self.last_progress = Some(now);
    }

    fn on_answer(&mut self, answer: Answer) {
        let file = self.next_call;
        self.step = match (self.step.clone(), answer) {
            (Step::Mkdir, Answer::Entry(entry)) => {
                self.directory = Some(entry.node);
                Step::Create(file)
            }
            (Step::Create(made), Answer::Created { entry, fh, .. }) => {
                self.names.insert(name(made));
                if self.names.len() == 1 { Step::Create(file) } else { Step::Release(entry.node, fh) }
            }
            (Step::Release(..), _) => match self.names.last().and_then(|last| number(last)) {
                Some(last) if !last.is_multiple_of(KEPT_ONE_IN) => Step::Unlink(last),
                _ => Step::Create(file),
            },
            (Step::Unlink(removed), _) => {
                self.names.remove(&name(removed));
                if let Some(given_up) = &mut self.given_up {
                    given_up.removed.insert(name(removed));
                }
                if file.is_multiple_of(2) {
                    // The same name: if the unlink were done again, that would go too.
                    self.reused.insert(name(removed));
                    Step::Create(removed)
                } else {
                    Step::Create(file)
                }
            }
            (step, answer) => panic!("{step:?} was answered {answer:?}"),
        };
    }

    /// Frames to send, and what its client has to know.
    pub fn on_mgc(&mut self, now: Now, leases: LeaseClock, input: mgc::Input) -> (Vec<Frame>, Vec<Input>) {
        let (mut frames, mut inputs, mut out) = (Vec::new(), Vec::new(), Vec::new());
        self.mgc.handle(now, input, &mut out);
        self.mgc_deadline = self.mgc.next_deadline();
        for output in out {
            match output {
                mgc::Output::Send(frame) => frames.push(frame),
                mgc::Output::Renewed(at) => inputs.push(Input::Lease(leases.in_our_time(at))),
                mgc::Output::Started(target, epoch) => inputs.push(Input::TargetStarted(target, epoch)),
                _ => {}
            }
        }
        (frames, inputs)
    }
}

/// In order of their numbers.
fn name(file: u64) -> Vec<u8> {
    format!("f{file:08}").into_bytes()
}

fn number(name: &[u8]) -> Option<u64> {
    std::str::from_utf8(name.get(1..)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
