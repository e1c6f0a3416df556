//! Frames between the machines of a simulated cluster: who calls, and how they read in a trace.

use crate::servers::Server;
use base::{ClientId, Endpoint};
use wire::{Callback, Frame, FrameKind, Reply, Request};

/// In the name of a client's machine as a caller of the management server.
pub const MGC_MARK: u128 = 1 << 120;

/// Whose machine it is that calls the management server.
pub fn host(end: Endpoint) -> Endpoint {
    match end {
        Endpoint::Client(caller) => match Server::of_caller(caller) {
            Some(target) => Endpoint::Target(target),
            None => Endpoint::Client(ClientId(caller.0 & !MGC_MARK)),
        },
        target => target,
    }
}

/// One line for a trace.
pub fn describe(frame: &Frame) -> String {
    let body = match frame.kind {
        FrameKind::Request => Request::from_bytes(&frame.body).map(|body| format!("{body:?}")),
        FrameKind::Reply if frame.body.is_empty() => Ok(frame.status.to_string()),
        FrameKind::Reply => Reply::from_bytes(&frame.body).map(|body| format!("{body:?}")),
        FrameKind::Callback => Callback::from_bytes(&frame.body).map(|body| format!("{body:?}")),
    };
    let end = |end: Endpoint| match end {
        Endpoint::Target(id) => id.to_string(),
        Endpoint::Client(id) => format!("c{}", id.0 & 0xffff),
    };
    let body = body.unwrap_or_else(|error| error.to_string());
    format!(
        "{} -> {} xid {} slot {} t {} lc {} f{} {}",
        end(frame.src),
        end(frame.dst),
        frame.xid,
        frame.slot as i16,
        frame.transno,
        frame.last_committed,
        frame.flags,
        short(&body)
    )
}

/// The beginning of a text that may be long.
pub fn short(text: &str) -> String {
    if text.len() <= 300 {
        text.to_string()
    } else {
        format!("{}…", text.chars().take(300).collect::<String>())
    }
}
