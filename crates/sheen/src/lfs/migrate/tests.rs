use super::*;

fn of(mdt_index: &[i32], mdt_count: Option<i32>) -> Migrate {
    Migrate {
        mdt_index: mdt_index.to_vec(),
        mdt_count,
        directory: false,
        verbose: false,
        paths: vec![PathBuf::from("d")],
    }
}

#[test]
fn directories_move_to_one_mdt() {
    assert_eq!(of(&[1], None).target().ok(), Some(1));
    assert_eq!(of(&[0], Some(1)).target().ok(), Some(0));
    for (mdts, count) in [(&[0, 1][..], None), (&[0], Some(2)), (&[0], Some(-1))] {
        let error = of(mdts, count).target().map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("one MDT")), "{mdts:?} {count:?}");
    }
    let error = of(&[-1], None).target().map_err(|error| error.to_string());
    assert!(error.is_err_and(|error| error.contains("from 0 on")));
}

#[test]
fn what_was_done_is_one_line() {
    let counts =
        Counts { directories: 1, files: 5, symlinks: 2, devices: 0, there: 3, staying: 0, failed: 4 };
    let text = "1 directory, 5 files, 2 symlinks and 0 devices moved to MDT0001, 3 already there";
    assert_eq!(counts.text(1), text);
    let counts = Counts { staying: 1, ..counts };
    assert_eq!(counts.text(1), format!("{text}; 1 FIFO or socket stays where it was made"));
}

#[test]
fn what_is_refused_says_why() {
    for (errno, expected) in [
        (libc::ENXIO, "no MDT 7"),
        (libc::EOPNOTSUPP, "a/b is a striped directory"),
        (libc::EMLINK, "other names"),
        (libc::EFBIG, "too much to move at once"),
        (libc::ETXTBSY, "is open"),
        (libc::ENOSYS, "a version that cannot take over"),
        (libc::EBUSY, "try again"),
        (libc::EPERM, "only root"),
        (libc::EIO, "Input/output error"),
    ] {
        let error = anyhow::Error::from(std::io::Error::from_raw_os_error(errno));
        let text = explained(error, Path::new("a/b"), 7).to_string();
        assert!(text.contains(expected), "{text}");
    }
}
