//! What the MGS tells everybody about a file system.

use crate::TargetId;
use borsh::{BorshDeserialize, BorshSerialize};

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct TargetConfig {
    pub id: TargetId,
    /// Made by mkfs; a peer refuses a target with another one (hazard 5.3).
    pub uuid: u128,
    /// Addresses `HOST:PORT`, tried in turn.
    pub nids: Vec<String>,
    pub is_active: bool,
}

/// Configuration of one file system; `version` rises with every change.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ClusterConfig {
    pub fsname: String,
    pub version: u64,
    /// Sorted by id.
    pub targets: Vec<TargetConfig>,
    /// Permanent parameters (`lctl set_param -P`), path and value.
    pub params: Vec<(String, String)>,
}

impl ClusterConfig {
    pub fn target(&self, id: TargetId) -> Option<&TargetConfig> {
        self.targets.iter().find(|target| target.id == id)
    }

    pub fn of_kind(&self, kind: crate::TargetKind) -> impl Iterator<Item = &TargetConfig> {
        self.targets.iter().filter(move |target| target.id.kind == kind)
    }
}
