package heads_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet/client"
)

// Every head is restarted behind a load balancer whose configuration Trivet printed. A program that knows the balancer only,
// and says again only what changes nothing, sees no failed request.
func TestRollingRestartBehindHAProxy(t *testing.T) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Fatal("apt-get install haproxy")
	}
	h0 := newHead(t, "head0")
	drain := []string{"--drain", "3s"}
	h0.up(drain...)
	all := []*head{h0}
	for _, name := range []string{"head1", "head2"} {
		h := newHead(t, name)
		h.up(append(drain, "--join", h0.api(), "--token", h0.token())...)
		h0.counts(name)
		all = append(all, h)
	}
	lb := h0.haproxy()
	p := h0.program(lb)
	ctx, cancel := context.WithCancel(t.Context())
	var programs sync.WaitGroup
	for i := range 4 {
		programs.Go(func() { p.writes(ctx, i) })
		programs.Go(func() { p.reads(ctx) })
	}
	for _, h := range all {
		h.stop()
		h.up(drain...)
		for _, other := range all {
			h0.sees(other.name, "member", "leader")
		}
		time.Sleep(2 * time.Second) // the balancer takes it back
	}
	cancel()
	programs.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d requests, %d said again", p.done, p.again)
	if len(p.failed) > 0 || p.done < 100 {
		t.Errorf("of %d requests %d failed:\n%s", p.done, len(p.failed), strings.Join(p.failed[:min(10, len(p.failed))], "\n"))
	}
}

// haproxy runs one with the configuration that the cluster prints, and gives its address.
func (h *head) haproxy() string {
	h.Helper()
	config := h.must("lb", "haproxy") + "\n"
	host := ownHost()
	config = strings.ReplaceAll(config, "bind :", "bind "+host+":")
	path := filepath.Join(h.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		h.Fatal(err)
	}
	if out, err := exec.Command("haproxy", "-c", "-f", path).CombinedOutput(); err != nil {
		h.Fatalf("%v: %s", err, out)
	}
	lb := &head{T: h.T, name: "haproxy", host: host}
	lb.run(exec.Command("haproxy", "-db", "-f", path))
	return host
}

// program is one without the SDK.
type program struct {
	base, token string
	http        *http.Client

	mu          sync.Mutex
	done, again int      // guarded by mu
	failed      []string // guarded by mu
}

func (h *head) program(lb string) *program {
	h.Helper()
	f, err := client.ReadFile(filepath.Join(h.dir, "admin.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	c := must(f.Pick(""))(h.T)
	tls := must(client.TLSConfig(c.Trust))(h.T)
	p := &program{base: "https://" + lb + ":7480", token: c.Token,
		http: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}}}
	h.await("a request by the balancer", func() error { return p.say(h.Context(), "GET", "/v1/machines", "") })
	return p
}

func (p *program) say(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// writes creates records, each once.
func (p *program) writes(ctx context.Context, of int) {
	for i := 0; ctx.Err() == nil; i++ {
		p.note(ctx, p.say(ctx, "POST", "/v1/machines", fmt.Sprintf(`{"kind":"Machine","name":"m%d-%d","spec":{"cordoned":true}}`, of, i)))
		time.Sleep(10 * time.Millisecond)
	}
}

// reads lists them, and says that again where it fails.
func (p *program) reads(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.say(ctx, "GET", "/v1/machines?limit=5", "")
		for tries := 0; err != nil && tries < 5 && ctx.Err() == nil; tries++ {
			p.mu.Lock()
			p.again++
			p.mu.Unlock()
			time.Sleep(200 * time.Millisecond)
			err = p.say(ctx, "GET", "/v1/machines?limit=5", "")
		}
		p.note(ctx, err)
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *program) note(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done++; err != nil && ctx.Err() == nil {
		p.failed = append(p.failed, err.Error())
	}
}
