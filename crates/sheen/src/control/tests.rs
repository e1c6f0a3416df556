#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_line_asks_and_a_line_answers() {
    let (near, far) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || serve(&far, &|ask| Tell::error(format!("{ask:?}"))));
    (&near).write_all(b"{\"op\":\"status\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(&near).read_line(&mut line).unwrap();
    assert_eq!(line, "{\"error\":\"Status\"}\n");
    server.join().unwrap().unwrap();
}

#[test]
fn what_is_no_request_gets_an_error() {
    for garbage in [&b"\n"[..], b"{\"op\":\"explode\"}\n", b"\xff\xff\n", b"[[[[[[[[\n"] {
        let (near, far) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || serve(&far, &|_| Tell::default()));
        (&near).write_all(garbage).unwrap();
        let mut line = String::new();
        let _ = BufReader::new(&near).read_line(&mut line);
        assert!(line.is_empty() || line.contains("error"), "{line}");
        let _ = server.join().unwrap();
    }
}
