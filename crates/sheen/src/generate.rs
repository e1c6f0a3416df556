//! `generate`: man pages and completions for shells, from the same declarations as `--help`.

use crate::cli::{Cli, Generate};
use crate::helpers::TOOLS;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes `DIR/man/*.1` and `DIR/completions/*`.
///
/// # Errors
/// The directory cannot be written.
pub fn generate(arguments: &Generate) -> Result<()> {
    let (man, completions) = (arguments.dir.join("man"), arguments.dir.join("completions"));
    for dir in [&man, &completions] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    clap_mangen::generate_to(Cli::command(), &man)
        .with_context(|| format!("cannot write to {}", man.display()))?;
    for shell in SHELLS {
        let cannot = || format!("cannot write to {}", completions.display());
        clap_complete::generate_to(shell, &mut Cli::command(), "sheen", &completions).with_context(cannot)?;
        for name in TOOLS {
            let Some(mut tool) = Cli::command().find_subcommand(name).cloned() else { continue };
            clap_complete::generate_to(shell, &mut tool, name, &completions).with_context(cannot)?;
        }
    }
    Ok(())
}
