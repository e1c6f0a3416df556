//! Where things are, from `cargo metadata`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The metadata of the workspace's own packages.
pub fn metadata() -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("cargo metadata does not start")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn directory(name: &str) -> Result<PathBuf> {
    let metadata = metadata()?;
    let path = metadata.get(name).and_then(Value::as_str);
    Ok(PathBuf::from(path.with_context(|| format!("cargo metadata names no {name}"))?))
}

/// The directory of the root manifest.
pub fn root() -> Result<PathBuf> {
    directory("workspace_root")
}

/// Where cargo builds.
pub fn target() -> Result<PathBuf> {
    directory("target_directory")
}
