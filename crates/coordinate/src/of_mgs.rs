//! The management server as keeper: questions to it over whatever session the caller has.

use crate::{Keeper, KeeperError, MGS_IDENTITY, Silence};
use base::{Epoch, Status, TargetId};
use std::time::Duration;
use wire::{MgsReply, MgsRequest, Ownership, TargetOwner};

/// Longer than this an answer about leases is not waited for: it is asked anew.
const KEEP_TIMEOUT: Duration = Duration::from_secs(1);
/// A change has to become durable first.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries questions to the management server.
pub trait Asks: Send + Sync {
    /// # Errors
    /// `Silent`, when there is no answer in this time. What was to be modified may be modified later.
    fn ask(
        &self,
        request: MgsRequest,
        is_modifying: bool,
        limit: Duration,
    ) -> Result<Result<MgsReply, Status>, KeeperError>;

    /// The session of this process ends before its targets are closed: what is asked from now on goes over one of its own.
    fn outlive_session(&self) {}

    /// The last question of this process, when the session of all others has ended with its targets.
    ///
    /// # Errors
    /// As `ask`.
    fn ask_last(&self, request: MgsRequest, limit: Duration)
    -> Result<Result<MgsReply, Status>, KeeperError>;
}

pub struct OfMgs<A> {
    pub asks: A,
    pub fsname: String,
    pub me: TargetOwner,
}

fn ownerships(answer: Result<MgsReply, Status>) -> Result<Vec<Ownership>, KeeperError> {
    match answer {
        Ok(MgsReply::Ownerships(ownerships)) => Ok(ownerships),
        Ok(_) => Err(KeeperError::MgsStrange),
        Err(Status::NotSupported) => Err(KeeperError::MgsTooOld),
        Err(status) => Err(KeeperError::MgsRefuses(status)),
    }
}

impl<A> OfMgs<A> {
    fn leaving(&self, targets: &[TargetId]) -> MgsRequest {
        let (fsname, server) = (self.fsname.clone(), self.me.server);
        MgsRequest::LeaveOwned { fsname, server, targets: targets.to_vec() }
    }
}

impl<A: Asks> Keeper for OfMgs<A> {
    fn keep(&self, keeps: &[TargetId], asks: &[TargetId]) -> Result<Vec<Ownership>, KeeperError> {
        let (fsname, server) = (self.fsname.clone(), self.me.server);
        let request = MgsRequest::KeepOwned { fsname, server, keeps: keeps.to_vec(), asks: asks.to_vec() };
        ownerships(self.asks.ask(request, false, KEEP_TIMEOUT)?)
    }

    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch, KeeperError> {
        let (fsname, by) = (self.fsname.clone(), self.me.clone());
        let request = MgsRequest::TakeOwned { fsname, target, over, by };
        let answer = self.asks.ask(request, true, CHANGE_TIMEOUT)?;
        if matches!(answer, Err(Status::Busy)) {
            return Err(KeeperError::Denied { target, over });
        }
        match ownerships(answer)?.as_slice() {
            [taken] if taken.target == target && taken.epoch > over => Ok(taken.epoch),
            _ => Err(KeeperError::MgsStrange),
        }
    }

    fn leave(&self, targets: &[TargetId]) -> Result<(), KeeperError> {
        ownerships(self.asks.ask_last(self.leaving(targets), 2 * KEEP_TIMEOUT)?).map(drop)
    }

    fn give_back(&self, target: TargetId) -> Result<(), KeeperError> {
        ownerships(self.asks.ask(self.leaving(&[target]), true, CHANGE_TIMEOUT)?).map(drop)
    }

    fn outlive_session(&self) {
        self.asks.outlive_session();
    }

    fn identity(&self) -> Result<String, KeeperError> {
        Ok(MGS_IDENTITY.to_owned())
    }

    fn silence(&self) -> Silence {
        Silence::ServesOn
    }

    fn name(&self) -> &str {
        "the management server"
    }
}
