//! Crates depend strictly downward: the table of the design, held against `cargo metadata`.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::workspace;

/// The layer of every crate; a crate may use only crates of lower layers.
const LAYERS: &[(&str, u32)] = &[
    ("base", 0),
    ("wire", 1),
    ("store", 1),
    ("rpc", 2),
    ("ldlm", 2),
    ("store-disk", 2),
    ("coordinate", 2),
    ("net", 2),
    ("target", 3),
    ("client", 3),
    ("mgs", 4),
    ("mds", 4),
    ("oss", 4),
    ("fuse", 4),
    ("fsck", 5),
    // The simulator drives every machine, and the binary carries it as `sheen sim`.
    ("sim", 6),
    ("sheen", 7),
    // Tools: they stand beside the product and start it as a user would.
    ("mount-suites", 7),
    ("lustre-oracle", 7),
    ("xtask", 8),
];

fn layer(name: &str) -> Option<u32> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// One dependency between two crates of ours.
#[derive(Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
}

/// What was checked, in a line; fails with every edge that does not go down and every crate that the table does not know.
pub fn check() -> Result<String> {
    let edges = edges(&workspace::metadata()?);
    let complaints = complaints(&edges);
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n"));
    }
    Ok(format!("layers: {} dependencies between {} crates, all downward", edges.len(), LAYERS.len()))
}

fn edges(metadata: &Value) -> Vec<Edge> {
    let list =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let packages = list(metadata, "packages");
    let mut edges = Vec::new();
    for package in &packages {
        let from = text(package, "name");
        // A crate without dependencies is still checked against the table.
        edges.push(Edge { from: from.clone(), to: String::new() });
        for dependency in list(package, "dependencies") {
            // Tests may look up: a client is tested against real servers. What is built into the crate may not.
            let is_for_tests = dependency.get("kind").and_then(Value::as_str) == Some("dev");
            if !is_for_tests && dependency.get("path").is_some_and(Value::is_string) {
                edges.push(Edge { from: from.clone(), to: text(&dependency, "name") });
            }
        }
    }
    edges
}

fn complaints(edges: &[Edge]) -> Vec<String> {
    edges
        .iter()
        .filter_map(|edge| match (layer(&edge.from), edge.to.as_str()) {
            (None, _) => Some(format!("{} is not in the table of layers (xtask/src/layers.rs)", edge.from)),
            (Some(_), "") => None,
            (Some(from), name) => match layer(name) {
                Some(to) if to < from => None,
                Some(to) => Some(format!("{} (layer {from}) uses {name} (layer {to})", edge.from)),
                None => Some(format!("{} uses {name}, which is not in the table of layers", edge.from)),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests;
