// The sender that prometheus/compliance's sender suite is run against: Prometheus scrapes the suite's target and sends to sluice, which sends straight through to the
// suite's receiver; or, where SLUICE is empty, Prometheus alone, to compare with. It stands in the place of the suite's own main_test.go; ../compliance-sender.sh puts it
// there.
package sender

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
)

// defaultWait is how long a scenario without a time of its own may take until its requests are there.
const defaultWait = 15 * time.Second

// settle is how long a scenario goes on behind its last request: a sender that tries again does so by then.
const settle = 2 * time.Second

// firstRequest is how long the first request may take to come, with as many senders as tests run at a time.
const firstRequest = 30 * time.Second

// countedFor is how long the suite's own tests of errors count requests (error_handling_test.go).
const countedFor = 8 * time.Second

// SenderTestScenario is what the suite's tests are made of.
type SenderTestScenario struct {
	ScrapeData           string
	ReceiverResponse     MockReceiverResponse
	Validator            func(t *testing.T, req *CapturedRequest)
	WaitTime             time.Duration
	ExpectedRequestCount int
}

type throughSluice struct{}

func (throughSluice) Name() string { return "sluice" }

const prometheusConfig = `
global: {scrape_interval: 1s}
remote_write:
  - url: %s
    protobuf_message: %s
    send_exemplars: true
    send_native_histograms: true
    queue_config: {batch_send_deadline: 500ms}
scrape_configs:
  - job_name: %q
    scrape_native_histograms: true
    scrape_protocols: [PrometheusProto, OpenMetricsText1.0.0, PrometheusText0.0.4]
    static_configs: [{targets: [%q]}]
`

const sluiceConfig = `
receivers:
  prometheusremotewrite: {endpoint: "127.0.0.1:%d"}
exporters:
  prometheusremotewrite:
    endpoint: %s
    protobuf_message: %s
    remote_write_queue: {num_consumers: 1}
    retry_on_failure: {initial_interval: 500ms}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [prometheusremotewrite], exporters: [prometheusremotewrite]}
`

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func listens(port int) error {
	until := time.Now().Add(10 * time.Second)
	for {
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(until) {
			return fmt.Errorf("sluice does not listen: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Run runs both until the context is done, and stops them then as an operator does: the suite counts what they send meanwhile, too.
func (throughSluice) Run(ctx context.Context, o Options) error {
	dir, err := os.MkdirTemp("", "sender-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	port, err := freePort()
	if err != nil {
		return err
	}
	sluice, url := os.Getenv("SLUICE"), o.RemoteWriteEndpointURL
	if sluice != "" {
		url = fmt.Sprintf("http://127.0.0.1:%d/api/v1/write", port)
	}
	files := map[string]string{
		"sluice.yaml":     fmt.Sprintf(sluiceConfig, port, o.RemoteWriteEndpointURL, o.RemoteWriteMessage),
		"prometheus.yaml": fmt.Sprintf(prometheusConfig, url, o.RemoteWriteMessage, o.ScrapeTargetJobName, o.ScrapeTargetHostPort),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	ended, running := make(chan error, 2), 1
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	if sluice != "" {
		running = 2
		go func() { ended <- RunCommand(inner, dir, nil, sluice, "--config", "sluice.yaml") }()
		if err := listens(port); err != nil {
			return err
		}
	}
	go func() {
		ended <- RunCommand(inner, dir, nil, os.Getenv("PROMETHEUS"), "--web.listen-address=127.0.0.1:0",
			"--storage.tsdb.path=data", "--config.file=prometheus.yaml",
			"--enable-feature=exemplar-storage,native-histograms,metadata-wal-records,created-timestamp-zero-ingestion")
	}()
	first := <-ended
	cancel()
	if running == 2 {
		<-ended
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("a process ended by itself: %w", first)
}

func runUntil(t *testing.T, url string, scrape *MockScrapeTarget, wait time.Duration, done func() bool) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- throughSluice{}.Run(ctx, Options{
			ScrapeTargetJobName:    "test",
			ScrapeTargetHostPort:   strings.TrimPrefix(scrape.URL(), "http://"),
			RemoteWriteEndpointURL: url,
			RemoteWriteMessage:     remote.WriteV2MessageType,
		})
	}()
	for until := time.Now().Add(wait); time.Now().Before(until) && !done(); {
		select {
		case err := <-ended:
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
	cancel()
	return <-ended
}

func runSenderTest(t *testing.T, _ string, _ Sender, scenario SenderTestScenario) {
	t.Helper()
	receiver := NewMockReceiver()
	defer receiver.Close()
	if scenario.ReceiverResponse.StatusCode != 0 {
		receiver.SetResponse(scenario.ReceiverResponse)
	}
	scrape := NewMockScrapeTarget(scenario.ScrapeData)
	defer scrape.Close()
	wait, want := scenario.WaitTime, max(scenario.ExpectedRequestCount, 1)
	if wait == 0 {
		wait = defaultWait
	}
	var there time.Time
	err := runUntil(t, receiver.URL(), scrape, wait, func() bool {
		if there.IsZero() && len(receiver.GetRequests()) >= want {
			there = time.Now()
		}
		return scenario.WaitTime == 0 && !there.IsZero() && time.Since(there) > settle
	})
	if err != nil {
		t.Fatal(err)
	}
	requests := receiver.GetRequests()
	if len(requests) < want {
		t.Fatalf("%d requests of at least %d came", len(requests), want)
	}
	if scenario.Validator != nil {
		scenario.Validator(t, &requests[0])
	}
}

func runAutoTargetWithCustomReceiver(t *testing.T, _ string, _ Sender, url string, scrape *MockScrapeTarget, wait time.Duration) error {
	t.Helper()
	return runUntil(t, url, scrape, wait, func() bool { return false })
}

// In the tests that no longer start a sender. They count requests: one at least, or two at the most where nothing is to be sent again.
func runWhereTheSuiteDoesNot(t *testing.T, receiver *MockReceiver, scrape *MockScrapeTarget) {
	t.Helper()
	var first time.Time
	err := runUntil(t, receiver.URL(), scrape, firstRequest+countedFor, func() bool {
		if first.IsZero() && len(receiver.GetRequests()) > 0 {
			first = time.Now()
		}
		return !first.IsZero() && time.Since(first) > countedFor
	})
	if err != nil {
		t.Fatal(err)
	}
}

func runTestCases(t *testing.T, tests []TestCase) {
	for _, tt := range tests {
		t.Run(tt.Name, func(t *testing.T) {
			t.Parallel()
			t.Attr("rfcLevel", tt.RFCLevel)
			runSenderTest(t, "sluice", throughSluice{}, SenderTestScenario{ScrapeData: tt.ScrapeData, Validator: tt.Validator})
		})
	}
}

func forEachSender(t *testing.T, f func(*testing.T, string, Sender)) {
	t.Run("sluice", func(t *testing.T) {
		t.Attr("rw", "sluice")
		f(t, "sluice", throughSluice{})
	})
}

// The tests that the suite calls official.
func TestCompliance(t *testing.T) {
	RunTests(t, throughSluice{}, ComplianceTests())
}
