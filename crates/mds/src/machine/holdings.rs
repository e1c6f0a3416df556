//! What clients hold, noted beside the process (`store::Holdings`): their locks and open handles.
//!
//! After the death of the process alone the next incarnation installs them as they were (a *lossless* recovery). A client that has not
//! come back is then like one whose connection is down for a while: what it has locked and open is in the way of others, who wait until
//! it is back and gives way, or is given up. What a client does not name when it comes back it does not have any more.
//!
//! Advisory locks are not noted. So who asks for one waits for the end of the recovery; and so do operations over several MDTs, what
//! moves inodes, and the purge of files without a name.

use super::flow::{Flow, Run, Stage, Step};
use super::{Mds, Output};
use crate::op::{Effect, Outcome, Stop};
use crate::opens::Opens;
use base::fault::{Fault, planted};
use base::{ClientId, Epoch, Fid, Now, OpenHandle};
use ldlm::{LockSpace, OpId};
use std::collections::{BTreeSet, VecDeque};
use store::holdings::Nothing;
use store::{Holding, HoldingKey, Holdings, Left, MetaStore};
use target::Work;
use target::noted::{self, Unnamed, fid_of, pair};
use wire::mdt::OpenArgs;
use wire::{Life, LockGrant, LockRequest, MdtRequest, Request, Resource};

/// The kind of a handle's key.
const OPEN: u64 = noted::LOCK + 1;

/// The note, and what follows from it in a recovery.
pub(super) struct Noted {
    pub holdings: Box<dyn Holdings>,
    unnamed: Unnamed,
    /// Work that waits for the end of the recovery.
    late: VecDeque<Work>,
    /// Nobody is to believe the note of this incarnation any more.
    is_void: bool,
}

impl Noted {
    pub fn new(holdings: Box<dyn Holdings>) -> Noted {
        Noted { holdings, unnamed: Unnamed::default(), late: VecDeque::new(), is_void: false }
    }

    pub fn is_empty(&self) -> bool {
        self.late.is_empty()
    }
}

impl Default for Noted {
    fn default() -> Noted {
        Noted::new(Box::new(Nothing))
    }
}

/// What the incarnation before has left, as it was.
#[derive(Default)]
pub(super) struct Restored {
    pub locks: LockSpace,
    pub opens: Opens,
}

impl Restored {
    /// `None`: it makes no sense, and cannot be what it should be.
    pub fn from_note(left: &Left) -> Option<Restored> {
        let mut restored = Restored::default();
        for (key, words) in &left.held {
            match key.kind {
                noted::LOCK => noted::restore_lock(&mut restored.locks, *key, words)?,
                OPEN => {
                    let (fid, open) = open_of(key.number, words)?;
                    restored.opens.restore(key.client, fid, open);
                }
                _ => return None,
            }
        }
        Some(restored)
    }
}

impl<M: MetaStore> Mds<M> {
    /// Right after the start, in a lossless recovery.
    pub(super) fn install_left(&mut self, now: Now, restored: Restored) {
        if planted(Fault::HoldingsIgnored) {
            return;
        }
        (self.locks, self.opens) = (restored.locks, restored.opens);
        let strangers: BTreeSet<ClientId> =
            self.locks.holders().into_iter().chain(self.opens.clients()).collect();
        for client in strangers {
            if !self.core.is_connected(client) {
                // Its session was ended just before.
                self.locks.drop_holder(now.time, client, &mut self.lock_out);
                let life = self.fences.last_life_of(client);
                self.opens.drop_client(now.time, life.unwrap_or(Life { client, incarnation: 0 }));
            } else {
                self.noted.unnamed.add(client, self.locks.locks_of(client));
            }
        }
    }

    /// The note of this incarnation begins.
    pub(super) fn begin_note(&mut self) {
        self.locks.note_changes();
        self.opens.take_changed();
        let held = self.held();
        let (epoch, is_whole) = (self.core.epoch(), self.core.is_lossless());
        self.noted.holdings.begin(epoch, &held, is_whole);
    }

    /// What clients hold now, as it is noted.
    pub fn held(&self) -> Vec<(HoldingKey, Holding)> {
        let open = |(client, fid, open): (ClientId, Fid, OpenArgs)| {
            (open_key(client, open.handle), words_of_open(fid, open))
        };
        noted::held_locks(&self.locks).into_iter().chain(self.opens.iter().map(open)).collect()
    }

    /// The end of each input, before its answers leave: what was granted is in the note before its client hears of it. What went is
    /// taken out after the rows that say so were handed over.
    pub(super) fn note_held(&mut self) {
        noted::note_locks(&mut self.locks, &mut *self.noted.holdings);
        for (client, handle) in self.opens.take_changed() {
            match self.opens.get(client, handle) {
                Some((fid, open)) => {
                    self.noted.holdings.put(open_key(client, handle), words_of_open(fid, open))
                }
                None => self.noted.holdings.remove(open_key(client, handle)),
            }
        }
        self.noted.holdings.set_applied(self.core.last_transno());
    }

    /// The store has made more durable, or says that it never will: then the next incarnation may read what is in the kernel's memory
    /// only, and is not to take that for all that there was.
    pub(super) fn check_note(&mut self) {
        if !self.noted.is_void && self.core.store().pressure().poisoned {
            self.noted.is_void = true;
            self.noted.holdings.begin(Epoch::ZERO, &[], false);
        }
    }

    /// An open that changes rows is remembered with them. (Locks are not: an answer that is given again has none.)
    pub(super) fn note_opening(&mut self, client: ClientId, outcome: &Outcome) {
        for (fid, open) in opened(outcome) {
            self.noted.holdings.put(open_key(client, open.handle), words_of_open(fid, open));
        }
    }

    /// It failed.
    pub(super) fn note_unopened(&mut self, client: ClientId, outcome: &Outcome) {
        for (_, open) in opened(outcome) {
            self.opens.note_unopened(client, open.handle);
        }
    }

    /// A client says that it has these.
    pub(super) fn note_named(&mut self, client: ClientId, locks: &[LockGrant]) {
        self.noted.unnamed.on_named(client, locks);
    }

    /// A client has named all that it has.
    pub(super) fn on_returned(&mut self, now: Now, client: ClientId) {
        let unnamed = self.noted.unnamed.take(client);
        self.locks.cancel(now.time, client, &unnamed, &mut self.lock_out);
        self.opens.drop_unconfirmed_of(client);
    }

    pub(super) fn forget_noted(&mut self, client: ClientId) {
        self.noted.unnamed.take(client);
        self.noted.late.retain(|work| work.token.client != client);
    }

    /// Takes what has to wait for the end of a lossless recovery.
    pub(super) fn try_defer(&mut self, work: Work) -> Option<Work> {
        let is_new = self.core.is_recovering() && work.token.replay.is_none();
        if is_new && is_of_the_end(&work.request) {
            self.noted.late.push_back(work);
            return None;
        }
        Some(work)
    }

    /// The recovery is over.
    pub(super) fn execute_late(&mut self, now: Now, out: &mut Vec<Output>) {
        self.noted.unnamed.clear();
        if !self.noted.is_void {
            self.noted.holdings.set_whole();
        }
        self.wake_parked();
        for work in std::mem::take(&mut self.noted.late) {
            self.on_work(now, work, out);
        }
    }

    /// A new operation that concerns other MDTs waits for the end of the recovery.
    pub(super) fn await_end(&mut self, now: Now, op: OpId, flow: &mut Flow, run: &Run) -> Option<Step> {
        let is_new = matches!(flow.request, Request::Mdt(_)) && flow.token.replay.is_none();
        if !is_new || !self.core.is_recovering() {
            return None;
        }
        let is_of_others = match &run.result {
            Err(Stop::NewFid { mdt }) => *mdt != self.options.index,
            Err(
                Stop::Peek { .. }
                | Stop::Walk { .. }
                | Stop::PeekDirectory { .. }
                | Stop::PeekWhole { .. }
                | Stop::PeekFile { .. },
            ) => true,
            Err(Stop::Status(_) | Stop::Place) | Ok(_) => !run.parts.is_empty(),
        };
        is_of_others.then(|| {
            self.release_claims(now, op, flow);
            flow.stage = Stage::Frozen;
            self.parked.insert(op);
            Step::Waits
        })
    }

    /// Sent again after a restart that has lost something: it is executed in its old place, and nobody holds anything yet. Where the note
    /// has kept what clients hold, what they say again is an operation like any other.
    pub(super) fn is_before_locks(&self, flow: &Flow) -> bool {
        let is_recovering = self.core.is_recovering() && !self.core.is_lossless();
        is_recovering && (flow.token.replay.is_some() || super::flow::is_prepare(&flow.request))
    }
}

fn opened(outcome: &Outcome) -> impl Iterator<Item = (Fid, OpenArgs)> {
    outcome.effects.iter().filter_map(|effect| match effect {
        Effect::Opened { fid, open } | Effect::Reopened { fid, open } => Some((*fid, *open)),
        Effect::Closed { .. } => None,
    })
}

fn is_of_the_end(request: &Request) -> bool {
    match request {
        Request::Mdt(request) => matches!(
            request,
            MdtRequest::Flock { .. }
                | MdtRequest::FlockCancel { .. }
                | MdtRequest::Getlk { .. }
                | MdtRequest::Migrate { .. }
        ),
        Request::Lock(LockRequest::Enqueue { resource, .. }) => *resource == Resource::Rename,
        _ => false,
    }
}

fn open_key(client: ClientId, handle: OpenHandle) -> HoldingKey {
    HoldingKey { client, kind: OPEN, number: handle.0 }
}

/// How it is open; the file.
fn words_of_open(fid: Fid, open: OpenArgs) -> Holding {
    let how = u64::from(open.read) | u64::from(open.write) << 1 | u64::from(open.execute) << 2;
    [how, fid.seq, pair(fid.oid, fid.ver), 0, 0, 0]
}

fn open_of(number: u64, words: &Holding) -> Option<(Fid, OpenArgs)> {
    let [how, seq, rest, ..] = *words;
    let has = |bit: u64| how & bit != 0;
    let open = OpenArgs { handle: OpenHandle(number), read: has(1), write: has(2), execute: has(4) };
    (how < 8).then(|| (fid_of(seq, rest), open))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base::LockId;
    use target::noted::{lock_key, words_of_lock};
    use wire::{LockMode, LockPolicy};

    #[test]
    fn what_is_noted_is_read_back_as_it_was() {
        let fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 3 };
        let open = OpenArgs { handle: OpenHandle(5), read: true, write: false, execute: true };
        assert_eq!(open_of(5, &words_of_open(fid, open)), Some((fid, open)));
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        let grant = LockGrant {
            lock: LockId(1),
            resource: Resource::Inode(Fid::ROOT),
            mode: LockMode::Pr,
            policy: LockPolicy::Bits(1),
        };
        let words = words_of_lock(&grant);
        assert_eq!(open_of(1, &[8, 0, 0, 0, 0, 0]), None);
        let key = |number| HoldingKey { client: ClientId(1), kind: noted::LOCK, number };
        let held = vec![(HoldingKey { kind: 9, ..key(1) }, words)];
        assert!(Restored::from_note(&Left { held, ..Left::default() }).is_none());
    }

    #[test]
    fn a_note_of_two_owners_of_one_thing_is_refused() {
        let grant = |mode| LockGrant {
            lock: LockId(1),
            resource: Resource::Inode(Fid::ROOT),
            mode,
            policy: LockPolicy::Bits(1),
        };
        let held = |second| {
            let of =
                |client: u128, mode| (lock_key(ClientId(client), LockId(1)), words_of_lock(&grant(mode)));
            Left { held: vec![of(1, LockMode::Pr), of(2, second)], ..Left::default() }
        };
        assert_eq!(Restored::from_note(&held(LockMode::Pr)).unwrap().locks.lock_count(), 2);
        assert!(Restored::from_note(&held(LockMode::Ex)).is_none());
    }
}
