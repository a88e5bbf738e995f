// Package actionspec defines the arguments of the built-in actions and checks them. It is pure: `trivet apply` refuses
// by it what the agent would refuse on the machine, and the agent decodes by it what it runs.
//
// Each action has a struct; a field's tag is its key in the action's `with`. Unknown keys are refused. Numbers and
// booleans may be written as texts ("2", "true"), because the texts of templates are rendered. [Actions] describes all
// of them for the reference documentation.
package actionspec

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/trivet-project/trivet"
)

// Spec is the arguments of one action.
type Spec interface {
	// check validates the decoded values, with defaults filled in.
	check(p *problems)
}

// constructors return an empty Spec for each action, with its defaults.
var constructors = map[string]func() Spec{
	"wipe":         func() Spec { return &Wipe{Mode: WipeQuick} },
	"verify":       func() Spec { return &Verify{} },
	"test-memory":  func() Spec { return &TestMemory{Percent: 50, Passes: 1} },
	"test-disk":    func() Spec { return &TestDisk{Mode: TestRead, Samples: 64} },
	"test-network": func() Spec { return &TestNetwork{Transfer: 64 << 20} },
	"partition":    func() Spec { return &Partition{} },
	"raid":         func() Spec { return &Raid{Level: 1, Metadata: MetadataStart} },
	"lvm":          func() Spec { return &LVM{} },
	"format":       func() Spec { return &Format{} },
	"image":        func() Spec { return &Image{} },
	"archive":      func() Spec { return &Archive{Path: "/"} },
	"file":         func() Spec { return &File{Mode: 0o644, Owner: Owner{"0", "0"}} },
	"command":      func() Spec { return &Command{In: InRoot, Blame: trivet.FaultConfiguration} },
	"seed":         func() Spec { return &Seed{Path: "/var/lib/cloud/seed/nocloud"} },
	"head": func() Spec {
		return &Head{Path: "/etc/trivet/config.yaml", Program: "/usr/bin/trivet", Mode: 0o600, Owner: Owner{"0", "0"}}
	},
	"bootloader": func() Spec { return &Bootloader{Kind: "grub"} },
	"container":  func() Spec { return &Container{Net: "host", Blame: trivet.FaultConfiguration} },
	"kexec":      func() Spec { return &Kexec{} },
	"reboot":     func() Spec { return &Reboot{} },
	"poweroff":   func() Spec { return &Poweroff{} },
	"noop":       func() Spec { return &Noop{} },
}

// Parse returns the arguments of a rendered action, as a pointer to one of this package's structs. Its errors are
// [trivet.ErrInvalid] and name the field, "with.image".
func Parse(a trivet.Action) (Spec, error) { return parse("", a, false) }

// Check validates one action of a template; field is the action's path, "spec.actions[0]". Values that contain "{{"
// are not known before the template is rendered: [CheckRendered] checks them then.
func Check(field string, a trivet.Action) error {
	_, err := parse(field+".", a, true)
	return err
}

// CheckRendered validates one action whose texts are rendered.
func CheckRendered(field string, a trivet.Action) error {
	_, err := parse(field+".", a, false)
	return err
}

func parse(path string, a trivet.Action, isTemplate bool) (Spec, error) {
	newSpec := constructors[a.Use]
	if newSpec == nil {
		return nil, &trivet.FieldError{Field: path + "use", Problem: fmt.Sprintf("%q is not an action", a.Use)}
	}
	s, p := newSpec(), &problems{path: path + "with.", timeout: a.TimeoutOrDefault()}
	d := decoder{problems: p, isTemplate: isTemplate}
	d.fields("", a.With, reflect.ValueOf(s).Elem())
	if len(p.errs) == 0 {
		s.check(p)
	}
	return s, p.err()
}

// Since returns the release that added what an action of a template uses; empty where all releases have it.
func Since(a trivet.Action) trivet.Release {
	switch {
	case a.Use == "verify", a.Use == "raid", a.Use == "lvm", a.Use == "head", strings.HasPrefix(a.Use, "test-"),
		a.Use == "wipe" && a.With["mode"] == WipeErase:
		return "0.3.1"
	}
	return ""
}

// ImageUse is how an action uses an image.
type ImageUse struct {
	Name  string           // of the Image record
	Whole bool             // it is written to a whole disk
	Disk  trivet.DiskHints // which select that disk; zero: those of the machine's record
}

// imageFormats are the formats that actions require of their images.
var imageFormats = map[string]string{"image": "raw", "archive": "tar", "container": "oci"}

// CheckFormat returns an error if an action cannot use an image.
func CheckFormat(a trivet.Action, name string, image trivet.ImageSpec) error {
	if want := imageFormats[a.Use]; want != "" && image.Format != want {
		return fmt.Errorf("%w: image %s is of format %s; action %s requires %s", trivet.ErrInvalid, name, image.Format,
			a.Use, want)
	}
	return nil
}

// UsedImage returns the image that a rendered action uses; false where it uses none.
func UsedImage(a trivet.Action) (ImageUse, bool) {
	s, err := Parse(a)
	if err != nil {
		return ImageUse{}, false
	}
	var use ImageUse
	switch s := s.(type) {
	case *Image:
		use = ImageUse{Name: s.Image, Whole: s.Partition == 0, Disk: s.Hints}
	case *Archive:
		use.Name = s.Image
	case *Container:
		use.Name = s.Image
	}
	return use, use.Name != ""
}
