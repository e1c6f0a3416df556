//! The models pass the conformance suite, and lose in a crash what they should.

#![allow(clippy::unwrap_used)]

use base::{Fid, ObjectId, Rng, Transno};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::conformance::meta::MetaHarness;
use store::conformance::objects::ObjectHarness;
use store::memory::{Kept, SyncMode};
use store::{Batch, MemoryMeta, MemoryObjects, MetaStore, ObjectStore, Reserve, StoreError};

struct MetaModels {
    model: Arc<MemoryMeta>,
    rng: Rng,
}

impl MetaHarness for MetaModels {
    fn create(&mut self) -> Arc<dyn MetaStore> {
        self.model = Arc::default();
        self.model.clone()
    }

    fn settle(&mut self, _: &Arc<dyn MetaStore>) {
        self.model.sync();
    }

    fn crash(&mut self, _: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
        self.model.crash(self.rng.below(20) as usize);
        self.model.clone()
    }
}

struct ObjectModels {
    model: Arc<MemoryObjects>,
    rng: Rng,
}

impl ObjectHarness for ObjectModels {
    fn create(&mut self) -> Arc<dyn ObjectStore> {
        self.model = Arc::default();
        self.model.clone()
    }

    fn settle(&mut self, _: &Arc<dyn ObjectStore>) {
        self.model.sync();
    }

    fn crash(&mut self, _: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        let rng = &mut self.rng;
        self.model.crash(|_| match rng.below(3) {
            0 => Kept::Nothing,
            1 => Kept::Whole,
            _ => Kept::Torn { byte_count: rng.below(4) as usize },
        });
        self.model.clone()
    }
}

#[test]
fn the_meta_model_conforms() {
    store::conformance::meta::run(&mut MetaModels { model: Arc::default(), rng: Rng::new(3) });
}

#[test]
fn the_object_model_conforms() {
    store::conformance::objects::run(&mut ObjectModels { model: Arc::default(), rng: Rng::new(3) });
}

fn put(store: &MemoryMeta, t: u64) {
    let mut batch = Batch::new();
    batch.put(1, &t.to_be_bytes(), b"v");
    store.apply(Transno(t), &batch).unwrap();
}

#[test]
fn a_meta_crash_keeps_exactly_the_asked_prefix() {
    let store = MemoryMeta::new();
    (1..=3).for_each(|t| put(&store, t));
    store.sync_to(Transno(2));
    (4..=9).for_each(|t| put(&store, t));
    assert_eq!((store.durable(), store.unsynced_count()), (Transno(2), 7));
    store.crash(3);
    assert_eq!((store.applied(), store.durable()), (Transno(5), Transno(5)));
    assert_eq!(store.rows().len(), 5);
}

#[test]
fn a_failing_device_poisons_and_a_crash_heals() {
    let store = MemoryMeta::new();
    put(&store, 1);
    store.set_failing(true);
    store.sync();
    assert!(store.pressure().poisoned);
    assert_eq!(store.durable(), Transno::ZERO);
    assert!(matches!(store.apply(Transno(2), &Batch::new()), Err(StoreError::Poisoned { .. })));
    store.set_failing(false);
    store.crash(0);
    put(&store, 1);
}

#[test]
fn rot_is_an_error_and_never_a_value() {
    let store = MemoryMeta::new();
    put(&store, 1);
    assert!(store.rot(1, &1_u64.to_be_bytes()));
    assert!(!store.rot(1, b"none"));
    assert!(matches!(store.get(1, &1_u64.to_be_bytes()), Err(StoreError::CorruptRow { .. })));
    assert!(store.scan(1, &[], &[255], 9, &mut |_, _| true).is_err());
    let objects = MemoryObjects::new();
    let id = ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 };
    objects.write(&id, 0, &[1; 10_000]).unwrap();
    assert!(objects.rot(&id, 5000));
    assert!(matches!(objects.read(&id, 0, 9000), Err(StoreError::CorruptObject { offset_bytes: 4096, .. })));
    assert_eq!(objects.read(&id, 0, 4096).unwrap(), [1; 4096][..]);
    objects.write(&id, 4096, &[2; 4096]).unwrap();
    assert_eq!(objects.read(&id, 4000, 200).unwrap()[96..], [2; 104]);
}

#[test]
fn a_full_device_refuses_what_consumes_and_changes_nothing() {
    let objects = MemoryObjects::new();
    let id = ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 };
    objects.set_capacity(8192);
    objects.write(&id, 0, &[1; 4096]).unwrap();
    assert_eq!(objects.write(&id, 4000, &[2; 5000]), Err(StoreError::NoSpace));
    assert_eq!(objects.read(&id, 0, 9999).unwrap(), [1; 4096][..]);
    objects.set_full(true);
    objects.write(&id, 0, &[3; 4096]).unwrap();
    assert_eq!(objects.write(&id, 4096, &[2]), Err(StoreError::NoSpace));
    assert!(objects.destroy(&id).unwrap());
    let meta = MemoryMeta::new();
    assert!(!meta.pressure().is_consuming_refused());
    meta.set_reserve(Reserve::Low);
    assert!(meta.pressure().is_consuming_refused());
    put(&meta, 1);
}

#[test]
fn kicks_sync_at_once_or_are_remembered() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let store = MemoryMeta::with(
        SyncMode::OnKick,
        Some(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })),
    );
    put(&store, 1);
    store.kick();
    assert_eq!((store.durable(), calls.load(Ordering::Relaxed)), (Transno(1), 1));
    let manual = MemoryMeta::new();
    put(&manual, 1);
    manual.kick();
    assert_eq!(manual.durable(), Transno::ZERO);
    assert!(manual.take_kick());
    assert!(!manual.take_kick());
}
