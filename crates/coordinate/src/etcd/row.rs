//! The row of an ownership in etcd: a version byte and a body. The epoch outlives the owner.

use base::Epoch;
use borsh::{BorshDeserialize, BorshSerialize};
use wire::TargetOwner;

const VERSION: u8 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Row {
    pub epoch: Epoch,
    pub owner: Option<TargetOwner>,
}

impl Row {
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        let result = self.serialize(&mut value);
        assert!(result.is_ok(), "a row is written to memory");
        value
    }

    /// Others can write to etcd: `None` for whatever this version has not written.
    pub fn decode(value: &[u8]) -> Option<Row> {
        match value.split_first() {
            Some((&VERSION, body)) => {
                Row::try_from_slice(body).ok().filter(|row| row.epoch > Epoch::default())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_row_is_read_back_and_nothing_else_is() {
        let owner = TargetOwner { server: 7, nid: "10.0.0.1:7988".into(), host: "a".into(), pid: 9 };
        let row = Row { epoch: Epoch(3), owner: Some(owner) };
        let value = row.encode();
        assert_eq!(Row::decode(&value).unwrap(), row);
        assert_eq!(value[..10], [1, 3, 0, 0, 0, 0, 0, 0, 0, 1], "version, epoch, an owner");
        for cut in 0..value.len() {
            assert_eq!(Row::decode(&value[..cut]), None);
        }
        assert_eq!(Row::decode(&[2; 10]), None, "another version");
        assert_eq!(Row::decode(&Row::default().encode()), None, "no epoch");
        assert_eq!(Row::decode(&[value, vec![0]].concat()), None, "something behind it");
    }
}
