//! Each kind of damage is planted, found as what it is and as nothing else, and repaired where that is safe.

use crate::world::{
    DIRECTORY, FAR, FILE, REMOTE, SMALL, STRIPE, STRIPED, SYMLINK, UNIT, WIDE, World, attr, delete, fid,
    lines, put,
};
use base::names::stripe_of;
use base::{Extent, Fid, FileType, ObjectId, TargetId, Version, WallTime};
use fsck::{Finding, Kind, LOST_AND_FOUND, Repair, Report};
use mds::data::{self, Head};
use mds::rows::{self, Dentry, Destroy, Inode, Streamed};
use oss::rows::{self as ost_rows, TombstoneRow};
use std::collections::{BTreeMap, BTreeSet};
use store::{MetaStore, ObjectStore};
use target::core::inspect;
use wire::peer::OperationId;

/// What becomes of planted damage.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Repaired,
    Left,
    /// Removed where that was asked for.
    Remains,
}
use End::{Left, Remains, Repaired};

struct Planted {
    kind: Kind,
    plant: fn(&World),
    end: End,
}

const fn planted(kind: Kind, end: End, plant: fn(&World)) -> Planted {
    Planted { kind, plant, end }
}

/// Of the file `/d/f`.
fn object(stripe: u32) -> ObjectId {
    ObjectId { fid: fid(0, FILE), component: 1, stripe }
}

fn stray(oid: u32) -> ObjectId {
    ObjectId { fid: fid(0, oid), component: 1, stripe: 0 }
}

fn tombstone(world: &World, ost: usize, object: ObjectId) {
    let row = ost_rows::encode_row(&TombstoneRow { destroyed_at: WallTime(5) });
    put(&*world.osts[ost].0, ost_rows::TOMBSTONES, &object.key(), &row);
}

fn mdt0(world: &World) -> &dyn MetaStore {
    &*world.mdts[0]
}

/// The key of a dentry at another place than its name's.
fn misplaced_key(parent: Fid, name: &[u8]) -> Vec<u8> {
    [&rows::position_key(parent, 77)[..], name].concat()
}

const PLANTED: &[Planted] = &[
    planted(Kind::RowDamaged, Left, |world| assert!(world.mdts[0].rot(rows::INODES, &fid(0, WIDE).key()))),
    planted(Kind::RowDamaged, Left, |world| {
        put(mdt0(world), rows::INODES, &fid(0, WIDE).key(), b"\x01nonsense")
    }),
    planted(Kind::RowDamaged, Left, |world| {
        let key = rows::dentry_key(fid(0, DIRECTORY), b"f");
        assert!(world.mdts[0].rot(rows::DENTRIES, &key));
    }),
    planted(Kind::RowDamaged, Left, |world| put(mdt0(world), rows::DENTRIES, b"short", b"\x01")),
    // Of a newer version, which no server of this one takes.
    planted(Kind::RowDamaged, Left, |world| put(mdt0(world), 77, b"key", b"\x05")),
    planted(Kind::RowDamaged, Left, |world| put(&*world.osts[0].0, 77, b"key", b"\x05")),
    planted(Kind::RowDamaged, Left, |world| put(&*world.mgt, 77, b"key", b"\x05")),
    planted(Kind::RowDamaged, Left, |world| {
        put(mdt0(world), rows::LINKS, &rows::link_key(fid(0, FILE), Fid::ROOT, b"hard"), b"\x02");
    }),
    planted(Kind::RowDamaged, Left, |world| {
        world.put_inode(&Inode::new(attr(fid(0, 914), FileType::Fifo)));
        put(mdt0(world), rows::ORPHANS, &fid(0, 914).key(), b"\x02");
    }),
    planted(Kind::RowDamaged, Left, |world| {
        let key = object(0).key();
        put(&*world.osts[0].0, ost_rows::OBJECTS, &key, b"\x09");
    }),
    planted(Kind::RowDamaged, Left, |world| {
        put(&*world.mgt, mgs::CONFIGS, crate::world::FSNAME.as_bytes(), b"\x01nonsense");
    }),
    planted(Kind::TargetOutdated, Left, |world| {
        // Destroyed by an MDT that has no such epoch.
        let later = Fid { seq: Fid::sequence(0, 2 << 14), oid: 1, ver: 0 };
        tombstone(world, 1, ObjectId { fid: later, component: 1, stripe: 0 });
    }),
    planted(Kind::TargetOutdated, Left, |world| {
        let done = OperationId { mdt_index: 1, epoch: 2, number: 1 };
        put(mdt0(world), rows::STATE, &rows::executed_key(1), &rows::encode(&done));
    }),
    planted(Kind::TargetOutdated, Left, |world| {
        let of = |number| OperationId { mdt_index: 0, epoch: 1, number };
        let row = Streamed { previous: of(7), parts: Vec::new() };
        put(mdt0(world), rows::STREAMED, &rows::streamed_key(1, of(8)), &rows::encode(&row));
        put(&*world.mdts[1], rows::STATE, &rows::executed_key(0), &rows::encode(&of(6)));
    }),
    planted(Kind::TargetOutdated, Left, |world| {
        // Another copy of the MDT has called, which took the same epoch at another time.
        let [.., starts, callers] = inspect::TABLES;
        let row = |at| rows::encode(&base::Start { epoch: base::Epoch(1), at: WallTime(at) });
        put(mdt0(world), starts, &1_u64.to_be_bytes(), &row(10));
        let mdt = base::Endpoint::Target(TargetId::mdt(0)).client_id();
        put(&*world.osts[0].0, callers, &mdt.0.to_be_bytes(), &row(20));
    }),
    planted(Kind::EpochBehind, Repaired, |world| {
        let (table, key) = inspect::state_key();
        let row = world.mdts[0].get(table, &key).unwrap().unwrap();
        put(mdt0(world), table, &key, &inspect::with_epoch(&row, base::Epoch(0)).unwrap());
    }),
    planted(Kind::SlotWithoutClient, Repaired, |world| {
        // Version, xid, transaction, and an empty reply.
        let row = [&[1][..], &[0; 8], &[0; 8], &[0; 4]].concat();
        put(mdt0(world), inspect::SLOT_TABLE, &[3; 18], &row);
    }),
    planted(Kind::ConfigUuidWrong, Left, |world| {
        let mut config = world.config();
        config.targets[1].uuid += 1;
        world.put_config(&config);
    }),
    planted(Kind::PoolOstUnknown, Left, |world| {
        let mut config = world.config();
        config.pools[0].osts.push(40);
        world.put_config(&config);
    }),
    planted(Kind::DentryWithoutDirectory, Repaired, |world| {
        world.put_dentry(fid(0, 900), b"f", fid(0, FILE), FileType::Regular);
        world.put_link(fid(0, FILE), fid(0, 900), b"f");
        world.edit(fid(0, FILE), |inode| inode.attr.link_count += 1);
    }),
    planted(Kind::DentryWithoutInode, Repaired, |world| {
        world.put_dentry(fid(0, DIRECTORY), b"ghost", fid(0, 901), FileType::Regular);
    }),
    planted(Kind::DentryWithoutInode, Repaired, |world| {
        world.put_dentry(fid(0, DIRECTORY), b"remote ghost", fid(1, 901), FileType::Directory);
        world.edit(fid(0, DIRECTORY), |inode| inode.attr.link_count += 1);
    }),
    planted(Kind::DentryTypeWrong, Repaired, |world| {
        world.put_dentry(Fid::ROOT, b"l", fid(0, SYMLINK), FileType::Directory);
    }),
    planted(Kind::DentryMisplaced, Repaired, |world| {
        let parent = fid(0, DIRECTORY);
        delete(mdt0(world), rows::DENTRIES, &rows::dentry_key(parent, b"f"));
        let dentry = Dentry { fid: fid(0, FILE), file_type: FileType::Regular };
        put(mdt0(world), rows::DENTRIES, &misplaced_key(parent, b"f"), &rows::encode(&dentry));
    }),
    // With a second damage, which is mended where the name belongs.
    planted(Kind::DentryMisplaced, Repaired, |world| {
        let parent = fid(0, DIRECTORY);
        delete(mdt0(world), rows::DENTRIES, &rows::dentry_key(parent, b"f"));
        let dentry = Dentry { fid: fid(0, FILE), file_type: FileType::Directory };
        put(mdt0(world), rows::DENTRIES, &misplaced_key(parent, b"f"), &rows::encode(&dentry));
    }),
    planted(Kind::DentryMisplaced, Left, |world| {
        let dentry = Dentry { fid: fid(0, FILE), file_type: FileType::Regular };
        put(mdt0(world), rows::DENTRIES, &misplaced_key(Fid::ROOT, b"a/b"), &rows::encode(&dentry));
        world.put_link(fid(0, FILE), Fid::ROOT, b"a/b");
        world.edit(fid(0, FILE), |inode| inode.attr.link_count += 1);
    }),
    planted(Kind::DentryInWrongStripe, Left, |world| {
        let (home, name) = world.striped_name();
        let other = if home == fid(0, STRIPED) { fid(1, STRIPE) } else { fid(0, STRIPED) };
        let child = fid(0, 100);
        delete(world.mdt(home), rows::DENTRIES, &rows::dentry_key(home, name));
        delete(mdt0(world), rows::LINKS, &rows::link_key(child, home, name));
        world.put_dentry(other, name, child, FileType::Fifo);
        world.put_link(child, other, name);
    }),
    planted(Kind::DirectoryLinkedTwice, Repaired, |world| {
        world.put_dentry(Fid::ROOT, b"again", fid(1, REMOTE), FileType::Directory);
    }),
    planted(Kind::DirectoryUnreachable, Left, |world| {
        for (oid, name, below) in [(80, b"a", 81), (81, b"b", 80)] {
            let mut inode = Inode::new(attr(fid(0, oid), FileType::Directory));
            inode.attr.link_count = 3;
            world.put_inode(&inode);
            world.put_dentry(fid(0, oid), name, fid(0, below), FileType::Directory);
            world.put_link(fid(0, below), fid(0, oid), name);
        }
    }),
    planted(Kind::LinkMissing, Repaired, |world| {
        delete(mdt0(world), rows::LINKS, &rows::link_key(fid(0, FILE), Fid::ROOT, b"hard"));
    }),
    planted(Kind::LinkMissing, Repaired, |world| {
        let key = rows::link_key(fid(1, FAR), fid(0, DIRECTORY), b"far too");
        delete(&*world.mdts[1], rows::LINKS, &key);
    }),
    planted(Kind::LinkMissing, Repaired, |world| {
        delete(&*world.mdts[1], rows::LINKS, &rows::link_key(fid(1, STRIPE), fid(0, STRIPED), b""));
    }),
    planted(Kind::LinkWithoutInode, Repaired, |world| world.put_link(fid(0, 902), Fid::ROOT, b"nobody")),
    planted(Kind::LinkWithoutDentry, Repaired, |world| world.put_link(fid(0, FILE), Fid::ROOT, b"never")),
    planted(Kind::LinkWithoutDentry, Repaired, |world| {
        delete(mdt0(world), rows::DENTRIES, &rows::dentry_key(Fid::ROOT, b"d"));
    }),
    planted(Kind::LinkWithoutDentry, Repaired, |world| {
        delete(mdt0(world), rows::DENTRIES, &rows::dentry_key(fid(0, DIRECTORY), b"far too"));
    }),
    planted(Kind::LinkCountWrong, Repaired, |world| {
        world.edit(fid(0, FILE), |inode| inode.attr.link_count = 1)
    }),
    planted(Kind::LinkCountWrong, Repaired, |world| {
        world.edit(fid(1, FAR), |inode| inode.attr.link_count = 9)
    }),
    planted(Kind::LinkCountWrong, Repaired, |world| world.edit(Fid::ROOT, |inode| inode.attr.link_count = 2)),
    planted(Kind::InodeWithoutName, Repaired, |world| {
        let mut inode = Inode::new(attr(fid(1, 903), FileType::Fifo));
        inode.attr.link_count = 1;
        world.put_inode(&inode);
    }),
    planted(Kind::InodeWithoutName, Repaired, |world| {
        world.put_inode(&Inode::new(attr(fid(1, 904), FileType::Directory)));
        let mut inside = Inode::new(attr(fid(1, 905), FileType::Fifo));
        inside.attr.link_count = 0;
        world.add(fid(1, 904), b"inside", inside);
        world.put_link(fid(1, 904), fid(0, 999), b"of a directory that is gone");
    }),
    planted(Kind::InodeOnWrongTarget, Left, |world| {
        let mut inode = Inode::new(attr(fid(1, 906), FileType::Fifo));
        inode.attr.link_count = 1;
        put(mdt0(world), rows::INODES, &fid(1, 906).key(), &rows::encode(&inode));
    }),
    planted(Kind::InodeMalformed, Left, |world| {
        world.edit(fid(0, SYMLINK), |inode| inode.symlink_target = None);
    }),
    planted(Kind::OrphanWithoutInode, Repaired, |world| {
        put(mdt0(world), rows::ORPHANS, &fid(0, 907).key(), b"")
    }),
    planted(Kind::OrphanWithName, Repaired, |world| {
        put(mdt0(world), rows::ORPHANS, &fid(0, WIDE).key(), b"")
    }),
    planted(Kind::XattrCountWrong, Repaired, |world| world.edit(fid(0, FILE), |inode| inode.xattr_count = 0)),
    planted(Kind::XattrCountWrong, Repaired, |world| {
        put(mdt0(world), rows::XATTRS, &rows::xattr_key(fid(0, WIDE), b"user.b"), b"value");
    }),
    planted(Kind::XattrWithoutInode, Repaired, |world| {
        for name in [b"user.a", b"user.b"] {
            put(mdt0(world), rows::XATTRS, &rows::xattr_key(fid(0, 908), name), b"value");
        }
    }),
    planted(Kind::StripeMissing, Left, |world| {
        let empty = fid(1, 909);
        world.edit(fid(0, STRIPED), |inode| inode.stripes.push(empty));
        // Three stripes would have the names elsewhere.
        for (mdt, parent) in [(0, fid(0, STRIPED)), (1, fid(1, STRIPE))] {
            for number in 0..8 {
                let name = format!("n{number}");
                delete(&*world.mdts[mdt], rows::DENTRIES, &rows::dentry_key(parent, name.as_bytes()));
                delete(
                    mdt0(world),
                    rows::LINKS,
                    &rows::link_key(fid(0, 100 + number), parent, name.as_bytes()),
                );
                delete(mdt0(world), rows::INODES, &fid(0, 100 + number).key());
            }
        }
    }),
    planted(Kind::StripeWithoutMaster, Left, |world| {
        world.put_inode(&Inode::new(attr(fid(1, 910), FileType::Directory)));
        world.put_link(fid(1, 910), fid(0, DIRECTORY), b"");
    }),
    planted(Kind::StripeDiffers, Repaired, |world| {
        world.edit(fid(1, STRIPE), |inode| inode.attr.permissions = 0o777);
    }),
    planted(Kind::LayoutInvalid, Left, |world| {
        world.edit(fid(0, WIDE), |inode| inode.layout.as_mut().unwrap().components[0].stripe_size_bytes = 5);
    }),
    planted(Kind::LayoutOstUnknown, Left, |world| {
        world.edit(fid(0, 920), |inode| inode.layout.as_mut().unwrap().components[0].osts = vec![33]);
    }),
    planted(Kind::SizeWrong, Repaired, |world| {
        world.edit(fid(0, FILE), |inode| inode.attr.size_bytes = 4999)
    }),
    planted(Kind::SizeWrong, Repaired, |world| world.edit(fid(0, SMALL), |inode| inode.attr.size_bytes = 1)),
    planted(Kind::SizeWrong, Repaired, |world| {
        let last = ObjectId { fid: fid(0, WIDE), component: 1, stripe: 1 };
        world.osts[1].1.truncate(&last, 0).unwrap();
    }),
    planted(Kind::MdtDataWithoutInode, Remains, |world| {
        let head = Head { size_bytes: 3, stored_bytes: 3, ..Head::default() };
        put(mdt0(world), rows::DATA_HEADS, &data::head_key(&stray(911)), &rows::encode(&head));
        put(mdt0(world), rows::DATA, &data::chunk_key(&stray(911), 0), b"abc");
    }),
    planted(Kind::MdtDataWithoutInode, Repaired, |world| {
        put(mdt0(world), rows::DATA_HEADS, &data::head_key(&stray(911)), &rows::encode(&Head::default()));
    }),
    planted(Kind::MdtDataWithoutInode, Left, |world| {
        delete(mdt0(world), rows::DATA_HEADS, &data::head_key(&stray(SMALL)));
    }),
    planted(Kind::MdtDataWrong, Repaired, |world| {
        let key = data::head_key(&stray(SMALL));
        let head: Head = rows::decode(&world.mdts[0].get(rows::DATA_HEADS, &key).unwrap().unwrap()).unwrap();
        put(mdt0(world), rows::DATA_HEADS, &key, &rows::encode(&Head { stored_bytes: 1, ..head }));
    }),
    planted(Kind::MdtDataWrong, Left, |world| {
        put(mdt0(world), rows::DATA, &data::chunk_key(&stray(SMALL), 5), b"behind the end");
    }),
    planted(Kind::DestroyOfLiveObject, Repaired, |world| {
        let row = rows::encode(&Destroy { stripes: vec![0] });
        put(mdt0(world), rows::DESTROYS, &rows::destroy_key(0, fid(0, FILE), 1), &row);
    }),
    planted(Kind::ObjectWithoutInode, Repaired, |world| world.put_object(1, stray(912), 0)),
    planted(Kind::ObjectWithoutInode, Remains, |world| world.put_object(1, stray(912), 100)),
    planted(Kind::ObjectWithoutInode, Remains, |world| {
        let of_no_mdt = ObjectId { fid: Fid { seq: 3, oid: 1, ver: 0 }, component: 1, stripe: 0 };
        world.put_object(0, of_no_mdt, 100);
    }),
    planted(Kind::ObjectNotInLayout, Repaired, |world| world.put_object(0, object(5), 0)),
    planted(Kind::ObjectNotInLayout, Remains, |world| world.put_object(0, object(5), 100)),
    planted(Kind::ObjectNotInLayout, Remains, |world| world.put_object(1, object(0), 100)),
    planted(Kind::ObjectMissing, Left, |world| {
        world.osts[0].1.destroy(&object(0)).unwrap();
    }),
    planted(Kind::ObjectMissing, Left, |world| world.osts[0].1.empty(&object(0))),
    planted(Kind::ObjectWithTombstone, Repaired, |world| {
        world.osts[1].1.write(&stray(913), 0, b"back").unwrap();
        tombstone(world, 1, stray(913));
    }),
    planted(Kind::TombstoneOfLiveObject, Repaired, |world| tombstone(world, 0, object(0))),
    planted(Kind::TombstoneOfLiveObject, Left, |world| {
        world.osts[0].1.destroy(&object(0)).unwrap();
        tombstone(world, 0, object(0));
    }),
    planted(Kind::TombstoneOfLiveObject, Left, |world| {
        world.osts[0].1.empty(&object(0));
        tombstone(world, 0, object(0));
    }),
    planted(Kind::DataDamaged, Left, |world| assert!(world.osts[0].1.rot(&object(0), 4100))),
];

/// Those that need a disk: `disks.rs`, and the tests of the command and of the base.
const ON_DISKS: [Kind; 7] = [
    Kind::SuperblockDamaged,
    Kind::IndexDamaged,
    Kind::LogDamaged,
    Kind::ObjectsLost,
    Kind::SpaceCounterWrong,
    Kind::ObjectCut,
    Kind::ObjectUnreadable,
];

fn world() -> World {
    let world = World::new();
    // Without data, for what is done to its layout.
    world.add_file(Fid::ROOT, b"empty", fid(0, 920), &[0], 0);
    world.osts[0].1.destroy(&stray(920)).unwrap();
    delete(&*world.osts[0].0, ost_rows::BORN, &stray(920).key());
    world
}

#[test]
fn each_kind_is_found_as_what_it_is_and_repaired_where_that_is_safe() {
    for (number, Planted { kind, plant, end }) in PLANTED.iter().enumerate() {
        let world = world();
        assert!(world.check().is_clean());
        plant(&world);
        let what = format!("number {number}, {kind}");
        let report = world.check();
        let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [*kind], "{what}:\n{}", lines(&report));
        let finding = &report.findings[0];
        assert_eq!(finding.to_string().lines().count(), 1, "{what}: {finding}");
        assert_eq!(finding.repair.is_safe(), *end == Repaired, "{what}: {finding}");
        let before = store_contents(&world);
        let repaired = world.repair(&report);
        let after = world.check();
        match end {
            Repaired => assert!(repaired > 0 && after.is_clean(), "{what}:\n{}", lines(&after)),
            Left | Remains => {
                assert!(repaired == 0 && after.findings == report.findings, "{what}:\n{}", lines(&after));
                assert!(before == store_contents(&world), "{what}: something was changed");
            }
        }
        if *end == Remains {
            assert!(world.repair_and_remove_remains() > 0, "{what}");
            assert!(world.check().is_clean(), "{what}:\n{}", lines(&world.check()));
        }
    }
}

/// Restored from a copy of before its epoch 2: what it does not know looks like nobody's, and is not to be removed.
#[test]
fn nothing_is_repaired_while_an_mdt_is_older_than_others_know() {
    let world = world();
    let later = Fid { seq: Fid::sequence(0, 2 << 14), oid: 1, ver: 0 };
    world.put_object(1, ObjectId { fid: later, component: 1, stripe: 0 }, 100);
    // This one would be put right at any other time.
    world.edit(fid(0, FILE), |inode| inode.attr.link_count = 1);
    let before = store_contents(&world);
    let report = world.check();
    let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
    let all = [Kind::TargetOutdated, Kind::LinkCountWrong, Kind::ObjectWithoutInode];
    assert_eq!(kinds, all, "{}", lines(&report));
    assert!(report.findings.iter().all(|finding| !finding.repair.is_safe()), "{}", lines(&report));
    assert_eq!(world.repair(&report), 0);
    assert!(before == store_contents(&world));
    assert_eq!(
        world.osts[1].1.stat(&ObjectId { fid: later, component: 1, stripe: 0 }).unwrap().unwrap().size_bytes,
        100
    );
}

/// An MDT that crashed before its epoch was durable begins that epoch anew: its sessions with others tell of it already.
#[test]
fn a_session_of_the_epoch_that_an_mdt_is_about_to_begin_is_no_damage() {
    let client = base::Endpoint::Target(TargetId::mdt(1)).client_id();
    for (incarnation, is_outdated) in [(1, false), (2, false), (3, true)] {
        let world = world();
        let row = [&[1][..], &u64::to_le_bytes(incarnation), &[0; 8], &[0; 4]].concat();
        put(&*world.osts[0].0, inspect::TABLES[1], &client.0.to_be_bytes(), &row);
        let report = world.check();
        let is_found = report.findings.iter().any(|finding| finding.kind == Kind::TargetOutdated);
        assert_eq!(is_found, is_outdated, "{incarnation}: {}", lines(&report));
        assert_eq!(report.findings.len(), usize::from(is_outdated), "{}", lines(&report));
    }
}

/// Whoever leaves a target out is told of it by what others have of it.
#[test]
fn targets_that_rows_speak_of_and_that_are_not_there_are_missing() {
    let world = world();
    assert!(world.check().missing.is_empty());
    let mut targets = world.targets();
    targets.retain(|target| target.id != TargetId::mdt(1));
    let report = fsck::check(&targets, &crate::world::options(), &mut |_| {});
    assert_eq!(report.missing, BTreeSet::from([TargetId::mdt(1)]));
}

#[test]
fn no_kind_is_without_its_damage() {
    let planted: BTreeSet<Kind> = PLANTED.iter().map(|planted| planted.kind).chain(ON_DISKS).collect();
    assert_eq!(planted.into_iter().collect::<Vec<_>>(), Kind::ALL);
}

type Rows = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn store_contents(world: &World) -> Vec<Rows> {
    let metas = world.mdts.iter().chain(world.osts.iter().map(|(meta, _)| meta));
    metas.map(|meta| meta.rows()).collect()
}

/// The words of the table in the documents are those of the program.
#[test]
fn every_kind_is_explained() {
    let document = include_str!("../../../../docs/operating/fsck.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    // Options have a table of their own.
    let explained: BTreeSet<&str> = rows.filter(|name| !name.starts_with('-')).collect();
    let kinds: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(explained, kinds);
}

#[test]
fn what_is_found_has_its_path_and_its_bytes() {
    let world = world();
    let wide = ObjectId { fid: fid(0, WIDE), component: 1, stripe: 1 };
    assert!(world.osts[1].1.rot(&wide, UNIT + 5) && world.osts[1].1.rot(&wide, 4096));
    let report = world.check();
    let found: Vec<(&str, &str)> =
        report.findings.iter().map(|finding| (&finding.subject[..], &finding.what[..])).collect();
    let subject = format!("/d/wide (object {wide})");
    let (first, last) = (Extent::at(UNIT + 4096, 4096), Extent::new(3 * UNIT, 3 * UNIT + 100));
    assert_eq!(found.len(), 2, "{}", lines(&report));
    for ((called, what), range) in found.into_iter().zip([first, last]) {
        assert_eq!(called, subject);
        assert!(what.starts_with(&format!("bytes {range} of the file")), "{what}");
    }
}

#[test]
fn what_has_lost_its_name_is_in_lost_and_found() {
    let world = world();
    let (file, directory) = (fid(1, 903), fid(1, 904));
    world.put_inode(&Inode::new(attr(file, FileType::Fifo)));
    world.put_inode(&Inode::new(attr(directory, FileType::Directory)));
    let links = world.inode(Fid::ROOT).unwrap().attr.link_count;
    assert_eq!(world.repair(&world.check()), 2);
    let lost_and_found = world.inode(LOST_AND_FOUND).unwrap();
    assert_eq!((lost_and_found.attr.permissions, lost_and_found.attr.link_count), (0o700, 3));
    assert_eq!(world.inode(Fid::ROOT).unwrap().attr.link_count, links + 1);
    for (lost, file_type) in [(file, FileType::Fifo), (directory, FileType::Directory)] {
        let key = rows::dentry_key(LOST_AND_FOUND, lost.to_string().as_bytes());
        let dentry: Dentry =
            rows::decode(&world.mdts[0].get(rows::DENTRIES, &key).unwrap().unwrap()).unwrap();
        assert_eq!(dentry, Dentry { fid: lost, file_type });
    }
    assert_eq!(world.inode(file).unwrap().attr.link_count, 1);
    // The next one finds it there; its version rises.
    let version = world.inode(LOST_AND_FOUND).unwrap().attr.version;
    world.put_inode(&Inode::new(attr(fid(0, 905), FileType::Directory)));
    assert_eq!(world.repair(&world.check()), 1);
    assert!(world.inode(LOST_AND_FOUND).unwrap().attr.version > version.max(Version(1)));
    assert!(world.check().is_clean());
    // A file in its place: nothing is done.
    let world = self::world();
    world.name(Fid::ROOT, b"lost+found", fid(0, FILE));
    world.put_inode(&Inode::new(attr(file, FileType::Fifo)));
    let report = world.check();
    assert!(matches!(report.findings[..], [ref only] if matches!(only.repair, Repair::Not(_))));
    assert_eq!(world.repair(&report), 0);
}

/// Whoever has looked through it may keep it under another name.
#[test]
fn a_lost_and_found_that_was_renamed_has_a_successor() {
    let world = world();
    let lost_of = |name: &[u8]| {
        let row = mdt0(&world).get(rows::DENTRIES, &rows::dentry_key(Fid::ROOT, name)).unwrap();
        rows::decode::<Dentry>(&row.unwrap()).unwrap().fid
    };
    let mut made = Vec::new();
    for (number, kept) in [b"rescued", b"another"].into_iter().enumerate() {
        // Two at once, one of which is a directory.
        for (oid, file_type) in [(940, FileType::Fifo), (950, FileType::Directory)] {
            world.put_inode(&Inode::new(attr(fid(0, oid + number as u32), file_type)));
        }
        assert_eq!(world.repair(&world.check()), 2);
        assert!(world.check().is_clean(), "{}", lines(&world.check()));
        let lost = lost_of(b"lost+found");
        made.push(lost);
        delete(mdt0(&world), rows::DENTRIES, &rows::dentry_key(Fid::ROOT, b"lost+found"));
        delete(mdt0(&world), rows::LINKS, &rows::link_key(lost, Fid::ROOT, b"lost+found"));
        world.edit(Fid::ROOT, |root| root.attr.link_count -= 1);
        world.name(Fid::ROOT, kept, lost);
        assert!(world.check().is_clean(), "{}", lines(&world.check()));
    }
    assert_eq!(made, [LOST_AND_FOUND, Fid { oid: LOST_AND_FOUND.oid + 1, ..LOST_AND_FOUND }]);
    // It has lost its own name.
    delete(mdt0(&world), rows::DENTRIES, &rows::dentry_key(Fid::ROOT, b"rescued"));
    delete(mdt0(&world), rows::LINKS, &rows::link_key(LOST_AND_FOUND, Fid::ROOT, b"rescued"));
    assert!(world.repair(&world.check()) > 0);
    assert!(world.check().is_clean(), "{}", lines(&world.check()));
    assert_ne!(lost_of(b"lost+found"), LOST_AND_FOUND);
}

/// An MDT that was put back from last night's copy lacks a day's inodes, and what it lacks is not all that there was of the files.
#[test]
fn bytes_and_names_of_an_inode_that_is_gone_stay_until_it_is_said_that_they_are_to_go() {
    let world = world();
    let data_before = data_of_files(&world);
    let lost = [fid(0, FILE), fid(0, SMALL), fid(1, FAR)];
    for fid in lost {
        delete(world.mdt(fid), rows::INODES, &fid.key());
    }
    let has_names = |world: &World| {
        let names = [(fid(0, DIRECTORY), &b"f"[..]), (Fid::ROOT, b"small"), (fid(0, DIRECTORY), b"far too")];
        let key = |(parent, name)| rows::dentry_key(parent, name);
        names.map(|name| mdt0(world).get(rows::DENTRIES, &key(name)).unwrap().is_some())
    };
    world.repair(&world.check());
    let is_inode_gone = |name: &String| lost.iter().any(|fid| *name == format!("inode {fid}"));
    let data_after = data_of_files(&world);
    for (name, bytes) in data_before.iter().filter(|(name, _)| !is_inode_gone(name)) {
        assert_eq!(data_after.get(name), Some(bytes), "{name}");
    }
    assert_eq!(has_names(&world), [true; 3]);
    let left = world.check();
    assert!(
        !left.is_clean() && left.findings.iter().all(|found| !found.repair.is_safe()),
        "{}",
        lines(&left)
    );
    assert!(lines(&left).contains("--remove-remains"), "{}", lines(&left));
    assert!(world.repair_and_remove_remains() > 0);
    assert!(world.check().is_clean(), "{}", lines(&world.check()));
    assert_eq!(has_names(&world), [false; 3]);
}

/// Damage of many kinds at once: what can be repaired is, whatever else is wrong, and what is left is what cannot.
#[test]
fn a_repair_goes_on_until_nothing_is_left_to_do() {
    let world = world();
    let mut left = Vec::new();
    // Those that are about different things.
    let chosen = [Kind::DentryWithoutInode, Kind::InodeWithoutName, Kind::XattrWithoutInode, Kind::SizeWrong];
    let chosen =
        chosen.iter().chain(&[Kind::ObjectWithoutInode, Kind::ObjectNotInLayout, Kind::StripeDiffers]);
    for kind in chosen {
        let of_kind = |planted: &&Planted| planted.kind == *kind;
        let planted = PLANTED.iter().filter(of_kind).max_by_key(|planted| planted.end == Remains).unwrap();
        (planted.plant)(&world);
        left.extend((planted.end != Repaired).then_some(*kind));
    }
    // A directory that loses all but its names.
    world.add(fid(0, DIRECTORY), b"deep", Inode::new(attr(fid(0, 930), FileType::Directory)));
    let mut inside = Inode::new(attr(fid(0, 931), FileType::Fifo));
    inside.attr.link_count = 0;
    world.add(fid(0, 930), b"inside", inside);
    delete(mdt0(&world), rows::INODES, &fid(0, 930).key());
    assert!(world.repair(&world.check()) > 6);
    let report = world.check();
    let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, left, "{}", lines(&report));
    assert!(report.findings.iter().all(|finding| finding.target != TargetId::mdt(1)));
    for (parent, name) in [(fid(0, DIRECTORY), &b"deep"[..]), (fid(0, 930), b"inside")] {
        assert!(mdt0(&world).get(rows::DENTRIES, &rows::dentry_key(parent, name)).unwrap().is_some());
    }
}

#[test]
fn a_directory_that_has_lost_its_inode_is_made_again_with_all_that_is_left_of_it() {
    let directory = fid(0, DIRECTORY);
    for (has_name, has_link) in [(true, true), (false, true), (false, false)] {
        let world = world();
        put(mdt0(&world), rows::XATTRS, &rows::xattr_key(directory, b"user.d"), b"value");
        delete(mdt0(&world), rows::INODES, &directory.key());
        if !has_name {
            delete(mdt0(&world), rows::DENTRIES, &rows::dentry_key(Fid::ROOT, b"d"));
        }
        if !has_link {
            delete(mdt0(&world), rows::LINKS, &rows::link_key(directory, Fid::ROOT, b"d"));
        }
        let rows_left = world.mdts[0].rows().into_keys();
        let rows_left: Vec<_> = rows_left
            .filter(|(table, _)| [rows::DENTRIES, rows::LINKS, rows::XATTRS].contains(table))
            .collect();
        let report = world.check();
        let of_kind = |found: &&Finding| found.kind == Kind::DentryWithoutDirectory;
        assert_eq!(
            report.findings.iter().filter(of_kind).count(),
            1,
            "one of a directory: {}",
            lines(&report)
        );
        assert!(lines(&report).contains("make it again, for root alone"), "{}", lines(&report));
        assert!(world.repair(&report) > 0 && world.check().is_clean(), "{}", lines(&world.check()));
        let made = world.inode(directory).unwrap();
        assert_eq!((made.attr.file_type, made.attr.permissions), (FileType::Directory, 0o700));
        assert!(made.attr.has_xattrs && made.xattr_count == 1);
        let kept = world.mdts[0].rows();
        assert!(rows_left.iter().all(|key| kept.contains_key(key)), "something is gone");
        assert_eq!(kept.contains_key(&(rows::DENTRIES, rows::dentry_key(Fid::ROOT, b"d"))), has_link);
        let key = rows::dentry_key(LOST_AND_FOUND, directory.to_string().as_bytes());
        assert_eq!(kept.contains_key(&(rows::DENTRIES, key)), !has_link);
    }
    // The root is not made up: who may do what in it is not known.
    let world = world();
    delete(mdt0(&world), rows::INODES, &Fid::ROOT.key());
    let before = store_contents(&world);
    let report = world.check();
    assert!(report.findings.iter().all(|found| !found.repair.is_safe()), "{}", lines(&report));
    assert!(world.repair(&report) == 0 && before == store_contents(&world));
}

/// Its own stripe has none, the others have: what leads to them stays for whoever restores it.
#[test]
fn the_name_of_a_striped_directory_stays_while_one_of_its_stripes_is_left() {
    let world = world();
    let stripes = [fid(0, STRIPED), fid(1, STRIPE)];
    for (number, name) in (0..8).map(|number| (number, format!("n{number}"))) {
        if stripe_of(&stripes, name.as_bytes()) == Some(stripes[0]) {
            let child = fid(0, 100 + number);
            delete(mdt0(&world), rows::DENTRIES, &rows::dentry_key(stripes[0], name.as_bytes()));
            delete(mdt0(&world), rows::LINKS, &rows::link_key(child, stripes[0], name.as_bytes()));
            delete(mdt0(&world), rows::INODES, &child.key());
        }
    }
    put(mdt0(&world), rows::XATTRS, &rows::xattr_key(stripes[0], b"user.s"), b"value");
    delete(mdt0(&world), rows::INODES, &stripes[0].key());
    let before = store_contents(&world);
    let report = world.check();
    assert_eq!(world.repair(&report), 0, "{}", lines(&report));
    assert!(lines(&report).contains("stripes of it are left"), "{}", lines(&report));
    assert!(before == store_contents(&world));
}

/// Numbers of components are given out again where a layout was taken back, so that an object may get the name of one that was removed.
#[test]
fn a_file_may_get_the_object_that_was_removed() {
    let world = world();
    world.put_object(0, ObjectId { component: 2, ..stray(920) }, 0);
    assert_eq!(world.repair(&world.check()), 1);
    world.edit(fid(0, 920), |inode| inode.layout.as_mut().unwrap().components[0].id = 2);
    assert!(world.check().is_clean(), "{}", lines(&world.check()));
}

/// Its storage may be back tomorrow.
#[test]
fn names_and_xattrs_of_a_file_stay_while_its_object_cannot_be_read() {
    const EIO: i32 = 5;
    let world = world();
    world.osts[0].1.set_unreadable(&object(0), Some(EIO));
    delete(mdt0(&world), rows::INODES, &fid(0, FILE).key());
    world.repair(&world.check());
    let kept = world.mdts[0].rows();
    for (parent, name) in [(fid(0, DIRECTORY), &b"f"[..]), (Fid::ROOT, b"hard")] {
        assert!(kept.contains_key(&(rows::DENTRIES, rows::dentry_key(parent, name))));
    }
    assert!(kept.contains_key(&(rows::XATTRS, rows::xattr_key(fid(0, FILE), b"user.a"))));
}

/// What is in the files of the sound world: their inodes, what their OSTs have of them or say about it, and rows of bytes.
fn data_of_files(world: &World) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let of = |fid, stripe| ObjectId { fid, component: 1, stripe };
    let (file, wide, far) = (fid(0, FILE), fid(0, WIDE), fid(1, FAR));
    for (ost, object) in [(0, of(file, 0)), (0, of(wide, 0)), (1, of(wide, 1)), (1, of(far, 0))] {
        let objects = &world.osts[ost].1;
        if let Some(stat) = objects.stat(&object).unwrap() {
            let read = objects.read(&object, 0, stat.size_bytes as usize);
            let bytes = read.map_or_else(|error| error.to_string().into_bytes(), |bytes| bytes.to_vec());
            found.insert(format!("object {object}"), bytes);
        }
    }
    for fid in [file, wide, far, fid(0, SMALL), fid(0, SYMLINK)] {
        if world.mdt(fid).get(rows::INODES, &fid.key()).is_ok_and(|row| row.is_some()) {
            found.insert(format!("inode {fid}"), Vec::new());
        }
    }
    let small = stray(SMALL).key();
    let chunks = world.mdts[0].rows().into_iter();
    for ((_, key), value) in
        chunks.filter(|((table, key), _)| *table == rows::DATA && key.starts_with(&small))
    {
        found.insert(format!("chunk {key:?}"), value);
    }
    found
}

/// Plants two kinds of damage. None where the second one needs what the first one has taken.
fn world_with(first: &Planted, second: &Planted) -> Option<World> {
    let world = world();
    (first.plant)(&world);
    let plant = || (second.plant)(&world);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(plant)).ok()?;
    Some(world)
}

/// Each damage beside each other one: what is found after a repair was found before it, and no file has lost anything.
#[test]
fn a_repair_makes_nothing_worse_whatever_else_is_damaged() {
    let (mut pair_count, mut worse) = (0, Vec::new());
    for (number, first) in PLANTED.iter().enumerate() {
        for second in PLANTED.iter().skip(number + 1) {
            let Some(world) = world_with(first, second).or_else(|| world_with(second, first)) else {
                continue;
            };
            let what = format!("{} and {}", first.kind, second.kind);
            pair_count += 1;
            let (before, data_before) = (world.check(), data_of_files(&world));
            world.repair(&before);
            let (after, data_after) = (world.check(), data_of_files(&world));
            // A path may be another one by then.
            let count = |report: &Report, of: &Finding| {
                report
                    .findings
                    .iter()
                    .filter(|found| (found.kind, found.target) == (of.kind, of.target))
                    .count()
            };
            let new = after.findings.iter().filter(|found| count(&after, found) > count(&before, found));
            worse.extend(new.map(|found| format!("{what}: {found}, and before:\n{}", lines(&before))));
            let lost = data_before.iter().filter(|(name, bytes)| data_after.get(*name) != Some(*bytes));
            worse.extend(lost.map(|(name, _)| format!("{what}: {name} is not as it was")));
        }
    }
    assert!(worse.is_empty(), "{}", worse.concat());
    // The others cannot be planted together.
    assert!(pair_count > PLANTED.len() * (PLANTED.len() - 1) / 2 * 9 / 10, "{pair_count} pairs");
}
