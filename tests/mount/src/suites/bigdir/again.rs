//! A listing that comes a second time: what the kernel still asks its mount for.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::make_mixed;
use crate::case::{Context, expect, expect_eq, note};
use crate::cluster::Cluster;
use crate::suites::split_cluster;

/// What the kernel knows lives for seconds only, and ends when a mount is not heard for a moment: on a machine that stands still meanwhile
/// it asks again. It never asks for nothing by chance.
const TRY_COUNT: usize = 5;

/// Calls of the kernel, by kind.
type Calls = BTreeMap<String, u64>;

/// Names, attributes, link targets, xattrs and ACLs of the entries are the kernel's own by then; only the directory is read, and its own
/// attributes are asked for, since reading it may have changed when it was read last. (The same holds for symbolic links, of which ls(1) reads
/// the targets: their attributes are left out, after that.)
pub fn asks_for_no_entry(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let entry_count = context.round_count;
    make_mixed(&cluster.mount.join("dir"), entry_count)?;
    cluster.unmount(&cluster.mount)?;
    let mut asked = Vec::new();
    for number in 0..TRY_COUNT {
        let point = cluster.mount_again(&format!("lister{number}"))?;
        let directory = point.join("dir");
        let first = calls_of(&cluster, || list(&cluster, &directory, entry_count))?;
        let of_entries = first.get("getxattr").copied().unwrap_or_default();
        expect(
            of_entries >= entry_count / 2,
            &format!("ACLs are asked for at first, and counted: {first:?}"),
        )?;
        let again = calls_of(&cluster, || {
            list(&cluster, &directory, entry_count)?;
            stat_each(&cluster, &directory, entry_count)
        })?;
        cluster.unmount(&point)?;
        note(&format!("{entry_count} entries, the first time: {first:?}, again and stat: {again:?}"));
        if is_of_directory_only(&again) {
            return cluster.down().map(drop);
        }
        asked.push(again);
    }
    bail!("{entry_count} entries that the kernel has are asked for again: {asked:?}")
}

/// `ls` and `find` read it once each. What the kernel asks for of one inode it may ask for a few times.
fn is_of_directory_only(calls: &Calls) -> bool {
    const FEW: u64 = 8;
    calls.iter().all(|(kind, count)| match kind.as_str() {
        "opendir" => *count == 2,
        // Nobody waits for it: the last one of before may be counted here, and the last one here later.
        "closedir" => (1..=3).contains(count),
        "readdir" => true,
        "getattr" => *count <= 2,
        "getxattr" => *count <= FEW,
        // Of find(1), which asks on what file system it is.
        "statfs" => *count <= 1,
        _ => false,
    })
}

fn list(cluster: &Cluster, directory: &Path, entry_count: u64) -> Result<()> {
    let said = cluster.say(Command::new("ls").arg("-ln").arg(directory))?;
    expect(said.is_success(), &said.all())?;
    expect_eq(said.output.lines().count() as u64, entry_count + 1, "lines of ls -ln")
}

fn stat_each(cluster: &Cluster, directory: &Path, entry_count: u64) -> Result<()> {
    let mut find = Command::new("find");
    find.arg(directory).args([
        "-mindepth",
        "1",
        "-maxdepth",
        "1",
        "-not",
        "-type",
        "l",
        "-printf",
        "%s %n %m\n",
    ]);
    let said = cluster.say(&mut find)?;
    expect(said.is_success(), &said.all())?;
    let link_count = entry_count.div_ceil(10);
    expect_eq(said.output.lines().count() as u64, entry_count - link_count, "lines of find")
}

fn calls_of(cluster: &Cluster, act: impl FnOnce() -> Result<()>) -> Result<Calls> {
    cluster.sheen(&["lctl", "set_param", "llite.*.stats=0"])?;
    act()?;
    let said = cluster.sheen(&["lctl", "get_param", "-n", "llite.*.stats"])?;
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (kind, count) = (words.next()?, words.next()?);
        (words.next() == Some("samples")).then(|| Some((kind.to_owned(), count.parse().ok()?))).flatten()
    };
    let calls: Calls = said.lines().filter_map(row).collect();
    calls.get("readdir").with_context(|| format!("a listing is counted: {said}"))?;
    Ok(calls)
}
