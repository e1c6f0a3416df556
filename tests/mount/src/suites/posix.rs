//! Every line of POSIX that SheenFS promises, one case each. Most write through one mount and look through the other.

use crate::case::{Bed, Case, Suite};

mod attributes;
mod callers;
mod data;
mod handles;
mod limits;
mod locks;
mod namespace;
mod opening;
mod striped;
mod xattrs;

/// The suite.
pub static SUITE: Suite =
    Suite { name: "posix", bed: Bed::Pair, cases: CASES, rounds: &[], canary: Some("append_across_mounts") };

static CASES: &[Case] = &[
    Case { name: "open_flags_exclusive", seconds: 30, run: opening::exclusive },
    Case { name: "open_flags_truncate", seconds: 30, run: opening::truncate },
    Case { name: "open_flags_direct", seconds: 30, run: opening::direct },
    Case { name: "open_flags_tmpfile", seconds: 30, run: opening::tmpfile },
    Case { name: "open_flags_path", seconds: 30, run: opening::path_only },
    Case { name: "open_flags_nofollow_directory", seconds: 30, run: opening::nofollow_and_directory },
    Case { name: "open_flags_sync", seconds: 30, run: opening::sync },
    Case { name: "open_access_modes", seconds: 30, run: opening::access_modes },
    Case { name: "open_mode_and_umask", seconds: 30, run: opening::mode_and_umask },
    Case { name: "append_across_mounts", seconds: 120, run: opening::append_across_mounts },
    Case { name: "execute_and_etxtbsy", seconds: 30, run: opening::execute },
    Case { name: "execute_without_reading", seconds: 30, run: opening::execute_without_reading },
    Case { name: "read_write_sizes", seconds: 60, run: data::sizes },
    Case { name: "pread_pwrite_far", seconds: 30, run: data::far_offsets },
    Case { name: "readv_writev_vectors", seconds: 30, run: data::vectors },
    Case { name: "mmap_private", seconds: 30, run: data::map_private },
    Case { name: "mmap_shared_store", seconds: 30, run: data::map_shared },
    Case { name: "mmap_shared_store_and_direct", seconds: 30, run: data::map_and_direct },
    Case { name: "truncate_both_ways", seconds: 30, run: data::truncate },
    Case { name: "fallocate_plain", seconds: 30, run: data::fallocate_plain },
    Case { name: "fallocate_keep_size", seconds: 30, run: data::fallocate_keep_size },
    Case { name: "fallocate_punch_hole", seconds: 30, run: data::fallocate_punch },
    Case { name: "fallocate_zero_range", seconds: 30, run: data::fallocate_zero },
    Case { name: "fallocate_collapse_insert_refused", seconds: 30, run: data::fallocate_refused },
    Case { name: "seek_hole_and_data", seconds: 30, run: data::seek_hole_data },
    Case { name: "copy_file_range", seconds: 30, run: data::copy_range },
    Case { name: "fsync_fdatasync_syncfs", seconds: 60, run: data::sync_calls },
    Case { name: "sheen_sync", seconds: 60, run: data::sheen_sync },
    Case { name: "setid_bits_cleared_on_write", seconds: 30, run: data::setid_cleared },
    Case { name: "mkdir_rmdir", seconds: 30, run: namespace::directories },
    Case { name: "mknod_kinds", seconds: 30, run: namespace::nodes },
    Case { name: "symlinks", seconds: 30, run: namespace::symlinks },
    Case { name: "hard_links", seconds: 30, run: namespace::links },
    Case { name: "unlink_rules", seconds: 30, run: namespace::unlink },
    Case { name: "open_unlinked", seconds: 30, run: namespace::open_unlinked },
    Case { name: "rename_replaces", seconds: 30, run: namespace::rename_replaces },
    Case { name: "rename_refusals", seconds: 30, run: namespace::rename_refusals },
    Case { name: "rename_noreplace", seconds: 30, run: namespace::rename_noreplace },
    Case { name: "rename_exchange", seconds: 30, run: namespace::rename_exchange },
    Case { name: "rename_whiteout_refused", seconds: 30, run: namespace::rename_bad_flags },
    Case { name: "cross_mdt_operations", seconds: 60, run: namespace::cross_mdt },
    Case { name: "files_by_handle", seconds: 120, run: handles::by_handle },
    Case { name: "paths_of_fids", seconds: 120, run: namespace::paths_of_fids },
    Case { name: "striped_directories", seconds: 120, run: striped::run },
    Case { name: "striped_by_default", seconds: 60, run: striped::defaults },
    Case { name: "placed_by_space", seconds: 60, run: striped::placed_by_space },
    Case { name: "fifo_and_socket", seconds: 30, run: namespace::fifo_and_socket },
    Case { name: "chmod_rules", seconds: 30, run: attributes::chmod },
    Case { name: "chown_rules", seconds: 30, run: attributes::chown },
    Case { name: "utimensat_rules", seconds: 30, run: attributes::utimensat },
    Case { name: "times_of_operations", seconds: 60, run: attributes::operation_times },
    Case { name: "link_counts", seconds: 30, run: attributes::link_counts },
    Case { name: "inode_numbers_stable", seconds: 30, run: attributes::inode_numbers },
    Case { name: "sticky_directory", seconds: 30, run: attributes::sticky },
    Case { name: "setgid_directory", seconds: 30, run: attributes::setgid_directory },
    Case { name: "supplementary_groups", seconds: 30, run: attributes::supplementary_groups },
    Case { name: "permission_checks", seconds: 30, run: attributes::permissions },
    Case { name: "callers_as_on_tmpfs", seconds: 60, run: callers::as_on_tmpfs },
    Case { name: "birth_time", seconds: 30, run: attributes::birth_time },
    Case { name: "blocks_and_block_size", seconds: 60, run: attributes::blocks },
    Case { name: "statfs", seconds: 30, run: attributes::statfs },
    Case { name: "xattr_user", seconds: 30, run: xattrs::user },
    Case { name: "xattr_trusted_security", seconds: 30, run: xattrs::privileged },
    Case { name: "xattr_large_values", seconds: 30, run: xattrs::large },
    Case { name: "xattr_refusals", seconds: 30, run: xattrs::refusals },
    Case { name: "acl_access", seconds: 30, run: xattrs::acl_access },
    Case { name: "acl_default_inherited", seconds: 30, run: xattrs::acl_default },
    Case { name: "flock", seconds: 60, run: locks::flock },
    Case { name: "locks_posix", seconds: 60, run: locks::posix },
    Case { name: "locks_posix_split_and_merge", seconds: 60, run: locks::split_and_merge },
    Case { name: "locks_posix_drop_on_any_close", seconds: 60, run: locks::dropped_on_close },
    Case { name: "locks_ofd", seconds: 60, run: locks::ofd },
    Case { name: "locks_edeadlk", seconds: 60, run: locks::deadlock },
    Case { name: "locks_wait_and_signal", seconds: 60, run: locks::wait_and_signal },
    Case { name: "locks_getlk", seconds: 60, run: locks::getlk },
    Case { name: "locks_freed_by_death", seconds: 60, run: locks::freed_by_death },
    Case { name: "names_of_255_bytes", seconds: 30, run: limits::long_names },
    Case { name: "names_of_any_bytes", seconds: 30, run: limits::odd_names },
    Case { name: "paths_of_4095_bytes", seconds: 60, run: limits::long_paths },
    Case { name: "link_count_limit_of_many", seconds: 60, run: limits::many_links },
    Case { name: "readdir_complete", seconds: 120, run: limits::readdir_complete },
    Case { name: "readdir_stable_under_change", seconds: 120, run: limits::readdir_stable },
    Case { name: "sparse_8_tib_one_stripe", seconds: 60, run: limits::sparse_one_stripe },
    Case { name: "sparse_60_tib_four_stripes", seconds: 60, run: limits::sparse_four_stripes },
    Case { name: "composite_layouts", seconds: 60, run: limits::composite },
    Case { name: "data_on_mdt", seconds: 60, run: limits::data_on_mdt },
    Case { name: "efbig_beyond_the_object_limit", seconds: 60, run: limits::too_big },
    Case { name: "remount_read_only", seconds: 60, run: limits::remount_read_only },
];
