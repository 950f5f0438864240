// Makes the golden corpus: random OTLP metrics, and what Prometheus's own OTLP translation makes of them.
//
//	go run . .             write requests.bin.gz and digests.txt.gz into this directory
//	go run . -show .       print the series of all requests, as the digests see them (and the test, with GOLDEN_SHOW=1)
//
// The seed is fixed: the same versions make the same corpus. CI does not run this; crates/remote-write tests read its output.
package main

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

const requests = 1900

var strategies = []otlptranslator.TranslationStrategyOption{
	otlptranslator.UnderscoreEscapingWithSuffixes,
	otlptranslator.UnderscoreEscapingWithoutSuffixes,
	otlptranslator.NoUTF8EscapingWithSuffixes,
	otlptranslator.NoTranslation,
}

// settings are those of a request, by its index: the test knows the same four. Each may come with custom buckets.
func settings(index int, strategy otlptranslator.TranslationStrategyOption, customBuckets bool) prometheusremotewrite.Settings {
	s := prometheusremotewrite.Settings{
		AddMetricSuffixes:               strategy.ShouldAddSuffixes(),
		AllowUTF8:                       !strategy.ShouldEscape(),
		PromoteScopeMetadata:            true,
		LabelNameUnderscoreSanitization: true,
		ConvertHistogramsToNHCB:         customBuckets,
	}
	switch index % 4 {
	case 1:
		s.PromoteResourceAttributes = prometheusremotewrite.NewPromoteResourceAttributes(config.OTLPConfig{
			PromoteResourceAttributes: []string{"host.name", "k8s.pod.name", "job", "_x"},
		})
		s.KeepIdentifyingResourceAttributes = true
	case 2:
		s.PromoteResourceAttributes = prometheusremotewrite.NewPromoteResourceAttributes(config.OTLPConfig{
			PromoteAllResourceAttributes: true,
			IgnoreResourceAttributes:     []string{"host.name"},
		})
		s.LabelNamePreserveMultipleUnderscores = true
		s.PromoteScopeMetadata = false
	case 3:
		s.Namespace = "ns"
		s.ExternalLabels = map[string]string{"cluster": "c1", "region": "eu"}
		s.LabelNameUnderscoreSanitization = false
	}
	return s
}

// text is an appender that writes what it is given.
type text struct{ lines []string }

func (t *text) Commit() error   { return nil }
func (t *text) Rollback() error { return nil }

func (t *text) Append(_ storage.SeriesRef, ls labels.Labels, st, ts int64, v float64, h *histogram.Histogram, _ *histogram.FloatHistogram, o storage.AppendV2Options) (storage.SeriesRef, error) {
	var b strings.Builder
	each := func(ls labels.Labels) {
		ls.Range(func(l labels.Label) { fmt.Fprintf(&b, "%s\x01%s\x02", l.Name, l.Value) })
	}
	each(ls)
	fmt.Fprintf(&b, " %d %d ", st, ts)
	if h == nil {
		fmt.Fprintf(&b, "%016x", math.Float64bits(v))
	} else {
		fmt.Fprintf(&b, "h %d %016x %d %d %016x", h.Schema, math.Float64bits(h.ZeroThreshold), h.ZeroCount, h.Count, math.Float64bits(h.Sum))
		for _, side := range []struct {
			spans  []histogram.Span
			deltas []int64
		}{{h.PositiveSpans, h.PositiveBuckets}, {h.NegativeSpans, h.NegativeBuckets}} {
			b.WriteString(" [")
			for _, s := range side.spans {
				fmt.Fprintf(&b, "%d:%d,", s.Offset, s.Length)
			}
			b.WriteString("][")
			for _, d := range side.deltas {
				fmt.Fprintf(&b, "%d,", d)
			}
			b.WriteString("]")
		}
		if h.Schema == histogram.CustomBucketsSchema {
			b.WriteString(" (")
			for _, bound := range h.CustomValues {
				fmt.Fprintf(&b, "%016x,", math.Float64bits(bound))
			}
			b.WriteString(")")
		}
	}
	for _, e := range o.Exemplars {
		b.WriteString(" {")
		each(e.Labels)
		fmt.Fprintf(&b, "}%016x@%d", math.Float64bits(e.Value), e.Ts)
	}
	fmt.Fprintf(&b, " %s %s %s %s", o.MetricFamilyName, o.Metadata.Type, o.Metadata.Unit, o.Metadata.Help)
	t.lines = append(t.lines, b.String())
	return 0, nil
}

func translate(index int, strategy otlptranslator.TranslationStrategyOption, customBuckets bool, md pmetric.Metrics) []string {
	var t text
	// Errors are of single metrics; what is written beside them counts.
	_, _ = prometheusremotewrite.NewPrometheusConverter(&t).FromMetrics(context.Background(), md, settings(index, strategy, customBuckets))
	slices.Sort(t.lines)
	return t.lines
}

var (
	words    = []string{"http", "server", "duration", "total", "seconds", "bytes", "ratio", "per", "second", "count", "sum", "bucket", "cpu", "µ", "größe", "9", "1xx", "A", "x", "日本"}
	joins    = []string{".", "_", "-", "/", ":", " ", "..", "__", "", "._"}
	units    = []string{"", "", "1", "s", "ms", "us", "ns", "min", "h", "d", "By", "KiBy", "MiBy", "GiBy", "TiBy", "KBy", "MBy", "GBy", "TBy", "m", "V", "A", "J", "W", "g", "Cel", "Hz", "%", "{request}", "{request}/s", "By/s", "1/s", "m/m", "s/h", "x/w", "x/mo", "x/y", "x/d", "foo bar", "foo-", "-foo", "a/_", "a/b/c", " s ", "kg", "{a}s", "°C", "s/{x}", "/s", "µs", "By/"}
	keys     = []string{"http.method", "http_method", "http-method", "a", "b", "le", "quantile", "job", "instance", "_x", "__x", "__x__", "1st", "é", "cluster", "otel.scope.name", "__name__", "host.name", "X", "Zone", "a.b", "a b", "a__b", "k8s.pod.name"}
	resource = []string{"host.name", "host_name", "k8s.pod.name", "job", "_x", "os.type", "cloud.region", "region", "1st", "a.b", "a_b"}
)

// By index: a draw less changes every request.
var descriptions = []string{"What it is.", "", "Größe \"a\" \\ b", "two\nlines ", "What it is."}

func pick[T any](r *rand.Rand, from []T) T { return from[r.Intn(len(from))] }

func name(r *rand.Rand) string {
	var b strings.Builder
	for i := range 1 + r.Intn(4) {
		if i > 0 || r.Intn(12) == 0 {
			b.WriteString(pick(r, joins))
		}
		b.WriteString(pick(r, words))
	}
	switch r.Intn(40) {
	case 0:
		return pick(r, []string{".", "_", "", "..", "___", "é"})
	case 1, 2, 3:
		return b.String() + pick(r, []string{"_total", ".total", "_ratio", "_seconds", "_bytes", "_per_second"})
	}
	return b.String()
}

func value(r *rand.Rand, v pcommon.Value) {
	switch r.Intn(16) {
	case 0:
		v.SetInt(r.Int63() - r.Int63())
	case 1:
		v.SetBool(r.Intn(2) == 0)
	case 2:
		v.SetDouble(pick(r, []float64{0, math.Copysign(0, -1), 1.5, 1e21, 1e-7, -1e300, math.Inf(1), math.NaN(), 0.1, 1e20, 123456789}))
	case 3:
		v.SetStr("")
	case 4:
		v.SetEmptyBytes().FromRaw([]byte{0, 1, 2, 255})
	case 5:
		s := v.SetEmptySlice()
		s.AppendEmpty().SetStr("<a>&\"\\\n\u2028\x01")
		s.AppendEmpty().SetInt(-3)
		s.AppendEmpty()
		s.AppendEmpty().SetDouble(pick(r, []float64{1.5, 1e30, math.NaN()}))
	case 6:
		m := v.SetEmptyMap()
		m.PutStr("z", "é")
		m.PutBool("a", true)
		m.PutEmptyBytes("b").FromRaw([]byte("hi"))
		m.PutEmptyMap("m").PutDouble("d", 2)
	case 7:
		v.SetStr(strings.Repeat("long ", 40))
	default:
		v.SetStr(pick(r, []string{"GET", "POST", "200", "a;b", "näme", "x y", "/p/1", "\x00", "v"}))
	}
}

func attributes(r *rand.Rand, m pcommon.Map, from []string, most int) {
	for range r.Intn(most + 1) {
		if key := pick(r, from); key != "" {
			value(r, m.PutEmpty(key))
		}
	}
}

// Few digits of times, values and ids differ, which keeps the corpus small.
const epoch = uint64(1_790_000_000_123_456_789)

func times(r *rand.Rand) (start, now pcommon.Timestamp) {
	now = pcommon.Timestamp(epoch + uint64(r.Int63n(600))*1_000_000_000)
	if r.Intn(3) > 0 {
		start = pcommon.Timestamp(epoch - uint64(1+r.Int63n(9))*60_000_000_000)
	}
	return start, now
}

func double(r *rand.Rand) float64 {
	if r.Intn(8) == 0 {
		return pick(r, []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0x7ff0000000000002), math.MaxFloat64, 5e-324})
	}
	return math.Round(r.NormFloat64()*1000) / 8
}

func exemplars(r *rand.Rand, from pmetric.ExemplarSlice) {
	if r.Intn(3) > 0 {
		return
	}
	values := make([]float64, 1+r.Intn(4))
	for i := range values {
		values[i] = float64(r.Intn(160)) / 8
	}
	slices.Sort(values)
	for _, v := range values {
		e := from.AppendEmpty()
		_, now := times(r)
		e.SetTimestamp(now)
		if r.Intn(4) == 0 {
			e.SetIntValue(int64(v))
		} else {
			e.SetDoubleValue(v)
		}
		if r.Intn(2) == 0 {
			id := [16]byte{0: 0xa0, 15: byte(r.Intn(256))}
			e.SetTraceID(id)
		}
		if r.Intn(2) == 0 {
			id := [8]byte{7: byte(1 + r.Intn(255))}
			e.SetSpanID(id)
		}
		for range r.Intn(3) {
			key := pick(r, []string{"user", "k", "path"})
			if r.Intn(300) == 0 {
				key = pick(r, []string{"http.route", "trace_id"})
			}
			e.FilteredAttributes().PutStr(key, strings.Repeat("v", 1+r.Intn(60)))
		}
	}
}

func flags(r *rand.Rand) pmetric.DataPointFlags {
	return pmetric.DefaultDataPointFlags.WithNoRecordedValue(r.Intn(10) == 0)
}

func buckets(r *rand.Rand, b pmetric.ExponentialHistogramDataPointBuckets) uint64 {
	var sum uint64
	b.SetOffset(int32(r.Intn(200) - 100))
	for range r.Intn(16) {
		var n uint64
		if r.Intn(2) == 0 {
			n = uint64(r.Intn(100))
		}
		sum += n
		b.BucketCounts().Append(n)
	}
	return sum
}

func temporality(r *rand.Rand) pmetric.AggregationTemporality {
	switch r.Intn(16) {
	case 0:
		return pmetric.AggregationTemporalityDelta
	case 1:
		return pmetric.AggregationTemporalityUnspecified
	}
	return pmetric.AggregationTemporalityCumulative
}

func number(r *rand.Rand, p pmetric.NumberDataPoint) {
	start, now := times(r)
	p.SetStartTimestamp(start)
	p.SetTimestamp(now)
	p.SetFlags(flags(r))
	attributes(r, p.Attributes(), keys, 4)
	switch r.Intn(200) % 101 {
	case 100:
		// No value at all.
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
		p.SetIntValue(r.Int63() >> r.Intn(63) * int64(1-2*r.Intn(2)))
	default:
		p.SetDoubleValue(double(r))
	}
	exemplars(r, p.Exemplars())
}

// generate makes one metric, or rarely two. Where keys can leave nothing to make a label from it has one point, since Prometheus
// gives up the metric at the first such point.
func generate(index int, r *rand.Rand) pmetric.Metrics {
	md := pmetric.NewMetrics()
	for range 1 + r.Intn(9)/8 {
		rm := md.ResourceMetrics().AppendEmpty()
		a := rm.Resource().Attributes()
		if r.Intn(5) > 0 {
			a.PutStr("service.name", pick(r, []string{"checkout", "cart", "é"}))
		}
		if r.Intn(3) > 0 {
			a.PutStr("service.namespace", "shop")
		}
		if r.Intn(3) > 0 {
			value(r, a.PutEmpty("service.instance.id"))
		}
		attributes(r, a, resource, 4)
		sm := rm.ScopeMetrics().AppendEmpty()
		if r.Intn(2) == 0 {
			sm.Scope().SetName("lib")
			if r.Intn(2) == 0 {
				sm.Scope().SetVersion("1.2")
				sm.SetSchemaUrl("https://opentelemetry.io/schemas/1.26.0")
			}
			attributes(r, sm.Scope().Attributes(), []string{"kind", "a.b", "_x"}, 2)
		}
		m := sm.Metrics().AppendEmpty()
		m.SetName(name(r))
		m.SetUnit(pick(r, units))
		m.SetDescription(descriptions[index%len(descriptions)])
		points := 1 + r.Intn(2)
		if index%4 == 3 {
			points = 1
		}
		switch r.Intn(6) {
		case 0:
			g := m.SetEmptyGauge()
			for range points {
				number(r, g.DataPoints().AppendEmpty())
			}
		case 1, 2:
			s := m.SetEmptySum()
			s.SetIsMonotonic(r.Intn(3) > 0)
			s.SetAggregationTemporality(temporality(r))
			for range points {
				number(r, s.DataPoints().AppendEmpty())
			}
		case 3:
			h := m.SetEmptyHistogram()
			h.SetAggregationTemporality(temporality(r))
			for range points {
				p := h.DataPoints().AppendEmpty()
				start, now := times(r)
				p.SetStartTimestamp(start)
				p.SetTimestamp(now)
				p.SetFlags(flags(r))
				attributes(r, p.Attributes(), keys, 4)
				bound, count := float64(r.Intn(64))/8-1, uint64(0)
				for range r.Intn(8) {
					p.ExplicitBounds().Append(bound)
					bound += float64(1+r.Intn(8)) * pick(r, []float64{0.125, 1, 0.1, 1e9, 1e25})
					n := uint64(r.Intn(1000))
					count += n
					p.BucketCounts().Append(n)
				}
				if p.BucketCounts().Len() > 0 && r.Intn(10) > 0 {
					p.BucketCounts().Append(3)
					count += 3
				}
				// By index, as descriptions are.
				if index%60 == 0 && p.BucketCounts().Len() > p.ExplicitBounds().Len() {
					p.ExplicitBounds().Append(math.Inf(1))
					p.BucketCounts().Append(0)
				}
				p.SetCount(count)
				if r.Intn(4) > 0 {
					p.SetSum(double(r))
				}
				exemplars(r, p.Exemplars())
			}
		case 4:
			h := m.SetEmptyExponentialHistogram()
			h.SetAggregationTemporality(temporality(r))
			for range points {
				p := h.DataPoints().AppendEmpty()
				start, now := times(r)
				p.SetStartTimestamp(start)
				p.SetTimestamp(now)
				p.SetFlags(flags(r))
				attributes(r, p.Attributes(), keys, 4)
				p.SetScale(int32(r.Intn(14) - 5))
				if r.Intn(50) == 0 {
					p.SetScale(10)
				}
				p.SetZeroCount(uint64(r.Intn(5)))
				count := p.ZeroCount() + buckets(r, p.Positive())
				if r.Intn(2) == 0 {
					count += buckets(r, p.Negative())
				}
				p.SetCount(count)
				if r.Intn(4) > 0 {
					p.SetSum(double(r))
				}
				if r.Intn(60) == 0 {
					p.SetZeroThreshold(0.5)
				}
				exemplars(r, p.Exemplars())
			}
		case 5:
			s := m.SetEmptySummary()
			for range points {
				p := s.DataPoints().AppendEmpty()
				start, now := times(r)
				p.SetStartTimestamp(start)
				p.SetTimestamp(now)
				p.SetFlags(flags(r))
				attributes(r, p.Attributes(), keys, 4)
				p.SetCount(uint64(r.Intn(1000)))
				p.SetSum(double(r))
				for range r.Intn(5) {
					q := p.QuantileValues().AppendEmpty()
					q.SetQuantile(float64(p.QuantileValues().Len()) / 10)
					q.SetValue(double(r))
				}
			}
		}
	}
	return md
}

// hasBounds says whether there is a histogram with explicit bounds: what else there is comes out the same with custom buckets.
func hasBounds(md pmetric.Metrics) bool {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() == pmetric.MetricTypeHistogram {
					return true
				}
			}
		}
	}
	return false
}

// escaped is what Rust's escape_default makes of a string.
func escaped(line string) string {
	var b strings.Builder
	for _, c := range line {
		switch {
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\'' || c == '"' || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c >= 0x20 && c < 0x7f:
			b.WriteRune(c)
		default:
			fmt.Fprintf(&b, `\u{%x}`, c)
		}
	}
	return b.String()
}

func create(dir, file string) *gzip.Writer {
	f, err := os.Create(filepath.Join(dir, file))
	if err != nil {
		log.Fatal(err)
	}
	w, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		log.Fatal(err)
	}
	return w
}

func main() {
	log.SetOutput(os.Stderr)
	show := flag.Bool("show", false, "print the series of all requests")
	flag.Parse()
	r := rand.New(rand.NewSource(3_14))
	var bodies, digests *gzip.Writer
	if !*show {
		bodies, digests = create(flag.Arg(0), "requests.bin.gz"), create(flag.Arg(0), "digests.txt.gz")
	}
	for index := range requests {
		body, err := pmetricotlp.NewExportRequestFromMetrics(generate(index, r)).MarshalProto()
		if err != nil {
			log.Fatal(err)
		}
		// Read back, so that both sides see the bytes and nothing else.
		again := pmetricotlp.NewExportRequest()
		if err := again.UnmarshalProto(body); err != nil {
			log.Fatal(err)
		}
		each := func(strategy otlptranslator.TranslationStrategyOption, customBuckets bool) {
			lines := translate(index, strategy, customBuckets, again.Metrics())
			if *show {
				fmt.Printf("# %d %s %t\n", index, strategy, customBuckets)
				for _, line := range lines {
					fmt.Println(escaped(line))
				}
				return
			}
			digest := fnv.New64a()
			for _, line := range lines {
				digest.Write([]byte(line + "\n"))
			}
			fmt.Fprintf(digests, "%08x\n", uint32(digest.Sum64()))
		}
		for _, strategy := range strategies {
			each(strategy, false)
		}
		if hasBounds(again.Metrics()) {
			each(strategies[index/4%len(strategies)], true)
		}
		if bodies != nil {
			bodies.Write(binary.AppendUvarint(nil, uint64(len(body))))
			bodies.Write(body)
		}
	}
	if bodies != nil {
		if err := bodies.Close(); err != nil {
			log.Fatal(err)
		}
		if err := digests.Close(); err != nil {
			log.Fatal(err)
		}
	}
}
