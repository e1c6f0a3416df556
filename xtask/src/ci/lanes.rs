//! Which steps run side by side: those that wait more than they compute, a few at a time. All others have the machine to themselves.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow};

use super::plan::Step;
use crate::step::Report;

/// The steps in their order, in groups of neighbours that may run beside each other.
pub fn groups<'a, 'p>(steps: &'a [&'p Step]) -> impl Iterator<Item = &'a [&'p Step]> {
    steps.chunk_by(|one, next| one.is_shared && next.is_shared)
}

/// Runs the steps of a group, at most `lane_count` at a time and beginning in their order. Returns the reports in that order.
///
/// # Errors
/// The first that `run` had; steps that had begun by then are waited for, and no other begins.
pub fn run(
    group: &[&Step],
    lane_count: usize,
    run: &(impl Fn(&Step) -> Result<Report> + Sync),
) -> Result<Vec<Report>> {
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(Vec::new());
    let lane = || -> Result<()> {
        while let Some((index, step)) = take(group, &next) {
            let report = run(step).inspect_err(|_| next.store(group.len(), Ordering::Relaxed))?;
            reports.lock().unwrap_or_else(|poison| poison.into_inner()).push((index, report));
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..lane_count.clamp(1, group.len())).map(|_| scope.spawn(lane)).collect();
        let ends = lanes.into_iter().map(|lane| lane.join().map_err(|_| anyhow!("a step panicked"))?);
        ends.collect::<Vec<Result<()>>>().into_iter().collect::<Result<()>>()
    })?;
    let mut reports = reports.into_inner().unwrap_or_else(|poison| poison.into_inner());
    reports.sort_by_key(|(index, _)| *index);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

fn take<'g, 'p>(group: &'g [&'p Step], next: &AtomicUsize) -> Option<(usize, &'g &'p Step)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    group.get(index).map(|step| (index, step))
}

#[cfg(test)]
mod tests;
