package membership

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// certificates are the certificate of this head's member, and the one of its API's port.
type certificates struct {
	dir string
	// serving is what the API's port presents, member the key and certificate of the member.
	serving atomic.Pointer[func(*tls.ClientHelloInfo) (*tls.Certificate, error)]
	member  atomic.Pointer[tls.Certificate]
}

// file is the file of the member's key and certificate, together, so that both are replaced at once.
func (c *certificates) file() string { return filepath.Join(c.dir, "peer.pem") }

func (c *certificates) peerTLS() cluster.PeerTLS {
	return cluster.PeerTLS{Cert: c.file(), Key: c.file(), CA: filepath.Join(c.dir, "keys/ca.pem")}
}

// newPeerKey returns a new key of the member, and the request for its certificate.
func newPeerKey() (key, csr []byte, err error) {
	if key, err = auth.PeerKey(); err == nil {
		csr, err = auth.PeerRequest(key)
	}
	return key, csr, err
}

// replace writes a certificate with its key, and uses them from now on.
func (c *certificates) replace(text []byte) error {
	if err := renameio.WriteFile(c.file(), text, 0o600); err != nil {
		return err
	}
	return c.use(text)
}

func (c *certificates) use(text []byte) error {
	cert, err := tls.X509KeyPair(text, text)
	if err == nil {
		cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0])
	}
	if err != nil {
		return &trivet.Error{Op: "read", Name: c.file(), Err: fmt.Errorf("%w: %w", trivet.ErrInvalid, err),
			Hint: "restore a backup of the file"}
	}
	c.member.Store(&cert)
	return nil
}

// load uses the certificate in the file.
func (c *certificates) load() error {
	text, err := os.ReadFile(c.file())
	if err != nil {
		return &trivet.Error{Op: "read", Name: c.file(), Err: fmt.Errorf("%w: %w", trivet.ErrNotFound, err),
			Hint: "restore a backup of the file"}
	}
	return c.use(text)
}

// current returns the member's certificate.
func (c *certificates) current() (*tls.Certificate, error) { return c.member.Load(), nil }

// due returns when the member's certificate is to be renewed, long before it expires.
func (c *certificates) due() time.Time { return auth.PeerRenewal(c.member.Load().Leaf) }

// due is that of the certificates: at once where the CA that signs now has not signed the member's.
func (l *Local) due() time.Time {
	if !l.Root().SignedByFirst(l.certs.member.Load().Leaf) {
		return time.Time{}
	}
	return l.certs.due()
}

func (c *certificates) expires() time.Time { return c.member.Load().Leaf.NotAfter }

// serve sets the certificate that the API's port presents.
func (c *certificates) serve(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) {
	c.serving.Store(&get)
}

// serveKey makes the API's port present a self-signed certificate of this key: the head that is requested to let this
// one join verifies by it that it reaches this one.
func (c *certificates) serveKey(key []byte) error {
	cert, err := auth.SelfSigned(key)
	if err != nil {
		return err
	}
	c.serve(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil })
	return nil
}

// ServingCertificate returns the certificate that the API's port presents, for a TLS listener.
func (l *Local) ServingCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if get := l.certs.serving.Load(); get != nil {
		return (*get)(hello)
	}
	return nil, fmt.Errorf("%w: this head is starting", trivet.ErrUnavailable)
}

// certify gets this head a certificate for its member, and one for its port. A full head signs both at each start; a
// witness has one for both, which full heads sign.
func (l *Local) certify(ctx context.Context) error {
	if !l.data.witness() {
		names := func() []string { return l.addr.Names }
		l.certs.serve(l.keys.CA.ServerCert(names, time.Now).GetCertificate)
		return l.signCertificate(ctx)
	}
	if err := l.certs.load(); err != nil {
		return err
	}
	l.certs.serve(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return l.certs.current() })
	if l.due().After(time.Now()) && l.data.URL == l.addr.Peer {
		return nil
	}
	err := l.requestCertificate(ctx)
	refused := errors.Is(err, trivet.ErrForbidden) || errors.Is(err, trivet.ErrUnauthenticated)
	if refused && l.data.URL != l.addr.Peer {
		return err // it was started with an address that it never had; one that was removed learns that next
	}
	if err != nil {
		// it is retried later; other heads may reach this one all the same
		l.cfg.Log.Warn("the certificate of this witness is not renewed", "error", err)
	}
	return nil
}

// signCertificate creates a full head's key and certificate.
func (l *Local) signCertificate(context.Context) error {
	key, csr, err := newPeerKey()
	if err != nil {
		return err
	}
	cert, err := l.keys.CA.SignPeer(auth.Peer{Name: l.data.Name, Role: auth.PeerHead}, csr, time.Now())
	if err != nil {
		return err
	}
	return l.certs.replace(slices.Concat(cert, key))
}

// RotateCertificate renews the member's key and certificate when they are due, until ctx ends.
func (l *Local) RotateCertificate(ctx context.Context) {
	renew := l.signCertificate
	if l.data.witness() {
		renew = l.requestCertificate
	}
	rotate(ctx, l.due, func(ctx context.Context) {
		if err := renew(ctx); err != nil {
			l.cfg.Log.Error("cannot renew the certificate of this head's member; retrying",
				"expires", l.certs.expires(), "error", err)
			return
		}
		l.cfg.Log.Info("renewed the certificate of this head's member", "expires", l.certs.expires())
	})
}

// rotate renews when that is due, and retries while it stays due. It checks regularly, as the clock may jump.
func rotate(ctx context.Context, due func() time.Time, renew func(context.Context)) {
	const checkInterval, retryInterval = time.Hour, time.Minute
	for {
		if !time.Now().Before(due()) {
			renew(ctx)
		}
		wait := retryInterval
		if until := time.Until(due()); until > 0 {
			wait = min(checkInterval, until)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
