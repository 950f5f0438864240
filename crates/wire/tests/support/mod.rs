//! The oracle (prost and the opentelemetry-proto types) and generators of bodies, shared by the property tests and the
//! fuzz targets.
#![allow(dead_code)]

use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    profiles::v1development::ExportProfilesServiceRequest, trace::v1::ExportTraceServiceRequest,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message as _;
use sluice_wire::Kind;
use sluice_wire::schema::{self, Cardinality, FieldKind, MessageDesc, WireKind};

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    Metrics(ExportMetricsServiceRequest),
    Logs(ExportLogsServiceRequest),
    Traces(ExportTraceServiceRequest),
    Profiles(ExportProfilesServiceRequest),
}

impl Decoded {
    /// What prost makes of `body`.
    pub fn of(kind: Kind, body: &[u8]) -> Option<Self> {
        Some(match kind {
            Kind::Metrics => Self::Metrics(ExportMetricsServiceRequest::decode(body).ok()?),
            Kind::Logs => Self::Logs(ExportLogsServiceRequest::decode(body).ok()?),
            Kind::Traces => Self::Traces(ExportTraceServiceRequest::decode(body).ok()?),
            Kind::Profiles => Self::Profiles(ExportProfilesServiceRequest::decode(body).ok()?),
        })
    }

    /// What prost writes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Metrics(request) => request.encode_to_vec(),
            Self::Logs(request) => request.encode_to_vec(),
            Self::Traces(request) => request.encode_to_vec(),
            Self::Profiles(request) => request.encode_to_vec(),
        }
    }

    /// How many items it holds.
    pub fn items(&self) -> u64 {
        let items: usize = match self {
            Self::Metrics(request) => {
                let scopes = request
                    .resource_metrics
                    .iter()
                    .flat_map(|resource| &resource.scope_metrics);
                scopes.flat_map(|scope| &scope.metrics).map(points).sum()
            }
            Self::Logs(request) => {
                let scopes = request
                    .resource_logs
                    .iter()
                    .flat_map(|resource| &resource.scope_logs);
                scopes.map(|scope| scope.log_records.len()).sum()
            }
            Self::Traces(request) => {
                let scopes = request
                    .resource_spans
                    .iter()
                    .flat_map(|resource| &resource.scope_spans);
                scopes.map(|scope| scope.spans.len()).sum()
            }
            Self::Profiles(request) => {
                let scopes = request
                    .resource_profiles
                    .iter()
                    .flat_map(|resource| &resource.scope_profiles);
                scopes.map(|scope| scope.profiles.len()).sum()
            }
        };
        items as u64
    }

    /// Every item in order, each as a request of its own: what must survive a split, whatever the pieces.
    pub fn singles(&self) -> Vec<Self> {
        let mut out = Vec::new();
        match self {
            Self::Metrics(request) => {
                for resource in &request.resource_metrics {
                    for scope in &resource.scope_metrics {
                        for metric in &scope.metrics {
                            for index in 0..points(metric) {
                                let mut metric = metric.clone();
                                keep_point(&mut metric, index);
                                let mut scope = scope.clone();
                                scope.metrics = vec![metric];
                                let mut resource = resource.clone();
                                resource.scope_metrics = vec![scope];
                                out.push(Self::Metrics(ExportMetricsServiceRequest {
                                    resource_metrics: vec![resource],
                                }));
                            }
                        }
                    }
                }
            }
            Self::Logs(request) => {
                for resource in &request.resource_logs {
                    for scope in &resource.scope_logs {
                        for record in &scope.log_records {
                            let mut scope = scope.clone();
                            scope.log_records = vec![record.clone()];
                            let mut resource = resource.clone();
                            resource.scope_logs = vec![scope];
                            out.push(Self::Logs(ExportLogsServiceRequest {
                                resource_logs: vec![resource],
                            }));
                        }
                    }
                }
            }
            Self::Traces(request) => {
                for resource in &request.resource_spans {
                    for scope in &resource.scope_spans {
                        for span in &scope.spans {
                            let mut scope = scope.clone();
                            scope.spans = vec![span.clone()];
                            let mut resource = resource.clone();
                            resource.scope_spans = vec![scope];
                            out.push(Self::Traces(ExportTraceServiceRequest {
                                resource_spans: vec![resource],
                            }));
                        }
                    }
                }
            }
            Self::Profiles(request) => {
                for resource in &request.resource_profiles {
                    for scope in &resource.scope_profiles {
                        for profile in &scope.profiles {
                            let mut scope = scope.clone();
                            scope.profiles = vec![profile.clone()];
                            let mut resource = resource.clone();
                            resource.scope_profiles = vec![scope];
                            out.push(Self::Profiles(ExportProfilesServiceRequest {
                                resource_profiles: vec![resource],
                                dictionary: request.dictionary.clone(),
                            }));
                        }
                    }
                }
            }
        }
        out
    }
}

/// Data points of one metric.
pub fn points(metric: &opentelemetry_proto::tonic::metrics::v1::Metric) -> usize {
    match &metric.data {
        None => 0,
        Some(Data::Gauge(data)) => data.data_points.len(),
        Some(Data::Sum(data)) => data.data_points.len(),
        Some(Data::Histogram(data)) => data.data_points.len(),
        Some(Data::ExponentialHistogram(data)) => data.data_points.len(),
        Some(Data::Summary(data)) => data.data_points.len(),
    }
}

fn keep_point(metric: &mut opentelemetry_proto::tonic::metrics::v1::Metric, index: usize) {
    match &mut metric.data {
        None => {}
        Some(Data::Gauge(data)) => data.data_points = vec![data.data_points.swap_remove(index)],
        Some(Data::Sum(data)) => data.data_points = vec![data.data_points.swap_remove(index)],
        Some(Data::Histogram(data)) => data.data_points = vec![data.data_points.swap_remove(index)],
        Some(Data::ExponentialHistogram(data)) => {
            data.data_points = vec![data.data_points.swap_remove(index)]
        }
        Some(Data::Summary(data)) => data.data_points = vec![data.data_points.swap_remove(index)],
    }
}

/// The schema of a request.
pub fn root(kind: Kind) -> &'static MessageDesc {
    let name = match kind {
        Kind::Metrics => "ExportMetricsServiceRequest",
        Kind::Logs => "ExportLogsServiceRequest",
        Kind::Traces => "ExportTraceServiceRequest",
        Kind::Profiles => "ExportProfilesServiceRequest",
    };
    schema::MESSAGES
        .iter()
        .find(|desc| desc.name().ends_with(name))
        .expect("the schema holds every request")
}

/// Choices drawn from bytes; zeros once they are used up, which every generator reads as "stop".
pub struct Entropy<'a> {
    rest: &'a [u8],
    /// Changes values, not shapes.
    salt: u8,
    /// Fields that may still be written: repeated shapes use no bytes, and would grow without end.
    fields: usize,
}

impl<'a> Entropy<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            salt: 0,
            fields: 4000,
        }
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        *first
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let value = if bound > 256 {
            usize::from(self.byte()) << 8 | usize::from(self.byte())
        } else {
            self.byte().into()
        };
        value % bound.max(1)
    }

    pub fn chance(&mut self, one_in: u8) -> bool {
        let byte = self.byte();
        byte != 0 && byte.is_multiple_of(one_in)
    }
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How far a generated body may stray from what an SDK writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Fields in order, each at most once where the schema says so.
    Tame,
    /// Whatever protobuf allows: repeated singular fields, any order, unpacked scalars, unknown fields and groups, long
    /// varints; some broken strings and ids.
    Wild,
}

/// A body of this schema. Lists repeat shapes often, as real ones do.
pub fn message(desc: &MessageDesc, entropy: &mut Entropy<'_>, manner: Manner, depth: u32) -> Vec<u8> {
    let mut out = Vec::new();
    if manner == Manner::Tame {
        let mut oneofs = [false; 8];
        for field in desc.fields() {
            let times = match field.cardinality {
                Cardinality::Repeated if depth > 12 => 0,
                Cardinality::Repeated if leads_to_items(field) => [1, 1, 2, 3, 5, 9][entropy.below(6)],
                Cardinality::Repeated => [0, 1, 1, 2, 3, 9][entropy.below(6)],
                Cardinality::Oneof(set) => {
                    let set = usize::from(set) % oneofs.len();
                    let take = !oneofs[set] && (entropy.chance(3) || field.name == "summary");
                    oneofs[set] |= take;
                    usize::from(take)
                }
                _ => entropy.below(2),
            };
            let mut previous = None;
            for _ in 0..times {
                if let Some(position) = previous.filter(|_| entropy.chance(2)) {
                    // The same shape with other values, as neighbouring items have.
                    let salt = entropy.byte();
                    let mut again = Entropy {
                        rest: position,
                        salt,
                        fields: entropy.fields,
                    };
                    put_field(field, &mut again, manner, depth, &mut out);
                    entropy.fields = again.fields;
                    continue;
                }
                previous = Some(entropy.rest);
                put_field(field, entropy, manner, depth, &mut out);
            }
        }
        return out;
    }
    for _ in 0..entropy.below(if depth < 6 { 12 } else { 6 }) {
        if entropy.chance(11) {
            unknown(desc, entropy, 0, &mut out);
            continue;
        }
        let mut field = &desc.fields()[entropy.below(desc.fields().len())];
        if depth < 6 && entropy.chance(2) {
            field = desc
                .fields()
                .iter()
                .find(|field| leads_to_items(field))
                .unwrap_or(field);
        }
        let start = out.len();
        put_field(field, entropy, manner, depth, &mut out);
        // Short ones only: doubling at every level would grow without end.
        if entropy.chance(4) && out.len() - start < 1000 {
            let mut again = out[start..].to_vec();
            if entropy.chance(13) && !again.is_empty() {
                let at = entropy.below(again.len());
                again[at] ^= entropy.byte();
            }
            out.extend_from_slice(&again);
        }
    }
    out
}

/// Whether the field is on the way from the request to its items.
fn leads_to_items(field: &schema::FieldDesc) -> bool {
    let name = field.name;
    ["resource_", "scope_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || [
            "metrics",
            "log_records",
            "spans",
            "profiles",
            "gauge",
            "data_points",
        ]
        .contains(&name)
}

fn put_field(
    field: &schema::FieldDesc,
    entropy: &mut Entropy<'_>,
    manner: Manner,
    depth: u32,
    out: &mut Vec<u8>,
) {
    if entropy.fields == 0 {
        return;
    }
    entropy.fields -= 1;
    let wild = manner == Manner::Wild;
    let wire = field.kind.wire_kind();
    let packable = field.cardinality == Cardinality::Packed;
    let packed = packable && !(wild && entropy.chance(3));
    let key = |wire: WireKind| u64::from(field.number << 3) | wire as u64;
    if packed {
        let mut inner = Vec::new();
        for _ in 0..entropy.below(5) {
            scalar(wire, entropy, &mut inner);
        }
        put_varint(out, key(WireKind::Len));
        put_varint(out, inner.len() as u64);
        out.extend_from_slice(&inner);
        return;
    }
    put_varint(out, key(wire));
    if wild && entropy.chance(61) {
        // A key with one byte more than it needs.
        let last = out.len() - 1;
        out[last] |= 0x80;
        out.push(0);
    }
    match field.kind {
        FieldKind::Message(inner) => {
            let inner = if depth > 110 {
                Vec::new()
            } else {
                message(inner, entropy, manner, depth + 1)
            };
            put_varint(out, inner.len() as u64);
            out.extend_from_slice(&inner);
        }
        FieldKind::String => {
            let samples: [&[u8]; 5] = [
                b"",
                b"k",
                b"http.request.method",
                "naïve ☂ test".as_bytes(),
                b"GET",
            ];
            let text = samples[entropy.below(5)];
            let text = if wild && entropy.chance(97) {
                b"\xff\xfe"
            } else {
                text
            };
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text);
            if text.is_ascii() && !text.is_empty() && entropy.salt & 1 == 1 {
                let last = out.len() - 1;
                out[last] = if entropy.salt > 250 { 0xc3 } else { b'Z' };
            }
        }
        FieldKind::Bytes => {
            let len = entropy.below(6);
            put_varint(out, len as u64);
            out.extend((0..len).map(|_| entropy.byte()));
        }
        FieldKind::Id(kind) => {
            let full = if kind == schema::IdKind::Span { 8 } else { 16 };
            let len = if entropy.chance(7) {
                0
            } else if wild && entropy.chance(97) {
                entropy.below(20)
            } else {
                full
            };
            put_varint(out, len as u64);
            out.extend((0..len).map(|_| entropy.byte()));
        }
        _ => scalar(wire, entropy, out),
    }
}

fn scalar(wire: WireKind, entropy: &mut Entropy<'_>, out: &mut Vec<u8>) {
    match wire {
        WireKind::Varint => match entropy.below(8) {
            0..=3 => out.push((entropy.byte() ^ entropy.salt) & 0x7f),
            4 | 5 => put_varint(out, u64::from(entropy.byte()) << 7),
            6 => put_varint(out, u64::MAX - u64::from(entropy.byte() ^ entropy.salt)),
            _ => out.extend_from_slice(&[0x81, 0x80, 0x80, 0x00]),
        },
        WireKind::Fixed64 => out.extend((0..8).map(|_| entropy.byte() ^ entropy.salt)),
        WireKind::Fixed32 => out.extend((0..4).map(|_| entropy.byte() ^ entropy.salt)),
        WireKind::Len => {}
    }
}

fn unknown(desc: &MessageDesc, entropy: &mut Entropy<'_>, depth: u32, out: &mut Vec<u8>) {
    let number = [1000, 17, 40, 13, 500_000, 4][entropy.below(6)];
    if depth == 0 && desc.field(number).is_some() {
        return;
    }
    let number = u64::from(number);
    match entropy.below(5) {
        0 => {
            put_varint(out, number << 3);
            out.push(entropy.byte() & 0x7f);
        }
        1 => {
            put_varint(out, number << 3 | 1);
            out.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        }
        2 => {
            put_varint(out, number << 3 | 5);
            out.extend([0xff; 4]);
        }
        3 => {
            put_varint(out, number << 3 | 2);
            out.extend([2, 0x0a, 0x7f]);
        }
        _ => {
            put_varint(out, number << 3 | 3);
            for _ in 0..entropy.below(3) {
                unknown(desc, entropy, depth + 1, out);
            }
            put_varint(out, number << 3 | 4);
        }
    }
}

/// Damages `body` at a few places.
pub fn mutate(body: &mut Vec<u8>, entropy: &mut Entropy<'_>) {
    for _ in 0..=entropy.below(3) {
        if body.is_empty() {
            return;
        }
        let at = entropy.below(body.len());
        match entropy.below(5) {
            0 => body[at] ^= 1 << entropy.below(8),
            1 => body[at] = entropy.byte(),
            2 => body.truncate(at),
            3 => body.insert(at, entropy.byte()),
            _ => drop(body.remove(at)),
        }
    }
}

/// The kind a byte stands for.
pub fn kind(byte: u8) -> Kind {
    Kind::ALL[usize::from(byte) % Kind::ALL.len()]
}

/// A body from fuzz data: raw bytes, or one generated from them, mutated or not.
pub fn body_of(data: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let [first, second, rest @ ..] = data else {
        return None;
    };
    let kind = kind(*first);
    let body = match second % 4 {
        0 => rest.to_vec(),
        1 => message(root(kind), &mut Entropy::new(rest), Manner::Tame, 0),
        2 => message(root(kind), &mut Entropy::new(rest), Manner::Wild, 0),
        _ => {
            let manner = if second & 4 == 0 {
                Manner::Tame
            } else {
                Manner::Wild
            };
            let half = rest.len() / 4;
            let mut body = message(root(kind), &mut Entropy::new(&rest[half..]), manner, 0);
            mutate(&mut body, &mut Entropy::new(&rest[..half]));
            body
        }
    };
    Some((kind, body))
}
