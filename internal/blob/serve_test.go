package blob

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestServe(t *testing.T) {
	s := open(t, Options{})
	content := noise(ChunkBytes + 10)
	ref := put(t, s, content)
	base := serve(t, s, nil) + "/blob"
	url := base + "/" + ref.Digest
	table, err := os.ReadFile(s.path(digestOf(t, ref)) + tableSuffix)
	must(t, err)
	for name, c := range map[string]struct {
		method, url, header, value string
		status                     int
		body                       []byte
	}{
		"whole":            {"GET", url, "", "", 200, content},
		"head":             {"HEAD", url, "", "", 200, nil},
		"range":            {"GET", url, "Range", "bytes=5-9", 206, content[5:10]},
		"rest":             {"GET", url, "Range", "bytes=4194304-", 206, content[ChunkBytes:]},
		"end":              {"GET", url, "Range", "bytes=-3", 206, content[ChunkBytes+7:]},
		"beyond":           {"GET", url, "Range", "bytes=4194314-", 416, nil},
		"known":            {"GET", url, "If-None-Match", `"` + ref.Digest + `"`, 304, nil},
		"table":            {"GET", url + ".chunks", "", "", 200, table},
		"table, not known": {"GET", url + ".chunks", "If-None-Match", `"` + ref.Digest + `"`, 200, table},
		"other":            {"GET", base + "/" + refOf(nil).Digest, "", "", 404, nil},
		"other's table":    {"GET", base + "/" + refOf(nil).Digest + ".chunks", "", "", 404, nil},
		"up":               {"GET", base + "/sha256:%2e%2e%2f%2e%2e%2ftmp", "", "", 400, nil},
		"null":             {"GET", url + "%00", "", "", 400, nil},
		"directory":        {"GET", base + "/", "", "", 400, nil},
		"write":            {"PUT", url, "", "", 405, nil},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		must(t, err)
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != c.status || c.body != nil && !bytes.Equal(body, c.body) {
			t.Errorf("%s: %s, %d bytes", name, resp.Status, len(body))
		}
		cached := strings.Contains(resp.Header.Get("Cache-Control"), "immutable") && resp.Header.Get("ETag") != ""
		if good := c.status < 400; cached != good {
			t.Errorf("%s: ETag %q, Cache-Control %q", name, resp.Header.Get("ETag"), resp.Header.Get("Cache-Control"))
		}
		if c.method == "HEAD" && resp.ContentLength != ref.Bytes {
			t.Errorf("HEAD: %d bytes", resp.ContentLength)
		}
	}
}
