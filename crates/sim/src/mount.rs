//! A mount: what a kernel and its processes do with the client machine. Each operation of the workload is a small
//! program of calls; names and attributes are cached as long as the client allows and nobody takes them back, and
//! answers out of these caches are judged like any other.

use crate::model::{EEXIST, EISDIR, ENOENT, ENOTDIR, ESTALE, Kind, Op, Outcome, Stat, pattern};
use crate::workload::{self, FIRST_READING_SLOT};
use base::{Attr, Duration, FileType, Time};
use bytes::Bytes;
use client::Notify;
use client::call::{Answer, Call, Caller, EntryAnswer, OpenMode, SetattrCall};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use wire::mdt::DirStriping;

const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_APPEND: u32 = 0o2000;
const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 77 };

/// How often a path is walked once more since something on it was stale: a kernel does it once. Here several directories may move at
/// the same time, and a process that lists one that moves does it again by itself.
const WALK_AGAIN_COUNT: usize = 3;

#[derive(Clone, Debug)]
struct Dentry {
    node: u64,
    until: Time,
    /// Tells it from a later one of the same name.
    id: u64,
}

/// What the kernel of a mount knows, and the calls of its processes.
#[derive(Default)]
pub struct Kernel {
    pub now: Time,
    names: BTreeMap<(u64, Vec<u8>), Dentry>,
    attrs: BTreeMap<u64, (Attr, Time)>,
    /// What an inode is does not change, and stays known when its attributes are not.
    types: BTreeMap<u64, FileType>,
    next_call: u64,
    next_dentry: u64,
    pub outbox: Vec<(u64, Call, Caller)>,
    results: BTreeMap<u64, Result<Answer, i32>>,
    pub handles: BTreeMap<usize, (u64, u64)>,
    /// Those of them that pass by the page cache.
    pub direct: BTreeSet<u64>,
    pub cache_hits: u64,
    /// Inodes that a process has locked, as `i_rwsem`: how many share it, or that one has it alone.
    locks: BTreeMap<u64, InodeLock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InodeLock {
    Shared(u32),
    Alone,
}

pub type Port = Rc<RefCell<Kernel>>;

impl Kernel {
    pub fn on_reply(&mut self, id: u64, result: Result<Answer, i32>) {
        self.results.insert(id, result);
    }

    fn note_open(&mut self, slot: usize, (node, fh): (u64, u64), mode: OpenMode) {
        self.handles.insert(slot, (node, fh));
        match mode.is_direct {
            true => self.direct.insert(fh),
            false => self.direct.remove(&fh),
        };
    }

    /// Told by its client. -> Whether it had what it is to drop.
    pub fn on_notify(&mut self, notify: &Notify) -> bool {
        match notify {
            Notify::InvalEntry { parent, name } => self.names.remove(&(*parent, name.clone())).is_some(),
            // It keeps it, and looks it up before it believes it again.
            Notify::ExpireEntry { parent, name } => {
                let dentry = self.names.get_mut(&(*parent, name.clone()));
                dentry.map(|dentry| dentry.until = Time::ZERO).is_some()
            }
            Notify::InvalInode { node, .. } => self.attrs.remove(node).is_some(),
            // These kernels have no pages.
            Notify::Store { .. } => false,
            Notify::IncEpoch => {
                self.drop_all_names();
                true
            }
            Notify::Several(notices) => {
                notices.iter().for_each(|notice| {
                    self.on_notify(notice);
                });
                true
            }
        }
    }

    pub fn drop_all_names(&mut self) {
        self.names.clear();
    }

    /// Whether a notification about a name in this directory would have to wait.
    pub fn is_locked(&self, node: u64) -> bool {
        self.locks.contains_key(&node)
    }

    fn try_lock(&mut self, node: u64, is_alone: bool) -> bool {
        match (self.locks.get_mut(&node), is_alone) {
            (None, true) => drop(self.locks.insert(node, InodeLock::Alone)),
            (None, false) => drop(self.locks.insert(node, InodeLock::Shared(1))),
            (Some(InodeLock::Shared(count)), false) => *count += 1,
            (Some(_), _) => return false,
        }
        true
    }

    fn unlock(&mut self, node: u64) {
        match self.locks.get_mut(&node) {
            Some(InodeLock::Shared(count)) if *count > 1 => *count -= 1,
            _ => drop(self.locks.remove(&node)),
        }
    }

    fn until(&self, valid: Duration) -> Time {
        if valid.is_zero() { Time::ZERO } else { self.now.after(valid) }
    }

    fn remember_attr(&mut self, attr: &Attr, node: u64, valid: Duration) {
        let until = self.until(valid);
        self.attrs.insert(node, (attr.clone(), until));
        self.types.insert(node, attr.file_type);
    }

    fn remember_entry(&mut self, parent: u64, name: &[u8], entry: &EntryAnswer) {
        let until = self.until(entry.entry_valid);
        self.next_dentry += 1;
        let dentry = Dentry { node: entry.node, until, id: self.next_dentry };
        self.names.insert((parent, name.to_vec()), dentry);
        if let Some(attr) = &entry.attr {
            self.remember_attr(attr, entry.node, entry.attr_valid);
        }
    }
}

/// A call in flight.
struct Pending {
    port: Port,
    id: u64,
}

impl Future for Pending {
    type Output = Result<Answer, i32>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.port.borrow_mut().results.remove(&self.id) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

fn call(port: &Port, call: Call) -> Pending {
    let mut kernel = port.borrow_mut();
    kernel.next_call += 1;
    let id = kernel.next_call;
    kernel.outbox.push((id, call, CALLER));
    drop(kernel);
    Pending { port: Rc::clone(port), id }
}

/// Inodes that a process holds locked.
struct Locked {
    port: Port,
    nodes: Vec<u64>,
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut kernel = self.port.borrow_mut();
        for node in &self.nodes {
            kernel.unlock(*node);
        }
    }
}

/// Waits for inode locks, all at once: the kernel orders them, which comes to the same.
struct Locking {
    port: Port,
    nodes: Vec<u64>,
    is_alone: bool,
}

impl Future for Locking {
    type Output = Locked;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Locked> {
        let mut kernel = self.port.borrow_mut();
        for (index, node) in self.nodes.iter().enumerate() {
            if !kernel.try_lock(*node, self.is_alone) {
                for locked in self.nodes.iter().take(index) {
                    kernel.unlock(*locked);
                }
                return Poll::Pending;
            }
        }
        drop(kernel);
        Poll::Ready(Locked { port: Rc::clone(&self.port), nodes: self.nodes.clone() })
    }
}

fn lock_alone(port: &Port, nodes: &[u64]) -> Locking {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes.dedup();
    Locking { port: Rc::clone(port), nodes, is_alone: true }
}

fn lock_shared(port: &Port, node: u64) -> Locking {
    Locking { port: Rc::clone(port), nodes: vec![node], is_alone: false }
}

/// A process in the middle of an operation.
pub struct Task {
    future: Pin<Box<dyn Future<Output = Outcome>>>,
}

impl Task {
    pub fn new(port: &Port, op: Op) -> Task {
        let port = Rc::clone(port);
        let run = async move {
            let mut result = run(&port, op.clone()).await;
            for _ in 0..WALK_AGAIN_COUNT {
                if !op.is_walking() || result != Err(ESTALE) {
                    break;
                }
                port.borrow_mut().drop_all_names();
                result = run(&port, op.clone()).await;
            }
            match result {
                Ok(outcome) => outcome,
                Err(errno) => Outcome::Error(errno),
            }
        };
        Task { future: Box::pin(run) }
    }

    pub fn poll(&mut self) -> Option<Outcome> {
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }
}

/// What the kernel has cached under a name.
fn cached(port: &Port, key: &(u64, Vec<u8>)) -> Option<Result<u64, i32>> {
    let mut kernel = port.borrow_mut();
    let node = kernel.names.get(key).filter(|dentry| dentry.until > kernel.now)?.node;
    kernel.cache_hits += 1;
    Some(if node == 0 { Err(ENOENT) } else { Ok(node) })
}

async fn lookup(port: &Port, parent: u64, name: &str) -> Result<u64, i32> {
    let key = (parent, name.as_bytes().to_vec());
    if let Some(known) = cached(port, &key) {
        return known;
    }
    if let Some(node) = revalidate(port, &key).await {
        return Ok(node);
    }
    let _locked = lock_shared(port, parent).await;
    lookup_locked(port, parent, name).await
}

/// A name whose time is over is asked for again, by as many processes as want it, and without the directory's lock. What comes
/// back about a dentry that was dropped meanwhile is good for its caller only.
async fn revalidate(port: &Port, key: &(u64, Vec<u8>)) -> Option<u64> {
    let known = port.borrow().names.get(key).cloned().filter(|dentry| dentry.node != 0)?;
    let answer = call(port, Call::Lookup { parent: key.0, name: key.1.clone() }).await;
    let mut kernel = port.borrow_mut();
    let is_here = kernel.names.get(key).is_some_and(|dentry| dentry.id == known.id);
    match answer {
        Ok(Answer::Entry(entry)) if entry.node == known.node => {
            let until = kernel.until(entry.entry_valid);
            if let Some(dentry) = kernel.names.get_mut(key).filter(|_| is_here) {
                dentry.until = until;
            }
            if let Some(attr) = &entry.attr {
                kernel.remember_attr(attr, entry.node, entry.attr_valid);
            }
            Some(known.node)
        }
        _ => {
            if is_here {
                kernel.names.remove(key);
            }
            None
        }
    }
}

/// As `lookup`, by somebody who has the directory locked.
async fn lookup_locked(port: &Port, parent: u64, name: &str) -> Result<u64, i32> {
    let key = (parent, name.as_bytes().to_vec());
    if let Some(known) = cached(port, &key) {
        return known;
    }
    if let Some(node) = revalidate(port, &key).await {
        return Ok(node);
    }
    let answer = call(port, Call::Lookup { parent, name: key.1.clone() }).await;
    match answer {
        Ok(Answer::Entry(entry)) => {
            port.borrow_mut().remember_entry(parent, &key.1, &entry);
            if entry.node == 0 { Err(ENOENT) } else { Ok(entry.node) }
        }
        Ok(other) => panic!("lookup answered {other:?}"),
        Err(errno) => {
            port.borrow_mut().names.remove(&key);
            Err(errno)
        }
    }
}

async fn walk(port: &Port, path: &[String]) -> Result<u64, i32> {
    let mut node = 1;
    for name in path {
        // The kernel looks nothing up in what it knows to be no directory.
        let known = port.borrow().types.get(&node).copied();
        if known.is_some_and(|file_type| file_type != FileType::Directory) {
            return Err(ENOTDIR);
        }
        node = lookup(port, node, name).await?;
    }
    Ok(node)
}

async fn walk_parent(port: &Port, path: &[String]) -> Result<(u64, Vec<u8>), i32> {
    let (name, parents) = path.split_last().ok_or(22)?;
    let parent = walk(port, parents).await?;
    let known = port.borrow().types.get(&parent).copied();
    if known.is_some_and(|file_type| file_type != FileType::Directory) {
        return Err(ENOTDIR);
    }
    Ok((parent, name.as_bytes().to_vec()))
}

/// Of a rename. The kernel walks to one parent after the other, and others may move directories in between; that is no single step, and
/// the judge knows only such. So it is walked again until both ways were true at one time.
async fn walk_parents(port: &Port, from: &[String], to: &[String]) -> Result<[(u64, Vec<u8>); 2], i32> {
    let mut first = walk_parent(port, from).await?;
    for _ in 0..WALK_AGAIN_COUNT {
        let second = walk_parent(port, to).await?;
        let at = port.borrow().now;
        let again = walk_parent(port, from).await?;
        if again == first && port.borrow().now == at {
            return Ok([first, second]);
        }
        first = again;
    }
    Ok([first, walk_parent(port, to).await?])
}

async fn getattr(port: &Port, node: u64, fh: Option<u64>) -> Result<Attr, i32> {
    {
        let mut kernel = port.borrow_mut();
        let now = kernel.now;
        if let Some((attr, until)) = kernel.attrs.get(&node)
            && *until > now
        {
            let attr = attr.clone();
            kernel.cache_hits += 1;
            return Ok(attr);
        }
    }
    loop {
        match call(port, Call::Getattr { node, fh }).await? {
            // What the root was, which nobody could judge: it is asked for until its MDT says what it is.
            Answer::Attr(answer) if answer.is_remembered => {}
            Answer::Attr(answer) => {
                port.borrow_mut().remember_attr(&answer.attr, node, answer.attr_valid);
                return Ok(answer.attr);
            }
            other => panic!("getattr answered {other:?}"),
        }
    }
}

/// The kernel drops attributes of what it has changed itself.
fn changed(port: &Port, nodes: &[u64]) {
    let mut kernel = port.borrow_mut();
    for node in nodes {
        kernel.attrs.remove(node);
    }
}

fn name_changed(port: &Port, parent: u64, name: &[u8]) {
    let mut kernel = port.borrow_mut();
    let node = kernel.names.remove(&(parent, name.to_vec())).map(|dentry| dentry.node);
    kernel.attrs.remove(&parent);
    if let Some(node) = node {
        kernel.attrs.remove(&node);
    }
}

fn stat_of(node: u64, attr: &Attr) -> Outcome {
    let kind = match attr.file_type {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::File,
    };
    let size = if kind == Kind::File { attr.size_bytes } else { 0 };
    Outcome::Stat(Stat { node, kind, permissions: attr.permissions, link_count: attr.link_count, size })
}

fn handle(port: &Port, slot: usize) -> Result<(u64, u64), i32> {
    port.borrow().handles.get(&slot).copied().ok_or(9)
}

async fn run(port: &Port, op: Op) -> Result<Outcome, i32> {
    match op {
        Op::Create { path, is_exclusive, slot } => create(port, &path, is_exclusive, slot).await,
        Op::Mkdir { path, mdt_index, stripe_count } => {
            let (parent, name) = walk_parent(port, &path).await?;
            let _locked = lock_alone(port, &[parent]).await;
            let (mode, umask) = (0o755, 0o022);
            if stripe_count > 1 {
                let striping = DirStriping { stripe_count, mdts: mdt_index.into_iter().collect() };
                let request = Call::MkdirStriped { parent, name: name.clone(), mode, umask, striping };
                let answer = call(port, request).await;
                name_changed(port, parent, &name);
                return answer.map(|_| Outcome::Done);
            }
            match mdt_index {
                None => {
                    let answer = call(port, Call::Mkdir { parent, name: name.clone(), mode, umask }).await;
                    entry_made(port, parent, &name, answer)
                }
                Some(mdt_index) => {
                    let answer =
                        call(port, Call::MkdirOn { parent, name: name.clone(), mode, umask, mdt_index })
                            .await;
                    name_changed(port, parent, &name);
                    answer.map(|_| Outcome::Done)
                }
            }
        }
        Op::Symlink { path, target } => {
            let (parent, name) = walk_parent(port, &path).await?;
            let _locked = lock_alone(port, &[parent]).await;
            let target = target.into_bytes();
            let answer = call(port, Call::Symlink { parent, name: name.clone(), target }).await;
            entry_made(port, parent, &name, answer)
        }
        Op::Unlink { path } => {
            let (parent, name) = walk_parent(port, &path).await?;
            let _locked = lock_alone(port, &[parent]).await;
            // The kernel looks at what it removes.
            let node = lookup_locked(port, parent, path.last().map_or("", String::as_str)).await?;
            let answer = call(port, Call::Unlink { parent, name: name.clone() }).await;
            changed(port, &[node]);
            name_changed(port, parent, &name);
            answer.map(|_| Outcome::Done)
        }
        Op::Rmdir { path } => {
            let (parent, name) = walk_parent(port, &path).await?;
            let _locked = lock_alone(port, &[parent]).await;
            let node = lookup_locked(port, parent, path.last().map_or("", String::as_str)).await?;
            let answer = call(port, Call::Rmdir { parent, name: name.clone() }).await;
            changed(port, &[node]);
            name_changed(port, parent, &name);
            answer.map(|_| Outcome::Done)
        }
        Op::Rename { from, to, flags } => {
            let [(parent, name), (new_parent, new_name)] = walk_parents(port, &from, &to).await?;
            let _locked = lock_alone(port, &[parent, new_parent]).await;
            // The kernel looks at both, and knows that they have changed.
            let moved = lookup_locked(port, parent, from.last().map_or("", String::as_str)).await?;
            let replaced = match lookup_locked(port, new_parent, to.last().map_or("", String::as_str)).await {
                Err(ENOENT) => None,
                found => Some(found?),
            };
            let request =
                Call::Rename { parent, name: name.clone(), new_parent, new_name: new_name.clone(), flags };
            let answer = call(port, request).await;
            changed(port, &[moved]);
            changed(port, replaced.as_slice());
            name_changed(port, parent, &name);
            name_changed(port, new_parent, &new_name);
            answer.map(|_| Outcome::Done)
        }
        Op::Link { from, to } => {
            let node = walk(port, &from).await?;
            let (parent, name) = walk_parent(port, &to).await?;
            let _locked = lock_alone(port, &[parent, node]).await;
            let answer = call(port, Call::Link { node, parent, name: name.clone() }).await;
            changed(port, &[node]);
            entry_made(port, parent, &name, answer)
        }
        Op::Stat { path } => {
            let node = walk(port, &path).await?;
            let attr = getattr(port, node, None).await?;
            Ok(stat_of(node, &attr))
        }
        Op::Readlink { path } => {
            let node = walk(port, &path).await?;
            let known = port.borrow().types.get(&node).copied();
            if known.is_some_and(|file_type| file_type != FileType::Symlink) {
                return Err(22);
            }
            bytes_of(call(port, Call::Readlink { node }).await?)
        }
        Op::List { path } => list(port, &path).await,
        Op::Open { path, slot } => {
            let node = walk(port, &path).await?;
            match port.borrow().types.get(&node).copied() {
                Some(FileType::Directory) => return Err(EISDIR),
                Some(FileType::Symlink) => return Err(40),
                _ => {}
            }
            let flags = if slot >= FIRST_READING_SLOT { O_RDONLY } else { O_RDWR };
            match call(port, Call::Open { node, flags }).await? {
                Answer::Opened { fh, mode } => {
                    port.borrow_mut().note_open(slot, (node, fh), mode);
                    Ok(Outcome::Node(node))
                }
                other => panic!("open answered {other:?}"),
            }
        }
        Op::Tmpfile { parent, slot } => {
            let parent = walk(port, &parent).await?;
            let known = port.borrow().types.get(&parent).copied();
            if known.is_some_and(|file_type| file_type != FileType::Directory) {
                return Err(ENOTDIR);
            }
            let request = Call::Tmpfile { parent, mode: 0o100_644, umask: 0o022, flags: O_RDWR };
            match call(port, request).await? {
                Answer::Created { entry, fh, mode } => {
                    let mut kernel = port.borrow_mut();
                    if let Some(attr) = &entry.attr {
                        kernel.remember_attr(attr, entry.node, entry.attr_valid);
                    }
                    kernel.note_open(slot, (entry.node, fh), mode);
                    Ok(Outcome::Node(entry.node))
                }
                other => panic!("tmpfile answered {other:?}"),
            }
        }
        Op::LinkOpen { slot, to } => {
            let (node, _) = handle(port, slot)?;
            let (parent, name) = walk_parent(port, &to).await?;
            let _locked = lock_alone(port, &[parent, node]).await;
            let answer = call(port, Call::Link { node, parent, name: name.clone() }).await;
            changed(port, &[node]);
            entry_made(port, parent, &name, answer)
        }
        Op::Close { slot } => {
            let (node, fh) = handle(port, slot)?;
            let flushed = call(port, Call::Flush { node, fh, lock_owner: 1 }).await;
            call(port, Call::Release { node, fh, flock_owner: None }).await?;
            port.borrow_mut().handles.remove(&slot);
            flushed.map(|_| Outcome::Done)
        }
        Op::Write { slot, offset, byte_count, fill } => {
            write(port, slot, offset, byte_count, fill, O_RDWR).await
        }
        Op::Append { slot, byte_count, fill } => {
            write(port, slot, 0, byte_count, fill, O_RDWR | O_APPEND).await
        }
        Op::Read { slot, offset, byte_count } => {
            let (node, fh) = handle(port, slot)?;
            let is_direct = port.borrow().direct.contains(&fh);
            let (offset_bytes, byte_count) = (offset, byte_count as u32);
            match call(port, Call::Read { node, fh, offset_bytes, byte_count, is_direct }).await? {
                Answer::Bytes(bytes) => Ok(Outcome::Bytes(bytes.to_vec())),
                other => panic!("read answered {other:?}"),
            }
        }
        Op::Fstat { slot } => {
            let (node, fh) = handle(port, slot)?;
            let attr = getattr(port, node, Some(fh)).await?;
            Ok(stat_of(node, &attr))
        }
        Op::Truncate { path, size } => {
            let node = walk(port, &path).await?;
            match port.borrow().types.get(&node).copied() {
                Some(FileType::Directory) => return Err(EISDIR),
                Some(FileType::Symlink) => return Err(22),
                _ => {}
            }
            let set = SetattrCall { size_bytes: Some(size), ..SetattrCall::default() };
            setattr(port, node, set).await
        }
        Op::Fsync { slot } => {
            let (node, fh) = handle(port, slot)?;
            call(port, Call::Fsync { node, fh, data_only: false }).await?;
            Ok(Outcome::Done)
        }
        Op::Chmod { path, permissions } => {
            let node = walk(port, &path).await?;
            let set = SetattrCall { mode: Some(permissions), ..SetattrCall::default() };
            setattr(port, node, set).await
        }
        Op::Setstripe { path, layout } => {
            let node = walk(port, &path).await?;
            if getattr(port, node, None).await?.file_type != FileType::Directory {
                return Err(ENOTDIR);
            }
            let answer = call(port, Call::Setstripe { node, layout: workload::layout(layout) }).await;
            changed(port, &[node]);
            answer.map(|_| Outcome::Done)
        }
        Op::Setdirstripe { path, stripe_count } => {
            let node = walk(port, &path).await?;
            if getattr(port, node, None).await?.file_type != FileType::Directory {
                return Err(ENOTDIR);
            }
            let striping = match stripe_count {
                1 => DirStriping::by_space(1, Some(2)),
                _ => DirStriping { stripe_count, mdts: Vec::new() },
            };
            let striping = Some(striping).filter(|_| stripe_count > 0);
            let answer = call(port, Call::Setdirstripe { node, striping }).await;
            changed(port, &[node]);
            answer.map(|_| Outcome::Done)
        }
        Op::Migrate { path, mdt_index } => {
            let (parent, name) = walk_parent(port, &path).await?;
            match call(port, Call::Migrate { parent, name, mdt_index }).await? {
                Answer::Migrated { .. } => Ok(Outcome::Done),
                other => panic!("migrate answered {other:?}"),
            }
        }
        Op::Setxattr { path, name, value } => {
            let node = walk(port, &path).await?;
            let _locked = lock_alone(port, &[node]).await;
            let request = Call::Setxattr { node, name: name.into_bytes(), value: vec![value], flags: 0 };
            let answer = call(port, request).await;
            changed(port, &[node]);
            answer.map(|_| Outcome::Done)
        }
        Op::Getxattr { path, name } => {
            let node = walk(port, &path).await?;
            bytes_of(call(port, Call::Getxattr { node, name: name.into_bytes() }).await?)
        }
        Op::Removexattr { path, name } => {
            let node = walk(port, &path).await?;
            let _locked = lock_alone(port, &[node]).await;
            let answer = call(port, Call::Removexattr { node, name: name.into_bytes() }).await;
            changed(port, &[node]);
            answer.map(|_| Outcome::Done)
        }
        Op::SyncAll => call(port, Call::SyncAll).await.map(|_| Outcome::Done),
        Op::Statfs => call(port, Call::Statfs { node: 1 }).await.map(|_| Outcome::Done),
    }
}

fn bytes_of(answer: Answer) -> Result<Outcome, i32> {
    match answer {
        Answer::Bytes(bytes) => Ok(Outcome::Text(bytes.to_vec())),
        other => panic!("bytes were asked for: {other:?}"),
    }
}

async fn create(
    port: &Port,
    path: &[String],
    is_exclusive: bool,
    slot: Option<usize>,
) -> Result<Outcome, i32> {
    let (parent, name) = walk_parent(port, path).await?;
    let locked = lock_alone(port, &[parent]).await;
    let flags = O_RDWR | O_CREAT | if is_exclusive { O_EXCL } else { 0 };
    let request = Call::Create { parent, name: name.clone(), mode: 0o100_644, umask: 0o022, flags };
    let answer = call(port, request).await;
    changed(port, &[parent]);
    let (entry, fh, mode) = match answer {
        Ok(Answer::Created { entry, fh, mode }) => (entry, fh, mode),
        Ok(other) => panic!("create answered {other:?}"),
        Err(errno) => {
            name_changed(port, parent, &name);
            // Opening what is there and no file: the kernel would have looked first.
            return Err(if errno == EEXIST && !is_exclusive { EISDIR } else { errno });
        }
    };
    let node = entry.node;
    port.borrow_mut().remember_entry(parent, &name, &entry);
    drop(locked);
    match slot {
        Some(slot) => {
            port.borrow_mut().note_open(slot, (node, fh), mode);
        }
        None => {
            // As the kernel does, whatever close(2) says.
            let flushed = call(port, Call::Flush { node, fh, lock_owner: 1 }).await;
            call(port, Call::Release { node, fh, flock_owner: None }).await?;
            flushed?;
        }
    }
    Ok(Outcome::Node(node))
}

fn entry_made(port: &Port, parent: u64, name: &[u8], answer: Result<Answer, i32>) -> Result<Outcome, i32> {
    name_changed(port, parent, name);
    match answer? {
        Answer::Entry(entry) => {
            port.borrow_mut().remember_entry(parent, name, &entry);
            Ok(Outcome::Done)
        }
        other => panic!("an entry was asked for: {other:?}"),
    }
}

async fn write(
    port: &Port,
    slot: usize,
    offset_bytes: u64,
    byte_count: u64,
    fill: u8,
    flags: u32,
) -> Result<Outcome, i32> {
    let (node, fh) = handle(port, slot)?;
    let _locked = lock_alone(port, &[node]).await;
    let data = Bytes::from(pattern(fill, byte_count));
    let request =
        Call::Write { node, fh, offset_bytes, data, flags, is_writeback: false, kill_privileges: false };
    let answer = call(port, request).await;
    changed(port, &[node]);
    match answer? {
        Answer::Written(count) if count == byte_count => Ok(Outcome::Done),
        Answer::Written(count) if count < byte_count => Ok(Outcome::Written(count)),
        other => panic!("a write of {byte_count} bytes answered {other:?}"),
    }
}

async fn setattr(port: &Port, node: u64, set: SetattrCall) -> Result<Outcome, i32> {
    let _locked = lock_alone(port, &[node]).await;
    let answer = call(port, Call::Setattr { node, set }).await;
    changed(port, &[node]);
    match answer? {
        Answer::Attr(answer) => {
            port.borrow_mut().remember_attr(&answer.attr, node, answer.attr_valid);
            Ok(Outcome::Done)
        }
        other => panic!("setattr answered {other:?}"),
    }
}

async fn list(port: &Port, path: &[String]) -> Result<Outcome, i32> {
    let node = walk(port, path).await?;
    let known = port.borrow().types.get(&node).copied();
    if known.is_some_and(|file_type| file_type != FileType::Directory) {
        return Err(ENOTDIR);
    }
    let Answer::Opened { fh, .. } = call(port, Call::Opendir { node, flags: 0 }).await? else {
        panic!("opendir did not open");
    };
    let mut names = Vec::new();
    let mut offset = 0;
    let listed = loop {
        let _locked = lock_shared(port, node).await;
        let request = Call::Readdir { node, fh, offset, byte_count: 4096, is_plus: true };
        let entries = match call(port, request).await {
            Ok(Answer::Entries(entries)) => entries,
            Ok(other) => panic!("readdir answered {other:?}"),
            Err(errno) => break Err(errno),
        };
        let Some(last) = entries.last() else { break Ok(()) };
        offset = last.offset;
        for entry in entries {
            if let Some(known) = &entry.entry {
                port.borrow_mut().remember_entry(node, &entry.name, known);
            }
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if name != "." && name != ".." {
                names.push((name, entry.node));
            }
        }
    };
    call(port, Call::Releasedir { node, fh }).await?;
    listed?;
    names.sort();
    Ok(Outcome::Names(names))
}
