#![allow(clippy::unwrap_used)]

use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn a_command_that_ends_reports_its_status_and_output() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let end =
        run(&mut shell("echo said; exit 3"), "SHEEN_T=a", Duration::from_secs(20), log.path(), &mut |_| {})
            .unwrap();
    assert!(matches!(end, End::Exited(status) if status.code() == Some(3)));
    assert_eq!(tail(log.path(), 1), "said");
}

#[test]
fn a_command_over_its_limit_is_killed_with_its_escaped_children() {
    let tag = format!("SHEEN_T=escape-{}", std::process::id());
    let script = "setsid sleep 1000 & echo $!; trap '' TERM INT; sleep 1000";
    let said = [1, 10, 60].into_iter().find_map(|seconds| {
        let log = tempfile::NamedTempFile::new().unwrap();
        let end =
            run(&mut shell(script), &tag, Duration::from_secs(seconds), log.path(), &mut |_| {}).unwrap();
        assert!(matches!(end, End::TimedOut { is_stuck: false }));
        // On a busy machine it may have been killed before it said anything.
        tail(log.path(), 1).parse::<i32>().ok()
    });
    let escaped = said.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !sweep::has_ended(escaped) {
        assert!(Instant::now() < deadline, "the child in its own session survived");
        std::thread::sleep(POLL);
    }
}

#[test]
fn say_separates_output_from_errors() {
    let said = say(&mut shell("echo out; echo err >&2"), "SHEEN_T=say", Duration::from_secs(20)).unwrap();
    assert!(said.is_success());
    assert_eq!((said.output.as_str(), said.errors.as_str()), ("out\n", "err\n"));
}
