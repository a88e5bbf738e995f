package heads_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/peer"
)

// A witness whose host prefers another of its addresses calls from the one by which it joined. Its key is worth nothing
// at another host: raft messages, calls and the renewal of its certificate are refused.
func TestStolenWitness(t *testing.T) {
	ports := switched(t, 3)
	mustIP(t, "-n "+ports[2]+" address add 10.99.1.50/24 dev eth0")
	mustIP(t, "-n "+ports[2]+" route change 10.99.1.0/24 dev eth0 src 10.99.1.50")
	var all []*head
	for i, port := range ports {
		h := newHead(t, fmt.Sprint("head", i))
		h.Address = fmt.Sprintf("10.99.1.%d", 10+i)
		flags := []string{"--advertise", h.Address, "--api", h.Address + ":7480", "--boot", h.Address + ":7481",
			"--tftp", ""}
		switch i {
		case 1:
			flags = append(flags, "--join", all[0].API(), "--token", all[0].token())
		case 2:
			flags = append(flags, "--join", all[0].API(), "--token", all[0].token("token", "--witness"))
		}
		h.StartIn(port, flags...)
		h.AwaitReady()
		all = append(all, h)
		all[0].awaitMember(h.Name)
	}
	h0, h1, w := all[0], all[1], all[2]
	l := newLedger(t, h0.client(h0))
	h1.Kill()
	l.write() // by the votes of head0 and the witness
	w.Kill()
	w.StartIn(ports[2], "--advertise", w.Address, "--api", w.Address+":7480")
	w.AwaitReady()
	l.write()
	w.isRefusedElsewhere(t, h0)
}

// isRefusedElsewhere uses the key and certificate of a witness at this process's address.
func (h *head) isRefusedElsewhere(t *testing.T, at *head) {
	pair := must(tls.LoadX509KeyPair(filepath.Join(h.Dir, "peer.pem"), filepath.Join(h.Dir, "peer.pem")))(t)
	root := must(auth.ParseRoot(must(os.ReadFile(filepath.Join(h.Dir, "keys/ca.pem")))(t)))(t)
	stolen := func() (*tls.Certificate, error) { return &pair, nil }
	cl := peer.NewClient(stolen, func() *auth.Root { return root }, func() peer.Info { return peer.Info{Head: h.Name} })
	defer cl.Close()
	csr := must(auth.PeerRequest(must(auth.PeerKey())(t)))(t)
	for path, body := range map[string]any{
		"ping": peer.Info{Head: h.Name}, "member/verify": membership.VerifyRequest{},
		"certificate": membership.RenewRequest{CSR: csr, Peer: h.API()},
	} {
		var resp map[string]any
		err := cl.Call(t.Context(), at.API(), path, body, &resp)
		if !errors.Is(err, trivet.ErrUnauthenticated) || len(resp) > 0 {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
	raft := &http.Client{Transport: &http.Transport{TLSClientConfig: root.PeerTLS(stolen), ForceAttemptHTTP2: true}}
	defer raft.CloseIdleConnections()
	for _, path := range []string{"/raft", "/raft/probing", "/members", "/version"} {
		resp, err := raft.Post(at.API()+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}
