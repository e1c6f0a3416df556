use crate::cli::Cli;
use clap::Parser;

#[test]
fn an_image_is_made_from_one_thing() {
    let said = |words: &[&str]| Cli::try_parse_from([&["sheen", "image", "create", "/m/i"], words].concat());
    assert!(said(&["--from", "/r"]).is_ok());
    assert!(said(&["--debootstrap", "bookworm", "--include", "procps"]).is_ok());
    assert!(said(&[]).is_err());
    assert!(said(&["--from", "/r", "--debootstrap", "bookworm"]).is_err());
    assert!(said(&["--from", "/r", "--mirror", "http://x"]).is_err());
}
