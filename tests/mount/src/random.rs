//! A seeded generator (SplitMix64): the same seed gives the same test on every machine.

/// A seeded source of numbers and bytes.
#[derive(Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Random {
        Random { state: seed ^ 0x5EED_0F5E_E7F5_0001 }
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound` (0 when the bound is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// A number below `bound`, as a size.
    pub fn size(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// `byte_count` random bytes, never zero, so that a hole is told from data.
    pub fn bytes(&mut self, byte_count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(byte_count + 8);
        while bytes.len() < byte_count {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(byte_count);
        for byte in &mut bytes {
            *byte |= 1;
        }
        bytes
    }
}
