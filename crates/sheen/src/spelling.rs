//! What somebody may have meant who wrote a word that is not known.

/// The known word that differs in the fewest letters, if few enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known = known.into_iter().map(|known| (distance(word, known), known));
    let near = known.min_by_key(|(distance, _)| *distance)?;
    (near.0 <= 2 && near.0 * 3 <= word.len()).then_some(near.1)
}

/// The known words that somebody may have meant, the likeliest first; three at most.
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let known = known.into_iter().map(|known| (distance(word, known), known));
    let mut near: Vec<(usize, &str)> =
        known.filter(|(distance, _)| *distance <= 2 && distance * 3 <= word.len()).collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.truncate(3);
    near.into_iter().map(|(_, known)| known).collect()
}

/// How many letters must be put in, taken out or replaced to get from one word to the other.
pub fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    // Nobody means a name that is longer than this.
    for (index, letter) in from.chars().take(256).enumerate() {
        let mut next = vec![index + 1];
        for (at, other) in to.iter().enumerate() {
            let replaced = row[at] + usize::from(letter != *other);
            next.push(replaced.min(row[at + 1] + 1).min(next[at] + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
