//! `io.prometheus.write.v2.Request`.

use sluice_wire::Field;

use super::{
    BROKEN, Exemplar, Invalid, MANY_EXEMPLAR_LABELS, MANY_EXEMPLARS, MANY_ITEMS, MANY_LABELS,
    MAX_EXEMPLAR_LABELS, MAX_EXEMPLARS, MAX_ITEMS, MAX_LABELS, Sample, Series, bytes, double, fields, push,
    text, varint,
};

/// Texts a request may have: 16 MiB of places for them while it is read. A request of a million series has as many.
pub(crate) const MAX_SYMBOLS: usize = 1 << 20;

pub(super) fn each_series<'a>(
    body: &'a [u8],
    mut take: impl FnMut(&Series<'a>) -> Result<(), &'static str>,
) -> Result<(), Invalid> {
    let symbols = symbols(body).map_err(|problem| Invalid { series: 0, problem })?;
    let mut series = Series::default();
    let mut number = 0;
    let read = fields(body, |field| {
        if field.number == 5 {
            series.clear();
            read_series(bytes(&field)?, &symbols, &mut series)?;
            take(&series)?;
            number += 1;
        }
        Ok(())
    });
    read.map_err(|problem| Invalid {
        series: number,
        problem,
    })
}

/// The table of texts. It may come after the series that refer to it.
pub(crate) fn symbols(body: &[u8]) -> Result<Vec<&str>, &'static str> {
    let mut symbols: Vec<&str> = Vec::new();
    fields(body, |field| match field.number {
        4 => push(
            &mut symbols,
            text(&field)?,
            MAX_SYMBOLS,
            "it has more than 1,048,576 texts",
        ),
        _ => Ok(()),
    })?;
    if symbols.first().is_some_and(|first| !first.is_empty()) {
        return Err("the table of symbols does not begin with the empty one");
    }
    Ok(symbols)
}

fn read_series<'a>(
    message: &'a [u8],
    symbols: &[&'a str],
    series: &mut Series<'a>,
) -> Result<(), &'static str> {
    let mut refs = std::mem::take(&mut series.refs);
    refs.clear();
    let mut created_ms = 0;
    fields(message, |field| {
        match field.number {
            1 => references(&field, &mut refs, MAX_LABELS, MANY_LABELS)?,
            2 => push(
                &mut series.samples,
                sample(bytes(&field)?)?,
                MAX_ITEMS,
                MANY_ITEMS,
            )?,
            3 => push(&mut series.histograms, bytes(&field)?, MAX_ITEMS, MANY_ITEMS)?,
            4 => {
                let exemplar = exemplar(bytes(&field)?, symbols)?;
                push(&mut series.exemplars, exemplar, MAX_EXEMPLARS, MANY_EXEMPLARS)?;
            }
            5 => metadata(bytes(&field)?, symbols, series)?,
            // Before release candidate 4 the start stood here, once for all samples.
            6 => created_ms = varint(&field)? as i64,
            _ => {}
        }
        Ok(())
    })?;
    let labelled = labels(&refs, symbols, &mut series.labels);
    series.refs = refs;
    labelled?;
    if !series.samples.is_empty() && !series.histograms.is_empty() {
        return Err("it has both samples and histograms");
    }
    for sample in series.samples.iter_mut().filter(|sample| sample.start_ms == 0) {
        sample.start_ms = created_ms;
    }
    series.check()
}

/// Appends the numbers of a repeated field, packed or not, two for each label.
pub(crate) fn references(
    field: &Field<'_>,
    refs: &mut Vec<usize>,
    most_labels: usize,
    problem: &'static str,
) -> Result<(), &'static str> {
    let Some(mut packed) = field.bytes() else {
        let reference = usize::try_from(varint(field)?).map_err(|_| BROKEN)?;
        return push(refs, reference, 2 * most_labels, problem);
    };
    while !packed.is_empty() {
        let (mut value, mut used) = (0u64, 0);
        for (index, byte) in packed.iter().enumerate() {
            if index == 5 {
                return Err(BROKEN);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                used = index + 1;
                break;
            }
        }
        if used == 0 {
            return Err(BROKEN);
        }
        let reference = usize::try_from(value).map_err(|_| BROKEN)?;
        push(refs, reference, 2 * most_labels, problem)?;
        packed = &packed[used..];
    }
    Ok(())
}

fn symbol<'a>(reference: usize, symbols: &[&'a str]) -> Result<&'a str, &'static str> {
    symbols
        .get(reference)
        .copied()
        .ok_or("a reference leads outside of the table of symbols")
}

fn labels<'a>(
    refs: &[usize],
    symbols: &[&'a str],
    labels: &mut Vec<(&'a str, &'a str)>,
) -> Result<(), &'static str> {
    let (pairs, odd) = refs.as_chunks::<2>();
    if !odd.is_empty() {
        return Err("a label has no value: the number of references is odd");
    }
    for [name, value] in pairs {
        let name = symbol(*name, symbols)?;
        if name.is_empty() {
            return Err("a label has no name");
        }
        labels.push((name, symbol(*value, symbols)?));
    }
    Ok(())
}

pub(crate) fn sample(message: &[u8]) -> Result<Sample, &'static str> {
    let mut sample = Sample::default();
    fields(message, |field| {
        match field.number {
            1 => sample.value = double(&field)?,
            2 => sample.timestamp_ms = varint(&field)? as i64,
            3 => sample.start_ms = varint(&field)? as i64,
            _ => {}
        }
        Ok(())
    })?;
    Ok(sample)
}

pub(crate) fn exemplar<'a>(message: &'a [u8], symbols: &[&'a str]) -> Result<Exemplar<'a>, &'static str> {
    let mut exemplar = Exemplar::default();
    let mut refs = Vec::new();
    fields(message, |field| {
        match field.number {
            1 => references(&field, &mut refs, MAX_EXEMPLAR_LABELS, MANY_EXEMPLAR_LABELS)?,
            2 => exemplar.value = double(&field)?,
            3 => exemplar.timestamp_ms = varint(&field)? as i64,
            _ => {}
        }
        Ok(())
    })?;
    labels(&refs, symbols, &mut exemplar.labels)?;
    Ok(exemplar)
}

fn metadata<'a>(message: &[u8], symbols: &[&'a str], series: &mut Series<'a>) -> Result<(), &'static str> {
    fields(message, |field| {
        match field.number {
            1 => series.kind = varint(&field)?,
            3 | 4 => {
                let reference = usize::try_from(varint(&field)?).map_err(|_| BROKEN)?;
                let text = symbol(reference, symbols)?;
                if field.number == 3 {
                    series.help = text;
                } else {
                    series.unit = text;
                }
            }
            _ => {}
        }
        Ok(())
    })
}
