//! `osp.*`: what the MDTs of this process have with other targets.

use super::format;
use super::{Class, read_only};
use crate::node::Node;
use base::TargetKind;
use mds::PeerStatus;

/// One MDT and another target, as it was when somebody asked.
pub struct Peer {
    fsname: String,
    /// `fsname-OST0000-osc-MDT0000`, `fsname-MDT0001-osp-MDT0000`, as Lustre names its devices.
    name: String,
    status: PeerStatus,
}

fn all(node: &Node) -> Vec<(String, Peer)> {
    let mut found = Vec::new();
    for target in node.targets.iter() {
        for status in target.peers() {
            let word = if status.target.kind == TargetKind::Mdt { "osp" } else { "osc" };
            let name = format!("{}-{}-{word}-{}", target.fsname, status.target, target.id);
            found.push((format!("osp/{name}"), Peer { fsname: target.fsname.clone(), name, status }));
        }
    }
    found
}

pub static OSP: Class<Peer> = Class {
    path: "osp/*",
    instances: all,
    params: &[
        read_only(
            "state",
            "State of the session of an MDT with another target, and those before it.",
            |peer: &Peer| Some(format::state(&peer.status.session)),
        ),
        read_only(
            "import",
            "The session of an MDT with another target: where it is, what is on the way.",
            |peer| {
                Some(format::import(
                    &peer.name,
                    &format!("{}-{}", peer.fsname, peer.status.target),
                    &peer.status.session,
                    // It counts no times of its requests.
                    None,
                ))
            },
        ),
        read_only("active", "Whether the configuration has the other target in use (1).", |peer| {
            Some(u8::from(peer.status.is_active).to_string())
        }),
    ],
};
