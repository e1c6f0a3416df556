//! That a target is owned by the server that registers it, which has taken it by the rules of failover.

use borsh::BorshSerialize;
use borsh::io::{Read, Result, Write};

/// Behind the registration of one that is; nothing stands there otherwise.
const MARK: [u8; 4] = *b"OWN1";

/// At the end of a body: who does not know it skips it.
pub(crate) fn serialize<W: Write>(is_taken: &bool, writer: &mut W) -> Result<()> {
    if *is_taken { MARK.serialize(writer) } else { Ok(()) }
}

/// A body that ends before it, or goes on with something else, is of a target that nobody owns.
pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<bool> {
    for expected in MARK {
        let mut byte = [0];
        if reader.read(&mut byte)? == 0 || byte != [expected] {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use crate::{MgsRequest, Request};
    use base::{TargetConfig, TargetId};

    #[test]
    #[expect(clippy::unwrap_used, reason = "a test")]
    fn only_what_says_so_is_taken_and_the_rest_reads_as_it_always_did() {
        let target =
            TargetConfig { id: TargetId::ost(1), uuid: 7, nids: vec!["a:1".into()], is_active: true };
        let bytes = |is_taken| {
            let (fsname, target) = ("a".into(), target.clone());
            Request::Mgs(MgsRequest::Register { fsname, target, is_taken }).to_bytes()
        };
        let is_taken = |bytes: &[u8]| match Request::from_bytes(bytes).unwrap() {
            Request::Mgs(MgsRequest::Register { is_taken, .. }) => is_taken,
            other => panic!("{other:?}"),
        };
        let (plain, taken) = (bytes(false), bytes(true));
        assert_eq!(taken.strip_prefix(&plain[..]), Some(&b"OWN1"[..]));
        assert!(!is_taken(&plain));
        assert!(is_taken(&taken));
        assert!(!is_taken(&[&plain[..], b"of a newer version"].concat()));
    }
}
