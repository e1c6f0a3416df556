//! The version of the program at the other end, which operators want to know and nothing else depends on.

use borsh::io::{Read, Result, Write};
use borsh::{BorshDeserialize, BorshSerialize};

/// What stands in front of it, so that nothing else behind a body is taken for it.
const MARK: [u8; 4] = *b"VER1";
/// Longer ones, or with something that no version has in it, are not believed.
const BYTES_MAX: usize = 64;

pub(crate) fn serialize<W: Write>(software: &String, writer: &mut W) -> Result<()> {
    if software.is_empty() { Ok(()) } else { (MARK, software).serialize(writer) }
}

/// A body that ends before it has none, and neither has one that goes on with something else.
pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<String> {
    for expected in MARK {
        let mut byte = [0];
        if reader.read(&mut byte)? == 0 || byte != [expected] {
            return Ok(String::new());
        }
    }
    let software = String::deserialize_reader(reader)?;
    let is_version = software.len() <= BYTES_MAX && software.chars().all(|c| c.is_ascii_graphic());
    Ok(if is_version { software } else { String::new() })
}

#[cfg(test)]
mod tests;
