//! Whether this is the target that others know, or an older copy of it that somebody has put back.
//!
//! A copy takes the epoch that another start of the target has had already, and would give out again whatever is numbered by it: sessions,
//! transactions, FIDs. So each start is noted with its time, and others remember the last one that they have heard of. Who meets a
//! target that does not descend from that one says so, and the target serves nothing any more.
//!
//! What the management server remembers, and what a target remembers of those that call it, is durable, and decides. Whoever calls
//! remembers only what was answered, perhaps by an older copy that was there for a moment: that counts where the management server has
//! not said that it remembers. Of the management server itself nobody remembers enough: an older copy of it is followed.

use super::rows;
use super::{Core, CoreEvent, CoreOutput};
use base::{ClientId, Endpoint, Epoch, Now, Start, Status, Time, Transno};
use std::collections::BTreeMap;
use store::{Batch, MetaStore, StoreError};
use wire::{ConnectRequest, Frame, Reply};

/// Starts that a target remembers of itself. Of older ones it cannot be said whether they were its own.
pub const STARTS_KEPT: usize = 64;

/// The starts of one target, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage(Vec<Start>);

impl Lineage {
    /// `starts`: in any order, the last `STARTS_KEPT` of them count.
    pub fn new(mut starts: Vec<Start>) -> Lineage {
        starts.sort_unstable();
        starts.drain(..starts.len().saturating_sub(STARTS_KEPT));
        Lineage(starts)
    }

    pub fn starts(&self) -> &[Start] {
        &self.0
    }

    /// Whether a start of it that is known to somebody else counts.
    pub fn is_believed(known: Start) -> bool {
        known.epoch <= Epoch::BELIEVED_MAX
    }

    pub fn last(&self) -> Start {
        self.0.last().copied().unwrap_or_default()
    }

    /// Whether the target cannot be the one whose start this was: it has begun fewer times, or another time as that epoch.
    pub fn is_behind(&self, known: Start) -> bool {
        !self.0.is_empty()
            && (known.epoch > self.last().epoch || self.0.iter().any(|own| own.contradicts(known)))
    }
}

/// What a target hears of its start, from its process or by what it asks others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The management server is asked whether this is the newest copy, and has until then.
    AskedUntil(Time),
    /// It has taken the target; `is_confirmed`: it remembers an earlier start, and this one descends from it.
    Taken { is_confirmed: bool },
    /// Somebody knows of a later start.
    Outdated { by: Endpoint, known: Start },
}

/// Whether the word of the management server is waited for, without which nothing is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Awaited {
    /// It has come, or nobody wants it.
    #[default]
    Not,
    /// Nobody has asked for it yet.
    Unasked,
    Until(Time),
}

/// What a target remembers of starts.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub own: Lineage,
    /// The last one of each target that has called, whether or not that has a session.
    callers: BTreeMap<ClientId, Start>,
    /// What callers had been told to be durable was there when this incarnation began, up to here.
    pub kept: Transno,
    is_confirmed: bool,
    /// Somebody was connected to another copy, which knew more, and this one goes on all the same.
    has_met_another: bool,
    awaited: Awaited,
    /// Somebody knows of a later start: nothing is served.
    pub is_outdated: bool,
}

impl Remembered {
    /// Reads what the incarnations before have left, and notes this one. `is_confirmed`: whatever callers remember, this is the target.
    pub fn begin<M: MetaStore>(
        store: &M,
        this: Start,
        kept: Transno,
        is_confirmed: bool,
        batch: &mut Batch,
    ) -> Result<Remembered, StoreError> {
        let mut starts = rows::read_starts(store)?;
        starts.push(this);
        let own = Lineage::new(starts.clone());
        for forgotten in starts.iter().filter(|start| !own.starts().contains(start)) {
            rows::delete_start(batch, forgotten.epoch);
        }
        rows::put_start(batch, this);
        let callers = rows::read_callers(store)?;
        Ok(Remembered { own, callers, kept, is_confirmed, ..Remembered::default() })
    }

    /// Whether nothing is served yet.
    pub fn awaits_word(&self, now: Time) -> bool {
        match self.awaited {
            Awaited::Not => false,
            Awaited::Unasked => true,
            Awaited::Until(until) => until > now,
        }
    }

    /// When that ends by itself.
    pub fn next_deadline(&self, now: Time) -> Option<Time> {
        if let Awaited::Until(until) = self.awaited { Some(until).filter(|until| *until > now) } else { None }
    }

    /// Of what an incarnation has executed with which a caller was connected, all that is there may be known, or nothing is.
    pub fn is_own(&self, known: Start) -> bool {
        let first = self.own.starts().first().copied().unwrap_or_default();
        known.epoch >= first.epoch && !self.own.is_behind(known)
    }

    /// A target that calls, and is an older copy of one that has called: the start of that one.
    fn newer_than_caller(&self, request: &ConnectRequest) -> Option<Start> {
        let known =
            self.callers.get(&request.client).copied().filter(|known| Lineage::is_believed(*known))?;
        Lineage::new(request.starts.of_caller.clone()).is_behind(known).then_some(known)
    }

    /// A target that calls is remembered, also when its session ends.
    pub fn note_caller(&mut self, request: &ConnectRequest, batch: &mut Batch) {
        let Endpoint::Target(_) = request.client.endpoint() else { return };
        let Some(start) = request.starts.of_caller.iter().max().copied() else { return };
        let known = self.callers.entry(request.client).or_default();
        if start > *known && Lineage::is_believed(start) {
            *known = start;
            rows::put_caller(batch, request.client, start);
        }
    }
}

impl<M: MetaStore> Core<M> {
    /// The last starts of this target, this one the last: what others compare with what they remember.
    pub fn lineage(&self) -> &Lineage {
        &self.remembered.own
    }

    /// That this incarnation has begun is durable: no other one will be told by the same epoch, so others may hear of it.
    pub fn has_begun(&self) -> bool {
        self.store.durable() >= self.open_at
    }

    /// Somebody knows of a later start: nothing is served any more.
    pub fn is_outdated(&self) -> bool {
        self.remembered.is_outdated
    }

    /// Somebody knows of a later start, and this copy is followed all the same.
    pub fn has_met_another_copy(&self) -> bool {
        self.remembered.has_met_another
    }

    /// Right after `open`: the management server will be asked whether this is the newest copy, and nothing is served before it has
    /// answered, or had its time.
    pub fn await_word(&mut self) {
        self.remembered.awaited = Awaited::Unasked;
    }

    pub fn on_word(&mut self, now: Now, word: Word, out: &mut Vec<CoreOutput>) {
        self.go_on_at(now);
        match word {
            Word::AskedUntil(until) if self.remembered.awaited == Awaited::Unasked => {
                self.remembered.awaited = Awaited::Until(until);
            }
            Word::AskedUntil(_) => {}
            Word::Taken { is_confirmed } => {
                self.remembered.awaited = Awaited::Not;
                self.remembered.is_confirmed |= is_confirmed;
            }
            Word::Outdated { by, known } => self.stop_as_outdated(by, known, out),
        }
        self.settle(out);
    }

    fn stop_as_outdated(&mut self, by: Endpoint, known: Start, out: &mut Vec<CoreOutput>) {
        if !std::mem::replace(&mut self.remembered.is_outdated, true) {
            out.push(CoreOutput::Event(CoreEvent::Outdated { by, known }));
        }
    }

    /// Compares what both ends remember. `None`: the request comes from an older copy, or this is one.
    pub(super) fn compare_starts(
        &mut self,
        frame: &Frame,
        request: &ConnectRequest,
        out: &mut Vec<CoreOutput>,
    ) -> Option<Met> {
        if let Some(known) = self.remembered.newer_than_caller(request) {
            let caller = request.starts.of_caller.iter().max().copied().unwrap_or_default();
            let mut answer = self.reply_frame(request.client, 0, frame.xid, frame.trace);
            answer.status = Status::Outdated;
            answer.last_committed = Transno::ZERO;
            answer.body = Reply::Outdated { caller, known }.to_bytes();
            out.push(CoreOutput::Send(answer));
            return None;
        }
        let known = Start { epoch: request.target_epoch, at: request.starts.target_at };
        let is_this = known.epoch == self.epoch;
        if self.remembered.own.is_behind(known) {
            if !self.remembered.is_confirmed && Lineage::is_believed(known) {
                self.stop_as_outdated(frame.src, known, out);
                return None;
            }
            self.remembered.has_met_another = true;
            return Some(Met::AnotherCopy);
        }
        if !is_this && request.starts.committed > self.remembered.kept {
            let (client, committed, kept) = (request.client, request.starts.committed, self.remembered.kept);
            out.push(CoreOutput::Event(CoreEvent::WentBack { client, committed, kept }));
        }
        Some(Met::This)
    }
}

/// Which one a caller was connected to before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// None, or this one.
    This,
    /// Its session is not one of this target.
    AnotherCopy,
}
