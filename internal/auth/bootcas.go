package auth

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// The boot CA is replaced while a head runs. keys/boot-ca.pem begins with the one that is in use, as it did before
// there were rotations. Other boot CAs follow it with their keys: the next one, or one that is to be dropped. The last
// part is certificates only: of former boot CAs, and those by which these signed their successors. A head sends the
// latter with its own, so that firmware in which a former boot CA is enrolled accepts what the present one has signed.
// No head needs the key of a former one for that.

// bootCAs is the contents of the file.
type bootCAs struct {
	cas    []*BootCA // with keys; the first is in use
	former []*x509.Certificate
}

// maxBootCAs bounds the boot CAs with keys: the one in use, the next one, and one that was created twice.
const maxBootCAs = 4

func parseBootCAs(text []byte) (b bootCAs, err error) {
	certs, keys, err := parseBootBlocks(text)
	if err != nil {
		return b, fmt.Errorf("%s: %w", fileBootCA, err)
	}
	for _, cert := range certs {
		i := slices.IndexFunc(keys, func(k *rsa.PrivateKey) bool { return k.PublicKey.Equal(cert.PublicKey) })
		if i < 0 || !isSelfSigned(cert) || b.index(pinOf(cert)) >= 0 {
			b.former = append(b.former, cert)
			continue
		}
		b.cas = append(b.cas, &BootCA{cert: cert, key: keys[i]})
	}
	if len(b.cas) == 0 || len(b.cas) != len(keys) || b.cas[0].cert != certs[0] {
		return b, fmt.Errorf("%w: %s: the key is not that of the certificate", trivet.ErrInvalid, fileBootCA)
	}
	b.cas[0].links, _ = linksTo(b.cas[0].cert, b.former)
	return b, nil
}

// parseBootBlocks returns the certificates and the keys in the file.
func parseBootBlocks(text []byte) (certs []*x509.Certificate, keys []*rsa.PrivateKey, err error) {
	for len(certs) == 0 || len(bytes.TrimSpace(text)) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil || block.Type != "PRIVATE KEY" {
			cert, err := parseCACert(block)
			if err != nil {
				return nil, nil, err
			}
			certs = append(certs, cert)
		} else {
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
			}
			key, ok := parsed.(*rsa.PrivateKey)
			if !ok {
				return nil, nil, fmt.Errorf("%w: a key that is not RSA", trivet.ErrInvalid)
			}
			keys = append(keys, key)
		}
		if len(keys) > maxBootCAs || len(certs) > maxBootCAs+maxFormer {
			return nil, nil, fmt.Errorf("%w: more than %d boot CAs, or %d former ones", trivet.ErrInvalid, maxBootCAs,
				maxFormer)
		}
	}
	return certs, keys, nil
}

// text returns the contents of the file.
func (b bootCAs) text() (text []byte, err error) {
	for _, ca := range b.cas {
		one, err := ca.text()
		if err != nil {
			return nil, err
		}
		text = append(text, one...)
	}
	for _, cert := range b.former {
		text = append(text, encodeCert(cert.Raw)...)
	}
	return text, nil
}

func (b bootCAs) index(pin string) int {
	return slices.IndexFunc(b.cas, func(c *BootCA) bool { return c.Pin() == pin })
}

// with adds boot CAs after those that there are, and certificates.
func (b bootCAs) with(cas []*BootCA, former []*x509.Certificate) bootCAs {
	b.cas, b.former = slices.Clone(b.cas), slices.Clone(b.former)
	for _, ca := range cas {
		if b.index(ca.Pin()) < 0 && len(b.cas) < maxBootCAs {
			b.cas = append(b.cas, ca)
		}
	}
	for _, cert := range former {
		if !slices.ContainsFunc(b.former, cert.Equal) && len(b.former) < maxFormer {
			b.former = append(b.former, cert)
		}
	}
	return b
}

// using puts one first, and drops the others where only it is to be kept.
func (b bootCAs) using(pin string, only bool) (bootCAs, error) {
	i := b.index(pin)
	if i < 0 {
		return b, fmt.Errorf("%w: boot CA %s", trivet.ErrNotFound, pin)
	}
	cas := []*BootCA{b.cas[i]}
	if !only {
		cas = append(cas, slices.Concat(b.cas[:i], b.cas[i+1:])...)
	}
	b.cas = cas
	if only {
		b.former = pairs(linksTo(cas[0].cert, b.former)) // and not what a boot CA had that was never used
	}
	return b, nil
}

// pairs returns former CAs, each with the certificate of its successor.
func pairs(links, former []*x509.Certificate) (all []*x509.Certificate) {
	for i := range former {
		all = append(all, former[i], links[i])
	}
	return all
}

// BootCA returns the boot CA that is in use.
func (k *Keys) BootCA() *BootCA {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bootCAs.cas[0]
}

// BootCAs returns the pins of the boot CAs that this head has the keys of. The first is in use.
func (k *Keys) BootCAs() (pins []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ca := range k.bootCAs.cas {
		pins = append(pins, ca.Pin())
	}
	return pins
}

// BootCAFile returns a copy of the file, for another full head. It is secret.
func (k *Keys) BootCAFile() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Clone(k.bundle[fileBootCA])
}

// ExportBootCAs returns certificates for firmware, in PEM: that of the boot CA with a pin, or else of the one in use;
// those of the others, former ones included; and those by which former ones signed their successors.
func (k *Keys) ExportBootCAs(pin string) (wanted, others, links []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	shown := max(0, k.bootCAs.index(pin))
	for i, ca := range k.bootCAs.cas {
		if i != shown {
			others = append(others, ca.PEM()...)
		}
	}
	for _, cert := range k.bootCAs.former {
		switch same := func(c *BootCA) bool { return c.cert.Equal(cert) }; {
		case !isSelfSigned(cert):
			links = append(links, encodeCert(cert.Raw)...)
		case !slices.ContainsFunc(k.bootCAs.cas, same):
			others = append(others, encodeCert(cert.Raw)...)
		}
	}
	return k.bootCAs.cas[shown].PEM(), others, links
}

// CreateBootCA creates a boot CA in the directory, signed by the one in use as its successor, and returns its pin.
func (k *Keys) CreateBootCA(dir string) (pin string, err error) {
	used := k.BootCA()
	next, err := newBootCA(used.cert.Subject.CommonName)
	if err != nil {
		return "", err
	}
	link, err := used.successor(next)
	if err != nil {
		return "", err
	}
	return next.Pin(), k.changeBootCAs(dir, func(b bootCAs) (bootCAs, error) {
		return b.with([]*BootCA{next}, []*x509.Certificate{used.cert, link}), nil
	})
}

// AddBootCAs adds those in the file of another head.
func (k *Keys) AddBootCAs(dir string, text []byte) error {
	add, err := parseBootCAs(text)
	if err != nil {
		return err
	}
	return k.changeBootCAs(dir, func(b bootCAs) (bootCAs, error) {
		if was, is := b.cas[0].cert.Subject.CommonName, add.cas[0].cert.Subject.CommonName; was != is {
			return b, fmt.Errorf("%w: boot CAs of %q for those of %q", trivet.ErrInvalid, is, was)
		}
		return b.with(add.cas, add.former), nil
	})
}

// UseBootCA makes the boot CA with a pin the one in use, and drops the keys of the others where only it is to be kept.
func (k *Keys) UseBootCA(dir, pin string, only bool) error {
	return k.changeBootCAs(dir, func(b bootCAs) (bootCAs, error) { return b.using(pin, only) })
}

// FormerBootCAs returns the pins of the former boot CAs that lead to the one in use, the last one first.
func (k *Keys) FormerBootCAs() (pins []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, former := linksTo(k.bootCAs.cas[0].cert, k.bootCAs.former)
	for _, cert := range former {
		pins = append(pins, pinOf(cert))
	}
	return pins
}

// KeepFormerBootCAs drops the certificates of the former boot CAs that have none of these pins, and those by which they
// signed their successors.
func (k *Keys) KeepFormerBootCAs(dir string, pins []string) error {
	return k.changeBootCAs(dir, func(b bootCAs) (bootCAs, error) {
		links, former := linksTo(b.cas[0].cert, b.former)
		n := slices.IndexFunc(former, func(c *x509.Certificate) bool { return !slices.Contains(pins, pinOf(c)) })
		if n < 0 {
			n = len(former)
		}
		b.former = pairs(links[:n], former[:n]) // those before it are reached by it only
		return b, nil
	})
}

// changeBootCAs replaces the boot CAs by what change returns, in the directory, synced, and then in use.
func (k *Keys) changeBootCAs(dir string, change func(bootCAs) (bootCAs, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed, err := change(k.bootCAs)
	if err != nil {
		return err
	}
	text, err := changed.text()
	if err != nil || bytes.Equal(text, k.bundle[fileBootCA]) {
		return err
	}
	parsed, err := parseBootCAs(text) // the next start must be able to read it
	if err == nil && len(text) > maxKeyFile {
		err = errors.New("the file would be too large")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", fileBootCA, err)
	}
	if err := k.replaceFile(dir, fileBootCA, text); err != nil {
		return err
	}
	k.bootCAs = parsed
	return nil
}
