//! Who waits for a question about the root.

use crate::recovery::tests::state;

/// Somebody looks at a mount whose MDT is away, every few seconds for days.
#[test]
fn who_has_given_up_waiting_is_forgotten() {
    let mut state = state();
    state.root.question_count = 1;
    let staying = state.join_root_question();
    for _ in 0..100 {
        drop(state.join_root_question());
    }
    assert_eq!(state.root.waiters.len(), 2, "who stays, and who has given up last");
    assert!(staying.is_some());
    state.end_root_question();
    assert!(state.root.is_at_rest());
    assert!(state.join_root_question().is_none(), "there is no question any more");
}
