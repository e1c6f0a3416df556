#![allow(clippy::unwrap_used)]

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    mkdir: Mkdir,
}

fn striping(arguments: &[&str]) -> Result<DirStriping> {
    let line = [&["mkdir"], arguments, &["/m/d"]].concat();
    Line::try_parse_from(line)?.mkdir.striping()
}

#[test]
fn mdts_and_counts_are_read_as_in_lustre() {
    for (arguments, stripe_count, mdts) in [
        (&["-i", "1"][..], 0, &[1][..]),
        (&["-c", "2"], 2, &[]),
        (&["-c", "-1"], DirStriping::ALL, &[]),
        (&["-c", "3", "-i", "1"], 3, &[1]),
        (&["-i", "2,0"], 0, &[2, 0]),
        (&["-c2", "-i2,0"], 2, &[2, 0]),
    ] {
        let expected = DirStriping { stripe_count, mdts: mdts.to_vec() };
        assert_eq!(striping(arguments).unwrap(), expected, "{arguments:?}");
    }
    for arguments in [
        &[][..],
        &["-i", "-2"],
        &["-i", "1,1"],
        &["-i", "1,-1"],
        &["-i", "0,1", "-c", "3"],
        &["-c", "0"],
        &["-c", "-2"],
        &["-c", "100000"],
    ] {
        assert!(striping(arguments).is_err(), "{arguments:?}");
    }
}

#[test]
fn directories_are_placed_by_space_for_so_many_levels() {
    for (arguments, stripe_count, levels) in [
        (&["-i", "-1"][..], 0, None),
        (&["-c", "2", "-i", "-1"], 2, None),
        (&["-D", "-i", "-1", "-X", "2"], 0, Some(2)),
        (&["-D", "-i-1", "--max-inherit=-1"], 0, None),
        (&["-D", "-i-1", "-X254"], 0, Some(254)),
    ] {
        let striping = striping(arguments).unwrap();
        assert_eq!(striping, DirStriping::by_space(stripe_count, levels), "{arguments:?}");
        let shown = Shown::of_default(Some(&striping)).text();
        assert!(shown.contains("lmv_stripe_offset: -1 "), "{shown}");
        let shown_levels = format!("lmv_max_inherit: {}\n", levels.map_or(-1, i32::from));
        assert!(shown.ends_with(&shown_levels), "{shown}");
    }
    for arguments in [
        &["-D", "-i", "-1", "-X", "0"][..],
        &["-D", "-i", "-1", "-X", "255"],
        &["-D", "-i", "-1", "-X", "-2"],
        &["-D", "-i", "1", "-X", "2"],
        &["-i", "-1", "-X", "2"],
        &["-i", "65281"],
    ] {
        assert!(striping(arguments).is_err(), "{arguments:?}");
    }
}

#[test]
fn stripes_are_printed_in_lustres_form() {
    let fid = |mdt: u16| Fid { seq: Fid::sequence(mdt, 1), oid: 2, ver: 0 };
    let plain = Shown::of(&[fid(1)]).text();
    assert_eq!(plain, "lmv_stripe_count: 0 lmv_stripe_offset: 1 lmv_hash_type: none\n");
    let text = Shown::of(&[fid(1), fid(0)]).text();
    let expected = "lmv_stripe_count: 2 lmv_stripe_offset: 1 lmv_hash_type: xxh3
mdtidx\t\t FID[seq:oid:ver]
     1\t\t [0x240000401:0x2:0x0]\t\t
     0\t\t [0x200000401:0x2:0x0]\t\t
";
    assert_eq!(text, expected);
    let default = DirStriping { stripe_count: DirStriping::ALL, mdts: Vec::new() };
    let text = Shown::of_default(Some(&default)).text();
    assert_eq!(text, "lmv_stripe_count: -1 lmv_stripe_offset: -1 lmv_hash_type: xxh3\n");
}
