//! `sheen bench` itself: each kind of it, tiny, and what it prints beside what was asked for.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::case::{Context, expect, expect_eq, names};
use crate::cluster::{COMMAND_LIMIT, Cluster};
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

/// `bench ls` beside servers that know all: the mount alone is a new one for a row of its own.
pub fn new_mount(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    let program = cluster.command().get_program().to_string_lossy().into_owned();
    let (mount, source) = (cluster.mount.to_string_lossy().into_owned(), cluster.source()?);
    let log = context.work.join("log").to_string_lossy().into_owned();
    let transport = context.options.transport.word();
    let remount = format!(
        "echo client >> {log}; {program} umount {mount} && {program} mount {source} {mount} -o transport={transport}"
    );
    let usual = ["bench", "ls", &mount, "-n", "2", "--files", "40", "--json"];
    let cold = format!("echo all >> {log}");
    let said = cluster.sheen(&[&usual[..], &["--remount", &cold, "--remount-client", &remount]].concat())?;
    let report = serde_json::from_str(&said).with_context(|| format!("it says {said}"))?;
    let rows: Vec<_> = figures(&report)?.iter().map(|figure| figure["operation"].as_str()).collect();
    expect_eq(rows, ["ls -l cold", "ls -l client cold", "ls -l warm"].map(Some).to_vec(), "rows")?;
    let happened = String::from_utf8(crate::case::read(Path::new(&log))?)?;
    expect_eq(happened.as_str(), "all\nclient\nall\nclient\n", "what was cold when")?;
    // Whoever knows nothing asks for the listing; that servers forget nothing is up to the command.
    for figure in figures(&report)? {
        let is_new = figure["operation"] == "ls -l client cold";
        let readpages = figure["cost"]["rpcs_by_kind"]["mds_readpage"].as_u64().unwrap_or_default();
        expect(!is_new || readpages > 0, &format!("{readpages} listings were asked for: {figure}"))?;
    }
    let said = cluster.try_sheen(&["bench", "io", &mount, "--remount-client", "true"], COMMAND_LIMIT)?;
    expect(!said.is_success() && said.errors.contains("--remount-client is of `bench ls`"), &said.all())?;
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
