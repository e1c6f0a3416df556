//! What is undone and legal, and what may not be relied on, is no damage.

use crate::world::{
    DIRECTORY, FAR, FILE, REMOTE, STRIPE, STRIPED, WIDE, World, attr, delete, fid, lines, put,
};
use base::{ClientId, Endpoint, Fid, FileType, Layout, ObjectId, TargetId, WallTime};
use fsck::{Doing, Options};
use mds::rows::{self, Adopt, Asker, Decision, Dentry, Destroy, Inode, Prepare, Streamed};
use oss::rows::{self as ost_rows, TombstoneRow};
use store::{Batch, MetaStore, ObjectStore};
use wire::peer::{OperationId, Part};

fn assert_clean(world: &World, what: &str) {
    let report = world.check();
    assert!(report.is_clean(), "{what}:\n{}", lines(&report));
}

#[test]
fn a_sound_file_system_is_clean() {
    let world = World::new();
    let report = world.check();
    assert!(report.is_clean(), "{}", lines(&report));
    assert_eq!((report.inode_count, report.object_count, report.pending_count), (18, 4, 0));
    assert!(report.read_bytes > 3 * crate::world::UNIT && report.awaiting.is_empty());
    assert_eq!(world.repair(&report), 0);
}

#[test]
fn what_is_undone_is_no_damage() {
    let world = World::new();
    // Unlinked and still open.
    let open = fid(0, 50);
    world.add_file(Fid::ROOT, b"open", open, &[0], 100);
    delete(&*world.mdts[0], rows::DENTRIES, &rows::dentry_key(Fid::ROOT, b"open"));
    delete(&*world.mdts[0], rows::LINKS, &rows::link_key(open, Fid::ROOT, b"open"));
    put(&*world.mdts[0], rows::ORPHANS, &open.key(), b"");
    world.edit(open, |inode| inode.attr.link_count = 0);
    assert_clean(&world, "an orphan");
    // So is a striped directory whose removal was said again in a recovery; its stripe is gone at once.
    let (striped, stripe) = (fid(0, STRIPED), fid(1, STRIPE));
    let mdt0 = &*world.mdts[0];
    for number in 0..8 {
        let (name, child) = (format!("n{number}"), fid(0, 100 + number));
        for parent in [striped, stripe] {
            delete(world.mdt(parent), rows::DENTRIES, &rows::dentry_key(parent, name.as_bytes()));
            delete(mdt0, rows::LINKS, &rows::link_key(child, parent, name.as_bytes()));
        }
        delete(mdt0, rows::INODES, &child.key());
    }
    delete(mdt0, rows::DENTRIES, &rows::dentry_key(Fid::ROOT, b"s"));
    delete(mdt0, rows::LINKS, &rows::link_key(striped, Fid::ROOT, b"s"));
    world.edit(Fid::ROOT, |root| root.attr.link_count -= 1);
    world.edit(striped, |inode| inode.attr.link_count = 0);
    put(mdt0, rows::ORPHANS, &striped.key(), b"");
    delete(&*world.mdts[1], rows::INODES, &stripe.key());
    delete(&*world.mdts[1], rows::LINKS, &rows::link_key(stripe, striped, b""));
    assert_clean(&world, "a striped directory that was removed");
    // Unlinked, and its OST has not been told yet.
    let gone = ObjectId { fid: fid(0, 51), component: 1, stripe: 0 };
    world.put_object(1, gone, 100);
    let destroy = rows::encode(&Destroy { stripes: vec![0] });
    put(&*world.mdts[0], rows::DESTROYS, &rows::destroy_key(1, gone.fid, 1), &destroy);
    assert_clean(&world, "a destroy that is queued");
    // Told, and the answer is on its way; a power failure has brought the file back.
    let tombstone = ost_rows::encode_row(&TombstoneRow { destroyed_at: WallTime(5) });
    put(&*world.osts[1].0, ost_rows::TOMBSTONES, &gone.key(), &tombstone);
    assert_clean(&world, "a tombstone with a destroy that is queued");
    world.osts[1].1.destroy(&gone).unwrap();
    delete(&*world.mdts[0], rows::DESTROYS, &rows::destroy_key(1, gone.fid, 1));
    assert_clean(&world, "a tombstone");
    // Written, and its size not yet told.
    let written = ObjectId { fid: fid(0, FILE), component: 1, stripe: 0 };
    world.osts[0].1.write(&written, 9000, b"more").unwrap();
    world.edit(fid(0, FILE), |inode| inode.attr.is_size_known = false);
    assert_clean(&world, "a size that is not known");
    // An object of which nobody knows that it was durable went with a power failure.
    let young = Layout::plain(fid(0, 52), 1, 65536, vec![0]);
    let mut inode = Inode::new(attr(fid(0, 52), FileType::Regular));
    (inode.layout, inode.attr.is_size_known) = (Some(young.clone()), false);
    world.add(Fid::ROOT, b"young", inode);
    let mut batch = Batch::new();
    let (meta, _) = &world.osts[0];
    ost_rows::put_born(&mut batch, &young.object(0), meta.applied());
    meta.apply(meta.applied().next(), &batch).unwrap();
    assert_clean(&world, "an object that was not durable");
}

/// MDT0000 has decided, and MDT0001 has yet to hear of it.
#[test]
fn operations_that_are_under_way_are_left_alone() {
    let world = World::new();
    let id = OperationId { mdt_index: 0, epoch: 1, number: 1 };
    let made = fid(1, 60);
    let parts = vec![
        Part::MakeDirectory {
            attr: attr(made, FileType::Directory),
            parent: Fid::ROOT,
            name: b"made".to_vec(),
            xattrs: Vec::new(),
            default_layout: None,
        },
        Part::RemoveDirectory { fid: fid(1, REMOTE), must_own: false },
    ];
    world.put_dentry(Fid::ROOT, b"made", made, FileType::Directory);
    world.edit(Fid::ROOT, |root| root.attr.link_count += 1);
    let before = world.check();
    assert_eq!(before.findings.len(), 1, "{}", lines(&before));
    let prepare = Prepare { parts, asker: Asker::default() };
    put(&*world.mdts[1], rows::PREPARES, &rows::operation_key(id), &rows::encode(&prepare));
    let decision = rows::encode(&Decision { participants: vec![1] });
    put(&*world.mdts[0], rows::DECISIONS, &rows::operation_key(id), &decision);
    let report = world.check();
    assert!(report.is_clean(), "{}", lines(&report));
    assert_eq!(report.pending_count, 1);
    // So it is when a name has gone and its inode has not heard of it.
    delete(&*world.mdts[0], rows::DENTRIES, &rows::dentry_key(Fid::ROOT, b"r"));
    world.edit(Fid::ROOT, |root| root.attr.link_count -= 1);
    assert_clean(&world, "a removal that is under way");
}

/// A directory whose name is there, and whose participant has not executed its part yet.
#[test]
fn a_directory_that_is_on_its_way_is_no_damage() {
    let world = World::new();
    let made = fid(1, 80);
    let id = OperationId { mdt_index: 0, epoch: 3, number: 9 };
    let parts = vec![Part::MakeDirectory {
        attr: attr(made, FileType::Directory),
        parent: Fid::ROOT,
        name: b"made".to_vec(),
        xattrs: Vec::new(),
        default_layout: None,
    }];
    world.put_dentry(Fid::ROOT, b"made", made, FileType::Directory);
    world.edit(Fid::ROOT, |root| root.attr.link_count += 1);
    assert_eq!(world.check().findings.len(), 1);
    let row = Streamed { previous: OperationId::before_all(0), parts };
    put(&*world.mdts[0], rows::STREAMED, &rows::streamed_key(1, id), &rows::encode(&row));
    put(&*world.mdts[1], rows::STATE, &rows::executed_key(0), &rows::encode(&OperationId::before_all(0)));
    put(&*world.mdts[1], rows::STATE, &rows::given_key(made.seq), &rows::encode(&0u16));
    let report = world.check();
    assert!(report.is_clean(), "{}", lines(&report));
    assert_eq!(report.pending_count, 1);
}

/// MDT0001 has taken a directory over, and MDT0000 has yet to hear of it: all that is in it is in both.
#[test]
fn a_directory_that_moves_between_mdts_is_no_damage() {
    let world = World::new();
    let (old, new) = (fid(0, DIRECTORY), fid(1, 90));
    let value = world.mdts[0].get(rows::INODES, &old.key()).unwrap().unwrap();
    let inode: Inode = rows::decode(&value).unwrap();
    let to = &*world.mdts[1];
    let moved = Inode { attr: base::Attr { fid: new, ..inode.attr.clone() }, ..inode.clone() };
    put(to, rows::INODES, &new.key(), &rows::encode(&moved));
    put(to, rows::LINKS, &rows::link_key(new, Fid::ROOT, b"d"), b"");
    for (name, child) in [(&b"f"[..], fid(0, FILE)), (b"wide", fid(0, WIDE)), (b"far too", fid(1, FAR))] {
        let dentry = Dentry { fid: child, file_type: FileType::Regular };
        put(to, rows::DENTRIES, &rows::dentry_key(new, name), &rows::encode(&dentry));
    }
    delete(to, rows::LINKS, &rows::link_key(fid(1, FAR), old, b"far too"));
    put(to, rows::LINKS, &rows::link_key(fid(1, FAR), new, b"far too"), b"");
    let id = OperationId { mdt_index: 1, epoch: 1, number: 1 };
    put(to, rows::DECISIONS, &rows::operation_key(id), &rows::encode(&Decision { participants: vec![0] }));
    assert!(!world.check().is_clean(), "without a prepare it is damage");
    let name = b"d".to_vec();
    let parts = vec![
        Part::Redirect { parent: Fid::ROOT, name, old, new, file_type: FileType::Directory },
        Part::GiveAway { fid: old, to: new, attr: Box::new(inode.attr) },
    ];
    let prepare = Prepare { parts, asker: Asker::default() };
    put(&*world.mdts[0], rows::PREPARES, &rows::operation_key(id), &rows::encode(&prepare));
    assert_clean(&world, "a directory that moves");
}

/// MDT0001 has taken a file over, MDT0000 has yet to hear of it, and then the OST: each time its data are there once, and nothing is
/// damage that the servers will bring to its end.
#[test]
fn a_file_that_moves_between_mdts_is_no_damage() {
    let world = World::new();
    let (old, new) = (fid(0, 60), fid(1, 91));
    world.add_file(Fid::ROOT, b"moves", old, &[0], 5000);
    let inode = world.inode(old).unwrap();
    let layout = Layout { fid: new, ..inode.layout.clone().unwrap() };
    let attr = base::Attr { fid: new, ..inode.attr.clone() };
    world.put_inode(&Inode { attr, layout: Some(layout), ..inode.clone() });
    world.put_link(new, Fid::ROOT, b"moves");
    let (from, to) = (&*world.mdts[0], &*world.mdts[1]);
    let adopt = rows::encode(&Adopt { from: old, stripes: vec![0] });
    put(to, rows::ADOPTS, &rows::destroy_key(0, new, 1), &adopt);
    let id = OperationId { mdt_index: 1, epoch: 1, number: 1 };
    put(to, rows::DECISIONS, &rows::operation_key(id), &rows::encode(&Decision { participants: vec![0] }));
    let name = b"moves".to_vec();
    let parts = vec![
        Part::Redirect { parent: Fid::ROOT, name, old, new, file_type: FileType::Regular },
        Part::GiveFile { fid: old, to: new, attr: Box::new(inode.attr), data: None },
    ];
    let prepare = rows::encode(&Prepare { parts, asker: Asker::default() });
    put(from, rows::PREPARES, &rows::operation_key(id), &prepare);
    assert_clean(&world, "decided, and not executed");
    // Executed.
    delete(from, rows::PREPARES, &rows::operation_key(id));
    delete(to, rows::DECISIONS, &rows::operation_key(id));
    delete(from, rows::INODES, &old.key());
    delete(from, rows::LINKS, &rows::link_key(old, Fid::ROOT, b"moves"));
    put(from, rows::MOVED, &old.key(), &rows::encode(&new));
    world.put_dentry(Fid::ROOT, b"moves", new, FileType::Regular);
    assert_clean(&world, "not adopted");
    assert_eq!(world.check().pending_count, 1);
    // An OST has done the first step, and both.
    let object = |fid| ObjectId { fid, component: 1, stripe: 0 };
    let (meta, objects) = &world.osts[0];
    let born = meta.get(ost_rows::BORN, &object(old).key()).unwrap().unwrap();
    delete(&**meta, ost_rows::BORN, &object(old).key());
    put(&**meta, ost_rows::BORN, &object(new).key(), &born);
    let mut batch = Batch::new();
    ost_rows::put_adopted(&mut batch, &object(old), WallTime(5));
    meta.apply(meta.applied().next(), &batch).unwrap();
    assert_clean(&world, "the rows are adopted");
    // Without what MDT0001 knows nobody can tell that these are not to be removed.
    let mut targets = world.targets();
    targets.iter_mut().filter(|target| target.id == TargetId::mdt(1)).for_each(|target| target.meta = None);
    let report = fsck::check(&targets, &crate::world::options(), &mut |_| {});
    assert!(report.is_clean(), "{}", lines(&report));
    assert!(objects.adopt(&object(old), &object(new)).unwrap());
    assert_clean(&world, "all is adopted");
    delete(to, rows::ADOPTS, &rows::destroy_key(0, new, 1));
    assert_clean(&world, "all is done");
    // A power failure took the new name of the object back, with or without the rows: the OST was put back from an older copy then.
    for has_rows in [true, false] {
        assert!(objects.adopt(&object(new), &object(old)).unwrap());
        if !has_rows {
            delete(&**meta, ost_rows::TOMBSTONES, &object(old).key());
            delete(&**meta, ost_rows::BORN, &object(new).key());
            put(&**meta, ost_rows::BORN, &object(old).key(), &born);
        }
        let report = world.check();
        assert!(!report.is_clean(), "nobody knows that it is to be adopted");
        assert!(world.repair(&report) > 0, "{}", lines(&report));
        assert_eq!(objects.read(&object(new), 0, 5000).unwrap().as_ref(), [7; 5000], "its bytes are there");
        assert!(ost_rows::is_adopted(&**meta, &object(old)).unwrap());
        assert_eq!(meta.get(ost_rows::BORN, &object(new).key()).unwrap().as_ref(), Some(&born));
        assert_clean(&world, "it was adopted");
    }
    // Nor one whose object may be there.
    world.put_object(0, object(old), 100);
    objects.set_unreadable(&object(new), Some(5));
    let report = world.check();
    assert!(!lines(&report).contains("the name of now"), "{}", lines(&report));
    objects.set_unreadable(&object(new), None);
    // Neither a file that is gone nor one whose object is there gets another one.
    let left = |report: &fsck::Report| report.findings.iter().map(|found| found.kind).collect::<Vec<_>>();
    world.put_object(0, object(old), 100);
    delete(&**meta, ost_rows::TOMBSTONES, &object(old).key());
    let report = world.check();
    assert_eq!(left(&report), [fsck::Kind::ObjectWithoutInode], "{}", lines(&report));
    assert!(!lines(&report).contains("the name of now"), "{}", lines(&report));
    let said = format!("was of /moves before that moved, and {} is there instead", object(new));
    assert!(lines(&report).contains(&said), "{}", lines(&report));
}

/// A mount that has not said goodbye may say again what a crash took back.
#[test]
fn what_a_replay_may_bring_back_is_no_damage() {
    let world = World::new();
    let object = ObjectId { fid: fid(0, 70), component: 1, stripe: 0 };
    world.put_object(0, object, 10);
    world.osts[0].1.write(&ObjectId { fid: fid(0, FILE), ..object }, 7000, b"more").unwrap();
    let report = world.check();
    assert_eq!(report.findings.len(), 2, "{}", lines(&report));
    let client = ClientId(5 << 70);
    assert!(matches!(client.endpoint(), Endpoint::Client(_)));
    let core_table = target::core::inspect::TABLES[1];
    // Version, incarnation, number of the session, and an empty NID.
    let session = [&[1][..], &[0; 8], &[0; 8], &[0; 4]].concat();
    put(&*world.mdts[0], core_table, &client.0.to_be_bytes(), &session);
    let report = world.check();
    assert!(report.is_clean(), "{}", lines(&report));
    assert_eq!(report.awaiting, [TargetId::mdt(0)]);
    // Another MDT is one that calls, and has nothing to say again.
    let world = World::new();
    let peer = Endpoint::Target(TargetId::mdt(1)).client_id();
    put(&*world.mdts[0], core_table, &peer.0.to_be_bytes(), &session);
    assert_eq!(world.check().awaiting, []);
}

/// The MDT has noted that it will compare them.
#[test]
fn what_an_mdt_will_look_at_is_no_damage() {
    let world = World::new();
    let object = ObjectId { fid: fid(0, 70), component: 1, stripe: 0 };
    world.put_object(0, object, 10);
    put(&*world.mdts[0], rows::STATE, rows::STRAYS_KEY, &rows::encode(&base::Epoch(2)));
    assert_clean(&world, "files of an incarnation that are to be compared");
    put(&*world.mdts[0], rows::STATE, rows::STRAYS_KEY, &rows::encode(&base::Epoch(1)));
    assert_eq!(world.check().findings.len(), 1, "this one is of a later incarnation");
}

/// Nothing is concluded from a target that cannot be read: neither that its files are gone, nor that its names are.
#[test]
fn a_target_that_cannot_be_read_makes_no_damage_elsewhere() {
    let world = World::new();
    for id in [TargetId::mdt(0), TargetId::mdt(1), TargetId::ost(0), TargetId::MGT] {
        let mut targets = world.targets();
        for target in targets.iter_mut().filter(|target| target.id == id) {
            (target.meta, target.objects) = (None, None);
        }
        let report = fsck::check(&targets, &crate::world::options(), &mut |_| {});
        assert!(report.is_clean(), "without {id}:\n{}", lines(&report));
    }
}

#[test]
fn a_target_that_is_not_given_is_missed() {
    let world = World::new();
    let all = fsck::expected(&world.targets(), crate::world::FSNAME);
    let ids = [TargetId::mdt(0), TargetId::mdt(1), TargetId::ost(0), TargetId::ost(1)];
    assert_eq!(all.into_iter().collect::<Vec<_>>(), ids);
    let one = &world.targets()[1..2];
    assert_eq!(fsck::expected(one, crate::world::FSNAME).len(), 4, "an MDT knows the others");
}

#[test]
fn who_watches_sees_each_step_reach_its_end() {
    let world = World::new();
    let mut seen: Vec<Doing> = Vec::new();
    let options = Options { reads_data: true, ..crate::world::options() };
    let report = fsck::check(&world.targets(), &options, &mut |doing| seen.push(doing));
    let mut steps: Vec<&str> = seen.iter().map(|doing| doing.step).collect();
    steps.dedup();
    let steps_of_target = ["reading rows", "looking at objects"].repeat(2).join(", ");
    let rest = "checking names, checking inodes, checking objects, reading data";
    assert_eq!(steps.join(", "), format!("{steps_of_target}, {rest}"));
    let last = seen.last().copied().expect("a step");
    assert_eq!((last.items, last.bytes), (report.object_count, report.read_bytes));
    assert_eq!((last.item_count, last.byte_count), (Some(last.items), Some(last.bytes)));
    let names = seen.iter().find(|doing| doing.step == "checking names").expect("a step");
    assert_eq!(names.item_count, Some(report.name_count));
}
