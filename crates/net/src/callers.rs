//! Who is at the other end of which connection: answers go where the last request came from.

use crate::connection::Connection;
use base::Endpoint;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Callers that may be learned from one connection, so that none has names left out that another one brings: the mounts of a process, and
/// targets, of which no server has more than half of that. Those of all connections have room.
pub(crate) const CALLERS_PER_CONNECTION_MAX: usize = 2048;

/// Both ways round, so that the end of a connection costs what it has brought, however many callers all others have.
#[derive(Default)]
pub(crate) struct Callers {
    by_caller: HashMap<Endpoint, Arc<Connection>>,
    by_connection: HashMap<usize, HashSet<Endpoint>>,
}

impl Callers {
    pub fn connection_of(&self, caller: &Endpoint) -> Option<&Arc<Connection>> {
        self.by_caller.get(caller)
    }

    pub fn is_at(&self, caller: &Endpoint, connection: &Arc<Connection>) -> bool {
        self.connection_of(caller).is_some_and(|known| Arc::ptr_eq(known, connection))
    }

    /// A caller is at the other end of this connection from now on. False: there are too many at that end.
    pub fn learn(&mut self, caller: Endpoint, connection: &Arc<Connection>) -> bool {
        let its = self.by_connection.entry(connection.key()).or_default();
        if its.contains(&caller) {
            return true;
        }
        if its.len() >= CALLERS_PER_CONNECTION_MAX {
            return false;
        }
        its.insert(caller);
        if let Some(before) = self.by_caller.insert(caller, Arc::clone(connection))
            && let Some(its) = self.by_connection.get_mut(&before.key())
        {
            its.remove(&caller);
        }
        true
    }

    /// A connection has ended.
    pub fn forget(&mut self, connection: &Arc<Connection>) {
        for caller in self.by_connection.remove(&connection.key()).unwrap_or_default() {
            self.by_caller.remove(&caller);
        }
    }

    /// Forgets all, and tells to which connections they had come.
    pub fn take_connections(&mut self) -> Vec<Arc<Connection>> {
        let callers = std::mem::take(self);
        callers.by_caller.into_values().collect()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.by_caller.len(), self.by_connection.values().map(HashSet::len).sum::<usize>());
        self.by_caller.len()
    }
}
