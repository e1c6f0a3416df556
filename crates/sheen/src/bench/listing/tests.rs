use super::*;

/// Other tests of this process take and give back memory meanwhile.
#[test]
fn the_peak_of_a_process_is_seen() {
    const BYTES: usize = 64 << 20;
    const BLOCKS_MAX: usize = 16;
    let meter = MemoryMeter::start(std::process::id()).expect("this process");
    let is_seen = |meter: &MemoryMeter| meter.peak.load(Ordering::Relaxed) >= meter.before + BYTES as u64 / 2;
    let mut memory = Vec::new();
    while !is_seen(&meter) && memory.len() < BLOCKS_MAX {
        memory.push(vec![1u8; BYTES]);
        for _ in 0..100 {
            if !is_seen(&meter) {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
    drop(std::hint::black_box(memory));
    let seen = meter.stop().expect("it lives");
    assert!(seen.peak >= seen.before + BYTES as u64 / 2, "{seen:?}");
    assert!(MemoryMeter::start(u32::MAX).is_none(), "no such process");
}
