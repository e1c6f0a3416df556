//! A file system as somebody sees it who walks through all of it.

use super::stories::Script;
use crate::clockwork::Clockwork;
use crate::model::{Content, Kind, Model, Op, Outcome as Told, Path, ROOT};
use base::Duration;
use std::collections::BTreeMap;

/// A call that takes longer is stuck. Who holds a lock and is gone is thrown out long before.
const CALL_MAX: Duration = Duration::from_secs(120);

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: Kind,
    permissions: u32,
    link_count: u32,
    /// Of a file.
    size: u64,
    /// Of what is in it.
    checksum: u64,
    /// The first of its names, in their order.
    first: String,
}

/// By path.
pub(crate) type Tree = BTreeMap<String, Entry>;

/// Before the first step of a script, and after each.
pub(crate) fn states(script: &Script) -> Vec<Tree> {
    let mut model = Model::new();
    let apply = |model: &mut Model, op: &Op| {
        if let Err(errno) = model.apply(0, op) {
            panic!("{op:?} is not possible: errno {errno}");
        }
    };
    script.setup.iter().for_each(|op| apply(&mut model, op));
    let mut states = vec![of_model(&model)];
    for step in &script.steps {
        apply(&mut model, step);
        states.push(of_model(&model));
    }
    states
}

pub(crate) fn of_model(model: &Model) -> Tree {
    let mut tree = Tree::new();
    let mut firsts = BTreeMap::new();
    let mut todo = vec![(Path::new(), ROOT)];
    while let Some((path, ino)) = todo.pop() {
        let Ok(entries) = model.entries(ino) else { continue };
        for (name, child) in entries {
            let inode = model.inode(*child);
            let path = [path.clone(), vec![name.clone()]].concat();
            let (kind, size, checksum) = match &inode.content {
                Content::File(data) => (Kind::File, data.len() as u64, checksum_of(data)),
                Content::Dir(_) => (Kind::Dir, 0, 0),
                Content::Symlink(_) => (Kind::Symlink, 0, 0),
            };
            let first = firsts.entry(*child).or_insert_with(|| path.join("/")).clone();
            let (permissions, link_count) = (inode.permissions, inode.link_count);
            tree.insert(path.join("/"), Entry { kind, permissions, link_count, size, checksum, first });
            todo.push((path, *child));
        }
    }
    tree
}

/// As a client finds it, one call after the other.
///
/// # Errors
/// What a call told that cannot be, in words.
pub(crate) fn walk(clockwork: &mut Clockwork, seat: usize) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let mut firsts = BTreeMap::new();
    let mut todo = vec![Path::new()];
    while let Some(path) = todo.pop() {
        let names = match clockwork.call(seat, Op::List { path: path.clone() }, CALL_MAX) {
            Some(Told::Names(names)) => names,
            told => return Err(format!("a listing of /{} tells {told:?}", path.join("/"))),
        };
        for (name, node) in names {
            let path = [path.clone(), vec![name]].concat();
            let stat = match clockwork.call(seat, Op::Stat { path: path.clone() }, CALL_MAX) {
                Some(Told::Stat(stat)) if stat.node == node => stat,
                told => return Err(format!("/{} is {node} in its directory, and {told:?}", path.join("/"))),
            };
            let first = firsts.entry(node).or_insert_with(|| path.join("/")).clone();
            let (permissions, link_count, size) = (stat.permissions, stat.link_count, stat.size);
            if stat.kind == Kind::Dir {
                if first != path.join("/") {
                    return Err(format!("the directory /{first} is at /{} too", path.join("/")));
                }
                todo.push(path.clone());
            }
            let checksum = match stat.kind {
                Kind::File if size > 0 => checksum_of(&read(clockwork, seat, &path, size)?),
                _ => 0,
            };
            let entry = Entry { kind: stat.kind, permissions, link_count, size, checksum, first };
            tree.insert(path.join("/"), entry);
        }
    }
    Ok(tree)
}

/// Nothing of an empty file.
fn checksum_of(data: &[u8]) -> u64 {
    data.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*byte)))
}

fn read(clockwork: &mut Clockwork, seat: usize, path: &Path, size: u64) -> Result<Vec<u8>, String> {
    const SLOT: usize = 77;
    let mut call = |op: Op| clockwork.call(seat, op, CALL_MAX);
    let opened = call(Op::Open { path: path.clone(), slot: SLOT });
    let told = call(Op::Read { slot: SLOT, offset: 0, byte_count: size + 1 });
    let closed = call(Op::Close { slot: SLOT });
    match (opened, told, closed) {
        (Some(_), Some(Told::Bytes(bytes)), Some(Told::Done)) if bytes.len() as u64 == size => {
            Ok(bytes.to_vec())
        }
        (_, Some(Told::Bytes(bytes)), _) => {
            Err(format!("/{} has {size} bytes, and {} of them are read", path.join("/"), bytes.len()))
        }
        told => Err(format!("/{} has {size} bytes, and reading it tells {told:?}", path.join("/"))),
    }
}

/// What is different, in one line.
pub(crate) fn difference(found: &Tree, expected: &Tree) -> String {
    let tell = |tree: &Tree, path: &String| match tree.get(path) {
        None => "nothing".to_string(),
        Some(Entry { kind, permissions, link_count, size, checksum, first }) => {
            format!("{kind:?} {permissions:o}, {link_count} links, {size} bytes ({checksum:x}), /{first}")
        }
    };
    let paths: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let differs = |path: &&String| found.get(*path) != expected.get(*path);
    let told = paths
        .into_iter()
        .filter(differs)
        .map(|path| format!("/{path} is {} and not {}", tell(found, path), tell(expected, path)));
    told.collect::<Vec<_>>().join("; ")
}
