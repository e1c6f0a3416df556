//! Pools of OSTs, from `lctl pool_new` to the objects of files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::case::{Context, expect, expect_bytes, expect_eq, wait_until, write};
use crate::cluster::{Cluster, Shape};
use crate::sys;

/// The OSTs of a file's objects.
fn osts_of(cluster: &Cluster, path: &Path) -> Result<BTreeSet<u16>> {
    let text = cluster.sheen(&["lfs", "getstripe", &path.to_string_lossy()])?;
    let rows = text.lines().skip_while(|line| !line.contains("obdidx")).skip(1);
    let osts = rows.filter_map(|row| row.split_whitespace().next()?.parse().ok()).collect();
    Ok(osts)
}

fn pool_of(cluster: &Cluster, path: &Path) -> Result<String> {
    let text = cluster.sheen(&["lfs", "getstripe", "-d", "-p", &path.to_string_lossy()])?;
    Ok(text.trim().to_owned())
}

/// Files of a directory with a pool lie in it, also after the management server and an MDT were killed; words that make no
/// pool change nothing.
pub fn run(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let shape = Shape { mdt_count: 1, ost_count: 4, is_split: true };
    let mut cluster = Cluster::new(&context.options, &context.work, shape)?;
    cluster.up()?;
    let mount = cluster.mount.clone();
    let fsname = cluster.sheen(&["lfs", "pool_list", &mount.to_string_lossy()])?;
    let fsname = fsname.trim().strip_prefix("Pools from ").and_then(|rest| rest.strip_suffix(':'));
    let fsname = fsname.context("the file system's name in pool_list")?.to_owned();
    let pool = format!("{fsname}.flash");
    let lctl = |words: &[&str]| cluster.sheen(&[&["lctl"], words].concat());
    lctl(&["pool_new", &pool])?;
    lctl(&["pool_add", &pool, "OST[1-2]"])?;
    let listed = format!("Pool: {pool}\n{fsname}-OST0001_UUID\n{fsname}-OST0002_UUID\n");
    expect_eq(&lctl(&["pool_list", &pool])?, &listed, "the pool")?;
    let directory = mount.join("d");
    fs::create_dir(&directory)?;
    let path = directory.to_string_lossy().into_owned();
    cluster.sheen(&["lfs", "setstripe", "-p", "flash", "-c", "-1", "-S", "64K", &path])?;
    let bytes = context.random().bytes(300_000);
    let check = |name: &str| -> Result<()> {
        let file = directory.join(name);
        write(&file, &bytes)?;
        expect_eq(osts_of(&cluster, &file)?, BTreeSet::from([1, 2]), &format!("the OSTs of {name}"))?;
        expect_eq(pool_of(&cluster, &file)?.as_str(), "flash", &format!("the pool of {name}"))?;
        expect_bytes(&fs::read(&file)?, &bytes, name)
    };
    check("first")?;
    let victims = cluster.targets()?;
    for (name, pid) in victims.iter().filter(|(name, _)| name == "MGS" || name.starts_with("MDT")) {
        sys::kill(*pid, libc::SIGKILL).with_context(|| format!("kill {name}"))?;
    }
    cluster.up()?;
    check("after a crash")?;
    expect_eq(&lctl(&["pool_list", &pool])?, &listed, "the pool after a crash")?;
    let one = mount.join("one");
    cluster.sheen(&["lfs", "setstripe", "-o", "3,0", &one.to_string_lossy()])?;
    expect_eq(osts_of(&cluster, &one)?, BTreeSet::from([0, 3]), "the OSTs that were named")?;
    let new = mount.join("new").to_string_lossy().into_owned();
    let refused: [&[&str]; 11] = [
        &["lctl", "pool_new", &pool],
        &["lctl", "pool_new", "flash"],
        &["lctl", "pool_add", &pool, "OST0001"],
        &["lctl", "pool_add", &pool, "OST0003", "OST0009"],
        &["lctl", "pool_remove", &pool, "OST0003"],
        &["lctl", "pool_destroy", &pool],
        &["lfs", "setstripe", "-p", "disk", &new],
        &["lfs", "setstripe", "-p", "flash", "-i", "0", &new],
        &["lfs", "setstripe", "-p", "flash", "-o", "1,0", &new],
        &["lfs", "setstripe", "-o", "1,9", &new],
        &["lfs", "setstripe", "-o", "1,1", &new],
    ];
    for words in refused {
        let said = cluster.sheen(words);
        expect(said.is_err(), &format!("{words:?} is refused"))?;
    }
    expect(!Path::new(&new).exists(), "what was refused makes no file")?;
    expect_eq(&lctl(&["pool_list", &pool])?, &listed, "the pool after what was refused")?;
    drained(&cluster, &directory)?;
    lctl(&["pool_remove", &pool, "OST0001", "OST0002"])?;
    lctl(&["pool_destroy", &pool])?;
    // The directory names a pool that is gone: files go anywhere.
    let file = directory.join("anywhere");
    write(&file, &bytes)?;
    expect_eq(osts_of(&cluster, &file)?.len(), 4, "the OSTs of a file whose pool is gone")?;
    expect_eq(pool_of(&cluster, &file)?.as_str(), "", "its pool")?;
    drop(cluster.new_complaints());
    cluster.down().map(drop)
}

/// What is said when all of a pool are drained, and of OSTs that are not in the pool of a directory; who names none
/// has his files elsewhere.
fn drained(cluster: &Cluster, of_pool: &Path) -> Result<()> {
    let mount = cluster.mount.clone();
    let setstripe = |words: &[&str], path: &Path| {
        cluster.sheen(&[&["lfs", "setstripe"], words, &[&*path.to_string_lossy()]].concat())
    };
    let is_told = |words: &[&str], path: &Path, wanted: &str| {
        let said = setstripe(words, path).err().map(|error| error.to_string()).unwrap_or_default();
        expect(said.contains(wanted) && !path.is_file(), &format!("{words:?}: {said}"))
    };
    is_told(&["-i", "3"], &of_pool.join("f"), "OST0003 is not in pool flash")?;
    is_told(&["-p", "flash", "-o", "3"], &mount.join("f"), "OST0003 is not in pool flash")?;
    let [first, list] = [("-i", "first"), ("-o", "list")].map(|(option, name)| (option, mount.join(name)));
    for (option, directory) in [&first, &list] {
        fs::create_dir(directory)?;
        is_told(&[option, "9"], directory, "there is no OST 9")?;
        setstripe(&[option, "1"], directory)?;
        write(&directory.join("before"), b"x")?;
        expect_eq(
            osts_of(cluster, &directory.join("before"))?,
            BTreeSet::from([1]),
            "the OST of the default",
        )?;
    }
    let drain = |value: u8, open_count: &str| -> Result<()> {
        for ost in ["OST0001", "OST0002"] {
            cluster.sheen(&["lctl", "set_param", &format!("obdfilter.*{ost}.no_create={value}")])?;
        }
        wait_until(Duration::from_secs(60), "the MDT knows", || {
            Ok(cluster.sheen(&["lctl", "get_param", "-n", "lod.*.numobd"])?.trim() == open_count)
        })
    };
    drain(1, "2")?;
    is_told(&["-p", "flash"], &mount.join("f"), "pool flash takes no new files")?;
    for (option, directory) in [&first, &list] {
        write(&directory.join("after"), b"x")?;
        let osts = osts_of(cluster, &directory.join("after"))?;
        expect(osts.is_disjoint(&BTreeSet::from([1, 2])) && osts.len() == 1, &format!("{option}: {osts:?}"))?;
    }
    drain(0, "4")?;
    for (_, directory) in [&first, &list] {
        write(&directory.join("again"), b"x")?;
        expect_eq(osts_of(cluster, &directory.join("again"))?, BTreeSet::from([1]), "the OST is open again")?;
    }
    Ok(())
}
