//! The simulation itself: it is repeatable, it passes, and it contains what it says.

use sim::churn::{self, ChurnOptions, Policy};
use sim::command;
use sim::crash_table::{Death, Filter, STORIES, Story, Syncs, plan, run_story};
use sim::dne_model::{self, Bounds, Rule, Rules, SHOWN_BY};
use sim::rename_deadlock::{CONTESTS, Contest, explore, explore_overtaking, repeat};
use sim::rename_locks;
use sim::{Options, Weather, sweep};

#[test]
fn the_same_seed_gives_the_same_run() {
    let options = Options { steps: 60, ..Options::default() };
    for seed in 0..3 {
        let (first, second) = (sim::run(seed, &options), sim::run(seed, &options));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.counts, second.counts, "seed {seed}");
    }
    assert_ne!(sim::run(0, &options).digest, sim::run(1, &options).digest);
}

#[test]
fn a_few_seeds_hold() {
    let options = Options { steps: 100, ..Options::default() };
    let report = sweep::sweep(0, 40, &|seed| sim::run(seed, &options), 2, 1, &|_, _| {});
    assert_eq!(report.failures, Vec::new());
    assert!(report.counts.get("power failure").is_some_and(|count| *count > 10), "{:?}", report.counts);
}

#[test]
fn who_lives_goes_on_though_many_vanish_with_the_mdt() {
    // Of fewer clients hardly any recovery ends by the hard limit under Lustre's rules.
    let options = ChurnOptions { client_count: 150, policy: Policy::Both, trace_count: 0 };
    let report = sweep::sweep(0, 20, &|seed| churn::run(seed, &options), 2, 1, &|_, _| {});
    assert_eq!(report.failures, Vec::new());
    assert_eq!(command::churn_missing(&report, &options), Vec::<&str>::new());
    // The same deaths under Lustre's rules: there are some that end by the hard limit, and not all do.
    let count = |name| report.counts.get(name).copied().unwrap_or(0);
    assert_eq!(count("lustre: recoveries"), 20);
    let hard = count("lustre: hard timeouts");
    assert!((1..20).contains(&hard), "{:?}", report.counts);
    assert!(count("lustre without extension: hard timeouts") < hard, "{:?}", report.counts);
}

#[test]
fn a_sweep_in_which_nothing_was_replayed_or_nobody_became_slow_has_shown_nothing() {
    let options = ChurnOptions { client_count: 40, policy: Policy::Ours, trace_count: 0 };
    let report = sweep::Report { seed_count: 20, ..sweep::Report::default() };
    let missing = command::churn_missing(&report, &options);
    for must in ["replayed", "client vanished", "and expects an answer to take 600 s"] {
        assert!(missing.contains(&must), "{missing:?}");
    }
}

fn table_of(name: &str, filter: &Filter) -> sim::crash_table::Row {
    let story = Story::named(name).expect("is a story");
    run_story(story, 2, filter, 2, 1, &|case, violation| println!("{case}: {violation:?}"))
}

#[test]
fn operations_over_two_mdts_that_are_broken_off_anywhere_are_there_wholly_or_not_at_all() {
    for name in ["mkdir-on", "rename-directory-over", "unlink-last"] {
        let filter = Filter { syncs: Some(Syncs::Never), death: Some(Death::Power), ..Filter::default() };
        let row = table_of(name, &filter);
        assert_eq!(row.failures, Vec::new(), "{name}");
        let (events, _) = row.event_counts.expect("the control has run");
        assert_eq!(row.case_count, 7 * (events + 1), "{name}: every set of three at every place");
        assert!(row.kept_count > 0 && row.lost_count > 0, "{name}: {row:?}");
    }
}

#[test]
fn a_case_is_the_same_each_time() {
    let filter = Filter { at: Some(20), ..Filter::default() };
    let (first, second) = (table_of("rename-file", &filter), table_of("rename-file", &filter));
    assert_eq!((first.digest, first.case_count), (second.digest, second.case_count));
    let other = table_of("rename-file", &Filter { at: Some(21), ..filter });
    assert_ne!(first.digest, other.digest);
}

#[test]
fn every_operation_of_the_table_works_where_nothing_happens() {
    for (story, mdt_count) in STORIES.iter().flat_map(|story| [(story, 2), (story, 3)]) {
        let filter = Filter { at: Some(0), ..Filter::default() };
        let plan = plan(story, mdt_count, &filter).expect("the control holds");
        let has_ost = mdt_count == 2 && story.has_data(mdt_count);
        let machine_count = 1 + mdt_count + u16::from(has_ost);
        let sets = (1 << machine_count) - 1;
        let syncs = 2 + usize::from(mdt_count);
        assert_eq!(plan.cases.len(), sets * syncs * Death::ALL.len(), "{}", story.name);
        assert!(plan.event_counts.is_some_and(|(_, fewest)| fewest > 10), "{}", story.name);
    }
}

#[test]
fn renames_that_get_in_each_others_way_end_wherever_one_frame_overtakes_others() {
    for contest in &CONTESTS[..2] {
        let in_order = explore_overtaking(contest, 0);
        assert!(in_order.is_complete, "{}: {in_order:?}", contest.name);
        assert_eq!((&in_order.failure, in_order.schedule_count), (&None, 1), "{}", contest.name);
        let seen = explore_overtaking(contest, 1);
        assert_eq!(seen.failure, None, "{}", contest.name);
        assert!(seen.is_complete && seen.redundant_count == 0, "{}: {seen:?}", contest.name);
        assert!(seen.schedule_count > 30, "{}: {seen:?}", contest.name);
    }
}

#[test]
fn renames_that_get_in_each_others_way_end_in_some_orders_of_their_frames() {
    for contest in CONTESTS {
        let seen = explore(contest, 30, 1);
        assert_eq!(seen.failure, None, "{}", contest.name);
        assert!(
            seen.schedule_count > 15 && seen.random_count > 0 && !seen.is_complete,
            "{}: {seen:?}",
            contest.name
        );
    }
}

/// Programs of the model, and in how many states they can be with one MDT that loses power and one client that is gone: with the witness,
/// without, and with it and one checkpoint.
const MODEL_STATES: &[(&str, [usize; 3])] = &[
    ("mkdir-create", [7998, 5728, 69_780]),
    ("unlink-mkdir", [4296, 2912, 34_812]),
    ("rename-two", [14_265, 10_665, 186_410]),
];

#[test]
fn every_state_of_the_model_is_well_while_all_rules_are_kept() {
    let within = |checkpoints| Bounds {
        crashes: 1,
        deaths: 1,
        checkpoints,
        copies: 0,
        weak: Bounds::ALL_MDTS,
        state_count_max: 300_000,
    };
    for (name, state_counts) in MODEL_STATES {
        let story = dne_model::Story::named(name).expect("is a program");
        let ways = [(Rules::all(), 0), (Rules::without_witness(), 0), (Rules::all(), 1)];
        for ((rules, checkpoints), state_count) in ways.into_iter().zip(state_counts) {
            let seen = dne_model::explore(story, rules, within(checkpoints));
            assert_eq!(seen.failure, None, "{name}, {checkpoints} checkpoints");
            assert!(seen.is_complete && seen.rest_count > 1, "{name}: {seen:?}");
            assert_eq!(seen.state_count, *state_count, "{name}, {checkpoints} checkpoints");
        }
    }
}

/// Programs, power failures and copies of messages about prepares, and the states that they can come to.
const COPIED_STATES: &[(&str, u8, u8, usize)] =
    &[("rename-two", 1, 2, 91_382), ("rename-over", 0, 2, 46_495)];

#[test]
fn a_copy_of_a_prepare_or_of_its_decision_does_nothing_in_the_model() {
    for (name, crashes, copies, state_count) in COPIED_STATES {
        let story = dne_model::Story::named(name).expect("is a program");
        let (crashes, copies) = (*crashes, *copies);
        let weak = Bounds::ALL_MDTS;
        let bounds = Bounds { crashes, deaths: 0, checkpoints: 0, copies, weak, state_count_max: 300_000 };
        let seen = dne_model::explore(story, Rules::all(), bounds);
        assert_eq!(seen.failure, None, "{name}");
        assert!(seen.is_complete, "{name}: {seen:?}");
        assert_eq!(seen.state_count, *state_count, "{name}");
    }
}

/// The canaries of the model.
#[test]
fn every_rule_that_is_left_out_is_missed_in_the_model() {
    let shown: Vec<Rule> = SHOWN_BY.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(shown, Rule::ALL);
    for (rule, name, bounds) in SHOWN_BY {
        let story = dne_model::Story::named(name).expect("is a program");
        let seen = dne_model::explore(story, Rules::without(*rule), *bounds);
        let failure = seen.failure.unwrap_or_else(|| panic!("nothing shows that {rule:?} is left out"));
        assert!(failure.events.len() > 3, "{rule:?}: {failure:?}");
    }
}

/// Renames of the model of locks, and in how many states they can be with one of each evil alone: nothing, a restart of an MDT, a session
/// given up, a client gone, a message twice, a lock more.
const LOCK_STATES: &[(&str, [usize; 6])] = &[
    ("swap-files", [1140, 43_684, 4560, 7390, 1140, 3516]),
    ("swap", [1024, 245_154, 27_406, 9596, 11_824, 5588]),
];

#[test]
fn every_state_of_the_locks_of_two_renames_is_well_while_all_rules_are_kept() {
    for (name, state_counts) in LOCK_STATES {
        let story = rename_locks::Story::named(name).expect("is a story");
        for (bounds, state_count) in rename_locks::Bounds::each_alone(300_000).into_iter().zip(state_counts) {
            let seen = rename_locks::explore(story, rename_locks::Rules::all(), bounds);
            assert_eq!(seen.failure, None, "{name}: {bounds:?}");
            assert!(seen.is_complete && seen.rest_count > 0, "{name}: {seen:?}");
            assert_eq!(seen.state_count, *state_count, "{name}: {bounds:?}");
        }
    }
}

/// The canaries of that model.
#[test]
fn every_rule_of_the_locks_that_is_left_out_is_missed() {
    let shown: Vec<rename_locks::Rule> = rename_locks::SHOWN_BY.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(shown, rename_locks::Rule::ALL);
    for (rule, name, bounds) in rename_locks::SHOWN_BY {
        let story = rename_locks::Story::named(name).expect("is a story");
        let seen = rename_locks::explore(story, rename_locks::Rules::without(*rule), *bounds);
        assert!(seen.failure.is_some(), "nothing shows that {rule:?} is left out: {seen:?}");
    }
}

#[test]
fn an_order_of_frames_is_the_same_each_time() {
    let contest = Contest::named("swap").expect("is a contest");
    let digest = |places: &[usize]| {
        let outcome = repeat(contest, places, 0);
        assert_eq!(outcome.violation, None);
        outcome.digest
    };
    assert_eq!(digest(&[1, 0, 1]), digest(&[1, 0, 1]));
    assert_ne!(digest(&[1, 0, 1]), digest(&[0]));
}

#[test]
fn fair_weather_has_no_evictions_and_no_losses() {
    let weather = Weather {
        has_loss: false,
        has_crashes: false,
        has_partitions: false,
        has_deaths: false,
        has_full_disks: false,
        has_evictions: false,
    };
    let options = Options { weather, ..Options::default() };
    let report = sweep::sweep(0, 10, &|seed| sim::run(seed, &options), 2, 1, &|_, _| {});
    assert_eq!(report.failures, Vec::new());
    for evil in ["eviction", "frame lost", "power failure", "replayed"] {
        assert_eq!(report.counts.get(evil), None, "{evil}");
    }
}

#[test]
fn a_sweep_knows_what_never_happened_in_it() {
    let nothing = sweep::Report::default();
    assert_eq!(nothing.missing(), sweep::EXPECTED);
    let mut counts: std::collections::BTreeMap<_, _> =
        sweep::EXPECTED.iter().map(|name| (*name, 1)).collect();
    assert!(sweep::Report { counts: counts.clone(), ..Default::default() }.missing().is_empty());
    counts.insert("power failure", 0);
    assert_eq!(sweep::Report { counts, ..Default::default() }.missing(), ["power failure"]);
}

/// The canary: a judge who is told a lie must notice.
#[test]
fn a_wrong_outcome_is_explained_by_nothing() {
    use sim::model::{Model, Op, Outcome};
    let mut model = Model::new();
    let create = Op::Create { path: vec!["f".into()], is_exclusive: true, slot: Some(0) };
    assert!(model.explains(0, &create, &Outcome::Node(7)));
    assert!(!model.explains(0, &create, &Outcome::Node(8)), "it exists already");
    let read = Op::Read { slot: 0, offset: 0, byte_count: 3 };
    assert!(!model.explains(0, &read, &Outcome::Bytes(vec![0])), "it is empty");
}
