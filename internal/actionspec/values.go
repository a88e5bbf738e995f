package actionspec

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
)

// Mode is a file's permissions.
type Mode fs.FileMode

// MarshalText writes what UnmarshalText reads.
func (m Mode) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%04o", uint32(m)), nil }

// UnmarshalText reads octal digits: "0644".
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o7777 {
		return fmt.Errorf("%q is not a mode; write octal digits in quotes, \"0644\"", text)
	}
	*m = Mode(n)
	return nil
}

// Owner is a user and a group, by name or number.
type Owner struct{ User, Group string }

// MarshalText writes what UnmarshalText reads.
func (o Owner) MarshalText() ([]byte, error) { return []byte(o.User + ":" + o.Group), nil }

// UnmarshalText reads "user:group", or "user", which means the group of the same name or number.
func (o *Owner) UnmarshalText(text []byte) error {
	user, group, ok := strings.Cut(string(text), ":")
	if !ok {
		group = user
	}
	if user == "" || group == "" || strings.ContainsAny(user+group, ": \t\n\x00") {
		return fmt.Errorf("%q is not an owner; write user:group", text)
	}
	o.User, o.Group = user, group
	return nil
}

// SizeRest is the size of a partition that takes the space that the others leave.
const SizeRest = "rest"

// ParseSize returns the bytes of "512MiB", and 0 for "rest".
func ParseSize(s string) (int64, error) {
	if s == SizeRest {
		return 0, nil
	}
	var size trivet.ByteSize
	if err := size.UnmarshalText([]byte(s)); err != nil || size > 1<<62 {
		return 0, fmt.Errorf("%q is not a size; write 512MiB, 20GiB or rest", s)
	}
	return int64(size), nil
}
