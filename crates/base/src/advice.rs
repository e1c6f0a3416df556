//! What a program says of data that it will use.

use borsh::{BorshDeserialize, BorshSerialize};

/// Advice about a part of a file, for the cache of the servers. It changes no data, and may be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Advice {
    /// It will be read soon.
    WillRead = 1,
    /// It will not be used soon.
    DontNeed = 2,
}
