//! Network identifiers as operators write them: `HOST[:PORT]@tcp`; `,` between the NIDs of one node, `:` between nodes
//! that stand in for each other.

pub mod route;

use anyhow::{Result, bail};
use std::net::Ipv6Addr;

/// Reads one NID into an address `HOST:PORT`.
///
/// # Errors
/// A network other than `tcp`, or no host.
pub fn parse_nid(text: &str) -> Result<String> {
    let Some((address, net)) = text.rsplit_once('@') else {
        bail!("'{text}' is no NID; write HOST[:PORT]@tcp, for example 127.0.0.1:{}@tcp", wire::PORT);
    };
    // Lustre numbers its networks, and the first one may be written with or without.
    if net != "tcp" && net != "tcp0" {
        bail!("the network '{net}' of '{text}' is not known; only tcp is");
    }
    if address.parse::<Ipv6Addr>().is_ok() {
        bail!(
            "'{text}': an IPv6 address stands in brackets: [{address}]@tcp, or [{address}]:{}@tcp",
            wire::PORT
        );
    }
    let (host, port) = match address.rsplit_once(':') {
        // An IPv6 address is written in brackets when a port follows.
        Some((host, port)) if !port.contains(']') => {
            let Ok(port) = port.parse::<u16>() else { bail!("'{port}' in '{text}' is no port number") };
            (host, port)
        }
        _ => (address, wire::PORT),
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(bracketed) => bracketed.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)),
    };
    if !is_host || port == 0 {
        bail!("'{text}' is no NID; write HOST[:PORT]@tcp, for example 127.0.0.1:{}@tcp", wire::PORT);
    }
    Ok(format!("{host}:{port}"))
}

/// Reads `NID[,NID][:NID…]` into addresses, in the order in which they are tried.
///
/// # Errors
/// As `parse_nid`, or an empty list.
pub fn parse_nids(text: &str) -> Result<Vec<String>> {
    let mut addresses = Vec::new();
    let mut rest = text;
    // A NID ends with its `@net`, so the colon of a port and the one between nodes are told apart.
    while !rest.is_empty() {
        let at = rest.find('@').unwrap_or(rest.len());
        let after_net = rest.get(at..).unwrap_or_default();
        let end = after_net.find([',', ':']).map_or(rest.len(), |offset| at + offset);
        addresses.push(parse_nid(rest.get(..end).unwrap_or(rest))?);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    if addresses.is_empty() {
        bail!("a NID is missing; write HOST[:PORT]@tcp, for example 127.0.0.1:{}@tcp", wire::PORT);
    }
    Ok(addresses)
}

/// `HOST:PORT` as a NID.
pub fn format_nid(address: &str) -> String {
    format!("{address}@tcp")
}

/// A NID without its port, as Lustre names clients: `127.0.0.1@tcp`. A client chooses its NID, so that it may be anything.
pub fn without_port(nid: &str) -> String {
    let Some((address, net)) = nid.rsplit_once('@') else { return nid.to_owned() };
    match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => format!("{host}@{net}"),
        _ => nid.to_owned(),
    }
}

/// What `mount` mounts: `NIDS:/FSNAME[/SUBDIR]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Addresses of the management server.
    pub mgs: Vec<String>,
    pub fsname: String,
    /// Without slashes at its ends; empty for the root.
    pub subdir: String,
}

impl Source {
    /// # Errors
    /// Whatever part is wrong, named.
    pub fn parse(text: &str) -> Result<Source> {
        let Some((nids, path)) = text.split_once(":/") else {
            bail!(
                "'{text}' is no file system; write NID[:NID]:/FSNAME[/SUBDIR], for example 127.0.0.1@tcp:/sheen"
            );
        };
        let (fsname, subdir) = path.split_once('/').unwrap_or((path, ""));
        check_fsname(fsname)?;
        Ok(Source {
            mgs: parse_nids(nids)?,
            fsname: fsname.to_owned(),
            subdir: subdir.trim_matches('/').to_owned(),
        })
    }
}

/// # Errors
/// A name that Lustre would not take either: 1 to 8 letters, digits, `-` and `_`.
pub fn check_fsname(fsname: &str) -> Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if fsname.is_empty() || fsname.len() > 8 || !fsname.chars().all(is_allowed) {
        bail!("'{fsname}' is no file system name; use 1 to 8 letters, digits, - and _");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
