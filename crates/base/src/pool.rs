//! Pools: sets of OSTs that an administrator names, and that layouts then ask for.

use borsh::{BorshDeserialize, BorshSerialize};
use std::fmt;
use std::str::FromStr;

/// 1 to 15 letters, digits, `_`, `-` and `.`, as Lustre has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize)]
pub struct PoolName(String);

impl PoolName {
    pub const BYTES_MAX: usize = 15;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// This is no name of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pool has a name of 1 to 15 letters, digits, '_', '-' and '.'")]
pub struct NoPoolName;

impl FromStr for PoolName {
    type Err = NoPoolName;

    fn from_str(text: &str) -> Result<PoolName, NoPoolName> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let is_good = (1..=Self::BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_good { Ok(PoolName(text.to_owned())) } else { Err(NoPoolName) }
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names from peers and disks are checked like those of users.
impl BorshDeserialize for PoolName {
    fn deserialize_reader<R: borsh::io::Read>(reader: &mut R) -> borsh::io::Result<Self> {
        let text = String::deserialize_reader(reader)?;
        text.parse().map_err(|error| borsh::io::Error::new(borsh::io::ErrorKind::InvalidData, error))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Pool {
    pub name: PoolName,
    /// Members, in order; they may be away.
    pub osts: Vec<u16>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["a", "flash", "ssd-2.old_x", "exactly15chars_"] {
            assert_eq!(name.parse::<PoolName>().unwrap().as_str(), name);
        }
        for name in ["", "sixteen_chars_16", "a b", "a/b", "ä", "a\0"] {
            assert_eq!(name.parse::<PoolName>(), Err(NoPoolName), "{name:?}");
            let bytes = borsh::to_vec(name).unwrap();
            assert!(PoolName::try_from_slice(&bytes).is_err(), "{name:?}");
        }
    }
}
