//! What a process asks for, and what it is told.

pub const ENOENT: i32 = 2;
pub const EIO: i32 = 5;
pub const EBADF: i32 = 9;
pub const EEXIST: i32 = 17;
pub const ENOTDIR: i32 = 20;
pub const EISDIR: i32 = 21;
pub const EINVAL: i32 = 22;
pub const ENOSPC: i32 = 28;
pub const ENOTEMPTY: i32 = 39;
pub const ENODATA: i32 = 61;
pub const ESTALE: i32 = 116;

pub type Name = String;
pub type Path = Vec<Name>;

/// One system call of the workload. Paths are from the root; the last component is never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Create {
        path: Path,
        is_exclusive: bool,
        slot: Option<usize>,
    },
    /// `stripe_count`: over so many MDTs, where it is not one.
    Mkdir {
        path: Path,
        mdt_index: Option<u16>,
        stripe_count: u16,
    },
    Symlink {
        path: Path,
        target: String,
    },
    Unlink {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        flags: u32,
    },
    Link {
        from: Path,
        to: Path,
    },
    Stat {
        path: Path,
    },
    Readlink {
        path: Path,
    },
    List {
        path: Path,
    },
    Open {
        path: Path,
        slot: usize,
    },
    /// O_TMPFILE
    Tmpfile {
        parent: Path,
        slot: usize,
    },
    /// linkat(2) of what is open: a name for what never had one.
    LinkOpen {
        slot: usize,
        to: Path,
    },
    Close {
        slot: usize,
    },
    Write {
        slot: usize,
        offset: u64,
        byte_count: u64,
        fill: u8,
    },
    Append {
        slot: usize,
        byte_count: u64,
        fill: u8,
    },
    Read {
        slot: usize,
        offset: u64,
        byte_count: u64,
    },
    Fstat {
        slot: usize,
    },
    Truncate {
        path: Path,
        size: u64,
    },
    Fsync {
        slot: usize,
    },
    Chmod {
        path: Path,
        permissions: u32,
    },
    Setstripe {
        path: Path,
        layout: usize,
    },
    /// `stripe_count`: of new directories in this one, with 1 each is placed by space; 0 takes back what was said.
    Setdirstripe {
        path: Path,
        stripe_count: u16,
    },
    /// What the path leads to gets another node, if it was not on that MDT.
    Migrate {
        path: Path,
        mdt_index: u16,
    },
    Setxattr {
        path: Path,
        name: String,
        value: u8,
    },
    Getxattr {
        path: Path,
        name: String,
    },
    Removexattr {
        path: Path,
        name: String,
    },
    SyncAll,
    Statfs,
}

impl Op {
    /// Takes a name away from somewhere.
    pub fn is_removing(&self) -> bool {
        matches!(self, Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. })
    }

    /// Changes names somewhere.
    pub fn is_naming(&self) -> bool {
        let is_making =
            matches!(self, Op::Create { .. } | Op::Mkdir { .. } | Op::Symlink { .. } | Op::Link { .. });
        // A listing tells nodes.
        is_making
            || matches!(self, Op::LinkOpen { .. })
            || self.is_removing()
            || matches!(self, Op::Migrate { .. })
    }

    /// Walks through directories below the root.
    pub fn is_walking(&self) -> bool {
        match self {
            Op::Create { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Symlink { path, .. }
            | Op::Unlink { path }
            | Op::Rmdir { path }
            | Op::Stat { path }
            | Op::Readlink { path }
            | Op::List { path }
            | Op::Open { path, .. }
            | Op::Truncate { path, .. }
            | Op::Chmod { path, .. }
            | Op::Setstripe { path, .. }
            | Op::Setdirstripe { path, .. }
            | Op::Migrate { path, .. }
            | Op::Setxattr { path, .. }
            | Op::Getxattr { path, .. }
            | Op::Removexattr { path, .. }
            | Op::Tmpfile { parent: path, .. }
            | Op::LinkOpen { to: path, .. } => !path.is_empty(),
            Op::Rename { from, to, .. } | Op::Link { from, to } => from.len().max(to.len()) > 0,
            _ => false,
        }
    }

    /// Whether this outcome needs no explanation while names are taken away at the same time: the walk and the call
    /// are two steps, and what was found may be gone in between, as in every kernel.
    pub fn may_miss(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Error(errno) => matches!(*errno, ENOENT | ESTALE) && self.is_walking(),
            // READDIR is no snapshot: an entry may be seen before, and another after a change.
            Outcome::Names(_) => true,
            Outcome::Stat(stat) => stat.kind != Kind::Dir && matches!(self, Op::Stat { .. }),
            _ => false,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Op::Create { .. } => "create",
            Op::Mkdir { stripe_count: 2.., .. } => "mkdir-striped",
            Op::Mkdir { mdt_index: None, .. } => "mkdir",
            Op::Mkdir { mdt_index: Some(_), .. } => "mkdir-on",
            Op::Symlink { .. } => "symlink",
            Op::Unlink { .. } => "unlink",
            Op::Rmdir { .. } => "rmdir",
            Op::Rename { .. } => "rename",
            Op::Link { .. } => "link",
            Op::Stat { .. } => "stat",
            Op::Readlink { .. } => "readlink",
            Op::List { .. } => "list",
            Op::Open { .. } => "open",
            Op::Tmpfile { .. } => "file without a name made",
            Op::LinkOpen { .. } => "open file linked",
            Op::Close { .. } => "close",
            Op::Write { .. } => "write",
            Op::Append { .. } => "append",
            Op::Read { .. } => "read",
            Op::Fstat { .. } => "fstat",
            Op::Truncate { .. } => "truncate",
            Op::Fsync { .. } => "fsync",
            Op::Chmod { .. } => "chmod",
            Op::Setstripe { .. } => "setstripe",
            Op::Setdirstripe { .. } => "setdirstripe",
            Op::Migrate { .. } => "migrate",
            Op::Setxattr { .. } => "setxattr",
            Op::Getxattr { .. } => "getxattr",
            Op::Removexattr { .. } => "removexattr",
            Op::SyncAll => "sync",
            Op::Statfs => "statfs",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink,
}

/// What a call told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// A write: so many bytes, fewer than it was asked for.
    Written(u64),
    Error(i32),
    /// A node was made, or opened.
    Node(u64),
    Stat(Stat),
    Text(Vec<u8>),
    Names(Vec<(Name, u64)>),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub node: u64,
    pub kind: Kind,
    pub permissions: u32,
    pub link_count: u32,
    /// Of files only.
    pub size: u64,
}

/// For people: bytes as runs.
pub fn tell(outcome: &Outcome) -> String {
    let Outcome::Bytes(bytes) = outcome else { return format!("{outcome:?}") };
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for byte in bytes {
        match runs.last_mut() {
            Some((last, count)) if last == byte => *count += 1,
            _ => runs.push((*byte, 1)),
        }
    }
    let shown: Vec<String> = runs.iter().take(40).map(|(byte, count)| format!("{count}x{byte}")).collect();
    format!("{} bytes: {}{}", bytes.len(), shown.join(" "), if runs.len() > 40 { " …" } else { "" })
}
