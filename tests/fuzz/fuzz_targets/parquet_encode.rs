//! Any bytes at all become files that the reader takes, in every table, with a row for each item that the walk finds; nothing
//! panics. Most of these bytes no receiver would let in.
#![no_main]

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sluice_parquet::{ColumnType, Encoder, FileSettings, Level, Promotion, Table};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let settings = FileSettings {
        promotions: vec![Promotion {
            attribute: "a".to_owned(),
            level: Level::Record,
            column_type: ColumnType::Int,
            column: "promoted".to_owned(),
        }],
        ..FileSettings::default()
    };
    for table in Table::ALL {
        let mut encoder = Encoder::new(table, &settings, Vec::new()).expect("memory takes everything");
        encoder.push(data).expect("any bytes are taken");
        let rows = encoder.rows();
        let (file, _) = encoder.finish().expect("memory takes everything");
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).expect("a Parquet file");
        let batches = reader.build().expect("a reader");
        let read: usize = batches
            .map(|batch| batch.expect("rows that can be read").num_rows())
            .sum();
        assert_eq!(read as u64, rows);
    }
});
