//! `mds.MDS.mdt`, `ost.OSS.ost`: what all targets of one kind in this process are asked for, as Lustre counts it for the service of a
//! server.

use super::format::{Stat, stats};
use super::targets::{mds_owners, oss_owners};
use super::{Class, Param, Write};
use crate::node::Node;
use crate::targets::{MdsOwner, OssOwner};
use base::WallTime;
use std::collections::BTreeMap;
use target::RequestCounts;

type Instances<T> = Vec<(String, Vec<T>)>;

/// One instance, where there is at least one target.
fn instances<T>(path: &str, owners: Vec<T>) -> Instances<T> {
    if owners.is_empty() { Vec::new() } else { vec![(path.to_owned(), owners)] }
}

fn of_mds(node: &Node) -> Instances<MdsOwner> {
    instances(MDS.path, mds_owners(node))
}

fn of_oss(node: &Node) -> Instances<OssOwner> {
    instances(OSS.path, oss_owners(node))
}

pub static MDS: Class<Vec<MdsOwner>> = Class {
    path: "mds/MDS/mdt",
    instances: of_mds,
    params: &[Param {
        name: "stats",
        doc: "Requests that the MDTs of a process have begun, by kind; what only keeps a session is not counted.",
        read: |owners: &Vec<MdsOwner>| {
            Some(service_stats(
                owners.iter().map(|owner| owner.with(|mds| mds.core().request_counts().clone())),
            ))
        },
        write: Some(Write::Clear(|owners| {
            owners.iter().for_each(|owner| owner.with(|mds| mds.clear_request_counts(net::clock::now())));
        })),
    }],
};

pub static OSS: Class<Vec<OssOwner>> = Class {
    path: "ost/OSS/ost",
    instances: of_oss,
    params: &[Param {
        name: "stats",
        doc: "Requests that the OSTs of a process have begun, by kind; what only keeps a session is not counted.",
        read: |owners: &Vec<OssOwner>| {
            Some(service_stats(
                owners.iter().map(|owner| owner.with(|oss| oss.core().request_counts().clone())),
            ))
        },
        write: Some(Write::Clear(|owners| {
            owners.iter().for_each(|owner| owner.with(|oss| oss.clear_request_counts(net::clock::now())));
        })),
    }],
};

/// The sums, since the first of them began to count.
fn service_stats(of_targets: impl Iterator<Item = RequestCounts>) -> String {
    let (mut since, mut sums) = (None::<WallTime>, BTreeMap::<&str, u64>::new());
    for counts in of_targets {
        since = Some(since.map_or(counts.since, |first| first.min(counts.since)));
        for (kind, count) in counts.by_kind {
            *sums.entry(kind).or_default() += count;
        }
    }
    let rows: Vec<_> =
        sums.into_iter().map(|(kind, count)| (kind, "reqs", Stat { count, ..Stat::default() })).collect();
    stats(since.unwrap_or_default(), &rows)
}
