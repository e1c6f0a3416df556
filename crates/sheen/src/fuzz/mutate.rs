//! Inputs: noise, and valid bytes with damage of the kinds that disks, networks and enemies do.

use base::Rng;

const LENGTH_MAX: u64 = 600;
/// What a length field says when somebody means harm.
const EXTREMES: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX];

fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.below(bound.max(1) as u64) as usize
}

pub fn random(rng: &mut Rng) -> Vec<u8> {
    let length = rng.below(LENGTH_MAX);
    (0..length).map(|_| rng.next_u64() as u8).collect()
}

/// One input: noise once in eight, else a damaged example.
pub fn input(rng: &mut Rng, examples: &[Vec<u8>]) -> Vec<u8> {
    if rng.one_in(8) {
        return random(rng);
    }
    let mut bytes = rng.pick(examples).cloned().unwrap_or_default();
    for _ in 0..1 + rng.below(3) {
        damage(rng, &mut bytes, examples);
    }
    bytes
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, examples: &[Vec<u8>]) {
    let at = below(rng, bytes.len());
    match rng.below(9) {
        0..=2 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
        3 => bytes.truncate(at),
        4 => {
            // A part comes twice.
            let end = (at + below(rng, 64)).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        5 => {
            // A length field blown up.
            let extreme = rng.pick(&EXTREMES).copied().unwrap_or(0).to_le_bytes();
            let width = [1, 2, 4, 8][below(rng, 4)].min(bytes.len() - at.min(bytes.len()));
            bytes[at..at + width].copy_from_slice(&extreme[..width]);
        }
        6 => {
            // The end of another one.
            let other = rng.pick(examples).cloned().unwrap_or_default();
            let from = below(rng, other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        7 => {
            let noise = random(rng);
            bytes.extend_from_slice(&noise);
        }
        _ => {
            // A part is gone.
            let end = (at + below(rng, 16)).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}
