//! Names: create, lookup, readdir, link, unlink, rename.

use crate::harness::{ROOT, World, attr_of, entry_of, fid_of, new, readdir, rename, user};
use base::names::name_hash;
use base::{Fid, FileType, Status};
use mds::MdsEvent;
use wire::lock::LockWant;
use wire::mdt::{CreateRequest, Credentials, NewNode};
use wire::{MdtReply, MdtRequest};

#[test]
fn a_tree_is_made_listed_and_removed() {
    let mut world = World::new(1, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    for n in 0..40 {
        world.mkfile(dir, &format!("f{n:02}"));
    }
    let expected: Vec<String> = (0..40).map(|n| format!("f{n:02}")).collect();
    assert_eq!(world.names(dir), expected);
    assert_eq!(world.rmdir(Fid::ROOT, "d"), Err(Status::NotEmpty));
    for name in &expected {
        world.unlink(dir, name).unwrap();
    }
    assert_eq!(world.getattr(0, Fid::ROOT).unwrap().link_count, 3);
    world.rmdir(Fid::ROOT, "d").unwrap();
    assert_eq!(world.getattr(0, Fid::ROOT).unwrap().link_count, 2);
    assert_eq!(world.lookup(0, Fid::ROOT, "d"), None);
    world.check_consistent();
    assert_eq!(world.destroyed.len(), 40);
}

#[test]
fn names_are_checked_in_the_order_of_posix() {
    let mut world = World::new(1, 1);
    let file = world.mkfile(Fid::ROOT, "f");
    assert_eq!(world.create(new(Fid::ROOT, "f", NewNode::Directory)), Err(Status::Exists));
    assert_eq!(world.create(new(file, "x", NewNode::Regular)), Err(Status::NotDirectory));
    let long = "x".repeat(256);
    assert_eq!(world.create(new(Fid::ROOT, &long, NewNode::Regular)), Err(Status::NameTooLong));
    assert_eq!(world.unlink(Fid::ROOT, "g"), Err(Status::NotFound));
    assert_eq!(world.rmdir(Fid::ROOT, "f"), Err(Status::NotDirectory));
    world.mkdir(Fid::ROOT, "d");
    assert_eq!(world.unlink(Fid::ROOT, "d"), Err(Status::IsDirectory));
    // An existing name is told before a missing right.
    let mut request = new(Fid::ROOT, "f", NewNode::Regular);
    request.creds = user(5);
    assert_eq!(world.create(request.clone()), Err(Status::Exists));
    request.name = b"h".to_vec();
    assert_eq!(world.create(request), Err(Status::AccessDenied));
}

#[test]
fn a_removed_directory_takes_no_names() {
    let mut world = World::new(1, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    world.rmdir(Fid::ROOT, "d").unwrap();
    assert_eq!(world.create(new(dir, "x", NewNode::Regular)), Err(Status::NotFound));
}

#[test]
fn a_file_just_written_and_replaced_is_kept_for_who_has_looked_it_up() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let writer = world.open(0, file, true);
    world.close(0, file, writer);
    assert_eq!(world.lookup(1, Fid::ROOT, "f"), Some(file));
    world.mkfile(Fid::ROOT, "new");
    world.rename((Fid::ROOT, "new"), (Fid::ROOT, "f"), 0).unwrap();
    let reader = world.open(1, file, false);
    world.pass_seconds(3);
    assert_eq!(world.getattr(1, file).unwrap().link_count, 0);
    world.close(1, file, reader);
    assert_eq!(world.getattr(1, file), Err(Status::Stale));
    // Nobody has it open, and the moment passes.
    let other = world.mkfile(Fid::ROOT, "g");
    let writer = world.open(0, other, true);
    world.close(0, other, writer);
    world.unlink(Fid::ROOT, "g").unwrap();
    world.pass_seconds(3);
    assert_eq!(world.getattr(1, other), Err(Status::Stale));
    world.check_consistent();
    assert_eq!(world.destroyed.len(), 2);
}

#[test]
fn links_are_counted() {
    let mut world = World::new(1, 1);
    let file = world.mkfile(Fid::ROOT, "a");
    let reply = world.link(file, Fid::ROOT, "b").unwrap();
    assert_eq!(attr_of(&reply).link_count, 2);
    assert_eq!(world.link(file, Fid::ROOT, "b"), Err(Status::Exists));
    let dir = world.mkdir(Fid::ROOT, "d");
    assert_eq!(world.link(dir, Fid::ROOT, "e"), Err(Status::NotPermitted));
    world.unlink(Fid::ROOT, "a").unwrap();
    assert_eq!(world.getattr(0, file).unwrap().link_count, 1);
    assert_eq!(
        world.ask(0, 0, MdtRequest::FidToPath { fid: file }),
        Ok(MdtReply::Paths(vec![b"b".to_vec()]))
    );
    world.check_consistent();
}

#[test]
fn renames_replace_refuse_and_exchange() {
    let mut world = World::new(1, 1);
    let (a, b) = (world.mkdir(Fid::ROOT, "a"), world.mkdir(Fid::ROOT, "b"));
    let (x, y) = (world.mkfile(a, "x"), world.mkfile(b, "y"));
    assert_eq!(world.rename((a, "x"), (b, "y"), 1), Err(Status::Exists));
    world.rename((a, "x"), (b, "y"), 2).unwrap();
    assert_eq!((world.lookup(0, a, "x"), world.lookup(0, b, "y")), (Some(y), Some(x)));
    world.rename((a, "x"), (b, "y"), 0).unwrap();
    assert_eq!((world.lookup(0, a, "x"), world.lookup(0, b, "y")), (None, Some(y)));
    assert_eq!(world.getattr(0, x), Err(Status::Stale));
    // Directories.
    let deep = world.mkdir(b, "deep");
    assert_eq!(world.rename((Fid::ROOT, "b"), (deep, "z"), 0), Err(Status::Invalid));
    assert_eq!(world.rename((Fid::ROOT, "b"), (Fid::ROOT, "a"), 0).map(drop), Ok(()));
    assert_eq!(world.rename((Fid::ROOT, "a"), (b, "below"), 0), Err(Status::Invalid));
    let c = world.mkdir(Fid::ROOT, "c");
    assert_eq!(world.rename((Fid::ROOT, "c"), (Fid::ROOT, "a"), 0), Err(Status::NotEmpty));
    assert_eq!(world.rename((b, "y"), (Fid::ROOT, "c"), 0), Err(Status::IsDirectory));
    assert_eq!(world.rename((Fid::ROOT, "c"), (b, "y"), 0), Err(Status::NotDirectory));
    world.rename((b, "deep"), (c, "deep"), 0).unwrap();
    assert_eq!(world.getattr(0, b).unwrap().link_count, 2);
    assert_eq!(world.getattr(0, c).unwrap().link_count, 3);
    let path = MdtReply::Paths(vec![b"c/deep".to_vec()]);
    assert_eq!(world.ask(0, 0, MdtRequest::FidToPath { fid: deep }), Ok(path));
    world.check_consistent();
}

#[test]
fn renaming_one_name_of_a_file_to_another_does_nothing() {
    let mut world = World::new(1, 1);
    let file = world.mkfile(Fid::ROOT, "a");
    world.link(file, Fid::ROOT, "b").unwrap();
    world.rename((Fid::ROOT, "a"), (Fid::ROOT, "b"), 0).unwrap();
    assert_eq!(world.names(Fid::ROOT), ["a", "b"]);
}

#[test]
fn a_sticky_directory_protects_the_files_of_others() {
    let mut world = World::new(1, 1);
    let mut request = new(Fid::ROOT, "tmp", NewNode::Directory);
    request.permissions = 0o1777;
    let tmp = fid_of(&world.create(request).unwrap());
    for uid in [5, 6] {
        let mut request = new(tmp, &format!("of{uid}"), NewNode::Regular);
        request.creds = user(uid);
        world.create(request).unwrap();
    }
    let unlink = |name: &str| MdtRequest::Unlink { parent: tmp, name: name.into(), creds: user(5) };
    assert_eq!(world.ask(0, 0, unlink("of6")), Err(Status::NotPermitted));
    let mut over = rename((tmp, "of5"), (tmp, "of6"), 0);
    if let MdtRequest::Rename { creds, .. } = &mut over {
        *creds = user(5);
    }
    assert_eq!(world.ask(0, 0, over), Err(Status::NotPermitted));
    world.ask(0, 0, unlink("of5")).unwrap();
}

#[test]
fn groups_decide_and_are_asked_for() {
    let mut world = World::new(1, 1);
    let mut request = new(Fid::ROOT, "d", NewNode::Directory);
    request.permissions = 0o770;
    request.creds = Credentials { uid: 1, gid: 10, groups: Some(vec![]) };
    request.creds = Credentials { gid: 10, ..ROOT };
    let dir = fid_of(&world.create(request).unwrap());
    let mut inside = new(dir, "f", NewNode::Regular);
    inside.creds = Credentials { uid: 7, gid: 7, groups: None };
    assert_eq!(world.create(inside.clone()), Err(Status::AccessDenied));
    inside.creds.groups = Some(vec![10]);
    world.create(inside).unwrap();
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let mut world = World::new(1, 1);
    let mut request = new(Fid::ROOT, "", NewNode::Regular);
    request.is_unnamed = true;
    request.open = Some(world.open_args(0, true));
    let first = fid_of(&world.create(request.clone()).unwrap());
    world.link(first, Fid::ROOT, "named").unwrap();
    world.close(0, first, request.open.unwrap());
    assert_eq!(world.lookup(0, Fid::ROOT, "named"), Some(first));
    request.open = Some(world.open_args(0, true));
    let second = fid_of(&world.create(request.clone()).unwrap());
    world.close(0, second, request.open.unwrap());
    assert_eq!(world.getattr(0, second), Err(Status::Stale));
    world.check_consistent();
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let open = world.open(1, file, false);
    world.unlink(Fid::ROOT, "f").unwrap();
    assert_eq!(world.getattr(1, file).unwrap().link_count, 0);
    assert!(world.destroyed.is_empty());
    world.close(1, file, open);
    assert_eq!(world.getattr(1, file), Err(Status::Stale));
    assert_eq!(world.destroyed.len(), 1);
    world.check_consistent();
}

/// Of inodes without a name only those made with O_TMPFILE get one; so it is in Linux (`I_LINKABLE`).
#[test]
fn an_open_file_that_was_removed_gets_no_name_again() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let open = world.open(1, file, false);
    world.unlink(Fid::ROOT, "f").unwrap();
    assert_eq!(world.link(file, Fid::ROOT, "again"), Err(Status::NotFound));
    world.close(1, file, open);
    assert_eq!(world.getattr(1, file), Err(Status::Stale));
    let mut request = new(Fid::ROOT, "", NewNode::Regular);
    request.is_unnamed = true;
    request.open = Some(world.open_args(0, true));
    let file = fid_of(&world.create(request.clone()).unwrap());
    world.link(file, Fid::ROOT, "first").unwrap();
    world.unlink(Fid::ROOT, "first").unwrap();
    assert_eq!(world.link(file, Fid::ROOT, "second"), Err(Status::NotFound));
    world.close(0, file, request.open.unwrap());
    world.check_consistent();
}

#[test]
fn creating_an_existing_file_without_exclusion_opens_it() {
    let mut world = World::new(1, 1);
    let file = world.mkfile(Fid::ROOT, "f");
    let mut request = new(Fid::ROOT, "f", NewNode::Regular);
    request.is_exclusive = false;
    request.open = Some(world.open_args(0, true));
    let reply = world.create(request).unwrap();
    assert!(!entry_of(&reply).was_created);
    assert_eq!(entry_of(&reply).fid, file);
    assert!(!attr_of(&reply).is_size_known);
}

/// The kernel of the client did not know of it, and would take a FIFO for a regular file.
#[test]
fn creating_without_exclusion_opens_nothing_but_regular_files() {
    let mut world = World::new(1, 1);
    let fifo = NewNode::Device { file_type: FileType::Fifo, rdev: 0 };
    let target = NewNode::Symlink { target: b"elsewhere".to_vec() };
    let nodes = [(fifo, Status::Exists), (target, Status::Exists), (NewNode::Directory, Status::IsDirectory)];
    for (index, (node, expected)) in nodes.into_iter().enumerate() {
        let name = format!("n{index}");
        let met = fid_of(&world.create(new(Fid::ROOT, &name, node)).unwrap());
        let mut request = new(Fid::ROOT, &name, NewNode::Regular);
        request.is_exclusive = false;
        request.open = Some(world.open_args(0, true));
        assert_eq!(world.create(request), Err(expected));
        assert_eq!(world.lookup(0, Fid::ROOT, &name), Some(met));
    }
    world.check_consistent();
}

/// Another user may have made it just now, and waits for what a privileged program writes there: its kernel has the rule (fs.protected_regular), and
/// looks the name up first.
#[test]
fn creating_in_a_sticky_directory_opens_no_file_of_somebody_else() {
    let mut world = World::new(1, 1);
    let make = |world: &mut World, mode, uid: u32, name: &str| {
        let mut request = new(Fid::ROOT, name, NewNode::Directory);
        request.permissions = mode;
        request.umask = 0;
        let dir = fid_of(&world.create(request).unwrap());
        let mut request = new(dir, "f", NewNode::Regular);
        request.creds = user(uid);
        world.create(request).unwrap();
        dir
    };
    for (number, (mode, owner, caller, expected)) in [
        (0o1777, 5, 0, Some(Status::Exists)),
        (0o1777, 5, 6, Some(Status::Exists)),
        (0o1777, 5, 5, None),
        (0o1777, 0, 6, Some(Status::AccessDenied)),
        (0o1755, 0, 0, None),
        (0o777, 5, 0, None),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = make(&mut world, mode, owner, &format!("d{number}"));
        let mut request = new(dir, "f", NewNode::Regular);
        request.is_exclusive = false;
        request.creds = user(caller);
        request.open = Some(world.open_args(0, true));
        assert_eq!(world.create(request).err(), expected, "{mode:o}, {owner}, {caller}");
    }
}

/// Hazard 7.3: whatever a listing asks for, a request ends after so many entries and bytes, and others get their turn.
#[test]
fn a_listing_gives_way_after_a_bounded_number_of_entries() {
    use base::limits::{FRAME_BODY_BYTES_MAX, NAME_BYTES_MAX, READDIR_ENTRIES_MAX};
    let mut world = World::new(1, 1);
    for (dir, name_bytes, with_attrs) in [("short", 5, false), ("long", NAME_BYTES_MAX, true)] {
        let dir = world.mkdir(Fid::ROOT, dir);
        let file_count = READDIR_ENTRIES_MAX + 100;
        for n in 0..file_count {
            world.mkfile(dir, &format!("{n:0>name_bytes$}"));
        }
        let (mut after, mut listed) = (0, 0);
        loop {
            let entry_count_max = u32::MAX;
            let request = MdtRequest::Readdir {
                fid: dir,
                after,
                entry_count_max,
                with_attrs,
                with_xattrs: true,
                children: None,
                subdirectories: None,
                is_whole_wanted: false,
                accesses: Vec::new(),
            };
            let reply = world.ask(0, 0, request).unwrap();
            let byte_count = wire::Reply::Mdt(reply.clone()).to_bytes().len();
            assert!(byte_count < FRAME_BODY_BYTES_MAX, "{byte_count} bytes");
            let MdtReply::Entries { entries, is_end, .. } = reply else { panic!("no entries") };
            assert!(entries.len() <= READDIR_ENTRIES_MAX, "{} entries", entries.len());
            listed += entries.len();
            after = entries.last().map_or(after, |entry| entry.position);
            if is_end {
                break;
            }
        }
        assert_eq!(listed, file_count);
    }
}

/// Names that share a position can be made up: XXH3 multiplies the second eight bytes of these by nothing. A listing has to bring them
/// all at once.
#[test]
fn names_that_are_made_up_to_share_a_position_are_refused_after_some() {
    let mut world = World::new(2, 1);
    let shared = |number: u32| {
        let mut name = b"\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe".to_vec();
        name.extend(format!("{number:08}and what ends it").bytes());
        name
    };
    assert_eq!(name_hash(&shared(1)), name_hash(&shared(2)));
    let create = |number| CreateRequest { name: shared(number), ..new(Fid::ROOT, "", NewNode::Regular) };
    let file = world.mkfile(Fid::ROOT, "ordinary");
    let made = (0..).take_while(|number| world.create(create(*number)).is_ok()).count();
    assert_eq!(made, 64);
    assert_eq!(world.create(create(64)), Err(Status::NoSpace));
    let link = MdtRequest::Link {
        fid: file,
        parent: Fid::ROOT,
        name: shared(64),
        creds: ROOT,
        want: LockWant::default(),
    };
    assert_eq!(world.ask(0, 0, link), Err(Status::NoSpace));
    let rename = |from: &[u8], to: u32| MdtRequest::Rename {
        parent: Fid::ROOT,
        name: from.to_vec(),
        new_parent: Fid::ROOT,
        new_name: shared(to),
        flags: 0,
        creds: ROOT,
    };
    assert_eq!(world.ask(0, 0, rename(b"ordinary", 64)), Err(Status::NoSpace));
    // None more than before.
    world.ask(0, 0, rename(&shared(0), 64)).unwrap();
    assert_eq!(world.getattr(0, Fid::ROOT).map(|attr| attr.link_count), Ok(2));
    let unlink = MdtRequest::Unlink { parent: Fid::ROOT, name: shared(1), creds: ROOT };
    world.ask(0, 0, unlink).unwrap();
    world.create(create(65)).unwrap();
    assert_eq!(world.create(create(66)), Err(Status::NoSpace));
    let reply = world.ask(0, 0, readdir(Fid::ROOT, 0, 1000)).unwrap();
    let MdtReply::Entries { entries, is_end: true, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(entries.len(), 65);
    world.check_consistent();
}

/// How the last handle of a file without a name is closed: by itself, or among those that were only read through, or so shortly before the name
/// goes that the file still counts as open.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LastClose {
    Writer,
    Reader,
    Gathered,
    BeforeUnlink,
}

/// A full log refuses what a last close changes. Its client does not ask again.
#[test]
fn a_file_without_a_name_goes_in_the_end_when_the_store_refuses_its_last_close() {
    for how in [LastClose::Writer, LastClose::Reader, LastClose::Gathered, LastClose::BeforeUnlink] {
        let mut world = World::new(1, 2);
        let file = world.mkfile(Fid::ROOT, "f");
        let open = world.open(1, file, matches!(how, LastClose::Writer | LastClose::BeforeUnlink));
        if how == LastClose::BeforeUnlink {
            world.close(1, file, open);
        }
        world.unlink(Fid::ROOT, "f").unwrap();
        // The close itself, and what is tried after it.
        world.servers[0].store.refuse(3);
        let close = MdtRequest::Close {
            fid: file,
            handle: open.handle,
            atime: None,
            unchanged_since: None,
            data: None,
            cancels: Vec::new(),
            accesses: Vec::new(),
        };
        let gathered = MdtRequest::Closes { handles: vec![(file, open.handle)], accesses: Vec::new() };
        match how {
            LastClose::Writer | LastClose::Reader => {
                assert_eq!(world.ask(1, 0, close), Err(Status::NoSpace), "{how:?}");
            }
            LastClose::Gathered => drop(world.ask(1, 0, gathered).unwrap()),
            LastClose::BeforeUnlink => {}
        }
        assert_eq!(world.servers[0].mds.open_count(), 0, "{how:?}");
        world.pass_seconds(6);
        let left = world.servers[0].store.rows();
        assert_eq!(left.keys().filter(|(table, _)| *table == mds::rows::ORPHANS).count(), 0, "{how:?}");
        assert_eq!(world.getattr(0, file), Err(Status::Stale), "{how:?}");
        // Said once, however often it was tried.
        let what = "an orphan was not swept";
        let is_it = |event: &&MdsEvent| matches!(event, MdsEvent::Failed { what: said, .. } if *said == what);
        assert!(world.events.iter().filter(is_it).count() <= 1, "{how:?}");
        world.check_consistent();
    }
}
