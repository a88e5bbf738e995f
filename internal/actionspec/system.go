package actionspec

import (
	"encoding/base64"
	"path"
	"regexp"
	"strings"

	"github.com/trivet-project/trivet"
)

// Limits of texts, in bytes.
const (
	maxPath    = 4096
	maxContent = 1 << 20
	maxWord    = 128 << 10 // the kernel's limit of one argument
	maxWords   = 1024
)

// Root is the installed system's root file system.
type Root struct {
	Disk
	// Partition counts from 1; 0 means that the disk is searched for the root file system.
	Partition int `with:"partition"`
}

func (r *Root) check(p *problems) { (*Target)(r).check(p) }

// Archive is the arguments of archive.
type Archive struct {
	Root
	Image string `with:"image,required"`
	Path  string `with:"path"`
}

func (a *Archive) check(p *problems) {
	a.Root.check(p)
	p.recordName("image", a.Image)
	checkPath(p, "path", a.Path)
}

// File is the arguments of file.
type File struct {
	Root
	Path    string `with:"path,required"`
	Content string `with:"content"`
	Base64  string `with:"base64"`
	Mode    Mode   `with:"mode"`
	Owner   Owner  `with:"owner"`
}

// Bytes returns the file's content.
func (f *File) Bytes() []byte {
	if f.Base64 != "" {
		b, _ := base64.StdEncoding.DecodeString(f.Base64) // validated by check
		return b
	}
	return []byte(f.Content)
}

func (f *File) check(p *problems) {
	f.Root.check(p)
	checkPath(p, "path", f.Path)
	if f.Path == "/" {
		p.add("path", "is the root directory")
	}
	p.bytes("content", f.Content, maxContent)
	p.bytes("base64", f.Base64, maxContent)
	if _, err := base64.StdEncoding.DecodeString(f.Base64); err != nil {
		p.add("base64", "is not base64: %v", err)
	}
	if f.Content != "" && f.Base64 != "" {
		p.add("base64", "is set together with content; write one of them")
	}
}

// Command is the arguments of command.
type Command struct {
	Root
	Args   []string           `with:"args"`
	Script string             `with:"script"`
	Env    map[string]string  `with:"env"`
	In     string             `with:"in"`
	Blame  trivet.FailureType `with:"blame"`
}

// Where a command runs.
const (
	InRoot      = "root"
	InInstaller = "installer"
)

func (c *Command) check(p *problems) {
	c.Root.check(p)
	p.choice("command.in", c.In)
	checkBlame(p, c.Blame)
	if (len(c.Args) == 0) == (c.Script == "") {
		p.addAny([]string{"args", "script"}, "or script is required, and not both")
	}
	if len(c.Args) > 0 && c.Args[0] == "" {
		p.add("args[0]", "is required")
	}
	p.bytes("script", c.Script, maxWord-1)
	if strings.ContainsRune(c.Script, 0) {
		p.add("script", "contains a null byte")
	}
	checkWords(p, "args", c.Args)
	checkEnv(p, c.Env)
}

// Seed is the arguments of seed.
type Seed struct {
	Root
	Path string `with:"path"`
}

func (s *Seed) check(p *problems) {
	s.Root.check(p)
	checkPath(p, "path", s.Path)
}

// Head is the arguments of head.
type Head struct {
	Root
	Path    string `with:"path"`
	Config  string `with:"config"`
	Program string `with:"program"`
	Mode    Mode   `with:"mode"`
	Owner   Owner  `with:"owner"`
}

// ownSettings are the settings that the action writes.
var ownSettings = regexp.MustCompile(`(?m)^["']?(join|token|advertise|rejoin|recover)["']?[ \t]*:`)

func (h *Head) check(p *problems) {
	h.Root.check(p)
	checkPath(p, "path", h.Path)
	checkPath(p, "program", h.Program)
	if h.Path == "" || h.Path == "/" {
		p.add("path", "is no file; write one such as /etc/trivet/config.yaml")
	}
	p.bytes("config", h.Config, maxContent)
	if own := ownSettings.FindStringSubmatch(h.Config); own != nil {
		p.add("config", "has %q, which this action writes", own[1])
	}
}

// Bootloader is the arguments of bootloader.
type Bootloader struct {
	Root
	Kind     string `with:"kind"`
	Firmware string `with:"firmware"`
}

func (b *Bootloader) check(p *problems) {
	b.Root.check(p)
	p.choice("bootloader.kind", b.Kind)
	if b.Firmware != "" {
		p.choice("bootloader.firmware", b.Firmware)
	}
}

// Kexec is the arguments of kexec.
type Kexec struct {
	Root
	Kernel  string `with:"kernel"`
	Initrd  string `with:"initrd"`
	Cmdline string `with:"cmdline"`
}

func (k *Kexec) check(p *problems) {
	k.Root.check(p)
	checkPath(p, "kernel", k.Kernel)
	checkPath(p, "initrd", k.Initrd)
	p.bytes("cmdline", k.Cmdline, 2047)
	if strings.ContainsAny(k.Cmdline, "\n\x00") {
		p.add("cmdline", "contains a line break or a null byte")
	}
	if k.Kernel == "" && k.Initrd != "" {
		p.add("kernel", "is required together with initrd")
	}
}

func checkPath(p *problems, field, value string) {
	switch {
	case value == "":
	case !strings.HasPrefix(value, "/") || path.Clean(value) != value:
		p.add(field, "%q must be an absolute path without '..', such as /etc/hosts", value)
	case strings.ContainsRune(value, 0) || len(value) > maxPath:
		p.add(field, "contains a null byte or has more than %d bytes", maxPath)
	}
}

func checkBlame(p *problems, f trivet.FailureType) {
	p.choice("*.blame", string(f))
}

func checkWords(p *problems, field string, words []string) {
	if len(words) > maxWords {
		p.add(field, "has %d entries; at most %d", len(words), maxWords)
	}
	for _, w := range words {
		p.bytes(field, w, maxWord-1)
		if strings.ContainsRune(w, 0) {
			p.add(field, "contains a null byte")
		}
	}
}

func checkEnv(p *problems, env map[string]string) {
	if len(env) > maxWords {
		p.add("env", "has %d entries; at most %d", len(env), maxWords)
	}
	for name, value := range env {
		isTooLong := len(name)+len(value) > maxWord-2
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) || isTooLong {
			p.add("env", "%q is not a variable's name, or its value contains a null byte or is too long", name)
		}
	}
}
