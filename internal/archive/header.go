package archive

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	magic = "trivet-backup "
	// lineSize is the size of the first line in format 1.
	lineSize = len(magic) + len("1 ") + 8 + 1 + 64 + 1 + 64 + 1
	// macPurpose is authenticated before the manifest.
	macPurpose = "trivet backup 1\n"
)

// MAC authenticates a text.
type MAC func(text string) []byte

// Header returns what a file begins with, up to the keys.
func Header(m *Manifest, mac MAC) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(text) > maxManifest {
		return nil, fmt.Errorf("a manifest of %d bytes: at most %d", len(text), maxManifest)
	}
	sum := sha256.Sum256(text)
	line := fmt.Sprintf("%s%d %08x %x %x\n", magic, Format, len(text), sum, mac(macPurpose+string(text)))
	return append([]byte(line), text...), nil
}

// header is what a file begins with.
type header struct {
	Manifest
	text []byte // the manifest as written
	raw  []byte // everything up to the keys
	mac  []byte
}

// readHeader reads the first line and the manifest.
func readHeader(r io.Reader) (*header, error) {
	line := make([]byte, lineSize)
	n, err := io.ReadFull(r, line)
	if known := min(n, len(magic)); string(line[:known]) != magic[:known] || n == 0 {
		return nil, ErrNoBackup
	}
	if err != nil {
		return nil, cutShort(err)
	}
	h := &header{}
	size, sum, err := h.parseLine(string(line))
	if err != nil {
		return nil, err
	}
	if h.text, err = io.ReadAll(io.LimitReader(r, int64(size))); err != nil {
		return nil, err
	}
	if len(h.text) < size {
		return nil, ErrTruncated
	}
	if got := sha256.Sum256(h.text); !bytes.Equal(got[:], sum) {
		return nil, fmt.Errorf("%w: the manifest does not have its digest", ErrDamaged)
	}
	if err := json.Unmarshal(h.text, &h.Manifest); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	if err := h.validate(); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	h.raw = append(line, h.text...)
	return h, nil
}

// parseLine reads the first line.
func (h *header) parseLine(line string) (size int, sum []byte, err error) {
	format, rest, _ := strings.Cut(strings.TrimPrefix(line, magic), " ")
	if n, err := strconv.Atoi(format); err == nil && n > Format {
		return 0, nil, fmt.Errorf("%w: it has format %d, this version reads format %d", ErrNewer, n, Format)
	}
	fields := strings.Split(strings.TrimSuffix(rest, "\n"), " ")
	if format != strconv.Itoa(Format) || len(fields) != 3 || line[len(line)-1] != '\n' || !isHex(fields[1]) ||
		!isHex(fields[2]) {
		return 0, nil, fmt.Errorf("%w: its first line", ErrDamaged)
	}
	n, err := strconv.ParseUint(fields[0], 16, 32)
	if err != nil || n > maxManifest || fields[0] != fmt.Sprintf("%08x", n) {
		return 0, nil, fmt.Errorf("%w: the size of its manifest", ErrDamaged)
	}
	sum, _ = hex.DecodeString(fields[1])   // isHex
	h.mac, _ = hex.DecodeString(fields[2]) // isHex
	return int(n), sum, nil
}

// verify reports whether the holder of the key of a MAC wrote the manifest.
func (h *header) verify(mac MAC) error {
	if !hmac.Equal(mac(macPurpose+string(h.text)), h.mac) {
		return fmt.Errorf("%w: the manifest was not written by a head of the cluster whose keys it has", ErrDamaged)
	}
	return nil
}

// size returns the size of the file.
func (h *header) size() int64 { return int64(len(h.raw)) + h.Keys.Bytes + h.Store.Bytes }

// cutShort makes the end of the input an ErrTruncated.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}
