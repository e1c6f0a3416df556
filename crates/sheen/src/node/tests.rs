#![allow(clippy::unwrap_used)]

use super::*;
use crate::target_dir;
use crate::target_dir::Label;
use crate::targets::Served;
use base::ClusterConfig;
use coordinate::{Keeper, KeeperError, Silence as WhenSilent};
use std::sync::Weak;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;
use wire::Ownership;

fn node(target_count: usize) -> Arc<Node> {
    let targets = Targets::awaited(target_count, Vec::new());
    Node::new(Router::new(), Timer::start(), targets, true, Vec::new(), None, vec!["127.0.0.1:1".to_owned()])
}

impl Node {
    /// One that serves nothing.
    pub fn idle() -> Arc<Node> {
        node(0)
    }
}

/// A target that needs nothing but its directory.
fn make_target(dir: &Path) -> Label {
    target_dir::make(dir, TargetId::MGT, "", &[]).unwrap();
    target_dir::peek(dir).unwrap()
}

/// Waits, for long if need be, until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not in a minute: {what}");
}

/// Gives a target when it may go on, and hears nothing over the session of a process that has ended that.
struct Slow {
    node: Weak<Node>,
    asked: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
    is_owned: Arc<Mutex<bool>>,
}

impl Keeper for Slow {
    fn keep(&self, _: &[TargetId], _: &[TargetId]) -> Result<Vec<Ownership>, KeeperError> {
        Ok(Vec::new())
    }

    fn take(&self, _: TargetId, over: Epoch) -> Result<Epoch, KeeperError> {
        lock(&self.asked).send(()).unwrap();
        lock(&self.go_on).recv().unwrap();
        *lock(&self.is_owned) = true;
        match self.node.upgrade().filter(|node| !*lock(&node.is_stopping)) {
            Some(_) => Ok(Epoch(over.0 + 1)),
            None => Err(KeeperError::Silent("nothing comes back".to_owned())),
        }
    }

    fn leave(&self, targets: &[TargetId]) -> Result<(), KeeperError> {
        assert_eq!(targets, [TargetId::MGT]);
        *lock(&self.is_owned) = false;
        Ok(())
    }

    fn give_back(&self, target: TargetId) -> Result<(), KeeperError> {
        match self.node.upgrade().filter(|node| !*lock(&node.is_stopping)) {
            Some(_) => self.leave(&[target]),
            None => Err(KeeperError::Silent("nothing comes back".to_owned())),
        }
    }

    fn identity(&self) -> Result<String, KeeperError> {
        Ok("slow".to_owned())
    }

    fn silence(&self) -> WhenSilent {
        WhenSilent::ServesOn
    }

    fn name(&self) -> &str {
        "the keeper"
    }
}

/// The session that gives a target back has to live until then, and the stop waits for it.
#[test]
fn a_stop_during_a_takeover_leaves_nothing_owned() {
    let dir = tempfile::tempdir().unwrap();
    let label = make_target(&dir.path().join("mgs"));
    let node = node(1);
    let (asked_sender, asked) = mpsc::channel();
    let (go_on, go_on_receiver) = mpsc::channel();
    let is_owned = Arc::new(Mutex::new(false));
    let keeper = Slow {
        node: Arc::downgrade(&node),
        asked: Mutex::new(asked_sender),
        go_on: Mutex::new(go_on_receiver),
        is_owned: Arc::clone(&is_owned),
    };
    let failover = Failover::of_one(&node, label.clone(), Box::new(keeper));
    assert!(node.failover.set(Arc::clone(&failover)).is_ok());
    let taking = {
        let failover = Arc::clone(&failover);
        std::thread::spawn(move || failover.confirm(&label.id.to_string(), Epoch(0)).unwrap())
    };
    asked.recv().unwrap();
    let stopping = {
        let node = Arc::clone(&node);
        std::thread::spawn(move || node.stop())
    };
    until("the stop has begun", || failover.is_ending() || *lock(&node.is_stopping));
    go_on.send(()).unwrap();
    let taken = taking.join().unwrap();
    stopping.join().unwrap();
    assert!(taken.is_err_and(|error| error.to_string() == "this process ends"));
    assert!(!*lock(&is_owned), "whoever comes next need fence nobody");
    assert_eq!(node.targets.iter().count(), 0, "and nothing was opened");
}

/// What its targets hold is synced for as long as that takes: whoever stands by is not to fence it meanwhile.
#[test]
fn a_server_that_ends_renews_its_leases_until_all_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mgt = make_target(&dir.path().join("mgs"));
    let router = Router::new();
    let address = router.listen("127.0.0.1:0").unwrap().to_string();
    let targets = Targets::awaited(1, Vec::new());
    let at = || vec![address.clone()];
    let mgs = Node::new(router, Timer::start(), targets, true, at(), None, at());
    mgs.serve_one_more(0, target_dir::open(&mgt.path).unwrap(), None).unwrap();

    let path = dir.path().join("ost");
    target_dir::make(&path, TargetId::ost(0), "fs", &at()).unwrap();
    let label = target_dir::peek(&path).unwrap();
    let targets = Targets::awaited(1, Vec::new());
    let server = Node::new(Router::new(), Timer::start(), targets, true, Vec::new(), None, at());
    server.follow_config("fs", Vec::new());
    let failover = Failover::of_one_by_mgs(&server, label);
    assert!(server.failover.set(Arc::clone(&failover)).is_ok());
    until("it owns its target", || failover.keeper().take(TargetId::ost(0), Epoch(0)).is_ok());
    // As a device that is slow.
    let telling = lock(&server.telling);
    let stopping = {
        let server = Arc::clone(&server);
        std::thread::spawn(move || server.stop())
    };
    until("its session has ended", || *lock(&server.is_stopping));
    let is_kept = || {
        let answer = failover.keeper().keep(&[TargetId::ost(0)], &[]);
        answer.is_ok_and(|kept| kept.iter().all(|kept| kept.owner.is_some() && !kept.has_lapsed))
    };
    until("its lease is renewed", is_kept);
    drop(telling);
    stopping.join().unwrap();
    mgs.stop();
}

/// Who tells targets of clients that are gone waits for each machine, and holds up nobody else.
#[test]
fn a_target_is_taken_over_beside_one_that_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| make_target(&dir.path().join(name)));
    let node = node(2);
    node.serve_one_more(0, target_dir::open(&first.path).unwrap(), None).unwrap();
    let (entered_sender, entered) = mpsc::channel();
    let (go_on, go_on_receiver) = mpsc::channel::<()>();
    let stuck = {
        let node = Arc::clone(&node);
        std::thread::spawn(move || {
            let target = node.targets.iter().next().unwrap();
            let Served::Mgs(owner) = &target.served else { panic!("it is a management server") };
            owner.with(|_| {
                entered_sender.send(()).unwrap();
                go_on_receiver.recv().unwrap();
            });
        })
    };
    entered.recv().unwrap();
    start::start_telling_departed(&node).unwrap();
    until("it waits for the machine", || node.telling.try_lock().is_err());
    let (taken_sender, taken) = mpsc::channel();
    let taking = {
        let node = Arc::clone(&node);
        let dir = target_dir::open(&second.path).unwrap();
        std::thread::spawn(move || taken_sender.send(node.serve_one_more(1, dir, None).is_ok()).unwrap())
    };
    let is_taken = taken.recv_timeout(Duration::from_secs(60));
    go_on.send(()).unwrap();
    assert_eq!(is_taken, Ok(true));
    assert_eq!(node.targets.iter().count(), 2);
    stuck.join().unwrap();
    taking.join().unwrap();
    node.stop();
}

fn config(version: u64) -> ClusterConfig {
    ClusterConfig { version, fsname: "fs".to_owned(), ..ClusterConfig::default() }
}

/// A mount that is being made is in no list yet.
#[test]
fn who_has_just_come_is_told_of_the_configurations_that_have_come_meanwhile() {
    let node = node(0);
    node.on_config(config(5));
    let (known, told) = node.told().unwrap();
    assert_eq!(known.version, 5);
    let tell = |since| {
        let seen = Mutex::new(Vec::new());
        node.tell_since(since, |config| {
            lock(&seen).push(config.version);
            // The management server is an older copy of itself by now.
            if lock(&seen).len() == 1 {
                node.on_config(self::config(4));
            }
        });
        seen.into_inner().unwrap()
    };
    assert!(tell(told).is_empty(), "nothing has come");
    node.on_config(config(6));
    assert_eq!(tell(told), [6, 4], "and what comes while it is told");
}

/// One thread applies them, so those of an older configuration never come after those of a newer one.
#[test]
fn parameters_are_in_force_when_they_were_waited_for() {
    let node = node(0);
    node.start_applying().unwrap();
    for version in [7, 3] {
        node.on_config(config(version));
        node.wait_for_params().unwrap();
        assert_eq!(node.config_version(), version);
    }
}

/// It refuses everything until its process has ended.
#[test]
fn a_forced_end_does_not_wait_for_a_target_of_this_process_that_has_failed() {
    let refused = targets::Refused {
        name: "MDT0001".to_owned(),
        fsname: "fs".to_owned(),
        path: PathBuf::from("/data/mdt0001"),
        why: "its index is damaged".to_owned(),
    };
    for (refused, leave, wanted) in
        [(vec![refused], Leave::Cut, unsaved::WITHOUT_FAILED), (Vec::new(), Leave::Cut, unsaved::STOPPING)]
    {
        let targets = Targets::awaited(0, refused);
        let node = Node::new(Router::new(), Timer::start(), targets, true, Vec::new(), None, Vec::new());
        assert_eq!(node.patience_at_end(leave), wanted);
        assert_eq!(node.patience_at_end(Leave::Stop), unsaved::STOPPING, "nothing is to be lost");
    }
}

/// Gives nothing, and notes for which epochs it was asked.
#[derive(Default)]
struct Gives {
    /// It gives all that it is asked for, and this is what comes back.
    given_back: Option<Arc<Mutex<Vec<TargetId>>>>,
    /// Says this of the target; `None`: it is not heard.
    says: Option<Ownership>,
    asked: Arc<Mutex<Vec<Epoch>>>,
    /// Where the storage says who owned it.
    owned: PathBuf,
}

impl Keeper for Gives {
    fn keep(&self, _: &[TargetId], _: &[TargetId]) -> Result<Vec<Ownership>, KeeperError> {
        let silent = || KeeperError::Silent("nothing comes back".to_owned());
        self.says.clone().map(|said| vec![said]).ok_or_else(silent)
    }

    fn take(&self, target: TargetId, over: Epoch) -> Result<Epoch, KeeperError> {
        let owned = std::fs::read_to_string(&self.owned).unwrap();
        assert_eq!(
            owned.trim(),
            (over.0 + 1).to_string(),
            "it is known to the storage before it is asked for"
        );
        lock(&self.asked).push(over);
        if self.given_back.is_some() {
            return Ok(Epoch(over.0 + 1));
        }
        Err(KeeperError::Denied { target, over })
    }

    fn leave(&self, _: &[TargetId]) -> Result<(), KeeperError> {
        Ok(())
    }

    fn give_back(&self, target: TargetId) -> Result<(), KeeperError> {
        self.given_back.iter().for_each(|given_back| lock(given_back).push(target));
        Ok(())
    }

    fn identity(&self) -> Result<String, KeeperError> {
        Ok("gives".to_owned())
    }

    fn silence(&self) -> WhenSilent {
        WhenSilent::ServesOn
    }

    fn name(&self) -> &str {
        "the keeper"
    }
}

/// An OST that another server owned last, with this epoch. Whatever this process has seen of it, it is not renewed.
struct Standby {
    dir: tempfile::TempDir,
    path: PathBuf,
    label: Label,
    seen: Ownership,
}

impl Standby {
    /// `stored`: what its storage says.
    fn new(stored: Option<&str>, known: u64) -> Standby {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ost");
        target_dir::make(&path, TargetId::ost(0), "fs", &["127.0.0.1:7988".to_owned()]).unwrap();
        std::fs::write(path.join("coordinator"), "gives\n").unwrap();
        if let Some(stored) = stored {
            std::fs::write(path.join("owned"), stored).unwrap();
        }
        let label = target_dir::peek(&path).unwrap();
        let (nid, host) = ("there:1".to_owned(), "there".to_owned());
        let owner = wire::TargetOwner { server: 2, nid, host, pid: 2 };
        let seen = Ownership { target: label.id, epoch: Epoch(known), owner: Some(owner), has_lapsed: true };
        Standby { dir, path, label, seen }
    }

    /// -> What `act` leads to, and for which epochs the keeper was asked.
    fn with_failover<T>(
        &self,
        says: Option<Ownership>,
        fence_command: Option<String>,
        act: impl FnOnce(&Failover) -> T,
    ) -> (T, Vec<Epoch>) {
        let (node, asked) = (node(1), Arc::default());
        let owned = self.path.join("owned");
        let gives = Gives { says, asked: Arc::clone(&asked), owned, ..Gives::default() };
        let (label, seen) = (self.label.clone(), self.seen.clone());
        let failover = Failover::of_one_seen(&node, label, Box::new(gives), seen, fence_command);
        let done = act(&failover);
        let asked = lock(&asked).clone();
        (done, asked)
    }
}

/// What an operator's word for the epoch `said` leads to, and for which epochs the keeper was asked.
fn confirmed(stored: Option<&str>, known: u64, said: u64) -> (String, Vec<Epoch>) {
    let standby = Standby::new(stored, known);
    let before = names_and_bytes(&standby.path);
    let confirm = |failover: &Failover| failover.confirm("fs-OST0000", Epoch(said)).unwrap().unwrap_err();
    let (error, asked) = standby.with_failover(None, None, confirm);
    // Whoever was given that epoch instead may write to another half of a mirror.
    assert!(before == names_and_bytes(&standby.path), "something is left of an ownership that was not given");
    (format!("{error:#}"), asked)
}

fn names_and_bytes(path: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let mut found: Vec<_> =
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap_or_default())).collect();
    found.sort();
    found
}

/// What was said of an earlier owner is not said of the one after it, which may be alive.
#[test]
fn an_operators_word_is_for_the_owner_that_it_was_said_of() {
    let (error, asked) = confirmed(Some("4\n"), 4, 3);
    assert!(error.contains("owned with epoch 4 and not with 3"), "{error}");
    assert_eq!(asked, []);
    assert_eq!(confirmed(Some("4\n"), 4, 4).1, [Epoch(4)]);
}

/// The owner of epoch 4 has written elsewhere: this is an older copy, or one half of a mirror.
#[test]
fn storage_that_the_last_owner_did_not_write_to_is_not_served() {
    let (error, asked) = confirmed(Some("3\n"), 4, 4);
    assert!(error.contains("was owned last with epoch 3") && error.contains("epoch 4"), "{error}");
    assert_eq!(asked, []);
    assert_eq!(confirmed(Some("what"), 4, 4).1, [], "damaged");
    // Of before there was such a file.
    assert_eq!(confirmed(None, 4, 4).1, [Epoch(4)]);
}

/// The management server was made anew, or restored from a copy of when nobody owned the target: who owned it since, and may be cut off, it
/// does not know.
#[test]
fn an_owner_that_the_keeper_has_forgotten_is_not_replaced_without_a_word() {
    let nobody = |epoch| Ownership {
        epoch: Epoch(epoch),
        owner: None,
        has_lapsed: false,
        ..Standby::new(None, 0).seen
    };
    let attempt = |files: &[(&str, &str)], seen: Ownership, said: Option<u64>| {
        let mut standby = Standby::new(None, 0);
        files.iter().for_each(|(name, epoch)| std::fs::write(standby.path.join(name), epoch).unwrap());
        let fenced = standby.dir.path().join("fenced");
        standby.seen = seen.clone();
        let before = names_and_bytes(&standby.path);
        let (error, asked) =
            standby.with_failover(Some(seen), Some(format!("touch '{}'", fenced.display())), |failover| {
                match said {
                    Some(said) => failover.confirm("fs-OST0000", Epoch(said)).unwrap().unwrap_err(),
                    None => failover.try_first().unwrap_err(),
                }
            });
        assert!(before == names_and_bytes(&standby.path), "nothing is written");
        assert!(!fenced.exists(), "nobody is fenced");
        (format!("{error:#}"), asked)
    };
    let both = [("owned", "5\n"), ("taken", "5\n")];
    for (files, known) in [(&both[..], 0), (&both[..], 3), (&both[..], 4), (&both[..1], 3)] {
        let (error, asked) = attempt(files, nobody(known), None);
        let command = format!("sheen failover fs-OST0000 --fenced --epoch {known}");
        assert!(error.contains("with epoch 5") && error.contains(&command), "{error}");
        assert_eq!(asked, [], "{files:?} {known}");
        assert_eq!(attempt(files, nobody(known), Some(known)).1, [Epoch(known)], "an operator knows");
    }
    let elsewhere = [both[0], both[1], ("coordinator", "another\n")];
    let error = attempt(&elsewhere, nobody(0), None).0;
    assert!(error.contains("asks another coordinator (gives) than those before it (another)"), "{error}");
    // The owner that it knows of is not the last one.
    let lapsed = Ownership { epoch: Epoch(4), ..Standby::new(None, 4).seen };
    assert_eq!(attempt(&both, lapsed, None).1, []);
    // The last one was asked for, and not given.
    let asked_for = [("owned", "6\n"), ("taken", "5\n")];
    assert_eq!(attempt(&asked_for, nobody(5), None).1, [Epoch(5)]);
    // Another standby was denied it, and has put back what it had found.
    let put_back = [("owned", "5\n"), ("taken", "6\n")];
    assert_eq!(attempt(&put_back, nobody(6), None).1, [Epoch(6)]);
    // Of before the file `taken`.
    assert_eq!(attempt(&both[..1], nobody(5), None).1, [Epoch(5)]);
}

/// It had been told so before it was cut off, and went on fencing the owner each time that this came back.
#[test]
fn nobody_is_fenced_for_what_was_seen_and_is_not_so_any_more() {
    let standby = Standby::new(Some("4\n"), 4);
    let fenced = standby.dir.path().join("fenced");
    let attempt = |says: Option<Ownership>| {
        let command = Some(format!("touch '{}'", fenced.display()));
        standby.with_failover(says, command, |failover| failover.try_first())
    };
    let (result, asked) = attempt(None);
    assert!(!fenced.exists() && asked.is_empty());
    assert_eq!(result.unwrap_err().to_string(), "nothing comes back", "an operator is told");
    let lapsed = || standby.seen.clone();
    for (says, why) in [
        (Ownership { has_lapsed: false, ..lapsed() }, "it renews its lease again"),
        (Ownership { epoch: Epoch(5), ..lapsed() }, "it is another owner"),
        (Ownership { owner: None, has_lapsed: false, ..lapsed() }, "it has left"),
    ] {
        let (result, asked) = attempt(Some(says));
        assert!(!result.unwrap(), "{why}");
        assert!(!fenced.exists() && asked.is_empty(), "{why}");
    }
    let (result, asked) = attempt(Some(lapsed()));
    assert!(result.is_err(), "the keeper gives nothing");
    assert!(fenced.exists());
    assert_eq!(asked, [Epoch(4)]);
}

/// The machine that would switch the owner off does not answer, so that somebody has pulled its plug.
#[test]
fn an_operators_word_ends_a_fence_command_that_hangs() {
    let standby = Standby::new(Some("4\n"), 4);
    let begun = standby.dir.path().join("begun");
    let command = format!("touch '{}'; sleep 1000", begun.display());
    let attempt = |failover: &Failover| {
        std::thread::scope(|scope| {
            let fencing = scope.spawn(|| failover.try_first());
            until("the fence command runs", || begun.exists());
            // That of another owner ends nothing, and is answered at once.
            let mistyped = failover.confirm("fs-OST0000", Epoch(3)).unwrap().unwrap_err().to_string();
            let said = failover.confirm("fs-OST0000", Epoch(4)).unwrap();
            let ended = [said.map(drop), fencing.join().unwrap().map(drop)]
                .map(|result| format!("{:#}", result.unwrap_err()));
            (mistyped, ended)
        })
    };
    let ((mistyped, [said, of_fencing]), asked) =
        standby.with_failover(Some(standby.seen.clone()), Some(command), attempt);
    assert!(mistyped.contains("owned with epoch 4 and not with 3"), "{mistyped}");
    // The keeper of these tests gives nothing.
    assert!(said.contains("is not given") && of_fencing.contains("is not given"), "{said}; {of_fencing}");
    assert_eq!(asked, [Epoch(4), Epoch(4)]);
}

/// An OST that this process is given, and the targets that it has given back.
struct Given {
    standby: Standby,
    failover: Arc<Failover>,
    given_back: Arc<Mutex<Vec<TargetId>>>,
    _node: Arc<Node>,
}

impl Given {
    fn new() -> Given {
        let standby = Standby::new(None, 0);
        let given_back = Arc::<Mutex<Vec<TargetId>>>::default();
        let owned = standby.path.join("owned");
        let gives = Gives { owned, given_back: Some(Arc::clone(&given_back)), ..Gives::default() };
        let node = node(1);
        let failover = Failover::of_one(&node, standby.label.clone(), Box::new(gives));
        std::fs::create_dir_all(standby.path.join("meta")).unwrap();
        Given { standby, failover, given_back, _node: node }
    }

    fn index(&self) -> PathBuf {
        self.standby.path.join("meta/index")
    }

    /// The next line that is written for the directory goes to a device that refuses each fsync(2).
    fn fail_next_sync(&self) {
        std::os::unix::fs::symlink("/dev/null", self.standby.path.join("taken.new")).unwrap();
    }

    fn fail_to_open(&self) -> (String, Vec<TargetId>) {
        let error = self.failover.try_first().unwrap_err();
        (format!("{error:#}"), lock(&self.given_back).clone())
    }
}

/// What its device failed to keep the kernel of this machine may write later: then who takes over has to fence this server. What is damaged is so
/// for everybody, and no reason to; nor is that nothing can be opened. Else healthy servers would be fenced in turn for one bad sector.
#[test]
fn a_target_is_given_back_unless_its_device_failed_to_keep_something() {
    let ost = TargetId::ost(0);
    let is_given_back = |begin: &dyn Fn(&Given)| {
        let given = Given::new();
        begin(&given);
        let (error, given_back) = given.fail_to_open();
        assert!(given_back.is_empty() || given_back == [ost], "{given_back:?}");
        (!given_back.is_empty(), error)
    };
    let (is_back, error) = is_given_back(&|given| std::fs::write(given.index(), "what").unwrap());
    assert!(is_back, "damaged: {error}");
    let (is_back, error) = is_given_back(&|given| {
        std::os::unix::fs::symlink("log", given.index().with_file_name("log")).unwrap();
    });
    assert!(is_back, "cannot be opened: {error}");
    let (is_back, error) = is_given_back(&Given::fail_next_sync);
    assert!(!is_back && error.contains("cannot write to"), "not kept: {error}");
}

/// The kernel still has what its device failed to keep before, and whoever had the target next would open it beside that.
#[test]
fn what_was_left_unkept_is_not_given_back_by_the_next_attempt() {
    let given = Given::new();
    given.fail_next_sync();
    assert_eq!(given.fail_to_open().1, []);
    std::fs::remove_file(given.standby.path.join("taken.new")).unwrap();
    std::fs::write(given.index(), "what").unwrap();
    let (error, given_back) = given.fail_to_open();
    assert!(error.contains("is damaged") && given_back.is_empty(), "{error}; {given_back:?}");
}

/// It had asked the keeper before the other one did, and looked into the storage after.
#[test]
fn a_race_for_a_target_that_is_lost_is_no_loss_of_the_keeper() {
    let mut standby = Standby::new(Some("6\n"), 5);
    std::fs::write(standby.path.join("taken"), "6\n").unwrap();
    let fenced = standby.dir.path().join("fenced");
    let lapsed = standby.seen.clone();
    let won = Ownership { epoch: Epoch(6), has_lapsed: false, ..lapsed.clone() };
    for seen in [Ownership { owner: None, has_lapsed: false, ..lapsed.clone() }, lapsed] {
        standby.seen = seen.clone();
        let command = Some(format!("touch '{}'", fenced.display()));
        let attempt = |failover: &Failover| (failover.try_first(), failover.standbys("here:1"));
        let ((result, standbys), asked) = standby.with_failover(Some(won.clone()), command.clone(), attempt);
        assert!(!result.unwrap(), "{seen:?}");
        assert_eq!(standbys.iter().find_map(|target| target.alert.as_deref()), None);
        assert!(!fenced.exists() && asked.is_empty(), "{seen:?}");
        // One that says the same when it is asked again has forgotten an owner.
        let attempt = |failover: &Failover| failover.try_first().unwrap_err();
        let (error, asked) = standby.with_failover(Some(seen), command, attempt);
        assert!(error.to_string().contains("was made anew or restored") && asked.is_empty(), "{error:#}");
        assert!(!fenced.exists());
    }
}
