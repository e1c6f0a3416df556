//! When something was read: told with what a client sends anyway.

use crate::tail;
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

const MARK: tail::Mark = *b"ACC1";

/// At the end of a body: who does not know them skips them, and where there are none nothing is written.
pub(crate) fn serialize<W: Write>(accesses: &Vec<Access>, writer: &mut W) -> Result<()> {
    if accesses.is_empty() { Ok(()) } else { tail::write(MARK, accesses, writer) }
}

/// A body that ends before them has none, and neither has one that goes on with something else.
pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<Vec<Access>> {
    Ok(tail::read(MARK, reader)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
