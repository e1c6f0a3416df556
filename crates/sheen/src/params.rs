//! Parameters, under Lustre's names and formats.

use crate::node::Node;
use anyhow::{Result, bail};

pub fn get(node: &Node, pattern: &str) -> Vec<(String, String)> {
    let _ = (node, pattern);
    Vec::new()
}

pub fn list(node: &Node, pattern: &str) -> Vec<(String, String)> {
    let _ = (node, pattern);
    Vec::new()
}

pub fn set(node: &Node, pattern: &str, value: &str) -> Result<Vec<(String, String)>> {
    let _ = (node, value);
    bail!("{pattern}")
}
