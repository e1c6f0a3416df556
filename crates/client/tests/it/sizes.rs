//! Files that are open for writing and not written: nobody asks their objects.

use crate::world::{O_EXCL, O_RDWR, TOP, World};
use base::{Duration, TargetKind};

impl World {
    /// Requests of one kind that a mount has sent.
    fn sent(&self, mount: usize, kind: TargetKind, name: &str) -> u64 {
        let kinds = self.requests(mount, kind);
        kinds.into_iter().filter(|(kind, _)| *kind == name).map(|(_, count)| count).sum()
    }

    fn size_requests(&self, mount: usize) -> (u64, u64) {
        (
            self.sent(mount, TargetKind::Ost, "ost_getattr"),
            self.sent(mount, TargetKind::Mdt, "mds_report_size"),
        )
    }
}

#[test]
fn an_open_that_writes_nothing_costs_no_request_about_sizes() {
    let mut world = World::new(2, 1, 2);
    let file = world.create_with(0, TOP, "file", O_RDWR | O_EXCL);
    assert_eq!(world.attr(0, file.0).size_bytes, 0);
    world.release(0, file);
    assert_eq!(world.size_requests(0), (0, 0));
    // The MDT alone answers others now.
    let node = world.lookup(1, TOP, "file").expect("it was made").node;
    assert_eq!(world.attr(1, node).size_bytes, 0);
    assert_eq!(world.size_requests(1), (0, 0));

    let file = world.create(0, TOP, "written");
    world.write(0, file, 0, b"four").expect("written");
    world.release(0, file);
    world.pass(Duration::from_secs(7));
    let before = world.size_requests(0);
    assert_eq!(before.1, 1, "the size of what was written is reported");
    // Two handles for writing, one after the other and at once, and none writes.
    let (first, _) = world.open(0, file.0, O_RDWR);
    let (second, _) = world.open(0, file.0, O_RDWR);
    assert_eq!(world.attr(0, file.0).size_bytes, 4);
    world.release(0, (file.0, first));
    assert_eq!(world.attr(0, file.0).size_bytes, 4);
    world.release(0, (file.0, second));
    assert_eq!(world.size_requests(0), before);
    let node = world.lookup(1, TOP, "written").expect("it was made").node;
    assert_eq!(world.attr(1, node).size_bytes, 4);
    assert_eq!(world.size_requests(1), (0, 0));
}

#[test]
fn a_size_that_another_client_changes_meanwhile_is_not_believed() {
    let mut world = World::new(2, 1, 2);
    let file = world.create(0, TOP, "file");
    let node = world.lookup(1, TOP, "file").expect("it was made").node;
    let (fh, _) = world.open(1, node, O_RDWR);
    world.write(1, (node, fh), 0, b"seven..").expect("written");
    assert_eq!(world.attr(0, file.0).size_bytes, 7);
    world.release(1, (node, fh));
    // The last to close has changed nothing; somebody else has.
    world.release(0, file);
    world.pass(Duration::from_secs(7));
    for (mount, node) in [(0, file.0), (1, node)] {
        assert_eq!(world.attr(mount, node).size_bytes, 7, "mount {mount}");
    }
}
