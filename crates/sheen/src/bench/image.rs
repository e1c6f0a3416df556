//! `sheen bench image`: many diskless nodes at once, as far as servers see them: each a mount of its own that knows nothing yet, and all
//! read every file of one image.
//!
//! A round: all servers are ended and started again, the image is mounted by so many processes, the machine's caches are dropped, and
//! all readers begin together. What each reads is compared with the source by a sum. Clients are on this machine, so that what they
//! use of its processors and memory is not there for the servers.

pub mod reader;
mod report;

use super::ab::side::{Config, Mounts};
use super::bed::{Bed, BedOptions, run as run_ours, sheen};
use super::cost::{Daemons, Meter};
use super::make_cold;
use crate::cli::Transport;
use crate::progress::{Goal, Progress};
use crate::say;
use crate::sys;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use reader::{Reader, Seen};
use report::{Report, Round};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

const FSNAME: &str = "image";
/// Where the image lies below the root of the file system.
const IMAGE: &str = "images/bench";

#[derive(Clone, Debug, Args)]
pub struct Image {
    /// Empty or new, on a local file system: a cluster of its own is made in it, and removed again
    pub dir: PathBuf,
    /// What the image is made from, as for sheen image create
    #[arg(long, value_name = "SOURCE")]
    pub from: PathBuf,
    /// Mounts, each with a process that reads
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// OSTs, each a process of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub osts: u16,
    /// Rounds
    #[arg(short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How the kernel talks to the mounts
    #[arg(long, value_enum, default_value_t)]
    pub transport: Transport,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// The command.
///
/// # Errors
/// A cluster that does not start, an image that cannot be made, or a mount that shows something else than the source.
pub fn run(options: &Image) -> Result<()> {
    if sys::uid() != 0 {
        bail!("only root makes images and caches cold; run this as root");
    }
    sys::outlive_readers();
    let bed = Bed::start(
        &options.dir,
        BedOptions {
            fsname: FSNAME,
            mount_count: 1,
            ost_count: options.osts,
            elsewhere_from: 1,
            stripe_bytes: None,
            transport: options.transport,
        },
    )?;
    let image = bed.mount_point(0).join(IMAGE);
    fs::create_dir(image.parent().context("it has a parent")?)?;
    run_ours(sheen(&["image", "create"])?.arg(&image).arg("--from").arg(&options.from))?;
    let wanted = reader::read_all(&image)?;
    let source = reader::read_all(&options.from)?;
    ensure!(wanted == source, "the image is not as its source, which may have changed meanwhile: try again");
    let mut rounds = Vec::new();
    let progress = Progress::begin("image", "rounds", Goal::items(u64::from(options.rounds)));
    for number in 1..=options.rounds {
        let round = round(&bed, options, &wanted);
        rounds.push(round.with_context(|| format!("round {number}"))?);
        progress.add(1, wanted.total_bytes.saturating_mul(u64::from(options.clients)));
    }
    drop(progress);
    drop(bed);
    let report = Report::of(options, &wanted, &rounds);
    say::outcome(&if options.json { report.to_json()? } else { report.to_text() })
}

fn round(bed: &Bed, options: &Image, wanted: &Seen) -> Result<Round> {
    bed.start_anew()?;
    let source = format!("{}/{IMAGE}", bed.source()?);
    let config = Config::parse(&format!("ro transport={}", options.transport.word()))?;
    let mounts = Mounts::start(&source, options.clients, &config)?;
    let daemons = Daemons::of_all(mounts.points()).context("a mount is gone already")?;
    let mut readers = mounts.points().iter().map(|point| Reader::start(point)).collect::<Result<Vec<_>>>()?;
    readers.iter_mut().try_for_each(Reader::wait_ready)?;
    sys::write_pages(&options.dir)?;
    make_cold(None)?;
    let meter = Meter::start(Some(daemons)).context("the servers cannot be asked")?;
    let begun = Instant::now();
    readers.iter_mut().try_for_each(Reader::begin)?;
    let seen = readers.iter_mut().map(Reader::seen).collect::<Result<Vec<_>>>()?;
    let elapsed = begun.elapsed();
    let operation_count = u64::from(options.clients) * wanted.file_count;
    let cost = meter.stop(operation_count, operation_count).context("a process has ended meanwhile")?;
    for (index, (seen, _)) in seen.iter().enumerate() {
        ensure!(
            seen == wanted,
            "mount {index} shows something else than the source: {seen:?}, not {wanted:?}"
        );
    }
    drop(readers);
    mounts.end()?;
    Ok(Round { elapsed, each: seen.into_iter().map(|(_, taken)| taken).collect(), cost })
}

#[cfg(test)]
mod tests;
