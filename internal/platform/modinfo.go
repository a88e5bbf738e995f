package platform

import (
	"debug/elf"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/trivet-project/trivet"
)

// maxModule bounds a module's file; the largest of Debian's has 8 MiB.
const maxModule = 64 << 20

// module is a driver and what its .modinfo section says.
type module struct {
	name     string   // with _ for -, as the kernel has it
	path     string   // below /lib/modules/VERSION, uncompressed: kernel/fs/ext4/ext4.ko
	file     string   // here
	depends  []string // names
	softdeps []string // names or aliases to be loaded before, if there are any
	aliases  []string // patterns of the devices it drives, and names that the kernel asks for
}

// moduleName writes a name as the kernel does.
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
			continue // would break the indexes, which are made of lines
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

// matches says whether a pattern means this module. See [Modules].
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
