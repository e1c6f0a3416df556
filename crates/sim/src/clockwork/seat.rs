//! A mount of a clockwork cluster: its machine, its lease, its kernel, and a process that makes one call after the other.

use crate::cluster::{CLIENT_MARK, client_options};
use crate::frames::MGC_MARK;
use crate::model::{Op, Outcome as Told};
use crate::mount::{Kernel, Port, Task};
use crate::servers::new_mgc;
use base::{ClientId, ClusterConfig, Endpoint, Machine, Now, Time};
use client::mgc::{self, Mgc};
use client::{Client, Event, Input, Notify, NotifyId, NotifyResult, Output};
use std::cell::RefCell;
use std::rc::Rc;
use wire::{Frame, Life};

pub(crate) struct Seat {
    pub id: ClientId,
    machine: Client,
    mgc: Mgc,
    port: Port,
    task: Option<Task>,
    /// By the last call; nothing while it is under way.
    pub told: Option<Told>,
    /// Its machine has lost power, and nobody comes back.
    pub is_gone: bool,
}

/// What came of an input.
#[derive(Default)]
pub(crate) struct Said {
    pub frames: Vec<Frame>,
    pub notifies: Vec<(NotifyId, Notify)>,
    pub events: Vec<Event>,
    pub told: Option<Told>,
}

impl Seat {
    pub fn new(now: Now, number: usize, config: &ClusterConfig) -> (Seat, Said) {
        let id = ClientId(CLIENT_MARK + number as u128);
        let options = client_options(id, number as u128);
        let mut seat = Seat {
            id,
            machine: Client::new(now, options),
            mgc: new_mgc(ClientId(id.0 | MGC_MARK), Vec::new()),
            port: Rc::new(RefCell::new(Kernel::default())),
            task: None,
            told: None,
            is_gone: false,
        };
        let mut said = Said::default();
        seat.on_client(now, Input::Lease(now.time), &mut said);
        seat.on_client(now, Input::Config(config.clone()), &mut said);
        let lives = vec![Life { client: id, incarnation: 1 }];
        seat.on_mgc(now, mgc::Input::Keep(lives), &mut said);
        (seat, said)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let deadlines = [self.machine.next_deadline(), self.mgc.next_deadline()];
        deadlines.into_iter().flatten().min().filter(|_| !self.is_gone)
    }

    pub fn launch(&mut self, now: Now, op: Op) -> Said {
        let mut said = Said::default();
        self.port.borrow_mut().now = now.time;
        self.told = None;
        self.task = Some(Task::new(&self.port, op));
        let calls = self.go_on(&mut said);
        calls.into_iter().for_each(|call| self.on_client(now, call, &mut said));
        said
    }

    pub fn on_frame(&mut self, now: Now, frame: Frame) -> Said {
        let mut said = Said::default();
        if !self.is_gone {
            match frame.dst == Endpoint::Client(self.id) {
                true => self.on_client(now, Input::Frame(frame), &mut said),
                false => self.on_mgc(now, mgc::Input::Frame(frame), &mut said),
            }
        }
        said
    }

    pub fn on_tick(&mut self, now: Now) -> Said {
        let mut said = Said::default();
        self.on_mgc(now, mgc::Input::Tick, &mut said);
        self.on_client(now, Input::Tick, &mut said);
        said
    }

    /// The kernel is told to drop something. `None` while a call holds the directory that it is in.
    pub fn on_notify(&mut self, now: Now, id: NotifyId, notify: &Notify) -> Option<Said> {
        let mut said = Said::default();
        if self.is_gone {
            return Some(said);
        }
        let was_known = {
            let mut kernel = self.port.borrow_mut();
            if notify.directory().is_some_and(|parent| kernel.is_locked(parent)) {
                return None;
            }
            kernel.on_notify(notify)
        };
        let result = if was_known { NotifyResult::Ok } else { NotifyResult::NoEntry };
        self.on_client(now, Input::Notified(id, result), &mut said);
        Some(said)
    }

    fn on_client(&mut self, now: Now, input: Input, said: &mut Said) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.port.borrow_mut().now = now.time;
            let mut out = Vec::new();
            self.machine.handle(now, input, &mut out);
            self.machine.check();
            for output in out {
                match output {
                    Output::Send(frame) => said.frames.push(frame),
                    Output::Reply { id, result } => self.port.borrow_mut().on_reply(id, result),
                    Output::Notify(id, notify) => {
                        if notify == Notify::IncEpoch {
                            // It takes no lock in the kernel.
                            self.port.borrow_mut().drop_all_names();
                        }
                        said.notifies.push((id, notify));
                    }
                    Output::Event(event) => said.events.push(event),
                    Output::NeedGroups { .. }
                    | Output::NeedSignals { .. }
                    | Output::CallOff(_)
                    | Output::Drained => {}
                }
            }
            let calls = self.go_on(said);
            inputs.extend(calls.into_iter().rev());
        }
    }

    /// The process goes on as far as it can. Its calls are returned.
    fn go_on(&mut self, said: &mut Said) -> Vec<Input> {
        if let Some(told) = self.task.as_mut().and_then(Task::poll) {
            self.task = None;
            self.told = Some(told.clone());
            said.told = Some(told);
        }
        let calls = std::mem::take(&mut self.port.borrow_mut().outbox);
        calls.into_iter().map(|(id, call, caller)| Input::Call { id, call, caller }).collect()
    }

    fn on_mgc(&mut self, now: Now, input: mgc::Input, said: &mut Said) {
        let mut out = Vec::new();
        self.mgc.handle(now, input, &mut out);
        for output in out {
            match output {
                mgc::Output::Send(frame) => said.frames.push(frame),
                mgc::Output::Renewed(at) => self.on_client(now, Input::Lease(at), said),
                mgc::Output::Started(target, epoch) => {
                    self.on_client(now, Input::TargetStarted(target, epoch), said);
                }
                _ => {}
            }
        }
    }
}
