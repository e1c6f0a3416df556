//! Those at the other end of an MDT that are none of today's servers.

use base::limits::RECOVERY_WINDOW;
use base::{Endpoint, Now, Status, TargetId};
use bytes::Bytes;
use std::sync::Arc;
use store::MemoryMeta;
use wire::{Frame, FrameKind, Request};

/// Requests to an MDT that it does not execute, and its answer to them.
#[derive(Clone)]
pub struct OtherVersion {
    pub mdt: u16,
    pub is_it: fn(&Request) -> bool,
    pub status: Status,
    pub body: Bytes,
}

impl OtherVersion {
    pub fn answer(&self, frame: &Frame) -> Option<Frame> {
        let is_it = || Request::from_bytes(&frame.body).is_ok_and(|request| (self.is_it)(&request));
        if frame.dst != Endpoint::Target(TargetId::mdt(self.mdt))
            || frame.kind != FrameKind::Request
            || !is_it()
        {
            return None;
        }
        let mut reply = Frame::new(FrameKind::Reply, frame.dst, frame.src);
        (reply.session, reply.xid) = (frame.session, frame.xid);
        (reply.status, reply.body) = (self.status, self.body.clone());
        Some(reply)
    }
}

/// Answers sessions and destroys.
pub struct FakeOst {
    pub core: target::Core<MemoryMeta>,
    pub store: Arc<MemoryMeta>,
}

pub fn open_ost(store: &Arc<MemoryMeta>, index: u16, now: Now) -> target::Core<MemoryMeta> {
    let options = target::CoreOptions {
        id: TargetId::ost(index),
        uuid: 77,
        fsname: "test".into(),
        now,
        recovery_window: RECOVERY_WINDOW,
        has_external_data: false,
        owed: target::nothing_owed,
    };
    target::Core::open(Arc::clone(store), options).unwrap()
}
