//! Connections that break while both ends live: a client connects again, and what its former connection brings may come later.

use super::*;

/// One round in so many has one. Of the targets that start, every second one is a target whose clients have others soon.
const BREAK_ONE_IN: u64 = 8;
/// As long after a start.
const AFTER_START_MAX_NS: u64 = 400_000_000;

pub(super) struct Breaks {
    /// Of its own, so that what else is planned in a seed is the same without it.
    rng: Rng,
    /// Every second seed has some.
    has_any: bool,
}

impl Breaks {
    pub fn new(seed: u64) -> Breaks {
        Breaks { rng: Rng::new(seed ^ 0xb4ea_6500), has_any: seed % 2 == 1 }
    }
}

impl World {
    pub(super) fn plan_breaks(&mut self) {
        if self.breaks.has_any && self.breaks.rng.one_in(BREAK_ONE_IN) {
            let ids: Vec<TargetId> = self.servers.keys().copied().collect();
            if let Some(id) = self.breaks.rng.pick(&ids).copied() {
                self.plan_break(id, 20_000_000);
            }
        }
    }

    /// Whoever comes to a target that has just started may lose his connection in the middle of its recovery.
    pub(super) fn plan_breaks_after_start(&mut self, id: TargetId) {
        if self.breaks.has_any && self.breaks.rng.one_in(2) {
            for _ in 0..2 {
                self.plan_break(id, AFTER_START_MAX_NS);
            }
        }
    }

    fn plan_break(&mut self, id: TargetId, within_ns: u64) {
        let seat = self.breaks.rng.below(self.options.client_count as u64) as usize;
        let at = Duration::from_nanos(self.breaks.rng.below(within_ns));
        self.post(at, Event::Break(seat, id));
    }

    pub(super) fn break_connection(&mut self, seat: usize, id: TargetId) {
        self.count("connection broken");
        self.trace(|| format!("client {seat} loses its connection to {id}"));
        self.on_client(seat, Input::ConnectionLost(id));
    }
}
