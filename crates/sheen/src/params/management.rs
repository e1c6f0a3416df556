//! `mgs.MGS.*`: what the management server knows.

use super::targets::{EXPORT_UUID, Export, clients, exports};
use super::{Class, format, read_only};
use crate::node::Node;
use crate::targets::{MgsOwner, Served};
use base::ClusterConfig;

fn owners(node: &Node) -> Vec<MgsOwner> {
    let mgs = node.targets.iter().filter_map(|target| match &target.served {
        Served::Mgs(owner) => Some(owner.clone()),
        _ => None,
    });
    mgs.collect()
}

pub static MGS: Class<MgsOwner> = Class {
    path: "mgs/MGS",
    instances: |node| owners(node).into_iter().map(|owner| ("mgs/MGS".to_owned(), owner)).collect(),
    params: &[
        read_only("filesystems", "Names of the file systems that are registered.", |owner: &MgsOwner| {
            Some(owner.with(|mgs| mgs.configs().keys().cloned().collect::<Vec<_>>().join("\n")))
        }),
        read_only("num_exports", "Processes with a session on the management server.", |owner| {
            Some(owner.with(|mgs| mgs.core().clients().count().to_string()))
        }),
        read_only("num_leases", "Mounts that have said within the last seconds that they live.", |owner| {
            Some(owner.with(|mgs| mgs.lease_count(net::clock::now().time).to_string()))
        }),
        read_only(
            "num_ended_leases",
            "Mounts that are known to be gone; a management server that takes over knows it too.",
            |owner| Some(owner.with(|mgs| mgs.ended_lease_count().to_string())),
        ),
    ],
};

pub static LIVE: Class<ClusterConfig> = Class {
    path: "mgs/MGS/live/*",
    instances: |node| {
        let configs = |owner: MgsOwner| owner.with(|mgs| mgs.configs().values().cloned().collect::<Vec<_>>());
        let configs = owners(node).into_iter().flat_map(configs);
        configs.map(|config| (format!("mgs/MGS/live/{}", config.fsname), config)).collect()
    },
    params: &[read_only(
        "",
        "Targets and permanent parameters of one file system.",
        |config: &ClusterConfig| Some(format::live(config)),
    )],
};

pub static EXPORTS: Class<Export> = Class {
    path: "mgs/MGS/exports/*",
    instances: |node| {
        let of = |owner: MgsOwner| exports("mgs", "MGS", owner.with(|mgs| clients(mgs.core())));
        owners(node).into_iter().flat_map(of).collect()
    },
    params: &[EXPORT_UUID],
};
