//! `sheen bench` itself: each kind of it, tiny, and what it prints beside what was asked for.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::case::{Context, expect, expect_eq, names};
use crate::cluster::Cluster;
use crate::suites::split_cluster;

/// Each kind of bench runs against null file systems, which keep no bytes.
pub fn on_floors(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let files = ["--files", "30"];
    let data = ["--mib", "2"];
    let tree = ["--files", "30", "--dirs", "3", "--bytes", "100"];
    let kinds: [(&[&str], &[&str], &str); 11] = [
        (&["stream"], &data, "fuse"),
        (&["stream", "--size", "4MiB"], &[], "rpc"),
        (&["stream"], &data, "rpc-tcp"),
        (&["ls"], &files, "fuse"),
        (&["ls", "--mixed"], &files, "rpc"),
        (&["ls", "--names"], &files, "rpc-tcp"),
        (&["md"], &files, "rpc"),
        (&["io"], &data, "rpc-tcp"),
        (&["direct"], &data, "fuse"),
        (&["mmap"], &data, "rpc"),
        (&["tree"], &tree, "fuse"),
    ];
    for (kind, sizes, floor) in kinds {
        let procs: &[&str] = if kind[0] == "tree" { &[] } else { &["--procs", "2"] };
        let report = report_of(&cluster, kind[0], &[&kind[1..], sizes, procs, &["--floor", floor]].concat())?;
        for figure in figures(&report)? {
            // Without its fsync a write is compared with nothing.
            let is_compared = figure["operation"].as_str().is_some_and(|name| !name.ends_with("no fsync"));
            let side = if is_compared { "other" } else { "directory" };
            let rate = figure[side]["median"].as_f64();
            expect(rate > Some(0.0), &format!("{kind:?} against the floor {floor}: {figure}"))?;
            expect_eq(figure["ratio"].is_number(), is_compared, &format!("{figure}"))?;
        }
    }
    expect_eq(names(&cluster.mount)?, Vec::<String>::new(), "what it leaves behind")
}

/// One round. Nothing has to be cold: who may not drop the machine's caches has this too.
fn report_of(cluster: &Cluster, kind: &str, more: &[&str]) -> Result<Value> {
    let mount = cluster.mount.to_string_lossy().into_owned();
    let usual = ["bench", kind, &mount, "-n", "1", "--json", "--remount", "true"];
    let text = cluster.sheen(&[&usual, more].concat())?;
    serde_json::from_str(&text).with_context(|| format!("it says {text}"))
}

fn figures(report: &Value) -> Result<&Vec<Value>> {
    let figures = report["figures"].as_array().context("figures")?;
    expect(!figures.is_empty(), &format!("no figures in {report}"))?;
    Ok(figures)
}
