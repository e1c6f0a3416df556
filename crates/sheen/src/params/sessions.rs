//! `osc.*`, `mdc.*`, `ldlm.namespaces.*`: what a mount has with each of its targets.

use super::format::{self, Stat, stats};
use super::{Class, Param, Write, mounts, read_only};
use crate::mount::Mount;
use crate::node::Node;
use anyhow::{Result, bail};
use base::limits::{IDLE_LOCKS_MAX, PLAIN_IN_FLIGHT_MAX, SLOT_COUNT};
use base::{Duration, TargetId, TargetKind};
use client::{IdleLockBounds, Setting, TargetSetting, TargetStatus};
use std::sync::Arc;

/// Lustre's highest.
const DIRTY_MB_MAX: u64 = 2000;

/// One mount and one of its targets.
pub struct Session {
    mount: Arc<Mount>,
    target: TargetId,
}

impl Session {
    fn status(&self) -> Option<TargetStatus> {
        self.mount.with_client(|client| client.target_status(self.target))
    }

    fn set(&self, setting: TargetSetting) {
        self.mount.set(Setting::Target(self.target, setting));
    }

    /// `fsname-OST0000-osc-` and the number of the mount, as Lustre names its devices.
    fn name(&self) -> String {
        format!("{}-{}-{}-{:016x}", self.mount.fsname, self.target, self.word(), self.mount.number())
    }

    /// Of Lustre's device.
    fn word(&self) -> &'static str {
        if self.target.kind == TargetKind::Mdt { "mdc" } else { "osc" }
    }
}

fn all(node: &Node, is_wanted: impl Fn(TargetKind) -> bool, above: &str) -> Vec<(String, Session)> {
    let mut found = Vec::new();
    for mount in mounts::all(node) {
        let mut targets = mount.with_client(|client| client.targets());
        targets.retain(|target| is_wanted(target.kind));
        for target in targets {
            let session = Session { mount: Arc::clone(&mount), target };
            found.push((format!("{above}/{}", session.name()), session));
        }
    }
    found
}

const STATS: Param<Session> = Param {
    name: "stats",
    doc: "Requests of a mount to one target, microseconds from sending to the answer.",
    read: |session| Some(request_stats(&session.status()?)),
    write: Some(Write::Clear(|session| session.set(TargetSetting::ClearStats))),
};
const STATE: Param<Session> =
    read_only("state", "State of the session with one target, and those before it.", |session| {
        Some(format::state(&session.status()?.session))
    });
const IMPORT: Param<Session> =
    read_only("import", "The session with one target: where it is, what is on the way.", |session| {
        let target = format!("{}-{}", session.mount.fsname, session.target);
        let name = format!("{target}-{}", session.word());
        let status = session.status()?;
        let (count, sum) = status
            .stats
            .requests
            .values()
            .fold((0, 0), |(count, sum), one| (count + one.count, sum + one.sum));
        let wait_us = sum.checked_div(count).unwrap_or(0);
        Some(format::import(&name, &target, &status.session, Some(wait_us)))
    });
const TIMEOUTS: Param<Session> = read_only(
    "timeouts",
    "How long one target takes to answer, seconds: what is expected, the longest, and the longest of each quarter of `at_history`.",
    |session| Some(format::timeouts(net::clock::now(), &session.status()?.timeouts)),
);
const ACTIVE: Param<Session> = Param {
    name: "active",
    doc: "Whether a mount uses the target (1), or answers EIO for what is there (0).",
    read: |session| Some(u8::from(session.status()?.is_active).to_string()),
    write: Some(Write::Switch(|session, is_on| session.set(TargetSetting::Active(is_on)))),
};
const RPCS_IN_FLIGHT: Param<Session> = Param {
    name: "max_rpcs_in_flight",
    doc: "Requests on their way at a time that change nothing: reads, lookups.",
    read: |session| Some(session.status()?.bounds.plain.to_string()),
    write: Some(Write::Number(1..=PLAIN_IN_FLIGHT_MAX as u64, |session, count| {
        session.set(TargetSetting::PlainInFlight(count as usize));
    })),
};
const MODIFYING_IN_FLIGHT: Param<Session> = Param {
    name: "max_mod_rpcs_in_flight",
    doc: "Requests on their way at a time that change something; each has a reply slot on the target.",
    read: |session| Some(session.status()?.bounds.modifying.to_string()),
    write: Some(Write::Number(1..=SLOT_COUNT as u64, |session, count| {
        session.set(TargetSetting::ModifyingInFlight(count as usize));
    })),
};

pub static OSC: Class<Session> = Class {
    path: "osc/*",
    instances: |node| all(node, |kind| kind == TargetKind::Ost, "osc"),
    params: &[
        STATS,
        STATE,
        IMPORT,
        TIMEOUTS,
        ACTIVE,
        RPCS_IN_FLIGHT,
        MODIFYING_IN_FLIGHT,
        Param {
            name: "rpc_stats",
            doc: "Data requests of a mount to one OST: sizes, how many at a time, where in their objects, and microseconds.",
            read: |session: &Session| {
                let status = session.status()?;
                Some(format::rpc_stats(&status.stats, status.dirty_bytes))
            },
            write: Some(Write::Clear(|session| session.set(TargetSetting::ClearRpcStats))),
        },
        Param {
            name: "max_dirty_mb",
            doc: "MiB that writers may leave with the mount before the OST has them; 0: none.",
            read: |session| Some((session.status()?.dirty_bytes_max >> 20).to_string()),
            write: Some(Write::Number(0..=DIRTY_MB_MAX, |session, mb| {
                session.set(TargetSetting::DirtyBytes(mb << 20));
            })),
        },
        Param {
            name: "checksums",
            doc: "Whether data travel with a CRC32C, both ways (0, 1); blocks on disk have theirs in any case.",
            read: |session| Some(u8::from(session.status()?.has_checked_data).to_string()),
            write: Some(Write::Number(0..=1, |session, is_on| {
                session.set(TargetSetting::CheckedData(is_on == 1));
            })),
        },
        read_only(
            "cur_dirty_bytes",
            "Bytes that the mount keeps for the OST or has on the way to it.",
            |session| Some(session.status()?.dirty_bytes.to_string()),
        ),
        read_only("cur_grant_bytes", "Bytes that the OST lets the mount keep.", |session| {
            Some(session.status()?.grant_bytes.to_string())
        }),
        read_only("ost_conn_uuid", "NIDs of the OST.", |session| {
            Some(format::nids(&session.status()?.session.nids))
        }),
    ],
};

pub static MDC: Class<Session> = Class {
    path: "mdc/*",
    instances: |node| all(node, |kind| kind == TargetKind::Mdt, "mdc"),
    params: &[
        STATS,
        STATE,
        IMPORT,
        TIMEOUTS,
        ACTIVE,
        RPCS_IN_FLIGHT,
        MODIFYING_IN_FLIGHT,
        Param {
            name: "rpc_stats",
            doc: "Requests of a mount to one MDT that change something: how many at a time.",
            read: |session: &Session| Some(format::modify_rpc_stats(&session.status()?)),
            write: Some(Write::Clear(|session| session.set(TargetSetting::ClearRpcStats))),
        },
        read_only("mds_conn_uuid", "NIDs of the MDT.", |session| {
            Some(format::nids(&session.status()?.session.nids))
        }),
    ],
};

pub static LOCKS: Class<Session> = Class {
    path: "ldlm/namespaces/*",
    instances: |node| all(node, |_| true, "ldlm/namespaces"),
    params: &[
        read_only("lock_count", "Locks that a mount has from one target.", |session: &Session| {
            Some(session.status()?.lock_count.to_string())
        }),
        read_only("lock_unused_count", "Those of them that nothing uses now.", |session| {
            Some(session.status()?.idle_lock_count.to_string())
        }),
        read_only("resource_count", "Names, inodes and objects that they are about.", |session| {
            Some(session.status()?.resource_count.to_string())
        }),
        Param {
            name: "lru_size",
            doc: "Unused locks that a mount keeps from one target; the oldest go back beyond it.",
            read: |session| Some(session.status()?.idle_locks.count.to_string()),
            write: Some(Write::Word {
                values: "`clear` (all go back once), 0 for the default, or a number up to 32768",
                check: |value| parse_lru_size(value).map(drop),
                apply: |session, value| {
                    session.set(parse_lru_size(value)?);
                    Ok(())
                },
                is_lasting: true,
            }),
        },
        Param {
            name: "lru_max_age",
            doc: "How long an unused lock is kept, milliseconds.",
            read: |session| Some(session.status()?.idle_locks.age.as_millis().to_string()),
            write: Some(Write::Number(100..=86_400_000, |session, age_ms| {
                session.set(TargetSetting::IdleLockAge(Duration::from_millis(age_ms)));
            })),
        },
    ],
};

fn parse_lru_size(value: &str) -> Result<TargetSetting> {
    match (value, value.parse()) {
        ("clear", _) => Ok(TargetSetting::DropIdleLocks),
        (_, Ok(0)) => Ok(TargetSetting::IdleLockCount(IdleLockBounds::default().count)),
        (_, Ok(count)) if count <= IDLE_LOCKS_MAX => Ok(TargetSetting::IdleLockCount(count)),
        _ => bail!(
            "'{value}' is not possible; it takes `clear`, 0 for the default, or a number up to {IDLE_LOCKS_MAX}"
        ),
    }
}

fn request_stats(status: &TargetStatus) -> String {
    let requests = status.stats.requests.iter();
    let rows: Vec<_> = requests.map(|(row, counter)| (*row, "usecs", Stat::from(*counter))).collect();
    stats(status.stats.since, &rows)
}
