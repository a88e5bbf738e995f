package actionspec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// The values of arguments are those that their actions accept, and belong to an argument.
func TestChoicesAreThoseThatActionsAccept(t *testing.T) {
	used := map[string]bool{}
	for _, a := range Actions() {
		for _, arg := range a.Args {
			for _, key := range []string{a.Name + "." + arg.Name, "*." + arg.Name} {
				used[key] = used[key] || choices[key] != nil && arg.Values != nil
			}
			for _, value := range append([]string{"no such value"}, arg.Values...) {
				with := map[string]any{arg.Name: value}
				if a.Name == "raid" { // what is required is checked first
					with["name"], with["devices"] = "r", []any{"/dev/sda", "/dev/sdb"}
				}
				err := Check("a", trivet.Action{Use: a.Name, With: with})
				refused := err != nil && strings.Contains(err.Error(), fmt.Sprintf("a.with.%s %q must be ", arg.Name, value))
				if isChoice := slices.Contains(arg.Values, value); arg.Values != nil && refused == isChoice {
					t.Errorf("%s.%s: %q: %v", a.Name, arg.Name, value, err)
				}
			}
		}
	}
	for key, values := range choices {
		if !used[key] {
			t.Errorf("%s: no such argument", key)
		}
		for _, value := range values {
			if key == "format.fs" && labelBytes[value] == 0 {
				t.Errorf("labels of %s have no limit", value)
			}
		}
	}
}

// Every action and argument has a description, and every description is used.
func TestEveryArgumentIsDescribed(t *testing.T) {
	used := map[string]bool{}
	use := func(keys ...string) {
		i := slices.IndexFunc(keys, func(key string) bool { return descriptions[key] != "" })
		if i < 0 {
			t.Errorf("%s has no description", keys[0])
			return
		}
		used[keys[i]] = true
	}
	for _, a := range Actions() {
		use(a.Name)
		for _, arg := range a.Args {
			use(a.Name+"."+arg.Name, "*."+arg.Name)
			if arg.Description == "" {
				t.Errorf("%s.%s is not described", a.Name, arg.Name)
			}
			for _, nested := range arg.Args {
				use(arg.Name + "." + nested.Name)
				if nested.Description == "" {
					t.Errorf("%s.%s.%s is not described", a.Name, arg.Name, nested.Name)
				}
				for _, deep := range nested.Args {
					use(nested.Name + "." + deep.Name)
					if deep.Description == "" {
						t.Errorf("%s.%s.%s.%s is not described", a.Name, arg.Name, nested.Name, deep.Name)
					}
				}
			}
		}
	}
	for key, text := range descriptions {
		if !used[key] {
			t.Errorf("%s describes nothing", key)
		}
		if !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q is not a sentence", key, text)
		}
	}
}

func TestActionsHaveTypesAndDefaults(t *testing.T) {
	got := map[string]Arg{}
	for _, a := range Actions() {
		for _, arg := range a.Args {
			got[a.Name+"."+arg.Name] = arg
		}
	}
	for name, want := range map[string]Arg{
		"file.mode":            {Type: "text", Default: "0644"},
		"file.owner":           {Type: "text", Default: "0:0"},
		"file.path":            {Type: "text", Required: true},
		"wipe.mode":            {Type: "text", Default: "quick"},
		"image.grow":           {Type: "boolean"},
		"command.env":          {Type: "map of texts"},
		"command.args":         {Type: "list of texts"},
		"command.blame":        {Type: "text", Default: "configuration"},
		"noop.sleep":           {Type: "duration"},
		"partition.partitions": {Type: "list of objects", Required: true},
		"wipe.disk":            {Type: "path or object"},
		"raid.devices":         {Type: "list of paths or objects", Required: true},
		"raid.level":           {Type: "number", Default: "1"},
		"lvm.volumes":          {Type: "list of objects", Required: true},
		"format.partition":     {Type: "number"},
	} {
		g := got[name]
		if g.Type != want.Type || g.Default != want.Default || g.Required != want.Required {
			t.Errorf("%s: %+v, want %+v", name, g, want)
		}
	}
	if args := got["wipe.disk"].Args; len(args) != 8 || args[7].Type != "boolean" || args[5].Type != "size" {
		t.Errorf("disk hints: %+v", args)
	}
}
