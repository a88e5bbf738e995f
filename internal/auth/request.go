package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// AgentScheme begins the Authorization header of an agent's request.
const AgentScheme = "Trivet-Agent"

// MaxSignedBody bounds the body of a signed request in bytes: it is hashed as a whole, so it must fit in memory. Logs
// are uploaded in pieces of at most this size.
const MaxSignedBody = 1 << 20

// Agent is the signer of a request.
type Agent struct {
	Machine string
	Key     string    // fingerprint of its key
	Time    time.Time // by the agent's clock, whole milliseconds

	body string // digest of the body that it signed
}

// Fingerprint names an agent's key for logs and headers: 64 bits of its hash. It is an identifier, not a proof.
func Fingerprint(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// SignRequest adds the agent's proof to a request with this body. now is the head's time as the agent knows it.
//
// The signature covers method, path and query, body, machine and time, and does not depend on TLS, so that a
// balancer may terminate TLS. It does not cover the host (any head is valid) nor other headers.
func SignRequest(req *http.Request, body []byte, machine string, key ed25519.PrivateKey, now time.Time) {
	var nonce [12]byte
	rand.Read(nonce[:])
	p := proof{
		machine: machine,
		key:     Fingerprint(key.Public().(ed25519.PublicKey)),
		millis:  now.UnixMilli(),
		nonce:   base64.RawURLEncoding.EncodeToString(nonce[:]),
		body:    bodyDigest(body),
	}
	p.sig = ed25519.Sign(key, p.signed(req))
	req.Header.Set("Authorization", p.String())
}

// VerifyRequest checks the proof of a request whose body has been read: see VerifyHeader and Agent.VerifyBody.
func VerifyRequest(r *http.Request, body []byte, lookup func(machine string) (ed25519.PublicKey, error),
	now time.Time, maxSkew time.Duration) (Agent, error) {
	agent, err := VerifyHeader(r, lookup, now, maxSkew)
	if err != nil {
		return Agent{}, err
	}
	return agent, agent.VerifyBody(body)
}

// VerifyBody checks that a body is the one that the agent signed.
func (a Agent) VerifyBody(body []byte) error {
	switch {
	case len(body) > MaxSignedBody:
		return fmt.Errorf("agent's request: %w: body of %d bytes; at most %d",
			trivet.ErrTooLarge, len(body), MaxSignedBody)
	case bodyDigest(body) != a.body:
		return agentError("the body is not the one that machine " + a.Machine + " signed")
	}
	return nil
}

// VerifyHeader checks the proof of a request whose body has not been read: the caller is known before the head spends
// memory on it. [Agent.VerifyBody] must follow. lookup returns the key that is registered for a machine. It fails with
// [trivet.ErrUnauthenticated], [trivet.ErrClockSkew] or lookup's error.
//
// A request that is replayed within maxSkew is accepted again. That is harmless by design: hellos, reports and log
// pieces are idempotent and bound to an epoch, so a copy has no effect. maxSkew only bounds how old a copy
// can be.
func VerifyHeader(r *http.Request, lookup func(machine string) (ed25519.PublicKey, error),
	now time.Time, maxSkew time.Duration) (Agent, error) {
	if n := len(r.Header.Values("Authorization")); n != 1 {
		return Agent{}, agentError(fmt.Sprintf("%d Authorization headers", n))
	}
	p, err := parseProof(r.Header.Get("Authorization"))
	if err != nil {
		return Agent{}, err
	}
	key, err := lookup(p.machine)
	if err != nil {
		return Agent{}, fmt.Errorf("agent's request: key of machine %s: %w", p.machine, err)
	}
	if len(key) != ed25519.PublicKeySize || Fingerprint(key) != p.key {
		return Agent{}, agentError(fmt.Sprintf(
			"key %s is not the one registered for machine %s (its agent was replaced)",
			p.key, p.machine))
	}
	if !ed25519.Verify(key, p.signed(r), p.sig) {
		return Agent{}, agentError("signature of machine " + p.machine + " does not match the request")
	}
	at := time.UnixMilli(p.millis)
	if skew := now.Sub(at).Abs(); skew > maxSkew {
		return Agent{}, fmt.Errorf("agent's request: machine %s: %w by %s; at most %s", p.machine, trivet.ErrClockSkew,
			skew, maxSkew)
	}
	return Agent{Machine: p.machine, Key: p.key, Time: at, body: p.body}, nil
}

// proof is the header: Trivet-Agent v=2,machine=..,key=..,time=..,nonce=..,body=..,sig=..
type proof struct {
	machine string
	key     string
	millis  int64
	nonce   string
	body    string // SHA-256 of the request's body, base64url
	sig     []byte
}

func (p proof) String() string {
	return fmt.Sprintf("%s v=2,machine=%s,key=%s,time=%d,nonce=%s,body=%s,sig=%s", AgentScheme,
		p.machine, p.key, p.millis, p.nonce, p.body, base64.RawURLEncoding.EncodeToString(p.sig))
}

// signed is what the signature covers: one value a line, none of which can hold a line break.
func (p proof) signed(r *http.Request) []byte {
	return []byte(strings.Join([]string{"trivet-agent-v2", r.Method, target(r), p.body,
		p.machine, strconv.FormatInt(p.millis, 10), p.nonce}, "\n"))
}

func bodyDigest(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// target is path and query as in the request line, for the sender and the receiver alike.
func target(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

const maxProof = 512

func parseProof(header string) (proof, error) {
	rest, ok := strings.CutPrefix(header, AgentScheme+" v=2,")
	if !ok || len(header) > maxProof {
		return proof{}, agentError("no " + AgentScheme + " v=2 header")
	}
	var f [6]string
	parts := strings.Split(rest, ",")
	if len(parts) != len(f) {
		return proof{}, agentError("malformed header")
	}
	for i, name := range []string{"machine=", "key=", "time=", "nonce=", "body=", "sig="} {
		if f[i], ok = strings.CutPrefix(parts[i], name); !ok {
			return proof{}, agentError("malformed header")
		}
	}
	millis, errTime := strconv.ParseInt(f[2], 10, 64)
	sig, errSig := base64.RawURLEncoding.Strict().DecodeString(f[5])
	p := proof{machine: f[0], key: f[1], millis: millis, nonce: f[3], body: f[4], sig: sig}
	_, errNonce := base64.RawURLEncoding.Strict().DecodeString(p.nonce)
	_, errBody := base64.RawURLEncoding.Strict().DecodeString(p.body)
	err := errors.Join(trivet.ValidateName(p.machine), errTime, errSig, errNonce, errBody)
	if err != nil || len(p.key) != 16 || len(p.nonce) != 16 || len(p.body) != 43 || len(sig) != ed25519.SignatureSize ||
		p.String() != header {
		return proof{}, agentError("malformed header")
	}
	return p, nil
}

func agentError(problem string) error {
	return fmt.Errorf("agent's request: %w: %s", trivet.ErrUnauthenticated, problem)
}
