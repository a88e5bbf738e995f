package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/heads"
)

// peerFile has the key and the certificate by which this head proves itself to others, together, so that both are replaced
// at once.
func (s *Server) peerFile() string { return s.path("peer.pem") }

func (s *Server) peerTLS() cluster.PeerTLS {
	return cluster.PeerTLS{Cert: s.peerFile(), Key: s.peerFile(), CA: s.path("keys/ca.pem")}
}

func newPeerKey() (key, csr []byte, err error) {
	if key, err = auth.PeerKey(); err == nil {
		csr, err = auth.PeerRequest(key)
	}
	return key, csr, err
}

// setPeer writes a key with its certificate, and uses them from now on.
func (s *Server) setPeer(text []byte) error {
	if err := renameio.WriteFile(s.peerFile(), text, 0o600); err != nil {
		return err
	}
	return s.usePeer(text)
}

func (s *Server) usePeer(text []byte) error {
	cert, err := tls.X509KeyPair(text, text)
	if err == nil {
		cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0])
	}
	if err != nil {
		return &trivet.Error{Op: "read", Name: s.peerFile(), Err: fmt.Errorf("%w: %w", trivet.ErrInvalid, err), Hint: "put the file's backup back"}
	}
	s.peer.Store(&cert)
	return nil
}

func (s *Server) ownCert() (*tls.Certificate, error) { return s.peer.Load(), nil }

// certify gives this head a certificate for its member, and one for its port. A full head makes them itself, afresh at each
// start; a witness has one for both, which full heads sign.
func (s *Server) certify(ctx context.Context) error {
	s.front.root.Store(s.root)
	if !s.data.witness() {
		serve := s.certificate().GetCertificate
		s.listenCert.Store(&serve)
		return s.newPeer()
	}
	text, err := os.ReadFile(s.peerFile())
	if err != nil {
		return &trivet.Error{Op: "read", Name: s.peerFile(), Err: fmt.Errorf("%w: %w", trivet.ErrNotFound, err), Hint: "put the file's backup back"}
	}
	if err := s.usePeer(text); err != nil {
		return err
	}
	serve := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.ownCert() }
	s.listenCert.Store(&serve)
	if s.due().After(time.Now()) && s.data.URL == s.APIURLs()[0] {
		return nil
	}
	if err := s.renew(ctx); err != nil { // one that is over is asked for again; others may reach it at its new address all the same
		s.cfg.Log.Warn("no head renews this witness's certificate now", "error", err)
	}
	return nil
}

// newPeer makes a full head's key and certificate.
func (s *Server) newPeer() error {
	key, csr, err := newPeerKey()
	if err != nil {
		return err
	}
	cert, err := s.keys.CA.SignPeer(auth.Peer{Name: s.data.Name, Role: auth.PeerHead}, csr, time.Now())
	if err != nil {
		return err
	}
	return s.setPeer(slices.Concat(cert, key))
}

// renew asks the full heads for a certificate for a new key.
func (s *Server) renew(ctx context.Context) error {
	key, csr, err := newPeerKey()
	if err != nil {
		return err
	}
	err = fmt.Errorf("%w: no other head is known", trivet.ErrUnavailable)
	for _, p := range s.others() {
		cert, errOne := s.caller.Renew(ctx, p.URL, heads.Renewal{CSR: csr, Peer: s.APIURLs()[0]})
		if errOne == nil {
			return s.setPeer(slices.Concat(cert, key))
		}
		err = errors.Join(err, fmt.Errorf("%s: %w", p.URL, errOne))
	}
	return err
}

// due is when the member's certificate is to be renewed: long before it ends.
func (s *Server) due() time.Time { return auth.PeerRenewal(s.peer.Load().Leaf) }

// keepCertified renews the member's key and certificate when they are due, until ctx ends.
func (s *Server) keepCertified(ctx context.Context) {
	renew := func(context.Context) error { return s.newPeer() }
	if s.data.witness() {
		renew = s.renew
	}
	rotate(ctx, s.due, func(ctx context.Context) {
		if err := renew(ctx); err != nil {
			s.cfg.Log.Error("the certificate of this head's member is not renewed; trying again", "ends", s.peer.Load().Leaf.NotAfter, "error", err)
			return
		}
		s.cfg.Log.Info("the certificate of this head's member is renewed", "ends", s.peer.Load().Leaf.NotAfter)
	})
}

// rotate renews whenever that is due, and soon again while it stays due. The clock may jump, so it is looked at now and then.
func rotate(ctx context.Context, due func() time.Time, renew func(context.Context)) {
	const look, again = time.Hour, time.Minute
	for {
		if !time.Now().Before(due()) {
			renew(ctx)
		}
		wait := again
		if until := time.Until(due()); until > 0 {
			wait = min(look, until)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// showKey serves the API's port with a certificate that proves nothing but the key: so that the head which is asked for a place
// sees that it reaches this one.
func (s *Server) showKey(key []byte) error {
	cert, err := auth.SelfSigned(key)
	if err != nil {
		return err
	}
	serve := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }
	s.listenCert.Store(&serve)
	return nil
}
