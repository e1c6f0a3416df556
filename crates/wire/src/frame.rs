//! Frames: one header, one body, and file data beside it.
//!
//! ```text
//! 0  u32 magic "SHN1"      4  u16 header bytes     6  u8 kind        7  u8 reserved
//! 8  u32 body bytes       12  u32 data bytes      16  u32 flags     20  u16 slot     22 u16 status
//! 24 u64 session          32  u64 xid             40  u64 transno   48  u64 last_committed
//! 56 u64 acked xid        64  u64 trace           72  24 B source   96  24 B destination
//! 120 u32 CRC32C of the data   124 u32 CRC32C of header (bytes 0..124) and body
//! ```

use crate::Opcode;
use base::{ClientId, Endpoint, Status, TargetId, TargetKind, Transno, Xid, limits};
use bytes::{Buf, Bytes};

pub const MAGIC: u32 = 0x314e_4853;
pub const HEADER_BYTES: usize = 128;
/// What is longer has no more than as much again beside it in a buffer (`net::connection`).
const SHARED_BYTES_MAX: usize = 256 << 10;

pub mod flags {
    //! Bits of `Frame::flags`.
    /// The request is sent again after a restart of the target: it was answered with `transno`.
    pub const REPLAY: u32 = 1;
    /// The request may have arrived before.
    pub const RESENT: u32 = 2;
    /// The target is recovering: the reply says nothing about other requests.
    pub const RECOVERING: u32 = 4;
    /// The target was restarted while the request was on its way: its answer is wanted if it was executed before, and `Again`
    /// if not. It is not executed now.
    pub const ASK: u32 = 8;
    /// The data have no checksum. Who asks so is answered so.
    pub const UNCHECKED_DATA: u32 = 16;
    /// Much work, and nobody waits for the answer yet: where both ends are in one process, another thread may do it.
    pub const UNAWAITED: u32 = 32;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameKind {
    Request = 1,
    Reply = 2,
    Callback = 3,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub kind: FrameKind,
    pub src: Endpoint,
    pub dst: Endpoint,
    pub flags: u32,
    /// Reply slot of a modifying request, 0-based; `NO_SLOT` for others.
    pub slot: u16,
    /// Replies only.
    pub status: Status,
    /// Chosen by the target at connect; 0 before.
    pub session: u64,
    pub xid: Xid,
    /// Reply: the number under which the request was executed, 0 when it changed nothing. Replay: that number.
    pub transno: Transno,
    /// Reply: everything up to here survives any crash of this target.
    pub last_committed: Transno,
    /// Request: every reply up to this xid has arrived.
    pub acked: Xid,
    /// Follows one system call through every hop.
    pub trace: u64,
    pub body: Bytes,
    pub data: Bytes,
}

impl Frame {
    pub const NO_SLOT: u16 = u16::MAX;

    /// An empty frame of a kind between two ends.
    pub fn new(kind: FrameKind, src: Endpoint, dst: Endpoint) -> Frame {
        Frame {
            kind,
            src,
            dst,
            flags: 0,
            slot: Frame::NO_SLOT,
            status: Status::Ok,
            session: 0,
            xid: Xid::ZERO,
            transno: Transno::ZERO,
            last_committed: Transno::ZERO,
            acked: Xid::ZERO,
            trace: 0,
            body: Bytes::new(),
            data: Bytes::new(),
        }
    }

    /// The header as it goes over the wire; body and data follow it.
    ///
    /// # Errors
    /// `Length` for a frame that its receiver would refuse.
    pub fn header(&self) -> Result<[u8; HEADER_BYTES], WireError> {
        self.check_length()?;
        Ok(self.header_before(0))
    }

    /// # Errors
    /// `Length` for a frame that its receiver would refuse.
    pub fn check_length(&self) -> Result<(), WireError> {
        let (body_bytes, data_bytes) = (self.body.len(), self.data.len());
        if body_bytes > limits::FRAME_BODY_BYTES_MAX || data_bytes > limits::BULK_BYTES_MAX {
            return Err(WireError::Length { header_bytes: HEADER_BYTES, body_bytes, data_bytes });
        }
        Ok(())
    }

    /// The header when so many bytes of it follow that only a newer version knows.
    fn header_before(&self, more_bytes: usize) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&((HEADER_BYTES + more_bytes) as u16).to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, 0]);
        out.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.slot.to_le_bytes());
        out.extend_from_slice(&self.status.code().to_le_bytes());
        for number in
            [self.session, self.xid.0, self.transno.0, self.last_committed.0, self.acked.0, self.trace]
        {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_endpoint(&mut out, self.src);
        put_endpoint(&mut out, self.dst);
        out.extend_from_slice(&data_checksum(self.flags, &self.data).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out), &self.body);
        out.extend_from_slice(&crc.to_le_bytes());
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&out);
        header
    }

    /// The same in memory of its own. Short frames are slices of the buffer into which they were read with what came before and after
    /// them, and keep all of it: whoever keeps one for long, and counts it by its bytes, takes it out of there.
    #[must_use]
    pub fn detached(&self) -> Frame {
        let detached = |bytes: &Bytes| match bytes.len() {
            0..SHARED_BYTES_MAX => Bytes::copy_from_slice(bytes),
            _ => bytes.clone(),
        };
        Frame { body: detached(&self.body), data: detached(&self.data), ..self.clone() }
    }

    /// All bytes in one buffer, for tests and fixtures.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_with(&[])
    }

    /// The same with more fields at the end of the header, as a newer version may send it.
    pub fn to_bytes_with(&self, more_header: &[u8]) -> Vec<u8> {
        let mut bytes = self.header_before(more_header.len()).to_vec();
        bytes.extend_from_slice(more_header);
        bytes.extend_from_slice(&self.body);
        bytes.extend_from_slice(&self.data);
        bytes
    }

    /// How many bytes the frame has that starts here, header included; `None` until the lengths have arrived.
    /// Lengths are checked here, before anybody allocates.
    pub fn byte_count(bytes: &[u8]) -> Result<Option<usize>, WireError> {
        let Some(mut start) = bytes.get(..16) else { return Ok(None) };
        let magic = start.get_u32_le();
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        let header_bytes = usize::from(start.get_u16_le());
        start.advance(2);
        let (body_bytes, data_bytes) = (start.get_u32_le() as usize, start.get_u32_le() as usize);
        if !(HEADER_BYTES..=4096).contains(&header_bytes)
            || body_bytes > limits::FRAME_BODY_BYTES_MAX
            || data_bytes > limits::BULK_BYTES_MAX
        {
            return Err(WireError::Length { header_bytes, body_bytes, data_bytes });
        }
        Ok(Some(header_bytes + body_bytes + data_bytes))
    }

    /// Reads one whole frame, as delimited by `byte_count`.
    pub fn from_bytes(bytes: Bytes) -> Result<Frame, WireError> {
        let byte_count = Frame::byte_count(&bytes)?.ok_or(WireError::Truncated)?;
        if bytes.len() != byte_count {
            return Err(WireError::Truncated);
        }
        let mut head = bytes.get(4..HEADER_BYTES).ok_or(WireError::Truncated)?;
        let header_bytes = usize::from(head.get_u16_le());
        let kind = match head.get_u8() {
            1 => FrameKind::Request,
            2 => FrameKind::Reply,
            3 => FrameKind::Callback,
            other => return Err(WireError::Kind(other)),
        };
        head.advance(1);
        let body_bytes = head.get_u32_le() as usize;
        head.advance(4);
        let flags = head.get_u32_le();
        let slot = head.get_u16_le();
        let status = Status::from_code(head.get_u16_le()).unwrap_or(Status::ProtocolError);
        let session = head.get_u64_le();
        let xid = Xid(head.get_u64_le());
        let transno = Transno(head.get_u64_le());
        let last_committed = Transno(head.get_u64_le());
        let acked = Xid(head.get_u64_le());
        let trace = head.get_u64_le();
        let src = get_endpoint(&mut head)?;
        let dst = get_endpoint(&mut head)?;
        let data_crc = head.get_u32_le();
        let crc = head.get_u32_le();
        let body = bytes.slice(header_bytes..header_bytes + body_bytes);
        let data = bytes.slice(header_bytes + body_bytes..);
        let covered = bytes.get(..HEADER_BYTES - 4).ok_or(WireError::Truncated)?;
        let head_crc = crc32c::crc32c_append(crc32c::crc32c(covered), &body);
        if head_crc != crc || data_checksum(flags, &data) != data_crc {
            return Err(WireError::Checksum);
        }
        Ok(Frame {
            kind,
            src,
            dst,
            flags,
            slot,
            status,
            session,
            xid,
            transno,
            last_committed,
            acked,
            trace,
            body,
            data,
        })
    }
}

fn data_checksum(flags: u32, data: &[u8]) -> u32 {
    if flags & flags::UNCHECKED_DATA == 0 { crc32c::crc32c(data) } else { 0 }
}

/// Tag, target kind, target index, 4 bytes of nothing, client id.
fn put_endpoint(out: &mut Vec<u8>, endpoint: Endpoint) {
    let (tag, kind, index, client) = match endpoint {
        Endpoint::Target(target) => (1, target.kind as u8, target.index, 0),
        Endpoint::Client(client) => (2, 0, 0, client.0),
    };
    out.extend_from_slice(&[tag, kind]);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&client.to_le_bytes());
}

fn get_endpoint(head: &mut &[u8]) -> Result<Endpoint, WireError> {
    let (tag, kind, index) = (head.get_u8(), head.get_u8(), head.get_u16_le());
    head.advance(4);
    let client = head.get_u128_le();
    let kind = match (tag, kind) {
        (1, 1) => TargetKind::Mgt,
        (1, 2) => TargetKind::Mdt,
        (1, 3) => TargetKind::Ost,
        // The id of a target is that target, under whatever tag: what is refused of one is not to be had by the other.
        (2, _) => return Ok(ClientId(client).endpoint()),
        _ => return Err(WireError::Endpoint { tag, kind }),
    };
    Ok(Endpoint::Target(TargetId { kind, index }))
}

/// Why bytes from a peer were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("these bytes are no SheenFS frame (magic {0:#010x}): is another service on this port?")]
    Magic(u32),
    #[error(
        "a frame announces {header_bytes} header, {body_bytes} body and {data_bytes} data bytes: beyond the limits"
    )]
    Length { header_bytes: usize, body_bytes: usize, data_bytes: usize },
    #[error("a frame ends early")]
    Truncated,
    #[error("a frame has the unknown kind {0}")]
    Kind(u8),
    #[error("a frame has an unknown endpoint (tag {tag}, kind {kind})")]
    Endpoint { tag: u8, kind: u8 },
    #[error("a frame arrived damaged: its checksum does not match")]
    Checksum,
    #[error("a message body cannot be read: {0}")]
    Body(String),
    /// Of a newer version. The session goes on.
    #[error("a request has the opcode {0}, which this version does not know")]
    UnknownOpcode(Opcode),
}

#[cfg(test)]
mod tests;
