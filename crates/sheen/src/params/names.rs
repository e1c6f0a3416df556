//! Names of parameters: `/` between their parts inside, dots outside.

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

/// How many letters must be put in, taken out or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    // Nobody means a name that is longer than this.
    for (at, a) in from.chars().take(256).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (index, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[index + 1];
            row[index + 1] = changed.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[to.len()]
}
