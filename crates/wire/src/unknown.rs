//! Requests that only a newer version has, told from those that make no sense.
//!
//! A request begins with its class; in the classes that have operations, the operation follows. Both are tags that the decoder
//! reads one byte at a time and looks up at once: a decoder that gave up before it had asked for anything behind them did
//! not know one of them. So no list of what is known has to be kept beside the types.

use crate::{Request, WireError};
use borsh::BorshDeserialize;
use borsh::io::{self, Read};
use std::fmt;

/// Class and operation.
const OPCODE_BYTES: usize = 2;

/// The first bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    pub class: u8,
    /// `None` when the class is not known: who knows what follows it.
    pub operation: Option<u8>,
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(operation) => write!(f, "{}.{operation}", self.class),
            None => write!(f, "{}", self.class),
        }
    }
}

/// Why a request could not be read.
pub(crate) fn why_unreadable(bytes: &[u8], error: io::Error) -> WireError {
    match unknown_opcode(bytes) {
        Some(opcode) => WireError::UnknownOpcode(opcode),
        None => WireError::Body(error.to_string()),
    }
}

fn unknown_opcode(bytes: &[u8]) -> Option<Opcode> {
    let mut reader = Watched { rest: bytes, wanted_bytes: 0 };
    Request::deserialize_reader(&mut reader).err()?;
    let is_end = reader.wanted_bytes > bytes.len();
    if is_end || reader.wanted_bytes > OPCODE_BYTES {
        return None;
    }
    let operation = if reader.wanted_bytes == OPCODE_BYTES { bytes.get(1).copied() } else { None };
    Some(Opcode { class: *bytes.first()?, operation })
}

/// Bytes, and how many of them were asked for: more than there are, where they end early.
struct Watched<'a> {
    rest: &'a [u8],
    wanted_bytes: usize,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wanted_bytes += buffer.len();
        self.rest.read(buffer)
    }
}

#[cfg(test)]
mod tests;
