package heads_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A join that is refused reports why and what to do, does not use up the token, and leaves no trace in the cluster.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	h0 := startFirst(t)
	good := h0.token()
	h0.refusesTokens(t, good)
	h0.refusesFlags(t, good)
	h0.refusesRequests(t, good)
	h0.expectHeads("head0")
	n := newHead(t, "the new head")
	n.Up("--join", h0.API(), "--token", good) // after all that
	t.Run("used", func(t *testing.T) { h0.refuses(t, good, "it was used", "trivet head token") })
}

// refuses starts a new head that joins with a token, and wants a refusal with these words.
func (h *head) refuses(t *testing.T, token string, words ...string) {
	t.Helper()
	n := newHead(t, "the new head")
	n.Start("--join", h.API(), "--token", token)
	n.expectRefusal(words...)
}

// refusesTokens joins with tokens that are not valid.
func (h *head) refusesTokens(t *testing.T, good string) {
	t.Helper()
	t.Run("no token", func(t *testing.T) { h.refuses(t, "", "there is none", "trivet head token") })
	t.Run("no token at all", func(t *testing.T) { h.refuses(t, "secret", "not of the form", "trivet head token") })
	t.Run("wrong secret", func(t *testing.T) {
		last := "a"
		if strings.HasSuffix(good, "a") {
			last = "b"
		}
		h.refuses(t, good[:len(good)-1]+last, "wrong secret", "trivet head token")
	})
	t.Run("of another cluster", func(t *testing.T) {
		other := newHead(t, "head0")
		other.Up()
		n := newHead(t, "the new head")
		n.Start("--join", h.API(), "--token", other.token())
		n.expectRefusal("does not belong to the cluster")
	})
	t.Run("expired", func(t *testing.T) {
		token := h.token("token", "--ttl", "1ms")
		h.refuses(t, token, "it has expired", "trivet head token")
	})
	t.Run("an API token", func(t *testing.T) {
		pin, _, _ := strings.Cut(good, ".")
		api := h.MustTrivet("token", "issue", "admin")
		h.refuses(t, pin+"."+api, "it is an API token", "trivet head token")
	})
	t.Run("role changed", func(t *testing.T) {
		h.refuses(t, good+".witness", "it is for a voter", "pass the whole token")
	})
}

// refusesFlags joins with a valid token and flags that are not.
func (h *head) refusesFlags(t *testing.T, good string) {
	t.Helper()
	t.Run("a name", func(t *testing.T) {
		n := newHead(t, "the new head")
		n.Start("--join", h.API(), "--token", good, "--name", "head0")
		if n.AwaitExit() != 1 || !strings.Contains(n.Log.String(), "the cluster names its heads") {
			t.Errorf("the log is:\n%s", n.Log)
		}
	})
	t.Run("an address without a head", func(t *testing.T) {
		n := newHead(t, "the new head")
		n.Advertise = testhead.NewAddress()
		n.Start("--join", h.API(), "--token", good)
		n.expectRefusal("head0 does not reach the new head", "--advertise", "the token is still valid")
	})
	t.Run("the address of another head", func(t *testing.T) {
		n := newHead(t, "the new head")
		n.Advertise = h.Address
		n.Start("--join", h.API(), "--token", good)
		n.expectRefusal("head0 is reached at "+h.API(), "trivet head replace head0", "--advertise")
	})
	t.Run("the address of another program", func(t *testing.T) {
		n := newHead(t, "the new head")
		n.Advertise = otherProgram(t)
		n.Start("--join", h.API(), "--token", good)
		n.expectRefusal("the address is served by another program", "--advertise")
	})
	t.Run("no URL", func(t *testing.T) {
		n := newHead(t, "the new head")
		n.Start("--join", "http://"+h.Address, "--token", good)
		if n.AwaitExit() != 1 || !strings.Contains(n.Log.String(), "is not https://HOST:PORT") {
			t.Errorf("the log is:\n%s", n.Log)
		}
	})
}

// otherProgram serves TLS on the port of a head, and returns its address.
func otherProgram(t *testing.T) (host string) {
	t.Helper()
	l, err := net.Listen("tcp", testhead.NewAddress()+":7480")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := auth.SelfSigned(must(auth.PeerKey())(t))
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}}}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(l, "", "") }() // until it is closed, with its listener
	host, _, _ = net.SplitHostPort(l.Addr().String())
	return host
}

// refusesRequests sends requests of other versions and clocks.
func (h *head) refusesRequests(t *testing.T, good string) {
	t.Helper()
	for what, c := range map[string]struct {
		change func(*membership.JoinRequest)
		words  []string
	}{
		"too new": {func(a *membership.JoinRequest) { a.Protocol, a.Version = 99, "v9.0.0" },
			[]string{`runs "v9.0.0", which speaks protocol 99`, "upgrade this cluster's heads first"}},
		"too old": {func(a *membership.JoinRequest) { a.Protocol = 0 },
			[]string{"with the version that this cluster's heads run"}},
		"clock ahead": {func(a *membership.JoinRequest) { a.Time = time.Now().Add(5 * time.Minute) },
			[]string{"5m0s ahead of that of head0", "NTP"}},
		"clock behind": {func(a *membership.JoinRequest) { a.Time = time.Now().Add(-5 * time.Minute) },
			[]string{"5m0s behind that of head0", "NTP"}},
	} {
		t.Run(what, func(t *testing.T) {
			err := h.rawJoin(t, good, c.change)
			for _, word := range c.words {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("the answer is %v, without %q", err, word)
				}
			}
		})
	}
}

// rawJoin sends a join request that no program of the project would send.
func (h *head) rawJoin(t *testing.T, text string, change func(*membership.JoinRequest)) error {
	t.Helper()
	token, err := membership.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	tls, err := client.TLSConfig(token.Trust)
	if err != nil {
		t.Fatal(err)
	}
	cl := &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}}
	defer cl.CloseIdleConnections()
	csr := must(auth.PeerRequest(must(auth.PeerKey())(t)))(t)
	req := membership.JoinRequest{
		Token: token.Secret.Reveal(), ID: strings.Repeat("x", 20), Peer: "https://127.0.0.1:1", CSR: csr,
		Role: token.Role, Version: "v0", Protocol: peer.Protocol, Time: time.Now(),
	}
	change(&req)
	return peer.Call(t.Context(), cl, h.API(), "join", req, &membership.JoinResponse{})
}

// A directory with data is used as it is, or refused, never overwritten; --rejoin archives the data.
func TestJoinOntoData(t *testing.T) {
	t.Parallel()
	h0, other := newHead(t, "head0"), newHead(t, "head0 of another cluster")
	h0.Up()
	other.Up()
	before := must(os.ReadFile(filepath.Join(other.Dir, "keys/seal.keys")))(t)
	token := h0.token()

	other.Stop()
	other.Start("--join", h0.API(), "--token", token)
	other.expectRefusal("is of head0 in cluster", "the token is for another cluster", "--rejoin")
	other.Up() // unharmed

	other.Stop()
	other.Up("--join", h0.API(), "--token", token, "--rejoin")
	h0.awaitMember("head1")
	aside := must(filepath.Glob(filepath.Join(other.Dir, "aside/head0-*")))(t)
	if len(aside) != 1 {
		t.Fatalf("archived: %v", aside)
	}
	if kept, err := os.ReadFile(aside[0] + "/keys/seal.keys"); err != nil || string(kept) != string(before) {
		t.Errorf("the old keys: %q, %v", kept, err)
	}
	other.Stop()
	other.Up("--join", h0.API(), "--token", token, "--rejoin") // left in the command: nothing is archived again
	if again := must(filepath.Glob(filepath.Join(other.Dir, "aside/*")))(t); len(again) != 1 {
		t.Errorf("archived again: %v", again)
	}

	old := newHead(t, "the archived data")
	old.Dir = aside[0]
	old.Up()
	old.MustTrivet("get", "heads")
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Only members reach the store, whatever certificate a client shows; and no answer makes a member believe that it was
// removed.
func TestForeignCertificates(t *testing.T) {
	t.Parallel()
	h0 := startFirst(t)
	foreign := must(auth.Init(filepath.Join(t.TempDir(), "keys"), "foreign"))(t)
	key := must(auth.PeerKey())(t)
	csr := must(auth.PeerRequest(key))(t)
	text := must(foreign.CA.SignPeer(auth.Peer{Name: "head0", Role: auth.PeerHead}, csr, time.Now()))(t)
	cert := must(tls.X509KeyPair(text, key))(t)
	cl := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}}}
	defer cl.CloseIdleConnections()
	for _, path := range []string{
		"/raft", "/raft/stream/message/1", "/members", "/version", "/leases", "/downgrade",
		peer.Prefix + "ping", peer.Prefix + "certificate",
	} {
		resp, err := cl.Post(h0.API()+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	h0.MustTrivet("get", "heads")
}
