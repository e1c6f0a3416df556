//! Rows of the tables that every target has. Each value starts with the version of its encoding.

use super::begun::Begun;
use super::once::Once;
use super::{Export, Slot, SlotState, Token};
use base::{ClientId, Epoch, Start, Status, Time, Transno, Xid};
use borsh::{BorshDeserialize, BorshSerialize};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Batch, MetaStore, StoreError, Table};
use wire::mdt::Entry;
use wire::{MdtReply, Reply};

/// Key: client. Who has a session.
pub(super) const CLIENTS: Table = 253;
/// Key: client, slot. Last reply of each slot.
pub(super) const SLOTS: Table = 254;
/// Key: epoch. What the mark said when that incarnation began (without data outside: the last transaction that was there): of the one before
/// it, everything up to there was durable.
pub(super) const LAST_MARKS: Table = 252;
/// Key: client, a target. When it was started that last called.
pub(super) const CALLERS: Table = 250;
/// Key: epoch. When the target was started as that one.
pub(super) const STARTS: Table = 251;
/// Single rows.
pub(super) const STATE: Table = 255;
pub(super) const STATE_KEY: &[u8] = b"state";
pub(super) const MARK_KEY: &[u8] = b"mark";
/// Client and slot.
pub(super) const SLOT_KEY_BYTES: usize = 18;
const VERSION: u8 = 1;

#[derive(Debug, Default, BorshSerialize, BorshDeserialize)]
pub(super) struct StateRow {
    pub epoch: Epoch,
    /// The last recovery has not ended: clients still need everything above `base`.
    pub is_recovering: bool,
    pub base: Transno,
    /// Number of the next session; never used twice.
    pub next_serial: u64,
}

#[derive(Debug, BorshSerialize, BorshDeserialize)]
pub(super) struct ClientRow {
    pub incarnation: u64,
    pub serial: u64,
    pub nid: String,
}

#[derive(Debug, BorshSerialize, BorshDeserialize)]
pub(super) struct SlotRow {
    xid: Xid,
    transno: Transno,
    /// Without locks: they do not survive a restart.
    reply: Vec<u8>,
}

pub(super) fn encode<T: BorshSerialize>(row: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    let result = row.serialize(&mut bytes);
    assert!(result.is_ok(), "a row is written to memory");
    bytes
}

fn kind_of(table: Table) -> &'static str {
    match table {
        CLIENTS => "client",
        SLOTS => "answer",
        LAST_MARKS => "mark",
        STARTS | CALLERS => "start",
        _ => "state",
    }
}

pub(super) fn decode<T: BorshDeserialize>(table: Table, key: &[u8], value: &[u8]) -> Result<T, StoreError> {
    let damaged = || StoreError::CorruptRow { table, key: key.to_vec() };
    let (version, rest) = value.split_first().ok_or_else(damaged)?;
    if *version != VERSION {
        return Err(StoreError::UnknownRow {
            kind: kind_of(table),
            table,
            key: key.to_vec(),
            version: *version,
        });
    }
    T::try_from_slice(rest).map_err(|_| damaged())
}

pub(super) fn read_state<M: MetaStore>(store: &M) -> Result<StateRow, StoreError> {
    match store.get(STATE, STATE_KEY)? {
        Some(value) => decode(STATE, STATE_KEY, &value),
        None => Ok(StateRow { next_serial: 1, ..StateRow::default() }),
    }
}

pub(super) fn put_state(batch: &mut Batch, row: &StateRow) {
    batch.put(STATE, STATE_KEY, &encode(row));
}

pub(super) fn read_mark<M: MetaStore>(store: &M) -> Result<Transno, StoreError> {
    match store.get(STATE, MARK_KEY)? {
        Some(value) => decode(STATE, MARK_KEY, &value),
        None => Ok(Transno::ZERO),
    }
}

pub(super) fn put_mark(batch: &mut Batch, mark: Transno) {
    batch.put(STATE, MARK_KEY, &encode(&mark));
}

pub(super) fn put_last_mark(batch: &mut Batch, epoch: Epoch, mark: Transno) {
    batch.put(LAST_MARKS, &epoch.0.to_be_bytes(), &encode(&mark));
}

/// The last mark of an earlier incarnation; the one after it has noted it.
pub(super) fn read_last_mark<M: MetaStore>(store: &M, of: Epoch) -> Result<Transno, StoreError> {
    let mut found = Ok(Transno::ZERO);
    store.scan(LAST_MARKS, &of.next().0.to_be_bytes(), &[0xff; 8], 1, &mut |key, value| {
        found = decode(LAST_MARKS, key, value);
        false
    })?;
    found
}

pub(super) fn put_start(batch: &mut Batch, start: Start) {
    batch.put(STARTS, &start.epoch.0.to_be_bytes(), &encode(&start));
}

pub(super) fn delete_start(batch: &mut Batch, epoch: Epoch) {
    batch.delete(STARTS, &epoch.0.to_be_bytes());
}

pub(super) fn read_starts<M: MetaStore>(store: &M) -> Result<Vec<Start>, StoreError> {
    let rows = read_all(store, STARTS)?;
    rows.iter().map(|(key, value)| decode(STARTS, key, value)).collect()
}

pub(super) fn put_caller(batch: &mut Batch, client: ClientId, start: Start) {
    batch.put(CALLERS, &client.0.to_be_bytes(), &encode(&start));
}

pub(super) fn read_callers<M: MetaStore>(store: &M) -> Result<BTreeMap<ClientId, Start>, StoreError> {
    let rows = read_all(store, CALLERS)?;
    let read =
        |(key, value): &(Vec<u8>, Vec<u8>)| Ok((client_of(CALLERS, key)?, decode(CALLERS, key, value)?));
    rows.iter().map(read).collect()
}

fn slot_key(client: ClientId, slot: u16) -> [u8; SLOT_KEY_BYTES] {
    let mut key = [0; SLOT_KEY_BYTES];
    key[..16].copy_from_slice(&client.0.to_be_bytes());
    key[16..].copy_from_slice(&slot.to_be_bytes());
    key
}

pub(super) fn put_client(batch: &mut Batch, client: ClientId, row: &ClientRow) {
    batch.put(CLIENTS, &client.0.to_be_bytes(), &encode(row));
}

/// Takes out a client with all of its slots.
pub(super) fn delete_client(batch: &mut Batch, client: ClientId, slots: impl Iterator<Item = u16>) {
    batch.delete(CLIENTS, &client.0.to_be_bytes());
    for slot in slots {
        batch.delete(SLOTS, &slot_key(client, slot));
    }
}

pub(super) fn put_slot(batch: &mut Batch, token: Token, transno: Transno, reply: &Reply) {
    let reply = without_grants(reply.clone()).to_bytes().to_vec();
    batch.put(
        SLOTS,
        &slot_key(token.client, token.slot),
        &encode(&SlotRow { xid: token.xid, transno, reply }),
    );
}

/// A reply that is given again after a restart names no locks: the client replays those that it knows.
fn without_grants(mut reply: Reply) -> Reply {
    match &mut reply {
        Reply::Mdt(MdtReply::Entry(entry) | MdtReply::Striped { entry, .. }) => entry.grants.clear(),
        Reply::Mdt(MdtReply::WithData { entry, .. }) => {
            return Reply::Mdt(MdtReply::Entry(Box::new(Entry { grants: Vec::new(), ..(**entry).clone() })));
        }
        Reply::Mdt(MdtReply::Absent { grants } | MdtReply::Xattrs { grants, .. }) => grants.clear(),
        Reply::Mdt(
            MdtReply::Removed { child: Some(child), .. } | MdtReply::RemovedMet { child: Some(child), .. },
        ) => child.grants.clear(),
        _ => {}
    }
    reply
}

/// All clients that had a session, as they are awaited after a restart.
pub(super) fn read_exports<M: MetaStore>(
    store: &M,
    now: Time,
) -> Result<BTreeMap<ClientId, Export>, StoreError> {
    let mut exports = BTreeMap::new();
    for (key, value) in read_all(store, CLIENTS)? {
        let row: ClientRow = decode(CLIENTS, &key, &value)?;
        let client = client_of(CLIENTS, &key)?;
        let export = Export {
            replaced: 0,
            session: row.serial,
            incarnation: row.incarnation,
            nid: row.nid,
            acked: Xid::ZERO,
            slots: BTreeMap::new(),
            begun: Begun::default(),
            once: Once::default(),
            last_contact: now,
            has_spoken: false,
            features: 0,
            has_checked_data: true,
            awaited: None,
            is_connect_held: false,
        };
        exports.insert(client, export);
    }
    for (key, value) in read_all(store, SLOTS)? {
        let row: SlotRow = decode(SLOTS, &key, &value)?;
        let slot = key.get(16..18).and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes);
        let slot = slot.ok_or_else(|| StoreError::CorruptRow { table: SLOTS, key: key.clone() })?;
        if let Some(export) = exports.get_mut(&client_of(SLOTS, &key)?) {
            let body = Bytes::from(row.reply);
            let state =
                SlotState::Done { status: Status::Ok, transno: row.transno, body, data: Bytes::new() };
            export.slots.insert(slot, Slot { xid: row.xid, state });
        }
    }
    Ok(exports)
}

pub(super) fn client_of(table: Table, key: &[u8]) -> Result<ClientId, StoreError> {
    let id = key.get(..16).and_then(|bytes| bytes.try_into().ok()).map(u128::from_be_bytes);
    id.map(ClientId).ok_or_else(|| StoreError::CorruptRow { table, key: key.to_vec() })
}

pub(super) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn read_all<M: MetaStore>(store: &M, table: Table) -> Result<Rows, StoreError> {
    let mut rows = Vec::new();
    store.scan(table, &[], &[0xff; 32], usize::MAX, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    })?;
    Ok(rows)
}

/// One value of each table.
pub(super) fn examples() -> Vec<Vec<u8>> {
    let client = ClientRow { incarnation: 3, serial: 9, nid: "127.0.0.1:7988@tcp".to_string() };
    let slot = SlotRow { xid: Xid(4), transno: Transno(5), reply: Reply::Done.to_bytes().to_vec() };
    vec![
        encode(&StateRow::default()),
        encode(&client),
        encode(&slot),
        encode(&Transno(7)),
        encode(&Start::default()),
    ]
}

pub(super) fn is_any(value: &[u8]) -> bool {
    let is_key = client_of(CLIENTS, value).is_ok();
    decode::<StateRow>(STATE, &[], value).is_ok()
        || decode::<ClientRow>(CLIENTS, &[], value).is_ok()
        || decode::<SlotRow>(SLOTS, &[], value).is_ok()
        || decode::<Transno>(STATE, &[], value).is_ok()
        || decode::<Start>(STARTS, &[], value).is_ok()
        || is_key
}

#[cfg(test)]
mod tests;
