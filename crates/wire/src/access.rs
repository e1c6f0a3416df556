//! When something was read: told with what a client sends anyway.

use base::{Fid, WallTime};
use borsh::io::{Read, Result, Write};
use borsh::{BorshDeserialize, BorshSerialize};

/// Somebody has read a file, or listed a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Access {
    pub fid: Fid,
    /// As the servers' clocks have it.
    pub at: WallTime,
    /// It counts only where the access time is not behind a change, and not a day old (`relatime`).
    pub is_relative: bool,
}

/// Accesses in one request.
pub const ACCESSES_MAX: usize = 256;

/// At the end of a body: who does not know them skips them, and where there are none nothing is written.
pub(crate) fn serialize<W: Write>(accesses: &Vec<Access>, writer: &mut W) -> Result<()> {
    if accesses.is_empty() { Ok(()) } else { BorshSerialize::serialize(accesses, writer) }
}

/// A body that ends before them has none.
pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<Vec<Access>> {
    let mut first = [0];
    if reader.read(&mut first)? == 0 {
        return Ok(Vec::new());
    }
    Vec::deserialize_reader(&mut first.chain(reader))
}

#[cfg(test)]
mod tests;
