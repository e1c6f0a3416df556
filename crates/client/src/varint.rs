//! Numbers and byte strings one after the other, in as many bytes as they need. For memory only: nobody else reads them.

/// Seven bits in a byte, the lowest first; the top bit says that there are more.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// `None`: there is none.
pub(crate) fn take_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let byte_count = usize::try_from(take_number(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(byte_count)?;
    *from = rest;
    Some(bytes)
}
