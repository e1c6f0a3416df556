//! Processes that stream beside a walk: files larger than what servers keep, again and again past the page cache, at nice 19.

use super::place::Place;
use super::plan::Plan;
use super::worker::{MIB, aligned, stream_options};
use crate::sys;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

/// How a reader is started; only by ourselves.
#[derive(Clone, Debug, Args)]
pub struct Stream {
    #[arg(long)]
    pub file: PathBuf,
}

/// The reader's whole life: it ends with its input, so that it does not outlive who started it.
///
/// # Errors
/// The file cannot be read.
pub fn read(stream: &Stream) -> Result<()> {
    let file = stream_options(true).read(true).open(&stream.file)?;
    let block_count = file.metadata()?.len() / MIB;
    let mut buffer = vec![0; MIB as usize + BLOCK];
    let block = aligned(&mut buffer)?;
    std::thread::spawn(|| {
        // Whether it ends or fails: nobody is there any more.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    println!("ready");
    std::io::stdout().flush()?;
    for number in (0..block_count).cycle() {
        file.read_exact_at(block, number * MIB)?;
    }
    bail!("{} is empty", stream.file.display())
}

/// All readers of a phase, which end when this is dropped.
pub struct Readers {
    children: Vec<Child>,
    /// The mount through which they read, where it is not the one that is measured.
    mount_pid: Option<u32>,
}

impl Readers {
    /// Returns when all of them have begun.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(plan: &Plan, place: &Place) -> Result<Readers> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut readers = Readers { children: Vec::new(), mount_pid: place.stream_mount_pid() };
        for index in 0..plan.beside_proc_count {
            let mut command = Command::new("nice");
            command.args(["-n", "19"]).arg(&program).args(["bench", "reader", "--file"]);
            command.arg(place.streams_as_read().join(index.to_string()));
            readers.children.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        }
        for child in &mut readers.children {
            let output = child.stdout.as_mut().context("the output of a reader is a pipe")?;
            let mut line = String::new();
            if BufReader::new(output).read_line(&mut line)? == 0 {
                bail!("a reader ended early ({}); see above", child.wait()?);
            }
        }
        Ok(readers)
    }

    /// # Errors
    /// One of them has ended.
    fn used(&self) -> Result<Used> {
        let mut used = Used::default();
        for child in &self.children {
            used.cpu += sys::cpu_time(child.id())?;
            used.byte_count += sys::io_count(child.id(), "rchar").context("a reader has ended")?;
        }
        used.cpu += self.mount_pid.map_or(Ok(Duration::ZERO), sys::cpu_time)?;
        Ok(used)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // One that has ended is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What readers have used and read since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Of the readers, and of the mount through which they read if it is one of their own.
    pub cpu: Duration,
    pub byte_count: u64,
}

/// Who used how much of the machine in one phase, besides the processes of the mount that is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    pub elapsed: Duration,
    pub tool_cpu: Duration,
    /// `None` when there were no readers.
    pub streams: Option<Used>,
}

/// Runs from before a phase until after it.
pub struct ShareMeter<'a> {
    readers: Option<&'a Readers>,
    used: Used,
    tool_cpu: Duration,
    started: Instant,
}

impl<'a> ShareMeter<'a> {
    /// # Errors
    /// A reader has ended.
    pub fn start(readers: Option<&'a Readers>) -> Result<ShareMeter<'a>> {
        let used = readers.map(Readers::used).transpose()?.unwrap_or_default();
        Ok(ShareMeter { readers, used, tool_cpu: sys::children_cpu_time()?, started: Instant::now() })
    }

    /// # Errors
    /// A reader has ended: what was measured had less beside it.
    pub fn stop(self) -> Result<Shares> {
        let elapsed = self.started.elapsed();
        let since = |used: Used| Used {
            cpu: used.cpu.saturating_sub(self.used.cpu),
            byte_count: used.byte_count.saturating_sub(self.used.byte_count),
        };
        Ok(Shares {
            elapsed,
            tool_cpu: sys::children_cpu_time()?.saturating_sub(self.tool_cpu),
            streams: self.readers.map(Readers::used).transpose()?.map(since),
        })
    }
}
