//! fsx 0.3 with every operation weighted.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::bounded::{self, Said};
use crate::case::{Bed, Case, Context, Rounds, Suite, expect, note, skip};

/// The suite.
pub static SUITE: Suite = Suite { name: "fsx", bed: Bed::Pair, cases: CASES, rounds: ROUNDS, canary: None };

static CASES: &[Case] = &[
    Case { name: "every_operation", seconds: 900, run: every_operation },
    Case { name: "no_msync_after_write", seconds: 900, run: no_msync },
    Case { name: "small_operations", seconds: 300, run: small_operations },
    Case { name: "canary_other_writer", seconds: 120, run: canary },
];

static ROUNDS: &[Rounds] = &[
    Rounds { case: "every_operation", usual: 20_000, thorough: 200_000, round_millis_max: 100 },
    Rounds { case: "no_msync_after_write", usual: 50_000, thorough: 50_000, round_millis_max: 100 },
    Rounds { case: "small_operations", usual: 10_000, thorough: 100_000, round_millis_max: 100 },
];

/// fsx is ended so long before the case, which then says where fsx was.
const REPORT_TIME: Duration = Duration::from_secs(20);

/// Weights every operation that fsx has.
pub(super) const CONFIGURATION: &str = "\
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1.0
invalidate = 1.0
mapread = 5.0
mapwrite = 5.0
read = 5.0
write = 5.0
truncate = 3.0
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 1.0
punch_hole = 2.0
sendfile = 2.0
posix_fadvise = 1.0
copy_file_range = 2.0
";

struct Exercise<'a> {
    configuration: &'a str,
    operation_count: u64,
    seed: u64,
    limit: Duration,
}

fn exercise(context: &Context, path: &Path, exercise: &Exercise<'_>) -> Result<Said> {
    let binary = context.options.tools.join("bin/fsx");
    if !binary.exists() {
        return skip(&format!("{} is not installed (cargo install fsx)", binary.display()));
    }
    let configuration = context.work.join(format!("fsx{}.toml", exercise.seed));
    std::fs::write(&configuration, exercise.configuration)?;
    let mut command = Command::new(binary);
    command.arg("-f").arg(&configuration).arg("-P").arg(&context.work);
    command.args(["-N", &exercise.operation_count.to_string(), "-S", &exercise.seed.to_string()]).arg(path);
    Ok(bounded::say(&mut command, "SHEEN_FSX=1", exercise.limit)?)
}

/// fsx in batches with a seed and a file each, so that a slow machine does fewer of them instead of failing.
const BATCH: u64 = 5_000;

fn must_pass(context: &Context, configuration: &str) -> Result<()> {
    let operation_count = context.round_count;
    let limit = context.limit.saturating_sub(REPORT_TIME);
    let mut done = 0;
    while done < operation_count && (done == 0 || !context.is_enough(done, "operations")) {
        let now = BATCH.min(operation_count - done);
        let now =
            if context.options.count.is_some() || context.options.thorough { operation_count } else { now };
        let seed = context.seed + done;
        let said = exercise(
            context,
            &context.a.join(format!("file{done}")),
            &Exercise { configuration, operation_count: now, seed, limit },
        )?;
        let all = said.all();
        let lines: Vec<&str> = all.lines().collect();
        let last = lines.get(lines.len().saturating_sub(25)..).unwrap_or_default().join("\n");
        expect(
            said.is_success(),
            &format!("fsx, {now} operations, seed {seed}: {}\n{last}", said.end.describe()),
        )?;
        done += now;
    }
    note(&format!("{done} operations from seed {}", context.seed));
    Ok(())
}

fn every_operation(context: &Context) -> Result<()> {
    must_pass(context, CONFIGURATION)
}

/// Mapped stores without msync: what the daemon never hears of until the kernel writes back.
fn no_msync(context: &Context) -> Result<()> {
    let configuration = format!("nomsyncafterwrite = true\n{CONFIGURATION}");
    must_pass(context, &configuration)
}

/// Operations of at most 5,000 bytes: many to a page, many across its border.
fn small_operations(context: &Context) -> Result<()> {
    let configuration =
        CONFIGURATION.replace("flen = 1048576", "flen = 65536").replace("max = 131072", "max = 5000");
    must_pass(context, &configuration)
}

/// Somebody else writes into the file all the time: fsx must notice, otherwise it compares nothing here.
fn canary(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    // No truncates and mappings: a truncate under a mapping is a SIGBUS, which would prove nothing.
    let configuration = "[weights]\nread = 1.0\nwrite = 1.0\nmapread = 0.0\nmapwrite = 0.0\ntruncate = 0.0\n";
    let done = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // The file may not be there yet; what counts is that it changes under fsx.
                if let Ok(file) = std::fs::OpenOptions::new().write(true).open(&b) {
                    let _ = file.write_all_at(&[0xC5; 4096], 8192);
                }
            }
        });
        let limit = Duration::from_secs(100);
        let said =
            exercise(context, &a, &Exercise { configuration, operation_count: 20_000, seed: 1, limit });
        done.store(true, Ordering::Relaxed);
        said
    })?;
    expect(!said.is_success(), "somebody else wrote into the file and fsx did not notice")?;
    let noticed = ["miscompare", "size"].iter().any(|word| said.all().to_lowercase().contains(word));
    expect(noticed, &format!("fsx failed for another reason: {}: {}", said.end.describe(), said.all()))
}
