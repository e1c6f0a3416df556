//! One question to whoever listens at an address, on a connection of its own: for what has no session and no way through the router, which
//! knows one place for each target.

use bytes::BytesMut;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use wire::Frame;

const READ_BYTES: usize = 4096;
/// An answer is one frame; whoever says more than this has not understood.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends the frame, and returns the one that comes back. (The name of a machine may take longer to be found than `limit`.)
///
/// # Errors
/// Nobody is there, or nothing comes within `limit`, or what comes is no frame.
pub fn ask(address: &str, question: &Frame, limit: Duration) -> io::Result<Frame> {
    let until = Instant::now() + limit;
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, left(until)?) {
            // A port of our own that nobody listens on may connect to itself on loopback.
            Ok(stream) if stream.local_addr()? == candidate => {
                error = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return ask_on(&stream, question, until),
            Err(failed) => error = failed,
        }
    }
    Err(error)
}

fn ask_on(mut stream: &TcpStream, question: &Frame, until: Instant) -> io::Result<Frame> {
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(&question.to_bytes())?;
    let invalid = |error: wire::WireError| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut buffer = BytesMut::new();
    loop {
        if let Some(byte_count) = Frame::byte_count(&buffer).map_err(invalid)? {
            if byte_count > ANSWER_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if byte_count <= buffer.len() {
                return Frame::from_bytes(buffer.split_to(byte_count).freeze()).map_err(invalid);
            }
        }
        stream.set_read_timeout(Some(left(until)?))?;
        let mut bytes = [0; READ_BYTES];
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer.extend_from_slice(&bytes[..count]),
        }
    }
}

/// More than nothing, which would be no limit.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
