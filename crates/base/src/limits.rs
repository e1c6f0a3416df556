//! Every bound in one place, with the argument for it and how the bounds relate.

use crate::clock::Duration;

/// Bytes of one name. POSIX NAME_MAX.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a symlink target; PATH_MAX without its end.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Bytes of one xattr value, and of its name: Linux's own limits.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Bytes of all xattr names of one inode: what listxattr(2) can return.
pub const XATTR_LIST_BYTES_MAX: usize = 64 << 10;
/// An inode with more xattrs gets no more values above 4 KiB: all together stay below 48 MiB so.
pub const XATTRS_WITH_LONG_VALUES_MAX: u32 = 256;
/// Links to one inode, as on ext4.
pub const LINK_COUNT_MAX: u32 = 65_000;
/// File bytes in one bulk RPC (Lustre's default for a 4 MiB RPC).
pub const BULK_BYTES_MAX: usize = 4 << 20;
/// Bytes of an object that one advice to an OST is about: what a disk reads in a moment.
pub const ADVICE_BYTES_MAX: u64 = 16 << 20;
/// A frame: one bulk and its header and body; nothing larger is read from a socket.
pub const FRAME_BODY_BYTES_MAX: usize = 1 << 20;
/// Largest FUSE write and read (`max_pages_limit` 256).
pub const FUSE_IO_BYTES_MAX: usize = 1 << 20;
/// Blocks of 4 KiB of the largest file of ext4, and how many of an object's file share one that has their checksums, with that.
const FILE_BLOCKS_MAX: u64 = (1 << 32) - 1;
const CHECKSUMMED_BLOCKS: u64 = 1017;
/// An object's file on ext4 ends 4 KiB short of 16 TiB, and has checksums besides: the object ends 16 GiB short of that. What a client
/// has kept back behind it would be lost, so it is not a byte more than an OST can take.
pub const OBJECT_BYTES_MAX: u64 = (FILE_BLOCKS_MAX - FILE_BLOCKS_MAX.div_ceil(CHECKSUMMED_BLOCKS)) * 4096;
/// Modifying requests in flight per client and target, each with a persistent reply slot.
pub const SLOT_COUNT: u16 = 16;
/// The same for writes of data to an MDT, behind those: other slots may all wait for locks that go back only after such a write.
pub const DATA_SLOT_COUNT: u16 = 4;
/// Requests of one client in the queue of one target before it must wait; and those that have been given a slot.
pub const REQUESTS_PER_EXPORT_MAX: usize = 2048;
/// Sessions with one target whose clients have asked for nothing in them. Each asks within one round trip: so many come in that time only
/// if somebody makes up names.
pub const UNSPOKEN_SESSIONS_MAX: usize = 32_768;
/// Advisory locks that one client waits for at one MDT; one more gets ENOLCK. They wait for as long as their holders like,
/// so they have no place among the other requests in flight.
pub const FLOCK_WAITS_MAX: usize = 1024;
/// Locks that one client may hold on one target; it gives old ones back long before.
pub const LOCKS_PER_CLIENT_MAX: usize = 131_072;
/// Idle locks that a client keeps per target; 45,000 names cost about 120 MB resident when none was given back.
pub const IDLE_LOCKS_MAX: usize = 32_768;
/// Replies retained for replay per import; beyond it the client waits for commits.
pub const REPLAY_REQUESTS_MAX: usize = 4096;
/// What a recovering target knows of its clients' replays: each counts itself, its slot and the inodes that it touches. Who would go beyond
/// it is recovered as one that says nothing of its replays. Some 65,000 replays of two inodes each; a target has at most `UNSYNCED_TRANSACTIONS_MAX` and what
/// came during one sync to lose, so that takes a disk that has hung for long.
pub const LISTED_OBJECTS_MAX: usize = 1 << 18;
/// A target makes its transactions durable at the latest when so many are not: while that goes on, a single client may send as many
/// again before it has to wait.
pub const UNSYNCED_TRANSACTIONS_MAX: u64 = REPLAY_REQUESTS_MAX as u64 / 2;
/// File bytes retained for replay per import, so that memory stays bounded under streaming writes.
pub const REPLAY_BYTES_MAX: usize = 256 << 20;
/// So many bytes of file data in one request are worth waking another thread for: it costs as much as the work on a tenth of them.
pub const BULK_BYTES_MIN: u64 = 256 << 10;
/// Stripes of one directory: as many as Lustre has MDTs.
pub const DIRECTORY_STRIPES_MAX: usize = 256;
/// Objects in one request: a layout has at most `Layout::STRIPE_COUNT_MAX`, and each file one on its MDT.
pub const OBJECTS_PER_REQUEST_MAX: usize = 4096;
/// Entries of one READDIR reply.
pub const READDIR_ENTRIES_MAX: usize = 4096;

/// A file that was written and closed and then loses its last name can be opened for so long by who has just looked it up.
/// The kernel asks once more for a name whose file is gone; a file that is replaced again and again needs more than that.
pub const CLOSED_FILE_GRACE: Duration = Duration::from_millis(1000);
/// A client that neither answers a blocking callback nor shows progress for this long is evicted.
pub const CALLBACK_DEADLINE: Duration = Duration::from_secs(30);
/// Kernel caches live at most 0.8 of this without contact with the server (hazard 2.9).
pub const SESSION_LEASE: Duration = Duration::from_secs(30);
pub const KERNEL_CACHE_LIFE: Duration = Duration::from_secs(24);
/// Idle clients ping this often, so that a lease lives.
pub const PING_INTERVAL: Duration = Duration::from_secs(5);
/// First resend of a request without an answer; doubles up to the maximum.
pub const RESEND_FIRST: Duration = Duration::from_secs(2);
pub const RESEND_MAX: Duration = Duration::from_secs(16);
/// A target that owes the answer to a ping, and has answered nothing at all for this long, counts as one that does not answer. One that is slow,
/// or waits for others, answers pings.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// Connection attempts to a target that is not there.
pub const RECONNECT_FIRST: Duration = Duration::from_millis(50);
pub const RECONNECT_MAX: Duration = Duration::from_secs(2);
/// Each process with mounts renews the leases of its clients at the management server this often, and each lease ends after this long. A
/// target that recovers waits for nobody whose lease has ended, and whom it has not heard for as long.
pub const LEASE_RENEWAL: Duration = Duration::from_secs(1);
pub const LEASE: Duration = Duration::from_secs(3);
/// A client that could not renew its lease for this long relies on no target that it has not heard for as long.
pub const LEASE_TRUST: Duration = Duration::from_millis(2400);
/// A restarted target gives its clients this long to come back; nothing that they say can extend it.
pub const RECOVERY_WINDOW: Duration = Duration::from_secs(60);
/// A server whose ticks are late by this much has stood still: its process was stopped, or it hung in its disk. Clients send something each second
/// in a recovery, and every 5 s otherwise.
pub const STANDSTILL_MIN: Duration = Duration::from_secs(5);
/// No recovery of a target that does not stand still takes longer than this: who has come back and is not done by then is given up too.
pub const RECOVERY_HARD: Duration = Duration::from_secs(180);
/// A target forgets a client of which it heard nothing for this long, even if it is in nobody's way.
pub const SILENT_CLIENT_MAX: Duration = Duration::from_secs(300);
/// Clients with something uncommitted ask this soon whether it is committed, and at once when they must wait for it.
pub const COMMIT_PING_INTERVAL: Duration = Duration::from_secs(1);
pub const COMMIT_PING_INTERVAL_BLOCKED: Duration = Duration::from_millis(50);
/// Requests that modify nothing in flight per import; below what an export takes, so that none is refused.
pub const PLAIN_IN_FLIGHT_MAX: usize = 512;
/// The same of those that have places of their own, so that no request for a lock keeps the data of another lock from their way: two clients
/// would wait for each other. At an OST these are the requests that may wait for other clients, at an MDT those about data that do not.
pub const PLAIN_ASIDE_MAX: usize = 448;
/// Replays of one client in flight.
pub const REPLAYS_IN_FLIGHT_MAX: usize = 32;
/// Bytes of replays of one client that a target keeps until they are executed. Those that a client has on their way have room twice. As
/// much is kept besides of what it names that it has open and locked: some 100,000 files.
pub const QUEUED_REPLAY_BYTES_MAX: usize = 64 << 20;
/// Who replays, or waits for the replays of others, lets the target hear from it this often; two of three may be lost before its lease
/// matters.
pub const REPLAY_SIGN_INTERVAL: Duration = Duration::from_secs(1);
/// Nothing acknowledged stays undurable longer on its own (the promise is 5 s; a sync takes its time too).
pub const SYNC_INTERVAL: Duration = Duration::from_millis(1000);

const _: () = assert!(KERNEL_CACHE_LIFE.as_millis() * 10 <= SESSION_LEASE.as_millis() * 8);
const _: () = assert!(
    PLAIN_IN_FLIGHT_MAX + PLAIN_ASIDE_MAX + FLOCK_WAITS_MAX + (SLOT_COUNT as usize) < REQUESTS_PER_EXPORT_MAX
);
const _: () = assert!(SILENT_CLIENT_MAX.as_millis() > SESSION_LEASE.as_millis() * 2);
const _: () = assert!(LEASE_TRUST.as_millis() * 10 <= LEASE.as_millis() * 8);
const _: () = assert!(REPLAY_SIGN_INTERVAL.as_millis() * 3 <= LEASE.as_millis());
const _: () = assert!(REPLAYS_IN_FLIGHT_MAX * FUSE_IO_BYTES_MAX * 2 <= QUEUED_REPLAY_BYTES_MAX);
// Two pings may be lost: the second goes out after the first wait, the third after twice that more.
const _: () = assert!(RESEND_FIRST.as_millis() * 3 < OVERDUE_AFTER.as_millis());
// One renewal may be lost.
const _: () = assert!(LEASE_RENEWAL.as_millis() * 2 < LEASE_TRUST.as_millis());
const _: () = assert!(PING_INTERVAL.as_millis() * 3 < KERNEL_CACHE_LIFE.as_millis());
const _: () = assert!(CALLBACK_DEADLINE.as_millis() >= SESSION_LEASE.as_millis());
const _: () = assert!(FUSE_IO_BYTES_MAX <= BULK_BYTES_MAX);
const _: () = assert!(IDLE_LOCKS_MAX < LOCKS_PER_CLIENT_MAX);
const _: () = assert!(XATTR_VALUE_BYTES_MAX + XATTR_NAME_BYTES_MAX < FRAME_BODY_BYTES_MAX);
