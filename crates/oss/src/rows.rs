//! Rows of the target beside those of `target::Core`: a version byte, then borsh.

use base::fault::{Fault, planted};
use base::{ObjectId, Status, Transno, WallTime};
use borsh::{BorshDeserialize, BorshSerialize};
use store::{Batch, MetaStore, StoreError, Table};

/// Object key -> `ObjectRow`.
pub const OBJECTS: Table = 1;
/// Object key -> `TombstoneRow`: the object was destroyed and must not come back (hazard 5.1).
pub const TOMBSTONES: Table = 2;
/// Object key -> `BornRow`.
pub const BORN: Table = 3;

const VERSION: u8 = 1;

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

/// Appends a row to a batch.
pub fn put<T: BorshSerialize>(batch: &mut Batch, table: Table, key: &[u8], row: &T) {
    let mut value = vec![VERSION];
    let result = row.serialize(&mut value);
    assert!(result.is_ok(), "a row is written to memory");
    batch.put(table, key, &value);
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
    match store.get(table, key) {
        Ok(None) => Ok(None),
        Ok(Some(value)) => decode(&value).map(Some),
        Err(StoreError::CorruptRow { .. } | StoreError::CorruptIndex { .. }) => Err(Status::Corrupt),
        Err(error) => Err(error.status()),
    }
}

/// Reads the value of a row.
///
/// # Errors
/// `Corrupt`.
pub fn decode<T: BorshDeserialize>(value: &[u8]) -> Result<T, Status> {
    match value.split_first() {
        Some((&VERSION, mut body)) => {
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
pub fn born(store: &impl MetaStore, id: &ObjectId) -> Result<Option<Transno>, Status> {
    Ok(get::<BornRow>(store, BORN, &id.key())?.map(|row| row.transno))
}

pub fn is_destroyed(store: &impl MetaStore, id: &ObjectId) -> Result<bool, Status> {
    if planted(Fault::TombstoneIgnored) {
        return Ok(false);
    }
    Ok(get::<TombstoneRow>(store, TOMBSTONES, &id.key())?.is_some())
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
}
