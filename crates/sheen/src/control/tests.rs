#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_line_asks_and_a_line_answers() {
    let (near, far) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || serve(&far, &|ask, _| Tell::error(format!("{ask:?}"))));
    (&near).write_all(b"{\"op\":\"status\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(&near).read_line(&mut line).unwrap();
    assert_eq!(line, "{\"error\":\"Status\"}\n");
    server.join().unwrap().unwrap();
}

/// A long wait is explained line by line before the answer; who asks gets the answer only.
#[test]
fn notes_come_before_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        serve(&stream, &|_, say| {
            say("waiting for the disk");
            say("waiting for the disk");
            Tell { params: vec![("a".to_owned(), "b".to_owned())], ..Tell::default() }
        })
    });
    let told = ask(&path, &Ask::Stop { leave: Leave::Stop }).unwrap();
    assert_eq!(told.note, None);
    assert_eq!(told.params.len(), 1);
    server.join().unwrap().unwrap();
}

#[test]
fn what_is_no_request_gets_an_error() {
    for garbage in [&b"\n"[..], b"{\"op\":\"explode\"}\n", b"\xff\xff\n", b"[[[[[[[[\n"] {
        let (near, far) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || serve(&far, &|_, _| Tell::default()));
        (&near).write_all(garbage).unwrap();
        let mut line = String::new();
        let _ = BufReader::new(&near).read_line(&mut line);
        assert!(line.is_empty() || line.contains("error"), "{line}");
        let _ = server.join().unwrap();
    }
}
