//! What POSIX says: a file system in memory, whose operations are atomic. The system under test must answer like some
//! order of the operations that ran at the same time.

mod op;

pub use op::{
    EBADF, EEXIST, EINVAL, EIO, EISDIR, ENODATA, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, ESTALE, Kind, Name, Op,
    Outcome, Path, Stat, tell,
};
use std::collections::BTreeMap;
use std::rc::Rc;

const EOPNOTSUPP: i32 = 95;
/// A directory may be striped, of which the model knows nothing, or change each time; a symlink or a file may have other names; a
/// file may be open, or have been open for writing by a client that was lost a moment ago.
const MIGRATION_REFUSALS: [i32; 4] = [16, 26, 31, EOPNOTSUPP];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    File(Rc<Vec<u8>>),
    Dir(BTreeMap<Name, usize>),
    Symlink(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    pub content: Content,
    pub permissions: u32,
    pub link_count: u32,
    pub xattrs: BTreeMap<String, u8>,
    /// What the system calls it, once it has said so.
    pub node: Option<u64>,
    /// Without a name, it may get one.
    is_never_named: bool,
    /// The file has several objects, or new files in the directory do.
    pub is_striped: bool,
}

/// Two models are equal when nobody can tell them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub inodes: BTreeMap<usize, Rc<Inode>>,
    /// By client and slot.
    pub handles: BTreeMap<(usize, usize), usize>,
    /// Number of the next inode; `prepare` sets it, so that the order of operations does not show in it.
    next: usize,
}

pub const ROOT: usize = 0;
pub const FILE_MODE: u32 = 0o644;
pub const DIR_MODE: u32 = 0o755;
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

type Answer = Result<Outcome, i32>;

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    pub fn new() -> Model {
        let root = Inode {
            content: Content::Dir(BTreeMap::new()),
            permissions: DIR_MODE,
            link_count: 2,
            xattrs: BTreeMap::new(),
            node: Some(1),
            is_never_named: false,
            is_striped: false,
        };
        Model { inodes: BTreeMap::from([(ROOT, Rc::new(root))]), handles: BTreeMap::new(), next: 1 }
    }

    /// The next operation makes inodes from this number on.
    pub fn prepare(&mut self, next: usize) {
        self.next = next;
    }

    pub fn inode(&self, ino: usize) -> &Inode {
        &self.inodes[&ino]
    }

    fn inode_mut(&mut self, ino: usize) -> &mut Inode {
        Rc::make_mut(self.inodes.get_mut(&ino).expect("the model knows its inodes"))
    }

    pub fn entries(&self, ino: usize) -> Result<&BTreeMap<Name, usize>, i32> {
        match &self.inode(ino).content {
            Content::Dir(entries) => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    fn entries_mut(&mut self, ino: usize) -> &mut BTreeMap<Name, usize> {
        match &mut self.inode_mut(ino).content {
            Content::Dir(entries) => entries,
            _ => unreachable!("checked by the caller"),
        }
    }

    pub fn find(&self, path: &[Name]) -> Result<usize, i32> {
        let mut at = ROOT;
        for name in path {
            at = *self.entries(at)?.get(name).ok_or(ENOENT)?;
        }
        Ok(at)
    }

    /// One of the paths that lead to an inode.
    pub fn path_of(&self, ino: usize) -> Option<Path> {
        self.path_below(ROOT, ino)
    }

    fn path_below(&self, directory: usize, ino: usize) -> Option<Path> {
        for (name, child) in self.entries(directory).ok()? {
            let rest = if *child == ino { Some(Vec::new()) } else { self.path_below(*child, ino) };
            if let Some(rest) = rest {
                return Some([vec![name.clone()], rest].concat());
            }
        }
        None
    }

    fn parent<'a>(&self, path: &'a [Name]) -> Result<(usize, &'a Name), i32> {
        let (name, parents) = path.split_last().ok_or(EINVAL)?;
        let parent = self.find(parents)?;
        self.entries(parent)?;
        Ok((parent, name))
    }

    fn is_dir(&self, ino: usize) -> bool {
        matches!(self.inode(ino).content, Content::Dir(_))
    }

    fn add(&mut self, content: Content, permissions: u32) -> usize {
        let ino = self.next;
        self.next += 1;
        let link_count = if matches!(content, Content::Dir(_)) { 2 } else { 1 };
        let inode = Inode {
            content,
            permissions,
            link_count,
            xattrs: BTreeMap::new(),
            node: None,
            is_never_named: false,
            is_striped: false,
        };
        self.inodes.insert(ino, Rc::new(inode));
        ino
    }

    fn drop_link(&mut self, ino: usize) {
        let inode = self.inode_mut(ino);
        inode.link_count =
            inode.link_count.saturating_sub(if matches!(inode.content, Content::Dir(_)) { 2 } else { 1 });
        self.forget_unused(ino);
    }

    fn forget_unused(&mut self, ino: usize) {
        if self.inode(ino).link_count == 0 && !self.handles.values().any(|open| *open == ino) {
            self.inodes.remove(&ino);
        }
    }

    /// Closes what a dead client had open.
    pub fn drop_client(&mut self, client: usize) {
        let slots: Vec<_> =
            self.handles.range((client, 0)..(client + 1, 0)).map(|(key, ino)| (*key, *ino)).collect();
        for (key, ino) in slots {
            self.handles.remove(&key);
            self.forget_unused(ino);
        }
    }

    /// Whether the node that the system names fits: known ones must be the same, unknown ones new.
    fn fits(&mut self, ino: usize, node: u64) -> bool {
        match self.inode(ino).node {
            Some(known) => known == node,
            None => {
                if self.inodes.values().any(|other| other.node == Some(node)) {
                    return false;
                }
                self.inode_mut(ino).node = Some(node);
                true
            }
        }
    }

    /// Executes an operation and says whether the system's outcome is the right one.
    pub fn explains(&mut self, client: usize, op: &Op, outcome: &Outcome) -> bool {
        if let (Op::Migrate { path, .. }, Outcome::Error(errno)) = (op, outcome)
            && MIGRATION_REFUSALS.contains(errno)
        {
            return self.find(path).is_ok();
        }
        let expected = match self.apply(client, op) {
            Ok(expected) => expected,
            Err(errno) => Outcome::Error(errno),
        };
        match (&expected, outcome) {
            // Which of several reasons a call with two paths names first is the kernel's business.
            (Outcome::Error(expected), Outcome::Error(got))
                if matches!(op, Op::Rename { .. } | Op::Link { .. } | Op::LinkOpen { .. }) =>
            {
                let is_shape =
                    |errno| matches!(errno, ENOENT | ESTALE | EEXIST | ENOTDIR | EISDIR | EINVAL | ENOTEMPTY);
                is_same_error(*expected, *got) || (is_shape(*expected) && is_shape(*got))
            }
            (Outcome::Error(expected), Outcome::Error(got)) => is_same_error(*expected, *got),
            (Outcome::Node(ino), Outcome::Node(node)) => self.fits(*ino as usize, *node),
            (Outcome::Stat(expected), Outcome::Stat(got)) => {
                let same = (expected.kind, expected.permissions, expected.link_count, expected.size)
                    == (got.kind, got.permissions, got.link_count, got.size);
                same && self.fits(expected.node as usize, got.node)
            }
            (Outcome::Names(expected), Outcome::Names(got)) => {
                expected.len() == got.len()
                    && expected.iter().zip(got).all(|((name, ino), (got_name, node))| {
                        name == got_name && self.fits(*ino as usize, *node)
                    })
            }
            (expected, got) => expected == got,
        }
    }

    /// Nodes in the outcome are the model's inode numbers.
    pub fn apply(&mut self, client: usize, op: &Op) -> Answer {
        match op {
            Op::Create { path, is_exclusive, slot } => self.create(client, path, *is_exclusive, *slot),
            Op::Mkdir { path, .. } => {
                let (parent, name) = self.parent(path)?;
                if self.entries(parent)?.contains_key(name) {
                    return Err(EEXIST);
                }
                let ino = self.add(Content::Dir(BTreeMap::new()), DIR_MODE);
                self.entries_mut(parent).insert(name.clone(), ino);
                self.inode_mut(parent).link_count += 1;
                self.inode_mut(ino).is_striped = self.inode(parent).is_striped;
                Ok(Outcome::Done)
            }
            Op::Symlink { path, target } => {
                let (parent, name) = self.parent(path)?;
                if self.entries(parent)?.contains_key(name) {
                    return Err(EEXIST);
                }
                let ino = self.add(Content::Symlink(target.clone()), 0o777);
                self.entries_mut(parent).insert(name.clone(), ino);
                Ok(Outcome::Done)
            }
            Op::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                let ino = *self.entries(parent)?.get(name).ok_or(ENOENT)?;
                if self.is_dir(ino) {
                    return Err(EISDIR);
                }
                self.entries_mut(parent).remove(name);
                self.drop_link(ino);
                Ok(Outcome::Done)
            }
            Op::Rmdir { path } => {
                let (parent, name) = self.parent(path)?;
                let ino = *self.entries(parent)?.get(name).ok_or(ENOENT)?;
                if !self.entries(ino)?.is_empty() {
                    return Err(ENOTEMPTY);
                }
                self.entries_mut(parent).remove(name);
                self.inode_mut(parent).link_count -= 1;
                self.drop_link(ino);
                Ok(Outcome::Done)
            }
            Op::Rename { from, to, flags } => self.rename(from, to, *flags),
            Op::Link { from, to } => {
                let ino = self.find(from)?;
                let (parent, name) = self.parent(to)?;
                if self.entries(parent)?.contains_key(name) {
                    return Err(EEXIST);
                }
                if self.is_dir(ino) {
                    return Err(1);
                }
                self.entries_mut(parent).insert(name.clone(), ino);
                self.inode_mut(ino).link_count += 1;
                Ok(Outcome::Done)
            }
            Op::Stat { path } => {
                let ino = self.find(path)?;
                Ok(self.stat(ino))
            }
            Op::Readlink { path } => match &self.inode(self.find(path)?).content {
                Content::Symlink(target) => Ok(Outcome::Text(target.clone().into_bytes())),
                _ => Err(EINVAL),
            },
            Op::List { path } => {
                let ino = self.find(path)?;
                let entries = self.entries(ino)?.iter();
                Ok(Outcome::Names(entries.map(|(name, ino)| (name.clone(), *ino as u64)).collect()))
            }
            Op::Open { path, slot } => {
                let ino = self.find(path)?;
                match self.inode(ino).content {
                    Content::File(_) => {}
                    Content::Dir(_) => return Err(EISDIR),
                    Content::Symlink(_) => return Err(40),
                }
                self.handles.insert((client, *slot), ino);
                Ok(Outcome::Node(ino as u64))
            }
            Op::Tmpfile { parent, slot } => {
                let parent = self.find(parent)?;
                self.entries(parent)?;
                let ino = self.add(Content::File(Rc::new(Vec::new())), FILE_MODE);
                let is_striped = self.inode(parent).is_striped;
                let inode = self.inode_mut(ino);
                (inode.link_count, inode.is_never_named, inode.is_striped) = (0, true, is_striped);
                self.handles.insert((client, *slot), ino);
                Ok(Outcome::Node(ino as u64))
            }
            Op::LinkOpen { slot, to } => {
                let ino = self.handle(client, *slot)?;
                let (parent, name) = self.parent(to)?;
                if self.entries(parent)?.contains_key(name) {
                    return Err(EEXIST);
                }
                if self.inode(ino).link_count == 0 && !self.inode(ino).is_never_named {
                    return Err(ENOENT);
                }
                self.entries_mut(parent).insert(name.clone(), ino);
                let inode = self.inode_mut(ino);
                (inode.link_count, inode.is_never_named) = (inode.link_count + 1, false);
                Ok(Outcome::Done)
            }
            Op::Close { slot } => {
                let ino = self.handles.remove(&(client, *slot)).ok_or(EBADF)?;
                self.forget_unused(ino);
                Ok(Outcome::Done)
            }
            Op::Write { slot, offset, byte_count, fill } => {
                let ino = self.handle(client, *slot)?;
                self.write(ino, *offset, *byte_count, *fill);
                Ok(Outcome::Done)
            }
            Op::Append { slot, byte_count, fill } => {
                let ino = self.handle(client, *slot)?;
                let size = self.data(ino).len() as u64;
                self.write(ino, size, *byte_count, *fill);
                Ok(Outcome::Done)
            }
            Op::Read { slot, offset, byte_count } => {
                let ino = self.handle(client, *slot)?;
                let data = self.data(ino);
                let start = (*offset as usize).min(data.len());
                let end = ((*offset + *byte_count) as usize).min(data.len());
                Ok(Outcome::Bytes(data[start..end].to_vec()))
            }
            Op::Fstat { slot } => {
                let ino = self.handle(client, *slot)?;
                Ok(self.stat(ino))
            }
            Op::Truncate { path, size } => {
                let ino = self.find(path)?;
                match &mut self.inode_mut(ino).content {
                    Content::File(data) => Rc::make_mut(data).resize(*size as usize, 0),
                    Content::Dir(_) => return Err(EISDIR),
                    Content::Symlink(_) => return Err(EINVAL),
                }
                Ok(Outcome::Done)
            }
            Op::Fsync { slot } => {
                self.handle(client, *slot)?;
                Ok(Outcome::Done)
            }
            Op::Chmod { path, permissions } => {
                let ino = self.find(path)?;
                if matches!(self.inode(ino).content, Content::Symlink(_)) {
                    return Err(95);
                }
                self.inode_mut(ino).permissions = *permissions;
                Ok(Outcome::Done)
            }
            Op::Setstripe { path, layout } => {
                let ino = self.find(path)?;
                if !matches!(self.inode(ino).content, Content::Dir(_)) {
                    return Err(ENOTDIR);
                }
                self.inode_mut(ino).is_striped = *layout > 0;
                Ok(Outcome::Done)
            }
            Op::Setdirstripe { path, .. } => {
                let ino = self.find(path)?;
                if self.is_dir(ino) { Ok(Outcome::Done) } else { Err(ENOTDIR) }
            }
            Op::Migrate { path, .. } => {
                let (parent, name) = self.parent(path)?;
                let ino = *self.entries(parent)?.get(name).ok_or(ENOENT)?;
                self.inode_mut(ino).node = None;
                Ok(Outcome::Done)
            }
            Op::Setxattr { path, name, value } => {
                let ino = self.find(path)?;
                self.check_xattr(ino, name)?;
                self.inode_mut(ino).xattrs.insert(name.clone(), *value);
                Ok(Outcome::Done)
            }
            Op::Getxattr { path, name } => {
                let ino = self.find(path)?;
                let value = self.inode(ino).xattrs.get(name).ok_or(ENODATA)?;
                Ok(Outcome::Text(vec![*value]))
            }
            Op::Removexattr { path, name } => {
                let ino = self.find(path)?;
                self.check_xattr(ino, name)?;
                self.inode_mut(ino).xattrs.remove(name).ok_or(ENODATA)?;
                Ok(Outcome::Done)
            }
            Op::SyncAll | Op::Statfs => Ok(Outcome::Done),
        }
    }

    /// Files and directories only have `user.` attributes.
    fn check_xattr(&self, ino: usize, name: &str) -> Result<(), i32> {
        let is_symlink = matches!(self.inode(ino).content, Content::Symlink(_));
        if is_symlink && name.starts_with("user.") { Err(1) } else { Ok(()) }
    }

    fn create(&mut self, client: usize, path: &[Name], is_exclusive: bool, slot: Option<usize>) -> Answer {
        let (parent, name) = self.parent(path)?;
        let ino = match self.entries(parent)?.get(name).copied() {
            Some(_) if is_exclusive => return Err(EEXIST),
            Some(ino) => match self.inode(ino).content {
                Content::File(_) => ino,
                Content::Dir(_) => return Err(EISDIR),
                Content::Symlink(_) => return Err(40),
            },
            None => {
                let ino = self.add(Content::File(Rc::new(Vec::new())), FILE_MODE);
                self.entries_mut(parent).insert(name.clone(), ino);
                self.inode_mut(ino).is_striped = self.inode(parent).is_striped;
                ino
            }
        };
        if let Some(slot) = slot {
            self.handles.insert((client, slot), ino);
        }
        Ok(Outcome::Node(ino as u64))
    }

    fn is_below(&self, ino: usize, top: usize) -> bool {
        ino == top
            || match &self.inode(top).content {
                Content::Dir(entries) => entries.values().any(|child| self.is_below(ino, *child)),
                _ => false,
            }
    }

    fn rename(&mut self, from: &[Name], to: &[Name], flags: u32) -> Answer {
        let (from_parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        let source = *self.entries(from_parent)?.get(from_name).ok_or(ENOENT)?;
        let target = self.entries(to_parent)?.get(to_name).copied();
        if flags == NOREPLACE && target.is_some() {
            return Err(EEXIST);
        }
        if flags == EXCHANGE && target.is_none() {
            return Err(ENOENT);
        }
        if self.is_dir(source) && self.is_below(to_parent, source) {
            return Err(EINVAL);
        }
        if let Some(target) = target
            && self.is_dir(target)
            && self.is_below(from_parent, target)
        {
            return Err(if flags == EXCHANGE { EINVAL } else { ENOTEMPTY });
        }
        if target == Some(source) {
            return Ok(Outcome::Done);
        }
        if flags == EXCHANGE {
            let target = target.ok_or(ENOENT)?;
            self.move_parent_link(source, from_parent, to_parent);
            self.move_parent_link(target, to_parent, from_parent);
            self.entries_mut(from_parent).insert(from_name.clone(), target);
            self.entries_mut(to_parent).insert(to_name.clone(), source);
            return Ok(Outcome::Done);
        }
        if let Some(target) = target {
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(ENOTEMPTY),
                (true, true) => self.inode_mut(to_parent).link_count -= 1,
                (false, false) => {}
            }
        }
        self.entries_mut(from_parent).remove(from_name);
        self.entries_mut(to_parent).insert(to_name.clone(), source);
        self.move_parent_link(source, from_parent, to_parent);
        if let Some(target) = target {
            self.drop_link(target);
        }
        Ok(Outcome::Done)
    }

    fn move_parent_link(&mut self, ino: usize, from: usize, to: usize) {
        if self.is_dir(ino) && from != to {
            self.inode_mut(from).link_count -= 1;
            self.inode_mut(to).link_count += 1;
        }
    }

    fn handle(&self, client: usize, slot: usize) -> Result<usize, i32> {
        self.handles.get(&(client, slot)).copied().ok_or(EBADF)
    }

    fn data(&self, ino: usize) -> &Rc<Vec<u8>> {
        match &self.inode(ino).content {
            Content::File(data) => data,
            _ => unreachable!("only files are opened"),
        }
    }

    fn write(&mut self, ino: usize, offset: u64, byte_count: u64, fill: u8) {
        let Content::File(data) = &mut self.inode_mut(ino).content else { return };
        let data = Rc::make_mut(data);
        let (start, end) = (offset as usize, (offset + byte_count) as usize);
        if data.len() < end {
            data.resize(end, 0);
        }
        data[start..end].copy_from_slice(&pattern(fill, byte_count));
    }

    fn stat(&self, ino: usize) -> Outcome {
        let inode = self.inode(ino);
        let (kind, size) = match &inode.content {
            Content::File(data) => (Kind::File, data.len() as u64),
            Content::Dir(_) => (Kind::Dir, 0),
            Content::Symlink(_) => (Kind::Symlink, 0),
        };
        Outcome::Stat(Stat {
            node: ino as u64,
            kind,
            permissions: inode.permissions,
            link_count: inode.link_count,
            size,
        })
    }

    pub fn set_xattr(&mut self, ino: usize, name: &str, value: u8) {
        self.inode_mut(ino).xattrs.insert(name.to_string(), value);
    }

    pub fn set_link_count(&mut self, ino: usize, link_count: u32) {
        self.inode_mut(ino).link_count = link_count;
    }

    /// Nobody knows any more what new files in the root get.
    pub fn doubt_layout_of_root(&mut self) {
        self.inode_mut(ROOT).is_striped = true;
    }

    /// Makes an inode as the system shows it; for reading the state back after something was allowed to be lost.
    pub fn adopt(&mut self, parent: usize, name: &str, stat: &Stat, content: Content) -> usize {
        let known = self.inodes.iter().find(|(_, inode)| inode.node == Some(stat.node)).map(|(ino, _)| *ino);
        let ino = known.unwrap_or_else(|| self.add(content, stat.permissions));
        let inode = self.inode_mut(ino);
        inode.node = Some(stat.node);
        inode.link_count = stat.link_count;
        // Nobody has asked.
        inode.is_striped = true;
        self.entries_mut(parent).insert(name.to_string(), ino);
        ino
    }
}

/// Bytes that a write writes: they tell the write and the place.
pub fn pattern(fill: u8, byte_count: u64) -> Vec<u8> {
    (0..byte_count).map(|at| fill.wrapping_add((at >> 9) as u8)).collect()
}

fn is_same_error(expected: i32, got: i32) -> bool {
    let normal = |errno| match errno {
        // The kernel walks again when a node is gone; here the walk and the call are two steps.
        ESTALE => ENOENT,
        EEXIST => ENOTEMPTY,
        // Opening what is no file: the kernel would have known before.
        40 => EISDIR,
        other => other,
    };
    normal(expected) == normal(got)
}

#[cfg(test)]
mod tests;
