//! What the MGS tells everybody about a file system.

use crate::{Pool, PoolName, TargetId};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterConfig {
    pub fsname: String,
    pub version: u64,
    /// Sorted by id.
    pub targets: Vec<TargetConfig>,
    /// Permanent parameters (`lctl set_param -P`), path and value.
    pub params: Vec<(String, String)>,
    /// Sorted by name.
    pub pools: Vec<Pool>,
}

impl ClusterConfig {
    /// Stands beside the version when pools follow at the end; without any, the bytes are those from before there were pools.
    const WITH_POOLS: u64 = 1 << 63;

    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == *name)
    }

    pub fn target(&self, id: TargetId) -> Option<&TargetConfig> {
        self.targets.iter().find(|target| target.id == id)
    }

    pub fn of_kind(&self, kind: crate::TargetKind) -> impl Iterator<Item = &TargetConfig> {
        self.targets.iter().filter(move |target| target.id.kind == kind)
    }
}

impl BorshSerialize for ClusterConfig {
    fn serialize<W: borsh::io::Write>(&self, writer: &mut W) -> borsh::io::Result<()> {
        let ClusterConfig { fsname, version, targets, params, pools } = self;
        if pools.is_empty() {
            return (fsname, version, targets, params).serialize(writer);
        }
        (fsname, version | Self::WITH_POOLS, targets, params, pools).serialize(writer)
    }
}

impl BorshDeserialize for ClusterConfig {
    fn deserialize_reader<R: borsh::io::Read>(reader: &mut R) -> borsh::io::Result<Self> {
        let (fsname, version) = <(String, u64)>::deserialize_reader(reader)?;
        let (targets, params) = BorshDeserialize::deserialize_reader(reader)?;
        let pools = match version & Self::WITH_POOLS {
            0 => Vec::new(),
            _ => Vec::deserialize_reader(reader)?,
        };
        Ok(ClusterConfig { fsname, version: version & !Self::WITH_POOLS, targets, params, pools })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_configuration_without_pools_has_the_bytes_that_it_always_had() {
        let params = vec![("debug".to_owned(), "info".to_owned())];
        let config = ClusterConfig { fsname: "x".to_owned(), version: 7, params, ..Default::default() };
        let bytes = borsh::to_vec(&config).unwrap();
        let before = ("x", 7_u64, Vec::<TargetConfig>::new(), vec![("debug", "info")]);
        assert_eq!(bytes, borsh::to_vec(&before).unwrap());
        assert_eq!(ClusterConfig::try_from_slice(&bytes).unwrap(), config);
    }

    #[test]
    fn pools_survive_being_written() {
        let pool = |name: &str, osts: &[u16]| Pool { name: name.parse().unwrap(), osts: osts.to_vec() };
        let pools = vec![pool("disk", &[0, 2]), pool("flash", &[])];
        let config = ClusterConfig { version: 9, pools, ..Default::default() };
        let bytes = borsh::to_vec(&config).unwrap();
        assert_eq!(ClusterConfig::try_from_slice(&bytes).unwrap(), config);
    }
}
