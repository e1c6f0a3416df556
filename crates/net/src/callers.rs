//! Who is at the other end of which connection: answers go where the last request came from.

use crate::connection::Connection;
use base::Endpoint;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Callers that may be learned from one connection, so that none has names left out that another one brings: the mounts of a process, and
/// targets, of which no server has more than half of that. Those of all connections have room.
pub(crate) const CALLERS_PER_CONNECTION_MAX: usize = 2048;

/// Who asks whom. A process has a connection to each target that it asks, and what one of them tells it stands neither behind what another
/// one of the same server tells, nor ends with that one's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conversation {
    pub caller: Endpoint,
    pub asked: Endpoint,
}

/// Both ways round, so that the end of a connection costs what it has brought, however many callers all others have.
#[derive(Default)]
pub(crate) struct Callers {
    by_conversation: HashMap<Conversation, Arc<Connection>>,
    by_connection: HashMap<usize, HashSet<Conversation>>,
}

impl Callers {
    pub fn connection_of(&self, conversation: &Conversation) -> Option<&Arc<Connection>> {
        self.by_conversation.get(conversation)
    }

    pub fn is_at(&self, conversation: &Conversation, connection: &Arc<Connection>) -> bool {
        self.connection_of(conversation).is_some_and(|known| Arc::ptr_eq(known, connection))
    }

    /// A caller is at the other end of this connection from now on, unless he has come by a newer one: then this has waited here with what he
    /// had sent before. False: there are too many at that end.
    pub fn learn(&mut self, conversation: Conversation, connection: &Arc<Connection>) -> bool {
        let is_late = |known: &Arc<Connection>| known.number() > connection.number() && !known.is_closed();
        if self.connection_of(&conversation).is_some_and(is_late) {
            return true;
        }
        let its = self.by_connection.entry(connection.key()).or_default();
        if its.contains(&conversation) {
            return true;
        }
        if its.len() >= CALLERS_PER_CONNECTION_MAX {
            return false;
        }
        its.insert(conversation);
        if let Some(before) = self.by_conversation.insert(conversation, Arc::clone(connection))
            && let Some(its) = self.by_connection.get_mut(&before.key())
        {
            its.remove(&conversation);
        }
        true
    }

    /// A connection has ended.
    pub fn forget(&mut self, connection: &Arc<Connection>) {
        for conversation in self.by_connection.remove(&connection.key()).unwrap_or_default() {
            self.by_conversation.remove(&conversation);
        }
    }

    /// Forgets all, and tells to which connections they had come.
    pub fn take_connections(&mut self) -> Vec<Arc<Connection>> {
        let callers = std::mem::take(self);
        callers.by_conversation.into_values().collect()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.by_conversation.len(), self.by_connection.values().map(HashSet::len).sum::<usize>());
        self.by_conversation.len()
    }
}
