#![allow(clippy::unwrap_used)]

use super::*;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};

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

const LONG_BYTES: usize = 24 << 20;

fn long_text() -> String {
    "a".repeat(LONG_BYTES)
}

/// Each read by itself comes in time, and all of them together would take minutes.
#[test]
fn who_takes_an_answer_little_by_little_is_cut_off() {
    const ASK: &[u8] = b"GET /metrics HTTP/1.1\r\n\r\n";
    let address = start("127.0.0.1:0", long_text).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let slow: Vec<_> = (0..THREAD_COUNT)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(ASK).unwrap();
            // It has its thread.
            stream.read_exact(&mut [0; 1]).unwrap();
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let (mut part, mut taken) = (vec![0; 128 << 10], 0);
                while let Ok(count @ 1..) = stream.read(&mut part) {
                    taken += count;
                    if !is_over.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(500));
                    }
                }
                taken
            })
        })
        .collect();
    // A machine with much else to do may be slow as well.
    let is_answered = (0..10).any(|_| answer_to(address, ASK).len() > LONG_BYTES);
    assert!(is_answered);
    is_over.store(true, Ordering::SeqCst);
    for reader in slow {
        assert!(reader.join().unwrap() < LONG_BYTES, "nobody waited for it");
    }
}
