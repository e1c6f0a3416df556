//! `lfs osts` and `lfs mdts`: which targets a mount knows, as Lustre prints them.

use super::{chosen_mounts, each, fsname_of, open, states_of};
use crate::ioctl::TargetState;
use anyhow::Result;
use base::{TargetId, TargetKind};
use std::fmt::Write as _;
use std::path::Path;

/// # Errors
/// The path is on no mount of ours, or there is no mount.
pub fn list(path: Option<&Path>, kind: TargetKind) -> Result<()> {
    each(chosen_mounts(path)?, |mounted| {
        let targets = states_of(&open(&mounted.path)?, &mounted.path)?;
        print!("{}", table(fsname_of(&mounted.source), &targets, kind));
        Ok(())
    })
}

fn table(fsname: &str, targets: &[TargetState], kind: TargetKind) -> String {
    let title = if kind == TargetKind::Mdt { "MDTS:" } else { "OBDS:" };
    let mut out = format!("{title}\n");
    for target in targets {
        let Ok(id) = target.name.parse::<TargetId>() else { continue };
        if id.kind == kind {
            let state = if target.is_active { "ACTIVE" } else { "INACTIVE" };
            // Writing to a text does not fail.
            let _ = writeln!(out, "{}: {fsname}-{}_UUID {state}", id.index, target.name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_listed_as_lustre_lists_them() {
        let state = |name: &str, is_active| TargetState {
            name: name.to_owned(),
            space: None,
            is_active,
            is_drained: false,
        };
        let targets = [state("MDT0000", true), state("OST0000", true), state("OST000a", false)];
        let osts = "OBDS:\n0: scratch-OST0000_UUID ACTIVE\n10: scratch-OST000a_UUID INACTIVE\n";
        assert_eq!(table("scratch", &targets, TargetKind::Ost), osts);
        assert_eq!(table("scratch", &targets, TargetKind::Mdt), "MDTS:\n0: scratch-MDT0000_UUID ACTIVE\n");
    }
}
