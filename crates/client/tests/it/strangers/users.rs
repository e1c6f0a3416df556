//! Who uses the mounts meanwhile: calls of all kinds, whose answers are nobody's business.

use crate::world::{O_RDWR, TOP, World, append_call, write_call};
use base::{Extent, Rng};
use client::{Answer, Call, SetattrCall};
use wire::mdt::{DirStriping, FileLock, FlockKind};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Handles that a mount has open.
const FILES_MAX: usize = 12;

#[derive(Default)]
pub struct Users {
    /// What their kernel knows, and has open.
    nodes: Vec<u64>,
    files: Vec<(u64, u64)>,
}

impl Users {
    /// A call on this mount; answers to former ones are looked at.
    pub fn step(&mut self, world: &mut World, mount: usize, rng: &mut Rng) {
        for (_, result) in std::mem::take(&mut world.mounts[mount].replies) {
            match result {
                Ok(Answer::Entry(entry)) => self.nodes.push(entry.node),
                Ok(Answer::Created { entry, fh, .. }) => self.files.push((entry.node, fh)),
                _ => {}
            }
        }
        let call = if self.files.len() > FILES_MAX || rng.one_in(2) && !self.files.is_empty() {
            self.on_a_file(rng)
        } else {
            self.on_names(rng)
        };
        world.prepare(mount, call);
    }

    fn node(&self, rng: &mut Rng) -> u64 {
        if rng.one_in(3) { TOP } else { rng.pick(&self.nodes).copied().unwrap_or(TOP) }
    }

    fn on_names(&self, rng: &mut Rng) -> Call {
        let mut name = || rng.pick(&NAMES).expect("there are some").as_bytes().to_vec();
        let (name, new_name) = (name(), name());
        let (parent, new_parent) = (self.node(rng), self.node(rng));
        let (mode, umask, mdt_index) = (0o755, 0, rng.below(2) as u16);
        match rng.below(15) {
            0 => Call::Mkdir { parent, name, mode, umask },
            1 => Call::MkdirOn { parent, name, mode, umask, mdt_index },
            2 => {
                let striping = DirStriping { stripe_count: 2, mdts: Vec::new() };
                Call::MkdirStriped { parent, name, mode, umask, striping }
            }
            3..=5 => Call::Create { parent, name, mode, umask, flags: O_RDWR },
            6 | 7 => Call::Rename { parent, name, new_parent, new_name, flags: 0 },
            8 => Call::Link { node: new_parent, parent, name },
            9 => Call::Unlink { parent, name },
            10 => Call::Rmdir { parent, name },
            11 => {
                let set = SetattrCall { mode: Some(0o700), ..SetattrCall::default() };
                Call::Setattr { node: parent, set }
            }
            12 => Call::Setxattr { node: parent, name: b"user.x".into(), value: name, flags: 0 },
            13 => Call::Migrate { parent, name, mdt_index },
            _ => Call::Lookup { parent, name },
        }
    }

    fn on_a_file(&mut self, rng: &mut Rng) -> Call {
        let at = rng.below(self.files.len() as u64) as usize;
        let (node, fh) = self.files[at];
        let offset_bytes = rng.below(1 << 20);
        match rng.below(7) {
            _ if self.files.len() > FILES_MAX => self.close(at),
            0 | 1 => write_call((node, fh), offset_bytes, &vec![7; 1 + (offset_bytes as usize & 0xffff)]),
            2 => append_call((node, fh), b"more"),
            3 => Call::Read { node, fh, offset_bytes, byte_count: 4096, is_direct: false },
            4 => Call::Fsync { node, fh, data_only: false },
            5 => {
                let kind = if rng.one_in(3) { FlockKind::Unlock } else { FlockKind::Write };
                let extent = Extent::new(offset_bytes, offset_bytes + 100);
                let lock = FileLock { owner: fh, pid: 7, is_flock: false, kind, extent };
                Call::Setlk { node, fh, lock, can_wait: rng.one_in(2) }
            }
            _ => {
                let set = SetattrCall { size_bytes: Some(offset_bytes), ..SetattrCall::default() };
                Call::Setattr { node, set }
            }
        }
    }

    fn close(&mut self, at: usize) -> Call {
        let (node, fh) = self.files.swap_remove(at);
        Call::Release { node, fh, flock_owner: None }
    }
}
