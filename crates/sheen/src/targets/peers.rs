//! The sessions of this process's MDTs with other targets.

use super::{Served, Target, look};
use crate::control::Unheard;
use crate::nid;
use mds::PeerStatus;

impl Target {
    /// Only MDTs call others.
    pub fn peers(&self) -> Vec<PeerStatus> {
        match &self.served {
            Served::Mds(owner) => look(owner, |mds| mds.peers(net::clock::now())).unwrap_or_default(),
            Served::Mgs(_) | Served::Oss(_) => Vec::new(),
        }
    }

    /// Targets in use that it does not hear.
    pub fn unheard_peers(&self) -> Vec<Unheard> {
        // It refuses everybody, and its machine may stand still; or it calls nobody.
        if self.has_failed() || self.outdated().is_some() {
            return Vec::new();
        }
        let now = net::clock::now().wall.seconds();
        let unheard = |peer: PeerStatus| {
            let since = peer.session.out_since.filter(|_| peer.is_active)?.seconds();
            Some(Unheard {
                target: format!("{}-{}", self.fsname, peer.target),
                nids: peer.session.nids.iter().map(|address| nid::format_nid(address)).collect(),
                since,
                seconds: u64::try_from(now.saturating_sub(since)).unwrap_or_default(),
                is_connected: peer.session.is_overdue,
            })
        };
        self.peers().into_iter().filter_map(unheard).collect()
    }
}
