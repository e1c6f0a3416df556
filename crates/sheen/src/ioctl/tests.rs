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
