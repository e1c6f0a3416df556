use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::bounded;
use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, names, read, write};
use crate::sys::{self, RawEntry};

const TIB: u64 = 1 << 40;

/// Names of 255 bytes work, of 256 do not.
pub fn long_names(context: &Context) -> Result<()> {
    let longest = "n".repeat(255);
    let (a, b) = context.both(&longest);
    write(&a, b"long")?;
    expect_bytes(&read(&b)?, b"long", "a file with a name of 255 bytes")?;
    expect_eq(names(&context.b)?, vec![longest.clone()], "readdir")?;
    expect_errno(
        File::create(context.a.join(format!("{longest}x"))),
        libc::ENAMETOOLONG,
        "256 bytes, create",
    )?;
    expect_errno(
        File::open(context.b.join(format!("{longest}x"))),
        libc::ENAMETOOLONG,
        "256 bytes, look-up",
    )?;
    fs::rename(&b, context.b.join("m".repeat(255)))?;
    expect_eq(names(&context.a)?, vec!["m".repeat(255)], "after a rename")
}

/// Every byte but NUL and the slash may be in a name.
pub fn odd_names(context: &Context) -> Result<()> {
    let mut made = BTreeSet::new();
    for byte in (1u8..=255).filter(|byte| *byte != b'/') {
        let name = if byte == b'.' { vec![b'.', b'x'] } else { vec![byte] };
        write(&context.a.join(OsStr::from_bytes(&name)), &[byte])?;
        made.insert(name);
    }
    let found: BTreeSet<Vec<u8>> = fs::read_dir(&context.b)?
        .map(|entry| entry.map(|entry| entry.file_name().as_bytes().to_vec()))
        .collect::<Result<_, _>>()?;
    expect_eq(found.len(), made.len(), "how many names")?;
    expect(found == made, "the names are the same bytes")?;
    for name in &made {
        expect_eq(read(&context.b.join(OsStr::from_bytes(name)))?.len(), 1, "a file with an odd name")?;
    }
    Ok(())
}

/// A path of 4,095 bytes works, of 4,096 does not.
pub fn long_paths(context: &Context) -> Result<()> {
    let mut path = context.a.clone();
    let mut relative = String::new();
    while path.as_os_str().len() + 101 < 4095 {
        path.push("d".repeat(100));
        relative.push_str(&format!("{}/", "d".repeat(100)));
        fs::create_dir(&path)?;
    }
    let last = "f".repeat(4095 - path.as_os_str().len() - 1);
    path.push(&last);
    expect_eq(path.as_os_str().len(), 4095, "length of the path")?;
    write(&path, b"deep")?;
    expect_errno(
        File::create(Path::new(&format!("{}x", path.display()))),
        libc::ENAMETOOLONG,
        "4,096 bytes",
    )?;
    std::env::set_current_dir(&context.b)?;
    let seen = fs::read(format!("{relative}{last}"));
    std::env::set_current_dir("/")?;
    expect_bytes(&seen?, b"deep", "the deep file through the other mount")
}

/// A thousand hard links of one file, counted.
pub fn many_links(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    let link_count = context.rounds(1000);
    for index in 0..link_count {
        fs::hard_link(&a, context.a.join(format!("link{index}")))?;
    }
    expect_eq(fs::metadata(&b)?.nlink(), link_count + 1, "links")?;
    for index in 0..link_count {
        fs::remove_file(context.b.join(format!("link{index}")))?;
    }
    expect_eq(fs::metadata(&a)?.nlink(), 1, "links afterwards")
}

fn all_entries(directory: &Path, buffer_bytes: usize) -> Result<Vec<RawEntry>> {
    let directory = File::open(directory)?;
    let mut entries = Vec::new();
    loop {
        let chunk = sys::directory_chunk(&directory, buffer_bytes)?;
        if chunk.is_empty() {
            return Ok(entries);
        }
        entries.extend(chunk);
    }
}

/// Every name exactly once, for every size of buffer, and positions that can be gone back to.
pub fn readdir_complete(context: &Context) -> Result<()> {
    let entry_count = context.rounds(2500);
    let mut expected: BTreeSet<Vec<u8>> = BTreeSet::from([b".".to_vec(), b"..".to_vec()]);
    for index in 0..entry_count {
        let name = format!("entry-{index}-{}", "x".repeat((index % 97) as usize));
        write(&context.a.join(&name), b"")?;
        expected.insert(name.into_bytes());
    }
    for buffer_bytes in [512, 4096, 32768, 1 << 20] {
        let entries = all_entries(&context.b, buffer_bytes)?;
        expect_eq(entries.len(), expected.len(), &format!("entries with a buffer of {buffer_bytes}"))?;
        let found: BTreeSet<Vec<u8>> = entries.iter().map(|entry| entry.name.clone()).collect();
        expect(found == expected, "every name is listed")?;
    }
    let entries = all_entries(&context.b, 32768)?;
    let directory = File::open(&context.b)?;
    for index in [0, 1, 2, entries.len() / 2, entries.len() - 2] {
        let Some(entry) = entries.get(index) else { continue };
        sys::seek(&directory, entry.position_after, libc::SEEK_SET)?;
        let next = sys::directory_chunk(&directory, 4096)?;
        expect_eq(
            next.first().map(|entry| &entry.name),
            entries.get(index + 1).map(|entry| &entry.name),
            "the entry after a position",
        )?;
    }
    Ok(())
}

/// While others create and remove, what stays is listed exactly once.
pub fn readdir_stable(context: &Context) -> Result<()> {
    for index in 0..1000 {
        write(&context.a.join(format!("stays{index}")), b"")?;
        write(&context.a.join(format!("goes{index}")), b"")?;
    }
    let directory = File::open(&context.b)?;
    let mut seen = Vec::new();
    let mut round = 0;
    loop {
        let chunk = sys::directory_chunk(&directory, 2048)?;
        if chunk.is_empty() {
            break;
        }
        seen.extend(chunk);
        for index in round * 20..(round + 1) * 20 {
            if index < 1000 {
                fs::remove_file(context.a.join(format!("goes{index}")))?;
            }
            write(&context.a.join(format!("comes{index}")), b"")?;
        }
        round += 1;
        if round > 5000 {
            bail!("the listing does not end while names are made");
        }
    }
    for index in 0..1000 {
        let name = format!("stays{index}").into_bytes();
        let times = seen.iter().filter(|entry| entry.name == name).count();
        expect_eq(times, 1, &format!("how often stays{index} was listed"))?;
    }
    let names: BTreeSet<&Vec<u8>> = seen.iter().map(|entry| &entry.name).collect();
    expect_eq(names.len(), seen.len(), "no name is listed twice")
}

fn write_at_end(context: &Context, stripe_count: u32, byte_count: u64) -> Result<()> {
    context.skip_if_local()?;
    let (a, b) = context.both("file");
    context.set_stripes(&a, stripe_count, "1M")?;
    let file = OpenOptions::new().read(true).write(true).open(&a)?;
    file.write_all_at(b"the end", byte_count - 7)?;
    file.write_all_at(b"middle", byte_count / 2)?;
    expect_eq(fs::metadata(&b)?.len(), byte_count, "size")?;
    let other = File::open(&b)?;
    let mut bytes = [0u8; 7];
    other.read_exact_at(&mut bytes, byte_count - 7)?;
    expect_bytes(&bytes, b"the end", "the last bytes")?;
    other.read_exact_at(&mut bytes[..6], byte_count / 2)?;
    expect_bytes(&bytes[..6], b"middle", "bytes in the middle")?;
    other.read_exact_at(&mut bytes, byte_count / 3)?;
    expect_bytes(&bytes, &[0; 7], "zeros in a hole")?;
    let blocks = fs::metadata(&b)?.blocks();
    expect(blocks < 100_000, &format!("a sparse file takes little: {blocks} blocks"))
}

/// 8 TiB in one stripe.
pub fn sparse_one_stripe(context: &Context) -> Result<()> {
    write_at_end(context, 1, 8 * TIB)
}

/// 60 TiB in four stripes.
pub fn sparse_four_stripes(context: &Context) -> Result<()> {
    write_at_end(context, 4, 60 * TIB)
}

/// A file in components: written and cut over their borders, inherited from its directory, and ended where the last one ends.
pub fn composite(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (dir, other_dir) = context.both("dir");
    fs::create_dir(&dir)?;
    let lfs = |words: &[&str], path: &Path| -> Result<String> {
        let said = bounded::say(
            Command::new(&context.options.sheen).arg("lfs").args(words).arg(path),
            "SHEEN_LFS=1",
            Duration::from_secs(60),
        )?;
        expect(said.is_success(), &format!("lfs {words:?}: {}", said.all()))?;
        Ok(said.all())
    };
    lfs(
        &["setstripe", "-E", "128K", "-c", "1", "-S", "64K", "-E", "384K", "-c", "2", "-E", "-1", "-c", "-1"],
        &dir,
    )?;
    let default = lfs(&["getstripe", "-d"], &dir)?;
    expect(default.contains("lcm_entry_count:   3"), &format!("what the directory keeps:\n{default}"))?;
    let (a, b) = (dir.join("file"), other_dir.join("file"));
    let mut bytes: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
    write(&a, &bytes)?;
    let layout = lfs(&["getstripe"], &a)?;
    for line in
        ["lcme_id:             3", "lcme_extent.e_end:   393216", "lcme_extent.e_end:   EOF", "l_ost_idx:"]
    {
        expect(layout.contains(line), &format!("getstripe shows {line}:\n{layout}"))?;
    }
    expect_bytes(&read(&b)?, &bytes, "three components")?;
    let file = OpenOptions::new().read(true).write(true).open(&a)?;
    file.write_all_at(&[9; 8], 131_068)?;
    bytes[131_068..131_076].fill(9);
    file.set_len(131_072 + 5)?;
    bytes.truncate(131_072 + 5);
    expect_eq(fs::metadata(&b)?.len(), bytes.len() as u64, "size after it was cut in the second component")?;
    file.set_len(700_000)?;
    bytes.resize(700_000, 0);
    expect_bytes(&read(&b)?, &bytes, "zeros where it was cut")?;
    let (ended, other) = (dir.join("ended"), other_dir.join("ended"));
    lfs(&["setstripe", "-E", "64K", "-c", "1", "-S", "64K", "-E", "128K", "-c", "2"], &ended)?;
    let file = OpenOptions::new().write(true).open(&ended)?;
    file.write_all_at(b"the end", 131_072 - 7)?;
    expect_errno(file.write_at(b"x", 131_072), libc::ENODATA, "a write behind the last component")?;
    expect_errno(file.set_len(131_073), libc::ENODATA, "a truncate to behind it")?;
    expect_eq(fs::metadata(&other)?.len(), 131_072, "size afterwards")
}

/// The first bytes of files on their MDT, the rest on OSTs: nobody sees the border.
pub fn data_on_mdt(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (dir, other_dir) = context.both("dir");
    fs::create_dir(&dir)?;
    let words = ["lfs", "setstripe", "-E", "128K", "-L", "mdt", "-E", "-1", "-c", "2", "-S", "64K"];
    let said = bounded::say(
        Command::new(&context.options.sheen).args(words).arg(&dir),
        "SHEEN_LFS=1",
        Duration::from_secs(60),
    )?;
    expect(said.is_success(), &said.all())?;
    let (a, b) = (dir.join("file"), other_dir.join("file"));
    let mut bytes: Vec<u8> = (0..100_003_u32).map(|n| (n % 251) as u8).collect();
    write(&a, &bytes)?;
    expect_bytes(&read(&b)?, &bytes, "all of it is on the MDT")?;
    expect_eq(fs::metadata(&b)?.len(), bytes.len() as u64, "size of it")?;
    let file = OpenOptions::new().read(true).write(true).open(&a)?;
    file.write_all_at(&[9; 70_000], 90_000)?;
    bytes.resize(160_000, 9);
    bytes[90_000..160_000].fill(9);
    expect_bytes(&read(&b)?, &bytes, "over the border")?;
    let mut appending = OpenOptions::new().append(true).open(&b)?;
    appending.write_all(&[3; 5])?;
    bytes.extend([3; 5]);
    file.set_len(40_000)?;
    bytes.truncate(40_000);
    expect_bytes(&read(&b)?, &bytes, "cut on the MDT")?;
    appending.write_all(&[4; 100_000])?;
    bytes.resize(140_000, 4);
    expect_bytes(&read(&a)?, &bytes, "an append over the border")?;
    file.sync_all()?;
    fs::remove_file(&b)?;
    expect(!a.exists(), "it is gone")?;
    let mut left = vec![0; 140_000];
    file.read_exact_at(&mut left, 0)?;
    expect_bytes(&left, &bytes, "who has it open reads it on")
}

/// Beyond what an object can hold: EFBIG, nothing changed.
pub fn too_big(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (a, b) = context.both("file");
    context.set_stripes(&a, 1, "1M")?;
    let file = OpenOptions::new().read(true).write(true).open(&a)?;
    file.write_all_at(b"small", 0)?;
    expect_errno(file.write_at(b"x", 16 * TIB), libc::EFBIG, "a write beyond 16 TiB")?;
    expect_errno(file.set_len(17 * TIB), libc::EFBIG, "a truncate beyond 16 TiB")?;
    expect_eq(fs::metadata(&b)?.len(), 5, "size afterwards")?;
    expect_bytes(&read(&b)?, b"small", "contents afterwards")
}

/// `mount -o remount,ro` and back, through the helper.
pub fn remount_read_only(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let mount = context.b.parent().unwrap_or(&context.b);
    write(&context.a.join("before"), b"1")?;
    let remount = |options: &str| -> Result<()> {
        let said = bounded::say(
            Command::new("mount").args(["-o", options]).arg(mount),
            "SHEEN_REMOUNT=1",
            Duration::from_secs(60),
        )?;
        expect(said.is_success(), &format!("mount -o {options}: {}", said.all()))
    };
    fs::create_dir(context.a.join("dir"))?;
    remount("remount,ro")?;
    let refused = fs::write(context.b.join("no"), b"");
    let readable = read(&context.b.join("before"));
    let lfs = lfs_on_read_only(context);
    remount("remount,rw")?;
    expect_errno(refused, libc::EROFS, "a write to a read-only mount")?;
    expect_bytes(&readable?, b"1", "a read from a read-only mount")?;
    lfs?;
    expect_eq(names(&context.a)?, vec!["before", "dir"], "what lfs has made")?;
    write(&context.b.join("after"), b"2")
}

/// What only looks works; what changes something is refused in one line.
fn lfs_on_read_only(context: &Context) -> Result<()> {
    let path = |name: &str| context.b.join(name).to_string_lossy().into_owned();
    let (mount, file, dir, new) = (path(""), path("before"), path("dir"), path("new"));
    let fid = context.lfs(&["path2fid", &file])?;
    for words in [
        &["df", &mount][..],
        &["getstripe", &file],
        &["getstripe", &dir],
        &["getdirstripe", &dir],
        &["getdirstripe", "-D", &dir],
        &["fid2path", &mount, fid.trim()],
    ] {
        context.lfs(words)?;
    }
    for words in [
        &["setstripe", "-c", "1", &new][..],
        &["setstripe", "-c", "1", &dir],
        &["mkdir", "-i", "1", &new],
        &["mkdir", "-c", "2", &new],
        &["setdirstripe", "-D", "-c", "2", &dir],
        &["setdirstripe", "-d", &dir],
        &["migrate", "-m", "1", &dir],
    ] {
        let said = bounded::say(
            Command::new(&context.options.sheen).arg("lfs").args(words),
            "SHEEN_LFS=1",
            Duration::from_secs(60),
        )?;
        let what = format!("lfs {}: {}", words.join(" "), said.all());
        expect(!said.is_success(), &what)?;
        expect(said.all().contains("Read-only file system"), &what)?;
        expect_eq(said.all().lines().count(), 1, &what)?;
    }
    Ok(())
}
