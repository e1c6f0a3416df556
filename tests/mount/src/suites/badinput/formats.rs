//! Targets of formats that this program does not know, and `sheen upgrade`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{LIMIT, idle, refuse, text};
use crate::case::{Context, expect, expect_eq};

/// Changes every number that stands for a format or version in the target's superblock: to one that is to come, and to one from before
/// the first.
pub fn version_mismatch(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    let target = context.work.join("mgs");
    cluster.sheen(&["mkfs", "--mgs", &text(&target)])?;
    for (digit, words) in [('9', ["version", "format"].as_slice()), ('0', &["run sheen upgrade"])] {
        set_format(&target, digit)?;
        refuse(&cluster, &["serve", &text(&target)], words, Some(&target))?;
    }
    Ok(())
}

/// Has the superblock of a target name another format.
fn set_format(target: &Path, digit: char) -> Result<()> {
    let file = target.join("target.json");
    let original = fs::read_to_string(&file).context("the superblock target.json")?;
    let mut changed = false;
    let lines: Vec<String> = original
        .split_inclusive(',')
        .map(|part| {
            let is_version = part.contains("\"format") || part.contains("version\"");
            if is_version && part.contains(':') {
                changed = true;
                let (name, rest) = part.split_once(':').unwrap_or((part, ""));
                let rest: String = rest.chars().map(|c| if c.is_ascii_digit() { digit } else { c }).collect();
                return format!("{name}:{rest}");
            }
            part.to_owned()
        })
        .collect();
    expect(changed, &format!("the superblock names a format or version: {original}"))?;
    Ok(fs::write(&file, lines.concat())?)
}

/// Of one target, of a whole cluster, of one that is served, and of formats that this program cannot upgrade.
pub fn upgrade(context: &Context) -> Result<()> {
    let cluster = idle(context)?;
    cluster.up()?;
    let mdt = cluster.data.join("mdt0000");
    refuse(&cluster, &["upgrade", &text(&mdt)], &["mdt0000 is in use: it is already running as pid"], None)?;
    refuse(
        &cluster,
        &["upgrade", &text(&cluster.data)],
        &["mgs is in use: it is already running as pid"],
        None,
    )?;
    cluster.down()?;

    let targets = ["mgs", "mdt0000", "ost0000"].map(|name| cluster.data.join(name));
    let superblocks =
        || targets.iter().map(|target| fs::read(target.join("target.json"))).collect::<Vec<_>>();
    let before = superblocks();
    let said = cluster.sheen(&["upgrade", &text(&cluster.data)])?;
    let named: Vec<bool> = said
        .lines()
        .zip(&targets)
        .map(|(line, target)| line.starts_with(&format!("{} has format ", target.display())))
        .collect();
    expect_eq(named, vec![true; 3], &format!("a line for each target, in order:\n{said}"))?;
    expect(said.lines().all(|line| line.ends_with("which is this program's: nothing to do")), &said)?;
    expect_eq(cluster.sheen(&["upgrade", &text(&mdt)])?.lines().count(), 1, "lines of one target")?;
    let is_same =
        superblocks().iter().zip(&before).all(|(now, before)| now.as_ref().ok() == before.as_ref().ok());
    expect(is_same && !mdt.join("format-0").exists(), "nothing has changed")?;

    set_format(&mdt, '9')?;
    let newer = &["mdt0000 has format 9, this program reads 1; start it with the version that made it"];
    refuse(&cluster, &["upgrade", &text(&mdt)], newer, Some(&mdt.join("meta")))?;
    let said = cluster.try_sheen(&["upgrade", &text(&cluster.data)], LIMIT)?;
    expect(!said.is_success() && said.errors.contains(newer[0]), &said.all())?;
    expect_eq(said.output.lines().count(), 1, "what came before it is done and said")?;
    // There has been no format before the first.
    set_format(&mdt, '0')?;
    refuse(
        &cluster,
        &["upgrade", &text(&mdt)],
        &["no step leads from format 0 of"],
        Some(&mdt.join("meta")),
    )?;
    set_format(&mdt, '1')?;
    cluster.up()?;
    cluster.down().map(drop)
}
