package actionspec

import (
	"regexp"

	"github.com/trivet-project/trivet"
)

// Container is the arguments of container.
type Container struct {
	Image     string            `with:"image"`
	Ref       string            `with:"ref"`
	PlainHTTP bool              `with:"plainHTTP"`
	CA        string            `with:"ca"`
	Command   []string          `with:"command"`
	Args      []string          `with:"args"`
	Env       map[string]string `with:"env"`
	Devices   bool              `with:"devices"`
	Mount     string            `with:"mount"`
	Root
	Net   string             `with:"net"`
	Blame trivet.FailureType `with:"blame"`
}

// refForm matches an image reference with a digest: what runs as root is what the author of the template saw.
var refForm = regexp.MustCompile(`^[^\s@\x00]+@sha256:[0-9a-f]{64}$`)

// The networks of a container.
const (
	NetHost = "host"
	NetNone = "none"
)

func (c *Container) check(p *problems) {
	c.Root.check(p)
	if (c.Image == "") == (c.Ref == "") {
		p.addAny([]string{"image", "ref"}, "or ref is required, and not both")
	}
	if c.Image != "" {
		p.recordName("image", c.Image)
	}
	p.bytes("ref", c.Ref, 512)
	if c.Ref != "" && !refForm.MatchString(c.Ref) {
		p.add("ref", "%q is not an image reference with a digest, such as registry.example/tool@sha256:...; "+
			"a tag may mean another image tomorrow", c.Ref)
	}
	p.bytes("ca", c.CA, 64<<10)
	checkWords(p, "command", c.Command)
	checkWords(p, "args", c.Args)
	checkEnv(p, c.Env)
	checkPath(p, "mount", c.Mount)
	if c.Mount == "/" {
		p.add("mount", "must not be the container's own root")
	}
	if c.Net != "" {
		p.choice("container.net", c.Net)
	}
	checkBlame(p, c.Blame)
}

// Reboot is the arguments of reboot.
type Reboot struct{}

func (*Reboot) check(*problems) {}

// Poweroff is the arguments of poweroff.
type Poweroff struct{}

func (*Poweroff) check(*problems) {}

// Noop is the arguments of noop.
type Noop struct {
	Sleep trivet.Duration `with:"sleep"`
}

func (*Noop) check(*problems) {}
