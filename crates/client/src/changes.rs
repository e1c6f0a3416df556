//! What this client has done to an inode: what of that a crash of a server could take back, and what its MDT has not heard of yet.

use crate::seldom::Bare;
use base::{Epoch, TargetId, Time, Transno, Version};
use std::collections::BTreeMap;
use wire::mdt::Access;

#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Newest transaction per target that changed the inode or its data.
    pub(crate) newest: BTreeMap<TargetId, Transno>,
    /// How far the attributes were known when its MDT last had all of its changes durable for a call here.
    pub(crate) durable_version: Option<(Epoch, Version)>,
    /// There are some: what a listing says of the inode may be older, though no lock went back.
    pub(crate) are_some: bool,
    /// When this mount has read it last; its MDT may not have heard of it yet.
    pub(crate) accessed: Option<Access>,
    /// Until then the kernel may answer from a name of it that had no room among those that are remembered.
    pub(crate) unnamed_until: Time,
}

impl Bare for Changes {
    const BARE: &'static Changes = &Changes {
        newest: BTreeMap::new(),
        durable_version: None,
        are_some: false,
        accessed: None,
        unnamed_until: Time::ZERO,
    };
}
