//! The decoders of this module's rows, for the fuzz test of all decoders (`crates/sheen/src/fuzz.rs`).

use super::rows;

pub fn row_examples() -> Vec<Vec<u8>> {
    rows::examples()
}

/// Whether these bytes are a row of any of the tables.
pub fn read_row(bytes: &[u8]) -> bool {
    rows::is_any(bytes)
}
