use super::*;

#[test]
fn the_peak_of_a_process_is_seen_and_what_it_gives_back_is_not_taken_for_the_peak() {
    const BYTES: usize = 64 << 20;
    let meter = MemoryMeter::start(std::process::id()).expect("this process");
    let memory = vec![1u8; BYTES];
    // Until it has been looked at.
    while meter.peak.load(Ordering::Relaxed) < meter.before + BYTES as u64 / 2 {
        std::thread::yield_now();
    }
    drop(std::hint::black_box(memory));
    let seen = meter.stop().expect("it lives");
    assert!(seen.peak >= seen.before + BYTES as u64 / 2, "{seen:?}");
    assert!(seen.after <= seen.peak, "{seen:?}");
    assert!(MemoryMeter::start(u32::MAX).is_none(), "no such process");
}
