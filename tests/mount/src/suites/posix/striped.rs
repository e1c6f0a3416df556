//! A directory over several MDTs behaves like any other, through both mounts.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::Result;

use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, names, read, write};
use crate::sys;

/// Names, links, attributes and permissions; then many names, each listed once.
pub fn run(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (dir, dir_b) = context.both("striped");
    context.lfs(&["mkdir", "-c", "-1", &dir.to_string_lossy()])?;
    let told = context.lfs(&["getdirstripe", "-c", &dir_b.to_string_lossy()])?;
    expect(told.trim().parse().unwrap_or(0) >= 2, &format!("stripes: {told}"))?;
    let all: BTreeSet<String> = (0..2000).map(|number| format!("name{number}")).collect();
    for (number, name) in all.iter().enumerate() {
        match number % 3 {
            0 => fs::create_dir(dir.join(name))?,
            1 => write(&dir_b.join(name), name.as_bytes())?,
            _ => std::os::unix::fs::symlink("somewhere", dir.join(name))?,
        }
    }
    for place in [&dir, &dir_b] {
        let listed = names(place)?;
        expect_eq(listed.len(), all.len(), "each name once")?;
        expect_eq(listed.into_iter().collect::<BTreeSet<_>>(), all.clone(), "all names")?;
        expect_eq(fs::metadata(place)?.nlink(), 2 + all.len().div_ceil(3) as u64, "links")?;
    }
    let files: Vec<&String> = all.iter().skip(1).step_by(3).take(40).collect();
    for (number, name) in files.iter().enumerate() {
        let renamed = format!("renamed{number}");
        fs::rename(dir.join(name), dir.join(&renamed))?;
        expect_errno(fs::symlink_metadata(dir_b.join(name)), libc::ENOENT, "the old name")?;
        expect_bytes(&read(&dir_b.join(&renamed))?, name.as_bytes(), "what was renamed")?;
        fs::hard_link(dir_b.join(&renamed), dir_b.join(name))?;
        expect_eq(fs::metadata(dir.join(name))?.nlink(), 2, "links of a file")?;
        fs::remove_file(dir.join(&renamed))?;
    }
    let path = context.lfs(&["path2fid", &dir.join(files[0]).to_string_lossy()])?;
    let told = context.lfs(&["fid2path", &context.a.to_string_lossy(), path.trim()])?;
    let wanted = format!("striped/{}", files[0]);
    expect(told.trim().ends_with(&wanted), &format!("the path of {wanted}: {told}"))?;
    permissions(context)?;
    expect_errno(fs::remove_dir(&dir_b), libc::ENOTEMPTY, "rmdir of a full one")?;
    expect_errno(fs::rename(&dir, dir.join("below")), libc::EINVAL, "into itself")?;
    let (moved, moved_b) = context.both("moved");
    fs::rename(&dir, &moved)?;
    expect_eq(names(&moved_b)?.len(), all.len(), "names after a rename of the whole")?;
    fs::remove_dir_all(&moved_b)?;
    expect(!moved.exists(), "it is gone")?;
    expect_eq(names(&context.a)?, Vec::<String>::new(), "nothing is left")
}

/// What the whole allows, each stripe allows.
fn permissions(context: &Context) -> Result<()> {
    let (dir, dir_b) = context.both("striped");
    fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
    let refused = sys::as_user(65534, 65534, &[], || {
        (0..8).filter(|number| fs::write(dir_b.join(format!("no{number}")), b"").is_err()).count()
    })?;
    expect_eq(refused, 8, "files that a stranger may not make")?;
    fs::set_permissions(&dir_b, Permissions::from_mode(0o1777))?;
    let made = sys::as_user(65534, 65534, &[], || {
        (0..8).filter(|number| fs::write(dir.join(format!("own{number}")), b"").is_ok()).count()
    })?;
    expect_eq(made, 8, "files that he may make then")?;
    expect_eq(fs::metadata(&dir)?.mode() & 0o7777, 0o1777, "the mode of the whole")?;
    for number in 0..8 {
        fs::remove_file(dir_b.join(format!("own{number}")))?;
    }
    Ok(())
}

/// What `lfs setdirstripe -D` says, directories below follow; bad words do nothing.
pub fn defaults(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (top, top_b) = context.both("top");
    fs::create_dir(&top)?;
    let path = top.to_string_lossy().into_owned();
    context.lfs(&["setdirstripe", "-D", "-c", "2", &path])?;
    fs::create_dir_all(top_b.join("a/b"))?;
    let told = context.lfs(&["getdirstripe", "-c", &top.join("a/b").to_string_lossy()])?;
    expect_eq(told.trim(), "2", "stripes of a directory made below")?;
    write(&top.join("a/b/file"), b"there")?;
    expect_bytes(&read(&top_b.join("a/b/file"))?, b"there", "a file in it")?;
    context.lfs(&["setdirstripe", "-d", &path])?;
    fs::create_dir(top.join("plain"))?;
    let told = context.lfs(&["getdirstripe", "-c", &top_b.join("plain").to_string_lossy()])?;
    expect_eq(told.trim(), "0", "stripes when nothing is said")?;
    let new = top.join("new").to_string_lossy().into_owned();
    for words in [
        &["mkdir", "-c", "0", &new][..],
        &["mkdir", "-i", "999", &new],
        &["mkdir", "-i", "0,0", &new],
        &["mkdir", &new],
        &["setdirstripe", "-D", "-i", "999", &path],
        &["setdirstripe", "-D", "-i", "-1", "-X", "0", &path],
        &["setdirstripe", "-D", "-i", "0", "-X", "2", &path],
    ] {
        expect(context.lfs(words).is_err(), &format!("{words:?} is refused"))?;
    }
    expect(!top.join("new").exists(), "what was refused makes nothing")?;
    fs::remove_dir_all(&top_b)?;
    expect_eq(names(&context.a)?, Vec::<String>::new(), "nothing is left")
}

/// `lfs setdirstripe -D -i -1 -X 2`: two levels of directories are placed by space, what is below them with its parent.
pub fn placed_by_space(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let (top, top_b) = context.both("top");
    fs::create_dir(&top)?;
    let mdt_of = |path: &Path| context.lfs(&["getdirstripe", "-i", &path.to_string_lossy()]);
    context.lfs(&["setdirstripe", "-D", "-i", "-1", "-X", "2", &top.to_string_lossy()])?;
    let told = context.lfs(&["getdirstripe", "-D", &top_b.to_string_lossy()])?;
    expect(told.contains("lmv_stripe_offset: -1 ") && told.contains("lmv_max_inherit: 2"), &told)?;
    for level in [&top, &top.join("d0")] {
        let mut mdts = BTreeSet::new();
        for number in 0..4 {
            fs::create_dir(level.join(format!("d{number}")))?;
            mdts.insert(mdt_of(&level.join(format!("d{number}")))?);
        }
        expect(mdts.len() > 1, &format!("all directories in {} are on {mdts:?}", level.display()))?;
    }
    for number in 0..4 {
        let parent = top_b.join(format!("d0/d{number}"));
        for name in ["x", "y"] {
            fs::create_dir(parent.join(name))?;
            expect_eq(mdt_of(&parent.join(name))?, mdt_of(&parent)?, "the MDT of the third level")?;
        }
        let told = context.lfs(&["getdirstripe", "-D", &parent.to_string_lossy()])?;
        expect(!told.contains("lmv_max_inherit"), &told)?;
    }
    context.lfs(&["mkdir", "-i", "-1", &top.join("chosen").to_string_lossy()])?;
    expect(top_b.join("chosen").is_dir(), "one directory is placed by space")?;
    fs::remove_dir_all(&top_b)?;
    expect_eq(names(&context.a)?, Vec::<String>::new(), "nothing is left")
}
