//! The last start of each target, by which an older copy of one is told from it (`target::Lineage`).

use crate::row;
use base::{Start, TargetConfig, TargetId};
use borsh::{BorshDeserialize, BorshSerialize};
use std::collections::BTreeMap;
use store::{Batch, MetaStore, StoreError, Table};
use target::Lineage;

/// File system name, a zero byte, target name -> version byte and `Row`.
pub const STARTS: Table = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
struct Row {
    uuid: u128,
    last: Start,
}

#[derive(Debug, Default)]
pub(crate) struct Starts {
    known: BTreeMap<(String, TargetId), Row>,
}

impl Starts {
    /// # Errors
    /// If the store fails or a row is damaged.
    pub fn read(store: &dyn MetaStore) -> Result<Starts, StoreError> {
        let known = row::read_named(store, STARTS, row::decode)?;
        Ok(Starts { known })
    }

    /// The start that is known of this target, if it does not descend from that one.
    pub fn newer(&self, fsname: &str, target: &TargetConfig, starts: &[Start]) -> Option<Start> {
        let row = self.known.get(&(fsname.to_owned(), target.id)).filter(|row| row.uuid == target.uuid);
        let known = row.map(|row| row.last).filter(|known| Lineage::is_believed(*known))?;
        Lineage::new(starts.to_vec()).is_behind(known).then_some(known)
    }

    /// Whether an earlier one than the last of these is known of this target: what is known from itself confirms nothing.
    pub fn has_earlier(&self, fsname: &str, target: &TargetConfig, starts: &[Start]) -> bool {
        let row = self.known.get(&(fsname.to_owned(), target.id)).filter(|row| row.uuid == target.uuid);
        row.zip(starts.iter().max()).is_some_and(|(row, last)| row.last < *last)
    }

    /// The batch makes it last; empty where nothing is new.
    pub fn note(&mut self, fsname: &str, target: &TargetConfig, starts: &[Start]) -> Batch {
        let mut batch = Batch::new();
        let Some(last) = starts.iter().max().copied().filter(|last| Lineage::is_believed(*last)) else {
            return batch;
        };
        let (name, row) = ((fsname.to_owned(), target.id), Row { uuid: target.uuid, last });
        if self.known.get(&name) != Some(&row) {
            batch.put(STARTS, &row::name_key(&name), &row::encode(&row));
            self.known.insert(name, row);
        }
        batch
    }
}
