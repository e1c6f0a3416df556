//! Which pages of a mapped file each process touches, and in which order.

use base::Rng;

pub const PAGE_BYTES: u64 = 4096;
const MIB_PAGES: u64 = (1 << 20) / PAGE_BYTES;
/// 256 KiB of every MiB.
const STRIDE_PAGES: u64 = MIB_PAGES / 4;
/// At random a process touches one page in so many of the file's: 16 of them a sixteenth of it, together.
const RANDOM_SHARE: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pattern {
    /// Every page, front to back
    Seq,
    /// The first 256 KiB of every MiB, front to back
    Stride,
    /// One page in 256, in a seeded order of each process; a page may come twice
    Random,
}

impl Pattern {
    pub const ALL: [Pattern; 3] = [Pattern::Seq, Pattern::Stride, Pattern::Random];

    pub fn word(self) -> &'static str {
        match self {
            Pattern::Seq => "seq",
            Pattern::Stride => "stride",
            Pattern::Random => "random",
        }
    }

    /// Numbers of the pages that the process of this number touches, in its order.
    pub fn pages(self, page_count: u64, process: u32) -> Box<dyn Iterator<Item = u64>> {
        match self {
            Pattern::Seq => Box::new(0..page_count),
            Pattern::Stride => Box::new((0..page_count).filter(|page| page % MIB_PAGES < STRIDE_PAGES)),
            Pattern::Random => {
                let mut rng = Rng::new(u64::from(process));
                let count = (page_count / RANDOM_SHARE).max(1);
                Box::new((0..count).map(move |_| rng.below(page_count)))
            }
        }
    }

    /// Bytes of the pages that any of the processes touches, each page once.
    pub fn needed_bytes(self, page_count: u64, process_count: u32) -> u64 {
        let mut is_touched = vec![false; page_count as usize];
        for page in (0..process_count).flat_map(|process| self.pages(page_count, process)) {
            if let Some(is_touched) = is_touched.get_mut(page as usize) {
                *is_touched = true;
            }
        }
        is_touched.into_iter().filter(|is_touched| *is_touched).count() as u64 * PAGE_BYTES
    }
}

#[cfg(test)]
mod tests;
