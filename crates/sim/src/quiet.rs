//! What must hold when nothing moves: the tree as clients see it is the model's, the MDTs agree with each other, and
//! the objects on the OSTs are those that layouts name.

use crate::damage::{find_damage, find_damage_of_nobody, find_damage_under_way};
use crate::model::{Content, Kind, Model, Op, Outcome as Told, ROOT, Stat, tell};
use crate::servers::Engine;
use crate::workload::XATTRS;
use crate::world::World;
use base::names::stripe_of;
use base::{Duration, Fid, ObjectId, TargetKind, Time, limits};
use client::Input;
use mds::rows::{self, Inode};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use store::ObjectStore;

/// Nothing is under way, and all answer.
const UNMOUNT_MAX: Duration = Duration::from_secs(30);

impl World {
    pub fn check_quiet(&mut self) {
        if self.is_doubtful {
            self.read_back();
        } else {
            self.compare_tree();
        }
        self.check_disks_in_use();
    }

    /// Every name, attribute and byte, as one client sees them, against the model.
    fn compare_tree(&mut self) {
        let seat = self.rng.below(self.mounts.len() as u64) as usize;
        let mut paths: Vec<(Vec<String>, usize)> = Vec::new();
        let model = self.model.clone();
        collect(&model, ROOT, &mut Vec::new(), &mut paths);
        for (path, ino) in paths {
            let mut ops = vec![Op::Stat { path: path.clone() }];
            match &model.inode(ino).content {
                Content::Dir(_) => ops.push(Op::List { path: path.clone() }),
                Content::Symlink(_) => ops.push(Op::Readlink { path: path.clone() }),
                Content::File(data) => {
                    let slot = 90;
                    let byte_count = data.len() as u64 + 10;
                    ops.push(Op::Open { path: path.clone(), slot });
                    ops.push(Op::Read { slot, offset: 0, byte_count });
                    ops.push(Op::Close { slot });
                }
            }
            for op in ops {
                let Some(told) = self.run_alone(seat, op.clone()) else { return };
                let mut before = self.model.clone();
                if !self.judge_alone(seat, &op, &told) {
                    let expected = before.apply(seat, &op).unwrap_or_else(Told::Error);
                    let (told, expected) = (tell(&told), tell(&expected));
                    let what = format!("at rest {op:?} tells {told}, not {expected}");
                    self.violate("model", what);
                    return;
                }
            }
        }
    }

    /// Something was allowed to be lost: the state as it is becomes the model, and must be one that can be.
    fn read_back(&mut self) {
        // All clients begin anew, so that nobody has anything open.
        for seat in 0..self.mounts.len() {
            let open: Vec<usize> = self.mounts[seat].port.borrow().handles.keys().copied().collect();
            for slot in open {
                if self.run_alone(seat, Op::Close { slot }).is_none() {
                    return;
                }
                self.mounts[seat].port.borrow_mut().handles.remove(&slot);
            }
        }
        self.run_for(Duration::from_secs(60));
        self.trust();
        let mut model = Model::new();
        model.doubt_layout_of_root();
        let mut seen: BTreeMap<u64, Stat> = BTreeMap::new();
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        let mut todo = vec![(Vec::<String>::new(), ROOT)];
        let seat = self.rng.below(self.mounts.len() as u64) as usize;
        while let Some((path, at)) = todo.pop() {
            let Some(told) = self.run_alone(seat, Op::List { path: path.clone() }) else { return };
            let Told::Names(entries) = told else {
                return self.violate("tree", format!("directory {path:?} cannot be listed: {told:?}"));
            };
            let mut dir_count = 0;
            for (name, node) in entries {
                let mut child = path.clone();
                child.push(name.clone());
                let Some(told) = self.run_alone(seat, Op::Stat { path: child.clone() }) else { return };
                let Told::Stat(stat) = told else {
                    return self
                        .violate("tree", format!("{child:?} has a name and nothing behind it: {told:?}"));
                };
                if stat.node != node {
                    return self
                        .violate("tree", format!("{child:?} is {node} in its directory, else {stat:?}"));
                }
                if let Some(other) = seen.insert(node, stat.clone())
                    && (other != stat || stat.kind == Kind::Dir)
                {
                    return self.violate("tree", format!("{child:?} and another name: {stat:?}, {other:?}"));
                }
                *names.entry(node).or_default() += 1;
                dir_count += u32::from(stat.kind == Kind::Dir);
                let Some(content) = self.read_content(seat, &child, &stat) else { return };
                let ino = model.adopt(at, &name, &stat, content);
                for xattr in XATTRS {
                    let op = Op::Getxattr { path: child.clone(), name: xattr.to_string() };
                    if let Some(Told::Text(value)) = self.run_alone(seat, op)
                        && let Some(value) = value.first()
                    {
                        model.set_xattr(ino, xattr, *value);
                    }
                }
                if stat.kind == Kind::Dir {
                    todo.push((child, ino));
                }
            }
            let links = if at == ROOT { None } else { model.inode(at).node.and_then(|node| seen.get(&node)) };
            if let Some(stat) = links
                && stat.link_count != 2 + dir_count
            {
                let what = format!("{path:?} has {dir_count} directories and {} links", stat.link_count);
                return self.violate("tree", what);
            }
            if at == ROOT {
                model.set_link_count(ROOT, 2 + dir_count);
            }
        }
        for (node, stat) in &seen {
            let count = names.get(node).copied().unwrap_or(0);
            if stat.kind != Kind::Dir && stat.link_count != count {
                return self
                    .violate("tree", format!("node {node} has {count} names and {} links", stat.link_count));
            }
        }
        for (node, synced) in std::mem::take(&mut self.synced) {
            let inode = model.inodes.values().find(|inode| inode.node == Some(node));
            if let Some(Content::File(data)) = inode.map(|inode| &inode.content)
                && *data != synced
            {
                let (synced, data) = (Told::Bytes(synced.to_vec()), Told::Bytes(data.to_vec()));
                let what = format!("node {node} was synced as {} and is {}", tell(&synced), tell(&data));
                return self.violate("fsync", what);
            }
        }
        self.candidates = vec![model.clone()];
        self.model = model;
    }

    fn read_content(&mut self, seat: usize, path: &[String], stat: &Stat) -> Option<Content> {
        match stat.kind {
            Kind::Dir => Some(Content::Dir(BTreeMap::new())),
            Kind::Symlink => match self.run_alone(seat, Op::Readlink { path: path.to_vec() })? {
                Told::Text(text) => Some(Content::Symlink(String::from_utf8_lossy(&text).into_owned())),
                told => {
                    self.violate("tree", format!("symlink {path:?}: {told:?}"));
                    None
                }
            },
            Kind::File => {
                let slot = 90;
                self.run_alone(seat, Op::Open { path: path.to_vec(), slot })?;
                let told = self.run_alone(seat, Op::Read { slot, offset: 0, byte_count: stat.size + 10 })?;
                self.run_alone(seat, Op::Close { slot })?;
                match told {
                    Told::Bytes(bytes) if bytes.len() as u64 == stat.size => {
                        Some(Content::File(Rc::new(bytes)))
                    }
                    Told::Bytes(bytes) => {
                        let what = format!("{path:?} has {} bytes and says {}", bytes.len(), stat.size);
                        self.violate("tree", what);
                        None
                    }
                    told => {
                        self.violate("tree", format!("file {path:?} cannot be read: {told:?}"));
                        None
                    }
                }
            }
        }
    }

    /// The end: everybody closes everything; then only objects of files that have names may be left.
    pub fn finish(&mut self) {
        for seat in 0..self.mounts.len() {
            let open: Vec<usize> = self.mounts[seat].port.borrow().handles.keys().copied().collect();
            for slot in open {
                let Some(told) = self.run_alone(seat, Op::Close { slot }) else { return };
                if told != Told::Done {
                    return self.violate("model", format!("the last close tells {told:?}"));
                }
                self.judge_alone(seat, &Op::Close { slot }, &told);
            }
        }
        self.run_for(Duration::from_secs(30));
        self.compare_tree();
        self.run_for(Duration::from_secs(30));
        self.wait_for_forgotten();
        self.check_objects();
        self.check_rows();
        self.check_commits();
        self.unmount_all();
        self.check_disks();
    }

    /// As long as a mount may come back and say what is missing, a file may be out of step with its objects.
    fn unmount_all(&mut self) {
        self.stop_losses();
        for seat in 0..self.mounts.len() {
            self.on_client(seat, Input::Drain { patience: UNMOUNT_MAX });
        }
        self.run_for(UNMOUNT_MAX);
        if let Some(seat) = self.mounts.iter().position(|mount| !mount.is_drained) {
            self.violate("progress", format!("client {seat} cannot unmount"));
        }
    }

    /// What an administrator is told who has the disks checked. After the others, each of which says better what is wrong.
    fn check_disks(&mut self) {
        if !self.is_broken()
            && let Some(what) = find_damage_of_nobody(self.servers.values())
        {
            self.violate("fsck", what);
        }
    }

    /// Whatever is under way when somebody dies: who has the disks checked then is told of no damage.
    pub fn check_disks_after_crash(&mut self) {
        if !self.is_broken()
            && let Some(what) = find_damage_under_way(self.servers.values())
        {
            self.violate("fsck", what);
        }
    }

    /// What can be told with all mounts there and nothing under way.
    fn check_disks_in_use(&mut self) {
        if !self.is_broken()
            && let Some(what) = find_damage(self.servers.values())
        {
            self.violate("fsck", what);
        }
    }

    /// What a dead client had open stays until its servers have not heard of it for `SILENT_CLIENT_MAX`; they look eight
    /// times in that time, and then the objects go.
    fn wait_for_forgotten(&mut self) {
        let forgotten = self.lost_at.after(limits::SILENT_CLIENT_MAX).after(limits::SILENT_CLIENT_MAX / 8);
        let wait = forgotten.after(Duration::from_secs(10)).since(self.now.time);
        if self.lost_at > Time::ZERO && !wait.is_zero() {
            self.run_for(wait);
        }
    }

    /// Objects belong to inodes that exist.
    fn check_objects(&mut self) {
        let nodes: BTreeSet<u64> = self.model.inodes.values().filter_map(|inode| inode.node).collect();
        let mut strays = Vec::new();
        for server in self.servers.values() {
            let Some(Engine::Ost(_)) = &server.engine else { continue };
            let mut after: Option<ObjectId> = None;
            while let Ok(objects) = server.objects.list(after.as_ref(), 100)
                && !objects.is_empty()
            {
                let stray = objects.iter().filter(|object| !nodes.contains(&object.fid.inode_number()));
                strays.extend(stray.map(|object| format!("{object} on {}", server.id)));
                after = objects.last().copied();
            }
        }
        if !strays.is_empty() {
            self.violate("objects", format!("objects of files that are gone: {}", strays.join(", ")));
        }
    }

    /// No MDT has anything left that no name leads to; each stripe has its directory, and follows it.
    fn check_rows(&mut self) {
        let mut inodes: BTreeMap<Fid, Inode> = BTreeMap::new();
        let mut named: BTreeSet<Fid> = BTreeSet::from([Fid::ROOT]);
        let mut parents: BTreeSet<(Fid, Vec<u8>)> = BTreeSet::new();
        for server in self.servers.values().filter(|server| server.id.kind == TargetKind::Mdt) {
            for ((table, key), value) in server.meta.rows() {
                match table {
                    rows::INODES => {
                        inodes.extend(rows::decode(&value).map(|inode: Inode| (inode.attr.fid, inode)));
                    }
                    rows::DENTRIES => {
                        named.extend(rows::decode(&value).map(|dentry: rows::Dentry| dentry.fid));
                        let place = rows::split_dentry_key(&key);
                        parents.extend(place.map(|(parent, _, name)| (parent, name.to_vec())));
                    }
                    _ => {}
                }
            }
        }
        let mut wrong = Vec::new();
        let mut masters: BTreeMap<Fid, Fid> = BTreeMap::new();
        for master in inodes.values() {
            for fid in master.stripes.iter().skip(1) {
                named.insert(*fid);
                masters.insert(*fid, master.attr.fid);
                let who_may = |inode: &Inode| {
                    (inode.attr.permissions, inode.attr.uid, inode.attr.gid, inode.default_layout.clone())
                };
                if inodes.get(fid).map(who_may) != Some(who_may(master)) {
                    wrong.push(format!("{fid} does not follow {}", master.attr.fid));
                }
            }
        }
        for (parent, name) in &parents {
            let master = inodes.get(masters.get(parent).unwrap_or(parent));
            let home = master.and_then(|master| stripe_of(&master.stripes, name));
            if home.is_some_and(|home| home != *parent) {
                wrong
                    .push(format!("{} is not in its stripe, but in {parent}", String::from_utf8_lossy(name)));
            }
        }
        wrong
            .extend(inodes.keys().filter(|fid| !named.contains(fid)).map(|fid| format!("{fid} has no name")));
        let latest = self.latest_wall();
        let is_of_nobody = |inode: &&Inode| inode.attr.mtime.max(inode.attr.ctime) > latest;
        let of_nobody = inodes.values().filter(is_of_nobody);
        wrong.extend(of_nobody.map(|inode| format!("{} has a time of no MDT's clock", inode.attr.fid)));
        if !wrong.is_empty() {
            self.violate("rows", wrong.join(", "));
        }
    }

    /// At rest everything is durable, and everybody has been told.
    fn check_commits(&mut self) {
        if self.servers.values().any(|server| server.meta.unsynced_count() > 0) {
            // Somebody silent was just forgotten.
            self.run_for(Duration::from_secs(3));
        }
        for server in self.servers.values() {
            let unsynced = server.meta.unsynced_count();
            if unsynced > 0 {
                let what = format!("{} has {unsynced} transactions that nobody synced", server.id);
                return self.violate("durability", what);
            }
            if server.id.kind == TargetKind::Ost && server.objects.unsynced_count() > 0 {
                return self.violate("durability", format!("{} has data that nobody synced", server.id));
            }
        }
    }
}

fn collect(model: &Model, ino: usize, path: &mut Vec<String>, into: &mut Vec<(Vec<String>, usize)>) {
    into.push((path.clone(), ino));
    if let Ok(entries) = model.entries(ino) {
        for (name, child) in entries {
            path.push(name.clone());
            collect(model, *child, path, into);
            path.pop();
        }
    }
}
