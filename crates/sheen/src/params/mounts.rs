//! `llite.*`: the mounts of this process.

use super::format::{Stat, stats};
use super::{Class, Param, Write, read_only};
use crate::mount::{Mount, read_ahead};
use crate::node::{Node, lock};
use anyhow::{Result, bail};
use base::limits::READDIR_ENTRIES_MAX;
use client::Setting;
use std::sync::Arc;

/// The kernel itself sets no limit; more than this is never useful to one reader.
const READ_AHEAD_MB_MAX: f64 = 1024.0;

type Of = Arc<Mount>;

pub static CLASS: Class<Of> = Class {
    path: "llite/*",
    instances: |node| {
        let mounts = all(node).into_iter();
        mounts.map(|mount| (format!("llite/{}-{:016x}", mount.fsname, mount.number()), mount)).collect()
    },
    params: &[
        Param {
            name: "stats",
            doc: "Calls of a mount: counts, and microseconds or bytes.",
            read: |mount: &Of| Some(call_stats(mount)),
            write: Some(Write::Clear(|mount| mount.set(Setting::ClearStats))),
        },
        Param {
            name: "xattr_cache",
            doc: "Whether xattrs are kept under their inode's lock (1), or asked for each time (0).",
            read: |mount| Some(u8::from(mount.with_client(|client| client.is_caching_xattrs())).to_string()),
            write: Some(Write::Switch(|mount, is_on| mount.set(Setting::XattrCache(is_on)))),
        },
        Param {
            name: "statahead_max",
            doc: "Entries whose attributes one request of a listing brings; 0: names only.",
            read: |mount| Some(mount.with_client(|client| client.bulk()).attr_count_max.to_string()),
            write: Some(Write::Number(0..=READDIR_ENTRIES_MAX as u64, |mount, count| {
                mount.set(Setting::BulkAttrs(count as u32));
            })),
        },
        Param {
            name: "statahead_xattr",
            doc: "Whether short xattrs come with these attributes (1).",
            read: |mount| Some(u8::from(mount.with_client(|client| client.bulk()).has_xattrs).to_string()),
            write: Some(Write::Switch(|mount, is_on| mount.set(Setting::BulkXattrs(is_on)))),
        },
        Param {
            name: "statahead_stats",
            doc: "Attributes that came with listings (total), and entries that were looked up singly all the same (wrong).",
            read: |mount| Some(listing_stats(mount)),
            write: Some(Write::Clear(|mount| mount.set(Setting::ClearListingStats))),
        },
        Param {
            name: "lazystatfs",
            doc: "Whether statfs(2) takes what a silent target said last (1), or waits for it (0).",
            read: |mount| Some(u8::from(mount.is_statfs_lazy()).to_string()),
            write: Some(Write::Switch(|mount, is_on| mount.set_statfs_lazy(is_on))),
        },
        read_only("options", "Options of the mount in force, besides those of mount(2).", |mount| {
            Some(mount.options().join(","))
        }),
        Param {
            name: "max_read_ahead_per_file_mb",
            doc: "How far the kernel reads ahead of a sequential reader of one file, MiB: 1 in a mount of root, 0.125 in others.",
            read: |mount| Some((read_ahead::kib(&mount.path)? as f64 / 1024.0).to_string()),
            write: Some(Write::Word {
                values: "MiB from 0 to 1024, with a fraction if need be",
                check: |value| parse_mib(value).map(drop),
                apply: |mount, value| set_read_ahead(mount, parse_mib(value)?),
                is_lasting: true,
            }),
        },
        read_only("uuid", "The mount as servers know it.", |mount| Some(mount.client_id().to_string())),
        read_only("fstype", "Type of the file system.", |_| Some("sheen".to_owned())),
        read_only("mount_point", "Where the mount is.", |mount| Some(mount.path.display().to_string())),
        read_only("open_count", "Files that are open through the mount.", |mount| {
            Some(mount.stats().open_count.to_string())
        }),
        read_only("inode_count", "Inodes that the kernel knows from the mount.", |mount| {
            Some(mount.stats().node_count.to_string())
        }),
        read_only("blocksize", "Bytes in which statfs(2) counts.", |_| {
            Some(crate::mount::STATFS_BLOCK_BYTES.to_string())
        }),
        read_only(
            "kbytestotal",
            "Space of all OSTs, KiB; a device that several share counts once.",
            |mount| Some((mount.statfs()?.bytes_total / 1024).to_string()),
        ),
        read_only("kbytesfree", "Free space of all OSTs, KiB.", |mount| {
            Some((mount.statfs()?.bytes_free / 1024).to_string())
        }),
        read_only("kbytesavail", "Space that files may still take on all OSTs, KiB.", |mount| {
            Some((mount.statfs()?.bytes_available / 1024).to_string())
        }),
        read_only("filestotal", "Inodes of all MDTs, used and free.", |mount| {
            Some(mount.statfs()?.inodes_total.to_string())
        }),
        read_only("filesfree", "Inodes that may still be made.", |mount| {
            Some(mount.statfs()?.inodes_free.to_string())
        }),
    ],
};

pub fn all(node: &Node) -> Vec<Of> {
    lock(&node.mounts).clone()
}

fn call_stats(mount: &Mount) -> String {
    let counts = mount.stats();
    let mut rows = Vec::new();
    for (row, counter) in [("read_bytes", counts.read_bytes), ("write_bytes", counts.write_bytes)] {
        rows.push((row, "bytes", Stat::from(counter)));
    }
    rows.extend(counts.calls.iter().map(|(row, counter)| (*row, "usecs", Stat::from(*counter))));
    stats(counts.since, &rows)
}

fn listing_stats(mount: &Mount) -> String {
    let counts = mount.stats().listings;
    format!(
        "statahead total: {}\nstatahead wrong: {}\nlisting requests: {}\nlisted entries: {}\n",
        counts.attr_count, counts.single_count, counts.request_count, counts.entry_count
    )
}

fn set_read_ahead(mount: &Mount, mib: f64) -> Result<()> {
    read_ahead::set_kib(&mount.path, (mib * 1024.0).round() as u64)
}

fn parse_mib(value: &str) -> Result<f64> {
    match value.parse() {
        Ok(mib) if (0.0..=READ_AHEAD_MB_MAX).contains(&mib) => Ok(mib),
        _ => bail!("'{value}' is not possible; it takes MiB from 0 to {READ_AHEAD_MB_MAX}"),
    }
}
