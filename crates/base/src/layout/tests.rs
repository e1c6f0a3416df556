#![allow(clippy::unwrap_used)]
use super::*;

fn layout(count: usize) -> Layout {
    Layout { fid: Fid::ROOT, component: 1, stripe_size_bytes: 64 << 10, osts: (0..count as u16).collect() }
}

#[test]
fn pieces_cover_the_extent_once_and_in_order() {
    for count in [1, 2, 3, 4] {
        let layout = layout(count);
        let extent = Extent::new(50_000, 900_001);
        let mut at = extent.start;
        for piece in layout.pieces(extent) {
            assert_eq!(piece.file_offset_bytes, at);
            at += piece.object_extent.byte_count();
        }
        assert_eq!(at, extent.end);
    }
}

#[test]
fn one_stripe_is_one_piece() {
    assert_eq!(layout(1).pieces(Extent::new(10, 10_000_000)).len(), 1);
}

#[test]
fn file_size_and_object_size_agree() {
    for count in [1, 2, 3, 4] {
        let layout = layout(count);
        for size in [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000, 262_144, 262_145, 1_000_000] {
            let sizes =
                (0..count as u32).map(|stripe| layout.file_size(stripe, layout.object_size(stripe, size)));
            assert_eq!(sizes.max().unwrap(), size, "{count} stripes, {size} bytes");
        }
    }
}

/// Such a layout may come from a peer: it is valid, and its stripe size may be anything.
#[test]
fn without_objects_nothing_is_computed() {
    let none = Layout { stripe_size_bytes: 0, ..layout(0) };
    assert!(none.is_valid());
    assert_eq!((none.file_size(3, 100), none.object_size(3, 100)), (0, 0));
    assert!(none.pieces(Extent::at(0, 100)).is_empty());
}
