package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// The CAs in the directory change one step at a time, and each step is safe against a crash: keys are added before the
// certificates that need them, and dropped after them. A process uses the CAs that it has read at its start, as the
// store's connections cannot change theirs.

// CABundle is the CAs in a key directory. Key is secret.
type CABundle struct {
	Certs  []byte `json:"certs"`
	Key    []byte `json:"key,omitempty"`
	Former []byte `json:"former,omitempty"`
}

// StoredCAs returns the pins of the CAs in the directory. The first will sign after the next start.
func (k *Keys) StoredCAs() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	root, err := ParseRoot(k.bundle[fileCACert])
	if err != nil { // what was written had been parsed
		return nil
	}
	return root.Pins()
}

// CABundle returns a copy of the CAs in the directory, for another full head.
func (k *Keys) CABundle() CABundle {
	k.mu.Lock()
	defer k.mu.Unlock()
	return CABundle{Certs: bytes.Clone(k.bundle[fileCACert]), Key: bytes.Clone(k.bundle[fileCAKey]),
		Former: bytes.Clone(k.bundle[fileFormerCAs])}
}

// CreateCA creates a CA, signed by the present one as its successor, in the directory. It returns its pin. Clients
// trust it when the directory's CAs are changed to have it.
func (k *Keys) CreateCA(dir string) (pin string, err error) {
	cert, key, err := newCA(k.CA.Cluster())
	if err != nil {
		return "", err
	}
	root, err := ParseRoot(cert)
	if err != nil {
		return "", err
	}
	link, err := k.CA.successor(root.certs[0])
	if err != nil {
		return "", err
	}
	former := slices.Concat(encodeCert(k.CA.certs[0].Raw), encodeCert(link))
	return root.Pins()[0], k.AddCAs(dir, CABundle{Certs: cert, Key: key, Former: former})
}

// AddCAs adds CAs of the same cluster after those in the directory, with their keys and predecessors. Of those that the
// directory has after its first one, and the bundle has not, none is kept: they were never used.
func (k *Keys) AddCAs(dir string, b CABundle) error {
	add, err := parseCA(b.Certs, b.Key, b.Former)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	have, err := ParseRoot(k.bundle[fileCACert])
	if err != nil {
		return err
	}
	if add.Cluster() != have.Cluster() {
		return fmt.Errorf("%w: CAs of cluster %s for one of cluster %s", trivet.ErrInvalid, add.Cluster(),
			have.Cluster())
	}
	certs := have.certs[:1:1]
	for _, cert := range slices.Concat(add.certs, have.certs[1:]) {
		if !slices.ContainsFunc(certs, cert.Equal) && len(certs) < maxCAs {
			certs = append(certs, cert)
		}
	}
	return k.writeCAs(dir, have, certs, b)
}

// UseCAs makes the CAs with these pins the ones of the directory, in this order, and drops the others with their keys.
// It fails with ErrNotFound where the directory has not all of them.
func (k *Keys) UseCAs(dir string, pins []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	have, err := ParseRoot(k.bundle[fileCACert])
	if err != nil {
		return err
	}
	var certs []*x509.Certificate
	for _, pin := range pins {
		i := slices.Index(have.Pins(), pin)
		if i < 0 {
			return fmt.Errorf("%w: CA %s", trivet.ErrNotFound, pin)
		}
		certs = append(certs, have.certs[i])
	}
	return k.writeCAs(dir, have, certs, CABundle{})
}

// writeCAs replaces the CAs in the directory, with the keys and predecessors of the directory and of added. It needs
// k.mu.
func (k *Keys) writeCAs(dir string, have *Root, certs []*x509.Certificate, added CABundle) error {
	all, err := keysOf(joinPEM(k.bundle[fileCAKey], added.Key), slices.Concat(have.certs, certs))
	if err != nil {
		return err
	}
	former := keepFormer(joinPEM(k.bundle[fileFormerCAs], added.Former))
	var text []byte
	for _, cert := range certs {
		text = append(text, encodeCert(cert.Raw)...)
	}
	keys, err := keysOf(all, certs)
	if err != nil {
		return err
	}
	if _, err := parseCA(text, keys, former); err != nil { // the next start must be able to read it
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{fileCAKey, all}, {fileFormerCAs, former}, {fileCACert, text}, {fileCAKey, keys}} {
		if bytes.Equal(f.text, k.bundle[f.name]) {
			continue
		}
		if err := k.replaceFile(dir, f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}

// keysOf returns those of the keys that are of one of the CAs.
func keysOf(text []byte, certs []*x509.Certificate) (keys []byte, err error) {
	for _, block := range blocks(text) {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", trivet.ErrInvalid, fileCAKey, err)
		}
		key, ok := parsed.(*ecdsa.PrivateKey)
		of := func(c *x509.Certificate) bool { return key.PublicKey.Equal(c.PublicKey) }
		if ok && slices.ContainsFunc(certs, of) {
			keys = append(keys, pem.EncodeToMemory(block)...)
		}
	}
	return keys, nil
}

// joinPEM returns the blocks of two texts, each once.
func joinPEM(a, b []byte) (joined []byte) {
	var have [][]byte
	for _, block := range slices.Concat(blocks(a), blocks(b)) {
		text := pem.EncodeToMemory(block)
		if !slices.ContainsFunc(have, func(h []byte) bool { return bytes.Equal(h, text) }) {
			have = append(have, text)
			joined = append(joined, text...)
		}
	}
	return joined
}

// keepFormer drops the oldest certificates beyond maxFormer.
func keepFormer(text []byte) (kept []byte) {
	all := blocks(text)
	for _, block := range all[max(0, len(all)-maxFormer):] {
		kept = append(kept, pem.EncodeToMemory(block)...)
	}
	return kept
}

func blocks(text []byte) (all []*pem.Block) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		all = append(all, block)
	}
}
