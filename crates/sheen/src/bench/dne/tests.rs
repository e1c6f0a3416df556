use super::*;
use crate::bench::beside::Shares;
use crate::bench::cost::{Cost, Counts};
use crate::bench::plan::Wanted;
use clap::ValueEnum;

fn sample(rate: f64, cpu_us: u64, awaited_sync_count: u64) -> Sample {
    let counts =
        Counts { mdt_sync_count: 2, mdt_awaited_sync_count: awaited_sync_count, ..Counts::default() };
    let cost = Cost {
        operation_count: 10,
        rpc_unit_count: 10,
        client_cpu: Duration::from_micros(cpu_us * 4),
        server_cpu: Some(Duration::from_micros(cpu_us * 6)),
        mdt_cpu: None,
        ost_cpu: None,
        is_client_serving: false,
        has_all_servers: true,
        counts: Some(counts),
    };
    let shares = Shares { elapsed: Duration::from_secs(1), tool_cpu: Duration::ZERO, streams: None };
    let counted = Duration::from_secs(3);
    Sample { rate, cost: Some(cost), shares, counted, first_entry: None, memory: None, unsynced_rate: None }
}

fn samples(op: DneOp, home: Home, of_place: Vec<Sample>) -> Samples {
    let act = Act::Step(Step::Dne(op, home));
    let phase = *Kind::Dne.phases().iter().find(|phase| phase.act == act).expect("a phase");
    Samples { phase, procs: 4, needed_bytes: None, of_place, of_other: Vec::new() }
}

#[test]
fn rates_and_costs_are_those_of_local_ones_of_the_same_round() {
    let all = [
        samples(
            DneOp::Mkdir,
            Home::Local,
            vec![sample(100.0, 50, 0), sample(200.0, 40, 0), sample(400.0, 10, 0)],
        ),
        samples(
            DneOp::Mkdir,
            Home::Remote,
            vec![sample(90.0, 60, 0), sample(100.0, 60, 0), sample(400.0, 20, 0)],
        ),
        samples(
            DneOp::Mkdir,
            Home::RemoteSync,
            vec![sample(10.0, 100, 7), sample(10.0, 100, 8), sample(10.0, 100, 9)],
        ),
    ];
    let compared = Compared::of_all(&all);
    let median = |ratio: &Option<Summary>| ratio.as_ref().map(|ratio| (ratio.median * 1000.0).round());
    let row = |each: &Compared| {
        (median(&each.of_local), median(&each.cpu_of_local), each.sync_count, each.awaited_sync_count)
    };
    assert_eq!(
        compared.iter().map(row).collect::<Vec<_>>(),
        [(None, None, 6, 0), (Some(900.0), Some(1500.0), 6, 0), (Some(50.0), Some(2500.0), 6, 24)]
    );
    assert_eq!(compared.iter().map(|each| each.operation_count).collect::<Vec<_>>(), [30, 30, 30]);
    assert!(to_text(&compared).contains("0.90 (56 %)"), "{}", to_text(&compared));
}

/// An OST on another machine has servers whose clocks cannot be read: what the client took is not what an operation costs.
#[test]
fn the_cpu_of_the_client_is_not_told_for_that_of_all() {
    let with = |server_cpu, is_client_serving, has_all_servers| {
        let mut sample = sample(100.0, 50, 0);
        if let Some(cost) = &mut sample.cost {
            *cost = Cost { server_cpu, is_client_serving, has_all_servers, ..cost.clone() };
        }
        sample
    };
    let cpu_us = |sample: Sample| {
        let compared = Compared::of_all(&[samples(DneOp::Mkdir, Home::Local, vec![sample])]);
        assert_eq!((compared.len(), compared[0].operation_count), (1, 10));
        let text = to_text(&compared);
        assert_eq!(text.contains("on another machine"), compared[0].cpu_us.is_none(), "{text}");
        compared[0].cpu_us.as_ref().map(|cpu| cpu.median.round())
    };
    let server_cpu = Some(Duration::from_micros(300));
    assert_eq!(cpu_us(with(server_cpu, false, true)), Some(50.0));
    assert_eq!(cpu_us(with(None, true, true)), Some(20.0), "one process has all");
    assert_eq!(cpu_us(with(None, false, false)), None);
    assert_eq!(cpu_us(with(None, true, false)), None);
}

#[test]
fn each_operation_is_compared_with_itself_where_everything_is_on_one_mdt() {
    let all = [
        samples(DneOp::Mkdir, Home::Local, vec![sample(1000.0, 10, 0)]),
        samples(DneOp::Rmdir, Home::Local, vec![sample(100.0, 10, 0)]),
        samples(DneOp::Rmdir, Home::Remote, vec![sample(50.0, 10, 10)]),
        // Without anything to compare with nothing is said.
        samples(DneOp::Link, Home::Remote, vec![sample(50.0, 10, 10)]),
    ];
    let row = |each: &Compared| {
        (each.operation, each.of_local.as_ref().map(|ratio| ratio.median), each.awaited_syncs_per_operation)
    };
    assert_eq!(
        Compared::of_all(&all).iter().map(row).collect::<Vec<_>>(),
        [("local", None, 0.0), ("rmdir local", None, 0.0), ("rmdir remote", Some(0.5), 1.0)]
    );
}

#[test]
fn an_operation_has_a_phase_for_each_home_and_a_worker_does_the_same() {
    for op in DneOp::value_variants() {
        let plan = Plan { ops: vec![*op], ..Plan::of(Kind::Dne, 1) };
        let acts: Vec<Act> = plan.phases().iter().map(|phase| phase.act).collect();
        let homes = [Home::Local, Home::Remote, Home::RemoteSync];
        let mut expected: Vec<Act> = homes.map(|home| Act::Step(Step::Dne(*op, home))).to_vec();
        if *op == DneOp::Mkdir {
            expected.insert(0, Act::Step(Step::Mkdir));
        }
        assert_eq!(acts, expected);
        let done = |is_null| {
            let wanted =
                Wanted { patterns: &[], ops: &[*op], is_cold: false, is_client_cold: false, is_null };
            wanted.steps(Kind::Dne).iter().map(|(_, step)| Act::Step(*step)).collect::<Vec<Act>>()
        };
        assert_eq!(done(false), expected);
        // A null file system is compared in what is first, and has nothing else.
        expected.retain(|act| *act == Act::Step(Step::Mkdir));
        assert_eq!(done(true), expected);
        assert!(acts.starts_with(&expected));
        assert_eq!(op.to_possible_value().map(|value| value.get_name() == op.word()), Some(true));
    }
}
