#![allow(clippy::unwrap_used)]
use super::*;
use crate::Rng;

const K: u64 = 1 << 10;

fn layout(count: usize) -> Layout {
    Layout::plain(Fid::ROOT, 1, 64 << 10, (0..count as u16).collect())
}

fn component(id: u32, end_bytes: u64, stripe_size_bytes: u64, count: u16) -> Component {
    let stripe_size_bytes = stripe_size_bytes as u32;
    Component { id, end_bytes, stripe_size_bytes, osts: (0..count).collect(), pool: None }
}

/// Ends between rounds of the next component, other stripe sizes, and an end that is none.
fn composites() -> Vec<Layout> {
    let of = |components: &[Component]| Layout { fid: Fid::ROOT, components: components.to_vec() };
    vec![
        of(&[component(1, 64 * K, 64 * K, 1), component(2, Extent::EOF, 64 * K, 3)]),
        of(&[component(1, 64 * K, 64 * K, 1), component(2, Extent::EOF, 128 * K, 2)]),
        of(&[
            component(4, 128 * K, 64 * K, 2),
            component(5, 384 * K, 64 * K, 3),
            component(9, 512 * K, 256 * K, 1),
        ]),
        of(&[
            component(1, 256 * K, 64 * K, 4),
            component(2, 320 * K, 64 * K, 1),
            component(3, Extent::EOF, 64 * K, 4),
        ]),
    ]
}

fn all() -> Vec<Layout> {
    [1, 2, 3, 4].into_iter().map(layout).chain(composites()).collect()
}

const SIZES: [u64; 18] = [
    0, 1, 65_535, 65_536, 65_537, 131_072, 131_073, 200_000, 262_144, 262_145, 320_000, 327_680, 327_681,
    393_216, 393_217, 460_000, 524_287, 524_288,
];

#[test]
fn pieces_cover_the_extent_once_and_in_order() {
    for layout in all() {
        assert!(layout.is_valid(), "{layout:?}");
        let extent = Extent::new(50_000, 520_001);
        let mut at = extent.start;
        for piece in layout.pieces(extent) {
            assert_eq!(piece.file_offset_bytes, at);
            at += piece.object_extent.byte_count();
        }
        assert_eq!(at, extent.end);
    }
}

#[test]
fn parts_are_what_pieces_cover_of_each_object() {
    for layout in all() {
        for (start, end) in [(50_000, 520_001), (0, 1), (65_535, 65_537), (131_072, 262_144), (7, 7)] {
            let extent = Extent::new(start, end);
            let mut of_pieces = std::collections::BTreeMap::new();
            for piece in layout.pieces(extent) {
                let part: &mut Extent = of_pieces.entry(piece.stripe).or_insert(piece.object_extent);
                assert!(piece.object_extent.start <= part.end, "they have no gap: {layout:?}");
                part.end = part.end.max(piece.object_extent.end);
            }
            assert_eq!(layout.parts(extent), Vec::from_iter(of_pieces), "{extent:?} of {layout:?}");
        }
    }
}

#[test]
fn one_stripe_is_one_piece() {
    assert_eq!(layout(1).pieces(Extent::new(10, 10_000_000)).len(), 1);
}

/// Both ways: each byte has one place, and no two have the same one.
#[test]
fn a_byte_of_the_file_is_one_byte_of_one_object() {
    for layout in all() {
        let mut seen = std::collections::BTreeSet::new();
        for offset in (0..520_000).step_by(4096) {
            let pieces = layout.pieces(Extent::at(offset, 1));
            let [piece] = &pieces[..] else { panic!("{offset} is in {} pieces", pieces.len()) };
            let stripe = layout.stripe(piece.stripe).unwrap();
            assert!(seen.insert((stripe.object, piece.object_extent.start)), "{offset} in {layout:?}");
            assert_eq!(stripe.file_offset(piece.object_extent.start), offset);
            assert_eq!(stripe.object_offset_at(offset), piece.object_extent.start);
            assert_eq!(stripe.file_range(piece.object_extent), Extent::at(offset, 1));
            assert!(stripe.has_unit(offset / stripe.unit_bytes));
            assert!(stripe.file_extent.contains(Extent::at(offset, 1)));
        }
    }
}

#[test]
fn an_object_is_the_stripe_that_it_is_of() {
    for layout in all() {
        for stripe in layout.stripes() {
            assert_eq!(layout.stripe_of(layout.object(stripe)), Some(stripe));
        }
        assert_eq!(layout.stripe_count() as usize, layout.osts().count());
        assert_eq!(layout.stripe(layout.stripe_count()), None);
        let other = ObjectId { component: 77, ..layout.object(0) };
        assert_eq!(layout.stripe_of(other), None);
        let behind = ObjectId { stripe: 99, ..layout.object(0) };
        assert_eq!(layout.stripe_of(behind), None);
    }
}

#[test]
fn file_size_and_object_size_agree() {
    for layout in all() {
        for size in SIZES {
            let sizes =
                layout.stripes().map(|stripe| layout.file_size(stripe, layout.object_size(stripe, size)));
            assert_eq!(sizes.max().unwrap(), size, "{layout:?}, {size} bytes");
        }
    }
}

/// A truncate cuts what is behind the new end, and nothing else.
#[test]
fn an_object_cut_to_its_size_has_exactly_the_bytes_in_front() {
    for layout in all() {
        for size in SIZES {
            for offset in SIZES.into_iter().filter(|offset| *offset < 524_288) {
                for piece in layout.pieces(Extent::at(offset, 1)) {
                    let is_kept = piece.object_extent.end <= layout.object_size(piece.stripe, size);
                    assert_eq!(is_kept, offset < size, "byte {offset} of {size} in {layout:?}");
                }
            }
        }
    }
}

/// What an object shows of the end of its file is never more than the file has.
#[test]
fn no_object_of_a_file_explains_more_than_its_size() {
    let mut rng = Rng::new(7);
    for layout in composites() {
        for _ in 0..500 {
            let extent = Extent::new(rng.below(500_000), 500_000 + rng.below(20_000));
            let pieces = layout.pieces(extent);
            let ends = pieces.iter().map(|piece| layout.file_size(piece.stripe, piece.object_extent.end));
            assert_eq!(ends.max(), Some(extent.end));
        }
    }
}

#[test]
fn objects_behind_the_end_of_the_file_are_empty() {
    let [first, ..] = &composites()[..] else { panic!() };
    assert_eq!(first.object_size(0, 200_000), 65_536);
    // Of the second component, which begins in its second stripe.
    let sizes = |size| [1, 2, 3].map(|stripe| first.object_size(stripe, size));
    assert_eq!(sizes(65_536), [0, 0, 0]);
    assert_eq!(sizes(65_537), [0, 1, 0]);
    assert_eq!(sizes(262_144), [131_072, 65_536, 65_536]);
    assert_eq!(first.object_bytes_max(262_144), 131_072);
}

/// Locks are often larger than what was asked for.
#[test]
fn an_extent_of_an_object_is_in_its_component() {
    let third = composites().remove(2);
    let ranges = third.stripes().map(|stripe| third.stripe(stripe).unwrap().file_range(Extent::WHOLE));
    let (a, b, c) = (Extent::new(0, 128 * K), Extent::new(128 * K, 384 * K), Extent::new(384 * K, 512 * K));
    // The first has no unit of the file's first, and so on.
    let starts = [0, 64 * K];
    let ranges: Vec<Extent> = ranges.collect();
    assert_eq!(ranges[..2], [a, Extent::new(starts[1], a.end)]);
    assert_eq!(ranges[2..], [b, b, b, c]);
    assert!(third.stripe(5).unwrap().file_range(Extent::new(0, 4096)).is_empty());
}

#[test]
fn nothing_is_behind_the_last_component() {
    let third = composites().remove(2);
    assert_eq!(third.end_bytes(), 512 * K);
    assert!(third.pieces(Extent::at(512 * K, 100)).is_empty());
    assert_eq!(third.pieces(Extent::new(512 * K - 1, 513 * K)).len(), 1);
    assert_eq!(third.next_component_id(), 10);
}

#[test]
fn bytes_of_a_peer_make_no_valid_layout_that_cannot_be_computed_with() {
    let good = composites().remove(2);
    let broken = |change: fn(&mut Layout)| {
        let mut layout = good.clone();
        change(&mut layout);
        !layout.is_valid()
    };
    assert!(broken(|layout| layout.components[1].end_bytes = 128 * K));
    assert!(broken(|layout| layout.components[1].end_bytes = 385 * K));
    assert!(broken(|layout| layout.components[0].end_bytes = 0));
    assert!(broken(|layout| layout.components[1].end_bytes = Extent::EOF));
    assert!(broken(|layout| layout.components[1].id = 4));
    assert!(broken(|layout| layout.components[0].id = 0));
    assert!(broken(|layout| layout.components[2].id = u32::MAX));
    assert!(broken(|layout| layout.components[1].osts.clear()));
    assert!(broken(|layout| layout.components[1].stripe_size_bytes = 0));
    assert!(broken(|layout| layout.components[1].stripe_size_bytes = 1000));
    assert!(broken(|layout| layout.components[1].osts = vec![0; 2000]));
    assert!(broken(|layout| {
        let next = |at: u32| component(10 + at, 512 * K + u64::from(at + 1) * 64 * K, 64 * K, 1);
        layout.components.extend((0..14).map(next));
    }));
}

/// Rows and messages from before there were components have these bytes.
#[test]
fn a_plain_layout_is_written_as_before_there_were_components() {
    let layout = layout(2);
    let bytes = borsh::to_vec(&layout).unwrap();
    let before = borsh::to_vec(&(Fid::ROOT, 1_u32, 65_536_u32, vec![0_u16, 1])).unwrap();
    assert_eq!(bytes, before);
    assert_eq!(Layout::try_from_slice(&bytes).unwrap(), layout);
    let none = borsh::to_vec(&(Fid::ROOT, 1_u32, 0_u32, Vec::<u16>::new())).unwrap();
    assert!(!Layout::try_from_slice(&none).unwrap().has_objects());
}

#[test]
fn composite_layouts_survive_being_written() {
    for layout in composites() {
        assert_eq!(Layout::try_from_slice(&borsh::to_vec(&layout).unwrap()).unwrap(), layout);
    }
}

/// Such a layout may come from a peer.
#[test]
fn without_objects_nothing_is_computed() {
    let none = Layout::default();
    assert!(none.is_valid());
    assert_eq!((none.file_size(3, 100), none.object_size(3, 100)), (0, 0));
    assert!(none.pieces(Extent::at(0, 100)).is_empty());
    assert_eq!((none.end_bytes(), none.object_bytes_max(100)), (0, 0));
}

#[test]
fn a_pool_survives_being_written() {
    let mut plain = layout(2);
    plain.components[0].pool = "flash".parse().ok();
    let mut composite = composites().remove(2);
    composite.components[1].pool = "disk".parse().ok();
    for layout in [plain, composite] {
        let bytes = borsh::to_vec(&layout).unwrap();
        assert_eq!(Layout::try_from_slice(&bytes).unwrap(), layout);
    }
}

/// Rows of files from before there were pools have these bytes.
#[test]
fn components_without_a_pool_are_written_as_before() {
    let layout = composites().remove(0);
    let components: Vec<Unpooled> =
        vec![(1, 64 << 10, 64 << 10, vec![0]), (2, Extent::EOF, 64 << 10, vec![0, 1, 2])];
    let before = borsh::to_vec(&(Fid::ROOT, u32::MAX, components)).unwrap();
    assert_eq!(borsh::to_vec(&layout).unwrap(), before);
}
