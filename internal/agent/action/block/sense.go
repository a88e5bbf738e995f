package block

import "fmt"

// senseError is the sense data with which a disk answered a SCSI command (SPC-4, 4.5).
type senseError []byte

// Forms of sense data.
const (
	senseFixed       = 0x70
	senseDescriptors = 0x72
)

func (s senseError) form() byte {
	if len(s) == 0 {
		return 0
	}
	return s[0] & 0x7e
}

// isKnown reports whether the data has a key and codes.
func (s senseError) isKnown() bool {
	return s.form() == senseDescriptors && len(s) > 3 || s.form() == senseFixed && len(s) > 13
}

// codes returns the sense key and the additional codes of data that is known.
func (s senseError) codes() (key, code, qualifier byte) {
	if s.form() == senseDescriptors {
		return s[1] & 0xf, s[2], s[3]
	}
	return s[2] & 0xf, s[12], s[13]
}

func (s senseError) Error() string {
	key, code, qualifier := s.codes()
	return fmt.Sprintf("sense key %#x, code %#02x/%#02x", key, code, qualifier)
}

// registers returns the registers LBA 8 to 15 and 16 to 23 that an ATA command has left, as SAT-3 reports them
// (12.2.2.6 and 12.2.2.7).
func (s senseError) registers() (mid, high byte, ok bool) {
	if s.form() == senseFixed && s.isKnown() {
		_, code, qualifier := s.codes()
		return s[10], s[11], code == 0 && qualifier == 0x1d
	}
	if s.form() != senseDescriptors || len(s) < 8 {
		return 0, 0, false
	}
	const returned, bytes = 0x09, 14
	for rest := s[8:]; len(rest) >= 2; {
		n := 2 + int(rest[1])
		if len(rest) < n {
			break
		}
		if rest[0] == returned && n >= bytes {
			return rest[9], rest[11], true
		}
		rest = rest[n:]
	}
	return 0, 0, false
}
