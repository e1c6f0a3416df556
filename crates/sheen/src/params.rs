//! Parameters and counters, under Lustre's names and in its formats. Each is declared once, in `TABLE`; `get_param`,
//! `set_param` and `list_param` derive from it.

mod format;
mod glob;

use crate::mount::Mount;
use crate::node::{Node, lock};
use crate::targets::{MdsOwner, OssOwner, Served, Target};
use anyhow::{Context, Result, bail};
use base::{ClientId, TargetKind};
use format::{Stat, recovery_status, rpc_stats, stats};
use store::ObjectStore;

/// Names with their values.
type Values = Vec<(String, String)>;

/// Node, glob, value -> what was set.
type Write = fn(&Node, &str, &str) -> Result<Values>;

/// One parameter of every instance that it has in this process.
struct Declared {
    /// With `*` where instances differ.
    path: &'static str,
    /// What it is, with its unit; for `docs/operating` and the man page.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test that demands one for each"))]
    doc: &'static str,
    read: fn(&Node) -> Values,
    /// Sets it at once, in every instance whose name matches the glob; `None` for what only is read.
    write: Option<Write>,
}

const fn read_only(path: &'static str, doc: &'static str, read: fn(&Node) -> Values) -> Declared {
    Declared { path, doc, read, write: None }
}

static TABLE: &[Declared] = &[
    read_only("version", "Version of this program.", |_| {
        vec![("version".into(), format!("sheen: {}", env!("CARGO_PKG_VERSION")))]
    }),
    Declared {
        path: "debug",
        doc: "What is logged: a level (error, warn, info, debug, trace), or levels of parts (`info,mds=debug`).",
        read: |_| vec![("debug".into(), crate::logging::filter())],
        write: Some(|_, _, value| {
            crate::logging::set_filter(value)?;
            Ok(vec![("debug".into(), value.to_owned())])
        }),
    },
    read_only("health_check", "`healthy`, or which targets are not.", |node| {
        let sick = node.targets.iter().filter(|target| target.state() == "failed");
        let sick: Vec<String> =
            sick.map(|target| format!("device {} reported unhealthy", name(target))).collect();
        let value = if sick.is_empty() { "healthy".to_owned() } else { sick.join("\n") + "\nNOT HEALTHY" };
        vec![("health_check".into(), value)]
    }),
    read_only("llite.*.stats", "Calls of a mount: counts, and microseconds or bytes.", |node| {
        mounts(node, "llite", "stats", |_, counts| {
            let mut rows = Vec::new();
            for (row, counter) in [("read_bytes", counts.read_bytes), ("write_bytes", counts.write_bytes)] {
                rows.push((row, "bytes", Stat::from(counter)));
            }
            rows.extend(counts.calls.iter().map(|(row, counter)| (*row, "usecs", Stat::from(*counter))));
            stats(&rows)
        })
    }),
    read_only("llite.*.mount_point", "Where the mount is.", |node| {
        mounts(node, "llite", "mount_point", |mount, _| mount.path.display().to_string())
    }),
    read_only("llite.*.open_count", "Files that are open through the mount.", |node| {
        mounts(node, "llite", "open_count", |_, counts| counts.open_count.to_string())
    }),
    read_only("llite.*.inode_count", "Inodes that the kernel knows from the mount.", |node| {
        mounts(node, "llite", "inode_count", |_, counts| counts.node_count.to_string())
    }),
    read_only(
        "osc.*.rpc_stats",
        "Data requests of a mount to one OST: sizes and how many at a time.",
        |node| connections(node, TargetKind::Ost, "osc", "rpc_stats", rpc_stats),
    ),
    read_only("osc.*.stats", "Requests of a mount to one OST, microseconds.", |node| {
        connections(node, TargetKind::Ost, "osc", "stats", request_stats)
    }),
    read_only("osc.*.state", "Session of a mount with one OST.", |node| {
        connections(node, TargetKind::Ost, "osc", "state", connection_state)
    }),
    read_only("mdc.*.stats", "Requests of a mount to one MDT, microseconds.", |node| {
        connections(node, TargetKind::Mdt, "mdc", "stats", request_stats)
    }),
    read_only("mdc.*.state", "Session of a mount with one MDT.", |node| {
        connections(node, TargetKind::Mdt, "mdc", "state", connection_state)
    }),
    read_only("ldlm.namespaces.*.lock_count", "Locks that a mount has from one target.", |node| {
        let mut values = Values::new();
        for (kind, word) in [(TargetKind::Mdt, "mdc"), (TargetKind::Ost, "osc")] {
            values
                .extend(connections(node, kind, word, "lock_count", |counts| counts.lock_count.to_string()));
        }
        values.iter_mut().for_each(|(name, _)| {
            let instance = name.split_once('.').map_or("", |(_, rest)| rest);
            *name = format!("ldlm.namespaces.{instance}");
        });
        values
    }),
    Declared {
        path: "mdt.*.md_stats",
        doc: "Metadata requests executed, microseconds from arrival to answer; any value clears them.",
        read: |node| mdts(node, "md_stats", |owner| owner.with(|mds| md_stats(mds.stats()))),
        write: Some(|node, pattern, value| {
            write_mdts(node, pattern, "md_stats", value, |owner, _| {
                owner.with(|mds| mds.clear_stats());
                Ok(())
            })
        }),
    },
    read_only("mdt.*.recovery_status", "Recovery after the last start of an MDT.", |node| {
        mdts(node, "recovery_status", |owner| owner.with(|mds| recovery_status(mds.core())))
    }),
    read_only("mdt.*.num_exports", "Clients with a session on an MDT.", |node| {
        mdts(node, "num_exports", |owner| owner.with(|mds| mds.core().clients().count().to_string()))
    }),
    read_only("mdt.*.uuid", "Name of an MDT.", |node| {
        each(node, "mdt", "uuid", |target| {
            matches!(target.served, Served::Mds(_)).then(|| format!("{}_UUID", name(target)))
        })
    }),
    Declared {
        path: "mdt.*.evict_client",
        doc: "Written with a client's id, ends its session on an MDT against its will.",
        read: |node| mdts(node, "evict_client", |_| String::new()),
        write: Some(|node, pattern, value| {
            write_mdts(node, pattern, "evict_client", value, |owner, value| {
                owner.submit(mds::Input::Evict(parse_client(value)?));
                Ok(())
            })
        }),
    },
    read_only("ldlm.namespaces.mdt-*.lock_count", "Locks that an MDT has granted.", |node| {
        let values = mdts(node, "lock_count", |owner| owner.with(|mds| mds.lock_count().to_string()));
        rename(values, "mdt.", "ldlm.namespaces.mdt-")
    }),
    read_only("obdfilter.*.stats", "Data requests executed: counts, and bytes.", |node| {
        osts(node, "stats", |owner| owner.with(|oss| ost_stats(oss.stats())))
    }),
    read_only("obdfilter.*.brw_stats", "Sizes of the data requests that an OST executed.", |node| {
        osts(node, "brw_stats", |owner| {
            owner.with(|oss| {
                let (read, write) = (&oss.stats().read, &oss.stats().write);
                format::brw_stats(
                    (&read.pages.buckets, &write.pages.buckets),
                    (&read.io_bytes.buckets, &write.io_bytes.buckets),
                )
            })
        })
    }),
    read_only("obdfilter.*.recovery_status", "Recovery after the last start of an OST.", |node| {
        osts(node, "recovery_status", |owner| owner.with(|oss| recovery_status(oss.core())))
    }),
    read_only("obdfilter.*.num_exports", "Clients with a session on an OST.", |node| {
        osts(node, "num_exports", |owner| owner.with(|oss| oss.core().clients().count().to_string()))
    }),
    read_only("obdfilter.*.kbytestotal", "Space of the local file system, KiB.", |node| {
        osts(node, "kbytestotal", |owner| kib(owner, |space| space.total_bytes))
    }),
    read_only("obdfilter.*.kbytesfree", "Free space of the local file system, KiB.", |node| {
        osts(node, "kbytesfree", |owner| kib(owner, |space| space.free_bytes))
    }),
    read_only(
        "obdfilter.*.kbytesavail",
        "Space that files may still take, after the reserve, KiB.",
        |node| osts(node, "kbytesavail", |owner| kib(owner, |space| space.avail_bytes)),
    ),
    read_only("mgs.MGS.live.*", "Configuration of each file system.", |node| {
        let mut values = Values::new();
        for target in &node.targets {
            let Served::Mgs(owner) = &target.served else { continue };
            owner.with(|mgs| {
                for (fsname, config) in mgs.configs() {
                    values.push((format!("mgs.MGS.live.{fsname}"), format::live(config)));
                }
            });
        }
        values
    }),
];

/// Parameters that match the glob, with their values.
pub fn get(node: &Node, pattern: &str) -> Values {
    let mut values: Values = TABLE.iter().flat_map(|declared| (declared.read)(node)).collect();
    values.retain(|(name, _)| glob::matches(pattern, name));
    values
}

/// Parameters that match the glob; `=` beside those that can be set.
pub fn list(node: &Node, pattern: &str) -> Values {
    let mut values = Values::new();
    for declared in TABLE {
        let mark = if declared.write.is_some() { "=" } else { "" };
        values.extend((declared.read)(node).into_iter().map(|(name, _)| (name, mark.to_owned())));
    }
    values.retain(|(name, _)| glob::matches(pattern, name));
    values
}

/// Sets what matches the glob.
///
/// # Errors
/// It can only be read, or the value is not possible.
pub fn set(node: &Node, pattern: &str, value: &str) -> Result<Values> {
    let mut done = Values::new();
    for declared in TABLE {
        let is_meant = (declared.read)(node).iter().any(|(name, _)| glob::matches(pattern, name));
        match declared.write {
            _ if !is_meant => {}
            Some(write) => done.extend(write(node, pattern, value)?),
            None => bail!("'{}' can only be read", declared.path),
        }
    }
    Ok(done)
}

/// Applies the permanent parameters of a configuration that this process knows.
pub fn apply(node: &Node, params: &[(String, String)]) {
    for (path, value) in params {
        if let Err(error) = set(node, path, value) {
            tracing::warn!(path, value, "a permanent parameter was not applied: {error:#}");
        }
    }
}

/// `fsname-MDT0000`; the management server has no file system.
fn name(target: &Target) -> String {
    if target.id.kind == TargetKind::Mgt { "MGS".into() } else { format!("{}-{}", target.fsname, target.id) }
}

fn each(node: &Node, word: &str, what: &str, read: impl Fn(&Target) -> Option<String>) -> Values {
    let values = node.targets.iter().filter_map(|target| Some((name(target), read(target)?)));
    values.map(|(instance, value)| (format!("{word}.{instance}.{what}"), value)).collect()
}

fn mdts(node: &Node, what: &str, read: impl Fn(&MdsOwner) -> String) -> Values {
    each(node, "mdt", what, |target| match &target.served {
        Served::Mds(owner) => Some(read(owner)),
        _ => None,
    })
}

fn write_mdts(
    node: &Node,
    pattern: &str,
    what: &str,
    value: &str,
    write: impl Fn(&MdsOwner, &str) -> Result<()>,
) -> Result<Values> {
    let mut done = Values::new();
    for target in &node.targets {
        let path = format!("mdt.{}.{what}", name(target));
        if let Served::Mds(owner) = &target.served
            && glob::matches(pattern, &path)
        {
            write(owner, value)?;
            done.push((path, value.to_owned()));
        }
    }
    Ok(done)
}

fn osts(node: &Node, what: &str, read: impl Fn(&OssOwner) -> String) -> Values {
    each(node, "obdfilter", what, |target| match &target.served {
        Served::Oss(owner) => Some(read(owner)),
        _ => None,
    })
}

/// `fsname-` and a number of the mount, as Lustre names its instances.
fn instance(mount: &Mount) -> String {
    format!("{}-{:016x}", mount.fsname, mount.number())
}

fn mounts(node: &Node, word: &str, what: &str, read: impl Fn(&Mount, &client::Stats) -> String) -> Values {
    let mounts = lock(&node.mounts).clone();
    let value = |mount: &Mount| (format!("{word}.{}.{what}", instance(mount)), read(mount, &mount.stats()));
    mounts.iter().map(|mount| value(mount)).collect()
}

/// One value for each target that a mount talks to.
fn connections(
    node: &Node,
    kind: TargetKind,
    word: &str,
    what: &str,
    read: impl Fn(&client::stats::TargetStats) -> String,
) -> Values {
    let mut values = Values::new();
    for mount in lock(&node.mounts).clone() {
        for (target, counts) in mount.stats().targets {
            if target.kind == kind {
                let number = mount.number();
                let path = format!("{word}.{}-{target}-{word}-{number:016x}.{what}", mount.fsname);
                values.push((path, read(&counts)));
            }
        }
    }
    values
}

fn rename(values: Values, from: &str, to: &str) -> Values {
    values.into_iter().map(|(name, value)| (name.replacen(from, to, 1), value)).collect()
}

fn request_stats(counts: &client::stats::TargetStats) -> String {
    let rows: Vec<_> =
        counts.requests.iter().map(|(row, counter)| (*row, "usecs", Stat::from(*counter))).collect();
    stats(&rows)
}

fn connection_state(counts: &client::stats::TargetStats) -> String {
    format!("current_state: {}", if counts.is_connected { "FULL" } else { "DISCONN" })
}

fn md_stats(counts: &mds::Stats) -> String {
    let rows: Vec<_> = counts
        .operations
        .iter()
        .map(|(row, stat)| {
            let stat = Stat {
                count: stat.count,
                min: stat.min_us,
                max: stat.max_us,
                sum: stat.sum_us,
                sum_of_squares: stat.sum_of_squares_us,
            };
            (*row, "usecs", stat)
        })
        .collect();
    stats(&rows)
}

fn ost_stats(counts: &oss::OssStats) -> String {
    let bytes = |samples: &oss::Samples| Stat {
        count: samples.count,
        min: samples.min,
        max: samples.max,
        sum: samples.sum,
        sum_of_squares: samples.sum_of_squares,
    };
    let mut rows = vec![
        ("read_bytes", "bytes", bytes(&counts.read.bytes)),
        ("write_bytes", "bytes", bytes(&counts.write.bytes)),
    ];
    rows.extend(counts.operations().map(|(row, count)| (row, "reqs", Stat { count, ..Stat::default() })));
    stats(&rows)
}

fn kib(owner: &OssOwner, read: impl Fn(&store::Space) -> u64) -> String {
    let objects = owner.with(|oss| oss.objects().clone());
    (read(&objects.space()) / 1024).to_string()
}

/// A client's id as logs show it.
fn parse_client(text: &str) -> Result<ClientId> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let id = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    id.map(ClientId).with_context(|| format!("'{text}' is no client id; the log of the target names them"))
}

#[cfg(test)]
mod tests;
