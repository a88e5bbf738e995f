package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/api"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/auth/authtest"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/console"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/testhead"
	"github.com/trivet-project/trivet/internal/workflow"
)

// head is the API on a real store, served over real TLS.
type head struct {
	t        *testing.T
	name     string
	url      string
	twins    int
	keys     *auth.Keys
	fleet    *fleet.Fleet
	presence *presence.Tracker
	blobs    *blob.Store
	copies   *replica.Blobs
	logs     *runlog.Store
	handler  *api.Handler
	peers    *peer.Server // for other heads
	server   *http.Server
	log      *syncBuffer
	admin    string // token
	member   *cluster.Member

	isCutOff atomic.Bool           // it has no leader
	refuse   atomic.Pointer[error] // what the store refuses all writes with; nil: it refuses none
}

func newHead(t *testing.T) *head {
	t.Helper()
	dir := t.TempDir()
	h := serveHead(t, storetest.Member(t), must(auth.Init(filepath.Join(dir, "keys"), "c1"))(t), "head0")
	h.admin = h.account("root", "admin")
	return h
}

// twin returns another head of the cluster, with its own copy of the store and its own API.
func (h *head) twin() *head {
	h.t.Helper()
	h.twins++
	twin := serveHead(h.t, h.member, h.keys, fmt.Sprint("head", h.twins))
	twin.admin = h.admin
	return twin
}

// storeTimeout is three times the default: many of these tests run at the same time, with -race.
const storeTimeout = 15 * time.Second

func serveHead(t *testing.T, member *cluster.Member, keys *auth.Keys, name string) *head {
	t.Helper()
	dir, reg := t.TempDir(), prometheus.NewRegistry()
	h := &head{t: t, name: name, log: &syncBuffer{}, member: member, keys: keys}
	h.fleet = fleet.New(storetest.On(t, member, store.Options{Head: name, Timeout: storeTimeout,
		Admit: func(int, int64) error {
			if why := h.refuse.Load(); why != nil {
				return *why
			}
			return nil
		}}, state.New), name)
	h.presence = presence.New(presence.NewClock(func() bool { return !h.isCutOff.Load() }), h.fleet.AgentTimeout)
	h.fleet.AgentUp, h.fleet.AgentSilence = h.presence.Up, h.presence.Silence
	h.blobs = must(blob.Open(filepath.Join(dir, "blobs"), blob.Options{}))(t)
	t.Cleanup(func() { h.blobs.Close() })
	h.copies = replica.NewBlobs(replica.BlobConfig{Self: name, Store: h.blobs, Tables: h.fleet.Tables,
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(h.copies.Close)
	h.logs = must(runlog.Open(filepath.Join(dir, "logs"), 0, nil))(t)
	t.Cleanup(func() { h.logs.Close() })
	logs := &replica.Logs{Self: name, Store: h.logs, Tables: h.fleet.Tables,
		Client: peer.NewClient(h.certify(), func() *auth.Root { return &keys.CA.Root }, nil)}
	t.Cleanup(logs.Client.Close)
	records := membership.NewRecords(h.fleet.Tables, name)
	h.peers = peer.NewServer(peer.Config{Root: &keys.CA.Root, Membership: &membership.Verifier{Records: records},
		Log: slog.New(slog.DiscardHandler)})
	logs.Register(h.peers)
	consoles := console.New(console.Config{Self: name, Tables: h.fleet.Tables, Client: logs.Client,
		Unseal: func(s *trivet.Secret, key string) (string, error) { return s.Spec.Data[key], nil }, Log: slog.Default()})
	t.Cleanup(consoles.Close)
	consoles.Register(h.peers)
	h.handler = api.New(api.Config{
		Fleet: h.fleet, Heads: records, Presence: h.presence, Keys: h.keys, Blobs: h.blobs, Copies: h.copies,
		Logs: logs, Consoles: consoles, Power: readPower, Metrics: reg,
		Backups: recovery.NewSource(recovery.SourceConfig{Dir: dir, Member: member, Tables: h.fleet.Tables, Keys: keys,
			Version: "v0", Head: func() recovery.HeadConfig { return recovery.HeadConfig{Name: name} }}),
		CheckTemplate: workflow.Check,
		Status: func(context.Context) (trivet.StatusReport, error) {
			return trivet.StatusReport{State: trivet.InvariantHolds}, nil
		},
		Log:     slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Version: trivet.Version{Version: "v0", Head: name},
		Ready: func(context.Context) error {
			if h.isCutOff.Load() {
				return fmt.Errorf("%w: the cluster has no leader", trivet.ErrUnavailable)
			}
			return nil
		},
	})
	h.listen()
	return h
}

// listen serves at an address where no other program takes the port while it is down.
func (h *head) listen() { h.serve(testhead.NewAddress() + ":0") }

// listenAgain serves at the head's previous address.
func (h *head) listenAgain() { h.serve(strings.TrimPrefix(h.url, "https://")) }

func (h *head) serve(addr string) {
	l := must(net.Listen("tcp", addr))(h.t)
	h.url = "https://" + l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/", h.handler)
	mux.Handle(peer.Prefix, h.peers)
	host := must(netip.ParseAddrPort(l.Addr().String()))(h.t).Addr().String()
	s := &http.Server{Handler: mux, TLSConfig: h.keys.CA.ServerCert(func() []string { return []string{host} },
		time.Now).TLS(),
		MaxHeaderBytes: api.MaxHeader, ErrorLog: log.New(io.Discard, "", 0)}
	h.server = s
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ServeTLS(l, "", "")
	}()
	h.t.Cleanup(func() { s.Close(); <-done })
}

// certify returns a certificate of a member.
func (h *head) certify() auth.CertFunc {
	cert := authtest.PeerCert(h.t, h.keys, auth.Peer{Name: h.name, Role: auth.PeerHead}, time.Now())
	return func() (*tls.Certificate, error) { return cert, nil }
}

// introduce writes this head's record, so that the others know its address.
func (h *head) introduce() {
	h.t.Helper()
	put(h, h.fleet.Heads, &trivet.Head{Meta: trivet.Meta{Name: h.name}, Spec: trivet.HeadSpec{Role: trivet.RoleVoter},
		Status: trivet.HeadStatus{State: trivet.HeadMember, Peer: h.url}})
}

// account creates an account and a token for it.
func (h *head) account(name, role string) (token string) {
	h.t.Helper()
	id, plain, hash := auth.NewToken()
	_, err := h.fleet.Store.Update(h.t.Context(), func(tx *store.Tx) error {
		if err := h.fleet.Accounts.In(tx).Put(&trivet.Account{Meta: trivet.Meta{Name: name},
			Spec: trivet.AccountSpec{Role: trivet.AccountRole(role)}}); err != nil {
			return err
		}
		return h.fleet.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: id},
			Spec: trivet.TokenSpec{Account: name, Hash: hash}})
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return plain.Reveal()
}

func (h *head) client(token string) *client.Client {
	h.t.Helper()
	c := must(client.New(client.Config{Endpoints: []string{h.url}, Trust: h.keys.CA.Trust(), Token: token,
		RetryTimeout: -1}))(h.t)
	h.t.Cleanup(c.Close)
	return c
}

// put writes a record as Trivet does.
func put[T any](h *head, table *store.Table[T], v *T) {
	h.t.Helper()
	if _, err := h.fleet.Store.Update(h.t.Context(),
		func(tx *store.Tx) error { return table.In(tx).Put(v) }); err != nil {
		h.t.Fatal(err)
	}
}

// ask sends a request as curl would, and returns status and body. headers are "Name: value".
func (h *head) ask(token, method, path, body string, headers ...string) (int, map[string]any) {
	h.t.Helper()
	resp := h.do(token, method, path, body, headers...)
	defer resp.Body.Close()
	data := must(io.ReadAll(resp.Body))(h.t)
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil && len(data) > 0 {
		out = map[string]any{"text": string(data)}
	}
	return resp.StatusCode, out
}

func (h *head) do(token, method, path, body string, headers ...string) *http.Response {
	h.t.Helper()
	req := must(http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body)))(h.t)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	return must(h.http().Do(req))(h.t)
}

func (h *head) http() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: must(client.TLSConfig(h.keys.CA.Trust()))(h.t),
		ForceAttemptHTTP2: true}}
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

func machine(name string, macs ...string) *trivet.Machine {
	m := &trivet.Machine{Meta: trivet.Meta{Kind: "Machine", Name: name}}
	for _, mac := range macs {
		m.Spec.NICs = append(m.Spec.NICs, trivet.NIC{MAC: mac})
	}
	return m
}

func putRaw(kind trivet.Kind, name, doc string) func(*store.Tx) error {
	return func(tx *store.Tx) error { return tx.PutRaw(kind, name, []byte(doc)) }
}

// syncBuffer is a log that a test reads while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
