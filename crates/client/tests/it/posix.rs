//! One mount: calls do what POSIX says.

use crate::world::{O_APPEND, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY, ROOT, TOP, USER, World, append_call};
use base::limits::FLOCK_WAITS_MAX;
use base::{Duration, FileType, SetTime, TargetId, TargetKind, WallTime};
use client::{Answer, Call, Event, Input, SetattrCall};
use wire::mdt::{FileLock, FlockKind};
use wire::{ComponentHint, LayoutHint};

const MDT: TargetId = TargetId::mdt(0);
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;
const ENOLCK: i32 = 37;
const ENOTEMPTY: i32 = 39;
const ENXIO: i32 = 6;

#[test]
fn a_file_is_made_written_read_and_removed() {
    let mut world = World::new(1, 2, 1);
    assert_eq!(world.lookup(0, TOP, "f"), Err(ENOENT));
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"hello world"), Ok(11));
    assert_eq!(world.read(0, file, 6, 100), b"world");
    assert_eq!(world.attr(0, file.0).size_bytes, 11);
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    let attr = world.attr(0, file.0);
    assert!(attr.is_size_known, "the last close reports the size");
    assert_eq!(attr.size_bytes, 11);
    assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
    assert_eq!(world.lookup(0, TOP, "f"), Err(ENOENT));
    assert_eq!(world.names(0, TOP), Vec::<String>::new());
}

/// Lustre asks for CAP_DAC_READ_SEARCH: the paths lead through directories that the caller may not look into.
#[test]
fn only_root_is_told_the_paths_of_an_inode() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let (node, _) = world.create(0, dir, "f");
    let Ok(Answer::Fid(fid)) = world.call_as(0, USER, Call::NodeFid { node }) else { panic!("a FID") };
    let ask = Call::FidToPath { fid };
    assert_eq!(world.call_as(0, USER, ask.clone()), Err(EPERM));
    assert_eq!(world.call_as(0, ROOT, ask), Ok(Answer::Paths(vec![b"d/f".to_vec()])));
}

/// An open is one that others notice: they lose the page cache for what they write then.
#[test]
fn who_asks_for_a_layout_opens_nothing() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    world.release(0, file);
    let link = Call::Symlink { parent: TOP, name: b"l".to_vec(), target: b"f".to_vec() };
    assert!(world.call(0, link).is_ok());
    let opens = |world: &World| -> u64 {
        let requests = world.requests(0, TargetKind::Mdt);
        requests.into_iter().filter(|(name, _)| name.contains("open")).map(|(_, count)| count).sum()
    };
    let before = opens(&world);
    let name = || b"f".to_vec();
    let of_name = world.call(0, Call::GetstripeOf { parent: TOP, name: name() });
    assert!(of_name.is_ok() && of_name == world.call(0, Call::Getstripe { node: file.0 }), "{of_name:?}");
    let of_name = world.call(0, Call::FidOf { parent: TOP, name: name() });
    assert!(of_name.is_ok() && of_name == world.call(0, Call::NodeFid { node: file.0 }), "{of_name:?}");
    let node = world.lookup(0, TOP, "l").expect("it was made").node;
    let of_link = world.call(0, Call::FidOf { parent: TOP, name: b"l".to_vec() });
    assert_eq!(of_link, world.call(0, Call::NodeFid { node }));
    assert_eq!(world.call(0, Call::FidOf { parent: TOP, name: b"none".to_vec() }), Err(ENOENT));
    assert!(world.call(0, Call::GetstripeOf { parent: TOP, name: b"..".to_vec() }).is_err());
    assert_eq!(opens(&world), before);
}

/// The kernel asks for no permission to search a directory when it passes an ioctl on.
#[test]
fn layouts_of_names_are_told_to_who_may_search_their_directory() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let file = world.create(0, dir, "f");
    world.release(0, file);
    let ask = Call::GetstripeOf { parent: dir, name: b"f".to_vec() };
    let change = |world: &mut World, mode: u32, uid: Option<u32>, gid: Option<u32>| {
        let set = SetattrCall { mode: Some(mode), uid, gid, ..Default::default() };
        world.call(0, Call::Setattr { node: dir, set }).expect("changed");
    };
    // Mode, owner, group, supplementary groups of the caller.
    let cases = [
        (0o755, 0, 0, Some(vec![]), true),
        (0o744, 0, 0, Some(vec![]), false),
        (0o754, 0, USER.gid, Some(vec![]), true),
        (0o745, 0, USER.gid, Some(vec![]), false),
        (0o754, 0, 7, Some(vec![7]), true),
        (0o754, 0, 7, Some(vec![8]), false),
        (0o745, 0, 7, Some(vec![7]), false),
        (0o745, 0, 7, Some(vec![8]), true),
        (0o745, 0, 7, None, false),
        (0o754, 0, 7, None, false),
        (0o755, 0, 7, None, true),
        (0o700, USER.uid, 0, Some(vec![]), true),
        (0o655, USER.uid, USER.gid, Some(vec![]), false),
    ];
    for (mode, uid, gid, groups, is_told) in cases {
        change(&mut world, mode, Some(uid), Some(gid));
        world.mounts[0].groups.clone_from(&groups);
        let told = world.call_as(0, USER, ask.clone());
        let case = format!("{mode:o} {uid}:{gid} {groups:?}: {told:?}");
        assert!(if is_told { told.is_ok() } else { told == Err(EACCES) }, "{case}");
        assert!(world.call_as(0, ROOT, ask.clone()).is_ok(), "{case}");
    }

    // user::rwx user:1000:r-- group::r-x mask::r-x other::r-x
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 4, USER.uid), (4, 5, u32::MAX), (0x10, 5, u32::MAX), (0x20, 5, u32::MAX)];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    world.mounts[0].groups = Some(vec![]);
    change(&mut world, 0o755, Some(0), Some(0));
    let name = b"system.posix_acl_access".to_vec();
    world.call(0, Call::Setxattr { node: dir, name, value, flags: 0 }).expect("set");
    assert_eq!(world.attr(0, dir).permissions, 0o755);
    assert_eq!(world.call_as(0, USER, ask.clone()), Err(EACCES));
    assert!(world.call_as(0, ROOT, ask).is_ok());
}

/// Who mounts a directory as the root hears of paths below it, and of no others.
#[test]
fn paths_of_an_inode_are_those_below_the_root_of_the_mount() {
    let mut world = World::new(1, 1, 2);
    let dir = world.mkdir(0, TOP, "d");
    let sub = world.mkdir(0, dir, "sub");
    let [(inside, _), (outside, _)] = [world.create(0, sub, "f"), world.create(0, TOP, "sub-f")];
    let link = Call::Link { node: inside, parent: TOP, name: b"d-other".to_vec() };
    assert!(world.call(0, link).is_ok());
    let fids = [inside, outside, sub].map(|node| match world.call_as(0, ROOT, Call::NodeFid { node }) {
        Ok(Answer::Fid(fid)) => fid,
        other => panic!("{other:?}"),
    });
    // The root is set before anything else is asked; numbers of nodes are the same everywhere.
    assert!(world.lookup(1, TOP, "d").is_ok());
    world.mounts[1].machine.set_root(dir);
    let [inside, outside, sub] = fids.map(|fid| world.call_as(1, ROOT, Call::FidToPath { fid }));
    assert_eq!(inside, Ok(Answer::Paths(vec![b"sub/f".to_vec()])));
    assert_eq!(sub, Ok(Answer::Paths(vec![b"sub".to_vec()])));
    assert_eq!(outside, Err(base::Status::CrossDevice.errno()));
    let Ok(Answer::Fid(fid)) = world.call_as(0, ROOT, Call::NodeFid { node: dir }) else { panic!("a FID") };
    assert_eq!(world.call_as(1, ROOT, Call::FidToPath { fid }), Ok(Answer::Paths(vec![Vec::new()])));
}

#[test]
fn directories_list_what_is_in_them() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let mut expected = vec![];
    for number in 0..300 {
        let name = format!("file-{number:04}");
        let file = world.create(0, dir, &name);
        world.release(0, file);
        expected.push(name);
    }
    assert_eq!(world.names(0, dir), expected);
    assert_eq!(world.attr(0, TOP).link_count, 3);
    assert_eq!(world.call(0, Call::Rmdir { parent: TOP, name: b"d".into() }), Err(ENOTEMPTY));
    for name in expected {
        let call = Call::Unlink { parent: dir, name: name.into_bytes() };
        assert_eq!(world.call(0, call), Ok(Answer::Done));
    }
    assert_eq!(world.call(0, Call::Rmdir { parent: TOP, name: b"d".into() }), Ok(Answer::Done));
    assert_eq!(world.attr(0, TOP).link_count, 2);
}

#[test]
fn rename_moves_and_replaces() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let file = world.create(0, TOP, "a");
    let victim = world.create(0, dir, "b");
    world.release(0, victim);
    let call =
        Call::Rename { parent: TOP, name: b"a".into(), new_parent: dir, new_name: b"b".into(), flags: 0 };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    assert_eq!(world.lookup(0, TOP, "a"), Err(ENOENT));
    assert_eq!(world.lookup(0, dir, "b").map(|entry| entry.node), Ok(file.0));
    let call =
        Call::Rename { parent: dir, name: b"b".into(), new_parent: TOP, new_name: b"d".into(), flags: 1 };
    assert_eq!(world.call(0, call), Err(EEXIST));
}

#[test]
fn links_and_symlinks() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "a");
    let call = Call::Link { node: file.0, parent: TOP, name: b"b".into() };
    let Ok(Answer::Entry(entry)) = world.call(0, call) else { panic!("a link is made") };
    assert_eq!(entry.node, file.0);
    assert_eq!(entry.attr_valid, Duration::ZERO, "link replies have no version test in the kernel");
    assert_eq!(world.attr(0, file.0).link_count, 2);
    assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"a".into() }), Ok(Answer::Done));
    assert_eq!(world.attr(0, file.0).link_count, 1);
    let call = Call::Symlink { parent: TOP, name: b"s".into(), target: b"../x".into() };
    let Ok(Answer::Entry(entry)) = world.call(0, call) else { panic!("a symlink is made") };
    assert_eq!(entry.attr.map(|attr| attr.file_type), Some(FileType::Symlink));
    assert_eq!(world.call(0, Call::Readlink { node: entry.node }), Ok(Answer::Bytes("../x".into())));
}

#[test]
fn stripes_hold_what_was_written_with_holes_between() {
    let mut world = World::new(1, 3, 1);
    let component = ComponentHint {
        stripe_size_bytes: Some(64 << 10),
        stripe_count: Some(3),
        ..ComponentHint::default()
    };
    let layout = LayoutHint::plain(component);
    let call = Call::CreateStriped { parent: TOP, name: b"s".into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, "s").expect("it was made").node;
    let Ok(Answer::Stripe { layout: Some(layout), .. }) = world.call(0, Call::Getstripe { node }) else {
        panic!("a file has a layout")
    };
    assert_eq!(layout.stripe_count(), 3);
    let (fh, _) = world.open(0, node, O_RDWR);
    let data: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(world.write(0, (node, fh), 100_000, &data), Ok(300_000));
    let mut expected = vec![0; 100_000];
    expected.extend_from_slice(&data);
    assert_eq!(world.attr(0, node).size_bytes, 400_000);
    assert_eq!(world.read(0, (node, fh), 0, 1 << 20), expected);
    assert_eq!(world.read(0, (node, fh), 399_990, 100), expected[399_990..]);
    // The hole at the start.
    let seek = |offset_bytes, whence| Call::Lseek { node, fh, offset_bytes, whence };
    let Ok(Answer::Offset(found)) = world.call(0, seek(0, 3)) else { panic!("there is data") };
    assert!(found <= 100_000);
    assert_eq!(world.call(0, seek(0, 4)), Ok(Answer::Offset(0)));
    assert_eq!(world.call(0, seek(150_000, 4)), Ok(Answer::Offset(400_000)));
    assert_eq!(world.call(0, seek(400_000, 3)), Err(ENXIO));
    // Cut and extend.
    let set = |size_bytes| Call::Setattr {
        node,
        set: SetattrCall { size_bytes: Some(size_bytes), ..Default::default() },
    };
    assert!(world.call(0, set(200_000)).is_ok());
    assert_eq!(world.attr(0, node).size_bytes, 200_000);
    assert!(world.call(0, set(250_000)).is_ok());
    expected.truncate(200_000);
    expected.resize(250_000, 0);
    assert_eq!(world.read(0, (node, fh), 0, 1 << 20), expected);
    world.release(0, (node, fh));
    world.pass(Duration::from_secs(3));
    assert_eq!(world.attr(0, node).size_bytes, 250_000);
}

const UNIT: u64 = 64 << 10;

/// However long it is, and however small their units are.
#[test]
fn a_range_costs_one_request_for_each_object() {
    let mut world = World::new(1, 3, 1);
    let (node, fh) = create_striped(&mut world, "f", vec![until(Some(4), 1), until(None, 3)]);
    let data: Vec<u8> = (0..(10 * UNIT + 5) as u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(world.write(0, (node, fh), 0, &data), Ok(data.len() as u64));
    let changes = |world: &World| {
        let kinds = world.requests(0, TargetKind::Ost);
        kinds.into_iter().filter(|(kind, _)| *kind == "ost_punch").map(|(_, count)| count).sum::<u64>()
    };
    let change =
        |offset_bytes, byte_count, mode| Call::Fallocate { node, fh, offset_bytes, byte_count, mode };
    let before = changes(&world);
    assert_eq!(world.call(0, change(UNIT + 100, 7 * UNIT, 3)), Ok(Answer::Done));
    assert_eq!(changes(&world) - before, 4, "{:?}", world.requests(0, TargetKind::Ost));
    let mut expected = data.clone();
    expected[(UNIT + 100) as usize..(8 * UNIT + 100) as usize].fill(0);
    assert_eq!(world.read(0, (node, fh), 0, 1 << 20), expected);
    // Punched far beyond the end, with its size kept.
    assert_eq!(world.call(0, change(9 * UNIT, 1 << 40, 3)), Ok(Answer::Done));
    assert_eq!(changes(&world) - before, 7);
    expected[(9 * UNIT) as usize..].fill(0);
    assert_eq!(world.read(0, (node, fh), 0, 1 << 20), expected);
}

/// A component of units of 64 KiB, until that many of them.
fn until(end_units: Option<u64>, stripe_count: u16) -> ComponentHint {
    ComponentHint {
        end_bytes: end_units.map(|units| units * UNIT),
        stripe_size_bytes: Some(UNIT as u32),
        stripe_count: Some(stripe_count),
        first_ost: Some(0),
        ..ComponentHint::default()
    }
}

fn create_striped(world: &mut World, name: &str, components: Vec<ComponentHint>) -> (u64, u64) {
    let layout = LayoutHint { components };
    let call = Call::CreateStriped { parent: TOP, name: name.into(), mode: 0o644, umask: 0, layout };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let node = world.lookup(0, TOP, name).expect("it was made").node;
    (node, world.open(0, node, O_RDWR).0)
}

fn set_size(world: &mut World, node: u64, size_bytes: u64) -> Result<Answer, i32> {
    let set = SetattrCall { size_bytes: Some(size_bytes), ..Default::default() };
    world.call(0, Call::Setattr { node, set })
}

#[test]
fn a_composite_file_holds_what_was_written_over_its_borders() {
    let mut world = World::new(1, 3, 2);
    let file = create_striped(&mut world, "c", vec![until(Some(1), 1), until(Some(3), 2), until(None, 3)]);
    let other = world.lookup(1, TOP, "c").expect("it was made").node;
    let data: Vec<u8> = (0..400_000u32).map(|n| (n % 251) as u8).collect();
    let mut expected = vec![0; 30_000];
    expected.extend_from_slice(&data);
    assert_eq!(world.write(0, file, 30_000, &data), Ok(400_000));
    assert_eq!(world.attr(1, other).size_bytes, 430_000);
    assert_eq!(world.read(0, file, 0, 1 << 20), expected);
    assert_eq!(world.read(0, file, UNIT - 5, 10), expected[65_531..65_541]);
    // No hole where one component ends and the next begins; and one behind all data.
    let seek = |offset_bytes, whence| Call::Lseek { node: file.0, fh: file.1, offset_bytes, whence };
    assert_eq!(world.call(0, seek(40_000, 4)), Ok(Answer::Offset(430_000)));
    assert_eq!(world.call(0, seek(3 * UNIT, 3)), Ok(Answer::Offset(3 * UNIT)));
    // An append crosses into the next component.
    assert!(set_size(&mut world, file.0, 3 * UNIT - 2).is_ok());
    assert_eq!(world.call(0, append_call(file, b"abcd")), Ok(Answer::Written(4)));
    assert_eq!(world.attr(0, file.0).size_bytes, 3 * UNIT + 2);
    let (reader, _) = world.open(1, other, O_RDWR);
    assert_eq!(world.read(1, (other, reader), 3 * UNIT - 2, 100), b"abcd");
}

#[test]
fn what_a_truncate_cut_off_does_not_come_back() {
    let mut world = World::new(1, 3, 1);
    let file = create_striped(&mut world, "c", vec![until(Some(1), 1), until(Some(3), 2), until(None, 3)]);
    assert_eq!(world.write(0, file, 0, &[7; 500_000]), Ok(500_000));
    assert!(set_size(&mut world, file.0, UNIT + 10).is_ok());
    assert!(set_size(&mut world, file.0, 500_000).is_ok());
    let mut expected = vec![7; UNIT as usize + 10];
    expected.resize(500_000, 0);
    assert_eq!(world.read(0, file, 0, 1 << 20), expected);
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.attr(0, file.0).size_bytes, 500_000);
}

#[test]
fn nothing_is_written_behind_the_last_component() {
    let mut world = World::new(1, 2, 1);
    let file = create_striped(&mut world, "c", vec![until(Some(1), 1), until(Some(2), 2)]);
    assert_eq!(world.write(0, file, 2 * UNIT - 4, b"1234"), Ok(4));
    assert_eq!(world.write(0, file, 2 * UNIT - 4, b"12345"), Err(ENODATA));
    assert_eq!(world.call(0, append_call(file, b"5")), Err(ENODATA));
    assert_eq!(set_size(&mut world, file.0, 2 * UNIT + 1), Err(ENODATA));
    let allocate =
        Call::Fallocate { node: file.0, fh: file.1, offset_bytes: 2 * UNIT, byte_count: 1, mode: 0 };
    assert_eq!(world.call(0, allocate), Err(ENODATA));
    assert_eq!(world.read(0, file, 2 * UNIT - 2, 100), b"34");
    assert_eq!(world.read(0, file, 2 * UNIT, 100), b"");
    assert_eq!(world.attr(0, file.0).size_bytes, 2 * UNIT);
}

/// An unlinked file leaves no object of any component.
#[test]
fn the_objects_of_all_components_go_with_their_file() {
    let mut world = World::new(1, 3, 1);
    let file = create_striped(&mut world, "c", vec![until(Some(1), 1), until(None, 3)]);
    assert_eq!(world.write(0, file, 0, &[1; 5 * UNIT as usize]), Ok(5 * UNIT));
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    let counts: Vec<usize> = (0..3).map(|ost| world.object_count(ost)).collect();
    assert_eq!(counts, [2, 1, 1]);
    assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"c".into() }), Ok(Answer::Done));
    world.pass(Duration::from_secs(10));
    assert_eq!((0..3).map(|ost| world.object_count(ost)).sum::<usize>(), 0);
}

/// What it asks is what it asks of a file with a plain layout.
#[test]
fn new_files_in_a_directory_get_its_components() {
    let mut world = World::new(1, 3, 1);
    let dir = world.mkdir(0, TOP, "d");
    let layout = LayoutHint { components: vec![until(Some(1), 1), until(None, 2)] };
    let call = Call::Setstripe { node: dir, layout: layout.clone() };
    assert_eq!(world.call(0, call), Ok(Answer::Done));
    let below = world.mkdir(0, dir, "e");
    let Ok(Answer::DefaultStripe { layout: told, .. }) = world.call(0, Call::Getstripe { node: below })
    else {
        panic!("a directory has a default")
    };
    assert_eq!(told, layout);
    let (node, _) = world.create(0, below, "f");
    let Ok(Answer::Stripe { layout: Some(layout), .. }) = world.call(0, Call::Getstripe { node }) else {
        panic!("a file has a layout")
    };
    let ends: Vec<u64> = layout.components.iter().map(|component| component.end_bytes).collect();
    assert_eq!((ends, layout.stripe_count()), (vec![UNIT, u64::MAX], 3));
}

#[test]
fn appends_go_to_the_end_wherever_the_kernel_thinks_it_is() {
    let mut world = World::new(1, 2, 2);
    let file = world.create(0, TOP, "log");
    let node = world.lookup(1, TOP, "log").expect("it was made").node;
    let (fh, mode) = world.open(1, node, O_WRONLY | O_APPEND);
    assert!(mode.is_direct);
    assert_eq!(world.write(0, file, 0, b"12345"), Ok(5));
    assert_eq!(world.call(1, append_call((node, fh), b"678")), Ok(Answer::Written(3)));
    assert_eq!(world.read(0, file, 0, 100), b"12345678");
}

#[test]
fn attributes_are_set() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    let time = WallTime(1_000_000_000_123_456_789);
    let set = SetattrCall { mode: Some(0o100_600), mtime: Some(SetTime::To(time)), ..Default::default() };
    let Ok(Answer::Attr(answer)) = world.call(0, Call::Setattr { node: file.0, set }) else {
        panic!("it is set")
    };
    assert_eq!(answer.attr.permissions, 0o600);
    assert_eq!(answer.attr.mtime, time);
    // A write after it makes the time newer; a time set after a write stays.
    world.pass(Duration::from_millis(100));
    assert_eq!(world.write(0, file, 0, b"x"), Ok(1));
    assert!(world.attr(0, file.0).mtime > time);
    world.pass(Duration::from_millis(100));
    let set = SetattrCall { mtime: Some(SetTime::To(time)), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: file.0, set }).is_ok());
    assert_eq!(world.attr(0, file.0).mtime, time);
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.attr(0, file.0).mtime, time);
}

#[test]
fn groups_are_fetched_only_when_they_matter() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let set = SetattrCall { mode: Some(0o770), gid: Some(50), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: dir, set }).is_ok());
    let create =
        || Call::Create { parent: dir, name: b"f".into(), mode: 0o644, umask: 0, flags: O_RDWR | O_EXCL };
    assert_eq!(world.call_as(0, USER, create()), Err(EACCES));
    world.mounts[0].groups = Some(vec![50]);
    assert!(matches!(world.call_as(0, USER, create()), Ok(Answer::Created { .. })));
}

/// Of a caller in another pid namespace, or in whose name a server of this machine calls, the kernel has seen the groups.
#[test]
fn where_groups_cannot_be_seen_the_kernel_has_judged() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    let set = SetattrCall { mode: Some(0o2770), gid: Some(50), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: dir, set }).is_ok());
    world.mounts[0].groups = None;
    let (mode, umask) = (0o755, 0);
    let create = Call::Create { parent: dir, name: b"f".into(), mode, umask, flags: O_RDWR | O_EXCL };
    let Ok(Answer::Created { entry, .. }) = world.call_as(0, USER, create) else { panic!("it is made") };
    // It would have taken the bit from who is not in the group, and have refused one of another group.
    let set = SetattrCall { mode: Some(0o2755), ..Default::default() };
    let Ok(Answer::Attr(answer)) = world.call_as(0, USER, Call::Setattr { node: entry.node, set }) else {
        panic!("it is set")
    };
    assert_eq!((answer.attr.permissions, answer.attr.gid), (0o2755, 50));
    let set = SetattrCall { gid: Some(60), ..Default::default() };
    assert!(world.call_as(0, USER, Call::Setattr { node: entry.node, set }).is_ok());
    // One of all others, where the group may do less.
    let set = SetattrCall { mode: Some(0o707), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: dir, set }).is_ok());
    let rename =
        Call::Rename { parent: dir, name: b"f".into(), new_parent: dir, new_name: b"g".into(), flags: 0 };
    assert_eq!(world.call_as(0, USER, rename), Ok(Answer::Done));
    // The kernel does not know what `lfs` asks for.
    let set = SetattrCall { mode: Some(0o770), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: dir, set }).is_ok());
    let make = Call::MkdirOn { parent: dir, name: b"sub".into(), mode, umask, mdt_index: 0 };
    assert_eq!(world.call_as(0, USER, make), Err(EACCES));
}

/// With all else that was known of an MDT the client forgets the groups of its inodes, by which the kernel has judged.
#[test]
fn where_groups_cannot_be_seen_the_kernel_has_judged_also_over_a_restart() {
    for away in [Duration::ZERO, Duration::from_secs(60)] {
        let mut world = World::new(1, 1, 1);
        let dir = world.mkdir(0, TOP, "d");
        let set = SetattrCall { mode: Some(0o2770), gid: Some(50), ..Default::default() };
        assert!(world.call(0, Call::Setattr { node: dir, set }).is_ok());
        world.mounts[0].groups = None;
        let over_restart = |world: &mut World, call: Call| {
            world.sync();
            world.crash(MDT);
            world.input(0, Input::ConnectionLost(MDT));
            world.pass(away);
            let id = world.begin_as(0, USER, call);
            assert!(!world.is_answered(0, id));
            world.start(MDT);
            world.pass(Duration::from_secs(5));
            world.finish(0, id)
        };
        let (mode, umask) = (0o755, 0);
        let create = Call::Create { parent: dir, name: b"f".into(), mode, umask, flags: O_RDWR | O_EXCL };
        let made = over_restart(&mut world, create);
        let Ok(Answer::Created { entry, .. }) = made else { panic!("{away:?}: {made:?}") };
        let set = SetattrCall { mode: Some(0o2755), ..Default::default() };
        let set = over_restart(&mut world, Call::Setattr { node: entry.node, set });
        let Ok(Answer::Attr(answer)) = set else { panic!("{away:?}: {set:?}") };
        assert_eq!((answer.attr.permissions, answer.attr.gid), (0o2755, 50), "{away:?}");
    }
}

#[test]
fn xattrs_are_kept_and_a_file_without_any_is_not_asked_about() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    let get = |name: &str| Call::Getxattr { node: file.0, name: name.into() };
    world.attr(0, file.0);
    let before = world.mounts[0].sent_count;
    assert_eq!(world.call(0, get("security.capability")), Err(ENODATA));
    // As if nothing were known of it.
    assert_eq!(world.call(0, get("user.")), Err(EINVAL));
    assert_eq!(world.call(0, get("foo.bar")), Err(EOPNOTSUPP));
    assert_eq!(world.mounts[0].sent_count, before, "no request for a file without xattrs");
    let set = Call::Setxattr { node: file.0, name: b"user.a".into(), value: b"v".into(), flags: 0 };
    assert_eq!(world.call(0, set), Ok(Answer::Done));
    assert_eq!(world.call(0, get("user.a")), Ok(Answer::Bytes("v".into())));
    assert_eq!(world.call(0, Call::Listxattr { node: file.0 }), Ok(Answer::Bytes("user.a\0".into())));
    assert_eq!(world.call(0, Call::Removexattr { node: file.0, name: b"user.a".into() }), Ok(Answer::Done));
    assert_eq!(world.call(0, get("user.a")), Err(ENODATA));
}

/// The kernel says with each WRITE of somebody unprivileged that privileges end with it, of a file with any xattr.
#[test]
fn privileges_are_ended_once_as_long_as_nobody_gives_new_ones() {
    let mut world = World::new(1, 1, 2);
    let (node, fh) = world.create(0, TOP, "f");
    world.lookup(1, TOP, "f").expect("it was made");
    let set = Call::Setxattr { node, name: b"user.a".into(), value: b"v".into(), flags: 0 };
    assert_eq!(world.call(0, set), Ok(Answer::Done));
    let chmod = |world: &mut World, mount: usize| {
        let set = SetattrCall { mode: Some(0o4666), ..Default::default() };
        assert!(world.call(mount, Call::Setattr { node, set }).is_ok());
    };
    let write = |world: &mut World, at: u64| {
        let mut call = crate::world::write_call((node, fh), at, b"x");
        if let Call::Write { kill_privileges, .. } = &mut call {
            *kill_privileges = true;
        }
        assert_eq!(world.call_as(0, USER, call), Ok(Answer::Written(1)));
    };
    let asked = |world: &World| {
        let requests = world.requests(0, base::TargetKind::Mdt);
        requests.iter().filter(|(kind, _)| *kind == "mds_setattr").map(|(_, count)| *count).sum::<u64>()
    };
    chmod(&mut world, 0);
    let before = asked(&world);
    (0..20).for_each(|at| write(&mut world, at));
    assert_eq!(asked(&world) - before, 1);
    assert_eq!(world.attr(1, node).permissions, 0o666);
    for mount in [0, 1] {
        chmod(&mut world, mount);
        (0..3).for_each(|at| write(&mut world, at));
        assert_eq!(world.attr(1, node).permissions, 0o666, "by {mount}");
    }
}

/// The kernel asks for nothing at all before it writes through the page cache, as for a chown(2) that names nobody. Only the owner may that.
#[test]
fn what_a_kernel_asks_before_a_write_of_somebody_is_no_change_of_the_owner() {
    let mut world = World::new(1, 1, 1);
    let (node, fh) = world.create(0, TOP, "f");
    let set = SetattrCall { mode: Some(0o6777), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node, set }).is_ok());
    let ask = |world: &mut World| {
        world.call_as(0, USER, Call::Setattr { node, set: SetattrCall::default() }).map(drop)
    };
    assert_eq!(ask(&mut world), Ok(()));
    let mut call = crate::world::write_call((node, fh), 0, b"x");
    if let Call::Write { kill_privileges, .. } = &mut call {
        *kill_privileges = true;
    }
    assert_eq!(world.call_as(0, USER, call), Ok(Answer::Written(1)));
    assert_eq!(world.attr(0, node).permissions, 0o777);
    let set = SetattrCall { mode: Some(0o6777), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node, set }).is_ok());
    world.release(0, (node, fh));
    assert_eq!(ask(&mut world), Err(EPERM), "nobody writes it");
}

/// What goes through the page cache ends a capability by the kernel's own removal, in the name of who writes; others are refused.
#[test]
fn a_kernel_removes_a_capability_in_the_name_of_anybody() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    for name in ["security.capability", "security.other"] {
        let set = Call::Setxattr { node: file.0, name: name.into(), value: b"v".into(), flags: 0 };
        assert_eq!(world.call_as(0, ROOT, set), Ok(Answer::Done));
    }
    let remove = |name: &str| Call::Removexattr { node: file.0, name: name.into() };
    assert_eq!(world.call_as(0, USER, remove("security.capability")), Ok(Answer::Done));
    assert_eq!(world.call_as(0, USER, remove("security.other")), Err(EPERM));
}

/// Past its pages the kernel leaves a capability to who executes the write, and says only whether set-id bits end.
#[test]
fn a_write_past_the_pages_ends_a_capability_the_superusers_too() {
    let mut world = World::new(1, 1, 1);
    let (node, fh) = world.create(0, TOP, "f");
    world.release(0, (node, fh));
    let name = || b"security.capability".to_vec();
    let get = || Call::Getxattr { node, name: name() };
    let (fh, mode) = world.open(0, node, O_WRONLY | O_APPEND);
    assert!(mode.is_direct);
    for end in [0, 10] {
        let set = Call::Setxattr { node, name: name(), value: b"v".into(), flags: 0 };
        assert_eq!(world.call(0, set), Ok(Answer::Done));
        assert_eq!(world.call(0, get()), Ok(Answer::Bytes("v".into())));
        assert_eq!(world.call(0, append_call((node, fh), &[1; 10])), Ok(Answer::Written(10)), "{end}");
        assert_eq!(world.call(0, get()), Err(ENODATA));
    }
    let other = Call::Setxattr { node, name: b"user.other".into(), value: b"v".into(), flags: 0 };
    assert_eq!(world.call(0, other), Ok(Answer::Done));
    assert_eq!(world.call(0, append_call((node, fh), &[1; 10])), Ok(Answer::Written(10)));
    let asked = world.requests(0, TargetKind::Mdt);
    assert_eq!(world.call(0, append_call((node, fh), &[1; 10])), Ok(Answer::Written(10)));
    assert_eq!(world.requests(0, TargetKind::Mdt), asked, "what the file has is known");
}

#[test]
fn space_is_counted_once_per_device() {
    let mut world = World::new(1, 3, 1);
    let Ok(Answer::Statfs(all)) = world.call(0, Call::Statfs { node: TOP }) else { panic!("there is space") };
    let Ok(Answer::Targets(targets)) = world.call(0, Call::DfTargets) else { panic!("there are targets") };
    assert_eq!(targets.len(), 4);
    let one = targets.last().and_then(|target| target.space).expect("it answers");
    assert_eq!(all.bytes_total, one.bytes_total);
}

#[test]
fn ranges_are_allocated_punched_and_copied() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    let (node, fh) = file;
    let change =
        |offset_bytes, byte_count, mode| Call::Fallocate { node, fh, offset_bytes, byte_count, mode };
    assert_eq!(world.call(0, change(0, 10_000, 0)), Ok(Answer::Done));
    assert_eq!(world.attr(0, node).size_bytes, 10_000);
    assert_eq!(world.write(0, file, 0, &[7; 10_000]), Ok(10_000));
    assert_eq!(world.call(0, change(4096, 4096, 3)), Ok(Answer::Done));
    let bytes = world.read(0, file, 0, 20_000);
    assert_eq!(bytes.len(), 10_000);
    assert!(bytes[..4096].iter().all(|byte| *byte == 7));
    assert!(bytes[4096..8192].iter().all(|byte| *byte == 0));
    let to = world.create(0, TOP, "g");
    let call = Call::CopyFileRange {
        node,
        fh,
        offset_bytes: 0,
        to_node: to.0,
        to_fh: to.1,
        to_offset_bytes: 5,
        byte_count: 1 << 20,
    };
    assert_eq!(world.call(0, call), Ok(Answer::Written(10_000)));
    assert_eq!(world.read(0, to, 5, 20_000), bytes);
}

#[test]
fn ranges_that_somebody_unprivileged_changes_end_privileges() {
    let mut world = World::new(1, 1, 2);
    let from = world.create(0, TOP, "from");
    assert_eq!(world.write(0, from, 0, &[7; 10_000]), Ok(10_000));
    let file = world.create(0, TOP, "f");
    let (node, fh) = file;
    assert_eq!(world.write(0, file, 0, &[7; 10_000]), Ok(10_000));
    let change = |mode| Call::Fallocate { node, fh, offset_bytes: 4096, byte_count: 4096, mode };
    let copy = Call::CopyFileRange {
        node: from.0,
        fh: from.1,
        offset_bytes: 0,
        to_node: node,
        to_fh: fh,
        to_offset_bytes: 0,
        byte_count: 5000,
    };
    let name = || b"security.capability".to_vec();
    let there = world.lookup(1, TOP, "f").expect("it was made").node;
    assert_eq!(there, node);
    let calls =
        [(change(0), false), (change(1), false), (change(3), false), (change(17), false), (copy, true)];
    for (call, is_copy) in calls {
        let done = if is_copy { Answer::Written(5000) } else { Answer::Done };
        // By another mount too: what this one knew of the file is of no use then.
        for mount in [0, 1] {
            world.attr(0, node);
            let mode = SetattrCall { mode: Some(0o6777), ..Default::default() };
            assert!(world.call(mount, Call::Setattr { node, set: mode }).is_ok());
            let set = Call::Setxattr { node, name: name(), value: b"v".into(), flags: 0 };
            assert_eq!(world.call(mount, set), Ok(Answer::Done));
            if mount == 0 {
                let get = Call::Getxattr { node, name: name() };
                assert_eq!(world.call(0, get), Ok(Answer::Bytes("v".into())));
            }
            assert_eq!(world.call_as(0, ROOT, call.clone()), Ok(done.clone()));
            assert_eq!(world.attr(1 - mount, node).permissions, 0o6777, "the superuser ends nothing");
            assert_eq!(world.call_as(0, USER, call.clone()), Ok(done.clone()));
            for mount in [0, 1] {
                assert_eq!(world.attr(mount, node).permissions, 0o777, "{call:?}");
                let get = Call::Getxattr { node, name: name() };
                assert_eq!(world.call(mount, get), Err(ENODATA), "{call:?}");
            }
        }
    }
}

fn lock(owner: u64, kind: FlockKind, extent: base::Extent) -> FileLock {
    FileLock { owner, pid: 1, is_flock: false, kind, extent }
}

#[test]
fn advisory_locks_wait_are_interrupted_and_end_with_the_file() {
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    let whole = base::Extent::WHOLE;
    let set = |(node, fh): (u64, u64), lock, can_wait| Call::Setlk { node, fh, lock, can_wait };
    assert_eq!(world.call(0, set(file, lock(1, FlockKind::Write, whole), false)), Ok(Answer::Done));
    assert_eq!(world.call(1, set((node, fh), lock(2, FlockKind::Read, whole), false)), Err(EAGAIN));
    let waiting = world.begin(1, set((node, fh), lock(2, FlockKind::Read, whole), true));
    assert!(!world.is_answered(1, waiting));
    world.input(1, client::Input::Interrupt(waiting));
    assert_eq!(world.finish(1, waiting), Err(EINTR));
    let waiting = world.begin(1, set((node, fh), lock(2, FlockKind::Read, whole), true));
    let flush = Call::Flush { node: file.0, fh: file.1, lock_owner: 1 };
    assert_eq!(world.call(0, flush), Ok(Answer::Done));
    assert_eq!(world.finish(1, waiting), Ok(Answer::Done));
    world.release(1, (node, fh));
    assert_eq!(world.call(0, set(file, lock(1, FlockKind::Write, whole), false)), Ok(Answer::Done));
}

/// Hazards 2.11 and 3.9: as many wait for a lock as may. Other calls of the mount go on, and so does the unlock that all
/// of them wait for.
#[test]
fn the_unlock_does_not_queue_behind_those_who_wait_for_it() {
    let mut world = World::new(1, 1, 1);
    // Each step would look at all that wait.
    world.is_checking = false;
    let (node, fh) = world.create(0, TOP, "f");
    let whole = base::Extent::WHOLE;
    let set = |owner, kind, can_wait| Call::Setlk { node, fh, lock: lock(owner, kind, whole), can_wait };
    assert_eq!(world.call(0, set(1, FlockKind::Write, false)), Ok(Answer::Done));
    let owners = 2..2 + FLOCK_WAITS_MAX as u64;
    let waiting: Vec<u64> =
        owners.clone().map(|owner| world.begin(0, set(owner, FlockKind::Read, true))).collect();
    assert_eq!(world.call(0, set(owners.end, FlockKind::Read, true)), Err(ENOLCK));
    assert_eq!(world.lookup(0, TOP, "absent"), Err(ENOENT), "others are answered");
    world.input(0, client::Input::Interrupt(waiting[0]));
    assert_eq!(world.finish(0, waiting[0]), Err(EINTR), "one may give up");
    assert!(waiting[1..].iter().all(|call| !world.is_answered(0, *call)));
    assert_eq!(world.call(0, set(1, FlockKind::Unlock, false)), Ok(Answer::Done));
    for call in &waiting[1..] {
        assert_eq!(world.finish(0, *call), Ok(Answer::Done));
    }
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let mut world = World::new(1, 1, 1);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.call(0, Call::Unlink { parent: TOP, name: b"f".into() }), Ok(Answer::Done));
    assert_eq!(world.write(0, file, 0, b"still here"), Ok(10));
    assert_eq!(world.read(0, file, 0, 100), b"still here");
    world.release(0, file);
    world.pass(Duration::from_secs(5));
    let call = Call::Tmpfile { parent: TOP, mode: 0o600, umask: 0, flags: O_RDWR };
    let Ok(Answer::Created { entry, fh, .. }) = world.call(0, call) else { panic!("it is made") };
    assert_eq!(world.write(0, (entry.node, fh), 0, b"tmp"), Ok(3));
    let call = Call::Link { node: entry.node, parent: TOP, name: b"named".into() };
    assert!(matches!(world.call(0, call), Ok(Answer::Entry(_))));
    world.release(0, (entry.node, fh));
    assert_eq!(world.names(0, TOP), vec!["named"]);
}

#[test]
fn names_and_attributes_are_answered_from_the_cache_under_locks() {
    let mut world = World::new(1, 1, 1);
    let dir = world.mkdir(0, TOP, "d");
    world.lookup(0, TOP, "d").expect("it was made");
    assert_eq!(world.lookup(0, dir, "absent"), Err(ENOENT));
    let before = world.mounts[0].sent_count;
    let entry = world.lookup(0, TOP, "d").expect("it was made");
    assert!(entry.entry_valid > Duration::from_secs(10));
    assert!(entry.attr_valid > Duration::from_secs(10));
    assert_eq!(world.lookup(0, dir, "absent"), Err(ENOENT));
    world.attr(0, dir);
    assert_eq!(world.mounts[0].sent_count, before);
}

#[test]
fn an_unmount_leaves_nothing_behind() {
    let mut world = World::new(1, 2, 1);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"data"), Ok(4));
    world.input(0, client::Input::Drain { patience: Duration::from_secs(10) });
    world.run();
    world.pass(Duration::from_secs(3));
    assert!(world.mounts[0].has_drained);
    assert!(!world.mounts[0].events.iter().any(|event| matches!(event, Event::Evicted(_))));
    let _ = (ROOT, O_RDONLY);
}

#[test]
fn a_program_that_has_just_stopped_elsewhere_can_be_written() {
    const FMODE_EXEC: u32 = 0x20;
    let mut world = World::new(1, 1, 2);
    let call = Call::Create { parent: TOP, name: b"program".to_vec(), mode: 0o755, umask: 0, flags: O_RDWR };
    let Ok(Answer::Created { entry, fh, .. }) = world.call(0, call) else { panic!("a file is made") };
    let file = (entry.node, fh);
    world.release(0, file);
    world.pass(Duration::from_secs(1));
    let node = world.lookup(1, TOP, "program").expect("it was made").node;
    let (running, _) = world.open(1, node, FMODE_EXEC);
    let writing = world.begin(0, Call::Open { node: file.0, flags: O_RDWR });
    assert!(!world.is_answered(0, writing), "its close may be on its way");
    world.release(1, (node, running));
    world.pass(Duration::from_secs(1));
    assert!(matches!(world.finish(0, writing), Ok(Answer::Opened { .. })));
    // One that goes on running stays refused.
    world.pass(Duration::from_secs(1));
    let (_, _) = world.open(0, file.0, FMODE_EXEC);
    let writing = world.begin(1, Call::Open { node, flags: O_RDWR });
    world.pass(Duration::from_secs(5));
    assert_eq!(world.finish(1, writing), Err(26));
}

/// A later version may have made it, or damage; nobody here knows where its bytes are.
#[test]
fn a_file_whose_layout_makes_no_sense_is_not_taken_for_an_empty_one() {
    const EIO: i32 = 5;
    let mut world = World::new(1, 1, 2);
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"there"), Ok(5));
    world.release(0, file);
    world.pass(Duration::from_secs(10));
    world.mounts[1].has_strange_layouts = true;
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    assert_eq!(world.attr(1, node).size_bytes, 5);
    let (fh, _) = world.open(1, node, O_RDWR);
    for is_direct in [false, true] {
        let read = Call::Read { node, fh, offset_bytes: 0, byte_count: 100, is_direct };
        assert_eq!(world.call(1, read), Err(EIO));
    }
    assert_eq!(world.write(1, (node, fh), 0, b"written"), Err(EIO));
    let set = SetattrCall { size_bytes: Some(2), fh: Some(fh), ..SetattrCall::default() };
    assert_eq!(world.call(1, Call::Setattr { node, set }), Err(EIO));
    world.mounts[1].has_strange_layouts = false;
    assert_eq!(world.read(1, (node, fh), 0, 100), b"there");
}
