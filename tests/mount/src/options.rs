//! The command line of the suites.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How the kernel speaks to the client daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Reader threads on /dev/fuse.
    Dev,
    /// FUSE over io_uring.
    Uring,
}

impl Transport {
    /// The word on `sheen`'s command line.
    pub fn word(self) -> &'static str {
        match self {
            Transport::Dev => "dev",
            Transport::Uring => "uring",
        }
    }
}

/// Options of every suite.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The transport of the mounts.
    #[arg(long, value_enum, default_value = "dev")]
    pub transport: Transport,
    /// The sheen binary.
    #[arg(long, default_value = "target/release/sheen")]
    pub sheen: PathBuf,
    /// Where the suites work; must be on a local file system with room.
    #[arg(long, default_value = "target/mounted")]
    pub work: PathBuf,
    /// Where `bin/pjdfstest` and `bin/fsx` were installed.
    #[arg(long, default_value = "target/tools")]
    pub tools: PathBuf,
    /// Where the logs of failed cases are kept.
    #[arg(long, default_value = "target/mounted-failed")]
    pub failed: PathBuf,
    /// Run on this plain directory instead of a cluster: proves the suites themselves.
    #[arg(long)]
    pub local: Option<PathBuf>,
    /// A second directory for `--local`; another one than the first makes the canary fail, as it must.
    #[arg(long)]
    pub local_second: Option<PathBuf>,
    /// The first 64 KiB of all files are on their MDT.
    #[arg(long)]
    pub on_mdt: bool,
    /// Only cases whose name contains this.
    #[arg(long)]
    pub only: Option<String>,
    /// Operations or rounds per case instead of the usual number.
    #[arg(long)]
    pub count: Option<u64>,
    /// Seconds for which the processes of a case go on, where that is not a number of operations.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// The seed of random cases.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The long form of the suites (hours): more crashes, more operations, a million names.
    #[arg(long)]
    pub thorough: bool,
    /// Time limits times this, for slow machines.
    #[arg(long, default_value_t = 1)]
    pub patience: u64,
    /// Seconds for all suites together; cases that do not fit are reported as not run.
    #[arg(long)]
    pub budget_seconds: Option<u64>,
}

impl Options {
    /// True if the suites run on a plain directory.
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }
}
