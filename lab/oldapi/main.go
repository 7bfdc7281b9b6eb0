// Package oldapi lets a Bazel with version 2.0 of the remote execution API use a server that requires 2.1 or later. It
// changes the oldest version that the server names to 2.0, and nothing else: the servers still know the fields of 2.0.
// LISTEN and SERVER are addresses such as localhost:8990.
package oldapi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"

	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("oldapi", "LISTEN SERVER", 2, 2)
	c.Run = func(args []string) error { return serve(args[0], args[1]) }
	return c
}

func serve(listen, to string) error {
	var plain http.Protocols // gRPC without TLS
	plain.SetUnencryptedHTTP2(true)
	server := http.Server{
		Addr: listen,
		Handler: &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: to}) },
			Transport:      &http.Transport{Protocols: &plain, DisableCompression: true},
			FlushInterval:  -1, // streams
			ModifyResponse: accept,
		},
		Protocols: &plain,
	}
	return server.ListenAndServe()
}

// accept makes 2.0 the oldest version in what the server says of itself.
func accept(r *http.Response) error {
	if r.Request.URL.Path != "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities" {
		return nil
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := r.Body.Close(); err != nil {
		return err
	}
	b, err = lower(b)
	r.Body = io.NopCloser(bytes.NewReader(b))
	return err
}

// lower changes a message of the type ServerCapabilities. The five bytes of gRPC before it have its compression and
// its size. Field 4, low_api_version, is a SemVer; its fields 1 and 2 are the major and the minor number.
func lower(b []byte) ([]byte, error) {
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:]))+5 != uint64(len(b)) {
		return nil, fmt.Errorf("capabilities % x: not one uncompressed message", b)
	}
	for at := 5; at < len(b); {
		key, n := binary.Uvarint(b[at:])
		size, m := binary.Uvarint(b[at+max(n, 0):])
		start := at + n + m
		if n <= 0 || m <= 0 || key&7 != 2 && key&7 != 0 {
			return nil, fmt.Errorf("capabilities % x: a field is neither a number nor has a length", b)
		}
		if key&7 == 0 { // a number, which size is
			at = start
			continue
		}
		if size > uint64(len(b)-start) {
			return nil, fmt.Errorf("capabilities % x: field %d goes past the end", b, key>>3)
		}
		if version := b[start : start+int(size)]; key>>3 == 4 && bytes.HasPrefix(version, []byte{1 << 3, 2, 2 << 3}) {
			version[3] = 0
			return b, nil
		}
		at = start + int(size)
	}
	return nil, fmt.Errorf("capabilities % x: the oldest version is not 2.x", b)
}
