//! What is operated on what. In each story three operations depend on each other in their order, so that of the three only
//! the first few can be there; a last call makes all of it durable.
//!
//! Directories `m0`, `m1` … are there before, each on the MDT of its number.

use crate::model::{Op, Path};
use crate::workload::FIRST_LAYOUT_ON_MDT;
use base::names::stripe_of;

/// Of what an exchange is asked for.
const EXCHANGE: u32 = 2;
/// Of a file that stays open to be synced.
const SLOT: usize = 0;

/// An operation in the middle of two others.
#[derive(Debug)]
pub struct Story {
    pub name: &'static str,
    build: fn(u16) -> Script,
}

/// Names are distinct.
impl PartialEq for Story {
    fn eq(&self, other: &Story) -> bool {
        self.name == other.name
    }
}

impl Eq for Story {}

/// The calls of a story.
pub(crate) struct Script {
    /// What is there before, and durable.
    pub setup: Vec<Op>,
    /// One before, the operation, one after, and the one that makes them durable.
    pub steps: [Op; 4],
}

impl Story {
    pub fn named(name: &str) -> Option<&'static Story> {
        STORIES.iter().find(|story| story.name == name)
    }

    /// Whether files have data on OSTs, which may die too.
    pub fn has_data(&self, mdt_count: u16) -> bool {
        let script = self.script(mdt_count);
        script.setup.iter().chain(&script.steps).any(|op| matches!(op, Op::Write { .. }))
    }

    pub(crate) fn script(&self, mdt_count: u16) -> Script {
        let mut script = (self.build)(mdt_count);
        let homes = (0..mdt_count).map(|index| mkdir_on(&format!("m{index}"), index));
        script.setup = homes.chain(script.setup).collect();
        script
    }
}

/// Every operation of the table. `far`: the last MDT, which with three MDTs is neither that of the old nor of the new parent.
pub const STORIES: &[Story] = &[
    Story {
        name: "mkdir",
        build: |_| Script {
            setup: Vec::new(),
            steps: [mkdir("m1/a"), mkdir("m1/a/b"), open("m1/a/b/f"), fsync()],
        },
    },
    Story {
        name: "mkdir-on",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir("m0/a"), mkdir_on("m0/a/b", far(mdt_count)), open("m0/a/b/f"), fsync()],
        },
    },
    Story {
        // What comes before is on another MDT, too, and is on its way still.
        name: "mkdir-on-below",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir_on("m0/a", 1), mkdir_on("m0/a/b", 2 % mdt_count), open("m0/a/b/f"), fsync()],
        },
    },
    Story {
        name: "mkdir-striped",
        build: |mdt_count| {
            let inside = format!("m0/a/b/{}", in_stripe("f", mdt_count - 1, mdt_count));
            Script {
                setup: Vec::new(),
                steps: [mkdir("m0/a"), mkdir_over("m0/a/b", mdt_count), open(&inside), fsync()],
            }
        },
    },
    Story {
        // The first choice of an MDT is itself, the second the next one.
        name: "mkdir-by-space",
        build: |_| Script {
            setup: vec![Op::Setdirstripe { path: path("m0"), stripe_count: 1 }],
            steps: [mkdir("m0/a"), mkdir("m0/a/b"), open("m0/a/b/f"), fsync()],
        },
    },
    Story {
        name: "rmdir",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir_on("m0/a", far(mdt_count)), rmdir("m0/a"), open("m0/a"), fsync()],
        },
    },
    Story {
        name: "rmdir-striped",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir_over("m0/a", mdt_count), rmdir("m0/a"), open("m0/a"), fsync()],
        },
    },
    Story {
        // The parent forgets on one MDT what was emptied on another.
        name: "rmdir-emptied",
        build: |mdt_count| Script {
            setup: vec![mkdir_on("m0/a", far(mdt_count)), create("m0/a/f")],
            steps: [unlink("m0/a/f"), rmdir("m0/a"), open("m0/a"), fsync()],
        },
    },
    Story {
        name: "rename-file",
        build: |_| Script {
            setup: Vec::new(),
            steps: [create("m0/f"), rename("m0/f", "m1/g"), link("m1/g", "m1/h"), Op::SyncAll],
        },
    },
    Story {
        // Both files are of the far MDT.
        name: "rename-file-over",
        build: |mdt_count| {
            let far = format!("m{}", far(mdt_count));
            Script {
                setup: vec![
                    create(&format!("{far}/old")),
                    link(&format!("{far}/old"), "m1/g"),
                    create(&format!("{far}/new")),
                ],
                steps: [
                    link(&format!("{far}/new"), "m0/f"),
                    rename("m0/f", "m1/g"),
                    link("m1/g", "m0/f"),
                    Op::SyncAll,
                ],
            }
        },
    },
    Story {
        name: "rename-directory",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir_on("m0/d", far(mdt_count)), rename("m0/d", "m1/e"), open("m1/e/f"), fsync()],
        },
    },
    Story {
        name: "rename-directory-over",
        build: |mdt_count| Script {
            setup: vec![mkdir_on("m1/e", far(mdt_count))],
            steps: [mkdir("m0/d"), rename("m0/d", "m1/e"), open("m1/e/f"), fsync()],
        },
    },
    Story {
        name: "rename-striped",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir_over("m0/d", mdt_count), rename("m0/d", "m1/e"), open("m1/e/f"), fsync()],
        },
    },
    Story {
        // From one stripe of a directory to another one.
        name: "rename-in-stripes",
        build: |mdt_count| {
            let (from, to) = (in_stripe("f", 0, mdt_count), in_stripe("g", mdt_count - 1, mdt_count));
            let (from, to) = (format!("s/{from}"), format!("s/{to}"));
            Script {
                setup: vec![mkdir_over("s", mdt_count)],
                steps: [create(&from), rename(&from, &to), link(&to, "m0/h"), Op::SyncAll],
            }
        },
    },
    Story {
        name: "rename-exchange",
        build: |mdt_count| Script {
            setup: vec![mkdir_on("m1/e", far(mdt_count))],
            steps: [
                create("m0/f"),
                Op::Rename { from: path("m0/f"), to: path("m1/e"), flags: EXCHANGE },
                open("m0/f/g"),
                fsync(),
            ],
        },
    },
    Story {
        name: "link",
        build: |mdt_count| {
            let name = format!("m{}/f", far(mdt_count));
            Script {
                setup: Vec::new(),
                steps: [create(&name), link(&name, "m0/g"), rename("m0/g", "m1/h"), Op::SyncAll],
            }
        },
    },
    Story {
        name: "unlink",
        build: |mdt_count| {
            let name = format!("m{}/f", far(mdt_count));
            Script {
                setup: vec![create(&name)],
                steps: [link(&name, "m0/g"), unlink("m0/g"), mkdir_on("m0/g", 1), Op::SyncAll],
            }
        },
    },
    Story {
        // The last name of a file of another MDT: its objects go with it.
        name: "unlink-last",
        build: |mdt_count| {
            let name = format!("m{}/f", far(mdt_count));
            Script {
                setup: vec![create(&name)],
                steps: [rename(&name, "m0/g"), unlink("m0/g"), open("m0/g"), fsync()],
            }
        },
    },
    Story {
        name: "setattr-striped",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir_over("m0/s", mdt_count), chmod("m0/s", 0o711), rename("m0/s", "m1/s"), Op::SyncAll],
        },
    },
    Story {
        name: "migrate",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [mkdir("m0/d"), migrate("m0/d", far(mdt_count)), open("m0/d/f"), fsync()],
        },
    },
    Story {
        // Parent, old and new MDT are three where there are three, and each has something that is in it.
        name: "migrate-full",
        build: |mdt_count| Script {
            setup: vec![
                mkdir_on("m1/d", far(mdt_count)),
                create("m1/d/g"),
                mkdir_on("m1/d/e", 0),
                mkdir_on("m1/d/h", 1),
            ],
            steps: [create("m1/d/x"), migrate("m1/d", 0), rename("m1/d/x", "m1/d/e/y"), Op::SyncAll],
        },
    },
    Story {
        name: "migrate-symlink",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [
                Op::Symlink { path: path("m0/s"), target: "to".into() },
                migrate("m0/s", far(mdt_count)),
                rename("m0/s", "m1/t"),
                Op::SyncAll,
            ],
        },
    },
    Story {
        // Its data are on an OST.
        name: "migrate-file",
        build: |mdt_count| Script {
            setup: written("m0/f", None),
            steps: [
                chmod("m0/f", 0o640),
                migrate("m0/f", far(mdt_count)),
                rename("m0/f", "m1/g"),
                Op::SyncAll,
            ],
        },
    },
    Story {
        // The first of its data are on its MDT, the others on an OST; and its name is on another one than where it comes from, and
        // where it goes to.
        name: "migrate-file-on-mdt",
        build: |mdt_count| {
            let far = far(mdt_count);
            let name = format!("m{far}/f");
            Script {
                setup: [written(&name, Some(far)), vec![rename(&name, "m1/g")]].concat(),
                steps: [chmod("m1/g", 0o640), migrate("m1/g", 0), rename("m1/g", "m0/h"), Op::SyncAll],
            }
        },
    },
    Story {
        // An object comes to life with the first write.
        name: "create-written",
        build: |_| Script {
            setup: Vec::new(),
            steps: [open("m0/f"), write(0, 5000, 1), fsync(), Op::SyncAll],
        },
    },
    Story {
        name: "write",
        build: |_| Script {
            setup: vec![open("m0/f"), write(0, 70_000, 1)],
            steps: [write(1000, 5000, 2), truncate("m0/f", 4000), write(3000, 90_000, 3), fsync()],
        },
    },
    Story {
        name: "truncate",
        build: |_| Script {
            setup: written("m0/f", None),
            steps: [truncate("m0/f", 1000), truncate("m0/f", 90_000), truncate("m0/f", 2000), Op::SyncAll],
        },
    },
    Story {
        // Its objects go with it.
        name: "unlink-written",
        build: |_| Script {
            setup: written("m0/f", None),
            steps: [rename("m0/f", "m0/g"), unlink("m0/g"), mkdir("m0/g"), Op::SyncAll],
        },
    },
    Story {
        name: "rename-over-written",
        build: |_| Script {
            setup: written("m1/g", None),
            steps: [create("m0/f"), rename("m0/f", "m1/g"), link("m1/g", "m0/f"), Op::SyncAll],
        },
    },
    Story {
        // What new directories in it are like.
        name: "setdirstripe-striped",
        build: |mdt_count| Script {
            setup: Vec::new(),
            steps: [
                mkdir_over("m0/s", mdt_count),
                Op::Setdirstripe { path: path("m0/s"), stripe_count: mdt_count },
                rename("m0/s", "m1/s"),
                Op::SyncAll,
            ],
        },
    },
];

fn far(mdt_count: u16) -> u16 {
    mdt_count - 1
}

/// A name that begins with this and belongs to one stripe of so many.
fn in_stripe(prefix: &str, stripe: u16, stripe_count: u16) -> String {
    let stripes: Vec<u16> = (0..stripe_count).collect();
    let is_there = |name: &String| stripe_of(&stripes, name.as_bytes()) == Some(stripe);
    let name = (0..).map(|number: u32| format!("{prefix}{number}")).find(is_there);
    name.unwrap_or_else(|| unreachable!("each stripe has names"))
}

pub(crate) fn path(text: &str) -> Path {
    text.split('/').map(str::to_string).collect()
}

fn mkdir(at: &str) -> Op {
    Op::Mkdir { path: path(at), mdt_index: None, stripe_count: 1 }
}

pub(crate) fn mkdir_on(at: &str, index: u16) -> Op {
    Op::Mkdir { path: path(at), mdt_index: Some(index), stripe_count: 1 }
}

fn mkdir_over(at: &str, stripe_count: u16) -> Op {
    Op::Mkdir { path: path(at), mdt_index: None, stripe_count }
}

pub(crate) fn create(at: &str) -> Op {
    Op::Create { path: path(at), is_exclusive: true, slot: None }
}

fn migrate(at: &str, mdt_index: u16) -> Op {
    Op::Migrate { path: path(at), mdt_index }
}

/// A file with data, in a directory of which the layout is said, or not.
fn written(at: &str, on_mdt: Option<u16>) -> Vec<Op> {
    let striped =
        on_mdt.map(|index| Op::Setstripe { path: path(&format!("m{index}")), layout: FIRST_LAYOUT_ON_MDT });
    let steps = [open(at), write(0, 70_000, 1), write(600_000, 5000, 2), Op::Close { slot: SLOT }];
    striped.into_iter().chain(steps).collect()
}

fn write(offset: u64, byte_count: u64, fill: u8) -> Op {
    Op::Write { slot: SLOT, offset, byte_count, fill }
}

fn truncate(at: &str, size: u64) -> Op {
    Op::Truncate { path: path(at), size }
}

fn open(at: &str) -> Op {
    Op::Create { path: path(at), is_exclusive: true, slot: Some(SLOT) }
}

fn fsync() -> Op {
    Op::Fsync { slot: SLOT }
}

pub(crate) fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: path(from), to: path(to), flags: 0 }
}

fn link(from: &str, to: &str) -> Op {
    Op::Link { from: path(from), to: path(to) }
}

fn unlink(at: &str) -> Op {
    Op::Unlink { path: path(at) }
}

fn rmdir(at: &str) -> Op {
    Op::Rmdir { path: path(at) }
}

fn chmod(at: &str, permissions: u32) -> Op {
    Op::Chmod { path: path(at), permissions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash_table::tree;
    use crate::model::Model;

    #[test]
    fn every_operation_of_a_story_changes_something_and_needs_the_one_before() {
        for (story, mdt_count) in STORIES.iter().flat_map(|story| [(story, 2), (story, 3)]) {
            let script = story.script(mdt_count);
            let states = tree::states(&script);
            assert_eq!(states.len(), 5, "{}", story.name);
            // What a directory hands on to new ones shows in no tree of names.
            // Nor does on which MDT a directory is.
            // What is durable does not either.
            let shows =
                |step: &Op| !matches!(step, Op::Setdirstripe { .. } | Op::Migrate { .. } | Op::Fsync { .. });
            for (index, step) in script.steps.iter().enumerate().take(3).filter(|(_, step)| shows(step)) {
                assert_ne!(states[index], states[index + 1], "{}: {step:?}", story.name);
            }
            // The order of what is said of one directory does not show in whether it can be said.
            let is_possible_alone = |index: usize| match story.name {
                "setattr-striped" | "setdirstripe-striped" | "rename-directory-over" => index == 2,
                // What moves is used afterwards as before.
                "migrate" | "migrate-symlink" => index == 2,
                // Nor does it need what was changed of it.
                "migrate-file" | "migrate-file-on-mdt" => true,
                "migrate-full" => true,
                // Each changes what the one before has left.
                "create-written" => index == 2,
                "write" | "truncate" => true,
                _ => false,
            };
            for index in (1..3).filter(|index| !is_possible_alone(*index)) {
                let mut model = Model::new();
                for op in script.setup.iter().chain(script.steps.iter().take(index - 1)) {
                    model.apply(0, op).expect("is possible");
                }
                let step = &script.steps[index];
                assert!(model.apply(0, step).is_err(), "{}: {step:?} needs nothing", story.name);
            }
        }
    }

    #[test]
    fn names_are_distinct() {
        for story in STORIES {
            let same = STORIES.iter().filter(|other| *other == story);
            assert_eq!(same.count(), 1, "{}", story.name);
        }
        assert_eq!(Story::named("nothing"), None);
    }
}
