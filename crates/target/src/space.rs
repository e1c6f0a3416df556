//! The room of a target, as it says it to others.

use store::Space;
use wire::mdt::Statfs;

/// What statfs of a target says that has this room on its device. Targets with the same number of a device share it.
pub fn statfs_of(space: &Space, device: u64) -> Statfs {
    Statfs {
        bytes_total: space.total_bytes,
        bytes_free: space.free_bytes,
        bytes_available: space.avail_bytes,
        inodes_total: space.total_inode_count,
        inodes_free: space.free_inode_count,
        device,
    }
}
