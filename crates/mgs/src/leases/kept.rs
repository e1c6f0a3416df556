//! What the next management server is told of leases, in rows: one for each of a few groups of clients, so that what becomes of one client
//! is a small row, and one that says whose rows these are.
//!
//! That a lease has ended counts only where every management server since has kept these rows. One of an earlier version renews leases
//! without a word here. So the epochs of those that have kept them one after the other are in a row, and each row has the epoch of whoever
//! wrote it. (That somebody had a lease is no more than a hint, and needs none of this.)

use crate::row;
use base::{ClientId, Epoch, Time};
use borsh::{BorshDeserialize, BorshSerialize};
use std::ops::RangeInclusive;
use store::{Batch, MetaStore, StoreError, Table};
use wire::Life;

/// `SPAN` -> version byte and `Span`; `GROUP` and a number -> version byte and `Group`.
pub const LEASES: Table = 3;
const SPAN: &[u8] = b"span";
const GROUP: u8 = b'g';
/// One row of all ended leases, of an earlier version: what it says is not worth a second way to read.
const EARLIER: &[u8] = b"ended";

/// By the highest bits of a client's number, which is drawn.
const GROUP_BITS: u32 = 6;
const GROUP_COUNT: u8 = 1 << GROUP_BITS;
/// Of each group, those whose leases ended last. Others are waited for as without a row.
const ENDED_COUNT_MAX: usize = 256;
/// Of each group. When others vanish with their management server, the next one does not learn that they were there.
const LIVING_COUNT_MAX: usize = 1024;
/// Rows are added to a batch up to here.
pub(super) const WRITE_BYTES_MAX: usize = 256 << 10;
/// The same of what nobody waits for, once a second: etcd keeps each version of a row for a while.
pub(super) const NOTE_BYTES_MAX: usize = 32 << 10;

const LIFE_BYTES: usize = 16 + 8;
const GROUP_BYTES_MAX: usize = (ENDED_COUNT_MAX + LIVING_COUNT_MAX) * LIFE_BYTES + 64;
const _: () = assert!(GROUP_BYTES_MAX < store::VALUE_BYTES_MAX);
const _: () = assert!(WRITE_BYTES_MAX + 2 * GROUP_BYTES_MAX < store::BATCH_BYTES_MAX);

/// The management servers of these epochs have kept the rows, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(super) struct Span {
    pub first: Epoch,
    pub last: Epoch,
}

#[derive(Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(super) struct Group {
    /// Of the management server that has written it.
    pub epoch: Epoch,
    pub living: Vec<(ClientId, u64)>,
    pub ended: Vec<(ClientId, u64)>,
}

/// What the ones before have left.
pub(super) struct Kept {
    /// To be written.
    pub span: Span,
    /// Who had a lease, and whether it is known to have ended.
    pub lives: Vec<(Life, bool)>,
}

impl Span {
    pub fn put(self, batch: &mut Batch) {
        batch.put(LEASES, SPAN, &row::encode(&self));
        batch.delete(LEASES, EARLIER);
    }

    /// Nothing that this one or any before it has written is believed.
    pub fn after(epoch: Epoch) -> Span {
        Span { first: epoch.next(), last: epoch }
    }

    /// With the next one, which may be the first.
    fn next(before: Option<Span>, epoch: Epoch) -> Span {
        let before = before.filter(|span| span.last.0.checked_add(1) == Some(epoch.0));
        Span { first: before.map_or(epoch, |span| span.first), last: epoch }
    }
}

impl Group {
    /// Of these clients, with the end of each lease that has ended. -> The ended ones for which there is no room, besides.
    pub fn new(epoch: Epoch, lives: impl Iterator<Item = (Life, Option<Time>)>) -> (Group, Vec<ClientId>) {
        let (mut living, mut ended) = (Vec::new(), Vec::new());
        for (life, end) in lives {
            match end {
                Some(end) => ended.push((end, life.client, life.incarnation)),
                None => living.push((life.client, life.incarnation)),
            }
        }
        living.truncate(LIVING_COUNT_MAX);
        ended.sort_unstable_by(|a, b| b.cmp(a));
        let without_room = ended.split_off(ended.len().min(ENDED_COUNT_MAX));
        let ended = ended.into_iter().map(|(_, client, incarnation)| (client, incarnation)).collect();
        (Group { epoch, living, ended }, without_room.into_iter().map(|(_, client, _)| client).collect())
    }

    pub fn put(&self, group: u8, batch: &mut Batch) {
        batch.put(LEASES, &[GROUP, group], &row::encode(self));
    }
}

pub(super) fn group_of(client: ClientId) -> u8 {
    (client.0 >> (u128::BITS - GROUP_BITS)) as u8
}

pub(super) fn clients_of(group: u8) -> RangeInclusive<ClientId> {
    assert!(group < GROUP_COUNT);
    let first = u128::from(group) << (u128::BITS - GROUP_BITS);
    ClientId(first)..=ClientId(first | (u128::MAX >> GROUP_BITS))
}

/// A row, if it is there; `Err` for one that is damaged, or that a newer version wrote.
fn row_of<T: BorshDeserialize>(
    store: &dyn MetaStore,
    key: &[u8],
) -> Result<Result<Option<T>, ()>, StoreError> {
    match store.get(LEASES, key) {
        Ok(None) => Ok(Ok(None)),
        Ok(Some(value)) => Ok(row::decode::<T>(&value).map(Some).ok_or(())),
        Err(StoreError::CorruptRow { .. }) => Ok(Err(())),
        Err(error) => Err(error),
    }
}

/// Whether there are rows of another kind, as a newer version may have.
fn has_others(store: &dyn MetaStore) -> Result<bool, StoreError> {
    let mut has_others = false;
    let mut look = |key: &[u8], _: &[u8]| {
        let is_group = matches!(key, [GROUP, group] if *group < GROUP_COUNT);
        has_others = !is_group && key != SPAN && key != EARLIER;
        !has_others
    };
    match store.scan(LEASES, &[], &[u8::MAX; 32], 2 + usize::from(GROUP_COUNT) + 1, &mut look) {
        // That is found again when it is read.
        Ok(()) | Err(StoreError::CorruptRow { .. }) => Ok(has_others),
        Err(error) => Err(error),
    }
}

/// What this version does not understand says nothing, and everybody is waited for. Nor does this one vouch for it: whoever reads it later
/// would believe it over what was renewed here. `epoch`: of the management server that begins.
///
/// # Errors
/// If the store fails.
pub(super) fn read(store: &dyn MetaStore, epoch: Epoch) -> Result<Kept, StoreError> {
    let before = row_of::<Span>(store, SPAN)?.unwrap_or(None);
    let mut rows = Vec::new();
    let mut is_all_understood = !has_others(store)?;
    for group in 0..GROUP_COUNT {
        match row_of::<Group>(store, &[GROUP, group])? {
            Ok(row) => rows.extend(row.map(|row| (group, row))),
            Err(()) => is_all_understood = false,
        }
    }
    let is_own = |group: u8, row: &Group| {
        row.living.iter().chain(&row.ended).all(|(client, _)| group_of(*client) == group)
    };
    is_all_understood &= rows.iter().all(|(group, row)| is_own(*group, row));
    let span = Span::next(before.filter(|_| is_all_understood), epoch);
    let mut lives = Vec::new();
    for (group, row) in rows {
        let is_believed = span.first <= row.epoch && row.epoch < epoch;
        let ended = row.ended.into_iter().map(|life| (life, is_believed));
        // Whoever is in another group's row would not be taken out of it.
        let all = row.living.into_iter().map(|life| (life, false)).chain(ended);
        let own = all.filter(|((client, _), _)| group_of(*client) == group);
        lives.extend(own.map(|((client, incarnation), has_ended)| (Life { client, incarnation }, has_ended)));
    }
    Ok(Kept { span, lives })
}
