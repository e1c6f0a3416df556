//! How much clients may answer writers for before this target has it. What was answered must find room: it may use the reserve of
//! the device, of which all of it together is a small part.

use base::ClientId;
use std::collections::BTreeMap;
use store::Space;

/// Enough for one client to keep a device busy.
const GRANT_BYTES_MAX: u64 = 32 << 20;
/// Of the reserve: the targets of one device have the same one, and their logs need it too.
const RESERVE_SHARE: u64 = 8;
/// Of what is left beside the reserve: nobody knows it to the byte while others write.
const AVAIL_SHARE: u64 = 8;

/// Fewer inodes than these are about to end: each piece that is kept back may be the first of an object.
const FREE_INODES_MIN: u64 = 4096;
/// Of the free inodes: others make objects meanwhile.
const INODES_SHARE: u64 = 8;
/// A piece counts as this at least (`client::dirty`).
const PIECE_BYTES_MIN: u64 = 4096;

/// Bytes by client. One to whom less is granted than before may still have as much under way for a while.
#[derive(Debug, Default)]
pub struct Grants {
    by_client: BTreeMap<ClientId, u64>,
    /// Of all of them.
    total_bytes: u64,
}

impl Grants {
    /// What a client may keep back from now on; nothing when the device is full but for its reserve.
    pub fn renew(&mut self, client: ClientId, space: &Space) -> u64 {
        self.renew_within(client, space, space.reserve_bytes / RESERVE_SHARE)
    }

    /// All clients together have no more than `bytes_max`.
    fn renew_within(&mut self, client: ClientId, space: &Space, bytes_max: u64) -> u64 {
        self.drop_client(client);
        // Half of what is left: there may come more clients, and renewed so all have as much in the end.
        let share = bytes_max.saturating_sub(self.total_bytes) / 2;
        let grant = share.min(GRANT_BYTES_MAX).min(space.avail_bytes / AVAIL_SHARE);
        if grant > 0 {
            self.by_client.insert(client, grant);
            self.total_bytes += grant;
        }
        grant
    }

    /// The same of data that may be the first of their object, which takes an inode of the device.
    pub fn renew_for_objects(&mut self, client: ClientId, space: &Space) -> u64 {
        // A file system that makes inodes as they are needed says that it has none.
        if space.total_inode_count == 0 {
            return self.renew(client, space);
        }
        if space.free_inode_count < FREE_INODES_MIN {
            self.drop_client(client);
            return 0;
        }
        let piece_count_max = space.free_inode_count / INODES_SHARE;
        let bytes_max =
            piece_count_max.saturating_mul(PIECE_BYTES_MIN).min(space.reserve_bytes / RESERVE_SHARE);
        self.renew_within(client, space, bytes_max)
    }

    pub fn drop_client(&mut self, client: ClientId) {
        self.total_bytes -= self.by_client.remove(&client).unwrap_or(0);
    }

    /// Of all clients.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(avail_bytes: u64, reserve_bytes: u64) -> Space {
        Space { avail_bytes, reserve_bytes, ..Space::default() }
    }

    #[test]
    fn all_grants_together_are_a_part_of_the_reserve() {
        let mut grants = Grants::default();
        let space = space(1 << 40, 1 << 30);
        for client in 0..100 {
            let granted = grants.renew(ClientId(client), &space);
            assert!(granted <= GRANT_BYTES_MAX);
            assert_eq!(grants.total_bytes(), grants.by_client.values().sum::<u64>());
        }
        let all = (1 << 30) / RESERVE_SHARE;
        assert!(grants.total_bytes() <= all);
        (20..100).for_each(|client| grants.drop_client(ClientId(client)));
        for _ in 0..500 {
            for client in 0..20 {
                grants.renew(ClientId(client), &space);
                assert!(grants.total_bytes() <= all);
            }
        }
        let (least, most) = (all / 24, all / 18);
        for client in 0..20 {
            let granted = grants.renew(ClientId(client), &space);
            assert!((least..most).contains(&granted), "with time all have as much: {granted}");
        }
        (0..100).for_each(|client| grants.drop_client(ClientId(client)));
        assert_eq!(grants.total_bytes(), 0);
    }

    #[test]
    fn nothing_is_granted_where_inodes_end() {
        let mut grants = Grants::default();
        let with_inodes = |total_inode_count, free_inode_count| Space {
            total_inode_count,
            free_inode_count,
            ..space(1 << 40, 1 << 30)
        };
        assert!(grants.renew_for_objects(ClientId(1), &with_inodes(1 << 20, FREE_INODES_MIN)) > 0);
        assert_eq!(grants.renew_for_objects(ClientId(1), &with_inodes(1 << 20, FREE_INODES_MIN - 1)), 0);
        assert_eq!(grants.total_bytes(), 0);
        assert!(grants.renew_for_objects(ClientId(1), &with_inodes(0, 0)) > 0, "they are not counted there");
    }

    #[test]
    fn all_grants_together_are_a_part_of_the_inodes_too() {
        let mut grants = Grants::default();
        let few = Space {
            total_inode_count: 1 << 20,
            free_inode_count: 2 * FREE_INODES_MIN,
            ..space(1 << 40, 1 << 30)
        };
        for client in 0..100 {
            let granted = grants.renew_for_objects(ClientId(client), &few);
            assert!(client > 0 || granted > 0);
            assert!(grants.total_bytes() / 4096 <= few.free_inode_count / 8, "{client}");
        }
    }

    #[test]
    fn nothing_is_granted_of_a_device_that_is_full_but_for_its_reserve() {
        let mut grants = Grants::default();
        assert_eq!(grants.renew(ClientId(1), &space(1 << 20, 1 << 30)), (1 << 20) / AVAIL_SHARE);
        assert_eq!(grants.renew(ClientId(1), &space(0, 1 << 30)), 0);
        assert_eq!(grants.total_bytes(), 0);
    }
}
