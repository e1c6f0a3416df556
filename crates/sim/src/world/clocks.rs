//! Clocks of machines that are set, by hours and while everything runs. Time itself goes on as before.

use super::*;

/// One round in so many begins with it.
const SET_ONE_IN: u64 = 12;
const AHEAD_MAX_NS: u64 = 12 * 3600 * 1_000_000_000;
/// Of clients: what comes of their clocks shows.
const SEAT_AHEAD_FACTOR: i64 = 4;

/// By how much the calendars of machines are ahead of the world's.
pub(super) struct Clocks {
    /// Of its own, so that what else happens in a seed is the same without it.
    rng: Rng,
    servers: BTreeMap<TargetId, i64>,
    seats: BTreeMap<usize, i64>,
}

impl Clocks {
    pub fn new(seed: u64) -> Clocks {
        Clocks { rng: Rng::new(!seed), servers: BTreeMap::new(), seats: BTreeMap::new() }
    }

    pub fn of_server(&self, now: Now, id: TargetId) -> Now {
        ahead(now, self.servers.get(&id))
    }

    pub fn of_seat(&self, now: Now, seat: usize) -> Now {
        ahead(now, self.seats.get(&seat))
    }
}

fn ahead(now: Now, by_ns: Option<&i64>) -> Now {
    Now { wall: WallTime(now.wall.0 + by_ns.unwrap_or(&0)), ..now }
}

impl World {
    /// Somebody sets a clock, or all servers' together: those of one cluster are mostly alike.
    pub(super) fn plan_clocks(&mut self) {
        let clocks = &mut self.clocks;
        if !clocks.rng.one_in(SET_ONE_IN) {
            return;
        }
        let by_ns = clocks.rng.below(2 * AHEAD_MAX_NS) as i64 - AHEAD_MAX_NS as i64;
        let ids: Vec<TargetId> = self.servers.keys().copied().collect();
        match clocks.rng.below(3) {
            0 => clocks.servers.extend(ids.into_iter().map(|id| (id, by_ns))),
            1 => clocks.servers.extend(clocks.rng.pick(&ids).map(|id| (*id, by_ns))),
            _ => {
                let seat = clocks.rng.below(self.mounts.len() as u64) as usize;
                clocks.seats.insert(seat, by_ns * SEAT_AHEAD_FACTOR);
            }
        }
        self.count("clock set");
    }

    /// The latest that an MDT's calendar can have said, and what it lets pass.
    pub fn latest_wall(&self) -> WallTime {
        WallTime(self.now.wall.0 + AHEAD_MAX_NS as i64 + 1_000_000_000)
    }
}
