//! Finding item ids in the messages of remote write: a walk of its own, which takes any valid encoding.

use std::fmt;

use super::{ID_LABEL, RemoteWrite};
use crate::ids::ID_KEY;
use crate::spec::is_item_id;
use crate::walk::{Malformed, Value, next_field, varint};

/// What the account is told of a sample or native histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The item with this id: a sample of a gauge or counter, the `_count` of a classic histogram or summary,
    /// or a native histogram.
    Item(u64),
    /// The rest of an item that is counted by its `_count`: samples of `_bucket` with `le` (VictoriaMetrics: or `vmrange`),
    /// of `_sum`, and with `quantile`. Told by name and labels alone, so that it does not matter how a gateway splits requests;
    /// hence a gauge that is named like that is taken for a part as well.
    Part,
    /// An item with an id that no generator makes.
    Unmarked,
    /// Nothing that was sent as an item: it has no id at all, such as `target_info`.
    Beside,
}

/// How many of each kind are in a request, as the answer to 2.0 has to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Float samples.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
}

/// Why a body is no request that a receiver may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The series that it was found in, counted from 0; nothing if it was found outside of them.
    pub series: Option<usize>,
    /// What is wrong.
    pub problem: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.series {
            Some(number) => write!(f, "series {number}: {}", self.problem),
            None => f.write_str(self.problem),
        }
    }
}

impl std::error::Error for Invalid {}

struct Problem(&'static str);

impl From<Malformed> for Problem {
    fn from(_: Malformed) -> Self {
        Problem("not protobuf of this message")
    }
}

/// Calls `seen` once for every sample and every native histogram of an inflated request, in the order they
/// appear.
///
/// What Prometheus answers with 400 is an error: broken protobuf, a series without a name, a label without one
/// or with that of another, text that is no UTF-8; in 2.0 also references that lead nowhere, a table that does
/// not begin with the empty string, and series with both samples and histograms. Labels need not be sorted. What
/// stands in front of an error has been seen when it is returned.
pub fn for_each_sample(
    version: RemoteWrite,
    body: &[u8],
    mut seen: impl FnMut(Found),
) -> Result<Written, Invalid> {
    match version {
        RemoteWrite::V1 => first_version(body, &mut seen),
        RemoteWrite::V2 => second_version(body, &mut seen),
    }
}

/// Labels of a series, name and value.
type Labels<'a> = Vec<(&'a [u8], &'a [u8])>;

const WIRE_TYPE: Problem = Problem("a field with the wire type of another");
const NOT_UTF8: Problem = Problem("text that is no UTF-8");

fn outside(Problem(problem): Problem) -> Invalid {
    Invalid {
        series: None,
        problem,
    }
}

/// Visits the fields of a request.
fn top_level<'a>(
    body: &'a [u8],
    mut visit: impl FnMut(u32, Value<'a>) -> Result<(), Invalid>,
) -> Result<(), Invalid> {
    let mut rest = body;
    while let Some((field, value)) = next_field(&mut rest).map_err(|error| outside(error.into()))? {
        visit(field, value)?;
    }
    Ok(())
}

fn first_version(body: &[u8], seen: &mut dyn FnMut(Found)) -> Result<Written, Invalid> {
    let mut written = Written::default();
    let (mut labels, mut number) = (Labels::new(), 0);
    top_level(body, |field, value| {
        let series = match (field, value) {
            (1, Value::Bytes(series)) => series,
            (1, _) => return Err(outside(WIRE_TYPE)),
            (4 | 5, _) => return Err(outside(Problem("fields of 2.0 in a request of 1.0"))),
            _ => return Ok(()),
        };
        labels.clear();
        let contents = series_v1(series, &mut labels);
        settle(contents, number, &labels, &mut written, seen)?;
        number += 1;
        Ok(())
    })?;
    Ok(written)
}

fn second_version(body: &[u8], seen: &mut dyn FnMut(Found)) -> Result<Written, Invalid> {
    let mut symbols = Vec::new();
    top_level(body, |field, value| match (field, value) {
        (4, Value::Bytes(symbol)) if std::str::from_utf8(symbol).is_ok() => {
            symbols.push(symbol);
            Ok(())
        }
        (4, Value::Bytes(_)) => Err(outside(NOT_UTF8)),
        (4 | 5, Value::Varint(_) | Value::Fixed64 | Value::Other) => Err(outside(WIRE_TYPE)),
        (1..=3, _) => Err(outside(Problem("fields of 1.0 in a request of 2.0"))),
        _ => Ok(()),
    })?;
    let mut written = Written::default();
    let (mut labels, mut number) = (Labels::new(), 0);
    top_level(body, |field, value| {
        let (5, Value::Bytes(series)) = (field, value) else {
            return Ok(());
        };
        if symbols.first().is_none_or(|symbol| !symbol.is_empty()) {
            return Err(outside(Problem(
                "a table of symbols that does not begin with the empty one",
            )));
        }
        labels.clear();
        let contents = series_v2(series, &symbols, &mut labels);
        settle(contents, number, &labels, &mut written, seen)?;
        number += 1;
        Ok(())
    })?;
    Ok(written)
}

fn series_v1<'a>(series: &'a [u8], labels: &mut Labels<'a>) -> Result<Written, Problem> {
    let mut contents = Written::default();
    let mut rest = series;
    while let Some((field, value)) = next_field(&mut rest)? {
        match (field, value) {
            (1, Value::Bytes(message)) => labels.push(label(message)?),
            (2, Value::Bytes(message)) => contents.samples += sample(message)?,
            (3, Value::Bytes(message)) => contents.exemplars += any(message)?,
            (4, Value::Bytes(message)) => contents.histograms += any(message)?,
            (1..=4, _) => return Err(WIRE_TYPE),
            _ => {}
        }
    }
    Ok(contents)
}

fn series_v2<'a>(
    series: &'a [u8],
    symbols: &[&'a [u8]],
    labels: &mut Labels<'a>,
) -> Result<Written, Problem> {
    let mut contents = Written::default();
    let mut name = None;
    let mut reference = |reference: u64| {
        let symbol = usize::try_from(reference).ok().and_then(|at| symbols.get(at));
        let symbol = *symbol.ok_or(Problem("a reference behind the table of symbols"))?;
        match name.take() {
            Some(name) => labels.push((name, symbol)),
            None => name = Some(symbol),
        }
        Ok::<_, Problem>(())
    };
    let mut rest = series;
    while let Some((field, value)) = next_field(&mut rest)? {
        match (field, value) {
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    reference(varint(&mut packed)?)?;
                }
            }
            (1, Value::Varint(single)) => reference(single)?,
            (2, Value::Bytes(message)) => contents.samples += sample(message)?,
            (3, Value::Bytes(message)) => contents.histograms += any(message)?,
            (4, Value::Bytes(message)) => contents.exemplars += any(message)?,
            (5, Value::Bytes(message)) => drop(any(message)?),
            (1..=5, _) => return Err(WIRE_TYPE),
            _ => {}
        }
    }
    if name.is_some() {
        return Err(Problem("a label name without a value"));
    }
    if contents.samples > 0 && contents.histograms > 0 {
        return Err(Problem("both samples and histograms"));
    }
    Ok(contents)
}

fn label(message: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    let (mut name, mut text): (&[u8], &[u8]) = (&[], &[]);
    let mut rest = message;
    while let Some((field, value)) = next_field(&mut rest)? {
        match (field, value) {
            (1, Value::Bytes(bytes)) => name = bytes,
            (2, Value::Bytes(bytes)) => text = bytes,
            (1 | 2, _) => return Err(WIRE_TYPE),
            _ => {}
        }
    }
    if std::str::from_utf8(name).is_err() || std::str::from_utf8(text).is_err() {
        return Err(NOT_UTF8);
    }
    Ok((name, text))
}

/// Value, timestamp, and in 2.0 the start; counts as one.
fn sample(message: &[u8]) -> Result<u64, Problem> {
    let mut rest = message;
    while let Some((field, value)) = next_field(&mut rest)? {
        match (field, value) {
            (1, Value::Fixed64) | (2 | 3, Value::Varint(_)) => {}
            (1..=3, _) => return Err(WIRE_TYPE),
            _ => {}
        }
    }
    Ok(1)
}

/// A message that is only seen to be one; counts as one.
fn any(message: &[u8]) -> Result<u64, Problem> {
    let mut rest = message;
    while next_field(&mut rest)?.is_some() {}
    Ok(1)
}

/// Checks the labels of a series and tells what it holds.
fn settle(
    contents: Result<Written, Problem>,
    number: usize,
    labels: &[(&[u8], &[u8])],
    written: &mut Written,
    seen: &mut dyn FnMut(Found),
) -> Result<(), Invalid> {
    let found = contents.and_then(|contents| Ok((contents, found(labels)?)));
    let (contents, found) = found.map_err(|Problem(problem)| Invalid {
        series: Some(number),
        problem,
    })?;
    for _ in 0..contents.samples {
        seen(found);
    }
    for _ in 0..contents.histograms {
        // A native histogram is an item of its own, whatever it is called.
        seen(match found {
            Found::Part => id(labels).map_or(Found::Beside, Found::of),
            other => other,
        });
    }
    written.samples += contents.samples;
    written.histograms += contents.histograms;
    written.exemplars += contents.exemplars;
    Ok(())
}

impl Found {
    fn of(id: &[u8]) -> Found {
        let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok());
        id.filter(|id| is_item_id(*id))
            .map_or(Found::Unmarked, Found::Item)
    }
}

/// The value of the label that carries the id: its name may have kept the dot of the attribute's.
fn id<'a>(labels: &[(&[u8], &'a [u8])]) -> Option<&'a [u8]> {
    let is_id = |name: &[u8]| name == ID_LABEL.as_bytes() || name == ID_KEY.as_bytes();
    labels
        .iter()
        .find(|(name, _)| is_id(name))
        .map(|(_, value)| *value)
}

fn found(labels: &[(&[u8], &[u8])]) -> Result<Found, Problem> {
    let value_of = |wanted: &[u8]| labels.iter().find(|(name, _)| *name == wanted);
    let Some((_, name)) = value_of(b"__name__").filter(|(_, name)| !name.is_empty()) else {
        return Err(Problem("no metric name"));
    };
    if labels.iter().any(|(name, _)| name.is_empty()) {
        return Err(Problem("a label without a name"));
    }
    let sorted = labels.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if !sorted {
        let mut names: Vec<_> = labels.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Problem("two labels of one name"));
        }
    }
    let Some(id) = id(labels) else {
        return Ok(Found::Beside);
    };
    let is_part = name.ends_with(b"_sum")
        || name.ends_with(b"_bucket") && (value_of(b"le").is_some() || value_of(b"vmrange").is_some())
        || value_of(b"quantile").is_some();
    Ok(if is_part { Found::Part } else { Found::of(id) })
}
