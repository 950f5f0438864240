//! Any bytes at all become files that the reader takes, in every table, with a row for each item that the walk finds, and the same
//! rows by both page encoders; nothing panics. Most of these bytes no receiver would let in.
#![no_main]

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sluice_parquet::{ColumnType, Encoder, FileSettings, Level, PageEncoder, Promotion, Table};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // The rows of a table, and how many were pushed.
    let rows = |table, encoder| {
        let settings = FileSettings {
            promotions: vec![Promotion {
                attribute: "a".to_owned(),
                level: Level::Record,
                column_type: ColumnType::Int,
                column: "promoted".to_owned(),
            }],
            encoder,
            ..FileSettings::default()
        };
        let mut encoder = Encoder::new(table, &settings, Vec::new()).expect("memory takes everything");
        encoder.push(data).expect("any bytes are taken");
        let rows = encoder.rows();
        let (file, _) = encoder.finish().expect("memory takes everything");
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).expect("a Parquet file");
        let batches = reader.build().expect("a reader");
        let batches: Vec<_> = batches
            .map(|batch| batch.expect("rows that can be read"))
            .collect();
        (batches, rows)
    };
    for table in Table::ALL {
        let (batches, pushed) = rows(table, PageEncoder::Own);
        assert_eq!(
            batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>(),
            pushed
        );
        let (reference, _) = rows(table, PageEncoder::Arrow);
        assert_eq!(batches, reference);
    }
});
