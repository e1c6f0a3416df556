//! Globs over parameter names: `*` and `?` stay within one part of a name, `[…]` is a set, `{a,b}` alternatives. A dot in
//! a pattern ends a part or is one inside of an instance's name.

use std::collections::BTreeSet;

/// Bytes of a pattern; alternatives are tried one after the other.
const PATTERN_BYTES_MAX: usize = 1024;
const ALTERNATIVES_MAX: usize = 256;

pub fn matches(pattern: &str, name: &str) -> bool {
    if pattern.len() > PATTERN_BYTES_MAX {
        return false;
    }
    // As in Lustre, `/` may stand for the dot.
    expand(&pattern.replace('/', ".")).iter().any(|pattern| one(pattern.as_bytes(), name.as_bytes()))
}

/// Whether the pattern can mean something of a declared path, in which `*` stands for any instance.
pub fn meets(pattern: &str, path: &str) -> bool {
    if pattern.len() > PATTERN_BYTES_MAX {
        return false;
    }
    let path = path.replace('.', "/");
    expand(&pattern.replace('/', ".")).iter().any(|pattern| both(pattern.as_bytes(), path.as_bytes()))
}

/// Whether two patterns have a name in common; the stars of the second do not reach over a dot either.
fn both(pattern: &[u8], path: &[u8]) -> bool {
    // Which positions of the pattern can be reached with the part of the path so far.
    let mut reached = closure(pattern, [0].into());
    for byte in path {
        let mut next = BTreeSet::new();
        for at in &reached {
            match byte {
                b'*' => {
                    // Any run of elements that stay within the part.
                    let mut at = *at;
                    next.insert(at);
                    while let Some(end) = element_end(pattern, at).filter(|_| pattern.get(at) != Some(&b'.'))
                    {
                        at = end;
                        next.insert(at);
                    }
                }
                byte => next.extend(after(pattern, *at, *byte)),
            }
        }
        reached = closure(pattern, next);
    }
    reached.contains(&pattern.len())
}

/// With the positions after stars that stand for nothing.
fn closure(pattern: &[u8], mut positions: BTreeSet<usize>) -> BTreeSet<usize> {
    let mut waiting: Vec<usize> = positions.iter().copied().collect();
    while let Some(at) = waiting.pop() {
        if pattern.get(at) == Some(&b'*') && positions.insert(at + 1) {
            waiting.push(at + 1);
        }
    }
    positions
}

/// Where the element at `at` ends.
fn element_end(pattern: &[u8], at: usize) -> Option<usize> {
    match pattern.get(at)? {
        b'[' => Some(at + 2 + pattern.get(at + 1..)?.iter().position(|byte| *byte == b']')?),
        _ => Some(at + 1),
    }
}

/// The patterns without braces.
fn expand(pattern: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut waiting = vec![pattern.to_owned()];
    while let Some(pattern) = waiting.pop() {
        let braces = pattern.find('{').and_then(|open| Some((open, open + pattern.get(open..)?.find('}')?)));
        match braces {
            Some((open, close)) if waiting.len() + done.len() < ALTERNATIVES_MAX => {
                let (before, after) = (&pattern[..open], &pattern[close + 1..]);
                let alternatives = pattern[open + 1..close].split(',');
                waiting.extend(alternatives.map(|alternative| format!("{before}{alternative}{after}")));
            }
            _ => done.push(pattern),
        }
    }
    done
}

/// All positions at once: a star stops at `/`, so that it may be one before the last that has to take more.
fn one(pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = closure(pattern, [0].into());
    for byte in name {
        let next = reached.iter().flat_map(|at| after(pattern, *at, *byte));
        reached = closure(pattern, next.collect());
    }
    reached.contains(&pattern.len())
}

/// Where the pattern may be after a byte of a name.
fn after(pattern: &[u8], at: usize, byte: u8) -> impl Iterator<Item = usize> {
    let stays = (pattern.get(at) == Some(&b'*') && byte != b'/').then_some(at);
    let goes_on = step(pattern, at, byte).filter(|(_, fits)| *fits).map(|(after, _)| after);
    stays.into_iter().chain(goes_on)
}

/// Whether one element of the pattern takes the byte, and where the next one begins.
fn step(pattern: &[u8], at: usize, byte: u8) -> Option<(usize, bool)> {
    match *pattern.get(at)? {
        b'*' => None,
        b'?' => Some((at + 1, byte != b'/')),
        b'.' => Some((at + 1, matches!(byte, b'.' | b'/'))),
        b'[' => {
            let close = at + 1 + pattern.get(at + 1..)?.iter().position(|byte| *byte == b']')?;
            let set = &pattern[at + 1..close];
            let is_range =
                |range: &[u8]| matches!(range, [low, b'-', high] if (*low..=*high).contains(&byte));
            Some((close + 1, set.contains(&byte) || set.windows(3).any(is_range)))
        }
        other => Some((at + 1, other == byte)),
    }
}
