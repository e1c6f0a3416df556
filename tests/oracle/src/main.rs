//! What somebody else's collector for Lustre makes of our parameters: for suites, which compare it with what was done.
//!
//! `lustre-oracle params` prints the parameters that it asks for, of which `parse`, `recovery` and `filesystems` (names only) read what
//! `lctl get_param` says from standard input; they print records as JSON.

use anyhow::{Context, Result, bail};
use lustre_collector::{Record, parse_lctl_output, parse_mgs_fs_output, parse_recovery_status_output};
use std::io::Read;

fn main() -> Result<()> {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let parse: fn(&[u8]) -> Result<Vec<Record>, _> = match verb.as_str() {
        "params" => {
            let all = [
                lustre_collector::parser::params(),
                lustre_collector::recovery_status_parser::params(),
                lustre_collector::mgs::mgs_fs_parser::params(),
            ];
            all.iter().for_each(|params| println!("{}", params.join(" ")));
            return Ok(());
        }
        "parse" => parse_lctl_output,
        "recovery" => parse_recovery_status_output,
        "filesystems" => parse_mgs_fs_output,
        _ => bail!("'{verb}' is none of: params, parse, recovery, filesystems"),
    };
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let records = parse(&text).context("it does not understand what it was given")?;
    println!("{}", serde_json::to_string(&records)?);
    Ok(())
}
