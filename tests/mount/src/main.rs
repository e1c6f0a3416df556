//! `mount-suites`: the suites that run on real mounts. `mount-suites list` names them.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use mount_suites::options::Options;
use mount_suites::runner::{self, Outcome, Runner};
use mount_suites::{agent, suites, sys};

/// The suites that run on real mounts of SheenFS (or, with --local, on a plain directory).
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run suites (all of them, if none is named).
    Run {
        suites: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// Name every suite and case.
    List,
    /// Serve a case as a second process.
    #[command(hide = true)]
    Agent,
    /// Run one case in this process.
    #[command(hide = true)]
    Case {
        suite: String,
        case: String,
        a: PathBuf,
        b: PathBuf,
        work_of_case: PathBuf,
        #[command(flatten)]
        options: Options,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::Incomplete) => ExitCode::from(runner::INCOMPLETE_STATUS),
        Ok(Outcome::Skipped(reason)) => runner::end_skipped(&reason),
        Err(error) => {
            // One line with the chain of causes: a backtrace of the harness helps nobody.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Outcome> {
    match Arguments::parse().command {
        Command::Run { suites: names, options } => {
            let own_network = if options.is_local() { Ok(()) } else { sys::own_network() };
            match own_network {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    println!(
                        "no network of its own: suites that run at the same time take each other's ports"
                    )
                }
                Err(error) => return Err(error).context("a network of its own"),
            }
            let mut runner = Runner::new(options)?;
            for suite in suites::chosen(&names)? {
                runner.run_suite(suite)?;
            }
            runner.finish()
        }
        Command::List => {
            for suite in suites::ALL {
                for case in suite.cases {
                    println!("{}/{}", suite.name, case.name);
                }
            }
            Ok(Outcome::Complete)
        }
        Command::Agent => agent::serve().map(|()| Outcome::Complete),
        Command::Case { suite, case, a, b, work_of_case, options } => {
            let suite = suites::find(&suite)?;
            let case = suite.cases.iter().find(|known| known.name == case).context("no such case")?;
            runner::run_one(suite, case, [a, b, work_of_case], options).map(|()| Outcome::Complete)
        }
    }
}
