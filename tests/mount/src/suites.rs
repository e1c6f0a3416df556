//! The table of suites.

use anyhow::{Result, bail};

use crate::case::{Context, Suite};
use crate::cluster::{Cluster, Shape};

pub mod badinput;
pub mod bigdir;
pub mod coherence;
pub mod dne;
pub mod enospc;
pub mod failover;
pub mod fsck;
pub mod fsx;
pub mod grow;
pub mod images;
pub mod kill9;
pub mod memory;
pub mod mounting;
pub mod operate;
pub mod params;
pub mod pjdfstest;
pub mod posix;
pub mod powercut;
pub mod realinput;
pub mod seen;
pub mod smoke;
pub mod two_mounts;

/// Every suite, in the order in which they run.
pub const ALL: &[&Suite] = &[
    &smoke::SUITE,
    &badinput::SUITE,
    &params::SUITE,
    &operate::SUITE,
    &grow::SUITE,
    &seen::SUITE,
    &mounting::SUITE,
    &fsck::SUITE,
    &images::SUITE,
    &posix::SUITE,
    &bigdir::SUITE,
    &memory::SUITE,
    &pjdfstest::SUITE,
    &fsx::SUITE,
    &two_mounts::SUITE,
    &coherence::SUITE,
    &failover::SUITE,
    &failover::coordinator::SUITE,
    &kill9::SUITE,
    &dne::SUITE,
    &powercut::SUITE,
    &enospc::SUITE,
    &realinput::SUITE,
];

/// The named suites, or all.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Suite>> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    names.iter().map(|name| find(name)).collect()
}

/// The suite of this name.
pub fn find(name: &str) -> Result<&'static Suite> {
    match ALL.iter().find(|suite| suite.name == name) {
        Some(suite) => Ok(suite),
        None => {
            let known: Vec<&str> = ALL.iter().map(|suite| suite.name).collect();
            bail!("there is no suite {name:?}; there are {}", known.join(" "))
        }
    }
}

/// A cluster of many processes, with two MDTs and two OSTs, that runs.
fn split_cluster(context: &Context) -> Result<Cluster> {
    context.skip_if_local()?;
    let shape = Shape { mdt_count: 2, ost_count: 2, is_split: true };
    let cluster = Cluster::new(&context.options, &context.work, shape)?;
    cluster.up()?;
    Ok(cluster)
}
