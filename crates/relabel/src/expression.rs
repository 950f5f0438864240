//! Go's regular expressions in terms of the `regex` crate's.
//!
//! Both are of RE2's family, and differ in a few places: what Perl's classes mean outside of ASCII, `\Q...\E`, and what is
//! special inside of brackets.

use regex::Regex;

/// Memory that one compiled expression may take: the crate's default, stated because expressions come from configurations.
const MAX_COMPILED_BYTES: usize = 10 << 20;

/// Compiles an expression as Prometheus does: anchored at both ends, with `.` matching everything.
pub(crate) fn compile(expression: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(&format!("^(?s:{})$", translate(expression)))
        .size_limit(MAX_COMPILED_BYTES)
        .build()
}

fn translate(expression: &str) -> String {
    let mut out = String::with_capacity(expression.len() + 16);
    let mut rest = expression;
    let mut in_brackets = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if let Some(quoted) = rest.strip_prefix("\\Q").filter(|_| !in_brackets) {
            let (text, next) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            out.push_str(&regex::escape(text));
            rest = next;
            continue;
        }
        if c == '\\'
            && let Some(escaped) = after.chars().next()
        {
            out.push_str(&escape(escaped, in_brackets));
            rest = &after[escaped.len_utf8()..];
            continue;
        }
        rest = after;
        if !in_brackets {
            out.push(c);
            if c == '[' {
                in_brackets = true;
                // A bracket or a hyphen that comes first, be it behind a caret, is meant literally.
                let negated = rest.strip_prefix('^');
                if negated.is_some() {
                    out.push('^');
                }
                rest = negated.unwrap_or(rest);
                if let Some(first) = rest.strip_prefix([']', '-']) {
                    out.push('\\');
                    out.push_str(&rest[..1]);
                    rest = first;
                }
            }
            continue;
        }
        match c {
            ']' => {
                out.push(']');
                in_brackets = false;
            }
            '[' if rest.starts_with(':') => {
                // [:alpha:] and the like, which both know.
                let (name, next) = rest.split_once(":]").unwrap_or((rest, ""));
                out.push('[');
                out.push_str(name);
                out.push_str(":]");
                rest = next;
            }
            // Set operations of the crate: Go reads plain characters.
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '-' if rest.starts_with('-') => {
                out.push_str("-\\-");
                rest = &rest[1..];
            }
            c => out.push(c),
        }
    }
    out
}

/// What `\c` is.
fn escape(c: char, in_brackets: bool) -> String {
    let (class, negated) = match c {
        'd' | 'D' => ("0-9", c == 'D'),
        'w' | 'W' => ("0-9A-Za-z_", c == 'W'),
        's' | 'S' => ("\\t\\n\\f\\r ", c == 'S'),
        'b' | 'B' if !in_brackets => return format!("(?-u:\\{c})"),
        c => return format!("\\{c}"),
    };
    match (negated, in_brackets) {
        (true, _) => format!("[^{class}]"),
        (false, true) => class.to_owned(),
        (false, false) => format!("[{class}]"),
    }
}
