//! What the modes mean: which may be held at the same time, and which includes which.

use wire::lock::bits;
use wire::{LockMode, LockPolicy, Resource};

/// Whether two different parties may hold these modes on the same part of a resource. The table of Lustre and VMS.
pub fn is_compatible(a: LockMode, b: LockMode) -> bool {
    compatible_modes(a) & b as u8 != 0
}

const fn compatible_modes(mode: LockMode) -> u8 {
    use LockMode::{Cr, Cw, Ex, Group, Nl, Pr, Pw};
    const EX: u8 = Nl as u8;
    const PW: u8 = EX | Cr as u8;
    const PR: u8 = PW | Pr as u8;
    const CW: u8 = PW | Cw as u8;
    const CR: u8 = CW | Pr as u8 | Pw as u8;
    match mode {
        Ex => EX,
        Pw => PW,
        Pr => PR,
        Cw => CW,
        Cr => CR,
        Nl => CR | Ex as u8 | Group as u8,
        Group => Nl as u8 | Group as u8,
    }
}

/// Whether a lock of mode `held` allows everything that one of mode `wanted` allows.
pub fn mode_covers(held: LockMode, wanted: LockMode) -> bool {
    use LockMode::{Cr, Cw, Ex, Group, Nl, Pr, Pw};
    match (held, wanted) {
        (_, Nl) => true,
        (Group, Group) => true,
        (Group, _) | (_, Group) => false,
        (Ex, _) => true,
        (Pw, Pw | Pr | Cw | Cr) => true,
        (Pr, Pr | Cr) | (Cw, Cw | Cr) | (Cr, Cr) => true,
        (Pw | Pr | Cw | Cr | Nl, _) => false,
    }
}

/// Whether two locks on one resource have a part of it in common.
pub fn policies_overlap(a: LockPolicy, b: LockPolicy) -> bool {
    match (a, b) {
        (LockPolicy::Bits(a), LockPolicy::Bits(b)) => a & b != 0,
        (LockPolicy::Extent(a), LockPolicy::Extent(b)) => a.overlaps(b),
        // A whole resource, and policies of different kinds, which `is_valid` keeps apart anyway.
        _ => true,
    }
}

/// Whether the part that `held` covers includes all of `wanted`.
pub fn policy_covers(held: LockPolicy, wanted: LockPolicy) -> bool {
    match (held, wanted) {
        (LockPolicy::Plain, _) => true,
        (LockPolicy::Bits(held), LockPolicy::Bits(wanted)) => held & wanted == wanted,
        (LockPolicy::Extent(held), LockPolicy::Extent(wanted)) => held.contains(wanted),
        _ => false,
    }
}

/// Whether a lock (mode and part) includes another one.
pub fn covers(held: (LockMode, LockPolicy), wanted: (LockMode, LockPolicy)) -> bool {
    mode_covers(held.0, wanted.0) && policy_covers(held.1, wanted.1)
}

/// Whether a peer may ask for this part of this resource.
pub fn is_valid(resource: Resource, policy: LockPolicy) -> bool {
    match (resource, policy) {
        (Resource::Inode(_), LockPolicy::Bits(mask)) => mask != 0 && mask & !bits::VALID == 0,
        (Resource::Name { .. } | Resource::Rename, LockPolicy::Plain) => true,
        (Resource::Object(_), LockPolicy::Extent(extent)) => !extent.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
