//! Which clients live. A lease is renewed each second and kept in memory.
//!
//! Unknown is not dead: a management server that has just started, or that did not run for a while, or has heard nobody at all for a
//! while, counts everybody as living until all who live have had the time to say so.
//!
//! The next management server finds two things in rows (`kept`). Whose lease has *ended*: it need not wait for him again. Such a client has
//! no lease until it renews, and then the row says so durably before it is answered: nobody relies on a lease that the next management
//! server takes for an ended one. And who *had a lease*: nothing follows from that at once, for nobody could renew it while there was no
//! management server; but when he has not renewed it there either, after a whole lease, the next one knows of him that it has ended, and
//! the one after it is told. Nobody waits for these, and what is missing of them costs time only.

mod kept;

use base::fault::{Fault, planted};
use base::limits::{LEASE, LEASE_RENEWAL};
use base::{ClientId, Duration, Epoch, Time, Transno};
use std::collections::{BTreeMap, VecDeque};
use store::{Batch, MetaStore, StoreError};
use wire::Life;

pub use kept::LEASES;

/// Without a turn for so long this process did not run: leases that would have been renewed may have ended. With what a renewal is late
/// at most, it is less than a lease.
///
/// So it is when nothing came from anybody for so long: perhaps nothing could.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(1500);
/// Whoever waits for longer than this for a session is one who may live and cannot say so.
pub(crate) const DEAF_MAX: Duration = Duration::from_millis(500);
/// A lease that ended so long ago is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Leases in memory; above it nobody is known to be gone.
const LEASE_COUNT_MAX: usize = 1 << 18;

const _: () = assert!(LEASE_RENEWAL.as_millis() + PAUSE_MAX.as_millis() < LEASE.as_millis());

#[derive(Debug)]
struct Lease {
    incarnation: u64,
    until: Time,
    /// It has ended, at a moment when that could be known.
    has_ended: bool,
}

/// Rows that should be written.
pub(crate) struct Rows {
    pub batch: Batch,
    groups: Vec<u8>,
    has_span: bool,
    /// Of these they say nothing any more.
    without_room: Vec<ClientId>,
}

impl Rows {
    fn new(has_span: bool) -> Rows {
        Rows { batch: Batch::new(), groups: Vec::new(), has_span, without_room: Vec::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Leases {
    held: BTreeMap<ClientId, Lease>,
    /// Nothing is known from before.
    since: Time,
    /// The same where nobody was heard only because nobody spoke, perhaps: this process has run from here on.
    ran_since: Time,
    last_turn: Time,
    /// When something came from anybody.
    heard: Time,
    /// When ended leases were last looked for.
    looked_at: Time,
    /// When old ones were last forgotten.
    forgot_at: Time,
    /// Groups whose rows say something else than is known, in the order in which they are written.
    old: VecDeque<u8>,
    /// The rows are those of this management server from now on, and that is not written.
    span: Option<kept::Span>,
    /// Another management server has gone on from these rows, which are a copy.
    is_of_copy: bool,
    /// Of these a row may say that their leases have ended, and that is not so any more, or not known: durable from this transaction on,
    /// or with the next row.
    back: BTreeMap<ClientId, Option<Transno>>,
    /// What was durable when those were last looked through.
    looked_for_durable: Transno,
}

impl Leases {
    pub fn new(now: Time) -> Leases {
        Leases {
            held: BTreeMap::new(),
            since: now,
            ran_since: now,
            last_turn: now,
            heard: now,
            looked_at: now,
            forgot_at: now,
            old: VecDeque::new(),
            span: None,
            is_of_copy: false,
            back: BTreeMap::new(),
            looked_for_durable: Transno::ZERO,
        }
    }

    /// With what those before have left, of which this is the next epoch.
    ///
    /// # Errors
    /// If the store fails.
    pub fn read(store: &dyn MetaStore, now: Time, epoch: Epoch) -> Result<Leases, StoreError> {
        let mut leases = Leases::new(now);
        let kept = kept::read(store, epoch)?;
        leases.span = Some(kept.span);
        // Nobody is told that such a lease holds: it ends when it is not renewed before that can be known.
        let held = kept.lives.into_iter().map(|(life, has_ended)| {
            (life.client, Lease { incarnation: life.incarnation, until: now, has_ended })
        });
        leases.held.extend(held);
        Ok(leases)
    }

    /// What a beginning writes, before anybody can renew anything.
    pub fn begin(&self) -> Option<Rows> {
        let span = self.span?;
        let mut rows = Rows::new(true);
        span.put(&mut rows.batch);
        Some(rows)
    }

    /// This is a copy that was put back: whoever it knows to be gone may have come back at the one that was lost.
    /// Everybody is waited for, here and at the next one.
    pub fn on_another_copy(&mut self, now: Time, epoch: Epoch) {
        if std::mem::replace(&mut self.is_of_copy, true) {
            return;
        }
        self.since = now;
        for lease in self.held.values_mut().filter(|lease| lease.has_ended) {
            *lease = Lease { until: now, has_ended: false, ..*lease };
        }
        self.span = Some(kept::Span::after(epoch));
    }

    /// With every input, and at `next_deadline`. `is_deaf`: callers have sessions only after a recovery or a slow disk, and can renew
    /// nothing before that. -> Whether nobody could be heard until now.
    pub fn on_turn(&mut self, now: Time, is_deaf: bool) -> bool {
        let was_deaf = is_deaf || now.since(self.last_turn) > PAUSE_MAX;
        if was_deaf {
            self.since = now;
            self.ran_since = now;
        }
        self.last_turn = now;
        was_deaf
    }

    /// Something has come. If nothing had for a while, nobody has lost his lease by that.
    pub fn on_heard(&mut self, now: Time) {
        if self.is_silent(now) {
            self.since = now;
        }
        self.heard = now;
    }

    fn is_silent(&self, now: Time) -> bool {
        now.since(self.heard) > PAUSE_MAX
    }

    /// With each turn, of which there are as many as there are clients.
    pub fn forget_old(&mut self, now: Time) {
        if now.since(self.forgot_at) < LEASE_RENEWAL {
            return;
        }
        self.forgot_at = now;
        let old = &mut self.old;
        self.held.retain(|client, lease| {
            let is_kept = lease.has_ended || now < lease.until.after(FORGOTTEN_AFTER);
            if !is_kept {
                note_old(old, *client);
            }
            is_kept
        });
    }

    /// What is known now of leases that have begun or ended, once a second at most, and not more of it than a store takes at once.
    pub fn note(&mut self, now: Time, epoch: Epoch) -> Option<Rows> {
        if now.since(self.looked_at) < LEASE_RENEWAL {
            return None;
        }
        self.looked_at = now;
        if now.since(self.since) >= LEASE && !self.is_silent(now) {
            let ends = |lease: &Lease| lease.until <= now && !lease.has_ended;
            for (client, lease) in self.held.iter_mut().filter(|(_, lease)| ends(lease)) {
                lease.has_ended = true;
                note_old(&mut self.old, *client);
            }
        }
        let groups: Vec<u8> = self.old.iter().copied().collect();
        let is_any = self.span.is_some() || !groups.is_empty();
        is_any.then(|| self.rows(epoch, &groups, kept::NOTE_BYTES_MAX))
    }

    /// The first of these, as many as are written at once.
    fn rows(&self, epoch: Epoch, groups: &[u8], bytes_max: usize) -> Rows {
        let mut rows = Rows::new(self.span.is_some());
        if let Some(span) = &self.span {
            span.put(&mut rows.batch);
        }
        for group in groups {
            let held = self.held.range(kept::clients_of(*group));
            let lives = held.map(|(client, lease)| {
                let life = Life { client: *client, incarnation: lease.incarnation };
                (life, lease.has_ended.then_some(lease.until))
            });
            let (row, without_room) = kept::Group::new(epoch, lives);
            rows.without_room.extend(without_room);
            row.put(*group, &mut rows.batch);
            rows.groups.push(*group);
            if rows.batch.encoded().len() >= bytes_max {
                break;
            }
        }
        rows
    }

    /// The rows are part of this transaction.
    pub fn on_rows_written(&mut self, rows: &Rows, transno: Transno) {
        if rows.has_span {
            self.span = None;
        }
        self.old.retain(|group| !rows.groups.contains(group));
        let is_written = |client: &ClientId| rows.groups.contains(&kept::group_of(*client));
        let back = self.back.iter_mut().filter(|(client, at)| at.is_none() && is_written(client));
        back.for_each(|(_, at)| *at = Some(transno));
        for client in &rows.without_room {
            self.held.remove(client);
            // The row before this one may say that its lease has ended.
            self.back.insert(*client, Some(transno));
        }
    }

    /// What must be durable before these are told that their leases are renewed: zero for most.
    pub fn said_by(&mut self, durable: Transno, clients: &[Life]) -> Transno {
        if durable != self.looked_for_durable {
            self.looked_for_durable = durable;
            self.back.retain(|_, at| at.is_none_or(|at| at > durable));
        }
        let waits = clients.iter().filter_map(|life| self.back.get(&life.client).copied().flatten());
        waits.max().unwrap_or(Transno::ZERO)
    }

    /// From when on this process has run, and could hear who renews something.
    pub fn ran_since(&self) -> Time {
        self.ran_since
    }

    /// While somebody has a lease, here or of an owner: turns show that this process runs.
    pub fn next_deadline(&self, has_owners: bool) -> Option<Time> {
        let has_old = self.span.is_some() || !self.old.is_empty();
        let has_some = has_old || self.held.values().any(|lease| !lease.has_ended);
        (has_owners || has_some).then(|| self.last_turn.after(LEASE_RENEWAL))
    }

    /// These live. Whoever was known to be gone hears of it when his rows (`rows_of_back`) are durable.
    pub fn renew(&mut self, now: Time, clients: &[Life]) {
        let until = now.after(LEASE);
        for life in clients {
            let is_room = self.held.len() < LEASE_COUNT_MAX;
            let renewed = Lease { incarnation: life.incarnation, until, has_ended: false };
            let before = match self.held.get_mut(&life.client) {
                Some(lease) if lease.incarnation > life.incarnation => continue,
                Some(lease) => Some(std::mem::replace(lease, renewed)),
                None if is_room => self.held.insert(life.client, renewed),
                None => {
                    self.since = now;
                    continue;
                }
            };
            if before.as_ref().is_some_and(|lease| lease.has_ended) {
                self.back.insert(life.client, None);
            }
            let is_in_row = |lease: &Lease| !lease.has_ended && lease.incarnation == life.incarnation;
            if !before.as_ref().is_some_and(is_in_row) {
                note_old(&mut self.old, life.client);
            }
        }
    }

    /// Rows that say of some of these that their leases have ended, which have been renewed: they must be durable before these hear of it.
    /// As long as there are any, for not all may be written at once.
    pub fn rows_of_back(&self, epoch: Epoch, clients: &[Life]) -> Option<Rows> {
        let is_unwritten = |life: &&Life| matches!(self.back.get(&life.client), Some(None));
        let mut groups: Vec<u8> =
            clients.iter().filter(is_unwritten).map(|life| kept::group_of(life.client)).collect();
        groups.sort_unstable();
        groups.dedup();
        (!groups.is_empty()).then(|| self.rows(epoch, &groups, kept::WRITE_BYTES_MAX))
    }

    /// Those of `clients` that are gone.
    pub fn lapsed(&self, now: Time, clients: Vec<Life>) -> Vec<Life> {
        if planted(Fault::GoneTakenForLiving) {
            return Vec::new();
        }
        let is_sure = now.since(self.since) >= LEASE;
        let is_gone = |life: &Life| match self.held.get(&life.client) {
            Some(lease) if lease.incarnation == life.incarnation => {
                lease.has_ended || is_sure && lease.until <= now
            }
            // A later incarnation has a lease, or had one: it ends the sessions of this one wherever it comes.
            Some(lease) if lease.incarnation > life.incarnation => true,
            Some(_) | None => is_sure,
        };
        clients.into_iter().filter(is_gone).collect()
    }

    pub fn count(&self, now: Time) -> usize {
        self.held.values().filter(|lease| lease.until > now).count()
    }

    /// Those that the next management server will know to have ended.
    pub fn ended_count(&self) -> usize {
        self.held.values().filter(|lease| lease.has_ended).count()
    }
}

/// The row of this client's group is to be written.
fn note_old(old: &mut VecDeque<u8>, client: ClientId) {
    let group = kept::group_of(client);
    if !old.contains(&group) {
        old.push_back(group);
    }
}

#[cfg(test)]
mod tests;
