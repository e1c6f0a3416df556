//! What `fsck` says.

use crate::progress::{Goal, Progress};
use crate::target_dir::TargetDir;
use anyhow::{Context, Result};
use fsck::{Doing, Finding, Repair, Report};
use serde::Serialize;
use std::io::{self, Write};

/// What a run has found and done.
pub struct Outcome {
    pub found: Report,
    pub repaired_count: u64,
    /// Of a second check, after a repair.
    pub after: Option<Report>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    kind: &'static str,
    target: String,
    subject: &'a str,
    what: &'a str,
    /// What `--repair` does, or why it does nothing.
    repair: Option<&'a str>,
    no_repair: Option<&'a str>,
}

#[derive(Serialize)]
struct Json<'a> {
    targets: Vec<String>,
    inode_count: u64,
    name_count: u64,
    object_count: u64,
    read_bytes: u64,
    pending_operation_count: u64,
    awaiting_mounts: Vec<String>,
    findings: Vec<JsonFinding<'a>>,
    left_out_count: u64,
    repaired_count: u64,
    /// After a repair; otherwise what was found.
    uncorrected: Vec<JsonFinding<'a>>,
    /// Why a repair was refused, or has ended before all was done.
    error: Option<&'a str>,
}

impl<'a> JsonFinding<'a> {
    fn new(finding: &'a Finding) -> JsonFinding<'a> {
        let (repair, no_repair) = match &finding.repair {
            Repair::Safe(fix) => (Some(&fix.what[..]), None),
            Repair::Not(why) => (None, Some(*why)),
        };
        JsonFinding {
            kind: finding.kind.name(),
            target: finding.target.to_string(),
            subject: &finding.subject,
            what: &finding.what,
            repair,
            no_repair,
        }
    }
}

impl Outcome {
    /// What is wrong at the end.
    pub fn left(&self) -> &Report {
        self.after.as_ref().unwrap_or(&self.found)
    }

    /// One line for each finding; with `--repair` that is what will be done.
    pub fn found_text(&self, targets: &[TargetDir]) -> String {
        let Report { inode_count, name_count, object_count, read_bytes, pending_count, awaiting, .. } =
            &self.found;
        let mut lines = findings_text(&self.found);
        lines.push_str(&format!(
            "{} targets, {inode_count} inodes, {name_count} names, {object_count} objects",
            targets.len()
        ));
        if *read_bytes > 0 {
            lines.push_str(&format!(", {read_bytes} bytes read"));
        }
        lines.push('\n');
        if *pending_count > 0 {
            lines.push_str(&format!("{pending_count} operations over several MDTs are under way\n"));
        }
        for target in awaiting {
            lines.push_str(&format!(
                "mounts may come back to {target}: what they may still say is not looked at\n"
            ));
        }
        lines
    }

    /// What was done, and what is left.
    pub fn end_text(&self, is_repair: bool) -> String {
        let left = self.left();
        let count = left.findings.len() as u64 + left.left_out;
        let mut text = String::new();
        if let Some(after) = &self.after {
            text.push_str(&format!("{} repaired\n", self.repaired_count));
            text.push_str(&findings_text(after));
        }
        match count {
            0 => text.push_str("clean\n"),
            _ if is_repair => text.push_str(&format!("{count} left\n")),
            _ => text.push_str(&format!("{count} found; nothing was changed\n")),
        }
        text
    }

    /// All of it for programs. `error`: why not all was done.
    ///
    /// # Errors
    /// Those of the encoder.
    pub fn json(&self, targets: &[TargetDir], error: Option<&str>) -> Result<String> {
        let json = Json {
            targets: targets.iter().map(|dir| dir.id.to_string()).collect(),
            inode_count: self.found.inode_count,
            name_count: self.found.name_count,
            object_count: self.found.object_count,
            read_bytes: self.found.read_bytes,
            pending_operation_count: self.found.pending_count,
            awaiting_mounts: self.found.awaiting.iter().map(ToString::to_string).collect(),
            findings: self.found.findings.iter().map(JsonFinding::new).collect(),
            left_out_count: self.left().left_out,
            repaired_count: self.repaired_count,
            uncorrected: self.left().findings.iter().map(JsonFinding::new).collect(),
            error,
        };
        Ok(serde_json::to_string(&json)? + "\n")
    }
}

fn findings_text(report: &Report) -> String {
    let mut text: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
    if report.left_out > 0 {
        text.push_str(&format!("and {} more\n", report.left_out));
    }
    text
}

/// A reader that is gone does not end the work.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output cannot be written")
        }
        _ => Ok(()),
    }
}

/// A line on a terminal that says how far the check is.
pub struct Watcher {
    is_shown: bool,
    step: Option<(&'static str, Progress)>,
}

impl Watcher {
    pub fn new(is_json: bool) -> Watcher {
        Watcher { is_shown: !is_json, step: None }
    }

    pub fn note(&mut self, doing: Doing) {
        if !self.is_shown {
            return;
        }
        let begin = || {
            let goal = Goal { items: doing.item_count, bytes: doing.byte_count };
            (doing.step, Progress::begin(doing.step, doing.unit, goal))
        };
        // A check that follows a repair begins anew.
        if doing.items == 0 || self.step.as_ref().is_none_or(|(step, _)| *step != doing.step) {
            self.end();
        }
        let (_, step) = self.step.get_or_insert_with(begin);
        step.set(doing.items, doing.bytes);
    }

    pub fn end(&mut self) {
        self.step = None;
    }
}
