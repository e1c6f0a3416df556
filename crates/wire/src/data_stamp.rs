//! Up to which data a time speaks that somebody sets.

use crate::tail;
use base::WallTime;
use borsh::io::{Read, Result, Write};

const MARK: tail::Mark = *b"DST1";

/// At the end of a body: who does not know it goes by its own clock.
pub(crate) fn serialize<W: Write>(stamp: &Option<WallTime>, writer: &mut W) -> Result<()> {
    stamp.map_or(Ok(()), |stamp| tail::write(MARK, &stamp, writer))
}

pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<Option<WallTime>> {
    tail::read(MARK, reader)
}

#[cfg(test)]
mod tests {
    use crate::{MdtRequest, Request};
    use base::{Fid, SetAttr, WallTime};

    #[test]
    #[expect(clippy::unwrap_used, reason = "a test")]
    fn a_stamp_stands_behind_what_a_setattr_always_was() {
        let request = |stamp| {
            let (creds, want) = Default::default();
            let (fid, set) = (Fid::ROOT, SetAttr::default());
            Request::Mdt(MdtRequest::Setattr { fid, set, creds, handle: None, want, stamp })
        };
        let plain = request(None).to_bytes();
        let stamped = request(Some(WallTime(-7))).to_bytes();
        let tail = stamped.strip_prefix(&plain[..]).unwrap();
        assert_eq!(tail, [&b"DST1"[..], &(-7i64).to_le_bytes()].concat());
        for (bytes, expected) in [(&plain, None), (&stamped, Some(WallTime(-7)))] {
            assert_eq!(Request::from_bytes(bytes).unwrap(), request(expected));
        }
        // Something else stands there, or a part of it.
        assert_eq!(Request::from_bytes(&[&plain[..], b"XYZ1more"].concat()).unwrap(), request(None));
        assert!(Request::from_bytes(&stamped[..stamped.len() - 1]).is_err());
    }
}
