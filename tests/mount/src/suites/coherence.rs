//! Two mounts see each other's changes at once: names (absent ones too), attributes, xattrs, data, locks, and every FUSE hazard of
//! the reference. Each case runs many rounds, because a stale cache shows only sometimes.

use crate::case::{Bed, Case, Suite};

mod contents;
mod direct;
mod hazards;
mod names;
mod races;
mod streams;
mod waiting;

/// The suite.
pub static SUITE: Suite =
    Suite { name: "coherence", bed: Bed::Pair, cases: CASES, rounds: &[], canary: Some("name_appears") };

static CASES: &[Case] = &[
    Case { name: "name_appears", seconds: 120, run: names::appears },
    Case { name: "name_disappears", seconds: 120, run: names::disappears },
    Case { name: "negative_name_revoked", seconds: 120, run: names::negative_revoked },
    Case { name: "negative_directory_revoked", seconds: 120, run: names::negative_directory },
    Case { name: "names_in_use_stay", seconds: 120, run: names::in_use_stay },
    Case { name: "rename_seen", seconds: 120, run: names::rename_seen },
    Case { name: "rename_replaced_seen", seconds: 120, run: names::rename_replaced },
    Case { name: "rename_of_parent_seen", seconds: 120, run: names::parent_renamed },
    Case { name: "exchange_seen", seconds: 120, run: names::exchange_seen },
    Case { name: "recreate_under_same_name", seconds: 120, run: names::recreated },
    Case { name: "listing_after_change", seconds: 120, run: names::listing },
    Case { name: "listing_with_attributes", seconds: 120, run: names::listing_attributes },
    Case { name: "symlink_replaced", seconds: 120, run: names::symlink_replaced },
    Case { name: "hard_link_count_seen", seconds: 120, run: names::link_count },
    Case { name: "mode_and_owner_seen", seconds: 120, run: names::mode_and_owner },
    Case { name: "owner_judged", seconds: 120, run: names::owner_judged },
    Case { name: "permission_change_enforced", seconds: 120, run: names::permission_enforced },
    Case { name: "times_seen", seconds: 120, run: names::times },
    Case { name: "times_of_a_late_close", seconds: 120, run: names::times_before_close },
    Case { name: "size_seen", seconds: 120, run: contents::size },
    Case { name: "size_through_open_descriptor", seconds: 120, run: contents::size_of_open },
    Case { name: "xattr_seen", seconds: 120, run: contents::xattrs },
    Case { name: "xattr_list_seen", seconds: 120, run: contents::xattr_lists },
    Case { name: "acl_change_enforced", seconds: 120, run: contents::acl_enforced },
    Case { name: "write_then_read", seconds: 120, run: contents::write_then_read },
    Case { name: "write_then_read_open_descriptors", seconds: 120, run: contents::open_descriptors },
    Case { name: "overwrite_within_a_page", seconds: 120, run: contents::within_a_page },
    Case { name: "append_seen", seconds: 120, run: contents::append_seen },
    Case { name: "truncate_seen", seconds: 120, run: contents::truncate_seen },
    Case { name: "truncate_then_extend_zeros", seconds: 120, run: contents::truncate_extend },
    Case { name: "punch_hole_seen", seconds: 120, run: contents::punch_seen },
    Case { name: "direct_io_against_cache", seconds: 120, run: contents::direct_against_cache },
    Case { name: "mapped_read_sees_write", seconds: 120, run: contents::mapped_read },
    Case { name: "mapped_privately_past_the_cache", seconds: 120, run: contents::mapped_privately },
    Case { name: "stream_against_writes", seconds: 240, run: streams::against_writes },
    Case { name: "stream_against_own_writers", seconds: 240, run: streams::against_own_writers },
    Case { name: "stream_against_truncates", seconds: 240, run: streams::against_truncates },
    Case { name: "mapped_store_seen", seconds: 120, run: contents::mapped_store },
    Case { name: "stored_after_close_seen", seconds: 120, run: contents::stored_after_close },
    Case { name: "unlinked_while_open_elsewhere", seconds: 120, run: contents::unlinked_open },
    Case { name: "replaced_while_open_elsewhere", seconds: 120, run: contents::replaced_open },
    Case { name: "exclusive_create_race", seconds: 240, run: races::exclusive_create },
    Case { name: "mkdir_race", seconds: 240, run: races::mkdir },
    Case { name: "rename_race", seconds: 240, run: races::rename },
    Case { name: "link_unlink_race", seconds: 240, run: races::link_unlink },
    Case { name: "append_race", seconds: 240, run: races::append },
    Case { name: "disjoint_writes_race", seconds: 240, run: races::disjoint_writes },
    Case { name: "direct_writes_side_by_side", seconds: 120, run: direct::side_by_side },
    Case { name: "asynchronous_appends_race", seconds: 240, run: direct::asynchronous_appends },
    Case { name: "asynchronous_append_that_fails", seconds: 120, run: direct::failed_append },
    Case { name: "reads_and_writes_across_stripes", seconds: 240, run: races::across_stripes },
    Case { name: "counter_under_flock", seconds: 240, run: races::counter_flock },
    Case { name: "counter_under_posix_lock", seconds: 240, run: races::counter_posix },
    Case { name: "end_under_locks", seconds: 240, run: races::end_under_locks },
    Case { name: "lookup_against_create_and_unlink", seconds: 240, run: races::lookup_storm },
    Case { name: "atomic_replace_never_torn", seconds: 240, run: races::atomic_replace },
    Case { name: "flock_handed_over", seconds: 120, run: waiting::flock_handover },
    Case { name: "posix_lock_handed_over", seconds: 120, run: waiting::posix_handover },
    Case { name: "ofd_lock_handed_over", seconds: 120, run: waiting::ofd_handover },
    Case { name: "deadlock_found", seconds: 120, run: waiting::deadlock },
    Case { name: "deadlock_over_mdts_found", seconds: 120, run: waiting::deadlock_over_mdts },
    Case { name: "hazard_3_1_names_while_directory_is_busy", seconds: 240, run: hazards::busy_directory },
    Case { name: "hazard_3_2_revoked_while_introduced", seconds: 240, run: hazards::introduced },
    Case { name: "hazard_3_3_listing_against_revocation", seconds: 240, run: hazards::listing_revoked },
    Case { name: "hazard_3_4_read_against_revocation", seconds: 240, run: hazards::read_revoked },
    Case { name: "hazard_3_5_mapped_page_shared", seconds: 240, run: hazards::mapped_page },
    Case { name: "hazard_3_6_append_offset", seconds: 240, run: hazards::append_offset },
    Case { name: "hazard_3_7_store_over_dirty", seconds: 240, run: hazards::dirty_page },
    Case { name: "hazard_3_8_many_children", seconds: 180, run: hazards::many_children },
    Case { name: "hazard_3_9_waiting_locks_of_one_cpu", seconds: 240, run: hazards::waiting_locks },
    Case { name: "hazard_3_11_unmount_flushes", seconds: 240, run: hazards::unmount_flushes },
];
