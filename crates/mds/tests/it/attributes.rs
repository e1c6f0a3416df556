//! Attributes, xattrs, ACLs.

use crate::harness::{ROOT, World, attr_of, entry_of, fid_of, new, user};
use base::{Fid, SetAttr, SetTime, Status, WallTime};
use store::Reserve;
use wire::ComponentHint;
use wire::lock::LockWant;
use wire::mdt::{CreateRequest, Credentials, LayoutHint, NewNode, OpenArgs};
use wire::{MdtReply, MdtRequest};

fn setattr(fid: Fid, set: SetAttr, creds: Credentials) -> MdtRequest {
    MdtRequest::Setattr { fid, set, creds, handle: None, want: LockWant::default(), stamp: None }
}

fn owned_by(world: &mut World, name: &str, uid: u32, permissions: u32) -> Fid {
    let file = world.mkfile(Fid::ROOT, name);
    let set =
        SetAttr { uid: Some(uid), gid: Some(uid), permissions: Some(permissions), ..SetAttr::default() };
    world.ask(0, 0, setattr(file, set, ROOT)).unwrap();
    file
}

#[test]
fn owners_change_modes_and_others_do_not() {
    let mut world = World::new(1, 1);
    let file = owned_by(&mut world, "f", 5, 0o644);
    let chmod = |mode| SetAttr { permissions: Some(mode), ..SetAttr::default() };
    assert_eq!(world.ask(0, 0, setattr(file, chmod(0o600), user(6))), Err(Status::NotPermitted));
    let reply = world.ask(0, 0, setattr(file, chmod(0o6755), user(5))).unwrap();
    assert_eq!(attr_of(&reply).permissions, 0o6755);
    // Not in the file's group: no set-group-id.
    let set = SetAttr { gid: Some(9), permissions: Some(0o755), ..SetAttr::default() };
    world.ask(0, 0, setattr(file, set, ROOT)).unwrap();
    let reply = world.ask(0, 0, setattr(file, chmod(0o2755), user(5))).unwrap();
    assert_eq!(attr_of(&reply).permissions, 0o755);
    let unknown_groups = Credentials { uid: 5, gid: 5, groups: None };
    assert_eq!(world.ask(0, 0, setattr(file, chmod(0o2755), unknown_groups)), Err(Status::NotPermitted));
}

#[test]
fn who_may_execute_a_file_need_not_be_allowed_to_read_it() {
    let mut world = World::new(1, 1);
    let file = owned_by(&mut world, "f", 5, 0o711);
    let mut open = |permissions, execute, creds| {
        let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        world.ask(0, 0, setattr(file, set, ROOT)).unwrap();
        let open = OpenArgs { execute, ..world.open_args(0, false) };
        let want = LockWant::default();
        let request =
            MdtRequest::Open { fid: file, open, creds, want, closes: Vec::new(), accesses: Vec::new() };
        let result = world.ask(0, 0, request).map(drop);
        if result.is_ok() {
            world.close(0, file, open);
        }
        result
    };
    let refused = Err(Status::AccessDenied);
    assert_eq!((open(0o711, true, user(6)), open(0o711, false, user(6))), (Ok(()), refused));
    assert_eq!((open(0o744, true, user(6)), open(0o744, false, user(6))), (refused, Ok(())));
    assert_eq!((open(0o644, true, ROOT), open(0o644, false, ROOT)), (refused, Ok(())));
}

#[test]
fn a_new_owner_takes_set_id_bits_away() {
    let mut world = World::new(1, 1);
    let file = owned_by(&mut world, "f", 5, 0o6755);
    let chown = SetAttr { uid: Some(6), ..SetAttr::default() };
    assert_eq!(world.ask(0, 0, setattr(file, chown.clone(), user(5))), Err(Status::NotPermitted));
    let reply = world.ask(0, 0, setattr(file, chown, ROOT)).unwrap();
    assert_eq!((attr_of(&reply).uid, attr_of(&reply).permissions), (6, 0o755));
    let chgrp = SetAttr { gid: Some(40), ..SetAttr::default() };
    let member = Credentials { uid: 6, gid: 6, groups: Some(vec![40]) };
    assert_eq!(world.ask(0, 0, setattr(file, chgrp.clone(), user(6))), Err(Status::NotPermitted));
    assert_eq!(attr_of(&world.ask(0, 0, setattr(file, chgrp, member)).unwrap()).gid, 40);
}

/// Linux since 6.2: who is not in the group leaves no set-group-id, whether it makes a program of the file or not.
#[test]
fn set_group_id_without_execution_stays_with_members_of_the_group() {
    let mut world = World::new(1, 1);
    let file = owned_by(&mut world, "f", 5, 0o2644);
    let member = Credentials { uid: 5, gid: 9, groups: Some(vec![5]) };
    let unknown = Credentials { uid: 5, gid: 9, groups: None };
    let chown = SetAttr { uid: Some(5), ..SetAttr::default() };
    let kill = SetAttr { kill_privileges: true, ..SetAttr::default() };
    let cut = SetAttr { kill_privileges: true, size_bytes: Some(0), ..SetAttr::default() };
    for set in [chown, kill, cut] {
        let mut ask = |creds| world.ask(0, 0, setattr(file, set.clone(), creds));
        assert_eq!(ask(unknown.clone()), Err(Status::NotPermitted), "{set:?}");
        assert_eq!(attr_of(&ask(member.clone()).unwrap()).permissions, 0o2644, "{set:?}");
        assert_eq!(attr_of(&ask(ROOT).unwrap()).permissions, 0o2644, "{set:?}");
        let stranger = Credentials { groups: Some(vec![7]), ..unknown.clone() };
        assert_eq!(attr_of(&ask(stranger).unwrap()).permissions, 0o644, "{set:?}");
        let restored = SetAttr { permissions: Some(0o2644), ..SetAttr::default() };
        world.ask(0, 0, setattr(file, restored, ROOT)).unwrap();
    }
}

#[test]
fn times_are_set_by_owners_and_to_now_by_writers() {
    let mut world = World::new(1, 1);
    let file = owned_by(&mut world, "f", 5, 0o602);
    let to = SetAttr { mtime: Some(SetTime::To(WallTime(7))), ..SetAttr::default() };
    let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    assert_eq!(world.ask(0, 0, setattr(file, to.clone(), user(6))), Err(Status::NotPermitted));
    assert!(world.ask(0, 0, setattr(file, now, user(6))).is_ok());
    let attr = attr_of(&world.ask(0, 0, setattr(file, to, user(5))).unwrap()).clone();
    assert_eq!(attr.mtime, WallTime(7));
    assert!(attr.mtime_stamp > WallTime(7), "the stamp says when, not what");
    assert_eq!(attr.ctime, world.now.wall);
}

#[test]
fn directories_hand_down_their_group() {
    let mut world = World::new(1, 1);
    let mut request = new(Fid::ROOT, "d", NewNode::Directory);
    request.permissions = 0o2777;
    request.creds = Credentials { gid: 50, ..ROOT };
    let dir = fid_of(&world.create(request).unwrap());
    let mut request = new(dir, "sub", NewNode::Directory);
    request.creds = user(5);
    let attr = attr_of(&world.create(request).unwrap()).clone();
    assert_eq!((attr.uid, attr.gid, attr.permissions & 0o7000), (5, 50, 0o2000));
    let mut request = new(dir, "f", NewNode::Regular);
    (request.creds, request.permissions) = (user(5), 0o2775);
    let attr = attr_of(&world.create(request).unwrap()).clone();
    assert_eq!((attr.gid, attr.permissions), (50, 0o775));
}

fn setxattr(fid: Fid, name: &str, value: &[u8], flags: u32, creds: Credentials) -> MdtRequest {
    MdtRequest::Setxattr { fid, name: name.into(), value: value.into(), flags, creds }
}

fn getxattr(fid: Fid, name: &str) -> MdtRequest {
    MdtRequest::Getxattr { fid, name: name.into() }
}

/// Who lists the names reads all values.
#[test]
fn an_inode_with_many_xattrs_gets_no_long_ones() {
    let mut world = World::new(1, 1);
    let file = owned_by(&mut world, "many", 5, 0o600);
    let long = vec![1; 4097];
    for number in 0..400 {
        let name = format!("user.{number}");
        let refused = if number > 256 { Err(Status::NoSpace) } else { Ok(()) };
        assert_eq!(world.ask(0, 0, setxattr(file, &name, &long, 0, user(5))).map(drop), refused, "{number}");
        world.ask(0, 0, setxattr(file, &name, &[2; 4096], 0, user(5))).unwrap();
    }
    let list = world.ask(0, 0, MdtRequest::Listxattr { fid: file, want: LockWant::default() }).unwrap();
    let MdtReply::Xattrs { xattrs, .. } = list else { panic!("names") };
    assert_eq!(xattrs.len(), 400);
    let with_value = xattrs.iter().filter(|(_, value)| value.is_some()).count();
    assert!((1..400).contains(&with_value), "{with_value} values came along");
    assert!(xattrs.iter().all(|(_, value)| value.as_ref().is_none_or(|value| *value == [2; 4096])));
}

#[test]
fn xattrs_of_64_kib_are_kept_and_listed() {
    let mut world = World::new(1, 1);
    let file = owned_by(&mut world, "f", 5, 0o600);
    let big = vec![7; 64 << 10];
    let reply = world.ask(0, 0, setxattr(file, "user.big", &big, 0, user(5))).unwrap();
    assert!(attr_of(&reply).has_xattrs);
    assert_eq!(world.ask(0, 0, setxattr(file, "user.big", b"", 1, user(5))), Err(Status::Exists));
    assert_eq!(world.ask(0, 0, setxattr(file, "user.no", b"", 2, user(5))), Err(Status::NoData));
    assert_eq!(world.ask(0, 0, setxattr(file, "user.x", b"", 0, user(6))), Err(Status::AccessDenied));
    assert_eq!(world.ask(0, 0, setxattr(file, "trusted.x", b"", 0, user(5))), Err(Status::NotPermitted));
    for odd in ["odd.x", "odd", "system.", "system.x"] {
        assert_eq!(world.ask(0, 0, setxattr(file, odd, b"", 0, ROOT)), Err(Status::NotSupported), "{odd}");
    }
    for (bare, refused) in [
        ("user.", Status::AccessDenied),
        ("trusted.", Status::NotPermitted),
        ("security.", Status::NotPermitted),
    ] {
        assert_eq!(world.ask(0, 0, setxattr(file, bare, b"", 0, ROOT)), Err(Status::Invalid), "{bare}");
        assert_eq!(world.ask(0, 0, setxattr(file, bare, b"", 0, user(6))), Err(refused), "{bare}");
    }
    world.ask(0, 0, setxattr(file, "user.small", b"s", 0, user(5))).unwrap();
    assert_eq!(world.ask(0, 0, getxattr(file, "user.big")), Ok(MdtReply::Bytes(big)));
    let list = world.ask(0, 0, MdtRequest::Listxattr { fid: file, want: LockWant::default() }).unwrap();
    let expected = vec![(b"user.big".to_vec(), None), (b"user.small".to_vec(), Some(b"s".to_vec()))];
    assert_eq!(list, MdtReply::Xattrs { xattrs: expected, grants: vec![] });
    for name in ["user.big", "user.small"] {
        let request = MdtRequest::Removexattr { fid: file, name: name.into(), creds: user(5) };
        world.ask(0, 0, request.clone()).unwrap();
        assert_eq!(world.ask(0, 0, request), Err(Status::NoData));
    }
    assert!(!world.getattr(0, file).unwrap().has_xattrs);
}

/// owner, named user, group, mask, other
fn acl(owner: u8, user: (u32, u8), group: u8, mask: u8, other: u8) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, permissions, id) in
        [(1u16, owner, none), (2, user.1, user.0), (4, group, none), (16, mask, none), (32, other, none)]
    {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&u16::from(permissions).to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

#[test]
fn acls_grant_and_follow_the_mode() {
    let mut world = World::new(1, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    let access = acl(7, (9, 7), 5, 7, 5);
    let reply = world.ask(0, 0, setxattr(dir, "system.posix_acl_access", &access, 0, ROOT)).unwrap();
    assert_eq!(attr_of(&reply).permissions, 0o775, "the mask stands for the group");
    let mut request = new(dir, "f", NewNode::Regular);
    request.creds = user(8);
    assert_eq!(world.create(request.clone()), Err(Status::AccessDenied));
    request.creds = user(9);
    world.create(request.clone()).unwrap();
    let chmod = SetAttr { permissions: Some(0o755), ..SetAttr::default() };
    world.ask(0, 0, setattr(dir, chmod, ROOT)).unwrap();
    let expected = acl(7, (9, 7), 5, 5, 5);
    assert_eq!(world.ask(0, 0, getxattr(dir, "system.posix_acl_access")), Ok(MdtReply::Bytes(expected)));
    request.name = b"g".to_vec();
    assert_eq!(world.create(request), Err(Status::AccessDenied), "the mask limits the named user");
}

/// A group can take away what others may: who has not said its groups is to say them.
#[test]
fn an_acl_with_a_group_that_may_nothing_asks_for_groups() {
    let mut world = World::new(1, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    let list = acl(7, (9, 7), 0, 7, 7);
    world.ask(0, 0, setxattr(dir, "system.posix_acl_access", &list, 0, ROOT)).unwrap();
    let chgrp = SetAttr { gid: Some(50), ..SetAttr::default() };
    world.ask(0, 0, setattr(dir, chgrp, ROOT)).unwrap();
    let mut create = |name: &str, uid, groups| {
        let mut request = new(dir, name, NewNode::Regular);
        request.creds = Credentials { uid, gid: uid, groups };
        world.create(request).map(drop)
    };
    assert_eq!(create("unknown", 8, None), Err(Status::AccessDenied));
    assert_eq!(create("member", 8, Some(vec![50])), Err(Status::AccessDenied));
    assert_eq!(create("other", 8, Some(vec![51])), Ok(()));
    assert_eq!(create("named", 9, None), Ok(()), "whatever its groups");
}

#[test]
fn a_default_acl_is_inherited_in_place_of_the_umask() {
    let mut world = World::new(1, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    let default = acl(7, (9, 7), 5, 7, 0);
    world.ask(0, 0, setxattr(dir, "system.posix_acl_default", &default, 0, ROOT)).unwrap();
    let mut request = new(dir, "f", NewNode::Regular);
    (request.permissions, request.umask) = (0o666, 0o077);
    let reply = world.create(request).unwrap();
    assert_eq!(attr_of(&reply).permissions, 0o660);
    let access = world.ask(0, 0, getxattr(fid_of(&reply), "system.posix_acl_access"));
    assert_eq!(access, Ok(MdtReply::Bytes(acl(6, (9, 7), 5, 6, 0))));
    let sub = world.mkdir(dir, "sub");
    assert_eq!(world.ask(0, 0, getxattr(sub, "system.posix_acl_default")), Ok(MdtReply::Bytes(default)));
}

#[test]
fn layouts_are_inherited_and_fixed_by_data() {
    let mut world = World::new(1, 1);
    let dir = world.mkdir(Fid::ROOT, "d");
    let component =
        ComponentHint { stripe_size_bytes: Some(128 << 10), first_ost: Some(0), ..ComponentHint::default() };
    let hint = LayoutHint::plain(component);
    let set = |fid, layout: &LayoutHint| MdtRequest::SetLayout { fid, layout: layout.clone(), creds: ROOT };
    world.ask(0, 0, set(dir, &hint)).unwrap();
    let sub = world.mkdir(dir, "sub");
    let reply = world.create(new(sub, "f", NewNode::Regular)).unwrap();
    let layout = entry_of(&reply).layout.clone().unwrap();
    let component = &layout.components[0];
    assert_eq!((component.stripe_size_bytes, component.osts.as_slice()), (128 << 10, &[0][..]));
    let odd = LayoutHint::plain(ComponentHint { stripe_size_bytes: Some(1000), ..ComponentHint::default() });
    assert_eq!(world.ask(0, 0, set(dir, &odd)), Err(Status::Invalid));
    let file = fid_of(&reply);
    world.open(0, file, true);
    assert_eq!(world.ask(0, 0, set(file, &hint)), Err(Status::Exists));
}

/// Programs in such a directory name no OST.
#[test]
fn a_default_may_name_osts_that_are_drained_later() {
    let mut world = World::new(1, 1);
    world.name_osts(&[(0, true), (1, true)]);
    let set = |fid, hint: &ComponentHint| MdtRequest::SetLayout {
        fid,
        layout: LayoutHint::plain(hint.clone()),
        creds: ROOT,
    };
    let first = |ost| ComponentHint { first_ost: Some(ost), ..ComponentHint::default() };
    let list = |ost| ComponentHint { osts: vec![ost], ..ComponentHint::default() };
    let on_one: Vec<Fid> = [first(1), list(1)]
        .iter()
        .enumerate()
        .map(|(index, hint)| {
            let dir = world.mkdir(Fid::ROOT, &format!("d{index}"));
            world.ask(0, 0, set(dir, hint)).unwrap();
            assert_eq!(world.ask(0, 0, set(dir, &first(7))), Err(Status::Invalid), "there is no such OST");
            world.mkdir(dir, "inherits")
        })
        .collect();
    let osts = |world: &mut World, dir, name: &str, layout: Option<LayoutHint>| {
        let reply = world.create(CreateRequest { layout, ..new(dir, name, NewNode::Regular) })?;
        Ok(entry_of(&reply).layout.clone().unwrap().osts().collect::<Vec<u16>>())
    };
    for dir in &on_one {
        assert_eq!(osts(&mut world, *dir, "before", None), Ok(vec![1]));
    }
    world.drain(&[1]);
    for dir in &on_one {
        assert_eq!(osts(&mut world, *dir, "after", None), Ok(vec![0]));
        let named = Some(LayoutHint::plain(first(1)));
        assert_eq!(osts(&mut world, *dir, "named", named), Err(Status::Invalid), "who names it is told");
    }
    world.drain(&[]);
    for dir in &on_one {
        assert_eq!(osts(&mut world, *dir, "again", None), Ok(vec![1]));
    }
}

/// Hazard 5.4: objects are named by FID, component and stripe, and what was to be of an earlier layout is not to be of the next one.
#[test]
fn each_layout_of_a_file_has_components_of_its_own() {
    let mut world = World::new(1, 1);
    let reply = world.create(new(Fid::ROOT, "f", NewNode::Regular)).unwrap();
    let file = fid_of(&reply);
    let ids_of = |reply: &MdtReply| -> Vec<u32> {
        let layout = entry_of(reply).layout.clone().unwrap();
        layout.components.iter().map(|component| component.id).collect()
    };
    let one = ComponentHint::default();
    let first_mib = ComponentHint { end_bytes: Some(1 << 20), ..ComponentHint::default() };
    let composite = LayoutHint { components: vec![first_mib, one.clone()] };
    let mut given = ids_of(&reply);
    for layout in [composite, LayoutHint::plain(one), LayoutHint::default()] {
        let reply = world.ask(0, 0, MdtRequest::SetLayout { fid: file, layout, creds: ROOT }).unwrap();
        let ids = ids_of(&reply);
        assert!(ids.iter().all(|id| !given.contains(id)), "{ids:?} after {given:?}");
        given.extend(ids);
    }
}

#[test]
fn a_full_target_refuses_what_consumes_and_lets_go_what_frees() {
    let mut world = World::new(1, 1);
    world.mkfile(Fid::ROOT, "f");
    let dir = world.mkdir(Fid::ROOT, "d");
    let hint = ComponentHint { stripe_count: Some(1), ..ComponentHint::default() };
    let layout = LayoutHint::plain(hint);
    let set_layout = MdtRequest::SetLayout { fid: dir, layout, creds: ROOT };
    let chmod = |permissions| {
        let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        setattr(dir, set, ROOT)
    };
    let written = owned_by(&mut world, "written", 5, 0o4755);
    world.servers[0].store.set_reserve(Reserve::Low);
    assert_eq!(world.create(new(Fid::ROOT, "g", NewNode::Regular)), Err(Status::NoSpace));
    assert_eq!(world.ask(0, 0, set_layout.clone()), Err(Status::NoSpace));
    assert_eq!(world.rename((Fid::ROOT, "f"), (Fid::ROOT, "longer"), 0), Err(Status::NoSpace));
    world.rename((Fid::ROOT, "f"), (Fid::ROOT, "h"), 0).unwrap();
    world.ask(0, 0, chmod(0o700)).unwrap();
    let no_layout = MdtRequest::SetLayout { fid: dir, layout: LayoutHint::default(), creds: ROOT };
    world.ask(0, 0, no_layout).unwrap();
    // A log that finds no more room on the device goes round while the base has some.
    world.servers[0].store.set_log_short(true);
    world.servers[0].store.set_reserve(Reserve::Ample);
    world.ask(0, 0, set_layout).unwrap();
    // Nothing but what frees.
    for (reserve, is_log_short, is_log_ending) in
        [(Reserve::Low, true, false), (Reserve::Ample, true, true), (Reserve::Exhausted, false, false)]
    {
        world.servers[0].store.set_log_short(is_log_short);
        world.servers[0].store.set_log_ending(is_log_ending);
        world.servers[0].store.set_reserve(reserve);
        assert_eq!(world.rename((Fid::ROOT, "h"), (Fid::ROOT, "i"), 0), Err(Status::NoSpace));
        assert_eq!(world.ask(0, 0, chmod(0o755)), Err(Status::NoSpace));
    }
    // Who writes to an OST that has room is not to fail for a bit that goes.
    let kill = SetAttr { kill_privileges: true, ..SetAttr::default() };
    let and_more = SetAttr { mtime: Some(SetTime::Now), ..kill.clone() };
    assert_eq!(world.ask(0, 0, setattr(written, and_more, user(5))), Err(Status::NoSpace));
    let reply = world.ask(0, 0, setattr(written, kill, user(5))).unwrap();
    assert_eq!(attr_of(&reply).permissions, 0o755);
    world.unlink(Fid::ROOT, "written").unwrap();
    world.unlink(Fid::ROOT, "h").unwrap();
    world.rmdir(Fid::ROOT, "d").unwrap();
    world.check_consistent();
}
