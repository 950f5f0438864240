//! Units: UCUM's, as OTLP has them, to the words of Prometheus's names.

const UNITS: [(&str, &str); 25] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
];

/// Behind the `/` of a rate.
const PER_UNITS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

fn word<'a>(table: &[(&str, &'static str)], unit: &'a str) -> &'a str {
    table
        .iter()
        .find(|(known, _)| *known == unit)
        .map_or(unit, |(_, word)| word)
}

/// The word for the unit, empty when it has none, and the word for what it is per, if it is a rate. Annotations
/// (`{request}`) are no units.
pub(super) fn unit_suffixes(unit: &str) -> (&str, Option<&str>) {
    let (main, per) = match unit.split_once('/') {
        Some((main, per)) => (main, Some(per)),
        None => (unit, None),
    };
    let real = |part: &&str| !part.is_empty() && !part.contains(['{', '}']);
    let main = Some(main.trim())
        .filter(real)
        .map_or("", |main| if main == "1" { "" } else { word(&UNITS, main) });
    let per = per.map(str::trim).filter(real).map(|per| word(&PER_UNITS, per));
    (main, per)
}

/// A unit as a part of a legacy name: other characters become `_`, of which there is never more than one in a row, nor
/// one in front.
pub(super) fn clean_unit(unit: &str) -> String {
    let mut clean = String::with_capacity(unit.len());
    for c in unit.chars() {
        if c.is_ascii_alphanumeric() || c == ':' {
            clean.push(c);
        } else if !clean.is_empty() && !clean.ends_with('_') {
            clean.push('_');
        }
    }
    clean
}

/// The unit as metadata says it.
pub(crate) fn unit_of_metadata(unit: &str) -> String {
    let (main, per) = unit_suffixes(unit);
    let main = clean_unit(main);
    let per = per.map_or(String::new(), |per| clean_unit(&format!("per_{per}")));
    let both = match (main.is_empty(), per.is_empty()) {
        (false, false) => format!("{main}_{per}"),
        (false, true) => main,
        _ => per,
    };
    both.strip_suffix('_').map_or(both.clone(), str::to_owned)
}
