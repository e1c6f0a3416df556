//! A virtual machine and its serial consoles.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use mount_suites::bounded;

use crate::kernel::EMULATOR;

/// Where the half root's sshd listens.
const HALF_PORT: u16 = 2222;
const POLL: Duration = Duration::from_millis(50);
/// What the console said last, for reports.
const TAIL_LINES: usize = 15;
/// Quotes keep the echo of what is typed from looking like the answer.
const TYPED_MARK: &str = "echo node''-ended-$?-";
const MARK: &str = "node-ended-";

/// What all nodes boot.
pub struct Machine {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// Where `NAME.console` goes.
    pub consoles: PathBuf,
}

/// In what one node differs from the others.
#[derive(Default)]
pub struct Extras<'a> {
    /// What its clock says when it is switched on; else what ours says.
    pub clock: Option<&'a str>,
    /// A disk, of which it writes to a copy only.
    pub disk: Option<&'a Path>,
    /// It has a ttyS1, whose log is `NAME.second.console`.
    pub has_second_console: bool,
    /// Port of this machine's loopback that leads to `HALF_PORT` of the node.
    pub ssh_port: Option<u16>,
}

impl Machine {
    /// Starts a node with these words on its kernel's command line.
    pub fn start(&self, name: &str, words: &str, extras: &Extras<'_>) -> Result<Node> {
        let log = self.consoles.join(format!("{name}.console"));
        let output = fs::File::create(&log)?;
        let mut command = Command::new(EMULATOR);
        // In software everywhere, as `cargo xtask kernel`.
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", "1024"]);
        command.args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        let forward = extras
            .ssh_port
            .map(|port| format!(",hostfwd=tcp:127.0.0.1:{port}-:{HALF_PORT}"))
            .unwrap_or_default();
        command.args(["-netdev", &format!("user,id=net{forward}"), "-device", "virtio-net-pci,netdev=net"]);
        command.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initramfs);
        if let Some(clock) = extras.clock {
            command.args(["-rtc", &format!("base={clock}")]);
        }
        if let Some(disk) = extras.disk {
            let drive = format!("file={},format=raw,if=virtio,snapshot=on", disk.display());
            command.args(["-drive", &drive]);
        }
        let second =
            extras.has_second_console.then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).transpose()?;
        if let Some(listener) = &second {
            command.args(["-serial", &format!("tcp:{}", listener.local_addr()?)]);
        }
        let words = format!("console=ttyS0 loglevel=4 mitigations=off random.trust_cpu=on {words}");
        command.args(["-append", &words]);
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        let tag = format!("SHEEN_NODE={}-{name}", std::process::id());
        let mut child = bounded::spawn_tagged(&mut command, &tag).context(EMULATOR)?;
        let input = child.stdin.take();
        let machine = Rc::new(Running { child: RefCell::new(child), tag, log: log.clone() });
        let input = Box::new(input.context("the node has no console")?);
        let second = match second {
            None => None,
            Some(listener) => Some(
                machine.second_console(&listener, self.consoles.join(format!("{name}.second.console")))?,
            ),
        };
        Ok(Node { machine, console: Console { input, log, read_bytes: 0 }, second })
    }
}

/// A virtual machine that is on; dropping it switches it off.
struct Running {
    child: RefCell<Child>,
    tag: String,
    log: PathBuf,
}

impl Running {
    /// The console for which the machine connects to us as its first act.
    fn second_console(&self, listener: &TcpListener, log: PathBuf) -> Result<Console> {
        listener.set_nonblocking(true)?;
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(status) = self.child.borrow_mut().try_wait()? {
                bail!("{EMULATOR} ended with {status}: {}", bounded::tail(&self.log, TAIL_LINES));
            }
            std::thread::sleep(POLL);
        };
        stream.set_nonblocking(false)?;
        let (mut from, mut to) = (stream.try_clone()?, fs::File::create(&log)?);
        // It ends with the machine.
        std::thread::spawn(move || io::copy(&mut from, &mut to));
        Ok(Console { input: Box::new(stream), log, read_bytes: 0 })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !bounded::kill(self.child.get_mut(), &self.tag) {
            println!("{EMULATOR} of {} does not die", self.log.display());
        }
    }
}

/// What is typed into a node, and where what it says goes.
struct Console {
    input: Box<dyn Write>,
    log: PathBuf,
    /// How much of the log has been looked at.
    read_bytes: usize,
}

/// A running node, as one of its consoles shows it. It is on as long as one of them is held.
pub struct Node {
    machine: Rc<Running>,
    console: Console,
    second: Option<Console>,
}

impl Node {
    /// The same node at its second console.
    pub fn second(&mut self) -> Result<Node> {
        let console = self.second.take().context("the node has no second console left")?;
        Ok(Node { machine: Rc::clone(&self.machine), console, second: None })
    }

    /// Waits until the console says `mark`, and returns what stands before it.
    pub fn wait_for(&mut self, mark: &str, limit: Duration) -> Result<String> {
        let started = Instant::now();
        loop {
            let end = self.machine.child.borrow_mut().try_wait()?;
            let text = fs::read(&self.console.log)?;
            let fresh = text.get(self.console.read_bytes..).unwrap_or_default();
            if let Some(at) = fresh.windows(mark.len()).position(|window| window == mark.as_bytes()) {
                self.console.read_bytes += at + mark.len();
                return Ok(String::from_utf8_lossy(fresh.get(..at).unwrap_or_default()).into_owned());
            }
            let why = match end {
                Some(status) => format!("the machine ended with {status}"),
                None if started.elapsed() > limit => format!("{} s are over", limit.as_secs()),
                None => {
                    std::thread::sleep(POLL);
                    continue;
                }
            };
            let tail = bounded::tail(&self.console.log, TAIL_LINES);
            bail!("{mark:?} does not come, {why}; {} ends with\n{tail}", self.console.log.display());
        }
    }

    /// Waits until the machine has switched itself off.
    pub fn wait_for_end(&mut self, limit: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            match self.machine.child.borrow_mut().try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the machine ended with {status}"),
                None if started.elapsed() > limit => break,
                None => std::thread::sleep(POLL),
            }
        }
        let tail = bounded::tail(&self.console.log, TAIL_LINES);
        bail!("{} s are over, and the machine is not off; its console ends with\n{tail}", limit.as_secs())
    }

    /// Logs in as root once the prompt is there.
    pub fn log_in(&mut self, limit: Duration) -> Result<()> {
        // A half root names the host before it has a name.
        self.wait_for(" login: ", limit)?;
        self.type_line("root")?;
        self.wait_for("# ", limit).map(drop)
    }

    /// Begins a command; `end` waits for it.
    pub fn begin(&mut self, command: &str) -> Result<()> {
        self.type_line(&format!("{command}; {TYPED_MARK}"))
    }

    /// True if the command that began has ended.
    pub fn has_ended(&self) -> Result<bool> {
        let text = fs::read(&self.console.log)?;
        let fresh = text.get(self.console.read_bytes..).unwrap_or_default();
        Ok(fresh.windows(MARK.len()).any(|window| window == MARK.as_bytes()))
    }

    /// What the console said until the command ended, and its status.
    pub fn end(&mut self, limit: Duration) -> Result<(String, u32)> {
        let said = self.wait_for(MARK, limit)?;
        let status = self.wait_for("-", limit)?;
        let status = status.parse().with_context(|| format!("the console says status {status:?}"))?;
        Ok((said, status))
    }

    /// What a command said; it must succeed.
    pub fn ask(&mut self, command: &str, limit: Duration) -> Result<String> {
        self.begin(command)?;
        match self.end(limit)? {
            (said, 0) => Ok(said),
            (said, status) => bail!("{command} ended with status {status}: {said}"),
        }
    }

    /// The status of a command.
    pub fn status(&mut self, command: &str, limit: Duration) -> Result<u32> {
        self.begin(command)?;
        Ok(self.end(limit)?.1)
    }

    /// Types a line without waiting for anything.
    pub fn type_line(&mut self, line: &str) -> Result<()> {
        let input = &mut self.console.input;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }
}
