//! The nearest known name to one that is not known.

/// The name of `known` nearest to `name`, if one is near enough to be a likely slip of the keyboard:
/// at most a third of its letters differ, counting a swap of neighbours as one, `-` as `_` and no letter case.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = normal(name);
    known
        .into_iter()
        .map(|candidate| (distance(&name, &normal(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count().max(name.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letter case and the choice between `-` and `_` are not what makes a name different.
fn normal(name: &str) -> Vec<char> {
    name.chars()
        .map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() })
        .collect()
}

/// Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let mut before_last: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1; width];
        for (j, &y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            row[j + 1] = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: slips of the keyboard, a swap, a hyphen, a wrong case, and a word that is near nothing.
    /// Guarantees: the intended key is found, and no guess is made where none is likely.
    #[test]
    fn the_intended_key_is_found() {
        let known = [
            "endpoint",
            "tls",
            "timeout",
            "sending_queue",
            "max_recv_msg_size_mib",
        ];
        assert_eq!(nearest("endpont", known), Some("endpoint"));
        assert_eq!(nearest("endpiont", known), Some("endpoint"));
        assert_eq!(nearest("Timeout", known), Some("timeout"));
        assert_eq!(nearest("sending-queue", known), Some("sending_queue"));
        assert_eq!(nearest("tlss", known), Some("tls"));
        assert_eq!(
            nearest("max_recv_msg_size_mb", known),
            Some("max_recv_msg_size_mib")
        );
        assert_eq!(nearest("kafka", known), None);
        assert_eq!(nearest("", known), None);
    }
}
