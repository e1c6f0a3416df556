//! SheenFS, the binary: servers, mounts, and the tools around them.

mod alive;
mod bench;
mod cli;
mod cluster;
mod control;
mod daemon;
mod failover;
mod fsck;
#[cfg(test)]
mod fuzz;
mod generate;
mod health;
mod helpers;
mod image;
mod in_use;
mod ioctl;
mod lctl;
mod lfs;
mod listen;
mod logging;
mod memory;
mod metrics;
mod mkfs;
mod mount;
mod mount_table;
mod nid;
mod node;
mod others;
mod params;
mod path_words;
mod pools;
mod progress;
mod restored;
mod say;
mod serve_file;
mod served;
mod signals;
mod simulate;
mod spelling;
mod status;
mod sys;
mod target_dir;
mod targets;
mod up;
mod upgrade;

/// Requests are made of small pieces that one thread takes and another gives back. Its huge pages are switched off (`no_thp`): each
/// connection has a thread, and each thread its own pages.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use clap::Parser;
use cli::{Cli, Command};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match cli::as_sheen(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            say::note(error);
            return ExitCode::from(2);
        }
    };
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let line = cli::no_text(&arguments)
                .map_or_else(|| usage_line(&error, &arguments), |line| one_line(&line));
            say::note(line);
            return ExitCode::from(match arguments.get(1).and_then(|word| word.to_str()) {
                Some("fsck") => fsck::USAGE,
                Some("health") => health::USAGE,
                _ => 2,
            });
        }
        Err(help) => {
            // Nobody to tell when standard output is closed.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    if matches!(
        cli.command,
        Command::Mounts(_)
            | Command::Status(_)
            | Command::Lfs(_)
            | Command::Lctl(_)
            | Command::Metrics(_)
            | Command::Bench(_)
            | Command::Sim(_)
    ) {
        sys::end_without_reader();
    }
    logging::hush_contained_panics();
    match run(&cli.command) {
        Ok(status) => status,
        Err(error) => {
            say::note(one_line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Up(arguments) => up::up(arguments),
        Command::Down(arguments) => up::down(arguments),
        Command::Serve(arguments) => node::serve(arguments),
        Command::Failover(arguments) => lctl::failover(arguments),
        Command::Mkfs(arguments) => mkfs::mkfs(arguments),
        Command::Upgrade(arguments) => upgrade::upgrade(arguments),
        Command::Restored(arguments) => restored::restored(arguments),
        Command::Mount(arguments) => node::mount(arguments),
        Command::Umount(arguments) => status::umount(arguments),
        Command::InstallHelpers(arguments) => helpers::install(arguments),
        Command::Mounts(arguments) => status::mounts(arguments),
        Command::Status(arguments) => status::status(arguments),
        Command::Metrics(arguments) => metrics::run(arguments),
        Command::Sync { path } => status::sync(path),
        Command::Lfs(arguments) => lfs::run(arguments),
        Command::Lctl(arguments) => lctl::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Sim(arguments) => simulate::run(arguments),
        Command::Generate(arguments) => generate::generate(arguments),
        Command::Image(arguments) => image::run(arguments),
        Command::Health(arguments) => return Ok(health::health(arguments)),
        // Its statuses are those of fsck(8).
        Command::Fsck(arguments) => return Ok(fsck::fsck(arguments)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// What clap says in several lines, in one.
fn usage_line(error: &clap::Error, arguments: &[OsString]) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "say what to do; --help lists the commands".to_owned();
    }
    let told = cli::instead_of(error, arguments)
        .or_else(|| cli::options_of(error, arguments))
        .or_else(|| cli::command_near(error, arguments));
    if let Some(told) = told {
        return one_line(&told);
    }
    let text = error.to_string();
    // Who writes an option that is not there means no file of its name.
    let is_told = |line: &&str| !line.is_empty() && !line.starts_with("tip: to pass");
    let mut lines = text.lines().map(str::trim).filter(is_told);
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let rest: Vec<&str> =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more")).collect();
    one_line(&format!("{first} {}", rest.join(" "))) + "; see --help"
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
