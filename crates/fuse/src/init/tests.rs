#![allow(clippy::unwrap_used)]
use super::*;

fn kernel(minor: u32, flags: u64) -> abi::InitIn {
    abi::InitIn {
        major: 7,
        minor,
        max_readahead: 131072,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        ..Default::default()
    }
}

#[test]
fn nothing_is_taken_that_was_not_offered() {
    let offered = init::ASYNC_READ | init::INIT_EXT | init::MAX_PAGES | init::ATOMIC_O_TRUNC;
    let (out, negotiated) = answer(&kernel(38, offered), &MountOptions::default(), true).unwrap();
    assert_eq!(negotiated.flags, init::ASYNC_READ | init::INIT_EXT | init::MAX_PAGES);
    assert_eq!(out.minor, 38);
    assert!(!negotiated.has_inc_epoch());
    assert_eq!(negotiated.transport, Transport::Device);
    assert_eq!(out.max_write, 1 << 20);
}

#[test]
fn atomic_truncation_and_writeback_are_never_taken() {
    let (_, negotiated) = answer(&kernel(45, u64::MAX), &MountOptions::default(), true).unwrap();
    assert_eq!(negotiated.flags & (init::ATOMIC_O_TRUNC | init::WRITEBACK_CACHE | init::AUTO_INVAL_DATA), 0);
    assert_eq!(negotiated.transport, Transport::Uring);
    assert!(negotiated.has_inc_epoch());
}

/// Without it the kernel asks for every listing with all attributes, or for none.
#[test]
fn listings_bring_attributes_where_the_kernel_sees_that_they_are_looked_at() {
    let both = init::DO_READDIRPLUS | init::READDIRPLUS_AUTO;
    let taken = |offered: u64| {
        let (out, negotiated) = answer(&kernel(38, offered), &MountOptions::default(), false).unwrap();
        assert_eq!(u64::from(out.flags), negotiated.flags, "the kernel is told what is in use");
        negotiated.flags
    };
    assert_eq!(taken(both | init::ASYNC_READ), both | init::ASYNC_READ);
    assert_eq!(taken(init::DO_READDIRPLUS), init::DO_READDIRPLUS, "an old kernel has no more");
}

#[test]
fn the_upper_flags_count_only_with_init_ext() {
    let offered = init::OVER_IO_URING | init::ASYNC_READ;
    let (_, negotiated) = answer(&kernel(42, offered), &MountOptions::default(), true).unwrap();
    assert_eq!(negotiated.flags, init::ASYNC_READ);
}

#[test]
fn a_newer_kernel_is_answered_with_our_version() {
    let (out, _) = answer(&kernel(99, init::INIT_EXT), &MountOptions::default(), false).unwrap();
    assert_eq!(out.minor, abi::KERNEL_MINOR_VERSION);
}

#[test]
fn an_ancient_kernel_and_a_missing_ring_are_errors() {
    let options = MountOptions { transport: TransportChoice::Uring, ..Default::default() };
    assert!(matches!(answer(&kernel(26, 0), &options, true), Err(MountError::Protocol { minor: 26, .. })));
    let no_ring = answer(&kernel(38, init::INIT_EXT), &options, true);
    assert!(matches!(no_ring, Err(MountError::UringUnavailable)));
}
