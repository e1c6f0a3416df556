//! `mdt.*`, `lod.*`, `obdfilter.*`, `osd-*`, `ldlm.namespaces.*`: the targets of this process.

use super::format::{self, Stat, recovery_status, stats};
use super::{Class, Param, Write, read_only};
use crate::control::Absent;
use crate::mount_table;
use crate::nid;
use crate::node::Node;
use crate::targets::{MdsOwner, OssOwner, Served, Target};
use anyhow::{Context, Result, bail};
use base::limits::RECOVERY_WINDOW;
use base::{ClientId, Duration, Endpoint, Layout, TargetId, TargetKind};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use store::{MetaStore, ObjectStore, Space};
use store_disk::{CacheUse, MetaDisk, ReadUse, SyncUse};
use target::Core;

/// `fsname-MDT0000`; the management server has no file system.
pub fn name(target: &Target) -> String {
    if target.id.kind == TargetKind::Mgt { "MGS".into() } else { format!("{}-{}", target.fsname, target.id) }
}

/// One MDT.
pub struct Mdt {
    name: String,
    owner: MdsOwner,
    is_no_create: bool,
}

/// One OST.
pub struct Ost {
    name: String,
    owner: OssOwner,
    is_no_create: bool,
}

/// What a target's data lie on.
pub struct Disk {
    path: PathBuf,
    space: Space,
    rows: Arc<MetaDisk>,
}

fn mdts(node: &Node) -> Vec<Mdt> {
    let no_create = node.config(|config| super::no_create(config, TargetKind::Mdt)).unwrap_or_default();
    let mds = |target: &Target| match &target.served {
        Served::Mds(owner) => {
            let is_no_create = no_create.contains(&target.id.index);
            Some(Mdt { name: name(target), owner: owner.clone(), is_no_create })
        }
        _ => None,
    };
    node.targets.iter().filter_map(mds).collect()
}

fn osts(node: &Node) -> Vec<Ost> {
    let no_create = node.config(|config| super::no_create(config, TargetKind::Ost)).unwrap_or_default();
    let oss = |target: &Target| match &target.served {
        Served::Oss(owner) => {
            let is_no_create = no_create.contains(&target.id.index);
            Some(Ost { name: name(target), owner: owner.clone(), is_no_create })
        }
        _ => None,
    };
    node.targets.iter().filter_map(oss).collect()
}

/// All MDTs of this process.
pub fn mds_owners(node: &Node) -> Vec<MdsOwner> {
    mdts(node).into_iter().map(|mdt| mdt.owner).collect()
}

/// All OSTs of this process.
pub fn oss_owners(node: &Node) -> Vec<OssOwner> {
    osts(node).into_iter().map(|ost| ost.owner).collect()
}

const RECOVERY_SECONDS_MAX: u64 = 3600;

pub static MDT: Class<Mdt> = Class {
    path: "mdt/*",
    instances: |node| mdts(node).into_iter().map(|mdt| (format!("mdt/{}", mdt.name), mdt)).collect(),
    params: &[
        Param {
            name: "md_stats",
            doc: "Metadata requests executed, microseconds from arrival to answer.",
            read: |mdt: &Mdt| Some(mdt.owner.with(|mds| md_stats(mds.stats()))),
            write: Some(Write::Clear(|mdt| mdt.owner.with(|mds| mds.clear_stats(net::clock::now())))),
        },
        read_only("recovery_status", "Recovery after the last start of an MDT.", |mdt| {
            Some(mdt.owner.with(|mds| recovery_status(mds.core())))
        }),
        Param {
            name: "recovery_time_soft",
            doc: "How long a restarted MDT waits for the clients that it had, seconds; those that came back get the same time once more.",
            read: |mdt| Some(mdt.owner.with(|mds| recovery_seconds(mds.core()))),
            write: Some(Write::Number(1..=RECOVERY_SECONDS_MAX, |mdt, seconds| {
                mdt.owner.with(|mds| mds.set_recovery_window(Duration::from_secs(seconds)));
                mdt.owner.submit(mds::Input::Tick);
            })),
        },
        Param {
            name: "recovery_time_hard",
            doc: "How long the recovery of an MDT takes at most, seconds, and more where it stands still itself: who is back and not done by then is given up too.",
            read: |mdt| Some(mdt.owner.with(|mds| mds.core().recovery_hard().as_secs().to_string())),
            write: Some(Write::Number(1..=RECOVERY_SECONDS_MAX, |mdt, seconds| {
                mdt.owner.with(|mds| mds.set_recovery_hard(Duration::from_secs(seconds)));
                mdt.owner.submit(mds::Input::Tick);
            })),
        },
        Param {
            name: "no_create",
            doc: "Whether no new directories are placed on an MDT (1); what it has stays in use.",
            read: |mdt| Some(u8::from(mdt.is_no_create).to_string()),
            write: Some(Write::Kept),
        },
        Param {
            name: "enable_dne_remote_sync",
            doc: "Whether an operation over several MDTs is prepared on all of them, and durable, before it is answered (1), as Lustre has it. \
                  With 0 it is as safe, and directories of other MDTs need no wait.",
            read: |mdt| Some(u8::from(mdt.owner.with(|mds| mds.is_remote_sync())).to_string()),
            write: Some(Write::Switch(|mdt, is_on| mdt.owner.with(|mds| mds.set_remote_sync(is_on)))),
        },
        read_only("num_exports", "Clients with a session on an MDT.", |mdt| {
            Some(mdt.owner.with(|mds| mds.core().clients().count().to_string()))
        }),
        read_only(
            "eviction_count",
            "Clients that an MDT has dropped since its start or since `md_stats` was cleared.",
            |mdt| Some(mdt.owner.with(|mds| mds.stats().evictions.to_string())),
        ),
        read_only("open_count", "Open files of all clients of an MDT.", |mdt| {
            Some(mdt.owner.with(|mds| mds.open_count().to_string()))
        }),
        read_only("uuid", "Name of an MDT.", |mdt| Some(format!("{}_UUID", mdt.name))),
        read_only("instance", "How often an MDT was started.", |mdt| {
            Some(mdt.owner.with(|mds| mds.core().epoch().0.to_string()))
        }),
        evict_client(
            "Written with a client, ends its session on an MDT against its will; what it had not made durable is lost.",
            |mdt, value| {
                for client in meant(mdt.owner.with(|mds| clients(mds.core())), value)? {
                    mdt.owner.submit(mds::Input::Evict(client));
                }
                Ok(())
            },
        ),
    ],
};

pub static LOD: Class<Mdt> = Class {
    path: "lod/*",
    instances: |node| mdts(node).into_iter().map(|mdt| (format!("lod/{}-mdtlov", mdt.name), mdt)).collect(),
    params: &[
        Param {
            name: "stripecount",
            doc: "Stripes of a new file whose directory says nothing; -1 for all OSTs.",
            read: |mdt: &Mdt| {
                let count = mdt.owner.with(|mds| mds.placement().stripe_count());
                Some(if count == u16::MAX { "-1".to_owned() } else { count.to_string() })
            },
            write: Some(Write::Word {
                values: "-1 for all OSTs, or a number from 1 to 2000",
                check: |value| parse_stripe_count(value).map(drop),
                apply: |mdt, value| {
                    let count = parse_stripe_count(value)?;
                    mdt.owner.with(|mds| mds.placement_mut().set_stripe_count(count));
                    Ok(())
                },
                is_lasting: true,
            }),
        },
        Param {
            name: "stripesize",
            doc: "Bytes of one stripe of a new file whose directory says nothing.",
            read: |mdt| Some(mdt.owner.with(|mds| mds.placement().stripe_size_bytes()).to_string()),
            write: Some(Write::Word {
                values: "a multiple of 65536 up to 2147418112",
                check: |value| parse_stripe_size(value).map(drop),
                apply: |mdt, value| {
                    let bytes = parse_stripe_size(value)?;
                    mdt.owner.with(|mds| mds.placement_mut().set_stripe_size(bytes));
                    Ok(())
                },
                is_lasting: true,
            }),
        },
        Param {
            name: "qos_threshold_rr",
            doc: "By how much, in percent, the room of OSTs may differ so that new objects take them in turn; beyond it each gets objects in \
                  proportion to its room (100: always in turn). One that is full gets none while others are not.",
            read: |mdt| Some(mdt.owner.with(|mds| mds.placement().spaces().threshold_percent()).to_string()),
            write: Some(Write::Number(0..=100, |mdt, percent| {
                mdt.owner.with(|mds| mds.placement_mut().set_threshold_percent(percent as u8));
            })),
        },
        Param {
            name: "qos_maxage",
            doc: "How old what is known of the room of OSTs may be when a new file is placed, seconds. Then they are asked, and no file waits for it.",
            read: |mdt| Some(mdt.owner.with(|mds| mds.placement().spaces().age_max()).as_secs().to_string()),
            write: Some(Write::Number(1..=86_400, |mdt, seconds| {
                mdt.owner.with(|mds| mds.placement_mut().set_age_max(Duration::from_secs(seconds)));
            })),
        },
        Param {
            name: "mdt_qos_threshold_rr",
            doc: "By how much, in percent, the room of MDTs may differ so that new directories that are placed by space take them in turn; \
                  beyond it each gets directories in proportion to its room (100: always in turn).",
            read: |mdt| Some(mdt.owner.with(|mds| mds.by_space().spaces().threshold_percent()).to_string()),
            write: Some(Write::Number(0..=100, |mdt, percent| {
                mdt.owner.with(|mds| mds.by_space_mut().spaces_mut().set_threshold_percent(percent as u8));
            })),
        },
        Param {
            name: "mdt_qos_maxage",
            doc: "How old what is known of the room of other MDTs may be when a new directory is placed by space, seconds.",
            read: |mdt| Some(mdt.owner.with(|mds| mds.by_space().spaces().age_max()).as_secs().to_string()),
            write: Some(Write::Number(1..=86_400, |mdt, seconds| {
                mdt.owner
                    .with(|mds| mds.by_space_mut().spaces_mut().set_age_max(Duration::from_secs(seconds)));
            })),
        },
        read_only("numobd", "OSTs on which new files may be placed.", |mdt| {
            Some(mdt.owner.with(|mds| mds.placement().ost_count()).to_string())
        }),
    ],
};

pub static MDT_LOCKS: Class<Mdt> = Class {
    path: "ldlm/namespaces/mdt-*",
    instances: |node| {
        let mdts = mdts(node).into_iter();
        mdts.map(|mdt| (format!("ldlm/namespaces/mdt-{}_UUID", mdt.name), mdt)).collect()
    },
    params: &[
        read_only("lock_count", "Locks that clients have or wait for on an MDT.", |mdt: &Mdt| {
            Some(mdt.owner.with(|mds| mds.locks().lock_count().to_string()))
        }),
        read_only("resource_count", "Names and inodes that they are about.", |mdt| {
            Some(mdt.owner.with(|mds| mds.locks().resource_count().to_string()))
        }),
        read_only(
            "lock_timeouts",
            "Clients that an MDT has dropped since its start because they did not give a lock back in time.",
            |mdt| Some(mdt.owner.with(|mds| mds.locks().timeout_count().to_string())),
        ),
    ],
};

pub static OST: Class<Ost> = Class {
    path: "obdfilter/*",
    instances: |node| osts(node).into_iter().map(|ost| (format!("obdfilter/{}", ost.name), ost)).collect(),
    params: &[
        Param {
            name: "stats",
            doc: "Data requests executed: counts, and bytes.",
            read: |ost: &Ost| Some(ost.owner.with(|oss| ost_stats(oss.stats()))),
            write: Some(Write::Clear(clear_ost)),
        },
        Param {
            name: "brw_stats",
            doc: "Data requests that an OST executed, and what their data cost the local file system: calls for each, at a time, milliseconds, bytes of a call.",
            read: |ost| Some(brw_stats(ost)),
            write: Some(Write::Clear(clear_ost)),
        },
        read_only("recovery_status", "Recovery after the last start of an OST.", |ost| {
            Some(ost.owner.with(|oss| recovery_status(oss.core())))
        }),
        Param {
            name: "recovery_time_soft",
            doc: "How long a restarted OST waits for the clients that it had, seconds; those that came back get the same time once more.",
            read: |ost| Some(ost.owner.with(|oss| recovery_seconds(oss.core()))),
            write: Some(Write::Number(1..=RECOVERY_SECONDS_MAX, |ost, seconds| {
                ost.owner.with(|oss| oss.set_recovery_window(Duration::from_secs(seconds)));
                ost.owner.submit(oss::Input::Tick);
            })),
        },
        Param {
            name: "recovery_time_hard",
            doc: "How long the recovery of an OST takes at most, seconds, and more where it stands still itself: who is back and not done by then is given up too.",
            read: |ost| Some(ost.owner.with(|oss| oss.core().recovery_hard().as_secs().to_string())),
            write: Some(Write::Number(1..=RECOVERY_SECONDS_MAX, |ost, seconds| {
                ost.owner.with(|oss| oss.set_recovery_hard(Duration::from_secs(seconds)));
                ost.owner.submit(oss::Input::Tick);
            })),
        },
        Param {
            name: "no_create",
            doc: "Whether MDTs place no new files on an OST (1); what it has stays in use.",
            read: |ost| Some(u8::from(ost.is_no_create).to_string()),
            write: Some(Write::Kept),
        },
        read_only("tot_granted", "Bytes that clients may keep before the OST has them.", |ost| {
            Some(ost.owner.with(|oss| oss.granted_bytes()).to_string())
        }),
        read_only("num_exports", "Clients with a session on an OST.", |ost| {
            Some(ost.owner.with(|oss| oss.core().clients().count().to_string()))
        }),
        read_only(
            "eviction_count",
            "Clients that an OST has dropped since its start or since `stats` was cleared.",
            |ost| Some(ost.owner.with(|oss| oss.stats().eviction_count.to_string())),
        ),
        read_only("uuid", "Name of an OST.", |ost| Some(format!("{}_UUID", ost.name))),
        read_only("instance", "How often an OST was started.", |ost| {
            Some(ost.owner.with(|oss| oss.core().epoch().0.to_string()))
        }),
        read_only("kbytestotal", "Space of the local file system, KiB.", |ost| {
            kib(ost, |space| space.total_bytes)
        }),
        read_only("kbytesfree", "Free space of the local file system, KiB.", |ost| {
            kib(ost, |space| space.free_bytes)
        }),
        read_only("kbytesavail", "Space that files may still take, after the reserve, KiB.", |ost| {
            kib(ost, |space| space.avail_bytes)
        }),
        read_only("filestotal", "Inodes of the local file system.", |ost| {
            Some(space_of(ost).total_inode_count.to_string())
        }),
        read_only("filesfree", "Free inodes of the local file system.", |ost| {
            Some(space_of(ost).free_inode_count.to_string())
        }),
        evict_client(
            "Written with a client, ends its session on an OST against its will; what it had not made durable is lost.",
            |ost, value| {
                for client in meant(ost.owner.with(|oss| clients(oss.core())), value)? {
                    ost.owner.submit(oss::Input::Evict(client));
                }
                Ok(())
            },
        ),
    ],
};

pub static OST_LOCKS: Class<Ost> = Class {
    path: "ldlm/namespaces/filter-*",
    instances: |node| {
        let osts = osts(node).into_iter();
        osts.map(|ost| (format!("ldlm/namespaces/filter-{}_UUID", ost.name), ost)).collect()
    },
    params: &[
        read_only("lock_count", "Locks that clients have or wait for on an OST.", |ost: &Ost| {
            Some(ost.owner.with(|oss| oss.locks().lock_count().to_string()))
        }),
        read_only("resource_count", "Objects that they are about.", |ost| {
            Some(ost.owner.with(|oss| oss.locks().resource_count().to_string()))
        }),
        read_only(
            "lock_timeouts",
            "Clients that an OST has dropped since its start because they did not give a lock back in time.",
            |ost| Some(ost.owner.with(|oss| oss.locks().timeout_count().to_string())),
        ),
    ],
};

pub static DISK: Class<Disk> = Class {
    path: "osd-local/*",
    instances: |node| {
        let disks = node.targets.iter().filter_map(|target| {
            let rows = match &target.served {
                // One whose rows are in etcd has none.
                Served::Mgs(owner) => owner.with(|mgs| mgs.core().store().disk().cloned())?,
                Served::Mds(owner) => owner.with(|mds| Arc::clone(mds.core().store())),
                Served::Oss(owner) => owner.with(|oss| Arc::clone(oss.core().store())),
            };
            let space = match &target.served {
                Served::Oss(owner) => owner.with(|oss| oss.objects().space()),
                Served::Mgs(_) | Served::Mds(_) => rows.space(),
            };
            Some((format!("osd-local/{}", name(target)), Disk { path: target.path.clone(), space, rows }))
        });
        disks.collect()
    },
    params: &[
        read_only("fstype", "Type of the local file system under a target.", |disk: &Disk| {
            mount_table::above(&disk.path).map(|mounted| mounted.kind)
        }),
        read_only("mntdev", "Device of the local file system under a target.", |disk| {
            mount_table::above(&disk.path).map(|mounted| mounted.source)
        }),
        read_only("kbytestotal", "Its space, KiB.", |disk| Some((disk.space.total_bytes / 1024).to_string())),
        read_only("kbytesfree", "Its free space, KiB.", |disk| {
            Some((disk.space.free_bytes / 1024).to_string())
        }),
        read_only(
            "kbytesavail",
            "Its space that the target may still take, after the reserve, KiB.",
            |disk| Some((disk.space.avail_bytes / 1024).to_string()),
        ),
        read_only("filestotal", "Its inodes.", |disk| Some(disk.space.total_inode_count.to_string())),
        read_only("filesfree", "Its free inodes.", |disk| Some(disk.space.free_inode_count.to_string())),
        Param {
            name: "metadata_cache_mb",
            doc: "Memory of a target for its rows (a third) and the pages that they lie on, MiB; file data cannot take it. Data on an MDT are rows: \
                  they have a quarter of that third at most, and pages as others have.",
            read: |disk| Some((disk.rows.cache_use().budget_bytes >> 20).to_string()),
            write: Some(Write::Number(1..=METADATA_CACHE_MIB_MAX, |disk, mib| {
                disk.rows.set_cache_bytes((mib << 20) as usize);
            })),
        },
        read_only(
            "metadata_cache_stats",
            "What is in that memory, how often a row was found there since the start, and what was read of the disk or the kernel's \
             page cache.",
            |disk| Some(cache_stats(&disk.rows.cache_use())),
        ),
        read_only(
            "sync_stats",
            "How often the device has synced the log of a target since its start, how often for somebody who waited, and up to which transaction \
             the target's rows are there (applied) and durable.",
            |disk| Some(sync_stats(&disk.rows)),
        ),
    ],
};

pub static OST_DISK: Class<Ost> = Class {
    path: "osd-local/*",
    instances: |node| osts(node).into_iter().map(|ost| (format!("osd-local/{}", ost.name), ost)).collect(),
    params: &[
        Param {
            name: "brw_stats",
            doc: "The same as `obdfilter.*.brw_stats`.",
            read: |ost| Some(brw_stats(ost)),
            write: Some(Write::Clear(clear_ost)),
        },
        Param {
            name: "read_cache_enable",
            doc: "Whether all that an OST reads of objects goes through the kernel's page cache (1), or (`adaptive`, the default) not what \
                  clients read of large objects ahead, or by the MiB, and is not cached, until something of the object is read again.",
            read: |ost| {
                let is_always = ost.owner.with(|oss| oss.objects().is_cache_always());
                Some(if is_always { "1" } else { ADAPTIVE }.to_owned())
            },
            write: Some(Write::Word {
                values: "1 or `adaptive`",
                check: |value| parse_cache_always(value).map(drop),
                apply: |ost, value| {
                    let is_always = parse_cache_always(value)?;
                    ost.owner.with(|oss| oss.objects().set_cache_always(is_always));
                    Ok(())
                },
                is_lasting: true,
            }),
        },
        read_only(
            "read_cache_stats",
            "Bytes that an OST has read of objects since its start: through the kernel's page cache, and past it.",
            |ost| Some(read_cache_stats(&ost.owner.with(|oss| oss.objects().read_use()))),
        ),
    ],
};

const ADAPTIVE: &str = "adaptive";

fn parse_cache_always(value: &str) -> Result<bool> {
    match value {
        "1" => Ok(true),
        ADAPTIVE => Ok(false),
        _ => bail!("1 or {ADAPTIVE}, not {value}"),
    }
}

fn read_cache_stats(reads: &ReadUse) -> String {
    let rows =
        [("through_cache_bytes", reads.through_cache_bytes), ("past_cache_bytes", reads.past_cache_bytes)];
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<25} {value}")).collect();
    lines.join("\n")
}

/// A server of a tebibyte may give it half of that.
const METADATA_CACHE_MIB_MAX: u64 = 512 << 10;

fn cache_stats(usage: &CacheUse) -> String {
    let rows = [
        ("rows", usage.row_count),
        ("row_bytes", usage.row_bytes),
        ("hits", usage.hit_count),
        ("misses", usage.miss_count),
        ("base_reads", usage.base_read_count),
        ("base_read_bytes", usage.base_read_bytes),
    ];
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<25} {value}")).collect();
    lines.join("\n")
}

fn sync_stats(rows: &MetaDisk) -> String {
    let SyncUse { sync_count, awaited_sync_count } = rows.sync_use();
    let rows = [
        ("syncs", sync_count),
        ("awaited_syncs", awaited_sync_count),
        ("applied", rows.applied().0),
        ("durable", rows.durable().0),
    ];
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<25} {value}")).collect();
    lines.join("\n")
}

/// The clients of one NID.
pub struct Export {
    fsname: String,
    clients: Vec<ClientId>,
}

impl Export {
    /// Other targets with the names that Lustre gives them, which end with `_UUID`: collectors tell them from mounts by that.
    fn name_of(&self, client: ClientId) -> String {
        match client.endpoint() {
            Endpoint::Target(target) => format!("{}-{target}_UUID", self.fsname),
            Endpoint::Client(client) => client.to_string(),
        }
    }
}

pub const EXPORT_UUID: Param<Export> =
    read_only("uuid", "Clients of one NID that have a session.", |export: &Export| {
        Some(export.clients.iter().map(|client| export.name_of(*client)).collect::<Vec<_>>().join("\n"))
    });

pub static MDT_EXPORTS: Class<Export> = Class {
    path: "mdt/*/exports/*",
    instances: |node| {
        let of = |mdt: Mdt| exports("mdt", &mdt.name, mdt.owner.with(|mds| clients(mds.core())));
        mdts(node).into_iter().flat_map(of).collect()
    },
    params: &[EXPORT_UUID],
};

pub static OST_EXPORTS: Class<Export> = Class {
    path: "obdfilter/*/exports/*",
    instances: |node| {
        let of = |ost: Ost| exports("obdfilter", &ost.name, ost.owner.with(|oss| clients(oss.core())));
        osts(node).into_iter().flat_map(of).collect()
    },
    params: &[EXPORT_UUID],
};

/// Instances of an export class, one for each NID.
pub fn exports(class: &str, target: &str, clients: Vec<(ClientId, String)>) -> Vec<(String, Export)> {
    let mut by_nid: BTreeMap<String, Vec<ClientId>> = BTreeMap::new();
    for (client, nid) in clients {
        by_nid.entry(nid::without_port(&nid)).or_default().push(client);
    }
    // A NID comes from the client; a `/` in it would look like a level.
    let name = |nid: &str| format!("{class}/{target}/exports/{}", nid.replace('/', "_"));
    let fsname = target.rsplit_once('-').map_or("", |(fsname, _)| fsname).to_owned();
    let export = |(nid, clients): (String, _)| (name(&nid), Export { fsname: fsname.clone(), clients });
    by_nid.into_iter().map(export).collect()
}

pub fn clients<M: MetaStore>(core: &Core<M>) -> Vec<(ClientId, String)> {
    core.clients().map(|(client, nid)| (client, nid.to_owned())).collect()
}

fn recovery_seconds<M: MetaStore>(core: &Core<M>) -> String {
    core.options().recovery_window.as_secs().to_string()
}

fn clear_ost(ost: &Ost) {
    ost.owner.with(|oss| {
        oss.clear_stats(net::clock::now());
        oss.objects().clear_disk_use();
    });
}

fn space_of(ost: &Ost) -> Space {
    ost.owner.with(|oss| oss.objects().space())
}

fn kib(ost: &Ost, read: impl Fn(&Space) -> u64) -> Option<String> {
    Some((read(&space_of(ost)) / 1024).to_string())
}

fn md_stats(counts: &mds::Stats) -> String {
    let row = |stat: &mds::OpStat| Stat {
        count: stat.count,
        min: stat.min_us,
        max: stat.max_us,
        sum: stat.sum_us,
        sum_of_squares: stat.sum_of_squares_us,
    };
    let mut rows: Vec<_> = counts.operations.iter().map(|(name, stat)| (*name, "usecs", row(stat))).collect();
    let counted = [
        ("cross_mdt", counts.cross_mdt),
        ("waited_for_locks", counts.waited_for_locks),
        ("waited_for_hearing", counts.waited_for_hearing),
    ];
    let counted = counted.into_iter().filter(|(_, count)| *count > 0);
    rows.extend(counted.map(|(name, count)| (name, "reqs", Stat { count, ..Stat::default() })));
    stats(counts.since, &rows)
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
    stats(counts.since, &rows)
}

fn brw_stats(ost: &Ost) -> String {
    ost.owner.with(|oss| format::brw_stats(oss.stats(), &oss.objects().disk_use()))
}

const EVICT_VALUES: &str =
    "a client's uuid, or `nid:NID` for all clients of one; `exports.*.uuid` shows both";

const fn evict_client<T>(doc: &'static str, apply: fn(&T, &str) -> Result<()>) -> Param<T> {
    let check = |value: &str| parse_clients(value).map(drop);
    Param {
        name: "evict_client",
        doc,
        read: |_| Some(String::new()),
        write: Some(Write::Word { values: EVICT_VALUES, check, apply, is_lasting: false }),
    }
}

/// Whom an operator means.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    One(ClientId),
    OfNid(String),
}

fn parse_clients(text: &str) -> Result<Meant> {
    if let Some(nid) = text.strip_prefix("nid:").filter(|nid| !nid.is_empty()) {
        return Ok(Meant::OfNid(nid.to_owned()));
    }
    let text = text.strip_prefix("uuid:").unwrap_or(text);
    let target =
        text.strip_suffix("_UUID").and_then(|text| text.rsplit_once('-')?.1.parse::<TargetId>().ok());
    if let Some(target) = target {
        return Ok(Meant::One(Endpoint::Target(target).client_id()));
    }
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let id = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    id.map(|id| Meant::One(ClientId(id)))
        .with_context(|| format!("'{text}' is not possible; it takes {EVICT_VALUES}"))
}

/// # Errors
/// No such client is here.
fn meant(clients: Vec<(ClientId, String)>, value: &str) -> Result<Vec<ClientId>> {
    let meant = parse_clients(value)?;
    let is_meant = |client: ClientId, nid: &str| match &meant {
        Meant::One(id) => client == *id,
        // Servers on the same machine have its address too.
        Meant::OfNid(wanted) => {
            matches!(client.endpoint(), Endpoint::Client(_))
                && (nid == wanted || nid::without_port(nid) == *wanted)
        }
    };
    let found: Vec<ClientId> = clients
        .into_iter()
        .filter(|(client, nid)| is_meant(*client, nid))
        .map(|(client, _)| client)
        .collect();
    if found.is_empty() {
        bail!(Absent(format!("no client '{value}' has a session there; see `exports.*.uuid`")));
    }
    Ok(found)
}

fn parse_stripe_count(value: &str) -> Result<u16> {
    match value.parse::<i32>() {
        Ok(-1) => Ok(u16::MAX),
        Ok(count @ 1..=2000) => Ok(count as u16),
        _ => bail!("'{value}' is not possible; it takes -1 for all OSTs, or a number from 1 to 2000"),
    }
}

fn parse_stripe_size(value: &str) -> Result<u32> {
    let size =
        value.parse::<u32>().ok().filter(|size| *size > 0 && size.is_multiple_of(Layout::STRIPE_SIZE_MIN));
    size.filter(|size| *size <= STRIPE_SIZE_MAX)
        .with_context(|| format!("'{value}' is not possible; it takes a multiple of 65536 up to 2147418112"))
}

/// The largest multiple of 64 KiB that is no negative number to those who read 32 bits with a sign.
const STRIPE_SIZE_MAX: u32 = 0x7fff_0000;
const _: () = assert!(RECOVERY_WINDOW.as_secs() <= RECOVERY_SECONDS_MAX);

#[cfg(test)]
mod tests;
