//! Real programs on real files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::bounded;
use crate::case::{Bed, Case, Context, Suite, expect, expect_eq, skip, wait_until};
use crate::cluster::{Cluster, Shape};
use crate::sys;

/// The suite.
pub static SUITE: Suite = Suite { name: "realinput", bed: Bed::Own, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "copy_usr_restart_diff", seconds: 900, run: copy_usr },
    Case { name: "git_clone_status_fsck", seconds: 180, run: git },
    Case { name: "cargo_build", seconds: 240, run: cargo_build },
    Case { name: "sqlite_four_processes", seconds: 180, run: sqlite },
    Case { name: "tar_and_rsync_twice", seconds: 180, run: tar_and_rsync },
];

const LIMIT: Duration = Duration::from_secs(600);
/// The issue's least number of files.
const FILE_COUNT_MIN: usize = 20_000;
/// So much is copied at most, so that a machine with a huge /usr/share does not fill the disk of the test.
const FILE_COUNT_MAX: usize = 30_000;
const BYTE_COUNT_MAX: u64 = 700 << 20;

fn start(context: &Context) -> Result<Cluster> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, Shape::SPLIT)?;
    cluster.up()?;
    Ok(cluster)
}

fn run(command: &mut Command) -> Result<String> {
    let begun = Instant::now();
    let said = bounded::say(command, "SHEEN_REAL=1", LIMIT).with_context(|| format!("{command:?}"))?;
    let all = said.all();
    if !said.is_success() {
        let start: String = all.chars().take(2000).collect();
        bail!("{command:?}: {}: {start}", said.end.describe());
    }
    println!("{:.1} s: {:?}", begun.elapsed().as_secs_f64(), command.get_program());
    Ok(said.output)
}

fn shell(script: &str, directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(directory);
    command
}

fn has(program: &str) -> bool {
    let mut command = Command::new("which");
    command.arg(program);
    bounded::say(&mut command, "SHEEN_WHICH=1", Duration::from_secs(10)).is_ok_and(|said| said.is_success())
}

/// Files and bytes below a directory.
fn weigh(directory: &Path) -> (usize, u64) {
    let (mut file_count, mut byte_count) = (0, 0);
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            file_count += 1;
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                byte_count += meta.len();
            }
        }
    }
    (file_count, byte_count)
}

/// /usr/include whole and the parts of /usr/share, smallest files first, until there are enough.
fn choose() -> (Vec<PathBuf>, usize) {
    let mut parts: Vec<(PathBuf, usize, u64)> = fs::read_dir("/usr/share")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .chain([PathBuf::from("/usr/include")])
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()))
        .map(|path| {
            let (file_count, byte_count) = weigh(&path);
            (path, file_count, byte_count)
        })
        .collect();
    parts.sort_by_key(|(_, file_count, byte_count)| byte_count / (*file_count as u64 + 1));
    let (mut chosen, mut file_count, mut byte_count) = (Vec::new(), 0, 0);
    for (path, files, bytes) in parts {
        if file_count + files <= FILE_COUNT_MAX && byte_count + bytes <= BYTE_COUNT_MAX {
            chosen.push(path);
            file_count += files;
            byte_count += bytes;
        }
    }
    (chosen, file_count)
}

/// `cp -a` in, down, up, `diff -r`, `rm -rf`, space back.
fn copy_usr(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (chosen, file_count) = choose();
    if file_count < FILE_COUNT_MIN {
        return skip(&format!("/usr/share and /usr/include have only {file_count} files that fit"));
    }
    let cluster = start(context)?;
    let before = sys::space(&cluster.mount)?;
    let copy = cluster.mount.join("usr");
    fs::create_dir(&copy)?;
    println!("{file_count} files in {} directories", chosen.len());
    run(Command::new("cp").arg("-a").args(&chosen).arg(&copy))?;
    cluster.down()?;
    cluster.up()?;
    for source in &chosen {
        let name = source.file_name().context("a name")?;
        run(Command::new("diff").args(["-r", "--no-dereference"]).arg(source).arg(copy.join(name)))?;
    }
    run(Command::new("rm").arg("-rf").arg(&copy))?;
    // Objects are destroyed after their names; metadata give their space back when their log is recycled.
    wait_until(Duration::from_secs(90), "`df` is back at its start value", || {
        let now = sys::space(&cluster.mount)?;
        Ok(now.available_bytes + before.total_bytes / 100 >= before.available_bytes)
    })?;
    cluster.down().map(drop)
}

fn git(context: &Context) -> Result<()> {
    if !has("git") {
        return skip("no git");
    }
    let cluster = start(context)?;
    let script = "
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        mkdir origin; cd origin; git init -q .
        for d in 1 2 3 4 5 6 7 8 9 10; do
            mkdir d$d
            for f in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do seq $d $((d * f + 50)) > d$d/f$f; done
            git add -A; git commit -q -m \"commit $d\"
        done";
    run(&mut shell(script, &context.work))?;
    let origin = context.work.join("origin");
    let script = format!(
        "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
        git clone -q --no-hardlinks '{}' clone; cd clone
        test -z \"$(git status --porcelain)\"; git fsck --full --strict
        seq 1 5 > d1/f1; test -n \"$(git status --porcelain)\"; git checkout -q -- .; test -z \"$(git status --porcelain)\"
        git gc -q; git fsck --full; diff -r --exclude=.git . '{}'",
        origin.display(),
        origin.display()
    );
    run(&mut shell(&script, &cluster.mount))?;
    cluster.down().map(drop)
}

fn cargo_build(context: &Context) -> Result<()> {
    if !has("cargo") {
        return skip("no cargo");
    }
    let cluster = start(context)?;
    let package = cluster.mount.join("small");
    fs::create_dir_all(package.join("src"))?;
    fs::write(
        package.join("Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )?;
    fs::write(
        package.join("src/lib.rs"),
        "pub fn twice(n: u32) -> u32 { n * 2 }\n#[test] fn t() { assert_eq!(twice(2), 4); }\n",
    )?;
    fs::write(package.join("src/main.rs"), "fn main() { println!(\"{}\", small::twice(21)); }\n")?;
    let cargo = |arguments: &[&str]| -> Result<String> {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(&package).env("CARGO_TARGET_DIR", package.join("target"));
        command.env_remove("RUSTFLAGS").env("CARGO_INCREMENTAL", "1");
        run(&mut command)
    };
    expect_eq(cargo(&["run", "--offline", "--quiet"])?.trim(), "42", "what the program printed")?;
    cargo(&["test", "--offline", "--quiet"])?;
    fs::write(package.join("src/main.rs"), "fn main() { println!(\"{}\", small::twice(4)); }\n")?;
    expect_eq(cargo(&["run", "--offline", "--quiet"])?.trim(), "8", "after a change")?;
    cluster.down().map(drop)
}

/// Four processes on two mounts insert into one database through its locks.
fn sqlite(context: &Context) -> Result<()> {
    if !has("sqlite3") {
        return skip("no sqlite3");
    }
    let cluster = start(context)?;
    let second = cluster.mount_again("mnt2")?;
    run(&mut shell("sqlite3 data.db 'create table t (who, number, unique (who, number));'", &cluster.mount))?;
    let inserts = 60;
    std::thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..4)
            .map(|who| {
                let directory = if who % 2 == 0 { &cluster.mount } else { &second };
                scope.spawn(move || {
                    let script = format!(
                        "for n in $(seq 1 {inserts}); do sqlite3 -cmd '.timeout 60000' data.db \"insert into t values ({who}, $n);\"; done"
                    );
                    run(&mut shell(&script, directory))
                })
            })
            .collect();
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })?;
    for directory in [&cluster.mount, &second] {
        let said =
            run(&mut shell("sqlite3 data.db 'pragma integrity_check; select count(*) from t;'", directory))?;
        expect_eq(said.trim(), format!("ok\n{}", 4 * inserts), "the database")?;
    }
    cluster.unmount(&second)?;
    cluster.down().map(drop)
}

fn tar_and_rsync(context: &Context) -> Result<()> {
    let source = Path::new("/usr/include/linux");
    if !source.exists() {
        return skip("no /usr/include/linux");
    }
    let cluster = start(context)?;
    let script = "tar -C /usr/include -cf archive.tar linux; mkdir out; tar -C out -xf archive.tar; diff -r /usr/include/linux out/linux
        tar -C out -cf again.tar linux; tar -df again.tar -C out";
    run(&mut shell(script, &cluster.mount))?;
    if !has("rsync") {
        cluster.down()?;
        return skip("no rsync (tar was checked)");
    }
    run(&mut shell("rsync -a /usr/include/linux/ synced/", &cluster.mount))?;
    let again =
        run(&mut shell("rsync -a --itemize-changes --stats /usr/include/linux/ synced/", &cluster.mount))?;
    let copied = again.lines().find(|line| line.contains("files transferred")).unwrap_or_default().to_owned();
    expect(copied.trim_end().ends_with(": 0"), &format!("the second rsync copies nothing: {copied}"))?;
    cluster.down().map(drop)
}
