//! An MGS, and who asks it: a session of its own, which processes have beside those of their mounts and targets.

use base::{ClientId, Endpoint, Machine, Now, Status, TargetConfig, TargetId};
use bytes::Bytes;
use mgs::{Mgs, MgsOptions};
use rpc::{Import, ImportOptions, ImportOutput, Kind, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::MemoryMeta;
use wire::{Frame, MgsRequest, Reply, Request};

const UUID: u128 = 99;
/// Mounts are numbered from 1.
const CALLER: ClientId = ClientId(1000);

pub struct Management {
    store: Arc<MemoryMeta>,
    machine: Mgs<MemoryMeta>,
    caller: Option<Import>,
    answers: BTreeMap<Ticket, Result<Reply, Status>>,
    /// Which it has put out, in their order.
    pub probes: Vec<mgs::Probe>,
}

impl Management {
    pub fn new(now: Now) -> Management {
        let store = Arc::new(MemoryMeta::new());
        let options = MgsOptions {
            uuid: UUID,
            now,
            recovery_window: base::limits::RECOVERY_WINDOW,
            active_until: None,
        };
        let machine = Mgs::open(Arc::clone(&store), options).expect("the store is sound");
        Management { store, machine, caller: None, answers: BTreeMap::new(), probes: Vec::new() }
    }

    /// Who asks: a process.
    pub fn add_caller(&mut self) {
        let options = ImportOptions {
            client: CALLER,
            incarnation: 1,
            starts: Vec::new(),
            fsname: String::new(),
            nid: "caller".to_owned(),
            target: TargetId::MGT,
            target_uuid: 0,
        };
        self.caller = Some(Import::new(options));
    }

    /// A frame for the MGS or for who asks it; `None` when it is for neither.
    pub fn on_frame(&mut self, now: Now, frame: &Frame) -> Option<Vec<Frame>> {
        let frame = frame.clone();
        if frame.dst == Endpoint::Target(TargetId::MGT) {
            return Some(self.input(now, mgs::Input::Frame(frame)));
        }
        let caller = self.caller.as_mut().filter(|_| frame.dst == CALLER.endpoint())?;
        let mut out = Vec::new();
        caller.on_frame(now, frame, &mut out);
        Some(self.on_caller(out))
    }

    pub fn on_tick(&mut self, now: Now) -> Vec<Frame> {
        let mut sent = self.input(now, mgs::Input::Tick);
        let mut out = Vec::new();
        if let Some(caller) = &mut self.caller {
            caller.on_tick(now, &mut out);
        }
        sent.extend(self.on_caller(out));
        sent
    }

    /// Its store syncs, if it was asked to.
    pub fn sync_where_asked(&mut self, now: Now) -> Option<Vec<Frame>> {
        self.store.take_kick().then(|| {
            self.store.sync();
            self.input(now, mgs::Input::Durable)
        })
    }

    pub fn ask(&mut self, now: Now, request: MgsRequest) -> (Ticket, Vec<Frame>) {
        let mut out = Vec::new();
        let caller = self.caller.as_mut().expect("somebody asks");
        let is_plain = matches!(
            request,
            MgsRequest::GetConfig { .. }
                | MgsRequest::ListFilesystems
                | MgsRequest::Started { .. }
                | MgsRequest::Renew { .. }
                | MgsRequest::AskLapsed { .. }
        );
        let kind = if is_plain { Kind::Plain } else { Kind::Modifying };
        let ticket = caller.submit(now, Request::Mgs(request), Bytes::new(), kind, 0, &mut out);
        (ticket, self.on_caller(out))
    }

    /// Another process serves the target of the last probe, where it was.
    pub fn find(&mut self, now: Now) -> Vec<Frame> {
        let Some(probe) = self.probes.last() else { return Vec::new() };
        let nid = probe.nids.first().cloned().unwrap_or_default();
        let found = vec![mgs::Found { nid, process: ClientId(1) }];
        self.input(now, mgs::Input::Probed { id: probe.id, found })
    }

    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Result<Reply, Status>> {
        self.answers.remove(&ticket)
    }

    fn input(&mut self, now: Now, input: mgs::Input) -> Vec<Frame> {
        let mut out = Vec::new();
        self.machine.handle(now, input, &mut out);
        self.machine.check();
        let sent = out.into_iter().filter_map(|output| match output {
            mgs::Output::Send(frame) => Some(frame),
            mgs::Output::Event(_) => None,
            mgs::Output::Probe(probe) => {
                self.probes.push(probe);
                None
            }
        });
        sent.collect()
    }

    fn on_caller(&mut self, out: Vec<ImportOutput>) -> Vec<Frame> {
        let mut sent = Vec::new();
        for output in out {
            match output {
                ImportOutput::Send(frame) => sent.push(frame),
                ImportOutput::Completed { ticket, result } => {
                    self.answers.insert(ticket, result.map(|answer| answer.reply));
                }
                ImportOutput::Evicted | ImportOutput::ReplayFailed { .. } => panic!("nothing is lost here"),
                _ => {}
            }
        }
        sent
    }
}

/// A target as it registers.
pub fn target(id: TargetId) -> TargetConfig {
    TargetConfig { id, uuid: 7, nids: vec!["127.0.0.1:7988".to_owned()], is_active: true }
}
