//! The decoder of requests as the fuzz test of all decoders calls it (`crates/sheen/src/fuzz.rs`).

use crate::abi::{self, opcode};
use crate::decode::{Dialect, Frame, decode, decode_forgets, decode_interrupt};
use zerocopy::IntoBytes;

/// Operations that the protocol has had so far, and some that it has not.
const OPCODES: std::ops::RangeInclusive<u32> = 0..=56;

/// A message of each operation: a structure that counts 16 bytes everywhere, then names and data.
pub fn examples() -> Vec<Vec<u8>> {
    let example = |opcode: u32| {
        let mut body = vec![0; crate::decode::op_header_size(opcode, Dialect { setxattr_ext: true })];
        for field in body.chunks_mut(8).filter(|field| field.len() == 8) {
            field.copy_from_slice(&[16, 0, 0, 0, 0, 0, 0, 0]);
        }
        body.extend_from_slice(b"a name\0another\0some data and more data");
        let header = abi::InHeader {
            len: (size_of::<abi::InHeader>() + body.len()) as u32,
            opcode,
            unique: 8,
            nodeid: 7,
            ..Default::default()
        };
        [header.as_bytes(), &body].concat()
    };
    OPCODES.map(example).collect()
}

/// Whether these bytes of `/dev/fuse` are a request.
pub fn read(message: &[u8]) -> bool {
    let dialect = Dialect { setxattr_ext: true };
    let Some(frame) = Frame::split(message, dialect) else { return false };
    match frame.header.opcode {
        opcode::FORGET | opcode::BATCH_FORGET => decode_forgets(&frame).is_ok(),
        opcode::INTERRUPT => decode_interrupt(&frame).is_ok(),
        _ => decode(&frame, dialect, 0).is_ok(),
    }
}
