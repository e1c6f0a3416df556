//! A file system in memory, complete enough to test the layer below it with real system calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fuse::abi::ROOT_ID;
use fuse::*;

#[derive(Debug, Clone, Default)]
struct Inode {
    attr: Attr,
    data: Vec<u8>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    names: BTreeMap<Vec<u8>, (u64, u64)>,
    next_cookie: u64,
    parent: u64,
}

impl Inode {
    fn is_dir(&self) -> bool {
        self.attr.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    owner: u64,
    flock: bool,
    lock: Lock,
}

struct Waiter {
    unique: u64,
    nodeid: u64,
    held: Held,
    reply: Reply,
}

#[derive(Default)]
struct State {
    inodes: HashMap<u64, Inode>,
    locks: HashMap<u64, Vec<Held>>,
    waiters: Vec<Waiter>,
    next: u64,
}

/// The file system. Lifetimes of names and attributes can be set, to test their revocation.
pub struct MemFs {
    state: Mutex<State>,
    pub entry_ttl: Mutex<Duration>,
    pub requests: AtomicU64,
    pub largest_read: AtomicU64,
    pub largest_write: AtomicU64,
    pub forgets: AtomicU64,
    pub interrupts: AtomicU64,
    pub destroyed: AtomicBool,
}

type Answer<T> = Result<T, i32>;

impl MemFs {
    pub fn new() -> Self {
        let mut state = State { next: 2, ..Default::default() };
        let now = Timestamp::now();
        let attr = Attr {
            ino: ROOT_ID,
            mode: libc::S_IFDIR | 0o755,
            nlink: 2,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: Some(now),
            blksize: 4096,
            ..Default::default()
        };
        state.inodes.insert(ROOT_ID, Inode { attr, parent: ROOT_ID, ..Default::default() });
        Self {
            state: Mutex::new(state),
            entry_ttl: Mutex::new(Duration::ZERO),
            requests: AtomicU64::new(0),
            largest_read: AtomicU64::new(0),
            largest_write: AtomicU64::new(0),
            forgets: AtomicU64::new(0),
            interrupts: AtomicU64::new(0),
            destroyed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn ttl(&self) -> Duration {
        *self.entry_ttl.lock().unwrap()
    }

    /// Makes every request wait inside the handler until the answer is dropped, which a real handler must not.
    pub fn hold_everything(&self) -> impl Drop + '_ {
        self.lock()
    }

    pub fn waiter_count(&self) -> usize {
        self.lock().waiters.len()
    }

    /// Node id of a name in a directory.
    pub fn node(&self, parent: u64, name: &str) -> u64 {
        self.lock().inodes[&parent].names[name.as_bytes()].0
    }

    /// Puts a name there behind the kernel's back.
    pub fn add_behind(&self, parent: u64, name: &str) -> u64 {
        let caller = Caller { uid: 0, gid: 0 };
        let mut state = self.lock();
        state.make(parent, name.as_bytes(), libc::S_IFREG | 0o644, caller).unwrap()
    }

    /// Removes a name behind the kernel's back.
    pub fn remove_behind(&self, parent: u64, name: &str) {
        self.lock().remove(parent, name.as_bytes(), false).unwrap();
    }

    /// Changes the bytes behind the kernel's back.
    pub fn write_behind(&self, nodeid: u64, data: &[u8]) {
        let mut state = self.lock();
        let inode = state.inodes.get_mut(&nodeid).unwrap();
        inode.data = data.to_vec();
        inode.attr.size = data.len() as u64;
    }

    fn entry(&self, state: &State, nodeid: u64) -> Answer<EntryOut> {
        let attr = state.inodes.get(&nodeid).ok_or(libc::ESTALE)?.attr;
        Ok(EntryOut { nodeid, generation: 0, entry_ttl: self.ttl(), attr_ttl: self.ttl(), attr })
    }
}

#[derive(Clone, Copy)]
struct Caller {
    uid: u32,
    gid: u32,
}

fn overlaps(a: &Lock, b: &Lock) -> bool {
    a.start <= b.end && b.start <= a.end
}

impl State {
    fn inode(&mut self, nodeid: u64) -> Answer<&mut Inode> {
        self.inodes.get_mut(&nodeid).ok_or(libc::ESTALE)
    }

    fn touch(&mut self, nodeid: u64) {
        let now = Timestamp::now();
        if let Some(inode) = self.inodes.get_mut(&nodeid) {
            inode.attr.mtime = now;
            inode.attr.ctime = now;
        }
    }

    fn new_inode(&mut self, parent: u64, mode: u32, caller: Caller) -> Answer<u64> {
        let nodeid = self.next;
        self.next += 1;
        let now = Timestamp::now();
        let dir = self.inode(parent)?.attr;
        let is_dir = mode & libc::S_IFMT == libc::S_IFDIR;
        let inherits = dir.mode & libc::S_ISGID != 0;
        let attr = Attr {
            ino: nodeid,
            mode: if inherits && is_dir { mode | libc::S_ISGID } else { mode },
            nlink: if is_dir { 2 } else { 1 },
            uid: caller.uid,
            gid: if inherits { dir.gid } else { caller.gid },
            atime: now,
            mtime: now,
            ctime: now,
            crtime: Some(now),
            blksize: 4096,
            ..Default::default()
        };
        self.inodes.insert(nodeid, Inode { attr, parent, ..Default::default() });
        Ok(nodeid)
    }

    fn link_name(&mut self, parent: u64, name: &[u8], nodeid: u64) -> Answer<()> {
        let is_dir = self.inode(nodeid)?.is_dir();
        let dir = self.inode(parent)?;
        dir.next_cookie += 1;
        let cookie = dir.next_cookie + 2;
        dir.names.insert(name.to_vec(), (nodeid, cookie));
        if is_dir {
            dir.attr.nlink += 1;
        }
        if is_dir {
            self.inode(nodeid)?.parent = parent;
        }
        self.touch(parent);
        Ok(())
    }

    fn make(&mut self, parent: u64, name: &[u8], mode: u32, caller: Caller) -> Answer<u64> {
        if name.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        if self.inode(parent)?.names.contains_key(name) {
            return Err(libc::EEXIST);
        }
        if self.inode(parent)?.attr.nlink == 0 {
            return Err(libc::ENOENT);
        }
        let nodeid = self.new_inode(parent, mode, caller)?;
        self.link_name(parent, name, nodeid)?;
        Ok(nodeid)
    }

    fn remove(&mut self, parent: u64, name: &[u8], is_dir: bool) -> Answer<()> {
        let (nodeid, _) = *self.inode(parent)?.names.get(name).ok_or(libc::ENOENT)?;
        let inode = self.inode(nodeid)?;
        match (is_dir, inode.is_dir()) {
            (true, false) => return Err(libc::ENOTDIR),
            (false, true) => return Err(libc::EISDIR),
            _ => {}
        }
        if is_dir && !inode.names.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.unlink_name(parent, name, nodeid)
    }

    fn unlink_name(&mut self, parent: u64, name: &[u8], nodeid: u64) -> Answer<()> {
        let inode = self.inode(nodeid)?;
        inode.attr.nlink = if inode.is_dir() { 0 } else { inode.attr.nlink - 1 };
        inode.attr.ctime = Timestamp::now();
        let was_dir = inode.is_dir();
        let dir = self.inode(parent)?;
        dir.names.remove(name);
        if was_dir {
            dir.attr.nlink -= 1;
        }
        self.touch(parent);
        Ok(())
    }

    fn is_below(&self, mut nodeid: u64, ancestor: u64) -> bool {
        while nodeid != ROOT_ID {
            if nodeid == ancestor {
                return true;
            }
            nodeid = self.inodes.get(&nodeid).map_or(ROOT_ID, |inode| inode.parent);
        }
        false
    }

    fn rename(&mut self, from: u64, old: &[u8], to: u64, new: &[u8], flags: u32) -> Answer<()> {
        if new.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        let (nodeid, _) = *self.inode(from)?.names.get(old).ok_or(libc::ENOENT)?;
        let existing = self.inode(to)?.names.get(new).map(|(nodeid, _)| *nodeid);
        let is_dir = self.inode(nodeid)?.is_dir();
        if is_dir && self.is_below(to, nodeid) {
            return Err(libc::EINVAL);
        }
        if flags & libc::RENAME_EXCHANGE != 0 {
            let other = existing.ok_or(libc::ENOENT)?;
            self.detach(from, old, is_dir)?;
            let other_is_dir = self.inode(other)?.is_dir();
            self.detach(to, new, other_is_dir)?;
            self.link_name(from, old, other)?;
            return self.link_name(to, new, nodeid);
        }
        if let Some(other) = existing {
            if flags & libc::RENAME_NOREPLACE != 0 {
                return Err(libc::EEXIST);
            }
            if other == nodeid {
                return Ok(());
            }
            let other_inode = self.inode(other)?;
            match (is_dir, other_inode.is_dir()) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                _ => {}
            }
            if !other_inode.names.is_empty() {
                return Err(libc::ENOTEMPTY);
            }
            self.unlink_name(to, new, other)?;
        }
        self.detach(from, old, is_dir)?;
        self.touch(from);
        self.link_name(to, new, nodeid)?;
        self.inode(nodeid)?.attr.ctime = Timestamp::now();
        Ok(())
    }

    fn detach(&mut self, parent: u64, name: &[u8], is_dir: bool) -> Answer<()> {
        let dir = self.inode(parent)?;
        dir.names.remove(name);
        if is_dir {
            dir.attr.nlink -= 1;
        }
        Ok(())
    }

    fn resize(&mut self, nodeid: u64, size: u64) -> Answer<()> {
        if size > 1 << 31 {
            return Err(libc::EFBIG);
        }
        let inode = self.inode(nodeid)?;
        inode.data.resize(size as usize, 0);
        inode.attr.size = size;
        inode.attr.blocks = size.div_ceil(512);
        self.touch(nodeid);
        Ok(())
    }

    fn kill_suidgid(&mut self, nodeid: u64) {
        if let Some(inode) = self.inodes.get_mut(&nodeid) {
            inode.attr.mode &= !libc::S_ISUID;
            if inode.attr.mode & libc::S_IXGRP != 0 {
                inode.attr.mode &= !libc::S_ISGID;
            }
        }
    }

    fn setattr(&mut self, nodeid: u64, set: &Setattr) -> Answer<Attr> {
        if let Some(size) = set.size {
            self.resize(nodeid, size)?;
        }
        if set.kill_suidgid {
            self.kill_suidgid(nodeid);
        }
        let now = Timestamp::now();
        let inode = self.inode(nodeid)?;
        let attr = &mut inode.attr;
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if (set.uid.is_some() || set.gid.is_some()) && attr.mode & libc::S_IFMT != libc::S_IFDIR {
            attr.mode &= !libc::S_ISUID;
            if attr.mode & libc::S_IXGRP != 0 {
                attr.mode &= !libc::S_ISGID;
            }
        }
        if let Some(mode) = set.mode {
            attr.mode = (attr.mode & libc::S_IFMT) | (mode & 0o7777);
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = now;
        Ok(*attr)
    }

    fn write(&mut self, nodeid: u64, offset: u64, data: &[u8]) -> Answer<u32> {
        let end = offset + data.len() as u64;
        if end > self.inode(nodeid)?.attr.size {
            self.resize(nodeid, end)?;
        }
        let inode = self.inode(nodeid)?;
        inode.data[offset as usize..end as usize].copy_from_slice(data);
        self.touch(nodeid);
        Ok(data.len() as u32)
    }

    fn conflict(&self, nodeid: u64, want: &Held) -> Option<Held> {
        let held = self.locks.get(&nodeid)?;
        let exclusive = |lock: &Lock| lock.kind == LockKind::Write;
        held.iter()
            .find(|other| {
                other.flock == want.flock
                    && other.owner != want.owner
                    && overlaps(&other.lock, &want.lock)
                    && (exclusive(&other.lock) || exclusive(&want.lock))
            })
            .copied()
    }

    /// Sets or drops, cutting what the owner held in the range.
    fn set_lock(&mut self, nodeid: u64, want: Held) {
        let held = self.locks.entry(nodeid).or_default();
        let mut kept = Vec::new();
        for other in held.drain(..) {
            if other.flock != want.flock || other.owner != want.owner || !overlaps(&other.lock, &want.lock) {
                kept.push(other);
                continue;
            }
            if other.lock.start < want.lock.start {
                kept.push(Held { lock: Lock { end: want.lock.start - 1, ..other.lock }, ..other });
            }
            if other.lock.end > want.lock.end {
                kept.push(Held { lock: Lock { start: want.lock.end + 1, ..other.lock }, ..other });
            }
        }
        if want.lock.kind != LockKind::Unlock {
            kept.push(want);
        }
        *held = kept;
    }

    fn wake_waiters(&mut self) {
        let mut index = 0;
        while index < self.waiters.len() {
            let (nodeid, held) = (self.waiters[index].nodeid, self.waiters[index].held);
            if self.conflict(nodeid, &held).is_some() {
                index += 1;
                continue;
            }
            self.set_lock(nodeid, held);
            self.waiters.remove(index).reply.ok();
        }
    }
}

impl MemFs {
    fn list(&self, state: &State, nodeid: u64, offset: u64, size: u32, plus: bool) -> Answer<DirBuffer> {
        let dir = state.inodes.get(&nodeid).ok_or(libc::ESTALE)?;
        let mut page = DirBuffer::new(size);
        let dots = [(1, &b"."[..], nodeid), (2, b"..", dir.parent)];
        for (cookie, name, ino) in dots {
            let attr = Attr { ino, mode: libc::S_IFDIR, ..Default::default() };
            let entry = EntryOut { attr, ..Default::default() };
            let fits = offset >= cookie
                || if plus {
                    page.add_plus(&entry, cookie, name)
                } else {
                    page.add(ino, cookie, libc::S_IFDIR, name)
                };
            if !fits {
                return Ok(page);
            }
        }
        let mut sorted: Vec<_> = dir.names.iter().filter(|(_, (_, cookie))| *cookie > offset).collect();
        sorted.sort_by_key(|(_, (_, cookie))| *cookie);
        for (name, (child, cookie)) in sorted {
            let entry = self.entry(state, *child)?;
            let fits = if plus {
                page.add_plus(&entry, *cookie, name)
            } else {
                page.add(*child, *cookie, entry.attr.mode, name)
            };
            if !fits {
                break;
            }
        }
        Ok(page)
    }

    fn handle_lock(&self, request: &Request, reply: Reply) {
        let mut state = self.lock();
        let node = request.nodeid;
        match &request.op {
            Op::Getlk { owner, lock, flock, .. } => {
                let want = Held { owner: *owner, flock: *flock, lock: *lock };
                let found = state.conflict(node, &want).map(|held| held.lock);
                reply.lock(&found.unwrap_or(Lock { kind: LockKind::Unlock, ..*lock }));
            }
            Op::Setlk { owner, lock, flock, sleep, .. } => {
                let want = Held { owner: *owner, flock: *flock, lock: *lock };
                if lock.kind == LockKind::Unlock || state.conflict(node, &want).is_none() {
                    state.set_lock(node, want);
                    reply.ok();
                    state.wake_waiters();
                } else if *sleep {
                    let unique = request.unique;
                    state.waiters.push(Waiter { unique, nodeid: node, held: want, reply });
                } else {
                    reply.error(libc::EAGAIN);
                }
            }
            Op::Release { lock_owner, flock_release, .. } => {
                if let (true, Some(owner)) = (flock_release, lock_owner) {
                    state.locks.entry(node).or_default().retain(|h| !h.flock || h.owner != *owner);
                    state.wake_waiters();
                }
                reply.ok();
            }
            Op::Flush { lock_owner, .. } => {
                state.locks.entry(node).or_default().retain(|h| h.flock || h.owner != *lock_owner);
                state.wake_waiters();
                reply.ok();
            }
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn make_op(&self, request: Request) -> Answer<EntryOut> {
        let caller = Caller { uid: request.uid, gid: request.gid };
        let mut state = self.lock();
        let parent = request.nodeid;
        let nodeid = match request.op {
            Op::Mknod { name, mode, rdev, umask } => {
                let nodeid = state.make(parent, &name, mode & !umask, caller)?;
                state.inode(nodeid)?.attr.rdev = rdev;
                nodeid
            }
            Op::Mkdir { name, mode, umask } => {
                state.make(parent, &name, (mode & !umask) | libc::S_IFDIR, caller)?
            }
            Op::Symlink { name, target } => {
                let nodeid = state.make(parent, &name, libc::S_IFLNK | 0o777, caller)?;
                let inode = state.inode(nodeid)?;
                inode.attr.size = target.len() as u64;
                inode.target = target;
                nodeid
            }
            Op::Link { target, new_name } => {
                if state.inode(parent)?.names.contains_key(&new_name) {
                    return Err(libc::EEXIST);
                }
                let inode = state.inode(target)?;
                inode.attr.nlink += 1;
                inode.attr.ctime = Timestamp::now();
                state.link_name(parent, &new_name, target)?;
                target
            }
            Op::Create { name, mode, umask, .. } => {
                state.make(parent, &name, (mode & !umask) | libc::S_IFREG, caller)?
            }
            Op::Tmpfile { mode, umask, .. } => {
                let nodeid = state.new_inode(parent, (mode & !umask) | libc::S_IFREG, caller)?;
                state.inode(nodeid)?.attr.nlink = 0;
                nodeid
            }
            _ => return Err(libc::ENOSYS),
        };
        self.entry(&state, nodeid)
    }

    fn setxattr(&self, nodeid: u64, name: Vec<u8>, value: Vec<u8>, flags: i32) -> Answer<()> {
        let mut state = self.lock();
        let xattrs = &mut state.inode(nodeid)?.xattrs;
        if flags & libc::XATTR_CREATE != 0 && xattrs.contains_key(&name) {
            return Err(libc::EEXIST);
        }
        if flags & libc::XATTR_REPLACE != 0 && !xattrs.contains_key(&name) {
            return Err(libc::ENODATA);
        }
        xattrs.insert(name, value);
        Ok(())
    }

    fn seek(&self, nodeid: u64, offset: u64, whence: i32) -> Answer<u64> {
        let mut state = self.lock();
        let size = state.inode(nodeid)?.attr.size;
        match whence {
            _ if offset >= size => Err(libc::ENXIO),
            libc::SEEK_DATA => Ok(offset),
            libc::SEEK_HOLE => Ok(size),
            _ => Err(libc::EINVAL),
        }
    }

    fn fallocate(&self, nodeid: u64, offset: u64, length: u64, mode: i32) -> Answer<()> {
        let mut state = self.lock();
        let end = offset + length;
        let size = state.inode(nodeid)?.attr.size;
        if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            let end = end.min(size);
            let inode = state.inode(nodeid)?;
            inode.data[offset.min(end) as usize..end as usize].fill(0);
        } else if mode == 0 && end > size {
            state.resize(nodeid, end)?;
        }
        Ok(())
    }

    fn copy(&self, nodeid: u64, copy: CopyFileRange) -> Answer<u64> {
        let mut state = self.lock();
        let from = state.inode(nodeid)?;
        let start = copy.offset_in.min(from.attr.size) as usize;
        let end = (copy.offset_in + copy.len).min(from.attr.size) as usize;
        let bytes = from.data[start..end].to_vec();
        state.write(copy.nodeid_out, copy.offset_out, &bytes)?;
        Ok(bytes.len() as u64)
    }
}

/// `FS_IOC_GETVERSION`-like test command: answers the bytes it got, each plus one.
pub const IOCTL_PLUS_ONE: u32 = 0xc008_6601;

fn answer<T>(result: Answer<T>, reply: Reply, send: impl FnOnce(Reply, T)) {
    match result {
        Ok(value) => send(reply, value),
        Err(errno) => reply.error(errno),
    }
}

impl Handler for MemFs {
    fn request(&self, request: Request, reply: Reply) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let node = request.nodeid;
        let ttl = self.ttl();
        match request.op {
            Op::Lookup { ref name } if name.len() > 255 => reply.error(libc::ENAMETOOLONG),
            Op::Lookup { ref name } => {
                let state = self.lock();
                let found = state.inodes.get(&node).and_then(|dir| dir.names.get(name)).map(|found| found.0);
                match found {
                    Some(child) => answer(self.entry(&state, child), reply, |r, e| r.entry(&e)),
                    None if ttl.is_zero() => reply.error(libc::ENOENT),
                    None => reply.entry(&EntryOut::negative(ttl)),
                }
            }
            Op::Getattr { .. } => {
                let attr = self.lock().inode(node).map(|inode| inode.attr);
                answer(attr, reply, |r, attr| r.attr(&attr, ttl));
            }
            Op::Statx { .. } => {
                let attr = self.lock().inode(node).map(|inode| inode.attr);
                answer(attr, reply, |r, attr| r.statx(&attr, ttl));
            }
            Op::Setattr(ref set) => {
                let attr = self.lock().setattr(node, set);
                answer(attr, reply, |r, attr| r.attr(&attr, ttl));
            }
            Op::Readlink => {
                let target = self.lock().inode(node).map(|inode| inode.target.clone());
                answer(target, reply, |r, target| r.data(&target));
            }
            Op::Mknod { .. } | Op::Mkdir { .. } | Op::Symlink { .. } | Op::Link { .. } => {
                answer(self.make_op(request), reply, |r, entry| r.entry(&entry));
            }
            Op::Create { .. } | Op::Tmpfile { .. } => {
                answer(self.make_op(request), reply, |r, entry| r.created(&entry, 1, 0));
            }
            Op::Unlink { name } => answer(self.lock().remove(node, &name, false), reply, |r, ()| r.ok()),
            Op::Rmdir { name } => answer(self.lock().remove(node, &name, true), reply, |r, ()| r.ok()),
            Op::Rename { new_parent, flags, old_name, new_name } => {
                let done = self.lock().rename(node, &old_name, new_parent, &new_name, flags);
                answer(done, reply, |r, ()| r.ok());
            }
            Op::Open { flags, kill_suidgid } => {
                if kill_suidgid && flags & libc::O_TRUNC as u32 != 0 {
                    self.lock().kill_suidgid(node);
                }
                reply.opened(1, fuse::abi::fopen::KEEP_CACHE);
            }
            Op::Opendir { .. } => reply.opened(1, 0),
            Op::Read(read) => {
                self.largest_read.fetch_max(u64::from(read.size), Ordering::Relaxed);
                let mut state = self.lock();
                let data = state.inode(node).map(|inode| {
                    let start = (read.offset as usize).min(inode.data.len());
                    let end = (start + read.size as usize).min(inode.data.len());
                    inode.data[start..end].to_vec()
                });
                answer(data, reply, |r, data| r.data(&data));
            }
            Op::Write(write) => {
                self.largest_write.fetch_max(write.data.len() as u64, Ordering::Relaxed);
                let mut state = self.lock();
                let done = state.write(node, write.offset, &write.data);
                if write.kill_suidgid {
                    state.kill_suidgid(node);
                }
                answer(done, reply, |r, size| r.written(size));
            }
            Op::Statfs => reply.statfs(&Statfs {
                blocks: 1000,
                bfree: 900,
                bavail: 800,
                files: 100,
                ffree: 50,
                bsize: 4096,
                namelen: 255,
                frsize: 4096,
            }),
            Op::Setxattr { name, value, flags, .. } => {
                answer(self.setxattr(node, name, value, flags as i32), reply, |r, ()| r.ok());
            }
            Op::Getxattr { name, size } => {
                let value = self.lock().inode(node).map(|inode| inode.xattrs.get(&name).cloned());
                answer(value.and_then(|v| v.ok_or(libc::ENODATA)), reply, |r, v| r.xattr(size, &v));
            }
            Op::Listxattr { size } => {
                let list = self.lock().inode(node).map(|inode| {
                    inode.xattrs.keys().flat_map(|name| [&name[..], b"\0"].concat()).collect::<Vec<u8>>()
                });
                answer(list, reply, |r, list| r.xattr(size, &list));
            }
            Op::Removexattr { name } => {
                let removed = self.lock().inode(node).map(|inode| inode.xattrs.remove(&name));
                answer(removed.and_then(|v| v.ok_or(libc::ENODATA)), reply, |r, _| r.ok());
            }
            Op::Readdir { offset, size, .. } => {
                let page = self.list(&self.lock(), node, offset, size, false);
                answer(page, reply, |r, page| r.readdir(page));
            }
            Op::Readdirplus { offset, size, .. } => {
                let page = self.list(&self.lock(), node, offset, size, true);
                answer(page, reply, |r, page| r.readdir(page));
            }
            Op::Getlk { .. } | Op::Setlk { .. } | Op::Release { .. } | Op::Flush { .. } => {
                self.handle_lock(&request, reply);
            }
            Op::Releasedir { .. } | Op::Fsync { .. } | Op::Fsyncdir { .. } | Op::Syncfs => reply.ok(),
            Op::Lseek { offset, whence, .. } => {
                answer(self.seek(node, offset, whence as i32), reply, |r, at| r.lseek(at));
            }
            Op::Fallocate { offset, length, mode, .. } => {
                answer(self.fallocate(node, offset, length, mode as i32), reply, |r, ()| r.ok());
            }
            Op::CopyFileRange(copy) => answer(self.copy(node, copy), reply, |r, n| r.copied(n)),
            Op::Ioctl(ioctl) if ioctl.cmd == IOCTL_PLUS_ONE => {
                let out: Vec<u8> = ioctl.data.iter().map(|b| b.wrapping_add(1)).collect();
                reply.ioctl(7, &out);
            }
            Op::Ioctl(_) => reply.error(libc::ENOTTY),
            Op::Access { .. } | Op::Unknown { .. } => reply.error(libc::ENOSYS),
        }
    }

    fn forget(&self, forgets: &[(u64, u64)]) {
        self.forgets.fetch_add(forgets.len() as u64, Ordering::Relaxed);
    }

    fn interrupt(&self, unique: u64) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        if let Some(at) = state.waiters.iter().position(|waiter| waiter.unique == unique) {
            state.waiters.remove(at).reply.error(libc::EINTR);
        }
    }

    fn destroyed(&self) {
        self.destroyed.store(true, Ordering::SeqCst);
    }
}
