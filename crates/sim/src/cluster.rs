//! What all simulated clusters are told at their start: which targets there are, and how a client is mounted.

use crate::servers::{FSNAME, Server};
use base::{ClientId, ClusterConfig, Pool, TargetConfig, TargetId};
use client::{AccessTimes, ClientOptions};

/// In the names of clients; the rest is their number.
pub const CLIENT_MARK: u128 = 0xc11e << 64;

/// The first configuration of a cluster with these targets.
pub fn config_of(targets: impl IntoIterator<Item = TargetId>, pools: Vec<Pool>) -> ClusterConfig {
    ClusterConfig {
        fsname: FSNAME.into(),
        version: 1,
        targets: targets.into_iter().map(target_config).collect(),
        params: Vec::new(),
        pools,
    }
}

/// As its process registers a target.
pub fn target_config(id: TargetId) -> TargetConfig {
    TargetConfig { id, uuid: Server::uuid(id), nids: vec!["sim".into()], is_active: true }
}

/// A client whose kernel can do all that ours asks of it.
pub fn client_options(client: ClientId, number: u128) -> ClientOptions {
    ClientOptions {
        incarnation: 1,
        client,
        fsname: FSNAME.into(),
        nid: format!("client{number}"),
        has_inc_epoch: true,
        has_versioned_setattr: true,
        is_mmap_relaxed: false,
        is_statfs_lazy: true,
        access_times: AccessTimes::default(),
        has_kill_privileges: true,
        is_write_back_early: false,
    }
}
