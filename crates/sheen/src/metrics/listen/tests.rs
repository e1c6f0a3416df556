#![allow(clippy::unwrap_used)]

use super::*;
use std::net::Shutdown;

fn text() -> String {
    "some 1\n# EOF\n".to_owned()
}

/// What is answered to these bytes, after which nothing more comes.
fn answer_to(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // Who sends too much is cut off before its end.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_collector_gets_the_metrics_and_nobody_else_anything() {
    let address = start("127.0.0.1:0", text).unwrap();
    let answer = answer_to(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{answer}");
    assert!(
        answer.ends_with("\r\n\r\nsome 1\n# EOF\n") && answer.contains("Content-Length: 13\r\n"),
        "{answer}"
    );
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"GET /metrics", "400 Bad Request"),
        (b"\xff\xfe\x00\r\n\r\n", "400 Bad Request"),
        (b"", "400 Bad Request"),
    ] {
        let answer = answer_to(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
    }
}

/// As many of them as there are threads would keep everybody out.
#[test]
fn who_says_nothing_and_who_says_too_much_is_cut_off() {
    let address = start("127.0.0.1:0", text).unwrap();
    let silent: Vec<TcpStream> = (0..THREAD_COUNT).map(|_| TcpStream::connect(address).unwrap()).collect();
    let endless = answer_to(address, &[b'a'; 2 * REQUEST_BYTES_MAX]);
    assert!(endless.is_empty() || endless.starts_with("HTTP/1.1 400"), "{endless}");
    let answer = answer_to(address, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(silent);
}

#[test]
fn a_place_that_cannot_be_is_refused_with_what_to_do() {
    let address = start("127.0.0.1:0", text).unwrap().to_string();
    let error = start(&address, text).unwrap_err().to_string();
    assert!(error.contains("is in use; one listener serves all processes"), "{error}");
    let error = start("nowhere", text).unwrap_err().to_string();
    assert_eq!(error, "metrics cannot be served on 'nowhere'; it takes HOST:PORT");
}
