//! What a process is called that listens nowhere: the address from which it reaches the management server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// As in Lustre: whoever reaches its server without a network.
const LOOPBACK: &str = "0@lo";

/// The NID of this machine on the way to the first of these addresses `HOST:PORT` to which there is one.
pub fn own_nid(addresses: &[String]) -> String {
    let local = addresses.iter().find_map(|address| local_address(address).ok());
    local.map_or_else(|| LOOPBACK.to_owned(), nid_of)
}

fn nid_of(local: IpAddr) -> String {
    match local {
        local if local.is_loopback() => LOOPBACK.to_owned(),
        IpAddr::V4(local) => format!("{local}@tcp"),
        IpAddr::V6(local) => format!("[{local}]@tcp"),
    }
}

/// The kernel chooses it when a datagram socket is connected, for which nothing is sent.
fn local_address(address: &str) -> io::Result<IpAddr> {
    let to_first = |remote: SocketAddr| {
        let any = match remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(remote)?;
        Ok(socket.local_addr()?.ip())
    };
    let mut last = Err(io::ErrorKind::NotFound.into());
    for remote in address.to_socket_addrs()? {
        last = to_first(remote);
        if last.is_ok() {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests;
