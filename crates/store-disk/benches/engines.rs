//! Figures of the disk engines: `cargo bench -p store-disk --bench engines [-- meta|objects] [DIRECTORY]`. Median and spread over five rounds.
//! Nothing here is asserted; what the figures should be is in docs and issues.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use base::{Fid, ObjectId, Rng, Transno};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use store::{Batch, MetaStore, ObjectStore};
use store_disk::{MetaDisk, ObjectDisk, ObjectOptions, Options};

const ROUND_COUNT: usize = 5;

/// Runs `round` and prints nanoseconds an operation: median, least, most.
fn measure(what: &str, operation_count: u64, mut round: impl FnMut(usize)) {
    let mut figures: Vec<f64> = (0..ROUND_COUNT)
        .map(|number| {
            let since = Instant::now();
            round(number);
            since.elapsed().as_nanos() as f64 / operation_count as f64
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    let (least, median, most) = (figures[0], figures[ROUND_COUNT / 2], figures[ROUND_COUNT - 1]);
    println!("{what:44} {median:12.0} ns  ({least:.0} to {most:.0}, n = {ROUND_COUNT} x {operation_count})");
}

/// What a create writes: name, inode, parent's inode, reply slot.
fn create_batch(batch: &mut Batch, n: u64) {
    batch.clear();
    let parent = (n / 1000).to_be_bytes();
    batch.put(1, &[&parent[..], &n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat(), &[1; 24]);
    batch.put(2, &[&n.to_be_bytes()[..], &[0; 8]].concat(), &[2; 300]);
    batch.put(2, &[&parent[..], &[1; 8]].concat(), &[3; 300]);
    batch.put(3, &(n % 64).to_be_bytes(), &[4; 72]);
}

fn meta(directory: &Path) {
    const COUNT: u64 = 100_000;
    MetaDisk::create(directory, &Options::default()).unwrap();
    let store = MetaDisk::open(directory, &Options::default(), Arc::new(|| ())).unwrap();
    let mut t = 0;
    let mut batch = Batch::new();
    measure("create transaction (4 rows, 800 bytes)", COUNT, |_| {
        for _ in 0..COUNT {
            t += 1;
            create_batch(&mut batch, t);
            store.apply(Transno(t), &batch).unwrap();
        }
    });
    let since = Instant::now();
    store.checkpoint().unwrap();
    println!("{:44} {:12.0} ms", "checkpoint of what was left", since.elapsed().as_secs_f64() * 1e3);
    let mut rng = Rng::new(1);
    let mut lookup = |what: &str, span: u64| {
        measure(what, COUNT, |_| {
            for _ in 0..COUNT {
                let n = t - rng.below(span);
                assert!(store.get(2, &[&n.to_be_bytes()[..], &[0; 8]].concat()).unwrap().is_some());
            }
        });
    };
    lookup("get, row cache", 10_000);
    lookup("get, base", t);
    measure("scan, a row", 1000 * 100, |_| {
        for parent in 0..100_u64 {
            let (from, to) = ((parent + 1).to_be_bytes(), (parent + 2).to_be_bytes());
            let mut count = 0;
            store
                .scan(1, &from, &to, 4096, &mut |_, _| {
                    count += 1;
                    true
                })
                .unwrap();
            assert_eq!(count, 1000);
        }
    });
    measure("apply, kick and wait until durable", 200, |_| {
        for _ in 0..200 {
            t += 1;
            create_batch(&mut batch, t);
            store.apply(Transno(t), &batch).unwrap();
            store.kick();
            while store.durable() < Transno(t) {
                std::thread::yield_now();
            }
        }
    });
    store.close();
    drop(store);
    let since = Instant::now();
    let store = MetaDisk::open(directory, &Options::default(), Arc::new(|| ())).unwrap();
    let replayed_count = store.recovered().replayed_count;
    println!("{:44} {:12.0} ms ({replayed_count} replayed)", "open", since.elapsed().as_secs_f64() * 1e3);
}

fn objects(directory: &Path) {
    const MIB: usize = 1 << 20;
    const COUNT: u64 = 256;
    let store = ObjectDisk::open(directory, &ObjectOptions::default(), Arc::new(|| ())).unwrap();
    let id = |n: usize| ObjectId { fid: Fid { oid: n as u32, ..Fid::ROOT }, component: 0, stripe: 0 };
    let mut data = vec![0; MIB];
    let mut rng = Rng::new(2);
    data.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
    let raw = |number: usize| std::fs::File::create(directory.join(format!("raw{number}"))).unwrap();
    measure("plain file: write 1 MiB", COUNT, |number| {
        let file = raw(number);
        (0..COUNT).for_each(|n| file.write_all_at(&data, n * MIB as u64).unwrap());
    });
    measure("object: write 1 MiB", COUNT, |number| {
        (0..COUNT).for_each(|n| store.write(&id(number), n * MIB as u64, &data).unwrap());
    });
    measure("plain file: overwrite 1 MiB", COUNT, |_| {
        let file = std::fs::OpenOptions::new().write(true).open(directory.join("raw0")).unwrap();
        (0..COUNT).for_each(|n| file.write_all_at(&data, n * MIB as u64).unwrap());
    });
    measure("object: overwrite 1 MiB", COUNT, |_| {
        (0..COUNT).for_each(|n| store.write(&id(0), n * MIB as u64, &data).unwrap());
    });
    measure("plain file: read 1 MiB", COUNT, |_| {
        let file = std::fs::File::open(directory.join("raw0")).unwrap();
        (0..COUNT).for_each(|n| {
            let mut buffer = vec![0; MIB];
            file.read_exact_at(&mut buffer, n * MIB as u64).unwrap();
            std::hint::black_box(&buffer);
        });
    });
    measure("object: read 1 MiB", COUNT, |_| {
        (0..COUNT).for_each(|n| assert_eq!(store.read(&id(0), n * MIB as u64, MIB).unwrap().len(), MIB));
    });
    measure("plain file: overwrite 4 KiB at random", 10_000, |_| {
        let file = std::fs::OpenOptions::new().write(true).open(directory.join("raw0")).unwrap();
        (0..10_000).for_each(|_| file.write_all_at(&data[..4096], rng.below(COUNT * 256) * 4096).unwrap());
    });
    measure("object: overwrite 4 KiB at random", 10_000, |_| {
        (0..10_000).for_each(|_| store.write(&id(0), rng.below(COUNT * 256) * 4096, &data[..4096]).unwrap());
    });
    measure("object: overwrite 1 KiB at random", 10_000, |_| {
        (0..10_000).for_each(|_| store.write(&id(0), rng.below(COUNT * 1024) * 1024, &data[..1024]).unwrap());
    });
    measure("object: read 4 KiB at random", 10_000, |_| {
        (0..10_000).for_each(|_| drop(store.read(&id(0), rng.below(COUNT * 256) * 4096, 4096).unwrap()));
    });
    measure("plain file: create with 4 KiB", 5000, |number| {
        for n in 0..5000 {
            let path = directory.join(format!("{:02x}/raw{number}-{n}", n % 256));
            std::fs::File::create(path).unwrap().write_all_at(&data[..4096], 0).unwrap();
        }
    });
    measure("object: create with 4 KiB", 5000, |number| {
        (0..5000).for_each(|n| store.write(&id(100_000 * (number + 1) + n), 0, &data[..4096]).unwrap());
    });
    measure("object: 4 KiB, kick and wait until durable", 100, |_| {
        for n in 0..100 {
            store.write(&id(1), n * 4096, &data[..4096]).unwrap();
            let written = store.written();
            store.kick();
            while store.durable() < written {
                std::thread::yield_now();
            }
        }
    });
    store.close();
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let parent = arguments.iter().find(|argument| Path::new(argument).is_dir());
    let dir = match parent {
        Some(parent) => tempfile::tempdir_in(parent).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let is_wanted =
        |part: &str| !["meta", "objects"].iter().any(|p| *p != part && arguments.iter().any(|a| a == p));
    if is_wanted("meta") {
        meta(&dir.path().join("meta"));
    }
    if is_wanted("objects") {
        objects(&dir.path().join("objects"));
    }
}
