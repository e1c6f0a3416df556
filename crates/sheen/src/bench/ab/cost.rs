//! What one side of a comparison costs: processor time and requests. A configuration that is as fast may still be dearer.

use crate::bench::figures::Summary;
use crate::bench::rounds::Sample;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideCost {
    /// Of all mounts of the side, and of the servers where these are on this machine, in one round.
    pub cpu_seconds: Summary,
    pub cpu_us_per_operation: Summary,
    /// Of all mounts of the side.
    pub rpcs_per_operation: Option<Summary>,
    pub has_servers: bool,
}

impl SideCost {
    /// `None` when there was a round without.
    pub fn of(samples: &[Sample]) -> Option<SideCost> {
        let costs: Vec<_> = samples.iter().map(|sample| sample.cost.as_ref()).collect::<Option<_>>()?;
        let has_servers = costs.iter().all(|cost| cost.whole_cpu().is_some());
        let cpu = costs.iter().map(|cost| cost.client_cpu + cost.server_cpu.unwrap_or_default());
        let cpu: Vec<_> = cpu.collect();
        let seconds: Vec<f64> = cpu.iter().map(|cpu| cpu.as_secs_f64()).collect();
        let us: Vec<f64> = costs.iter().zip(&cpu).map(|(cost, cpu)| cost.us_per_operation(*cpu)).collect();
        let rpcs: Option<Vec<f64>> = costs.iter().map(|cost| cost.rpcs_per_unit()).collect();
        Some(SideCost {
            cpu_seconds: Summary::of(&seconds)?,
            cpu_us_per_operation: Summary::of(&us)?,
            rpcs_per_operation: rpcs.and_then(|rpcs| Summary::of(&rpcs)),
            has_servers,
        })
    }
}

/// Heads of the columns of `columns`, for each side.
pub const HEADS: &str = "    CPU s   us/op  RPCs/op";

/// Medians.
pub fn columns(cost: Option<&SideCost>) -> String {
    let Some(cost) = cost else { return format!("{:>9} {:>7} {:>8}", "-", "-", "-") };
    let rpcs = cost.rpcs_per_operation.as_ref();
    let rpcs = rpcs.map_or_else(|| "-".to_owned(), |rpcs| format!("{:.3}", rpcs.median));
    format!("{:>9.3} {:>7.1} {rpcs:>8}", cost.cpu_seconds.median, cost.cpu_us_per_operation.median)
}
