package boot_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/boot"
)

var update = flag.Bool("update", false, "rewrite the scripts in testdata")

func facts(target boot.Target) boot.ScriptFacts {
	digest := func(c string) trivet.BlobRef { return trivet.BlobRef{Digest: "sha256:" + strings.Repeat(c, 64)} }
	return boot.ScriptFacts{
		Target: target, Reason: "the test requires it", Machine: "m1", MAC: mac,
		Heads: []string{"http://10.0.0.1:8080", "http://10.0.0.2:8080"},
		API:   []string{"https://10.0.0.1:7443", "https://10.0.0.2:7443"},
		CA:    "sha256:" + strings.Repeat("c", 64),
		Token: "tb1~boot~m1~525400123456~3~1790000000~abc",
		Platform: &trivet.Platform{Meta: trivet.Meta{Name: "debian"}, Spec: trivet.PlatformSpec{
			Arch: "amd64", Kernel: digest("a"), Initrd: digest("b"), Args: []string{"console=tty0"},
		}},
		Args: []string{"console=ttyS0,115200"},
	}
}

func change(f boot.ScriptFacts, apply func(*boot.ScriptFacts)) boot.ScriptFacts {
	apply(&f)
	return f
}

func TestScripts(t *testing.T) {
	for name, f := range map[string]boot.ScriptFacts{
		"installer": facts(boot.Installer),
		"disk":      facts(boot.LocalDisk),
		"wait":      facts(boot.Wait),
		"installer-journal-arm64": change(facts(boot.Installer), func(f *boot.ScriptFacts) {
			f.Journal, f.Platform.Spec.Arch, f.Heads = "/dev/vdb", "arm64", f.Heads[:1]
		}),
		"no-platform": change(facts(boot.Installer), func(f *boot.ScriptFacts) { f.Platform = nil }),
		"too-long": change(facts(boot.Installer), func(f *boot.ScriptFacts) {
			f.Args = []string{strings.Repeat("a", 1900)}
		}),
		"hostile-argument": change(facts(boot.Installer), func(f *boot.ScriptFacts) {
			f.Args = []string{"ok=1", "a b", "${net0/mac}", "||", "#x", "x\ny", `x\`, `"x`, "café",
				"trivet.url=https://evil"}
		}),
		"hostile-machine": change(facts(boot.Installer), func(f *boot.ScriptFacts) { f.Machine = "m1\nreboot" }),
		"hostile-reason": change(facts(boot.Wait), func(f *boot.ScriptFacts) {
			f.Reason = "a\n${b} || reboot && c \\ # \x00 é"
		}),
	} {
		t.Run(name, func(t *testing.T) {
			got, file := boot.Script(f), filepath.Join("testdata", name+".ipxe")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// commands are all commands that a script may contain, as iPXE parses them.
var commands = regexp.MustCompile(`^(#!ipxe|imgfree|goto again|exit 1|:(again|wrong|next|initrd|ready)` +
	`|set head http\S+|sleep \d+|echo [^$|&#\\]*` +
	`|iseq \$\{(buildarch|platform)\} (arm64|efi) (&& goto (wrong|next) \|\||\|\| goto wrong)` +
	`|sanboot --no-describe --drive 0x80 \|\| echo no disk to boot` +
	`|imgfetch --name vmlinuz --timeout \d+ \$\{head\}/boot/\S+ && goto initrd \|\|` +
	`|imgfetch --name initrd.img --timeout \d+ (\$\{head\}|http[^ $]+)/boot/\S+ && goto ready \|\|` +
	`|(chain --replace --autofree --timeout \d+ http\S+ \|\| )*dhcp \|\|` +
	`|boot vmlinuz (?:[^ #]\S* )+\|\|)$`)

func FuzzScript(f *testing.F) {
	f.Add("installer", "m1", mac, "http://h:1", "https://h:2", "ca", "token", "sha256:aa", "a=b", "why", "/dev/vdb")
	f.Add("wait", "m\n1", "${mac}", "http://h\n:1", "&&", "#", "||", "x y", "${x}\nreboot", "\n:again\nreboot", `\`)
	f.Fuzz(func(t *testing.T, target, machine, mac, head, api, ca, token, digest, arg, reason, journal string) {
		blob := trivet.BlobRef{Digest: digest}
		script := boot.Script(boot.ScriptFacts{
			Target: boot.Target(target), Reason: reason, Machine: machine, MAC: mac,
			Heads: []string{head, "http://10.0.0.1"}, API: []string{api},
			CA: ca, Token: token, Journal: journal, Args: []string{arg, "last"},
			Platform: &trivet.Platform{Meta: trivet.Meta{Name: machine}, Spec: trivet.PlatformSpec{
				Arch: arg, Kernel: blob, Initrd: blob, Args: []string{reason},
			}},
		})
		for line := range strings.Lines(script) {
			line = strings.TrimSuffix(line, "\n")
			if !commands.MatchString(line) {
				t.Errorf("line %q of\n%s", line, script)
			}
			if rest := strings.NewReplacer("${buildarch}", "", "${platform}", "", "${head}/boot/",
				"").Replace(line); strings.Contains(rest, "${") {
				t.Errorf("%q contains an expansion", line)
			}
		}
	})
}
