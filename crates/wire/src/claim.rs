//! What a target says of itself when it registers, behind what it always said.

use crate::tail::Mark;
use base::Start;
use borsh::io::{Read, Result, Write};
use borsh::{BorshDeserialize, BorshSerialize};

/// Why this is the target of its name, and not a copy of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// It is owned by the server that registers it, which has taken it by the rules of failover.
    pub is_taken: bool,
    /// Its last starts, this one the last; empty of one that does not say.
    pub starts: Vec<Start>,
}

const TAKEN: Mark = *b"OWN1";
const STARTS: Mark = *b"STA1";

/// At the end of a body: who does not know it skips it, and of a target that claims nothing there is nothing.
pub(crate) fn serialize<W: Write>(claim: &Claim, writer: &mut W) -> Result<()> {
    if claim.is_taken {
        TAKEN.serialize(writer)?;
    }
    if !claim.starts.is_empty() {
        (STARTS, &claim.starts).serialize(writer)?;
    }
    Ok(())
}

/// Up to the end of the body, or to what is not known.
pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<Claim> {
    let mut claim = Claim::default();
    while let Some(mark) = next_mark(reader)? {
        match mark {
            TAKEN => claim.is_taken = true,
            STARTS => claim.starts = Vec::deserialize_reader(reader)?,
            _ => break,
        }
    }
    Ok(claim)
}

fn next_mark<R: Read>(reader: &mut R) -> Result<Option<Mark>> {
    let mut mark = Mark::default();
    for place in &mut mark {
        let mut byte = [0];
        if reader.read(&mut byte)? == 0 {
            return Ok(None);
        }
        [*place] = byte;
    }
    Ok(Some(mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MgsRequest, Request};
    use base::{Epoch, TargetConfig, TargetId, WallTime};

    #[test]
    #[expect(clippy::unwrap_used, reason = "a test")]
    fn only_what_is_claimed_is_written_and_the_rest_reads_as_it_always_did() {
        let target =
            TargetConfig { id: TargetId::ost(1), uuid: 7, nids: vec!["a:1".into()], is_active: true };
        let bytes = |claim| {
            let (fsname, target) = ("a".into(), target.clone());
            Request::Mgs(MgsRequest::Register { fsname, target, claim }).to_bytes()
        };
        let claim_in = |bytes: &[u8]| match Request::from_bytes(bytes).unwrap() {
            Request::Mgs(MgsRequest::Register { claim, .. }) => claim,
            other => panic!("{other:?}"),
        };
        let starts = vec![Start { epoch: Epoch(3), at: WallTime(5) }];
        let nothing = Claim::default();
        let plain = bytes(nothing.clone());
        let taken = Claim { is_taken: true, ..nothing.clone() };
        assert_eq!(bytes(taken.clone()).strip_prefix(&plain[..]), Some(&b"OWN1"[..]));
        for claim in [
            nothing.clone(),
            taken,
            Claim { is_taken: true, starts: starts.clone() },
            Claim { is_taken: false, starts },
        ] {
            let written = bytes(claim.clone());
            assert_eq!(claim_in(&written), claim);
            assert_eq!(claim_in(&[&written[..], b"of a newer version"].concat()), claim);
        }
    }
}
