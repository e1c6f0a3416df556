//! A file system that stores nothing, for measuring what the FUSE layer itself costs.
//!
//! In every directory a name `f` and a decimal number leads to a file of 1 GiB of zeros without having been made. Other
//! files, directories and symlinks can be made and removed; writes change only the size. Nothing is cached by the kernel
//! (all lifetimes are 0), so every operation is at least one request; pages are where `Contents::cached` says so, names
//! and attributes where `NullFs::cached_for` does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;

use crate::abi::fopen;
use crate::{Attr, DirBuffer, EntryOut, Handler, Op, Reply, Request, Statfs, Timestamp};

const SHARD_COUNT: u64 = 64;
/// Bit of the node ids that are made of a name's number.
const SYNTHETIC: u64 = 1 << 62;
/// Bit of the node ids of directories.
const DIRECTORY: u64 = 1 << 61;
const SYNTHETIC_SIZE_BYTES: u64 = 1 << 30;
const DIRECT_FLAGS: u32 = fopen::DIRECT_IO | fopen::NOFLUSH | fopen::PARALLEL_DIRECT_WRITES;
const CACHED_FLAGS: u32 = fopen::KEEP_CACHE | fopen::NOFLUSH;
/// Of contents that repeat.
const BLOCK_BYTES: usize = 1 << 20;
/// More than any READ asks for, and a block.
const CONTENTS_BYTES: usize = 16 << 20;

#[derive(Debug, Clone)]
struct Node {
    mode: u32,
    size: u64,
    /// Of a symlink.
    target: Vec<u8>,
}

impl Node {
    fn empty(mode: u32) -> Node {
        Node { mode, size: 0, target: Vec::new() }
    }
}

/// What all files consist of, and how they are opened.
#[derive(Debug, Clone)]
pub struct Contents {
    bytes: Bytes,
    open_flags: u32,
}

impl Contents {
    /// Zeros, which the kernel does not cache.
    pub fn zeros() -> Contents {
        Contents { bytes: Bytes::from(vec![0; CONTENTS_BYTES]), open_flags: DIRECT_FLAGS }
    }

    /// A MiB that repeats, in the kernel's page cache, so that files can be mapped. What is missing of the MiB is zeros.
    pub fn cached(block: &[u8]) -> Contents {
        let mut block = block.to_vec();
        block.resize(BLOCK_BYTES, 0);
        Contents { bytes: block.repeat(CONTENTS_BYTES / BLOCK_BYTES).into(), open_flags: CACHED_FLAGS }
    }

    /// Fewer than wanted where a READ asks for more than there ever is.
    fn read(&self, offset: u64, byte_count: u64) -> &[u8] {
        let start = (offset % BLOCK_BYTES as u64) as usize;
        let end = (start as u64).saturating_add(byte_count).min(self.bytes.len() as u64) as usize;
        self.bytes.get(start..end).unwrap_or_default()
    }
}

/// Names by directory and name.
type Names = BTreeMap<(u64, Vec<u8>), u64>;

/// The handler; see the module.
#[derive(Debug)]
pub struct NullFs {
    names: Vec<Mutex<Names>>,
    nodes: Vec<Mutex<BTreeMap<u64, Node>>>,
    next_node: AtomicU64,
    listed_count: u64,
    /// How long the kernel believes names and attributes.
    ttl: Duration,
    contents: Contents,
}

impl NullFs {
    /// An empty one, whose root lists the synthetic files `f0` up to (not including) `listed_count`.
    pub fn new(listed_count: u64) -> Self {
        Self {
            names: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            nodes: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            next_node: AtomicU64::new(2),
            listed_count,
            ttl: Duration::ZERO,
            contents: Contents::zeros(),
        }
    }

    /// An empty one with other contents.
    pub fn with(contents: Contents) -> Self {
        Self { contents, ..Self::new(0) }
    }

    /// The kernel keeps names and attributes for so long, as it does of a real file system: what came with a listing is not asked for
    /// again. All changes come through it, so what it knows is true.
    #[must_use]
    pub fn cached_for(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    fn names(&self, parent: u64) -> MutexGuard<'_, Names> {
        self.names[(parent % SHARD_COUNT) as usize].lock().unwrap_or_else(|e| e.into_inner())
    }

    fn nodes(&self, nodeid: u64) -> MutexGuard<'_, BTreeMap<u64, Node>> {
        self.nodes[(nodeid % SHARD_COUNT) as usize].lock().unwrap_or_else(|e| e.into_inner())
    }

    fn find(&self, parent: u64, name: &[u8]) -> Option<u64> {
        if let Some(number) = name.strip_prefix(b"f").and_then(|digits| std::str::from_utf8(digits).ok())
            && let Ok(number) = number.parse::<u32>()
        {
            return Some(SYNTHETIC | u64::from(number));
        }
        self.names(parent).get(&(parent, name.to_vec())).copied()
    }

    fn node(&self, nodeid: u64) -> Node {
        if nodeid & SYNTHETIC != 0 {
            return Node { size: SYNTHETIC_SIZE_BYTES, ..Node::empty(libc::S_IFREG | 0o666) };
        }
        // What was removed while open still looks like something.
        self.nodes(nodeid).get(&nodeid).cloned().unwrap_or_else(|| {
            let is_root = nodeid == crate::abi::ROOT_ID;
            Node::empty(if is_root { libc::S_IFDIR | 0o777 } else { libc::S_IFREG | 0o666 })
        })
    }

    fn attr(&self, nodeid: u64) -> Attr {
        let node = self.node(nodeid);
        let time = Timestamp::new(1_700_000_000, 0);
        Attr {
            ino: nodeid,
            size: node.size,
            blocks: node.size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: Some(time),
            mode: node.mode,
            nlink: 1,
            blksize: 4096,
            ..Default::default()
        }
    }

    fn entry(&self, nodeid: u64) -> EntryOut {
        let (entry_ttl, attr_ttl) = (self.ttl, self.ttl);
        EntryOut { nodeid, attr: self.attr(nodeid), entry_ttl, attr_ttl, ..Default::default() }
    }

    fn make(&self, parent: u64, name: Vec<u8>, node: Node) -> Result<EntryOut, i32> {
        if self.find(parent, &name).is_some() {
            return Err(libc::EEXIST);
        }
        let kind = if node.mode & libc::S_IFMT == libc::S_IFDIR { DIRECTORY } else { 0 };
        let nodeid = self.next_node.fetch_add(1, Ordering::Relaxed) | kind;
        self.nodes(nodeid).insert(nodeid, node);
        self.names(parent).insert((parent, name), nodeid);
        Ok(self.entry(nodeid))
    }

    fn remove(&self, parent: u64, name: &[u8], is_dir: bool) -> i32 {
        let Some(nodeid) = self.names(parent).remove(&(parent, name.to_vec())) else {
            return libc::ENOENT;
        };
        if (nodeid & DIRECTORY != 0) != is_dir {
            self.names(parent).insert((parent, name.to_vec()), nodeid);
            return if is_dir { libc::ENOTDIR } else { libc::EISDIR };
        }
        self.nodes(nodeid).remove(&nodeid);
        0
    }

    /// The plain one, without flags.
    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> i32 {
        if flags != 0 {
            return libc::EINVAL;
        }
        let Some(nodeid) = self.names(from.0).remove(&(from.0, from.1.to_vec())) else {
            return libc::ENOENT;
        };
        if let Some(replaced) = self.names(to.0).insert((to.0, to.1.to_vec()), nodeid) {
            self.nodes(replaced).remove(&replaced);
        }
        0
    }

    fn set_size(&self, nodeid: u64, change: impl Fn(u64) -> u64) {
        if let Some(node) = self.nodes(nodeid).get_mut(&nodeid) {
            node.size = change(node.size);
        }
    }

    fn list(&self, dir: u64, offset: u64, size: u32, plus: bool) -> DirBuffer {
        let mut page = DirBuffer::new(size);
        let listed = if dir == crate::abi::ROOT_ID { self.listed_count } else { 0 };
        let mut add = |nodeid: u64, next: u64, name: &[u8]| {
            if plus {
                page.add_plus(&self.entry(nodeid), next, name)
            } else {
                page.add(nodeid, next, self.node(nodeid).mode, name)
            }
        };
        for number in offset..listed {
            if !add(SYNTHETIC | number, number + 1, format!("f{number}").as_bytes()) {
                return page;
            }
        }
        let made: Vec<_> = self
            .names(dir)
            .range((dir, Vec::new())..)
            .take_while(|((parent, _), _)| *parent == dir)
            .map(|((_, name), nodeid)| (name.clone(), *nodeid))
            .collect();
        let skip = offset.saturating_sub(listed) as usize;
        for (index, (name, nodeid)) in made.iter().enumerate().skip(skip) {
            if !add(*nodeid, listed + index as u64 + 1, name) {
                break;
            }
        }
        page
    }
}

impl Handler for NullFs {
    fn request(&self, request: Request, reply: Reply) {
        let node = request.nodeid;
        let entry = |made: Result<EntryOut, i32>, reply: Reply| match made {
            Ok(entry) => reply.entry(&entry),
            Err(errno) => reply.error(errno),
        };
        let done = |errno: i32, reply: Reply| if errno == 0 { reply.ok() } else { reply.error(errno) };
        match request.op {
            Op::Lookup { name } => match self.find(node, &name) {
                Some(child) => reply.entry(&self.entry(child)),
                None => reply.error(libc::ENOENT),
            },
            Op::Getattr { .. } => reply.attr(&self.attr(node), self.ttl),
            Op::Statx { .. } => reply.statx(&self.attr(node), self.ttl),
            Op::Setattr(set) => {
                if let Some(size) = set.size {
                    self.set_size(node, |_| size);
                }
                reply.attr(&self.attr(node), self.ttl);
            }
            Op::Mknod { name, mode, .. } => entry(self.make(node, name, Node::empty(mode)), reply),
            Op::Mkdir { name, mode, .. } => {
                entry(self.make(node, name, Node::empty(mode | libc::S_IFDIR)), reply);
            }
            Op::Symlink { name, target } => {
                let link = Node { mode: libc::S_IFLNK | 0o777, size: target.len() as u64, target };
                entry(self.make(node, name, link), reply);
            }
            Op::Readlink => reply.data(&self.node(node).target),
            Op::Create { name, mode, .. } => match self.make(node, name, Node::empty(mode | libc::S_IFREG)) {
                Ok(entry) => reply.created(&entry, 0, self.contents.open_flags),
                Err(errno) => reply.error(errno),
            },
            Op::Unlink { name } => done(self.remove(node, &name, false), reply),
            Op::Rmdir { name } => done(self.remove(node, &name, true), reply),
            Op::Rename { new_parent, flags, old_name, new_name } => {
                done(self.rename((node, &old_name), (new_parent, &new_name), flags), reply);
            }
            Op::Open { .. } => reply.opened(0, self.contents.open_flags),
            Op::Opendir { .. } => reply.opened(0, 0),
            Op::Read(read) => {
                let left = self.node(node).size.saturating_sub(read.offset);
                reply.data(self.contents.read(read.offset, u64::from(read.size).min(left)));
            }
            Op::Write(write) => {
                let end = write.offset.saturating_add(write.data.len() as u64);
                self.set_size(node, |size| size.max(end));
                reply.written(write.data.len() as u32);
            }
            Op::Readdir { offset, size, .. } => reply.readdir(self.list(node, offset, size, false)),
            Op::Readdirplus { offset, size, .. } => reply.readdir(self.list(node, offset, size, true)),
            Op::Statfs => reply.statfs(&Statfs {
                blocks: 1 << 30,
                bfree: 1 << 30,
                bavail: 1 << 30,
                files: 1 << 30,
                ffree: 1 << 30,
                bsize: 4096,
                namelen: 255,
                frsize: 4096,
            }),
            Op::Release { .. } | Op::Releasedir { .. } | Op::Fsync { .. } | Op::Fsyncdir { .. } => reply.ok(),
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn forget(&self, _forgets: &[(u64, u64)]) {}

    fn interrupt(&self, _unique: u64) {}

    fn destroyed(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_repeat_wherever_a_read_begins() {
        let block: Vec<u8> = (0..BLOCK_BYTES).map(|at| (at % 251) as u8).collect();
        let contents = Contents::cached(&block);
        for (offset, byte_count) in
            [(0, 4096), (BLOCK_BYTES - 10, 20), (5 * BLOCK_BYTES + 7, 3 * BLOCK_BYTES)]
        {
            let read = contents.read(offset as u64, byte_count as u64);
            let expected = (offset..offset + byte_count).map(|at| block.get(at % BLOCK_BYTES).copied());
            assert!(read.iter().copied().map(Some).eq(expected), "{byte_count} bytes at {offset}");
        }
        assert_eq!(Contents::cached(b"ab").read(1, 2), b"b\0", "what is missing is zeros");
        assert_eq!(contents.read(u64::MAX, u64::MAX).first(), block.last());
    }
}
