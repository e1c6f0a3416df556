//! The lock space against brute force: random requests, claims, cancels and deaths of clients. The test keeps its own
//! books from what the space says, judges them with a table of its own, and in the end lets everybody give back.

use base::{ClientId, Extent, Fid, LockId, ObjectId, Rng, Time};
use ldlm::{Claimed, EnqueueRequest, Enqueued, LockOutput, LockSpace, Need, OpId};
use std::collections::{BTreeMap, BTreeSet};
use wire::{LockMode, LockPolicy, Resource};

const MODES: [LockMode; 7] =
    [LockMode::Ex, LockMode::Pw, LockMode::Pr, LockMode::Cw, LockMode::Cr, LockMode::Nl, LockMode::Group];

/// Written down from the manual, row by row: EX PW PR CW CR NL GROUP.
const TABLE: [[u8; 7]; 7] = [
    [0, 0, 0, 0, 0, 1, 0],
    [0, 0, 0, 0, 1, 1, 0],
    [0, 0, 1, 0, 1, 1, 0],
    [0, 0, 0, 1, 1, 1, 0],
    [0, 1, 1, 1, 1, 1, 0],
    [1, 1, 1, 1, 1, 1, 1],
    [0, 0, 0, 0, 0, 1, 1],
];

fn is_compatible(a: LockMode, b: LockMode) -> bool {
    let index = |mode| MODES.iter().position(|known| *known == mode).expect("all modes are listed");
    TABLE[index(a)][index(b)] == 1
}

/// Bits and bytes alike as a set of numbers; resources of the model have at most 64 of them.
fn parts(policy: LockPolicy) -> u64 {
    match policy {
        LockPolicy::Plain => u64::MAX,
        LockPolicy::Bits(mask) => u64::from(mask),
        LockPolicy::Extent(extent) => {
            (0..64).filter(|n| extent.contains(Extent::at(*n, 1))).fold(0, |set, n| set | 1 << n)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Client(ClientId, LockId),
    Op(OpId),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    need: Need,
    exempt: Option<ClientId>,
}

#[derive(Default)]
struct Model {
    space: LockSpace,
    now: Time,
    granted: BTreeMap<Party, Vec<Held>>,
    waiting: BTreeMap<Party, Vec<Held>>,
    called_back: BTreeSet<(ClientId, LockId)>,
    next_id: u64,
    grant_count: usize,
    wait_count: usize,
    retired_count: usize,
}

impl Model {
    fn resource(rng: &mut Rng) -> Resource {
        match rng.below(4) {
            0 => Resource::Inode(Fid::ROOT),
            1 => Resource::Name { parent: Fid::ROOT, hash: rng.below(2) },
            2 => Resource::Rename,
            _ => Resource::Object(ObjectId { fid: Fid::ROOT, component: 0, stripe: rng.below(2) as u32 }),
        }
    }

    fn need(rng: &mut Rng) -> Need {
        let resource = Self::resource(rng);
        let policy = match resource {
            Resource::Inode(_) => LockPolicy::Bits(1 + rng.below(255) as u32),
            Resource::Object(_) => LockPolicy::Extent(Extent::at(rng.below(60), 1 + rng.below(4))),
            _ => LockPolicy::Plain,
        };
        Need { resource, mode: MODES[rng.below(7) as usize], policy }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn step(&mut self, rng: &mut Rng) {
        self.now = Time(self.now.0 + rng.below(300_000_000));
        let mut out = Vec::new();
        match rng.below(10) {
            0..=3 => self.enqueue(rng, &mut out),
            4..=5 => self.claim(rng, &mut out),
            6 => self.finish_one(rng, &mut out),
            7 => self.give_back_called(rng, &mut out),
            8 => self.give_back_any(rng, &mut out),
            _ if rng.below(20) == 0 => {
                let holder = ClientId(u128::from(rng.below(4)));
                if rng.below(2) == 0 {
                    self.retire(rng, holder);
                }
                self.drop_holder(holder, &mut out);
            }
            _ => self.space.on_tick(self.now, &mut out),
        }
        self.settle(out);
        self.judge();
    }

    fn enqueue(&mut self, rng: &mut Rng, out: &mut Vec<LockOutput>) {
        let need = Self::need(rng);
        let holder = ClientId(u128::from(rng.below(4)));
        let lock = LockId(self.id());
        let can_wait = rng.below(4) > 0;
        let request = EnqueueRequest {
            holder,
            lock,
            resource: need.resource,
            mode: need.mode,
            policy: need.policy,
            can_wait,
        };
        let party = Party::Client(holder, lock);
        let held = Held { need, exempt: None };
        match self.space.enqueue(self.now, request, out) {
            Enqueued::Granted(grant) => {
                let covered = parts(grant.policy) & parts(need.policy) == parts(need.policy);
                assert!(covered, "{grant:?} is less than {need:?}");
                self.grant_count += 1;
                self.granted
                    .insert(party, vec![Held { need: Need { policy: grant.policy, ..need }, ..held }]);
            }
            Enqueued::Waiting => {
                assert!(can_wait);
                self.wait_count += 1;
                self.waiting.insert(party, vec![held]);
            }
            Enqueued::Denied(status) => {
                assert!(!can_wait, "{status} for {request:?}");
            }
        }
    }

    fn claim(&mut self, rng: &mut Rng, out: &mut Vec<LockOutput>) {
        let op = OpId(self.id());
        let exempt = (rng.below(2) == 0).then(|| ClientId(u128::from(rng.below(4))));
        let needs: Vec<Need> = (0..1 + rng.below(3)).map(|_| Self::need(rng)).collect();
        let held = needs.iter().map(|need| Held { need: *need, exempt }).collect();
        match self.space.claim(self.now, op, exempt, needs, out) {
            Claimed::Ready => drop(self.granted.insert(Party::Op(op), held)),
            Claimed::Waiting => drop(self.waiting.insert(Party::Op(op), held)),
        }
    }

    /// Ends an operation, also one that still waits.
    fn finish_one(&mut self, rng: &mut Rng, out: &mut Vec<LockOutput>) {
        let is_op = |party: &&Party| matches!(party, Party::Op(_));
        let parties: Vec<Party> =
            self.granted.keys().chain(self.waiting.keys()).filter(is_op).copied().collect();
        let Some(Party::Op(op)) = rng.pick(&parties).copied() else { return };
        self.granted.remove(&Party::Op(op));
        self.waiting.remove(&Party::Op(op));
        self.space.release(self.now, op, out);
    }

    fn give_back_called(&mut self, rng: &mut Rng, out: &mut Vec<LockOutput>) {
        let called: Vec<_> = self.called_back.iter().copied().collect();
        if let Some((holder, lock)) = rng.pick(&called).copied() {
            self.give_back(holder, lock, out);
        }
    }

    fn give_back_any(&mut self, rng: &mut Rng, out: &mut Vec<LockOutput>) {
        let parties: Vec<Party> = self.granted.keys().chain(self.waiting.keys()).copied().collect();
        if let Some(Party::Client(holder, lock)) = rng.pick(&parties).copied() {
            self.give_back(holder, lock, out);
        }
    }

    fn give_back(&mut self, holder: ClientId, lock: LockId, out: &mut Vec<LockOutput>) {
        self.granted.remove(&Party::Client(holder, lock));
        self.waiting.remove(&Party::Client(holder, lock));
        self.called_back.remove(&(holder, lock));
        self.space.cancel(self.now, holder, &[lock], out);
    }

    /// Some of what a holder that is gone has had is not durable. Operations of its own have gone with it.
    fn retire(&mut self, rng: &mut Rng, holder: ClientId) {
        let mut out = Vec::new();
        let all = self.granted.iter().chain(&self.waiting);
        let is_its = |held: &Held| held.exempt == Some(holder);
        let its: Vec<Party> =
            all.filter(|(_, held)| held.iter().any(is_its)).map(|(party, _)| *party).collect();
        for party in its {
            let Party::Op(op) = party else { continue };
            self.granted.remove(&party);
            self.waiting.remove(&party);
            self.space.release(self.now, op, &mut out);
        }
        self.settle(out);
        let op = OpId(self.id());
        let parties: Vec<Party> = self.granted.keys().chain(self.waiting.keys()).copied().collect();
        let mut locks = Vec::new();
        let mut retired = Vec::new();
        for party in parties {
            if let Party::Client(owner, lock) = party
                && owner == holder
                && rng.below(3) > 0
            {
                locks.push(lock);
                // Who only waits has protected nothing.
                retired.extend(self.granted.remove(&party).into_iter().flatten());
                self.called_back.remove(&(owner, lock));
            }
        }
        self.retired_count += retired.len();
        self.granted.insert(Party::Op(op), retired);
        self.space.retire(holder, &locks, op);
    }

    fn drop_holder(&mut self, holder: ClientId, out: &mut Vec<LockOutput>) {
        let is_other = |party: &Party| !matches!(party, Party::Client(owner, _) if *owner == holder);
        self.granted.retain(|party, _| is_other(party));
        self.waiting.retain(|party, _| is_other(party));
        self.called_back.retain(|(owner, _)| *owner != holder);
        self.space.drop_holder(self.now, holder, out);
    }

    fn settle(&mut self, mut out: Vec<LockOutput>) {
        let mut index = 0;
        while let Some(output) = out.get(index).cloned() {
            index += 1;
            match output {
                LockOutput::Granted { holder, grant } => {
                    let party = Party::Client(holder, grant.lock);
                    let held = self.waiting.remove(&party).expect("only who waits is granted something");
                    let need = Need { policy: grant.policy, ..held[0].need };
                    assert!(parts(grant.policy) & parts(held[0].need.policy) == parts(held[0].need.policy));
                    self.grant_count += 1;
                    self.granted.insert(party, vec![Held { need, exempt: None }]);
                }
                LockOutput::Ready(op) => {
                    let held = self.waiting.remove(&Party::Op(op)).expect("only who waits becomes ready");
                    self.granted.insert(Party::Op(op), held);
                }
                LockOutput::Callback { holder, lock, .. } => {
                    assert!(self.granted.contains_key(&Party::Client(holder, lock)), "callback for no lock");
                    self.called_back.insert((holder, lock));
                }
                LockOutput::Evict(holder) => self.drop_holder(holder, &mut out),
            }
        }
    }

    /// No two incompatible things are granted to different parties; each waiting lock has a reason.
    fn judge(&self) {
        self.space.check();
        let all: Vec<(Party, Held)> =
            self.granted.iter().flat_map(|(party, held)| held.iter().map(|held| (*party, *held))).collect();
        for (index, (a, a_held)) in all.iter().enumerate() {
            for (b, b_held) in &all[index + 1..] {
                assert!(!is_clash((a, a_held), (b, b_held)), "{a:?} {a_held:?} and {b:?} {b_held:?}");
            }
        }
        assert!(
            self.called_back
                .iter()
                .all(|(holder, lock)| self.granted.contains_key(&Party::Client(*holder, *lock)))
        );
    }

    /// Everybody answers callbacks and ends operations: then everybody is served.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            let mut out = Vec::new();
            let op = self.granted.keys().find_map(|party| match party {
                Party::Op(op) => Some(*op),
                Party::Client(..) => None,
            });
            if let Some(op) = op {
                self.granted.remove(&Party::Op(op));
                self.space.release(self.now, op, &mut out);
            } else if let Some((holder, lock)) = self.called_back.pop_first() {
                self.give_back(holder, lock, &mut out);
            } else {
                break;
            }
            self.settle(out);
            self.judge();
        }
        assert!(self.waiting.is_empty(), "nobody is served any more, but these wait: {:?}", self.waiting);
        for client in 0..4 {
            self.drop_holder(ClientId(client), &mut Vec::new());
        }
        assert_eq!((self.space.lock_count(), self.space.resource_count()), (0, 0));
        assert_eq!(self.space.next_deadline(), None);
    }
}

fn is_clash(a: (&Party, &Held), b: (&Party, &Held)) -> bool {
    let is_same_party = match (a.0, b.0) {
        (Party::Client(a, _), Party::Client(b, _)) => a == b,
        (Party::Op(a), Party::Op(b)) => a == b,
        (Party::Client(holder, _), Party::Op(_)) => b.1.exempt == Some(*holder),
        (Party::Op(_), Party::Client(holder, _)) => a.1.exempt == Some(*holder),
    };
    !is_same_party
        && a.1.need.resource == b.1.need.resource
        && parts(a.1.need.policy) & parts(b.1.need.policy) != 0
        && !is_compatible(a.1.need.mode, b.1.need.mode)
}

#[test]
fn random_requests_never_break_the_rules_and_everybody_is_served() {
    let (mut grant_count, mut wait_count, mut retired_count) = (0, 0, 0);
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let mut model = Model::default();
        for _ in 0..200 {
            model.step(&mut rng);
        }
        model.drain();
        grant_count += model.grant_count;
        wait_count += model.wait_count;
        retired_count += model.retired_count;
    }
    assert!(retired_count > 100, "{retired_count} locks have outlived their holders: too tame");
    assert!(grant_count > 1000 && wait_count > 1000, "{grant_count} grants, {wait_count} waits: too tame");
}

#[test]
fn the_judge_sees_a_clash() {
    let need = Need { resource: Resource::Rename, mode: LockMode::Ex, policy: LockPolicy::Plain };
    let held = Held { need, exempt: None };
    let (a, b) = (Party::Client(ClientId(1), LockId(1)), Party::Op(OpId(1)));
    assert!(is_clash((&a, &held), (&b, &held)));
    assert!(!is_clash((&a, &held), (&b, &Held { exempt: Some(ClientId(1)), ..held })));
}
