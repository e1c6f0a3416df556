//! How much memory the entries of a queue keep from the requests that they have had, while the kernel has them.
//!
//! It cannot be taken from an entry then, as the kernel may write the next request there at any time; only between an answer and its
//! commit. The kernel takes the entry first that it got back last, so those that a burst needed would keep what they had for ever.

/// All queues of a mount together, beside a few entries of each.
const KEPT_BYTES: usize = 32 << 20;
/// A queue at least: two requests of the greatest length.
const QUEUE_KEPT_BYTES_MIN: usize = 2 << 20;
/// With no more than so many others out, an entry is likely to be the next one again...
const NEXT_COUNT: usize = 4;

/// What is kept of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    bytes: usize,
    bytes_max: usize,
}

impl Kept {
    /// Of each of so many queues.
    pub fn new(queue_count: usize) -> Self {
        Self { bytes: 0, bytes_max: (KEPT_BYTES / queue_count.max(1)).max(QUEUE_KEPT_BYTES_MIN) }
    }

    /// Whether an entry with so much memory is to give back what it can, as so many others are out.
    pub fn is_too_much_with(&self, used_bytes: usize, others_out: usize) -> bool {
        let bytes = self.bytes + used_bytes;
        // ...and what those that are not have kept leaves it as much again.
        let bytes_max = if others_out < NEXT_COUNT { 2 * self.bytes_max } else { self.bytes_max };
        bytes > bytes_max
    }

    /// The kernel has got an entry that keeps so much.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// It has given one back.
    pub fn take(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Entries come back in the order of `out`, each having had a MiB. -> What is kept then.
    fn after_a_burst(queue_count: usize, out: impl Iterator<Item = usize>) -> usize {
        let mut kept = Kept::new(queue_count);
        for others_out in out {
            if !kept.is_too_much_with(MIB, others_out) {
                kept.add(MIB);
            }
        }
        kept.bytes
    }

    #[test]
    fn what_bursts_needed_is_not_kept() {
        assert_eq!(after_a_burst(2, (0..8).rev()), 8 * MIB);
        assert_eq!(after_a_burst(2, (0..256).rev()), 20 * MIB);
        // Whichever entries come back last, however often.
        assert_eq!(after_a_burst(2, std::iter::repeat_n((0..256).rev(), 100).flatten()), 32 * MIB);
        assert_eq!(after_a_burst(128, (0..256).rev()), 4 * MIB);
    }

    #[test]
    fn what_is_used_again_and_again_keeps_its_memory() {
        let mut kept = Kept::new(128);
        for _ in 0..1000 {
            kept.take(MIB);
            kept.take(MIB);
            assert!(!kept.is_too_much_with(MIB, 1));
            kept.add(MIB);
            assert!(!kept.is_too_much_with(MIB, 0));
            kept.add(MIB);
        }
    }
}
