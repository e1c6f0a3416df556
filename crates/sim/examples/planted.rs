//! `cargo run -p sim --features planted-faults --example planted`: `sheen sim --planted` without building the whole binary.

fn main() {
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    std::process::exit(i32::from(!sim::planted::run(&sim::Options::default(), thread_count)));
}
