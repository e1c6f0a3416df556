//! What one step costs when very many clients do the same thing: `cargo bench -p ldlm --bench clients [-- COUNT…]`. Nanoseconds an
//! operation over each whole scene; what grows with the number of clients grows with its square in total. No time is asserted.

#![expect(clippy::disallowed_methods, reason = "what is measured is not simulated")]

use base::{ClientId, Extent, Fid, LockId, ObjectId, Time};
use ldlm::{EnqueueRequest, Enqueued, LockOutput, LockSpace, Need, OpId};
use std::collections::VecDeque;
use std::time::Instant;
use wire::lock::bits;
use wire::{LockMode, LockPolicy, Resource};

/// Every client has one lock of each number.
fn client(index: u64) -> ClientId {
    ClientId(u128::from(index) + 1)
}

fn report(what: &str, client_count: u64, operation_count: u64, since: Instant) {
    let each_ns = since.elapsed().as_nanos() as f64 / operation_count.max(1) as f64;
    println!("{what:68} {client_count:7} clients {each_ns:12.0} ns");
}

struct Scene {
    space: LockSpace,
    now: Time,
    out: Vec<LockOutput>,
}

impl Scene {
    fn new() -> Scene {
        Scene { space: LockSpace::new(), now: Time(1), out: Vec::new() }
    }

    fn ask(&mut self, index: u64, lock: u64, need: Need) -> Enqueued {
        let Need { resource, mode, policy } = need;
        let request = EnqueueRequest {
            holder: client(index),
            lock: LockId(lock),
            resource,
            mode,
            policy,
            can_wait: true,
        };
        self.space.enqueue(self.now, request, &mut self.out)
    }

    fn cancel(&mut self, index: u64, lock: u64) {
        self.space.cancel(self.now, client(index), &[LockId(lock)], &mut self.out);
    }

    /// The same step of each client.
    fn each(&mut self, what: &str, count: u64, mut step: impl FnMut(&mut Scene, u64)) {
        let since = Instant::now();
        (0..count).for_each(|index| step(self, index));
        report(what, count, count, since);
    }

    /// Each callback is answered, each grant given back at once, each operation executed, until nothing is left; returns how many.
    fn drain(&mut self) -> u64 {
        let (mut count, mut queue) = (0, VecDeque::from(std::mem::take(&mut self.out)));
        while let Some(output) = queue.pop_front() {
            count += 1;
            let (now, out) = (self.now, &mut self.out);
            match output {
                LockOutput::Granted { holder, grant } => self.space.cancel(now, holder, &[grant.lock], out),
                LockOutput::Callback { holder, lock, .. } => self.space.cancel(now, holder, &[lock], out),
                LockOutput::Ready(op) => self.space.release(now, op, out),
                LockOutput::Evict(_) => {}
            }
            queue.extend(self.out.drain(..));
        }
        count
    }
}

fn inode(mode: LockMode, mask: u32) -> Need {
    Need { resource: Resource::Inode(Fid::ROOT), mode, policy: LockPolicy::Bits(mask) }
}

fn data(extent: Extent) -> Need {
    Need::of_data(ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 }, LockMode::Pw, extent)
}

/// All read one inode; one changes it; all give it back, and ask again behind the change.
fn one_changes_what_all_read(count: u64) {
    let mut scene = Scene::new();
    scene.each("PR on one inode, granted", count, |scene, index| {
        scene.ask(index, 1, inode(LockMode::Pr, bits::LOOKUP));
    });
    let since = Instant::now();
    scene.space.claim(scene.now, OpId(1), None, vec![inode(LockMode::Ex, bits::LOOKUP)], &mut scene.out);
    report("… EX behind them: callbacks", count, count, since);
    scene.each("… each gives back and asks again behind it", count, |scene, index| {
        scene.cancel(index, 1);
        scene.ask(index, 2, inode(LockMode::Pr, bits::LOOKUP));
    });
    let since = Instant::now();
    scene.out.retain(|output| !matches!(output, LockOutput::Callback { .. }));
    let step_count = scene.drain();
    report("… and is granted when it is done", count, step_count, since);
}

/// All know one directory, and each makes something in it.
fn all_change_what_all_know(count: u64) {
    let mut scene = Scene::new();
    for index in 0..count {
        scene.ask(index, 1, inode(LockMode::Pr, bits::LOOKUP));
    }
    scene.each("claims of UPDATE beside PR of LOOKUP of all", count, |scene, index| {
        let needs = vec![inode(LockMode::Cw, bits::UPDATE)];
        scene.space.claim(scene.now, OpId(index), Some(client(index)), needs, &mut scene.out);
        scene.space.release(scene.now, OpId(index), &mut scene.out);
    });
    scene.each("whether a client has it already", count, |scene, index| {
        let held = scene.space.is_held(client(index), inode(LockMode::Pr, bits::LOOKUP));
        assert!(held);
    });
}

fn all_wait_for_the_same(count: u64) {
    let mut scene = Scene::new();
    scene.ask(count, 1, data(Extent::WHOLE));
    scene.each("PW of the same bytes: wait", count, |scene, index| {
        scene.ask(index, 1, data(Extent::new(0, 4096)));
    });
    let since = Instant::now();
    let step_count = scene.drain();
    report("… one after the other", count, step_count, since);
}

fn all_wait_for_parts(count: u64) {
    let mut scene = Scene::new();
    scene.ask(count, 1, data(Extent::WHOLE));
    scene.each("PW of parts of their own behind one of all: wait", count, |scene, index| {
        scene.ask(index, 1, data(Extent::at(index << 20, 4096)));
    });
    let since = Instant::now();
    scene.cancel(count, 1);
    report("… granted at once", count, count, since);
    scene.each("… a second part of each", count, |scene, index| {
        scene.ask(index, 2, data(Extent::at((index << 20) + 8192, 4096)));
    });
    scene.each("… all unmount", count, |scene, index| {
        scene.space.drop_holder(scene.now, client(index), &mut scene.out);
    });
}

fn all_give_up_waiting(count: u64) {
    let mut scene = Scene::new();
    scene.ask(count, 1, data(Extent::WHOLE));
    for index in 0..count {
        scene.ask(index, 1, data(Extent::new(0, 4096)));
    }
    scene.each("PW of the same bytes: all withdraw", count, |scene, index| {
        // In no order.
        scene.cancel(index.wrapping_mul(7919) % count, 1);
    });
}

fn main() {
    let counts: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let counts = if counts.is_empty() { vec![100, 1000, 10_000] } else { counts };
    for scene in [
        one_changes_what_all_read,
        all_change_what_all_know,
        all_wait_for_the_same,
        all_wait_for_parts,
        all_give_up_waiting,
    ] {
        counts.iter().for_each(|count| scene(*count));
    }
}
