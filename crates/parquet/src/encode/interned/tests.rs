//! Texts that wait, and texts that are believed to be new.

use super::*;

/// The texts of a page.
fn texts_of(column: &mut Interned) -> Vec<String> {
    let page = column.finish(&mut Ending::default());
    let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
    match page.texts {
        PageTexts::Plain(plain) => plain.texts().map(text).collect(),
        PageTexts::Places(places, values) => {
            assert_eq!(values, column.dictionary.len());
            let value = |place: u32| text(column.dictionary.value(place));
            places.into_iter().map(value).collect()
        }
    }
}

/// Scenario: two owners' texts in turn, the one's new each time for so long that they are believed to be, and then all the same;
/// the other's a few.
/// Guarantees: every text comes back in its order; what is believed to be new has no slots; that it is not new any more is found
/// out within as many texts as are not looked up.
#[test]
fn new_texts_are_not_looked_up() {
    let mut column = Interned::in_lists();
    let mut pushed = Vec::new();
    let mut push = |column: &mut Interned, owner, text: String| {
        column.push_of(owner, text.as_bytes());
        pushed.push(text);
    };
    let known = UNIQUE as usize + 4000;
    for index in 0..known {
        push(&mut column, 1, format!("new {index}"));
        (0..3).for_each(|more| push(&mut column, 2, format!("few {}", (index + more) % 5)));
    }
    column.look_up_waiting();
    assert_eq!(column.dictionary.len(), known + 5);
    let listed = column.dictionary.listed();
    assert!(listed <= UNIQUE as usize + 4000 / SAMPLE as usize + 6, "{listed}");
    for _ in 0..1000 {
        push(&mut column, 1, "new 0".to_owned());
    }
    assert_eq!(texts_of(&mut column), pushed);
    assert!(column.dictionary.len() <= known + 5 + SAMPLE as usize);
}

/// Scenario: runs of one text, one of them not UTF-8, and texts that are new, so that the column gives its dictionary up.
/// Guarantees: every text comes back in its order, mended, and each that was mended is counted.
#[test]
fn what_waits_is_in_order() {
    let mut column = Interned::new();
    let mut expected = Vec::new();
    for (text, mended) in [(&b"one"[..], "one"), (b"b\xffd", "b\u{fffd}d"), (b"", "")] {
        (0..WAITING + 10).for_each(|_| column.push(text));
        expected.extend(std::iter::repeat_n(mended.to_owned(), WAITING + 10));
    }
    for index in 0..10 * TRIAL {
        let text = format!("{index}");
        column.push(text.as_bytes());
        expected.push(text);
    }
    assert!(!column.plan.looks_up());
    assert_eq!(column.repaired, WAITING as u64 + 10);
    assert_eq!(texts_of(&mut column), expected);
}
