//! The file system for measuring.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fuse::null::NullFs;
use fuse::{Handler, Op, Reply, Request, Session, TransportChoice};

use crate::harness::{options, transports};

fn with_null(transport: TransportChoice, test: impl Fn(&Path)) {
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
            assert_eq!(fs::read_link(root.join("dir/link")).unwrap(), Path::new("somewhere"));
            assert_eq!(fs::symlink_metadata(root.join("dir/link")).unwrap().len(), 9);
            fs::remove_file(root.join("dir/link")).unwrap();
            fs::remove_dir(root.join("dir")).unwrap();
            assert!(!root.join("dir").exists());
        });
    }
}

/// Counts what is asked of single entries, and how much of that for names.
struct Counting {
    inner: NullFs,
    lookup_count: AtomicU64,
    attr_count: AtomicU64,
}

impl Handler for Counting {
    fn request(&self, request: Request, reply: Reply) {
        let counter = match request.op {
            Op::Lookup { .. } => Some(&self.lookup_count),
            Op::Getattr { .. } | Op::Statx { .. } => Some(&self.attr_count),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.request(request, reply);
    }
    fn forget(&self, _forgets: &[(u64, u64)]) {}
    fn interrupt(&self, _unique: u64) {}
    fn destroyed(&self) {}
}

/// Without the birth time that the standard library wants, and for which the kernel always asks.
fn lstat(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is a string and the buffer has room for a stat, both until the call returns.
    assert_eq!(unsafe { libc::lstat(path.as_ptr(), stat.as_mut_ptr()) }, 0);
}

#[test]
fn what_a_listing_brings_is_asked_for_again_only_where_it_has_no_lifetime() {
    const COUNT: u64 = 300;
    for transport in transports() {
        for (ttl, expected) in [(Duration::ZERO, COUNT..10 * COUNT), (Duration::from_secs(3600), 0..10)] {
            let dir = tempfile::tempdir().unwrap();
            let (mut session, _) = Session::mount(dir.path(), options(transport)).unwrap();
            let inner = NullFs::new(COUNT).cached_for(ttl);
            let handler =
                Arc::new(Counting { inner, lookup_count: AtomicU64::new(0), attr_count: AtomicU64::new(0) });
            session.run(handler.clone()).unwrap();
            let mut found = 0;
            for entry in fs::read_dir(dir.path()).unwrap() {
                lstat(&entry.unwrap().path());
                found += 1;
            }
            assert_eq!(found, COUNT);
            let asked =
                [&handler.lookup_count, &handler.attr_count].map(|count| count.load(Ordering::Relaxed));
            assert!(
                asked.iter().all(|count| expected.contains(count)),
                "{asked:?} for entries that last {ttl:?}"
            );
            drop(session);
        }
    }
}
