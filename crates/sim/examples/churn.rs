//! `cargo run -p sim --example churn -- CLIENTS A..B [planted]`: the scenario without building the whole binary.

use sim::churn::{ChurnOptions, Policy};
use sim::command::{Command, run_churn};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let client_count = args.get(1).and_then(|text| text.parse().ok()).unwrap_or(50);
    let (from, to) = args.get(2).and_then(|text| Command::seeds(text)).unwrap_or((0, 20));
    let options = ChurnOptions { client_count, policy: Policy::Both, trace_count: 0 };
    #[cfg(feature = "planted-faults")]
    if args.iter().any(|arg| arg == "planted") {
        std::process::exit(i32::from(!sim::planted::run_churn(&options, 2)));
    }
    if args.iter().any(|arg| arg == "verbose") {
        let outcome = sim::churn::run(from, &ChurnOptions { trace_count: 1_000_000, ..options });
        outcome.trace.iter().for_each(|line| println!("{line}"));
        println!("{:?}", outcome.violation);
        return;
    }
    std::process::exit(i32::from(!run_churn(from, to, &options, 2)));
}
