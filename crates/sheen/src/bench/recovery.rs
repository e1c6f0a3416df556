//! `sheen bench recovery`: how long mounts wait when servers, and other mounts, are killed, and whether anything is lost.
//!
//! A round: all mounts work (`load`), victims are killed with SIGKILL and servers started again at once, where they were. A mount has
//! made progress when each of its threads has ended an operation that began after the kill: its names need the MDT, each of its
//! data operations (write and fsync a file that lies on all OSTs) needs all of them. What was synced is read through another mount then.

mod evictions;
pub mod load;
mod loads;
mod report;

use super::bed::{Bed, BedOptions};
use crate::cli::Transport;
use crate::progress::{Goal, Progress};
use crate::say;
use crate::sys;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use evictions::{Evictions, Look};
use loads::{Load, LoadOptions};
use report::{Figure, Report, Round};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Args)]
pub struct Recovery {
    /// Empty or new, on a local file system: a cluster of its own is made in it, and removed again
    pub dir: PathBuf,
    /// Mounts, each with a process and a load of its own
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// Which servers are killed [default: each case, one after the other]
    #[arg(long = "case", value_name = "CASE", value_enum, value_delimiter = ',')]
    pub cases: Vec<Case>,
    /// Mounts that are killed in the same moment [default: 0,10]
    #[arg(long, value_name = "K", value_delimiter = ',')]
    pub kill_clients: Vec<u32>,
    /// Mounts that are killed are as on other machines: servers see it when their leases have ended
    #[arg(long)]
    pub elsewhere: bool,
    /// Rounds of each case
    #[arg(short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// OSTs; each file of a load is on all of them
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub osts: u16,
    /// Milliseconds between two operations of a thread of a load
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub pause_ms: u32,
    /// How the kernel talks to the mounts
    #[arg(long, value_enum, default_value_t)]
    pub transport: Transport,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// Which servers are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// None: what the load waits for anyway
    None,
    /// The only MDT
    Mdt,
    /// One OST
    Ost,
    Mgs,
    /// All servers at once
    All,
    MdtAndMgs,
}

impl Case {
    const ALL: [Case; 6] = [Case::None, Case::Mdt, Case::Ost, Case::Mgs, Case::All, Case::MdtAndMgs];

    fn word(self) -> &'static str {
        match self {
            Case::None => "none",
            Case::Mdt => "mdt",
            Case::Ost => "ost",
            Case::Mgs => "mgs",
            Case::All => "all",
            Case::MdtAndMgs => "mdt-and-mgs",
        }
    }

    fn is_killed(self, server: &str) -> bool {
        match self {
            Case::None => false,
            Case::Mdt => server == "mdt0000",
            Case::Ost => server == "ost0000",
            Case::Mgs => server == "mgs",
            Case::All => true,
            Case::MdtAndMgs => ["mdt0000", "mgs"].contains(&server),
        }
    }
}

impl Recovery {
    fn cases(&self) -> Vec<Case> {
        super::or_usual(&self.cases, &Case::ALL)
    }

    /// # Errors
    /// Nobody would be left.
    fn killed_counts(&self) -> Result<Vec<u32>> {
        if let Some(count) = self.kill_clients.iter().find(|count| **count >= self.clients) {
            bail!("--kill-clients {count} leaves none of {} mounts; give more --clients", self.clients);
        }
        let mut usual = vec![0, 10.min(self.clients - 1)];
        usual.dedup();
        Ok(super::or_usual(&self.kill_clients, &usual))
    }
}

/// The command. Figures are printed also when something was lost.
///
/// # Errors
/// A cluster that does not start, or does not come back; or a mount that lives did not go on, a system call of it has failed, a synced
/// file is broken, a mount that lives was evicted.
pub fn run(options: &Recovery) -> Result<()> {
    let killed_counts = options.killed_counts()?;
    sys::outlive_readers();
    let elsewhere_count = killed_counts.iter().copied().max().filter(|_| options.elsewhere).unwrap_or(0);
    let mut bed = Bed::start(
        &options.dir,
        BedOptions {
            fsname: "recovery",
            mount_count: options.clients,
            ost_count: options.osts,
            elsewhere_from: options.clients - elsewhere_count,
            stripe_bytes: Some(load::STRIPE_BYTES),
            transport: options.transport,
        },
    )?;
    let mut report = Report::new(options);
    let round_count = options.cases().len() * killed_counts.len() * options.rounds as usize;
    let mut evictions = Evictions::default();
    let progress = Progress::begin("recovery", "rounds", Goal::items(round_count as u64));
    for case in options.cases() {
        for killed_count in &killed_counts {
            let mut rounds = Vec::new();
            for number in 1..=options.rounds {
                let what = format!("{}, {killed_count} mounts killed", case.word());
                progress.at(&what);
                let round = round(&mut bed, &mut evictions, options, (case, *killed_count));
                rounds.push(round.with_context(|| format!("{what}, round {number}"))?);
                progress.add(1, 0);
            }
            report.add(Figure::of(case.word(), *killed_count, &rounds));
        }
    }
    drop(progress);
    drop(bed);
    say::outcome(&if options.json { report.to_json()? } else { report.to_text() })?;
    report.check()
}

/// One round. The last mounts are those that are killed; the first one lives.
fn round(
    bed: &mut Bed,
    evictions: &mut Evictions,
    options: &Recovery,
    (case, killed_count): (Case, u32),
) -> Result<Round> {
    bed.mount_all()?;
    let mut dirs = vec![load::SHARED.to_owned(), load::DATA.to_owned()];
    dirs.extend((0..options.clients).map(load::own_dir));
    let name = bed.begin_round(&dirs)?;
    let (victims, pids) = (bed.servers(|server| case.is_killed(server))?, bed.pids());
    let mut evicted_count = evictions.begin_round(Look::at(bed));
    let load_options = LoadOptions { ost_count: options.osts, pause_ms: options.pause_ms };
    let start = |index| Load::start(&bed.mount_point(index).join(&name), index, load_options);
    let mut loads = (0..options.clients).map(start).collect::<Result<Vec<Load>>>()?;
    loads.iter_mut().try_for_each(Load::wait_warm)?;

    let survivor_count = options.clients - killed_count;
    let killed_ns = bed.kill(&pids, &victims, survivor_count..options.clients)?;
    evictions.note_killed(killed_count.into());
    let mut round = Round { killed_ns, ..Round::default() };
    let survivors = || 0..survivor_count as usize;
    for load in &mut loads[survivors()] {
        load.ask_progress_after(killed_ns)?;
    }
    round.listening_ns = bed.restart(&victims)?;
    for (index, load) in loads[survivors()].iter_mut().enumerate() {
        round.went_on(index, load.progress()?);
    }
    loads.iter_mut().try_for_each(Load::ask_stop)?;
    let reports = loads.iter_mut().map(Load::report).collect::<Result<Vec<_>>>()?;
    drop(loads);
    for (index, report) in reports.iter().enumerate() {
        round.operation_count += report.operation_count;
        if survivors().contains(&index) {
            round.longest_ns = round.longest_ns.max(report.longest_ns);
            round.failed_count += report.failed_count;
            round.complaints.extend(report.error.clone());
        }
    }
    // Those that were killed come back first: servers keep their locks until then, or until they have long been silent.
    bed.mount_all()?;
    for (index, report) in (0..).zip(&reports) {
        // What the mount that wrote it has in its cache proves nothing; one that was killed has none.
        let reader = if index < survivor_count { (index + 1) % options.clients } else { index };
        let directory = bed.mount_point(reader).join(&name);
        for number in &report.synced {
            let path = directory.join(load::DATA).join(load::file_name(index, *number));
            look_at_synced(&path, &load::contents(index, *number, options.osts), &mut round);
        }
        if let Some(number) = report.own_synced {
            let path = directory.join(load::own_file(index));
            look_at_synced(&path, &load::contents(index, number, options.osts), &mut round);
        }
    }
    evicted_count += evictions.look(Look::at(bed));
    round.evicted_count = evicted_count;
    bed.end_round(&name)?;
    Ok(round)
}

/// Reads a file that was synced.
fn look_at_synced(path: &Path, wanted: &[u8], round: &mut Round) {
    match fs::read(path) {
        Ok(bytes) if bytes == wanted => round.sound_count += 1,
        Ok(_) => round.broken(&format!("{} is not what was synced", path.display())),
        Err(error) => round.broken(&format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests;
