//! The table of steps: what each runs, how long it may take, what it needs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::workspace;

/// Where the test command works, and its steps in their order.
pub struct Plan {
    root: PathBuf,
    target: PathBuf,
    pub logs: PathBuf,
    mounts: PathBuf,
    /// Why this machine cannot build the client of etcd or run its members, if it cannot.
    etcd_missing: Option<String>,
    pub steps: Vec<Step>,
}

/// One step.
pub struct Step {
    pub name: String,
    pub limit: Duration,
    pub is_optional: bool,
    /// Steps without which this one makes no sense.
    pub needs: &'static [&'static str],
    /// It waits more than it computes, and neither drops caches nor minds who does: others like it may run beside it.
    pub is_shared: bool,
    kind: Kind,
}

enum Kind {
    Format,
    /// clippy of everything, and whether the binary builds without etcd, too.
    Lints,
    /// Our own checks of the crates' order.
    Layers,
    /// Everything that the other steps run.
    Build,
    /// `cargo test` of everything.
    Tests,
    /// The binary with these arguments.
    Sheen(&'static [&'static str]),
    /// The simulation with planted faults, and what shows one that it meets too seldom.
    Planted,
    /// A suite on real mounts.
    Suite {
        suite: &'static str,
        transport: &'static str,
    },
    /// The Debian package: made, installed, used, removed.
    Package,
    /// The suites on a plain directory: they must be right themselves.
    Local,
    /// Suites on the oldest kernel that is supported, in a virtual machine.
    Kernel(&'static [&'static str]),
    /// Nodes whose root is on a cluster, in virtual machines.
    Boot(&'static [&'static str]),
}

/// Suites that have the machine to themselves, as they drop its caches or wait for leases of seconds: name and seconds, on /dev/fuse only.
const SUITES_ALONE: &[(&str, u64)] =
    &[("params", 300), ("operate", 360), ("images", 400), ("seen", 300), ("memory", 400), (WITH_ETCD, 480)];
/// It needs members of etcd, and a binary that can ask them.
const WITH_ETCD: &str = "coordinator";

/// Suites that run a program of their own name from crates.io.
const FROM_CRATES_IO: &[&str] = &["pjdfstest", "fsx"];

/// The other suites in their order: name, seconds on /dev/fuse, seconds on io_uring (0: not there), optional.
const SUITES: &[(&str, u64, u64, bool)] = &[
    ("smoke", 300, 200, false),
    ("badinput", 240, 0, false),
    ("mounting", 400, 240, false),
    ("fsck", 400, 0, false),
    ("failover", 240, 0, false),
    ("grow", 240, 0, false),
    ("posix", 600, 400, false),
    ("bigdir", 400, 300, false),
    ("pjdfstest", 480, 360, false),
    ("coherence", 720, 480, false),
    ("two-mounts", 600, 480, false),
    ("fsx", 900, 0, true),
    ("kill9", 600, 600, false),
    ("dne", 600, 600, false),
    ("powercut", 600, 600, true),
    ("enospc", 300, 300, true),
    ("realinput", 900, 0, true),
];

/// Many clients, a third of which vanish with an MDT.
const CHURN: &[&str] = &["sim", "--scenario", "spot-churn", "--clients", "1000", "--seeds", "0..200"];
/// Operations over two and three MDTs, broken off everywhere. The whole of both, which leaves out `--sync` and `--death`, takes about a
/// quarter of an hour on two cores.
const CRASH_TABLE: &[&str] = &["sim", "--scenario", "crash-table", "--mdts", "2", "--sync", "never"];
const CRASH_TABLE_3: &[&str] =
    &["sim", "--scenario", "crash-table", "--mdts", "3", "--sync", "never", "--death", "power"];
/// Renames against each other.
const RENAME_DEADLOCK: &[&str] = &["sim", "--scenario", "rename-deadlock", "--orders", "1000"];
/// Every state of the model of operations over several MDTs, and what each of its rules is good for.
const DNE_MODEL: &[&str] = &["sim", "--scenario", "dne-model", "--crashes", "1", "--states", "300000"];
/// No more states of each than take a minute on a busy machine.
const RENAME_LOCKS: &[&str] = &["sim", "--scenario", "rename-locks", "--states", "200000"];
/// Its client's build needs programs that are not everywhere.
const ETCD: &[&str] = &["--features", "sheen/etcd"];
/// A planted mistake that random seeds show too seldom.
pub const PLANTED_TEST: &str = "migrate::a_file_that_is_shown_before_its_objects_are_adopted_is_found";
/// How everything is built (see Cargo.toml), and where that lands.
const PROFILE: &str = "ci";
/// The virtual machine may have to emulate its processor.
const KERNEL_SECONDS: u64 = 1200;
/// Besides, debootstrap makes a root first.
const BOOT_SECONDS: u64 = 1200;
/// What a node is to do: it comes to its login, outlives its servers, and sees another image when it boots again.
pub const BOOTED: &[&str] = &["servers_are_killed_while_find_runs", "a_rebooted_node_sees_updates"];

fn step(name: &str, seconds: u64, kind: Kind) -> Step {
    let (limit, is_shared) = (Duration::from_secs(seconds), false);
    Step { name: name.to_owned(), limit, is_optional: false, needs: &[], is_shared, kind }
}

impl Plan {
    /// The plan of this workspace.
    pub fn new() -> Result<Plan> {
        let (root, target) = (workspace::root()?, workspace::target()?);
        let (logs, mounts) = (target.join("ci-logs"), target.join("mounted"));
        for directory in [&logs, &mounts] {
            std::fs::create_dir_all(directory)?;
        }
        super::mount_fusectl();
        Ok(Plan { root, target, logs, mounts, etcd_missing: etcd_missing(), steps: steps() })
    }

    /// What is built with each build of tests and of the binary: one build for all steps, as building is half of what the test command does.
    fn features(&self) -> &'static [&'static str] {
        if self.etcd_missing.is_none() { ETCD } else { &[] }
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).args(arguments).env("CARGO_TERM_COLOR", "never");
        // What cargo told us about our own package must not reach the builds: it would make them build everything anew.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_"))
        {
            command.env_remove(name);
        }
        command
    }

    /// cargo on the whole workspace: what one step builds so, another one finds.
    fn cargo_on_all(&self, verb: &str, arguments: &[&str]) -> Command {
        let all = ["--profile", PROFILE, "--workspace"];
        self.cargo(&[&[verb], all.as_slice(), self.features(), arguments].concat())
    }

    fn built(&self, name: &str) -> PathBuf {
        self.target.join(PROFILE).join(name)
    }

    /// This program with other arguments: as it was started, or what the build of everything has put into its place.
    fn xtask(&self, arguments: &[&str]) -> Command {
        let own = std::env::current_exe().ok().filter(|path| path.is_file());
        let mut command = Command::new(own.unwrap_or_else(|| self.built("xtask")));
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// What the suites need: the binary and their runner. What tests need besides is built with them, if they are to run.
    pub fn build_commands(&self, has_tests: bool) -> Vec<Command> {
        let mut keep = Command::new("install");
        // A copy, because whoever builds something else in this directory replaces the original.
        keep.arg("-D").arg(self.built("sheen")).arg(self.sheen());
        let what: &[&str] = if has_tests { &["--bins", "--lib", "--tests"] } else { &["--bins"] };
        vec![self.cargo_on_all("build", what), keep]
    }

    fn lint_commands(&self) -> Vec<Command> {
        let mut lints = vec![self.cargo_on_all("clippy", &["--all-targets", "--", "-D", "warnings"])];
        // That is how it is installed.
        let bare = || self.cargo(&["clippy", "--profile", PROFILE, "-p", "sheen", "--", "-D", "warnings"]);
        lints.extend(self.etcd_missing.is_none().then(bare));
        lints
    }

    /// The directory of the workspace.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where cargo builds.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The binary that the suites run.
    pub fn sheen(&self) -> PathBuf {
        self.target.join("ci-bin/sheen")
    }

    /// Where a step mounts things: each has a place of its own.
    pub fn mounts_of(&self, step: &str) -> PathBuf {
        self.mounts.join(step)
    }

    /// Where `.ci/run` installs what comes from crates.io.
    fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// The suites' runner on one suite, or all, for this step.
    pub fn suite_command(
        &self,
        step: &str,
        suite: Option<&str>,
        transport: &str,
        limit: Duration,
    ) -> Command {
        let mut command = self.runner(step);
        command.args(suite).args(["--transport", transport]);
        if limit < Duration::MAX {
            // Cases stop beginning a little before the step would be killed, so that the report is printed.
            command.args(["--budget-seconds", &limit.as_secs().saturating_sub(20).to_string()]);
        }
        command
    }

    fn runner(&self, step: &str) -> Command {
        self.runner_in(&self.mounts_of(step), &self.target.join("mounted-failed"))
    }

    /// The suites' runner, which works in one directory and keeps the logs of what failed in another.
    pub fn runner_in(&self, work: &Path, failed: &Path) -> Command {
        let mut command = Command::new(self.built("mount-suites"));
        command.current_dir(&self.root).arg("run");
        command.arg("--sheen").arg(self.sheen());
        command.arg("--work").arg(work).arg("--tools").arg(self.tools());
        command.arg("--failed").arg(failed);
        command
    }
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        step("format", 120, Kind::Format),
        step("layers", 120, Kind::Layers),
        step("lints", 1500, Kind::Lints),
        step("build", 2400, Kind::Build),
        Step { needs: &["build"], ..step("tests", 900, Kind::Tests) },
        Step { needs: &["build"], ..step("sim", 480, Kind::Sheen(&["sim", "--seeds", "0..2000"])) },
        Step { needs: &["build"], ..step("churn", 480, Kind::Sheen(CHURN)) },
        Step { needs: &["build"], ..step("crash-table", 480, Kind::Sheen(CRASH_TABLE)) },
        Step { needs: &["build"], ..step("crash-table-3", 480, Kind::Sheen(CRASH_TABLE_3)) },
        Step { needs: &["build"], ..step("rename-deadlock", 480, Kind::Sheen(RENAME_DEADLOCK)) },
        Step { needs: &["build"], ..step("dne-model", 480, Kind::Sheen(DNE_MODEL)) },
        Step { needs: &["build"], ..step("rename-locks", 480, Kind::Sheen(RENAME_LOCKS)) },
        Step { needs: &["build"], ..step("package", 300, Kind::Package) },
        Step { needs: &["build"], ..step("suites-local", 300, Kind::Local) },
    ];
    let known = |name: &str| mount_suites::suites::ALL.iter().any(|suite| suite.name == name);
    for (suite, seconds) in SUITES_ALONE.iter().filter(|(name, _)| known(name)) {
        let kind = Kind::Suite { suite, transport: "dev" };
        steps.push(Step { needs: &["build"], ..step(suite, *seconds, kind) });
    }
    // This builds the simulation once more.
    steps.push(step("planted", 1500, Kind::Planted));
    let shared = |is_optional, step| Step { needs: &["build"], is_shared: true, is_optional, ..step };
    let suites = SUITES.iter().filter(|(name, ..)| known(name));
    let on_dev = suites.clone().map(|(suite, seconds, _, is_optional)| {
        shared(*is_optional, step(suite, *seconds, Kind::Suite { suite, transport: "dev" }))
    });
    let on_uring =
        suites.filter(|(_, _, seconds, _)| *seconds > 0).map(|(suite, _, seconds, is_optional)| {
            let kind = Kind::Suite { suite, transport: "uring" };
            shared(*is_optional || *suite != "smoke", step(&format!("{suite}-uring"), *seconds, kind))
        });
    let kernel = step("kernel-6.1", KERNEL_SECONDS, Kind::Kernel(&["smoke", "mounting"]));
    let mut rest: Vec<Step> = on_dev.chain(on_uring).collect();
    rest.push(shared(true, kernel));
    // What must run comes before what may be left out, and of that the longest one first.
    rest.sort_by_key(|step| (step.is_optional, std::cmp::Reverse(step.least())));
    // Alone, since a node that gets no processor for long gives up what its services wait for.
    let boot = step("boot", BOOT_SECONDS, Kind::Boot(BOOTED));
    let at = rest.iter().position(|step| step.is_optional).unwrap_or(rest.len());
    rest.insert(at, Step { needs: &["build"], is_optional: true, ..boot });
    steps.extend(rest);
    steps
}

impl Step {
    /// True if `--only NAME` means this step; `suites` means all of them.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || (name == "suites" && matches!(self.kind, Kind::Suite { .. }))
    }

    /// What must be left of the budget for the step to begin. Most take a small part of their limit, and suites say how far they came
    /// when it ends; the virtual machine says nothing before its end.
    pub fn least(&self) -> Duration {
        let is_machine = matches!(self.kind, Kind::Kernel(_) | Kind::Boot(_));
        if is_machine { self.limit } else { self.limit / 4 }
    }

    /// Why this machine cannot run the step, if it cannot.
    pub fn missing(&self, plan: &Plan) -> Option<String> {
        match &self.kind {
            Kind::Suite { suite, transport } => {
                let etcd_missing = plan.etcd_missing.clone().filter(|_| *suite == WITH_ETCD);
                etcd_missing
                    .or_else(|| program_missing(&plan.tools(), suite))
                    .or_else(|| mounts_missing(transport))
            }
            Kind::Kernel(_) => crate::kernel::missing(),
            Kind::Boot(_) => crate::boot::missing(&plan.target),
            Kind::Package => crate::package::missing(&plan.target),
            _ => None,
        }
    }

    /// The commands, one after the other.
    pub fn commands(&self, plan: &Plan, limit: Duration) -> Vec<Command> {
        match &self.kind {
            Kind::Format => vec![plan.cargo(&["fmt", "--all", "--", "--check"])],
            Kind::Lints => plan.lint_commands(),
            Kind::Tests => vec![plan.cargo_on_all("test", &["--no-fail-fast"])],
            Kind::Layers => vec![plan.xtask(&["layers"])],
            Kind::Package => {
                let mut command = plan.xtask(&["package", "--check", "--binary"]);
                command.arg(plan.sheen());
                vec![command]
            }
            Kind::Kernel(suites) => {
                let minutes = (limit.as_secs() / 60).saturating_sub(1).to_string();
                let mut command = plan.xtask(&["kernel", "--built", "--minutes", &minutes, "--count", "10"]);
                command.args(*suites);
                vec![command]
            }
            Kind::Boot(cases) => {
                let seconds = limit.as_secs().saturating_sub(30).to_string();
                let mut command = plan.xtask(&["boot", "--budget-seconds", &seconds, "--sheen"]);
                command.arg(plan.sheen()).args(cases.iter().flat_map(|case| ["--only", *case]));
                vec![command]
            }
            Kind::Build => plan.build_commands(true),
            Kind::Sheen(arguments) => {
                let mut command = Command::new(plan.sheen());
                command.current_dir(&plan.root).args(*arguments);
                vec![command]
            }
            Kind::Planted => {
                let planted = ["-p", "sim", "--features", "planted-faults", "--example", "planted"];
                let shown = [
                    "-p",
                    "mds",
                    "--features",
                    "planted-faults",
                    "--test",
                    "it",
                    "--",
                    "--ignored",
                    "--exact",
                ];
                vec![
                    plan.cargo(&[&["run", "--profile", PROFILE], planted.as_slice()].concat()),
                    plan.cargo(
                        &[&["test", "--profile", PROFILE], shown.as_slice(), &[PLANTED_TEST]].concat(),
                    ),
                ]
            }
            Kind::Suite { suite, transport } => {
                vec![plan.suite_command(&self.name, Some(suite), transport, limit)]
            }
            Kind::Local => {
                let mut command = plan.runner(&self.name);
                command.args(["posix", "two-mounts", "coherence", "--count", "40", "--local"]);
                command.arg(plan.mounts_of(&self.name).join("local"));
                vec![command]
            }
        }
    }
}

/// Why this machine cannot build the client of etcd or run its members, if it cannot.
fn etcd_missing() -> Option<String> {
    let has = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let packages = [("protoc", "protobuf-compiler"), ("etcd", "etcd-server")];
    let missing = packages.iter().find(|(program, _)| !has(program));
    if let Some((program, package)) = missing {
        return Some(format!("no {program} (package {package})"));
    }
    // The compiler is of use only with the definitions that come in a package of their own.
    let definitions = ["/usr/include", "/usr/local/include"].map(Path::new);
    let has_them = definitions.iter().any(|dir| dir.join("google/protobuf/descriptor.proto").exists());
    (!has_them).then(|| "no google/protobuf/descriptor.proto (package libprotobuf-dev)".to_owned())
}

/// Why a suite that runs a program of its own name cannot run, if it cannot.
pub fn program_missing(tools: &Path, suite: &str) -> Option<String> {
    let path = tools.join("bin").join(suite);
    let is_missing = FROM_CRATES_IO.contains(&suite) && !path.is_file();
    is_missing.then(|| format!("no {} (.ci/run installs it)", path.display()))
}

/// Why this machine cannot run suites with this transport, if it cannot.
pub fn mounts_missing(transport: &str) -> Option<String> {
    super::can_mount().and_then(|()| if transport == "uring" { super::enable_uring() } else { Ok(()) }).err()
}
