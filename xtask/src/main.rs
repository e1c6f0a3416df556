//! The one door for developers: `cargo xtask ci` runs everything that must pass, `cargo xtask layers` checks the order of the
//! crates, `cargo xtask mounted` runs the suites on real mounts, `cargo xtask kernel` in a virtual machine with the oldest kernel,
//! `cargo xtask boot` boots nodes without disks, `cargo xtask package` makes the Debian package.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod boot;
mod ci;
#[cfg(test)]
mod documents;
mod kernel;
mod layers;
mod package;
mod sans_io;
mod step;
mod workspace;

/// Tasks of the SheenFS workspace.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check, each under a limit of its own, and print a table.
    Ci(ci::Options),
    /// Check that crates depend downward only and that the machines do no I/O.
    Layers,
    /// Run the suites on real mounts.
    Mounted(ci::MountedOptions),
    /// Make the Debian package from the release binary.
    Package(package::Options),
    /// Run the suites on Linux 6.1, in a virtual machine.
    Kernel(kernel::Options),
    /// Boot nodes from an image, in virtual machines.
    Boot(boot::Options),
}

fn run_layers() -> Result<()> {
    let lines = [layers::check()?, sans_io::check()?];
    Ok(say(&lines, &mut io::stdout().lock())?)
}

/// Whoever reads may have read enough.
fn say(lines: &[String], out: &mut impl Write) -> io::Result<()> {
    match lines.iter().try_for_each(|line| writeln!(out, "{line}")) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said,
    }
}

fn main() -> ExitCode {
    let result: Result<bool> = match Arguments::parse().task {
        Task::Ci(options) => ci::run(&options),
        Task::Layers => run_layers().map(|()| true),
        Task::Mounted(options) => ci::run_mounted(&options),
        Task::Package(options) => package::run(&options),
        Task::Kernel(options) => kernel::run(&options),
        Task::Boot(options) => boot::run(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many lines, and then has gone.
    struct Reader(usize, io::ErrorKind);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(self.1.into());
            }
            self.0 -= bytes.iter().filter(|byte| **byte == b'\n').count();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_read_enough_is_no_failure() {
        let lines = ["one".to_owned(), "two".to_owned()];
        assert!(say(&lines, &mut Reader(1, io::ErrorKind::BrokenPipe)).is_ok());
        assert!(say(&lines, &mut Reader(1, io::ErrorKind::StorageFull)).is_err());
    }
}
