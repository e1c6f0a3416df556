//! `cargo run -p sim --example sweep -- SEEDS [STEPS] [quiet]`: a sweep without building the whole binary.

use sim::command::Command;
use sim::{Options, Weather};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (from, to) = args.get(1).and_then(|text| Command::seeds(text)).unwrap_or((0, 100));
    let steps = args.get(2).and_then(|text| text.parse().ok()).unwrap_or(200);
    let mut options = Options { steps, ..Options::default() };
    if args.iter().any(|arg| arg == "fair") {
        options.weather = Weather {
            has_loss: false,
            has_crashes: false,
            has_partitions: false,
            has_deaths: false,
            has_full_disks: false,
            has_evictions: false,
        };
    }
    for arg in &args {
        match arg.as_str() {
            "noloss" => options.weather.has_loss = false,
            "nocrash" => options.weather.has_crashes = false,
            "nopart" => options.weather.has_partitions = false,
            "nodeath" => options.weather.has_deaths = false,
            "nofull" => options.weather.has_full_disks = false,
            "noevict" => options.weather.has_evictions = false,
            "blackouts" => options.blackout_one_in = 3,
            "onemdt" => options.mdt_count = 1,
            _ => {}
        }
    }
    #[cfg(feature = "planted-faults")]
    if let Some(name) = args.iter().find_map(|arg| arg.strip_prefix("plant=")) {
        base::fault::plant(base::fault::Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name));
    }
    #[cfg(feature = "planted-faults")]
    if args.iter().any(|arg| arg == "planted-table") {
        std::process::exit(i32::from(!sim::crash_table::print_planted(2)));
    }
    let is_verbose = args.iter().any(|arg| arg == "verbose");
    let command = Command { from, to, options, thread_count: 2, is_verbose };
    std::process::exit(i32::from(!command.run()));
}
