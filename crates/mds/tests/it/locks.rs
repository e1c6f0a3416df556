//! Locks that come along with replies, and who loses them when.

use crate::harness::{ROOT, World, entry_of, new};
use crate::migrate::known_file;
use base::{Duration, Extent, Fid, LockId, ObjectId, Status, TargetId};
use rpc::Kind;
use wire::lock::bits;
use wire::mdt::NewNode;
use wire::{LockMode, LockPolicy, LockRequest, MdtReply, MdtRequest, OstRequest, Request, Resource};

#[test]
fn absence_is_covered_by_a_lock_that_a_creation_takes_back() {
    let mut world = World::new(1, 2);
    let want = world.want(1);
    let lookup = MdtRequest::Lookup { parent: Fid::ROOT, name: b"f".to_vec(), want };
    let MdtReply::Absent { grants } = world.ask(1, 0, lookup).unwrap() else { panic!("there") };
    assert_eq!(grants.len(), 1);
    world.mkfile(Fid::ROOT, "f");
    let expected = Resource::Name { parent: Fid::ROOT, hash: base::names::name_hash(b"f") };
    assert_eq!(world.clients[1].callbacks[0].2, expected);
    assert!(world.clients[0].callbacks.is_empty());
}

/// A creation that waits runs again: it is dealt its OST once.
#[test]
fn files_whose_creation_waits_go_to_all_osts_in_turn() {
    let mut world = World::new(1, 2);
    world.name_osts(&[(0, true), (1, true)]);
    let osts: Vec<u16> = (0..6)
        .flat_map(|n| {
            let (name, want) = (format!("f{n}"), world.want(1));
            world
                .ask(1, 0, MdtRequest::Lookup { parent: Fid::ROOT, name: name.clone().into_bytes(), want })
                .unwrap();
            let called_count = world.clients[1].callbacks.len();
            let reply = world.create(new(Fid::ROOT, &name, NewNode::Regular)).unwrap();
            assert!(world.clients[1].callbacks.len() > called_count, "{name} has waited");
            entry_of(&reply).layout.clone().unwrap().osts().collect::<Vec<u16>>()
        })
        .collect();
    assert_eq!(osts, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn the_requester_keeps_its_own_locks() {
    let mut world = World::new(1, 1);
    let want = world.want(0);
    let mut request = new(Fid::ROOT, "f", NewNode::Regular);
    request.want = want;
    let reply = world.create(request).unwrap();
    assert_eq!(entry_of(&reply).grants.len(), 2);
    world.unlink(Fid::ROOT, "f").unwrap();
    assert!(world.clients[0].callbacks.is_empty());
}

#[test]
fn a_modification_waits_until_the_lock_is_back() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let want = world.want(1);
    world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
    world.clients[1].is_polite = false;
    let set = base::SetAttr { permissions: Some(0o600), ..base::SetAttr::default() };
    let chmod = MdtRequest::Setattr {
        fid: file,
        set,
        creds: ROOT,
        handle: None,
        want: Default::default(),
        stamp: None,
    };
    let waiting = world.start(0, 0, chmod);
    world.pass_seconds(3);
    assert_eq!(world.result(0, waiting), None);
    assert!(world.clients[1].callbacks.len() >= 3, "callbacks are repeated");
    // Others are not given what would make it wait longer.
    let want = world.want(0);
    let reply = world.ask(0, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
    assert!(entry_of(&reply).grants.is_empty());
    let (target, lock, _) = world.clients[1].callbacks[0];
    let cancel = wire::Request::Lock(wire::LockRequest::Cancel { locks: vec![lock] });
    world.submit(1, target, cancel, rpc::Kind::Reserved);
    world.run();
    assert!(world.result(0, waiting).unwrap().is_ok());
}

#[test]
fn a_silent_holder_is_evicted() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let want = world.want(1);
    world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
    let (us, it) = (base::Endpoint::Client(world.clients[1].id), base::TargetId::mdt(0));
    world.cut.insert((us, base::Endpoint::Target(it)));
    let waiting =
        world.start(0, 0, MdtRequest::Unlink { parent: Fid::ROOT, name: b"f".to_vec(), creds: ROOT });
    world.pass_seconds(20);
    assert_eq!(world.result(0, waiting), None);
    world.pass_seconds(15);
    assert!(world.result(0, waiting).unwrap().is_ok());
    world.cut.clear();
    world.pass_seconds(5);
    assert_eq!(world.getattr(1, file), Err(Status::Stale));
    assert_eq!(world.clients[1].evictions, 1);
}

/// Nobody else has the file open or is told its size while a writer may keep data back.
#[test]
fn a_write_back_lock_is_held_by_the_only_one_who_has_the_file_open() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let want = |world: &mut World, client: usize| wire::lock::LockWant {
        write_back: Some(base::LockId(world.new_id(client))),
        ..Default::default()
    };
    let is_granted = |reply: &MdtReply| {
        let grants = &entry_of(reply).grants;
        grants.iter().any(|grant| grant.policy == LockPolicy::Bits(bits::WRITE_BACK))
    };
    let open = |world: &mut World, client: usize, is_write: bool| {
        let (open, want) = (world.open_args(client, is_write), want(world, client));
        (
            open,
            MdtRequest::Open { fid: file, open, creds: ROOT, want, closes: Vec::new(), accesses: Vec::new() },
        )
    };
    let (reader, request) = open(&mut world, 0, false);
    assert!(!is_granted(&world.ask(0, 0, request).unwrap()), "who reads keeps nothing back");
    let (writer, request) = open(&mut world, 1, true);
    assert!(!is_granted(&world.ask(1, 0, request).unwrap()), "the other one has it open");
    world.close(0, file, reader);
    let getattr = MdtRequest::Getattr { fid: file, want: want(&mut world, 1) };
    assert!(is_granted(&world.ask(1, 0, getattr).unwrap()));
    // Each of these waits for the lock.
    world.clients[1].is_polite = false;
    let lookup = MdtRequest::Lookup { parent: Fid::ROOT, name: b"f".to_vec(), want: Default::default() };
    let getattr = MdtRequest::Getattr { fid: file, want: Default::default() };
    let (_, opening) = open(&mut world, 0, false);
    let waiting = [lookup, getattr, opening].map(|request| world.start(0, 0, request));
    world.pass_seconds(3);
    assert!(waiting.iter().all(|waiting| world.result(0, *waiting).is_none()));
    // Its own holder does not, and it is not in the way of removal.
    assert!(world.getattr(1, file).is_ok());
    let (target, lock, _) = world.clients[1].callbacks[0];
    let cancel = wire::Request::Lock(wire::LockRequest::Cancel { locks: vec![lock] });
    world.submit(1, target, cancel, rpc::Kind::Reserved);
    world.run();
    assert!(waiting.iter().all(|waiting| world.result(0, *waiting).is_some_and(|result| result.is_ok())));
    let getattr = MdtRequest::Getattr { fid: file, want: want(&mut world, 1) };
    assert!(!is_granted(&world.ask(1, 0, getattr).unwrap()));
    world.close(1, file, writer);
}

/// Rows are one log: when the next mount of a client has a session, what the former one has written to a file here is durable, and
/// its locks have ended.
#[test]
fn a_new_incarnation_of_a_client_meets_no_lock_on_data_of_the_former() {
    let mut world = World::new(1, 1);
    let mdt = TargetId::mdt(0);
    let resources = ["f", "g"].map(|name| {
        let fid = known_file(&mut world, Fid::ROOT, name);
        Resource::Object(ObjectId { fid, component: 1, stripe: 0 })
    });
    let enqueue = |resource| {
        let (mode, policy) = (LockMode::Pw, LockPolicy::Extent(Extent::at(0, 10)));
        let lock = LockId(500);
        Request::Lock(LockRequest::Enqueue { lock, resource, mode, policy, can_wait: true })
    };
    let write = |world: &mut World, resource| {
        let Resource::Object(object) = resource else { panic!("{resource:?}") };
        let (lock, stamp) = (LockId(500), world.now.wall);
        let write =
            OstRequest::Write { object, offset_bytes: 0, lock, stamp, is_answered: false, asked: None };
        let ticket =
            world.submit_data(0, mdt, Request::Ost(write), b"some".as_slice().into(), Kind::Modifying);
        world.run();
        world.clients[0].done.remove(&(mdt, ticket)).map(|result| result.map(drop))
    };
    world.submit(0, mdt, enqueue(resources[0]), Kind::Plain);
    world.run();
    world.servers[0].is_synced = false;
    assert_eq!(write(&mut world, resources[0]), Some(Ok(())));
    world.remount(0, 2);
    let locking = world.submit(0, mdt, enqueue(resources[1]), Kind::Plain);
    world.run();
    assert!(!world.clients[0].done.contains_key(&(mdt, locking)), "its session is not durable");
    world.servers[0].is_synced = true;
    world.run();
    assert!(world.clients[0].done[&(mdt, locking)].is_ok());
    assert_eq!(write(&mut world, resources[1]), Some(Ok(())));
    let locks = world.servers[0].mds.locks();
    assert_eq!(resources.map(|resource| locks.grants_on(resource).len()), [0, 1]);
}

/// Its open would wait for another one that waits for the lock.
#[test]
fn no_write_back_lock_is_given_to_who_has_yet_to_open_the_file_again() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let getattr = |world: &mut World| {
        let write_back = Some(base::LockId(world.new_id(1)));
        let want = wire::lock::LockWant { write_back, ..Default::default() };
        let reply = world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
        entry_of(&reply).grants.len()
    };
    let writer = world.open(1, file, true);
    world.evict(0, world.clients[1].id);
    world.pass_seconds(2);
    assert_eq!(getattr(&mut world), 0);
    world
        .ask(
            1,
            0,
            MdtRequest::Open {
                fid: file,
                open: writer,
                creds: ROOT,
                want: Default::default(),
                closes: Vec::new(),
                accesses: Vec::new(),
            },
        )
        .unwrap();
    assert_eq!(getattr(&mut world), 1);
}

#[test]
fn nobody_relies_on_a_size_that_is_not_known() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let want = world.want(1);
    let reply = world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
    assert_eq!(entry_of(&reply).grants[0].policy, LockPolicy::Bits(bits::SELF));
    world.open(0, file, true);
    assert_eq!(world.clients[1].callbacks.len(), 1);
    let want = world.want(1);
    let reply = world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
    assert_eq!(
        entry_of(&reply).grants[0].policy,
        LockPolicy::Bits(bits::SELF & !(bits::UPDATE | bits::OPEN))
    );
    assert!(entry_of(&reply).may_be_written);
    world.pass(Duration::from_millis(1));
}

/// Client 1 lists the root and gets a lock on its children.
fn list_with_children_lock(world: &mut World) -> base::LockId {
    let children_lock = world.want(1).inode;
    let request = MdtRequest::Readdir {
        fid: Fid::ROOT,
        after: 0,
        entry_count_max: 100,
        with_attrs: true,
        with_xattrs: true,
        children: children_lock,
        subdirectories: None,
        is_whole_wanted: false,
        accesses: Vec::new(),
    };
    let MdtReply::Entries { grants, .. } = world.ask(1, 0, request).unwrap() else { panic!("no entries") };
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].resource, Resource::Inode(Fid::ROOT));
    assert_eq!(grants[0].policy, LockPolicy::Bits(bits::CHILDREN));
    grants[0].lock
}

#[test]
fn a_childrens_lock_goes_when_somebody_else_changes_a_name_or_a_child() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    let directory = world.mkdir(Fid::ROOT, "d");
    world.link(file, directory, "other name").unwrap();
    let set = base::SetAttr { permissions: Some(0o600), ..base::SetAttr::default() };
    let chmod = |fid| MdtRequest::Setattr {
        fid,
        set: set.clone(),
        creds: ROOT,
        handle: None,
        want: Default::default(),
        stamp: None,
    };
    let unlink = |parent, name: &str| MdtRequest::Unlink { parent, name: name.into(), creds: ROOT };
    let changes = [
        (chmod(file), true),
        // A directory's own attributes are not covered, nor what happens in it.
        (chmod(directory), false),
        (MdtRequest::Create(new(directory, "g", NewNode::Regular)), false),
        (MdtRequest::Create(new(Fid::ROOT, "g", NewNode::Regular)), true),
        // The file has a name in the root as well.
        (unlink(directory, "other name"), true),
        (unlink(Fid::ROOT, "f"), true),
    ];
    for (change, is_called_back) in changes {
        let children_lock = list_with_children_lock(&mut world);
        world.clients[1].callbacks.clear();
        world.ask(0, 0, change.clone()).unwrap();
        let called: Vec<_> = world.clients[1].callbacks.iter().map(|(_, lock, _)| *lock).collect();
        assert_eq!(called.contains(&children_lock), is_called_back, "{change:?}");
    }
    // Its own changes leave its lock alone.
    list_with_children_lock(&mut world);
    world.clients[1].callbacks.clear();
    world.ask(1, 0, unlink(Fid::ROOT, "g")).unwrap();
    assert!(world.clients[1].callbacks.is_empty());
}

#[test]
fn who_holds_what_it_asks_for_of_an_inode_is_given_it_once() {
    let mut world = World::new(1, 2);
    let file = world.mkfile(Fid::ROOT, "f");
    world.open(1, file, true);
    for round in 0..10 {
        let want = world.want(1);
        let reply = world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
        // Alone with the file it gets all, though the size is not known.
        let policies: Vec<_> = entry_of(&reply).grants.iter().map(|grant| grant.policy).collect();
        let expected = if round == 0 { vec![LockPolicy::Bits(bits::SELF)] } else { Vec::new() };
        assert_eq!(policies, expected);
    }
    // Whoever opens it now for writing takes the size along, and again gets one lock however often it asks.
    world.open(0, file, true);
    assert_eq!(world.clients[1].callbacks.len(), 1);
    let given: usize = (0..10)
        .map(|_| {
            let want = world.want(1);
            let reply = world.ask(1, 0, MdtRequest::Getattr { fid: file, want }).unwrap();
            entry_of(&reply).grants.len()
        })
        .sum();
    assert_eq!(given, 1);
}

/// The bits of a directory's inode that a client is given a lock on when it asks for its attributes.
fn bits_given(world: &mut World, client: usize, directory: Fid) -> u32 {
    let want = world.want(client);
    let reply = world.ask(client, 0, MdtRequest::Getattr { fid: directory, want }).unwrap();
    let of_grant = |grant: &wire::LockGrant| match grant.policy {
        LockPolicy::Bits(mask) => mask,
        policy => panic!("{policy:?}"),
    };
    entry_of(&reply).grants.iter().map(of_grant).sum()
}

/// As jobs do whose processes make a file each: every one of them looks the directory up first.
#[test]
fn clients_that_make_files_in_one_directory_take_no_locks_from_each_other() {
    let mut world = World::new(1, 3);
    let dir = world.mkdir(Fid::ROOT, "d");
    for n in 0..20 {
        for client in 0..3 {
            bits_given(&mut world, client, dir);
            let request = new(dir, &format!("f{client}.{n}"), NewNode::Regular);
            world.ask(client, 0, MdtRequest::Create(request)).unwrap();
        }
    }
    let called: Vec<usize> = world.clients.iter().map(|client| client.callbacks.len()).collect();
    assert!(called.iter().sum::<usize>() <= 3, "{called:?}: only what they had when it began");
}

#[test]
fn who_asks_more_often_than_others_change_a_directory_may_rely_on_it() {
    let mut world = World::new(1, 3);
    let dir = world.mkdir(Fid::ROOT, "d");
    world.ask(1, 0, MdtRequest::Create(new(dir, "e", NewNode::Regular))).unwrap();
    world.mkfile(dir, "f");
    assert_eq!(bits_given(&mut world, 2, dir), bits::SELF, "it only looks");
    assert_eq!(bits_given(&mut world, 1, dir), bits::SELF & !bits::UPDATE);
    for _ in 0..6 {
        assert_eq!(bits_given(&mut world, 1, dir), 0, "it has that already");
    }
    assert_eq!(bits_given(&mut world, 1, dir), bits::SELF, "nothing was changed meanwhile");
    world.mkfile(dir, "g");
    assert_eq!(world.clients[1].callbacks.len(), 1);
    world.pass_seconds(2);
    assert_eq!(bits_given(&mut world, 1, dir), bits::SELF, "nobody has changed it for a while");
}
