//! The machines name no thread, clock, file, socket or operating system randomness, and only a few crates may be unsafe.
//!
//! `clippy.toml` in each machine's crate bans the calls with reasons; this is the coarse check of the text, which sees what no lint
//! resolves (a `use` that nobody calls yet) and keeps the list of crates complete.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::workspace;

/// The crates that are machines: inputs and the time in, outputs out.
const MACHINES: &[&str] = &["rpc", "ldlm", "target", "mgs", "mds", "oss", "client"];
/// What their product code must not name.
const BANNED: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "Instant::now",
    "SystemTime",
    "tokio",
    "getrandom",
    "RandomState",
    "libc::",
];
/// The crates that may hold `unsafe`; the binary needs it to fork into the background and for ioctls.
const UNSAFE: &[&str] = &["net", "fuse", "store-disk", "sheen"];

/// What was checked, in a line; fails with every line that names what its crate must not.
pub fn check() -> Result<String> {
    let root = workspace::root()?;
    let mut complaints = Vec::new();
    for machine in MACHINES {
        let directory = root.join("crates").join(machine);
        if !directory.join("clippy.toml").exists() {
            complaints
                .push(format!("crates/{machine}/clippy.toml is missing: link it to clippy-machines.toml"));
        }
        complaints.extend(offences(&root, &directory.join("src"), BANNED)?);
    }
    // xtask forbids it to itself.
    for directory in fs::read_dir(root.join("crates"))?.flatten().map(|entry| entry.path()) {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !UNSAFE.contains(&name.as_str()) {
            complaints.extend(offences(
                &root,
                &directory.join("src"),
                &["unsafe {", "unsafe fn", "unsafe impl"],
            )?);
        }
    }
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n"));
    }
    Ok(format!("machines: {} crates name no I/O, clock, thread or randomness", MACHINES.len()))
}

fn offences(root: &Path, directory: &Path, banned: &[&str]) -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for path in sources(directory)? {
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        offences
            .extend(banned_lines(&text, banned).map(|(line, word)| format!("{shown}:{line}: names {word}")));
    }
    Ok(offences)
}

/// Rust files below a directory, those of tests left out: tests may use whatever they like.
fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
            let path = entry?.path();
            let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() && !is_test {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn banned_lines<'a>(text: &'a str, banned: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    text.lines().enumerate().filter_map(move |(index, line)| {
        // A comment may name what the code must not.
        let code = line.split("//").next().unwrap_or_default();
        banned.iter().find(|word| code.contains(**word)).map(|word| (index + 1, *word))
    })
}

#[cfg(test)]
mod tests;
