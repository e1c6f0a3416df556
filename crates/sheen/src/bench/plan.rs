//! What is to be measured, and in which phases.

use super::pattern::{PAGE_BYTES, Pattern};
use super::tool::Tool;

const MIB: u64 = 1 << 20;
pub const BLOCK: u64 = 4096;

#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub procs: Vec<u32>,
    pub rounds: u32,
    pub file_count: u32,
    pub directory_count: u32,
    /// Of each file of a tree.
    pub file_bytes: u32,
    pub mib: u32,
    /// `mib` is of all processes together, not of each.
    pub is_mib_of_all: bool,
    /// Processes that stream beside walks, of `mib` together.
    pub beside_proc_count: u32,
    pub remount: Option<String>,
    /// Mounts the measured directory afresh, and nothing else: servers know what they knew.
    pub remount_client: Option<String>,
    pub is_cold: bool,
    /// Entries to list are of several types.
    pub is_mixed: bool,
    /// All processes work in one directory.
    pub is_shared: bool,
    pub patterns: Vec<Pattern>,
    /// Of `Kind::Dne`; empty for the others.
    pub ops: Vec<DneOp>,
    /// Of a null file system, which has one metadata target.
    pub is_null: bool,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Md,
    Io,
    Stream,
    /// Small blocks past the page cache.
    Direct,
    Ls,
    /// The names of a directory, and nothing of what they lead to.
    Names,
    Mmap,
    /// Small files, by processes of ours.
    Small,
    /// A tree that stays as it is, by tools.
    Walk,
    /// The same, cold, with nothing beside it and beside streams.
    Beside,
    /// A tree that is copied, by tools.
    Move,
    /// Directories on their parent's MDT and on another one.
    Dne,
}

/// One phase of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    pub name: &'static str,
    pub act: Act,
    pub unit: Unit,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Workers, side by side.
    Step(Step),
    /// A program of the system.
    Tool {
        tool: Tool,
        is_cold: bool,
        /// Readers stream meanwhile.
        is_beside: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    OperationsPerSecond,
    MibPerSecond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Mkdir,
    Create,
    Stat,
    /// Of names that nobody has cached.
    StatUncached,
    Open,
    Rename,
    Unlink,
    Rmdir,
    /// Create, close, unlink, and then the next one.
    CreateUnlink,
    /// Of `sheen bench dne`.
    Dne(DneOp, Home),
    Write {
        block_bytes: u64,
        is_random: bool,
    },
    Read {
        block_bytes: u64,
        is_random: bool,
    },
    /// 1 MiB after the other into a new file, or out of it.
    StreamOut {
        is_direct: bool,
    },
    StreamIn {
        is_direct: bool,
    },
    /// The same once more, out of the kernel's page cache.
    StreamAgain,
    /// Blocks of 4 KiB at random past the page cache, so many at a time.
    Direct {
        is_write: bool,
        depth: u32,
    },
    /// What `ls -l` does.
    List {
        /// Only the client has forgotten what it knew.
        is_client_cold: bool,
    },
    /// What `ls -f` does.
    ListNames {
        is_client_cold: bool,
    },
    Map(Pattern),
    /// Create, write 4 KiB, close.
    WriteFile,
    /// Open, read, close.
    ReadFile {
        is_cold: bool,
    },
}

/// What is done to names of which the inode is on their directory's MDT, or on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DneOp {
    /// `lfs mkdir -i`, and mkdir(2) beside it
    Mkdir,
    Rmdir,
    /// A file to its new directory, from one on the MDT in question
    Rename,
    /// The same in the place of another file
    RenameOver,
    /// The same of a directory
    RenameDir,
    /// Within one directory, striped over all MDTs
    RenameStriped,
    /// A second name for a file of that MDT
    Link,
    /// The only name of a file of that MDT
    Unlink,
    /// chmod(2) of directories striped over all MDTs
    Setattr,
}

impl DneOp {
    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            DneOp::Mkdir => "mkdir",
            DneOp::Rmdir => "rmdir",
            DneOp::Rename => "rename",
            DneOp::RenameOver => "rename-over",
            DneOp::RenameDir => "rename-dir",
            DneOp::RenameStriped => "rename-striped",
            DneOp::Link => "link",
            DneOp::Unlink => "unlink",
            DneOp::Setattr => "setattr",
        }
    }
}

/// On which MDT is what an operation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// That of its parent, of which nothing is striped.
    Local,
    /// Another one.
    Remote,
    /// Another one, with `mdt.*.enable_dne_remote_sync=1`.
    RemoteSync,
}

impl Home {
    /// Part of the name of a worker's directory.
    pub fn word(self) -> &'static str {
        match self {
            Home::Local => "local",
            Home::Remote => "remote",
            Home::RemoteSync => "sync",
        }
    }
}

const fn names(name: &'static str, step: Step) -> Phase {
    Phase { name, act: Act::Step(step), unit: Unit::OperationsPerSecond }
}

const fn data(name: &'static str, step: Step) -> Phase {
    Phase { name, act: Act::Step(step), unit: Unit::MibPerSecond }
}

const MD: &[Phase] = &[
    names("mkdir", Step::Mkdir),
    names("create", Step::Create),
    names("stat", Step::Stat),
    names("open", Step::Open),
    names("rename", Step::Rename),
    names("unlink", Step::Unlink),
    names("rmdir", Step::Rmdir),
    names("create+unlink", Step::CreateUnlink),
    names("stat uncached", Step::StatUncached),
];

const IO: &[Phase] = &[
    data("write 1M seq", Step::Write { block_bytes: MIB, is_random: false }),
    data("read 1M seq", Step::Read { block_bytes: MIB, is_random: false }),
    data("write 1M random", Step::Write { block_bytes: MIB, is_random: true }),
    data("read 1M random", Step::Read { block_bytes: MIB, is_random: true }),
    data("write 4K seq", Step::Write { block_bytes: BLOCK, is_random: false }),
    data("read 4K seq", Step::Read { block_bytes: BLOCK, is_random: false }),
    data("write 4K random", Step::Write { block_bytes: BLOCK, is_random: true }),
    data("read 4K random", Step::Read { block_bytes: BLOCK, is_random: true }),
];

const STREAM: &[Phase] = &[
    data("write 1M", Step::StreamOut { is_direct: false }),
    data("read 1M", Step::StreamIn { is_direct: false }),
    data("read 1M warm", Step::StreamAgain),
    data("write 1M direct", Step::StreamOut { is_direct: true }),
    data("read 1M direct", Step::StreamIn { is_direct: true }),
];

const DIRECT: &[Phase] = &[
    names("write 4K, 1 at a time", Step::Direct { is_write: true, depth: 1 }),
    names("write 4K, 4", Step::Direct { is_write: true, depth: 4 }),
    names("write 4K, 16", Step::Direct { is_write: true, depth: 16 }),
    names("read 4K, 1 at a time", Step::Direct { is_write: false, depth: 1 }),
    names("read 4K, 4", Step::Direct { is_write: false, depth: 4 }),
    names("read 4K, 16", Step::Direct { is_write: false, depth: 16 }),
];

/// All are cold before the first worker begins.
const LS: &[Phase] = &[
    names("ls -l cold", Step::List { is_client_cold: false }),
    names("ls -l client cold", Step::List { is_client_cold: true }),
    names("ls -l warm", Step::List { is_client_cold: false }),
];

const NAMES: &[Phase] = &[
    names("ls -f cold", Step::ListNames { is_client_cold: false }),
    names("ls -f client cold", Step::ListNames { is_client_cold: true }),
    names("ls -f warm", Step::ListNames { is_client_cold: false }),
];

const MMAP: &[Phase] = &[
    data("mmap seq", Step::Map(Pattern::Seq)),
    data("mmap stride", Step::Map(Pattern::Stride)),
    data("mmap random", Step::Map(Pattern::Random)),
];

const SMALL: &[Phase] = &[
    names("write 4K file", Step::WriteFile),
    names("read 4K file", Step::ReadFile { is_cold: false }),
    names("read 4K cold", Step::ReadFile { is_cold: true }),
];

const fn tool(name: &'static str, tool: Tool, is_cold: bool) -> Phase {
    Phase { name, act: Act::Tool { tool, is_cold, is_beside: false }, unit: Unit::OperationsPerSecond }
}

const WALKS: &[Phase] = &[
    tool("ls -lR cold", Tool::LsRecursive, true),
    tool("ls -lR warm", Tool::LsRecursive, false),
    tool("find -ls cold", Tool::FindLs, true),
    tool("find -ls warm", Tool::FindLs, false),
    tool("find %s%n cold", Tool::FindPrint, true),
    tool("find %s%n warm", Tool::FindPrint, false),
    tool("du -s cold", Tool::Du, true),
    tool("du -s warm", Tool::Du, false),
    tool("rsync -an cold", Tool::Rsync, true),
    tool("rsync -an warm", Tool::Rsync, false),
];

const fn beside(name: &'static str, tool: Tool) -> Phase {
    let act = Act::Tool { tool, is_cold: true, is_beside: true };
    Phase { name, act, unit: Unit::OperationsPerSecond }
}

const BESIDE: &[Phase] = &[
    tool("ls -lR idle", Tool::LsRecursive, true),
    beside("ls -lR beside", Tool::LsRecursive),
    tool("find %s%n idle", Tool::FindPrint, true),
    beside("find %s%n beside", Tool::FindPrint),
];

const MOVES: &[Phase] = &[
    tool("cp -a", Tool::Copy, false),
    tool("git add", Tool::GitAdd, false),
    tool("git status", Tool::GitStatus, false),
    tool("git status cold", Tool::GitStatus, true),
    tool("rm -rf", Tool::RemoveCopy, false),
    tool("tar out", Tool::TarOut, false),
    tool("tar in", Tool::TarIn, false),
];

const DNE: &[Phase] = &[
    names("mkdir(2)", Step::Mkdir),
    names("local", Step::Dne(DneOp::Mkdir, Home::Local)),
    names("remote", Step::Dne(DneOp::Mkdir, Home::Remote)),
    names("remote, sync", Step::Dne(DneOp::Mkdir, Home::RemoteSync)),
    names("rmdir local", Step::Dne(DneOp::Rmdir, Home::Local)),
    names("rmdir remote", Step::Dne(DneOp::Rmdir, Home::Remote)),
    names("rmdir remote, sync", Step::Dne(DneOp::Rmdir, Home::RemoteSync)),
    names("rename local", Step::Dne(DneOp::Rename, Home::Local)),
    names("rename remote", Step::Dne(DneOp::Rename, Home::Remote)),
    names("rename remote, sync", Step::Dne(DneOp::Rename, Home::RemoteSync)),
    names("rename-over local", Step::Dne(DneOp::RenameOver, Home::Local)),
    names("rename-over remote", Step::Dne(DneOp::RenameOver, Home::Remote)),
    names("rename-over remote, sync", Step::Dne(DneOp::RenameOver, Home::RemoteSync)),
    names("rename-dir local", Step::Dne(DneOp::RenameDir, Home::Local)),
    names("rename-dir remote", Step::Dne(DneOp::RenameDir, Home::Remote)),
    names("rename-dir remote, sync", Step::Dne(DneOp::RenameDir, Home::RemoteSync)),
    names("rename-striped local", Step::Dne(DneOp::RenameStriped, Home::Local)),
    names("rename-striped remote", Step::Dne(DneOp::RenameStriped, Home::Remote)),
    names("rename-striped remote, sync", Step::Dne(DneOp::RenameStriped, Home::RemoteSync)),
    names("link local", Step::Dne(DneOp::Link, Home::Local)),
    names("link remote", Step::Dne(DneOp::Link, Home::Remote)),
    names("link remote, sync", Step::Dne(DneOp::Link, Home::RemoteSync)),
    names("unlink local", Step::Dne(DneOp::Unlink, Home::Local)),
    names("unlink remote", Step::Dne(DneOp::Unlink, Home::Remote)),
    names("unlink remote, sync", Step::Dne(DneOp::Unlink, Home::RemoteSync)),
    names("setattr local", Step::Dne(DneOp::Setattr, Home::Local)),
    names("setattr remote", Step::Dne(DneOp::Setattr, Home::Remote)),
    names("setattr remote, sync", Step::Dne(DneOp::Setattr, Home::RemoteSync)),
];

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Md => "md",
            Kind::Io => "io",
            Kind::Stream => "stream",
            Kind::Direct => "direct",
            Kind::Ls => "ls",
            Kind::Names => "names",
            Kind::Mmap => "mmap",
            Kind::Small => "small",
            Kind::Walk => "walk",
            Kind::Beside => "beside",
            Kind::Move => "move",
            Kind::Dne => "dne",
        }
    }

    pub fn phases(self) -> &'static [Phase] {
        match self {
            Kind::Md => MD,
            Kind::Io => IO,
            Kind::Stream => STREAM,
            Kind::Direct => DIRECT,
            Kind::Ls => LS,
            Kind::Names => NAMES,
            Kind::Mmap => MMAP,
            Kind::Small => SMALL,
            Kind::Walk => WALKS,
            Kind::Beside => BESIDE,
            Kind::Move => MOVES,
            Kind::Dne => DNE,
        }
    }

    /// Whether what was made before the first round serves all of them.
    pub fn has_fixture(self) -> bool {
        match self {
            Kind::Ls | Kind::Names | Kind::Mmap | Kind::Walk | Kind::Beside | Kind::Move => true,
            Kind::Md | Kind::Io | Kind::Stream | Kind::Direct | Kind::Small | Kind::Dne => false,
        }
    }
}

/// Which phases of a kind are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub patterns: &'a [Pattern],
    pub ops: &'a [DneOp],
    pub is_cold: bool,
    /// Somebody has said how.
    pub is_client_cold: bool,
    /// Of a null file system, which has one metadata target.
    pub is_null: bool,
}

impl Wanted<'_> {
    /// What a worker does of a kind.
    pub fn steps(&self, kind: Kind) -> Vec<(Phase, Step)> {
        let wanted = |phase: &Phase| match phase.act {
            Act::Step(step) if self.has(kind, step) => Some((*phase, step)),
            Act::Step(_) | Act::Tool { .. } => None,
        };
        kind.phases().iter().filter_map(wanted).collect()
    }

    fn has(&self, kind: Kind, step: Step) -> bool {
        match step {
            Step::Map(pattern) => self.patterns.contains(&pattern),
            Step::Dne(op, _) => self.ops.contains(&op) && !self.is_null,
            Step::Mkdir if kind == Kind::Dne => self.ops.contains(&DneOp::Mkdir),
            // What makes caches cold needs root, or a command.
            Step::StatUncached => self.is_cold,
            Step::List { is_client_cold: true } | Step::ListNames { is_client_cold: true } => {
                self.is_client_cold
            }
            _ => true,
        }
    }
}

impl Plan {
    /// The same for so many processes: each has its part.
    pub fn of_each(&self, procs: u32) -> Plan {
        let mib = if self.is_mib_of_all { (self.mib / procs.max(1)).max(1) } else { self.mib };
        Plan { mib, is_mib_of_all: false, ..self.clone() }
    }

    /// The phases of its rounds. Tools that are not here are left out.
    pub fn phases(&self) -> Vec<Phase> {
        let is_here = |phase: &&Phase| match phase.act {
            Act::Step(step) => self.wanted().has(self.kind, step),
            Act::Tool { tool, .. } => tool.is_here(),
        };
        self.kind.phases().iter().filter(is_here).copied().collect()
    }

    fn wanted(&self) -> Wanted<'_> {
        let is_client_cold = self.remount_client.is_some();
        let Plan { is_cold, is_null, .. } = *self;
        Wanted { patterns: &self.patterns, ops: &self.ops, is_cold, is_client_cold, is_null }
    }

    /// Whether caches are made cold just before this phase.
    pub fn is_cold_before(&self, act: Act) -> bool {
        match act {
            // An OST on this machine has in the page cache what was just written, which a client cannot drop there.
            Act::Step(Step::StreamIn { .. } | Step::Read { .. } | Step::Direct { is_write: false, .. }) => {
                self.is_cold
            }
            Act::Step(Step::Map(_) | Step::StatUncached) => true,
            Act::Step(Step::ReadFile { is_cold }) | Act::Tool { is_cold, .. } => is_cold,
            Act::Step(_) => false,
        }
    }

    /// The command that makes the client alone cold just before this phase.
    pub fn client_remount_before(&self, act: Act) -> Option<&str> {
        let is_client_cold = matches!(
            act,
            Act::Step(Step::List { is_client_cold: true } | Step::ListNames { is_client_cold: true })
        );
        self.remount_client.as_deref().filter(|_| is_client_cold)
    }

    /// Bytes that have to come from the servers once, for all processes together, where that is known.
    pub fn needed_bytes(&self, phase: &Phase, procs: u32) -> Option<u64> {
        match phase.act {
            Act::Step(Step::Map(pattern)) => {
                Some(pattern.needed_bytes(u64::from(self.mib) * MIB / PAGE_BYTES, procs))
            }
            _ => None,
        }
    }

    /// By what requests are divided: directories of a tree that is walked, operations otherwise.
    pub fn rpc_unit_count(&self, operation_count: u64) -> u64 {
        match self.kind {
            Kind::Walk | Kind::Beside => u64::from(self.directory_count),
            _ => operation_count,
        }
    }

    fn tree(&self) -> String {
        let Plan { file_count, file_bytes, directory_count, .. } = self;
        format!("a tree of {file_count} files of {file_bytes} bytes in {directory_count} directories")
    }

    pub fn amount(&self) -> String {
        match self.kind {
            Kind::Stream if self.is_mib_of_all => format!("{} MiB of all processes together", self.mib),
            Kind::Io | Kind::Stream | Kind::Direct => format!("{} MiB per process", self.mib),
            Kind::Mmap => format!("a file of {} MiB", self.mib),
            Kind::Md if self.is_shared => {
                format!("{} files of each process in one directory", self.file_count)
            }
            Kind::Md | Kind::Ls | Kind::Names | Kind::Small => format!("{} files", self.file_count),
            Kind::Dne => format!("{} of each operation by each process", self.file_count),
            Kind::Walk | Kind::Move => self.tree(),
            Kind::Beside => {
                let tree = self.tree();
                format!("{tree}, {} readers of {} MiB together beside it", self.beside_proc_count, self.mib)
            }
        }
    }
}

impl Phase {
    /// Whether it has a first entry.
    pub fn lists(&self) -> bool {
        matches!(self.act, Act::Step(Step::List { .. } | Step::ListNames { .. }))
    }

    /// What its row is called that says how fast it was without its fsync.
    pub fn unsynced_name(&self) -> Option<&'static str> {
        match self.act {
            Act::Step(Step::StreamOut { is_direct: false }) => Some("write 1M, no fsync"),
            Act::Step(Step::StreamOut { is_direct: true }) => Some("write 1M direct, no fsync"),
            _ => None,
        }
    }

    /// How many operations so much was: names, blocks of bytes, MiB that were touched.
    pub fn operation_count(&self, amount: u64) -> u64 {
        match (self.act, self.unit) {
            (Act::Step(Step::Write { block_bytes, .. } | Step::Read { block_bytes, .. }), _) => {
                amount / block_bytes
            }
            (_, Unit::MibPerSecond) => amount / MIB,
            (_, Unit::OperationsPerSecond) => amount,
        }
    }
}

impl Unit {
    pub fn word(self) -> &'static str {
        match self {
            Unit::OperationsPerSecond => "/s",
            Unit::MibPerSecond => "MiB/s",
        }
    }
}
