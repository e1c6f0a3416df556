#![allow(clippy::unwrap_used)]

use super::*;

fn said(found: Result<Answer, i32>) -> String {
    format!("{:#}", directory(found, "two", "one/two").unwrap_err())
}

fn absent() -> client::EntryAnswer {
    let zero = base::Duration::from_secs(0);
    client::EntryAnswer { node: 0, attr: None, entry_valid: zero, attr_valid: zero }
}

#[test]
fn only_what_is_not_there_is_to_be_made() {
    let make_it = "the file system has no directory 'one/two'; make it first";
    assert_eq!(said(Ok(Answer::Entry(absent()))), make_it);
    assert_eq!(said(Err(libc::ENOENT)), make_it);
    assert!(said(Err(libc::EACCES)).starts_with("cannot look up 'two' of 'one/two': Permission denied"));
    assert!(said(Err(libc::EIO)).contains("Input/output error"));
}
