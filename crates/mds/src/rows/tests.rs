#![allow(clippy::unwrap_used)]
use super::*;
use base::{Version, WallTime};

fn directory() -> Inode {
    let (fid, time) = (Fid { seq: Fid::SEQ_NORMAL, oid: 1, ver: 0 }, WallTime(1));
    Inode::new(Attr {
        fid,
        file_type: FileType::Directory,
        permissions: 0o755,
        uid: 1,
        gid: 2,
        link_count: 2,
        rdev: 0,
        size_bytes: 4096,
        block_count: 8,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        mtime_stamp: time,
        version: Version(3),
        is_size_known: true,
        write_epoch: 0,
        has_xattrs: false,
    })
}

#[test]
fn what_few_inodes_have_takes_no_bytes_of_others() {
    let plain = directory();
    let mut expected = vec![ROW_VERSION];
    let Inode { attr, layout, symlink_target, default_layout, xattr_name_bytes, xattr_count, .. } = &plain;
    (attr, layout, symlink_target, default_layout).serialize(&mut expected).unwrap();
    (xattr_name_bytes, xattr_count).serialize(&mut expected).unwrap();
    assert_eq!(encode(&plain), expected);
    assert_eq!(decode::<Inode>(&expected), Ok(plain));
}

#[test]
fn stripes_and_their_default_are_read_back() {
    let stripes = vec![directory().attr.fid, Fid::ROOT];
    let default_striping = Some(DirStriping { stripe_count: 2, mdts: vec![1] });
    for (stripes, default_striping) in
        [(stripes.clone(), None), (Vec::new(), default_striping.clone()), (stripes, default_striping)]
    {
        let inode = Inode { stripes, default_striping, ..directory() };
        assert_eq!(decode::<Inode>(&encode(&inode)), Ok(inode));
    }
    let mut unknown = encode(&directory());
    unknown.push(99);
    assert_eq!(decode::<Inode>(&unknown), Err(Status::Corrupt));
}
