//! What figures were measured on.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the figures of a bench are worth depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    kernel: String,
    cpu_count: usize,
}

impl Machine {
    pub fn this() -> Machine {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            kernel: kernel.trim().to_owned(),
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Linux {}, {} CPUs", self.kernel, self.cpu_count)
    }
}
