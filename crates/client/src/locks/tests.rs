use super::*;

const TIB: u64 = 1 << 40;

/// The chunks over a range when the kernel has no pages in it.
fn chunks(mut start: u64, end: u64) -> Vec<Extent> {
    let (mut found, mut wanted_bytes) = (Vec::new(), CHUNK_BYTES);
    while start < end.min(KERNEL_EOF) {
        let chunk = chunk_at(start, wanted_bytes, end);
        wanted_bytes = next_chunk_bytes(wanted_bytes, false, Duration::from_millis(1));
        start = chunk.end;
        found.push(chunk);
    }
    found
}

#[test]
fn chunks_cover_a_sparse_file_in_few_steps() {
    for (start, end) in [(0, 60 * TIB), (4096, 16 * TIB), (0, Extent::EOF), (KERNEL_EOF - 4095, Extent::EOF)]
    {
        let chunks = chunks(start, end);
        assert!(chunks.len() < 30, "{start}..{end}: {} chunks", chunks.len());
        assert_eq!(chunks.first().map(|chunk| chunk.start), Some(start));
        assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(chunks.last().is_some_and(|last| last.end >= end.min(KERNEL_EOF) && last.end <= KERNEL_EOF));
    }
}

#[test]
fn a_short_lock_takes_nothing_far_behind_it() {
    let chunks = chunks(0, CHUNK_BYTES + PAGE_BYTES);
    assert_eq!(chunks, [Extent::at(0, CHUNK_BYTES), Extent::at(CHUNK_BYTES, CHUNK_BYTES)]);
}

#[test]
fn a_chunk_that_is_read_in_or_takes_long_is_smaller_the_next_time() {
    let soon = Duration::from_millis(1);
    assert_eq!(next_chunk_bytes(TIB, true, soon), CHUNK_BYTES);
    assert_eq!(next_chunk_bytes(TIB, false, Duration::from_millis(200)), TIB / 2);
    assert_eq!(next_chunk_bytes(CHUNK_BYTES, false, Duration::from_millis(200)), CHUNK_BYTES);
    assert_eq!(next_chunk_bytes(u64::MAX, false, soon), u64::MAX);
}
