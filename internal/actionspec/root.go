package actionspec

import (
	"encoding/base64"
	"path"
	"strings"

	"github.com/trivet-project/trivet"
)

// Bounds of texts, in bytes.
const (
	maxPath    = 4096
	maxContent = 1 << 20
	maxWord    = 128 << 10 // the kernel's bound of one argument
	maxWords   = 1024
)

// Archive unpacks an image of format tar into the installed system.
type Archive struct {
	Root
	Image string `with:"image"` // an Image record
	// Path is the directory in the installed system to unpack in; it is made. "/" by default.
	Path string `with:"path"`
}

func (a *Archive) check(p *problems) {
	a.Root.check(p)
	checkName(p, "image", a.Image)
	checkPath(p, "path", a.Path)
}

// File writes a file into the installed system, whole or not at all.
type File struct {
	Root
	// Path in the installed system; directories that are not there are made. Links on the way stay inside it.
	Path string `with:"path"`
	// Content is the text, Base64 the bytes; one of them. Neither makes an empty file.
	Content string `with:"content"`
	Base64  string `with:"base64"`
	// Mode is octal, as a text: "0644" (the default).
	Mode Mode `with:"mode"`
	// Owner is "user:group", by name or number as the installed system has them; "0:0" by default.
	Owner Owner `with:"owner"`
}

// Bytes are the file's content.
func (f *File) Bytes() []byte {
	if f.Base64 != "" {
		b, _ := base64.StdEncoding.DecodeString(f.Base64) // check has seen it
		return b
	}
	return []byte(f.Content)
}

func (f *File) check(p *problems) {
	f.Root.check(p)
	p.need("path", f.Path)
	checkPath(p, "path", f.Path)
	if f.Path == "/" {
		p.add("path", "is the root itself")
	}
	p.bytes("content", f.Content, maxContent)
	p.bytes("base64", f.Base64, maxContent)
	if _, err := base64.StdEncoding.DecodeString(f.Base64); err != nil {
		p.add("base64", "is not base64: %v", err)
	}
	if f.Content != "" && f.Base64 != "" {
		p.add("base64", "stands beside content; write one of them")
	}
}

// Command runs a program, as root, with no input. Its output is the action's log. It and all that it has started are dead
// when the action ends.
type Command struct {
	Root
	// Args are the program and its arguments; Script is a text for /bin/sh -e. One of them.
	Args   []string          `with:"args"`
	Script string            `with:"script"`
	Env    map[string]string `with:"env"`
	// In is "root" (the default: in the installed system, with /dev, /proc, /sys and /run of the installer) or "installer".
	In string `with:"in"`
	// Blame is whose fault another exit status than 0 is: "configuration" (the default) or "machine".
	Blame trivet.FailureType `with:"blame"`
}

// Where a command runs.
const (
	InRoot      = "root"
	InInstaller = "installer"
)

func (c *Command) check(p *problems) {
	c.Root.check(p)
	p.oneOf("in", c.In, InRoot, InInstaller)
	checkBlame(p, c.Blame)
	if (len(c.Args) == 0) == (c.Script == "") {
		p.add("args", "or script is needed; one of them")
	}
	if len(c.Args) > 0 {
		p.need("args[0]", c.Args[0])
	}
	p.bytes("script", c.Script, maxWord-1)
	if strings.ContainsRune(c.Script, 0) {
		p.add("script", "holds a null")
	}
	checkWords(p, "args", c.Args)
	checkEnv(p, c.Env)
}

// Seed writes cloud-init's NoCloud seed into the installed system, so that its first boot needs no head: host name, SSH
// keys, user data and network from the run, and the URL that it phones home to.
type Seed struct {
	Root
	// Path is the seed's directory: "/var/lib/cloud/seed/nocloud" by default.
	Path string `with:"path"`
}

func (s *Seed) check(p *problems) {
	s.Root.check(p)
	checkPath(p, "path", s.Path)
}

// Bootloader makes an installed system bootable, by its own boot loader's programs.
type Bootloader struct {
	Root
	// Kind is "grub" (the default: grub-install and update-grub of the installed system) or "none" (the image brings its
	// own; nothing is done).
	Kind string `with:"kind"`
	// Firmware is "bios" or "uefi"; empty means what this machine booted with.
	Firmware string `with:"firmware"`
}

func (b *Bootloader) check(p *problems) {
	b.Root.check(p)
	p.oneOf("kind", b.Kind, "grub", "none")
	if b.Firmware != "" {
		p.oneOf("firmware", b.Firmware, "bios", "uefi")
	}
}

// Kexec starts the installed system's kernel without the firmware. All reports are acknowledged first.
type Kexec struct {
	Root
	// Kernel and Initrd are paths in the installed system; empty means /vmlinuz and /initrd.img, or the same in /boot.
	Kernel string `with:"kernel"`
	Initrd string `with:"initrd"`
	// Cmdline is the kernel's; empty means "root=UUID=... ro" and the consoles that the installer has.
	Cmdline string `with:"cmdline"`
}

func (k *Kexec) check(p *problems) {
	k.Root.check(p)
	checkPath(p, "kernel", k.Kernel)
	checkPath(p, "initrd", k.Initrd)
	p.bytes("cmdline", k.Cmdline, 2047)
	if strings.ContainsAny(k.Cmdline, "\n\x00") {
		p.add("cmdline", "holds a line break")
	}
	if k.Kernel == "" && k.Initrd != "" {
		p.add("kernel", "is missing beside initrd")
	}
}

func checkPath(p *problems, field, value string) {
	switch {
	case value == "":
	case !strings.HasPrefix(value, "/") || path.Clean(value) != value:
		p.add(field, "%q must be a whole path without '..', such as /etc/hosts", value)
	case strings.ContainsRune(value, 0) || len(value) > maxPath:
		p.add(field, "holds a null or has more than %d bytes", maxPath)
	}
}

func checkBlame(p *problems, f trivet.FailureType) {
	p.oneOf("blame", string(f), string(trivet.FaultConfiguration), string(trivet.FaultMachine))
}

func checkWords(p *problems, field string, words []string) {
	if len(words) > maxWords {
		p.add(field, "has %d entries; at most %d", len(words), maxWords)
	}
	for _, w := range words {
		p.bytes(field, w, maxWord-1)
		if strings.ContainsRune(w, 0) {
			p.add(field, "holds a null")
		}
	}
}

func checkEnv(p *problems, env map[string]string) {
	if len(env) > maxWords {
		p.add("env", "has %d entries; at most %d", len(env), maxWords)
	}
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) || len(name)+len(value) > maxWord-2 {
			p.add("env", "%q is no name of a variable, or its value holds a null or is too long", name)
		}
	}
}
