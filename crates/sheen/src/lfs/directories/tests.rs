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
        (&["-c", "2", "-i", "-1"], 2, &[]),
        (&["-c", "3", "-i", "1"], 3, &[1]),
        (&["-i", "2,0"], 0, &[2, 0]),
        (&["-c2", "-i2,0"], 2, &[2, 0]),
    ] {
        let expected = DirStriping { stripe_count, mdts: mdts.to_vec() };
        assert_eq!(striping(arguments).unwrap(), expected, "{arguments:?}");
    }
    for arguments in [
        &[][..],
        &["-i", "-1"],
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
