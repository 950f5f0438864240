// What vmagent's own packages need from OTLP bytes to a snappy body of remote write, for the points that benches/src/points.rs makes.
//
//	cd deploy/compare/vmagent-encode && go mod tidy && go run .
//
// The steps are vmagent's: parse and expand, copy what the parser will use again, marshal, compress; one thread.
package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/VictoriaMetrics/VictoriaMetrics/lib/prompb"
	"github.com/VictoriaMetrics/VictoriaMetrics/lib/protoparser/opentelemetry/pb"
	"github.com/VictoriaMetrics/VictoriaMetrics/lib/protoparser/opentelemetry/stream"
	"github.com/golang/snappy"
)

const points = 10_000

var resource = []string{
	"service.name", "service.instance.id", "host.name", "k8s.namespace.name", "k8s.pod.name", "k8s.node.name",
	"k8s.deployment.name", "k8s.cluster.name", "cloud.region", "cloud.availability_zone", "deployment.environment.name",
	"telemetry.sdk.language",
}

func attribute(key, value string) *pb.KeyValue {
	return &pb.KeyValue{Key: key, Value: &pb.AnyValue{StringValue: &value}}
}

func request(attributes int) []byte {
	var of []*pb.KeyValue
	for _, key := range resource[:attributes] {
		of = append(of, attribute(key, key+"-value-0001"))
	}
	var metrics []*pb.Metric
	for first := 0; first < points; first += 100 {
		var numbers []*pb.NumberDataPoint
		for n := first; n < first+100; n++ {
			value := float64(n) * 1.25
			numbers = append(numbers, &pb.NumberDataPoint{
				Attributes:   []*pb.KeyValue{attribute("http.route", fmt.Sprintf("/api/v1/items/%06d", n))},
				TimeUnixNano: 1_790_000_000_000_000_000,
				DoubleValue:  &value,
			})
		}
		metrics = append(metrics, &pb.Metric{
			Name:  fmt.Sprintf("http.server.active_requests.%d", first/100),
			Unit:  "{request}",
			Gauge: &pb.Gauge{DataPoints: numbers},
		})
	}
	name, version := "io.opentelemetry.http", "1.2.3"
	data := pb.MetricsData{ResourceMetrics: []*pb.ResourceMetrics{{
		Resource: &pb.Resource{Attributes: of},
		ScopeMetrics: []*pb.ScopeMetrics{{
			Scope:   &pb.InstrumentationScope{Name: &name, Version: &version},
			Metrics: metrics,
		}},
	}}}
	return data.MarshalProtobuf(nil)
}

func main() {
	for _, attributes := range []int{3, 12} {
		data := request(attributes)
		var plain, packed int
		result := testing.Benchmark(func(b *testing.B) {
			var texts []byte
			var labels []prompb.Label
			var samples []prompb.Sample
			var series []prompb.TimeSeries
			var marshalled, block []byte
			for b.Loop() {
				plain, packed = 0, 0
				err := stream.ParseStream(bytes.NewReader(data), "", nil, func(tss []prompb.TimeSeries, _ []prompb.MetricMetadata) error {
					texts, labels, samples, series = texts[:0], labels[:0], samples[:0], series[:0]
					for _, one := range tss {
						first := len(labels)
						for _, label := range one.Labels {
							labels = append(labels, prompb.Label{Name: label.Name, Value: label.Value})
							texts = append(append(texts, label.Name...), label.Value...)
						}
						at := len(samples)
						samples = append(samples, one.Samples...)
						series = append(series, prompb.TimeSeries{Labels: labels[first:len(labels):len(labels)], Samples: samples[at:]})
					}
					wr := prompb.WriteRequest{Timeseries: series}
					marshalled = wr.MarshalProtobuf(marshalled[:0])
					block = snappy.Encode(block[:cap(block)], marshalled)
					plain += len(marshalled)
					packed += len(block)
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		fmt.Printf("%d resource attributes: %d ns a point; OTLP %d B, 1.0 %d B, snappy %d B a point\n", attributes,
			result.NsPerOp()/points, len(data)/points, plain/points, packed/points)
	}
}
