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
	"github.com/trivet-project/trivet/internal/testhead"
)

// Every head is restarted behind a load balancer whose configuration Trivet printed. A program that knows only the
// balancer, and retries only reads, sees no failed request.
func TestRollingRestartBehindHAProxy(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Fatal("apt-get install haproxy")
	}
	h0 := newHead(t, "head0")
	drain := []string{"--drain", "3s"}
	h0.Up(drain...)
	all := []*head{h0}
	for _, name := range []string{"head1", "head2"} {
		h := newHead(t, name)
		h.Up(append(drain, "--join", h0.API(), "--token", h0.token())...)
		h0.awaitMember(name)
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
		h.Stop()
		h.Up(drain...)
		for _, other := range all {
			h0.awaitState(other.Name, "member", "leader")
		}
		time.Sleep(2 * time.Second) // the balancer adds it again
	}
	cancel()
	programs.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d requests, %d retries", p.done, p.retries)
	if len(p.failed) > 0 || p.done < 100 {
		t.Errorf("of %d requests %d failed:\n%s", p.done, len(p.failed),
			strings.Join(p.failed[:min(10, len(p.failed))], "\n"))
	}
}

// haproxy runs HAProxy with the configuration that the cluster prints, and returns its address.
func (h *head) haproxy() string {
	h.Helper()
	config := h.MustTrivet("lb", "haproxy") + "\n"
	host := testhead.NewAddress()
	config = strings.ReplaceAll(config, "bind :", "bind "+host+":")
	path := filepath.Join(h.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		h.Fatal(err)
	}
	if out, err := exec.Command("haproxy", "-c", "-f", path).CombinedOutput(); err != nil {
		h.Fatalf("%v: %s", err, out)
	}
	lb := &head{&testhead.Head{T: h.T, Name: "haproxy", Address: host}}
	lb.RunCommand(testhead.Command("", "haproxy", "-db", "-f", path))
	return host
}

// program is an API client without the SDK.
type program struct {
	base, token string
	http        *http.Client

	mu            sync.Mutex
	done, retries int      // guarded by mu
	failed        []string // guarded by mu
}

func (h *head) program(lb string) *program {
	h.Helper()
	c := h.Credential()
	tls := must(client.TLSConfig(c.Trust))(h.T)
	p := &program{base: "https://" + lb + ":7480", token: c.Token,
		http: &http.Client{
			Timeout:   20 * time.Second,
			Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true},
		}}
	h.Await("a request by the balancer", func() error { return p.do(h.Context(), "GET", "/v1/machines", "") })
	return p
}

func (p *program) do(ctx context.Context, method, path, body string) error {
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
		p.record(ctx, p.do(ctx, "POST", "/v1/machines",
			fmt.Sprintf(`{"kind":"Machine","name":"m%d-%d","spec":{"cordoned":true}}`, of, i)))
		time.Sleep(10 * time.Millisecond)
	}
}

// reads lists them, and retries where that fails.
func (p *program) reads(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.do(ctx, "GET", "/v1/machines?limit=5", "")
		for tries := 0; err != nil && tries < 5 && ctx.Err() == nil; tries++ {
			p.mu.Lock()
			p.retries++
			p.mu.Unlock()
			time.Sleep(200 * time.Millisecond)
			err = p.do(ctx, "GET", "/v1/machines?limit=5", "")
		}
		p.record(ctx, err)
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *program) record(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done++; err != nil && ctx.Err() == nil {
		p.failed = append(p.failed, err.Error())
	}
}
