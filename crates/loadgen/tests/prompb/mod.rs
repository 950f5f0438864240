//! The messages of remote write as prost derives them, after prometheus/prometheus `prompb`: the oracle.
#![allow(dead_code, reason = "each test crate uses a part of it")]

/// `prometheus.WriteRequest`.
pub mod v1 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct WriteRequest {
        #[prost(message, repeated, tag = "1")]
        pub timeseries: Vec<TimeSeries>,
        #[prost(message, repeated, tag = "3")]
        pub metadata: Vec<MetricMetadata>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct MetricMetadata {
        #[prost(int32, tag = "1")]
        pub r#type: i32,
        #[prost(string, tag = "2")]
        pub metric_family_name: String,
        #[prost(string, tag = "4")]
        pub help: String,
        #[prost(string, tag = "5")]
        pub unit: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        #[prost(message, repeated, tag = "1")]
        pub labels: Vec<Label>,
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<super::Sample>,
        #[prost(message, repeated, tag = "4")]
        pub histograms: Vec<super::Histogram>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Label {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub value: String,
    }
}

/// `io.prometheus.write.v2.Request`.
pub mod v2 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        #[prost(string, repeated, tag = "4")]
        pub symbols: Vec<String>,
        #[prost(message, repeated, tag = "5")]
        pub timeseries: Vec<TimeSeries>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<super::Sample>,
        #[prost(message, repeated, tag = "3")]
        pub histograms: Vec<super::Histogram>,
        #[prost(message, repeated, tag = "4")]
        pub exemplars: Vec<Exemplar>,
        #[prost(message, optional, tag = "5")]
        pub metadata: Option<Metadata>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Exemplar {
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        #[prost(double, tag = "2")]
        pub value: f64,
        #[prost(int64, tag = "3")]
        pub timestamp: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Metadata {
        #[prost(int32, tag = "1")]
        pub r#type: i32,
        #[prost(uint32, tag = "3")]
        pub help_ref: u32,
        #[prost(uint32, tag = "4")]
        pub unit_ref: u32,
    }
}

/// The same in both versions, but for the start that only 2.0 has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
    #[prost(int64, tag = "3")]
    pub start_timestamp: i64,
}

/// As far as the tests need one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Histogram {
    #[prost(uint64, tag = "1")]
    pub count_int: u64,
    #[prost(double, tag = "3")]
    pub sum: f64,
    #[prost(sint32, tag = "4")]
    pub schema: i32,
    #[prost(int64, tag = "15")]
    pub timestamp: i64,
}

/// A 1.0 request of series that are given by their labels, each with one sample.
pub fn request_v1(series: &[&[(&str, &str)]]) -> v1::WriteRequest {
    let label = |&(name, value): &(&str, &str)| v1::Label {
        name: name.into(),
        value: value.into(),
    };
    let timeseries = series.iter().map(|labels| v1::TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: vec![Sample::default(); 1],
        histograms: Vec::new(),
    });
    v1::WriteRequest {
        timeseries: timeseries.collect(),
        metadata: Vec::new(),
    }
}

/// The same for 2.0.
pub fn request_v2(series: &[&[(&str, &str)]]) -> v2::Request {
    let mut request = v2::Request {
        symbols: vec![String::new(); 1],
        timeseries: Vec::new(),
    };
    for labels in series {
        let mut labels_refs = Vec::new();
        for symbol in labels.iter().flat_map(|&(name, value)| [name, value]) {
            let known = request.symbols.iter().position(|known| known == symbol);
            let at = known.unwrap_or(request.symbols.len());
            if known.is_none() {
                request.symbols.push(symbol.into());
            }
            labels_refs.push(at as u32);
        }
        request.timeseries.push(v2::TimeSeries {
            labels_refs,
            samples: vec![Sample::default(); 1],
            ..v2::TimeSeries::default()
        });
    }
    request
}
