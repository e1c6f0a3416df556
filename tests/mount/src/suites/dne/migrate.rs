//! A tree with files of all kinds moves to another MDT while another mount looks at it, and while the MDT dies that it comes from,
//! or goes to.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::{Cluster, fsck, kill_and_restart, start};
use crate::case::{Context, expect, expect_eq, note, wait_until};
use crate::load::Stop;
use crate::sys;

const BRANCH_COUNT: usize = 6;
const TWIG_COUNT: usize = 5;
const LEAF_COUNT: usize = 6;
const MIGRATION_LIMIT: Duration = Duration::from_secs(240);

/// What everybody can see of a name, but for the number of its inode.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    link_count: u64,
    size: u64,
    device: u64,
    modified: (i64, i64),
    /// Of a file, or where a symlink leads.
    content: Vec<u8>,
    xattrs: Vec<(String, Vec<u8>)>,
    /// The first of the names that are the same inode.
    first: PathBuf,
}

type Tree = BTreeMap<PathBuf, Seen>;

/// Directories with directories with things of every kind; -> how many directories there are.
fn plant(root: &Path) -> Result<usize> {
    fs::create_dir(root)?;
    let mut directory_count = 1;
    for branch in 0..BRANCH_COUNT {
        let branch_path = root.join(format!("branch{branch}"));
        fs::create_dir(&branch_path)?;
        fs::set_permissions(&branch_path, fs::Permissions::from_mode(0o2750))?;
        directory_count += 1;
        for twig in 0..TWIG_COUNT {
            let path = branch_path.join(format!("twig{twig}"));
            fs::create_dir(&path)?;
            directory_count += 1;
            for leaf in 0..LEAF_COUNT {
                let file = path.join(format!("leaf{leaf}"));
                // In the first twig of each branch some have several objects, or most of their data on the MDT.
                let repeat_count = if twig == 0 { leaf * 300_000 } else { leaf * 300 };
                fs::write(&file, format!("{branch} {twig} {leaf}\n").repeat(repeat_count))?;
                sys::set_xattr(&file, "user.leaf", format!("{leaf}").as_bytes(), 0)?;
            }
            std::os::unix::fs::symlink(format!("leaf{twig}"), path.join("symlink"))?;
            std::os::unix::fs::lchown(path.join("symlink"), Some(7), Some(8))?;
            sys::mknod(&path.join("fifo"), libc::S_IFIFO | 0o640, 0)?;
            sys::mknod(&path.join("null"), libc::S_IFCHR | 0o666, libc::makedev(1, 3))?;
            fs::hard_link(path.join("leaf1"), branch_path.join(format!("hard{twig}")))?;
            sys::set_xattr(&path, "user.twig", &[twig as u8; 100], 0)?;
            sys::set_xattr(&path, "trusted.twig", b"t", 0)?;
        }
    }
    Ok(directory_count)
}

fn look(root: &Path) -> Result<Tree> {
    let (mut tree, mut firsts) = (Tree::new(), BTreeMap::new());
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let stat = fs::symlink_metadata(&path).with_context(|| format!("stat {}", path.display()))?;
        let below = path.strip_prefix(root)?.to_owned();
        let file_type = stat.file_type();
        let content = if file_type.is_file() {
            fs::read(&path)?
        } else if file_type.is_symlink() {
            fs::read_link(&path)?.into_os_string().into_encoded_bytes()
        } else {
            Vec::new()
        };
        // One of those that are named through a link is that of what it leads to.
        let mut xattrs = Vec::new();
        if file_type.is_dir() || file_type.is_file() {
            for name in sys::list_xattrs(&path)? {
                let value = sys::get_xattr(&path, &name)?;
                xattrs.push((name, value));
            }
        }
        xattrs.sort();
        if file_type.is_dir() {
            let entries = fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path()));
            let mut entries = entries.collect::<std::io::Result<Vec<_>>>()?;
            entries.sort_by(|a, b| b.cmp(a));
            todo.extend(entries);
        }
        let seen = Seen {
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            link_count: stat.nlink(),
            size: stat.size(),
            device: stat.rdev(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            content,
            xattrs,
            first: firsts.entry(stat.ino()).or_insert_with(|| below.clone()).clone(),
        };
        tree.insert(below, seen);
    }
    Ok(tree)
}

/// The same tree as before, through this mount.
fn compare(root: &Path, before: &Tree) -> Result<()> {
    let now = look(root)?;
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    expect_eq(names(&now), names(before), "the names")?;
    for (path, seen) in &now {
        expect_eq(seen, &before[path], &format!("{} in {}", path.display(), root.display()))?;
    }
    Ok(())
}

/// Looks at everything again and again: every name is there each time, once; -> how many were looked at.
fn watch(root: &Path, before: &Tree, stop: &Stop) -> Result<u64> {
    let mut looked_count = 0;
    loop {
        for (path, seen) in before {
            let at = root.join(path);
            let stat = while_stale(&at, || fs::symlink_metadata(&at))?;
            expect_eq(stat.mode(), seen.mode, "its mode")?;
            expect_eq(stat.nlink(), seen.link_count, "its links")?;
            if stat.is_dir() {
                let expected: Vec<PathBuf> =
                    before.keys().filter(|name| name.parent() == Some(path)).cloned().collect();
                let expected: Vec<PathBuf> = expected.iter().map(|name| root.join(name)).collect();
                expect_eq(list(&at)?, expected, "the names in a directory")?;
            }
            looked_count += 1;
        }
        if stop.is_over() {
            return Ok(looked_count);
        }
    }
}

/// Sorted.
fn list(path: &Path) -> Result<Vec<PathBuf>> {
    let mut names = while_stale(path, || {
        let entries = fs::read_dir(path)?;
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>()
    })?;
    names.sort();
    Ok(names)
}

/// Again while it is answered ESTALE, as it may be (docs/limits.md): to whoever has a directory open that moves, and where two things of
/// one path move during one call.
fn while_stale<T>(path: &Path, call: impl Fn() -> std::io::Result<T>) -> Result<T> {
    for _ in 0..20 {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
            result => return result.with_context(|| format!("looking at {}", path.display())),
        }
    }
    bail!("{} is stale each time", path.display())
}

fn mdt_of(context: &Context, path: &Path) -> Result<String> {
    let text = context.lfs(&["getdirstripe", "-i", &path.to_string_lossy()])?;
    Ok(text.trim().to_owned())
}

/// What it says in the end. What stays has several names, or is open, and is told so, a line each; so many are.
fn migrate(cluster: &Cluster, mdt: &str, root: &Path) -> Result<(String, usize)> {
    let said = cluster.try_sheen(&["lfs", "migrate", "-m", mdt, &root.to_string_lossy()], MIGRATION_LIMIT)?;
    let mut staying_count = 0;
    for line in said.errors.lines().filter(|line| line.starts_with("lfs migrate: ")) {
        let is_told = line.contains("has other names, and stays") || line.contains("is open, and stays");
        expect(is_told, &said.errors)?;
        staying_count += 1;
    }
    expect(said.is_success() == (staying_count == 0), &format!("{said:?}"))?;
    Ok((said.output.trim().to_owned(), staying_count))
}

/// Two MDTs, two mounts.
pub fn migrate_a_tree(context: &Context) -> Result<()> {
    let cluster = start(context, 2)?;
    let second = cluster.mount_again("second")?;
    let root = cluster.mount.join("tree");
    let directory_count = plant(&root)?;
    let twig_count = BRANCH_COUNT * TWIG_COUNT;
    let before = look(&root)?;
    compare(&second.join("tree"), &before)?;
    let held_path = root.join("branch0/twig0/leaf2");
    let held = sys::open(&held_path, libc::O_RDWR, 0)?;
    let stop = Stop::default();
    let (told, staying_count) = std::thread::scope(|scope| -> Result<(String, usize)> {
        let watcher = scope.spawn(|| watch(&second.join("tree"), &before, &stop));
        let told = migrate(&cluster, "1", &root);
        stop.now();
        let looked_count = watcher.join().map_err(|_| anyhow!("the watcher panicked"))??;
        note(&format!("{looked_count} looks by another mount meanwhile"));
        told
    })?;
    // One in each twig has two names, and one is open.
    let file_count = twig_count * (LEAF_COUNT - 1) - 1;
    let expected = format!(
        "{directory_count} directories, {file_count} files, {twig_count} symlinks and {twig_count} devices moved to MDT0001, \
         0 already there; {twig_count} FIFOs and sockets stay where they were made"
    );
    expect_eq(staying_count, 2 * twig_count + 1, "what stays")?;
    expect_eq(told, expected, "what was done")?;
    for root in [&root, &second.join("tree")] {
        compare(root, &before)?;
        for (path, _) in before.iter().filter(|(_, seen)| seen.mode & libc::S_IFMT == libc::S_IFDIR) {
            expect_eq(mdt_of(context, &root.join(path))?, "1", "the MDT of a directory")?;
        }
    }
    // What was open is open still, and what is new is made where its directory is.
    std::os::unix::fs::FileExt::write_all_at(&held, b"still open", 0)?;
    drop(held);
    expect(fs::read(second.join("tree/branch0/twig0/leaf2"))?.starts_with(b"still open"), "it was written")?;
    let (again, staying_count) = migrate(&cluster, "1", &root)?;
    let there_count = directory_count + file_count + 2 * twig_count;
    let expected = format!(
        "0 directories, 1 file, 0 symlinks and 0 devices moved to MDT0001, {there_count} already there"
    );
    expect(again.starts_with(&expected), &again)?;
    expect_eq(staying_count, 2 * twig_count, "what stays")?;
    write_to_what_has_moved(&root, &second.join("tree"))?;
    let before = look(&root)?;
    for (words, expected) in
        [(&["-m", "7"][..], "there is no MDT 7"), (&["-m", "0,1"], "directories move to one MDT")]
    {
        let path = root.to_string_lossy();
        let words = [&["lfs", "migrate"], words, &[&*path]].concat();
        let said = cluster.try_sheen(&words, Duration::from_secs(60))?;
        expect(!said.is_success() && said.errors.contains(expected), &format!("{words:?}: {said:?}"))?;
    }
    die_meanwhile(context, &cluster, &root)?;
    for root in [&root, &second.join("tree")] {
        compare(root, &before)?;
        expect_eq(mdt_of(context, &root.join("branch3/twig3"))?, "0", "the MDT of a directory")?;
    }
    cluster.unmount(&second)?;
    cluster.down()?;
    fsck(&cluster, &[], 0).map(drop)
}

/// Files are files as before: each mount sees what the other one writes.
fn write_to_what_has_moved(root: &Path, second: &Path) -> Result<()> {
    for (at, other) in [(root, second), (second, root)] {
        for name in ["branch1/twig0/leaf3", "branch1/twig2/leaf5", "branch2/twig0/leaf0"] {
            let mut expected = fs::read(other.join(name))?;
            expected.extend_from_slice(b"more");
            let mut file = fs::OpenOptions::new().append(true).open(at.join(name))?;
            std::io::Write::write_all(&mut file, b"more")?;
            file.sync_all()?;
            drop(file);
            expect(fs::read(other.join(name))? == expected, &format!("{name} has what was appended"))?;
        }
    }
    Ok(())
}

/// Back to MDT0000, each of the two MDTs dead once before that is done.
fn die_meanwhile(context: &Context, cluster: &Cluster, root: &Path) -> Result<()> {
    for (victim, mdt) in [("MDT0000", "0"), ("MDT0001", "1"), ("MDT0000", "0")] {
        let mut victims = cluster.targets()?;
        victims.retain(|(name, _)| name == victim);
        let first = std::thread::scope(|scope| -> Result<Result<(String, usize)>> {
            let moving = scope.spawn(|| migrate(cluster, mdt, root));
            let begun = root.join("branch0");
            // The command has a directory open that moves, and is told so.
            let is_stale = |error: &anyhow::Error| format!("{error:#}").contains("os error 116");
            wait_until(Duration::from_secs(60), "the first have moved", || match mdt_of(context, &begun) {
                Err(error) if is_stale(&error) => Ok(false),
                found => Ok(found? == mdt),
            })?;
            kill_and_restart(cluster, &victims, None)?;
            moving.join().map_err(|_| anyhow!("the command panicked"))
        })?;
        // A call that its MDT did not survive is done again by the mount; should the command have failed, it goes on from there.
        if let Err(error) = first {
            note(&format!("interrupted by the death of {victim}: {error:#}"));
        }
        let (done, _) = migrate(cluster, mdt, root)?;
        expect(
            done.contains(&format!("moved to {}", if mdt == "0" { "MDT0000" } else { "MDT0001" })),
            &done,
        )?;
        // All that can be is there now.
        let (again, _) = migrate(cluster, mdt, root)?;
        expect(again.starts_with("0 directories, 0 files, 0 symlinks and 0 devices moved"), &again)?;
    }
    Ok(())
}
