//! A made-up next version: its headers are longer, its bodies say more at their ends, it has a flag and a feature that nobody here knows,
//! it can still speak the version of today, and now and then it calls back with something of its own.

use base::{Endpoint, TargetKind};
use bytes::Bytes;
use wire::session::features;
use wire::{Frame, FrameKind, Reply, Request};

const FLAG: u32 = 1 << 31;
const FEATURE: u64 = 1 << 63;
const MORE_HEADER: &[u8] = b"fields of a newer header";
const MORE_BODY: &[u8] = b"fields of a newer body";

/// What the newer version sends instead, as today's decoder reads it.
pub fn seen_from_today(frame: &Frame) -> Frame {
    let newer = Frame { flags: frame.flags | FLAG, body: body(frame).into(), ..frame.clone() };
    let bytes = newer.to_bytes_with(MORE_HEADER);
    assert_eq!(Frame::byte_count(&bytes), Ok(Some(bytes.len())));
    Frame::from_bytes(bytes.into()).expect("a longer header is skipped")
}

fn body(frame: &Frame) -> Vec<u8> {
    let mut body = frame.body.to_vec();
    if let (FrameKind::Request, Ok(Request::Connect(mut connect))) = (frame.kind, Request::from_bytes(&body))
    {
        connect.version += 1;
        connect.features |= FEATURE;
        body = Request::Connect(connect).to_bytes().to_vec();
    }
    if let (FrameKind::Reply, Ok(Reply::Connected(mut reply))) = (frame.kind, Reply::from_bytes(&body)) {
        assert_eq!(reply.version, wire::VERSION, "the lower one is spoken");
        let is_ost = matches!(frame.src, Endpoint::Target(target) if target.kind == TargetKind::Ost);
        let of_others = if is_ost { features::MANIFESTS } else { features::OBJECT_MANIFESTS };
        assert_eq!(reply.features, features::ALL & !of_others, "what only one end knows is not in force");
        reply.features |= FEATURE;
        body = Reply::Connected(reply).to_bytes().to_vec();
    }
    body.extend_from_slice(MORE_BODY);
    body
}

/// An answer to a connect from somebody who knows nothing of some features, and a request that belongs to one of them as he sees it;
/// anything else as it is.
pub fn without(features: u64, frame: Frame) -> Frame {
    if let (FrameKind::Reply, Ok(Reply::Connected(mut reply))) = (frame.kind, Reply::from_bytes(&frame.body))
    {
        reply.features &= !features;
        return Frame { body: Reply::Connected(reply).to_bytes(), ..frame };
    }
    let needed = match Request::from_bytes(&frame.body) {
        Ok(Request::Ost(wire::OstRequest::LockAndRead { .. })) => features::READ_WITH_LOCK,
        Ok(Request::Mdt(wire::MdtRequest::ReportSizes { .. })) => features::REPORTS,
        _ => 0,
    };
    if frame.kind == FrameKind::Request && needed & features != 0 {
        let body = frame.body.iter().enumerate().map(|(at, byte)| if at == 1 { 250 } else { *byte });
        return Frame { body: body.collect(), ..frame };
    }
    frame
}

/// In the session of a reply, behind it.
pub fn unknown_callback(reply: &Frame) -> Frame {
    let mut frame = Frame::new(FrameKind::Callback, reply.src, reply.dst);
    frame.session = reply.session;
    frame.body = Bytes::from_static(&[200, 1, 2, 3]);
    frame
}
