//! What a frame says, without what may be another in each run or each version: sessions, epochs, clocks, leases, versions and features in a
//! connect, transaction numbers (but whether there is one) and the versions that follow from them, what is committed, of objects too, traces, xids, and flags about the way.

use base::{Endpoint, Epoch, Transno, Version, WallTime};
use bytes::Bytes;
use wire::session::features;
use wire::{
    Callback, ConnectReply, ConnectRequest, Frame, FrameKind, MdtReply, MdtRequest, OstReply, OstRequest,
    Reply, Request, flags,
};

/// Flags that are part of what is asked for.
const SAID: u32 = flags::REPLAY | flags::ASK | flags::UNCHECKED_DATA;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meaning {
    pub src: Endpoint,
    pub dst: Endpoint,
    pub text: String,
    pub data: Bytes,
}

impl Meaning {
    pub fn of(frame: &Frame) -> Meaning {
        let text = match frame.kind {
            FrameKind::Request => request(frame),
            FrameKind::Reply => reply(frame),
            FrameKind::Callback => callback(frame),
        };
        Meaning { src: frame.src, dst: frame.dst, text, data: frame.data.clone() }
    }
}

fn request(frame: &Frame) -> String {
    let request = match Request::from_bytes(&frame.body) {
        Ok(Request::Connect(connect)) => Request::Connect(ConnectRequest {
            version: 0,
            version_oldest: 0,
            features: 0,
            session: 0,
            target_epoch: Epoch::ZERO,
            starts: wire::Starts::default(),
            ..connect
        }),
        // Later versions tell with these, too, what was read.
        Ok(Request::Ping { .. }) => Request::PING,
        Ok(Request::Disconnect { .. }) => Request::DISCONNECT,
        Ok(request) => without_stamps(request),
        Err(error) => return format!("request that cannot be read: {error}"),
    };
    let has_slot = frame.slot != Frame::NO_SLOT;
    let text = format!("request, flags {}, slot {has_slot}: {request:?}", frame.flags & SAID);
    // What MDTs tell each other of inodes has versions in it.
    if matches!(request, Request::Peer(_)) { without_versions(&text) } else { text }
}

/// Times of a clock, which later versions make later than others that they know, and tell in more places.
fn without_stamps(mut request: Request) -> Request {
    match &mut request {
        Request::Ost(OstRequest::Write { stamp, .. } | OstRequest::Change { stamp, .. }) => {
            *stamp = WallTime(0);
        }
        Request::Mdt(MdtRequest::Setattr { stamp, .. }) => *stamp = None,
        Request::Mdt(MdtRequest::Close { data: Some(data), .. }) => data.stamp = WallTime(0),
        Request::Mdt(MdtRequest::ReportSize { mtime, stamp, .. }) => {
            (*mtime, *stamp) = (WallTime(0), WallTime(0));
        }
        Request::Mdt(MdtRequest::ReportSizes { reports }) => {
            for report in reports {
                (report.mtime, report.stamp) = (WallTime(0), WallTime(0));
            }
        }
        _ => {}
    }
    request
}

fn reply(frame: &Frame) -> String {
    // That of a new session tells what is there still of an earlier one; who does not know it leaves it unread.
    let is_connected = matches!(Reply::from_bytes(&frame.body), Ok(Reply::Connected(_)));
    let has_changed = frame.transno.0 != 0 && !is_connected;
    if frame.body.is_empty() {
        return format!("reply, {:?}, changed {has_changed}", frame.status);
    }
    let reply = match Reply::from_bytes(&frame.body) {
        Ok(Reply::Connected(connected)) => Reply::Connected(ConnectReply {
            // What both ends can do, as far as a session of that time could use it.
            features: connected.features & features::ALL,
            version: 0,
            session: 0,
            target_epoch: Epoch::ZERO,
            server_time_ns: 0,
            lease_ms: 0,
            software: String::new(),
            started_at: base::WallTime::default(),
            ..connected
        }),
        Ok(Reply::Ost(mut reply)) => {
            // How much a crash could take back depends on when the disk was done.
            match &mut reply {
                OstReply::Attrs(attrs) => {
                    attrs.iter_mut().flatten().for_each(|attr| attr.uncommitted = Transno::ZERO);
                }
                OstReply::Written { attr: Some(attr), .. } => attr.uncommitted = Transno::ZERO,
                _ => {}
            }
            Reply::Ost(reply)
        }
        Ok(Reply::Mdt(MdtReply::Entry(mut entry))) => {
            // Of a directory on another MDT, later versions tell more; any answer of that MDT counts for more.
            entry.attr = entry.attr.filter(|attr| attr.version != Version(0));
            Reply::Mdt(MdtReply::Entry(entry))
        }
        Ok(reply) => reply,
        Err(error) => return format!("reply that cannot be read: {error}"),
    };
    without_versions(&format!("reply, {:?}, changed {has_changed}: {reply:?}", frame.status))
}

/// They are numbers of transactions.
fn without_versions(text: &str) -> String {
    let mut parts = text.split("Version(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "Version(" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

fn callback(frame: &Frame) -> String {
    match Callback::from_bytes(&frame.body) {
        Ok(Callback::Evicted { .. }) => "callback: evicted".to_owned(),
        Ok(callback) => format!("callback: {callback:?}"),
        Err(error) => format!("callback that cannot be read: {error}"),
    }
}
