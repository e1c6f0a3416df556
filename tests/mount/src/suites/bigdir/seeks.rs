//! seekdir(3): what the servers are asked for by who goes back and forth in a directory.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{BUFFER_BYTES, Chunks, SAMPLE_COUNT, make_file};
use crate::case::{Context, expect, expect_eq, note};
use crate::cluster::Cluster;
use crate::suites::split_cluster;
use crate::sys;

/// As many come whole.
const SMALL_COUNT: u64 = 200;
/// What one seek brings of a directory that does not.
const ENTRIES_PER_SEEK: u64 = 32;
/// What getdents64(2) has room for, some entries.
const FEW_BYTES: usize = 300;

/// Of a directory that the mount knows nobody is asked, and of a large one for few entries.
pub fn ask_for_few_entries(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let (small, large) = (cluster.mount.join("small"), cluster.mount.join("large"));
    for (directory, count) in [(&small, SMALL_COUNT), (&large, context.round_count)] {
        fs::create_dir(directory)?;
        (0..count).try_for_each(|number| make_file(&directory.join(format!("f{number}"))))?;
    }
    cluster.unmount(&cluster.mount)?;
    let point = cluster.mount_again("seeker")?;
    let asked = seek_about(&cluster, &point.join("small"))?;
    // A mount that was not heard for a moment asks again, once.
    expect(asked.0 <= 2, &format!("{asked:?} requests and entries in a directory that is known"))?;
    let asked = seek_about(&cluster, &point.join("large"))?;
    note(&format!("{SAMPLE_COUNT} seeks in {} entries: {asked:?} requests and entries", context.round_count));
    let seek_count = SAMPLE_COUNT as u64;
    // Some seek to where the one before has ended, and are taken for readers who go on.
    expect(
        asked.1 <= 2 * seek_count * ENTRIES_PER_SEEK,
        &format!("{asked:?} requests and entries for {seek_count} seeks"),
    )?;
    cluster.down().map(drop)
}

/// Requests for entries, and entries that came, of seeks to places all over a directory.
fn seek_about(cluster: &Cluster, directory: &Path) -> Result<(u64, u64)> {
    let mut chunks = Chunks::of(directory)?;
    let all = chunks.again()?;
    expect_eq(chunks.again()?.len(), all.len(), "entries, a second time")?;
    let before = brought(cluster)?;
    for sample in 0..SAMPLE_COUNT {
        // Near and far, forwards and backwards.
        let from = (sample * 7919) % (all.len() - 1);
        let entry = all.get(from).context("an entry")?;
        chunks.seek(entry.position_after)?;
        let room = if sample % 2 == 0 { FEW_BYTES } else { BUFFER_BYTES };
        let found = sys::directory_chunk(&chunks.0, room)?;
        let expected = all.iter().skip(from + 1).take(found.len());
        expect(!found.is_empty() && found.iter().eq(expected), &format!("behind entry {from}: {found:?}"))?;
    }
    let after = brought(cluster)?;
    Ok((after.0 - before.0, after.1 - before.1))
}

fn brought(cluster: &Cluster) -> Result<(u64, u64)> {
    let said = cluster.sheen(&["lctl", "get_param", "-n", "llite.*.statahead_stats"])?;
    let value = |name: &str| -> Result<u64> {
        let line =
            said.lines().find(|line| line.trim_start().starts_with(name)).with_context(|| said.clone())?;
        Ok(line.split_whitespace().last().context("a figure")?.parse()?)
    };
    Ok((value("listing requests:")?, value("listed entries:")?))
}
