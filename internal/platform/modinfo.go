package platform

import (
	"debug/elf"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/trivet-project/trivet"
)

// maxModule bounds the size of a module; Debian's largest has 8 MiB.
const maxModule = 64 << 20

// module is a driver and its .modinfo section.
type module struct {
	name     string   // with _ for -, as in the kernel
	path     string   // below /lib/modules/VERSION, uncompressed: kernel/fs/ext4/ext4.ko
	file     string   // path on this host
	depends  []string // names
	softdeps []string // names or aliases of modules to load before, if they exist
	aliases  []string // patterns of its devices, and names that the kernel requests
}

// moduleName returns a name in the form of the kernel.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// parse reads the .modinfo section: NUL-terminated key=value pairs.
func (m *module) parse(r io.ReaderAt) error {
	f, err := elf.NewFile(r)
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil || section.Size > maxModule {
		return fmt.Errorf("%w: no .modinfo", trivet.ErrInvalid)
	}
	info, err := section.Data()
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	m.parseInfo(string(info))
	return nil
}

func (m *module) parseInfo(info string) {
	for pair := range strings.SplitSeq(info, "\x00") {
		key, value, _ := strings.Cut(pair, "=")
		if strings.ContainsAny(value, "\n\r") {
			continue // not representable in the indexes, which consist of lines
		}
		switch key {
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					m.depends = append(m.depends, moduleName(name))
				}
			}
		case "softdep":
			if pre, ok := strings.CutPrefix(value, "pre:"); ok {
				pre, _, _ = strings.Cut(pre, "post:")
				m.softdeps = append(m.softdeps, strings.Fields(pre)...)
			}
		case "alias":
			if value != "" && !strings.ContainsAny(value, " \t") {
				m.aliases = append(m.aliases, value)
			}
		}
	}
}

// matches reports whether a pattern matches this module. See [Modules].
func (m *module) matches(patterns []string) bool {
	name := strings.TrimPrefix(m.path, "kernel/")
	for _, p := range patterns {
		if strings.HasSuffix(p, "/") && strings.HasPrefix(name, p) {
			return true
		}
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}
