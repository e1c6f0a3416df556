//! The network: frames are lost, copied, delayed, and cut off.

use super::driver::short;
use super::*;

impl World {
    pub(super) fn post_frame(&mut self, frame: Frame, _seat: usize) {
        self.digest(&[self.now.time.0, frame.xid.0, frame.transno.0, frame.body.len() as u64]);
        if self.cut.contains(&frame.src) || self.cut.contains(&frame.dst) {
            return self.count("frame cut");
        }
        let mut copies = 1;
        if self.loss_one_in > 0 && self.rng.one_in(self.loss_one_in) {
            copies = if self.rng.one_in(2) { 0 } else { 2 };
            self.count(if copies == 0 { "frame lost" } else { "frame copied" });
        }
        for _ in 0..copies {
            let mut delay = 5_000 + self.rng.below(self.delay_ns_max);
            if self.loss_one_in > 0 && self.rng.one_in(100) {
                self.count("frame delayed");
                delay += self.rng.below(3_000_000_000);
            }
            self.post(Duration::from_nanos(delay), Event::Deliver(frame.clone()));
        }
    }

    pub(super) fn deliver(&mut self, frame: Frame) {
        if self.cut.contains(&frame.src) || self.cut.contains(&frame.dst) {
            return self.count("frame cut");
        }
        self.trace(|| describe(&frame));
        match frame.dst {
            Endpoint::Target(id) => {
                if self.servers.get(&id).is_some_and(|server| server.engine.is_some()) {
                    self.on_server(id, |server, now, _, out| server.on_frame(now, frame, out));
                }
            }
            Endpoint::Client(id) => {
                if let Some(seat) = self.mounts.iter().position(|mount| mount.id == id) {
                    self.on_client(seat, Input::Frame(frame));
                }
            }
        }
    }

    /// Short ones are ridden out; long ones cost the client its sessions.
    pub(super) fn partition(&mut self, end: Endpoint) {
        let is_long = self.rng.one_in(4);
        let nanoseconds = if is_long { 100_000_000_000 } else { 0 } + self.rng.below(5_000_000_000);
        self.count(if is_long { "partition, long" } else { "partition, short" });
        self.trace(|| format!("{end} is cut off for {nanoseconds} ns"));
        if is_long {
            // Others may wait for what it holds until it is evicted.
            self.is_doubtful = true;
        }
        self.cut.insert(end);
        self.post(Duration::from_nanos(nanoseconds), Event::Heal(end));
    }
}

fn describe(frame: &Frame) -> String {
    let body = match frame.kind {
        wire::FrameKind::Request => wire::Request::from_bytes(&frame.body).map(|body| format!("{body:?}")),
        wire::FrameKind::Reply if frame.body.is_empty() => Ok(frame.status.to_string()),
        wire::FrameKind::Reply => wire::Reply::from_bytes(&frame.body).map(|body| format!("{body:?}")),
        wire::FrameKind::Callback => wire::Callback::from_bytes(&frame.body).map(|body| format!("{body:?}")),
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
