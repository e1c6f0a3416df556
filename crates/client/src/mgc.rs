//! The session of a process with the management server: registers targets, follows the configuration and changes it, keeps the leases
//! of its mounts, and asks whose leases have ended. A machine like the others; the process performs its outputs.

use base::limits::{LEASE, LEASE_RENEWAL, LEASE_TRUST};
use base::{
    ClientId, ClusterConfig, Duration, Epoch, Machine, Now, Start, Status, TargetConfig, TargetId, Time,
};
use bytes::Bytes;
use rpc::{Import, ImportOptions, ImportOutput, ImportState, Kind, Ticket};
use std::collections::BTreeMap;
use wire::{Callback, Claim, Frame, Life, MgsReply, MgsRequest, Reply, Request};

/// A request that failed is sent again after this time.
const RETRY: Duration = Duration::from_millis(250);
/// A target that is served elsewhere asks again after this time, and so often in all: whoever served it before may just be ending. Not for ever, since one
/// that waits here would take the place of the other as soon as that one is restarted, and its data are older.
const ELSEWHERE_RETRY: Duration = Duration::from_secs(2);
const ELSEWHERE_COUNT_MAX: u32 = 5;
/// A target for which the management server has no room asks again after this time: somebody has to make some.
const NO_ROOM_RETRY: Duration = Duration::from_secs(10);
/// Whoever keeps no leases has a question open at all times that is answered within 5 s: when nothing has come for so long, nothing will.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// Clients in one question; the next one is about those behind them.
pub const LIVES_PER_REQUEST_MAX: usize = 16_384;

pub enum Input {
    /// Register and fetch.
    Start,
    Frame(Frame),
    /// A request that makes a new configuration.
    Change {
        id: u64,
        request: MgsRequest,
    },
    /// Nobody waits any more for this change: it is not asked again, since others may have changed the same by then.
    GiveUp(u64),
    /// A request of another kind, whose answer is put out as it is. `is_modifying`: executed once; the others can be withdrawn.
    Ask {
        id: u64,
        request: MgsRequest,
        is_modifying: bool,
    },
    /// Nobody waits any more for the answer of an `Ask` that modifies nothing.
    Withdraw(u64),
    /// One more target of this process.
    Register(Registration),
    /// The clients of this process, whose leases are renewed from now on.
    Keep(Vec<Life>),
    /// A target of this process serves, as this incarnation.
    Announce(TargetId, Epoch),
    /// Which of these have no lease? Nothing is asked while a question is under way.
    AskLapsed(Vec<Life>),
    /// The transport lost its connection to the management server.
    ConnectionLost,
    Disconnect,
    Tick,
}

#[derive(Debug)]
pub enum Output {
    Send(Frame),
    /// A newer configuration than the last one.
    Config(ClusterConfig),
    /// The management server has taken it; `is_confirmed`: it remembers an earlier start, from which this one descends.
    Registered {
        target: TargetId,
        is_confirmed: bool,
    },
    /// The management server does not take this target; asking again is no use.
    Refused {
        target: TargetId,
        status: Status,
    },
    /// The management server has no room for this target, and is asked again.
    NoRoom(TargetId),
    /// Another process serves this target, so this one must not. Unless it is for good, the management server is asked again.
    Elsewhere {
        target: TargetId,
        is_for_good: bool,
    },
    /// This target is an older copy: the management server knows of this start, and is not asked again.
    Outdated {
        target: TargetId,
        known: Start,
    },
    /// The management server does not know the file system.
    UnknownFilesystem,
    /// The version of the configuration that has the change.
    Changed {
        id: u64,
        result: Result<u64, Status>,
    },
    /// The answer to an `Ask`.
    Answered {
        id: u64,
        result: Result<MgsReply, Status>,
    },
    /// The leases of the clients of this process hold, counted from here.
    Renewed(Time),
    /// Nothing comes from the management server, which has been asked: what its connection takes may be lost.
    Unheard,
    /// These clients had no lease at this time or later.
    Lapsed {
        at: Time,
        lives: Vec<Life>,
    },
    /// A target of the file system has started, as this incarnation.
    Started(TargetId, Epoch),
}

#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Register(Registration),
    Config,
    /// `again`: what is asked again when its session ends, since asking twice is as good as once.
    Change {
        id: u64,
        again: Option<MgsRequest>,
    },
    Other {
        id: u64,
        is_modifying: bool,
    },
    Renew {
        at: Time,
    },
    Lapsed {
        at: Time,
    },
    Announce(TargetId, Epoch),
}

/// A target that this process serves, and why it is that one.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    pub target: TargetConfig,
    pub claim: Claim,
}

impl From<TargetConfig> for Registration {
    fn from(target: TargetConfig) -> Registration {
        Registration { target, claim: Claim::default() }
    }
}

pub struct Mgc {
    import: Import,
    fsname: String,
    registrations: Vec<Registration>,
    /// How often each target was found elsewhere since it was last taken.
    elsewhere: BTreeMap<TargetId, u32>,
    asked: BTreeMap<Ticket, Asked>,
    /// What is asked again when its time comes.
    again: Vec<(Time, Asked)>,
    version: u64,
    /// Clients of this process.
    lives: Vec<Life>,
    renew_at: Time,
    /// When something came from the management server, or `Unheard` was put out.
    heard: Time,
    /// When something came from it, or it was asked each second from then on.
    last_frame: Time,
    /// The last one that was asked about.
    asked_up_to: Option<Life>,
    from_import: Vec<ImportOutput>,
}

impl Mgc {
    /// `registrations`: the targets of this process.
    pub fn new(client: ClientId, fsname: &str, nid: &str, registrations: Vec<Registration>) -> Mgc {
        let options = ImportOptions {
            client,
            incarnation: 1,
            fsname: fsname.to_owned(),
            nid: nid.to_owned(),
            starts: Vec::new(),
            target: TargetId::MGT,
            target_uuid: 0,
        };
        Mgc {
            import: Import::new(options),
            fsname: fsname.to_owned(),
            registrations,
            elsewhere: BTreeMap::new(),
            asked: BTreeMap::new(),
            again: Vec::new(),
            version: 0,
            lives: Vec::new(),
            renew_at: Time::ZERO,
            heard: Time::ZERO,
            last_frame: Time::ZERO,
            asked_up_to: None,
            from_import: Vec::new(),
        }
    }

    /// Whether the session works. A process with mounts finds out at once when nothing comes back any more, one that only serves when the
    /// connection ends.
    pub fn is_heard(&self, now: Now) -> bool {
        let is_silent = !self.lives.is_empty() && now.time >= self.last_frame.after(LEASE);
        self.import.state() == ImportState::Active && !is_silent
    }

    /// After `Disconnect`: the management server has forgotten this process, or there is nothing to forget.
    pub fn has_left(&self) -> bool {
        self.import.state() == ImportState::Disconnected
    }

    fn ask(&mut self, now: Now, asked: Asked) {
        let fsname = || self.fsname.clone();
        let (request, kind) = match &asked {
            Asked::Register(Registration { target, claim }) => {
                let (target, claim) = (target.clone(), claim.clone());
                (MgsRequest::Register { fsname: fsname(), target, claim }, Kind::Modifying)
            }
            Asked::Config => {
                (MgsRequest::GetConfig { fsname: fsname(), known_version: self.version }, Kind::Plain)
            }
            Asked::Renew { .. } => (MgsRequest::Renew { clients: self.lives.clone() }, Kind::Plain),
            Asked::Announce(target, epoch) => {
                (MgsRequest::Started { fsname: fsname(), target: *target, epoch: *epoch }, Kind::Plain)
            }
            Asked::Change { again: Some(request), .. } => (request.clone(), Kind::Modifying),
            Asked::Change { again: None, .. } | Asked::Other { .. } | Asked::Lapsed { .. } => return,
        };
        self.submit(now, request, kind, asked);
    }

    fn submit(&mut self, now: Now, request: MgsRequest, kind: Kind, asked: Asked) {
        let ticket =
            self.import.submit(now, Request::Mgs(request), Bytes::new(), kind, 0, &mut self.from_import);
        self.asked.insert(ticket, asked);
    }

    /// Each second, whatever became of the last one: each counts from when it was sent, so what is sent again is worth little.
    fn renew(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.lives.is_empty() {
            return;
        }
        self.renew_at = now.time.after(LEASE_RENEWAL);
        // Its answer would vouch for nothing.
        let is_worthless =
            |asked: &Asked| matches!(asked, Asked::Renew { at } if now.time >= at.after(LEASE_TRUST));
        let worthless = self.asked.iter().filter(|(_, asked)| is_worthless(asked)).map(|(ticket, _)| *ticket);
        for ticket in worthless.collect::<Vec<Ticket>>() {
            self.asked.remove(&ticket);
            self.import.withdraw(ticket);
        }
        self.ask(now, Asked::Renew { at: now.time });
        self.complain(now, LEASE, out);
    }

    /// Another address of the management server may answer.
    fn complain(&mut self, now: Now, silence: Duration, out: &mut Vec<Output>) {
        if now.time >= self.heard.after(silence) {
            self.heard = now.time;
            out.push(Output::Unheard);
        }
    }

    fn ask_lapsed(&mut self, now: Now, mut clients: Vec<Life>) {
        let is_under_way = self.asked.values().any(|asked| matches!(asked, Asked::Lapsed { .. }));
        if is_under_way || clients.is_empty() {
            return;
        }
        clients.sort_unstable();
        let done = clients.partition_point(|life| Some(*life) <= self.asked_up_to);
        clients.rotate_left(done);
        clients.truncate(LIVES_PER_REQUEST_MAX);
        self.asked_up_to = clients.last().copied();
        self.submit(now, MgsRequest::AskLapsed { clients }, Kind::Plain, Asked::Lapsed { at: now.time });
    }

    fn on_completed(&mut self, now: Now, asked: Asked, result: Result<Reply, Status>, out: &mut Vec<Output>) {
        match (asked, result) {
            (
                asked @ (Asked::Register(_) | Asked::Config),
                Ok(Reply::Mgs(reply @ (MgsReply::Config(_) | MgsReply::Confirmed(_)))),
            ) => {
                let is_confirmed = matches!(reply, MgsReply::Confirmed(_));
                let (MgsReply::Config(config) | MgsReply::Confirmed(config)) = reply else { return };
                // A lower version is that of a management server restored from an older copy.
                if config.version > self.version || (asked == Asked::Config && config.version != self.version)
                {
                    self.version = config.version;
                    out.push(Output::Config(config));
                }
                match asked {
                    Asked::Register(Registration { target, .. }) => {
                        self.elsewhere.remove(&target.id);
                        out.push(Output::Registered { target: target.id, is_confirmed });
                    }
                    _ => self.ask(now, Asked::Config),
                }
            }
            (Asked::Renew { at }, Ok(Reply::Done)) => out.push(Output::Renewed(at)),
            (Asked::Lapsed { at }, Ok(Reply::Mgs(MgsReply::Lapsed(lives)))) => {
                if !lives.is_empty() {
                    out.push(Output::Lapsed { at, lives });
                }
            }
            // Asked again by themselves.
            (Asked::Renew { .. } | Asked::Lapsed { .. }, _) => {}
            // The MGS was restarted: others may wait for it to tell them.
            (asked @ Asked::Announce(..), Err(Status::Evicted)) => {
                self.again.push((now.time.after(RETRY), asked));
            }
            (Asked::Announce(..), _) => {}
            (Asked::Register(Registration { target, .. }), Err(status)) if is_final(status) => {
                out.push(Output::Refused { target: target.id, status });
            }
            (Asked::Register(Registration { target, .. }), Ok(Reply::Mgs(MgsReply::Outdated { known }))) => {
                self.registrations.retain(|other| other.target.id != target.id);
                out.push(Output::Outdated { target: target.id, known });
            }
            (asked @ Asked::Register(_), Err(Status::NoSpace)) => {
                if let Asked::Register(registration) = &asked {
                    out.push(Output::NoRoom(registration.target.id));
                }
                self.again.push((now.time.after(NO_ROOM_RETRY), asked));
            }
            (Asked::Register(registration), Err(Status::Busy)) => {
                self.on_elsewhere(now, registration, out);
            }
            // Another management server has not heard of the session, and perhaps has the change.
            (asked @ Asked::Change { again: Some(_), .. }, Err(Status::Evicted)) => {
                self.again.push((now.time.after(RETRY), asked));
            }
            (Asked::Change { id, .. }, result) => {
                let version = result.and_then(|reply| match reply {
                    Reply::Mgs(MgsReply::Config(config)) => Ok(config.version),
                    _ => Err(Status::ProtocolError),
                });
                out.push(Output::Changed { id, result: version });
            }
            (Asked::Other { id, .. }, result) => {
                let result = result.and_then(|reply| match reply {
                    Reply::Mgs(reply) => Ok(reply),
                    _ => Err(Status::ProtocolError),
                });
                out.push(Output::Answered { id, result });
            }
            (asked, result) => {
                if result == Err(Status::NotFound) {
                    out.push(Output::UnknownFilesystem);
                }
                self.again.push((now.time.after(RETRY), asked));
            }
        }
    }

    fn on_elsewhere(&mut self, now: Now, registration: Registration, out: &mut Vec<Output>) {
        let target = registration.target.id;
        let count = self.elsewhere.entry(target).or_default();
        *count += 1;
        let is_for_good = *count >= ELSEWHERE_COUNT_MAX;
        if is_for_good {
            self.registrations.retain(|known| known.target.id != target);
        } else {
            self.again.push((now.time.after(ELSEWHERE_RETRY), Asked::Register(registration)));
        }
        out.push(Output::Elsewhere { target, is_for_good });
    }

    /// Another session may have asked for the same since, and heard that it is no use.
    fn is_wanted(&self, asked: &Asked) -> bool {
        !matches!(asked, Asked::Register(registration) if !self.registrations.contains(registration))
    }

    /// The tail of every input: what the session said.
    fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        while !self.from_import.is_empty() {
            for output in std::mem::take(&mut self.from_import) {
                match output {
                    ImportOutput::Send(frame) => out.push(Output::Send(frame)),
                    ImportOutput::Completed { ticket, result } => {
                        if let Some(asked) = self.asked.remove(&ticket) {
                            self.on_completed(now, asked, result.map(|answer| answer.reply), out);
                        }
                    }
                    // Nothing is held that would have to be told again.
                    ImportOutput::ReplayWanted => {
                        self.import.replay_now(now, Vec::new(), &mut self.from_import);
                    }
                    // The long poll that is under way answers with the newer configuration.
                    ImportOutput::Callback(Callback::ConfigChanged { .. }) => {}
                    ImportOutput::Callback(Callback::TargetStarted { fsname, target, epoch })
                        if fsname == self.fsname =>
                    {
                        out.push(Output::Started(target, epoch));
                    }
                    // It may have lost what it had answered: say everything again. Requests under way fail and are
                    // asked again by themselves.
                    ImportOutput::Evicted => {
                        self.version = 0;
                        for registration in self.registrations.clone() {
                            self.again.push((now.time, Asked::Register(registration)));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The management server understood, and will say the same again.
fn is_final(status: Status) -> bool {
    matches!(status, Status::Exists | Status::WrongTarget | Status::Invalid | Status::VersionMismatch)
}

impl Machine for Mgc {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Start => {
                self.heard = now.time;
                for registration in self.registrations.clone() {
                    self.ask(now, Asked::Register(registration));
                }
                self.ask(now, Asked::Config);
            }
            Input::Frame(frame) => {
                (self.heard, self.last_frame) = (now.time, now.time);
                self.import.on_frame(now, frame, &mut self.from_import);
            }
            Input::Change { id, request } => {
                let again = matches!(request, MgsRequest::SetParam { .. }).then(|| request.clone());
                self.submit(now, request, Kind::Modifying, Asked::Change { id, again });
            }
            Input::GiveUp(id) => {
                let is_meant =
                    |asked: &Asked| matches!(asked, Asked::Change { id: known, .. } if *known == id);
                self.again.retain(|(_, asked)| !is_meant(asked));
                let meant = self.asked.iter().find(|(_, asked)| is_meant(asked)).map(|(ticket, _)| *ticket);
                if let Some(ticket) = meant {
                    self.asked.remove(&ticket);
                    self.import.abandon(now, ticket, &mut self.from_import);
                }
            }
            Input::Ask { id, request, is_modifying } => {
                let kind = if is_modifying { Kind::Modifying } else { Kind::Plain };
                self.submit(now, request, kind, Asked::Other { id, is_modifying });
            }
            Input::Withdraw(id) => {
                let meant =
                    self.asked.iter().find(|(_, asked)| **asked == Asked::Other { id, is_modifying: false });
                if let Some(ticket) = meant.map(|(ticket, _)| *ticket) {
                    self.asked.remove(&ticket);
                    self.import.withdraw(ticket);
                }
            }
            Input::Register(registration) => {
                self.registrations.retain(|known| known.target.id != registration.target.id);
                self.registrations.push(registration.clone());
                self.ask(now, Asked::Register(registration));
            }
            Input::Keep(lives) => {
                if self.lives.is_empty() {
                    (self.heard, self.last_frame) = (now.time, now.time);
                }
                self.lives = lives;
                self.renew(now, out);
            }
            Input::Announce(target, epoch) => self.ask(now, Asked::Announce(target, epoch)),
            Input::AskLapsed(clients) => self.ask_lapsed(now, clients),
            Input::ConnectionLost => self.import.on_connection_lost(now, &mut self.from_import),
            Input::Disconnect => {
                self.again.clear();
                self.asked.clear();
                self.lives.clear();
                self.import.disconnect(now, &mut self.from_import);
            }
            Input::Tick => {
                self.import.on_tick(now, &mut self.from_import);
                let (due, later) = self.again.drain(..).partition(|(at, _)| *at <= now.time);
                self.again = later;
                let due: Vec<(Time, Asked)> = due;
                for (_, asked) in due {
                    if self.is_wanted(&asked) {
                        self.ask(now, asked);
                    }
                }
                if self.renew_at <= now.time {
                    self.renew(now, out);
                }
                if !self.asked.is_empty() {
                    self.complain(now, SILENCE_MAX, out);
                }
            }
        }
        self.settle(now, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        let again = self.again.iter().map(|(at, _)| *at).min();
        let renewal = (!self.lives.is_empty()).then_some(self.renew_at);
        let silence = (!self.asked.is_empty()).then(|| self.heard.after(SILENCE_MAX));
        [again, renewal, silence, self.import.next_deadline()].into_iter().flatten().min()
    }
}
