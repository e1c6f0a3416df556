//! What servers call the clients that come over a network.

use std::process::Command;

use anyhow::Result;

use super::logs_of;
use crate::case::{Context, expect, skip, write};
use crate::cluster::{Cluster, Shape};

/// Nobody's outside of a network namespace of our own.
const ADDRESS: &str = "10.77.0.5";
const NO_NAMESPACE: i32 = 77;

/// A client has the address from which it reaches the management server, and can be evicted by it.
pub fn clients_have_their_own(context: &Context) -> Result<()> {
    context.skip_if_local()?;
    let cluster = Cluster::new(&context.options, &context.work, Shape::SMALL)?;
    let script = format!(
        "ip link set lo up && ip addr add {ADDRESS}/32 dev lo || exit {NO_NAMESPACE}\n\
         exec \"$0\" \"$@\" --listen {ADDRESS} --insecure-network"
    );
    let up = cluster.up_command();
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script]).arg(up.get_program()).args(up.get_args());
    let said = cluster.say(&mut command)?;
    if said.all().contains("unshare") || said.end.status_code() == Some(NO_NAMESPACE) {
        return skip("network namespaces cannot be made here");
    }
    expect(said.is_success(), &format!("up says: {}", said.all()))?;
    write(&cluster.mount.join("file"), b"x")?;
    cluster.sheen(&["sync", &cluster.mount.to_string_lossy()])?;
    let exports = cluster.sheen(&["lctl", "get_param", "-N", "*.*.exports.*.uuid"])?;
    let named = exports.matches(&format!("exports.{ADDRESS}@tcp.uuid")).count();
    expect(
        named >= 2 && !exports.contains("@lo"),
        &format!("the client is called by its address:\n{exports}"),
    )?;
    cluster.sheen(&["lctl", "set_param", &format!("obdfilter.*.evict_client=nid:{ADDRESS}@tcp")])?;
    cluster.down()?;
    expect(logs_of(&cluster)?.contains("why=Operator"), "it was evicted, and the log says why")
}
