//! Our pages against those of the parquet crate's own writer.

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use proptest::prelude::*;
use sluice_loadgen::{Generator, Signal, Spec};

use super::super::tests::{every_type, logs};
use super::super::{ColumnType, Encoder, FileSettings, Level, PageEncoder, Promotion, Repairs, Table};

fn promotions() -> Vec<Promotion> {
    let promotion = |attribute: &str, level, column_type| Promotion {
        attribute: attribute.to_owned(),
        level,
        column_type,
        column: format!("{attribute} {column_type:?}"),
    };
    vec![
        promotion("string", Level::Record, ColumnType::String),
        promotion("service.name", Level::Resource, ColumnType::String),
        promotion("int", Level::Record, ColumnType::Int),
        promotion("double", Level::Record, ColumnType::Double),
        promotion("bool", Level::Record, ColumnType::Bool),
        promotion("string", Level::Record, ColumnType::Int),
    ]
}

fn encode(table: Table, encoder: PageEncoder, requests: &[Vec<u8>]) -> (Vec<u8>, Repairs) {
    let settings = FileSettings {
        encoder,
        promotions: promotions(),
        ..FileSettings::default()
    };
    let mut encoder = Encoder::new(table, &settings, Vec::new()).unwrap();
    for request in requests {
        encoder.push(request).unwrap();
    }
    encoder.finish().unwrap()
}

fn read(file: Vec<u8>) -> (Vec<RecordBatch>, ParquetMetaData) {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes::Bytes::from(file), options).unwrap();
    let metadata = builder.metadata().as_ref().clone();
    let reader = builder.with_batch_size(1 << 20).build().unwrap();
    (reader.map(Result::unwrap).collect(), metadata)
}

/// Both encoders' files have the same rows and repairs; returns the own one's metadata.
fn compare(table: Table, requests: &[Vec<u8>]) -> ParquetMetaData {
    let (own, arrow) = (
        encode(table, PageEncoder::Own, requests),
        encode(table, PageEncoder::Arrow, requests),
    );
    assert_eq!(own.1, arrow.1);
    let (own, metadata) = read(own.0);
    let (arrow, _) = read(arrow.0);
    assert_eq!(own.len(), arrow.len());
    for (own, arrow) in own.iter().zip(&arrow) {
        assert_eq!(own.schema(), arrow.schema());
        for (field, (own, arrow)) in own.schema().fields().iter().zip(own.columns().iter().zip(arrow.columns())) {
            assert_eq!(own, arrow, "{table:?} {}", field.name());
        }
    }
    metadata
}

/// Scenario: generated requests of all signals, more rows than a row group has in one table.
/// Guarantees: both encoders' files have the same rows.
#[test]
fn both_encoders_write_the_same_rows() {
    for (signal, tables, requests) in [
        (Signal::Logs, &[Table::Logs][..], 1500),
        (Signal::Traces, &[Table::Spans], 100),
        (Signal::Metrics, &Table::ALL[2..], 100),
    ] {
        let requests: Vec<Vec<u8>> = Generator::new(Spec::mixed(signal))
            .take(requests)
            .map(|request| request.body.to_vec())
            .collect();
        for table in tables {
            compare(*table, &requests);
        }
    }
}
