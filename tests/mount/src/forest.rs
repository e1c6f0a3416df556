//! Trees of files whose contents follow from a seed, so that they can be checked without being kept.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::case::{expect_bytes, expect_eq, names};
use crate::random::Random;

/// Sizes at which block, page, stripe and request borders lie.
pub const SIZES: [usize; 14] = [
    0,
    1,
    100,
    4095,
    4096,
    4097,
    65_535,
    65_536,
    1_000_000,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    (4 << 20) + 3,
    (8 << 20) + 1,
];

/// One file: its name and what it holds.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub name: String,
    pub byte_count: usize,
    pub seed: u64,
}

impl Leaf {
    /// The contents that the seed gives.
    pub fn bytes(&self) -> Vec<u8> {
        Random::new(self.seed).bytes(self.byte_count)
    }
}

/// Files of every size in `SIZES` under names of their own.
pub fn every_size(seed: u64) -> Vec<Leaf> {
    let leaf = |(index, byte_count): (usize, &usize)| Leaf {
        name: format!("size{byte_count}"),
        byte_count: *byte_count,
        seed: seed + index as u64,
    };
    SIZES.iter().enumerate().map(leaf).collect()
}

/// Writes the files into a new directory.
pub fn plant(directory: &Path, leaves: &[Leaf]) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("mkdir {}", directory.display()))?;
    for leaf in leaves {
        let path = directory.join(&leaf.name);
        fs::write(&path, leaf.bytes()).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Checks that the directory holds exactly these files with exactly these contents.
pub fn check(directory: &Path, leaves: &[Leaf]) -> Result<()> {
    let mut expected: Vec<String> = leaves.iter().map(|leaf| leaf.name.clone()).collect();
    expected.sort();
    expect_eq(names(directory)?, expected, &format!("names in {}", directory.display()))?;
    for leaf in leaves {
        let path = directory.join(&leaf.name);
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        expect_bytes(&bytes, &leaf.bytes(), &path.display().to_string())?;
    }
    Ok(())
}
