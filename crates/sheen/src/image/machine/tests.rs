use super::*;

#[test]
fn mounts_from_disks_are_found_in_a_table() {
    let table = "# /dev/sda9 /commented ext4\n\
        UUID=1 / ext4 defaults 0 1\n\
        UUID=2 /usr ext4 ro,nofail 0 2\n\
        \t/dev/sda3\t/home ext4\n\
        LABEL=x /srv ext4 noatime,noauto 0 0\n\
        LABEL=y /data ext4 nofail 0 0\n\
        /dev/sda2 none swap sw 0 0\n\
        host:/export /nfs nfs defaults 0 0\n\
        tmpfs /tmp tmpfs defaults 0 0\n\
        word\n\n";
    assert_eq!(disks_of(table), [PathBuf::from("/usr"), PathBuf::from("/home")]);
    assert_eq!(disks_of(""), Vec::<PathBuf>::new());
}

#[test]
fn of_many_places_some_are_named() {
    let paths: Vec<PathBuf> = (0..10).map(|index| PathBuf::from(format!("/{index}"))).collect();
    assert_eq!(listed(&paths), "/0, /1, /2, /3, /4, /5, /6, /7 and 2 more");
    assert_eq!(listed(&paths[..2]), "/0, /1");
}
