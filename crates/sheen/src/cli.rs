//! The command line. The binary also answers to `lfs`, `lctl`, `mkfs.sheen`, and as helper of mount(8) and
//! umount(8) to `mount.sheen`, `mount.fuse.sheen`, `umount.sheen`, `umount.fuse.sheen`.

mod instead;

use crate::cluster::Identity;
use crate::pools;
use anyhow::{Result, bail};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use instead::{command_near, instead_of, no_data_move, options_of};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

/// With what other versions are compared: what is spoken, and what is on disks.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\nprotocol {} (understands {} and later)\ndisk format {}",
        env!("CARGO_PKG_VERSION"),
        wire::VERSION,
        wire::VERSION_OLDEST,
        store_disk::FORMAT_VERSION
    )
});

/// A parallel file system in one program.
#[derive(Debug, Parser)]
#[command(name = "sheen", version = VERSION.as_str(), disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster and mount it; again: restart what died
    Up(Up),
    /// Stop a cluster cleanly
    Down(Down),
    /// Serve targets in this process until it is told to end
    Serve(Serve),
    /// Confirm that the owner of a target cannot write any more: a server of this machine that stands by takes it over
    Failover(Failover),
    /// Make the directory of a target
    Mkfs(Mkfs),
    /// Bring the directory of a target that nobody serves from an older disk format to the one of this program
    Upgrade(Upgrade),
    /// Say that a target put back from an older copy is the newest that is left; what was done since is lost
    Restored(Restored),
    /// Mount a file system
    Mount(Mount),
    /// Make everything durable and unmount
    Umount(Umount),
    /// Link the helpers of mount(8), umount(8) and mkfs(8) to this program, and lfs and lctl where there are no others
    InstallHelpers(InstallHelpers),
    /// List the mounts of this machine
    Mounts(Output),
    /// Show targets and mounts
    Status(Status),
    /// Look whether a mount and all that it needs are well: green, yellow or red
    Health(crate::health::Health),
    /// Print what all processes of this machine count, for Prometheus, or serve it
    Metrics(Metrics),
    /// Make everything durable that was done through a mount
    Sync {
        /// The mount, or any path in it
        path: PathBuf,
    },
    /// Ask a mount about files and space, as `lfs` of Lustre
    #[command(version = VERSION.as_str())]
    Lfs(crate::lfs::Lfs),
    /// Read and set parameters, as `lctl` of Lustre
    #[command(version = VERSION.as_str())]
    Lctl(Lctl),
    /// Measure any directory: names, data, listings
    Bench(crate::bench::Bench),
    /// Make, update and list the images that diskless nodes boot from
    Image(crate::image::Options),
    /// Check a file system that nobody serves, and repair it
    Fsck(Fsck),
    /// Simulate whole clusters with losses, crashes and partitions, and judge them
    Sim(Sim),
    /// Write man pages and completions for shells into a directory, for packages
    #[command(hide = true)]
    Generate(Generate),
}

#[derive(Debug, Args)]
pub struct Generate {
    pub dir: PathBuf,
}

/// Exit status: 0 clean, 1 repaired, 4 damage left (5: both), 8 not checked, 16 wrong usage
#[derive(Debug, Args)]
pub struct Fsck {
    /// The directories of all targets of a file system, or that of a cluster (`--dir` of `up`)
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Do what can be done without losing anything, after it was said
    #[arg(long)]
    pub repair: bool,
    /// Remove also what may be all that is left of a file whose inode is gone: its bytes, and names that lead to them
    #[arg(long, requires = "repair")]
    pub remove_remains: bool,
    /// Read all objects against their checksums too
    #[arg(long)]
    pub data: bool,
    /// A target of the file system that is lost or away (MDT0001, OST0003): check without it; nothing that could be its is removed
    #[arg(long, value_name = "TARGET")]
    pub without: Vec<String>,
    /// Who served these targets with --failover, on this machine or another one, cannot write to them any more: it is ended or fenced
    #[arg(long)]
    pub fenced: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Sim {
    /// Seeds: A..B, or one
    #[arg(long, default_value = "0..100")]
    pub seeds: String,
    /// A story instead of everything at random
    #[arg(long, value_enum)]
    pub scenario: Option<Scenario>,
    /// Whom the scenario's restarted target waits for: those with a lease, or everybody for as long as they say; or both side by side
    #[arg(long, value_enum, requires = "scenario", default_value = "lease")]
    pub policy: Policy,
    /// At most 16; 10,000 in a scenario
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub clients: u16,
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub mdts: u16,
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub osts: u16,
    /// Operations of all clients together, per seed
    #[arg(long, default_value_t = 200)]
    pub steps: u32,
    /// Print every event of a failing seed
    #[arg(long)]
    pub verbose: bool,
    /// Show that each planted mistake is found (needs the build feature `planted-faults`)
    #[arg(long)]
    pub planted: bool,
    #[command(flatten)]
    pub table: CrashTable,
    /// Orders of frames that are run of each contest of renames; half of them at random where there are more
    #[arg(long, requires = "scenario", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    pub orders: u64,
    /// All orders of each contest in which a frame arrives before others that were sent earlier at most so many times, and no random ones
    #[arg(long, requires = "scenario", conflicts_with = "schedule", value_name = "N", value_parser = clap::value_parser!(u8).range(0..=4))]
    pub overtaking: Option<u8>,
    /// Only this order: the place of each frame among those that could arrive next
    #[arg(long, requires = "op", value_name = "N,N…", value_delimiter = ',')]
    pub schedule: Option<Vec<usize>>,
    #[command(flatten)]
    pub model: DneModel,
}

/// How much happens in the model of operations over several MDTs.
#[derive(Debug, Args)]
pub struct DneModel {
    /// Power failures of MDTs, at most
    #[arg(long, requires = "scenario", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=4))]
    pub crashes: u8,
    /// Clients that are gone, at most
    #[arg(long, requires = "scenario", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub deaths: u8,
    /// Checkpoints, at most
    #[arg(long, requires = "scenario", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub checkpoints: u8,
    /// Copies of what MDTs say of prepares, at most
    #[arg(long, requires = "scenario", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub copies: u8,
    /// States of each program that are looked at, at most
    #[arg(long, requires = "scenario", default_value_t = 5_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub states: u32,
    /// Leave out this rule, and show how it is missed
    #[arg(long, requires = "scenario", value_name = "RULE")]
    pub without: Option<String>,
}

/// Which cases of a scenario are run: all, but where something is named.
#[derive(Debug, Args)]
pub struct CrashTable {
    /// Only this operation, or these renames
    #[arg(long, requires = "scenario", value_name = "NAME")]
    pub op: Option<String>,
    /// Broken off only after so many frames have arrived and syncs have ended
    #[arg(long, requires = "scenario", value_name = "K")]
    pub at: Option<u64>,
    /// Only with these gone: client, mdt0, mdt1, mdt2, ost0, with commas between them, or nobody
    #[arg(long, requires = "scenario", value_name = "MACHINES")]
    pub down: Option<sim::crash_table::Down>,
    /// Only with disks of MDTs that sync after each write, or when nothing else can go on (never), or those of one MDT after each write (mdt0 …)
    #[arg(long, requires = "scenario", value_name = "WHEN")]
    pub sync: Option<sim::crash_table::Syncs>,
    /// Only machines that die by power, by power with half of the log that was not synced (torn), or as a process
    #[arg(long, requires = "scenario", value_name = "HOW")]
    pub death: Option<sim::crash_table::Death>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// An MDT under load becomes slower until its clients expect 600 s, dies, and is started again while 30 % of its clients vanish
    SpotChurn,
    /// Each operation over several MDTs, broken off at each place with each set of machines gone
    CrashTable,
    /// Renames that get in each other's way over three MDTs, in all orders in which their frames can arrive
    RenameDeadlock,
    /// Every state of a model of operations over several MDTs, and what each of its rules is good for
    DneModel,
    /// The same of the locks of two renames over three MDTs
    RenameLocks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    Lease,
    Lustre,
    Both,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// io_uring where root has enabled it, else /dev/fuse
    #[default]
    Auto,
    /// /dev/fuse
    Dev,
    /// io_uring, or an error
    Uring,
}

impl Transport {
    pub fn word(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Dev => "dev",
            Transport::Uring => "uring",
        }
    }
}

#[derive(Debug, Args)]
pub struct Up {
    /// Where the data live [default: $XDG_STATE_HOME/sheen]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Where to mount [default: ~/sheen]
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Metadata targets of a new cluster [default: 2]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub mdts: Option<u16>,
    /// Object targets of a new cluster [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub osts: Option<u16>,
    /// Name of a new file system [default: sheen]
    #[arg(long)]
    pub fsname: Option<String>,
    /// One process per target and one for the mount
    #[arg(long)]
    pub split: bool,
    /// How the kernel talks to the mount
    #[arg(long, value_enum)]
    pub transport: Option<Transport>,
    /// Address of this machine to listen on, when others shall reach the servers; with --split without a port [default: 127.0.0.1]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub listen: Option<String>,
    /// Accept that whoever reaches a server is trusted
    #[arg(long)]
    pub insecure_network: bool,
    /// Serve what all processes of this machine count on http://HOST:PORT/metrics, for Prometheus, at this start and the next ones;
    /// `off`: not any more
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    #[arg(long, hide = true)]
    pub no_sync_for_tests: bool,
}

#[derive(Debug, Args)]
pub struct Down {
    /// Where the data live [default: $XDG_STATE_HOME/sheen]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Also while files are open: when everything is durable, who has them open gets errors
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Target directories, made by `sheen mkfs`
    #[arg(required_unless_present = "config", value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Read all this from a file, as sheen-server@NAME.service does from /etc/sheen/NAME.toml: targets = ["DIR"], listen, insecure_network,
    /// mgsnode, failover, fence_cmd, coordinator, log, metrics
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dirs", "listen", "insecure_network", "mgsnode", "failover", "fence_cmd", "coordinator"])]
    pub config: Option<PathBuf>,
    /// HOST[:PORT] to listen on, several with commas between them [default: 127.0.0.1:7988, or the next free port]
    #[arg(long)]
    pub listen: Option<String>,
    /// Accept that whoever reaches this server is trusted
    #[arg(long)]
    pub insecure_network: bool,
    /// Management server, instead of the one that mkfs wrote down
    #[arg(long, value_name = "NIDS")]
    pub mgsnode: Option<String>,
    /// Other servers can serve these targets too, from the same storage: serve those that nobody owns, and stand by for the others
    #[arg(long)]
    pub failover: bool,
    /// Shell command that makes sure that the old owner of a target cannot write any more, and exits with 0 then; it is told which by
    /// SHEEN_FENCE_FSNAME, _TARGET, _HOST, _NID, _PID and _EPOCH, and by _IS_SELF, 1 if it ran on this host, which is not to be switched off
    /// then. Without one an operator confirms each takeover
    #[arg(long, requires = "failover", value_name = "COMMAND")]
    pub fence_cmd: Option<String>,
    /// Keep who owns what in etcd, etcd://HOST:PORT[,HOST:PORT…], instead of the management server, and all that a management server keeps,
    /// so that another one can stand by; the same for all servers of the file system
    #[arg(long, requires = "failover", value_name = "URL")]
    pub coordinator: Option<coordinate::Members>,
    #[command(flatten)]
    pub background: Background,
    #[arg(long, hide = true, conflicts_with = "failover")]
    pub mount: Option<PathBuf>,
    #[arg(long, hide = true, value_enum, default_value_t)]
    pub transport: Transport,
    #[arg(long, hide = true)]
    pub no_sync_for_tests: bool,
}

#[derive(Debug, Args)]
pub struct Failover {
    /// `sheen-OST0003`, as in `sheen status`
    pub target: String,
    /// The old owner cannot write to the storage any more: it is dead, or its machine is off or cut off from the storage
    #[arg(long, requires = "epoch")]
    pub fenced: bool,
    /// The ownership that this is said of, as the alert of `sheen status` shows it: a later owner is not meant
    #[arg(long, value_name = "N")]
    pub epoch: Option<u64>,
}

/// How a process runs that `sheen` itself has started.
#[derive(Clone, Debug, Default, Args)]
pub struct Background {
    /// Log here, rotated by size, instead of standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Serve what all processes of this machine that are this user's (all of them, for root) count on http://HOST:PORT/metrics, for Prometheus
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    #[arg(long, hide = true)]
    pub cluster_dir: Option<PathBuf>,
    #[arg(long, hide = true)]
    pub ready_fd: Option<i32>,
    /// Kept open until the process is ready
    #[arg(long, hide = true)]
    pub held_fd: Option<i32>,
    /// Who the mount of `up` is to its servers: ID:INCARNATION
    #[arg(long, hide = true)]
    pub identity: Option<Identity>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("kind").required(true))]
pub struct Mkfs {
    /// A management target
    #[arg(long, group = "kind")]
    pub mgs: bool,
    /// A metadata target
    #[arg(long, group = "kind")]
    pub mdt: bool,
    /// An object target
    #[arg(long, group = "kind")]
    pub ost: bool,
    /// Which one it is, from 0
    // The highest number of 16 bits stands for something else where layouts and requests name OSTs and MDTs.
    #[arg(long, value_parser = clap::value_parser!(u16).range(..=65534))]
    pub index: Option<u16>,
    /// The file system that it belongs to
    #[arg(long)]
    pub fsname: Option<String>,
    /// NIDs of the management server, and again those of one that stands by for it
    #[arg(long, value_name = "NIDS")]
    pub mgsnode: Vec<String>,
    /// A directory that is empty or does not exist
    pub dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct Upgrade {
    /// Directories of targets, or of a cluster of `up`; former metadata are kept in format-N beside the new ones
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Who served these targets with --failover, on this machine or another one, cannot write to them any more: it is ended or fenced
    #[arg(long)]
    pub fenced: bool,
}

#[derive(Debug, Args)]
pub struct Restored {
    /// Directories of targets that were put back from a copy, which is not the newest that others have met
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// The number of a start that others know: it begins after that one too
    #[arg(long, value_name = "N", default_value_t, hide_default_value = true)]
    pub over: u64,
    /// Who served these targets with --failover, on this machine or another one, cannot write to them any more: it is ended or fenced
    #[arg(long)]
    pub fenced: bool,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "sheen mount [-o OPTIONS] [--transport HOW] [--foreground] NID[:NID]:/FSNAME[/SUBDIR] MOUNT"
)]
pub struct Mount {
    /// NID[:NID]:/FSNAME[/SUBDIR]
    pub source: String,
    /// An empty directory
    pub mount: PathBuf,
    /// Options, with commas between them
    #[arg(short, value_name = "OPTIONS", long_help = crate::mount::options::help())]
    pub options: Vec<String>,
    /// Stay in this process
    #[arg(long)]
    pub foreground: bool,
    /// How the kernel talks to the mount
    #[arg(long, value_enum)]
    pub transport: Option<Transport>,
    /// Check source and options, and mount nothing: `mount -f`
    #[arg(long)]
    pub fake: bool,
    /// Let options be that are not known: `mount -s`
    #[arg(long)]
    pub sloppy: bool,
    #[command(flatten)]
    pub background: Background,
}

#[derive(Debug, Args)]
pub struct Umount {
    pub mount: PathBuf,
    /// Detach even while files are open; who has them open goes on
    #[arg(short, long)]
    pub lazy: bool,
    /// Detach even while files are open; who has them open gets errors
    #[arg(short, long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct InstallHelpers {
    /// Links go to DIR/sbin, where mount(8) looks when DIR is /, and those of lfs and lctl to DIR/usr/local/bin
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub prefix: PathBuf,
    /// Take the links away again
    #[arg(long)]
    pub remove: bool,
}

#[derive(Debug, Args)]
pub struct Output {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Status {
    /// Only the cluster whose data live here
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Again every so many seconds, until it is ended
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub watch: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Metrics {
    /// Serve it on http://HOST:PORT/metrics until the end, instead
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = crate::metrics::ADDRESS)]
    pub listen: Option<String>,
}

#[derive(Debug, Args)]
pub struct Lctl {
    /// The target that `abort_recovery` is about
    #[arg(long, value_name = "TARGET")]
    pub device: Option<String>,
    #[command(subcommand)]
    pub command: LctlCommand,
}

#[derive(Debug, Subcommand)]
pub enum LctlCommand {
    /// Print parameters
    #[command(name = "get_param")]
    GetParam {
        /// Values only
        #[arg(short = 'n')]
        no_name: bool,
        /// Names only, also of levels above parameters
        #[arg(short = 'N')]
        only_name: bool,
        #[arg(required = true)]
        patterns: Vec<String>,
    },
    /// Set parameters
    #[command(name = "set_param")]
    SetParam {
        /// For all machines, and after restarts too
        #[arg(short = 'P')]
        permanent: bool,
        /// With -P: take the permanent setting out; what it has set stays until a restart
        #[arg(short = 'd', requires = "permanent")]
        delete: bool,
        /// Say nothing
        #[arg(short = 'n')]
        quiet: bool,
        #[arg(required = true, value_name = "PATH=VALUE")]
        settings: Vec<String>,
    },
    /// List parameters
    #[command(name = "list_param")]
    ListParam {
        /// Mark what can be set with `=`, what has parameters below with `/`
        #[arg(short = 'F')]
        mark: bool,
        /// With all parameters below what matches
        #[arg(short = 'R')]
        recursive: bool,
        #[arg(required = true)]
        patterns: Vec<String>,
    },
    /// Give up the clients that the recovery of a target waits for (in its first 30 s only those that are dead)
    #[command(name = "abort_recovery")]
    AbortRecovery {
        /// `sheen-MDT0000`, as in `sheen status`
        #[arg(value_name = "TARGET")]
        target: Option<String>,
    },
    /// Make a pool of OSTs
    #[command(name = "pool_new")]
    PoolNew {
        #[arg(value_name = "FSNAME.POOL")]
        place: pools::Place,
    },
    /// Put OSTs into a pool
    #[command(name = "pool_add")]
    PoolAdd(pools::Members),
    /// Take OSTs out of a pool
    #[command(name = "pool_remove")]
    PoolRemove(pools::Members),
    /// Remove a pool, which must be empty
    #[command(name = "pool_destroy")]
    PoolDestroy {
        #[arg(value_name = "FSNAME.POOL")]
        place: pools::Place,
    },
    /// Print the NIDs of the processes of this machine
    #[command(name = "list_nids")]
    ListNids,
    /// List the pools of a file system, or the OSTs of a pool
    #[command(name = "pool_list")]
    PoolList {
        #[arg(value_name = "FSNAME[.POOL]")]
        place: String,
    },
}

/// Says which argument must be text and is not. Paths may be any bytes: for the parser it is wrong only elsewhere.
pub fn no_text(arguments: &[OsString]) -> Option<String> {
    let is_wrong = |arguments: &[OsString]| {
        Cli::try_parse_from(arguments).is_err_and(|error| error.kind() == ErrorKind::InvalidUtf8)
    };
    if !is_wrong(arguments) {
        return None;
    }
    let mut arguments = arguments.to_vec();
    for at in 0..arguments.len() {
        let given = arguments.get_mut(at)?;
        let text = given.to_string_lossy().into_owned();
        if given.to_str().is_none() {
            *given = text.clone().into();
            if !is_wrong(&arguments) {
                return Some(format!("'{text}' is not UTF-8 text; only paths may be other bytes"));
            }
        }
    }
    None
}

/// The arguments as if `sheen` had been called, whatever name the program was called by.
///
/// # Errors
/// mount(8) or umount(8) was told of another mount namespace, and calls its helper in its own.
pub fn as_sheen(arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let called = arguments.first().map(PathBuf::from).unwrap_or_default();
    let name = called.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let subcommand = match name {
        "lfs" => "lfs",
        "lctl" => "lctl",
        "mkfs.sheen" => "mkfs",
        "mount.sheen" | "mount.fuse.sheen" => return as_mount(&arguments),
        "umount.sheen" | "umount.fuse.sheen" => return as_umount(&arguments),
        _ => return Ok(arguments),
    };
    arguments.splice(..1, ["sheen".into(), subcommand.into()]);
    Ok(arguments)
}

/// umount(8) calls its helper as `umount.TYPE DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`.
fn as_umount(arguments: &[OsString]) -> Result<Vec<OsString>> {
    let mut out: Vec<OsString> = vec!["sheen".into(), "umount".into()];
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-N") => bail!(other_namespace("umount DIR")),
            Some("-t") => {
                rest.next();
            }
            Some(flags) if flags.starts_with('-') => {
                for (letter, option) in [('l', "--lazy"), ('f', "--force")] {
                    if flags.contains(letter) {
                        out.push(option.into());
                    }
                }
            }
            _ => out.push(argument.clone()),
        }
    }
    Ok(out)
}

/// mount(8) calls its helper as `mount.TYPE SOURCE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]`.
fn as_mount(arguments: &[OsString]) -> Result<Vec<OsString>> {
    let mut out: Vec<OsString> = vec!["sheen".into(), "mount".into()];
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => {
                out.push("-o".into());
                out.extend(rest.next().cloned());
            }
            Some("-N") => bail!(other_namespace("mount …")),
            Some("-t") => {
                rest.next();
            }
            Some(flags) if flags.starts_with('-') && flags.chars().skip(1).all(|c| "sfnv".contains(c)) => {
                for (letter, option) in [('f', "--fake"), ('s', "--sloppy")] {
                    if flags.contains(letter) {
                        out.push(option.into());
                    }
                }
            }
            _ => out.push(argument.clone()),
        }
    }
    Ok(out)
}

fn other_namespace(command: &str) -> String {
    format!(
        "-N does not lead this helper into the other mount namespace; run it there: nsenter --target PID --mount {command}"
    )
}

#[cfg(test)]
mod dictionary;
#[cfg(test)]
mod tests;
