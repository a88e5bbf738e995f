package actionspec

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Mode is a file's permissions.
type Mode fs.FileMode

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

// units of sizes, in bytes.
var units = map[string]int64{
	"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}

// ParseSize reads "512MiB" as bytes, and "rest" as 0.
func ParseSize(s string) (int64, error) {
	if s == "rest" {
		return 0, nil
	}
	digits := strings.TrimRight(s, "BKMGTi")
	unit, ok := units[s[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n <= 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is not a size; write 512MiB, 20GiB or rest", s)
	}
	return n * unit, nil
}
