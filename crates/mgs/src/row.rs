//! How all rows are written: a version byte, then the value.

use borsh::{BorshDeserialize, BorshSerialize};

const VERSION: u8 = 1;

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
