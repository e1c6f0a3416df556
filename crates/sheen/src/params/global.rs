//! What a process has once.

use super::{Class, Param, Write, read_only};
use crate::node::Node;

/// Gathered when it is asked for.
pub struct Process {
    sick_targets: Vec<String>,
}

pub static CLASS: Class<Process> = Class {
    path: "",
    instances: |node| vec![(String::new(), Process { sick_targets: sick_targets(node) })],
    params: &[
        read_only("version", "Version of this program.", |_| {
            Some(format!("sheen: {}", env!("CARGO_PKG_VERSION")))
        }),
        read_only(
            "health_check",
            "`healthy`, or which targets of a process are not.",
            |process: &Process| {
                if process.sick_targets.is_empty() {
                    return Some("healthy".to_owned());
                }
                let lines =
                    process.sick_targets.iter().map(|name| format!("device {name} reported unhealthy\n"));
                Some(lines.collect::<String>() + "NOT HEALTHY")
            },
        ),
        Param {
            name: "debug",
            doc: "What is logged: a level (error, warn, info, debug, trace), or levels of parts.",
            read: |_| Some(crate::logging::filter()),
            write: Some(Write::Word {
                values: "a level, or levels of parts: info,mds=debug",
                check: crate::logging::check_filter,
                apply: |_, value| crate::logging::set_filter(value),
                is_lasting: true,
            }),
        },
    ],
};

fn sick_targets(node: &Node) -> Vec<String> {
    let sick = node.targets.iter().filter(|target| target.state() == "failed");
    sick.map(super::targets::name).collect()
}
