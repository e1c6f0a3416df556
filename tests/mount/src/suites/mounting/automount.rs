//! Mount points of automounters: autofs(5), and `x-systemd.automount` in /etc/fstab.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, anyhow};

use super::{LIMIT, start, stop};
use crate::case::{Context, expect, expect_bytes, expect_eq, read, skip, wait_until, write};
use crate::sweep;
use crate::sys;
use crate::sys::autofs::Automount;

/// By hand nobody is asked for what is being mounted. For the automounter a mount does not wait for itself while somebody waits for it, nor
/// does its end.
pub(super) fn direct(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    write(&cluster.mount.join("file"), b"x")?;
    let point = cluster.point("automount")?;
    let Ok(automount) = Automount::new(&point) else { return skip("this kernel has no autofs") };
    let (path, source) = (point.to_string_lossy().into_owned(), cluster.source()?);
    let options = format!("transport={}", context.options.transport.word());
    let arguments = ["mount", &source, &path, "-o", &options];
    // What is started like this is in a process group of its own.
    cluster.sheen(&arguments)?;
    expect(automount.request()?.is_none(), "the automounter was asked for nothing")?;
    expect(is_mounted(&point), "it is mounted by hand")?;
    cluster.unmount(&point)?;
    expect(automount.request()?.is_none(), "nor by umount")?;

    let mut looks = Command::new("ls");
    looks.arg(&point).stdout(Stdio::piped()).process_group(0);
    cluster.tag(&mut looks);
    let looks = looks.spawn()?;
    let token = next_request(&automount)?;
    let mounts = cluster.command().args(arguments).spawn()?;
    expect_success(mounts)?;
    expect(is_mounted(&point), "it is mounted for the automounter")?;
    automount.ready(token)?;
    let seen = looks.wait_with_output()?;
    expect_eq(String::from_utf8_lossy(&seen.stdout).trim_end(), "file", "what was waited for")?;
    std::thread::scope(|scope| -> Result<()> {
        let expires = scope.spawn(|| automount.expire());
        let ended = next_request(&automount).and_then(|token| {
            let unmounts = cluster.command().args(["umount", &path]).spawn()?;
            let ended = expect_success(unmounts);
            // Whether or not it has.
            automount.ready(token)?;
            ended
        });
        let expired = expires.join();
        ended?;
        expired.map_err(|_| anyhow!("a panic"))?.context("the end of what nobody uses")
    })?;
    expect(!is_mounted(&point), "it is unmounted for the automounter")?;
    drop(automount);
    stop(cluster)
}

/// What is in use, or has changes that its servers have not got, stays: as of any other mount, also while the automounter waits.
pub(super) fn refused(context: &Context) -> Result<()> {
    let cluster = start(context)?;
    let point = cluster.point("automount")?;
    let Ok(automount) = Automount::new(&point) else { return skip("this kernel has no autofs") };
    let (path, source) = (point.to_string_lossy().into_owned(), cluster.source()?);
    let options = format!("transport={}", context.options.transport.word());
    cluster.sheen(&["mount", &source, &path, "-o", &options])?;
    write(&point.join("file"), b"synced")?;
    let umount = || {
        let child = cluster.command().args(["umount", &path]).stderr(Stdio::piped()).spawn()?;
        let (status, errors) = end_of(child)?;
        expect_eq(status.code(), Some(1), &errors)?;
        expect(is_mounted(&point), "it stays mounted")?;
        anyhow::Ok(errors)
    };

    let open = File::open(point.join("file"))?;
    let errors = umount()?;
    expect(errors.contains(&format!("in use by pid {} (", std::process::id())), &errors)?;
    expect(!errors.contains("--lazy"), &errors)?;
    drop(open);

    write(&point.join("late"), &[7; 10_000])?;
    let targets = cluster.targets()?;
    for (_, pid) in targets.iter().filter(|(name, _)| name.contains("OST") || name.contains("MDT")) {
        sys::kill(*pid, libc::SIGKILL)?;
    }
    std::thread::scope(|scope| -> Result<()> {
        let expires = scope.spawn(|| automount.expire());
        let refused = next_request(&automount).and_then(|token| {
            let refused = umount();
            // Whether or not it was.
            automount.ready(token)?;
            refused
        });
        // Whether that is an error is the kernel's business.
        let _ = expires.join();
        let errors = refused?;
        expect(errors.contains("stays mounted") && errors.contains("change"), &errors)
    })?;

    cluster.up()?;
    let unmounts = cluster.command().args(["umount", &path]).spawn()?;
    expect_success(unmounts)?;
    expect(!is_mounted(&point), "it is unmounted when they are back")?;
    expect_bytes(&read(&cluster.mount.join("late"))?, &[7; 10_000], "what was written before they died")?;
    drop(automount);
    cluster.down().map(drop)
}

fn next_request(automount: &Automount) -> Result<u32> {
    let mut token = None;
    wait_until(LIMIT, "the automounter is asked", || {
        token = automount.request()?;
        Ok(token.is_some())
    })?;
    token.context("a request")
}

fn is_mounted(point: &std::path::Path) -> bool {
    sweep::mounts_under(point).last().is_some_and(sweep::Mounted::is_fuse)
}

fn expect_success(child: Child) -> Result<()> {
    let (status, errors) = end_of(child)?;
    expect(status.success(), &format!("the command has worked: {errors}"))
}

/// How a command ends, and what it has said, if its errors were kept.
fn end_of(mut child: Child) -> Result<(ExitStatus, String)> {
    let mut status = None;
    let ended = wait_until(LIMIT, "the command is done", || {
        status = child.try_wait()?;
        Ok(status.is_some())
    });
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended?;
    let mut errors = String::new();
    if let Some(mut said) = child.stderr.take() {
        said.read_to_string(&mut errors)?;
    }
    Ok((status.context("an end")?, errors))
}
