package auth

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// A CA that is replaced signs a certificate of its successor (a cross-certificate, RFC 5280 section 3.2). Both are kept
// in ca-former.pem, so that what names a former CA and cannot be changed, which is a recovery key on paper, also
// accepts the CAs that followed it. Heads send the latest of them, so that a head that was removed before the rotation
// learns that it does not belong to the cluster any more: see [Root.Replaced]. No connection is accepted because of
// them.

// maxFormer bounds the certificates in ca-former.pem: two for each rotation. The oldest are dropped.
const maxFormer = 32

// parseFormer parses the certificates of former CAs and those of their successors.
func parseFormer(text []byte) (certs []*x509.Certificate, err error) {
	for len(bytes.TrimSpace(text)) > 0 {
		var block *pem.Block
		block, text = pem.Decode(text)
		cert, err := parseCACert(block)
		if err != nil {
			return nil, err
		}
		if certs = append(certs, cert); len(certs) > maxFormer {
			return nil, fmt.Errorf("%w: more than %d certificates", trivet.ErrInvalid, maxFormer)
		}
	}
	return certs, nil
}

// successor returns the certificate by which a CA signs its successor, in DER.
func (c *CA) successor(next *x509.Certificate) ([]byte, error) {
	template := caTemplate(next.Subject.CommonName)
	der, err := x509.CreateCertificate(rand.Reader, template, c.certs[0], next.PublicKey, c.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of the next CA: %w", err)
	}
	return der, nil
}

// maxLinks bounds the certificates of successors that heads send: a head that was away for more rotations is not
// notified.
const maxLinks = 3

// links returns the certificates, in DER, by which the last CAs signed their successors.
func (c *CA) links() (chain [][]byte) {
	links, _ := linksTo(c.certs[0], c.former)
	for _, link := range links {
		chain = append(chain, link.Raw)
	}
	return chain
}

// linksTo returns the certificates by which the last of the former CAs signed their successors, up to a CA, and those
// CAs. The last ones are first.
func linksTo(cert *x509.Certificate, all []*x509.Certificate) (links, former []*x509.Certificate) {
	for len(links) < maxLinks {
		link, by := linkTo(cert, all)
		if link == nil {
			break
		}
		links, former = append(links, link), append(former, by)
		cert = by
	}
	return links, former
}

// maxChain bounds the certificates of a server that are looked at.
const maxChain = 8

// Replaced reports whether a connection failed since its server has a certificate of a CA that followed one of these:
// the caller was not there when the CA was replaced, so it is no member any more.
func (r *Root) Replaced(err error) bool {
	var failed *tls.CertificateVerificationError
	if !errors.As(err, &failed) || len(failed.UnverifiedCertificates) == 0 {
		return false
	}
	chain := failed.UnverifiedCertificates[:min(maxChain, len(failed.UnverifiedCertificates))]
	followed := slices.Clone(r.certs)
	for range chain { // each adds one at least, or nothing follows
		for _, cert := range chain[1:] {
			if cert.IsCA && !slices.ContainsFunc(followed, cert.Equal) && signedByOne(cert, followed) {
				followed = append(followed, cert)
			}
		}
	}
	return signedByOne(chain[0], followed[len(r.certs):])
}

func signedByOne(cert *x509.Certificate, cas []*x509.Certificate) bool {
	return slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return cert.CheckSignatureFrom(ca) == nil })
}

// Follows reports whether the CA has one of these pins, separated by commas, or follows a CA that has: each CA since
// then was signed by the one before.
func (c *CA) Follows(trust string) bool {
	if c.Matches(trust) {
		return true
	}
	pins := strings.Split(trust, ",")
	_, former := c.link(c.certs[0])
	for n := 0; former != nil && n < maxFormer; n++ {
		if slices.Contains(pins, pinOf(former)) {
			return true
		}
		_, former = c.link(former)
	}
	return false
}

// link returns the certificate by which a former CA signed a CA as its successor, and that former CA; nil: none.
func (c *CA) link(of *x509.Certificate) (link, former *x509.Certificate) { return linkTo(of, c.former) }

// linkTo is the same among certificates of former CAs and their successors.
func linkTo(of *x509.Certificate, all []*x509.Certificate) (link, former *x509.Certificate) {
	key, ok := of.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok {
		return nil, nil
	}
	for _, link := range all {
		if !key.Equal(link.PublicKey) {
			continue
		}
		for _, former := range all {
			if isSelfSigned(former) && !key.Equal(former.PublicKey) && link.CheckSignatureFrom(former) == nil {
				return link, former
			}
		}
	}
	return nil, nil
}

// isSelfSigned reports whether a certificate of a CA is its own, and not that of a successor.
func isSelfSigned(cert *x509.Certificate) bool { return cert.CheckSignatureFrom(cert) == nil }
