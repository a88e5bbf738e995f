package actionspec

import (
	"strings"

	"github.com/trivet-project/trivet"
)

// Container runs an OCI image in namespaces of its own, as root of the machine, until its process ends. There is no daemon:
// the image is unpacked into the installer's memory.
type Container struct {
	// Image names an Image record of format oci; Ref is an image in a registry, "registry.example:5000/tool:1.2" or with
	// "@sha256:...". One of them.
	Image string `with:"image"`
	Ref   string `with:"ref"`
	// PlainHTTP asks the registry without TLS; CA is its certificate authority as PEM.
	PlainHTTP bool   `with:"plainHTTP"`
	CA        string `with:"ca"`
	// Command and Args replace the image's entry point and arguments.
	Command []string          `with:"command"`
	Args    []string          `with:"args"`
	Env     map[string]string `with:"env"`
	// Devices gives it the machine's /dev; without, only null, zero, random and their like.
	Devices bool `with:"devices"`
	// Mount is where the installed system's root file system is to be seen, "/target"; empty means nowhere. Disk and
	// Partition say where that is.
	Mount string `with:"mount"`
	Root
	// Net is "host" (the default) or "none".
	Net string `with:"net"`
	// Blame is whose fault another exit status than 0 is: "configuration" (the default) or "machine".
	Blame trivet.FailureType `with:"blame"`
}

func (c *Container) check(p *problems) {
	c.Root.check(p)
	if (c.Image == "") == (c.Ref == "") {
		p.add("image", "or ref is needed; one of them")
	}
	if c.Image != "" {
		checkName(p, "image", c.Image)
	}
	p.bytes("ref", c.Ref, 512)
	if strings.ContainsAny(c.Ref, " \t\n\x00") {
		p.add("ref", "%q is no image's name", c.Ref)
	}
	p.bytes("ca", c.CA, 64<<10)
	checkWords(p, "command", c.Command)
	checkWords(p, "args", c.Args)
	checkEnv(p, c.Env)
	checkPath(p, "mount", c.Mount)
	if c.Mount == "/" {
		p.add("mount", "is the container's own root")
	}
	if c.Net != "" {
		p.oneOf("net", c.Net, "host", "none")
	}
	checkBlame(p, c.Blame)
}

// Reboot boots the machine as its firmware does. All reports are acknowledged first.
type Reboot struct{}

func (*Reboot) check(*problems) {}

// Poweroff powers the machine off. All reports are acknowledged first.
type Poweroff struct{}

func (*Poweroff) check(*problems) {}

// Noop does nothing, for as long as it is told.
type Noop struct {
	Sleep trivet.Duration `with:"sleep"`
}

func (*Noop) check(*problems) {}
