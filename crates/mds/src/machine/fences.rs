//! Clients whose sessions every OST is to end, so that nothing that they have sent is executed there any more.
//!
//! *Before* they are given up: those that are waited for, in a recovery or by others for their locks, and whose leases have ended.
//! Otherwise data that such a client has sent could reach a file after this MDT has believed its size, or after others have read and
//! written it. A client whose lease has ended sends nothing new (`client::leases`); what is on its way meets an OST that does not know
//! its session any more.
//!
//! *After* it: whoever is gone for another reason (its process has ended, it has not come back in a recovery), had files open for writing or
//! work that may be lost, and has not come back when it would send nothing more; or has come back, and goes again before it can have opened
//! again what it writes. A frame may be under way for as long as the process of an OST stands still. Until every OST has answered,
//! no size of those files is believed; where it is not known which files those were, none at all, and no objects are compared
//! with inodes (`strays`). Who lives as far as is known, and did not give a lock back, is not fenced: it begins its
//! writes anew with an open when it hears of its eviction, and what it has on OSTs stays. The files that it had open for writing have no size
//! until it has, or is known to be gone: its process or its lease has ended, or a newer incarnation has come. Then it is fenced as the others
//! are. The row says that it may live, so a restarted MDT goes on watching it.

use super::peers::Call;
use super::{Mds, Output};
use crate::rows;
use base::limits::{LEASE, PING_INTERVAL, RESEND_FIRST, SESSION_LEASE};
use base::{ClientId, Duration, Endpoint, Fid, Now, Status, TargetId, TargetKind, Time};
use std::collections::{BTreeMap, BTreeSet};
use store::{Batch, MetaStore};
use target::{During, EvictReason, Gone};
use wire::{Life, OstRequest, Request};

/// After an OST could not.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// For how long somebody who may live is not heard before its lease matters, as with who keeps others waiting.
const UNHEARD_FOR: Duration = LEASE.saturating_add(RESEND_FIRST);

/// Who comes back is told of its eviction at once, opens again what it writes, and says something each `PING_INTERVAL`.
const REVIVED_AFTER: Duration = Duration::from_secs(10);

const _: () = assert!(REVIVED_AFTER.as_millis() + PING_INTERVAL.as_millis() < SESSION_LEASE.as_millis());

/// The OSTs that end the sessions of one client.
#[derive(Debug)]
struct Asked {
    /// Tells answers from those to an earlier one about the same client, which may have come back since.
    round: u64,
    /// OSTs that have not answered.
    waiting: BTreeSet<u16>,
    /// Those of them that could not, and when they are asked again.
    failed: BTreeMap<u16, Time>,
}

impl Asked {
    /// Those that are to be asked again. One that is taken out of use gets nothing any more.
    fn take_due(&mut self, now: Time, osts: &BTreeSet<u16>) -> Vec<u16> {
        self.waiting.retain(|ost| osts.contains(ost));
        let due = self.failed.iter().filter(|(_, again)| **again <= now);
        let due: Vec<u16> = due.map(|(ost, _)| *ost).filter(|ost| osts.contains(ost)).collect();
        self.failed.retain(|ost, _| !due.contains(ost) && osts.contains(ost));
        due
    }

    fn note(&mut self, now: Time, ost: u16, result: Result<(), Status>) {
        match result {
            Ok(()) => drop(self.waiting.remove(&ost)),
            Err(_) => drop(self.failed.insert(ost, now.after(AGAIN_AFTER))),
        }
    }
}

/// Somebody who is being given up.
#[derive(Debug)]
struct Fence {
    /// He had no lease then. If he was heard since, he is not given up.
    at: Time,
    asked: Asked,
}

/// Somebody who was given up.
#[derive(Debug)]
enum GivenUp {
    /// He did not give a lock back, or an operator wanted him gone, at that time. As far as is known he lives: that nobody hears him here for
    /// however long is no reason to end what he has on OSTs, but his end is, whoever tells it.
    MayLive(Time),
    /// He may come back until then.
    Until(Time),
    /// He is back, and opens again what he writes. If he goes before he has, what he had sent earlier is still to be fenced.
    Back {
        since: Time,
        until: Time,
    },
    Asked(Asked),
}

impl GivenUp {
    /// When it is to be looked at again; `None`: when an OST answers, or goes out of use, or somebody tells of the client.
    fn due(&self) -> Option<Time> {
        match self {
            GivenUp::MayLive(_) => None,
            GivenUp::Until(until) | GivenUp::Back { until, .. } => Some(*until),
            GivenUp::Asked(asked) => asked.failed.values().min().copied(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Fences {
    under_way: BTreeMap<Life, Fence>,
    given_up: BTreeMap<Life, GivenUp>,
    /// Those of them that are to be looked at some time, by when: who has been given up is not looked at with each tick. (`GivenUp::due`)
    due: BTreeSet<(Time, Life)>,
    /// Those of them that were given up in a recovery (not in a lossless one), or by an earlier incarnation: it is not known which files they had open, and work
    /// of theirs may be lost.
    lost: BTreeSet<Life>,
    round_count: u64,
}

impl Fences {
    /// Whether something of this client may still come to an OST.
    pub fn is_given_up(&self, life: Life) -> bool {
        self.given_up.contains_key(&life)
    }

    /// All incarnations of a client before this one are gone.
    fn note_ends(&mut self, now: Time, client: ClientId, incarnation: u64) {
        let before = Life { client, incarnation: 0 }..Life { client, incarnation };
        let ended =
            self.given_up.range(before).filter(|(_, given_up)| matches!(given_up, GivenUp::MayLive(_)));
        let ended: Vec<Life> = ended.map(|(life, _)| *life).collect();
        for life in ended {
            self.put(life, GivenUp::Until(now));
        }
    }

    /// Whether it was given up, and has come back.
    fn is_back(&self, life: Life) -> bool {
        matches!(self.given_up.get(&life), Some(GivenUp::Back { .. }))
    }

    /// The last incarnation of a client that was given up.
    pub fn last_life_of(&self, client: ClientId) -> Option<Life> {
        let first = Life { client, incarnation: 0 };
        let last = Life { client, incarnation: u64::MAX };
        self.given_up.range(first..=last).next_back().map(|(life, _)| *life)
    }

    /// Whether something may still come of somebody of whom it is not known which files he had open.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    fn new_round(&mut self, osts: &BTreeSet<u16>) -> Asked {
        self.round_count += 1;
        Asked { round: self.round_count, waiting: osts.clone(), failed: BTreeMap::new() }
    }

    fn put(&mut self, life: Life, given_up: GivenUp) {
        self.take(life);
        self.due.extend(given_up.due().map(|due| (due, life)));
        self.given_up.insert(life, given_up);
    }

    fn take(&mut self, life: Life) -> Option<GivenUp> {
        let given_up = self.given_up.remove(&life)?;
        if let Some(due) = given_up.due() {
            self.due.remove(&(due, life));
        }
        Some(given_up)
    }

    /// Those who are to be looked at by now, each once.
    fn take_due(&mut self, now: Time) -> BTreeSet<Life> {
        let first = Life { client: ClientId::default(), incarnation: 0 };
        let rest = self.due.split_off(&(Time(now.0.saturating_add(1)), first));
        std::mem::replace(&mut self.due, rest).into_iter().map(|(_, life)| life).collect()
    }

    /// All who wait for OSTs are looked at with the next tick: one of those may have gone out of use.
    pub fn look_at_asked(&mut self, now: Time) {
        let asked = self.given_up.iter().filter(|(_, given_up)| matches!(given_up, GivenUp::Asked(_)));
        self.due.extend(asked.map(|(life, _)| (now, *life)));
    }

    /// Asserts that nobody is forgotten.
    pub fn check(&self) {
        let is_queued = |(life, given_up): (&Life, &GivenUp)| {
            given_up.due().is_none_or(|due| self.due.contains(&(due, *life)))
        };
        assert!(self.given_up.iter().all(is_queued), "who is given up is looked at some time");
    }
}

impl<M: MetaStore> Mds<M> {
    /// Clients that are waited for here and have not been heard for long: has their lease ended?
    pub fn unheard(&self, now: Time) -> Vec<Life> {
        let mut holders = self.holders(now);
        let is_here = |life: &&Life| self.core.incarnation_of(life.client) == Some(life.incarnation);
        holders.extend(self.fences.given_up.keys().filter(is_here).map(|life| life.client));
        let mut unheard = self.core.unheard(now, &holders);
        let gone = self.fences.given_up.keys().filter(|life| self.is_unheard_since(now, **life));
        unheard.extend(gone);
        unheard
    }

    /// Whether it may live, and has not been here for long.
    fn is_unheard_since(&self, now: Time, life: Life) -> bool {
        let may_live = |given_up: &GivenUp| matches!(given_up, GivenUp::MayLive(since) if now.since(*since) >= UNHEARD_FOR);
        self.fences.given_up.get(&life).is_some_and(may_live)
            && self.core.incarnation_of(life.client) != Some(life.incarnation)
    }

    /// Whether somebody waits for what a client has to give back, so that `unheard` may have somebody to tell.
    pub fn is_kept_waiting(&self) -> bool {
        self.core.is_recovering()
            || self.locks.has_called_back()
            || self.flocks.has_waiting()
            || !self.fences.given_up.is_empty()
    }

    /// Clients that keep others waiting.
    fn holders(&self, now: Time) -> BTreeSet<ClientId> {
        let mut holders = self.locks.asked_for(now, LEASE);
        holders.extend(self.flocks.in_the_way());
        holders
    }

    /// The process says so again and again while this client is waited for.
    pub(super) fn on_lapsed(&mut self, now: Now, at: Time, life: Life, out: &mut Vec<Output>) {
        if self.is_unheard_since(at, life) {
            return self.fences.put(life, GivenUp::Until(now.time));
        }
        // Of who was given up, and has a session again, sizes wait.
        let is_holder = self.fences.is_given_up(life) || self.holders(now.time).contains(&life.client);
        // Version 0: which OSTs there are is not known yet.
        if !self.core.is_lapsed(at, life, is_holder) || self.config.version == 0 {
            return;
        }
        let osts = self.active_osts();
        let (round, to_ask): (u64, Vec<u16>) = match self.fences.under_way.get_mut(&life) {
            None => {
                let asked = self.fences.new_round(&osts);
                let round = asked.round;
                self.fences.under_way.insert(life, Fence { at, asked });
                (round, osts.into_iter().collect())
            }
            Some(fence) => (fence.asked.round, fence.asked.take_due(now.time, &osts)),
        };
        self.ask_to_fence(now, (life, round), to_ask, out);
        self.give_up_fenced(now, life);
    }

    fn active_osts(&self) -> BTreeSet<u16> {
        let active = self.config.of_kind(TargetKind::Ost).filter(|ost| ost.is_active);
        active.map(|ost| ost.id.index).collect()
    }

    fn ask_to_fence(&mut self, now: Now, (life, round): (Life, u64), osts: Vec<u16>, out: &mut Vec<Output>) {
        for ost in osts {
            let request = Request::Ost(OstRequest::Fence(life));
            self.call(now, TargetId::ost(ost), request, Call::Fence { life, ost, round }, out);
        }
    }

    pub(super) fn on_fenced(
        &mut self,
        now: Now,
        (life, round): (Life, u64),
        ost: u16,
        result: Result<(), Status>,
        out: &mut Vec<Output>,
    ) {
        let is_meant = |fence: &&mut Fence| fence.asked.round == round;
        if let Some(fence) = self.fences.under_way.get_mut(&life).filter(is_meant) {
            fence.asked.note(now.time, ost, result);
            return self.give_up_fenced(now, life);
        }
        match self.fences.take(life) {
            Some(GivenUp::Asked(mut asked)) if asked.round == round => {
                asked.note(now.time, ost, result);
                self.fences.put(life, GivenUp::Asked(asked));
                self.end_if_fenced(life, out);
            }
            Some(other) => self.fences.put(life, other),
            None => {}
        }
    }

    fn give_up_fenced(&mut self, now: Now, life: Life) {
        if self.fences.under_way.get(&life).is_some_and(|fence| fence.asked.waiting.is_empty())
            && let Some(fence) = self.fences.under_way.remove(&life)
        {
            // It was waited for when the OSTs were asked. (Somebody else may have given it up meanwhile.)
            self.core.on_lapsed(now, fence.at, life, true, &mut self.core_out);
        }
    }

    /// The session of a client has ended here. `has_written`: it had files open for writing.
    pub(super) fn note_gone(&mut self, now: Now, gone: &Gone, has_written: bool, out: &mut Vec<Output>) {
        let asked = self.take_under_way(now, gone, out);
        if !may_owe_a_fence(gone) {
            if gone.why == Some(EvictReason::Lapsed) {
                self.end_fenced_before(now, gone.life, out);
            } else if self.fences.is_back(gone.life) {
                // It has come back, and goes of itself: whatever it had sent is not waited for.
                self.fences.put(gone.life, GivenUp::Until(now.time));
            }
            return self.withdraw_if(now, gone.life, asked, out);
        }
        // In a lossless recovery too it is known what it had open.
        if has_written || gone.during == During::Recovery || self.fences.is_back(gone.life) {
            return self.note_given_up(now, gone, asked, out);
        }
        self.withdraw_if(now, gone.life, asked, out);
        // What is owed since it was given up before is still owed.
        if !self.fences.given_up.contains_key(&gone.life) {
            self.forget_given_up(gone.life, out);
        }
    }

    /// It had been given up before, and came back. All OSTs have ended its sessions since.
    fn end_fenced_before(&mut self, now: Now, life: Life, out: &mut Vec<Output>) {
        let Some(given_up) = self.fences.given_up.get(&life) else { return };
        if let GivenUp::Asked(asked) = given_up {
            let round = asked.round;
            self.withdraw(now, life, round, out);
        }
        self.end_given_up(life, out);
    }

    /// It has written, or may have: what it has sent to OSTs may still be under way, when it is gone. The row of `owed` says so.
    fn note_given_up(&mut self, now: Now, gone: &Gone, asked: Option<Asked>, out: &mut Vec<Output>) {
        if let Some(GivenUp::Asked(former)) = self.fences.take(gone.life) {
            // It has come back since.
            self.withdraw(now, gone.life, former.round, out);
        }
        let given_up = match asked {
            Some(asked) => GivenUp::Asked(asked),
            None if may_live(gone) => GivenUp::MayLive(now.time),
            None => GivenUp::Until(now.time.after(SESSION_LEASE)),
        };
        self.fences.put(gone.life, given_up);
        if gone.during == During::Recovery {
            self.fences.lost.insert(gone.life);
        }
        self.end_if_fenced(gone.life, out);
    }

    /// What OSTs are asked already, if it counts for somebody who is given up now: it had no lease when they were asked, and nothing
    /// has come of it since.
    fn take_under_way(&mut self, now: Now, gone: &Gone, out: &mut Vec<Output>) -> Option<Asked> {
        let fence = self.fences.under_way.remove(&gone.life)?;
        if gone.heard_at <= fence.at {
            return Some(fence.asked);
        }
        self.withdraw(now, gone.life, fence.asked.round, out);
        None
    }

    /// A recovery is over: whoever has come in it is not given up for what was found before.
    pub(super) fn end_fences_of_recovery(&mut self, now: Now, out: &mut Vec<Output>) {
        let is_over = |(life, fence): &(&Life, &Fence)| self.core.last_contact(life.client) > Some(fence.at);
        let over = self.fences.under_way.iter().filter(is_over);
        let over: Vec<(Life, u64)> = over.map(|(life, fence)| (*life, fence.asked.round)).collect();
        for (life, round) in over {
            self.fences.under_way.remove(&life);
            self.withdraw(now, life, round, out);
        }
    }

    /// The process of a client has ended, also of one that has no session here any more.
    pub(super) fn note_departed(&mut self, now: Now, client: ClientId, incarnation: u64) {
        self.fences.note_ends(now.time, client, incarnation.saturating_add(1));
    }

    /// A frame of this client has come: it is there, and no OST that has not heard of it yet is to end its sessions. (One that has, or
    /// from whose socket it cannot be taken back, ends them.)
    pub(super) fn note_heard(&mut self, now: Now, client: ClientId, out: &mut Vec<Output>) {
        if self.fences.under_way.is_empty() && self.fences.given_up.is_empty() {
            return;
        }
        let Some(incarnation) = self.core.incarnation_of(client) else { return };
        let life = Life { client, incarnation };
        // Its processes have followed one another.
        self.fences.note_ends(now.time, client, incarnation);
        let heard_at = self.core.last_contact(client);
        let former = self.fences.under_way.get(&life).filter(|fence| heard_at > Some(fence.at));
        if let Some(round) = former.map(|fence| fence.asked.round) {
            self.fences.under_way.remove(&life);
            self.withdraw(now, life, round, out);
        }
        if self.core.has_spoken(life) {
            self.note_back(now, life, out);
        }
    }

    /// Who was given up is there, and knows it.
    fn note_back(&mut self, now: Now, life: Life, out: &mut Vec<Output>) {
        match self.fences.given_up.get(&life) {
            None | Some(GivenUp::Back { .. }) => return,
            Some(GivenUp::Until(_) | GivenUp::MayLive(_)) => {}
            Some(GivenUp::Asked(asked)) => {
                let round = asked.round;
                self.withdraw(now, life, round, out);
            }
        }
        let until = now.time.after(SESSION_LEASE);
        self.fences.put(life, GivenUp::Back { since: now.time, until });
    }

    /// Whether it has been heard for long enough since it came back: it has opened again what it writes.
    fn has_revived(&self, life: Life, since: Time) -> bool {
        self.core.has_spoken(life) && self.core.last_contact(life.client) >= Some(since.after(REVIVED_AFTER))
    }

    fn withdraw_if(&mut self, now: Now, life: Life, asked: Option<Asked>, out: &mut Vec<Output>) {
        if let Some(asked) = asked {
            self.withdraw(now, life, asked.round, out);
        }
    }

    /// OSTs that have not answered are asked no more: one that is away hears nothing of it when it comes.
    fn withdraw(&mut self, now: Now, life: Life, round: u64, out: &mut Vec<Output>) {
        let is_its = |call: &Call| matches!(call, Call::Fence { life: of, round: its, .. } if (*of, *its) == (life, round));
        self.abandon_calls(now, is_its, out);
    }

    /// Those whom earlier incarnations have given up.
    pub(super) fn load_given_up(&mut self, now: Time) -> Result<(), Status> {
        let tx = crate::tx::Tx::new(&**self.core.store());
        let keys = tx.scan_prefix(rows::STATE, rows::EVICTED_PREFIX, usize::MAX)?;
        for (key, value) in keys {
            let life = rows::split_evicted_key(&key).ok_or(Status::Corrupt)?;
            let given_up = match rows::decode_evicted(&value)?.may_live {
                true => GivenUp::MayLive(now),
                false => GivenUp::Until(now.after(SESSION_LEASE)),
            };
            self.fences.put(life, given_up);
            self.fences.lost.insert(life);
        }
        Ok(())
    }

    /// Whoever has not come back in time has its sessions ended everywhere.
    pub(super) fn tick_fences(&mut self, now: Now, out: &mut Vec<Output>) {
        // Version 0: which OSTs there are is not known yet.
        let is_due = self.fences.next_deadline().is_some_and(|due| due <= now.time);
        if !is_due || self.config.version == 0 {
            return;
        }
        let osts = self.active_osts();
        let mut to_ask = Vec::new();
        let mut ends = Vec::new();
        for life in self.fences.take_due(now.time) {
            let Some(given_up) = self.fences.take(life) else { continue };
            let is_here = self.core.incarnation_of(life.client) == Some(life.incarnation);
            let (given_up, asked) = match given_up {
                GivenUp::Until(until) | GivenUp::Back { until, .. } if until > now.time => (given_up, None),
                GivenUp::Back { since, .. } if self.has_revived(life, since) => {
                    ends.push(life);
                    (given_up, None)
                }
                // It is silent since.
                GivenUp::Back { since, .. } if is_here => {
                    (GivenUp::Back { since, until: now.time.after(AGAIN_AFTER) }, None)
                }
                // It asks for a session, and may not hear that it has got one.
                GivenUp::Until(_) if is_here => (GivenUp::Until(now.time.after(AGAIN_AFTER)), None),
                GivenUp::MayLive(_) => (given_up, None),
                GivenUp::Until(_) | GivenUp::Back { .. } => {
                    let asked = self.fences.new_round(&osts);
                    let round = asked.round;
                    (GivenUp::Asked(asked), Some((round, osts.iter().copied().collect())))
                }
                GivenUp::Asked(mut asked) => {
                    let due = (asked.round, asked.take_due(now.time, &osts));
                    (GivenUp::Asked(asked), Some(due))
                }
            };
            self.fences.put(life, given_up);
            to_ask.extend(asked.map(|(round, osts)| ((life, round), osts)));
        }
        for life in ends {
            self.end_given_up(life, out);
        }
        for (asked, osts) in to_ask {
            self.ask_to_fence(now, asked, osts, out);
            self.end_if_fenced(asked.0, out);
        }
    }

    fn end_if_fenced(&mut self, life: Life, out: &mut Vec<Output>) {
        let is_fenced =
            |given_up: &GivenUp| matches!(given_up, GivenUp::Asked(asked) if asked.waiting.is_empty());
        if self.fences.given_up.get(&life).is_some_and(is_fenced) {
            self.end_given_up(life, out);
        }
    }

    fn end_given_up(&mut self, life: Life, out: &mut Vec<Output>) {
        self.fences.take(life);
        self.fences.lost.remove(&life);
        self.forget_given_up(life, out);
        self.opens.note_fenced(life);
    }

    fn forget_given_up(&mut self, life: Life, out: &mut Vec<Output>) {
        let mut batch = Batch::new();
        batch.delete(rows::STATE, &rows::evicted_key(life));
        if let Err(error) = self.core.apply_internal(batch) {
            // The next incarnation fences it once more.
            let (what, status) = ("a client that was given up was not forgotten", error.status());
            out.push(Output::Event(super::MdsEvent::Failed { what, fid: Fid::default(), status }));
        }
    }
}

/// The rows that go with the end of a session (`CoreOptions::owed`): what a recovery loses with a client is to be looked for on the OSTs,
/// and who may have written is to be fenced there, unless it turns out that it has not, or lives (`note_gone`).
pub(super) fn owed(gone: &Gone, batch: &mut Batch) {
    if gone.during.is_recovery() && is_mount(gone.life) {
        super::strays::put_row(gone.epoch, batch);
    }
    if may_owe_a_fence(gone) {
        let evicted = rows::Evicted { may_live: may_live(gone) };
        batch.put(rows::STATE, &rows::evicted_key(gone.life), &rows::encode(&evicted));
    }
}

/// Who has said goodbye, or was fenced before (`give_up_fenced`), is not fenced.
fn may_owe_a_fence(gone: &Gone) -> bool {
    is_mount(gone.life) && gone.why.is_some_and(|why| why != EvictReason::Lapsed)
}

/// It was there when its session was ended. Who has not come back in a recovery may be dead.
fn may_live(gone: &Gone) -> bool {
    gone.why.is_some_and(EvictReason::is_decided) && gone.during != During::Recovery
}

fn is_mount(life: Life) -> bool {
    matches!(life.client.endpoint(), Endpoint::Client(_))
}
