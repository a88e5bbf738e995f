package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"

	"github.com/trivet-project/trivet"
)

// magic is the start of a header. It distinguishes a journal from other data.
const magic = "trivet-journal-1 "

// headerBytes is the length of every header: magic, generation, checksum, line break.
const headerBytes = len(magic) + 16 + 1 + 8 + 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeHeader returns the header line and the checksum that the first entry's continues.
func encodeHeader(gen uint64) ([]byte, uint32) {
	text := fmt.Sprintf("%s%016x", magic, gen)
	sum := crc32.Checksum([]byte(text), castagnoli)
	return fmt.Appendf(nil, "%s %08x\n", text, sum), sum
}

func parseHeader(b []byte) (gen uint64, ok bool) {
	if len(b) < headerBytes || !bytes.HasPrefix(b, []byte(magic)) {
		return 0, false
	}
	gen, err := strconv.ParseUint(string(b[len(magic):len(magic)+16]), 16, 64)
	if err != nil {
		return 0, false
	}
	want, _ := encodeHeader(gen)
	return gen, bytes.Equal(b[:headerBytes], want)
}

// encode returns an entry's line, "checksum json", and the checksum that the next line's continues.
func encode(e Entry, chain uint32) ([]byte, uint32, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, 0, err
	}
	sum := continued(chain, text)
	return fmt.Appendf(nil, "%08x %s\n", sum, text), sum, nil
}

func continued(chain uint32, text []byte) uint32 {
	var seed [4]byte
	binary.BigEndian.PutUint32(seed[:], chain)
	return crc32.Update(crc32.Checksum(seed[:], castagnoli), castagnoli, text)
}

// parse reads a half's entries up to the first line that is incomplete or of another generation. It returns the offset
// of that line and the checksum before it.
func parse(b []byte, gen uint64) (entries []Entry, end int64, chain uint32) {
	_, chain = encodeHeader(gen)
	pos := headerBytes
	for pos <= len(b) {
		line, _, whole := bytes.Cut(b[pos:], []byte("\n"))
		if !whole || len(line) < 10 || line[8] != ' ' {
			break
		}
		sum := continued(chain, line[9:])
		var e Entry
		if string(line[:8]) != fmt.Sprintf("%08x", sum) || json.Unmarshal(line[9:], &e) != nil {
			break
		}
		entries, chain = append(entries, e), sum
		pos += len(line) + 1
	}
	return entries, int64(pos), chain
}

// Read returns the entries of a journal that another process may have open, for people and tests.
func Read(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	defer f.Close()
	r := &region{file: f}
	size, err := r.measure()
	if err != nil {
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	r.half = size / 2
	bodies, _, err := r.readHalves()
	if err != nil {
		return nil, fmt.Errorf("read journal %s: %w", path, err)
	}
	first, okFirst := parseHeader(bodies[0])
	second, okSecond := parseHeader(bodies[1])
	switch {
	case okSecond && (!okFirst || second > first):
		entries, _, _ := parse(bodies[1], second)
		return entries, nil
	case okFirst:
		entries, _, _ := parse(bodies[0], first)
		return entries, nil
	}
	return nil, fmt.Errorf("read journal %s: %w: no header", path, trivet.ErrInvalid)
}
