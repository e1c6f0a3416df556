use super::super::{Death, Down, Story, Syncs};
use super::*;
use crate::clockwork::Spoken;
use mds::rows;
use store::Batch;

fn story(name: &str) -> &'static Story {
    Story::named(name).expect("is a story")
}

fn control(name: &str) -> Case {
    let (syncs, down, death) = (Syncs::Each, Down::default(), Death::Process);
    Case { story: story(name), mdt_count: 2, syncs, at: u64::MAX, down, death }
}

/// Everything has run, and nobody has looked yet.
fn run_to_the_end(case: &Case) -> Run<'_> {
    let mut run = Run::begin(case, Shared::default(), 0).expect("the setup works");
    run.go();
    assert!(!run.clockwork.is_broken() && run.is_complete(), "{case}");
    run
}

/// The canary: what is missing is noticed by whoever walks, and by the checker.
#[test]
fn a_name_that_goes_missing_is_noticed() {
    let case = control("mkdir-on");
    let mut run = run_to_the_end(&case);
    let mdt = &run.clockwork.servers[&TargetId::mdt(0)];
    let key =
        mdt.meta.rows().into_keys().rfind(|(table, key)| *table == rows::DENTRIES && key.ends_with(b"b"));
    let mut batch = Batch::new();
    batch.delete(rows::DENTRIES, &key.expect("the directory has its name").1);
    mdt.meta.apply(Transno(mdt.meta.applied().0 + 1), &batch).expect("is applied");
    let damage = find_damage(run.clockwork.servers.values()).expect("is damage");
    assert!(damage.contains("MDT"), "{damage}");
    // Who serves has looked at its rows when it was started.
    run.clockwork.lose_target(TargetId::mdt(0), Death::Process, OUTAGE);
    assert!(run.clockwork.run_until(SETTLED_MAX, Clockwork::is_at_rest));
    let observer = run.clockwork.mount();
    let found = tree::walk(&mut run.clockwork, observer).expect("can be walked");
    assert!(run.not_a_prefix(&found, run.steps.len()).is_some(), "the directory is not missed");
}

#[test]
fn who_is_gone_holds_nothing() {
    let down: Down = "client,mdt0".parse().expect("is a set");
    let case = Case { down, ..control("mkdir-on") };
    let undisturbed = control("mkdir-on");
    let mut run = run_to_the_end(&undisturbed);
    run.case = &case;
    let durable = run.clockwork.servers[&TargetId::mdt(0)].meta.durable();
    let (begun_at, at) = (Time(70), Time(80));
    let (told, other) = (TargetId::mdt(1), TargetId::mdt(0));
    let client = run.clockwork.seats[CLIENT].id;
    let lost = Transno(durable.0 + 1);
    let spoken = vec![(client, durable), (client, lost)];
    run.clockwork.spoken = vec![Spoken { from: other, to: told, sent_at: at, told: spoken }];
    let step = |target, transno, at| Step {
        is_acknowledged: true,
        begun_at,
        records: vec![Executed { client, target, transno, at }],
    };
    let op = &run.script.steps[1];
    let holds = |step: &Step| {
        [Holder::Client, Holder::Coordinator, Holder::Witness].map(|holder| run.is_held(op, step, holder))
    };
    assert_eq!(holds(&step(other, durable, at)), [false, true, true]);
    assert_eq!(holds(&step(other, lost, at)), [false, false, true]);
    let later = Transno(lost.0 + 1);
    assert_eq!(holds(&step(other, later, at)), [false, false, false], "something else was told");
    assert_eq!(holds(&step(told, lost, at)), [false, true, false], "it coordinates, and lives");
}
