//! `sheen bench recovery`: what it counts, with few mounts. Its times are not looked at.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::case::{Context, expect, expect_eq};
use crate::cluster::Cluster;

/// A mount and the MDT die together, and two mounts go on.
pub fn bench(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    // It makes its own; this one is for its surroundings, and is never up.
    let cluster = Cluster::new(&context.options, &context.work, super::SHAPE)?;
    let dir = cluster.point("bench")?;
    let mut arguments = vec!["bench", "recovery", "--clients", "3", "--kill-clients", "1", "--case", "mdt"];
    arguments.extend(["-n", "1", "--json", "--transport", context.options.transport.word()]);
    let place = dir.to_string_lossy();
    arguments.push(&place);
    let text = cluster.sheen(&arguments)?;
    let report: Value = serde_json::from_str(&text).with_context(|| format!("it says {text}"))?;
    let figure = &report["figures"][0];
    expect_eq(report["figures"].as_array().map(Vec::len), Some(1), "cases")?;
    for name in ["failed_calls", "files_broken", "living_clients_evicted"] {
        expect_eq(figure[name].as_u64(), Some(0), name)?;
    }
    for name in ["files_sound", "operations"] {
        expect(figure[name].as_u64() > Some(10), &format!("{name}: {figure}"))?;
    }
    for name in
        ["listening_seconds", "own_progress_seconds", "last_progress_seconds", "longest_pause_seconds"]
    {
        expect_eq(figure[name]["n"].as_u64(), Some(1), name)?;
    }
    expect_eq(crate::case::names(&dir)?, Vec::<String>::new(), "what it leaves behind")
}
