//! The members of a coordinating service, as an operator names them: `etcd://host:port[,host:port…]`.

use crate::KeeperError;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

const SCHEME: &str = "etcd://";
/// More than etcd recommends by far.
const MEMBER_COUNT_MAX: usize = 16;

/// At least one; each `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members(Vec<String>);

/// What is wrong with the words of an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    #[error("'{0}' is no coordinator; say etcd://HOST:PORT[,HOST:PORT…]")]
    Scheme(String),
    #[error("'{0}' is no member of etcd; say HOST:PORT, as in etcd://10.0.0.1:2379,10.0.0.2:2379")]
    Member(String),
    #[error("{0} is named twice; name each member of etcd once")]
    Twice(String),
    #[error("{0} members of etcd are more than the {MEMBER_COUNT_MAX} that are possible")]
    TooMany(usize),
}

impl Members {
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for Members {
    type Err = MembersError;

    fn from_str(text: &str) -> Result<Members, MembersError> {
        let list = text.strip_prefix(SCHEME).ok_or_else(|| MembersError::Scheme(text.to_owned()))?;
        let members: Vec<String> = list.split(',').map(str::to_owned).collect();
        if members.len() > MEMBER_COUNT_MAX {
            return Err(MembersError::TooMany(members.len()));
        }
        for (index, member) in members.iter().enumerate() {
            if !is_member(member) {
                return Err(MembersError::Member(member.clone()));
            }
            if members.iter().skip(index + 1).any(|other| other == member) {
                return Err(MembersError::Twice(member.clone()));
            }
        }
        Ok(Members(members))
    }
}

/// What the members have said last that gave no answer to a question.
#[derive(Debug, Default)]
pub struct Unanswered<'a> {
    by_member: BTreeMap<&'a str, (bool, String)>,
    last_silence: Option<&'a str>,
    last_refusal: Option<&'a str>,
}

impl<'a> Unanswered<'a> {
    /// Nothing, or that it has no leader, or is not reached.
    pub fn note_silence(&mut self, member: &'a str, why: String) {
        self.by_member.insert(member, (false, why));
        self.last_silence = Some(member);
    }

    /// That it does not do this.
    pub fn note_refusal(&mut self, member: &'a str, why: String) {
        self.by_member.insert(member, (true, why));
        self.last_refusal = Some(member);
    }

    fn last(&self, refuses: bool) -> Option<String> {
        let last = if refuses { self.last_refusal } else { self.last_silence };
        let is_so = |member: &&str| self.by_member.get(*member).is_some_and(|said| said.0 == refuses);
        let any = || self.by_member.iter().find(|(_, said)| said.0 == refuses).map(|(member, _)| *member);
        let member = last.filter(is_so).or_else(any)?;
        Some(format!("{member}: {}", self.by_member.get(member)?.1))
    }

    /// For whoever has asked.
    pub fn into_error(self, members: &Members) -> KeeperError {
        let silence = self.last(false);
        let members = members.to_string();
        match self.last(true) {
            None => KeeperError::EtcdSilent { members, last: silence.unwrap_or_default() },
            Some(last) => {
                let others = silence.map(|last| format!(", and others do not answer ({last})"));
                KeeperError::EtcdRefuses { members, last, others: others.unwrap_or_default() }
            }
        }
    }
}

/// A name, an address, or an address of IPv6 in brackets; then a port.
fn is_member(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    is_host
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests;
