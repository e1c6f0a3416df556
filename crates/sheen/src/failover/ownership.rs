//! Which keeper this process asks: the management server, over its session, or etcd.

use crate::node::Node;
use anyhow::{Result, bail};
use base::Status;
use coordinate::of_mgs::Asks;
use coordinate::{Keeper, KeeperError, Members, OfMgs};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::{MgsReply, MgsRequest, TargetOwner};

/// # Errors
/// This program has no client of etcd, or that cannot be started.
pub fn keeper(
    node: &Arc<Node>,
    fsname: String,
    me: TargetOwner,
    coordinator: Option<&Members>,
) -> Result<Box<dyn Keeper>> {
    match coordinator {
        Some(members) => of_etcd(members, &fsname, me),
        None => {
            let asks = Session { node: Arc::downgrade(node), fsname: fsname.clone() };
            Ok(Box::new(OfMgs { asks, fsname, me }))
        }
    }
}

/// # Errors
/// This program has no client of etcd.
pub fn check_has_etcd() -> Result<()> {
    if !cfg!(feature = "etcd") {
        bail!(
            "this program was built without etcd; build it with --features etcd (which needs protoc), or leave out --coordinator"
        );
    }
    Ok(())
}

#[cfg(feature = "etcd")]
fn of_etcd(members: &Members, fsname: &str, me: TargetOwner) -> Result<Box<dyn Keeper>> {
    Ok(Box::new(coordinate::etcd::Etcd::new(members.clone(), fsname, me)?))
}

#[cfg(not(feature = "etcd"))]
fn of_etcd(members: &Members, _: &str, _: TargetOwner) -> Result<Box<dyn Keeper>> {
    check_has_etcd()?;
    bail!("etcd at {members} cannot be asked by this program")
}

/// The session of this process with the management server.
struct Session {
    node: Weak<Node>,
    fsname: String,
}

impl Session {
    fn node(&self) -> Result<Arc<Node>, KeeperError> {
        self.node.upgrade().ok_or_else(|| KeeperError::Silent("this process ends".to_owned()))
    }
}

impl Asks for Session {
    fn ask(
        &self,
        request: MgsRequest,
        is_modifying: bool,
        limit: Duration,
    ) -> Result<Result<MgsReply, Status>, KeeperError> {
        let answer = self.node()?.ask_mgs(request, is_modifying, limit);
        answer.map_err(|error| KeeperError::Silent(format!("{error:#}")))
    }

    /// It has a session of its own: the one from before had to end with the targets.
    fn ask_last(
        &self,
        request: MgsRequest,
        limit: Duration,
    ) -> Result<Result<MgsReply, Status>, KeeperError> {
        let answer = self.node()?.apart(&self.fsname).ask_mgs(request, true, limit);
        answer.map_err(|error| KeeperError::Silent(format!("{error:#}")))
    }
}
