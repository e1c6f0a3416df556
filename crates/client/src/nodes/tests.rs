use super::*;
use crate::call::{Answer, AttrAnswer};
use crate::names::Name;
use crate::recovery::tests::state;
use base::{Duration, FileType, LockId, Version, WallTime};
use wire::mdt::Entry;

/// What mimalloc sets aside for a block: a multiple of 16 bytes up to 64, of an eighth of the next power of two beyond.
fn block_bytes(byte_count: usize) -> usize {
    let step = if byte_count <= 64 { 16 } else { byte_count.next_power_of_two() / 8 };
    byte_count.next_multiple_of(step)
}

/// What an entry of a `BTreeMap` takes that is filled in order, which is the worst: each leaf, and each node above, keeps 6 where 11 have
/// room, and gives one to the node above.
fn tree_bytes(entry_byte_count: usize) -> usize {
    let leaf = 11 * entry_byte_count + 12;
    let above = leaf + 12 * size_of::<usize>();
    (block_bytes(leaf) + block_bytes(above) / 7).div_ceil(7)
}

fn attr_of(number: u32) -> Attr {
    let at = WallTime(1_800_000_000_000_000_000 + i64::from(number));
    Attr {
        fid: Fid { seq: Fid::SEQ_NORMAL + 1, oid: number, ver: 0 },
        file_type: FileType::Regular,
        permissions: 0o644,
        uid: 1000,
        gid: 1000,
        link_count: 1,
        rdev: 0,
        size_bytes: 4096,
        block_count: 8,
        atime: at,
        mtime: at,
        ctime: at,
        btime: at,
        mtime_stamp: at,
        version: Version(1),
        is_size_known: true,
        write_epoch: 1,
        has_xattrs: true,
    }
}

/// The kernel may know millions of inodes, and most of them it has only listed and looked up: what few of them have is not in all.
#[test]
fn an_inode_that_was_listed_and_looked_up_is_small() {
    const COUNT: u32 = 1000;
    let mut state = state();
    let parent = Fid { seq: Fid::SEQ_NORMAL + 1, oid: COUNT, ver: 0 };
    let lock = LockId(1);
    let name_of = |number: u32| format!("file{number:06}").into_bytes();
    for number in 0..COUNT {
        let (attr, name) = (attr_of(number), name_of(number));
        let fid = attr.fid;
        // As from a listing.
        state.names.put_listed(parent, &name, Some(fid), Time::ZERO, Some(lock));
        let node = state.nodes.get_or_new(fid);
        node.names.note(parent, &name);
        assert!(node.learn_attr(&attr));
        node.learn_xattrs(&[(b"user.tag".to_vec(), b"12345678".to_vec())]);
        state.nodes.note_listed(fid, ChildrenLock { parent, lock });
        // The kernel looks it up, and asks for its attributes, now and later; and it is told to forget them once.
        for _ in 0..3 {
            state.now.time = state.now.time.after(Duration::from_secs(2));
            let now = state.now.time;
            let entry = state.entry_answer(Some((parent, &name)), attr.clone(), true, false);
            state.note_sizes(&Answer::Entry(entry), now);
            let answer: AttrAnswer = state.attr_answer(attr.clone());
            state.note_sizes(&Answer::Attr(answer), now);
            let told = state.send_notify(crate::Notify::InvalInode {
                node: fid.inode_number(),
                offset_bytes: -1,
                byte_count: 0,
            });
            state.note_told(told);
        }
    }
    let mut byte_counts = Vec::new();
    for number in 0..COUNT {
        let node = state.nodes.by_fid(attr_of(number).fid).expect("it was looked up");
        assert!(node.changes.is_none() && node.directory.is_none() && node.data.is_none());
        assert!(node.body.is_none() && node.kernel_size.is_in_place());
        let name = name_of(number);
        let xattrs = node.xattrs.as_ref().expect("they came with the listing");
        let own = block_bytes(size_of::<Node>())
            + block_bytes(node.names.apart_byte_count())
            + block_bytes(xattrs.apart_byte_count());
        let known = state.names.get(parent, &name).expect("it was listed");
        assert_eq!(known.fid(), Some(node.fid()));
        let of_name = block_bytes(size_of::<Name>()) + block_bytes(known.name.apart_byte_count());
        // By node id, by hash, and under the lock on the children.
        let places = tree_bytes(size_of::<[u64; 2]>()) * 2 + tree_bytes(size_of::<u64>());
        byte_counts.push(own + of_name + places);
    }
    let all = byte_counts.iter().sum::<usize>() / byte_counts.len();
    assert!(size_of::<Node>() <= 256, "{} bytes", size_of::<Node>());
    assert!(all <= 416, "{all} bytes");
}

/// Its name may be here without it: it was looked up for a listing, and let go of. (Seed 749: names of it were then looked for in one
/// place only.)
#[test]
fn a_directory_that_is_told_of_is_known_as_striped_though_nothing_was_known_of_it() {
    let mut state = state();
    let attr = Attr { file_type: FileType::Directory, ..attr_of(2) };
    let stripes = vec![attr.fid, Fid { seq: attr.fid.seq + 1, ..attr.fid }];
    let entry = Entry {
        fid: attr.fid,
        file_type: FileType::Directory,
        attr: Some(attr.clone()),
        layout: None,
        symlink_target: None,
        parent_attr: None,
        is_open_elsewhere: false,
        may_be_written: false,
        was_created: false,
        was_size_known: false,
        grants: Vec::new(),
        stripes: stripes.clone(),
        data: None,
    };
    state.see_entry(&entry);
    state.entry_answer(Some((Fid::ROOT, b"d")), attr.clone(), false, false);
    assert_eq!(state.nodes.stripes_of(attr.fid), stripes);
    assert_eq!(state.nodes.whole_of(stripes[1]), attr.fid);
}
