//! pjdfstest 0.2, compared with what the same command does on ext4.
//!
//! The tests that remount read-only run in a second process: in the first, other tests still hold descriptors, so that the kernel
//! answers EBUSY to the remount on every file system.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::bounded;
use crate::case::{Bed, Case, Context, Suite, expect, expect_eq, skip};
use crate::sweep;
use crate::sys;

/// The suite.
pub static SUITE: Suite =
    Suite { name: "pjdfstest", bed: Bed::Pair, cases: CASES, rounds: &[], canary: None };

static CASES: &[Case] = &[
    Case { name: "all", seconds: 600, run: all },
    Case { name: "canary_tiny_disk", seconds: 120, run: canary },
];

const LIMIT: Duration = Duration::from_secs(500);
const SHORT: Duration = Duration::from_secs(60);
/// How many tests pjdfstest 0.2 has.
const TEST_COUNT: usize = 398;

fn configuration(allow_remount: bool) -> String {
    // naptime must be longer than the tick of the clock that stamps files (4 ms here, 10 ms on a kernel of 100 Hz).
    let birth_times = if sys::kernel_asks_for_birth_times() { "stat_st_birthtime = {}\n" } else { "" };
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\n{birth_times}utime_now = {{}}\n\
         utimensat = {{}}\n[settings]\nnaptime = 0.02\nallow_remount = {allow_remount}\n[dummy_auth]\n\
         entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    )
}

fn mount(arguments: &[&str], point: &Path) -> Result<()> {
    fs::create_dir_all(point)?;
    let said = bounded::say(Command::new("mount").args(arguments).arg(point), "SHEEN_MOUNT=1", SHORT)?;
    expect(said.is_success(), &format!("mount {arguments:?}: {}", said.all()))
}

fn unmount(point: &Path) {
    // Whatever stays is swept after the case.
    let _ = bounded::say(Command::new("umount").arg(point), "SHEEN_MOUNT=1", SHORT);
}

/// Verdict by test name.
type Verdicts = BTreeMap<String, String>;

/// What a run on one directory gave: verdicts, and everything that was printed.
struct Ran {
    verdicts: Verdicts,
    output: String,
}

fn run(context: &Context, directory: &Path, second: &Path) -> Result<Ran> {
    let mut ran = Ran { verdicts: Verdicts::new(), output: String::new() };
    for (allow_remount, patterns) in [(false, &[][..]), (true, &["erofs"][..])] {
        let file = context.work.join("pjdfstest.toml");
        fs::write(&file, configuration(allow_remount))?;
        let mut command = Command::new(binary(context)?);
        command.arg("-c").arg(&file).arg("-p").arg(directory).arg("-s").arg(second).args(patterns);
        let said = bounded::say(command.env("RUST_BACKTRACE", "0"), "SHEEN_PJD=1", LIMIT)?;
        ran.verdicts.extend(verdicts(&said.output));
        ran.output.push_str(&said.all());
        if !matches!(said.end, bounded::End::Exited(_)) {
            bail!("pjdfstest: {}\n{}", said.end.describe(), ran.output);
        }
    }
    Ok(ran)
}

fn binary(context: &Context) -> Result<PathBuf> {
    let binary = context.options.tools.join("bin/pjdfstest");
    if binary.exists() { Ok(binary) } else { skip(&format!("{} is not installed", binary.display())) }
}

fn verdicts(output: &str) -> Verdicts {
    output
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(name, verdict)| name.contains("::") && ["ok", "FAILED", "skipped"].contains(verdict))
        .map(|(name, verdict)| (name.trim_end().to_owned(), verdict.to_owned()))
        .collect()
}

fn names_with<'a>(verdicts: &'a Verdicts, verdict: &str) -> Vec<&'a str> {
    verdicts.iter().filter(|(_, found)| *found == verdict).map(|(name, _)| name.as_str()).collect()
}

/// The same command on ext4, remembered between runs beside the tools.
fn reference(context: &Context, second: &Path) -> Result<Verdicts> {
    let without = if sys::kernel_asks_for_birth_times() { "" } else { "-without-birth-times" };
    let cached = context.options.tools.join(format!("pjdfstest-ext4{without}.txt"));
    if let Ok(text) = fs::read_to_string(&cached) {
        return Ok(verdicts(&text));
    }
    let image = context.work.join("ext4.img");
    fs::File::create(&image)?.set_len(256 << 20)?;
    let said = bounded::say(Command::new("mkfs.ext4").arg("-q").arg(&image), "SHEEN_MKFS=1", SHORT)?;
    expect(said.is_success(), &format!("mkfs.ext4: {}", said.all()))?;
    // pjdfstest binds sockets, whose paths must be short.
    let short = sweep::short_directory()?;
    let point = short.path().join("ext4");
    mount(&["-o", "loop", &image.to_string_lossy()], &point)?;
    let ran = run(context, &point, second);
    unmount(&point);
    let ran = ran?;
    // Only complete runs are worth remembering.
    if ran.verdicts.len() == TEST_COUNT {
        fs::write(&cached, &ran.output)?;
    }
    Ok(ran.verdicts)
}

fn all(context: &Context) -> Result<()> {
    binary(context)?;
    let second = context.work.join("second");
    mount(&["-t", "tmpfs", "none"], &second)?;
    let reference = reference(context, &second)?;
    // A plain directory is not remounted: in local mode the reference run itself is what is checked.
    let ran = if context.options.is_local() {
        Ran { verdicts: reference.clone(), output: String::new() }
    } else {
        run(context, &context.a, &second)?
    };
    unmount(&second);
    let failed = names_with(&ran.verdicts, "FAILED");
    if !failed.is_empty() {
        println!("{}", ran.output);
    }
    expect_eq(failed, Vec::<&str>::new(), "failed tests")?;
    let skipped: Vec<&str> = names_with(&ran.verdicts, "skipped")
        .into_iter()
        .filter(|name| reference.get(*name).is_some_and(|verdict| verdict != "skipped"))
        .collect();
    // It asks pathconf(2), which knows no link limit of FUSE, and skips itself; posix/link_count_limit tests ours.
    let skipped: Vec<&str> = skipped.into_iter().filter(|name| *name != "link::link_count_max").collect();
    expect_eq(skipped, Vec::<&str>::new(), "skipped tests that run on ext4")?;
    expect_eq(ran.verdicts.len(), TEST_COUNT, "tests")?;
    println!("pjdfstest: {} ok", names_with(&ran.verdicts, "ok").len());
    Ok(())
}

/// A disk of 40 KiB must make tests fail, and the harness must see it.
fn canary(context: &Context) -> Result<()> {
    binary(context)?;
    let short = sweep::short_directory()?;
    let (tiny, second) = (short.path().join("tiny"), context.work.join("second"));
    mount(&["-t", "tmpfs", "-o", "size=40k,nr_inodes=12", "none"], &tiny)?;
    mount(&["-t", "tmpfs", "none"], &second)?;
    let ran = run(context, &tiny, &second);
    unmount(&tiny);
    unmount(&second);
    let ran = ran.context("the canary run")?;
    let failed = names_with(&ran.verdicts, "FAILED").len();
    expect(failed > 0, "no test fails on a disk of 40 KiB")
}
