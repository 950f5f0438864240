// Go's decoders; see run.sh.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

func tell(name, file string, decode func([]byte) ([]byte, error)) {
	expected, _ := os.ReadFile("expected")
	data, _ := os.ReadFile(file)
	got, err := decode(data)
	what := "FIRST ONLY"
	switch {
	case err != nil:
		what = "refused"
	case bytes.Equal(got, expected):
		what = "all"
	case len(got) == 0:
		what = "taken"
	}
	fmt.Printf("Go, %s: %s: %s\n", name, strings.Split(file, ".")[0], what)
}

func main() {
	for _, body := range []string{"two", "probe"} {
		tell("klauspost zstd.Reader", body+".zst", func(data []byte) ([]byte, error) {
			reader, err := zstd.NewReader(bytes.NewReader(data))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(reader)
		})
		tell("klauspost zstd DecodeAll", body+".zst", func(data []byte) ([]byte, error) {
			reader, err := zstd.NewReader(nil)
			if err != nil {
				return nil, err
			}
			return reader.DecodeAll(data, nil)
		})
		tell("compress/gzip", body+".gz", func(data []byte) ([]byte, error) {
			reader, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(reader)
		})
	}
}
