#![allow(clippy::unwrap_used)]

use super::*;
use base::ClusterConfig;

fn node(target_count: usize) -> Arc<Node> {
    let targets = Targets::awaited(target_count, Vec::new());
    Node::new(Router::new(), Timer::start(), targets, true, Vec::new(), None, vec!["127.0.0.1:1".to_owned()])
}

fn config(version: u64) -> ClusterConfig {
    ClusterConfig { version, fsname: "fs".to_owned(), ..ClusterConfig::default() }
}

/// A mount that is being made is in no list yet.
#[test]
fn who_has_just_come_is_told_of_the_configurations_that_have_come_meanwhile() {
    let node = node(0);
    node.on_config(config(5));
    let (known, told) = node.told().unwrap();
    assert_eq!(known.version, 5);
    let tell = |since| {
        let seen = Mutex::new(Vec::new());
        node.tell_since(since, |config| {
            lock(&seen).push(config.version);
            // The management server is an older copy of itself by now.
            if lock(&seen).len() == 1 {
                node.on_config(self::config(4));
            }
        });
        seen.into_inner().unwrap()
    };
    assert!(tell(told).is_empty(), "nothing has come");
    node.on_config(config(6));
    assert_eq!(tell(told), [6, 4], "and what comes while it is told");
}

/// One thread applies them, so those of an older configuration never come after those of a newer one.
#[test]
fn parameters_are_in_force_when_they_were_waited_for() {
    let node = node(0);
    node.start_applying().unwrap();
    for version in [7, 3] {
        node.on_config(config(version));
        node.wait_for_params().unwrap();
        assert_eq!(node.config_version(), version);
    }
}
