//! Names of parameters: `/` between their parts inside, dots outside.

use crate::spelling::distance;

/// How many names are proposed.
const ALIKE_COUNT: usize = 3;

pub fn join(instance: &str, name: &str) -> String {
    match (instance, name) {
        ("", name) => name.to_owned(),
        (instance, "") => instance.to_owned(),
        (instance, name) => format!("{instance}/{name}"),
    }
}

/// As operators write it.
pub fn shown(name: &str) -> String {
    name.replace('/', ".")
}

/// Those that look most like what was written: the same last part first, then the fewest changes.
pub fn alike(written: &str, paths: &[&str]) -> Vec<String> {
    let last = |path: &str| path.rsplit(['.', '/']).next().unwrap_or_default().to_owned();
    let wanted = last(written);
    if wanted.len() < 3 {
        return Vec::new();
    }
    let mut rated: Vec<(usize, &str)> = paths
        .iter()
        .map(|path| (2 * distance(&wanted, &last(path)) + distance(written, path) / 2, *path))
        .filter(|(_, path)| distance(&wanted, &last(path)) <= wanted.len().max(6) / 3)
        .collect();
    rated.sort();
    rated.dedup_by_key(|(_, path)| *path);
    rated.into_iter().take(ALIKE_COUNT).map(|(_, path)| path.to_owned()).collect()
}
