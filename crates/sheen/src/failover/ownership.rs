//! Which keeper this process asks: the management server, over its session, or etcd.

use crate::node::Node;
use anyhow::{Result, bail};
use base::Status;
use coordinate::of_mgs::Asks;
use coordinate::{Keeper, KeeperError, Members, OfMgs};
use std::sync::{Arc, OnceLock, Weak};
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
            let asks = Session { node: Arc::downgrade(node), fsname: fsname.clone(), apart: OnceLock::new() };
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
    /// With a session of its own: that of the process ends before its targets are closed.
    apart: OnceLock<Arc<Node>>,
}

impl Session {
    fn node(&self) -> Result<Arc<Node>, KeeperError> {
        self.node.upgrade().ok_or_else(|| KeeperError::Silent("this process ends".to_owned()))
    }

    fn apart(&self) -> Result<&Arc<Node>, KeeperError> {
        let node = self.node()?;
        Ok(self.apart.get_or_init(|| node.apart(&self.fsname)))
    }
}

impl Asks for Session {
    fn ask(
        &self,
        request: MgsRequest,
        is_modifying: bool,
        limit: Duration,
    ) -> Result<Result<MgsReply, Status>, KeeperError> {
        let node = self.apart.get().map_or_else(|| self.node(), |apart| Ok(Arc::clone(apart)))?;
        let answer = node.ask_mgs(request, is_modifying, limit);
        answer.map_err(|error| KeeperError::Silent(format!("{error:#}")))
    }

    fn outlive_session(&self) {
        // Without a node there is nothing to renew.
        let _ = self.apart();
    }

    fn ask_last(
        &self,
        request: MgsRequest,
        limit: Duration,
    ) -> Result<Result<MgsReply, Status>, KeeperError> {
        let answer = self.apart()?.ask_mgs(request, true, limit);
        answer.map_err(|error| KeeperError::Silent(format!("{error:#}")))
    }
}
