//! Directories in several stripes over several MDTs.

use crate::cross::mkdir_on;
use crate::cross_random::{Beside, agree_with_a_model, leave_a_consistent_tree};
use crate::harness::{ROOT, World, attr_of, entry_of, new, readdir, user};
use base::names::stripe_of;
use base::{Fid, SetAttr, SetTime, Status, WallTime};
use wire::lock::LockWant;
use wire::mdt::{DirStriping, NewNode};
use wire::{ComponentHint, LayoutHint, MdtReply, MdtRequest};

fn request(parent: Fid, name: &str, stripe_count: u16, mdts: &[u16]) -> MdtRequest {
    let create = new(parent, name, NewNode::Directory);
    let striping = DirStriping { stripe_count, mdts: mdts.to_vec() };
    MdtRequest::MakeStriped { create, striping, stripes: Vec::new() }
}

pub fn make(
    world: &mut World,
    parent: Fid,
    name: &str,
    count: u16,
    mdts: &[u16],
) -> Result<Vec<Fid>, Status> {
    let request = request(parent, name, count, mdts);
    match world.ask(0, parent.mdt_index().unwrap(), request)? {
        MdtReply::Striped { entry, stripes } => {
            assert_eq!(stripes.first(), Some(&entry.fid));
            Ok(stripes)
        }
        MdtReply::Entry(entry) => Ok(vec![entry.fid]),
        other => panic!("{other:?}"),
    }
}

fn mdts_of(stripes: &[Fid]) -> Vec<u16> {
    stripes.iter().map(|fid| fid.mdt_index().unwrap()).collect()
}

fn home(stripes: &[Fid], name: &str) -> Fid {
    stripe_of(stripes, name.as_bytes()).unwrap()
}

/// A name of this stripe.
fn name_in(stripes: &[Fid], stripe: usize) -> String {
    let mut names = (0..).map(|number| format!("n{number}"));
    names.find(|name| home(stripes, name) == stripes[stripe]).unwrap()
}

/// Which stripe an empty name would belong to does not count: the file has none.
#[test]
fn a_file_without_a_name_is_made_in_any_striped_directory() {
    let mut world = World::new(3, 1);
    for (name, mdts) in [("a", &[0, 1][..]), ("b", &[1, 0]), ("c", &[0, 1, 2]), ("d", &[2, 1, 0])] {
        let stripes = make(&mut world, Fid::ROOT, name, 0, mdts).unwrap();
        for (stripe, parent) in stripes.iter().enumerate() {
            let mut request = new(*parent, "", NewNode::Regular);
            request.is_unnamed = true;
            request.open = Some(world.open_args(0, true));
            let open = request.open.unwrap();
            let file = entry_of(&world.create(request).unwrap()).fid;
            world.link(file, *parent, &name_in(&stripes, stripe)).unwrap();
            world.close(0, file, open);
            assert_eq!(world.getattr(0, file).unwrap().link_count, 1);
        }
    }
    world.check_consistent();
}

#[test]
fn a_directory_goes_over_the_mdts_that_are_asked_for() {
    let mut world = World::new(3, 1);
    for (name, count, mdts, expected) in [
        ("a", 2, &[][..], vec![0, 1]),
        ("b", 2, &[2], vec![2, 0]),
        ("c", DirStriping::ALL, &[1], vec![1, 2, 0]),
        ("d", 9, &[], vec![0, 1, 2]),
        ("e", 0, &[2, 1], vec![2, 1]),
        ("f", 1, &[1], vec![1]),
        ("g", 0, &[], vec![0]),
    ] {
        let stripes = make(&mut world, Fid::ROOT, name, count, mdts).unwrap();
        assert_eq!(mdts_of(&stripes), expected, "{name}");
        let found = world.ask(0, 0, lookup(Fid::ROOT, name)).unwrap();
        assert_eq!(entry_of(&found).fid, stripes[0]);
    }
    for (count, mdts, status) in
        [(2, &[3][..], Status::NoDevice), (0, &[1, 1], Status::Invalid), (3, &[0, 1], Status::Invalid)]
    {
        assert_eq!(make(&mut world, Fid::ROOT, "x", count, mdts), Err(status));
    }
    assert_eq!(make(&mut world, Fid::ROOT, "a", 2, &[]), Err(Status::Exists));
    world.check_consistent();
}

fn lookup(parent: Fid, name: &str) -> MdtRequest {
    MdtRequest::Lookup { parent, name: name.into(), want: LockWant::default() }
}

#[test]
fn who_looks_at_it_is_told_all_stripes() {
    let mut world = World::new(2, 1);
    let stripes = make(&mut world, Fid::ROOT, "d", 2, &[1]).unwrap();
    let getattr = MdtRequest::Getattr { fid: stripes[0], want: LockWant::default() };
    let told = world.ask(0, 1, getattr).unwrap();
    assert!(matches!(told, MdtReply::Striped { stripes: told, .. } if told == stripes));
    // Its MDT is another one than that of its name.
    assert!(matches!(world.ask(0, 0, lookup(Fid::ROOT, "d")).unwrap(), MdtReply::Entry(_)));
    let local = make(&mut world, Fid::ROOT, "e", 2, &[]).unwrap();
    let told = world.ask(0, 0, lookup(Fid::ROOT, "e")).unwrap();
    assert!(matches!(told, MdtReply::Striped { stripes: told, .. } if told == local));
}

/// Who knows an inode by its number asks for `..` of it, and where that is a stripe for `.` of that.
#[test]
fn a_stripe_leads_to_its_directory_and_that_to_its_parent() {
    let mut world = World::new(3, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    let stripes = make(&mut world, dir, "s", 3, &[1]).unwrap();
    let told = |world: &mut World, of: Fid, name: &str| {
        let reply = world.ask(0, of.mdt_index().unwrap(), lookup(of, name)).unwrap();
        let entry = entry_of(&reply);
        (entry.fid, entry.attr.is_some())
    };
    for (number, stripe) in stripes.iter().enumerate() {
        assert_eq!(told(&mut world, *stripe, "."), (stripes[0], number == 0));
        let name = name_in(&stripes, number);
        let inner = world.mkdir(*stripe, &name);
        assert_eq!(told(&mut world, inner, "."), (inner, true));
        assert_eq!(told(&mut world, inner, ".."), (stripes[0], number == 0));
    }
    assert_eq!(told(&mut world, stripes[0], ".."), (dir, false), "on another MDT");
    assert_eq!(told(&mut world, dir, ".."), (Fid::ROOT, true));
    assert_eq!(told(&mut world, Fid::ROOT, ".."), (Fid::ROOT, true));
    let file = world.mkfile(dir, "f");
    world.mkdir(dir, "gone");
    let gone = world.lookup(0, dir, "gone").unwrap();
    world.rmdir(dir, "gone").unwrap();
    for name in [".", ".."] {
        assert_eq!(world.ask(0, 0, lookup(file, name)), Err(Status::NotDirectory));
        assert_eq!(world.ask(0, 0, lookup(gone, name)), Err(Status::NotFound));
    }
}

#[test]
fn a_name_of_another_stripe_is_refused() {
    let mut world = World::new(2, 1);
    let stripes = make(&mut world, Fid::ROOT, "d", 2, &[]).unwrap();
    let name = name_in(&stripes, 1);
    assert_eq!(world.create(new(stripes[0], &name, NewNode::Regular)), Err(Status::NotSupported));
    assert_eq!(world.ask(0, 0, lookup(stripes[0], &name)), Err(Status::NotSupported));
    let file = world.mkfile(stripes[1], &name);
    assert_eq!(world.rename((stripes[1], &name), (stripes[0], &name), 0), Err(Status::NotSupported));
    assert_eq!(world.lookup(0, stripes[1], &name), Some(file));
    world.check_consistent();
}

#[test]
fn it_goes_as_a_whole_when_all_of_it_is_empty() {
    for first in [0, 1] {
        let mut world = World::new(3, 1);
        let stripes = make(&mut world, Fid::ROOT, "d", 3, &[first]).unwrap();
        for stripe in 0..3 {
            let name = name_in(&stripes, stripe);
            world.mkfile(stripes[stripe], &name);
            assert_eq!(world.rmdir(Fid::ROOT, "d"), Err(Status::NotEmpty), "{stripe}");
            world.unlink(stripes[stripe], &name).unwrap();
        }
        world.rmdir(Fid::ROOT, "d").unwrap();
        assert_eq!(world.lookup(0, Fid::ROOT, "d"), None);
        for stripe in stripes {
            assert_eq!(world.getattr(0, stripe), Err(Status::Stale));
        }
        world.check_consistent();
    }
}

#[test]
fn it_is_renamed_replaced_and_kept_out_of_itself() {
    let mut world = World::new(3, 1);
    let stripes = make(&mut world, Fid::ROOT, "d", 3, &[1]).unwrap();
    let other = make(&mut world, Fid::ROOT, "e", 2, &[2]).unwrap();
    let name = name_in(&stripes, 2);
    let sub = world.mkdir(stripes[2], &name);
    // Nothing moves below itself, by whichever stripe.
    assert_eq!(world.rename((Fid::ROOT, "d"), (sub, "x"), 0), Err(Status::Invalid));
    for stripe in 0..3 {
        let name = format!("{}x", name_in(&stripes, stripe));
        let to = (home(&stripes, &name), &name[..]);
        assert_eq!(world.rename((Fid::ROOT, "d"), to, 0), Err(Status::Invalid), "{stripe}");
    }
    // Nor does an entry replace its directory, be it the only one.
    assert_eq!(world.rename((stripes[2], &name), (Fid::ROOT, "d"), 0), Err(Status::NotEmpty));
    assert_eq!(world.rename((Fid::ROOT, "e"), (Fid::ROOT, "d"), 0), Err(Status::NotEmpty));
    world.rmdir(stripes[2], &name).unwrap();
    world.rename((Fid::ROOT, "e"), (Fid::ROOT, "d"), 0).unwrap();
    assert_eq!(world.lookup(0, Fid::ROOT, "d"), Some(other[0]));
    for stripe in stripes {
        assert_eq!(world.getattr(0, stripe), Err(Status::Stale));
    }
    world.check_consistent();
}

/// From one stripe to another its parent stays the same, so the right to write to it is not needed, nor the way up to the root.
#[test]
fn a_directory_moves_between_stripes_without_a_new_parent() {
    let mut world = World::new(3, 1);
    let stripes = make(&mut world, Fid::ROOT, "d", 3, &[0]).unwrap();
    let open = SetAttr { permissions: Some(0o777), ..SetAttr::default() };
    setattr(&mut world, stripes[0], open).unwrap();
    let names: Vec<String> = (0..3).map(|stripe| name_in(&stripes, stripe)).collect();
    let sub = world.mkdir(stripes[0], &names[0]);
    let mut own = MdtRequest::Rename {
        parent: stripes[0],
        name: names[0].clone().into(),
        new_parent: stripes[2],
        new_name: names[2].clone().into(),
        flags: 0,
        creds: user(7),
    };
    world.ask(0, 2, own.clone()).unwrap();
    assert_eq!(world.lookup(0, stripes[2], &names[2]), Some(sub));
    let plain = mkdir_on(&mut world, Fid::ROOT, "plain", 1);
    setattr(&mut world, plain, SetAttr { permissions: Some(0o777), ..SetAttr::default() }).unwrap();
    if let MdtRequest::Rename { parent, name, new_parent, .. } = &mut own {
        (*parent, *name, *new_parent) = (stripes[2], names[2].clone().into(), plain);
    }
    assert_eq!(world.ask(0, 1, own), Err(Status::AccessDenied));
    world.rename((stripes[2], &names[2]), (plain, "x"), 0).unwrap();
    world.check_consistent();
}

fn setattr(world: &mut World, fid: Fid, set: SetAttr) -> Result<MdtReply, Status> {
    let want = LockWant::default();
    let request = MdtRequest::Setattr { fid, set, creds: ROOT, handle: None, want, stamp: None };
    world.ask(0, fid.mdt_index().unwrap(), request)
}

#[test]
fn its_stripes_follow_it() {
    let mut world = World::new(3, 1);
    let stripes = make(&mut world, Fid::ROOT, "d", 3, &[2]).unwrap();
    let before = world.getattr(0, stripes[1]).unwrap();
    let time = WallTime(77);
    let set = SetAttr {
        permissions: Some(0o2750),
        uid: Some(5),
        gid: Some(6),
        mtime: Some(SetTime::To(time)),
        ..SetAttr::default()
    };
    setattr(&mut world, stripes[0], set).unwrap();
    for stripe in &stripes {
        let attr = world.getattr(0, *stripe).unwrap();
        assert_eq!((attr.permissions, attr.uid, attr.gid, attr.mtime), (0o2750, 5, 6, time));
    }
    assert!(world.getattr(0, stripes[1]).unwrap().version > before.version);
    let stripes_of_file =
        ComponentHint { stripe_count: Some(3), stripe_size_bytes: Some(1 << 17), ..ComponentHint::default() };
    let layout = LayoutHint::plain(stripes_of_file);
    let request = MdtRequest::SetLayout { fid: stripes[0], layout: layout.clone(), creds: ROOT };
    world.ask(0, 2, request).unwrap();
    for stripe in &stripes {
        let request = MdtRequest::GetDefaultLayout { fid: *stripe };
        let told = world.ask(0, stripe.mdt_index().unwrap(), request).unwrap();
        assert_eq!(told, MdtReply::DefaultLayout(layout.clone()));
    }
    // New files belong to the directory's group, on all MDTs.
    for stripe in 0..3 {
        let name = name_in(&stripes, stripe);
        let made = world.create(new(stripes[stripe], &name, NewNode::Regular)).unwrap();
        assert_eq!(attr_of(&made).gid, 6);
    }
    world.check_consistent();
}

#[test]
fn its_stripes_have_its_acls() {
    let mut world = World::new(2, 1);
    let stripes = make(&mut world, Fid::ROOT, "d", 2, &[]).unwrap();
    let acl = mds_acl();
    let set = |name: &[u8]| MdtRequest::Setxattr {
        fid: stripes[0],
        name: name.to_vec(),
        value: acl.clone(),
        flags: 0,
        creds: ROOT,
    };
    let values = |world: &mut World, fid: Fid| {
        let request = MdtRequest::Listxattr { fid, want: LockWant::default() };
        match world.ask(0, fid.mdt_index().unwrap(), request).unwrap() {
            MdtReply::Xattrs { xattrs, .. } => xattrs,
            other => panic!("{other:?}"),
        }
    };
    let names: [&[u8]; 3] = [b"system.posix_acl_access", b"system.posix_acl_default", b"user.a"];
    for name in names {
        world.ask(0, 0, set(name)).unwrap();
    }
    assert_eq!(values(&mut world, stripes[0]).len(), 3);
    // What no MDT checks stays with the directory itself.
    assert_eq!(values(&mut world, stripes[1]), values(&mut world, stripes[0])[..2]);
    let mode = world.getattr(0, stripes[0]).unwrap().permissions;
    assert_eq!(world.getattr(0, stripes[1]).unwrap().permissions, mode);
    for name in &names[..2] {
        let request = MdtRequest::Removexattr { fid: stripes[0], name: name.to_vec(), creds: ROOT };
        world.ask(0, 0, request).unwrap();
    }
    assert_eq!(values(&mut world, stripes[1]), []);
    assert!(!world.getattr(0, stripes[1]).unwrap().has_xattrs);
    world.check_consistent();
}

/// One named user beside the three classes.
fn mds_acl() -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, 7u16, u32::MAX), (2, 5, 9), (4, 5, u32::MAX), (0x10, 5, u32::MAX), (0x20, 0, u32::MAX)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn a_path_leads_through_a_stripe_as_if_it_were_not_there() {
    let mut world = World::new(2, 1);
    let stripes = make(&mut world, Fid::ROOT, "d", 2, &[]).unwrap();
    for stripe in 0..2 {
        let name = name_in(&stripes, stripe);
        let file = world.mkfile(stripes[stripe], &name);
        let told = world.ask(0, stripe as u16, MdtRequest::FidToPath { fid: file }).unwrap();
        // What lies on another MDT is named by its FID.
        let above = if stripe == 0 { "d".to_string() } else { stripes[0].to_string() };
        assert_eq!(told, MdtReply::Paths(vec![format!("{above}/{name}").into_bytes()]));
    }
}

/// Nobody is told attributes of a part for those of the whole.
#[test]
fn a_listing_tells_no_attributes_of_it() {
    let mut world = World::new(2, 1);
    make(&mut world, Fid::ROOT, "d", 2, &[]).unwrap();
    world.mkdir(Fid::ROOT, "plain");
    let request = readdir(Fid::ROOT, 0, 10);
    let MdtReply::Entries { entries, .. } = world.ask(0, 0, request).unwrap() else { panic!("no entries") };
    let with_attrs = entries.iter().filter(|entry| entry.attr.is_some()).map(|entry| &entry.name[..]);
    assert_eq!(with_attrs.collect::<Vec<_>>(), [b"plain"]);
}

/// Its MDT loses it with all that it had decided, and gets it back from the client, with the stripes that others have seen.
#[test]
fn a_replay_makes_the_same_stripes_again() {
    for kept in [0, 100] {
        let mut world = World::new(3, 1);
        world.getattr(0, Fid::ROOT).unwrap();
        world.servers[0].is_synced = false;
        let stripes = make(&mut world, Fid::ROOT, "d", 3, &[1]).unwrap();
        world.servers[0].is_synced = true;
        world.crash(0, kept);
        world.pass_seconds(5);
        assert_eq!(world.lookup(0, Fid::ROOT, "d"), Some(stripes[0]), "kept {kept}");
        for stripe in 0..3 {
            let name = name_in(&stripes, stripe);
            world.mkfile(stripes[stripe], &name);
        }
        world.check_consistent();
    }
}

fn set_default(world: &mut World, fid: Fid, striping: Option<DirStriping>) -> Result<MdtReply, Status> {
    let request = MdtRequest::SetDefaultStriping { fid, striping, creds: ROOT };
    world.ask(0, fid.mdt_index().unwrap(), request)
}

#[test]
fn new_directories_follow_the_default_of_their_parent() {
    let mut world = World::new(3, 1);
    let top = world.mkdir(Fid::ROOT, "top");
    for (name, stripe_count, mdts, expected) in
        [("a", 2, &[][..], vec![0, 1]), ("b", 0, &[2], vec![2]), ("c", DirStriping::ALL, &[1], vec![1, 2, 0])]
    {
        set_default(&mut world, top, Some(DirStriping { stripe_count, mdts: mdts.to_vec() })).unwrap();
        let made = world.create(new(top, name, NewNode::Directory)).unwrap();
        let stripes = match made {
            MdtReply::Striped { stripes, .. } => stripes,
            reply => vec![entry_of(&reply).fid],
        };
        assert_eq!(mdts_of(&stripes), expected, "{name}");
        // And so do those in them, on all MDTs.
        for stripe in &stripes {
            let told =
                world.ask(0, stripe.mdt_index().unwrap(), MdtRequest::GetDefaultStriping { fid: *stripe });
            let striping = DirStriping { stripe_count, mdts: mdts.to_vec() };
            assert_eq!(told, Ok(MdtReply::DefaultStriping(Some(striping))), "{name}");
        }
        // What is asked for by name goes where it is asked for.
        let plain = mkdir_on(&mut world, top, &format!("{name}-plain"), 1);
        assert_eq!(plain.mdt_index(), Some(1));
    }
    set_default(&mut world, top, None).unwrap();
    assert_eq!(world.mkdir(top, "d").mdt_index(), Some(0));
    let file = world.mkfile(top, "f");
    assert_eq!(set_default(&mut world, file, None), Err(Status::NotDirectory));
    let nowhere = DirStriping { stripe_count: 1, mdts: vec![3] };
    assert_eq!(set_default(&mut world, top, Some(nowhere)), Err(Status::NoDevice));
    world.check_consistent();
}

/// The default may be another one when a directory is made again.
#[test]
fn a_replay_does_not_ask_for_the_default_anew() {
    for mdts in [vec![1, 2], vec![2]] {
        let mut world = World::new(3, 2);
        let top = world.mkdir(Fid::ROOT, "top");
        set_default(&mut world, top, Some(DirStriping { stripe_count: 0, mdts })).unwrap();
        world.servers[0].is_synced = false;
        let made = world.create(new(top, "d", NewNode::Directory)).unwrap();
        set_default(&mut world, top, None).unwrap();
        world.servers[0].is_synced = true;
        world.crash(0, 0);
        world.pass_seconds(5);
        let first = entry_of(&made).fid;
        assert_eq!(world.lookup(0, top, "d"), Some(first));
        if let MdtReply::Striped { stripes, .. } = made {
            let name = name_in(&stripes, 1);
            world.mkfile(stripes[1], &name);
        }
        world.check_consistent();
    }
}

#[test]
fn random_operations_in_stripes_and_crashes_agree_with_a_model() {
    agree_with_a_model(0..150, Beside::Striping);
}

#[test]
fn concurrent_operations_in_stripes_and_crashes_leave_a_consistent_tree() {
    leave_a_consistent_tree(0..100, Beside::Striping);
}
