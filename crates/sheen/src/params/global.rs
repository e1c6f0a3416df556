//! What a process has once, and what its mounts have in common.

use super::{Class, Param, Write, mounts, read_only};
use crate::mount::Mount;
use crate::node::Node;
use anyhow::{Result, bail};
use base::Duration;
use client::Setting;
use rpc::TimeoutBounds;
use std::sync::Arc;

/// Of `at_min`, `at_max` and `at_history`: an hour.
const TIMEOUT_SECONDS_MAX: u64 = 3600;

/// Gathered when it is asked for.
pub struct Process {
    sick_targets: Vec<String>,
}

pub static CLASS: Class<Process> = Class {
    path: "",
    instances: |node| vec![(String::new(), Process { sick_targets: sick_targets(node) })],
    params: &[
        read_only("version", "Version of this program.", |_| {
            Some(format!("sheen: {}", env!("CARGO_PKG_VERSION")))
        }),
        read_only(
            "health_check",
            "`healthy`, or which targets of a process are not.",
            |process: &Process| {
                if process.sick_targets.is_empty() {
                    return Some("healthy".to_owned());
                }
                let lines =
                    process.sick_targets.iter().map(|name| format!("device {name} reported unhealthy\n"));
                Some(lines.collect::<String>() + "NOT HEALTHY")
            },
        ),
        Param {
            name: "debug",
            doc: "What is logged: a level (error, warn, info, debug, trace), or levels of parts.",
            read: |_| Some(crate::logging::filter()),
            write: Some(Write::Word {
                values: "a level, or levels of parts: info,mds=debug",
                check: crate::logging::check_filter,
                apply: |_, value| crate::logging::set_filter(value),
                is_lasting: true,
            }),
        },
    ],
};

/// What the mounts of a process expect of targets.
pub struct Timeouts {
    mounts: Vec<Arc<Mount>>,
}

impl Timeouts {
    /// All have the same.
    fn seconds(&self, of: fn(&TimeoutBounds) -> Duration) -> Option<String> {
        Some(of(&self.bounds()).as_secs().to_string())
    }

    fn bounds(&self) -> TimeoutBounds {
        self.mounts.first().map(|mount| mount.with_client(|client| client.timeouts())).unwrap_or_default()
    }

    fn change(&self, change: impl Fn(&mut TimeoutBounds)) {
        for mount in &self.mounts {
            let mut bounds = mount.with_client(|client| client.timeouts());
            change(&mut bounds);
            mount.set(Setting::Timeouts(bounds));
        }
    }
}

pub static TIMEOUTS: Class<Timeouts> = Class {
    path: "",
    instances: |node| {
        let mounts = mounts::all(node);
        if mounts.is_empty() { Vec::new() } else { vec![(String::new(), Timeouts { mounts })] }
    },
    params: &[
        Param {
            name: "at_min",
            doc: "The least that an answer of a target is expected to take, seconds, not above `at_max`; a request is late after five quarters of what is expected, and 2 s.",
            read: |timeouts| timeouts.seconds(|bounds| bounds.min),
            write: Some(Write::Beside {
                range: 0..=TIMEOUT_SECONDS_MAX,
                check: |timeouts: &Timeouts, seconds| check_bounds(seconds, timeouts.bounds().max.as_secs()),
                apply: |timeouts, seconds| {
                    timeouts.change(|bounds| bounds.min = Duration::from_secs(seconds))
                },
            }),
        },
        Param {
            name: "at_max",
            doc: "The most that it is expected to take, seconds, not below `at_min`; 0: nothing is estimated. A late request is sent again, after 16 s at the latest.",
            read: |timeouts| timeouts.seconds(|bounds| bounds.max),
            write: Some(Write::Beside {
                range: 0..=TIMEOUT_SECONDS_MAX,
                check: |timeouts: &Timeouts, seconds| check_bounds(timeouts.bounds().min.as_secs(), seconds),
                apply: |timeouts, seconds| {
                    timeouts.change(|bounds| bounds.max = Duration::from_secs(seconds))
                },
            }),
        },
        Param {
            name: "at_history",
            doc: "For how long a slow answer is expected again, seconds.",
            read: |timeouts| timeouts.seconds(|bounds| bounds.history),
            write: Some(Write::Number(4..=TIMEOUT_SECONDS_MAX, |timeouts, seconds| {
                timeouts.change(|bounds| bounds.history = Duration::from_secs(seconds));
            })),
        },
    ],
};

/// Seconds. Without an upper bound nothing is estimated, and the lower one means nothing.
///
/// # Errors
/// The least is above the most.
pub fn check_bounds(min: u64, max: u64) -> Result<()> {
    if max != 0 && min > max {
        bail!("at_min would be {min} and at_max {max}, which is less; set both in one command");
    }
    Ok(())
}

fn sick_targets(node: &Node) -> Vec<String> {
    let sick = node.targets.iter().filter(|target| target.state() == "failed");
    let refused = node.targets.refused().iter().map(|refused| format!("{}-{}", refused.fsname, refused.name));
    sick.map(super::targets::name).chain(refused).collect()
}
