//! A listener for collectors: HTTP/1.1 GET and nothing else, a few at a time, none for long.

use anyhow::{Context, Result, bail};
use httparse::{EMPTY_HEADER, Request, Status};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Collectors that are answered at a time; others wait in the kernel's queue.
const THREAD_COUNT: usize = 2;
/// A request of a collector has a few hundred bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const HEADER_COUNT_MAX: usize = 64;
/// Whoever is slower is cut off, so that the others get their turn.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers collectors with what `text` says, on threads of its own.
///
/// # Errors
/// The address is none, or cannot be listened on.
pub fn start(address: &str, text: fn() -> String) -> Result<SocketAddr> {
    let listener = match TcpListener::bind(address) {
        Ok(listener) => Arc::new(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
            "metrics cannot be served on {address}, which is in use; one listener serves all processes of this machine, and may be there already"
        ),
        Err(error) => {
            return Err(error)
                .with_context(|| format!("metrics cannot be served on '{address}'; it takes HOST:PORT"));
        }
    };
    let bound = listener.local_addr().with_context(|| format!("metrics cannot be served on {address}"))?;
    for _ in 0..THREAD_COUNT {
        let listener = Arc::clone(&listener);
        std::thread::Builder::new().name("metrics".into()).spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    // Who is gone is not told.
                    Ok(stream) => drop(answer(&stream, text)),
                    // Descriptors may be used up for a while.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
    }
    Ok(bound)
}

fn answer(stream: &TcpStream, text: fn() -> String) -> io::Result<()> {
    let request = read_request(stream)?;
    let (status, kind, body) = match asked(&request) {
        Asked::Metrics => ("200 OK", OPEN_METRICS, text()),
        Asked::Nothing => ("404 Not Found", PLAIN, "metrics are on /metrics\n".to_owned()),
        Asked::Change => ("405 Method Not Allowed", PLAIN, "only GET is possible\n".to_owned()),
        Asked::Garbage => ("400 Bad Request", PLAIN, "this is no HTTP request\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let end = Instant::now() + ANSWER_TIMEOUT;
    write_until(end, stream, head.as_bytes())?;
    write_until(end, stream, body.as_bytes())
}

/// All of it, unless that takes longer: who takes a little now and then is slow too.
fn write_until(end: Instant, mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(end)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = bytes.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

fn time_left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Up to the end of its head, as far as it comes in time.
fn read_request(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + REQUEST_TIMEOUT;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while request.len() < REQUEST_BYTES_MAX && matches!(asked(&request), Asked::Garbage) {
        stream.set_read_timeout(Some(time_left(end)?))?;
        match stream.read(&mut part)? {
            0 => break,
            count => request.extend_from_slice(part.get(..count).unwrap_or_default()),
        }
    }
    Ok(request)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    /// What is not here.
    Nothing,
    /// Something other than to read.
    Change,
    /// No request, or not yet.
    Garbage,
}

fn asked(bytes: &[u8]) -> Asked {
    let mut headers = [EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut request = Request::new(&mut headers);
    let Ok(Status::Complete(_)) = request.parse(bytes) else { return Asked::Garbage };
    let path = request.path.unwrap_or_default();
    match (request.method, path.split('?').next()) {
        (Some("GET"), Some("/metrics")) => Asked::Metrics,
        (Some("GET"), _) => Asked::Nothing,
        _ => Asked::Change,
    }
}

#[cfg(test)]
mod tests;
