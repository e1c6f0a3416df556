//! What this machine allows: null file systems on our own FUSE layer, without and with an RPC for each request.
//!
//! They are served by a process of their own (this program again), as every mount is: whoever waits for a file system
//! that he serves himself cannot even be killed.

mod null_rpc;

use super::place::{Place, mapped_block};
use anyhow::{Context, Result, bail};
use clap::Args;
use fuse::null::{Contents, NullFs};
use fuse::{Handler, MountOptions, Session};
use null_rpc::NullRpc;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Floor {
    /// FUSE alone
    Fuse,
    /// FUSE, and one RPC per request to a null server in the same process, as `sheen up` has it
    Rpc,
    /// The same over loopback TCP, as `sheen up --split` has it
    RpcTcp,
}

impl Floor {
    fn word(self) -> &'static str {
        match self {
            Floor::Fuse => "fuse",
            Floor::Rpc => "rpc",
            Floor::RpcTcp => "rpc-tcp",
        }
    }
}

/// What is read of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stored {
    /// Zeros, past the page cache
    Zeros,
    /// What `bench mmap` has written, through the page cache
    Mapped,
    /// Zeros; names and attributes last, as those of a real mount
    Listed,
}

impl Stored {
    fn word(self) -> &'static str {
        match self {
            Stored::Zeros => "zeros",
            Stored::Mapped => "mapped",
            Stored::Listed => "listed",
        }
    }
}

/// Longer than any phase.
const LISTED_TTL: Duration = Duration::from_secs(24 * 3600);

/// How the process that serves is started; only by ourselves.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    #[arg(value_enum)]
    floor: Floor,
    dir: PathBuf,
    #[arg(long, value_enum, default_value = "zeros")]
    stored: Stored,
}

/// Body of that process: mounts, says so, and serves until its standard input ends.
///
/// # Errors
/// It cannot be mounted.
pub fn serve(task: &Serve) -> Result<()> {
    let null_fs = match task.stored {
        Stored::Zeros => NullFs::new(0),
        Stored::Mapped => NullFs::with(Contents::cached(&mapped_block())),
        Stored::Listed => NullFs::new(0).cached_for(LISTED_TTL),
    };
    let handler: Arc<dyn Handler> = match task.floor {
        Floor::Fuse => Arc::new(null_fs),
        Floor::Rpc => NullRpc::new(null_fs, false).context("cannot start a null server")?,
        Floor::RpcTcp => NullRpc::new(null_fs, true).context("cannot start a null server")?,
    };
    let (mut session, _) =
        Session::mount(&task.dir, MountOptions::default()).context("cannot mount the null file system")?;
    session.run(handler).context("cannot serve the null file system")?;
    writeln!(std::io::stdout(), "ready")?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A null file system, mounted for as long as this lives.
pub struct NullMount {
    dir: PathBuf,
    /// Its standard input is open until it is to end.
    server: Option<Child>,
}

impl NullMount {
    /// # Errors
    /// It cannot be mounted.
    pub fn new(floor: Floor, stored: Stored) -> Result<NullMount> {
        let dir = std::env::temp_dir().join(format!("sheen-null-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut null = NullMount { dir, server: None };
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(["bench", "null-mount", floor.word()]).arg(&null.dir).args(["--stored", stored.word()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let server = null.server.insert(command.spawn().context("cannot start a null file system")?);
        let output = server.stdout.take().context("the output of the null file system is a pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line != "ready\n" {
            bail!("the null file system did not start; see above");
        }
        Ok(null)
    }

    /// A place to measure there.
    ///
    /// # Errors
    /// Its directory cannot be made.
    pub fn place(&self) -> Result<Place> {
        let mut place = Place::new(&self.dir)?;
        place.null_pid = self.server.as_ref().map(Child::id);
        Ok(place)
    }
}

impl Drop for NullMount {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.stdin.take());
            let _ = server.wait();
        }
        // A directory that stays behind is empty and harmless.
        let _ = std::fs::remove_dir(&self.dir);
    }
}
