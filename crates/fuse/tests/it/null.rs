//! The file system for measuring.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fuse::null::NullFs;
use fuse::{Session, TransportChoice};

use crate::harness::{options, transports};

fn with_null(transport: TransportChoice, test: impl Fn(&std::path::Path)) {
    let dir = tempfile::tempdir().unwrap();
    let (mut session, _) = Session::mount(dir.path(), options(transport)).unwrap();
    session.run(Arc::new(NullFs::new(1000))).unwrap();
    test(dir.path());
    drop(session);
}

#[test]
fn it_makes_lists_and_reads_nothing() {
    for transport in transports() {
        with_null(transport, |root| {
            assert_eq!(fs::read_dir(root).unwrap().count(), 1000);
            assert_eq!(fs::metadata(root.join("f77")).unwrap().len(), 1 << 30);
            let mut block = [1u8; 4096];
            fs::File::open(root.join("f1")).unwrap().read_exact_at(&mut block, 1 << 20).unwrap();
            assert!(block.iter().all(|b| *b == 0));
            fs::create_dir(root.join("dir")).unwrap();
            fs::write(root.join("dir/made"), [1; 100]).unwrap();
            assert_eq!(fs::metadata(root.join("dir/made")).unwrap().len(), 100);
            assert_eq!(fs::read_dir(root.join("dir")).unwrap().count(), 1);
            fs::rename(root.join("dir/made"), root.join("dir/moved")).unwrap();
            assert!(!root.join("dir/made").exists());
            fs::remove_file(root.join("dir/moved")).unwrap();
            std::os::unix::fs::symlink("somewhere", root.join("dir/link")).unwrap();
            assert_eq!(fs::read_link(root.join("dir/link")).unwrap(), std::path::Path::new("somewhere"));
            assert_eq!(fs::symlink_metadata(root.join("dir/link")).unwrap().len(), 9);
            fs::remove_file(root.join("dir/link")).unwrap();
            fs::remove_dir(root.join("dir")).unwrap();
            assert!(!root.join("dir").exists());
        });
    }
}
