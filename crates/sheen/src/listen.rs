//! Where servers listen: on loopback, unless somebody says otherwise out loud.

use crate::{memory, sys};
use anyhow::{Context, Result, bail};
use base::TargetId;
use net::Router;
use std::io;
use std::net::{IpAddr, Ipv6Addr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// Ports that are tried when none was asked for: from the default one upwards, below those that the kernel hands out.
const PORTS: std::ops::Range<u16> = wire::PORT..wire::PORT + 2000;

/// What starts a server on the machine where it belongs. Without an address only that machine reaches it.
pub const HOW_TO_SERVE: &str =
    "systemctl start sheen-server@NAME, or sheen serve --listen ADDRESS --insecure-network DIR";

/// The host to listen on; loopback when none is given.
///
/// # Errors
/// A host that is not known, or that others can reach while `is_insecure_accepted` is false.
pub fn check_host(host: Option<&str>, is_insecure_accepted: bool) -> Result<String> {
    let host = host.unwrap_or("127.0.0.1");
    if host.parse::<Ipv6Addr>().is_ok() {
        bail!("--listen {host}: an IPv6 address stands in brackets: [{host}], or [{host}]:{}", wire::PORT);
    }
    let bare = split(host)?.0;
    let looked_up = (bare.trim_matches(['[', ']']), 0).to_socket_addrs();
    let addresses: Vec<IpAddr> = looked_up
        .with_context(|| format!("--listen {host}: this host is not known"))?
        .map(|address| address.ip())
        .collect();
    if is_insecure_accepted && addresses.iter().any(IpAddr::is_unspecified) {
        bail!("--listen {host}: name the address that others use to reach this machine");
    }
    if !is_insecure_accepted && addresses.iter().any(|address| !address.is_loopback()) {
        bail!(
            "--listen {host}: others can reach this address and servers trust whoever does; add --insecure-network if that is meant"
        );
    }
    Ok(host.to_owned())
}

/// The addresses of `HOST[:PORT][,HOST[:PORT]…]`, each as `check_host` has it.
///
/// # Errors
/// One of them is wrong.
pub fn check_hosts(hosts: Option<&str>, is_insecure_accepted: bool) -> Result<Vec<String>> {
    let hosts: Vec<Option<&str>> = match hosts {
        Some(hosts) => hosts.split(',').map(Some).collect(),
        None => vec![None],
    };
    hosts.into_iter().map(|host| check_host(host, is_insecure_accepted)).collect()
}

/// Refuses to listen on loopback because nobody has said where, while the management server is reached over a network: the targets would be
/// registered at an address that no other machine reaches. `mgs`: its addresses `HOST:PORT`.
///
/// # Errors
/// None of them is on loopback, and `host` is not given.
pub fn check_reachable(host: Option<&str>, mgs: &[String]) -> Result<()> {
    if host.is_some() {
        return Ok(());
    }
    // A name that is not known now says nothing.
    let found: Vec<IpAddr> = mgs
        .iter()
        .filter_map(|address| address.to_socket_addrs().ok())
        .flat_map(|found| found.map(|address| address.ip()))
        .collect();
    if found.is_empty() || found.iter().any(IpAddr::is_loopback) {
        return Ok(());
    }
    bail!(
        "the management server is at {}, and a server without an address listens on loopback, where other machines do not reach it; add \
         --listen ADDRESS --insecure-network (in a file of /etc/sheen: listen, insecure_network)",
        mgs.join(", ")
    )
}

/// What is wrong with a process that listens on loopback only, in a file system of which a target of another one is registered at an address
/// of a network. `other`: that target, with its addresses `HOST:PORT`.
pub fn unreachable(own: &[String], other: (TargetId, &[String])) -> Option<String> {
    let is_own_loopback = |address: &String| ip_of(address).is_some_and(|address| address.is_loopback());
    let is_network = |address: &String| ip_of(address).is_some_and(|address| !address.is_loopback());
    let (id, addresses) = other;
    let is_so = !own.is_empty()
        && own.iter().all(is_own_loopback)
        && !addresses.is_empty()
        && addresses.iter().all(is_network);
    is_so.then(|| {
        format!(
            "this process listens on {} only, where other machines do not reach its targets, and {id} is at {}; serve them with --listen ADDRESS \
             --insecure-network",
            own.join(", "),
            addresses.join(", ")
        )
    })
}

/// The address of `HOST:PORT` where that is no name.
fn ip_of(address: &str) -> Option<IpAddr> {
    split(address).ok()?.0.trim_matches(['[', ']']).parse().ok()
}

/// Host and port of `HOST[:PORT]`.
fn split(address: &str) -> Result<(&str, Option<u16>)> {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let number = port.parse().ok();
            let number = number.with_context(|| format!("'{port}' in '{address}' is no port: 0 to 65535"))?;
            Ok((host, Some(number)))
        }
        _ => Ok((address, None)),
    }
}

/// Whether `HOST[:PORT]` says which port.
///
/// # Errors
/// What it says is no port.
pub fn has_port(host: &str) -> Result<bool> {
    Ok(split(host)?.1.is_some())
}

/// Whether an address `HOST:PORT` is one of `HOST[:PORT]`.
pub fn is_at(address: &str, host: &str) -> bool {
    address == host || address.rsplit_once(':').is_some_and(|(of_address, _)| of_address == host)
}

/// True when nobody listens there now.
pub fn is_free(address: &str) -> bool {
    TcpListener::bind(address).is_ok()
}

/// Listens on each of these, and returns the addresses that others use. `mgs`: where the management server is that another
/// process serves. It may be down, and everybody looks for it at its port.
///
/// # Errors
/// A port is in use, or an address is not ours.
pub fn listen(router: &Arc<Router>, hosts: &[String], mgs: &[String]) -> Result<Vec<String>> {
    router.backlogs().set_byte_count_max(memory::backlog_bytes());
    router.set_descriptors_max(sys::raise_file_limit());
    hosts.iter().map(|host| listen_on(router, host, mgs)).collect()
}

/// Ports of a host that may be taken without being asked for, but for those of the management server.
fn ports_beside(mgs: &[String]) -> impl Iterator<Item = u16> {
    let port_of = |address: &String| split(address).ok().and_then(|(_, port)| port);
    let reserved: Vec<u16> = mgs.iter().filter_map(port_of).collect();
    PORTS.filter(move |port| !reserved.contains(port))
}

/// `HOST:PORT`, or the first free port of `HOST`.
fn listen_on(router: &Arc<Router>, address: &str, mgs: &[String]) -> Result<String> {
    let (host, port) = split(address)?;
    if let Some(port) = port {
        return match router.listen(address) {
            Ok(bound) => Ok(format!("{host}:{}", bound.port())),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                bail!(
                    "port {port} of {host} is in use by another program; choose another with --listen {host}:PORT"
                )
            }
            Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
        };
    }
    for port in ports_beside(mgs) {
        match router.listen(&format!("{host}:{port}")) {
            Ok(_) => return Ok(format!("{host}:{port}")),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error).with_context(|| format!("cannot listen on {host}")),
        }
    }
    bail!("no port of {host} from {} to {} is free", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_at_its_host_and_at_itself() {
        for host in ["10.0.0.1", "10.0.0.1:7988"] {
            assert!(is_at("10.0.0.1:7988", host), "{host}");
        }
        for host in ["10.0.0.1:7989", "10.0.0.2", "10.0.0.1:", ""] {
            assert!(!is_at("10.0.0.1:7988", host), "{host}");
        }
    }

    #[test]
    fn who_listens_on_ipv6_is_told_of_the_brackets() {
        for host in ["fd00::3", "::1"] {
            let said = check_host(Some(host), true).expect_err("no brackets").to_string();
            assert!(said.contains(&format!("in brackets: [{host}], or [{host}]:7988")), "{said}");
        }
        assert_eq!(check_host(Some("[::1]:7988"), false).ok().as_deref(), Some("[::1]:7988"));
    }

    #[test]
    fn who_serves_beside_others_on_a_network_says_its_address() {
        let mgs =
            |addresses: &[&str]| addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<_>>();
        let said = check_reachable(None, &mgs(&["10.0.0.5:7988", "10.0.0.6:7988"]))
            .expect_err("no address")
            .to_string();
        assert!(said.contains("10.0.0.5:7988, 10.0.0.6:7988") && said.contains("--listen ADDRESS"), "{said}");
        assert!(check_reachable(Some("127.0.0.1"), &mgs(&["10.0.0.5:7988"])).is_ok(), "it is meant");
        for fine in
            [&["127.0.0.1:7988"] as &[&str], &["[::1]:7988"], &["10.0.0.5:7988", "127.0.0.1:7988"], &[]]
        {
            assert!(check_reachable(None, &mgs(fine)).is_ok(), "{fine:?}");
        }
    }

    #[test]
    fn a_server_on_loopback_beside_one_on_a_network_is_told() {
        let said =
            |own: &str, other: &str| unreachable(&[own.to_owned()], (TargetId::ost(3), &[other.to_owned()]));
        let line = said("127.0.0.1:7988", "10.0.0.6:7988").unwrap_or_default();
        assert!(line.contains("OST0003 is at 10.0.0.6:7988") && line.contains("--listen ADDRESS"), "{line}");
        for (own, other) in [
            ("127.0.0.1:7988", "127.0.0.2:7988"),
            ("10.0.0.5:7988", "10.0.0.6:7988"),
            ("127.0.0.1:7988", "data1:7988"),
            ("meta:7988", "10.0.0.6:7988"),
        ] {
            assert_eq!(said(own, other), None, "{own} {other}");
        }
    }

    #[test]
    fn a_server_that_may_choose_leaves_the_management_server_its_port() {
        let mgs = ["127.0.0.1:7988".to_owned(), "10.0.0.1:7990".to_owned()];
        let chosen: Vec<u16> = ports_beside(&mgs).take(3).collect();
        assert_eq!(chosen, [7989, 7991, 7992]);
    }
}
