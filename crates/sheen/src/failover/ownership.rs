//! Who owns the targets that several servers could serve. The management server keeps it; another keeper can stand in its place.

use crate::node::Node;
use anyhow::{Result, bail};
use base::{Epoch, Status, TargetId};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::{MgsReply, MgsRequest, Ownership, TargetOwner};

/// Longer than this an answer about leases is not waited for: it is asked anew.
const KEEP_TIMEOUT: Duration = Duration::from_secs(1);
/// A change has to become durable first.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps for each target an owner, an epoch that rises each time that it is taken, and a lease.
pub trait Keeper: Send + Sync {
    /// This server serves `keeps`, which renews its leases, and could serve `asks`. -> What is known of both.
    ///
    /// # Errors
    /// It does not answer, which says nothing about anybody.
    fn keep(&self, keeps: Vec<TargetId>, asks: Vec<TargetId>) -> Result<Vec<Ownership>>;

    /// Takes a target, unless somebody whose lease holds owns it or its epoch is not `over` any more. Durable. -> The new epoch.
    ///
    /// # Errors
    /// It is not given, or nothing is known: then it may be given later, and this server owns it without serving it.
    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch>;
}

/// The management server as keeper.
pub struct OfMgs {
    pub node: Weak<Node>,
    pub fsname: String,
    pub me: TargetOwner,
}

impl OfMgs {
    fn ask(&self, request: MgsRequest, is_modifying: bool, limit: Duration) -> Result<Vec<Ownership>> {
        let Some(node) = self.node.upgrade() else { bail!("this process ends") };
        ask(&node, request, is_modifying, limit)
    }
}

fn ask(node: &Arc<Node>, request: MgsRequest, is_modifying: bool, limit: Duration) -> Result<Vec<Ownership>> {
    match node.ask_mgs(request, is_modifying, limit)? {
        Ok(MgsReply::Ownerships(ownerships)) => Ok(ownerships),
        Ok(_) => bail!("the management server answers something else"),
        Err(Status::NotSupported) => {
            bail!("the management server is of a version without failover; bring it up to date first")
        }
        Err(status) => bail!("the management server refuses: {status}"),
    }
}

impl Keeper for OfMgs {
    fn keep(&self, keeps: Vec<TargetId>, asks: Vec<TargetId>) -> Result<Vec<Ownership>> {
        let (fsname, server) = (self.fsname.clone(), self.me.server);
        self.ask(MgsRequest::KeepOwned { fsname, server, keeps, asks }, false, KEEP_TIMEOUT)
    }

    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch> {
        let (fsname, by) = (self.fsname.clone(), self.me.clone());
        let taken = self.ask(MgsRequest::TakeOwned { fsname, target, over, by }, true, CHANGE_TIMEOUT)?;
        match taken.as_slice() {
            [taken] if taken.target == target && taken.epoch > over => Ok(taken.epoch),
            _ => bail!("the management server answers about something else"),
        }
    }
}

/// This server has closed its targets. It has a session of its own for that: the one from before had to end with them.
///
/// # Errors
/// The management server does not answer: then whoever comes next has to fence this server.
pub fn leave(node: &Arc<Node>, fsname: &str, server: u128, targets: Vec<TargetId>) -> Result<()> {
    let fsname = fsname.to_owned();
    ask(node, MgsRequest::LeaveOwned { fsname, server, targets }, true, 2 * KEEP_TIMEOUT).map(drop)
}
