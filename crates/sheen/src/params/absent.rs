//! Parameters of Lustre that are not here, and why: for whoever looks for them, and for docs/parameters.md.

use super::glob;

const NO_READ_AHEAD: &str = "what is fetched ahead needs no threads";
const NO_STATAHEAD: &str = "a listing brings names and attributes together; see llite.*.statahead_max";
const NO_ADAPTIVE: &str =
    "what servers wait for is fixed, and nothing that a client says changes it; see docs/recovery.md";
const NO_EARLY_REPLY: &str = "a request that is late is sent again; no session ends for it";
const NO_GRANT: &str =
    "what clients keep has room in the reserve; a grant is renewed with each write and ends with the session";
const NO_POOL: &str = "servers ask for single locks back; clients bound unused ones with lru_size";
const NO_UPCALL: &str = "clients send supplementary groups with the requests that need them";
const NO_JOBS: &str = "requests carry no job id yet";
const FULL_OST: &str = "an OST gets no new objects from 0.1 % of its device (1 MiB at least) or 32 inodes left until it has more than twice that";
const NO_CHOICE: &str = "it is always on";
pub const NO_NODEMAP: &str = "servers trust every client until transport security exists";
pub const NO_QUOTA: &str = "there are no quotas";

/// Path and reason. A path that ends with `*` is of all that is below it.
#[rustfmt::skip]
pub static ABSENT: &[(&str, &str)] = &[
    ("timeout", NO_ADAPTIVE),
    ("ldlm_timeout", NO_ADAPTIVE),
    ("at_early_margin", NO_EARLY_REPLY),
    ("at_extra", NO_EARLY_REPLY),
    ("ping_interval", NO_ADAPTIVE),
    ("jobid_var", NO_JOBS),
    ("jobid_name", NO_JOBS),
    ("llite.*.max_read_ahead_async_active", NO_READ_AHEAD),
    ("llite.*.read_ahead_async_file_threshold_mb", NO_READ_AHEAD),
    ("llite.*.max_cached_mb", "pages live in the kernel's cache, which the kernel bounds"),
    ("llite.*.statahead_min", NO_STATAHEAD),
    ("llite.*.statahead_batch_max", NO_STATAHEAD),
    ("llite.*.statahead_running_max", NO_STATAHEAD),
    ("llite.*.statahead_agl", NO_STATAHEAD),
    ("llite.*.statahead_timeout", NO_STATAHEAD),
    ("llite.*.statfs_max_age", "statfs(2) asks the targets each time"),
    ("llite.*.checksums", "see osc.*.checksums"),
    ("llite.*.checksum_pages", "see osc.*.checksums"),
    ("llite.*.fast_read", NO_CHOICE),
    ("llite.*.extents_stats", "sizes of requests are in osc.*.rpc_stats"),
    ("llite.*.offset_stats", "sizes of requests are in osc.*.rpc_stats"),
    ("llite.*.root_squash", "servers trust every client until transport security exists"),
    ("llite.*.nosquash_nids", "servers trust every client until transport security exists"),
    ("osc.*.max_pages_per_rpc", "a request carries what the kernel asks for, 1 MiB at most, cut at stripes"),
    ("osc.*.grant_shrink", NO_GRANT),
    ("osc.*.grant_shrink_interval", NO_GRANT),
    ("osc.*.short_io_bytes", "data always travel in the request's own frame"),
    ("osc.*.checksum_type", "frames and objects carry CRC32C"),
    ("osc.*.resend_count", "a request is sent again until it is answered"),
    ("osc.*.idle_timeout", "sessions are kept: each has the mount's locks"),
    ("{osc,mdc}.*.connect_flags", "all features of this version are always on"),
    ("mdc.*.batch_stats", "each request carries one operation"),
    ("lmv.*.qos_maxage", "the MDT of the parent places directories; see lod.*.mdt_qos_maxage"),
    ("lov.*.stripecount", "the MDT places files; see lod.*.stripecount"),
    ("lov.*.stripesize", "the MDT places files; see lod.*.stripesize"),
    ("lod.*.stripeoffset", "the MDT chooses, see lod.*.qos_threshold_rr; `lfs setstripe -i` does so for a file or a directory"),
    ("lod.*.qos_prio_free", "beyond lod.*.qos_threshold_rr objects go to OSTs in proportion to their room"),
    ("osp.*.reserved_mb_low", FULL_OST),
    ("osp.*.reserved_mb_high", FULL_OST),
    ("ldlm.namespaces.*.pool.limit", NO_POOL),
    ("ldlm.namespaces.*.pool.granted", NO_POOL),
    ("ldlm.namespaces.*.pool.server_lock_volume", NO_POOL),
    ("ldlm.namespaces.*.contended_locks", "a lock is never refused for contention"),
    ("ldlm.namespaces.*.early_lock_cancel", NO_CHOICE),
    ("ldlm.namespaces.*.lock_cache_policy", "the lock that was unused for longest goes first"),
    ("mdt.*.identity_upcall", NO_UPCALL),
    ("mdt.*.identity_expire", NO_UPCALL),
    ("mdt.*.identity_flush", NO_UPCALL),
    ("mdt.*.identity_info", NO_UPCALL),
    ("{mdt,obdfilter}.*.job_stats", NO_JOBS),
    ("mdt.*.commit_on_sharing", "what others may see of an operation survives with it: each MDT keeps a prefix"),
    ("{mdt,obdfilter}.*.sync_lock_cancel", "a write lock goes back when its data are durable, always"),
    ("mdt.*.root_squash", "servers trust every client until transport security exists"),
    ("mdd.*.changelog_users", "there are no changelogs yet"),
    ("mdd.*.atime_diff", "an access is told with a request that is sent anyway, so none is spared"),
    ("obdfilter.*.brw_size", "a request carries 4 MiB at most"),
    ("obdfilter.*.degraded", "an MDT regards the room of OSTs only; obdfilter.*.no_create drains one"),
    ("obdfilter.*.precreate_batch", "objects are made by their first write"),
    ("obdfilter.*.tot_dirty", NO_GRANT),
    ("obdfilter.*.tot_pending", NO_GRANT),
    ("osd-*.*.writethrough_cache_enable", "data lie in the kernel's page cache"),
    ("nodemap.*", NO_NODEMAP),
    ("qmt.*", NO_QUOTA),
    ("osd-*.*.quota_slave.*", NO_QUOTA),
    ("mdt.*.hsm*", "there is no HSM"),
    ("{mdd,obdfilter}.*.lfsck_*", "`sheen fsck DIR` checks what nobody serves; nothing needs it after a crash"),
];

/// The first one that the pattern may mean.
pub fn find(pattern: &str) -> Option<(&'static str, &'static str)> {
    let last = |path: &str| path.rsplit(['.', '/']).next().unwrap_or_default().to_owned();
    let is_meant = |path: &str| glob::matches(path, &pattern.replace('.', "/")) || glob::meets(pattern, path);
    let written = pattern.replace('/', ".");
    // In a name with dots for all that separates its parts, a star reaches over them.
    let is_below = |path: &str| {
        path.ends_with('*') && (glob::matches(path, &written) || path.strip_suffix(".*") == Some(&*written))
    };
    let by_path =
        ABSENT.iter().find(|(path, _)| is_below(path) || (is_meant(path) && last(path) == last(pattern)));
    by_path.map(|(path, reason)| (*path, *reason))
}
