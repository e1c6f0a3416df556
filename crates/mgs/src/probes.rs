//! Registrations that wait for what somebody says at the addresses that the target had before: whether a process serves it there still. If
//! one does, what registers is a copy of the target, and the two would share its clients between them.
//!
//! Only an answer refuses. No answer means that it is not known, and then a target may move: its machine may be dead. The process that registers
//! is no other one, by whatever name its machine is called.

use base::{ClientId, Duration, TargetConfig, TargetId, Time};
use std::collections::BTreeMap;
use target::Token;
use wire::Claim;

/// How long a registration waits for what was found.
pub const PROBE_WAIT: Duration = Duration::from_secs(2);
/// How long an address has to answer: what others have answered is to be here in time, whoever says nothing.
pub const ANSWER_WAIT: Duration = Duration::from_millis(1500);
const _: () = assert!(ANSWER_WAIT.as_millis() < PROBE_WAIT.as_millis());
/// Registrations that wait at a time, of as many targets; who comes then asks again.
pub const PROBE_COUNT_MAX: usize = if cfg!(test) { 4 } else { 256 };
/// Addresses that are asked, those where it was last.
const NIDS_PER_PROBE_MAX: usize = 8;

/// A question that the process of the management server is to ask, at each of the addresses, on connections of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub id: u64,
    pub target: TargetId,
    pub uuid: u128,
    pub nids: Vec<String>,
    /// Who registers. Any other one that serves the target settles it.
    pub process: ClientId,
}

/// A process that serves the target, and where it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub nid: String,
    pub process: ClientId,
}

/// What a target has asked for.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub token: Token,
    pub fsname: String,
    pub target: TargetConfig,
    pub claim: Claim,
}

impl Registration {
    /// Where another process than the one that registers serves the target.
    pub fn elsewhere(&self, found: Vec<Found>) -> Option<String> {
        found.into_iter().find(|found| found.process != self.token.client).map(|found| found.nid)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// By probe; each is given up at its time.
    parked: BTreeMap<u64, (Time, Registration)>,
    last_id: u64,
}

impl Probes {
    /// `None`: somebody waits for this target already, or too many do.
    pub fn park(&mut self, now: Time, registration: Registration, nids: Vec<String>) -> Option<Probe> {
        let Registration { fsname, target, .. } = &registration;
        let is_same = |other: &Registration| other.fsname == *fsname && other.target.id == target.id;
        if self.parked.len() >= PROBE_COUNT_MAX || self.parked.values().any(|(_, other)| is_same(other)) {
            return None;
        }
        self.last_id += 1;
        let process = registration.token.client;
        let probe = Probe { id: self.last_id, target: target.id, uuid: target.uuid, nids, process };
        self.parked.insert(self.last_id, (now.after(PROBE_WAIT), registration));
        Some(probe)
    }

    /// The one that this probe was for, if it waits still.
    pub fn take(&mut self, id: u64) -> Option<Registration> {
        self.parked.remove(&id).map(|(_, registration)| registration)
    }

    /// Those that have waited for long enough.
    pub fn take_due(&mut self, now: Time) -> Vec<Registration> {
        let due = self.parked.extract_if(.., |_, (until, _)| *until <= now);
        due.map(|(_, (_, registration))| registration).collect()
    }

    /// This caller waits for nothing any more.
    pub fn forget(&mut self, client: ClientId) {
        self.parked.retain(|_, (_, registration)| registration.token.client != client);
    }

    /// Whoever waits is to ask another management server.
    pub fn clear(&mut self) {
        self.parked.clear();
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.parked.values().map(|(until, _)| *until).min()
    }

    pub fn check(&self) {
        assert!(self.parked.len() <= PROBE_COUNT_MAX);
        assert!(self.parked.keys().all(|id| *id <= self.last_id));
    }
}

/// The addresses of `before` at which a target of these is to be asked for; `None` if it was nowhere else.
pub(crate) fn nids_to_ask(nids: &[String], before: &[String]) -> Option<Vec<String>> {
    let elsewhere = before.iter().filter(|nid| !nids.contains(nid)).take(NIDS_PER_PROBE_MAX);
    let elsewhere: Vec<String> = elsewhere.cloned().collect();
    (!elsewhere.is_empty()).then_some(elsewhere)
}
