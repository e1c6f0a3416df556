//! A small file system, row by row as its servers would have written it: two MDTs, two OSTs, an MGS.

use base::layout::Component;
use base::names::stripe_of;
use base::{
    Attr, ClusterConfig, Extent, Fid, FileType, Layout, Now, ObjectId, Pool, TargetConfig, TargetId, Time,
    Transno, Version, WallTime,
};
use fsck::{Options, Report, Target};
use mds::data::Object;
use mds::rows::{self, Dentry, Inode, KnownTargets};
use oss::rows::{self as ost_rows, ObjectRow};
use std::sync::Arc;
use store::{Batch, MemoryMeta, MemoryObjects, MetaStore, ObjectStore, Table};
use target::{Core, CoreOptions};

pub const FSNAME: &str = "little";
const NOW: WallTime = WallTime(1_000_000_000);
/// Sequences of the first incarnation.
const EPOCH_1: u64 = 1 << 14;
pub const UNIT: u64 = 64 << 10;

pub struct World {
    pub mgt: Arc<MemoryMeta>,
    pub mdts: Vec<Arc<MemoryMeta>>,
    pub osts: Vec<(Arc<MemoryMeta>, Arc<MemoryObjects>)>,
}

/// The n-th file that an MDT has made.
pub fn fid(mdt: u16, oid: u32) -> Fid {
    Fid { seq: Fid::sequence(mdt, EPOCH_1), oid, ver: 0 }
}

pub const DIRECTORY: u32 = 1;
pub const FILE: u32 = 2;
pub const WIDE: u32 = 3;
pub const SYMLINK: u32 = 4;
pub const SMALL: u32 = 5;
pub const STRIPED: u32 = 6;
/// On MDT0001.
pub const REMOTE: u32 = 1;
pub const FAR: u32 = 2;
pub const STRIPE: u32 = 3;

pub fn attr(fid: Fid, file_type: FileType) -> Attr {
    let is_directory = file_type == FileType::Directory;
    Attr {
        fid,
        file_type,
        permissions: 0o755,
        uid: 7,
        gid: 7,
        link_count: if is_directory { 2 } else { 0 },
        rdev: 0,
        size_bytes: if is_directory { 4096 } else { 0 },
        block_count: 0,
        atime: NOW,
        mtime: NOW,
        ctime: NOW,
        btime: NOW,
        mtime_stamp: NOW,
        version: Version(1),
        is_size_known: true,
        write_epoch: 0,
        has_xattrs: false,
    }
}

/// A sound store of a target that was served once.
fn served(id: TargetId) -> Arc<MemoryMeta> {
    let store = Arc::new(MemoryMeta::new());
    let options = CoreOptions {
        id,
        uuid: uuid(id),
        fsname: FSNAME.into(),
        now: Now { time: Time::ZERO, wall: NOW },
        recovery_window: base::Duration::from_secs(1),
        has_external_data: id.kind == base::TargetKind::Ost,
        owed: target::nothing_owed,
    };
    drop(Core::open(Arc::clone(&store), options).unwrap());
    store
}

pub fn uuid(id: TargetId) -> u128 {
    u128::from(id.index) + 100 * id.kind as u128
}

pub fn put(store: &dyn MetaStore, table: Table, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(table, key, value);
    store.apply(store.applied().next(), &batch).unwrap();
}

pub fn delete(store: &dyn MetaStore, table: Table, key: &[u8]) {
    let mut batch = Batch::new();
    batch.delete(table, key);
    store.apply(store.applied().next(), &batch).unwrap();
}

impl World {
    /// Everything that there is in a file system, and nothing wrong.
    pub fn new() -> World {
        let mdts = (0..2).map(|at| served(TargetId::mdt(at))).collect();
        let ost = |at| (served(TargetId::ost(at)), Arc::new(MemoryObjects::new()));
        let world = World { mgt: served(TargetId::MGT), mdts, osts: (0..2).map(ost).collect() };
        world.configure();
        world.put_inode(&Inode::new(attr(Fid::ROOT, FileType::Directory)));
        let directory = fid(0, DIRECTORY);
        world.add(Fid::ROOT, b"d", Inode::new(attr(directory, FileType::Directory)));
        world.add_file(directory, b"f", fid(0, FILE), &[0], 5000);
        world.add_file(directory, b"wide", fid(0, WIDE), &[0, 1], 3 * UNIT + 100);
        world.name(Fid::ROOT, b"hard", fid(0, FILE));
        let mut symlink = Inode::new(attr(fid(0, SYMLINK), FileType::Symlink));
        symlink.symlink_target = Some(b"d/f".to_vec());
        world.add(Fid::ROOT, b"l", symlink);
        world.add(Fid::ROOT, b"r", Inode::new(attr(fid(1, REMOTE), FileType::Directory)));
        world.add_file(fid(1, REMOTE), b"far", fid(1, FAR), &[1], 70_000);
        world.name(directory, b"far too", fid(1, FAR));
        world.add_small_file();
        world.add_striped();
        put(&*world.mdts[0], rows::XATTRS, &rows::xattr_key(fid(0, FILE), b"user.a"), b"value");
        world.edit(fid(0, FILE), |inode| {
            (inode.xattr_count, inode.xattr_name_bytes) = (1, 7);
            inode.attr.has_xattrs = true;
        });
        world
    }

    fn configure(&self) {
        let ids = [TargetId::mdt(0), TargetId::mdt(1), TargetId::ost(0), TargetId::ost(1)];
        let target = |id| TargetConfig { id, uuid: uuid(id), nids: vec!["h:1".into()], is_active: true };
        self.put_config(&ClusterConfig {
            fsname: FSNAME.into(),
            version: 3,
            targets: ids.into_iter().map(target).collect(),
            params: Vec::new(),
            pools: vec![Pool { name: "flash".parse().unwrap(), osts: vec![1] }],
        });
        for mdt in &self.mdts {
            let known = KnownTargets { osts: vec![0, 1], mdt_count: 2 };
            put(&**mdt, rows::STATE, rows::KNOWN_TARGETS_KEY, &rows::encode(&known));
        }
    }

    pub fn put_config(&self, config: &ClusterConfig) {
        put(&*self.mgt, mgs::CONFIGS, FSNAME.as_bytes(), &mgs::encode(config));
    }

    pub fn config(&self) -> ClusterConfig {
        mgs::decode(&self.mgt.get(mgs::CONFIGS, FSNAME.as_bytes()).unwrap().unwrap()).unwrap()
    }

    pub fn mdt(&self, fid: Fid) -> &MemoryMeta {
        &self.mdts[usize::from(fid.mdt_index().unwrap())]
    }

    pub fn inode(&self, fid: Fid) -> Option<Inode> {
        let row = self.mdt(fid).get(rows::INODES, &fid.key()).unwrap();
        row.map(|row| rows::decode(&row).unwrap())
    }

    pub fn put_inode(&self, inode: &Inode) {
        let fid = inode.attr.fid;
        put(self.mdt(fid), rows::INODES, &fid.key(), &rows::encode(inode));
    }

    pub fn edit(&self, fid: Fid, edit: impl FnOnce(&mut Inode)) {
        let mut inode = self.inode(fid).unwrap();
        edit(&mut inode);
        self.put_inode(&inode);
    }

    pub fn put_dentry(&self, parent: Fid, name: &[u8], fid: Fid, file_type: FileType) {
        let key = rows::dentry_key(parent, name);
        put(self.mdt(parent), rows::DENTRIES, &key, &rows::encode(&Dentry { fid, file_type }));
    }

    pub fn put_link(&self, fid: Fid, parent: Fid, name: &[u8]) {
        put(self.mdt(fid), rows::LINKS, &rows::link_key(fid, parent, name), b"");
    }

    /// One name more, with all that belongs to it.
    pub fn name(&self, parent: Fid, name: &[u8], fid: Fid) {
        let file_type = self.inode(fid).unwrap().attr.file_type;
        self.put_dentry(parent, name, fid, file_type);
        self.put_link(fid, parent, name);
        match file_type {
            FileType::Directory => self.edit(parent, |parent| parent.attr.link_count += 1),
            _ => self.edit(fid, |inode| inode.attr.link_count += 1),
        }
    }

    pub fn add(&self, parent: Fid, name: &[u8], inode: Inode) {
        self.put_inode(&inode);
        self.name(parent, name, inode.attr.fid);
    }

    /// A file in stripes of `UNIT`, all of its bytes there.
    pub fn add_file(&self, parent: Fid, name: &[u8], fid: Fid, osts: &[u16], size_bytes: u64) {
        let layout = Layout::plain(fid, 1, UNIT as u32, osts.to_vec());
        for stripe in layout.stripes() {
            let of = layout.stripe(stripe).unwrap();
            self.put_object(of.ost, of.object, layout.object_size(stripe, size_bytes));
        }
        let mut inode = Inode::new(attr(fid, FileType::Regular));
        inode.layout = Some(layout);
        inode.attr.size_bytes = size_bytes;
        self.add(parent, name, inode);
    }

    pub fn put_object(&self, ost: u16, object: ObjectId, size_bytes: u64) {
        let (meta, objects) = &self.osts[usize::from(ost)];
        objects.write(&object, 0, &vec![7; size_bytes as usize]).unwrap();
        let mut batch = Batch::new();
        ost_rows::put(&mut batch, ost_rows::OBJECTS, &object.key(), &ObjectRow { stamp: NOW });
        // Long ago: all that was durable when this incarnation began.
        ost_rows::put_born(&mut batch, &object, Transno::ZERO);
        meta.apply(meta.applied().next(), &batch).unwrap();
    }

    fn add_small_file(&self) {
        let fid = fid(0, SMALL);
        let on_mdt = Component {
            id: 1,
            end_bytes: UNIT,
            stripe_size_bytes: UNIT as u32,
            osts: vec![Layout::ON_MDT],
            pool: None,
        };
        let rest = Component { id: 2, end_bytes: Extent::EOF, osts: vec![0], ..on_mdt.clone() };
        let layout = Layout { fid, components: vec![on_mdt, rest] };
        let mut object = Object::open(&*self.mdts[0], layout.object(0)).unwrap();
        object.write(0, &[7; 20_000]).unwrap();
        let mut batch = Batch::new();
        object.put(NOW, Transno(1), &mut batch);
        self.mdts[0].apply(self.mdts[0].applied().next(), &batch).unwrap();
        let mut inode = Inode::new(attr(fid, FileType::Regular));
        inode.layout = Some(layout);
        inode.attr.size_bytes = 20_000;
        self.add(Fid::ROOT, b"small", inode);
    }

    fn add_striped(&self) {
        let stripes = vec![fid(0, STRIPED), fid(1, STRIPE)];
        let master = Inode { stripes: stripes.clone(), ..Inode::new(attr(stripes[0], FileType::Directory)) };
        self.add(Fid::ROOT, b"s", master);
        self.put_inode(&Inode::new(attr(stripes[1], FileType::Directory)));
        self.put_link(stripes[1], stripes[0], b"");
        for number in 0..8 {
            let name = format!("n{number}");
            let home = stripe_of(&stripes, name.as_bytes()).unwrap();
            let inode = Inode::new(attr(fid(0, 100 + number), FileType::Fifo));
            self.add(home, name.as_bytes(), inode);
        }
    }

    /// The first file of the striped directory, and the stripe that has it.
    pub fn striped_name(&self) -> (Fid, &'static [u8]) {
        (stripe_of(&[fid(0, STRIPED), fid(1, STRIPE)], b"n0").unwrap(), b"n0")
    }

    pub fn targets(&self) -> Vec<Target<'_>> {
        let mut targets = vec![target_of(TargetId::MGT, &self.mgt)];
        targets.extend((0..).zip(&self.mdts).map(|(at, meta)| target_of(TargetId::mdt(at), meta)));
        targets.extend((0..).zip(&self.osts).map(|(at, (meta, objects))| {
            let objects: &dyn ObjectStore = &**objects;
            Target { objects: Some(objects), ..target_of(TargetId::ost(at), meta) }
        }));
        targets
    }

    pub fn check(&self) -> Report {
        fsck::check(&self.targets(), &options(), &mut |_| {})
    }

    /// Repairs what `report` says and what follows.
    pub fn repair(&self, report: &Report) -> u64 {
        self.repair_with(&options(), report)
    }

    pub fn repair_with(&self, options: &Options, report: &Report) -> u64 {
        fsck::repair_all(&self.targets(), options, report, WallTime(2_000_000_000), &mut |_| {}).unwrap()
    }

    /// The same with what may be all that is left of a file.
    pub fn repair_and_remove_remains(&self) -> u64 {
        let options = Options { removes_remains: true, ..options() };
        self.repair_with(&options, &fsck::check(&self.targets(), &options, &mut |_| {}))
    }
}

fn target_of(id: TargetId, meta: &Arc<MemoryMeta>) -> Target<'_> {
    Target { id, uuid: Some(uuid(id)), meta: Some(&**meta), objects: None }
}

pub fn options() -> Options {
    Options { fsname: FSNAME.into(), reads_data: true, ..Options::default() }
}

/// One line for each finding.
pub fn lines(report: &Report) -> String {
    report.findings.iter().map(|finding| format!("{finding}\n")).collect()
}
