#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Callback, Reply, Request};
use base::Rng;

fn sample() -> Frame {
    let src = Endpoint::Client(ClientId(7));
    let mut frame = Frame::new(FrameKind::Request, src, Endpoint::Target(TargetId::mdt(1)));
    frame.xid = Xid(42);
    frame.body = Request::PING.to_bytes();
    frame.data = Bytes::from_static(b"file data");
    frame
}

#[test]
fn a_frame_survives_the_round_trip() {
    let frame = sample();
    assert_eq!(Frame::from_bytes(frame.to_bytes().into()).unwrap(), frame);
}

/// As a client of its id it would be taken for that target behind the places where targets are refused.
#[test]
fn a_client_with_the_id_of_a_target_is_that_target() {
    let mdt = Endpoint::Target(TargetId::mdt(3));
    for (src, expected) in [(mdt.client_id(), mdt), (ClientId(5), Endpoint::Client(ClientId(5)))] {
        let frame = Frame { src: Endpoint::Client(src), ..sample() };
        assert_eq!(Frame::from_bytes(frame.to_bytes().into()).unwrap().src, expected);
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let good = sample().to_bytes();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Frame::from_bytes(bad.into()).is_err(), "bit {bit}");
    }
}

#[test]
fn of_a_frame_with_unchecked_data_all_but_the_data_is_checked() {
    let mut frame = sample();
    frame.flags = flags::UNCHECKED_DATA;
    let good = frame.to_bytes();
    assert_eq!(Frame::from_bytes(good.clone().into()).unwrap(), frame);
    let data_from = (good.len() - frame.data.len()) * 8;
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Frame::from_bytes(bad.into()).is_ok(), bit >= data_from, "bit {bit}");
    }
}

#[test]
fn a_longer_header_is_skipped_by_its_length_and_an_unknown_flag_is_kept() {
    let frame = Frame { flags: 1 << 31, ..sample() };
    for more in [&b"x"[..], &[0xff; 40], &[0; 4096 - HEADER_BYTES]] {
        let bytes = frame.to_bytes_with(more);
        assert_eq!(bytes.len(), frame.to_bytes().len() + more.len());
        assert_eq!(Frame::byte_count(&bytes).unwrap(), Some(bytes.len()));
        assert_eq!(Frame::from_bytes(bytes.into()).unwrap(), frame);
    }
    let too_long = frame.to_bytes_with(&[0; 4097 - HEADER_BYTES]);
    assert!(matches!(Frame::byte_count(&too_long), Err(WireError::Length { .. })));
}

#[test]
fn lengths_are_refused_before_anything_is_allocated() {
    let mut bytes = sample().to_bytes();
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(Frame::byte_count(&bytes), Err(WireError::Length { .. })));
}

/// To assert it ended a server that had too much to say.
#[test]
fn a_frame_that_nobody_would_read_has_no_header() {
    let bytes = |count| Bytes::from(vec![0; count]);
    let (body, data) = (limits::FRAME_BODY_BYTES_MAX, limits::BULK_BYTES_MAX);
    assert!(Frame { body: bytes(body), data: bytes(data), ..sample() }.header().is_ok());
    for (body, data) in [(body + 1, 0), (0, data + 1)] {
        let header = Frame { body: bytes(body), data: bytes(data), ..sample() }.header();
        assert!(matches!(header, Err(WireError::Length { .. })));
    }
}

#[test]
fn random_bytes_are_errors_and_never_panics() {
    let mut rng = Rng::new(1);
    for _ in 0..50_000 {
        let count = rng.below(300) as usize;
        let bytes: Vec<u8> = (0..count).map(|_| rng.next_u64() as u8).collect();
        assert!(Frame::from_bytes(bytes.clone().into()).is_err());
        // Bodies may happen to be valid; what counts is that they return, and in bounded memory.
        let mut steered = bytes;
        if let Some(first) = steered.first_mut() {
            *first = [1, 2, 3, 4, 10, 20, 30, 40, 50][rng.below(9) as usize];
        }
        let _ = Request::from_bytes(&steered);
        let _ = Reply::from_bytes(&steered);
        let _ = Callback::from_bytes(&steered);
    }
}
