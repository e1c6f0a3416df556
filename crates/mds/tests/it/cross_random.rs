//! Random operations over several MDTs, with crashes, against what a client knows.

use crate::harness::{ROOT, World, migrate, new, rename};
use base::{Fid, Rng, Status, TargetId};
use std::collections::BTreeMap;
use wire::mdt::{DirStriping, NewNode};
use wire::{MdtReply, MdtRequest};

/// What is done beside the operations of POSIX.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    /// Some directories are made in several stripes.
    Striping,
    /// Directories move to other MDTs.
    Migrating,
}

/// Directory and name -> inode, as one client that sees no failure knows it.
#[derive(Default)]
struct Model {
    names: BTreeMap<(Fid, String), (Fid, bool)>,
}

impl Model {
    fn get(&self, parent: Fid, name: &str) -> Option<(Fid, bool)> {
        self.names.get(&(parent, name.to_string())).copied()
    }

    fn is_empty(&self, directory: Fid) -> bool {
        !self.names.keys().any(|(parent, _)| *parent == directory)
    }

    fn exists(&self, directory: Fid) -> bool {
        directory == Fid::ROOT || self.names.values().any(|known| *known == (directory, true))
    }

    fn is_below(&self, mut directory: Fid, ancestor: Fid) -> bool {
        while directory != Fid::ROOT {
            if directory == ancestor {
                return true;
            }
            let up = self.names.iter().find(|(_, (fid, _))| *fid == directory);
            directory = up.map(|((parent, _), _)| *parent).expect("a directory has a name");
        }
        ancestor == Fid::ROOT
    }

    fn rename(&mut self, from: (Fid, &str), to: (Fid, &str), is_exchange: bool) -> bool {
        let Some(source) = self.get(from.0, from.1).filter(|_| self.exists(to.0)) else { return false };
        let target = self.get(to.0, to.1);
        if target.is_some_and(|target| target.0 == source.0) {
            return true;
        }
        let moves = from.0 != to.0;
        if source.1 && moves && self.is_below(to.0, source.0) {
            return false;
        }
        let (from_key, to_key) = ((from.0, from.1.to_string()), (to.0, to.1.to_string()));
        if is_exchange {
            let Some(target) = target else { return false };
            if target.1 && moves && self.is_below(from.0, target.0) {
                return false;
            }
            self.names.insert(from_key, target);
        } else {
            match target {
                Some(target) if target.1 != source.1 => return false,
                Some(target) if target.1 && !self.is_empty(target.0) => return false,
                _ => {}
            }
            self.names.remove(&from_key);
        }
        self.names.insert(to_key, source);
        true
    }

    /// A directory has another FID.
    fn migrate(&mut self, old: Fid, new: Fid) {
        let at = |fid: Fid| if fid == old { new } else { fid };
        let names = std::mem::take(&mut self.names).into_iter();
        self.names = names
            .map(|((parent, name), (fid, is_directory))| ((at(parent), name), (at(fid), is_directory)))
            .collect();
    }

    /// A name of a directory or of a file with one name, to be moved somewhere.
    fn migration(&self, rng: &mut Rng) -> Option<(u16, MdtRequest)> {
        let is_only = |fid: &Fid| self.names.values().filter(|(known, _)| known == fid).count() == 1;
        let movable: Vec<_> =
            self.names.iter().filter(|(_, (fid, is_directory))| *is_directory || is_only(fid)).collect();
        let ((parent, name), (fid, _)) = rng.pick(&movable)?;
        Some((rng.below(3) as u16, migrate((*parent, name), *fid)))
    }

    /// Whether the request succeeds; `made` is what a creation has made.
    fn apply(&mut self, request: &MdtRequest, made: Option<Fid>) -> bool {
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        match request {
            MdtRequest::Create(create) => {
                let name = text(&create.name);
                if !self.exists(create.parent) || self.get(create.parent, &name).is_some() {
                    return false;
                }
                let is_directory = create.node == NewNode::Directory;
                self.names.insert((create.parent, name), (made.unwrap_or_default(), is_directory));
                true
            }
            MdtRequest::Link { fid, parent, name, .. } => {
                let name = text(name);
                let is_file = self.names.values().any(|known| *known == (*fid, false));
                if !is_file || !self.exists(*parent) || self.get(*parent, &name).is_some() {
                    return false;
                }
                self.names.insert((*parent, name), (*fid, false));
                true
            }
            MdtRequest::Unlink { parent, name, .. } => match self.get(*parent, &text(name)) {
                Some((_, false)) => self.names.remove(&(*parent, text(name))).is_some(),
                _ => false,
            },
            MdtRequest::Rmdir { parent, name, .. } => match self.get(*parent, &text(name)) {
                Some((fid, true)) if self.is_empty(fid) => {
                    self.names.remove(&(*parent, text(name))).is_some()
                }
                _ => false,
            },
            MdtRequest::Rename { parent, name, new_parent, new_name, flags, .. } => {
                let (name, new_name) = (text(name), text(new_name));
                self.rename((*parent, &name), (*new_parent, &new_name), *flags == 2)
            }
            MdtRequest::Migrate { fid, .. } => {
                if let Some(made) = made {
                    self.migrate(*fid, made);
                }
                true
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Random operations of one client over three MDTs, with crashes that lose what was not durable: whatever was answered
/// is there, on all MDTs, and nothing else.
#[test]
fn random_operations_and_crashes_agree_with_a_model() {
    // Seed 1495: a replayed rename must see what its lost first run had frozen.
    agree_with_a_model((0..150).chain([1495]), Beside::Nothing);
}

pub fn agree_with_a_model(seeds: impl Iterator<Item = u64>, beside: Beside) {
    for seed in seeds {
        let mut stripes = Stripes::new(beside == Beside::Striping);
        let mut rng = Rng::new(seed);
        let mut world = World::new(3, 1);
        let mut model = Model::default();
        let mut fids = vec![Fid::ROOT];
        for step in 0..60 {
            if rng.one_in(10) {
                for _ in 0..1 + rng.below(2) {
                    let mdt = rng.below(3) as u16;
                    let kept = rng.below(6) as usize;
                    world.crash(mdt, kept);
                }
                world.pass_seconds(5);
            }
            for server in &mut world.servers {
                server.is_synced = !rng.one_in(3);
            }
            let at = format!("seed {seed} step {step}");
            let request = match beside {
                Beside::Migrating if rng.one_in(4) => model.migration(&mut rng),
                _ => None,
            };
            let (request, (mdt, sent)) = match request {
                Some((mdt, request)) => (request.clone(), (mdt, request)),
                None => {
                    let request = random_request(&mut rng, &fids);
                    (request.clone(), stripes.sent(&mut rng, request))
                }
            };
            let of = world.start(0, mdt, sent);
            random_step(&mut world, (of, request), &mut model, (&mut fids, &mut stripes), &at);
            for server in &mut world.servers {
                server.is_synced = true;
            }
            if !rng.one_in(4) {
                world.pass_seconds(1);
            }
        }
        world.pass_seconds(5);
        world.check_consistent();
        assert_eq!(world.clients[0].evictions, 0, "seed {seed}");
        for ((parent, name), (fid, _)) in &model.names {
            let home = stripes.home(*parent, name.as_bytes());
            assert_eq!(world.lookup(0, home, name), Some(*fid), "seed {seed}: {name} in {parent}");
        }
        assert_eq!(world.name_count(), model.names.len(), "seed {seed}");
    }
}

fn random_request(rng: &mut Rng, fids: &[Fid]) -> MdtRequest {
    let parent = *rng.pick(fids).unwrap();
    let other = *rng.pick(fids).unwrap();
    let name = format!("n{}", rng.below(6));
    let new_name = format!("n{}", rng.below(6));
    match rng.below(9) {
        0 | 1 => {
            let mut request = new(parent, &name, NewNode::Directory);
            request.mdt_index = Some(rng.below(3) as u16);
            MdtRequest::Create(request)
        }
        2 => MdtRequest::Create(new(parent, &name, NewNode::Regular)),
        3 => MdtRequest::Unlink { parent, name: name.into(), creds: ROOT },
        4 => MdtRequest::Rmdir { parent, name: name.into(), creds: ROOT },
        5 => {
            let want = wire::lock::LockWant::default();
            MdtRequest::Link { fid: other, parent, name: name.into(), creds: ROOT, want }
        }
        _ => rename((parent, &name), (other, &new_name), if rng.one_in(4) { 2 } else { 0 }),
    }
}

/// Directories in several stripes, as a client knows them.
pub struct Stripes {
    is_striping: bool,
    known: BTreeMap<Fid, Vec<Fid>>,
}

impl Stripes {
    fn new(is_striping: bool) -> Stripes {
        Stripes { is_striping, known: BTreeMap::new() }
    }

    fn home(&self, directory: Fid, name: &[u8]) -> Fid {
        let stripes = self.known.get(&directory);
        stripes.and_then(|stripes| base::names::stripe_of(stripes, name)).unwrap_or(directory)
    }

    /// What a client sends for a request, and to which MDT.
    fn sent(&self, rng: &mut Rng, mut request: MdtRequest) -> (u16, MdtRequest) {
        let directory = match &mut request {
            MdtRequest::Rename { parent, name, new_parent, new_name, .. } => {
                *parent = self.home(*parent, name);
                *new_parent = self.home(*new_parent, new_name);
                *new_parent
            }
            MdtRequest::Link { parent, name, .. }
            | MdtRequest::Unlink { parent, name, .. }
            | MdtRequest::Rmdir { parent, name, .. } => {
                *parent = self.home(*parent, name);
                *parent
            }
            MdtRequest::Create(create) => {
                create.parent = self.home(create.parent, &create.name);
                create.parent
            }
            other => panic!("{other:?}"),
        };
        if let MdtRequest::Create(create) = &request
            && create.node == NewNode::Directory
            && self.is_striping
            && rng.one_in(2)
        {
            let mdts = create.mdt_index.into_iter().collect();
            let striping = DirStriping { stripe_count: 2 + rng.below(2) as u16, mdts };
            request = MdtRequest::MakeStriped { create: create.clone(), striping, stripes: Vec::new() };
        }
        (directory.mdt_index().unwrap(), request)
    }

    /// The FID of what was made.
    fn learn(&mut self, reply: &MdtReply) -> Option<Fid> {
        if let MdtReply::Striped { entry, stripes } = reply {
            self.known.insert(entry.fid, stripes.clone());
        }
        match reply {
            MdtReply::Entry(entry) | MdtReply::Striped { entry, .. } => Some(entry.fid),
            _ => None,
        }
    }
}

fn random_step(
    world: &mut World,
    (of, request): ((TargetId, rpc::Ticket), MdtRequest),
    model: &mut Model,
    (fids, stripes): (&mut Vec<Fid>, &mut Stripes),
    at: &str,
) {
    for _ in 0..400 {
        if world.result(0, of).is_some() {
            break;
        }
        // Undurable prepares answer when all disks go on.
        for server in &mut world.servers {
            server.is_synced = true;
        }
        world.pass(base::Duration::from_millis(50));
    }
    let result = world
        .result(0, of)
        .unwrap_or_else(|| panic!("{at} has no answer: {request:?}\n{}", world.under_way()));
    let told = result.as_ref().ok().and_then(|reply| stripes.learn(reply));
    let is_new = matches!(request, MdtRequest::Create(_) | MdtRequest::Migrate { .. });
    let made = told.filter(|_| is_new);
    fids.extend(made);
    assert_eq!(model.apply(&request, made), result.is_ok(), "{at}: {request:?} {result:?}");
}

/// Two clients at once, whose operations get in each other's way on three MDTs, with crashes: everything is answered,
/// and all MDTs agree in the end.
#[test]
fn concurrent_operations_and_crashes_leave_a_consistent_tree() {
    leave_a_consistent_tree(0..100, Beside::Nothing);
}

pub fn leave_a_consistent_tree(seeds: std::ops::Range<u64>, beside: Beside) {
    let mut migrated_count = 0;
    for seed in seeds {
        let mut stripes = Stripes::new(beside == Beside::Striping);
        let mut rng = Rng::new(seed);
        let mut world = World::new(3, 3);
        let mut fids = vec![Fid::ROOT];
        let mut named: Vec<(Fid, String, Fid)> = Vec::new();
        for round in 0..25 {
            for server in &mut world.servers {
                server.is_synced = !rng.one_in(3);
            }
            let mut started = Vec::new();
            for client in 0..3 {
                let request = match beside {
                    Beside::Migrating if rng.one_in(4) => {
                        let named = rng.pick(&named).cloned();
                        named.map(|(parent, name, fid)| (rng.below(3) as u16, migrate((parent, &name), fid)))
                    }
                    _ => None,
                };
                let (mdt, request) = request.unwrap_or_else(|| random_among(&mut rng, &fids, &stripes));
                let target = TargetId::mdt(mdt);
                let sent = wire::Request::Mdt(request.clone());
                let ticket = world.submit(client, target, sent, rpc::Kind::Modifying);
                started.push((client, (target, ticket), request));
            }
            if rng.one_in(2) {
                world.run();
            }
            if rng.one_in(6) {
                let mdt = rng.below(3) as u16;
                let kept = rng.below(6) as usize;
                world.crash(mdt, kept);
            }
            for server in &mut world.servers {
                server.is_synced = true;
            }
            for (client, of, request) in started {
                let result = await_result(&mut world, client, of, &format!("seed {seed} round {round}"));
                let told = result.ok().and_then(|reply| stripes.learn(&reply));
                fids.extend(told);
                match (request, told) {
                    (MdtRequest::Create(create), Some(fid)) if create.node == NewNode::Directory => {
                        named.push((create.parent, String::from_utf8(create.name).unwrap(), fid));
                    }
                    (MdtRequest::Migrate { parent, name, .. }, Some(fid)) => {
                        migrated_count += 1;
                        named.push((parent, String::from_utf8(name).unwrap(), fid));
                    }
                    _ => {}
                }
            }
        }
        world.pass_seconds(5);
        world.check_consistent();
        assert!(world.clients.iter().all(|client| client.evictions == 0), "seed {seed}");
    }
    assert_eq!(migrated_count > 0, beside == Beside::Migrating);
}

pub type Started = (usize, (TargetId, rpc::Ticket));

/// What a client sends next, and to which MDT.
fn random_among(rng: &mut Rng, fids: &[Fid], stripes: &Stripes) -> (u16, MdtRequest) {
    // Mostly the same few directories.
    let few = &fids[..fids.len().min(4)];
    let among = if rng.one_in(3) { fids } else { few };
    let request = random_request(rng, among);
    stripes.sent(rng, request)
}

pub fn await_result(
    world: &mut World,
    client: usize,
    of: (TargetId, rpc::Ticket),
    at: &str,
) -> Result<MdtReply, Status> {
    world.run();
    for _ in 0..400 {
        if let Some(result) = world.result(client, of) {
            return result;
        }
        world.pass(base::Duration::from_millis(50));
    }
    panic!("{at}: client {client} has no answer\n{}", world.under_way());
}
