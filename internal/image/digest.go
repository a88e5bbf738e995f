package image

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/trivet-project/trivet"
)

// Digest is the expected one of a file: "sha256:" or "sha512:" and hex.
type Digest struct {
	text string
	new  func() hash.Hash
}

// ParseDigest returns the digest of a text.
func ParseDigest(text string) (*Digest, error) {
	d := &Digest{text: strings.ToLower(text)}
	method, sum, _ := strings.Cut(d.text, ":")
	switch method {
	case "sha256":
		d.new = sha256.New
	case "sha512":
		d.new = sha512.New
	}
	if b, err := hex.DecodeString(sum); d.new == nil || err != nil || len(b) != d.new().Size() {
		return nil, fmt.Errorf("digest %q: %w: it must be sha256: and 64 hex digits, or sha512: and 128",
			text, trivet.ErrInvalid)
	}
	return d, nil
}

func (d *Digest) String() string { return d.text }

// Verify returns r, of which the end is an error if its content has another digest.
func (d *Digest) Verify(r io.Reader) io.Reader { return &verifier{r: r, want: d, sum: d.new()} }

type verifier struct {
	r    io.Reader
	want *Digest
	sum  hash.Hash
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.sum.Write(p[:n])
	if err == io.EOF {
		method, _, _ := strings.Cut(v.want.text, ":")
		if got := method + ":" + hex.EncodeToString(v.sum.Sum(nil)); got != v.want.text {
			return n, fmt.Errorf("%w: its digest is %s, not %s", trivet.ErrInvalid, got, v.want.text)
		}
	}
	return n, err
}
