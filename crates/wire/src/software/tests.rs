#![allow(clippy::unwrap_used)]

use crate::{ConnectReply, Reply, session::SessionState};
use base::Epoch;

fn reply(software: &str) -> ConnectReply {
    ConnectReply {
        version: 1,
        features: 3,
        session: 5,
        state: SessionState::New,
        target_epoch: Epoch::ZERO,
        target_uuid: 7,
        slot_count: 16,
        server_time_ns: 8,
        lease_ms: 9,
        software: software.to_owned(),
        started_at: base::WallTime::default(),
    }
}

fn read(bytes: &[u8]) -> ConnectReply {
    match Reply::from_bytes(bytes).unwrap() {
        Reply::Connected(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_version_stands_behind_all_that_an_older_program_reads() {
    let (with, without) =
        (Reply::Connected(reply("0.2.0")).to_bytes(), Reply::Connected(reply("")).to_bytes());
    assert_eq!(with[..without.len()], without[..]);
    assert_eq!(read(&with), reply("0.2.0"));
    assert_eq!(read(&without), reply(""), "of one that does not say");
    let other = [&without[..], b"of a newer version"].concat();
    assert_eq!(read(&other), reply(""));
}

#[test]
fn what_is_no_version_is_left_out() {
    for strange in ["x".repeat(65), "1 \u{1b}[31m".to_owned()] {
        let bytes = Reply::Connected(reply(&strange)).to_bytes();
        assert_eq!(read(&bytes), reply(""));
    }
    let cut = Reply::Connected(reply("0.2.0")).to_bytes();
    assert!(Reply::from_bytes(&cut[..cut.len() - 1]).is_err());
}

#[test]
fn when_the_target_was_started_stands_behind_its_version() {
    let started = ConnectReply { started_at: base::WallTime(10), ..reply("0.2.0") };
    let bytes = Reply::Connected(started.clone()).to_bytes();
    let without = Reply::Connected(reply("0.2.0")).to_bytes();
    assert_eq!(bytes[..without.len()], without[..]);
    assert_eq!(read(&bytes), started);
    assert_eq!(read(&[&without[..], b"of a newer version"].concat()), reply("0.2.0"));
}
