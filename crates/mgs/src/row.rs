//! How all rows are written: a version byte, then the value.

use borsh::{BorshDeserialize, BorshSerialize};
use target::known::{Kind, Look, is_version};

const VERSION: u8 = 1;

/// All tables of a management server. Others of its rows are read anyway before anything is changed.
pub(crate) const KINDS: [Kind; 3] = [
    Kind { table: crate::CONFIGS, name: "configuration", look: ALL },
    Kind { table: crate::OWNERS, name: "owner", look: ALL },
    // Of another version it says nothing, and everybody is waited for.
    Kind { table: crate::leases::ENDED, name: "ended leases", look: Look::Nowhere },
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
