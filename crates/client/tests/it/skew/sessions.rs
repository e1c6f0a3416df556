//! What is recorded: short scripts of system calls, which check what they are answered.

use super::management::target;
use crate::world::{O_RDONLY, O_RDWR, TOP, World, append_call};
use base::{ClientId, Duration, Epoch, Extent, Status, TargetId};
use client::{Answer, Call, Input, SetattrCall};
use wire::mdt::{DirStriping, FileLock, FlockKind};
use wire::{
    ComponentHint, LayoutHint, Life, MgsReply, MgsRequest, Ownership, PoolChange, Reply, TargetOwner,
};

pub struct Session {
    pub name: &'static str,
    pub mount_count: usize,
    pub run: fn(&mut World),
}

/// A session that was recorded by a released version is never changed: what is new gets a script of its own.
pub static SESSIONS: &[Session] = &[
    Session { name: "names", mount_count: 1, run: names },
    Session { name: "data", mount_count: 1, run: data },
    Session { name: "two-mounts", mount_count: 2, run: two_mounts },
    Session { name: "restart", mount_count: 1, run: restart },
    Session { name: "configuration", mount_count: 0, run: configuration },
    Session { name: "processes", mount_count: 0, run: processes },
];

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const ENOTEMPTY: i32 = 39;

pub fn done(world: &mut World, mount: usize, call: Call) {
    assert_eq!(world.call(mount, call), Ok(Answer::Done));
}

/// Everything is made durable, and the mounts say goodbye.
fn leave(world: &mut World) {
    for mount in 0..world.mounts.len() {
        world.input(mount, Input::Drain { patience: Duration::from_secs(10) });
        world.pass(Duration::from_secs(2));
        assert!(world.mounts[mount].has_drained, "mount {mount} has ended");
    }
}

/// Directories on both MDTs, every kind of name, attributes, xattrs and a listing.
fn names(world: &mut World) {
    let dir = world.mkdir(0, TOP, "d");
    let on_other = Call::MkdirOn { parent: TOP, name: b"e".into(), mode: 0o755, umask: 0, mdt_index: 1 };
    done(world, 0, on_other);
    let other = world.lookup(0, TOP, "e").expect("it was made").node;
    let striping = DirStriping { stripe_count: DirStriping::ALL, mdts: Vec::new() };
    done(world, 0, Call::MkdirStriped { parent: TOP, name: b"s".into(), mode: 0o755, umask: 0, striping });
    let striped = world.lookup(0, TOP, "s").expect("it was made").node;
    for name in ["a", "b", "c"] {
        let file = world.create(0, striped, name);
        world.release(0, file);
    }
    let file = world.create(0, dir, "f");
    world.release(0, file);
    let rename = |name: &str, new_parent, new_name: &str| Call::Rename {
        parent: dir,
        name: name.into(),
        new_parent,
        new_name: new_name.into(),
        flags: 0,
    };
    done(world, 0, rename("f", dir, "g"));
    done(world, 0, rename("g", other, "h"));
    assert_eq!(world.lookup(0, dir, "g"), Err(ENOENT));
    let link = Call::Link { node: file.0, parent: dir, name: b"l".into() };
    assert!(matches!(world.call(0, link), Ok(Answer::Entry(_))));
    let symlink = Call::Symlink { parent: dir, name: b"y".into(), target: b"../e/h".into() };
    let Ok(Answer::Entry(symlink)) = world.call(0, symlink) else { panic!("a symlink is made") };
    let target = world.call(0, Call::Readlink { node: symlink.node });
    assert_eq!(target, Ok(Answer::Bytes(b"../e/h".as_slice().into())));
    let set = SetattrCall { mode: Some(0o600), uid: Some(7), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node: file.0, set }).is_ok());
    let setxattr = Call::Setxattr { node: file.0, name: b"user.k".into(), value: b"v".into(), flags: 0 };
    done(world, 0, setxattr);
    let getxattr = Call::Getxattr { node: file.0, name: b"user.k".into() };
    assert_eq!(world.call(0, getxattr), Ok(Answer::Bytes(b"v".as_slice().into())));
    let attr = world.attr(0, file.0);
    assert_eq!((attr.permissions, attr.uid, attr.link_count), (0o600, 7, 2));
    assert_eq!(world.names(0, dir), ["l", "y"]);
    assert_eq!(world.names(0, striped), ["a", "b", "c"]);
    assert_eq!(world.call(0, Call::Rmdir { parent: TOP, name: b"e".into() }), Err(ENOTEMPTY));
    done(world, 0, Call::Unlink { parent: other, name: b"h".into() });
    done(world, 0, Call::Unlink { parent: dir, name: b"l".into() });
    done(world, 0, Call::Rmdir { parent: TOP, name: b"e".into() });
    assert!(matches!(world.call(0, Call::Statfs { node: TOP }), Ok(Answer::Statfs(_))));
    leave(world);
}

/// A file over both OSTs: written, synced, cut, appended to, with a hole, and read again; one on its MDT beside it.
fn data(world: &mut World) {
    let striped = ComponentHint {
        stripe_size_bytes: Some(64 << 10),
        stripe_count: Some(2),
        first_ost: Some(0),
        ..ComponentHint::default()
    };
    let layout = LayoutHint { components: vec![striped] };
    let make = Call::CreateStriped { parent: TOP, name: b"f".into(), mode: 0o644, umask: 0, layout };
    done(world, 0, make);
    let node = world.lookup(0, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(0, node, O_RDWR);
    let file = (node, fh);
    let border: u64 = 64 << 10;
    assert_eq!(world.write(0, file, border - 1000, &[7; 2000]), Ok(2000));
    done(world, 0, Call::Fsync { node, fh, data_only: false });
    assert_eq!(world.attr(0, node).size_bytes, border + 1000);
    let set = SetattrCall { size_bytes: Some(border + 10), ..Default::default() };
    assert!(world.call(0, Call::Setattr { node, set }).is_ok());
    assert_eq!(world.call(0, append_call(file, b"the end")), Ok(Answer::Written(7)));
    let mut expected = vec![0; 10];
    expected.extend([7; 1010]);
    expected.extend(b"the end");
    assert_eq!(world.read(0, file, border - 1010, 5000), expected);
    world.release(0, file);
    let on_mdt = ComponentHint {
        end_bytes: Some(border),
        osts: vec![base::Layout::ON_MDT],
        ..ComponentHint::default()
    };
    let layout = LayoutHint { components: vec![on_mdt, ComponentHint::default()] };
    done(world, 0, Call::Setstripe { node: TOP, layout });
    let small = world.create(0, TOP, "small");
    assert_eq!(world.write(0, small, 0, b"on the MDT"), Ok(10));
    world.release(0, small);
    world.pass(Duration::from_secs(3));
    let (fh, _) = world.open(0, small.0, O_RDONLY);
    assert_eq!(world.read(0, (small.0, fh), 0, 100), b"on the MDT");
    world.release(0, (small.0, fh));
    done(world, 0, Call::Unlink { parent: TOP, name: b"f".into() });
    done(world, 0, Call::SyncAll);
    leave(world);
}

/// What one changes the other gives back first; an advisory lock that the other has.
fn two_mounts(world: &mut World) {
    let file = world.create(0, TOP, "f");
    assert_eq!(world.write(0, file, 0, b"old old old"), Ok(11));
    let node = world.lookup(1, TOP, "f").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    assert_eq!(world.read(1, (node, fh), 0, 100), b"old old old");
    assert_eq!(world.write(0, file, 0, b"new"), Ok(3));
    assert_eq!(world.read(1, (node, fh), 0, 100), b"new old old");
    let lock = |owner, kind| FileLock { owner, pid: 1, is_flock: false, kind, extent: Extent::WHOLE };
    let set = |(node, fh), lock| Call::Setlk { node, fh, lock, can_wait: false };
    done(world, 0, set(file, lock(1, FlockKind::Write)));
    assert_eq!(world.call(1, set((node, fh), lock(2, FlockKind::Write))), Err(EAGAIN));
    done(world, 0, set(file, lock(1, FlockKind::Unlock)));
    done(world, 1, set((node, fh), lock(2, FlockKind::Write)));
    world.release(0, file);
    world.release(1, (node, fh));
    done(world, 1, Call::Unlink { parent: TOP, name: b"f".into() });
    assert_eq!(world.lookup(0, TOP, "f"), Err(ENOENT));
    leave(world);
}

/// The MDT is killed with a file open, unlinked and locked, and comes back.
fn restart(world: &mut World) {
    let dir = world.mkdir(0, TOP, "d");
    let file = world.create(0, dir, "f");
    let (node, fh) = file;
    let lock = FileLock { owner: 1, pid: 1, is_flock: false, kind: FlockKind::Write, extent: Extent::WHOLE };
    done(world, 0, Call::Setlk { node, fh, lock, can_wait: false });
    // The name was durable, what follows is not.
    world.pass(Duration::from_secs(2));
    world.is_syncing = false;
    done(world, 0, Call::Unlink { parent: dir, name: b"f".into() });
    world.mkdir(0, dir, "late");
    world.restart_mdt(0);
    world.is_syncing = true;
    world.mkdir(0, dir, "later");
    assert_eq!(world.write(0, file, 0, b"kept"), Ok(4));
    assert_eq!(world.attr(0, node).link_count, 0);
    assert_eq!(world.read(0, file, 0, 100), b"kept");
    world.release(0, file);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.names(0, dir), ["late", "later"]);
    leave(world);
}

/// Targets register, parameters and pools change, and the configuration is asked for, once without news.
fn configuration(world: &mut World) {
    world.management.as_mut().expect("an MGS").add_caller();
    let fsname = || "test".to_owned();
    let get = |known_version| MgsRequest::GetConfig { fsname: fsname(), known_version };
    assert_eq!(world.ask_mgs(get(0)), Err(Status::NotFound));
    for id in [TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)] {
        let answer = world.ask_mgs(MgsRequest::Register {
            fsname: fsname(),
            target: target(id),
            claim: wire::Claim::default(),
        });
        assert!(matches!(answer, Ok(MgsReply::Config(_))), "{answer:?}");
    }
    let (path, value) = ("osc.*.max_dirty_mb".to_owned(), Some("64".to_owned()));
    assert!(world.ask_mgs(MgsRequest::SetParam { fsname: fsname(), path, value }).is_ok());
    for change in [PoolChange::New, PoolChange::Add(vec![1])] {
        let name = "flash".parse().expect("a name");
        assert!(world.ask_mgs(MgsRequest::ChangePool { fsname: fsname(), name, change }).is_ok());
    }
    let Ok(MgsReply::Config(config)) = world.ask_mgs(get(0)) else { panic!("there is a configuration") };
    assert_eq!((config.targets.len(), config.params.len(), config.pools.len()), (3, 1, 1));
    let unchanged = world.ask_mgs(get(config.version));
    assert_eq!(unchanged, Ok(MgsReply::Config(config)));
    assert_eq!(world.ask_mgs(MgsRequest::ListFilesystems), Ok(MgsReply::Filesystems(vec![fsname()])));
}

/// Processes with targets and mounts tell the MGS what has started, who lives, and who serves what several could.
fn processes(world: &mut World) {
    world.management.as_mut().expect("an MGS").add_caller();
    let fsname = || "test".to_owned();
    let (mdt, ost) = (TargetId::mdt(0), TargetId::ost(0));
    for id in [mdt, ost] {
        let answer = world.ask_mgs(MgsRequest::Register {
            fsname: fsname(),
            target: target(id),
            claim: wire::Claim::default(),
        });
        assert!(matches!(answer, Ok(MgsReply::Config(_))), "{answer:?}");
    }
    let started = |target| MgsRequest::Started { fsname: fsname(), target, epoch: Epoch(3) };
    assert_eq!(world.tell_mgs(started(mdt)), Ok(Reply::Done));
    assert_eq!(world.tell_mgs(started(TargetId::mdt(7))), Err(Status::NotFound));
    let [lives, gone] = [1, 2].map(|number| Life { client: ClientId(number), incarnation: 1 });
    assert_eq!(world.tell_mgs(MgsRequest::Renew { clients: vec![lives, gone] }), Ok(Reply::Done));
    for _ in 0..5 {
        world.pass(Duration::from_secs(1));
        assert_eq!(world.tell_mgs(MgsRequest::Renew { clients: vec![lives] }), Ok(Reply::Done));
    }
    let lapsed = world.ask_mgs(MgsRequest::AskLapsed { clients: vec![lives, gone] });
    assert_eq!(lapsed, Ok(MgsReply::Lapsed(vec![gone])));
    let by =
        |server| TargetOwner { server, nid: "127.0.0.1:7988".to_owned(), host: "host".to_owned(), pid: 7 };
    let take = |over, server| MgsRequest::TakeOwned { fsname: fsname(), target: mdt, over, by: by(server) };
    let owned = |target, epoch, owner| Ownership { target, epoch, owner, has_lapsed: false };
    let taken = world.ask_mgs(take(Epoch::ZERO, 1));
    assert_eq!(taken, Ok(MgsReply::Ownerships(vec![owned(mdt, Epoch(1), Some(by(1)))])));
    assert!(world.ask_mgs(take(Epoch(1), 2)).is_err(), "it is owned");
    let keep = MgsRequest::KeepOwned { fsname: fsname(), server: 1, keeps: vec![mdt], asks: vec![ost] };
    let both = vec![owned(mdt, Epoch(1), Some(by(1))), owned(ost, Epoch::ZERO, None)];
    assert_eq!(world.ask_mgs(keep), Ok(MgsReply::Ownerships(both)));
    let left = world.ask_mgs(MgsRequest::LeaveOwned { fsname: fsname(), server: 1, targets: vec![mdt] });
    assert_eq!(left, Ok(MgsReply::Ownerships(vec![owned(mdt, Epoch(1), None)])));
}
