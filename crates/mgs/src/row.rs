//! How all rows are written: a version byte, then the value.

use base::TargetId;
use borsh::{BorshDeserialize, BorshSerialize};
use std::collections::BTreeMap;
use store::{MetaStore, StoreError, Table};
use target::known::{Kind, Look, is_version};

const VERSION: u8 = 1;

/// All tables of a management server. Others of its rows are read anyway before anything is changed.
pub(crate) const KINDS: [Kind; 4] = [
    Kind { table: crate::CONFIGS, name: "configuration", look: ALL },
    Kind { table: crate::OWNERS, name: "owner", look: ALL },
    Kind { table: crate::starts::STARTS, name: "start", look: ALL },
    // Of another version it says nothing, and everybody is waited for.
    Kind { table: crate::leases::LEASES, name: "leases", look: Look::Nowhere },
];
const ALL: Look = Look::All(|_, value| is_version(value, VERSION));

pub(crate) fn encode(value: &impl BorshSerialize) -> Vec<u8> {
    let mut row = vec![VERSION];
    let result = value.serialize(&mut row);
    assert!(result.is_ok(), "a row is written to memory");
    row
}

/// `None` for a damaged row, and for one of another version.
pub(crate) fn decode<T: BorshDeserialize>(row: &[u8]) -> Option<T> {
    match row.split_first() {
        Some((&VERSION, body)) => T::try_from_slice(body).ok(),
        _ => None,
    }
}

/// The key of a row about one target of one file system.
pub(crate) fn name_key((fsname, target): &(String, TargetId)) -> Vec<u8> {
    format!("{fsname}\0{target}").into_bytes()
}

fn parse_name(key: &[u8]) -> Option<(String, TargetId)> {
    let (fsname, target) = std::str::from_utf8(key).ok()?.split_once('\0')?;
    Some((fsname.to_owned(), target.parse().ok()?))
}

/// All rows of a table that has one for each target.
///
/// # Errors
/// If the store fails or a row is damaged.
pub(crate) fn read_named<T>(
    store: &dyn MetaStore,
    table: Table,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<BTreeMap<(String, TargetId), T>, StoreError> {
    let (mut rows, mut damaged) = (BTreeMap::new(), None);
    let end = vec![0xff; store::KEY_BYTES_MAX];
    store.scan(table, &[], &end, usize::MAX, &mut |key, value| {
        match parse_name(key).zip(decode(value)) {
            Some((name, row)) => drop(rows.insert(name, row)),
            None => damaged = Some(key.to_vec()),
        }
        damaged.is_none()
    })?;
    match damaged {
        Some(key) => Err(StoreError::CorruptRow { table, key }),
        None => Ok(rows),
    }
}
