//! `lfs osts` and `lfs mdts`: which targets a mount knows, as Lustre prints them.

use super::{ask, chosen_mounts, each, fsname_of, has_errno, in_parts, open, unexpected};
use crate::ioctl::{Ask, TargetState, Tell};
use anyhow::Result;
use base::{TargetId, TargetKind};
use std::fmt::Write as _;
use std::fs::File;
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

/// The targets that a mount knows, with their room.
///
/// # Errors
/// The mount does not answer, or is not one of ours.
pub(super) fn states_of(root: &File, mount: &Path) -> Result<Vec<TargetState>> {
    let states = |request| match ask(root, mount, &request)? {
        Tell::TargetStates(targets) => Ok(targets),
        _ => Err(unexpected(mount)),
    };
    in_parts(
        |skip_count| states(Ask::DfStatesFrom { skip_count }),
        || match states(Ask::DfStates) {
            // From before there were states.
            Err(error) if has_errno(&error, libc::EINVAL) => bare_states_of(root, mount),
            states => states,
        },
    )
}

fn bare_states_of(root: &File, mount: &Path) -> Result<Vec<TargetState>> {
    let Tell::Targets(targets) = ask(root, mount, &Ask::Df)? else { return Err(unexpected(mount)) };
    let state = |(name, space)| TargetState { name, space, is_active: true, is_drained: false };
    Ok(targets.into_iter().map(state).collect())
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
