//! Targets are copied, and the copies served beside them: nobody sees them, whatever dies meanwhile, until the originals have ended and
//! somebody starts the copies' servers anew.

use super::*;
use crate::sweep;
use serde_json::Value;

const REFUSED: &str = "and not here";

/// The copy of a target of the cluster, with a server.
fn serve_copy(cluster: &Cluster, work: &Path, name: &str) -> Result<Joined> {
    let (from, dir) = (cluster.data.join(name.to_lowercase()), work.join(format!("copy-{name}")));
    let mut command = std::process::Command::new("cp");
    expect(command.arg("-a").arg(&from).arg(&dir).status()?.success(), "it is copied")?;
    let log = dir.with_extension("log");
    let source = cluster.source()?;
    let (nid, _) = source.split_once(":/").context("NID:/FSNAME")?;
    let mut command = cluster.command();
    command.args(["serve", "--mgsnode", nid, "--log"]).arg(&log).arg(&dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = command.spawn().context("a server")?;
    Ok(Joined { dir, log, server })
}

fn said(copy: &Joined) -> String {
    fs::read_to_string(&copy.log).unwrap_or_default()
}

/// State and alert of the copy, as of all targets of this machine.
fn shown(cluster: &Cluster, copy: &Joined) -> Result<(String, String)> {
    let status: Value = serde_json::from_str(&cluster.sheen(&["status", "--json"])?)?;
    let targets = status["targets"].as_array().cloned().unwrap_or_default();
    let copy = targets.iter().find(|target| target["dir"].as_str() == copy.dir.to_str());
    let text = |name: &str| copy.and_then(|copy| copy[name].as_str()).unwrap_or_default().to_owned();
    Ok((text("state"), text("alert")))
}

fn pid_of(cluster: &Cluster, copies: &[&Joined], name: &str) -> Result<i32> {
    let is_copy = |pid: i32| copies.iter().any(|copy| copy.server.id() as i32 == pid);
    let found = cluster.targets()?.into_iter().find(|(target, pid)| target == name && !is_copy(*pid));
    found.map(|(_, pid)| pid).context("a server of it")
}

pub(super) fn refused(context: &Context) -> Result<()> {
    let (cluster, mounts) = running(context)?;
    let [here, there] = &mounts;
    make_files(&cluster, &mounts, "before")?;
    cluster.sheen(&["sync", &here.to_string_lossy()])?;
    let ost = serve_copy(&cluster, &context.work, "OST0000")?;
    let mdt = serve_copy(&cluster, &context.work, "MDT0000")?;
    // Newer than what the copies have.
    make_files(&cluster, &mounts, "after")?;
    for copy in [&ost, &mdt] {
        let lines = || said(copy).lines().filter(|line| line.contains(REFUSED)).count();
        wait_until(PATIENCE, "it says that it is refused for good", || Ok(lines() > 0))?;
        expect_eq(lines(), 1, &said(copy))?;
        let (state, alert) = shown(&cluster, copy)?;
        expect_eq(state.as_str(), "refused", &alert)?;
        let dir = copy.dir.to_string_lossy();
        expect(alert.contains("is served at 127.0.0.1") && alert.contains(&*dir), &alert)?;
    }
    check_files(there, "before")?;
    check_files(there, "after")?;

    // Whoever is restarted finds its place free, whatever waits for it.
    for name in ["OST0000", "MDT0000", "MGS"] {
        sys::kill(pid_of(&cluster, &[&ost, &mdt], name)?, libc::SIGKILL)?;
        cluster.up()?;
        check_files(here, "after")?;
    }
    make_files(&cluster, &mounts, "later")?;
    check_files(there, "later")?;
    for copy in [&ost, &mdt] {
        expect_eq(shown(&cluster, copy)?.0.as_str(), "refused", &said(copy))?;
    }
    Ok(())
}

/// Its server ends in order.
fn stop_mdt(cluster: &Cluster) -> Result<()> {
    let pid = pid_of(cluster, &[], "MDT0000")?;
    sys::kill(pid, libc::SIGTERM)?;
    wait_until(PATIENCE, "the server of the MDT has ended", || Ok(sweep::has_ended(pid)))
}

/// Its server ends in order, and whatever is in the other place is served.
fn replace(cluster: &Cluster, dir: &Path, (to, from): (&Path, &Path)) -> Result<()> {
    stop_mdt(cluster)?;
    fs::rename(dir, to)?;
    fs::rename(from, dir)?;
    Ok(())
}

/// A copy of an MDT that is one start old takes the epoch of the next one, and with it its FIDs: new files would be others' objects.
pub(super) fn older(context: &Context) -> Result<()> {
    let (cluster, mounts) = running(context)?;
    let [here, there] = &mounts;
    make_files(&cluster, &mounts, "before")?;
    cluster.sheen(&["sync", &here.to_string_lossy()])?;
    let dir = cluster.data.join("mdt0000");
    let [older, newest, aside] = ["older", "newest", "aside"].map(|name| context.work.join(name));
    stop_mdt(&cluster)?;
    expect(
        std::process::Command::new("cp").arg("-a").arg(&dir).arg(&older).status()?.success(),
        "it is copied",
    )?;
    cluster.up()?;
    make_files(&cluster, &mounts, "after")?;
    for mount in &mounts {
        cluster.sheen(&["sync", &mount.to_string_lossy()])?;
    }

    // Whoever starts it, and however often.
    replace(&cluster, &dir, (&newest, &older))?;
    for _ in 0..2 {
        let said = cluster.say(&mut cluster.up_command())?;
        expect(said.all().contains("older copy"), &said.all())?;
        let status = cluster.status()?;
        let targets = status["targets"].as_array().cloned().unwrap_or_default();
        let shown = targets.iter().find(|target| target["name"] == "MDT0000").context("it is shown")?;
        expect_eq(shown["state"].as_str(), Some("refused"), &shown.to_string())?;
        let alert = shown["alert"].as_str().unwrap_or_default();
        expect(alert.contains("older copy") && alert.contains("sheen restored"), alert)?;
        sys::kill(pid_of(&cluster, &[], "MDT0000")?, libc::SIGKILL)?;
    }
    let _ = cluster.say(&mut cluster.up_command())?;
    replace(&cluster, &dir, (&aside, &newest))?;
    cluster.up()?;
    check_files(there, "before")?;
    check_files(there, "after")?;

    // The newest is lost for good.
    replace(&cluster, &dir, (&newest, &aside))?;
    cluster.sheen(&["restored", &dir.to_string_lossy()])?;
    cluster.up()?;
    let (after, fresh) = (here.join("after0"), here.join("fresh"));
    wait_until(PATIENCE, "what came after the copy is gone", || Ok(!after.exists()))?;
    check_files(there, "before")?;
    for index in 0..FILE_COUNT {
        let file = fresh.with_extension(index.to_string());
        fs::File::create(&file)?.set_len(10_000)?;
        expect_bytes(&read(&file)?, &[0; 10_000], "a new file has nothing of one that is lost")?;
    }
    Ok(())
}
