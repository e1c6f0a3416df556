//! Inodes that move to another MDT.

use crate::cross::{Beside, agree_with_a_model, leave_a_consistent_tree, mkdir_on};
use crate::harness::{ROOT, World, fid_of, migrate, new, rename, user};
use base::{Attr, Fid, FileType, Status, Version};
use wire::lock::LockWant;
use wire::mdt::{DirStriping, NewNode};
use wire::{ComponentHint, LayoutHint, MdtReply, MdtRequest};

/// Asks for it on the MDT that is to have it.
fn move_to(world: &mut World, mdt: u16, place: (Fid, &str), fid: Fid) -> Result<Fid, Status> {
    world.ask(0, mdt, migrate(place, fid)).map(|reply| fid_of(&reply))
}

fn moved(world: &mut World, mdt: u16, place: (Fid, &str), fid: Fid) -> Fid {
    let to = move_to(world, mdt, place, fid).unwrap();
    assert_eq!((to.mdt_index(), to == fid), (Some(mdt), fid.mdt_index() == Some(mdt)));
    assert_eq!(world.lookup(0, place.0, place.1), Some(to));
    to
}

/// What must not change.
fn lasting(attr: Attr) -> Attr {
    Attr { fid: Fid::default(), version: Version(0), ..attr }
}

fn symlink(world: &mut World, parent: Fid, name: &str) -> Fid {
    fid_of(&world.create(new(parent, name, NewNode::Symlink { target: b"to".into() })).unwrap())
}

fn device(world: &mut World, parent: Fid, name: &str, file_type: FileType) -> Fid {
    fid_of(&world.create(new(parent, name, NewNode::Device { file_type, rdev: 7 })).unwrap())
}

/// From each MDT to each, below a directory of each, with names of inodes of all.
#[test]
fn a_directory_moves_with_all_that_it_has() {
    for (home, from, to) in (0..27).map(|case| (case / 9, case / 3 % 3, case % 3)) {
        let mut world = World::new(3, 1);
        let parent = mkdir_on(&mut world, Fid::ROOT, "parent", home);
        let dir = mkdir_on(&mut world, parent, "d", from);
        let mut inside = Vec::new();
        for mdt in 0..3 {
            inside.push((format!("sub{mdt}"), mkdir_on(&mut world, dir, &format!("sub{mdt}"), mdt)));
            let other = mkdir_on(&mut world, Fid::ROOT, &format!("other{mdt}"), mdt);
            let file = world.mkfile(other, "f");
            world.link(file, dir, &format!("f{mdt}")).unwrap();
            inside.push((format!("f{mdt}"), file));
        }
        let layout = LayoutHint {
            components: vec![ComponentHint { stripe_count: Some(1), ..ComponentHint::default() }],
        };
        let set_layout = MdtRequest::SetLayout { fid: dir, layout: layout.clone(), creds: ROOT };
        world.ask(0, from, set_layout).unwrap();
        let striping = DirStriping { stripe_count: 1, mdts: vec![0] };
        let request =
            MdtRequest::SetDefaultStriping { fid: dir, striping: Some(striping.clone()), creds: ROOT };
        world.ask(0, from, request).unwrap();
        for (name, value) in [("user.a", &b"1"[..]), ("trusted.b", b"2")] {
            let set = MdtRequest::Setxattr {
                fid: dir,
                name: name.into(),
                value: value.into(),
                flags: 0,
                creds: ROOT,
            };
            world.ask(0, from, set).unwrap();
        }
        let before = (world.getattr(0, dir).unwrap(), world.getattr(0, parent).unwrap());
        world.pass_seconds(1);
        let new_fid = moved(&mut world, to, (parent, "d"), dir);
        assert_eq!(lasting(world.getattr(0, new_fid).unwrap()), lasting(before.0));
        assert_eq!(world.getattr(0, parent).unwrap(), before.1, "its parent is as it was");
        for (name, fid) in &inside {
            assert_eq!(world.lookup(0, new_fid, name), Some(*fid));
        }
        assert_eq!(world.names(new_fid).len(), inside.len());
        let xattrs = world.ask(0, to, MdtRequest::Getxattr { fid: new_fid, name: "trusted.b".into() });
        assert_eq!(xattrs, Ok(MdtReply::Bytes(b"2".into())));
        let default = world.ask(0, to, MdtRequest::GetDefaultLayout { fid: new_fid }).unwrap();
        assert_eq!(default, MdtReply::DefaultLayout(layout));
        let default = world.ask(0, to, MdtRequest::GetDefaultStriping { fid: new_fid }).unwrap();
        assert_eq!(default, MdtReply::DefaultStriping(Some(striping)));
        if to != from {
            assert_eq!(world.getattr(0, dir), Err(Status::Moved));
            let late = MdtRequest::Lookup { parent: dir, name: "f0".into(), want: LockWant::default() };
            assert_eq!(world.ask(0, from, late).map(drop), Err(Status::Moved));
            let late = world.create(new(dir, "late", NewNode::Regular));
            assert_eq!(late.map(drop), Err(Status::Moved));
        }
        // What is in it is found from below, too.
        let (_, sub) = inside[2];
        assert_eq!(world.rename((parent, "d"), (sub, "loop"), 0).map(drop), Err(Status::Invalid));
        for (name, fid) in &inside {
            match world.getattr(0, *fid).unwrap().file_type {
                FileType::Directory => world.rmdir(new_fid, name).unwrap(),
                _ => world.unlink(new_fid, name).unwrap(),
            };
        }
        world.rmdir(parent, "d").unwrap();
        world.check_consistent();
    }
}

#[test]
fn new_files_of_a_moved_directory_are_made_on_its_new_mdt() {
    let mut world = World::new(2, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    let old = world.mkfile(dir, "old");
    let to = moved(&mut world, 1, (Fid::ROOT, "d"), dir);
    assert_eq!(world.mkfile(to, "new").mdt_index(), Some(1));
    assert_eq!(world.lookup(0, to, "old"), Some(old));
    let back = moved(&mut world, 0, (Fid::ROOT, "d"), to);
    assert_ne!(back, dir, "no FID is used twice");
    assert_eq!(world.names(back), ["new", "old"]);
    world.check_consistent();
}

#[test]
fn symlinks_and_devices_move_and_nothing_else() {
    let mut world = World::new(2, 1);
    let link = symlink(&mut world, Fid::ROOT, "link");
    let attr = lasting(world.getattr(0, link).unwrap());
    let to = moved(&mut world, 1, (Fid::ROOT, "link"), link);
    assert_eq!(world.ask(0, 1, MdtRequest::Readlink { fid: to }), Ok(MdtReply::Bytes(b"to".into())));
    assert_eq!(lasting(world.getattr(0, to).unwrap()), attr);
    for (name, file_type) in [("c", FileType::CharDevice), ("b", FileType::BlockDevice)] {
        let device = device(&mut world, Fid::ROOT, name, file_type);
        let to = moved(&mut world, 1, (Fid::ROOT, name), device);
        assert_eq!(world.getattr(0, to).unwrap().rdev, 7);
    }
    let file = world.mkfile(Fid::ROOT, "file");
    let fifo = device(&mut world, Fid::ROOT, "fifo", FileType::Fifo);
    let socket = device(&mut world, Fid::ROOT, "socket", FileType::Socket);
    let twice = symlink(&mut world, Fid::ROOT, "twice");
    world.link(twice, Fid::ROOT, "again").unwrap();
    for (name, fid, status) in [
        ("file", file, Status::NotSupported),
        ("fifo", fifo, Status::NotSupported),
        ("socket", socket, Status::NotSupported),
        ("twice", twice, Status::TooManyLinks),
        ("file", twice, Status::Stale),
        ("nothing", twice, Status::Stale),
        ("a/b", twice, Status::Invalid),
    ] {
        assert_eq!(move_to(&mut world, 1, (Fid::ROOT, name), fid), Err(status), "{name}");
    }
    assert_eq!(world.lookup(0, Fid::ROOT, "fifo"), Some(fifo));
    world.check_consistent();
}

#[test]
fn striped_directories_stay_and_only_the_superuser_moves() {
    let mut world = World::new(2, 1);
    let create = new(Fid::ROOT, "s", NewNode::Directory);
    let striping = DirStriping { stripe_count: 2, mdts: Vec::new() };
    let request = MdtRequest::MakeStriped { create, striping, stripes: Vec::new() };
    let striped = fid_of(&world.ask(0, 0, request).unwrap());
    assert_eq!(move_to(&mut world, 1, (Fid::ROOT, "s"), striped), Err(Status::NotSupported));
    let dir = world.mkdir(Fid::ROOT, "d");
    let request = MdtRequest::Migrate { parent: Fid::ROOT, name: "d".into(), fid: dir, creds: user(7) };
    assert_eq!(world.ask(0, 1, request).map(drop), Err(Status::NotPermitted));
    // A directory in a striped one moves.
    let MdtReply::Striped { stripes, .. } =
        world.ask(0, 0, MdtRequest::Getattr { fid: striped, want: LockWant::default() }).unwrap()
    else {
        panic!("it is striped")
    };
    let home = base::names::stripe_of(&stripes, b"sub").unwrap();
    let sub = mkdir_on(&mut world, home, "sub", 0);
    world.mkfile(sub, "f");
    let to = moved(&mut world, 1, (home, "sub"), sub);
    assert_eq!(world.names(to), ["f"]);
    world.check_consistent();
}

#[test]
fn a_directory_with_too_many_names_stays_whole() {
    let mut world = World::new(3, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    let long = "n".repeat(240);
    // Each of them counts 200 bytes and three times its name.
    for number in 0..1200 {
        world.mkfile(dir, &format!("{long}{number:04}"));
    }
    assert_eq!(move_to(&mut world, 1, (Fid::ROOT, "d"), dir), Err(Status::TooBig));
    for number in 0..200 {
        world.unlink(dir, &format!("{long}{number:04}")).unwrap();
    }
    let to = moved(&mut world, 1, (Fid::ROOT, "d"), dir);
    assert_eq!(world.names(to).len(), 1000);
    // Of inodes of a third MDT less is possible: they are named in one row there.
    assert_eq!(move_to(&mut world, 2, (Fid::ROOT, "d"), to), Err(Status::TooBig));
    assert_eq!(world.names(to).len(), 1000);
    moved(&mut world, 0, (Fid::ROOT, "d"), to);
    world.check_consistent();
}

/// Whoever knows the directory, a name in it or that it has a name gives that back first.
#[test]
fn clients_forget_a_directory_before_it_moves() {
    let mut world = World::new(2, 2);
    let dir = world.mkdir(Fid::ROOT, "d");
    world.mkfile(dir, "f");
    for (parent, name) in [(Fid::ROOT, "d"), (dir, "f")] {
        let want = world.want(1);
        world.ask(1, 0, MdtRequest::Lookup { parent, name: name.into(), want }).unwrap();
    }
    world.clients[1].is_polite = false;
    let of = world.start(0, 1, migrate((Fid::ROOT, "d"), dir));
    assert_eq!(world.result(0, of), None, "the other client has not given back its locks");
    let called: Vec<_> = world.clients[1].callbacks.iter().map(|(_, _, resource)| *resource).collect();
    assert!(called.contains(&wire::Resource::Inode(dir)));
    let name =
        |parent, name: &str| wire::Resource::Name { parent, hash: base::names::name_hash(name.as_bytes()) };
    assert!(called.contains(&name(Fid::ROOT, "d")));
    assert!(called.contains(&name(dir, "f")));
    world.clients[1].is_polite = true;
    let to = fid_of(&await_reply(&mut world, of));
    assert!(world.lookup(1, to, "f").is_some());
    world.check_consistent();
}

fn await_reply(world: &mut World, of: (base::TargetId, rpc::Ticket)) -> MdtReply {
    for _ in 0..200 {
        if let Some(result) = world.result(0, of) {
            return result.unwrap();
        }
        world.pass(base::Duration::from_millis(100));
    }
    panic!("no answer\n{}", world.under_way());
}

/// All of the directory was told; before its old MDT prepares, a name comes and another one goes.
#[test]
fn what_changes_meanwhile_moves_too() {
    let mut world = World::new(2, 2);
    let parent = mkdir_on(&mut world, Fid::ROOT, "parent", 1);
    let dir = mkdir_on(&mut world, parent, "d", 0);
    let old = world.mkfile(dir, "old");
    world.pass_seconds(3);
    world.held = Some((0, 1));
    let of = world.start(0, 1, migrate((parent, "d"), dir));
    let renamed = world.start(1, 0, rename((dir, "old"), (Fid::ROOT, "out"), 0));
    assert!(world.result(1, renamed).is_some_and(|result| result.is_ok()));
    let made = world.start(1, 0, MdtRequest::Create(new(dir, "new", NewNode::Regular)));
    assert!(world.result(1, made).is_some_and(|result| result.is_ok()));
    assert_eq!(world.let_go(), 1);
    let to = fid_of(&await_reply(&mut world, of));
    assert_eq!(world.names(to), ["new"]);
    assert_eq!(world.lookup(0, Fid::ROOT, "out"), Some(old));
    world.check_consistent();
}

/// Nothing is answered before it is durable on the new MDT: nobody could replay it.
#[test]
fn the_answer_waits_for_the_disk() {
    let mut world = World::new(2, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    world.mkfile(dir, "f");
    world.pass_seconds(3);
    world.servers[1].is_synced = false;
    let of = world.start(0, 1, migrate((Fid::ROOT, "d"), dir));
    world.pass_seconds(2);
    assert_eq!(world.result(0, of), None);
    // It is lost there, and done again.
    world.crash(1, 0);
    world.servers[1].is_synced = true;
    let to = fid_of(&await_reply(&mut world, of));
    assert_eq!(world.lookup(0, Fid::ROOT, "d"), Some(to));
    assert_eq!(world.names(to), ["f"]);
    assert_eq!(world.retained_count(0, 1), 0);
    world.check_consistent();
}

#[test]
fn random_operations_and_migrations_agree_with_a_model() {
    agree_with_a_model(0..150, Beside::Migrating);
}

#[test]
fn concurrent_operations_and_migrations_leave_a_consistent_tree() {
    leave_a_consistent_tree(0..150, Beside::Migrating);
}
