//! The version of the program at the other end, which operators want to know and nothing else depends on.

use crate::tail;
use borsh::io::{Read, Result, Write};

const MARK: tail::Mark = *b"VER1";
/// Longer ones, or with something that no version has in it, are not believed.
const BYTES_MAX: usize = 64;

pub(crate) fn serialize<W: Write>(software: &String, writer: &mut W) -> Result<()> {
    if software.is_empty() { Ok(()) } else { tail::write(MARK, software, writer) }
}

/// A body that ends before it has none, and neither has one that goes on with something else.
pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<String> {
    let software: String = tail::read(MARK, reader)?.unwrap_or_default();
    let is_version = software.len() <= BYTES_MAX && software.chars().all(|c| c.is_ascii_graphic());
    Ok(if is_version { software } else { String::new() })
}

#[cfg(test)]
mod tests;
