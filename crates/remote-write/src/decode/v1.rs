//! `prometheus.WriteRequest`.

use super::{
    Exemplar, Invalid, MANY_EXEMPLAR_LABELS, MANY_EXEMPLARS, MANY_ITEMS, MANY_LABELS, MAX_EXEMPLAR_LABELS,
    MAX_EXEMPLARS, MAX_ITEMS, MAX_LABELS, Sample, Series, bytes, double, fields, push, text, varint,
};

pub(super) fn each_series<'a>(
    body: &'a [u8],
    mut take: impl FnMut(&Series<'a>) -> Result<(), &'static str>,
) -> Result<(), Invalid> {
    let mut series = Series::default();
    let mut known = KnownLabels::default();
    let mut number = 0;
    let read = fields(body, |field| {
        if field.number == 1 {
            series.clear();
            read_series(bytes(&field)?, &mut series, &mut known)?;
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

fn read_series<'a>(
    message: &'a [u8],
    series: &mut Series<'a>,
    known: &mut KnownLabels<'a>,
) -> Result<(), &'static str> {
    known.begin_series();
    fields(message, |field| {
        match field.number {
            1 => push(
                &mut series.labels,
                known.label(bytes(&field)?)?,
                MAX_LABELS,
                MANY_LABELS,
            )?,
            2 => push(
                &mut series.samples,
                sample(bytes(&field)?)?,
                MAX_ITEMS,
                MANY_ITEMS,
            )?,
            3 => push(
                &mut series.exemplars,
                exemplar(bytes(&field)?)?,
                MAX_EXEMPLARS,
                MANY_EXEMPLARS,
            )?,
            4 => push(&mut series.histograms, bytes(&field)?, MAX_ITEMS, MANY_ITEMS)?,
            _ => {}
        }
        Ok(())
    })?;
    series.check()
}

/// The labels of the series before: those of a target come again in series after series, and are neither taken apart nor checked
/// again where they do.
#[derive(Debug, Default)]
struct KnownLabels<'a> {
    before: Vec<KnownLabel<'a>>,
    now: Vec<KnownLabel<'a>>,
    /// The first of those before that may come: labels are sorted.
    next: usize,
}

#[derive(Debug, Clone, Copy)]
struct KnownLabel<'a> {
    message: &'a [u8],
    label: (&'a str, &'a str),
}

impl<'a> KnownLabels<'a> {
    fn begin_series(&mut self) {
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.clear();
        self.next = 0;
    }

    #[inline]
    fn label(&mut self, message: &'a [u8]) -> Result<(&'a str, &'a str), &'static str> {
        if let Some(known) = self.before.get(self.next)
            && known.message == message
        {
            self.next += 1;
            self.now.push(*known);
            return Ok(known.label);
        }
        let label = label(message)?;
        let not_after = |known: &&KnownLabel<'_>| known.label.0 <= label.0;
        let rest = self.before.get(self.next..).unwrap_or_default();
        self.next += rest.iter().take_while(not_after).count();
        self.now.push(KnownLabel { message, label });
        Ok(label)
    }
}

pub(crate) fn label(message: &[u8]) -> Result<(&str, &str), &'static str> {
    let mut label = ("", "");
    fields(message, |field| {
        match field.number {
            1 => label.0 = text(&field)?,
            2 => label.1 = text(&field)?,
            _ => {}
        }
        Ok(())
    })?;
    if label.0.is_empty() {
        return Err("a label has no name");
    }
    Ok(label)
}

pub(crate) fn sample(message: &[u8]) -> Result<Sample, &'static str> {
    let mut sample = Sample::default();
    fields(message, |field| {
        match field.number {
            1 => sample.value = double(&field)?,
            2 => sample.timestamp_ms = varint(&field)? as i64,
            _ => {}
        }
        Ok(())
    })?;
    Ok(sample)
}

pub(crate) fn exemplar(message: &[u8]) -> Result<Exemplar<'_>, &'static str> {
    let mut exemplar = Exemplar::default();
    fields(message, |field| {
        match field.number {
            1 => push(
                &mut exemplar.labels,
                label(bytes(&field)?)?,
                MAX_EXEMPLAR_LABELS,
                MANY_EXEMPLAR_LABELS,
            )?,
            2 => exemplar.value = double(&field)?,
            3 => exemplar.timestamp_ms = varint(&field)? as i64,
            _ => {}
        }
        Ok(())
    })?;
    Ok(exemplar)
}
