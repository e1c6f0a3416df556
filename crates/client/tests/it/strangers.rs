//! Somebody who may send to every target, and repeats what clients and servers have said with damage: in their names, in their sessions, in
//! the middle of recoveries. What that makes of files is his own affair; no machine panics or breaks its invariants, each starts again from
//! what it has written, and whoever mounts afterwards is served.

mod forger;
mod users;

use crate::skew::tap::Tap;
use crate::world::{O_RDONLY, TOP, World};
use base::{Duration, Rng, TargetId};
use client::{Answer, Call};
pub use forger::Strangers;
use forger::Whose;
use users::Users;

const SERVER_COUNT: u16 = 2;
const MOUNT_COUNT: usize = 2;
const STEP_COUNT: usize = 400;
const SEEDS: std::ops::Range<u64> = 0..8;

fn all_targets() -> impl Iterator<Item = TargetId> {
    (0..SERVER_COUNT).flat_map(|index| [TargetId::mdt(index), TargetId::ost(index)])
}

fn play(seed: u64, whose: Whose) -> World {
    let mut world = World::new(SERVER_COUNT, SERVER_COUNT, MOUNT_COUNT);
    world.tap = Tap::Strangers(Box::new(Strangers::new(seed, whose)));
    let mut rng = Rng::new(seed);
    let targets: Vec<TargetId> = all_targets().collect();
    let mut users: [Users; MOUNT_COUNT] = Default::default();
    for _ in 0..STEP_COUNT {
        let mount = rng.below(MOUNT_COUNT as u64) as usize;
        match rng.below(60) {
            0 | 22 => world.restart(*rng.pick(&targets).expect("there are some")),
            1 | 21 => world.lose_power(*rng.pick(&targets).expect("there are some")),
            2 => world.evict(mount, rng.below(2) as u16),
            3 => world.evict_from_ost(mount, rng.below(2) as u16),
            4 => world.pass(Duration::from_secs(20)),
            5 | 6 => world.is_syncing = rng.one_in(3),
            7 | 8 => world.sync(),
            9 => world.pass_a_little(),
            10..=20 => world.run(),
            _ => {
                users[mount].step(&mut world, mount, &mut rng);
                // What it sends may be on its way when the next thing happens.
                for _ in 0..rng.below(20) {
                    world.carry_one(&mut rng);
                }
            }
        }
    }
    let Tap::Strangers(strangers) = std::mem::replace(&mut world.tap, Tap::Open) else {
        panic!("they are there to the end")
    };
    assert!(
        strangers.total_count > STEP_COUNT,
        "seed {seed}: {} requests were made up",
        strangers.total_count
    );
    world.is_syncing = true;
    targets.iter().for_each(|target| world.restart(*target));
    world.pass(Duration::from_secs(60));
    targets.iter().for_each(|target| world.lose_power(*target));
    world.pass(Duration::from_secs(60));
    world
}

/// Who mounts now makes directories on both MDTs, and files in them.
fn is_served(world: &mut World) {
    world.add_mount(9);
    world.run();
    let new = world.mounts.len() - 1;
    for mdt_index in 0..SERVER_COUNT {
        let name = format!("new-{mdt_index}");
        let make = Call::MkdirOn { parent: TOP, name: name.clone().into(), mode: 0o755, umask: 0, mdt_index };
        assert_eq!(world.call(new, make), Ok(Answer::Done));
        let dir = world.lookup(new, TOP, &name).expect("it was made").node;
        for name in ["1", "2", "3", "4"] {
            let file = world.create(new, dir, name);
            assert_eq!(world.write(new, file, 0, name.as_bytes()), Ok(1));
            world.release(new, file);
            let (fh, _) = world.open(new, file.0, O_RDONLY);
            assert_eq!(world.read(new, (file.0, fh), 0, 10), name.as_bytes());
        }
    }
}

#[test]
fn servers_outlive_who_repeats_what_clients_said_with_damage() {
    SEEDS.for_each(|seed| is_served(&mut play(seed, Whose::Clients)));
}

#[test]
fn servers_outlive_who_repeats_what_anybody_said_with_damage() {
    SEEDS.for_each(|seed| drop(play(seed, Whose::Everybody)));
}
