//! `prometheus.WriteRequest`.

use super::{Exemplar, Invalid, Sample, Series, bytes, double, fields, text, varint};

pub(super) fn each_series<'a>(
    body: &'a [u8],
    mut take: impl FnMut(&Series<'a>) -> Result<(), &'static str>,
) -> Result<(), Invalid> {
    let mut series = Series::default();
    let mut number = 0;
    let read = fields(body, |field| {
        if field.number == 1 {
            series.clear();
            read_series(bytes(&field)?, &mut series)?;
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

fn read_series<'a>(message: &'a [u8], series: &mut Series<'a>) -> Result<(), &'static str> {
    fields(message, |field| {
        match field.number {
            1 => series.labels.push(label(bytes(&field)?)?),
            2 => series.samples.push(sample(bytes(&field)?)?),
            3 => series.exemplars.push(exemplar(bytes(&field)?)?),
            4 => series.histograms.push(bytes(&field)?),
            _ => {}
        }
        Ok(())
    })?;
    series.check()
}

fn label(message: &[u8]) -> Result<(&str, &str), &'static str> {
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

fn sample(message: &[u8]) -> Result<Sample, &'static str> {
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

fn exemplar(message: &[u8]) -> Result<Exemplar<'_>, &'static str> {
    let mut exemplar = Exemplar::default();
    fields(message, |field| {
        match field.number {
            1 => exemplar.labels.push(label(bytes(&field)?)?),
            2 => exemplar.value = double(&field)?,
            3 => exemplar.timestamp_ms = varint(&field)? as i64,
            _ => {}
        }
        Ok(())
    })?;
    Ok(exemplar)
}
