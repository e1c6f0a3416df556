//! Every decoder meets random bytes and damaged valid ones: it refuses or accepts, never panics, and takes no more
//! memory than the bytes in front of it justify. Inputs follow from a fixed seed, so a failure comes again.
//!
//! A new decoder is one line in `decoders::all`.

mod allocator;
mod decoders;
mod machines;
mod mount;
mod mutate;

use base::Rng;
use decoders::Decoder;

/// Inputs of each decoder.
const ROUNDS: usize = 2000;
/// A decoder may take this much whatever it reads: borsh makes room for 1 MiB of a byte string before it looks for the
/// bytes; the rest is messages of errors and tables of parsers …
const PLAIN_BYTES_MAX: usize = (1 << 20) + (256 << 10);
/// … and this much for each byte that it reads.
const BYTES_PER_BYTE_MAX: usize = 64;

/// `SHEEN_FUZZ_SEED` chooses other inputs, `SHEEN_FUZZ_FACTOR` more of them.
fn seed() -> u64 {
    number_of("SHEEN_FUZZ_SEED").unwrap_or(0x5eed)
}

fn factor() -> usize {
    number_of("SHEEN_FUZZ_FACTOR").unwrap_or(1) as usize
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn feed(decoder: &Decoder, input: &[u8]) -> bool {
    let (is_accepted, peak_bytes) = allocator::peak_of(|| (decoder.read)(input));
    let allowed_bytes = PLAIN_BYTES_MAX + BYTES_PER_BYTE_MAX * input.len();
    assert!(
        peak_bytes <= allowed_bytes,
        "{} took {peak_bytes} bytes of memory for {} of input: {:02x?}",
        decoder.name,
        input.len(),
        input.get(..64).unwrap_or(input)
    );
    is_accepted
}

#[test]
fn no_decoder_panics_or_takes_memory_for_nothing() {
    for decoder in decoders::all() {
        let mut rng = Rng::new(seed());
        let examples = (decoder.examples)();
        assert!(!examples.is_empty(), "{} has valid examples", decoder.name);
        let mut accepted_count = 0;
        for round in 0..ROUNDS * factor() {
            let mut input = mutate::input(&mut rng, &examples);
            // Half of them pass the checksum, or nothing behind it is ever reached.
            if let Some(seal) = decoder.seal.filter(|_| round % 2 == 0) {
                seal(&mut input);
            }
            accepted_count += usize::from(feed(&decoder, &input));
        }
        if decoder.seal.is_some() {
            assert!(accepted_count > 0, "{}: sealed inputs come through the checksum", decoder.name);
        }
    }
}

/// Without this the test above could feed nothing but noise.
#[test]
fn every_decoder_reads_its_valid_examples() {
    for decoder in decoders::all() {
        for example in (decoder.examples)() {
            assert!(feed(&decoder, &example), "{} refuses {example:02x?}", decoder.name);
        }
    }
}

/// The canary of the allocator: a decoder that believes a length field is found.
#[test]
#[should_panic(expected = "bytes of memory")]
fn a_decoder_that_believes_a_length_is_found() {
    let believes = |bytes: &[u8]| {
        let length =
            bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize % (64 << 20));
        !std::hint::black_box(Vec::<u8>::with_capacity(length)).is_empty()
    };
    let decoder = Decoder { name: "believes", examples: Vec::new, read: believes, seal: None };
    let mut rng = Rng::new(1);
    for _ in 0..100 {
        feed(&decoder, &mutate::random(&mut rng));
    }
}

#[test]
fn a_mount_survives_answers_that_make_no_sense() {
    mount::feed();
}

#[test]
fn servers_answer_requests_that_make_no_sense() {
    machines::feed_all();
}
