#![allow(clippy::unwrap_used)]

use super::*;

fn ioctl(data: Vec<u8>) -> fuse::Ioctl {
    fuse::Ioctl {
        fh: 0,
        cmd: COMMAND,
        arg: 0,
        is_dir: false,
        compat: false,
        data,
        out_size: BUFFER_BYTES as u32,
    }
}

#[test]
fn a_request_becomes_a_call() {
    let (call, want) = decode(7, &ioctl(pack(&Ask::NodeFid))).unwrap();
    assert_eq!(call, Call::NodeFid { node: 7 });
    let bytes = encode(&want, Answer::Fid(Fid::ROOT));
    assert_eq!(unpack::<Tell>(&bytes), Some(Tell::Fid(Fid::ROOT)));
}

#[test]
fn names_are_checked_and_other_ioctls_are_not_ours() {
    let bad = Ask::MkdirOn { name: b"a/b".to_vec(), mode: 0, umask: 0, mdt_index: 0 };
    assert_eq!(decode(1, &ioctl(pack(&bad))).unwrap_err(), libc::EINVAL);
    let mut other = ioctl(pack(&Ask::NodeFid));
    other.cmd = 1;
    assert_eq!(decode(1, &other).unwrap_err(), libc::ENOTTY);
}

#[test]
fn paths_that_do_not_fit_are_left_out() {
    let want = Want { out_bytes: 10_000, has_states: false, skip_count: 0 };
    let bytes = encode(&want, Answer::Paths(vec![vec![b'a'; 4000]; 9]));
    assert_eq!(unpack::<Tell>(&bytes), Some(Tell::Paths(vec![vec![b'a'; 4000]; 2])));
}

#[test]
fn paths_that_do_not_fit_are_told_when_asked_for_again() {
    let paths: Vec<Vec<u8>> = (0..9).map(|n| vec![b'a' + n; 4000]).collect();
    let mut told = Vec::new();
    loop {
        let ask = Ask::FidToPathFrom { fid: Fid::ROOT, skip_count: told.len() as u32 };
        let (call, want) = decode(1, &ioctl(pack(&ask))).unwrap();
        assert_eq!(call, Call::FidToPath { fid: Fid::ROOT });
        let bytes = encode(&want, Answer::Paths(paths.clone()));
        let Some(Tell::Paths(more)) = unpack::<Tell>(&bytes) else { panic!("paths") };
        if more.is_empty() {
            break;
        }
        told.extend(more);
    }
    assert_eq!(told, paths);
}

#[test]
fn what_alone_does_not_fit_is_said_to_be_there() {
    let want = Want { out_bytes: 10_000, has_states: false, skip_count: 1 };
    let paths = || vec![vec![b'a'; 20], vec![b'b'; 20_000]];
    assert_eq!(unpack::<Tell>(&encode(&want, Answer::Paths(paths()))), Some(Tell::TooLong));
    let want = Want { skip_count: 2, ..want };
    assert_eq!(unpack::<Tell>(&encode(&want, Answer::Paths(paths()))), Some(Tell::Paths(Vec::new())));
}

/// Of a large cluster neither all targets nor all pools fit into one answer.
#[test]
fn all_targets_and_pools_are_told_in_parts() {
    let space = Some(Statfs::default());
    let target = |target| client::TargetSpace { target, space, is_active: true, is_drained: false };
    let mdts = (0..4).map(base::TargetId::mdt);
    let targets: Vec<_> = mdts.chain((0..300).map(base::TargetId::ost)).map(target).collect();
    let pool =
        |number: u16| Pool { name: format!("pool{number}").parse().unwrap(), osts: (0..300).collect() };
    let pools: Vec<Pool> = (0..100).map(pool).collect();
    let ask = |ask: Ask, answer: Answer| {
        let (_, want) = decode(1, &ioctl(pack(&ask))).unwrap();
        let bytes = encode(&want, answer);
        assert!(bytes.len() <= BUFFER_BYTES);
        unpack::<Tell>(&bytes).unwrap()
    };
    let (mut states, mut rounds) = (Vec::new(), 0);
    loop {
        let skip_count = states.len() as u32;
        let told = ask(Ask::DfStatesFrom { skip_count }, Answer::Targets(targets.clone()));
        let Tell::TargetStates(more) = told else { panic!("states") };
        if more.is_empty() {
            break;
        }
        states.extend(more);
        rounds += 1;
    }
    assert_eq!((states.len(), rounds), (304, 2));
    assert_eq!(states[303].name, "OST012b");
    let mut told_pools = Vec::new();
    loop {
        let skip_count = told_pools.len() as u32;
        let Tell::Pools(more) = ask(Ask::ListPoolsFrom { skip_count }, Answer::Pools(pools.clone())) else {
            panic!("pools")
        };
        if more.is_empty() {
            break;
        }
        told_pools.extend(more);
    }
    assert_eq!(told_pools, pools);
    // An older `lfs` has what fits.
    let Tell::Targets(first) = ask(Ask::Df, Answer::Targets(targets)) else { panic!("targets") };
    assert!(first.len() > 200 && first.len() < 304);
}

/// An older `lfs` asks as before.
#[test]
fn states_of_targets_are_told_to_who_asks_for_them() {
    let target = |index, is_active| client::TargetSpace {
        target: base::TargetId::ost(index),
        space: None,
        is_active,
        is_drained: true,
    };
    let told = |ask: Ask| {
        let (call, want) = decode(1, &ioctl(pack(&ask))).unwrap();
        assert_eq!(call, Call::DfTargets);
        unpack::<Tell>(&encode(&want, Answer::Targets(vec![target(0, true), target(1, false)]))).unwrap()
    };
    let names = ["OST0000", "OST0001"].map(|name| (name.to_owned(), None));
    assert_eq!(told(Ask::Df), Tell::Targets(names.to_vec()));
    let Tell::TargetStates(states) = told(Ask::DfStates) else { panic!("states") };
    let states: Vec<_> = states.iter().map(|state| (state.name.as_str(), state.is_active)).collect();
    assert_eq!(states, [("OST0000", true), ("OST0001", false)]);
}

#[test]
fn hostile_buffers_are_refused() {
    let mut rng = base::Rng::new(3);
    for _ in 0..20_000 {
        let mut bytes = pack(&Ask::Setstripe(LayoutHint::default()));
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        let _ = decode(1, &ioctl(bytes));
    }
}
