//! What newer versions have put behind the fields that a body always had: who does not know it skips it. A mark stands in front, so that
//! nothing else behind a body is taken for it.

use borsh::io::{Read, Result, Write};
use borsh::{BorshDeserialize, BorshSerialize};

pub(crate) type Mark = [u8; 4];

pub(crate) fn write<W: Write>(mark: Mark, value: &impl BorshSerialize, writer: &mut W) -> Result<()> {
    (mark, value).serialize(writer)
}

/// `None` where the body ends before it, or goes on with something else.
pub(crate) fn read<R: Read, T: BorshDeserialize>(mark: Mark, reader: &mut R) -> Result<Option<T>> {
    for expected in mark {
        let mut byte = [0];
        if reader.read(&mut byte)? == 0 || byte != [expected] {
            return Ok(None);
        }
    }
    T::deserialize_reader(reader).map(Some)
}
