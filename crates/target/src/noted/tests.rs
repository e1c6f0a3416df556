#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn what_is_noted_is_read_back_as_it_was() {
    let fid = Fid { seq: 0x2_0000_0400, oid: 7, ver: 3 };
    let object = ObjectId { fid, component: 2, stripe: 9 };
    let locks = [
        (Resource::Inode(fid), LockMode::Pr, LockPolicy::Bits(127)),
        (Resource::Name { parent: fid, hash: u64::MAX - 1 }, LockMode::Ex, LockPolicy::Plain),
        (Resource::Object(object), LockMode::Pw, LockPolicy::Extent(Extent::new(4096, Extent::EOF))),
        (Resource::Rename, LockMode::Group, LockPolicy::Plain),
    ];
    for (resource, mode, policy) in locks {
        let grant = LockGrant { lock: LockId(11), resource, mode, policy };
        assert_eq!(lock_of(11, &words_of_lock(&grant)), Some(grant));
    }
}

#[test]
fn words_that_mean_nothing_are_refused() {
    let grant = LockGrant {
        lock: LockId(1),
        resource: Resource::Inode(Fid::ROOT),
        mode: LockMode::Pr,
        policy: LockPolicy::Bits(1),
    };
    let words = words_of_lock(&grant);
    for wrong in [words[0] | 0xff, words[0] | 0xff00, words[0] | 0xff_0000] {
        let mut words = words;
        words[0] = wrong;
        assert_eq!(lock_of(1, &words), None);
    }
    assert_eq!(lock_of(1, &[words[0], words[1], words[2], 0, u64::MAX, 0]), None, "bits that there are not");
}
