package action

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// runHook lets cloud-init itself run vendor-data, as it does at each boot.
const runHook = `
import sys
from cloudinit import helpers
from cloudinit.handlers import boot_hook
paths = helpers.Paths({"cloud_dir": sys.argv[1] + "/cloud", "run_dir": sys.argv[1] + "/run"})
hook = boot_hook.BootHookPartHandler(paths, None)
hook.boothook_dir = sys.argv[1] + "/cloud"
hook.handle_part(None, "text/cloud-boothook", "part-001", open(sys.argv[1] + "/vendor-data").read(), None)
`

// The system phones home when it is up, to any head, once; also when it was cut off the first time.
func TestPhoneHome(t *testing.T) {
	dir := t.TempDir()
	calls, bodies := make(chan string, 10), make(chan string, 10)
	serve := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(status)
			bodies <- string(body)
			calls <- r.Method + " " + r.URL.Path
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	run := &trivet.Run{PhoneHomes: []string{"http://127.0.0.1:1/phone-home/a", serve(503) + "/phone-home/b",
		serve(200) + "/phone-home/c"}}
	s := state{result: filepath.Join(dir, "result.json"), done: filepath.Join(dir, "done")}
	vendor, err := phoneHome(run, s)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "vendor-data"), vendor, 0o600))
	must(t, os.MkdirAll(filepath.Join(dir, "cloud"), 0o755))
	boot := func() {
		t.Helper()
		if out, err := exec.Command("/usr/bin/python3", "-c", runHook, dir).CombinedOutput(); err != nil {
			t.Fatalf("cloud-init (apt-get install cloud-init): %v: %s", err, out)
		}
	}
	boot() // does not wait
	if len(calls) > 0 {
		t.Errorf("%s, before the system is up", <-calls)
	}
	must(t, os.WriteFile(s.result+".new", []byte(`{"v1": {"datasource": "x", "errors": ["('scripts_user', é)"]}}`), 0o600))
	must(t, os.Rename(s.result+".new", s.result))
	for _, want := range []string{"POST /phone-home/b", "POST /phone-home/c"} {
		select {
		case got := <-calls:
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if body := <-bodies; body != `{"errors": ["('scripts_user', \u00e9)"]}` {
				t.Errorf("%s with %s", got, body)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no %s", want)
		}
	}
	for !exists(s.done) {
		time.Sleep(10 * time.Millisecond)
	}
	boot() // ends at once: nothing is left running that could call
	if len(calls) > 0 {
		t.Errorf("%s, at a boot after it has phoned home", <-calls)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestPhoneHomeWithoutURLs(t *testing.T) {
	if none, err := phoneHome(&trivet.Run{}, cloudState); none != nil || err != nil {
		t.Errorf("%s, %v", none, err)
	}
}
