#![allow(clippy::unwrap_used)]

use super::*;

/// What stands in for a machine. `chroot` is the client, which mounts once there are servers.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "chroot",
        "case $* in *'image hold'*) echo \"$*\" >>held; exit ;; */.make*) exit 1 ;; esac
        echo client >>said; cp place/client/etc/resolv.conf names; [ -e servers ] && echo x place/image >>mounts",
    ),
    (
        "mount.util-linux",
        "case \"$*\" in *sheen-changes*) [ -e room ] || exit 1 ;; *bind* | *make*) exit 0 ;; esac
        for where in \"$@\"; do :; done; mkdir -p \"$where\"; echo x \"$where\" >>mounts",
    ),
    ("modprobe", ""),
    ("umount", "echo \"$*\" >>unmounted"),
];
/// What the init of a node brings, and who is at its shell: the first time he plugs the cable in and starts the servers, the second time there
/// is room.
const INIT: &str = r#"
rootmnt=root panics=0
wait_for_udev() { :; }
log_begin_msg() { :; }
log_end_msg() { :; }
log_failure_msg() { echo "$*" >>said; }
log_warning_msg() { log_failure_msg "$*"; }
# A part of a script alone.
[ -z "$PART" ] || { eval "$PART"; exit; }
configure_networking()
{
	[ ! -e net-eth0.conf ] || return 0
	echo network >>said
	[ -e cable ] && printf 'IPV4ADDR=10.0.2.15\nIPV4DNS0=10.0.2.3\nIPV4DNS1=0.0.0.0\n' >net-eth0.conf
	. ./net-eth0.conf
}
panic()
{
	panics=$((panics + 1))
	echo "shell $panics" >>said
	case $panics in
	1) echo IPV4ADDR=0.0.0.0 >net-eth0.conf; echo 'nameserver 10.9.9.9' >>etc/resolv.conf; : >cable; : >servers ;;
	2) : >room ;;
	*) exit 9 ;;
	esac
}
mountroot
wait
"#;

/// Runs the script of the initramfs in a directory, or only a part of it.
fn run(dir: &Path, part: &str) {
    let mut script = fs::read_to_string(workspace::root().unwrap().join("packaging/initramfs/boot")).unwrap();
    for (from, to) in [
        ("sheen_place=/run/initramfs/sheen", "sheen_place=place"),
        ("/run/net-", "./net-"),
        ("units=/run/systemd", "units=./systemd"),
        ("/etc/resolv.conf", "etc/resolv.conf"),
        ("/etc/$file", "etc/$file"),
        ("/proc/cmdline", "cmdline"),
        ("/proc/mounts", "mounts"),
        ("/conf/sheen-libraries", "libraries"),
        ("cp /usr/bin/sheen", "cp cmdline"),
    ] {
        script = script.replace(from, to);
    }
    fs::write(dir.join("script"), script + INIT).unwrap();
    fs::write(dir.join("cmdline"), "sheenroot=10.0.2.2@tcp:/fs/images/node\n").unwrap();
    for empty in ["libraries", "mounts", "said"] {
        fs::write(dir.join(empty), "").unwrap();
    }
    for new in ["bin", "etc"] {
        fs::create_dir(dir.join(new)).unwrap();
    }
    for (name, text) in PROGRAMS {
        let path = dir.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}/bin:{}", dir.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.arg("script").current_dir(dir).env("PATH", path).env("PART", part);
    let ended = command.output().unwrap();
    let said = fs::read_to_string(dir.join("said")).unwrap();
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
}

/// Whoever leaves the shell has done something about it: about the network, about names, or about the servers.
#[test]
fn each_attempt_of_a_node_asks_for_the_network_anew_and_mounts_what_is_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "");
    let [said, names, held] =
        ["said", "names", "held"].map(|name| fs::read_to_string(dir.path().join(name)).unwrap());
    let lines: Vec<&str> = said.lines().collect();
    let image = "sheen: the image 10.0.2.2@tcp:/fs/images/node cannot be mounted; the reason stands above";
    let wanted = [
        "network",
        "client",
        image,
        "shell 1",
        "network",
        "client",
        "sheen: no overlay over the image",
        "shell 2",
    ];
    assert_eq!(lines, wanted);
    assert_eq!(names, "nameserver 10.9.9.9\nnameserver 10.0.2.3\n");
    // From the mount on, once, and by the client's own program: nothing of the image is needed for it.
    assert_eq!(held, "place/client /bin/sheen image hold place/image\n");
}

#[test]
fn networkd_is_told_to_keep_the_address_that_the_root_needs() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("eth0", "DEVICE='eth0'\nPROTO='dhcp'\nIPV4ADDR='10.0.2.15'\n"),
        ("eth1", "DEVICE=eth1\nPROTO=none\nIPV4ADDR=10.0.3.1\n"),
        ("eth2", "DEVICE=eth2\nPROTO=dhcp\nIPV4ADDR=0.0.0.0\n"),
    ] {
        fs::write(dir.path().join(format!("net-{name}.conf")), text).unwrap();
    }
    run(dir.path(), "sheen_keep_network");
    let units = dir.path().join("systemd/network");
    let lines = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(units.join(format!("00-sheen-{name}.network"))).unwrap();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let end = ["KeepConfiguration=yes", "[DHCPv4]", "ClientIdentifier=mac"];
    assert_eq!(lines("eth0"), [&["[Match]", "Name=eth0", "[Network]", "DHCP=ipv4"][..], &end].concat());
    assert_eq!(lines("eth1"), [&["[Match]", "Name=eth1", "[Network]"][..], &end].concat());
    assert_eq!(fs::read_dir(&units).unwrap().count(), 2);
}

#[test]
fn what_the_image_says_of_that_interface_counts() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("net-eth0.conf"), "DEVICE='eth0'\nPROTO='dhcp'\nIPV4ADDR='10.0.2.15'\n")
        .unwrap();
    let of_image = |place: &str, name: &str, text: &str| {
        let place = dir.path().join("root").join(place).join("systemd/network");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(format!("{name}.network")), text).unwrap();
    };
    of_image("etc", "10-other", "[Match]\nName=wg0 eth1\n[Network]\nName=eth0\n");
    of_image("lib", "80-wifi", "[Match]\nType=wlan\nWLANInterfaceType=ap\n");
    of_image("lib", "85-empty", "[Network]\nDHCP=yes\n");
    let names = || -> Vec<String> {
        let found = fs::read_dir(dir.path().join("systemd/network")).unwrap();
        let mut found: Vec<String> = found.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        found.sort();
        found
    };
    let again = || {
        for made in ["systemd", "bin", "etc"] {
            fs::remove_dir_all(dir.path().join(made)).unwrap();
        }
    };
    run(dir.path(), "sheen_keep_network");
    assert_eq!(names(), ["00-sheen-eth0.network"], "it says nothing of it");
    again();
    of_image("etc", "20-lan", "# Ours\n[Match]\n# all\nName = wg0 e*\n[Network]\nDHCP=yes\nVLAN=storage\n");
    of_image("usr/lib", "30-card", "[Match]\nMACAddress=52:54:00:12:34:56\nType=ether wlan");
    of_image("usr/lib", "40-not", "[Match]\nName=!wg*\n");
    run(dir.path(), "sheen_keep_network");
    let wanted = ["20-lan.network.d", "30-card.network.d", "40-not.network.d", "zz-sheen-eth0.network"];
    assert_eq!(names(), wanted);
    let added =
        fs::read_to_string(dir.path().join("systemd/network/20-lan.network.d/00-sheen.conf")).unwrap();
    assert_eq!(added, "[Network]\nKeepConfiguration=yes\n[DHCPv4]\nClientIdentifier=mac\n");
}

#[test]
fn a_half_root_that_cannot_be_filled_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::create_dir(dir.path().join("root/mnt")).unwrap();
    let part =
        "sheen_paths=cmdline sheen_half=default sheen_half_port=0 sheen_half_console=; ! sheen_half_root";
    run(dir.path(), part);
    let unmounted = fs::read_to_string(dir.path().join("unmounted")).unwrap();
    assert_eq!(unmounted.lines().collect::<Vec<_>>(), ["root/dev", "root/mnt", "place/half"]);
}

/// A node may run for years.
#[test]
fn a_login_that_always_fails_fills_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut script =
        fs::read_to_string(workspace::root().unwrap().join("packaging/initramfs/halfroot")).unwrap();
    for (from, to) in [
        ("PATH=/usr/sbin:", "PATH=$PWD/bin:/usr/sbin:"),
        ("/usr/sbin/sshd", "./bin/sshd"),
        ("/run/sshd", "./run"),
        ("log=/run/initramfs/sheen/", "log=./"),
    ] {
        script = script.replace(from, to);
    }
    fs::create_dir(dir.path().join("bin")).unwrap();
    let programs = [
        ("sshd", "seq 600"),
        // The node is off after the eighth pause; nobody looks at the log meanwhile but who starts the login.
        ("sleep", "[ $1 != 300 ] || exit 1; echo $1 >>pauses; [ $(wc -l <pauses) -lt 8 ] || kill $PPID"),
    ];
    for (name, text) in programs {
        let path = dir.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(dir.path().join("script"), script).unwrap();
    let log = fs::File::options().create(true).append(true).open(dir.path().join("half-sshd.log")).unwrap();
    let mut command = Command::new("sh");
    command.args(["script", "keep", "sshd", "2222"]).current_dir(dir.path()).stdout(log);
    command.output().unwrap();
    let lines = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap().lines().count();
    assert!(lines("half-sshd.log") <= 1600, "{} lines", lines("half-sshd.log"));
    let pauses = fs::read_to_string(dir.path().join("pauses")).unwrap();
    assert_eq!(pauses.lines().collect::<Vec<_>>(), ["10", "20", "40", "80", "160", "320", "320", "320"]);
}
