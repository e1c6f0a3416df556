//! Rows of the target beside those of `target::Core`: a version byte, then borsh.

use base::fault::{Fault, planted};
use base::{ObjectId, Status, Transno, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};
use store::{Batch, MetaStore, StoreError, Table};
use target::known::{Kind, Look, is_version};

/// Object key -> `ObjectRow`.
pub const OBJECTS: Table = 1;
/// Object key -> `TombstoneRow`: the object was destroyed and must not come back (hazard 5.1).
pub const TOMBSTONES: Table = 2;
/// Object key -> `BornRow`.
pub const BORN: Table = 3;

const VERSION: u8 = 1;
/// Of rows of objects whose files have had a header since they were made.
const BORN_VERSION: u8 = 2;
/// Of tombstones of objects that have another name now.
const ADOPTED_VERSION: u8 = 2;

/// All of them, as far as a start looks at them: they are as many as there are objects.
const KINDS: [Kind; 3] = [
    Kind { table: OBJECTS, name: "object", look: Look::First(|_, value| is_version(value, VERSION)) },
    Kind {
        table: TOMBSTONES,
        name: "tombstone",
        look: Look::First(|_, value| is_version(value, VERSION) || is_version(value, ADOPTED_VERSION)),
    },
    Kind {
        table: BORN,
        name: "birth",
        look: Look::First(|_, value| is_version(value, VERSION) || is_version(value, BORN_VERSION)),
    },
];

/// Whether this version understands the rows of a target, as a start looks at them.
///
/// # Errors
/// `UnknownRow`.
pub fn check_known(store: &dyn MetaStore) -> Result<(), StoreError> {
    target::known::check(store, &KINDS)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ObjectRow {
    /// When data last changed, by the clock of the client that changed them.
    pub stamp: WallTime,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct TombstoneRow {
    pub destroyed_at: WallTime,
}

/// The transaction that made an object: once that is durable, an object that is not there is lost, and no hole (hazard 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct BornRow {
    pub transno: Transno,
}

/// What is known of the making of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Born {
    pub transno: Transno,
    /// An object without its header is as lost as one that is not there. Versions before made some without.
    pub has_header: bool,
}

/// Appends a row to a batch.
pub fn put<T: BorshSerialize>(batch: &mut Batch, table: Table, key: &[u8], row: &T) {
    batch.put(table, key, &encode_row(row));
}

/// The value of a row.
pub fn encode_row<T: BorshSerialize>(row: &T) -> Vec<u8> {
    encode(VERSION, row)
}

fn encode<T: BorshSerialize>(version: u8, row: &T) -> Vec<u8> {
    let mut value = vec![version];
    let result = row.serialize(&mut value);
    assert!(result.is_ok(), "a row is written to memory");
    value
}

pub fn put_born(batch: &mut Batch, id: &ObjectId, transno: Transno) {
    batch.put(BORN, &id.key(), &encode(BORN_VERSION, &BornRow { transno }));
}

/// What is known of an object that was made under another name. One that is known to be lost stays so.
pub fn put_born_again(batch: &mut Batch, id: &ObjectId, born: Born) {
    let version = if born.has_header { BORN_VERSION } else { VERSION };
    batch.put(BORN, &id.key(), &encode(version, &BornRow { transno: born.transno }));
}

/// Reads a row.
///
/// # Errors
/// `Corrupt` for a row that is damaged or of an unknown version; otherwise that of the store.
pub fn get<T: BorshDeserialize>(
    store: &impl MetaStore,
    table: Table,
    key: &[u8],
) -> Result<Option<T>, Status> {
    value(store, table, key)?.map(|value| decode(&value)).transpose()
}

fn value(store: &impl MetaStore, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Status> {
    store.get(table, key).map_err(|error| status_of(&error))
}

/// The wire status of what the store says instead of a row.
pub fn status_of(error: &StoreError) -> Status {
    match error {
        StoreError::CorruptRow { .. } | StoreError::CorruptIndex { .. } => Status::Corrupt,
        error => error.status(),
    }
}

/// Reads the value of a row.
///
/// # Errors
/// `Corrupt`.
pub fn decode<T: BorshDeserialize>(value: &[u8]) -> Result<T, Status> {
    decode_as(VERSION, value)
}

fn decode_as<T: BorshDeserialize>(version: u8, value: &[u8]) -> Result<T, Status> {
    match value.split_first() {
        Some((found, mut body)) if *found == version => {
            let row = T::deserialize_reader(&mut body).map_err(|_| Status::Corrupt)?;
            if body.is_empty() { Ok(row) } else { Err(Status::Corrupt) }
        }
        _ => Err(Status::Corrupt),
    }
}

pub fn object(store: &impl MetaStore, id: &ObjectId) -> Result<Option<ObjectRow>, Status> {
    get(store, OBJECTS, &id.key())
}

/// The transaction that made an object, if it is known.
pub fn born(store: &impl MetaStore, id: &ObjectId) -> Result<Option<Born>, Status> {
    value(store, BORN, &id.key())?.map(|value| decode_born(&value)).transpose()
}

/// # Errors
/// `Corrupt`.
pub fn decode_born(value: &[u8]) -> Result<Born, Status> {
    let has_header = value.first() == Some(&BORN_VERSION);
    let row: BornRow = decode_as(if has_header { BORN_VERSION } else { VERSION }, value)?;
    Ok(Born { transno: row.transno, has_header })
}

/// Or adopted: there is no such object any more.
pub fn is_destroyed(store: &impl MetaStore, id: &ObjectId) -> Result<bool, Status> {
    if planted(Fault::TombstoneIgnored) {
        return Ok(false);
    }
    Ok(tombstone(store, id)?.is_some())
}

/// Whether it has another name now.
pub fn is_adopted(store: &impl MetaStore, id: &ObjectId) -> Result<bool, Status> {
    Ok(tombstone(store, id)?.is_some_and(|(_, is_adopted)| is_adopted))
}

fn tombstone(store: &impl MetaStore, id: &ObjectId) -> Result<Option<(TombstoneRow, bool)>, Status> {
    value(store, TOMBSTONES, &id.key())?.map(|value| decode_tombstone(&value)).transpose()
}

/// The row, and whether the object was adopted.
///
/// # Errors
/// `Corrupt`.
pub fn decode_tombstone(value: &[u8]) -> Result<(TombstoneRow, bool), Status> {
    let is_adopted = value.first() == Some(&ADOPTED_VERSION);
    Ok((decode_as(if is_adopted { ADOPTED_VERSION } else { VERSION }, value)?, is_adopted))
}

pub fn put_adopted(batch: &mut Batch, id: &ObjectId, adopted_at: WallTime) {
    batch.put(TOMBSTONES, &id.key(), &encode(ADOPTED_VERSION, &TombstoneRow { destroyed_at: adopted_at }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_row_is_an_error_whatever_is_damaged() {
        let mut batch = Batch::new();
        put(&mut batch, OBJECTS, b"key", &ObjectRow { stamp: WallTime(7) });
        let value = batch.changes().next().and_then(|change| change.value).expect("one row").to_vec();
        assert_eq!(value, [1, 7, 0, 0, 0, 0, 0, 0, 0], "the form on disk");
        assert_eq!(decode::<ObjectRow>(&value), Ok(ObjectRow { stamp: WallTime(7) }));
        for length in 0..value.len() {
            assert_eq!(decode::<ObjectRow>(&value[..length]), Err(Status::Corrupt));
        }
        let mut other_version = value.clone();
        other_version[0] = 9;
        assert_eq!(decode::<ObjectRow>(&other_version), Err(Status::Corrupt));
        let mut longer = value;
        longer.push(0);
        assert_eq!(decode::<ObjectRow>(&longer), Err(Status::Corrupt));
    }

    #[test]
    fn a_tombstone_says_whether_there_is_another_name() {
        let id = ObjectId { fid: base::Fid::ROOT, component: 0, stripe: 0 };
        let row = TombstoneRow { destroyed_at: WallTime(7) };
        let mut batch = Batch::new();
        put_adopted(&mut batch, &id, WallTime(7));
        let value = batch.changes().next().and_then(|change| change.value).expect("one row").to_vec();
        assert_eq!(value, [2, 7, 0, 0, 0, 0, 0, 0, 0], "the form on disk");
        assert_eq!(decode_tombstone(&value), Ok((row, true)));
        assert_eq!(decode_tombstone(&encode_row(&row)), Ok((row, false)));
        assert_eq!(decode_tombstone(&[3, 7, 0, 0, 0, 0, 0, 0, 0]), Err(Status::Corrupt));
    }

    #[test]
    fn rows_of_objects_from_before_headers_were_certain_are_still_read() {
        let id = ObjectId { fid: base::Fid::ROOT, component: 0, stripe: 0 };
        let mut batch = Batch::new();
        put_born(&mut batch, &id, Transno(7));
        let value = batch.changes().next().and_then(|change| change.value).expect("one row").to_vec();
        assert_eq!(value, [2, 7, 0, 0, 0, 0, 0, 0, 0], "the form on disk");
        assert_eq!(decode_born(&value), Ok(Born { transno: Transno(7), has_header: true }));
        let former = [1, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(decode_born(&former), Ok(Born { transno: Transno(7), has_header: false }));
        assert_eq!(decode_born(&[3, 7, 0, 0, 0, 0, 0, 0, 0]), Err(Status::Corrupt));
        assert_eq!(decode_born(&[]), Err(Status::Corrupt));
    }
}
