//! `llite.*`: the mounts of this process.

use super::format::{Stat, stats};
use super::{Class, Param, Write, read_only};
use crate::mount::{Mount, options, read_ahead};
use crate::node::{Node, lock};
use anyhow::{Result, bail};
use base::limits::READDIR_ENTRIES_MAX;
use client::{ReadAheadBound, ReadAheadBounds, Setting};
use std::sync::Arc;

/// More would be memory that pages of the kernel need.
const READ_AHEAD_MB_MAX: u64 = 64 << 10;
/// What has `access_times` read anew.
pub const REREAD: &str = "reread";
/// The kernel itself sets no limit; more than this is never useful to one reader.
const KERNEL_WINDOW_KIB_MAX: u64 = 1 << 20;

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
        Param {
            name: "access_times",
            doc: "When reading changes access times: noatime (also of a read-only mount), relatime, strictatime; with nodiratime not of directories. A remount changes it; `reread` takes it from the kernel's table of mounts, as a remount does.",
            read: |mount| Some(options::access_words(mount.with_client(|client| client.access_times()))),
            write: Some(Write::Word {
                values: "`reread`",
                check: check_reread,
                apply: |mount, _| {
                    mount.reread_flags();
                    Ok(())
                },
                is_lasting: false,
            }),
        },
        read_only("options", "Options of the mount in force, besides those of mount(2).", |mount| {
            Some(mount.options().join(","))
        }),
        Param {
            name: "max_read_ahead_mb",
            doc: "MiB that may be fetched ahead for all files of the mount; 0: none, reads ask for what they need.",
            read: |mount| Some((bounds(mount).byte_count >> 20).to_string()),
            write: Some(Write::Number(0..=READ_AHEAD_MB_MAX, |mount, mib| {
                mount.set(Setting::ReadAheadBound(ReadAheadBound::Bytes(mib << 20)));
            })),
        },
        Param {
            name: "max_read_ahead_per_file_mb",
            doc: "The same for one file, and never more than that. All files that are read share alike what the mount may have.",
            read: |mount| Some((bounds(mount).file_bytes_in_force() >> 20).to_string()),
            write: Some(Write::Number(0..=READ_AHEAD_MB_MAX, |mount, mib| {
                mount.set(Setting::ReadAheadBound(ReadAheadBound::FileBytes(mib << 20)));
            })),
        },
        Param {
            name: "max_read_ahead_whole_mb",
            doc: "Files up to this size, MiB, are fetched as a whole with their first read; never more than one file may have.",
            read: |mount| Some((bounds(mount).whole_bytes_in_force() >> 20).to_string()),
            write: Some(Write::Number(0..=READ_AHEAD_MB_MAX, |mount, mib| {
                mount.set(Setting::ReadAheadBound(ReadAheadBound::WholeBytes(mib << 20)));
            })),
        },
        Param {
            name: "read_ahead_range_kb",
            doc: "KiB that the kernel asks for around a page fault, or ahead of a reader, in one request; for files opened from then on.",
            read: |mount| Some(read_ahead::kib(&mount.path)?.to_string()),
            write: Some(Write::Word {
                values: "KiB from 0 to 1048576",
                check: |value| parse_kib(value).map(drop),
                apply: |mount, value| mount.set_kernel_window(parse_kib(value)?),
                is_lasting: true,
            }),
        },
        Param {
            name: "read_ahead_push",
            doc: "Whether what several threads will read in a stream is put into the kernel's page cache before they ask for it (1).",
            read: |mount| Some(u8::from(bounds(mount).is_pushing).to_string()),
            write: Some(Write::Switch(|mount, is_on| {
                mount.set(Setting::ReadAheadBound(ReadAheadBound::Pushing(is_on)));
            })),
        },
        Param {
            name: "read_ahead_stats",
            doc: "Pages that were answered from what was fetched ahead (hits), that were not (misses), and what came of the rest.",
            read: |mount| Some(read_ahead_stats(mount)),
            write: Some(Write::Clear(|mount| mount.set(Setting::ClearReadAheadStats))),
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

fn read_ahead_stats(mount: &Mount) -> String {
    let counts = mount.with_client(|client| client.read_ahead_stats());
    let count = |count: u64| Stat { count, ..Stat::default() };
    let rows = [
        ("hits", "pages", count(counts.hit_page_count)),
        ("misses", "pages", count(counts.miss_page_count)),
        ("failed_lock_match", "pages", count(counts.no_lock_count)),
        ("read_but_discarded", "pages", count(counts.discarded_page_count)),
        ("hit_max_readahead_issue", "pages", count(counts.no_room_count)),
        ("mmap_range_read", "pages", count(counts.refused_count)),
        ("readahead_pages", "pages", Stat::from(counts.window_pages)),
        // Not in Lustre.
        ("pushed", "pages", count(counts.pushed_page_count)),
    ];
    stats(mount.with_client(|client| client.read_ahead_stats_since()), &rows)
}

fn bounds(mount: &Mount) -> ReadAheadBounds {
    mount.with_client(|client| client.read_ahead_bounds())
}

fn check_reread(value: &str) -> Result<()> {
    if value == REREAD {
        return Ok(());
    }
    bail!(
        "'{value}' is not possible: a remount changes it (mount -o remount,noatime MOUNT), and '{REREAD}' takes what the kernel has"
    )
}

fn parse_kib(value: &str) -> Result<u64> {
    match value.parse() {
        Ok(kib) if kib <= KERNEL_WINDOW_KIB_MAX => Ok(kib),
        _ => bail!("'{value}' is not possible; it takes KiB from 0 to {KERNEL_WINDOW_KIB_MAX}"),
    }
}
