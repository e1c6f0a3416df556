//! What operators read and clear: each thing that is counted by itself.

use crate::skew::tap::Tap;
use crate::skew::tape::What;
use crate::world::{O_RDWR, TOP, World};
use base::{Duration, TargetId};
use client::stats::TargetStats;
use client::{Call, Input, Setting, TargetSetting};

const O_DIRECT: u32 = 0o40000;

fn stats(world: &World) -> TargetStats {
    world.mounts[0].machine.target_status(TargetId::ost(0)).expect("it is known").stats
}

fn set(world: &mut World, setting: TargetSetting) {
    world.input(0, Input::Set(Setting::Target(TargetId::ost(0), setting)));
}

/// A file that is read and written past the page cache, and has been.
fn file(world: &mut World) -> (u64, u64) {
    let file = world.create_with(0, TOP, "f", O_RDWR | O_DIRECT);
    assert_eq!(world.write(0, file, 0, &[1; 10 * 4096]), Ok(10 * 4096));
    assert_eq!(world.read(0, file, 0, 4096), [1; 4096]);
    file
}

#[test]
fn histograms_and_counters_of_a_target_are_cleared_apart() {
    let mut world = World::new(1, 1, 1);
    file(&mut world);
    world.pass(Duration::from_secs(1));
    let before = stats(&world);
    assert!(before.requests.contains_key("ost_write"));
    assert_eq!((before.write_bytes.count, before.read_bytes.count), (1, 1));
    assert_eq!(before.write_pages_per_rpc.buckets.iter().sum::<u64>(), 1);
    set(&mut world, TargetSetting::ClearRpcStats);
    let after = stats(&world);
    assert_eq!(
        (&after.requests, after.write_bytes, after.since),
        (&before.requests, before.write_bytes, before.since)
    );
    assert!(after.rpcs_since > before.rpcs_since);
    for histogram in [
        &after.read_pages_per_rpc,
        &after.write_pages_per_rpc,
        &after.read_page_offsets,
        &after.write_page_offsets,
        &after.read_micros,
        &after.write_micros,
        &after.read_rpcs_in_flight,
        &after.write_rpcs_in_flight,
        &after.modify_rpcs_in_flight,
    ] {
        assert!(histogram.buckets.is_empty());
    }
    let mut world = World::new(1, 1, 1);
    file(&mut world);
    world.pass(Duration::from_secs(1));
    let before = stats(&world);
    set(&mut world, TargetSetting::ClearStats);
    let after = stats(&world);
    assert!(after.requests.is_empty() && after.read_bytes.count == 0 && after.write_bytes.count == 0);
    assert!(after.since > before.since);
    assert_eq!(after.write_pages_per_rpc, before.write_pages_per_rpc);
    assert_eq!(after.rpcs_since, before.rpcs_since);
}

/// Others wait in the mount for their turn.
#[test]
fn no_more_requests_count_as_in_flight_than_may_be() {
    let mut world = World::new(1, 1, 1);
    let (node, fh) = file(&mut world);
    set(&mut world, TargetSetting::PlainInFlight(2));
    set(&mut world, TargetSetting::ClearRpcStats);
    world.mounts[0].is_late = Some(TargetId::ost(0));
    let calls: Vec<u64> = (0..6)
        .map(|page| {
            let call = Call::Read { node, fh, offset_bytes: page * 4096, byte_count: 4096, is_direct: true };
            world.begin(0, call)
        })
        .collect();
    let counted = stats(&world);
    assert_eq!(counted.read_rpcs_in_flight.buckets, [0, 1, 5]);
    assert!(counted.write_rpcs_in_flight.buckets.is_empty(), "reads are no writes");
    assert_eq!((counted.read_rpcs_now, counted.write_rpcs_now), (2, 0));
    world.let_come(0);
    for call in calls {
        assert!(world.finish(0, call).is_ok());
    }
    assert_eq!(stats(&world).read_rpcs_now, 0);
}

#[test]
fn what_listings_and_reading_ahead_have_brought_is_cleared_apart_from_calls() {
    let mut world = World::new(1, 1, 1);
    let (node, fh) = file(&mut world);
    world.release(0, (node, fh));
    assert_eq!(world.names(0, TOP), ["f"]);
    let (fh, _) = world.open(0, node, 0);
    assert_eq!(world.read(0, (node, fh), 0, 4096), [1; 4096]);
    world.pass(Duration::from_secs(1));
    let before = (world.mounts[0].machine.stats(), world.mounts[0].machine.read_ahead_stats());
    assert!(before.0.listings.request_count > 0 && !before.0.calls.is_empty());
    assert!(before.1.hit_page_count + before.1.miss_page_count > 0);
    let since = world.mounts[0].machine.read_ahead_stats_since();
    world.input(0, Input::Set(Setting::ClearStats));
    let machine = &world.mounts[0].machine;
    assert!(machine.stats().calls.is_empty());
    assert_eq!(machine.stats().listings, before.0.listings);
    assert_eq!((machine.read_ahead_stats(), machine.read_ahead_stats_since()), (before.1, since));
    world.input(0, Input::Set(Setting::ClearReadAheadStats));
    let machine = &world.mounts[0].machine;
    assert_eq!(machine.read_ahead_stats().hit_page_count + machine.read_ahead_stats().miss_page_count, 0);
    assert!(machine.read_ahead_stats_since() > since);
    assert_eq!(machine.stats().listings, before.0.listings);
}

/// Writes and reads past the page cache; -> frames with data on the wire, by whether they have a checksum.
fn data_frames(world: &mut World, file: (u64, u64)) -> (usize, usize) {
    world.tap = Tap::Recording(Vec::new());
    assert_eq!(world.write(0, file, 0, &[2; 4096]), Ok(4096));
    assert_eq!(world.read(0, file, 0, 4096), [2; 4096]);
    let Tap::Recording(moments) = std::mem::replace(&mut world.tap, Tap::Open) else { unreachable!() };
    let frames = moments.iter().filter_map(|moment| match &moment.what {
        What::Frame(frame) if !frame.data.is_empty() => Some(frame),
        _ => None,
    });
    let (unchecked, checked): (Vec<_>, Vec<_>) =
        frames.partition(|frame| frame.flags & wire::flags::UNCHECKED_DATA != 0);
    (checked.len(), unchecked.len())
}

/// `lctl set_param osc.*.checksums=0` comes to this.
#[test]
fn data_have_checksums_on_the_wire_until_somebody_switches_them_off() {
    let mut world = World::new(1, 1, 1);
    let file = file(&mut world);
    let is_on = |world: &World| {
        world.mounts[0].machine.target_status(TargetId::ost(0)).expect("it is known").has_checked_data
    };
    assert!(is_on(&world), "by default");
    assert_eq!(data_frames(&mut world, file), (2, 0), "a write's data, and those of a read's answer");
    set(&mut world, TargetSetting::CheckedData(false));
    assert!(!is_on(&world));
    assert_eq!(data_frames(&mut world, file), (0, 2));
    set(&mut world, TargetSetting::CheckedData(true));
    assert_eq!(data_frames(&mut world, file), (2, 0));
}
